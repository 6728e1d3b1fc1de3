//! A road with access points beside it and a device on it: the radio's own station on the simulated medium.
//!
//! Access points are open, answer at once, keep frames for who sleeps, and lend addresses; behind them is a server that has always something to
//! send to who asked within the last second.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use radio::frame::data::Packet;
use radio::frame::{FrameControl, Header, Kind, write_element};
use radio::{Outcome, Rate};
use sim::medium::{
    Frame, FrameId, Medium, Passage, PassageKind, Propagation, Rates, Series, StationId, error_rate,
};
use units::{Frequency, MacAddress, Timestamp};

pub(super) const DEVICE: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
pub(super) const INTERVAL: Duration = Duration::from_micros(102_400);
/// From an access point to what lends addresses and what has the bytes, and back.
pub(super) const WIRE: Duration = Duration::from_millis(20);
/// Bytes of a packet of the download.
pub(super) const PAYLOAD: usize = 1_460;
/// What an access point sends with, and what is left of it after a metre at 2.4 GHz in the open; then so many times the decades, which is a street
/// with houses.
const POWER_DBM: f64 = 20.0;
const FIRST_METRE_DB: f64 = 40.0;
const EXPONENT: f64 = 3.5;
/// Metres from the road to each access point.
const BESIDE: f64 = 15.0;
/// Below this nothing is heard, not even at 1 Mbit/s.
const LEAST_DBM: f64 = -100.0;
/// The signal at which 1 Mbit/s just works for common cards, as in [`error_rate`]: within it the device counts as in range.
const RANGE_DBM: f64 = -94.0;
/// A packet type for experiments (IEEE Std 802, local experimental Ethertype 1).
pub(super) const ETHERTYPE: u16 = 0x88b5;
/// Who did not ask for so long gets no more.
const ASKED_WITHIN: Duration = Duration::from_secs(1);
/// Frames that wait in an access point's card, and that it keeps for who sleeps.
const AHEAD: usize = 8;
const KEPT: usize = 64;

/// What a packet of the model says, in its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
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
    pub(super) fn of(byte: u8) -> Option<Self> {
        let lending = [Self::Discover, Self::Offer, Self::Request, Self::Lent];
        let others = [Self::Fetch, Self::Data, Self::Ask, Self::There];
        lending.into_iter().chain(others).find(|word| *word as u8 == byte)
    }

    /// As the body of an Ethernet frame.
    pub(super) fn payload(self) -> Vec<u8> {
        let length = match self {
            Self::Data => PAYLOAD,
            // RFC 826.
            Self::Ask | Self::There => 28,
            _ => 300,
        };
        let mut payload = vec![0; length];
        payload[0] = self as u8;
        payload
    }
}

/// Signals by where the device is.
pub(super) struct Road {
    pub device: StationId,
    /// Where each access point is, in metres along the road.
    pub places: BTreeMap<StationId, f64>,
    pub metres_per_second: f64,
    /// What walls take of each signal.
    pub walls_db: f64,
}

impl Road {
    /// Signal of an access point at the device, dBm.
    pub(super) fn signal_dbm(&self, at: Timestamp, point: StationId) -> f64 {
        let place = self.places.get(&point).copied().unwrap_or(f64::INFINITY);
        let along = place - self.metres_per_second * at.as_secs_f64();
        POWER_DBM - FIRST_METRE_DB - self.walls_db - 10.0 * EXPONENT * along.hypot(BESIDE).log10()
    }

    fn between(&self, at: Timestamp, from: StationId, to: StationId) -> Option<f64> {
        let point = if from == self.device { to } else { from };
        let with_device = from == self.device || to == self.device;
        Some(self.signal_dbm(at, point)).filter(|signal| with_device && *signal > LEAST_DBM)
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
pub(super) fn is_in_range(signal_dbm: f64) -> bool {
    signal_dbm >= RANGE_DBM
}

/// An access point and what is behind it.
pub(super) struct AccessPoint {
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
    /// Answers on their way over the wire.
    behind: VecDeque<(Timestamp, Word)>,
}

impl AccessPoint {
    pub(super) fn new(station: StationId, number: u8, name: &[u8], frequency: Frequency) -> Self {
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
            behind: VecDeque::new(),
        }
    }

    /// The device is known to it without a word and always asks, or is not there: what it would get that never had to join.
    pub(super) fn serve_always(&mut self, here: bool) {
        self.associated = here;
        self.asked = here.then_some(Timestamp::FAR_FUTURE);
    }

    /// When something is due that nobody on the air causes.
    pub(super) fn timeout(&self) -> Timestamp {
        let wire = self.behind.front().map(|(at, _)| *at);
        let packet = self.spacing.and(self.asked).map(|_| self.next_packet);
        [wire, packet].into_iter().flatten().fold(self.next_beacon, Timestamp::min)
    }

    /// Sends what is due.
    pub(super) fn work(&mut self, now: Timestamp, medium: &mut Medium<Road>, ids: &mut u64) {
        if now >= self.next_beacon {
            self.next_beacon += INTERVAL;
            let beacon = self.beacon(Kind::Beacon, MacAddress::BROADCAST);
            self.send(now, medium, ids, beacon, false);
        }
        while let Some((_, word)) = self.behind.front().copied().filter(|(at, _)| *at <= now) {
            self.behind.pop_front();
            match word {
                Word::Fetch => self.asked = Some(now),
                word => self.pass(now, medium, ids, word),
            }
        }
        let wanted = self.associated
            && self
                .asked
                .is_some_and(|asked| asked == Timestamp::FAR_FUTURE || now.since(asked) < ASKED_WITHIN);
        match self.spacing {
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

    /// Takes a frame that it heard.
    pub(super) fn hear(&mut self, now: Timestamp, medium: &mut Medium<Road>, ids: &mut u64, frame: &[u8]) {
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
        self.behind.push_back((now + WIRE + thinks, answer));
        self.behind.make_contiguous().sort_by_key(|(at, _)| *at);
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
        let frame =
            Frame { id: FrameId(*ids), frequency: self.frequency, bytes, rates, wants_acknowledgement: one };
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
        let payload = word.payload();
        let packet =
            Packet { destination: DEVICE, source: self.bssid, ethernet_type: ETHERTYPE, payload: &payload };
        packet.write_body(&mut frame);
        frame
    }
}

/// What became of a frame of the device, as its card tells it.
pub(super) fn outcome<'a>(frame: &'a [u8], told: &sim::medium::Outcome) -> Outcome<'a> {
    let attempts = told.attempts.iter().map(|(_, count)| *count).sum();
    Outcome { frame, acknowledged: told.acknowledged, attempts: Some(attempts) }
}
