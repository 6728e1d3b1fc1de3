//! Control by a model of the path: its delivery rate and its base round-trip time.
//!
//! ```text
//!             rate flat or queue seen              queue gone
//!   StartUp ---------------------------> Drain -----------------> Cruise <--------+
//!      ^                                                            | 8 rounds    | no gain
//!      |              rate follows twice                            v             | (by Drain)
//!      +------------------------------------------------------- Probe (send, measure)
//! ```
//!
//! The idea of pacing at the greatest delivery rate and of bounding what is in flight by it and the minimum
//! round-trip time is BBR's (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016).
//! Deviations, each found to matter on jittery and lossy access links:
//! - the base is a minimum of the *smoothed* round-trip time, since a raw minimum collapses under jitter;
//! - a path whose smoothed round-trip time shows a queue is paced at 0.9 of the estimate, because maxima of
//!   receive-time rates overestimate by 3-15 %;
//! - once the round-trip time has doubled, no rate beyond what the last moments delivered is believed;
//! - probing is bounded by the queue that it may build, and goes over into a new start-up when the rate follows;
//! - loss alone is ignored below 15 % of a round.

use super::rate_filter::{MaximumFilter, Slices};
use super::{AckSample, Controller, LossSample, Sibling};
use std::time::Duration;
use units::{BitRate, Bytes, PathId, Timestamp};

/// The controller of one path.
#[derive(Clone, Debug)]
pub struct ModelController {
    datagram: u64,
    phase: Phase,
    rates: MaximumFilter,
    slices: Slices,
    round: Round,
    /// Used in start-up; after it the window follows from rate and base.
    start_up_window: u64,
    base_rtt: Duration,
    /// A base longer than the measured minimum, when the path's own delay was seen to have grown.
    raised_base: Option<Duration>,
    queue: Queue,
    /// Since when the round-trip time has shown a queue without a break.
    queue_since: Option<Timestamp>,
    /// In flight and round-trip time when the path was first found swamped.
    swamped: Option<Flight>,
    /// Rounds in a row with heavy loss.
    heavy_rounds: u8,
    /// Rounds for which little is kept in flight, after heavy loss.
    cautious_rounds: u8,
    was_settled: bool,
}

/// Where the controller is in its cycle.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Looking for the rate: what is in flight doubles every round.
    StartUp { best: BitRate, flat_rounds: u8 },
    /// Sending away the queue that was built.
    Drain { rounds: u8 },
    /// Sending at the estimate.
    Cruise { rounds: u8 },
    /// Sending a little faster for one round, then looking whether the rate followed.
    Probe { before: BitRate, gain: f64, level: u8, measuring: bool },
}

/// What the smoothed round-trip time says about the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Queue {
    Empty,
    Standing,
    Deep,
    Swamped,
}

/// Sums over one round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    acked: u64,
    lost: u64,
    ce_marks: u64,
    marked_before: bool,
    full_samples: u32,
    flight: Flight,
}

/// The most that was in flight during a round, and the least round-trip time that it saw.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    bytes: u64,
    least_rtt: Option<Duration>,
}

impl ModelController {
    /// A controller for a path whose datagrams have at most `datagram` bytes of UDP payload.
    pub fn new(datagram: u64, now: Timestamp) -> Self {
        let datagram = datagram.max(1);
        Self {
            datagram,
            phase: Phase::StartUp { best: BitRate(0), flat_rounds: 0 },
            rates: MaximumFilter::new(now),
            slices: Slices::new(now),
            round: Round::default(),
            start_up_window: INITIAL_WINDOW_PACKETS * datagram,
            base_rtt: Duration::ZERO,
            raised_base: None,
            queue: Queue::Empty,
            queue_since: None,
            swamped: None,
            heavy_rounds: 0,
            cautious_rounds: 0,
            was_settled: false,
        }
    }

    /// Rate times base round-trip time.
    fn bandwidth_delay_product(&self) -> u64 {
        self.rates.maximum().bytes_in(self.base_rtt).0
    }

    fn take_base(&mut self, sample: &AckSample) {
        if self
            .raised_base
            .is_some_and(|raised| sample.smoothed_rtt < raised * 4 / 5 || sample.base_rtt >= raised)
        {
            self.raised_base = None;
        }
        self.base_rtt = self.raised_base.unwrap_or(sample.base_rtt).max(sample.base_rtt);
    }

    fn take_queue(&mut self, sample: &AckSample) {
        self.queue = queue_seen(sample.smoothed_rtt, self.base_rtt);
        if self.queue == Queue::Empty {
            self.queue_since = None;
        } else {
            self.queue_since.get_or_insert(sample.now);
        }
        if self.queue != Queue::Swamped {
            self.swamped = None;
        }
    }

