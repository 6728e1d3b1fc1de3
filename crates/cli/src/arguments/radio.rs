//! What `anabranch radio` takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use daemon::config::ProbeTarget;
use daemon::radio::{Cycle, LoginMethod, SlotSettings};

#[derive(Args, Debug)]
pub struct Radio {
    #[command(subcommand)]
    pub command: RadioCommand,
}

#[derive(Subcommand, Debug)]
pub enum RadioCommand {
    /// Say what each Wi-Fi card can do and how it would serve several networks; takes no daemon and no privileges
    Probe(RadioProbe),
    /// Be in all known networks with one card until it is ended; each gets an interface of its own
    Up(RadioUp),
    /// Make a network known; its passphrase is read from standard input
    Add(RadioAdd),
    /// Forget a network
    Remove(RadioRemove),
    /// Show the known networks, and how they are while the radio runs
    List(RadioList),
    /// Show all networks in range: heard by the running radio, else by a card that listens for a moment
    Scan(RadioScan),
    /// Show the access points in range, how well each is heard, and whether it is worth its air
    Aps(RadioAps),
    /// Tell what has happened to the radio's networks
    Events(super::Events),
    /// End the radio and give the card back
    Down(super::Down),
    /// Change a network's share of the radio's time
    Weights(RadioWeights),
}

#[derive(Args, Debug)]
pub struct RadioProbe {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RadioUp {
    /// The card: one of its interfaces, such as wlan0; needed where there are several
    #[arg(long, value_name = "NAME")]
    pub card: Option<String>,
    /// Let the kernel keep the networks where this program would, too: all of the card's rates, WPA3 and logins, on as many channels as the card can
    #[arg(long, conflicts_with_all = ["cycle", "slot", "alpha", "spread", "settle", "scan_weight", "soft_handoff", "pcap", "trace"])]
    pub kernel: bool,
    /// Visit every channel once in so many milliseconds, shared by weight
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(20..=2_000), conflicts_with = "slot")]
    pub cycle: u32,
    /// Instead, stay on each channel the weights of its networks together times so many milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..=1_000))]
    pub slot: Option<u32>,
    /// How much more time goes to channels whose networks deliver more; 0: weights alone decide
    #[arg(long, value_name = "NUMBER", default_value_t = 2.0, value_parser = alpha)]
    pub alpha: f64,
    /// Make each slot up to so many percent shorter or longer by chance, so that several such radios do not march in step; 10 unless given, 0 with --slot
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=50))]
    pub spread: Option<u8>,
    /// Stay on one channel while its air is full, as turns would bring no more, and visit the others seldom
    #[arg(long, conflicts_with = "soft_handoff")]
    pub settle: bool,
    /// Weight of listening for further networks; 0: only while one is missing
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub scan_weight: u16,
    /// Use these channels only, for listening too, such as 1,6,11
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub channels: Vec<u16>,
    /// Let one network carry all traffic and keep the others ready, each with its address; change over when it fails or fades
    #[arg(long)]
    pub soft_handoff: bool,
    /// With --soft-handoff: what must answer (with status 204) beyond a network, or "off"; can be given several times
    #[arg(long, value_name = "URL", value_parser = probe)]
    pub probe: Vec<Option<ProbeTarget>>,
    /// Write all frames that are sent and heard to a file that Wireshark reads
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Write when each change of channel began and how long its parts took to a file of comma-separated numbers
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Take so many microseconds more for a change of channel, as a real card would where the card is simulated
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000), hide = true)]
    pub channel_cost: u32,
}

impl RadioUp {
    /// What is asked for beyond networks: the same as for a device's unless told.
    pub fn probes(&self) -> Vec<ProbeTarget> {
        if self.probe.is_empty() {
            ProbeTarget::defaults()
        } else {
            self.probe.iter().flatten().cloned().collect()
        }
    }

