//! How well each access point's frames reach us, from what is heard of it alone (`[MULTIAP] section 5.1`).
//!
//! ```text
//! frame --> whose? (channel, address) --> which space? (receiver and class) --> new, late, again
//!                                              |                                      |
//!                                    numbers: what is missing            Retry bit: first or later attempt
//!                                              +---------> counts of 500 ms <---------+   --> Estimate
//! ```
//! A ratio of first attempts does not depend on whom a frame is for: of each frame there is one first attempt, and either we hear that one, or a
//! later one, or none. So frames to others tell how well *we* hear their sender; only their rates are chosen for others.
//!
//! Everything here may be forged by anybody in range: memory is bounded whatever comes, what makes no sense is counted as such, and the
//! estimate says so ([`Doubt::Numbers`], [`Doubt::Classes`]). Frames of different channels are never taken together, whatever address they bear.

mod classes;
mod estimate;
mod gaps;
mod others;
mod packet_time;
mod space;
mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Bytes, Frequency, MacAddress, Timestamp};

use crate::Heard;
use crate::air::Rate;
use crate::airtime::{Flavour, HighThroughput};
use crate::frame::{Header, Kind};

pub use estimate::{Doubt, Estimate, Source};
use gaps::Gaps;
use others::Others;
pub use packet_time::packet_time;
use space::{Arrival, Space};
pub use window::WINDOW;
use window::{Count, Counts, Window};

/// Access points that are followed at once. Beyond, one goes that we are not at, and that has not sent to us, or not for longest.
pub const MOST_FOLLOWED: usize = 64;
/// Sequence spaces of one access point: each receiver has one for each class in which it is sent to. The one not heard for longest goes.
const MOST_SPACES: usize = 32;
/// Traffic identifiers of QoS frames, and one class for all others.
const CLASSES: usize = 17;
/// What a packet time is told for: 1,500 bytes of packet, with headers, LLC and check sequence (`MSS` of `[MULTIAP] eq. 1`).
pub const FULL_FRAME: Bytes = Bytes(1_536);
/// Frames of an aggregate that share what surrounds them, at most (section 10.12.2 allows 64 with the usual block acknowledgement).
const MOST_AGGREGATED: u32 = 64;

/// What sort of traffic a frame is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A QoS frame of this traffic identifier, 0 to 15.
    Traffic(u8),
    /// A frame without QoS.
    Plain,
}

impl Class {
    fn of(header: &Header) -> Self {
        if header.qos.is_some() { Self::Traffic(header.traffic()) } else { Self::Plain }
    }

    fn place(self) -> usize {
        match self {
            Self::Traffic(identifier) => usize::from(identifier & 15),
            Self::Plain => CLASSES - 1,
        }
    }
}

/// The access points on all channels, and how well they are heard.
#[derive(Clone, Default, Debug)]
pub struct Qualities {
    followed: BTreeMap<(Frequency, MacAddress), AccessPoint>,
    present_since: Timestamp,
    others: Others,
}

impl Qualities {
    /// We begin to listen on a channel: what was sent before is not missing.
    pub fn arrived(&mut self, now: Timestamp) {
        self.present_since = now;
    }

    /// Takes a frame whose header has been read. `own` are our addresses, `joined` those of the access points that we are at, which are followed however
    /// many others there seem to be. Frames that no access point sent are left alone.
    pub fn take(
        &mut self,
        now: Timestamp,
        header: &Header,
        heard: &Heard<'_>,
        own: impl Fn(MacAddress) -> bool,
        joined: impl Fn(MacAddress) -> bool,
    ) {
        let kind = header.control.kind;
        let to_group = header.receiver.is_group();
        let is_data = matches!(kind, Kind::Data | Kind::QosData);
        if is_data {
            let is_ours = own(header.receiver) || own(header.transmitter);
            self.others.take(now, header, heard, is_ours, self.present_since);
        }
        let from_access_point = header.control.from_access_point || kind.is_management();
        if !from_access_point || header.transmitter != header.bssid() || header.transmitter.is_group() {
            return;
        }
        let key = (heard.frequency, header.transmitter);
        if !is_data || to_group {
            if let Some(followed) = self.followed.get_mut(&key) {
                followed.note(now, header);
            }
            return;
        }
        let source = if own(header.receiver) { Source::ToUs } else { Source::Overheard };
        if !self.followed.contains_key(&key) {
            self.make_room(joined);
        }
        let present_since = self.present_since;
        let followed = self.followed.entry(key).or_insert_with(|| AccessPoint::new(heard.frequency));
        followed.count(now, header, heard, source, present_since);
    }