    fn take_rate(&mut self, sample: &AckSample) {
        let recent =
            self.slices.rate().filter(|_| self.queue == Queue::Swamped).map(|rate| scale(rate, SLICE_MARGIN));
        if let Some(mut rate) = sample.delivery_rate {
            rate = rate.min(plausible_rate(sample.prior_in_flight, self.base_rtt));
            if let Some(bound) = recent {
                rate = rate.min(bound);
            }
            self.rates.insert(rate, sample.application_limited);
        }
        if let Some(bound) = recent {
            self.rates.cap(bound);
        }
    }

    fn end_round(&mut self, now: Timestamp) {
        let round = std::mem::take(&mut self.round);
        self.round.marked_before = round.ce_marks > 0;
        self.rates.end_round(now);
        self.judge_loss(&round);
        self.judge_base(&round);
        self.cautious_rounds = self.cautious_rounds.saturating_sub(1);
        self.phase = self.next_phase(&round, now);
        self.was_settled |= !matches!(self.phase, Phase::StartUp { .. });
    }

    /// Loss says something only when it is heavy and lasts: then the fastest rates were a policer's or a shallow
    /// buffer's bursts.
    fn judge_loss(&mut self, round: &Round) {
        let total = round.acked + round.lost;
        let heavy = round.lost >= 2 * self.datagram && round.lost as f64 > HEAVY_LOSS * total as f64;
        self.heavy_rounds = if heavy { self.heavy_rounds + 1 } else { 0 };
        if self.heavy_rounds < 2 {
            return;
        }
        self.heavy_rounds = 0;
        self.cautious_rounds = CAUTIOUS_ROUNDS;
        self.rates.cap(scale(self.rates.recent(), HEAVY_LOSS_FACTOR));
    }

    /// Less in flight but the same round-trip time: the path's own delay has grown, and there is no queue.
    fn judge_base(&mut self, round: &Round) {
        if self.queue != Queue::Swamped {
            return;
        }
        let Some(rtt) = round.flight.least_rtt else { return };
        let Some(before) = self.swamped else {
            self.swamped = Some(round.flight);
            return;
        };
        let Some(rtt_before) = before.least_rtt else { return };
        if round.flight.bytes * 10 <= before.bytes * 6 && rtt * 10 >= rtt_before * 8 {
            self.raised_base = Some(rtt);
            self.base_rtt = rtt;
            self.swamped = None;
            self.queue = Queue::Empty;
            self.queue_since = None;
        } else if round.flight.bytes > before.bytes {
            self.swamped = Some(round.flight);
        }
    }

    fn next_phase(&mut self, round: &Round, now: Timestamp) -> Phase {
        let rate = self.rates.maximum();
        let queueing = self.queue > Queue::Empty || round.ce_marks > 0;
        match self.phase {
            Phase::StartUp { best, flat_rounds } => self.next_in_start_up(round, best, flat_rounds),
            Phase::Drain { rounds } if rounds + 1 >= LONGEST_DRAIN => Phase::Cruise { rounds: 0 },
            Phase::Drain { rounds } => Phase::Drain { rounds: rounds + 1 },
            Phase::Cruise { rounds } => {
                let limited = round.full_samples == 0;
                let due = rounds >= PROBE_EVERY && !queueing || rounds >= PROBE_AT_LATEST;
                if self.queue_since.is_some_and(|since| now.since(since) > LONGEST_QUEUE) {
                    self.queue_since = None;
                    Phase::Drain { rounds: 0 }
                } else if due && !limited && self.cautious_rounds == 0 {
                    Phase::Probe { before: rate, gain: probe_gain(self.base_rtt), level: 0, measuring: false }
                } else {
                    Phase::Cruise { rounds: rounds.saturating_add(1) }
                }
            }
            Phase::Probe { before, gain, level, measuring: false } => {
                Phase::Probe { before, gain, level, measuring: true }
            }
            Phase::Probe { before, gain, level, measuring: true } => {
                let followed = rate >= scale(before, 1.0 + PROBE_SUCCESS * (gain - 1.0)) && !queueing;
                match (followed, level) {
                    (true, 0) => {
                        Phase::Probe { before: rate, gain: SECOND_PROBE_GAIN, level: 1, measuring: false }
                    }
                    (true, _) => {
                        self.start_up_window = self.steady_window();
                        Phase::StartUp { best: rate, flat_rounds: 0 }
                    }
                    (false, _) => Phase::Drain { rounds: 0 },
                }
            }
        }
    }

