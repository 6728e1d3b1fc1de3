//! What the kernel's wireless part (`nl80211`) says of an interface: its access point, channel, signal and bit rate.
//!
//! Reading takes no privileges. Nothing is scanned: what is told is what the card knows already.

mod survey;

use std::io;
use std::time::Duration;

use thiserror::Error;
use units::BitRate;
pub use units::{Frequency, MacAddress, Ssid};

pub use survey::Survey;

use crate::netlink::NetlinkError;
use crate::netlink::generic::{FamilyNumber, GenericNetlink, Question};
use crate::netlink::message;

/// Why nothing is known of wireless networks.
#[derive(Debug, Error)]
pub enum WirelessError {
    /// The kernel has no `nl80211`, so no wireless card that it knows of.
    #[error("this machine has no wireless card that the kernel knows (no nl80211)")]
    None,
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// What a wireless interface is used as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WirelessMode {
    /// A client of access points.
    Station,
    /// A member of an ad hoc group.
    AdHoc,
    /// An access point.
    AccessPoint,
    /// It only listens.
    Monitor,
    /// A mesh point.
    Mesh,
    /// Anything else; the kernel's number.
    Other(u32),
}

impl WirelessMode {
    /// By the kernel's number (`enum nl80211_iftype`).
    pub(crate) fn of_number(number: u32) -> Self {
        match number {
            1 => Self::AdHoc,
            2 => Self::Station,
            3 => Self::AccessPoint,
            6 => Self::Monitor,
            7 => Self::Mesh,
            other => Self::Other(other),
        }
    }
}

/// A wireless interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WirelessInterface {
    /// The kernel's number of it, as everywhere.
    pub index: u32,
    /// Its name, such as `wlan0`.
    pub name: String,
    /// Number of its radio: interfaces with the same one share it.
    pub radio: Option<u32>,
    /// What it is used as.
    pub mode: WirelessMode,
    /// Its channel, where it has one and the kernel tells it.
    pub frequency: Option<Frequency>,
}

/// The access point with which an interface is associated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Association {
    /// The network's name; `None` if hidden.
    pub ssid: Option<Ssid>,
    /// The access point.
    pub bssid: MacAddress,
    /// Its channel.
    pub frequency: Frequency,
    /// Signal of its latest frames, in dBm; that of its beacons if the card tells no other.
    pub signal_dbm: Option<i32>,
    /// Signal of its beacons lately, in dBm, which come however little is sent to us.
    pub beacon_dbm: Option<i32>,
    /// Rate at which frames are now sent to it, before retries and overhead.
    pub transmit_rate: Option<BitRate>,
    /// Rate at which it sends.
    pub receive_rate: Option<BitRate>,
    /// Packets of data received since the association; with beacons and other frames of management, by kernels or drivers that do not tell them apart.
    pub received: Option<u32>,
    /// Frames sent since the association.
    pub transmitted: Option<u32>,
    /// Retries of those.
    pub retries: Option<u32>,
    /// Frames given up.
    pub failed: Option<u32>,
    /// Air time of all that the access point sent to us, where the driver counts it.
    pub receive_time: Option<Duration>,
}

/// A connection to the wireless part of the kernel.
pub struct Wireless {
    netlink: GenericNetlink,
    family: FamilyNumber,
}

impl Wireless {
    /// Opens a connection to the current network namespace.
    pub fn open() -> Result<Self, WirelessError> {
        let fail = |error: io::Error| WirelessError::Netlink(error.into());
        let mut netlink = GenericNetlink::open().map_err(fail)?;
        let family = netlink.family("nl80211")?.ok_or(WirelessError::None)?;
        Ok(Self { netlink, family })
    }

    /// All wireless interfaces of this namespace, at most 256.
    pub fn interfaces(&mut self) -> Result<Vec<WirelessInterface>, WirelessError> {
        let mut found = Vec::new();
        let question = Question { command: GET_INTERFACE, dump: true };
        self.netlink.ask(
            "list wireless interfaces",
            self.family,
            question,
            |_| {},
            |answer| {
                if found.len() < MOST_INTERFACES {
                    found.extend(parse_interface(answer));
                }
            },
        )?;
        Ok(found)
    }

