//! One pass along the street, or some time in it at rest, and what came of it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use radio::airtime::Flavour;
use radio::frame::data::Packet;
use radio::frame::{Header, Kind};
use radio::slots::SlotSettings;
use radio::{
    Event as Change, Heard, NetworkSettings, PermittedChannel, Station, StationSettings, Succession,
};
use radio::{Rate, Waking};
use rand::SeedableRng;
use rand::rngs::StdRng;
use sim::medium::{AccessCategory, Event, Frame, FrameId, Medium, Rates, Series, StationId, Tuning};
use units::{Bytes, Frequency, MacAddress, NetworkId, Ssid, Timestamp};

use super::road::{AccessPoint, DEVICE, ETHERTYPE, Most, PAYLOAD, Road, Word, is_in_range, outcome};
use super::steered::Steered;

/// What our own client waits for an answer of who lends addresses (`daemon/src/radio/lease`).
const LEASE_AGAIN: Duration = Duration::from_millis(500);
/// The same for an answer of a router of last time; the first two times it is sooner.
const ROUTER_AGAIN: Duration = Duration::from_millis(200);
/// The device asks for more so often, over all networks.
const FETCH_AGAIN: Duration = Duration::from_millis(100);
/// Of the card, as JUGGLER/table1-switch measured of a real one.
const CHANNEL_SET: Duration = Duration::from_millis(3);
/// How often the device's place is looked at for what would be possible.
const LOOK: Duration = Duration::from_millis(20);
const AHEAD: usize = 16;
/// The least step of time.
const STEP: Duration = Duration::from_micros(20);

/// What is remembered of earlier passes.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    /// Which access point came after which.
    pub succession: Succession,
    /// What each network lent is still good, and used as soon as its router has answered.
    pub lease: bool,
}

/// A pass.
pub(crate) struct Pass {
    /// Metres of each access point along the road, its name and its channel.
    pub points: Vec<(f64, Vec<u8>, Frequency)>,
    /// Channels of the card.
    pub channels: Vec<Frequency>,
    pub metres_per_second: f64,
    /// What walls take of each signal, dB.
    pub walls_db: f64,
    /// How long who lends addresses thinks before it offers one.
    pub offer_time: Duration,
    pub time: Duration,
    /// Time between packets of each access point, which is what its uplink gives; `None`: as many as the air takes.
    pub spacing: Vec<Option<Duration>>,
    /// How the radio takes turns.
    pub slots: SlotSettings,
    /// Access points hear each other, so that they wait for each other.
    pub carrier_sense: bool,
    /// Data comes by those access points that are worth their air, as the radio's daemon has it; else by all.
    pub steered: bool,
    /// `None`: the device never has to join and is on the channel of the nearest access point.
    pub memory: Option<Memory>,
    /// What came before is not counted.
    pub counted_from: Timestamp,
    pub seed: u64,
}

/// What came of it at one access point.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Service {
    /// When it came into range and went out of it.
    pub in_range: Option<(Timestamp, Timestamp)>,
    /// Its first and its last packet.
    pub packets: Option<(Timestamp, Timestamp)>,
    pub bytes: Bytes,
}

/// What came of a pass.
#[derive(Default)]
pub(crate) struct Passed {
    pub services: Vec<Service>,
    pub succession: Succession,
    /// Changes of channel and what they took in all, our part and the card's.
    pub switches: u32,
    pub switching: Duration,
    /// Air time of all that the device sent, with all attempts, and of acknowledgements to it.
    pub sent: (Duration, Bytes),
    /// Of all that it received and that was for it.
    pub received: (Duration, Bytes),
}

/// Goes along the road.
pub(crate) fn go(pass: &Pass) -> anyhow::Result<Passed> {
    Drive::new(pass)?.run()
}

struct Drive<'a> {
    pass: &'a Pass,
    now: Timestamp,
    medium: Medium<Road>,
    device: StationId,
    points: Vec<AccessPoint>,
    station: Option<Station>,
    tuning: Option<(Timestamp, Frequency)>,
    on_air: HashMap<u64, Vec<u8>>,
    ids: u64,
    clients: BTreeMap<NetworkId, Client>,
    steered: Option<Steered>,
    next_look: Timestamp,
    /// To whose channel the card went, if it never has to join.
    nearest: Option<StationId>,
    last_numbers: Vec<Option<u16>>,
    passed: Passed,
}

