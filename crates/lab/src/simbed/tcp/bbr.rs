//! BBR version 1 as Linux's `tcp_bbr` runs it (Cardwell et al., "BBR: Congestion-Based Congestion
//! Control", 2016), without its detection of token-bucket policers.

use super::control::{AckEvent, Control};
use std::collections::VecDeque;
use std::time::Duration;
use units::{BitRate, Timestamp};

/// 2/ln 2: doubles the delivered rate every round.
const STARTUP_GAIN: f64 = 2.885;
/// Drains in one round what start-up queued.
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
/// Window gain while cruising: room for delayed acknowledgements.
const WINDOW_GAIN: f64 = 2.0;
/// One round more, one less, six level.
const CYCLE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds that the rate's maximum looks back.
const RATE_ROUNDS: u64 = 10;
/// A minimum round-trip time is good for this long.
const LEAST_RTT_VALIDITY: Duration = Duration::from_secs(10);
/// Time with a small window to measure it anew.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// That small window, packets.
const LEAST_WINDOW: u64 = 4;
/// Start-up ends after this many rounds without this growth of the rate.
const FULL_RATE_ROUNDS: u32 = 3;
const FULL_RATE_GROWTH: f64 = 1.25;
/// Linux paces at 1 % under the estimate.
const PACING_MARGIN: f64 = 0.99;
const INITIAL_WINDOW: u64 = 10;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeRate { phase: usize, since: Timestamp },
    ProbeRtt { until: Option<Timestamp> },
}

/// BBR's state. Rates are packets per second.
#[derive(Debug)]
pub(super) struct Bbr {
    packet_bytes: u64,
    mode: Mode,
    window: u64,
    prior_window: u64,
    /// (round, rate), falling rates.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_end_delivered: u64,
    least_rtt: Option<(Duration, Timestamp)>,
    full_rate: f64,
    full_rate_rounds: u32,
    pipe_filled: bool,
    conserving_until_round: Option<u64>,
    in_recovery: bool,
    aggregation: Aggregation,
    pacing: Option<f64>,
    smoothed_rtt: Option<Duration>,
}

/// Acknowledgements beyond what the rate explains (Linux: `bbr_update_ack_aggregation`).
#[derive(Debug, Default)]
struct Aggregation {
    epoch: Timestamp,
    acknowledged: u64,
    /// Most extra packets in this and the previous five rounds.
    extra: [u64; 2],
    slot_rounds: u32,
}

impl Bbr {
    pub(super) fn new(packet_bytes: u64) -> Self {
        Self {
            packet_bytes,
            mode: Mode::Startup,
            window: INITIAL_WINDOW,
            prior_window: INITIAL_WINDOW,
            rates: VecDeque::new(),
            round: 0,
            round_end_delivered: 0,
            least_rtt: None,
            full_rate: 0.0,
            full_rate_rounds: 0,
            pipe_filled: false,
            conserving_until_round: None,
            in_recovery: false,
            aggregation: Aggregation::default(),
            pacing: None,
            smoothed_rtt: None,
        }
    }

    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Packets in flight that fill the path `gain` times, with room for bursts of three.
    fn target(&self, gain: f64) -> u64 {
        let Some((least_rtt, _)) = self.least_rtt.filter(|_| self.rate() > 0.0) else {
            return INITIAL_WINDOW;
        };
        let packets = (self.rate() * least_rtt.as_secs_f64() * gain).ceil() as u64 + 3 * self.burst();
        let probing = matches!(self.mode, Mode::ProbeRate { phase: 0, .. });
        (packets + packets % 2) + if probing { 2 } else { 0 }
    }

    /// Packets of one burst of about a millisecond.
    fn burst(&self) -> u64 {
        if self.rate() * (self.packet_bytes as f64) * 8.0 < 1.2e6 { 1 } else { 2 }
    }

