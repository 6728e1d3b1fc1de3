//! The air of an 802.11a channel in place of packets in turn: back-off, attempts and their repetition as the simulated medium has them, over links that
//! fade, each by itself.
//!
//! The access points hear each other and wait for each other, or are hidden from each other. What the device sends takes no air, as in the rest of this
//! model; its acknowledgements of single frames do. What access points hear of each other's frames plays no further part.

use std::time::Duration;

use anyhow::Context;
use radio::airtime::Flavour;
use radio::frame::{Header, Kind};
use radio::quality::{Estimate, Qualities};
use radio::scan::smoothed_signal;
use radio::{Heard, Rate, RateChoice};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sim::SeededRandom;
use sim::medium::{
    AccessCategory, Event, Frame, FrameId, Medium, Propagation, Rates, Reception, Series, StationId, Tuning,
};
use units::{Bytes, Frequency, MacAddress, Timestamp};

use super::fading::{Fading, Signal};
use super::{SEED_STEP, SharedAir, World};

/// How an access point sends to the device.
#[derive(Clone, Debug)]
pub(in super::super) struct Transmitter {
    /// Which fades it has, the same ones alone and beside others; `None`: it does not fade.
    pub fades: Option<u32>,
    /// Its signal at the device, dBm: the mean that fades go around.
    pub signal_dbm: f64,
    /// The part of its attempts that is lost, at all rates; `None`: as its signal has it.
    pub loss: Option<f64>,
    /// The rates of each frame's attempts; `None`: what carries most, found by trying.
    pub rates: Option<Series>,
}

/// The access points' transmitters, and how they stand to each other.
#[derive(Clone, Debug)]
pub(in super::super) struct Air {
    pub transmitters: Vec<Transmitter>,
    /// They do not notice each other's sending.
    pub hidden: bool,
    /// Steering is told what the device reckons from the frames that it hears, in place of what is true.
    pub estimated: bool,
}

/// So much of each access point's attempts is lost from a moment on; signals stay as they are.
#[derive(Clone, PartialEq, Debug)]
pub(in super::super) struct Losses {
    /// Since what arrives counts.
    pub at: Duration,
    pub of: Vec<f64>,
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
    pub fn run_contended(&self, air: &Air) -> anyhow::Result<Contended> {
        anyhow::ensure!(air.transmitters.len() == self.points.len(), "a transmitter for each access point");
        let mut world = World::new(self.clone())?;
        world.contention = Some(Contention::new(air, self.seed));
        world.connect()?;
        let begin = world.now + self.settling + SEED_STEP * (self.seed % 16) as u32;
        world.advance(begin)?;
        let before = world.received;
        world.contention.as_mut().context("an air")?.forget();
        world.advance(begin + self.measured)?;
        let seconds = self.measured.as_secs_f64();
        let air = world.contention.context("an air")?;
        Ok(air.counted((world.received - before) as f64 / seconds, self.measured))
    }

    /// Packets of the download that arrive in each `interval` over real contention, while losses change; `changes` by time.
    ///
    /// # Errors
    /// As [`Self::run_contended`].
    pub fn arrivals_contended(
        &self,
        air: &Air,
        changes: &[Losses],
        interval: Duration,
    ) -> anyhow::Result<Vec<u64>> {
        anyhow::ensure!(air.transmitters.len() == self.points.len(), "a transmitter for each access point");
        let mut world = World::new(self.clone())?;
        world.contention = Some(Contention::new(air, self.seed));
        world.connect()?;
        let changes: Vec<_> = changes.iter().map(|change| (change.at, change)).collect();
        world.count(interval, &changes, |world, losses| {
            if let Some(air) = &mut world.contention {
                air.lose(&losses.of);
            }
        })
    }
}

impl Air {
    /// What arrives if each access point always has frames of `length` bytes for the device, whatever becomes of them: flows without any control.
    pub fn run_uncontrolled(&self, length: usize, measured: Duration, seed: u64) -> Contended {
        let mut air = Contention::new(self, seed);
        let packet = vec![0; length];
        let end = Timestamp::ZERO + measured;
        let (mut now, mut arrived) = (Timestamp::ZERO, 0);
        while now < end {
            for index in 0..air.points.len() {
                while air.has_room(index) {
                    air.send(now, index, &packet);
                }
            }
            now = air.poll_timeout().unwrap_or(end).max(now);
            arrived += air.handle_timeout(now).len();
        }
        air.counted(arrived as f64 / measured.as_secs_f64(), measured)
    }
}

