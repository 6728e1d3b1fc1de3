//! What arrived on a path: the replay window, what to acknowledge, and how late packets still come.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use policy::steering::MarkShare;
use units::Timestamp;
use wire::frame::{Ack, MAX_ACK_RANGES, Ranges};
use wire::inner::Ecn;

use crate::path::mtu::BASE_MTU;

/// Packets this far below the highest are refused as replays.
pub const REPLAY_WINDOW: u64 = 8192;
/// Packets that arrive before an acknowledgement is due at the latest.
const ACK_EVERY: u32 = 64;
/// Bounds of the time after which an acknowledgement is due.
const MIN_ACK_DELAY: Duration = Duration::from_millis(1);
const MAX_ACK_DELAY: Duration = Duration::from_millis(10);
/// What arrived is acknowledged as late as allowed while it is fewer bytes than this, one full packet: else the answers to a bulk transfer's
/// own acknowledgements would take a share of a slow network that is felt.
const WORTH_AN_ACK: usize = BASE_MTU as usize;
/// The greatest lateness seen fades over this time.
const LATENESS_MEMORY: Duration = Duration::from_secs(10);
/// Added to the lateness: timer and interrupt jitter.
const LATENESS_SLACK: Duration = Duration::from_millis(2);
/// No path reorders longer than this; more is loss.
const MAX_LATENESS: Duration = Duration::from_millis(400);
/// Holes whose beginning is remembered.
const MAX_HOLES: usize = 16;

/// Receiving half of a path.
#[derive(Debug, Default)]
pub(crate) struct Received {
    window: Option<Box<[u64; REPLAY_WINDOW as usize / 64]>>,
    largest: Option<u64>,
    largest_at: Timestamp,
    /// Descending, not touching.
    ranges: VecDeque<RangeInclusive<u64>>,
    bytes: u32,
    bytes_at_largest: u32,
    ce_count: u64,
    marks: MarkShare,
    /// Marks due for the packets since the last one, below one.
    marks_due: f64,
    unacknowledged: u32,
    unacknowledged_bytes: usize,
    ack_due: Option<Timestamp>,
    holes: VecDeque<(RangeInclusive<u64>, Timestamp)>,
    lateness: Duration,
    lateness_at: Timestamp,
}

/// For how long an acknowledgement of full packets waits that may wait so long.
pub(crate) fn bounded_delay(delay: Duration) -> Duration {
    delay.clamp(MIN_ACK_DELAY, MAX_ACK_DELAY)
}

impl Received {
    pub(crate) fn largest(&self) -> Option<u64> {
        self.largest
    }

    /// From now on this part of the packets counts as marked on the way, evenly spread: our own word to the sender's
    /// congestion control (`[MULTIAP] section 5.2`).
    pub(crate) fn set_marks(&mut self, marks: MarkShare) {
        self.marks = marks;
    }

    /// What the acknowledgement is to say of a packet that arrived with `ecn`: marks are added, never taken away. They need nobody's leave on the
    /// way, so a network that clears the field does not matter.
    pub(crate) fn marked(&mut self, ecn: Ecn) -> Ecn {
        if ecn == Ecn::Ce {
            return ecn;
        }
        self.marks_due += self.marks.part();
        if self.marks_due < 1.0 {
            return ecn;
        }
        self.marks_due -= 1.0;
        Ecn::Ce
    }

