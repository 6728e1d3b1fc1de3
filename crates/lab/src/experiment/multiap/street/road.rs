//! A road with access points beside it and a device on it, by their signals, and what the access points do.
//!
//! Access points are open, answer at once, keep frames for who sleeps, and lend addresses; behind them is a server that has always something to
//! send to who asked within the last second.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use radio::frame::data::Packet;
use radio::frame::{FrameControl, Header, Kind, write_element};
use radio::{Outcome, Rate};
use sim::medium::{
    AccessCategory, Frame, FrameId, Medium, Passage, PassageKind, Propagation, Rates, Series, StationId,
    error_rate,
};
use units::{Frequency, MacAddress, Timestamp};

pub(crate) const DEVICE: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
pub(crate) const INTERVAL: Duration = Duration::from_micros(102_400);
/// From an access point to what lends addresses and what has the bytes, and back.
pub(crate) const WIRE: Duration = Duration::from_millis(20);
/// Bytes of a packet of the download.
pub(crate) const PAYLOAD: usize = 1_460;
/// What an access point sends with, and what is left of it after a metre at 2.4 GHz in the open; then so many times the decades, which is a street
/// with houses.
const POWER_DBM: f64 = 20.0;
const FIRST_METRE_DB: f64 = 40.0;
const EXPONENT: f64 = 3.5;
/// Metres from the road to each access point.
const BESIDE: f64 = 15.0;
/// Below this nothing is heard, not even at 1 Mbit/s.
const LEAST_DBM: f64 = -100.0;
/// Of access points to each other, where they hear each other.
const SENSED_DBM: f64 = -60.0;
/// The signal at which 1 Mbit/s just works for common cards, as in [`error_rate`]: within it the device counts as in range.
const RANGE_DBM: f64 = -94.0;
/// A packet type for experiments (IEEE Std 802, local experimental Ethertype 1).
pub(crate) const ETHERTYPE: u16 = 0x88b5;
/// Who did not ask for so long gets no more.
const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// Frames that wait in an access point's card, and that it keeps for who sleeps.
const AHEAD: usize = 8;
const KEPT: usize = 64;

/// What a packet of the model says, in its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Discover = 1,
    Offer,
    Request,
    Lent,
    Fetch,
    Data,
    /// Whether the router of last time is there ...
    Ask,
    /// ... and that it is.
    There,
}

impl Word {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        let lending = [Self::Discover, Self::Offer, Self::Request, Self::Lent];
        let others = [Self::Fetch, Self::Data, Self::Ask, Self::There];
        lending.into_iter().chain(others).find(|word| *word as u8 == byte)
    }

    /// As the body of an Ethernet frame.
    pub(crate) fn payload(self, most: Most) -> Vec<u8> {
        let length = match self {
            Self::Data => PAYLOAD,
            // RFC 826.
            Self::Ask | Self::There => 28,
            _ => 300,
        };
        let mut payload = vec![0; length];
        payload[0] = self as u8;
        payload[1..5].copy_from_slice(&most.0.to_be_bytes());
        payload
    }
}

/// Who fetches wishes no more packets a second than these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Most(pub u32);

impl Most {
    /// As many as the air and the uplink take.
    pub(crate) const ALL: Self = Self(u32::MAX);
    pub(crate) const NOTHING: Self = Self(0);

    fn of(payload: &[u8]) -> Option<Self> {
        Some(Self(u32::from_be_bytes(payload.get(1..5)?.try_into().ok()?)))
    }

    /// Time between packets; `None`: none is held back.
    fn spacing(self) -> Option<Duration> {
        (self != Self::ALL).then(|| Duration::from_secs(1) / self.0.max(1))
    }
}

impl Default for Most {
    fn default() -> Self {
        Self::ALL
    }
}

