//! Whether others share a path's bottleneck who heed losses, and what may be in flight beside them.
//!
//! The model takes no loss for a sign, as most losses of a radio are none, and a queue that stays although it keeps little in flight for a longer way. Beside
//! flows that fill the queue until it overflows and then give way (Reno, CUBIC) that takes everything. Losses of a queue that overflows come
//! while it is full, those of a radio at any time: where they come with a full queue, and hardly without, the window follows CUBIC, as theirs does.
//! Whether others heed losses is not known: beside those that do not (BBR) it gives way in vain.

use super::cubic::CubicController;
use super::{AckSample, Controller, LossSample, Sibling};
use std::time::Duration;
use units::{PathId, Timestamp};

/// What is known of others at a path's bottleneck.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    datagram: u64,
    /// The least and the greatest smoothed round-trip time of the last while.
    least: Duration,
    greatest: Duration,
    is_full: bool,
    with_full_queue: Tally,
    otherwise: Tally,
    /// When round-trip times and sums were brought to the present last.
    aged: Timestamp,
    /// How often the full queue lost something; older times count less. And when the last of it was noticed.
    times: f64,
    noticed: Option<Timestamp>,
    beside: Option<Beside>,
}

/// What may be in flight, while others are there.
#[derive(Clone, Debug)]
struct Beside {
    window: CubicController,
    /// When losses told of them last, and how long after the time before.
    last: Timestamp,
    apart: Duration,
}

/// Bytes, of which older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    arrived: f64,
    lost: f64,
}

impl Tally {
    fn total(self) -> f64 {
        self.arrived + self.lost
    }

    fn part_lost(self) -> f64 {
        self.lost / self.total().max(1.0)
    }

    fn age(&mut self, part: f64) {
        self.arrived *= part;
        self.lost *= part;
    }
}

impl Crowd {
    pub(super) fn new(datagram: u64, now: Timestamp) -> Self {
        Self {
            datagram,
            least: Duration::ZERO,
            greatest: Duration::ZERO,
            is_full: false,
            with_full_queue: Tally::default(),
            otherwise: Tally::default(),
            aged: now,
            times: 0.0,
            noticed: None,
            beside: None,
        }
    }

    /// An acknowledgement; `is_own` if what it tells of was sent faster than the path is believed to be.
    pub(super) fn on_ack(&mut self, sample: &AckSample, is_own: bool, own: PathId, siblings: &[Sibling]) {
        self.take_round_trip(sample);
        if !is_own {
            self.tally().arrived += sample.acked_bytes as f64;
        }
        let Some(beside) = &mut self.beside else { return };
        // Single marks are no sign to the model.
        beside.window.on_ack(&AckSample { ce_marks: 0, ..*sample }, own, siblings);
        if sample.now.since(beside.last) > LEAST_WAIT + beside.apart * 2 {
            self.beside = None;
        }
    }

    /// Losses of a path that has `in_flight` bytes on the way. What was sent faster than the path is believed to be (`is_own`) has itself to blame, and
    /// tells of nobody; those who are there have to be given way to all the same.
    pub(super) fn on_loss(
        &mut self,
        sample: &LossSample,
        in_flight: u64,
        is_own: bool,
        own: PathId,
        siblings: &[Sibling],
    ) {
        if sample.persistent {
            // An outage has nothing to do with others, and what they do now is not known.
            self.let_go();
            self.times = 0.0;
            return;
        }
        if is_own {
            if let Some(beside) = self.beside.as_mut().filter(|_| self.is_full) {
                beside.window.on_loss_of(sample, own, siblings);
            }
            return;
        }
        self.tally().lost += sample.lost_bytes as f64;
        if !self.is_full {
            return;
        }
        if self.noticed.is_none_or(|noticed| sample.latest_sent > noticed) {
            self.noticed = Some(sample.now);
            self.times += 1.0;
        }
        if !self.is_crowded() {
            return;
        }
        let datagram = self.datagram;
        let beside = self.beside.get_or_insert_with(|| Beside {
            window: CubicController::at(in_flight, datagram, sample.now),
            last: sample.now,
            apart: FIRST_APART,
        });
        if beside.window.on_loss_of(sample, own, siblings) {
            if sample.now > beside.last {
                beside.apart = sample.now.since(beside.last).min(LONGEST_APART);
            }
            beside.last = sample.now;
        }
    }

    /// Nobody has to be given way to, until further losses tell of others again.
    pub(super) fn let_go(&mut self) {
        self.beside = None;
    }

    /// What may be in flight, if others are there.
    pub(super) fn window(&self) -> Option<u64> {
        self.beside.as_ref().map(|beside| beside.window.window())
    }

    /// Whether clearly more is lost with a full queue than would be if losses came at any time.
    fn is_crowded(&self) -> bool {
        if self.times < FEWEST_TIMES {
            return false;
        }
        let packets = |bytes: f64| bytes / self.datagram as f64;
        let expected = packets(self.with_full_queue.total() * self.otherwise.part_lost());
        packets(self.with_full_queue.lost)
            >= FEWEST_LOST + TIMES_AS_MUCH * expected + DEVIATIONS * expected.sqrt()
    }

    fn tally(&mut self) -> &mut Tally {
        if self.is_full { &mut self.with_full_queue } else { &mut self.otherwise }
    }

