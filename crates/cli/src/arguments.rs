//! What can be typed.

mod groups;
mod peers;
mod radio;
mod upload;

use std::ffi::OsString;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use policy::limit::{Limit, NamedLimit};
use policy::rules::Dscp;
use units::{BitRate, Bytes};

pub use groups::{Group, GroupCommand, GroupInvite, GroupJoin, GroupList, GroupNamed};
pub use peers::{Chat, Listen, NearbyPeers, Only, Reach, Receive, Send, Serve, Spare};
pub use radio::{
    Radio, RadioAdd, RadioAps, RadioCommand, RadioList, RadioLogin, RadioProbe, RadioRemove, RadioScan,
    RadioUp, RadioWeights,
};
pub use upload::{Accept, Call, Share, Upload};

/// One interface over all your networks, bonded through your own gateway.
#[derive(Parser, Debug)]
#[command(name = "anabranch", version, after_help = crate::exit::HELP, max_term_width = 100)]
pub struct Arguments {
    /// Keep keys, peers and the control socket in DIR [default: /var/lib/anabranch as root, else
    /// ~/.local/state/anabranch]
    #[arg(long, global = true, value_name = "DIR", env = "ANABRANCH_STATE")]
    pub state: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Wait for the end of a command with --switch-off, and switch adapters on that it has left off.
    #[command(hide = true)]
    SwitchOn {
        /// The note of what is off
        note: PathBuf,
    },
    /// Write the manual pages and the completions of shells, as these definitions have them: for packages.
    #[command(hide = true)]
    WritePages {
        /// Where the directories of a system's `share` are made
        directory: PathBuf,
    },
    /// Take an invitation: meet the gateway that made it
    Join(Join),
    /// Bring the interface up
    Up(Up),
    /// Bring it down and take back everything that was changed on this machine
    Down(Down),
    /// Show the session, the networks and their paths
    Status(Status),
    /// List the networks with their settings
    Networks(Networks),
    /// List the devices on shared links whose keys are known, or make a key known
    Neighbours(Neighbours),
    /// Change the settings of a network until the daemon ends
    Network(Network),
    /// Show what happened
    Events(Events),
    /// Show the flows, what carries each of them, and why
    Flows(Flows),
    /// Say what would become of a flow, without sending anything to its destination
    Explain(Explain),
    /// Run a command whose flows use a network or a treatment
    Run(Run),
    /// Open the login page of a network's captive portal over that network
    Login(Login),
    /// Hold flows to a destination to a network or a treatment
    Pin(Pin),
    /// Remove a pin
    Unpin(Unpin),
    /// List the rules in the order in which they are tried
    Rules(Rules),
    /// Replay a recorded day with another configuration
    WhatIf(WhatIf),
    /// Write a report of a fault: settings, state, logs, rules, without names, public addresses, keys and secrets
    Report(Report),
    /// Watch networks, flows, paths, the radio and events live on this terminal, and change them by keys
    Top,
    /// Record what the bond does, and draw it
    Trace(Trace),
    /// Show the address of the daemon's web page, with the token that opens it
    Web(Web),
    /// Use one Wi-Fi card in several networks
    Radio(Radio),
    /// Send files to a peer, by whichever network reaches it, now or in some minutes
    Send(Send),
    /// Take files from peers
    Receive(Receive),
    /// Write to a peer, or wait for one who writes
    Chat(Chat),
    /// Show which peers are known, and which are nearby
    Peers(NearbyPeers),
    /// Make, join and leave groups: circles of peers who find and relay for each other
    Group(Group),
    /// Let peers reach TCP ports of this machine
    Serve(Serve),
    /// Connect standard input and output with a peer's TCP port: for ProxyCommand of ssh
    Reach(Reach),
    /// Lend the uplink to neighbours who upload files; off unless this runs
    Share(Share),
    /// Upload files through the neighbours' uplinks and this machine's own
    Upload(Upload),
    /// Take files that come through neighbours
    Accept(Accept),
    /// Run and look after a gateway
    Gateway(Gateway),
    /// Show bonding at work in network namespaces on this machine
    Demo(Companion),
    /// Run experiments
    Lab(Companion),
}

