//! What can be typed for peers.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct Send {
    /// The files, and last the peer: its name here, or the link that its `anabranch receive` shows
    #[arg(required = true, num_args = 2.., value_names = ["FILE", "PEER"])]
    pub files_and_peer: Vec<OsString>,
    /// Where the peer may be reached, beside what is known of it: address or name, with :PORT unless 4610; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub address: Vec<String>,
    /// Remember the peer of a link by this name
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Args, Debug)]
pub struct Receive {
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub to: PathBuf,
    /// End after this many files
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u32>,
    #[command(flatten)]
    pub listen: Listen<4610>,
}

#[derive(Args, Debug)]
pub struct Chat {
    /// The peer: its name here, or the link that its `anabranch chat` shows; without one this end waits
    pub peer: Option<String>,
    /// Where the peer may be reached, beside what is known of it; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub address: Vec<String>,
    /// Remember the peer of a link by this name
    #[arg(long)]
    pub name: Option<String>,
    #[command(flatten)]
    pub listen: Listen<4611>,
}

#[derive(Args, Debug)]
pub struct Serve {
    /// The ports that known peers may reach
    #[arg(required = true, value_name = "PORT")]
    pub ports: Vec<u16>,
    #[command(flatten)]
    pub listen: Listen<4612>,
}

#[derive(Args, Debug)]
pub struct Reach {
    /// The peer's name
    pub peer: String,
    /// Its TCP port
    pub port: u16,
    /// Where the peer may be reached, beside what is known of it; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub address: Vec<String>,
}

/// How peers call this end.
#[derive(Args, Debug)]
pub struct Listen<const PORT: u16> {
    /// UDP port
    #[arg(long, default_value_t = PORT)]
    pub port: u16,
    /// Show no link: only peers that are known may call
    #[arg(long)]
    pub no_link: bool,
}
