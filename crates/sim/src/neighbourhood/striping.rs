//! The baseline of `[LINKALIKE] III.A`: one TCP connection through each neighbour and one over the own uplink, chunks to whichever takes them.
//!
//! The link layer tries each frame seven times; what it gives up is lost to TCP, which takes it for congestion. Each connection is NewReno with selective acknowledgements
//! (RFC 5681, RFC 6675, RFC 6298): slow start, additive increase, half of the window at a loss, a time-out where nothing comes back. Acknowledgements of
//! every second packet take their time on the air too. The bit rate is the best for each neighbour, as from an ideal rate control.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use radio::airtime::{Flavour, USUAL_ATTEMPTS};
use units::{Bytes, Timestamp};

use super::spec::{AIR_FRAME, NeighbourhoodSpec, RATES, UplinkSpec, air_times};
use super::uplink::carried_bytes;
use crate::{EventQueue, SeededRandom};

/// Packets that the wireless interface queues (Linux's default).
const AIR_QUEUE: usize = 1_000;
/// RFC 6928.
const FIRST_WINDOW: f64 = 10.0;
/// Linux's least time-out; RFC 6298 has a second.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Linux's least delay of an acknowledgement.
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(40);
/// A TCP acknowledgement on the air: headers of TCP with options, IP, LLC and 802.11, and the check sequence.
const ACKNOWLEDGEMENT_FRAME: Bytes = Bytes(52 + 8 + 24 + 4);
const LONGEST: Duration = Duration::from_secs(7_200);

/// How a transfer by TCP striping went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Striped {
    /// How long it took; `None` if it did not end.
    pub took: Option<Duration>,
    /// Chunks that came through each neighbour.
    pub carried: Vec<u32>,
    /// Acknowledgements that were given to the air.
    pub acknowledgements: u32,
    /// Time on the air, acknowledgements included.
    pub air_time: Duration,
}

/// Sends `chunks` chunks. With `rate` the bit rate is fixed, else it is the best for each neighbour.
pub fn run(spec: &NeighbourhoodSpec, chunks: u32, rate: Option<usize>, seed: u64) -> Striped {
    Striping::new(spec, chunks, rate, seed).run()
}

enum Happening {
    AirFree,
    /// A packet is at the destination.
    Arrived(usize, u32),
    /// An acknowledgement is at the neighbour, or for the own uplink at the source.
    Returned(usize, u32),
    /// The destination has waited for a second packet for long enough.
    Delayed(usize, u64),
    Timeout(usize, u64),
}

/// What waits for the air.
enum Waiting {
    Data(usize, u32),
    Acknowledgement(usize, u32),
}

#[derive(Clone, Debug)]
struct Connection {
    uplink: UplinkSpec,
    wireless: Option<(usize, f64)>,
    free_at: Timestamp,
    window: f64,
    threshold: f64,
    /// Packets in order of their first sending: those not acknowledged, with when they were last sent.
    flight: VecDeque<Packet>,
    next: u32,
    recover: u32,
    round_trip: Option<(f64, f64)>,
    timeout: Duration,
    timer: u64,
    receiver: Receiver,
}

/// The destination's end of a connection.
#[derive(Clone, Default, Debug)]
struct Receiver {
    /// All in front of it have come.
    expected: u32,
    /// Those that have come behind a gap.
    beyond: BTreeSet<u32>,
    /// The last one that came.
    last: u32,
    unacknowledged: u32,
    /// Counts acknowledgements: a delay that began before one is void.
    acknowledgements: u64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u32,
    sent: Timestamp,
    again: bool,
    lost: bool,
}

struct Striping {
    now: Timestamp,
    events: EventQueue<Happening>,
    connections: Vec<Connection>,
    air: VecDeque<Waiting>,
    air_busy: bool,
    left: u32,
    missing: u32,
    random: SeededRandom,
    arrived: Vec<BTreeSet<u32>>,
    striped: Striped,
}