    /// What is known of an access point now: from frames to us if there are enough, else from those to others. `None` if it sent no data in the last
    /// half second.
    pub fn estimate(&self, now: Timestamp, frequency: Frequency, bssid: MacAddress) -> Option<Estimate> {
        self.followed.get(&(frequency, bssid))?.estimate(now, None)
    }

    /// The same for one class of traffic.
    pub fn estimate_of_class(
        &self,
        now: Timestamp,
        frequency: Frequency,
        bssid: MacAddress,
        class: Class,
    ) -> Option<Estimate> {
        self.followed.get(&(frequency, bssid))?.estimate(now, Some(class))
    }

    /// The part of a channel's air that others have taken lately, 0 to 1, as far as it was heard: a lower bound.
    pub fn others(&self, now: Timestamp, frequency: Frequency) -> f64 {
        self.others.part(now, frequency)
    }

    /// We send a data frame that takes so much air.
    pub fn sent(&mut self, now: Timestamp, frequency: Frequency, air: Duration) {
        self.others.sent(now, frequency, air, self.present_since);
    }

    /// The part of a channel's air that data frames, others' and ours, have taken in the last second or so of being there, 0 to 1: a lower bound, as what
    /// collides is not heard.
    pub fn air(&self, now: Timestamp, frequency: Frequency) -> f64 {
        self.others.part_of_all(now, frequency)
    }

    /// Who else sends full packets on a channel, as far as it was heard: the transmitter to each receiver, and how many in a second.
    pub fn pairs(&self, now: Timestamp, frequency: Frequency) -> impl Iterator<Item = (MacAddress, f64)> {
        self.others.pairs(now, frequency)
    }

    /// All of which there is an estimate now.
    pub fn iter(&self, now: Timestamp) -> impl Iterator<Item = (Frequency, MacAddress, Estimate)> {
        self.followed
            .iter()
            .filter_map(move |(&(frequency, bssid), one)| Some((frequency, bssid, one.estimate(now, None)?)))
    }

    /// The most memory that one access point can take.
    pub const fn most_memory() -> Bytes {
        let windows = 2 * CLASSES * size_of::<Window>() + size_of::<Window<Gaps>>();
        let spaces = MOST_SPACES * (size_of::<SpaceKey>() + size_of::<Space>());
        Bytes((size_of::<(Frequency, MacAddress, AccessPoint)>() + windows + spaces) as u64)
    }

    fn make_room(&mut self, joined: impl Fn(MacAddress) -> bool) {
        if self.followed.len() < MOST_FOLLOWED {
            return;
        }
        let least =
            self.followed.iter().min_by_key(|((_, bssid), one)| (joined(*bssid), one.sent_to_us, one.last));
        if let Some(key) = least.map(|(key, _)| *key) {
            self.followed.remove(&key);
        }
    }
}

/// Numbers that belong together: receiver and class of QoS frames to one receiver, or [`SHARED`]. One word, so that a busy access point's keys are
/// searched in a few cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SpaceKey(u64);

/// The key of all frames but those to one receiver with QoS.
const SHARED: SpaceKey = SpaceKey(u64::MAX);

impl SpaceKey {
    fn of(header: &Header) -> Self {
        if header.qos.is_none() || header.receiver.is_group() {
            return SHARED;
        }
        let [a, b, c, d, e, f] = header.receiver.0;
        Self(u64::from_be_bytes([0, header.traffic(), a, b, c, d, e, f]))
    }
}

#[derive(Clone, Debug)]
struct AccessPoint {
    flavour: Flavour,
    /// Of the spaces, in the same order.
    keys: Vec<SpaceKey>,
    spaces: Vec<Space>,
    to_us: [Option<Box<Window>>; CLASSES],
    overheard: [Option<Box<Window>>; CLASSES],
    /// Before frames to us.
    gaps: Option<Box<Window<Gaps>>>,
    last: Timestamp,
    sent_to_us: Option<Timestamp>,
    /// Number of the present aggregate, and how many frames of it have come; how many the one before had.
    aggregate: (Option<u32>, u32, u32),
    /// The rate of the last frame, and the time that comes of it.
    exchange: Option<(Modulation, u32)>,
}

