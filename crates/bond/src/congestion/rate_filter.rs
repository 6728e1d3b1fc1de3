//! The two rate memories of the model: a maximum over rounds, and what the last moments delivered.

use std::time::Duration;
use units::{BitRate, Bytes, Timestamp};

/// Greatest delivery rate of the last ten rounds.
///
/// A round shorter than [`LEAST_SLOT`] shares its slot with the next, so that the memory does not get too short on
/// local networks.
#[derive(Clone, Debug)]
pub(super) struct MaximumFilter {
    slots: [BitRate; SLOTS],
    at: usize,
    slot_started: Timestamp,
    slot_has_full_sample: bool,
}

impl MaximumFilter {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { slots: [BitRate(0); SLOTS], at: 0, slot_started: now, slot_has_full_sample: false }
    }

    /// Takes one sample; an application-limited one counts only if it beats all others.
    pub(super) fn insert(&mut self, rate: BitRate, application_limited: bool) {
        if application_limited && rate <= self.maximum() {
            return;
        }
        self.slots[self.at] = self.slots[self.at].max(rate);
        self.slot_has_full_sample |= !application_limited;
    }

    /// A round has ended. Rounds in which the application was the limit do not age the memory.
    pub(super) fn end_round(&mut self, now: Timestamp) {
        if !self.slot_has_full_sample || now.since(self.slot_started) < LEAST_SLOT {
            return;
        }
        self.at = (self.at + 1) % SLOTS;
        self.slots[self.at] = BitRate(0);
        self.slot_started = now;
        self.slot_has_full_sample = false;
    }

    /// The greatest rate remembered; zero if there was none.
    pub(super) fn maximum(&self) -> BitRate {
        self.slots.iter().copied().max().unwrap_or_default()
    }

    /// The greatest rate of this and the last slot.
    pub(super) fn recent(&self) -> BitRate {
        self.slots[self.at].max(self.slots[(self.at + SLOTS - 1) % SLOTS])
    }

    /// Nothing faster than `bound` is believed any more.
    pub(super) fn cap(&mut self, bound: BitRate) {
        for slot in &mut self.slots {
            *slot = (*slot).min(bound);
        }
    }
}

/// Bytes acknowledged per slice of time, by the sender's clock.
///
/// A delivery-rate sample covers a whole flight and so forgets a fast past slowly; slices show within about two base
/// round-trip times what a path with a standing queue really delivers.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    started: Timestamp,
    bytes: u64,
    last: [BitRate; 2],
    closed: u8,
}

impl Slices {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { started: now, bytes: 0, last: [BitRate(0); 2], closed: 0 }
    }

    /// Starts over: what was counted says nothing about what comes.
    pub(super) fn restart(&mut self, now: Timestamp) {
        *self = Self::new(now);
    }

    /// Counts `bytes`, acknowledged at `now`; `enough` bytes or four lengths of time complete a slice.
    pub(super) fn on_ack(&mut self, now: Timestamp, bytes: u64, base_rtt: Duration, enough: u64) {
        let length = base_rtt.clamp(SHORTEST_SLICE, LONGEST_SLICE);
        let elapsed = now.since(self.started);
        self.bytes += bytes;
        let complete = elapsed >= length && self.bytes >= enough || elapsed >= length * 4;
        if !complete {
            return;
        }
        self.last = [BitRate::from_bytes_over(Bytes(self.bytes), elapsed), self.last[0]];
        self.closed = (self.closed + 1).min(2);
        self.started = now;
        self.bytes = 0;
    }

    /// The greater rate of the last two slices, once there are two.
    pub(super) fn rate(&self) -> Option<BitRate> {
        (self.closed == 2).then(|| self.last[0].max(self.last[1]))
    }
}

/// Rounds that the maximum is taken over.
const SLOTS: usize = 10;
/// Least duration of a slot.
const LEAST_SLOT: Duration = Duration::from_millis(10);
/// Shorter slices would count single packets.
const SHORTEST_SLICE: Duration = Duration::from_millis(20);
/// Longer slices would react too late.
const LONGEST_SLICE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn maximum_lasts_ten_rounds() {
        let mut filter = MaximumFilter::new(Timestamp::ZERO);
        filter.insert(BitRate(900), false);
        for round in 1..=9 {
            filter.end_round(at(round * 20));
            filter.insert(BitRate(500), false);
            assert_eq!(filter.maximum(), BitRate(900));
        }
        filter.end_round(at(200));
        assert_eq!(filter.maximum(), BitRate(500));
    }

    #[test]
    fn limited_samples_only_raise() {
        let mut filter = MaximumFilter::new(Timestamp::ZERO);
        filter.insert(BitRate(900), false);
        filter.end_round(at(20));
        for round in 2..100 {
            filter.insert(BitRate(100), true);
            filter.end_round(at(round * 20));
        }
        assert_eq!(filter.maximum(), BitRate(900), "an idle path does not forget");
        filter.insert(BitRate(1_000), true);
        assert_eq!(filter.maximum(), BitRate(1_000));
    }

    #[test]
    fn slices_show_the_present() {
        let mut slices = Slices::new(Timestamp::ZERO);
        for step in 1..=100 {
            slices.on_ack(at(step), 1_250, Duration::from_millis(20), 1_000);
        }
        assert_eq!(slices.rate(), Some(BitRate::from_mbps(10.0)));
        for step in 11..=19 {
            slices.on_ack(at(step * 10), 1_250, Duration::from_millis(20), 1_000);
        }
        assert!(slices.rate().unwrap() <= BitRate::from_mbps(1.1), "{:?}", slices.rate());
    }
}