impl Striping {
    fn new(spec: &NeighbourhoodSpec, chunks: u32, rate: Option<usize>, seed: u64) -> Self {
        let times = air_times();
        let best = |chances: [f64; 4]| {
            let time = |rate: usize| times.get(rate).map_or(f64::MAX, Duration::as_secs_f64);
            let expected = |rate: usize| time(rate) / chances.get(rate).copied().unwrap_or(0.0).max(1e-9);
            (0..RATES.len()).min_by(|one, other| expected(*one).total_cmp(&expected(*other))).unwrap_or(0)
        };
        let neighbours = spec.neighbours.iter().map(|neighbour| {
            let rate = rate.unwrap_or_else(|| best(neighbour.reception));
            Connection::new(
                neighbour.uplink,
                Some((rate, neighbour.reception.get(rate).copied().unwrap_or(0.0))),
            )
        });
        let connections: Vec<Connection> = neighbours.chain([Connection::new(spec.own, None)]).collect();
        Self {
            now: Timestamp::ZERO,
            events: EventQueue::new(),
            arrived: vec![BTreeSet::new(); connections.len()],
            connections,
            air: VecDeque::new(),
            air_busy: false,
            left: chunks,
            missing: chunks,
            random: SeededRandom::derive(seed, "striping"),
            striped: Striped { carried: vec![0; spec.neighbours.len()], ..Striped::default() },
        }
    }

    fn run(mut self) -> Striped {
        self.fill();
        let end = Timestamp::ZERO + LONGEST;
        while self.missing > 0 {
            let Some((at, happening)) = self.events.pop_due(end) else { return self.striped };
            self.now = at;
            match happening {
                Happening::AirFree => {
                    self.air_busy = false;
                }
                Happening::Arrived(at, number) => self.arrive(at, number),
                Happening::Returned(at, number) => {
                    match self.connections.get(at).and_then(|one| one.wireless) {
                        Some(_) => {
                            self.striped.acknowledgements += 1;
                            self.air.push_back(Waiting::Acknowledgement(at, number));
                        }
                        None => self.acknowledge(at, number),
                    }
                }
                Happening::Delayed(at, before) => {
                    let waits = |one: &&Connection| {
                        one.receiver.acknowledgements == before && one.receiver.unacknowledged > 0
                    };
                    if self.connections.get(at).filter(waits).is_some() {
                        self.return_acknowledgement(at);
                    }
                }
                Happening::Timeout(at, timer) => self.time_out(at, timer),
            }
            self.fill();
        }
        self.striped.took = Some(self.now.since(Timestamp::ZERO));
        self.striped
    }

    /// Gives chunks to all connections that take them, in turns, and the air to whoever waits first.
    fn fill(&mut self) {
        let mut went = true;
        while went {
            went = false;
            for at in 0..self.connections.len() {
                went |= self.send_one(at);
            }
        }
        while !self.air_busy
            && let Some(waiting) = self.air.pop_front()
        {
            self.on_air(&waiting);
        }
    }

    fn send_one(&mut self, at: usize) -> bool {
        let (now, left) = (self.now, self.left);
        let Some(connection) = self.connections.get_mut(at) else { return false };
        let in_flight = connection.flight.iter().filter(|packet| !packet.lost).count();
        if in_flight as f64 >= connection.window.floor() {
            return false;
        }
        let number = if let Some(lost) = connection.flight.iter_mut().find(|packet| packet.lost) {
            (lost.sent, lost.again, lost.lost) = (now, true, false);
            lost.number
        } else if left > 0 && in_flight < MOST_IN_FLIGHT {
            self.left -= 1;
            let number = connection.next;
            connection.next += 1;
            connection.flight.push_back(Packet { number, sent: now, again: false, lost: false });
            number
        } else {
            return false;
        };
        self.arm(at);
        let wireless = self.connections.get(at).is_some_and(|connection| connection.wireless.is_some());
        if !wireless {
            self.on_wire(at, number);
        } else if self.air.len() < AIR_QUEUE {
            self.air.push_back(Waiting::Data(at, number));
        }
        true
    }

