//! What can be typed for uploads through neighbours.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anabranch::upload::AirRates;
use clap::Args;

use super::lifetime;
use super::peers::{Listen, Only, Spare};

#[derive(Args, Debug)]
pub struct Share {
    /// Where the files go: the destination's name here, or a link that its `anabranch accept` shows
    #[arg(required_unless_present = "ledger", value_name = "DEST")]
    pub destination: Option<String>,
    /// Carry for this source: its public key, or its name here; may be repeated. Nobody else gets anything
    #[arg(long, value_name = "KEY|NAME")]
    pub trust: Vec<String>,
    /// Carry for every source that the destination lets in
    #[arg(long, conflicts_with = "trust")]
    pub trust_all: bool,
    /// Lend this much at most, Mbit/s
    #[arg(long, value_name = "MBIT", value_parser = rate)]
    pub rate: Option<f64>,
    /// End after this many megabytes
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    pub volume: Option<u64>,
    /// End after this time, such as 90m, 8h or 7d
    #[arg(long = "for", value_name = "TIME", value_parser = lifetime)]
    pub time: Option<Duration>,
    /// Carry with an equal share of the uplink beside this machine's own traffic; without this, what is carried gives way to it
    #[arg(long)]
    pub equal: bool,
    /// Listen to neighbours by this adapter only; may be repeated. A Wi-Fi interface in monitor mode hears whoever is on its channel
    #[arg(long, value_name = "NAME")]
    pub air: Vec<String>,
    /// Repeat by this adapter what was heard, for neighbours who do not hear the source and ask for it; may be repeated
    #[arg(long, value_name = "NAME")]
    pub repeat: Vec<String>,
    /// Repeat at these bit rates, Mbit/s: those of the source's --air-rates, in its order
    #[arg(long, value_name = "MBIT,...", requires = "repeat")]
    pub air_rates: Option<AirRates>,
    /// Show for whom this machine has carried how much, and end
    #[arg(long)]
    pub ledger: bool,
    /// The ledger as JSON
    #[arg(long, requires = "ledger")]
    pub json: bool,
    #[command(flatten)]
    pub call: Call,
}

#[derive(Args, Debug)]
pub struct Upload {
    /// The files
    #[arg(required = true, num_args = 1.., value_name = "FILE")]
    pub files: Vec<OsString>,
    /// Where they go: the destination's name here, or a link that its `anabranch accept` shows
    #[arg(required = true, value_name = "DEST")]
    pub destination: String,
    /// Send to neighbours by this adapter only; may be repeated. By a Wi-Fi interface in monitor mode it needs no network, and finds the best bit rate
    #[arg(long, value_name = "NAME")]
    pub air: Vec<String>,
    /// What may be sent to neighbours, Mbit/s; a Wi-Fi carries less to everybody than to one
    #[arg(long, value_name = "MBIT", default_value_t = 12.0, value_parser = rate)]
    pub air_rate: f64,
    /// Send to neighbours at these bit rates only, Mbit/s, such as 1,2,5.5,11; for Wi-Fi interfaces in monitor mode. Usually: what the channel has, without
    /// 5.5 and 11
    #[arg(long, value_name = "MBIT,...", requires = "air")]
    pub air_rates: Option<AirRates>,
    /// Send nothing to neighbours
    #[arg(long, conflicts_with = "no_own_uplink")]
    pub no_air: bool,
    /// Leave all to neighbours, and use this machine's own uplink for words only
    #[arg(long)]
    pub no_own_uplink: bool,
    /// Tell what happens as JSON: one line for each event, five of them a second while a file goes
    #[arg(long)]
    pub json: bool,
    /// Give way to all other traffic of this machine's own uplink
    #[arg(long, conflicts_with = "no_own_uplink")]
    pub background: bool,
    #[command(flatten)]
    pub call: Call,
}

/// How the destination is called.
#[derive(Args, Debug)]
pub struct Call {
    /// Where the destination may be reached, beside what is known of it: address or name, with :PORT unless 4613; may be repeated
    #[arg(long, value_name = "HOST[:PORT]|bt:DEVICE")]
    pub address: Vec<String>,
    /// Remember the destination of a link by this name
    #[arg(long)]
    pub name: Option<String>,
    /// Call it as a member of this group, by the name that it goes by there
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    #[command(flatten)]
    pub only: Only,
    #[command(flatten)]
    pub spare: Spare,
}

#[derive(Args, Debug)]
pub struct Accept {
    /// Where the files go
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// End after this many files
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u32>,
    /// Take files from this source only: its public key, or its name here; may be repeated. Others who are let in may lend their uplinks
    #[arg(long, value_name = "KEY|NAME")]
    pub from: Vec<String>,
    /// Take no file of more than this many megabytes
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    pub largest: Option<u64>,
    /// Show this many links: one for each source and neighbour that is not known yet
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub links: u16,
    #[command(flatten)]
    pub listen: Listen<4613>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.01..=100_000.0).contains(rate));
    rate.ok_or_else(|| "not a rate: say Mbit/s, from 0.01".to_owned())
}
