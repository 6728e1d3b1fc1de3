//! A one-link world for the controllers' tests: a sender with endless data, a bottleneck, an acknowledging receiver.

use super::{AckSample, Controller, LossSample, Sibling};
use policy::{BaseRtt, RttEstimator};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use units::{BitRate, Bytes, PathId, Timestamp};

/// Bytes of a test datagram.
pub(super) const DATAGRAM: u64 = 1_250;

/// The link; rates and delays may be changed while the world runs.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) rate: BitRate,
    /// Both ways together.
    pub(super) delay: Duration,
    /// Uniform extra delay after the bottleneck.
    pub(super) jitter: Duration,
    /// Whether jitter may reorder.
    pub(super) reorders: bool,
    /// Probability that a packet is lost before the bottleneck.
    pub(super) loss: f64,
    /// Bytes that the bottleneck may hold.
    pub(super) buffer: u64,
    /// The receiver looks at what has come only so often: it is busy, or has a share of a processor.
    pub(super) looks_every: Duration,
    /// Rates in place of `rate`, each for `fade`, from the first again after the last.
    pub(super) fades: Vec<BitRate>,
    pub(super) fade: Duration,
}

impl Link {
    pub(super) fn new(mbps: f64, delay_ms: u64) -> Self {
        Self {
            rate: BitRate::from_mbps(mbps),
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::ZERO,
            reorders: false,
            loss: 0.0,
            buffer: 1_000_000,
            looks_every: Duration::ZERO,
            fades: Vec::new(),
            fade: Duration::ZERO,
        }
    }