    fn on_air(&mut self, waiting: &Waiting) {
        let (at, number, length) = match waiting {
            Waiting::Data(at, number) => (*at, *number, AIR_FRAME),
            Waiting::Acknowledgement(at, number) => (*at, *number, ACKNOWLEDGEMENT_FRAME),
        };
        let Some((rate, chance)) = self.connections.get(at).and_then(|one| one.wireless) else { return };
        let Some(air_rate) = RATES.get(rate).copied() else { return };
        // Bit errors are independent, so a short frame is heard with the power of its length.
        let chance = chance.powf(length.0 as f64 / AIR_FRAME.0 as f64);
        let (flavour, mut time, mut heard) = (Flavour::B, Duration::ZERO, false);
        for attempt in 0..u32::from(USUAL_ATTEMPTS) {
            time += flavour.difs() + flavour.mean_back_off(attempt) + flavour.frame_time(air_rate, length);
            heard = self.random.chance(chance);
            if heard {
                time += flavour.response_time(air_rate);
                break;
            }
            time += flavour.response_timeout(air_rate);
        }
        self.striped.air_time += time;
        self.air_busy = true;
        self.now += time;
        if heard {
            match waiting {
                Waiting::Data(..) => self.on_wire(at, number),
                Waiting::Acknowledgement(..) => self.acknowledge(at, number),
            }
        }
        self.events.insert(self.now, Happening::AirFree);
        self.now = self.now - time;
    }

    /// The home's queue to the destination: a second's worth (`[LINKALIKE]` table 1).
    fn on_wire(&mut self, at: usize, number: u32) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.free_at.since(now) > Duration::from_secs(1) {
            return;
        }
        connection.free_at = connection.free_at.max(now) + connection.uplink.rate.time_for(carried_bytes());
        let arrival = connection.free_at + connection.uplink.delay;
        self.events.insert(arrival, Happening::Arrived(at, number));
    }

    fn arrive(&mut self, at: usize, number: u32) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        if let Some(arrived) = self.arrived.get_mut(at)
            && arrived.insert(number)
        {
            self.missing -= 1;
            if let Some(carried) = self.striped.carried.get_mut(at) {
                *carried += 1;
            }
        }
        if connection.receiver.receive(number) {
            self.return_acknowledgement(at);
        } else {
            let due = self.now + ACKNOWLEDGEMENT_DELAY;
            self.events.insert(due, Happening::Delayed(at, connection.receiver.acknowledgements));
        }
    }

    fn return_acknowledgement(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        connection.receiver.unacknowledged = 0;
        connection.receiver.acknowledgements += 1;
        let back = self.now + connection.uplink.delay;
        self.events.insert(back, Happening::Returned(at, connection.receiver.last));
    }

    /// Selective acknowledgements: the source knows all that had arrived when this one was sent.
    fn acknowledge(&mut self, at: usize, number: u32) {
        let now = self.now;
        let (Some(connection), Some(arrived)) = (self.connections.get_mut(at), self.arrived.get_mut(at))
        else {
            return;
        };
        let sample = connection.flight.iter().find(|packet| packet.number == number && !packet.again);
        if let Some(packet) = sample {
            connection.sample(now.since(packet.sent).as_secs_f64());
        }
        let before = connection.flight.len();
        connection.flight.retain(|packet| packet.number > number || !arrived.contains(&packet.number));
        let newly = before - connection.flight.len();
        // Linux takes back what time-outs were doubled to as soon as something new is acknowledged; RFC 6298 section 5.7 waits for a fresh sample.
        if newly > 0 {
            connection.set_timeout();
        }
        for _ in 0..newly {
            connection.window +=
                if connection.window < connection.threshold { 1.0 } else { 1.0 / connection.window };
        }
        // RFC 6675: lost is what three later packets have overtaken.
        let mut loss = None;
        for packet in &mut connection.flight {
            if !packet.lost && !packet.again && packet.number + 3 <= number {
                packet.lost = true;
                loss = Some(packet.number);
            }
        }
        if loss.is_some_and(|number| number >= connection.recover) {
            connection.threshold = (connection.window / 2.0).max(2.0);
            connection.window = connection.threshold;
            connection.recover = connection.next;
        }
        // What was acknowledged is needed no more.
        if let Some(front) = connection.flight.front() {
            *arrived = arrived.split_off(&front.number);
        }
        self.arm(at);
    }

    fn arm(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        connection.timer += 1;
        if !connection.flight.is_empty() {
            let due = self.now + connection.timeout;
            self.events.insert(due, Happening::Timeout(at, connection.timer));
        }
    }

    fn time_out(&mut self, at: usize, timer: u64) {
        let Some(connection) = self.connections.get_mut(at).filter(|connection| connection.timer == timer)
        else {
            return;
        };
        connection.threshold = (connection.window / 2.0).max(2.0);
        connection.window = 1.0;
        connection.recover = connection.next;
        connection.timeout = (connection.timeout * 2).min(LONGEST_TIMEOUT);
        for packet in &mut connection.flight {
            packet.lost = true;
        }
        self.arm(at);
    }
}