/// What the time of a frame depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Modulation {
    Legacy(Rate),
    HighThroughput(HighThroughput, u32),
}

impl AccessPoint {
    fn new(frequency: Frequency) -> Self {
        Self {
            flavour: Flavour::of(frequency),
            keys: Vec::new(),
            spaces: Vec::new(),
            to_us: [const { None }; CLASSES],
            overheard: [const { None }; CLASSES],
            gaps: None,
            last: Timestamp::ZERO,
            sent_to_us: None,
            aggregate: (None, 0, 0),
            exchange: None,
        }
    }

    /// A frame that is no data for one receiver.
    fn note(&mut self, now: Timestamp, header: &Header) {
        if SpaceKey::of(header) != SHARED || header.sequence.fragment != 0 {
            return;
        }
        let place = self.keys.iter().position(|key| *key == SHARED);
        let Some(space) = place.and_then(|place| self.spaces.get_mut(place)) else { return };
        let (source, missing) = (space.source, space.note(header.sequence.number));
        if let Some(missing) = missing.filter(|missing| *missing > 0) {
            self.window(now, source, Class::Plain).lost += i32::from(missing);
        }
    }

    fn count(
        &mut self,
        now: Timestamp,
        header: &Header,
        heard: &Heard<'_>,
        source: Source,
        present_since: Timestamp,
    ) {
        let last = std::mem::replace(&mut self.last, now);
        if source == Source::ToUs {
            self.sent_to_us = Some(now);
        }
        let exchange = self.exchange_us(heard);
        let (before, arrival) = self.arrive(now, header, source, present_since);
        if source == Source::ToUs && last >= present_since {
            // Of frames to others that are missing nobody knows.
            self.count_gap(now, now.since(last), header.control.retry, arrival, before == source, exchange);
        }
        let class = Class::of(header);
        // Of numbers that all receivers share, those missing between two frames to us are taken as ours.
        let missing_of = if before == source { source } else { Source::Overheard };
        match arrival {
            Arrival::Again => {
                // Whoever sends a frame once more says so: one of the two is forged.
                if !header.control.retry {
                    self.window(now, source, class).breaks += 1;
                }
                return;
            }
            Arrival::Old => return,
            Arrival::New(missing) if missing > 0 => {
                self.window(now, missing_of, class).lost += i32::from(missing);
            }
            Arrival::Late => {
                // First attempts of one queue come in the order of their numbers, in aggregates too: what comes late is a repeat, or one is forged.
                let counts = self.window(now, source, class);
                counts.lost -= 1;
                counts.breaks += u32::from(!header.control.retry);
            }
            Arrival::Overtaken => self.window(now, source, class).lost -= 1,
            Arrival::Break => self.window(now, source, class).breaks += 1,
            Arrival::New(_) | Arrival::Begin => {}
        }
        let counts = self.window(now, source, class);
        if header.control.retry {
            counts.repeated = counts.repeated.saturating_add(1);
        } else {
            counts.first = counts.first.saturating_add(1);
        }
        match exchange {
            Some(exchange) => counts.exchange_us = counts.exchange_us.saturating_add(exchange),
            None => counts.unknown_rate = counts.unknown_rate.saturating_add(1),
        }
    }

    fn count_gap(
        &mut self,
        now: Timestamp,
        gap: Duration,
        repeated: bool,
        arrival: Arrival,
        is_ours: bool,
        exchange: Option<u32>,
    ) {
        let Some(exchange) = exchange.filter(|_| gap <= gaps::LONGEST) else { return };
        let gaps = self.gaps.get_or_insert_with(|| Box::new(Window::new(now))).at(now);
        match arrival {
            Arrival::New(0) if !repeated => gaps.smooth(gap, exchange),
            Arrival::New(missing) if repeated || is_ours => {
                gaps.tried(gap, if is_ours { missing + 1 } else { 1 })
            }
            Arrival::Late | Arrival::Overtaken | Arrival::Again | Arrival::Old => gaps.tried(gap, 0),
            Arrival::New(_) | Arrival::Break | Arrival::Begin => {}
        }
    }

