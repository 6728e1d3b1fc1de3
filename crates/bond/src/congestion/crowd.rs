//! Whether others share a path's bottleneck who heed losses, and what may be in flight beside them.
//!
//! The model takes no loss for a sign, as most losses of a radio are none, and a queue that stays although it keeps little in flight for a longer way. Beside
//! flows that fill the queue until it overflows and then give way (Reno, CUBIC) that takes everything. Losses of a queue that overflows come
//! while it is full, those of a radio at any time: where they come with a full queue, and hardly without, the window follows CUBIC, as theirs does.

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
    aged: Timestamp,
    /// How often the full queue lost something; older times count less. And when the last of it was noticed.
    times: f64,
    noticed: Option<Timestamp>,
    /// When losses told of others last, and for how long before that they had not.
    last: Option<Timestamp>,
    apart: Duration,
    window: Option<CubicController>,
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

    fn age(&mut self) {
        self.arrived *= KEPT_PER_SECOND;
        self.lost *= KEPT_PER_SECOND;
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
            last: None,
            apart: Duration::ZERO,
            window: None,
        }
    }

    pub(super) fn on_ack(&mut self, sample: &AckSample, own: PathId, siblings: &[Sibling]) {
        self.take_round_trip(sample);
        self.tally().arrived += sample.acked_bytes as f64;
        if let Some(window) = &mut self.window {
            window.on_ack(sample, own, siblings);
        }
        if !sample.round_ended {
            return;
        }
        if sample.now.since(self.aged) >= SECOND {
            self.aged = sample.now;
            for tally in [&mut self.with_full_queue, &mut self.otherwise] {
                tally.age();
            }
            self.times *= KEPT_PER_SECOND;
        }
        if self.last.is_some_and(|last| sample.now.since(last) > LEAST_WAIT + self.apart * 2) {
            self.window = None;
        }
    }

    /// Losses of a path that has `in_flight` bytes on the way.
    pub(super) fn on_loss(&mut self, sample: &LossSample, in_flight: u64, own: PathId, siblings: &[Sibling]) {
        if sample.persistent {
            // An outage has nothing to do with others, and what they do now is not known.
            (self.window, self.times) = (None, 0.0);
            return;
        }
        self.tally().lost += sample.lost_bytes as f64;
        if self.is_full && self.noticed.is_none_or(|noticed| sample.latest_sent > noticed) {
            self.noticed = Some(sample.now);
            self.times += 1.0;
        }
        if !self.is_full || !self.is_crowded() {
            return;
        }
        if self.window.is_none() {
            self.window = Some(CubicController::at(in_flight, self.datagram, sample.now));
        }
        if let Some(window) = &mut self.window
            && window.on_loss_of(sample, own, siblings)
        {
            if let Some(last) = self.last.replace(sample.now) {
                self.apart = sample.now.since(last).min(LONGEST_APART);
            }
        }
    }

    /// What may be in flight, if others are there.
    pub(super) fn window(&self) -> Option<u64> {
        self.window.as_ref().map(Controller::window)
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
        self.least = self.least.min(rtt);
        self.greatest = self.greatest.max(rtt);
        if sample.round_ended {
            // Both come nearer to what is seen now.
            let part = |memory: Duration| sample.latest_rtt.div_duration_f64(memory).min(1.0);
            self.least += rtt.saturating_sub(self.least).mul_f64(part(LEAST_REMEMBERED));
            self.greatest -= self.greatest.saturating_sub(rtt).mul_f64(part(GREATEST_REMEMBERED));
        }
        self.is_full =
            rtt > self.least * 21 / 20 + MARGIN && rtt - self.least > (self.greatest - self.least) / 2;
    }
}

const SECOND: Duration = Duration::from_secs(1);
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
            crowd.on_ack(&sample, PathId(0), &[]);
            let every = if is_full { lost_with_full_queue } else { lost_otherwise };
            if millis % every == every - 1 {
                let sample = LossSample { lost_bytes: PACKET, ..loss(sample.now, sample.now) };
                crowd.on_loss(&sample, 100 * PACKET, PathId(0), &[]);
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
    fn who_is_gone_is_forgotten() {
        let mut crowd = crowd(200, 10_001);
        let mut sample = ack(PACKET);
        sample.round_ended = true;
        for millis in (10_000..35_000).step_by(20) {
            sample.now = Timestamp::from_millis(millis);
            crowd.on_ack(&sample, PathId(0), &[]);
        }
        assert_eq!(crowd.window(), None);
    }
}