    /// When a packet has gone whose first bit goes at `from`.
    fn leaves(&self, from: Timestamp) -> Timestamp {
        if self.fades.is_empty() {
            return from + self.rate.time_for(Bytes(DATAGRAM));
        }
        let (fade, mut at, mut left) = (self.fade.as_nanos() as u64, from, DATAGRAM);
        loop {
            let block = at.as_nanos() / fade;
            let rate = self.fades[block as usize % self.fades.len()];
            let end = Timestamp::from_nanos((block + 1) * fade);
            if at + rate.time_for(Bytes(left)) <= end {
                return at + rate.time_for(Bytes(left));
            }
            left = left.saturating_sub(rate.bytes_in(end.since(at)).0).max(1);
            at = end;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    time: Timestamp,
    bytes: u64,
    /// Delivered so far, and when the last delivery was received, when this was sent.
    delivered: u64,
    delivered_time: Timestamp,
    first_sent: Timestamp,
    limited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Arrival {
    acked_at: Timestamp,
    number: u64,
    received_at: Timestamp,
}

/// What waits at the link's bottleneck: when each packet leaves, and its bytes.
#[derive(Debug)]
struct Bottleneck {
    queue: VecDeque<(Timestamp, u64)>,
    free_from: Timestamp,
}

impl Bottleneck {
    /// When a packet that comes now leaves; `None` if there is no room for it.
    fn take(&mut self, now: Timestamp, link: &Link) -> Option<Timestamp> {
        while self.queue.front().is_some_and(|(leaves, _)| *leaves <= now) {
            self.queue.pop_front();
        }
        let queued: u64 = self.queue.iter().map(|(_, bytes)| bytes).sum();
        if queued + DATAGRAM > link.buffer {
            return None;
        }
        self.free_from = link.leaves(self.free_from.max(now));
        self.queue.push_back((self.free_from, DATAGRAM));
        Some(self.free_from)
    }
}

/// The world.
pub(super) struct World<C> {
    pub(super) controller: C,
    pub(super) link: Link,
    pub(super) now: Timestamp,
    /// Bytes per second that the application offers; endless if `None`.
    pub(super) offered: Option<BitRate>,
    /// What the controller is told of other paths.
    pub(super) overshadowed: bool,
    pub(super) others_fade: bool,
    /// All bytes that reached the receiver and were acknowledged.
    pub(super) delivered: u64,
    random: ChaCha8Rng,
    rtt: RttEstimator,
    base: BaseRtt,
    sent: BTreeMap<u64, Sent>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    last_arrival: Timestamp,
    bottleneck: Rc<RefCell<Bottleneck>>,
    next_send: Timestamp,
    next_number: u64,
    round_end: u64,
    in_flight: u64,
    allowance: f64,
    last_received: Timestamp,
    last_delivered_time: Timestamp,
    last_first_sent: Timestamp,
    last_ack: Timestamp,
    /// Silent for three probe timeouts: only probes are sent.
    suspect: bool,
    limited_until: u64,
    /// Queueing delays met, in milliseconds.
    pub(super) queue_delays: Vec<f64>,
    pub(super) rounds: u64,
}

impl<C: Controller> World<C> {
    pub(super) fn new(controller: C, link: Link, seed: u64) -> Self {
        let start = Timestamp::from_millis(1_000);
        Self {
            controller,
            link,
            now: start,
            offered: None,
            overshadowed: false,
            others_fade: false,
            delivered: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            rtt: RttEstimator::default(),
            base: BaseRtt::default(),
            sent: BTreeMap::new(),
            arrivals: BinaryHeap::new(),
            last_arrival: start,
            bottleneck: Rc::new(RefCell::new(Bottleneck { queue: VecDeque::new(), free_from: start })),
            next_send: start,
            next_number: 0,
            round_end: 0,
            in_flight: 0,
            allowance: 0.0,
            last_received: start,
            last_delivered_time: start,
            last_first_sent: start,
            last_ack: start,
            suspect: false,
            limited_until: 0,
            queue_delays: Vec::new(),
            rounds: 0,
        }
    }

    /// One more sender with endless data at the same bottleneck.
    pub(super) fn beside<D: Controller>(&self, controller: D, seed: u64) -> World<D> {
        let mut other = World::new(controller, self.link.clone(), seed);
        other.now = self.now;
        other.bottleneck = Rc::clone(&self.bottleneck);
        other
    }

    /// Runs for `time` and returns the goodput.
    pub(super) fn run(&mut self, time: Duration) -> BitRate {
        let end = self.now + time;
        let before = self.delivered;
        while self.now < end {
            self.step();
        }
        BitRate::from_bytes_over(Bytes(self.delivered - before), time)
    }

    /// Runs for a tenth of a millisecond.
    pub(super) fn step(&mut self) {
        self.notice_silence();
        if self.suspect {
            self.probe();
        } else {
            self.send();
        }
        while self.arrivals.peek().is_some_and(|next| next.0.acked_at <= self.now) {
            if let Some(Reverse(arrival)) = self.arrivals.pop() {
                self.acknowledge(arrival);
            }
        }
        self.now += Duration::from_micros(100);
        if let Some(offered) = self.offered {
            let step = offered.bytes_per_second() * 1e-4;
            self.allowance = (self.allowance + step).min(50_000.0);
        }
    }

    /// The greatest queueing delay of the last `count` packets but for the top hundredth.
    pub(super) fn queue_p99(&self, count: usize) -> f64 {
        let from = self.queue_delays.len().saturating_sub(count);
        let mut delays = self.queue_delays[from..].to_vec();
        delays.sort_by(f64::total_cmp);
        delays.get(delays.len() * 99 / 100).copied().unwrap_or_default()
    }

    pub(super) fn mean_queue(&self, count: usize) -> f64 {
        let from = self.queue_delays.len().saturating_sub(count);
        self.queue_delays[from..].iter().sum::<f64>() / count.min(self.queue_delays.len()).max(1) as f64
    }

    fn send(&mut self) {
        while self.in_flight + DATAGRAM <= self.controller.window() && self.next_send <= self.now {
            if self.offered.is_some() {
                if self.allowance < DATAGRAM as f64 {
                    self.limited_until = self.next_number;
                    break;
                }
                self.allowance -= DATAGRAM as f64;
            }
            if self.in_flight == 0 {
                self.last_first_sent = self.now;
                self.last_delivered_time = self.last_received.max(self.now);
            }
            self.transmit();
            if let Some(rate) = self.controller.pacing_rate() {
                let floor = self.now - Duration::from_millis(1);
                self.next_send = self.next_send.max(floor) + rate.time_for(Bytes(DATAGRAM));
            }
        }
    }

    /// What a path does when nothing is acknowledged for three probe timeouts: all in flight is given up.
    fn notice_silence(&mut self) {
        if self.in_flight == 0 {
            self.last_ack = self.now;
        }
        let patience = (self.rtt.pto() + Duration::from_millis(10)) * 3;
        if self.suspect || self.now.since(self.last_ack) < patience {
            return;
        }
        self.suspect = true;
        self.next_send = self.now;
        let latest_sent = self.sent.values().map(|sent| sent.time).max().unwrap_or(self.now);
        let lost_bytes = self.in_flight;
        self.sent.clear();
        self.in_flight = 0;
        let sample = LossSample { now: self.now, lost_bytes, latest_sent, persistent: true };
        self.controller.on_loss(&sample, PathId(0), &[self.sibling()]);
    }

    fn probe(&mut self) {
        if self.next_send <= self.now {
            self.transmit();
            self.next_send = self.now + Duration::from_millis(100);
        }
    }

    fn transmit(&mut self) {
        let number = self.next_number;
        self.next_number += 1;
        self.in_flight += DATAGRAM;
        self.controller.on_sent(self.now, DATAGRAM, self.in_flight);
        let sent = Sent {
            time: self.now,
            bytes: DATAGRAM,
            delivered: self.delivered,
            delivered_time: self.last_delivered_time,
            first_sent: self.last_first_sent,
            limited: self.limited_until > 0,
        };
        self.sent.insert(number, sent);
        if self.random.random_bool(self.link.loss) {
            return;
        }
        let now = self.now;
        let Some(leaves) = self.bottleneck.borrow_mut().take(now, &self.link) else { return };
        self.queue_delays.push(leaves.since(now).as_secs_f64() * 1e3);
        let jitter = self.link.jitter.mul_f64(self.random.random::<f64>());
        let mut received_at = leaves + self.link.delay / 2 + jitter;
        if !self.link.reorders {
            received_at = received_at.max(self.last_arrival);
        }
        received_at = self.next_look(received_at);
        self.last_arrival = self.last_arrival.max(received_at);
        self.arrivals.push(Reverse(Arrival {
            acked_at: received_at + self.link.delay / 2,
            number,
            received_at,
        }));
    }

    fn next_look(&self, at: Timestamp) -> Timestamp {
        let every = self.link.looks_every.as_nanos() as u64;
        if every == 0 { at } else { at + Duration::from_nanos((every - at.as_nanos() % every) % every) }
    }

    fn acknowledge(&mut self, arrival: Arrival) {
        let Some(sent) = self.sent.remove(&arrival.number) else { return };
        self.last_ack = self.now;
        self.suspect = false;
        let prior_in_flight = self.in_flight;
        self.in_flight -= sent.bytes;
        self.delivered += sent.bytes;
        let latest_rtt = self.now.since(sent.time);
        self.rtt.on_sample(latest_rtt);
        let base_rtt = self.base.on_sample(self.now, self.rtt.smoothed());
        self.last_received = self.last_received.max(arrival.received_at);
        let ack_interval = arrival.received_at.since(sent.delivered_time);
        let send_interval = sent.time.since(sent.first_sent);
        let interval = ack_interval.max(send_interval);
        self.last_delivered_time = self.last_received;
        self.last_first_sent = sent.time;
        let round_ended = arrival.number >= self.round_end;
        if round_ended {
            self.round_end = self.next_number;
            self.rounds += 1;
        }
        if self.limited_until > 0 && arrival.number > self.limited_until {
            self.limited_until = 0;
        }
        let sample = AckSample {
            now: self.now,
            acked_bytes: sent.bytes,
            prior_in_flight,
            latest_rtt,
            smoothed_rtt: self.rtt.smoothed(),
            base_rtt,
            delivery_rate: (interval > Duration::ZERO)
                .then(|| BitRate::from_bytes_over(Bytes(self.delivered - sent.delivered), interval)),
            application_limited: sent.limited,
            round_ended,
            ce_marks: 0,
            overshadowed: self.overshadowed,
            others_fade: self.others_fade,
        };
        self.controller.on_ack(&sample, PathId(0), &[self.sibling()]);
        self.find_losses(arrival.number);
    }

    /// A packet is lost once one sent a good while later has been acknowledged.
    fn find_losses(&mut self, acknowledged: u64) {
        let window = Duration::from_millis(2) + self.link.jitter.mul_f64(1.1);
        let mut lost_bytes = 0;
        let mut latest_sent = Timestamp::ZERO;
        let deadline = self.now - (self.rtt.smoothed().max(self.rtt.latest()) + window);
        let lost: Vec<u64> = self
            .sent
            .range(..acknowledged)
            .filter(|(_, sent)| sent.time < deadline)
            .map(|(&number, _)| number)
            .collect();
        for number in lost {
            if let Some(sent) = self.sent.remove(&number) {
                lost_bytes += sent.bytes;
                self.in_flight -= sent.bytes;
                latest_sent = latest_sent.max(sent.time);
            }
        }
        if lost_bytes > 0 {
            let sample = LossSample { now: self.now, lost_bytes, latest_sent, persistent: false };
            self.controller.on_loss(&sample, PathId(0), &[self.sibling()]);
        }
    }

    fn sibling(&self) -> Sibling {
        Sibling {
            path: PathId(0),
            window: self.controller.window(),
            smoothed_rtt: self.rtt.smoothed(),
            acked_since_loss: 0,
            acked_between_losses: 0,
            bottleneck: 0,
        }
    }
}
