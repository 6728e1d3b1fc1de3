//! The air of an 802.11a channel in place of packets in turn: back-off, attempts and their repetition as the simulated medium has them, over links that
//! fade, each by itself.
//!
//! All access points hear each other and wait for each other. What the device sends takes no air, as in the rest of this model; its
//! acknowledgements of single frames do. What access points hear of each other's frames plays no part.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use radio::airtime::Flavour;
use radio::frame::{Header, Kind};
use sim::SeededRandom;
use sim::medium::{
    Event, Frame, FrameId, Link, Links, Medium, Passage, Propagation, Rates, Series, SignalLoss, StationId,
    Tuning,
};
use units::{Bytes, Frequency, MacAddress, Timestamp};

use super::{SEED_STEP, SharedAir, World};

/// How an access point sends to the device.
#[derive(Clone, Debug)]
pub(in super::super) struct Transmitter {
    /// Which fades it has: the same ones alone and beside others.
    pub fades: u32,
    /// Its signal at the device, dBm: the mean that fades go around.
    pub signal_dbm: f64,
    /// The rates of each frame's attempts.
    pub rates: Series,
}

/// What a run gave.
#[derive(Clone, PartialEq, Debug)]
pub(in super::super) struct Contended {
    /// Packets of the download that arrived in a second.
    pub arrived: f64,
    /// The part of the time that each access point's attempts took: silence before, frame, answer.
    pub air: Vec<f64>,
    /// The part of each access point's attempts that the device could read; 0 without any.
    pub delivered: Vec<f64>,
    /// The part of each access point's frames that were given up after all attempts; 0 without any.
    pub lost: Vec<f64>,
    /// Between one frame from any access point and the next, ms, in order of size.
    pub gaps_ms: Vec<f64>,
}

impl SharedAir {
    /// The download over real contention. Packet times of `points` are what steering is told, weights have no meaning here.
    ///
    /// # Errors
    /// If there is not a transmitter for each access point, or the two ends do not come together.
    pub fn run_contended(&self, transmitters: &[Transmitter]) -> anyhow::Result<Contended> {
        anyhow::ensure!(transmitters.len() == self.points.len(), "a transmitter for each access point");
        let mut world = World::new(self.clone())?;
        world.contention = Some(Contention::new(transmitters, self.seed));
        world.connect()?;
        let begin = world.now + self.settling + SEED_STEP * (self.seed % 16) as u32;
        world.advance(begin)?;
        let before = world.received;
        world.contention.as_mut().context("an air")?.forget();
        world.advance(begin + self.measured)?;
        let seconds = self.measured.as_secs_f64();
        let air = world.contention.context("an air")?;
        let arrivals = air.arrivals.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e3);
        let mut gaps_ms: Vec<f64> = arrivals.collect();
        gaps_ms.sort_by(f64::total_cmp);
        Ok(Contended {
            arrived: (world.received - before) as f64 / seconds,
            air: air.points.iter().map(|point| point.used.as_secs_f64() / seconds).collect(),
            delivered: air
                .points
                .iter()
                .map(|point| f64::from(point.heard) / f64::from(point.attempts.max(1)))
                .collect(),
            lost: air
                .points
                .iter()
                .map(|point| f64::from(point.given_up) / f64::from(point.frames.max(1)))
                .collect(),
            gaps_ms,
        })
    }
}

/// The channel, with the access points' transmitters and the device.
pub(super) struct Contention {
    medium: Medium<Fading>,
    points: Vec<PointOnAir>,
    next: u64,
    arrivals: Vec<Timestamp>,
}

struct PointOnAir {
    station: StationId,
    rates: Series,
    /// Header of a frame and of what is before a packet of the tunnel in it.
    head: Vec<u8>,
    /// The last frame that the device took; it hears some of them twice.
    last: Option<FrameId>,
    used: Duration,
    attempts: u32,
    heard: u32,
    /// Frames that are done with, and those of them that nobody acknowledged.
    frames: u32,
    given_up: u32,
}

impl Contention {
    fn new(transmitters: &[Transmitter], seed: u64) -> Self {
        let stations = (1..=transmitters.len()).map(StationId);
        let links = stations.clone().zip(transmitters).map(|(station, transmitter)| {
            let random = SeededRandom::derive(seed, &format!("fades {}", transmitter.fades));
            (station, Fade { mean_dbm: transmitter.signal_dbm, random, drawn: 0, gain_db: 0.0 })
        });
        let mut medium = Medium::new(Fading { links: links.collect() }, seed);
        let device = medium.add_station(Tuning::To(CHANNEL), AHEAD);
        medium.add_address(device, DEVICE_ADDRESS);
        let points = stations.zip(transmitters).map(|(_, transmitter)| {
            let station = medium.add_station(Tuning::To(CHANNEL), AHEAD);
            let own = MacAddress([2, 0, 0, 0, 1, station.0 as u8]);
            medium.add_address(station, own);
            let mut header = Header::new(Kind::QosData, DEVICE_ADDRESS, own, own);
            header.control.from_access_point = true;
            let mut head = Vec::new();
            header.write(&mut head);
            head.resize(head.len() + BEFORE_PACKET, 0);
            let rates = transmitter.rates.clone();
            PointOnAir {
                station,
                rates,
                head,
                last: None,
                used: Duration::ZERO,
                attempts: 0,
                heard: 0,
                frames: 0,
                given_up: 0,
            }
        });
        let points = points.collect();
        Self { medium, points, next: 0, arrivals: Vec::new() }
    }

