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
    #[arg(long, value_name = "HOST[:PORT]|bt:DEVICE")]
    pub address: Vec<String>,
    /// Remember the peer of a link by this name
    #[arg(long)]
    pub name: Option<String>,
    /// Call it as a member of this group, by the name that it goes by there
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Go by what costs the least, then by what draws the least power (Bluetooth before Wi-Fi), in place of the fastest
    #[arg(long)]
    pub cheapest: bool,
    #[command(flatten)]
    pub only: Only,
    #[command(flatten)]
    pub spare: Spare,
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
    #[arg(long, value_name = "HOST[:PORT]|bt:DEVICE")]
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
    #[arg(required_unless_present = "relay", value_name = "PORT")]
    pub ports: Vec<u16>,
    /// Pass on what others send to each other where they have no network in common: sealed, so this machine can read nothing of it
    #[arg(long)]
    pub relay: bool,
    /// Most that is passed on, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 20, requires = "relay", value_parser = clap::value_parser!(u32).range(1..))]
    pub relay_rate: u32,
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
    #[arg(long, value_name = "HOST[:PORT]|bt:DEVICE")]
    pub address: Vec<String>,
    /// Call it as a member of this group, by the name that it goes by there
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    #[command(flatten)]
    pub only: Only,
    #[command(flatten)]
    pub spare: Spare,
}

/// By which ways.
#[derive(Args, Clone, Debug, Default)]
pub struct Only {
    /// Use this adapter only, such as wlan0 or hci0; may be repeated
    #[arg(long = "adapter", value_name = "NAME")]
    pub adapters: Vec<String>,
}

/// Which ways need not be open.
#[derive(Args, Clone, Debug, Default)]
pub struct Spare {
    /// Switch this Wi-Fi or Bluetooth adapter off while the connection goes by another one, and on again when it is needed or the command ends;
    /// may be repeated. Other programs lose it too
    #[arg(long, value_name = "NAME")]
    pub switch_off: Vec<String>,
}

impl Only {
    /// As endpoints want it.
    pub fn list(&self) -> Option<Vec<String>> {
        self.as_slice().map(<[String]>::to_vec)
    }

    /// The same; `None` for all.
    pub fn as_slice(&self) -> Option<&[String]> {
        (!self.adapters.is_empty()).then_some(&*self.adapters)
    }
}

/// How peers call this end.
#[derive(Args, Debug)]
pub struct Listen<const PORT: u16> {
    /// UDP port in place of the usual one: 4610 to receive, 4611 to chat, 4612 to serve, 4613 to accept
    #[arg(long)]
    pub port: Option<u16>,
    /// Show no link: only peers that are known may call
    #[arg(long)]
    pub no_link: bool,
    /// Do not tell known peers nearby (by multicast DNS and Bluetooth; strangers learn that somebody is there and how many peers it knows, not who)
    #[arg(long)]
    pub hidden: bool,
    /// Be found by and open to the members of this group, and nobody else; may be repeated
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,
    #[command(flatten)]
    pub only: Only,
    #[command(flatten)]
    pub spare: Spare,
}

#[derive(Args, Debug)]
pub struct NearbyPeers {
    /// How long to look for them; otherwise 3, and 8 where there is Bluetooth
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub seconds: Option<u64>,
    /// Show the members of this group; may be repeated
    #[arg(long, value_name = "NAME")]
    pub group: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub only: Only,
}

impl<const PORT: u16> Listen<PORT> {
    /// The port that was asked for, or the usual one. A default value of clap's would be the same one for all `PORT`s: it is kept in one static of
    /// the generic function.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }
}