    fn take_round_trip(&mut self, sample: &AckSample) {
        let rtt = sample.smoothed_rtt;
        if self.least.is_zero() {
            (self.least, self.greatest) = (rtt, rtt);
        }
        if sample.round_ended {
            let elapsed = sample.now.since(self.aged);
            self.aged = sample.now;
            let part = KEPT_PER_SECOND.powf(elapsed.as_secs_f64());
            self.with_full_queue.age(part);
            self.otherwise.age(part);
            self.times *= part;
            // Both come nearer to what is seen now.
            let part = |memory: Duration| elapsed.div_duration_f64(memory).min(1.0);
            self.least += rtt.saturating_sub(self.least).mul_f64(part(LEAST_REMEMBERED));
            self.greatest -= self.greatest.saturating_sub(rtt).mul_f64(part(GREATEST_REMEMBERED));
        }
        self.least = self.least.min(rtt);
        self.greatest = self.greatest.max(rtt);
        self.is_full =
            rtt > self.least * 21 / 20 + MARGIN && rtt - self.least > (self.greatest - self.least) / 2;
    }
}

/// Part of what was counted that still counts a second later.
const KEPT_PER_SECOND: f64 = 0.9;
/// In about these times the least and the greatest round-trip time follow what is seen now. A way seldom becomes longer; a single delay says nothing for long.
const LEAST_REMEMBERED: Duration = Duration::from_secs(60);
const GREATEST_REMEMBERED: Duration = Duration::from_secs(2);
/// Round-trip time over 1.05 times the least from which on a queue can be called full.
const MARGIN: Duration = Duration::from_millis(2);
/// Packets lost with a full queue that tell something.
const FEWEST_LOST: f64 = 6.0;
/// More than once, in some seconds: a single burst may be anything.
const FEWEST_TIMES: f64 = 2.5;
/// So many times as much, and so many standard deviations of a Poisson count more, has to be lost than losses at any time would give.
const TIMES_AS_MUCH: f64 = 2.0;
const DEVIATIONS: f64 = 2.0;
/// Without such losses for so long, and twice as long as they were apart, the others are gone.
const LEAST_WAIT: Duration = Duration::from_secs(3);
/// What they are apart as long as it is not known: CUBIC is back where it was after about so long with a window of a hundred packets.
const FIRST_APART: Duration = Duration::from_secs(4);
/// Who gives way to losses that were further apart is not waited for any longer.
const LONGEST_APART: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::super::samples::{ack, loss};
    use super::*;

    const PACKET: u64 = 1_000;

    /// Ten seconds of a queue that is empty for a second and full for the next, a packet each millisecond; of those of each kind one of so many is lost.
    fn crowd(lost_with_full_queue: u64, lost_otherwise: u64) -> Crowd {
        let mut crowd = Crowd::new(PACKET, Timestamp::ZERO);
        for millis in 0..10_000 {
            let is_full = millis / 1_000 % 2 == 1;
            let mut sample = ack(PACKET);
            sample.now = Timestamp::from_millis(millis);
            sample.smoothed_rtt = Duration::from_millis(if is_full { 80 } else { 20 });
            sample.prior_in_flight = 100 * PACKET;
            sample.round_ended = millis % 20 == 0;
            crowd.on_ack(&sample, false, PathId(0), &[]);
            let every = if is_full { lost_with_full_queue } else { lost_otherwise };
            if millis % every == every - 1 {
                let sample = LossSample { lost_bytes: PACKET, ..loss(sample.now, sample.now) };
                crowd.on_loss(&sample, 100 * PACKET, false, PathId(0), &[]);
            }
        }
        crowd
    }

    #[test]
    fn losses_with_a_full_queue_tell_of_others() {
        assert!(crowd(200, 10_001).window().is_some_and(|window| window < 100 * PACKET));
        assert!(crowd(50, 500).window().is_some());
    }

    #[test]
    fn losses_at_any_time_do_not() {
        for every in [20, 100, 500] {
            assert_eq!(crowd(every, every).window(), None, "one of {every}");
        }
        assert_eq!(crowd(10_001, 100).window(), None);
    }

    #[test]
    fn a_single_burst_does_not() {
        let mut crowd = crowd(10_001, 10_001);
        for _ in 0..50 {
            let sample = LossSample { lost_bytes: PACKET, ..loss(at(10_000), at(9_990)) };
            crowd.on_loss(&sample, 100 * PACKET, false, PathId(0), &[]);
        }
        assert_eq!(crowd.window(), None);
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut crowd = crowd(200, 10_001);
        let mut sample = ack(PACKET);
        sample.round_ended = true;
        // The last two losses were 0.2 s apart.
        for (millis, is_held) in [(12_000, true), (13_500, false)] {
            sample.now = at(millis);
            crowd.on_ack(&sample, false, PathId(0), &[]);
            assert_eq!(crowd.window().is_some(), is_held, "{millis}");
        }
    }

    #[test]
    fn an_outage_tells_nothing_and_ends_it() {
        let mut crowd = crowd(200, 10_001);
        let outage = LossSample { persistent: true, ..loss(at(10_000), at(9_900)) };
        crowd.on_loss(&outage, 100 * PACKET, false, PathId(0), &[]);
        assert_eq!(crowd.window(), None);
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }
}