/// Signals by where the device is.
pub(crate) struct Road {
    pub device: StationId,
    /// Where each access point is, in metres along the road.
    pub places: BTreeMap<StationId, f64>,
    pub metres_per_second: f64,
    /// What walls take of each signal.
    pub walls_db: f64,
    /// Access points hear each other.
    pub carrier_sense: bool,
}

impl Road {
    /// Signal of an access point at the device, dBm.
    pub(crate) fn signal_dbm(&self, at: Timestamp, point: StationId) -> f64 {
        let place = self.places.get(&point).copied().unwrap_or(f64::INFINITY);
        let along = place - self.metres_per_second * at.as_secs_f64();
        POWER_DBM - FIRST_METRE_DB - self.walls_db - 10.0 * EXPONENT * along.hypot(BESIDE).log10()
    }

    fn between(&self, at: Timestamp, from: StationId, to: StationId) -> Option<f64> {
        let with_device = from == self.device || to == self.device;
        let signal = if with_device {
            self.signal_dbm(at, if from == self.device { to } else { from })
        } else {
            // All are near enough to each other to wait for each other, and nothing is to be read there.
            SENSED_DBM
        };
        Some(signal).filter(|signal| (with_device || self.carrier_sense) && *signal > LEAST_DBM)
    }
}

impl Propagation for Road {
    fn signal(&mut self, at: Timestamp, from: StationId, to: StationId) -> Option<i8> {
        self.between(at, from, to).map(|signal| signal.round() as i8)
    }

    fn loss(&mut self, at: Timestamp, passage: &Passage) -> f64 {
        let signal = self.between(at, passage.from, passage.to).unwrap_or(f64::NEG_INFINITY);
        match passage.kind {
            PassageKind::Frame | PassageKind::Acknowledgement => {
                error_rate(passage.rate, passage.length, signal)
            }
        }
    }
}

/// Whether 1 Mbit/s works with this signal.
pub(crate) fn is_in_range(signal_dbm: f64) -> bool {
    signal_dbm >= RANGE_DBM
}

/// An access point and what is behind it.
pub(crate) struct AccessPoint {
    pub station: StationId,
    pub bssid: MacAddress,
    pub name: Vec<u8>,
    pub frequency: Frequency,
    pub next_beacon: Timestamp,
    /// Time between packets of the download; as many as fit if `None`.
    pub spacing: Option<Duration>,
    /// How long who lends addresses thinks before it offers one.
    pub offer_time: Duration,
    next_packet: Timestamp,
    beacons: u8,
    sequence: u16,
    associated: bool,
    asleep: bool,
    kept: VecDeque<Word>,
    asked: Option<Timestamp>,
    /// How much was asked for.
    most: Most,
    /// Answers on their way over the wire, and how much was asked for.
    behind: VecDeque<(Timestamp, Word, Most)>,
}

impl AccessPoint {
    pub(crate) fn new(station: StationId, number: u8, name: &[u8], frequency: Frequency) -> Self {
        Self {
            station,
            bssid: MacAddress([2, 0, 0, 0, 1, number]),
            name: name.to_vec(),
            frequency,
            next_beacon: Timestamp::from_millis(37 * u64::from(number)),
            spacing: None,
            offer_time: Duration::ZERO,
            next_packet: Timestamp::ZERO,
            beacons: 0,
            sequence: 0,
            associated: false,
            asleep: false,
            kept: VecDeque::new(),
            asked: None,
            most: Most::ALL,
            behind: VecDeque::new(),
        }
    }

    /// The device is known to it without a word and always asks, or is not there: what it would get that never had to join.
    pub(crate) fn serve_always(&mut self, here: bool) {
        self.associated = here;
        self.asked = here.then_some(Timestamp::FAR_FUTURE);
    }

    /// When something is due that nobody on the air causes.
    pub(crate) fn timeout(&self) -> Timestamp {
        let wire = self.behind.front().map(|(at, ..)| *at);
        let packet = self.packet_spacing().and(self.asked).map(|_| self.next_packet);
        [wire, packet].into_iter().flatten().fold(self.next_beacon, Timestamp::min)
    }

