//! Names of the wireless world that several crates share.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

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

/// The text is no hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a hardware address is six bytes in hexadecimal with colons between them, such as 02:00:00:00:01:00")]
pub struct MacAddressError;

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, MacAddressError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacAddressError)?;
            let is_hexadecimal = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hexadecimal).ok_or(MacAddressError)?;
        }
        if parts.next().is_none() { Ok(Self(bytes)) } else { Err(MacAddressError) }
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

    /// The channel with a number in the 2.4 GHz band (1 to 14) or the 5 GHz band (from 32 on); `None` if there is none.
    pub fn of_channel(channel: u8) -> Option<Self> {
        let number = u32::from(channel);
        let frequency = Self(match number {
            14 => 2_484,
            0..14 => 2_407 + 5 * number,
            _ => 5_000 + 5 * number,
        });
        Some(frequency).filter(|frequency| frequency.channel() == Some(channel.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_have_numbers() {
        for (channel, frequency) in [(1, 2412), (13, 2472), (14, 2484), (36, 5180), (165, 5825)] {
            assert_eq!(Frequency::of_channel(channel), Some(Frequency(frequency)));
        }
        assert_eq!([0, 15, 29, 200].map(Frequency::of_channel), [None; 4]);
    }

    #[test]
    fn hardware_addresses_are_read_as_they_are_written() {
        let address = MacAddress([2, 0, 0xab, 0xcd, 1, 0xff]);
        assert_eq!(address.to_string().parse(), Ok(address));
        assert_eq!("02:00:AB:CD:01:FF".parse(), Ok(address));
        for text in [
            "",
            "02:00:ab:cd:01",
            "02:00:ab:cd:01:ff:00",
            "02:00:ab:cd:01:+f",
            "2:0:ab:cd:1:ff",
            "02-00-ab-cd-01-ff",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(MacAddressError), "{text}");
        }
    }
}
