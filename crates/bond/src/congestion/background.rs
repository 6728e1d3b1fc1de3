//! Less than best effort: fills what others leave free and gives way to them, told by the delay of the queue that they share.
//!
//! LEDBAT (RFC 6817) as LEDBAT++ has it (draft-irtf-iccrg-ledbat-plus-plus-01): round-trip times in place of one-way delays (section 4.1), which need no
//! agreement of the clocks; slow start with a smaller gain (4.2); multiplicative decrease (4.3); slowdowns that let the queue run empty, so that who came
//! late sees the true base (4.4). Deviations:
//! - below a window of one packet the window goes on falling, as a pace of less than a packet in a round trip. Two packets in every round trip, the least
//!   there, are an eighth of an uplink of 400 kbit/s;
//! - the target is the time of one and a half packets at the bottleneck, 25 ms at least and the draft's 60 ms at most: what it adds to others' delay;
//! - near the target the window grows in proportion to what is left (RFC 6817 section 2.4.2), where the draft has a constant gain: on slow uplinks its lag is packets;
//! - above the target nothing is added, however small the window (section 4.3 adds the gain first);
//! - who has given way regains one bandwidth-delay product by slow start, not by one gain a round trip, and half of it at once after a slowdown: slow start from
//!   two packets leaves an uplink of 150 ms idle for half a second each time;
//! - a second loss within ten seconds means that others fill a queue too short to show by its delay: it gives way for three seconds;
//! - slowdowns are 20 s apart at least: beside its owner it only has to be fair to others of its kind.
//!
//! ```text
//!                queue > 3/4 target, loss, or threshold          2 RTT later, then each interval
//!   SlowStart -------------------------------------> Steady ----------------------------------> Slowdown
//!      ^  ^                                             |                                          |
//!      |  +---- queue < 3/4 target and less than -------+                                          |
//!      |        half a bandwidth-delay product                                                     |
//!      +------------------------------------------- 2 RTT ------------------------------------------+
//!   any --- second loss in 10 s ---> Yielding --- 3 s ---> Steady
//! ```

use super::model::plausible_rate;
use super::{AckSample, Controller, LossSample, Sibling};
use arrayvec::ArrayVec;
use policy::BaseRtt;
use std::time::Duration;
use units::{BitRate, Bytes, PathId, Timestamp};

/// The controller of one path.
#[derive(Clone, Debug)]
pub struct BackgroundController {
    datagram: u64,
    /// Packets; less than one is a pace.
    window: f64,
    phase: Phase,
    base: BaseRtt,
    /// A single sample that is too short would pass for the base for as long as that lasts.
    last_rtt: Option<Duration>,
    recent: ArrayVec<(Timestamp, Duration), FILTERED>,
    /// The least time that a packet took at the bottleneck: the inverse of the greatest delivery rate.
    packet_time: BaseRtt,
    smoothed_rtt: Duration,
    /// Losses of packets sent before this, and queues seen within a round trip of it, are answered already.
    reduced_at: Option<Timestamp>,
    lost_at: Option<Timestamp>,
    slowdown_at: Option<Timestamp>,
    was_settled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Up to this many packets.
    SlowStart {
        threshold: f64,
        slowdown: Option<Timestamp>,
    },
    Steady,
    /// Others were seen by their losses.
    Yielding {
        until: Timestamp,
    },
    /// The window is held small since then and regained afterwards.
    Slowdown {
        since: Timestamp,
        until: Timestamp,
        regain: f64,
    },
}

impl BackgroundController {
    /// A controller for a path whose datagrams have at most `datagram` bytes of UDP payload.
    pub fn new(datagram: u64, _now: Timestamp) -> Self {
        Self {
            datagram: datagram.max(1),
            window: SMALL_WINDOW,
            phase: Phase::SlowStart { threshold: f64::INFINITY, slowdown: None },
            base: BaseRtt::new(MEMORY),
            last_rtt: None,
            recent: ArrayVec::new(),
            packet_time: BaseRtt::new(MEMORY),
            smoothed_rtt: Duration::ZERO,
            reduced_at: None,
            lost_at: None,
            slowdown_at: None,
            was_settled: false,
        }
    }