/// The device's side of the download in one network.
#[derive(Default)]
struct Client {
    /// What to say next, and when; `None` while the network is down.
    next: Option<(Timestamp, Word)>,
    /// No more packets a second than these are wished.
    most: Most,
    /// That nothing is wished was said.
    told_nothing: bool,
}

impl Client {
    /// Other access points are to bring more or less of the download than until now.
    fn wish(&mut self, now: Timestamp, most: Most) {
        let is_other = (most == Most::NOTHING) != (self.most == Most::NOTHING);
        self.most = most;
        if is_other && self.says(Word::Fetch) {
            self.next = Some((now, Word::Fetch));
        }
    }

    /// Once for all that nothing is wished, else again and again what is.
    fn has_something_to_say(&mut self) -> bool {
        !std::mem::replace(&mut self.told_nothing, self.most == Most::NOTHING) || self.most != Most::NOTHING
    }

    fn says(&self, word: Word) -> bool {
        self.next.is_some_and(|(_, next)| next == word)
    }
}

impl<'a> Drive<'a> {
    fn new(pass: &'a Pass) -> anyhow::Result<Self> {
        let road = Road {
            device: StationId(0),
            places: BTreeMap::new(),
            metres_per_second: pass.metres_per_second,
            walls_db: pass.walls_db,
            carrier_sense: pass.carrier_sense,
        };
        let mut medium = Medium::new(road, pass.seed);
        let device = medium.add_station(Tuning::Off, AHEAD);
        medium.add_address(device, DEVICE);
        let mut points = Vec::new();
        for (number, (place, name, frequency)) in (1..).zip(&pass.points) {
            let station = medium.add_station(Tuning::To(*frequency), 128);
            let mut point = AccessPoint::new(station, number, name, *frequency);
            medium.add_address(station, point.bssid);
            medium.propagation_mut().places.insert(station, *place);
            point.spacing = pass.spacing.get(points.len()).copied().flatten();
            point.offer_time = pass.offer_time;
            points.push(point);
        }
        let passed = Passed { services: vec![Service::default(); points.len()], ..Passed::default() };
        let mut drive = Self {
            pass,
            now: Timestamp::ZERO,
            medium,
            device,
            points,
            station: None,
            tuning: None,
            on_air: HashMap::new(),
            ids: 0,
            clients: BTreeMap::new(),
            steered: pass.steered.then(Steered::default),
            next_look: Timestamp::ZERO,
            nearest: None,
            last_numbers: vec![None; pass.points.len()],
            passed,
        };
        if let Some(memory) = &pass.memory {
            drive.station = Some(drive.join(memory)?);
        }
        Ok(drive)
    }

    /// The radio with all networks of the road.
    fn join(&mut self, memory: &Memory) -> anyhow::Result<Station> {
        let permitted = |frequency: &Frequency| PermittedChannel { frequency: *frequency, active: true };
        let settings = StationSettings {
            address: DEVICE,
            further: Vec::new(),
            channels: self.pass.channels.iter().map(permitted).collect(),
            slots: self.pass.slots,
            scan_weight: 0,
        };
        let mut station = Station::new(settings, StdRng::seed_from_u64(self.pass.seed));
        let mut names: Vec<&[u8]> = self.pass.points.iter().map(|(_, name, _)| name.as_slice()).collect();
        names.dedup();
        for (number, name) in (1..).zip(names) {
            let settings = NetworkSettings {
                ssid: Ssid::new(name).ok_or_else(|| anyhow::anyhow!("no name of a network"))?,
                passphrase: None,
                bssid: None,
                avoided: Vec::new(),
                hidden: false,
                weight: 1,
                waking: Waking::Measured,
                group: None,
            };
            let id = NetworkId(number);
            station.add_network(self.now, id, settings);
            let mut succession = memory.succession.clone();
            succession.begin();
            station.set_succession(id, succession);
            self.clients.insert(id, Client::default());
        }
        Ok(station)
    }

    fn run(mut self) -> anyhow::Result<Passed> {
        let end = Timestamp::ZERO + self.pass.time;
        while self.now < end {
            self.look();
            for point in &mut self.points {
                point.work(self.now, &mut self.medium, &mut self.ids);
            }
            self.drive_station();
            if self.medium.poll_timeout().is_some_and(|due| due <= self.now) {
                self.medium.handle_timeout(self.now);
            }
            while let Some(event) = self.medium.poll_event() {
                self.take(event);
            }
            self.drive_station();
            self.now = self.next();
        }
        if let Some(succession) = self.station.as_ref().and_then(|station| station.succession(NetworkId(1))) {
            self.passed.succession = succession.clone();
        }
        Ok(self.passed)
    }