    /// The access point with which interface number `index` is associated; `None` if there is none.
    pub fn association(&mut self, index: u32) -> Result<Option<Association>, WirelessError> {
        let mut association = None;
        let question = Question { command: GET_SCAN, dump: true };
        let to = |request: &mut message::Request| {
            request.number(ATTRIBUTE_INDEX, index);
        };
        self.netlink.ask("read the access point", self.family, question, to, |answer| {
            association = association.take().or_else(|| parse_access_point(answer));
        })?;
        let Some(mut association) = association else { return Ok(None) };
        let question = Question { command: GET_STATION, dump: true };
        self.netlink.ask("read the signal and bit rate", self.family, question, to, |answer| {
            add_station(&mut association, answer);
        })?;
        Ok(Some(association))
    }

    /// How the card of interface number `index` spent its time on the channel that it uses; `None` if its driver does not tell.
    pub fn survey(&mut self, index: u32) -> Result<Option<Survey>, WirelessError> {
        let mut survey = None;
        let question = Question { command: GET_SURVEY, dump: true };
        let to = |request: &mut message::Request| {
            request.number(ATTRIBUTE_INDEX, index);
        };
        let told = self.netlink.ask("read the card's time", self.family, question, to, |answer| {
            survey = survey.or_else(|| survey::parse_survey(answer));
        });
        match told {
            Err(error) if error.errno() == libc::EOPNOTSUPP => Ok(None),
            told => Ok(told.map(|()| survey)?),
        }
    }
}

fn parse_interface(attributes: &[u8]) -> Option<WirelessInterface> {
    let (mut index, mut name, mut radio, mut mode) = (None, String::new(), None, WirelessMode::Other(0));
    let mut frequency = None;
    for (kind, value) in message::attributes(attributes) {
        match kind {
            ATTRIBUTE_INDEX => index = message::number(value, 0),
            ATTRIBUTE_NAME => name = message::text(value),
            ATTRIBUTE_RADIO => radio = message::number(value, 0),
            ATTRIBUTE_MODE => mode = WirelessMode::of_number(message::number(value, 0)?),
            ATTRIBUTE_FREQUENCY => frequency = message::number(value, 0).map(Frequency),
            _ => {}
        }
    }
    // Without an index it is a device that has no interface (peer-to-peer discovery).
    Some(WirelessInterface { index: index?, name, radio, mode, frequency })
}

/// The access point in a scan result, if the interface is associated with it.
fn parse_access_point(attributes: &[u8]) -> Option<Association> {
    let (_, network) = message::attributes(attributes).find(|(kind, _)| *kind == ATTRIBUTE_BSS)?;
    let (mut bssid, mut frequency, mut ssid, mut signal_dbm, mut associated) =
        (None, None, None, None, false);
    for (kind, value) in message::attributes(network) {
        match kind {
            BSS_ADDRESS => bssid = value.try_into().ok().map(MacAddress),
            BSS_FREQUENCY => frequency = message::number(value, 0).map(Frequency),
            // Both have the name; beacons of hidden networks do not, answers to probes do.
            BSS_ELEMENTS | BSS_BEACON_ELEMENTS => ssid = ssid.or_else(|| ssid_of(value)),
            // In hundredths of a dBm.
            BSS_SIGNAL => signal_dbm = message::number(value, 0).map(|value| (value as i32).div_euclid(100)),
            BSS_STATUS => associated = matches!(message::number(value, 0), Some(ASSOCIATED | JOINED)),
            _ => {}
        }
    }
    let (bssid, frequency) = (bssid?, frequency?);
    associated.then_some(Association {
        ssid,
        bssid,
        frequency,
        signal_dbm,
        beacon_dbm: None,
        transmit_rate: None,
        receive_rate: None,
        received: None,
        transmitted: None,
        retries: None,
        failed: None,
        receive_time: None,
    })
}

/// The name in a frame's elements: number 1, length 1, value each; the name is number 0.
fn ssid_of(mut elements: &[u8]) -> Option<Ssid> {
    while let [number, length, rest @ ..] = elements {
        let value = rest.get(..usize::from(*length))?;
        if *number == 0 {
            return Ssid::new(value);
        }
        elements = &rest[value.len()..];
    }
    None
}

