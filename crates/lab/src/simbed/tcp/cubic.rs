//! CUBIC with HyStart as Linux's `tcp_cubic` runs it.

use super::control::{AckEvent, Control};
use std::time::Duration;
use units::{BitRate, Timestamp};

/// RFC 9438 section 4.6: beta_cubic; Linux has 717/1024.
const BETA: f64 = 717.0 / 1024.0;
/// RFC 9438 section 5: C, packets per second cubed.
const GROWTH: f64 = 0.4;
/// Initial window (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// HyStart acts from this window on, packets.
const HYSTART_LOW_WINDOW: f64 = 16.0;
/// HyStart: acknowledgements closer than this are one train.
const HYSTART_ACK_GAP: Duration = Duration::from_millis(2);
/// HyStart: round-trip samples needed per round.
const HYSTART_MINIMUM_SAMPLES: u32 = 8;
/// HyStart: bounds of the delay increase that ends slow start.
const HYSTART_DELAY_BOUNDS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));

/// CUBIC's state.
#[derive(Debug)]
pub(super) struct Cubic {
    window: f64,
    slow_start_threshold: f64,
    last_maximum: f64,
    epoch: Option<Epoch>,
    least_delay: Option<Duration>,
    hystart: Hystart,
    reduction: Option<Reduction>,
    before_reduction: Option<(f64, f64)>,
}

/// A period of growth since the last loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Timestamp,
    origin: f64,
    /// Seconds from the start of the epoch until the window is back at the origin.
    climb: f64,
    /// The window that Reno would have.
    reno_window: f64,
}

/// HyStart's view of the present round.
#[derive(Clone, Copy, Debug, Default)]
struct Hystart {
    round_start: Timestamp,
    round_end: u64,
    last_ack: Timestamp,
    least_rtt: Option<Duration>,
    samples: u32,
    found: bool,
}

