//! Networks that lose, delay, reorder, copy and damage datagrams; NATs that rebind; an address that never asked for anything.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use units::Timestamp;

/// What a network does to datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub alive: bool,
    pub loss: f64,
    pub delay: Duration,
    pub jitter: Duration,
    pub copies: f64,
    pub damage: f64,
    /// Larger datagrams vanish.
    pub largest: usize,
}

impl Weather {
    pub const FAIR: Self = Self {
        alive: true,
        loss: 0.0,
        delay: Duration::from_millis(10),
        jitter: Duration::ZERO,
        copies: 0.0,
        damage: 0.0,
        largest: 1_472,
    };

    pub fn random(random: &mut ChaCha8Rng) -> Self {
        let sometimes = |random: &mut ChaCha8Rng, most: f64| {
            if random.random_bool(0.5) { 0.0 } else { random.random_range(0.0..most) }
        };
        Self {
            alive: random.random_bool(0.85),
            loss: sometimes(random, 0.4),
            delay: Duration::from_micros(random.random_range(100..200_000)),
            jitter: Duration::from_micros((sometimes(random, 100_000.0)) as u64),
            copies: sometimes(random, 0.3),
            damage: sometimes(random, 0.2),
            largest: if random.random_bool(0.8) { 1_472 } else { random.random_range(1_200..1_472) },
        }
    }
}

/// Which end a datagram goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Towards {
    Gateway,
    Device,
}

/// A datagram under way.
#[derive(Clone, Debug)]
pub struct Flight {
    pub towards: Towards,
    pub network: usize,
    /// What the gateway sees as its source.
    pub source: SocketAddr,
    pub bytes: Vec<u8>,
}

/// Everything between the two ends.
pub struct Networks {
    pub weather: Vec<Weather>,
    ports: Vec<u16>,
    wire: BTreeMap<(Timestamp, u64), Flight>,
    next: u64,
    /// A few datagrams that were seen, and when, for an attacker to use.
    seen: Vec<(Timestamp, Flight)>,
}

/// Datagrams that an attacker keeps.
const MOST_SEEN: usize = 256;
/// How long it keeps them.
const MEMORY: Duration = Duration::from_secs(60);

impl Networks {
    pub fn new(count: usize) -> Self {
        let ports = (0..count).map(|index| 4_000 + index as u16).collect();
        Self { weather: vec![Weather::FAIR; count], ports, wire: BTreeMap::new(), next: 0, seen: Vec::new() }
    }

    /// The device's address on a network, as the gateway sees it.
    pub fn public(&self, network: usize) -> SocketAddr {
        SocketAddr::from(([198, 51, 100, network as u8], self.ports[network]))
    }

    /// The network that an address leads to now, if any.
    pub fn network_of(&self, address: SocketAddr) -> Option<usize> {
        (0..self.ports.len()).find(|&network| self.public(network) == address)
    }

    pub fn rebind(&mut self, network: usize, port: u16) {
        self.ports[network] = port;
    }

    /// Takes a datagram from one end.
    pub fn carry(&mut self, now: Timestamp, random: &mut ChaCha8Rng, flight: Flight) {
        let at = random.random_range(0..MOST_SEEN);
        if self.seen.len() < MOST_SEEN {
            self.seen.push((now, flight.clone()));
        } else {
            self.seen[at] = (now, flight.clone());
        }
        let weather = self.weather[flight.network];
        let times = 1 + usize::from(random.random_bool(weather.copies));
        for _ in 0..times {
            if !weather.alive || random.random_bool(weather.loss) || flight.bytes.len() > weather.largest {
                continue;
            }
            let mut copy = flight.clone();
            if random.random_bool(weather.damage) {
                damage(random, &mut copy.bytes);
            }
            let delay = weather.delay + weather.jitter.mul_f64(random.random::<f64>());
            self.put(now + delay, copy);
        }
    }

    /// Puts a datagram on the wire as it is.
    pub fn put(&mut self, at: Timestamp, flight: Flight) {
        self.next += 1;
        self.wire.insert((at, self.next), flight);
    }

    /// One of the datagrams of the last minute. Flows idle for two are forgotten, and with them what has arrived.
    pub fn recall(&self, now: Timestamp, random: &mut ChaCha8Rng) -> Option<Flight> {
        let fresh: Vec<&Flight> =
            self.seen.iter().filter(|(at, _)| now.since(*at) < MEMORY).map(|(_, flight)| flight).collect();
        (!fresh.is_empty()).then(|| fresh[random.random_range(0..fresh.len())].clone())
    }

    pub fn next_arrival(&self) -> Option<Timestamp> {
        self.wire.keys().next().map(|(at, _)| *at)
    }

    pub fn take_arrival(&mut self, now: Timestamp) -> Option<Flight> {
        let (&key, _) = self.wire.iter().next()?;
        if key.0 > now { None } else { self.wire.remove(&key) }
    }
}

/// Flips bits, cuts, or appends.
pub fn damage(random: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    match random.random_range(0..4) {
        0 => bytes.truncate(random.random_range(0..=bytes.len())),
        1 => bytes.extend((0..random.random_range(1..30)).map(|_| random.random::<u8>())),
        _ => {
            for _ in 0..random.random_range(1..4) {
                if !bytes.is_empty() {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] ^= 1 << random.random_range(0..8);
                }
            }
        }
    }
}
