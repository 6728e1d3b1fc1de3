//! Reno: half of the window at a loss, one packet more in each round trip (RFC 5681, with the recovery of RFC 6675).

use super::control::{AckEvent, Control};
use units::{BitRate, Timestamp};

/// RFC 6928.
const INITIAL_WINDOW: f64 = 10.0;
/// RFC 5681 section 3.1, equation 4.
const LEAST_THRESHOLD: f64 = 2.0;

/// Reno's state, in packets.
#[derive(Debug)]
pub(super) struct Reno {
    window: f64,
    slow_start_threshold: f64,
    recovering: bool,
    before_reduction: Option<(f64, f64)>,
}

impl Reno {
    pub(super) fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            slow_start_threshold: f64::INFINITY,
            recovering: false,
            before_reduction: None,
        }
    }

    fn reduce(&mut self) {
        self.before_reduction = Some((self.window, self.slow_start_threshold));
        self.slow_start_threshold = (self.window / 2.0).max(LEAST_THRESHOLD);
    }
}

impl Control for Reno {
    fn window(&self) -> u64 {
        self.window.max(1.0) as u64
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        None
    }

    fn on_ack(&mut self, event: &AckEvent) {
        if self.recovering || !event.window_limited {
            return;
        }
        let mut acknowledged = event.newly_acknowledged as f64;
        if self.window < self.slow_start_threshold {
            let grown = (self.window + acknowledged).min(self.slow_start_threshold);
            acknowledged -= grown - self.window;
            self.window = grown;
        }
        self.window += acknowledged / self.window;
    }

    fn on_recovery(&mut self, _now: Timestamp, _in_flight: u64) {
        self.reduce();
        self.window = self.slow_start_threshold;
        self.recovering = true;
    }

    fn on_recovered(&mut self, _now: Timestamp) {
        if std::mem::take(&mut self.recovering) {
            self.window = self.slow_start_threshold;
        }
        self.before_reduction = None;
    }

    fn on_timeout(&mut self, _now: Timestamp, in_flight: u64) {
        if self.before_reduction.is_none() {
            self.reduce();
        }
        self.recovering = false;
        self.window = in_flight as f64 + 1.0;
    }

    fn on_undo(&mut self, _now: Timestamp) {
        if let Some((window, threshold)) = self.before_reduction.take() {
            self.window = self.window.max(window);
            self.slow_start_threshold = self.slow_start_threshold.max(threshold);
            self.recovering = false;
        }
    }
}