    fn next_in_start_up(&self, round: &Round, best: BitRate, flat_rounds: u8) -> Phase {
        let rate = self.rates.maximum();
        let here = Phase::StartUp { best, flat_rounds };
        if rate.0 == 0 {
            return here;
        }
        if rate >= scale(best, START_UP_GROWTH) {
            return Phase::StartUp { best: rate, flat_rounds: 0 };
        }
        if round.full_samples == 0 {
            return here;
        }
        let losing = round.lost as f64 > HEAVY_LOSS * (round.acked + round.lost) as f64;
        let queueing = self.queue >= Queue::Standing || round.ce_marks > 0;
        if flat_rounds + 1 >= START_UP_FLAT_ROUNDS || queueing || losing {
            Phase::Drain { rounds: 0 }
        } else {
            Phase::StartUp { best, flat_rounds: flat_rounds + 1 }
        }
    }

    fn leave_early(&mut self, sample: &AckSample) {
        match self.phase {
            Phase::StartUp { .. } if self.queue >= Queue::Deep && !sample.application_limited => {
                self.phase = Phase::Drain { rounds: 0 };
                self.was_settled = true;
            }
            Phase::Drain { .. } => {
                let in_flight = sample.prior_in_flight.saturating_sub(sample.acked_bytes);
                if in_flight as f64 <= DRAINED * self.bandwidth_delay_product() as f64
                    && self.queue <= Queue::Standing
                {
                    self.phase = Phase::Cruise { rounds: 0 };
                }
            }
            Phase::StartUp { .. } | Phase::Cruise { .. } | Phase::Probe { .. } => {}
        }
    }

    fn grow_in_start_up(&mut self, sample: &AckSample) {
        if !matches!(self.phase, Phase::StartUp { .. }) || sample.prior_in_flight * 2 < self.start_up_window {
            return;
        }
        let grown = self.start_up_window + sample.acked_bytes;
        let product = self.bandwidth_delay_product() as f64;
        let bound = (START_UP_GAIN * product) as u64 + INITIAL_WINDOW_PACKETS * self.datagram;
        self.start_up_window = if product > 0.0 { grown.min(bound.max(self.start_up_window)) } else { grown };
    }

    /// Twice the bandwidth-delay product, and a little for acknowledgements that come in groups.
    fn steady_window(&self) -> u64 {
        let gain = if self.cautious_rounds > 0 { CAUTIOUS_WINDOW_GAIN } else { WINDOW_GAIN };
        let product = self.rates.maximum().bytes_in(self.base_rtt + ACK_GRAIN).0 as f64;
        ((gain * product) as u64 + 3 * self.datagram).max(LEAST_WINDOW_PACKETS * self.datagram)
    }

    fn pacing_gain(&self) -> f64 {
        let by_queue = match self.queue {
            Queue::Empty if self.round.marked_before => STANDING_GAIN,
            Queue::Empty => 1.0,
            Queue::Standing => STANDING_GAIN,
            Queue::Deep | Queue::Swamped => DEEP_GAIN,
        };
        match self.phase {
            Phase::StartUp { .. } => START_UP_GAIN,
            Phase::Drain { .. } => DRAIN_GAIN,
            Phase::Probe { gain, measuring: false, .. } if self.queue <= Queue::Standing => gain,
            Phase::Probe { .. } | Phase::Cruise { .. } => by_queue,
        }
    }
}

impl Controller for ModelController {
    fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, sample: &AckSample, _own: PathId, _siblings: &[Sibling]) {
        self.round.acked += sample.acked_bytes;
        self.round.ce_marks += sample.ce_marks;
        self.round.flight.bytes = self.round.flight.bytes.max(sample.prior_in_flight);
        let least =
            self.round.flight.least_rtt.map_or(sample.latest_rtt, |least| least.min(sample.latest_rtt));
        self.round.flight.least_rtt = Some(least);
        self.round.full_samples += u32::from(sample.delivery_rate.is_some() && !sample.application_limited);

        self.take_base(sample);
        self.take_queue(sample);
        self.slices.on_ack(sample.now, sample.acked_bytes, self.base_rtt, SLICE_PACKETS * self.datagram);
        self.take_rate(sample);
        if sample.round_ended {
            self.end_round(sample.now);
        }
        self.leave_early(sample);
        self.grow_in_start_up(sample);
    }

    fn on_loss(&mut self, sample: &LossSample, _own: PathId, _siblings: &[Sibling]) {
        self.round.lost += sample.lost_bytes;
        if sample.persistent {
            self.rates.cap(scale(self.rates.maximum(), 0.5));
            self.slices.restart(sample.now);
            self.start_up_window = (self.start_up_window / 2).max(LEAST_WINDOW_PACKETS * self.datagram);
            self.round = Round::default();
        }
    }

    fn window(&self) -> u64 {
        match self.phase {
            Phase::StartUp { .. } => self.start_up_window,
            Phase::Drain { .. } | Phase::Cruise { .. } | Phase::Probe { .. } => self.steady_window(),
        }
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        if !self.was_settled {
            return None;
        }
        let floor = BitRate::from_bytes_over(
            Bytes(LEAST_WINDOW_PACKETS * self.datagram),
            self.base_rtt.max(SLOW_PACE),
        );
        Some(scale(self.rates.maximum(), self.pacing_gain()).max(floor))
    }

    fn rate_estimate(&self) -> Option<BitRate> {
        let rate = self.rates.maximum();
        (rate.0 > 0).then_some(rate)
    }

    fn settled(&self) -> bool {
        self.was_settled
    }
}

