//! Slow start that leaves before the queue overflows: HyStart++ (RFC 9406).
//!
//! ```text
//!            round's least RTT rose by eta            5 rounds, or loss
//!   Standard ------------------------> Conservative -------------------> over
//!       ^                                   |
//!       +------------ RTT fell again -------+
//! ```
//!
//! Only the least of at least eight samples of a round is looked at, and a rise must last through five rounds of slower
//! growth, so that jitter does not end slow start.

use super::AckSample;
use std::time::Duration;

/// Slow start of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowStart {
    stage: Stage,
    last_least: Option<Duration>,
    least: Option<Duration>,
    samples: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Standard,
    Conservative {
        baseline: Duration,
        rounds: u8,
    },
    Over,
}

impl SlowStart {
    /// Takes one acknowledgement and returns by how many bytes the window grows for it.
    pub(super) fn on_ack(&mut self, sample: &AckSample) -> u64 {
        self.least = Some(self.least.map_or(sample.latest_rtt, |least| least.min(sample.latest_rtt)));
        self.samples += 1;
        self.look();
        let growth = match self.stage {
            Stage::Standard => sample.acked_bytes,
            Stage::Conservative { .. } => sample.acked_bytes / CONSERVATIVE_DIVISOR,
            Stage::Over => 0,
        };
        if sample.round_ended {
            self.end_round();
        }
        growth
    }

    /// Whether slow start has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Ends it, as after a loss.
    pub(super) fn end(&mut self) {
        self.stage = Stage::Over;
    }

    /// Starts it again, as after persistent congestion.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    fn look(&mut self) {
        let (Some(least), Some(last)) = (self.least, self.last_least) else { return };
        if self.samples < LEAST_SAMPLES {
            return;
        }
        match self.stage {
            Stage::Standard if least >= last + round_trip_rise(last) => {
                self.stage = Stage::Conservative { baseline: least, rounds: 0 };
            }
            Stage::Conservative { baseline, .. } if least < baseline => self.stage = Stage::Standard,
            Stage::Standard | Stage::Conservative { .. } | Stage::Over => {}
        }
    }

    fn end_round(&mut self) {
        if self.samples >= LEAST_SAMPLES {
            self.last_least = self.least;
        }
        self.least = None;
        self.samples = 0;
        if let Stage::Conservative { rounds, .. } = &mut self.stage {
            *rounds += 1;
            if *rounds >= CONSERVATIVE_ROUNDS {
                self.stage = Stage::Over;
            }
        }
    }
}

/// RFC 9406 section 4.2: `RttThresh = max(4 ms, min(lastRoundMinRTT / 8, 16 ms))`.
fn round_trip_rise(last: Duration) -> Duration {
    (last / 8).clamp(Duration::from_millis(4), Duration::from_millis(16))
}

/// N_RTT_SAMPLE of RFC 9406.
const LEAST_SAMPLES: u32 = 8;
/// CSS_GROWTH_DIVISOR of RFC 9406.
const CONSERVATIVE_DIVISOR: u64 = 4;
/// CSS_ROUNDS of RFC 9406.
const CONSERVATIVE_ROUNDS: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::samples::ack;

    fn round(slow_start: &mut SlowStart, millis: &[u64]) -> u64 {
        let mut grown = 0;
        for (index, &rtt) in millis.iter().enumerate() {
            let mut sample = ack(100);
            sample.latest_rtt = Duration::from_millis(rtt);
            sample.round_ended = index + 1 == millis.len();
            grown += slow_start.on_ack(&sample);
        }
        grown
    }

    #[test]
    fn ends_after_five_rounds_of_a_lasting_rise() {
        let mut slow_start = SlowStart::default();
        assert_eq!(round(&mut slow_start, &[40; 10]), 1_000);
        assert_eq!(round(&mut slow_start, &[45; 10]), 700 + 75, "seven before eight samples are there");
        for _ in 0..3 {
            assert_eq!(round(&mut slow_start, &[45; 10]), 250);
            assert!(!slow_start.is_over());
        }
        round(&mut slow_start, &[45; 10]);
        assert!(slow_start.is_over());
    }

    #[test]
    fn jitter_does_not_end_it() {
        let mut slow_start = SlowStart::default();
        for _ in 0..20 {
            assert_eq!(round(&mut slow_start, &[40, 60, 55, 42, 48, 59, 41, 57, 50, 44]), 1_000);
        }
        assert_eq!(
            round(&mut slow_start, &[50, 60, 55, 52, 48, 59, 51, 57, 50, 54]),
            775,
            "one round of rise"
        );
        assert_eq!(round(&mut slow_start, &[40; 10]), 7 * 25 + 300, "on again once eight samples are there");
        assert!(!slow_start.is_over());
    }
}