    fn next(&self) -> Timestamp {
        let points = self.points.iter().map(AccessPoint::timeout);
        let station = self.station.as_ref().and_then(|station| station.poll_timeout(self.now));
        let clients = self.clients.values().filter_map(|client| Some(client.next?.0));
        let steered = self.steered.as_ref().map(Steered::due);
        let others = points.chain(station).chain(steered).chain(clients).chain(self.tuning.map(|(at, _)| at));
        let least = self.now + STEP;
        let others = others.chain([self.next_look]).map(|at| at.max(least));
        let medium = self.medium.poll_timeout().map(|at| at.max(self.now));
        others.chain(medium).min().unwrap_or(least)
    }

    /// Where the device is, and what would be possible there.
    fn look(&mut self) {
        if self.now < self.next_look {
            return;
        }
        self.next_look = self.now + LOOK;
        let now = self.now;
        let road = self.medium.propagation_mut();
        let signals: Vec<f64> = self.points.iter().map(|point| road.signal_dbm(now, point.station)).collect();
        for (service, signal) in self.passed.services.iter_mut().zip(&signals) {
            if is_in_range(*signal) {
                let begun = service.in_range.map_or(now, |(begun, _)| begun);
                service.in_range = Some((begun, now));
            }
        }
        if self.station.is_none()
            && let Some((_, best)) =
                signals.iter().zip(&self.points).max_by(|one, other| one.0.total_cmp(other.0))
        {
            let (station, frequency) = (best.station, best.frequency);
            self.points.iter_mut().for_each(|point| point.serve_always(point.station == station));
            if self.nearest != Some(station) {
                self.nearest = Some(station);
                self.medium.retune(now, self.device, Tuning::To(frequency));
            }
        }
    }