/// Proportional rate reduction under way (RFC 6937).
#[derive(Clone, Copy, Debug)]
struct Reduction {
    delivered: u64,
    flight_at_start: u64,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            slow_start_threshold: f64::INFINITY,
            last_maximum: 0.0,
            epoch: None,
            least_delay: None,
            hystart: Hystart::default(),
            reduction: None,
            before_reduction: None,
        }
    }

    /// RFC 9438 sections 4.6 and 4.7 (fast convergence).
    fn reduced_threshold(&mut self) -> f64 {
        self.epoch = None;
        self.last_maximum =
            if self.window < self.last_maximum { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        (self.window * BETA).max(2.0)
    }

    fn remember_for_undo(&mut self) {
        self.before_reduction = Some((self.window, self.slow_start_threshold));
    }

    /// RFC 6937 section 3.1 with the slow-start reduction bound.
    fn reduce(&mut self, event: &AckEvent, mut reduction: Reduction) {
        reduction.delivered += event.newly_delivered;
        let (in_flight, threshold) = (event.in_flight as f64, self.slow_start_threshold);
        let sent = event.sent_in_recovery as f64;
        let may_send = if in_flight > threshold {
            (threshold * reduction.delivered as f64 / reduction.flight_at_start.max(1) as f64).ceil() - sent
        } else {
            let mut limit = (reduction.delivered as f64 - sent).max(event.newly_delivered as f64);
            if event.newly_acknowledged > 0 && event.newly_lost == 0 {
                limit += 1.0;
            }
            limit.min(threshold - in_flight)
        };
        let least = if event.sent_in_recovery > 0 { 0.0 } else { 1.0 };
        self.window = in_flight + may_send.max(least);
        self.reduction = Some(reduction);
    }

    fn grow(&mut self, event: &AckEvent) {
        let mut acknowledged = event.newly_acknowledged as f64;
        if self.window < self.slow_start_threshold {
            let grown = (self.window + acknowledged).min(self.slow_start_threshold);
            acknowledged -= grown - self.window;
            self.window = grown;
        }
        if acknowledged > 0.0 {
            self.avoid_congestion(event.now, acknowledged);
        }
    }

    /// RFC 9438 sections 4.2 to 4.5.
    fn avoid_congestion(&mut self, now: Timestamp, acknowledged: f64) {
        let (window, last_maximum) = (self.window, self.last_maximum);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            origin: window.max(last_maximum),
            climb: ((last_maximum - window).max(0.0) / GROWTH).cbrt(),
            reno_window: window,
        });
        let time = (now.since(epoch.start) + self.least_delay.unwrap_or_default()).as_secs_f64();
        let target = epoch.origin + GROWTH * (time - epoch.climb).powi(3);
        let mut acks_per_packet = if target > window { window / (target - window) } else { 100.0 * window };
        if last_maximum == 0.0 {
            acks_per_packet = acks_per_packet.min(20.0);
        }
        // RFC 9438 section 4.3: not slower than Reno with the same beta.
        epoch.reno_window += acknowledged * 3.0 * (1.0 - BETA) / (1.0 + BETA) / window;
        if epoch.reno_window > window {
            acks_per_packet = acks_per_packet.min(window / (epoch.reno_window - window));
        }
        self.window += acknowledged / acks_per_packet.max(2.0);
    }

    fn watch_slow_start(&mut self, event: &AckEvent) {
        let Some(rtt) = event.rtt else { return };
        let least_delay = self.least_delay.map_or(rtt, |least| least.min(rtt));
        self.least_delay = Some(least_delay);
        if self.hystart.found || self.window >= self.slow_start_threshold || self.window < HYSTART_LOW_WINDOW
        {
            return;
        }
        let round = &mut self.hystart;
        if event.first_unacknowledged > round.round_end {
            *round = Hystart {
                round_start: event.now,
                round_end: event.next_new,
                last_ack: event.now,
                ..Hystart::default()
            };
        }
        if event.now.since(round.last_ack) <= HYSTART_ACK_GAP {
            round.last_ack = event.now;
            // Half of it, since the flow is not paced.
            round.found |= event.now.since(round.round_start) > least_delay / 2;
        }
        let least_rtt = round.least_rtt.map_or(rtt, |least| least.min(rtt));
        round.least_rtt = Some(least_rtt);
        if round.samples < HYSTART_MINIMUM_SAMPLES {
            round.samples += 1;
        } else {
            let (least, most) = HYSTART_DELAY_BOUNDS;
            round.found |= least_rtt > least_delay + (least_delay / 8).clamp(least, most);
        }
        if round.found {
            self.slow_start_threshold = self.window;
        }
    }
}

impl Control for Cubic {
    fn window(&self) -> u64 {
        self.window.max(1.0) as u64
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        None
    }

    fn on_ack(&mut self, event: &AckEvent) {
        self.watch_slow_start(event);
        if let Some(reduction) = self.reduction {
            self.reduce(event, reduction);
        } else if event.window_limited && event.newly_acknowledged > 0 {
            self.grow(event);
        }
    }

    fn on_recovery(&mut self, _now: Timestamp, in_flight: u64) {
        self.remember_for_undo();
        self.slow_start_threshold = self.reduced_threshold();
        self.reduction = Some(Reduction { delivered: 0, flight_at_start: in_flight });
    }

    fn on_recovered(&mut self, _now: Timestamp) {
        if self.reduction.take().is_some() {
            self.window = self.slow_start_threshold;
        }
        self.before_reduction = None;
    }

    fn on_timeout(&mut self, _now: Timestamp, in_flight: u64) {
        if self.before_reduction.is_none() {
            self.remember_for_undo();
            self.slow_start_threshold = self.reduced_threshold();
        }
        self.reduction = None;
        self.window = in_flight as f64 + 1.0;
        self.hystart = Hystart::default();
    }

    fn on_undo(&mut self, _now: Timestamp) {
        if let Some((window, threshold)) = self.before_reduction.take() {
            self.window = self.window.max(window);
            self.slow_start_threshold = self.slow_start_threshold.max(threshold);
            self.reduction = None;
        }
    }
}