    /// Sends what is due.
    pub(crate) fn work(&mut self, now: Timestamp, medium: &mut Medium<Road>, ids: &mut u64) {
        if now >= self.next_beacon {
            self.next_beacon += INTERVAL;
            let beacon = self.beacon(Kind::Beacon, MacAddress::BROADCAST);
            self.send(now, medium, ids, beacon, false);
        }
        while let Some((_, word, most)) = self.behind.front().copied().filter(|(at, ..)| *at <= now) {
            self.behind.pop_front();
            match word {
                Word::Fetch => (self.asked, self.most) = (Some(now), most),
                word => self.pass(now, medium, ids, word),
            }
        }
        let spacing = self.packet_spacing();
        let wanted = self.associated
            && self.most != Most::NOTHING
            && self
                .asked
                .is_some_and(|asked| asked == Timestamp::FAR_FUTURE || now.since(asked) < ASKED_WITHIN);
        match spacing {
            // By the uplink, not by what was asked for until now: that was nothing.
            _ if !wanted => self.next_packet = now + self.spacing.unwrap_or_default().max(INTERVAL),
            Some(spacing) => {
                while self.next_packet <= now {
                    self.next_packet += spacing;
                    self.pass(now, medium, ids, Word::Data);
                }
            }
            None => {
                while !self.asleep && medium.pending(self.station) < AHEAD {
                    self.pass(now, medium, ids, Word::Data);
                }
            }
        }
    }

    /// Time between packets by what the uplink gives and what is asked for.
    fn packet_spacing(&self) -> Option<Duration> {
        self.spacing.max(self.most.spacing())
    }

    /// Takes a frame that it heard.
    pub(crate) fn hear(&mut self, now: Timestamp, medium: &mut Medium<Road>, ids: &mut u64, frame: &[u8]) {
        let Ok((header, body)) = Header::parse(frame) else { return };
        let mine = header.receiver == self.bssid;
        let mut answer = Vec::new();
        match header.control.kind {
            Kind::ProbeRequest if mine || header.receiver.is_group() => {
                answer = self.beacon(Kind::ProbeResponse, DEVICE);
            }
            Kind::Authentication if mine => {
                self.header(Kind::Authentication).write(&mut answer);
                answer.extend_from_slice(&[0, 0, 2, 0, 0, 0]);
            }
            Kind::AssociationRequest if mine => {
                self.header(Kind::AssociationResponse).write(&mut answer);
                answer.extend_from_slice(&[1, 0, 0, 0, 1, 0xc0]);
                (self.associated, self.asleep) = (true, false);
                self.kept.clear();
            }
            Kind::Null | Kind::Data if mine && self.associated => {
                self.asleep = header.control.power_save;
                if header.control.kind == Kind::Data {
                    self.hear_packet(now, body);
                }
                let kept = if self.asleep { VecDeque::new() } else { std::mem::take(&mut self.kept) };
                for (left, word) in (0..kept.len()).rev().zip(kept) {
                    let frame = self.data(word, left > 0);
                    self.send(now, medium, ids, frame, true);
                }
            }
            Kind::PowerSavePoll if frame.get(4..10) == Some(&self.bssid.0) => {
                if let Some(word) = self.kept.pop_front() {
                    answer = self.data(word, !self.kept.is_empty());
                } else {
                    let mut header = self.header(Kind::Null);
                    header.control.from_access_point = true;
                    header.write(&mut answer);
                }
            }
            Kind::Deauthentication if mine => self.associated = false,
            _ if mine && !self.associated => {
                self.header(Kind::Deauthentication).write(&mut answer);
                answer.extend_from_slice(&[7, 0]);
            }
            _ => {}
        }
        if !answer.is_empty() {
            self.send(now, medium, ids, answer, true);
        }
    }