/// Packets of one connection that may be under way: a receiver's window of 1.5 MB.
const MOST_IN_FLIGHT: usize = 1_000;

impl Receiver {
    /// A packet has come. Every second one is acknowledged at once, and each that comes behind a gap or into one (RFC 5681 section 4.2).
    fn receive(&mut self, number: u32) -> bool {
        let gap_before = !self.beyond.is_empty();
        self.last = number;
        let again = number < self.expected;
        if number > self.expected {
            self.beyond.insert(number);
        } else if number == self.expected {
            self.expected += 1;
            while self.beyond.remove(&self.expected) {
                self.expected += 1;
            }
        }
        self.unacknowledged += 1;
        self.unacknowledged >= 2 || gap_before || again || !self.beyond.is_empty()
    }
}

impl Connection {
    fn new(uplink: UplinkSpec, wireless: Option<(usize, f64)>) -> Self {
        Self {
            uplink,
            wireless,
            free_at: Timestamp::ZERO,
            window: FIRST_WINDOW,
            threshold: f64::INFINITY,
            flight: VecDeque::new(),
            next: 0,
            recover: 0,
            round_trip: None,
            timeout: Duration::from_secs(1),
            timer: 0,
            receiver: Receiver::default(),
        }
    }

    fn set_timeout(&mut self) {
        let Some((smoothed, variance)) = self.round_trip else { return };
        let timeout = smoothed + (4.0 * variance).max(LEAST_TIMEOUT.as_secs_f64());
        self.timeout = Duration::from_secs_f64(timeout).min(LONGEST_TIMEOUT);
    }

    /// RFC 6298 section 2.
    fn sample(&mut self, seconds: f64) {
        let (smoothed, variance) = match self.round_trip {
            None => (seconds, seconds / 2.0),
            Some((smoothed, variance)) => {
                (smoothed * 7.0 / 8.0 + seconds / 8.0, variance * 0.75 + (smoothed - seconds).abs() / 4.0)
            }
        };
        self.round_trip = Some((smoothed, variance));
        self.set_timeout();
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn rate(line: &str, chunks: u32) -> f64 {
        let spec = parse(line).unwrap().remove(0);
        let striped = run(&spec, chunks, None, 1);
        f64::from(chunks) / striped.took.unwrap().as_secs_f64()
    }

    fn carried(kilobits: f64) -> f64 {
        kilobits * 1_000.0 / 8.0 / carried_bytes().0 as f64
    }

    #[test]
    fn without_loss_it_fills_all_uplinks() {
        let got = rate("400/25 | 800/50 1 1 1 1 | 400/75 1 1 1 1", 8_000);
        assert!(got > 0.93 * carried(1_600.0) && got <= carried(1_600.0), "{got}");
    }

    #[test]
    fn every_second_packet_is_acknowledged() {
        let spec = parse("400/25 | 800/50 1 1 1 1 | 400/75 1 1 1 1").unwrap().remove(0);
        // Too few for a queue to overflow: gaps are told of one by one.
        let striped = run(&spec, 120, None, 1);
        let part = f64::from(striped.acknowledgements) / f64::from(striped.carried.iter().sum::<u32>());
        assert!((0.45..0.6).contains(&part), "{part}");
    }

    #[test]
    fn gaps_are_told_of_at_once() {
        let mut receiver = Receiver::default();
        let told: Vec<bool> = [0, 1, 2, 4, 5, 3, 6, 7, 7].map(|number| receiver.receive(number)).to_vec();
        assert_eq!(told, [false, true, true, true, true, true, true, true, true]);
        let mut receiver = Receiver::default();
        let told: Vec<bool> = (0..6)
            .map(|number| {
                let told = receiver.receive(number);
                if told {
                    receiver.unacknowledged = 0;
                }
                told
            })
            .collect();
        assert_eq!(told, [false, true, false, true, false, true]);
    }

    #[test]
    fn a_neighbour_with_poor_ears_brings_little() {
        let good = rate("400/25 | 1200/50 0.9 0.9 0.9 0.9", 6_000);
        let poor = rate("400/25 | 1200/50 0.25 0.2 0.15 0.1", 6_000);
        assert!(poor < 0.6 * good, "{poor} of {good}");
    }
}
