//! What passes between the station and the card: frames heard, frames to send, and what became of them.

use std::fmt;
use std::str::FromStr;

use units::{BitRate, Frequency};

use crate::airtime::HighThroughput;

/// A legacy bit rate, in units of 500 kbit/s, as the supported rates element and radiotap write it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rate(pub u8);

impl Rate {
    /// Rates of 802.11b (IEEE 802.11-2020 section 16).
    pub const CCK: [Self; 4] = [Self(2), Self(4), Self(11), Self(22)];
    /// Rates of 802.11a and g (IEEE 802.11-2020 section 17).
    pub const OFDM: [Self; 8] =
        [Self(12), Self(18), Self(24), Self(36), Self(48), Self(72), Self(96), Self(108)];

    /// Bits a second on the air, headers included.
    pub fn bit_rate(self) -> BitRate {
        BitRate::from_mbps(f64::from(self.0) / 2.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} Mbit/s", f32::from(self.0) / 2.0)
    }
}

/// A text is not a rate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no rate of 802.11a, b or g in Mbit/s")]
pub struct NotARate(String);

impl FromStr for Rate {
    type Err = NotARate;

    /// Reads Mbit/s: `5.5`.
    fn from_str(text: &str) -> Result<Self, NotARate> {
        let mbps: Option<f64> = text.trim().parse().ok();
        let mut known = Self::CCK.into_iter().chain(Self::OFDM);
        let found = mbps.and_then(|mbps| known.find(|rate| (rate.bit_rate().as_mbps() - mbps).abs() < 1e-6));
        found.ok_or_else(|| NotARate(text.to_owned()))
    }
}

/// A frame that the card heard, from any sender to any receiver on its channel.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// From frame control to the end of the body, without the check sequence.
    pub frame: &'a [u8],
    /// The channel that the card was on.
    pub frequency: Frequency,
    /// Its signal in dBm, if the card tells it.
    pub signal_dbm: Option<i8>,
    /// At which legacy rate it was sent, if it was and the card tells it.
    pub rate: Option<Rate>,
    /// At which rate of 802.11n it was sent, if it was and the card tells it.
    pub high_throughput: Option<HighThroughput>,
    /// Frames with one number here, one after the other, came in one aggregate; `None`: alone, or the card does not tell.
    pub aggregate: Option<u32>,
}

/// A frame to send on the channel where the card is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmission {
    /// From frame control to the end of the body, without the check sequence.
    pub frame: Vec<u8>,
    /// At which rate.
    pub rate: Rate,
    /// How many times at most it is sent until it is acknowledged, at least 1.
    pub attempts: u8,
}

/// What became of a frame that was sent to one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The frame as the card gives it back: as it was handed over, but for bits that the card sets.
    pub frame: &'a [u8],
    /// Whether the receiver acknowledged it.
    pub acknowledged: bool,
    /// How many times it was sent, if the card tells it.
    pub attempts: Option<u8>,
}