    /// What the frame's number tells, and whose frame was the one before in its space.
    fn arrive(
        &mut self,
        now: Timestamp,
        header: &Header,
        source: Source,
        present_since: Timestamp,
    ) -> (Source, Arrival) {
        let (key, number) = (SpaceKey::of(header), header.sequence.number);
        let place = self.keys.iter().position(|known| *known == key);
        if let Some(space) = place.and_then(|place| self.spaces.get_mut(place)) {
            let before = std::mem::replace(&mut space.source, source);
            return (before, space.arrive(now, number, present_since));
        }
        if self.spaces.len() >= MOST_SPACES {
            let places = self.spaces.iter().enumerate();
            if let Some((oldest, _)) = places.min_by_key(|(_, space)| space.last()) {
                self.keys.swap_remove(oldest);
                self.spaces.swap_remove(oldest);
            }
        }
        self.keys.push(key);
        self.spaces.push(Space::new(now, number, source));
        (source, Arrival::Begin)
    }

    fn window(&mut self, now: Timestamp, source: Source, class: Class) -> &mut Counts {
        let windows = if source == Source::ToUs { &mut self.to_us } else { &mut self.overheard };
        windows[class.place()].get_or_insert_with(|| Box::new(Window::new(now))).at(now)
    }

    /// Air time of a full frame at the rate of this one, in microseconds; `None` if its rate is unknown.
    fn exchange_us(&mut self, heard: &Heard<'_>) -> Option<u32> {
        let shared = self.shared_by(heard.aggregate);
        let modulation = match (heard.high_throughput, heard.rate) {
            (Some(rate), _) => Modulation::HighThroughput(rate, shared),
            (None, Some(rate)) => Modulation::Legacy(rate),
            (None, None) => return None,
        };
        if let Some((_, time)) = self.exchange.filter(|(of, _)| *of == modulation) {
            return Some(time);
        }
        let time = match modulation {
            Modulation::Legacy(rate) if rate.is_cck() => Flavour::B.exchange_time(rate, FULL_FRAME),
            Modulation::Legacy(rate) => self.flavour.exchange_time(rate, FULL_FRAME),
            Modulation::HighThroughput(rate, frames) => {
                self.flavour.aggregate_exchange_time(rate, FULL_FRAME, frames)
            }
        };
        let time = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.exchange = Some((modulation, time));
        Some(time)
    }

    /// How many frames share the gaps and acknowledgement of this one: as many as in the last whole aggregate.
    fn shared_by(&mut self, aggregate: Option<u32>) -> u32 {
        let (present, came, before) = &mut self.aggregate;
        if aggregate.is_none() {
            return 1;
        }
        if *present == aggregate {
            *came = (*came + 1).min(MOST_AGGREGATED);
        } else {
            (*present, *before, *came) = (aggregate, *came, 1);
        }
        (*before).max(*came)
    }

    fn estimate(&self, now: Timestamp, class: Option<Class>) -> Option<Estimate> {
        let sum = |windows: &[Option<Box<Window>>; CLASSES]| {
            let mut sum = Counts::default();
            let wanted = |place: &usize| class.is_none_or(|class| class.place() == *place);
            let windows = windows.iter().enumerate().filter(|(place, _)| wanted(place));
            windows.filter_map(|(_, window)| window.as_ref()).for_each(|window| sum.add(&window.sum(now)));
            sum
        };
        let gaps = self.gaps.as_ref().map(|gaps| gaps.sum(now)).unwrap_or_default();
        let to_us = Estimate::new(self.flavour, &sum(&self.to_us), &gaps, Source::ToUs);
        let to_us = to_us.map(|estimate| {
            let differ = class.is_none() && classes::differ(now, &self.to_us);
            if differ { estimate.doubted(Doubt::Classes) } else { estimate }
        });
        let is_enough = |estimate: &Estimate| !estimate.has(Doubt::FewFrames);
        if to_us.as_ref().is_some_and(is_enough) {
            return to_us;
        }
        let overheard =
            Estimate::new(self.flavour, &sum(&self.overheard), &Gaps::default(), Source::Overheard);
        if overheard.as_ref().is_some_and(is_enough) { overheard } else { to_us.or(overheard) }
    }
}

#[cfg(test)]
mod tests;