    fn drive_station(&mut self) {
        let now = self.now;
        // As many questions in all, however many networks.
        let fetch_again = FETCH_AGAIN * self.clients.len() as u32;
        let Some(station) = &mut self.station else { return };
        if station.poll_timeout(now).is_some_and(|due| due <= now) {
            station.handle_timeout(now);
        }
        if let Some(steered) = self.steered.as_mut().filter(|steered| steered.due() <= now) {
            for (id, most) in steered.decide(now, station) {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.wish(now, most);
                }
            }
        }
        for (id, client) in &mut self.clients {
            if let Some((at, word)) = client.next.filter(|(at, _)| *at <= now) {
                if word == Word::Fetch && !client.has_something_to_say() {
                    client.next = Some((at + fetch_again, word));
                    continue;
                }
                let payload = word.payload(client.most);
                // It goes to whatever lends addresses and has the bytes, past the access point.
                let to = MacAddress([2, 0, 0, 0, 3, 1]);
                let packet =
                    Packet { destination: to, source: DEVICE, ethernet_type: ETHERTYPE, payload: &payload };
                station.handle_packet(now, *id, &packet.to_ethernet());
                let again = match word {
                    Word::Fetch => fetch_again,
                    Word::Ask => ROUTER_AGAIN,
                    _ => LEASE_AGAIN,
                };
                client.next = Some((at + again, word));
            }
        }
        if let Some((_, frequency)) = self.tuning.filter(|(at, _)| *at <= now) {
            self.tuning = None;
            self.medium.retune(now, self.device, Tuning::To(frequency));
            station.handle_tuned(now, frequency);
        }
        if let Some(frequency) = station.poll_tune() {
            self.medium.retune(now, self.device, Tuning::Off);
            self.tuning = Some((now + CHANNEL_SET, frequency));
        }
        while self.medium.has_room(self.device, AccessCategory::BestEffort)
            && let Some(sent) = station.poll_transmit(now)
        {
            let Some(frequency) = station.present_channel() else { break };
            self.ids += 1;
            let group = sent.frame.get(4).is_some_and(|first| first & 1 == 1);
            let frame = Frame {
                id: FrameId(self.ids),
                frequency,
                bytes: sent.frame.clone(),
                rates: Rates::Series(Series::steady(sent.rate, sent.attempts)),
                wants_acknowledgement: !group,
                category: AccessCategory::BestEffort,
            };
            if self.medium.transmit(now, self.device, frame).is_ok() {
                self.on_air.insert(self.ids, sent.frame);
            }
        }
        while let Some(switch) = station.poll_switch() {
            if switch.begun >= self.pass.counted_from {
                self.passed.switches += 1;
                self.passed.switching += switch.tuned.since(switch.begun);
            }
        }
        while let Some(event) = station.poll_event() {
            let lease = self.pass.memory.as_ref().is_some_and(|memory| memory.lease);
            let first = if lease { Word::Ask } else { Word::Discover };
            match event {
                Change::Up { network, .. } => {
                    self.clients.entry(network).or_default().next = Some((now, first));
                }
                Change::Down { network, .. } => self.clients.entry(network).or_default().next = None,
                Change::Trouble { .. } => {}
            }
        }
        while let Some((id, packet)) = station.poll_packet() {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let Ok(packet) = Packet::from_ethernet(&packet) else { continue };
            match packet.payload.first().and_then(|byte| Word::of(*byte)) {
                Some(Word::Offer) if client.says(Word::Discover) => {
                    client.next = Some((now, Word::Request));
                }
                Some(Word::There) if client.says(Word::Ask) => client.next = Some((now, Word::Fetch)),
                Some(Word::Lent) if client.says(Word::Request) => client.next = Some((now, Word::Fetch)),
                _ => {}
            }
        }
    }

    fn take(&mut self, event: Event) {
        let counted = self.now >= self.pass.counted_from;
        match event {
            Event::Reception(heard) if heard.station == self.device => {
                self.count_packet(heard.at, &heard.bytes);
                let Some(station) = &mut self.station else { return };
                let frame = Heard {
                    frame: &heard.bytes,
                    frequency: heard.frequency,
                    signal_dbm: Some(heard.signal_dbm),
                    rate: Some(heard.rate),
                    high_throughput: None,
                    aggregate: None,
                };
                station.handle_frame(heard.at, &frame);
            }
            Event::Reception(heard) => {
                let at = self.points.iter_mut().find(|point| point.station == heard.station);
                if let Some(point) = at.filter(|_| heard.sender == self.device) {
                    point.hear(heard.at, &mut self.medium, &mut self.ids, &heard.bytes);
                }
            }
            Event::Attempt(attempt) if counted => {
                let length = Bytes(attempt.bytes.len() as u64 + radio::airtime::CHECK_SEQUENCE.0);
                let (on_air, answer) = air(attempt.frequency, attempt.rate, length);
                let to_group = attempt.bytes.get(4).is_some_and(|first| first & 1 == 1);
                let to_device = attempt.bytes.get(4..10) == Some(&DEVICE.0);
                let (sent, received) = (&mut self.passed.sent, &mut self.passed.received);
                let (to, from) =
                    if attempt.sender == self.device { (sent, received) } else { (received, sent) };
                let ours = attempt.sender == self.device || to_device && attempt.heard;
                if ours {
                    (to.0, to.1) = (to.0 + on_air, Bytes(to.1.0 + length.0));
                    if !to_group && attempt.heard {
                        (from.0, from.1) = (from.0 + answer, Bytes(from.1.0 + ACKNOWLEDGEMENT.0));
                    }
                }
            }
            Event::Attempt(_) => {}
            Event::Outcome(told) if told.sender == self.device => {
                let Some(frame) = self.on_air.remove(&told.id.0) else { return };
                if let Some(station) = &mut self.station {
                    station.handle_outcome(told.at, &outcome(&frame, &told));
                }
            }
            Event::Outcome(_) => {}
        }
    }

    /// A packet of the download, if it is one.
    fn count_packet(&mut self, at: Timestamp, frame: &[u8]) {
        let Ok((header, _)) = Header::parse(frame) else { return };
        let data = header.control.kind == Kind::Data && header.receiver == DEVICE && frame.len() > PAYLOAD;
        let point = self.points.iter().position(|point| point.bssid == header.transmitter);
        let Some(point) = point.filter(|_| data) else { return };
        // The same again is one whose acknowledgement was lost.
        if self.last_numbers[point].replace(header.sequence.number) != Some(header.sequence.number) {
            if at < self.pass.counted_from {
                return;
            }
            let service = &mut self.passed.services[point];
            let first = service.packets.map_or(at, |(first, _)| first);
            service.packets = Some((first, at));
            service.bytes.0 += PAYLOAD as u64;
        }
    }
}

const ACKNOWLEDGEMENT: Bytes = Bytes(14);

/// Time of a frame on the air, and of its acknowledgement.
fn air(frequency: Frequency, rate: Rate, length: Bytes) -> (Duration, Duration) {
    let flavour = Flavour::of(frequency);
    (flavour.frame_time(rate, length), flavour.acknowledgement_time(rate))
}
