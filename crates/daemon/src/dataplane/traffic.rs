//! Rates over the last second, from counters that only grow.

use std::time::Duration;

use anabranch::control::Traffic;
use units::{BitRate, Bytes, Timestamp};

/// Remembers what a pair of counters was a second ago.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    sampled_at: Timestamp,
    sampled: [u64; 2],
    rates: [BitRate; 2],
}

impl Meter {
    /// Takes a sample of bytes sent and received, if the last one is about a second old.
    pub fn sample(&mut self, now: Timestamp, sent: u64, received: u64) {
        let passed = now.since(self.sampled_at);
        if passed < INTERVAL {
            return;
        }
        let rate =
            |now: u64, before: u64| BitRate::from_bytes_over(Bytes(now.saturating_sub(before)), passed);
        self.rates = [rate(sent, self.sampled[0]), rate(received, self.sampled[1])];
        self.sampled = [sent, received];
        self.sampled_at = now;
    }

    /// Rates out and in of the last sample.
    pub fn rates(&self) -> [BitRate; 2] {
        self.rates
    }

    /// The counters with the rates of the last sample.
    pub fn traffic(&self, sent: u64, received: u64) -> Traffic {
        Traffic {
            sent: Bytes(sent),
            received: Bytes(received),
            sending: self.rates[0],
            receiving: self.rates[1],
        }
    }
}

const INTERVAL: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_interval() {
        let mut meter = Meter::default();
        meter.sample(Timestamp::from_millis(10_000), 1_000_000, 0);
        meter.sample(Timestamp::from_millis(10_100), 9_999_999, 9_999_999);
        meter.sample(Timestamp::from_millis(11_000), 1_125_000, 250_000);
        let traffic = meter.traffic(1_125_000, 250_000);
        assert_eq!((traffic.sending, traffic.receiving), (BitRate(1_000_000), BitRate(2_000_000)));
        meter.sample(Timestamp::from_millis(12_000), 1_125_000, 250_000);
        assert_eq!(meter.traffic(0, 0).sending, BitRate(0));
    }
}