    fn update_rate(&mut self, event: &AckEvent) -> bool {
        let Some(sample) = event.rate else { return false };
        let round_started = sample.prior_delivered >= self.round_end_delivered;
        if round_started {
            self.round_end_delivered = event.total_delivered;
            self.round += 1;
        }
        let rate = sample.delivered as f64 / sample.interval.as_secs_f64().max(1e-9);
        if !sample.application_limited || rate >= self.rate() {
            while self.rates.back().is_some_and(|(_, older)| *older <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((self.round, rate));
        }
        while self.rates.len() > 1
            && self.rates.front().is_some_and(|(round, _)| round + RATE_ROUNDS < self.round)
        {
            self.rates.pop_front();
        }
        round_started
    }

    fn update_aggregation(&mut self, event: &AckEvent, round_started: bool) {
        let rate = self.rate();
        let state = &mut self.aggregation;
        if round_started {
            state.slot_rounds += 1;
            if state.slot_rounds >= 5 {
                state.slot_rounds = 0;
                state.extra = [0, state.extra[0]];
            }
        }
        let expected = (rate * event.now.since(state.epoch).as_secs_f64()) as u64;
        if state.acknowledged <= expected {
            (state.epoch, state.acknowledged) = (event.now, 0);
        }
        let expected = (rate * event.now.since(state.epoch).as_secs_f64()) as u64;
        state.acknowledged += event.newly_delivered;
        let extra = state.acknowledged.saturating_sub(expected).min(self.window);
        state.extra[0] = state.extra[0].max(extra);
    }

    /// At most what 100 ms bring.
    fn aggregation_window(&self) -> u64 {
        let most = (self.rate() * 0.1) as u64;
        if self.pipe_filled { self.aggregation.extra.iter().copied().max().unwrap_or(0).min(most) } else { 0 }
    }

    fn check_full_pipe(&mut self, event: &AckEvent, round_started: bool) {
        let limited = event.rate.is_none_or(|sample| sample.application_limited);
        if self.pipe_filled || !round_started || limited {
            return;
        }
        if self.rate() >= self.full_rate * FULL_RATE_GROWTH {
            self.full_rate = self.rate();
            self.full_rate_rounds = 0;
            return;
        }
        self.full_rate_rounds += 1;
        self.pipe_filled = self.full_rate_rounds >= FULL_RATE_ROUNDS;
    }

    fn update_mode(&mut self, event: &AckEvent) {
        if self.mode == Mode::Startup && self.pipe_filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && event.in_flight <= self.target(1.0) {
            self.enter_probe_rate(event.now);
        }
        if let Mode::ProbeRate { phase, since } = self.mode {
            let gain = CYCLE_GAINS[phase];
            let full_length = self.least_rtt.is_some_and(|(least, _)| event.now.since(since) > least);
            let next = if gain > 1.0 {
                full_length && (event.newly_lost > 0 || event.prior_in_flight >= self.target(gain))
            } else if gain < 1.0 {
                full_length || event.prior_in_flight <= self.target(1.0)
            } else {
                full_length
            };
            if next {
                self.mode = Mode::ProbeRate { phase: (phase + 1) % CYCLE_GAINS.len(), since: event.now };
            }
        }
    }

    /// The phase after the draining one; which one Linux draws by chance hardly matters for one flow.
    fn enter_probe_rate(&mut self, now: Timestamp) {
        self.mode = Mode::ProbeRate { phase: 2, since: now };
    }

    fn update_least_rtt(&mut self, event: &AckEvent, round_started: bool) {
        let expired = self.least_rtt.is_some_and(|(_, at)| event.now.since(at) > LEAST_RTT_VALIDITY);
        if let Some(rtt) = event.rtt
            && self.least_rtt.is_none_or(|(least, _)| rtt < least || expired)
        {
            self.least_rtt = Some((rtt, event.now));
        }
        if expired && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.prior_window = self.window;
            self.mode = Mode::ProbeRtt { until: None };
        }
        let Mode::ProbeRtt { until } = self.mode else { return };
        match until {
            None if event.in_flight <= LEAST_WINDOW => {
                self.mode = Mode::ProbeRtt { until: Some(event.now + PROBE_RTT_TIME) };
            }
            Some(until) if round_started && event.now >= until => {
                self.least_rtt = self.least_rtt.map(|(least, _)| (least, event.now));
                self.window = self.window.max(self.prior_window);
                if self.pipe_filled { self.enter_probe_rate(event.now) } else { self.mode = Mode::Startup }
            }
            _ => {}
        }
    }

