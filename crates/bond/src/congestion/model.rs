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
//! - where a lower rate is seen to come back within moments (a radio's fades), that is not done: the rate is believed, the window
//!   kept smaller instead, and the pace higher, so that the link is not idle while it is fast (`fades.rs`);
//! - probing is bounded by the queue that it may build, and goes over into a new start-up when the rate follows;
//! - loss is ignored below 15 % of a round, unless it comes with a full queue and hardly without: then others are there (`crowd.rs`).

use super::crowd::Crowd;
use super::fades::Fades;
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
    fades: Fades,
    /// Apart, as it is large beside the other controllers.
    crowd: Box<Crowd>,
    /// From when to when it sent faster than it believed the path to be, the last time.
    fast: Option<(Timestamp, Timestamp)>,
    sends_fast: bool,
    round: Round,
    /// Used in start-up; after it the window follows from rate and base.
    start_up_window: u64,
    base_rtt: Duration,
    /// A base longer than the measured minimum, when the path's own delay was seen to have grown.
    raised_base: Option<Duration>,
    queue: Queue,
    /// Since when the round-trip time has shown a queue without a break.
    queue_since: Option<Timestamp>,
    /// Rounds of start-up that have overrun a shallow buffer; from the first on it is paced.
    overrun_rounds: u8,
    last_probe: Timestamp,
    /// Rounds in a row with heavy loss.
    heavy_rounds: u8,
    /// Rounds for which little is kept in flight, after heavy loss.
    cautious_rounds: u8,
    was_settled: bool,
    /// New start-ups that are due since it was freed: what is still under way on another path may have the air meanwhile.
    start_ups_due: u8,
    /// It has just taken over: until when the fades of the path before it are expected of it, too.
    inherits_fades: Option<Timestamp>,
    /// What was known of its rate then, or when the other path was last in the way.
    rate_before: BitRate,
    /// In so many rounds from now on what is seen may be due to another path's packets.
    shadow_rounds: u8,
}