/// What a smoothed round-trip time says about the queue on a path whose base it is measured against.
fn queue_seen(smoothed: Duration, base: Duration) -> Queue {
    if smoothed > base * 2 + Duration::from_millis(10) {
        Queue::Swamped
    } else if smoothed > base * 3 / 2 + Duration::from_millis(8) {
        Queue::Deep
    } else if smoothed > base * 11 / 10 + Duration::from_millis(4) {
        Queue::Standing
    } else {
        Queue::Empty
    }
}

/// Gain of a first probe: 1.25, or less where a round of it would build more than [`PROBE_QUEUE`] of queue.
fn probe_gain(base_rtt: Duration) -> f64 {
    let by_queue = PROBE_QUEUE.as_secs_f64() / base_rtt.as_secs_f64().max(1e-6);
    1.0 + by_queue.clamp(LEAST_PROBE, PROBE)
}

/// No more than twice what was in flight can have arrived per base round-trip time; more is a clock's coarseness.
fn plausible_rate(in_flight: u64, base_rtt: Duration) -> BitRate {
    BitRate::from_bytes_over(Bytes(in_flight.saturating_mul(2)), base_rtt)
}

fn scale(rate: BitRate, factor: f64) -> BitRate {
    BitRate((rate.0 as f64 * factor) as u64)
}

/// RFC 6928.
const INITIAL_WINDOW_PACKETS: u64 = 10;
/// Enough to be acknowledged and to notice a loss.
const LEAST_WINDOW_PACKETS: u64 = 4;
/// 2 / ln 2, the least gain that doubles the rate every round.
const START_UP_GAIN: f64 = 2.89;
/// A round that raises the rate by less is flat.
const START_UP_GROWTH: f64 = 1.25;
/// Flat rounds that end start-up where no queue shows.
const START_UP_FLAT_ROUNDS: u8 = 3;
/// Pace of draining.
const DRAIN_GAIN: f64 = 0.5;
/// A path with so little in flight, in bandwidth-delay products, has no queue; a little less than one, so that a base
/// that has crept up comes down again.
const DRAINED: f64 = 0.95;
/// Draining longer would not help.
const LONGEST_DRAIN: u8 = 4;
/// Pace with a small standing queue.
const STANDING_GAIN: f64 = 0.9;
/// Pace with a deep queue.
const DEEP_GAIN: f64 = 0.75;
/// What may be in flight, in bandwidth-delay products.
const WINDOW_GAIN: f64 = 2.0;
/// The same after heavy loss.
const CAUTIOUS_WINDOW_GAIN: f64 = 1.25;
/// How long heavy loss is remembered.
const CAUTIOUS_ROUNDS: u8 = 16;
/// Share of a round's bytes that counts as heavy loss.
const HEAVY_LOSS: f64 = 0.15;
/// What is kept of the latest rates after heavy loss.
const HEAVY_LOSS_FACTOR: f64 = 0.85;
/// Rounds from one probe to the next.
const PROBE_EVERY: u8 = 5;
/// Probing is not put off for longer, even with a queue (which may be someone else's).
const PROBE_AT_LATEST: u8 = 24;
/// Extra gain of a first probe.
const PROBE: f64 = 0.25;
/// Least extra gain of a probe that can be told from noise.
const LEAST_PROBE: f64 = 0.06;
/// Queue that a first probe may build.
const PROBE_QUEUE: Duration = Duration::from_millis(15);
/// Gain of the second probe, after the first was followed.
const SECOND_PROBE_GAIN: f64 = 1.5;
/// Part of the extra gain that must arrive for the probe to have been followed.
const PROBE_SUCCESS: f64 = 0.6;
/// A queue that lasted for so long is drained, so that the base stays known.
const LONGEST_QUEUE: Duration = Duration::from_secs(3);
/// Time by which acknowledgements may be grouped beyond their declared delay.
const ACK_GRAIN: Duration = Duration::from_millis(1);
/// The floor of the pace is four packets per base round-trip time or per this, if longer.
const SLOW_PACE: Duration = Duration::from_millis(10);
/// Packets that a slice must hold at least.
const SLICE_PACKETS: u64 = 8;
/// Slices end between packets: their rate may be off by so much.
const SLICE_MARGIN: f64 = 1.1;