/// Adds what the card measured towards the access point.
fn add_station(association: &mut Association, attributes: &[u8]) {
    let (mut address, mut measured) = (None, None);
    for (kind, value) in message::attributes(attributes) {
        match kind {
            ATTRIBUTE_ADDRESS => address = value.try_into().ok().map(MacAddress),
            ATTRIBUTE_STATION => measured = Some(value),
            _ => {}
        }
    }
    let Some(measured) = measured.filter(|_| address == Some(association.bssid)) else { return };
    let (mut signal, mut data) = (None, None);
    for (kind, value) in message::attributes(measured) {
        match kind {
            // The mean is steadier than the last frame's.
            STATION_SIGNAL => signal = signal.or(value.first().copied()),
            STATION_MEAN_SIGNAL => signal = value.first().copied().or(signal),
            STATION_BEACON_SIGNAL => {
                let known = value.first().filter(|signal| **signal != 0);
                association.beacon_dbm = known.map(|signal| i32::from(*signal as i8));
            }
            STATION_TRANSMIT_RATE => association.transmit_rate = parse_rate(value),
            STATION_RECEIVE_RATE => association.receive_rate = parse_rate(value),
            STATION_RECEIVED => association.received = message::number(value, 0),
            STATION_TRANSMITTED => association.transmitted = message::number(value, 0),
            STATION_RETRIES => association.retries = message::number(value, 0),
            STATION_FAILED => association.failed = message::number(value, 0),
            STATION_BY_CLASS => data = received_data(value),
            STATION_RECEIVE_TIME => {
                association.receive_time = message::long(value, 0).map(Duration::from_micros)
            }
            _ => {}
        }
    }
    association.received = data.or(association.received);
    // 0 dBm is what cards say that do not know.
    if let Some(signal) = signal.filter(|signal| *signal != 0) {
        association.signal_dbm = Some(i32::from(signal as i8));
    }
}

/// Packets of data of all traffic classes, if they are counted; wraps as the count of all packets does.
fn received_data(classes: &[u8]) -> Option<u32> {
    let of_class = |(_, class)| {
        let mut counts = message::attributes(class);
        message::long(counts.find(|(kind, _)| *kind == CLASS_RECEIVED)?.1, 0)
    };
    let sum = message::attributes(classes).filter_map(of_class).reduce(u64::wrapping_add);
    sum.map(|sum| sum as u32)
}

/// A rate in units of 100 kbit/s; the 16-bit form is missing for rates that it cannot hold.
fn parse_rate(attributes: &[u8]) -> Option<BitRate> {
    let (mut short, mut long) = (None, None);
    for (kind, value) in message::attributes(attributes) {
        match kind {
            RATE_SHORT => short = message::short(value, 0).map(u64::from),
            RATE_LONG => long = message::number(value, 0).map(u64::from),
            _ => {}
        }
    }
    long.or(short).map(|rate| BitRate(rate * 100_000))
}

const MOST_INTERFACES: usize = 256;

// `enum nl80211_commands`.
const GET_INTERFACE: u8 = 5;
const GET_STATION: u8 = 17;
const GET_SCAN: u8 = 32;
const GET_SURVEY: u8 = 50;

// `enum nl80211_attrs`.
const ATTRIBUTE_RADIO: u16 = 1;
const ATTRIBUTE_INDEX: u16 = 3;
const ATTRIBUTE_NAME: u16 = 4;
const ATTRIBUTE_MODE: u16 = 5;
const ATTRIBUTE_ADDRESS: u16 = 6;
const ATTRIBUTE_STATION: u16 = 21;
const ATTRIBUTE_FREQUENCY: u16 = 38;
const ATTRIBUTE_BSS: u16 = 47;

// `enum nl80211_bss`.
const BSS_ADDRESS: u16 = 1;
const BSS_FREQUENCY: u16 = 2;
const BSS_ELEMENTS: u16 = 6;
const BSS_SIGNAL: u16 = 7;
const BSS_STATUS: u16 = 9;
const BSS_BEACON_ELEMENTS: u16 = 11;
const ASSOCIATED: u32 = 1;
const JOINED: u32 = 2;

// `enum nl80211_sta_info`.
const STATION_SIGNAL: u16 = 7;
const STATION_TRANSMIT_RATE: u16 = 8;
const STATION_RECEIVED: u16 = 9;
const STATION_TRANSMITTED: u16 = 10;
const STATION_RETRIES: u16 = 11;
const STATION_FAILED: u16 = 12;
const STATION_MEAN_SIGNAL: u16 = 13;
const STATION_RECEIVE_RATE: u16 = 14;
const STATION_BEACON_SIGNAL: u16 = 30;
const STATION_BY_CLASS: u16 = 31;
const STATION_RECEIVE_TIME: u16 = 32;

// `enum nl80211_tid_stats`.
const CLASS_RECEIVED: u16 = 1;

// `enum nl80211_rate_info`.
const RATE_SHORT: u16 = 1;
const RATE_LONG: u16 = 5;

#[cfg(test)]
mod tests;