/// Where the controller is in its cycle.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Looking for the rate: what is in flight doubles every round.
    StartUp { best: BitRate, flat_rounds: u8 },
    /// Keeping little in flight, to send away a queue or to see that there is none.
    Drain { before: Flight, low_rounds: u8, rounds: u8 },
    /// Sending at the estimate.
    Cruise { rounds: u8 },
    /// Sending a little faster for one round, then looking whether the rate followed.
    Probe { before: BitRate, rtt_before: Duration, gain: f64, level: u8, measuring: bool },
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
            fades: Fades::default(),
            crowd: Box::new(Crowd::new(datagram, now)),
            fast: None,
            sends_fast: false,
            round: Round::default(),
            start_up_window: INITIAL_WINDOW_PACKETS * datagram,
            base_rtt: Duration::ZERO,
            raised_base: None,
            queue: Queue::Empty,
            queue_since: None,
            overrun_rounds: 0,
            last_probe: now,
            heavy_rounds: 0,
            cautious_rounds: 0,
            was_settled: false,
            start_ups_due: 0,
            inherits_fades: None,
            rate_before: BitRate(0),
            shadow_rounds: 0,
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
    }

    fn take_rate(&mut self, sample: &AckSample) {
        if sample.application_limited {
            // A path with little to carry looks slow by its acknowledgements; that says nothing about the path.
            self.slices.restart(sample.now);
        }
        self.take_fade(sample.now, sample.others_fade);
        let is_slower = self.queue == Queue::Swamped && !self.fades.one_passes(sample.now);
        let recent = self.slices.rate().filter(|_| is_slower).map(|rate| scale(rate, SLICE_MARGIN));
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

    fn take_fade(&mut self, now: Timestamp, others_fade: bool) {
        if others_fade && self.inherits_fades.take_if(|until| now <= *until).is_some() {
            self.fades.expect(now);
        }
        let Some(recent) = self.slices.rate() else { return };
        // What little is sent in a drain says nothing about the path.
        let is_full = matches!(self.phase, Phase::Cruise { rounds: 1.. } | Phase::Probe { .. });
        if self.queue == Queue::Swamped && (is_full || self.fades.are_usual()) {
            self.fades.begin(now, self.rates.maximum());
        }
        let is_link = is_full && self.queue >= Queue::Deep || self.queue == Queue::Swamped;
        self.fades.observe(now, recent, is_link);
    }

    fn end_round(&mut self, sample: &AckSample) {
        let round = std::mem::take(&mut self.round);
        self.round.marked_before = round.ce_marks > 0;
        self.rates.end_round(sample.now);
        self.judge_loss(&round);
        self.cautious_rounds = self.cautious_rounds.saturating_sub(1);
        self.shadow_rounds = self.shadow_rounds.saturating_sub(1);
        if sample.overshadowed {
            (self.shadow_rounds, self.rate_before) = (SHADOW_ROUNDS, self.rates.maximum());
        }
        self.phase = self.next_phase(&round, sample);
        self.was_settled |= !matches!(self.phase, Phase::StartUp { .. });
    }

    /// Loss says something only when it is heavy and lasts: then the fastest rates were a policer's or a shallow
    /// buffer's bursts.
    fn judge_loss(&mut self, round: &Round) {
        // Losses right after start-up or a drain were caused before it.
        let steady = match self.phase {
            Phase::Cruise { rounds } => rounds >= 2,
            Phase::Probe { level, .. } => level == 0,
            Phase::StartUp { .. } | Phase::Drain { .. } => false,
        };
        self.heavy_rounds = if steady && self.is_heavy(round) { self.heavy_rounds + 1 } else { 0 };
        if self.heavy_rounds < 2 {
            return;
        }
        self.heavy_rounds = 0;
        self.cautious_rounds = CAUTIOUS_ROUNDS;
        self.rates.cap(scale(self.rates.recent(), HEAVY_LOSS_FACTOR));
    }

    fn is_heavy(&self, round: &Round) -> bool {
        let total = round.acked + round.lost;
        round.lost >= 2 * self.datagram && round.lost as f64 > HEAVY_LOSS * total as f64
    }

    fn next_phase(&mut self, round: &Round, sample: &AckSample) -> Phase {
        match self.phase {
            Phase::Drain { .. } | Phase::Cruise { .. } | Phase::Probe { .. }
                if self.is_in_the_shadow() && round.full_samples > 0 =>
            {
                self.start_up_again()
            }
            Phase::StartUp { best, flat_rounds } => self.next_in_start_up(round, best, flat_rounds),
            Phase::Drain { before, low_rounds, rounds } => {
                self.next_in_drain(round, before, low_rounds, rounds)
            }
            Phase::Cruise { rounds } => self.next_in_cruise(round, rounds, sample),
            Phase::Probe { before, rtt_before, gain, level, measuring: false } => {
                Phase::Probe { before, rtt_before, gain, level, measuring: true }
            }
            Phase::Probe { before, rtt_before, gain, level, measuring: true } => {
                let rate = self.rates.maximum();
                let steady =
                    sample.smoothed_rtt <= rtt_before * 11 / 10 + STANDING_MARGIN && round.ce_marks == 0;
                match (steady && rate >= scale(before, 1.0 + PROBE_SUCCESS * (gain - 1.0)), level) {
                    (true, 0) => self.probe(SECOND_PROBE_GAIN, 1, sample),
                    (true, _) => self.start_up_again(),
                    // Over a path that fades the window is small enough already.
                    (false, _) if self.fades.are_usual() => Phase::Cruise { rounds: 0 },
                    (false, _) => Phase::drain(round),
                }
            }
        }
    }

    fn next_in_start_up(&mut self, round: &Round, best: BitRate, flat_rounds: u8) -> Phase {
        let rate = self.rates.maximum();
        let here = Phase::StartUp { best, flat_rounds };
        let losing = self.is_heavy(round);
        if rate.0 == 0 {
            return here;
        }
        if self.is_in_the_shadow() && !losing {
            return Phase::StartUp { best: rate, flat_rounds: 0 };
        }
        self.overrun_rounds = self.overrun_rounds.saturating_add(u8::from(losing));
        if rate >= scale(best, START_UP_GROWTH) {
            return Phase::StartUp { best: rate, flat_rounds: 0 };
        }
        if losing && self.overrun_rounds < OVERRUN_ROUNDS {
            return here;
        }
        let queueing = self.queue > Queue::Empty || round.ce_marks > 0;
        if round.full_samples == 0 && !queueing {
            return here;
        }
        if flat_rounds + 1 >= START_UP_FLAT_ROUNDS || queueing || losing {
            Phase::drain(round)
        } else {
            Phase::StartUp { best, flat_rounds: flat_rounds + 1 }
        }
    }

    /// Whether it was freed lately, and the packets of the path before it have the air: what it carries now says little, and it takes over when they are
    /// gone.
    fn is_in_the_shadow(&self) -> bool {
        self.start_ups_due > 0 && self.shadow_rounds > 0
    }

    fn start_up_again(&mut self) -> Phase {
        self.start_up_window = self.steady_window();
        Phase::StartUp { best: self.rates.maximum(), flat_rounds: 0 }
    }

    fn next_in_cruise(&mut self, round: &Round, rounds: u8, sample: &AckSample) -> Phase {
        if self.rates.maximum() >= scale(self.rate_before, MUCH_MORE) {
            self.start_ups_due = 0;
        }
        if self.start_ups_due > 0 && self.queue == Queue::Empty && round.full_samples > 0 {
            self.start_ups_due -= 1;
            return self.start_up_again();
        }
        if self.queue == Queue::Empty
            && round.full_samples > 0
            && self.fades.is_worth_a_try(sample.now, self.rates.maximum())
        {
            return self.start_up_again();
        }
        let queue_is_old = self.queue_since.is_some_and(|since| sample.now.since(since) > LONGEST_QUEUE);
        if queue_is_old || self.queue == Queue::Swamped && !self.fades.one_passes(sample.now) {
            self.queue_since = None;
            return Phase::drain(round);
        }
        let long_ago = rounds >= 2 && sample.now.since(self.last_probe) > PROBE_INTERVAL;
        let due = (rounds >= PROBE_EVERY || long_ago) && self.queue == Queue::Empty && round.ce_marks == 0
            || rounds >= PROBE_AT_LATEST;
        if due && round.full_samples > 0 && self.cautious_rounds == 0 {
            self.probe(probe_gain(self.base_rtt), 0, sample)
        } else {
            Phase::Cruise { rounds: rounds.saturating_add(1) }
        }
    }

    /// With little in flight a queue of our own is gone after two rounds. If the round-trip time is not, it is the way
    /// that takes so long (it has changed, or its jitter keeps the order of packets), and the base was too small.
    fn next_in_drain(&mut self, round: &Round, before: Flight, low_rounds: u8, rounds: u8) -> Phase {
        let is_low =
            round.flight.bytes * 10 <= before.bytes * 6 || before.bytes <= FEWEST_TO_JUDGE * self.datagram;
        let low_rounds = if is_low { low_rounds + 1 } else { 0 };
        if self.queue <= Queue::Standing && low_rounds > 0 || rounds + 1 >= LONGEST_DRAIN {
            return Phase::Cruise { rounds: 0 };
        }
        if low_rounds < 2 {
            return Phase::Drain { before, low_rounds, rounds: rounds + 1 };
        }
        if let (Some(rtt), Some(rtt_before)) = (round.flight.least_rtt, before.least_rtt)
            && rtt * 10 >= rtt_before * 8
            && rtt > self.base_rtt
        {
            self.raised_base = Some(rtt);
            self.base_rtt = rtt;
            self.queue = Queue::Empty;
            self.queue_since = None;
        }
        Phase::Cruise { rounds: PROBE_EVERY }
    }

    fn probe(&mut self, gain: f64, level: u8, sample: &AckSample) -> Phase {
        self.last_probe = sample.now;
        Phase::Probe {
            before: self.rates.maximum(),
            rtt_before: sample.smoothed_rtt,
            gain,
            level,
            measuring: false,
        }
    }

    /// A drain after which there is clearly no queue needs no further look.
    fn leave_drain_early(&mut self, sample: &AckSample) {
        if matches!(self.phase, Phase::Drain { .. }) && self.queue <= Queue::Standing {
            let in_flight = sample.prior_in_flight.saturating_sub(sample.acked_bytes);
            if in_flight <= self.drained_window() {
                self.phase = Phase::Cruise { rounds: 0 };
            }
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

    /// Twice the bandwidth-delay product, and a little for acknowledgements that come in groups. On a short way at least what is in
    /// flight until a deep queue is seen: a busy peer lets packets wait for longer than they travel, and a window of less than that
    /// would lower the rate, the rate the window, and so on.
    fn steady_window(&self) -> u64 {
        let once = self.base_rtt + ACK_GRAIN;
        let time = if self.cautious_rounds > 0 {
            once.mul_f64(CAUTIOUS_WINDOW_GAIN)
        } else if self.fades.are_usual() && !matches!(self.phase, Phase::Probe { .. }) {
            once.mul_f64(FADING_WINDOW_GAIN)
        } else {
            once.mul_f64(WINDOW_GAIN).max(deep(self.base_rtt))
        };
        let product = self.rates.maximum().bytes_in(time).0;
        (product + 3 * self.datagram).max(LEAST_WINDOW_PACKETS * self.datagram)
    }

    /// So little that no queue can stand, and a little less, so that a base that has crept up comes down again.
    fn drained_window(&self) -> u64 {
        ((DRAINED * self.bandwidth_delay_product() as f64) as u64).max(LEAST_WINDOW_PACKETS * self.datagram)
    }

    /// What may be in flight as far as the path's model knows.
    fn own_window(&self) -> u64 {
        match self.phase {
            Phase::StartUp { .. } => self.start_up_window,
            Phase::Drain { .. } => self.drained_window(),
            Phase::Cruise { .. } | Phase::Probe { .. } => self.steady_window(),
        }
    }

    /// What may be in flight beside others. A radio's fades fill its queue, and lose packets meanwhile: there losses tell of nobody.
    fn others_window(&self) -> Option<u64> {
        let window = self.crowd.window().filter(|_| !self.fades.were_seen());
        window.map(|window| window.max(LEAST_WINDOW_PACKETS * self.datagram))
    }

    /// Whether what was sent then was sent faster than the path was believed to be.
    fn was_fast(&self, sent: Timestamp) -> bool {
        self.fast.is_some_and(|(since, until)| (since..=until).contains(&sent))
    }

    fn pacing_gain(&self) -> f64 {
        let by_queue = match self.queue {
            // The window bounds the queue. What is known of the rate is of the last fades: the next moment may carry more.
            _ if self.fades.are_usual() => FADING_GAIN,
            Queue::Empty if self.round.marked_before => STANDING_GAIN,
            Queue::Empty => 1.0,
            Queue::Standing => STANDING_GAIN,
            Queue::Deep | Queue::Swamped => DEEP_GAIN,
        };
        match self.phase {
            Phase::StartUp { .. } => START_UP_GAIN,
            Phase::Probe { gain, measuring: false, .. } => gain,
            Phase::Drain { .. } | Phase::Probe { .. } | Phase::Cruise { .. } => by_queue,
        }
    }
}

impl Controller for ModelController {
    fn on_sent(&mut self, now: Timestamp, _bytes: u64, _in_flight: u64) {
        let before = std::mem::replace(
            &mut self.sends_fast,
            matches!(self.phase, Phase::StartUp { .. } | Phase::Probe { measuring: false, .. }),
        );
        if self.sends_fast {
            let since = self.fast.filter(|_| before).map_or(now, |(since, _)| since);
            self.fast = Some((since, now));
        }
    }

    fn on_ack(&mut self, sample: &AckSample, own: PathId, siblings: &[Sibling]) {
        self.crowd.on_ack(sample, self.was_fast(sample.now - sample.latest_rtt), own, siblings);
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
            self.end_round(sample);
        }
        self.leave_drain_early(sample);
        self.grow_in_start_up(sample);
    }

    fn on_loss(&mut self, sample: &LossSample, own: PathId, siblings: &[Sibling]) {
        let in_flight = self.round.flight.bytes.max(self.bandwidth_delay_product());
        self.crowd.on_loss(sample, in_flight, self.was_fast(sample.latest_sent), own, siblings);
        if self.fades.were_seen() {
            self.crowd.let_go();
        }
        self.round.lost += sample.lost_bytes;
        if sample.persistent {
            self.rates.cap(scale(self.rates.maximum(), 0.5));
            self.slices.restart(sample.now);
            self.start_up_window = (self.start_up_window / 2).max(LEAST_WINDOW_PACKETS * self.datagram);
            self.round = Round::default();
        }
    }

    fn window(&self) -> u64 {
        let window = self.own_window();
        self.others_window().map_or(window, |theirs| window.min(theirs))
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        if !self.was_settled && self.overrun_rounds == 0 {
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

    fn freed(&mut self, now: Timestamp, takes_over: bool) {
        self.start_ups_due = START_UPS_WHEN_FREED;
        self.inherits_fades = takes_over.then(|| now + INHERITS);
        self.rate_before = self.rates.maximum();
        if !matches!(self.phase, Phase::StartUp { .. }) {
            self.phase = self.start_up_again();
        }
    }

    fn fades(&self, now: Timestamp) -> bool {
        self.fades.were_seen_lately(now)
    }

    fn has_room(&self) -> bool {
        let steady = matches!(self.phase, Phase::Cruise { .. } | Phase::Probe { .. });
        let is_held = self.cautious_rounds > 0 || self.others_window().is_some();
        steady && self.queue == Queue::Empty && self.round.ce_marks == 0 && !is_held
    }
}

impl Phase {
    fn drain(round: &Round) -> Self {
        Self::Drain { before: round.flight, low_rounds: 0, rounds: 0 }
    }
}

/// What a smoothed round-trip time says about the queue on a path whose base it is measured against.
fn queue_seen(smoothed: Duration, base: Duration) -> Queue {
    if smoothed > base * 2 + Duration::from_millis(10) {
        Queue::Swamped
    } else if smoothed > deep(base) {
        Queue::Deep
    } else if smoothed > base * 11 / 10 + STANDING_MARGIN {
        Queue::Standing
    } else {
        Queue::Empty
    }
}

/// The smoothed round-trip time from which on a queue is deep.
fn deep(base: Duration) -> Duration {
    base * 3 / 2 + Duration::from_millis(8)
}

/// Gain of a first probe: 1.25, or less where a round of it would build more than [`PROBE_QUEUE`] of queue.
fn probe_gain(base_rtt: Duration) -> f64 {
    let by_queue = PROBE_QUEUE.as_secs_f64() / base_rtt.as_secs_f64().max(1e-6);
    1.0 + by_queue.clamp(LEAST_PROBE, PROBE)
}

/// No more than twice what was in flight can have arrived per base round-trip time; more is a clock's coarseness.
pub(super) fn plausible_rate(in_flight: u64, base_rtt: Duration) -> BitRate {
    BitRate::from_bytes_over(Bytes(in_flight.saturating_add(in_flight / 4)), base_rtt)
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
/// In flight while draining, in bandwidth-delay products.
const DRAINED: f64 = 1.0;
/// It is known by then which path it takes over from: one wish is told before the other.
const INHERITS: Duration = Duration::from_secs(1);
/// How often a path that was freed looks for its rate anew, until it finds so many times more.
const MUCH_MORE: f64 = 2.0;
const START_UPS_WHEN_FREED: u8 = 2;
/// For so many rounds the smoothed round-trip time tells of packets that are no longer in the way.
const SHADOW_ROUNDS: u8 = 3;
/// Rounds with heavy loss that start-up survives: the first come from before it was paced.
const OVERRUN_ROUNDS: u8 = 3;
/// Draining longer would not help.
const LONGEST_DRAIN: u8 = 6;
/// Packets in flight that build no queue worth the name.
const FEWEST_TO_JUDGE: u64 = 5;
/// Pace with a small standing queue.
const STANDING_GAIN: f64 = 0.93;
/// Pace with a deep queue.
const DEEP_GAIN: f64 = 0.75;
/// Pace on a path whose rate falls and comes back: what is known of it is an average over fades, and the link must not stand idle while it is fast.
const FADING_GAIN: f64 = 2.0;
/// What may be in flight, in bandwidth-delay products.
const WINDOW_GAIN: f64 = 2.0;
/// The same on a path whose rate falls and comes back: enough for when it is fast, and little to wait for when it is slow.
const FADING_WINDOW_GAIN: f64 = 1.5;
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
const PROBE_AT_LATEST: u8 = 10;
/// Time from one probe to the next where rounds are long.
const PROBE_INTERVAL: Duration = Duration::from_millis(1_500);
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
/// Smoothed round-trip time over 1.1 bases from which on a queue is seen.
const STANDING_MARGIN: Duration = Duration::from_millis(4);
/// Time by which acknowledgements may be grouped beyond their declared delay.
const ACK_GRAIN: Duration = Duration::from_millis(1);
/// The floor of the pace is four packets per base round-trip time or per this, if longer.
const SLOW_PACE: Duration = Duration::from_millis(10);
/// Packets that a slice must hold at least.
const SLICE_PACKETS: u64 = 8;
/// Slices end between packets: their rate may be off by so much.
const SLICE_MARGIN: f64 = 1.1;
