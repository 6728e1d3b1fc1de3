//! What a link is like.

use crate::DeliveryTrace;
use std::sync::Arc;
use std::time::Duration;
use units::{BitRate, Bytes};

/// One direction of a network: queue, then rate, then loss, then delay and jitter.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// What passes per unit of time.
    pub capacity: Capacity,
    /// One-way propagation delay.
    pub delay: Duration,
    /// How the delay varies from packet to packet.
    pub jitter: Jitter,
    /// Loss after the queue (a radio's loss, not a full queue's).
    pub loss: Loss,
    /// When the queue in front of the link is full.
    pub queue: QueueLimit,
    /// Mark packets that carry an ECN-capable code point when this many bytes or more are queued.
    pub mark_above: Option<Bytes>,
    /// What changes when, in rising order of time since the start of the link.
    pub schedule: Vec<TimedChange>,
    /// The schedule starts anew after this time.
    pub schedule_period: Option<Duration>,
}

/// What a link lets pass per unit of time.
#[derive(Clone, Debug)]
pub enum Capacity {
    /// Packets do not wait.
    Unlimited,
    /// A steady rate; zero holds the packets in the queue.
    Rate(BitRate),
    /// Opportunities to deliver, repeated.
    Trace(Arc<DeliveryTrace>),
}

/// How a link's delay varies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Jitter {
    /// It does not.
    None,
    /// Each packet's delay is uniform within the amplitude around the link's, but no packet overtakes another.
    OrderKept(Duration),
    /// Each packet's delay is uniform within the amplitude around the link's; packets overtake.
    Reordering(Duration),
}

/// Loss that has nothing to do with the queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// None.
    None,
    /// Each packet by itself, with this probability.
    Random(f64),
    /// Bursts: the two-state model of Gilbert and Elliott, one step per packet.
    GilbertElliott {
        /// Probability per packet of leaving the good state.
        good_to_bad: f64,
        /// Probability per packet of leaving the bad state.
        bad_to_good: f64,
        /// Loss in the good state.
        loss_in_good: f64,
        /// Loss in the bad state.
        loss_in_bad: f64,
    },
}

/// When a queue is full; the arriving packet is dropped then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueLimit {
    /// By bytes. One packet always fits.
    Bytes(Bytes),
    /// By packets. One packet always fits.
    Packets(usize),
}

/// Whether a link carries anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It does.
    Up,
    /// Its carrier is gone: what is sent is dropped, and so is what was queued. The host can know.
    Down,
    /// It takes packets and delivers none; the host cannot know.
    Silent,
}

/// One change of a link.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new capacity.
    Capacity(Capacity),
    /// A new delay.
    Delay(Duration),
    /// New jitter.
    Jitter(Jitter),
    /// New loss.
    Loss(Loss),
    /// Up, down or silent.
    State(LinkState),
}

/// A change at a time since the start of the link (or of the schedule's period).
#[derive(Clone, Debug)]
pub struct TimedChange {
    /// When.
    pub at: Duration,
    /// What.
    pub change: Change,
}

impl LinkSpec {
    /// A steady link of `rate` and one-way `delay` with a queue of 1000 packets, nothing else.
    pub fn steady(rate: BitRate, delay: Duration) -> Self {
        Self { capacity: Capacity::Rate(rate), queue: QueueLimit::Packets(1_000), ..Self::ideal(delay) }
    }

    /// A link that only delays.
    pub fn ideal(delay: Duration) -> Self {
        Self {
            capacity: Capacity::Unlimited,
            delay,
            jitter: Jitter::None,
            loss: Loss::None,
            queue: QueueLimit::Packets(100_000),
            mark_above: None,
            schedule: Vec::new(),
            schedule_period: None,
        }
    }

    /// The same link with `jitter`.
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// The same link with `loss`.
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The same link with `queue`.
    pub fn with_queue(self, queue: QueueLimit) -> Self {
        Self { queue, ..self }
    }

    /// The same link that `schedule` changes, again and again after `period` where given.
    pub fn with_schedule(self, schedule: Vec<TimedChange>, period: Option<Duration>) -> Self {
        Self { schedule, schedule_period: period, ..self }
    }

    /// Mean capacity over the schedule, outages counted as zero; `None` if the link is unlimited.
    pub fn mean_rate(&self) -> Option<BitRate> {
        let end = self.schedule_period.or_else(|| self.schedule.last().map(|last| last.at));
        let mut rate = capacity_rate(&self.capacity)?;
        let Some(end) = end.filter(|end| !end.is_zero()) else { return Some(rate) };
        let (mut up, mut since, mut bits) = (true, Duration::ZERO, 0.0);
        for timed in &self.schedule {
            bits += timed.at.saturating_sub(since).as_secs_f64() * if up { rate.0 as f64 } else { 0.0 };
            since = timed.at;
            match &timed.change {
                Change::Capacity(capacity) => rate = capacity_rate(capacity)?,
                Change::State(state) => up = *state == LinkState::Up,
                Change::Delay(_) | Change::Jitter(_) | Change::Loss(_) => {}
            }
        }
        bits += end.saturating_sub(since).as_secs_f64() * if up { rate.0 as f64 } else { 0.0 };
        Some(BitRate((bits / end.as_secs_f64()) as u64))
    }
}

fn capacity_rate(capacity: &Capacity) -> Option<BitRate> {
    match capacity {
        Capacity::Unlimited => None,
        Capacity::Rate(rate) => Some(*rate),
        Capacity::Trace(trace) => Some(BitRate(trace.mean_bits_per_second())),
    }
}
