//! Information elements: a number, a length, and up to 255 bytes (IEEE 802.11-2020 section 9.4.2).

use super::FrameError;
use super::bytes::Reader;
use super::rsn::{RSN_ELEMENT, RobustSecurity};
use super::tim::TrafficMap;
use crate::Rate;

const SSID: u8 = 0;
const SUPPORTED_RATES: u8 = 1;
const CHANNEL: u8 = 3;
const TRAFFIC_MAP: u8 = 5;
const CHANNEL_SWITCH: u8 = 37;
const EXTENDED_RATES: u8 = 50;
const EXTENDED_CHANNEL_SWITCH: u8 = 60;
const HT_OPERATION: u8 = 61;

/// One element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element<'a> {
    /// Its number.
    pub number: u8,
    /// What it holds.
    pub body: &'a [u8],
}

/// The elements at the end of a management frame, checked: none ends behind the frame.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Checks them.
    ///
    /// # Errors
    /// An element that ends behind the frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            let [_, length] = reader.array()?;
            reader.take(length.into())?;
        }
        Ok(Self(bytes))
    }

    /// All of them, in order.
    pub fn iter(self) -> impl Iterator<Item = Element<'a>> {
        let mut reader = Reader(self.0);
        std::iter::from_fn(move || {
            let [number, length] = reader.array().ok()?;
            Some(Element { number, body: reader.take(length.into()).ok()? })
        })
    }

    /// The first with a number.
    pub fn body(self, number: u8) -> Option<&'a [u8]> {
        self.iter().find(|element| element.number == number).map(|element| element.body)
    }

    /// The network's name as sent: empty or zero bytes if hidden.
    pub fn ssid(self) -> Option<&'a [u8]> {
        self.body(SSID).filter(|name| name.len() <= 32)
    }

    /// The number of the channel, in the 2.4 GHz band or, by the HT operation element, in any.
    pub fn channel(self) -> Option<u8> {
        let first = |number| self.body(number).and_then(|body| body.first().copied());
        first(CHANNEL).or_else(|| first(HT_OPERATION))
    }

    /// The rates that the sender takes, lowest first; those that every member must take are marked in `basic`.
    pub fn rates(self) -> Rates {
        let bodies = [SUPPORTED_RATES, EXTENDED_RATES].map(|number| self.body(number).unwrap_or_default());
        let mut rates = Rates::default();
        for byte in bodies.concat() {
            let rate = Rate(byte & 0x7f);
            // Membership selectors (9.4.2.3) look like rates of 61 Mbit/s and more.
            if rate.0 == 0 || rate > Rate(108) || rates.all.contains(&rate) {
                continue;
            }
            rates.all.push(rate);
            if byte & 0x80 != 0 {
                rates.basic.push(rate);
            }
        }
        rates.all.sort_unstable();
        rates.basic.sort_unstable();
        rates
    }

    /// Who has frames kept for them.
    pub fn traffic_map(self) -> Option<TrafficMap<'a>> {
        TrafficMap::parse(self.body(TRAFFIC_MAP)?).ok()
    }

    /// How the network is protected, if it says.
    ///
    /// # Errors
    /// An element that breaks the standard.
    pub fn security(self) -> Result<Option<RobustSecurity>, FrameError> {
        self.body(RSN_ELEMENT).map(RobustSecurity::parse).transpose()
    }

    /// The channel that the access point moves to, and after how many more beacons (sections 9.4.2.18 and 9.4.2.52).
    pub fn channel_switch(self) -> Option<(u8, u8)> {
        if let Some([_, channel, count, ..]) = self.body(CHANNEL_SWITCH) {
            return Some((*channel, *count));
        }
        let [_, _, channel, count, ..] = self.body(EXTENDED_CHANNEL_SWITCH)? else { return None };
        Some((*channel, *count))
    }
}

/// Bit rates of a network, each list lowest first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rates {
    /// All that it takes.
    pub all: Vec<Rate>,
    /// Those for control frames and groups.
    pub basic: Vec<Rate>,
}

/// Appends an element; a body over 255 bytes is cut there, which no caller in this crate reaches.
pub fn write_element(frame: &mut Vec<u8>, number: u8, body: &[u8]) {
    let length = u8::try_from(body.len()).unwrap_or(u8::MAX);
    frame.extend_from_slice(&[number, length]);
    frame.extend_from_slice(&body[..length.into()]);
}

/// Appends a name.
pub(crate) fn write_ssid(frame: &mut Vec<u8>, name: &[u8]) {
    write_element(frame, SSID, name);
}

/// Appends rates: eight in the first element, the others in the second. Those in `basic` are marked.
pub(crate) fn write_rates(frame: &mut Vec<u8>, rates: &[Rate], basic: &[Rate]) {
    let bytes: Vec<u8> =
        rates.iter().map(|rate| rate.0 | if basic.contains(rate) { 0x80 } else { 0 }).collect();
    let (first, rest) = bytes.split_at(bytes.len().min(8));
    write_element(frame, SUPPORTED_RATES, first);
    if !rest.is_empty() {
        write_element(frame, EXTENDED_RATES, rest);
    }
}
