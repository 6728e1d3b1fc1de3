//! What a radio can do.

use std::fmt;

use units::{Frequency, MacAddress};

use crate::rfkill::Block;
use crate::wireless::{WirelessInterface, WirelessMode};

/// The kernel's number of a radio (its "wiphy").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RadioNumber(pub u32);

/// A radio of this machine, or of this network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Radio {
    /// The kernel's number of it.
    pub number: RadioNumber,
    /// Its name, such as `phy0`.
    pub name: String,
    /// The driver's name, where the kernel tells it.
    pub driver: Option<String>,
    /// The hardware's own address, where the kernel tells it.
    pub address: Option<MacAddress>,
    /// All channels that the hardware has, also those that must not be used here, by frequency.
    pub channels: Vec<Channel>,
    /// What its interfaces can be used as.
    pub modes: Vec<WirelessMode>,
    /// Which interfaces it can have at the same time. With none listed it can have one.
    pub combinations: Vec<Combination>,
    /// Whether a monitor interface can acknowledge frames that are sent to its address.
    pub active_monitor: bool,
    /// What keeps it from sending, if anything does.
    pub block: Option<Block>,
    /// The interfaces that it has now.
    pub interfaces: Vec<WirelessInterface>,
}

impl Radio {
    /// The largest number of networks in which it can be a station by itself, if those use at most so many `channels`.
    pub fn stations(&self, channels: u32) -> u32 {
        let alone = u32::from(self.modes.contains(&WirelessMode::Station));
        self.combinations
            .iter()
            .filter(|combination| combination.channels >= channels)
            .map(Combination::stations)
            .chain((channels <= 1).then_some(alone))
            .max()
            .unwrap_or(0)
    }

    /// The largest number of channels on which it can be a station at the same time.
    pub fn station_channels(&self) -> u32 {
        let several = self.combinations.iter().filter(|combination| combination.stations() >= 2);
        several.map(|combination| combination.channels.min(combination.stations())).max().unwrap_or(1)
    }
}

/// The bands in which Wi-Fi is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Band {
    /// 2.4 GHz.
    Two,
    /// 5 GHz.
    Five,
    /// 6 GHz.
    Six,
    /// Any other; the kernel's number.
    Other(u16),
}

impl fmt::Display for Band {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Two => formatter.write_str("2.4 GHz"),
            Self::Five => formatter.write_str("5 GHz"),
            Self::Six => formatter.write_str("6 GHz"),
            Self::Other(number) => write!(formatter, "band {number}"),
        }
    }
}

/// A channel of a radio, and what the rules of the country allow there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel {
    /// Its centre.
    pub frequency: Frequency,
    /// The band in which it lies.
    pub band: Band,
    /// It must not be used at all.
    pub disabled: bool,
    /// Nobody may begin to send there (no-IR); answers to an access point are allowed to the kernel's own stations.
    pub no_initiation: bool,
    /// Radar has priority there (DFS).
    pub radar: bool,
    /// Most power that may be sent, in hundredths of a dBm, if told.
    pub most_power: Option<u32>,
}

impl Channel {
    /// Whether the radio can be tuned to it.
    pub fn may_listen(&self) -> bool {
        !self.disabled
    }

    /// Whether frames of our own may be sent there. Elsewhere the kernel drops them without a word.
    pub fn may_send(&self) -> bool {
        !(self.disabled || self.no_initiation || self.radar)
    }
}

/// Interfaces that a radio can have at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combination {
    /// How many of which kinds.
    pub limits: Vec<InterfaceLimit>,
    /// How many in all.
    pub interfaces: u32,
    /// On how many channels at the same time.
    pub channels: u32,
}

/// So many interfaces of these kinds together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceLimit {
    /// How many.
    pub most: u32,
    /// Of which kinds.
    pub modes: Vec<WirelessMode>,
}

impl Combination {
    /// How many stations it can have, if it has nothing else.
    pub fn stations(&self) -> u32 {
        let limits = self.limits.iter().filter(|limit| limit.modes.contains(&WirelessMode::Station));
        limits.map(|limit| limit.most).fold(0, u32::saturating_add).min(self.interfaces)
    }
}

/// The country whose rules hold, by its two letters (ISO 3166-1); `00` is the whole world's common part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Country([u8; 2]);

impl Country {
    /// What holds everywhere.
    pub const WORLD: Self = Self(*b"00");

    /// The country called so; `None` for anything but two letters or digits.
    pub fn new(code: [u8; 2]) -> Option<Self> {
        code.iter().all(u8::is_ascii_alphanumeric).then_some(Self(code))
    }
}

impl fmt::Display for Country {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.0.map(char::from);
        write!(formatter, "{first}{second}")
    }
}