    /// What was until now does not count.
    fn forget(&mut self) {
        self.arrivals.clear();
        for point in &mut self.points {
            (point.used, point.attempts, point.heard) = (Duration::ZERO, 0, 0);
            (point.frames, point.given_up) = (0, 0);
        }
    }

    /// Whether an access point's card takes another frame.
    pub fn has_room(&self, index: usize) -> bool {
        self.medium.has_room(self.points[index].station)
    }

    /// Hands a packet to an access point's card.
    pub fn send(&mut self, now: Timestamp, index: usize, packet: &[u8]) {
        let point = &self.points[index];
        let frame = Frame {
            id: FrameId(self.next),
            frequency: CHANNEL,
            bytes: [&point.head, packet].concat(),
            rates: Rates::Series(point.rates.clone()),
            wants_acknowledgement: true,
        };
        self.next += 1;
        // Who asked for room before is not refused.
        let _ = self.medium.transmit(now, point.station, frame);
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.medium.poll_timeout()
    }

    /// What was due. Gives the packets that the device has now, each with its access point.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Vec<(usize, Vec<u8>)> {
        let mut arrived = Vec::new();
        loop {
            while let Some(event) = self.medium.poll_event() {
                match event {
                    Event::Attempt(attempt) => {
                        let Some(point) = attempt.sender.0.checked_sub(1) else { continue };
                        let point = &mut self.points[point];
                        let length = Bytes(attempt.bytes.len() as u64 + radio::airtime::CHECK_SEQUENCE.0);
                        point.used += Flavour::A.exchange_time(attempt.rate, length);
                        point.attempts += 1;
                        point.heard += u32::from(attempt.heard);
                    }
                    Event::Reception(reception) if reception.station == DEVICE => {
                        let Some(index) = reception.sender.0.checked_sub(1) else { continue };
                        let point = &mut self.points[index];
                        if point.last < Some(reception.id) {
                            point.last = Some(reception.id);
                            self.arrivals.push(reception.at);
                            arrived.push((index, reception.bytes[point.head.len()..].to_vec()));
                        }
                    }
                    Event::Outcome(outcome) => {
                        let Some(point) = outcome.sender.0.checked_sub(1) else { continue };
                        self.points[point].frames += 1;
                        self.points[point].given_up += u32::from(!outcome.acknowledged);
                    }
                    Event::Reception(_) => {}
                }
            }
            if self.medium.poll_timeout().is_none_or(|at| at > now) {
                return arrived;
            }
            self.medium.handle_timeout(now);
        }
    }
}

/// Links between the device and each access point.
struct Fading {
    links: BTreeMap<StationId, Fade>,
}

/// A signal that fades as one without a direct way (Rayleigh), drawn anew after each coherence time.
struct Fade {
    mean_dbm: f64,
    random: SeededRandom,
    /// How many were drawn.
    drawn: u128,
    gain_db: f64,
}

impl Fade {
    fn signal_dbm(&mut self, at: Timestamp) -> i8 {
        let block = at.since(Timestamp::ZERO).as_millis() / COHERENCE.as_millis();
        while self.drawn <= block {
            self.drawn += 1;
            self.gain_db = fade_db(self.random.unit());
        }
        (self.mean_dbm + self.gain_db).round().clamp(-127.0, 0.0) as i8
    }
}

/// A fade in dB, of which so many parts of one are deeper: the power of a Rayleigh link is distributed exponentially around its mean.
pub(in super::super) fn fade_db(deeper: f64) -> f64 {
    let power = -f64::ln_1p(-deeper.clamp(1e-6, 1.0 - 1e-6));
    10.0 * power.log10()
}

impl Propagation for Fading {
    fn signal(&mut self, at: Timestamp, from: StationId, to: StationId) -> Option<i8> {
        let point = match (from, to) {
            (point, DEVICE) | (DEVICE, point) => point,
            _ => return None,
        };
        Some(self.links.get_mut(&point)?.signal_dbm(at))
    }

    fn loss(&mut self, at: Timestamp, passage: &Passage) -> f64 {
        let signal_dbm = self.signal(at, passage.from, passage.to);
        loss(signal_dbm, at, passage)
    }
}

/// The chance that what arrives with so much signal cannot be read.
pub(in super::super) fn loss(signal_dbm: Option<i8>, at: Timestamp, passage: &Passage) -> f64 {
    Links::new(Link { signal_dbm, loss: SignalLoss::BySignal, ..Link::default() }).loss(at, passage)
}

/// The first station of the medium.
const DEVICE: StationId = StationId(0);
const DEVICE_ADDRESS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const CHANNEL: Frequency = Frequency(5_180);
/// Frames that a card takes from the access point's queue ahead of time.
const AHEAD: usize = 2;
/// LLC, IP and UDP.
const BEFORE_PACKET: usize = 8 + 20 + 8;
/// How long a fade lasts: 0.423 of the inverse of a Doppler spread of 6 Hz, which is that of the surroundings of somebody who sits still, at 5 GHz
/// (IEEE 802.11-03/940r4 section 4.7).
const COHERENCE: Duration = Duration::from_millis(70);
