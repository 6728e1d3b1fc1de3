//! Round-trip time and retransmission time-out (RFC 6298 with Linux's bounds).

use std::time::Duration;

/// Smoothed round-trip time and what follows from it.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
    backoff: u32,
}

impl RoundTrip {
    /// A packet that was sent once took `sample`.
    pub(super) fn add(&mut self, sample: Duration) {
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// The retransmission timer expired.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(10);
    }

    /// Something new was acknowledged.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(super) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Linux: at least 200 ms for the variation's part, at most 120 s.
    pub(super) fn timeout(&self) -> Duration {
        let base = match self.smoothed {
            None => Duration::from_secs(1),
            Some(smoothed) => smoothed + (self.variation * 4).max(Duration::from_millis(200)),
        };
        (base * 2_u32.pow(self.backoff)).min(Duration::from_secs(120))
    }
}