    /// How turns are taken.
    pub fn slots(&self) -> SlotSettings {
        let milliseconds = |number: u32| Duration::from_millis(number.into());
        let usual = SlotSettings::default();
        let (cycle, spread) = match self.slot {
            Some(slot) => (Cycle::Multiples(milliseconds(slot)), 0.0),
            None => (Cycle::Bounded(milliseconds(self.cycle)), usual.spread),
        };
        SlotSettings {
            cycle,
            alpha: self.alpha,
            spread: self.spread.map_or(spread, |percent| f64::from(percent) / 100.0),
            settle: self.settle,
            ..usual
        }
    }
}

#[derive(Args, Debug)]
pub struct RadioAdd {
    /// The network's name on the air
    pub name: String,
    /// It has no passphrase
    #[arg(long)]
    pub open: bool,
    /// It does not show its name
    #[arg(long)]
    pub hidden: bool,
    /// Its share of the radio's time, relative to the others'
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u16,
    /// Only this access point
    #[arg(long, value_name = "ADDRESS")]
    pub bssid: Option<String>,
    /// Never this access point; can be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub avoid: Vec<String>,
    /// What its interface is called
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// It is an ad hoc group, without an access point; needs --channel
    #[arg(long, requires = "channel")]
    pub ad_hoc: bool,
    /// The channel on which the ad hoc group is founded if nobody is heard of it
    #[arg(long, value_name = "N", requires = "ad_hoc")]
    pub channel: Option<u8>,
    /// Our address there, such as 10.9.0.1/24, instead of asking for one
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    pub address: Option<String>,
    #[command(flatten)]
    pub login: RadioLogin,
}

/// For networks where everybody has a login of their own.
#[derive(Args, Debug)]
pub struct RadioLogin {
    /// You have a login of your own there (802.1X): peap or ttls with a password, tls with a certificate
    #[arg(long = "login", value_name = "METHOD", value_parser = login_method, requires = "identity", requires = "authority")]
    pub method: Option<LoginMethod>,
    /// Your name at the network, such as me@example.org
    #[arg(long, value_name = "NAME", requires = "method")]
    pub identity: Option<String>,
    /// The name that anybody near may read
    #[arg(long, value_name = "NAME", requires = "method")]
    pub anonymous: Option<String>,
    /// File with the certificate of whoever vouches for the network's server, PEM
    #[arg(long, value_name = "FILE", requires = "method")]
    pub authority: Option<PathBuf>,
    /// How the server's name has to end
    #[arg(long, value_name = "NAME", requires = "method")]
    pub domain: Option<String>,
    /// File with your certificate, PEM; for tls
    #[arg(long, value_name = "FILE", requires = "method")]
    pub certificate: Option<PathBuf>,
    /// File with its private key, PEM; for tls
    #[arg(long, value_name = "FILE", requires = "method")]
    pub private_key: Option<PathBuf>,
}

fn login_method(text: &str) -> Result<LoginMethod, String> {
    let found = LoginMethod::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, method)| method).ok_or_else(|| "expected peap, ttls or tls".to_owned())
}

#[derive(Args, Debug)]
pub struct RadioRemove {
    /// The network's name on the air
    pub name: String,
}

#[derive(Args, Debug)]
pub struct RadioList {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RadioScan {
    /// The card that listens if no radio runs; needed where there are several
    #[arg(long, value_name = "NAME")]
    pub card: Option<String>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RadioAps {
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct RadioWeights {
    /// The network's name on the air
    pub name: String,
    /// Its share of the radio's time, relative to the others'
    pub weight: u16,
}

fn probe(text: &str) -> Result<Option<ProbeTarget>, String> {
    if text == "off" {
        return Ok(None);
    }
    let target = ProbeTarget::parse(text);
    target
        .map(Some)
        .ok_or_else(|| "expected \"off\" or a URL such as http://example.org/generate_204".to_owned())
}

fn alpha(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("expected a number from 0 to 10, not \"{text}\""))?;
    if (0.0..=10.0).contains(&number) { Ok(number) } else { Err("expected a number from 0 to 10".to_owned()) }
}
