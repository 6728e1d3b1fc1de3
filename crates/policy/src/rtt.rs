//! Round-trip time: the smoothed estimate of RFC 6298 and the base that queueing is measured against.

use std::time::Duration;
use units::Timestamp;

/// Smoothed round-trip time, its variation and its minimum, as RFC 6298 section 2 keeps them.
///
/// Before the first sample, [`Self::smoothed`] is [`Self::INITIAL`] and [`Self::is_measured`] is false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RttEstimator {
    smoothed: Duration,
    variation: Duration,
    minimum: Duration,
    latest: Duration,
    measured: bool,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            smoothed: Self::INITIAL,
            variation: Self::INITIAL / 2,
            minimum: Self::INITIAL,
            latest: Self::INITIAL,
            measured: false,
        }
    }
}

impl RttEstimator {
    /// Assumed before anything was measured (RFC 9002 section 6.2.2).
    pub const INITIAL: Duration = Duration::from_millis(333);

    /// Takes one measured round-trip time, acknowledgement delay already removed.
    ///
    /// Samples of Karn's ambiguity (a repeated packet) must be left out by the caller.
    pub fn on_sample(&mut self, sample: Duration) {
        let sample = sample.min(MAX_SAMPLE);
        self.latest = sample;
        if !self.measured {
            *self = Self {
                smoothed: sample,
                variation: sample / 2,
                minimum: sample,
                latest: sample,
                measured: true,
            };
            return;
        }
        self.variation = next_variation(self.variation, self.smoothed, sample);
        self.smoothed = next_smoothed(self.smoothed, sample);
        self.minimum = self.minimum.min(sample);
    }

    /// Whether there was a sample yet.
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// SRTT.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// RTTVAR.
    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// The least sample so far.
    pub fn minimum(&self) -> Duration {
        self.minimum
    }

    /// The last sample.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Probe timeout without acknowledgement delay: `SRTT + max(4 * RTTVAR, G)` (RFC 9002 section 6.2.1).
    pub fn pto(&self) -> Duration {
        self.smoothed + (4 * self.variation).max(GRANULARITY)
    }

    /// Forgets the past, as after a path has moved to another network.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// RFC 6298 eq. 2.3: `RTTVAR <- 3/4 * RTTVAR + 1/4 * |SRTT - R'|`, with the old SRTT.
fn next_variation(variation: Duration, smoothed: Duration, sample: Duration) -> Duration {
    (variation * 3 + smoothed.abs_diff(sample)) / 4
}

/// RFC 6298 eq. 2.3: `SRTT <- 7/8 * SRTT + 1/8 * R'`.
fn next_smoothed(smoothed: Duration, sample: Duration) -> Duration {
    (smoothed * 7 + sample) / 8
}

/// The least value of the last ten seconds or so, in constant space.
///
/// Feed it the *smoothed* round-trip time: a raw minimum collapses under jitter. Two half-windows are kept, so a
/// minimum is forgotten between half a window and a whole window after it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseRtt {
    current: Option<Duration>,
    previous: Option<Duration>,
    half_started: Timestamp,
    window: Duration,
}

impl Default for BaseRtt {
    fn default() -> Self {
        Self::new(BASE_WINDOW)
    }
}

impl BaseRtt {
    /// Keeps the minimum over at most `window` and at least half of it.
    pub fn new(window: Duration) -> Self {
        Self { current: None, previous: None, half_started: Timestamp::ZERO, window }
    }

    /// Takes one value and returns the minimum with it.
    pub fn on_sample(&mut self, now: Timestamp, value: Duration) -> Duration {
        if now.since(self.half_started) >= self.window / 2 {
            self.previous = self.current.take();
            self.half_started = now;
        }
        let current = self.current.map_or(value, |least| least.min(value));
        self.current = Some(current);
        self.previous.map_or(current, |least| least.min(current))
    }

    /// The minimum, or `None` before the first value.
    pub fn get(&self) -> Option<Duration> {
        match (self.current, self.previous) {
            (Some(current), Some(previous)) => Some(current.min(previous)),
            (current, previous) => current.or(previous),
        }
    }
}

/// G of RFC 6298; 1 ms as in RFC 9002 section 6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);
/// Longer samples say nothing; also keeps the arithmetic far from overflow.
const MAX_SAMPLE: Duration = Duration::from_secs(60);
/// Window of the base round-trip time.
const BASE_WINDOW: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    /// By hand: R = 100: SRTT 100, RTTVAR 50. R' = 140: RTTVAR (3*50+40)/4 = 47.5, SRTT (700+140)/8 = 105.
    /// R' = 65: RTTVAR (3*47.5+40)/4 = 45.625, SRTT (735+65)/8 = 100.
    #[test]
    fn follows_rfc_6298() {
        let mut rtt = RttEstimator::default();
        assert!(!rtt.is_measured());
        rtt.on_sample(ms(100));
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(100), ms(50)));
        rtt.on_sample(ms(140));
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(105), Duration::from_micros(47_500)));
        rtt.on_sample(ms(65));
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(100), Duration::from_micros(45_625)));
        assert_eq!(rtt.minimum(), ms(65));
        assert_eq!(rtt.pto(), Duration::from_micros(282_500));
    }

    #[test]
    fn pto_of_a_steady_path_keeps_the_granularity() {
        let mut rtt = RttEstimator::default();
        for _ in 0..200 {
            rtt.on_sample(ms(20));
        }
        assert_eq!(rtt.pto(), ms(21));
    }

    #[test]
    fn absurd_samples_are_bounded() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(Duration::MAX);
        rtt.on_sample(Duration::ZERO);
        assert!(rtt.pto() < Duration::from_secs(300));
    }

    #[test]
    fn base_forgets_after_its_window() {
        let mut base = BaseRtt::new(ms(2_000));
        assert_eq!(base.get(), None);
        assert_eq!(base.on_sample(Timestamp::from_millis(1_000), ms(20)), ms(20));
        assert_eq!(base.on_sample(Timestamp::from_millis(1_900), ms(50)), ms(20));
        assert_eq!(
            base.on_sample(Timestamp::from_millis(2_000), ms(60)),
            ms(20),
            "kept for half a window at least"
        );
        assert_eq!(base.on_sample(Timestamp::from_millis(3_100), ms(70)), ms(60));
    }
}
