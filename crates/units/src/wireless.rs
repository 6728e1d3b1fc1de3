//! Names of the wireless world that several crates share.

use std::fmt;

/// A network's name: up to 32 bytes, mostly but not always text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ssid(Vec<u8>);

impl Ssid {
    /// The name; `None` if it is empty (hidden) or longer than 32 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        // Hidden networks send no name or one of zero bytes.
        let plausible = bytes.len() <= 32 && bytes.iter().any(|byte| *byte != 0);
        plausible.then(|| Self(bytes.to_vec()))
    }

    /// The bytes as sent on the air.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Ssid {
    /// As text; control characters and what is no text become `\u{fffd}`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        text.chars().try_for_each(|character| {
            let shown = if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
            write!(formatter, "{shown}")
        })
    }
}

/// A hardware address (EUI-48): of a station, an access point, or a group of stations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names a group of stations rather than one.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// A channel's centre frequency, in MHz.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frequency(pub u32);

impl Frequency {
    /// The channel's number (IEEE 802.11-2020 17.3.8.4 and annex E); `None` outside the 2.4, 5 and 6 GHz bands.
    pub fn channel(self) -> Option<u16> {
        let channel = match self.0 {
            2484 => 14,
            2412..=2472 => (self.0 - 2407) / 5,
            5150..=5895 => (self.0 - 5000) / 5,
            5935 => 2,
            5955..=7115 => (self.0 - 5950) / 5,
            _ => return None,
        };
        u16::try_from(channel).ok()
    }
}
