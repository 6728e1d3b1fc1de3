//! One direction of a network.
//!
//! ```text
//! enqueue -> [state] -> queue (tail drop, ECN mark) -> rate or trace -> [loss] -> delay + jitter -> poll
//! ```

mod loss;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use spec::{Capacity, Change, Jitter, LinkSpec, LinkState, Loss, QueueLimit, TimedChange};

use crate::{EventQueue, SeededRandom};
use loss::LossProcess;
use server::Server;
use std::collections::VecDeque;
use std::time::Duration;
use units::{Bytes, Timestamp};

/// What a link must know of a packet.
pub trait LinkPacket {
    /// Size on the link.
    fn link_bytes(&self) -> Bytes;
    /// Marks the packet as having met congestion if it is ECN-capable; says whether it is.
    fn mark_congestion(&mut self) -> bool;
}

impl LinkPacket for Vec<u8> {
    fn link_bytes(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    fn mark_congestion(&mut self) -> bool {
        false
    }
}

/// What happened on a link so far, in packets unless said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStatistics {
    /// Offered to the link.
    pub offered: u64,
    /// Delivered at the other end.
    pub delivered: u64,
    /// Bytes delivered at the other end.
    pub delivered_bytes: u64,
    /// Dropped since the queue was full.
    pub dropped_full: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Dropped since the link was down or silent.
    pub dropped_outage: u64,
    /// Marked as having met congestion.
    pub marked: u64,
    /// Most bytes that were ever queued.
    pub most_queued_bytes: u64,
}

/// One direction of a network under way. The caller brings the time, which must not go back.
#[derive(Clone, Debug)]
pub struct Link<P> {
    delay: Duration,
    jitter: Jitter,
    queue_limit: QueueLimit,
    mark_above: Option<Bytes>,
    schedule: Schedule,
    state: LinkState,
    loss: LossProcess,
    random: SeededRandom,
    server: Server,
    queue: VecDeque<P>,
    queued_bytes: u64,
    travelling: EventQueue<P>,
    last_arrival: Timestamp,
    statistics: LinkStatistics,
}

impl<P: LinkPacket> Link<P> {
    /// A link of `spec` that starts at time zero; `seed` decides loss and jitter.
    pub fn new(spec: LinkSpec, seed: u64) -> Self {
        Self::starting_at(Timestamp::ZERO, spec, seed)
    }

    /// A link whose schedule and trace start at `start`.
    pub fn starting_at(start: Timestamp, spec: LinkSpec, seed: u64) -> Self {
        Self {
            delay: spec.delay,
            jitter: spec.jitter,
            queue_limit: spec.queue,
            mark_above: spec.mark_above,
            schedule: Schedule::new(start, spec.schedule, spec.schedule_period),
            state: LinkState::Up,
            loss: LossProcess::new(spec.loss),
            random: SeededRandom::new(seed),
            server: Server::new(start, spec.capacity),
            queue: VecDeque::new(),
            queued_bytes: 0,
            travelling: EventQueue::new(),
            last_arrival: Timestamp::ZERO,
            statistics: LinkStatistics::default(),
        }
    }

    /// A packet is offered at `now`. It may be dropped; the statistics tell.
    pub fn enqueue(&mut self, now: Timestamp, mut packet: P) {
        self.advance(now);
        self.statistics.offered += 1;
        if self.state != LinkState::Up {
            self.statistics.dropped_outage += 1;
            return;
        }
        if self.server.is_unlimited() && self.queue.is_empty() {
            self.depart(now, packet);
            return;
        }
        let size = packet.link_bytes().0;
        if self.is_full(size) {
            self.statistics.dropped_full += 1;
            return;
        }
        if self.mark_above.is_some_and(|limit| self.queued_bytes >= limit.0) && packet.mark_congestion() {
            self.statistics.marked += 1;
        }
        if self.queue.is_empty() {
            self.server.start(now, size);
        }
        self.queued_bytes += size;
        self.statistics.most_queued_bytes = self.statistics.most_queued_bytes.max(self.queued_bytes);
        self.queue.push_back(packet);
    }

    /// The next packet that has arrived at the other end by `now`.
    pub fn poll(&mut self, now: Timestamp) -> Option<P> {
        self.advance(now);
        while let Some((_, packet)) = self.travelling.pop_due(now) {
            if self.state == LinkState::Silent {
                self.statistics.dropped_outage += 1;
                continue;
            }
            self.statistics.delivered += 1;
            self.statistics.delivered_bytes += packet.link_bytes().0;
            return Some(packet);
        }
        None
    }

    /// When to call [`Link::poll`] next: no packet arrives earlier. `None` while nothing is under way.
    pub fn next_event(&self) -> Option<Timestamp> {
        let arrival = self.travelling.next_time();
        let earliest_departure = if self.queue.is_empty() { None } else { self.server.completion() };
        let least_delay = self.least_delay();
        let departure = match (earliest_departure, self.schedule.next_time()) {
            // A change may come before the packet would arrive and bring it nearer.
            (Some(at), Some(change)) => Some((at + least_delay).min(change)),
            (Some(at), None) => Some(at + least_delay),
            // Held by a rate of zero until a change.
            (None, change) => change.filter(|_| !self.queue.is_empty()),
        };
        match (arrival, departure) {
            (Some(arrival), Some(departure)) => Some(arrival.min(departure)),
            (one, other) => one.or(other),
        }
    }