#[derive(Args, Debug)]
pub struct Join {
    /// The join link, or - to read it from standard input, where other users cannot see it
    #[arg(default_value = "-", value_name = "LINK|-")]
    pub link: String,
    /// Name for the gateway on this machine
    #[arg(long)]
    pub name: Option<String>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Up {
    /// Stay in the foreground and log to the terminal
    #[arg(long)]
    pub foreground: bool,
    /// Only print every route, rule and file that would be touched
    #[arg(long)]
    pub dry_run: bool,
    /// Configuration to use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    /// Leave the session of the terminal: how `up` starts its daemon.
    #[arg(long, hide = true, requires = "foreground")]
    pub detached: bool,
}

#[derive(Args, Debug)]
pub struct Down {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Status {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Web {
    /// Configuration that the daemon uses
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Report {
    /// Where to write it, - for standard output [default: anabranch-report-DATE.txt]; a file that is there is left alone
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Networks {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Neighbours {
    #[command(subcommand)]
    pub command: Option<NeighboursCommand>,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum NeighboursCommand {
    /// Make a device's key known, as its user tells it; that user does the same with this device's
    Add {
        /// What it is to be called here
        name: String,
        /// Its key: "anabranch neighbours" shows it there
        key: String,
    },
    /// Forget a device's key
    Remove {
        /// What it is called here
        name: String,
    },
}

#[derive(Args, Debug)]
pub struct Network {
    /// Name of the network: that of its interface
    pub name: String,
    /// Order of preference: the lowest number is used, the others wait
    #[arg(long, value_name = "N")]
    pub priority: Option<u8>,
    /// Use it only while no other network is left
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub backup: Option<Switch>,
    /// It costs by the byte: a backup, unless --backup=off
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub metered: Option<Switch>,
    /// Do not use it at all
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub off: Option<Switch>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

#[derive(Args, Debug)]
pub struct Events {
    /// Go on as things happen
    #[arg(long, short)]
    pub follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub since: u64,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct OpenDaemon {
    /// Ask the device with this interface, through the socket that is open to every user
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
}

#[derive(Args, Debug)]
pub struct Flows {
    /// Show them again and again
    #[arg(long, short)]
    pub watch: bool,
    /// Answer in JSON; one object a line with --watch
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub daemon: OpenDaemon,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// An address or a name, which is looked up; port 443 unless given
    #[arg(value_name = "DEST[:PORT]")]
    pub destination: String,
    /// UDP instead of TCP
    #[arg(long)]
    pub udp: bool,
    /// Differentiated services code point of its packets: 0 to 63, or a name such as ef
    #[arg(long, value_name = "DSCP")]
    pub dscp: Option<Dscp>,
    /// Answer in JSON: a list with one entry for each family of addresses
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub daemon: OpenDaemon,
}

#[derive(Args, Debug)]
pub struct HoldTo {
    /// This network and no other; may be repeated
    #[arg(long, value_name = "NAME")]
    pub network: Vec<String>,
    /// How flows are carried
    #[arg(long, value_name = "HOW")]
    pub treat: Option<Treat>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Treat {
    /// One network, no gateway
    Direct,
    /// All networks, packet by packet
    Bonded,
    /// Every packet on two networks
    Duplicated,
    /// Bonded, with repair
    Protected,
    /// One connection over several networks, without a gateway; for programs, if the far end can do that too
    Mptcp,
}

impl From<Treat> for policy::Treatment {
    fn from(treat: Treat) -> Self {
        match treat {
            Treat::Direct => Self::Direct,
            Treat::Bonded => Self::Bonded,
            Treat::Duplicated => Self::Duplicated,
            Treat::Protected => Self::Protected,
            Treat::Mptcp => Self::Mptcp,
        }
    }
}

#[derive(Args, Debug)]
pub struct Run {
    #[command(flatten)]
    pub hold: HoldTo,
    /// Connections to a peer's name go over virtual sockets, which survive a change of network; that peer runs `anabranch serve`
    #[arg(long = "virtual", conflicts_with_all = ["network", "treat", "interface"])]
    pub over_sockets: bool,
    /// With --virtual: reach the members of this group, and nobody else
    #[arg(long, value_name = "NAME", requires = "over_sockets")]
    pub group: Option<String>,
    #[command(flatten)]
    pub only: Only,
    #[command(flatten)]
    pub spare: Spare,
    #[command(flatten)]
    pub daemon: OpenDaemon,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Login {
    /// Name of the network: that of its interface
    pub network: String,
    /// Program that shows the page; else $BROWSER, else xdg-open
    #[arg(long, value_name = "PROGRAM")]
    pub browser: Option<OsString>,
    #[command(flatten)]
    pub daemon: OpenDaemon,
}

#[derive(Args, Debug)]
pub struct Pin {
    /// An address or a network of addresses
    #[arg(value_name = "DEST", required_unless_present = "domain", conflicts_with = "domain")]
    pub destination: Option<String>,
    /// The addresses that this name has now
    #[arg(long, value_name = "NAME")]
    pub domain: Option<String>,
    #[command(flatten)]
    pub hold: HoldTo,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub daemon: OpenDaemon,
}

#[derive(Args, Debug)]
pub struct Unpin {
    /// Name of the pin, as `anabranch rules` shows it
    pub name: String,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub daemon: OpenDaemon,
}

#[derive(Args, Debug)]
pub struct Rules {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub daemon: OpenDaemon,
}

#[derive(Args, Debug)]
pub struct WhatIf {
    /// The record: one JSON object a line
    pub trace: PathBuf,
    /// The configuration to try
    #[arg(long, value_name = "FILE")]
    pub policy: PathBuf,
    /// The configuration to compare it with, if not the one that `anabranch up` uses
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Trace {
    #[command(subcommand)]
    pub command: TraceCommand,
}

#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Record paths, losses and events of the running device until Ctrl-C (qlog)
    Record(TraceRecord),
    /// Draw a record
    Draw(TraceDraw),
}

#[derive(Args, Debug)]
pub struct TraceRecord {
    /// The file to make
    pub file: PathBuf,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Milliseconds from one look at the device to the next
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub interval: u64,
    /// End before the file has more than so many megabytes
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub most: u64,
}

#[derive(Args, Debug)]
pub struct TraceDraw {
    /// The record
    pub file: PathBuf,
    /// The picture to make
    #[arg(long, value_name = "FILE")]
    pub svg: PathBuf,
}

#[derive(Args, Debug)]
pub struct Gateway {
    #[command(subcommand)]
    pub command: GatewayCommand,
}

#[derive(Subcommand, Debug)]
pub enum GatewayCommand {
    /// Make this machine a gateway: its key, its list of clients, its configuration
    Init(GatewayInit),
    /// Run the gateway in the foreground
    Run(GatewayRun),
    /// Invite a device: prints a join link, which works once
    Invite(GatewayInvite),
    /// List clients and open invitations
    Clients(GatewayClients),
    /// Shut a client out, or withdraw its invitation
    Revoke(GatewayRevoke),
    /// Make a port of the gateway lead to a client
    Forward(GatewayForward),
    /// Limit what a client may carry a second, or in a month
    Limit(GatewayLimit),
    /// Have the running gateway read its configuration anew; nobody is disconnected
    Reload(GatewayReload),
    /// Have the running gateway become the version that is installed now; no port is closed meanwhile
    Renew(GatewayRenew),
}

#[derive(Args, Debug)]
pub struct GatewayInit {
    /// Where devices find this gateway: address or DNS name, with :PORT unless 4600; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub address: Vec<String>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct GatewayRun {
    /// Only print every route, rule and file that would be touched
    #[arg(long)]
    pub dry_run: bool,
    /// Configuration to use
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct GatewayInvite {
    /// Name that the device will have
    pub name: String,
    /// How long the link can be used: 30m, 24h, 7d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lifetime)]
    pub expires: Duration,
    /// Show the link as a QR code too
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub qr: ShowQr,
    /// Configuration to use while no gateway runs
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ShowQr {
    /// If it goes to a terminal
    Auto,
    Always,
    Never,
}

#[derive(Args, Debug)]
pub struct GatewayClients {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct GatewayRevoke {
    /// Name of the client or of the invitation
    pub name: String,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct GatewayForward {
    /// Port on the gateway
    pub port: NonZeroU16,
    /// The client, if there are several
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
    /// Port on the device, if another one
    #[arg(long, value_name = "PORT")]
    pub to: Option<NonZeroU16>,
    /// UDP instead of TCP
    #[arg(long)]
    pub udp: bool,
    /// Take the port back
    #[arg(long, conflicts_with_all = ["client", "to"])]
    pub remove: bool,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limit").args(["rate", "quota"]).required(true).multiple(true))]
pub struct GatewayLimit {
    /// The client
    pub name: String,
    /// Most that it may send, and receive, a second: "20 Mbit/s", "none", or "default" for what the configuration says
    #[arg(long, value_parser = limit::<BitRate>)]
    pub rate: Option<Limit<BitRate>>,
    /// Most that it may send and receive together in a month before it is slowed down: "100 GB", "none" or "default"
    #[arg(long, value_name = "SIZE", value_parser = limit::<Bytes>)]
    pub quota: Option<Limit<Bytes>>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct GatewayRenew {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct GatewayReload {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Companion {
    /// Arguments of anabranch-lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `none`, `default`, or a quantity.
fn limit<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Limit<T>, String> {
    match text {
        "none" => Ok(Limit::Named(NamedLimit::None)),
        "default" => Ok(Limit::Named(NamedLimit::Default)),
        text => text.parse().map(Limit::At).map_err(|error| format!("{error}, \"none\" or \"default\"")),
    }
}

/// `90s`, `30m`, `24h` or `7d`.
fn lifetime(text: &str) -> Result<Duration, String> {
    const WRONG: &str = "expected a number and a unit: 90s, 30m, 24h or 7d";
    let (number, seconds) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
        .iter()
        .find_map(|(unit, seconds)| text.strip_suffix(unit).map(|number| (number, *seconds)))
        .ok_or(WRONG)?;
    let number: u64 = number.parse().map_err(|_| WRONG)?;
    number
        .checked_mul(seconds)
        .filter(|total| *total > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| WRONG.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn lifetimes() {
        assert_eq!(lifetime("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(lifetime("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in
            ["", "24", "h", "0s", "-1h", "1.5h", "24 h", "99999999999999999999d", "18446744073709551615d"]
        {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn switches_of_a_network() {
        let network = |arguments: &[&str]| {
            let all = ["anabranch", "network", "wlan0"].iter().chain(arguments);
            match Arguments::try_parse_from(all).unwrap().command {
                Command::Network(network) => (network.backup, network.off),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(network(&["--backup"]), (Some(Switch::On), None));
        assert_eq!(network(&["--backup=off", "--off=on"]), (Some(Switch::Off), Some(Switch::On)));
    }

    #[test]
    fn slots_vary_as_their_help_says() {
        let slots = |arguments: &[&str]| {
            let all = ["anabranch", "radio", "up"].iter().chain(arguments);
            match Arguments::try_parse_from(all).unwrap().command {
                Command::Radio(Radio { command: RadioCommand::Up(up) }) => up.slots().spread,
                other => panic!("{other:?}"),
            }
        };
        let percent = |spread: f64| (spread * 100.0).round();
        assert_eq!(percent(slots(&[])), 10.0);
        assert_eq!(percent(slots(&["--slot", "100"])), 0.0);
        assert_eq!(percent(slots(&["--slot", "100", "--spread", "20"])), 20.0);
        assert_eq!(percent(slots(&["--spread", "0"])), 0.0);
    }
}