    /// After a long silence on a path: begins anew, but keeps what an empty path was like. Beside others' full queue a single packet is in flight, so it takes
    /// few losses to be silent, and that queue would pass for the base. Slow start ends at what the path is known to hold. A silence has emptied the queue as a
    /// slowdown does.
    pub fn renewed(&self, now: Timestamp) -> Self {
        let mut renewed = Self {
            base: self.base,
            packet_time: self.packet_time,
            slowdown_at: self.slowdown_at.map(|_| now + LEAST_SLOWDOWN_INTERVAL),
            was_settled: self.was_settled,
            ..Self::new(self.datagram, now)
        };
        if self.was_settled {
            let threshold = self.bandwidth_delay_product().max(SMALL_WINDOW);
            renewed.phase = Phase::SlowStart { threshold, slowdown: None };
        }
        renewed
    }

    /// What the queue may add to the delay.
    fn target(&self) -> Duration {
        self.packet_time
            .get()
            .map_or(GREATEST_TARGET, |time| (time * 3 / 2).clamp(LEAST_TARGET, GREATEST_TARGET))
    }

    /// Packets that the path holds without a queue, as far as is known.
    fn bandwidth_delay_product(&self) -> f64 {
        let (Some(base), Some(time)) = (self.base.get(), self.packet_time.get()) else { return SMALL_WINDOW };
        (base.as_secs_f64() / time.as_secs_f64().max(1e-9)).max(1.0)
    }