    fn hear_packet(&mut self, now: Timestamp, body: &[u8]) {
        let Ok(packet) = Packet::from_body(DEVICE, self.bssid, body) else { return };
        let answer = match packet.payload.first().and_then(|byte| Word::of(*byte)) {
            Some(Word::Discover) => Word::Offer,
            Some(Word::Request) => Word::Lent,
            Some(Word::Ask) => Word::There,
            Some(Word::Fetch) => Word::Fetch,
            _ => return,
        };
        let thinks = if answer == Word::Offer { self.offer_time } else { Duration::ZERO };
        let most = Most::of(packet.payload).unwrap_or_default();
        self.behind.push_back((now + WIRE + thinks, answer, most));
        self.behind.make_contiguous().sort_by_key(|(at, ..)| *at);
    }

    /// A packet for the device: on the air, or kept while it sleeps.
    fn pass(&mut self, now: Timestamp, medium: &mut Medium<Road>, ids: &mut u64, word: Word) {
        if !self.asleep {
            let frame = self.data(word, false);
            self.send(now, medium, ids, frame, true);
        } else if self.kept.len() < KEPT {
            self.kept.push_back(word);
        }
    }

    fn send(&self, now: Timestamp, medium: &mut Medium<Road>, ids: &mut u64, bytes: Vec<u8>, one: bool) {
        *ids += 1;
        let data = FrameControl::parse([bytes[0], bytes[1]]).is_ok_and(|control| control.kind == Kind::Data);
        let rates =
            if data { Rates::Best } else { Rates::Series(Series::steady(Rate(2), if one { 7 } else { 1 })) };
        let frame = Frame {
            id: FrameId(*ids),
            frequency: self.frequency,
            bytes,
            rates,
            wants_acknowledgement: one,
            category: AccessCategory::BestEffort,
        };
        // One that finds no room is lost, as in a card.
        let _ = medium.transmit(now, self.station, frame);
    }

    fn header(&self, kind: Kind) -> Header {
        Header::new(kind, DEVICE, self.bssid, self.bssid)
    }

    fn beacon(&mut self, kind: Kind, to: MacAddress) -> Vec<u8> {
        let mut frame = Vec::new();
        Header::new(kind, to, self.bssid, self.bssid).write(&mut frame);
        frame.extend_from_slice(&[0; 8]);
        frame.extend_from_slice(&[100, 0, 1, 0]);
        write_element(&mut frame, 0, &self.name);
        write_element(&mut frame, 1, &[0x82, 0x84, 0x8b, 0x96, 0x0c, 0x12, 0x18, 0x24]);
        write_element(&mut frame, 3, &[self.frequency.channel().unwrap_or(1) as u8]);
        write_element(&mut frame, 50, &[0x30, 0x48, 0x60, 0x6c]);
        if kind == Kind::Beacon {
            let waiting = if self.kept.is_empty() { 0 } else { 2 };
            write_element(&mut frame, 5, &[self.beacons % 2, 2, 0, waiting]);
            self.beacons = self.beacons.wrapping_add(1);
        }
        frame
    }

    fn data(&mut self, word: Word, more: bool) -> Vec<u8> {
        let mut header = self.header(Kind::Data);
        header.control.from_access_point = true;
        header.control.more_data = more;
        self.sequence = (self.sequence + 1) & 0xfff;
        header.sequence.number = self.sequence;
        let mut frame = Vec::new();
        header.write(&mut frame);
        let payload = word.payload(Most::ALL);
        let packet =
            Packet { destination: DEVICE, source: self.bssid, ethernet_type: ETHERTYPE, payload: &payload };
        packet.write_body(&mut frame);
        frame
    }
}

/// What became of a frame of the device, as its card tells it.
pub(crate) fn outcome<'a>(frame: &'a [u8], told: &sim::medium::Outcome) -> Outcome<'a> {
    let attempts = told.attempts.iter().map(|(_, count)| *count).sum();
    Outcome { frame, acknowledged: told.acknowledged, attempts: Some(attempts) }
}
