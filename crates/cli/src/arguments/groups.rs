//! What can be typed for groups.

use clap::{Args, Subcommand};

use super::Only;

#[derive(Args, Debug)]
pub struct Group {
    #[command(subcommand)]
    pub command: GroupCommand,
}

#[derive(Subcommand, Debug)]
pub enum GroupCommand {
    /// Make a group; this machine is its first member
    Create(GroupNamed),
    /// Show a link that lets one more machine join, and wait until one has
    Invite(GroupInvite),
    /// Join the group of a link
    Join(GroupJoin),
    /// Leave a group
    Leave(GroupNamed),
    /// Show the groups that this machine is in, and the members that it has met
    List(GroupList),
}

#[derive(Args, Debug)]
pub struct GroupNamed {
    /// Name of the group on this machine
    #[arg(value_name = "NAME")]
    pub group: String,
}

#[derive(Args, Debug)]
pub struct GroupInvite {
    /// Name of the group on this machine
    #[arg(value_name = "NAME")]
    pub group: String,
    /// UDP port that who joins calls
    #[arg(long, default_value_t = 4613)]
    pub port: u16,
    #[command(flatten)]
    pub only: Only,
}

#[derive(Args, Debug)]
pub struct GroupJoin {
    /// The link that `anabranch group invite` shows on a member's machine
    pub link: String,
    /// Call the group by this name here, not by the inviter's
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub only: Only,
}

#[derive(Args, Debug)]
pub struct GroupList {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
