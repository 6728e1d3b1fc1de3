//! The station: many networks, one radio. Pure: frames and times in, frames and wishes out.
//!
//! ```text
//!            slot over               all asleep             the card is there
//!   Present -----------> Leaving ------------------> Tuning -----------------> Present
//!      ^ next slot on the same channel |
//!      +-------------------------------+
//! ```
//! While the card is on a channel all networks of that channel are awake; only what leaves the channel goes to sleep first.
//!
//! After any call that takes `now`, drain [`Station::poll_tune`], [`Station::poll_transmit`], [`Station::poll_packet`] and
//! [`Station::poll_event`] until each returns `None`, then wait for input or [`Station::poll_timeout`].

#[cfg(test)]
mod channels_tests;
#[cfg(test)]
mod crowded_card_tests;
#[cfg(test)]
mod expected_tests;
mod group;
#[cfg(test)]
mod group_tests;
mod join;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use units::{Frequency, MacAddress, NetworkId, Timestamp};

use crate::network::{Lost, Network, NetworkCounters, NetworkSettings, Visits};
use crate::quality::Qualities;
use crate::scan::{Seen, SeenNetworks};
use crate::slots::{Member, SlotSettings, Slots};
use crate::succession::Succession;
use transmit::{InFlight, Outgoing};
use turns::Phase;

/// A channel of the card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PermittedChannel {
    /// Its centre.
    pub frequency: Frequency,
    /// Whether our frames get out there (neither no-IR nor radar). Elsewhere it is only listened to: what a monitor interface sends the kernel
    /// drops, access point or none.
    pub active: bool,
}

/// What the radio's owner decides.
#[derive(Clone, Debug)]
pub struct StationSettings {
    /// The address that the card acknowledges.
    pub address: MacAddress,
    /// Further ones that it acknowledges: each for one network of a name that another network has too. Access points of one name share
    /// what lies behind them, and that takes a station for being at one of them only.
    pub further: Vec<MacAddress>,
    /// Channels that may be used, in the order in which they are scanned.
    pub channels: Vec<PermittedChannel>,
    /// How turns are taken.
    pub slots: SlotSettings,
    /// Weight of listening for further networks; 0: only while one is sought.
    pub scan_weight: u16,
}

/// What the owner should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Packets can pass.
    Up {
        /// The network.
        network: NetworkId,
        /// Its access point.
        bssid: MacAddress,
        /// Its channel.
        frequency: Frequency,
    },
    /// Packets cannot pass any more.
    Down {
        /// The network.
        network: NetworkId,
        /// Why.
        reason: Lost,
    },
    /// A network does not come up; told once for each reason in a row.
    Trouble {
        /// The network.
        network: NetworkId,
        /// Why.
        reason: Lost,
    },
}

/// One change of channel, by the caller's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The slot was over.
    pub begun: Timestamp,
    /// Every access point there knew that we sleep, or was given up on.
    pub asleep: Timestamp,
    /// The card was on the new channel.
    pub tuned: Timestamp,
}

/// How a network is.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkStatus {
    /// Which.
    pub network: NetworkId,
    /// Whether packets can pass.
    pub up: bool,
    /// Its access point, joined or being joined.
    pub bssid: Option<MacAddress>,
    /// Its channel.
    pub frequency: Option<Frequency>,
    /// Signal of its beacons, in dBm.
    pub signal_dbm: Option<f32>,
    /// How long its channel's slot is now, in which all networks of the channel are there; `None` as long as it has no channel.
    pub slot: Option<Duration>,
    /// The part of the radio's time that its channel has, 0 to 1, listening and changes of channel aside.
    pub presence: f64,
    /// The visits to its channel that are over.
    pub visits: Visits,
    /// Its weight among the others; those of one channel add up.
    pub weight: u16,
    /// Its channel delivers so little that it is visited seldom.
    pub given_up: bool,
    /// Packets that wait for its turn.
    pub waiting: usize,
    /// What a frame that its access point kept takes when all come at once and when they are polled for, once both are known. The faster way
    /// is kept to.
    pub kept_frame: Option<(Duration, Duration)>,
    /// Its counts.
    pub counters: NetworkCounters,
}

/// Signs of life of an access point.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Health {
    /// Beacons that were due while we were there, since the last one that was heard.
    pub missed_beacons: u32,
    /// Frames in a row that it did not acknowledge, each with all its attempts.
    pub unanswered: u32,
    /// How long we have been there now without anything heard or acknowledged.
    pub silence: Duration,
}

