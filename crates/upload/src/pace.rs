//! How fast the source sends: the proportional-differential controller of `[LINKALIKE] III.C.3`, or by need.

use std::time::Duration;

use units::Timestamp;

use crate::settings::PaceRule;

/// How often the rate is set: `[LINKALIKE] III.C.3`.
const INTERVAL: Duration = Duration::from_millis(200);
const PROPORTIONAL: f64 = 0.1;
const DIFFERENTIAL: f64 = 0.4;
/// The least pace, as a part of the greatest: neighbours that come, or come back, are found by what they hear. The paper clips at zero.
const LEAST_PART: f64 = 1.0 / 64.0;
/// Frames that may follow each other at once after a pause.
const BURST: f64 = 2.0;

/// When the next frame may be sent.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    rule: PaceRule,
    /// Frames a second.
    rate: f64,
    shortage: f64,
    last_shortage: f64,
    next_step: Timestamp,
    /// When the last frame was due.
    last_frame: Option<Timestamp>,
}

impl Pace {
    /// Begins at the greatest rate: all buffers are empty.
    pub(crate) fn new(now: Timestamp, rule: PaceRule, greatest: f64) -> Self {
        Self {
            rule,
            rate: greatest,
            shortage: FULL_PACE_FROM,
            last_shortage: 0.0,
            next_step: now + INTERVAL,
            last_frame: None,
        }
    }

    /// `F`: the most chunks that a contributing neighbour lacks.
    pub(crate) fn set_shortage(&mut self, shortage: i32) {
        self.shortage = f64::from(shortage);
    }

    /// Sets the rate if it is time for it; `greatest` is what the medium carries at the bit rate in use.
    pub(crate) fn step(&mut self, now: Timestamp, greatest: f64) {
        if self.rule == PaceRule::Need {
            self.rate = needed_rate(self.shortage, greatest);
            return;
        }
        while self.next_step <= now {
            self.rate = next_rate(self.rate, self.shortage, self.last_shortage, greatest);
            self.last_shortage = self.shortage;
            self.next_step += INTERVAL;
            // After a pause only the last steps mean anything.
            if now.since(self.next_step) > INTERVAL * 4 {
                self.next_step = now + INTERVAL;
            }
        }
    }

    /// Whether a frame may be sent.
    pub(crate) fn allows(&self, now: Timestamp) -> bool {
        self.next_frame() <= now
    }

    /// A frame is sent.
    pub(crate) fn spend(&mut self, now: Timestamp) {
        self.last_frame = Some(self.next_frame().max(now - self.gap().mul_f64(BURST)));
    }

    /// When the next frame may be sent: a change of the rate counts at once.
    pub(crate) fn next_frame(&self) -> Timestamp {
        self.last_frame.map_or(Timestamp::ZERO, |last| last + self.gap())
    }

    fn gap(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.rate.max(0.1))
    }

    /// Frames a second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }
}

/// The rate of `[LINKALIKE] III.C.3`, in frames a second: rate + (0.1 F + 0.4 (F - F before)) / s, between the least and the greatest.
fn next_rate(rate: f64, shortage: f64, last_shortage: f64, greatest: f64) -> f64 {
    let change = PROPORTIONAL * shortage + DIFFERENTIAL * (shortage - last_shortage);
    (rate + change).clamp(greatest * LEAST_PART, greatest)
}

/// The greatest rate while chunks are lacking; less where only a few are, so that the last frames of a burst can be told of before more follow.
fn needed_rate(shortage: f64, greatest: f64) -> f64 {
    greatest * (shortage / FULL_PACE_FROM).clamp(LEAST_PART, 1.0)
}

/// Chunks lacking from which on the source sends as fast as it can.
const FULL_PACE_FROM: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_equation() {
        // Worked by hand: 100 + 0.1 * 20 + 0.4 * (20 - 30) = 98.
        assert!((next_rate(100.0, 20.0, 30.0, 300.0) - 98.0).abs() < 1e-9);
        assert!((next_rate(100.0, -2_000.0, 0.0, 320.0) - 5.0).abs() < 1e-9, "never silent");
        assert!(
            (needed_rate(4.0, 300.0) - 150.0).abs() < 1e-9 && (needed_rate(-9.0, 320.0) - 5.0).abs() < 1e-9
        );
        assert!((next_rate(299.0, 100.0, 0.0, 300.0) - 300.0).abs() < 1e-9);
    }

    #[test]
    fn frames_keep_their_distance_and_pauses_are_not_made_up_for() {
        let mut pace = Pace::new(Timestamp::ZERO, PaceRule::Controller, 100.0);
        let mut sent = 0;
        for millis in 0..1_000 {
            let now = Timestamp::from_millis(millis);
            while pace.allows(now) {
                pace.spend(now);
                sent += 1;
            }
        }
        assert!((99..=103).contains(&sent), "{sent}");
        let later = Timestamp::from_millis(10_000);
        let burst = (0..).take_while(|_| {
            let allowed = pace.allows(later);
            if allowed {
                pace.spend(later);
            }
            allowed
        });
        assert!(burst.count() <= 4);
    }
}