    fn set_window(&mut self, event: &AckEvent) {
        let gain = match self.mode {
            Mode::Startup | Mode::Drain => STARTUP_GAIN,
            Mode::ProbeRate { .. } => WINDOW_GAIN,
            Mode::ProbeRtt { .. } => 1.0,
        };
        self.window = self.window.saturating_sub(event.newly_lost).max(1);
        if event.in_recovery != self.in_recovery {
            self.in_recovery = event.in_recovery;
            if event.in_recovery {
                // One round of packet conservation.
                self.conserving_until_round = Some(self.round + 1);
                self.window = event.in_flight + event.newly_delivered;
            } else {
                self.conserving_until_round = None;
                self.window = self.window.max(self.prior_window);
            }
        }
        if self.conserving_until_round.is_some_and(|round| self.round > round) {
            self.conserving_until_round = None;
        }
        let target = self.target(gain) + self.aggregation_window();
        if self.conserving_until_round.is_some() {
            self.window = self.window.max(event.in_flight + event.newly_delivered);
        } else if self.pipe_filled {
            self.window = (self.window + event.newly_delivered).min(target);
        } else if self.window < target || event.total_delivered < INITIAL_WINDOW {
            self.window += event.newly_delivered;
        }
        self.window = self.window.max(LEAST_WINDOW);
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.window = self.window.min(LEAST_WINDOW);
        }
    }

    fn set_pacing(&mut self, event: &AckEvent) {
        let gain = match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeRate { phase, .. } => CYCLE_GAINS[phase],
            Mode::ProbeRtt { .. } => 1.0,
        };
        if let Some(rtt) = event.rtt.filter(|_| self.smoothed_rtt.is_none()) {
            self.smoothed_rtt = Some(rtt);
            self.pacing = Some(STARTUP_GAIN * INITIAL_WINDOW as f64 / rtt.as_secs_f64().max(1e-3));
        }
        let wanted = self.rate() * gain * PACING_MARGIN;
        if wanted > 0.0 && (self.pipe_filled || self.pacing.is_none_or(|pacing| wanted > pacing)) {
            self.pacing = Some(wanted);
        }
    }
}

impl Control for Bbr {
    fn window(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        self.pacing.map(|packets| BitRate((packets * self.packet_bytes as f64 * 8.0) as u64))
    }

    fn on_ack(&mut self, event: &AckEvent) {
        let round_started = self.update_rate(event);
        self.update_aggregation(event, round_started);
        self.check_full_pipe(event, round_started);
        self.update_mode(event);
        self.update_least_rtt(event, round_started);
        self.set_pacing(event);
        self.set_window(event);
    }

    fn on_recovery(&mut self, _now: Timestamp, _in_flight: u64) {
        self.prior_window = if matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.prior_window.max(self.window)
        } else {
            self.window
        };
    }

    fn on_recovered(&mut self, _now: Timestamp) {}

    fn on_timeout(&mut self, _now: Timestamp, in_flight: u64) {
        self.prior_window = self.prior_window.max(self.window);
        self.full_rate = 0.0;
        self.window = in_flight + 1;
    }

    fn on_undo(&mut self, _now: Timestamp) {
        self.full_rate = 0.0;
        self.full_rate_rounds = 0;
        self.window = self.window.max(self.prior_window);
    }
}