/// A station that is in many networks with one radio.
pub struct Station {
    settings: StationSettings,
    randomness: StdRng,
    networks: BTreeMap<NetworkId, Network>,
    slots: Slots,
    seen: SeenNetworks,
    qualities: Qualities,
    phase: Phase,
    /// Where the card is.
    frequency: Option<Frequency>,
    next_scan: usize,
    /// The last visit of listening was to a channel where a network is expected, and which of those.
    next_expected: (bool, usize),
    /// Channels that a scan on request has still to visit, the one that is visited now included.
    scan_left: usize,
    /// The present slot is for listening.
    scan_slot: bool,
    next_data: u32,
    sequence: u16,
    urgent: VecDeque<Outgoing>,
    in_flight: VecDeque<InFlight>,
    /// The card tells what became of frames to all, too: not every driver does.
    card_tells_of_all: bool,
    packets: VecDeque<(NetworkId, Vec<u8>)>,
    events: VecDeque<Event>,
    tune: Option<Frequency>,
    switching: Option<Switch>,
    /// What a change of channel takes, smoothed.
    switch_cost: Duration,
    /// In the last slot the air had no room.
    air_was_full: bool,
    /// There is no card.
    without_card: bool,
    switches: VecDeque<Switch>,
}

/// Changes of channel that are kept for [`Station::poll_switch`].
const MOST_SWITCHES: usize = 64;
/// Events that are kept; the oldest go first.
const MOST_EVENTS: usize = 256;
/// Received packets that are kept; what comes when they are full is dropped.
const MOST_PACKETS: usize = 1_024;

impl Station {
    /// Begins without networks. `randomness` must be unpredictable: nonces are drawn from it.
    pub fn new(settings: StationSettings, randomness: StdRng) -> Self {
        let slots = Slots::new(settings.slots);
        let mut station = Self {
            settings,
            randomness,
            networks: BTreeMap::new(),
            slots,
            seen: SeenNetworks::default(),
            qualities: Qualities::default(),
            phase: Phase::Resting,
            frequency: None,
            next_scan: 0,
            next_expected: (false, 0),
            scan_left: 0,
            scan_slot: false,
            next_data: 0,
            sequence: 0,
            urgent: VecDeque::new(),
            in_flight: VecDeque::new(),
            card_tells_of_all: false,
            packets: VecDeque::new(),
            events: VecDeque::new(),
            tune: None,
            switching: None,
            switch_cost: Duration::ZERO,
            air_was_full: false,
            without_card: false,
            switches: VecDeque::new(),
        };
        station.refresh_scan();
        station
    }

    /// The address under which it is in its networks, but for those of [`StationSettings::further`].
    pub fn address(&self) -> MacAddress {
        self.settings.address
    }

    /// The address under which it is in a network.
    pub fn address_in(&self, id: NetworkId) -> MacAddress {
        self.networks.get(&id).map_or(self.settings.address, |network| network.address)
    }

    /// Whether a frame is from or to us.
    fn is_own(&self, address: MacAddress) -> bool {
        address == self.settings.address || self.settings.further.contains(&address)
    }

    /// An address that no other network of the same name has; the first one if there is none left.
    fn address_for(&self, settings: &NetworkSettings) -> MacAddress {
        let own = [self.settings.address];
        let is_free = |address: &&MacAddress| {
            !self
                .networks
                .values()
                .any(|other| other.settings.ssid == settings.ssid && other.address == **address)
        };
        own.iter().chain(&self.settings.further).find(is_free).copied().unwrap_or(self.settings.address)
    }

    /// Adds a network, or replaces one of the same number.
    pub fn add_network(&mut self, now: Timestamp, id: NetworkId, settings: NetworkSettings) {
        self.remove_network(now, id);
        self.slots.set_weight(id, settings.weight);
        if settings.group.is_some() {
            // What it takes to meet is the same however short the slot is.
            self.slots.keep_whole(id);
        }
        let address = self.address_for(&settings);
        self.networks.insert(id, Network::new(now, id, address, settings));
        self.choose_targets(now);
        self.refresh_scan();
        self.wake(now);
    }

    /// Leaves a network.
    pub fn remove_network(&mut self, now: Timestamp, id: NetworkId) {
        if !self.networks.contains_key(&id) {
            return;
        }
        self.say_goodbye(id);
        self.networks.remove(&id);
        self.slots.remove(id);
        self.refresh_scan();
        self.wake(now);
    }