    /// When the link's schedule changes it next.
    pub fn next_change(&self) -> Option<Timestamp> {
        self.schedule.next_time()
    }

    /// Applies `change` at `now`.
    pub fn change(&mut self, now: Timestamp, change: Change) {
        self.advance(now);
        self.apply(now, change);
    }

    /// Whether the link carries anything at `now`.
    pub fn state(&mut self, now: Timestamp) -> LinkState {
        self.advance(now);
        self.state
    }

    /// Bytes that wait in the queue at `now`, the packet in service included.
    pub fn queued(&mut self, now: Timestamp) -> Bytes {
        self.advance(now);
        Bytes(self.queued_bytes)
    }

    /// What happened so far.
    pub fn statistics(&self) -> LinkStatistics {
        self.statistics
    }

    /// Brings queue and schedule to `now`, in time order.
    fn advance(&mut self, now: Timestamp) {
        loop {
            let departure = if self.queue.is_empty() { None } else { self.server.completion() };
            let change = self.schedule.next_time().filter(|at| *at <= now);
            match (departure.filter(|at| *at <= now), change) {
                (Some(at), change) if change.is_none_or(|change| at <= change) => self.serve_head(at),
                (_, Some(at)) => {
                    if let Some(change) = self.schedule.take_due(at) {
                        self.apply(at, change);
                    }
                }
                _ => return,
            }
        }
    }

    fn apply(&mut self, at: Timestamp, change: Change) {
        match change {
            Change::Capacity(capacity) => {
                self.server.change(at, capacity, self.queue.front().map(|packet| packet.link_bytes().0));
                while self.server.is_unlimited() && !self.queue.is_empty() {
                    self.serve_head(at);
                }
            }
            Change::Delay(delay) => self.delay = delay,
            Change::Jitter(jitter) => self.jitter = jitter,
            Change::Loss(loss) => self.loss = LossProcess::new(loss),
            Change::State(state) => {
                self.state = state;
                if state != LinkState::Up {
                    self.statistics.dropped_outage += self.queue.len() as u64;
                    self.queue.clear();
                    self.queued_bytes = 0;
                    self.server.stop();
                }
            }
        }
    }

    /// The packet at the head of the queue has been sent whole at `at`.
    fn serve_head(&mut self, at: Timestamp) {
        let Some(packet) = self.queue.pop_front() else { return };
        self.queued_bytes -= packet.link_bytes().0;
        self.server.finished(at, self.queue.front().map(|next| next.link_bytes().0));
        self.depart(at, packet);
    }

    /// `packet` left the queue at `at` and travels, or is lost.
    fn depart(&mut self, at: Timestamp, packet: P) {
        if self.loss.next_is_lost(&mut self.random) {
            self.statistics.lost += 1;
            return;
        }
        let arrival = match self.jitter {
            // A shortened delay does not make packets overtake on a link that keeps order.
            Jitter::None => (at + self.delay).max(self.last_arrival),
            Jitter::OrderKept(amplitude) => self.jittered(at, amplitude).max(self.last_arrival),
            Jitter::Reordering(amplitude) => self.jittered(at, amplitude),
        };
        self.last_arrival = self.last_arrival.max(arrival);
        self.travelling.insert(arrival, packet);
    }

    fn jittered(&mut self, at: Timestamp, amplitude: Duration) -> Timestamp {
        let offset = self.random.between(-1.0, 1.0) * amplitude.as_secs_f64();
        let delay = (self.delay.as_secs_f64() + offset).max(0.0);
        at + Duration::from_secs_f64(delay)
    }

    fn least_delay(&self) -> Duration {
        match self.jitter {
            Jitter::None => self.delay,
            // A microsecond less, so that rounding cannot put an arrival before it.
            Jitter::OrderKept(amplitude) | Jitter::Reordering(amplitude) => {
                self.delay.saturating_sub(amplitude + Duration::from_micros(1))
            }
        }
    }

    fn is_full(&self, size: u64) -> bool {
        match self.queue_limit {
            _ if self.queue.is_empty() => false,
            QueueLimit::Bytes(limit) => self.queued_bytes + size > limit.0,
            QueueLimit::Packets(limit) => self.queue.len() >= limit,
        }
    }
}

/// The changes still to come.
#[derive(Clone, Debug)]
struct Schedule {
    start: Timestamp,
    changes: Vec<TimedChange>,
    period: Option<Duration>,
    taken: usize,
}

impl Schedule {
    fn new(start: Timestamp, mut changes: Vec<TimedChange>, period: Option<Duration>) -> Self {
        changes.sort_by_key(|timed| timed.at);
        let period = period.filter(|period| !period.is_zero());
        Self { start, changes, period, taken: 0 }
    }

    fn next_time(&self) -> Option<Timestamp> {
        self.changes.get(self.taken).map(|timed| self.start + timed.at)
    }

    fn take_due(&mut self, now: Timestamp) -> Option<Change> {
        let at = self.next_time().filter(|at| *at <= now)?;
        debug_assert!(at <= now);
        let change = self.changes[self.taken].change.clone();
        self.taken += 1;
        if let Some(period) = self.period.filter(|_| self.taken == self.changes.len()) {
            self.taken = 0;
            self.start += period;
        }
        Some(change)
    }
}
