//! What the loss-based controllers share: slow start, the window in packets, and one reduction per loss event. They differ by their
//! [`WindowRule`].

use super::rate_filter::MaximumFilter;
use super::slow_start::SlowStart;
use super::{AckSample, Controller, LossSample, Sibling};
use std::time::Duration;
use units::{BitRate, Bytes, PathId, Timestamp};

/// How a window moves after slow start. Windows are in packets.
pub trait WindowRule {
    /// Congestion avoidance: the window after `acked` more packets were acknowledged.
    fn grown(&mut self, at: &Position<'_>, sample: &AckSample, acked: f64) -> f64;
    /// The window after a loss event or a CE mark.
    fn reduced(&mut self, at: &Position<'_>) -> f64;
    /// Persistent congestion: the window at which the slow start that follows ends.
    fn collapsed(&mut self, at: &Position<'_>) -> f64;
}

/// Where a controller stands when its rule is asked.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// Its window, packets.
    pub window: f64,
    /// Size of a packet, bytes.
    pub datagram: u64,
    /// Its path.
    pub own: PathId,
    /// Every live path of the bond, its own included.
    pub siblings: &'a [Sibling],
}

/// The loss-based controller of one path.
#[derive(Clone, Debug)]
pub struct LossBasedController<R> {
    pub(super) state: LossBased,
    pub(super) rule: R,
}

impl<R: WindowRule> LossBasedController<R> {
    fn position<'a>(&self, own: PathId, siblings: &'a [Sibling]) -> Position<'a> {
        Position { window: self.state.window, datagram: self.state.datagram, own, siblings }
    }

    /// Answers losses that are no persistent congestion; `false` if they belong to an event already answered.
    pub(super) fn on_loss_of(&mut self, sample: &LossSample, own: PathId, siblings: &[Sibling]) -> bool {
        let is_new = self.state.is_new_event(sample);
        if is_new {
            self.reduce(sample.now, own, siblings);
        }
        is_new
    }

    fn reduce(&mut self, now: Timestamp, own: PathId, siblings: &[Sibling]) {
        let window = self.rule.reduced(&self.position(own, siblings));
        self.state.reduce_to(window, now);
    }
}

impl<R: WindowRule> Controller for LossBasedController<R> {
    fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, sample: &AckSample, own: PathId, siblings: &[Sibling]) {
        if self.state.is_new_mark(sample) {
            self.reduce(sample.now, own, siblings);
            return;
        }
        let Growth::Avoidance(acked) = self.state.on_ack(sample) else { return };
        let position = self.position(own, siblings);
        self.state.window = self.rule.grown(&position, sample, acked);
    }

    fn on_loss(&mut self, sample: &LossSample, own: PathId, siblings: &[Sibling]) {
        if sample.persistent {
            let threshold = self.rule.collapsed(&self.position(own, siblings));
            self.state.collapse(threshold, sample.now);
        } else {
            self.on_loss_of(sample, own, siblings);
        }
    }

    fn window(&self) -> u64 {
        self.state.window_bytes()
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        self.state.pacing_rate()
    }

    fn rate_estimate(&self) -> Option<BitRate> {
        self.state.rate_estimate()
    }

    fn settled(&self) -> bool {
        self.state.slow_start.is_over()
    }
}

/// Window and slow start of one path.
#[derive(Clone, Debug)]
pub(super) struct LossBased {
    datagram: u64,
    /// Congestion window in packets of `datagram` bytes.
    pub(super) window: f64,
    slow_start: SlowStart,
    /// Slow start ends when the window reaches this, packets.
    threshold: f64,
    /// Losses of packets sent before this belong to an event already answered.
    recovery_started: Option<Timestamp>,
    smoothed_rtt: Duration,
    rates: MaximumFilter,
}

/// What an acknowledgement means for the window.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Growth {
    /// Slow start has already grown it, or nothing may grow.
    None,
    /// Congestion avoidance: so many packets were acknowledged.
    Avoidance(f64),
}