    /// Group traffic that must not be missed may come in a network until then: answers to who has no address yet, which many DHCP
    /// servers send to everybody. Its slots are held over DTIMs meanwhile.
    pub fn expect_group_traffic(&mut self, id: NetworkId, until: Timestamp) {
        if let Some(network) = self.networks.get_mut(&id) {
            network.group_expected = Some(until);
        }
    }

    /// Changes a network's share of the radio.
    pub fn set_weight(&mut self, id: NetworkId, weight: u16) {
        if let Some(network) = self.networks.get_mut(&id) {
            network.settings.weight = weight;
            self.slots.set_weight(id, weight);
        }
    }

    /// A network's access point is only kept ready, as steering finds others of its channel better: it asks for no time while one of those carries
    /// data.
    pub fn set_standby(&mut self, id: NetworkId, stands_by: bool) {
        self.slots.set_standby(id, stands_by);
    }

    /// Changes how turns are taken, and the weight of scanning; from the next slot on.
    pub fn set_slots(&mut self, slots: SlotSettings, scan_weight: u16) {
        self.settings.slots = slots;
        self.settings.scan_weight = scan_weight;
        self.slots.set_settings(slots);
        self.refresh_scan();
    }

    /// What is remembered of a network: which of its access points came after which. `None` if there is no such network.
    pub fn succession(&self, id: NetworkId) -> Option<&Succession> {
        self.networks.get(&id).map(|network| &network.succession)
    }

    /// Gives a network what [`Self::succession`] told at an earlier time. Every second visit of listening then goes to where its next access
    /// point is expected, as long as it has none.
    pub fn set_succession(&mut self, id: NetworkId, succession: Succession) {
        if let Some(network) = self.networks.get_mut(&id) {
            network.succession = succession;
        }
    }

    /// Listens on every channel once, in scan slots beside the networks' own.
    pub fn request_scan(&mut self, now: Timestamp) {
        self.scan_left = self.settings.channels.len();
        self.refresh_scan();
        self.wake(now);
    }

    /// Whether what [`Self::request_scan`] wished is not done yet.
    pub fn is_scanning(&self) -> bool {
        self.scan_left > 0
    }

    /// The channel where the card is; `None` while it changes.
    pub fn present_channel(&self) -> Option<Frequency> {
        self.frequency
    }

    /// The card is on a channel, as [`Self::poll_tune`] wished.
    pub fn handle_tuned(&mut self, now: Timestamp, frequency: Frequency) {
        self.arrive(now, frequency);
    }

    /// The card cannot be on the channel that [`Self::poll_tune`] wished: it is not used any more.
    pub fn handle_tune_failed(&mut self, now: Timestamp, frequency: Frequency) {
        self.settings.channels.retain(|channel| channel.frequency != frequency);
        self.scan_left = self.scan_left.min(self.settings.channels.len());
        let stuck = self.networks.values().filter(|network| network.frequency() == Some(frequency));
        let stuck: Vec<NetworkId> = stuck.map(|network| network.id).collect();
        stuck.into_iter().for_each(|id| self.lose(now, id, Lost::Forbidden));
        self.phase = Phase::Resting;
        self.wake(now);
    }

    /// The card is switched off or gone: all networks are lost, and nothing is wished until [`Self::handle_card_back`].
    pub fn handle_card_lost(&mut self, now: Timestamp) {
        self.without_card = true;
        let all: Vec<NetworkId> = self.networks.keys().copied().collect();
        for id in all {
            self.lose(now, id, Lost::NoRadio);
        }
        self.phase = Phase::Resting;
        (self.frequency, self.tune, self.switching) = (None, None, None);
        self.urgent.clear();
        self.in_flight.clear();
    }

    /// The card can be used again; it may be on any channel.
    pub fn handle_card_back(&mut self, now: Timestamp) {
        self.without_card = false;
        self.wake(now);
    }

    /// A packet for a network, as an Ethernet frame from its interface. Gives whether it was taken: not when too many wait or the network is down.
    pub fn handle_packet(&mut self, now: Timestamp, id: NetworkId, packet: &[u8]) -> bool {
        let Some(network) = self.networks.get_mut(&id) else { return false };
        if !network.is_open() || network.waiting.len() >= crate::network::MOST_WAITING {
            network.counters.refused_packets += 1;
            return false;
        }
        network.waiting.push_back(packet.to_vec());
        self.note_activity(now, id);
        true
    }

