//! Sizes and rates.

use std::fmt;
use std::time::Duration;

/// A number of bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_agree() {
        let rate = BitRate::from_mbps(12.0);
        assert_eq!(rate.time_for(Bytes(1_500)), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), Bytes(1_500));
        assert_eq!(BitRate::from_bytes_over(Bytes(1_500), Duration::from_millis(1)), rate);
        assert_eq!(BitRate(0).time_for(Bytes(1)), Duration::from_secs(31_536_000));
    }
}