    /// Whether `number` has neither arrived before nor is too old to tell.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        let (Some(largest), Some(window)) = (self.largest, &self.window) else { return true };
        if number > largest {
            return true;
        }
        if largest - number >= REPLAY_WINDOW {
            return false;
        }
        let slot = (number % REPLAY_WINDOW) as usize;
        window.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 0)
    }

    /// Notes an authentic packet that [`Received::is_new`]; `delay` is how long an acknowledgement may wait.
    pub(crate) fn record(
        &mut self,
        now: Timestamp,
        number: u64,
        size: usize,
        ecn: Ecn,
        elicits: bool,
        delay: Duration,
    ) {
        self.mark_seen(number);
        self.bytes = self.bytes.wrapping_add(size as u32);
        let mut hasten = ecn == Ecn::Ce;
        self.ce_count += u64::from(ecn == Ecn::Ce);
        match self.largest {
            Some(largest) if number < largest => self.note_late(now, number),
            before => {
                if let Some(skipped_from) = before.map(|largest| largest + 1).filter(|&from| from < number) {
                    hasten = true;
                    if self.holes.len() == MAX_HOLES {
                        self.holes.pop_front();
                    }
                    self.holes.push_back((skipped_from..=number - 1, now));
                }
                self.largest = Some(number);
                self.largest_at = now;
                self.bytes_at_largest = self.bytes;
            }
        }
        self.insert(number);
        if !elicits {
            return;
        }
        self.unacknowledged += 1;
        self.unacknowledged_bytes += size;
        let delay = if hasten || self.unacknowledged >= ACK_EVERY {
            Duration::ZERO
        } else if self.unacknowledged_bytes < WORTH_AN_ACK {
            MAX_ACK_DELAY
        } else {
            bounded_delay(delay)
        };
        let due = now + delay;
        self.ack_due = Some(self.ack_due.map_or(due, |before| before.min(due)));
    }

    /// When an acknowledgement must go out.
    pub(crate) fn ack_due(&self) -> Option<Timestamp> {
        self.ack_due
    }

    /// The acknowledgement to send now, if anything is to be acknowledged; counts as sent.
    pub(crate) fn take_ack(&mut self, now: Timestamp, max_ranges: usize) -> Option<Ack> {
        self.ack_due?;
        let ranges: Ranges = self.ranges.iter().take(max_ranges.clamp(1, MAX_ACK_RANGES)).cloned().collect();
        if ranges.is_empty() {
            return None;
        }
        self.ack_due = None;
        self.unacknowledged = 0;
        self.unacknowledged_bytes = 0;
        Some(Ack {
            ranges,
            delay_micros: now.since(self.largest_at).as_micros() as u64,
            receive_time: self.largest_at.as_micros() as u32,
            received_bytes: self.bytes_at_largest,
            reordering_micros: self.reordering_window(now).as_micros() as u64,
            ce_count: self.ce_count,
        })
    }

    /// What has arrived, as far as an acknowledgement can say.
    pub(crate) fn ranges(&self) -> Ranges {
        self.ranges.iter().take(MAX_ACK_RANGES).cloned().collect()
    }

    /// How long after a higher number a packet of this path may still arrive:
    /// 1.1 times the greatest lateness of the last seconds, plus slack.
    pub(crate) fn reordering_window(&self, now: Timestamp) -> Duration {
        self.faded_lateness(now) * 11 / 10 + LATENESS_SLACK
    }

    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len().min(MAX_ACK_RANGES)
    }

    fn faded_lateness(&self, now: Timestamp) -> Duration {
        let age = now.since(self.lateness_at).min(LATENESS_MEMORY);
        self.lateness.mul_f64(1.0 - age.as_secs_f64() / LATENESS_MEMORY.as_secs_f64())
    }

    fn note_late(&mut self, now: Timestamp, number: u64) {
        let Some((_, since)) = self.holes.iter().find(|(hole, _)| hole.contains(&number)) else { return };
        let lateness = now.since(*since).min(MAX_LATENESS);
        if lateness >= self.faded_lateness(now) {
            self.lateness = lateness;
            self.lateness_at = now;
        }
    }

    fn mark_seen(&mut self, number: u64) {
        let largest = self.largest.unwrap_or(0);
        let window = self.window.get_or_insert_with(|| Box::new([0; REPLAY_WINDOW as usize / 64]));
        if number > largest {
            let first_new = largest + 1;
            if number - largest >= REPLAY_WINDOW {
                window.fill(0);
            } else {
                for skipped in first_new..=number {
                    let slot = (skipped % REPLAY_WINDOW) as usize;
                    if let Some(word) = window.get_mut(slot / 64) {
                        *word &= !(1 << (slot % 64));
                    }
                }
            }
        }
        let slot = (number % REPLAY_WINDOW) as usize;
        if let Some(word) = window.get_mut(slot / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    fn insert(&mut self, number: u64) {
        // The highest range that `number` extends or lies below.
        let at = self.ranges.iter().position(|range| *range.start() <= number + 1);
        let at = at.unwrap_or(self.ranges.len());
        match self.ranges.get(at).cloned() {
            Some(range) if *range.end() + 1 >= number => {
                let mut grown = (*range.start()).min(number)..=(*range.end()).max(number);
                if let Some(below) =
                    self.ranges.get(at + 1).filter(|below| *below.end() + 1 == *grown.start())
                {
                    grown = *below.start()..=*grown.end();
                    self.ranges.remove(at + 1);
                }
                if let Some(slot) = self.ranges.get_mut(at) {
                    *slot = grown;
                }
            }
            _ => self.ranges.insert(at, number..=number),
        }
        self.ranges.truncate(MAX_ACK_RANGES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(received: &mut Received, millis: u64, number: u64) {
        let now = Timestamp::from_millis(millis);
        assert!(received.is_new(number));
        received.record(now, number, 100, Ecn::Ect0, true, Duration::from_millis(5));
    }

    #[test]
    fn replays_and_ancient_numbers_are_refused() {
        let mut received = Received::default();
        receive(&mut received, 0, 0);
        assert!(!received.is_new(0));
        receive(&mut received, 0, REPLAY_WINDOW + 10);
        assert!(!received.is_new(10));
        assert!(received.is_new(11));
        receive(&mut received, 0, 11);
        assert!(!received.is_new(11));
        receive(&mut received, 0, 10 * REPLAY_WINDOW);
        assert!(received.is_new(10 * REPLAY_WINDOW - 1));
    }

    #[test]
    fn ranges_merge_in_any_order() {
        let mut received = Received::default();
        for number in [5, 1, 3, 2, 9, 4, 7] {
            receive(&mut received, 0, number);
        }
        let ack = received.take_ack(Timestamp::from_millis(3), MAX_ACK_RANGES).unwrap();
        assert_eq!(ack.ranges.as_slice(), [9..=9, 7..=7, 1..=5]);
        assert_eq!(ack.received_bytes, 500, "counted when the largest arrived");
        assert_eq!(ack.delay_micros, 3_000);
        assert_eq!(received.take_ack(Timestamp::from_millis(3), MAX_ACK_RANGES), None);
    }

    #[test]
    fn our_own_marks_are_spread_evenly_over_what_has_none() {
        let mut received = Received::default();
        received.set_marks(MarkShare::new(0.04));
        let marked: Vec<u32> = (0..200).filter(|_| received.marked(Ecn::Ect0) == Ecn::Ce).collect();
        assert_eq!(marked, [24, 49, 74, 99, 124, 149, 174, 199]);
        assert_eq!((0..200).filter(|_| received.marked(Ecn::NotEct) == Ecn::Ce).count(), 8);
        assert_eq!(received.marked(Ecn::Ce), Ecn::Ce);
        received.set_marks(MarkShare::NONE);
        assert!((0..100).all(|_| received.marked(Ecn::Ect1) == Ecn::Ect1));
    }

    #[test]
    fn little_is_acknowledged_late_and_a_full_packet_sooner() {
        let mut received = Received::default();
        receive(&mut received, 0, 0);
        assert_eq!(received.ack_due(), Some(Timestamp::ZERO + MAX_ACK_DELAY));
        let full = usize::from(BASE_MTU);
        received.record(Timestamp::from_millis(2), 1, full, Ecn::Ect0, true, Duration::from_millis(3));
        assert_eq!(received.ack_due(), Some(Timestamp::from_millis(5)));
        received.take_ack(Timestamp::from_millis(5), MAX_ACK_RANGES).unwrap();
        received.record(Timestamp::from_millis(6), 2, 100, Ecn::Ect0, true, Duration::from_millis(3));
        assert_eq!(received.ack_due(), Some(Timestamp::from_millis(16)));
    }

    #[test]
    fn a_hole_is_acknowledged_at_once_and_lateness_is_learned() {
        let mut received = Received::default();
        receive(&mut received, 0, 0);
        receive(&mut received, 1, 2);
        assert_eq!(received.ack_due(), Some(Timestamp::from_millis(1)));
        receive(&mut received, 21, 1);
        let now = Timestamp::from_millis(21);
        assert_eq!(received.reordering_window(now), Duration::from_millis(24));
        assert_eq!(received.reordering_window(now + Duration::from_secs(10)), LATENESS_SLACK);
    }
}
