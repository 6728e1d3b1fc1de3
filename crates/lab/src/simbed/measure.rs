//! What is measured in a simulation.

use std::time::Duration;
use units::Timestamp;

/// Width of the intervals in which arrivals are summed.
const INTERVAL: Duration = Duration::from_millis(100);

/// In-order arrivals of one flow.
#[derive(Clone, Debug)]
pub struct Progress {
    start: Timestamp,
    bytes: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    longest_gap: Duration,
    /// Bytes that arrived in each interval since the start.
    intervals: Vec<u64>,
}

impl Progress {
    /// Of a flow that begins at `start`.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, bytes: 0, first: None, last: None, longest_gap: Duration::ZERO, intervals: Vec::new() }
    }

    /// `bytes` arrived in order.
    pub fn add(&mut self, now: Timestamp, bytes: u64) {
        if let Some(last) = self.last {
            self.longest_gap = self.longest_gap.max(now.since(last));
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.bytes += bytes;
        let index = (now.since(self.start).as_nanos() / INTERVAL.as_nanos()) as usize;
        if index >= self.intervals.len() {
            self.intervals.resize(index + 1, 0);
        }
        self.intervals[index] += bytes;
    }

    /// Forgets the gaps so far; one that is under way counts in full.
    pub fn forget_gaps(&mut self) {
        self.longest_gap = Duration::ZERO;
    }

    /// Bytes that arrived.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the last of them arrived.
    pub fn last_arrival(&self) -> Option<Timestamp> {
        self.last
    }

    /// Longest time between arrivals, from the first to the last or to `end` if the flow was to go on.
    pub fn longest_gap(&self, end: Option<Timestamp>) -> Duration {
        let tail = end.zip(self.last).map(|(end, last)| end.since(last)).unwrap_or_default();
        self.longest_gap.max(tail)
    }

    /// Million bits per second over `time` from the start.
    pub fn goodput_mbps(&self, time: Duration) -> f64 {
        self.bytes as f64 * 8.0 / time.as_secs_f64() / 1e6
    }

    /// (seconds since the start, million bits per second) of each interval.
    pub fn series(&self) -> Vec<(f64, f64)> {
        let seconds = INTERVAL.as_secs_f64();
        let rate = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e6;
        self.intervals
            .iter()
            .enumerate()
            .map(|(index, bytes)| (index as f64 * seconds, rate(*bytes)))
            .collect()
    }
}

/// The value below which `fraction` of `values` lie (nearest rank); `None` if there is none.
pub fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (fraction.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_goodput() {
        let mut progress = Progress::starting_at(Timestamp::from_millis(1_000));
        for millis in [1_100, 1_150, 1_450, 1_500] {
            progress.add(Timestamp::from_millis(millis), 12_500);
        }
        assert_eq!(progress.longest_gap(None), Duration::from_millis(300));
        assert_eq!(progress.longest_gap(Some(Timestamp::from_millis(2_500))), Duration::from_millis(1_000));
        assert!((progress.goodput_mbps(Duration::from_secs(1)) - 0.4).abs() < 1e-9);
        assert_eq!(progress.series().len(), 6);
    }

    #[test]
    fn quantiles_are_values() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
