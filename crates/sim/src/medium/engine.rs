//! The medium itself: channels, and the exchanges on them.

use std::collections::{BTreeMap, VecDeque};

use radio::airtime::Flavour;
use units::{Frequency, MacAddress, Timestamp};

use super::channel::{Channel, Stage};
use super::contention::next_senders;
use super::frame::{AccessCategory, Event, Frame, Reception, Tuning};
use super::propagation::Propagation;
use super::station::{Station, Waiting};
use super::{ChannelStatistics, StationId, StationStatistics};
use crate::SeededRandom;

/// Stations and the channels between them. See the [module](super) for the contract.
#[derive(Debug)]
pub struct Medium<P> {
    pub(super) propagation: P,
    pub(super) random: SeededRandom,
    pub(super) stations: Vec<Station>,
    pub(super) channels: BTreeMap<Frequency, Channel>,
    pub(super) events: VecDeque<Event>,
    pub(super) timing: Timing,
}

/// By which standard's gaps stations at 2.4 GHz share a channel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Timing {
    /// That of 802.11g, with short slots: nobody on the channel is older.
    #[default]
    G,
    /// That of 802.11b: long slots and wide windows.
    B,
}

impl Timing {
    pub(super) fn flavour(self, frequency: Frequency) -> Flavour {
        match (self, Flavour::of(frequency)) {
            (Self::B, Flavour::G) => Flavour::B,
            (_, usual) => usual,
        }
    }
}

/// Why a frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The station's queue is full; the frame counts as dropped.
    #[error("the station's queue is full")]
    QueueFull,
    /// The station listens on another channel, or on none.
    #[error("the station is not on {} MHz", .0.0)]
    OffChannel(Frequency),
    /// It does not even name a receiver.
    #[error("the frame is too short to name a receiver")]
    TooShort,
}

impl<P: Propagation> Medium<P> {
    /// An empty medium; `seed` decides all chance.
    pub fn new(propagation: P, seed: u64) -> Self {
        Self {
            propagation,
            random: SeededRandom::derive(seed, "medium"),
            stations: Vec::new(),
            channels: BTreeMap::new(),
            events: VecDeque::new(),
            timing: Timing::default(),
        }
    }

    /// The same with another timing.
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Adds a station whose queue holds `limit` frames, at least one.
    pub fn add_station(&mut self, tuning: Tuning, limit: usize) -> StationId {
        self.stations.push(Station::new(tuning, limit));
        StationId(self.stations.len() - 1)
    }

    /// `station` acknowledges frames to `address` from now on, and nobody else does.
    pub fn add_address(&mut self, station: StationId, address: MacAddress) {
        for (index, other) in self.stations.iter_mut().enumerate() {
            if index == station.0 {
                other.addresses.insert(address);
            } else {
                other.addresses.remove(&address);
            }
        }
    }

    /// `station` does not acknowledge frames to `address` any more.
    pub fn remove_address(&mut self, station: StationId, address: MacAddress) {
        if let Some(station) = self.stations.get_mut(station.0) {
            station.addresses.remove(&address);
        }
    }

    /// The station that acknowledges frames to `address`.
    pub fn owner_of(&self, address: MacAddress) -> Option<StationId> {
        self.stations.iter().position(|station| station.addresses.contains(&address)).map(StationId)
    }

    /// Changes how well stations hear each other; what is on the air ends as it would have.
    pub fn propagation_mut(&mut self) -> &mut P {
        &mut self.propagation
    }

    /// The station changes its channel. What it had queued for others is lost, as in a card.
    pub fn retune(&mut self, now: Timestamp, station: StationId, tuning: Tuning) {
        let Some(state) = self.stations.get_mut(station.0) else { return };
        state.tuning = tuning;
        let own = match tuning {
            Tuning::To(frequency) => Some(frequency),
            Tuning::Off => None,
            Tuning::Unknown => return,
        };
        for waiting in state.take_strangers(own) {
            self.finish(now, station, waiting, None);
        }
        self.plan_all();
    }