    /// The time of [`Self::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.forget_outcomes(now);
        self.drive_moves(now);
        self.choose_targets(now);
        self.drive_joins(now);
        self.drive_polls(now);
        self.drive_turns(now);
    }

    /// A channel that the card should be on. Until [`Self::handle_tuned`] nothing is sent.
    pub fn poll_tune(&mut self) -> Option<Frequency> {
        self.tune.take()
    }

    /// Whether [`Self::poll_tune`] would give a channel.
    pub fn wishes_tune(&self) -> bool {
        self.tune.is_some()
    }

    /// A packet for a network's interface, as an Ethernet frame.
    pub fn poll_packet(&mut self) -> Option<(NetworkId, Vec<u8>)> {
        self.packets.pop_front()
    }

    /// What the owner should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Changes of channel since the last call; the oldest are dropped beyond 64.
    pub fn poll_switch(&mut self) -> Option<Switch> {
        self.switches.pop_front()
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let joins = self.networks.values().filter_map(|network| self.join_timeout(now, network));
        let turns = self.turn_timeout(now);
        let moves = self.networks.values().filter_map(|network| network.linked()?.moving);
        let moves = moves.map(|(_, at)| at.max(now));
        let outcomes = self.in_flight.iter().map(|frame| frame.due).min();
        joins.chain(turns).chain(moves).chain(outcomes).min()
    }

    /// What was heard in the air lately.
    pub fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter()
    }

    /// How well access points are heard, those of other networks included.
    pub fn qualities(&self) -> &Qualities {
        &self.qualities
    }

    /// Signs of life of a network's access point; `None` if it has none.
    pub fn health(&self, now: Timestamp, id: NetworkId) -> Option<Health> {
        let network = self.networks.get(&id)?;
        let linked = network.linked()?;
        let here = self.is_present() && network.frequency() == self.frequency;
        Some(Health {
            missed_beacons: linked.beacons.missed(now),
            unanswered: linked.life.unanswered,
            silence: if here { now.since(linked.life.sign) } else { Duration::ZERO },
        })
    }

    /// Asks a network's access point for a sign of life whenever there is none for some time, so that its death is known soon.
    pub fn set_watched(&mut self, id: NetworkId, watched: bool) {
        if let Some(network) = self.networks.get_mut(&id) {
            network.watched = watched;
        }
    }

    /// Makes the next slot that of a network, and ends the present one if it is on another channel.
    pub fn visit(&mut self, now: Timestamp, id: NetworkId) {
        self.go_to(now, id);
    }

    /// How the networks are.
    pub fn networks(&self) -> impl Iterator<Item = NetworkStatus> {
        self.networks.values().map(|network| {
            let channel = network.frequency();
            let mut counters = network.counters;
            if let Some(linked) = network.linked() {
                counters.heard_dtims += linked.beacons.heard_dtims;
                counters.missed_dtims += linked.beacons.missed_dtims;
            }
            NetworkStatus {
                network: network.id,
                up: network.is_open(),
                bssid: network.bssid(),
                frequency: channel,
                signal_dbm: network
                    .bssid()
                    .zip(channel)
                    .and_then(|(bssid, channel)| self.seen.get(bssid, channel)?.signal_dbm),
                slot: channel.and_then(|channel| self.slots.length(Member::Channel(channel))),
                presence: channel.map_or(0.0, |channel| self.slots.presence(channel)),
                visits: network.visits,
                weight: network.settings.weight,
                given_up: channel.is_some_and(|channel| self.slots.is_given_up(channel)),
                waiting: network.waiting.len(),
                kept_frame: network.waking.means(),
                counters,
            }
        })
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Networks on the channel where the card is.
    fn here(&self) -> impl Iterator<Item = &Network> {
        let frequency = self.frequency;
        self.networks.values().filter(move |network| frequency.is_some() && network.frequency() == frequency)
    }

    /// The same, to be changed.
    fn here_mut(&mut self) -> impl Iterator<Item = &mut Network> {
        let frequency = self.frequency;
        self.networks
            .values_mut()
            .filter(move |network| frequency.is_some() && network.frequency() == frequency)
    }

    fn next_sequence(&mut self) -> u16 {
        self.sequence = (self.sequence + 1) & 0xfff;
        self.sequence
    }
}
