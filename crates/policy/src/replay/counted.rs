//! The class of a flow of which only counters are seen, each second or so: what a recorder has to go by.
//!
//! The bounds are those of [`crate::classify`], which sees each packet. What it knows from RTP headers and DSCP
//! stays unknown here; a steady stream of middle-sized UDP packets is seen after four samples.

use std::time::Duration;

use crate::FlowClass;

const UDP: u8 = 17;
/// Bytes a second that make a flow bulk.
const BULK: f64 = 64_000.0;
/// Packets a second of calls and games.
const REAL_TIME_PACKETS: std::ops::RangeInclusive<f64> = 20.0..=400.0;
/// Mean packet size of them, bytes; a bulk transfer's packets are full.
const MEDIUM_SIZE: f64 = 1_000.0;
/// How far a sample's packets may be from the mean of those before, relative to it.
const STEADINESS: f64 = 0.3;
const SAMPLES_TO_TELL: u8 = 4;

/// Learns the class of one flow, both directions taken together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountedFlow {
    protocol: u8,
    is_bulk: bool,
    is_real_time: bool,
    /// Packets a second, smoothed over the steady samples in a row.
    mean: f64,
    steady: u8,
}

impl CountedFlow {
    /// A flow of this IP protocol that has carried nothing yet.
    pub const fn new(protocol: u8) -> Self {
        Self { protocol, is_bulk: false, is_real_time: false, mean: 0.0, steady: 0 }
    }

    /// It has carried so much in the last `passed`. Samples of no time are ignored.
    pub fn on_sample(&mut self, passed: Duration, packets: u64, bytes: u64) {
        let seconds = passed.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        self.is_bulk |= bytes as f64 / seconds >= BULK;
        if self.protocol != UDP || packets == 0 {
            self.steady = 0;
            return;
        }
        let (rate, size) = (packets as f64 / seconds, bytes as f64 / packets as f64);
        let looks_so = REAL_TIME_PACKETS.contains(&rate) && size < MEDIUM_SIZE;
        let as_before = self.steady > 0 && (rate - self.mean).abs() <= STEADINESS * self.mean;
        self.steady = match (looks_so, as_before) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => self.steady.saturating_add(1),
        };
        self.mean = if as_before { self.mean + (rate - self.mean) / 4.0 } else { rate };
        self.is_real_time |= self.steady >= SAMPLES_TO_TELL;
    }

    /// What it turned out to be so far.
    pub const fn class(&self) -> FlowClass {
        match (self.is_real_time, self.is_bulk) {
            (true, _) => FlowClass::RealTime,
            (false, true) => FlowClass::Bulk,
            (false, false) => FlowClass::Interactive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn class_of(protocol: u8, samples: &[(u64, u64)]) -> FlowClass {
        let mut flow = CountedFlow::new(protocol);
        samples.iter().for_each(|(packets, bytes)| flow.on_sample(SECOND, *packets, *bytes));
        flow.class()
    }

    #[test]
    fn flows_are_what_they_do() {
        assert_eq!(class_of(6, &[(10, 4_000), (60, 63_999)]), FlowClass::Interactive);
        assert_eq!(class_of(6, &[(10, 4_000), (60, 64_000), (1, 60)]), FlowClass::Bulk, "once is enough");
        let call = [(100, 20_000), (98, 19_000), (104, 21_000), (99, 20_000)];
        assert_eq!(class_of(17, &call), FlowClass::RealTime);
        assert_eq!(class_of(6, &call), FlowClass::Interactive, "TCP is never real-time");
        assert_eq!(class_of(17, &call[..3]), FlowClass::Interactive, "too early to tell");
        let video = [(250, 240_000); 4];
        assert_eq!(class_of(17, &video), FlowClass::RealTime, "however much it is");
        let download = [(2_000, 2_700_000); 6];
        assert_eq!(class_of(17, &download), FlowClass::Bulk);
        let uneven = [(100, 20_000), (20, 4_000), (200, 40_000), (30, 6_000), (100, 20_000)];
        assert_eq!(class_of(17, &uneven), FlowClass::Interactive);
    }

    #[test]
    fn a_sample_of_no_time_says_nothing() {
        let mut flow = CountedFlow::new(6);
        flow.on_sample(Duration::ZERO, 1_000, 1_000_000);
        assert_eq!(flow.class(), FlowClass::Interactive);
    }
}