    /// Takes a frame of `station`.
    ///
    /// # Errors
    /// [`Refused`]; there is no outcome for it then.
    pub fn transmit(&mut self, now: Timestamp, station: StationId, frame: Frame) -> Result<(), Refused> {
        let frequency = frame.frequency;
        let receiver = frame.receiver().ok_or(Refused::TooShort)?;
        let Some(state) = self.stations.get_mut(station.0) else {
            return Err(Refused::OffChannel(frequency));
        };
        if state.tuning != Tuning::Unknown && state.tuning != Tuning::To(frequency) {
            return Err(Refused::OffChannel(frequency));
        }
        state.statistics.offered += 1;
        let category = if receiver.is_group() { AccessCategory::BestEffort } else { frame.category };
        if !state.has_room(category) {
            state.statistics.dropped += 1;
            return Err(Refused::QueueFull);
        }
        state.append(Waiting { frame, receiver, arrived: now, failures: 0, series: None });
        self.channels.entry(frequency).or_default();
        self.plan(frequency);
        Ok(())
    }

    /// A frame was offered to a station that was not there to hear it. Only between its reception and the next
    /// [`Medium::handle_timeout`]: the acknowledgement would follow within microseconds.
    pub fn handle_absent(&mut self, reception: &Reception) {
        let Some(channel) = self.channels.get_mut(&reception.frequency) else { return };
        let answered = channel.on_air.iter_mut().filter(|on_air| on_air.stage == Stage::Answer);
        for exchange in answered.map(|on_air| &mut on_air.exchange) {
            if (exchange.sender, exchange.waiting.frame.id) == (reception.sender, reception.id)
                && exchange.heard_by == Some(reception.station)
            {
                exchange.heard_by = None;
            }
        }
    }

    /// Does what was due first, up to the first moment that gives events; call again while [`Medium::poll_timeout`] is not later than `now`.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while self.events.is_empty() {
            let due =
                self.channels.iter().filter_map(|(&frequency, channel)| Some((channel.due()?, frequency)));
            match due.min() {
                Some((at, frequency)) if at <= now => self.step(at, frequency),
                _ => return,
            }
        }
    }

    /// When to call [`Medium::handle_timeout`]; may be in the past.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.channels.values().filter_map(Channel::due).min()
    }

    /// The next thing the owner should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What happened to a station's frames; zeros for one that is not there.
    pub fn station_statistics(&self, station: StationId) -> StationStatistics {
        self.stations.get(station.0).map(|station| station.statistics).unwrap_or_default()
    }

    /// How many frames of a station wait or are on the air.
    pub fn pending(&self, station: StationId) -> usize {
        self.stations.get(station.0).map_or(0, |station| station.waiting() + usize::from(station.busy))
    }

    /// Whether another frame of a station finds room in its queue for such; frames to groups count as data.
    pub fn has_room(&self, station: StationId, category: AccessCategory) -> bool {
        self.stations.get(station.0).is_some_and(|station| station.has_room(category))
    }

    /// How each channel was used.
    pub fn channel_statistics(&self) -> impl Iterator<Item = (Frequency, ChannelStatistics)> {
        self.channels.iter().map(|(&frequency, channel)| (frequency, channel.statistics))
    }

    /// Decides anew who sends next on a channel.
    fn plan(&mut self, frequency: Frequency) {
        let flavour = self.timing.flavour(frequency);
        if let Some(Channel { quiet, next, .. }) = self.channels.get_mut(&frequency) {
            *next = next_senders(&mut self.stations, (frequency, flavour), quiet, &mut self.random);
        }
    }

    pub(super) fn plan_all(&mut self) {
        for (&frequency, Channel { quiet, next, .. }) in &mut self.channels {
            let flavour = self.timing.flavour(frequency);
            *next = next_senders(&mut self.stations, (frequency, flavour), quiet, &mut self.random);
        }
    }
}