    /// The window that is left however long others fill the queue: one packet in [`LONGEST_PAUSE`], or [`LEAST_SHARE`] of the bottleneck.
    fn least_window(&self) -> f64 {
        let pause = self.packet_time.get().map_or(LONGEST_PAUSE, |time| time.div_f64(LEAST_SHARE));
        self.smoothed_rtt.div_duration_f64(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }

    /// Queueing delay: the least of the last round trip's samples over the base (RFC 6817 section 4.2, `current_delay` and `base_delay`).
    fn take_delay(&mut self, sample: &AckSample) -> Duration {
        let Some(last) = self.last_rtt.replace(sample.latest_rtt) else { return Duration::ZERO };
        let base = self.base.on_sample(sample.now, sample.latest_rtt.max(last));
        self.recent.retain(|(at, _)| sample.now.since(*at) <= sample.smoothed_rtt);
        if self.recent.is_full() {
            self.recent.remove(0);
        }
        self.recent.push((sample.now, sample.latest_rtt));
        let current = self.recent.iter().map(|(_, rtt)| *rtt).min().unwrap_or(base);
        current.saturating_sub(base)
    }

    fn take_rate(&mut self, sample: &AckSample) {
        let Some((rate, base)) = sample.delivery_rate.zip(self.base.get()) else { return };
        let rate = rate.min(plausible_rate(sample.prior_in_flight, base));
        if rate.0 > 0 {
            self.packet_time.on_sample(sample.now, rate.time_for(Bytes(self.datagram)));
        }
    }

    fn slow_start(
        &mut self,
        sample: &AckSample,
        queue: Duration,
        threshold: f64,
        slowdown: Option<Timestamp>,
    ) {
        if queue > self.target() * 3 / 4 || self.window >= threshold {
            self.end_slow_start(sample.now, slowdown);
            return;
        }
        if self.is_used(sample) {
            let acked = sample.acked_bytes as f64 / self.datagram as f64;
            let gain = gain(self.target(), self.base.get().unwrap_or_default());
            self.window = (self.window.max(1.0) + gain * acked).min(LARGEST_WINDOW);
        }
    }

    /// Section 4.4: the first slowdown comes two round trips after the first slow start, each other after nine times what the last one took.
    fn end_slow_start(&mut self, now: Timestamp, slowdown: Option<Timestamp>) {
        self.phase = Phase::Steady;
        if !self.was_settled {
            self.was_settled = true;
            self.slowdown_at = Some(now + self.smoothed_rtt * SLOWDOWN_ROUNDS);
        } else if let Some(since) = slowdown {
            let took = now.since(since);
            self.slowdown_at = Some(now + (took * SLOWDOWN_INTERVAL).max(LEAST_SLOWDOWN_INTERVAL));
        }
    }

    fn steady(&mut self, sample: &AckSample, queue: Duration) {
        let target = self.target();
        let base = self.base.get().unwrap_or_default();
        if queue > target {
            if self.reduced_at.is_none_or(|at| sample.now.since(at) >= self.smoothed_rtt) {
                self.reduce(sample.now, decrease(queue, target));
            }
            return;
        }
        let product = self.bandwidth_delay_product();
        if queue < target * 3 / 4 && self.window < product / 2.0 {
            self.phase = Phase::SlowStart { threshold: product, slowdown: None };
        } else if self.slowdown_at.is_some_and(|at| at <= sample.now) {
            self.begin_slowdown(sample.now);
        } else if self.is_used(sample) {
            // RFC 6817 section 2.4.2, `off_target`.
            let room = 1.0 - queue.div_duration_f64(target);
            let acked = sample.acked_bytes as f64 / self.datagram as f64;
            self.window =
                (self.window + gain(target, base) * room * acked / self.window.max(1.0)).min(LARGEST_WINDOW);
        }
    }

    /// Section 4.4; a window that is small already need not be made so.
    fn begin_slowdown(&mut self, now: Timestamp) {
        if self.window <= SMALL_WINDOW {
            self.slowdown_at = Some(now + LEAST_SLOWDOWN_INTERVAL);
            return;
        }
        let until = now + self.smoothed_rtt * SLOWDOWN_ROUNDS;
        self.phase = Phase::Slowdown { since: now, until, regain: self.window };
        self.window = SMALL_WINDOW;
    }

    fn reduce(&mut self, now: Timestamp, factor: f64) {
        self.window = (self.window * factor).max(self.least_window());
        self.reduced_at = Some(now);
    }

    /// The window is what limits, not what there is to send.
    fn is_used(&self, sample: &AckSample) -> bool {
        sample.prior_in_flight * 2 >= self.window()
    }

    /// Loss or a mark, once in a round trip: half by RFC 6817 section 2.4.2.
    fn on_congestion(&mut self, now: Timestamp, factor: f64) {
        self.reduce(now, factor);
        if let Phase::SlowStart { slowdown, .. } = self.phase {
            self.end_slow_start(now, slowdown);
        }
    }
}

impl Controller for BackgroundController {
    fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, sample: &AckSample, _own: PathId, _siblings: &[Sibling]) {
        self.smoothed_rtt = sample.smoothed_rtt;
        self.take_rate(sample);
        if sample.ce_marks > 0 && self.reduced_at.is_none_or(|at| sample.now.since(at) >= self.smoothed_rtt) {
            self.on_congestion(sample.now, 0.5);
            return;
        }
        // A small packet passes a slow bottleneck sooner than a full one: it would pass for the base.
        if sample.acked_bytes * 4 < self.datagram * 3 {
            return;
        }
        let queue = self.take_delay(sample);
        match self.phase {
            Phase::SlowStart { threshold, slowdown } => self.slow_start(sample, queue, threshold, slowdown),
            Phase::Steady => self.steady(sample, queue),
            Phase::Slowdown { since, until, regain } if sample.now >= until => {
                self.window = (regain / 2.0).max(SMALL_WINDOW);
                self.phase = Phase::SlowStart { threshold: regain, slowdown: Some(since) };
            }
            Phase::Yielding { until } if sample.now >= until => self.phase = Phase::Steady,
            Phase::Yielding { .. } | Phase::Slowdown { .. } => {}
        }
    }