impl LossBased {
    pub(super) fn new(datagram: u64, now: Timestamp) -> Self {
        Self {
            datagram: datagram.max(1),
            window: INITIAL_WINDOW,
            slow_start: SlowStart::default(),
            threshold: f64::INFINITY,
            recovery_started: None,
            smoothed_rtt: Duration::ZERO,
            rates: MaximumFilter::new(now),
        }
    }

    /// Goes on with so many bytes in flight, in congestion avoidance.
    pub(super) fn begin_at(&mut self, window: u64) {
        self.window = (window as f64 / self.datagram as f64).clamp(LEAST_WINDOW, LARGEST_WINDOW);
        self.slow_start.end();
    }

    /// Takes one acknowledgement; `window_limited` growth only, as RFC 9438 section 5.8 asks.
    fn on_ack(&mut self, sample: &AckSample) -> Growth {
        self.smoothed_rtt = sample.smoothed_rtt;
        if let Some(rate) = sample.delivery_rate {
            self.rates.insert(rate, sample.application_limited);
        }
        if sample.round_ended {
            self.rates.end_round(sample.now);
        }
        let window_limited = sample.prior_in_flight * 2 >= self.window_bytes();
        if self.slow_start.is_over() {
            let acked = sample.acked_bytes as f64 / self.datagram as f64;
            return if window_limited { Growth::Avoidance(acked) } else { Growth::None };
        }
        let growth = self.slow_start.on_ack(sample);
        if window_limited {
            self.window = (self.window + growth as f64 / self.datagram as f64).min(LARGEST_WINDOW);
        }
        if self.window >= self.threshold {
            self.slow_start.end();
        }
        Growth::None
    }

    /// Whether a loss starts a new event; if so the caller reduces and calls [`Self::reduce_to`].
    fn is_new_event(&self, sample: &LossSample) -> bool {
        self.recovery_started.is_none_or(|started| sample.latest_sent > started)
    }

    /// Whether CE marks that arrived now start a new event: at most one in a round trip (RFC 3168 section 6.1.2).
    fn is_new_mark(&self, sample: &AckSample) -> bool {
        sample.ce_marks > 0
            && self.recovery_started.is_none_or(|started| sample.now.since(started) >= sample.smoothed_rtt)
    }

    /// Answers a loss event.
    fn reduce_to(&mut self, window: f64, now: Timestamp) {
        self.window = window.max(LEAST_WINDOW);
        self.threshold = self.window;
        self.slow_start.end();
        self.recovery_started = Some(now);
    }

    /// Answers persistent congestion (RFC 9002 section 7.6.2): the least window, then slow start to where it was.
    fn collapse(&mut self, threshold: f64, now: Timestamp) {
        self.window = LEAST_WINDOW;
        self.threshold = threshold.max(LEAST_WINDOW);
        self.slow_start.restart();
        self.recovery_started = Some(now);
    }

    fn window_bytes(&self) -> u64 {
        (self.window * self.datagram as f64).round() as u64
    }

    /// The window per round trip, a quarter faster so that pacing does not limit.
    fn pacing_rate(&self) -> Option<BitRate> {
        if !self.slow_start.is_over() || self.smoothed_rtt.is_zero() {
            return None;
        }
        let rate = BitRate::from_bytes_over(Bytes(self.window_bytes()), self.smoothed_rtt);
        Some(BitRate(rate.0 / 4 * 5))
    }

    /// The greatest rate delivered lately, but no more than the window lets through.
    fn rate_estimate(&self) -> Option<BitRate> {
        let measured = self.rates.maximum();
        if measured.0 == 0 {
            return None;
        }
        let allowed = BitRate::from_bytes_over(Bytes(self.window_bytes()), self.smoothed_rtt);
        Some(if self.slow_start.is_over() { measured.min(allowed) } else { measured })
    }
}

/// RFC 6928, packets.
const INITIAL_WINDOW: f64 = 10.0;
/// RFC 9002 section 7.2, packets.
const LEAST_WINDOW: f64 = 2.0;
/// Bound of slow start, packets; 1.4 GB in flight.
const LARGEST_WINDOW: f64 = 1_000_000.0;