/// How a point picks the rates of a frame.
enum Sending {
    Always(Series),
    Tried(Box<RateChoice>),
}

/// The channel, with the access points' transmitters and the device.
pub(super) struct Contention {
    medium: Medium<Fading>,
    points: Vec<PointOnAir>,
    next: u64,
    arrivals: Vec<Timestamp>,
    random: ChaCha8Rng,
    /// What the device reckons of each access point; `None` if nobody asks.
    reckoned: Option<Qualities>,
}

struct PointOnAir {
    station: StationId,
    rates: Sending,
    header: Header,
    /// The last frame that the device took; it hears some of them twice.
    last: Option<FrameId>,
    /// Its signal by its beacons, dBm, smoothed as the radio does.
    beacons_dbm: Option<f32>,
    used: Duration,
    attempts: u32,
    heard: u32,
    /// Frames that are done with, and those of them that nobody acknowledged.
    frames: u32,
    given_up: u32,
}

impl Contention {
    fn new(Air { transmitters, hidden, estimated }: &Air, seed: u64) -> Self {
        let stations = (1..=transmitters.len()).map(StationId);
        let links = stations.clone().zip(transmitters).map(|(station, transmitter)| {
            let signal = Signal::new(transmitter.signal_dbm, transmitter.fades, seed);
            (station, signal.with_loss(transmitter.loss))
        });
        let links = Fading { device: DEVICE, links: links.collect(), hidden: *hidden };
        let mut medium = Medium::new(links, seed);
        let device = medium.add_station(Tuning::To(CHANNEL), AHEAD);
        medium.add_address(device, DEVICE_ADDRESS);
        let points = stations.zip(transmitters).map(|(_, transmitter)| {
            let station = medium.add_station(Tuning::To(CHANNEL), AHEAD);
            let own = point_address(station.0 - 1);
            medium.add_address(station, own);
            let mut header = Header::new(Kind::QosData, DEVICE_ADDRESS, own, own);
            header.control.from_access_point = true;
            let tried = || RateChoice::new(Flavour::A, &Rate::OFDM, Rate::OFDM[0]);
            let rates = transmitter.rates.clone();
            let rates = rates.map_or_else(|| Sending::Tried(Box::new(tried())), Sending::Always);
            PointOnAir {
                station,
                rates,
                header,
                last: None,
                beacons_dbm: None,
                used: Duration::ZERO,
                attempts: 0,
                heard: 0,
                frames: 0,
                given_up: 0,
            }
        });
        let points = points.collect();
        let reckoned = estimated.then(Qualities::default);
        let random = ChaCha8Rng::from_seed(SeededRandom::derive(seed, "rates").seed_bytes());
        Self { medium, points, next: 0, arrivals: Vec::new(), random, reckoned }
    }

