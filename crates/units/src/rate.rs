//! Sizes and rates.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BitRate(pub u64);

impl BitRate {
    /// `mbps` million bits per second; negative and absurd values are clamped.
    pub fn from_mbps(mbps: f64) -> Self {
        Self((mbps.clamp(0.0, 1e9) * 1e6) as u64)
    }

    /// The rate at which `bytes` pass in `time`; the highest rate if `time` is zero.
    pub fn from_bytes_over(bytes: Bytes, time: Duration) -> Self {
        let nanos = time.as_nanos();
        if nanos == 0 {
            return Self(u64::MAX);
        }
        let bits_times_nanos = u128::from(bytes.0) * 8 * 1_000_000_000;
        Self(u64::try_from(bits_times_nanos / nanos).unwrap_or(u64::MAX))
    }

    /// Million bits per second.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }

    /// How long `bytes` take at this rate; a year if the rate is zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        const YEAR: Duration = Duration::from_secs(31_536_000);
        if self.0 == 0 {
            return YEAR;
        }
        let nanos = u128::from(bytes.0) * 8 * 1_000_000_000 / u128::from(self.0);
        u64::try_from(nanos).map_or(YEAR, Duration::from_nanos).min(YEAR)
    }

    /// How many bytes pass in `time`.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.2} Mbit/s", self.as_mbps())
    }
}

/// A text that is no size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected a size such as \"500 MB\", \"1.5 GB\" or \"2TB\"")]
pub struct BytesError;

impl FromStr for Bytes {
    type Err = BytesError;

    /// A size in powers of ten, to a thousand terabytes: `500 MB`, `1.5 GB`, `2TB`.
    fn from_str(text: &str) -> Result<Self, BytesError> {
        const UNITS: [(&str, f64); 4] = [("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)];
        quantity(text, &UNITS, 1e15).map(Self).ok_or(BytesError)
    }
}

/// A text that is no rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected bits a second such as \"500 kbit/s\", \"20 Mbit/s\" or \"1gbit\"")]
pub struct BitRateError;

impl FromStr for BitRate {
    type Err = BitRateError;

    /// To a terabit a second; upper and lower case and a missing `/s` are all the same: `20 Mbit/s`, `20mbit`.
    fn from_str(text: &str) -> Result<Self, BitRateError> {
        const UNITS: [(&str, f64); 3] = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
        let text = text.to_ascii_lowercase();
        let text = text.strip_suffix("/s").unwrap_or(&text);
        quantity(text, &UNITS, 1e12).map(Self).ok_or(BitRateError)
    }
}

/// A positive number with one of the units, at most `most`.
fn quantity(text: &str, units: &[(&str, f64)], most: f64) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(word, unit)| Some((text.strip_suffix(word)?, unit)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number > 0.0 && number <= most / unit).then(|| (number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_unit() {
        assert_eq!("1.5 GB".parse(), Ok(Bytes(1_500_000_000)));
        assert_eq!("2TB".parse(), Ok(Bytes(2_000_000_000_000)));
        for rate in ["20mbit", "20 Mbit/s", "20MBIT", "0.02gbit"] {
            assert_eq!(rate.parse(), Ok(BitRate(20_000_000)), "{rate}");
        }
        for wrong in ["", "5", "-1 GB", "NaN GB", "inf GB", "1e300 TB", "GB", "5 gb", "0 kB"] {
            assert_eq!(wrong.parse::<Bytes>(), Err(BytesError), "{wrong}");
        }
        for wrong in ["", "5", "mbit", "-1mbit", "0kbit", "2000gbit", "5 mbit/h"] {
            assert_eq!(wrong.parse::<BitRate>(), Err(BitRateError), "{wrong}");
        }
    }

    #[test]
    fn rate_and_time_agree() {
        let rate = BitRate::from_mbps(12.0);
        assert_eq!(rate.time_for(Bytes(1_500)), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), Bytes(1_500));
        assert_eq!(BitRate::from_bytes_over(Bytes(1_500), Duration::from_millis(1)), rate);
        assert_eq!(BitRate(0).time_for(Bytes(1)), Duration::from_secs(31_536_000));
    }
}