    fn on_loss(&mut self, sample: &LossSample, _own: PathId, _siblings: &[Sibling]) {
        if sample.persistent {
            self.reduce(sample.now, 0.0);
        } else if self.reduced_at.is_none_or(|at| sample.latest_sent > at) {
            let again = self.lost_at.is_some_and(|at| sample.now.since(at) < LOSS_MEMORY);
            self.lost_at = Some(sample.now);
            self.on_congestion(sample.now, if again { 0.0 } else { 0.5 });
            if again {
                self.phase = Phase::Yielding { until: sample.now + YIELD_TO_LOSS };
            }
        }
    }

    fn window(&self) -> u64 {
        (self.window.max(1.0) * self.datagram as f64) as u64
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        if self.smoothed_rtt.is_zero() {
            return None;
        }
        let rate = BitRate::from_bytes_over(Bytes(self.datagram), self.smoothed_rtt).0 as f64 * self.window;
        let lead = if self.window >= SMALL_WINDOW { PACING_LEAD } else { 1.0 };
        Some(BitRate((rate * lead).max(1.0) as u64))
    }

    fn rate_estimate(&self) -> Option<BitRate> {
        let time = self.packet_time.get()?;
        let most = BitRate::from_bytes_over(Bytes(self.datagram), time);
        let allowed =
            BitRate::from_bytes_over(Bytes(self.datagram), self.smoothed_rtt).0 as f64 * self.window;
        Some(most.min(BitRate(allowed as u64)))
    }

    fn settled(&self) -> bool {
        self.was_settled
    }

    fn guaranteed_window(&self) -> u64 {
        0
    }
}

/// LEDBAT++ section 4.2: `GAIN = 1 / min(16, ceil(2 * TARGET / base))`.
fn gain(target: Duration, base: Duration) -> f64 {
    let ratio = target.as_secs_f64() * 2.0 / base.as_secs_f64().max(1e-6);
    1.0 / ratio.ceil().clamp(1.0, 16.0)
}

/// LEDBAT++ section 4.3 without its gain, by what the window is multiplied: `1 - min(C * (delay / TARGET - 1), 1/2)`.
fn decrease(queue: Duration, target: Duration) -> f64 {
    1.0 - (STRICTNESS * (queue.div_duration_f64(target) - 1.0)).clamp(0.0, 0.5)
}

/// LEDBAT++ section 4.1: the least of so many samples is the current delay.
const FILTERED: usize = 4;
/// BASE_HISTORY of RFC 6817 is 10 minutes, and [`BaseRtt`] keeps half of this at least.
const MEMORY: Duration = Duration::from_secs(20 * 60);
/// LEDBAT++ section 4: the first window, and that of a slowdown, packets.
const SMALL_WINDOW: f64 = 2.0;
/// Bound of the window, packets.
const LARGEST_WINDOW: f64 = 1_000_000.0;
/// TARGET of LEDBAT++.
const GREATEST_TARGET: Duration = Duration::from_millis(60);
/// What people do not notice beside an Internet round trip, and more than jitter and clocks take.
const LEAST_TARGET: Duration = Duration::from_millis(25);
/// C of LEDBAT++ section 4.3 is 1. On a slow uplink a single packet too many is half a target, and halved windows of few packets leave it idle.
const STRICTNESS: f64 = 0.5;
/// LEDBAT++ section 4.4: round trips from slow start to the first slowdown, and of a slowdown.
const SLOWDOWN_ROUNDS: u32 = 2;
/// LEDBAT++ section 4.4: from one slowdown to the next, in what one takes.
const SLOWDOWN_INTERVAL: u32 = 9;
/// Losses of an uplink of one's own are further apart.
const LOSS_MEMORY: Duration = Duration::from_secs(10);
const YIELD_TO_LOSS: Duration = Duration::from_secs(3);
const LEAST_SLOWDOWN_INTERVAL: Duration = Duration::from_secs(20);
/// What is taken of the bottleneck while others fill it: by it the end of their traffic is noticed, and the peer sees that this end lives.
const LEAST_SHARE: f64 = 0.02;
/// Between two packets then.
const LONGEST_PAUSE: Duration = Duration::from_millis(1_500);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// Pace over window per round trip, so that the pace does not limit.
const PACING_LEAD: f64 = 1.25;

#[cfg(test)]
mod tests;