    /// What was counted since the last [`Self::forget`].
    fn counted(self, arrived: f64, measured: Duration) -> Contended {
        let between = self.arrivals.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e3);
        let mut gaps_ms: Vec<f64> = between.collect();
        gaps_ms.sort_by(f64::total_cmp);
        let part = |of: fn(&PointOnAir) -> (u32, u32)| -> Vec<f64> {
            let parts = self.points.iter().map(of);
            parts.map(|(some, all)| f64::from(some) / f64::from(all.max(1))).collect()
        };
        Contended {
            arrived,
            air: self.points.iter().map(|point| point.used.as_secs_f64() / measured.as_secs_f64()).collect(),
            delivered: part(|point| (point.heard, point.attempts)),
            lost: part(|point| (point.given_up, point.frames)),
            gaps_ms,
        }
    }

    /// What the device reckons of an access point, if it is asked to.
    pub fn estimate(&self, now: Timestamp, index: usize) -> Option<Option<Estimate>> {
        Some(self.reckoned.as_ref()?.estimate(now, CHANNEL, point_address(index)))
    }

    /// A beacon of an access point, which takes no air here and is never lost; gives its signal, dBm, over the last ones.
    pub fn hear_beacon(&mut self, now: Timestamp, index: usize) -> Option<f32> {
        let point = &mut self.points[index];
        let signal_dbm = self.medium.propagation_mut().signal(now, point.station, DEVICE).map(f32::from);
        point.beacons_dbm = smoothed_signal(point.beacons_dbm, signal_dbm);
        point.beacons_dbm
    }

    /// So much of each access point's attempts is lost from now on.
    fn lose(&mut self, losses: &[f64]) {
        let links = &mut self.medium.propagation_mut().links;
        for (point, loss) in self.points.iter().zip(losses) {
            if let Some(link) = links.get_mut(&point.station) {
                link.loss = Some(*loss);
            }
        }
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
        self.medium.has_room(self.points[index].station, AccessCategory::BestEffort)
    }

    /// Hands a packet to an access point's card.
    pub fn send(&mut self, now: Timestamp, index: usize, packet: &[u8]) {
        let point = &mut self.points[index];
        let mut bytes = Vec::with_capacity(BEFORE_PACKET + packet.len() + 40);
        point.header.write(&mut bytes);
        point.header.sequence.number = (point.header.sequence.number + 1) % 4_096;
        bytes.resize(bytes.len() + BEFORE_PACKET, 0);
        bytes.extend_from_slice(packet);
        let rates = match &point.rates {
            Sending::Always(series) => series.clone(),
            Sending::Tried(choice) => series_of(choice.next(&mut self.random), choice.best()),
        };
        let frame = Frame {
            id: FrameId(self.next),
            frequency: CHANNEL,
            bytes,
            rates: Rates::Series(rates),
            wants_acknowledgement: true,
            category: AccessCategory::BestEffort,
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
                        arrived.extend(self.receive(&reception));
                    }
                    Event::Outcome(outcome) => {
                        let Some(point) = outcome.sender.0.checked_sub(1) else { continue };
                        let point = &mut self.points[point];
                        point.frames += 1;
                        point.given_up += u32::from(!outcome.acknowledged);
                        if let Sending::Tried(choice) = &mut point.rates {
                            let last = outcome.attempts.len().saturating_sub(1);
                            for (place, (rate, count)) in outcome.attempts.iter().enumerate() {
                                choice.learn(*rate, outcome.acknowledged && place == last, *count);
                            }
                        }
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

    /// What the device has of a frame: its packet, unless it had that before.
    fn receive(&mut self, reception: &Reception) -> Option<(usize, Vec<u8>)> {
        let index = reception.sender.0.checked_sub(1)?;
        let (header, body) = Header::parse(&reception.bytes).ok()?;
        if let Some(reckoned) = &mut self.reckoned {
            let heard = Heard {
                frame: &reception.bytes,
                frequency: CHANNEL,
                signal_dbm: Some(reception.signal_dbm),
                rate: Some(reception.rate),
                high_throughput: None,
                aggregate: None,
            };
            reckoned.take(reception.at, &header, &heard, |address| address == DEVICE_ADDRESS, |_| true);
        }
        let point = &mut self.points[index];
        if point.last >= Some(reception.id) {
            return None;
        }
        point.last = Some(reception.id);
        self.arrivals.push(reception.at);
        Some((index, body.get(BEFORE_PACKET..)?.to_vec()))
    }
}

/// A frame's attempts at a rate, then at the best one, then at the lowest.
fn series_of(first: Rate, best: Rate) -> Series {
    let attempts = [(first, REPEATED), (best, REPEATED), (Rate::OFDM[0], 2)];
    Series::new(&attempts).unwrap_or_else(|_| Series::steady(first, REPEATED))
}

pub(super) fn point_address(index: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, index as u8 + 1])
}

/// The first station of the medium.
const DEVICE: StationId = StationId(0);
const DEVICE_ADDRESS: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const CHANNEL: Frequency = Frequency(5_180);
/// So many attempts at 54 Mbit/s fit into the 6 ms that the kernel's Minstrel gives each rate, back-off included.
const REPEATED: u8 = 6;
/// Frames that a card takes from the access point's queue ahead of time.
const AHEAD: usize = 2;
/// LLC, IP and UDP.
const BEFORE_PACKET: usize = 8 + 20 + 8;
