//! Being in ad hoc groups (IEEE 802.11-2020 section 11.1.4): joining or founding one, its beacons, frames without an access point.

use std::time::Duration;

use rand::Rng as _;
use units::{MacAddress, NetworkId, Timestamp};

use super::transmit::{ATTEMPTS, Outgoing, Purpose, management_frame, own_rates};
use super::turns::Phase;
use super::{Event, Station};
use crate::frame::data::{EAPOL_TYPE, Packet};
use crate::frame::management::{self, Beacon, GroupBeacon};
use crate::frame::{Header, Kind};
use crate::group::{Group, GroupClock, write_presence};
use crate::network::{Lost, Network, State};
use crate::scan::{Protection, Seen};
use crate::{Rate, Transmission};

/// A group is founded if nobody was heard of it for so long.
const FOUNDED_AFTER: Duration = Duration::from_millis(1_500);
/// Time units between beacons of a group that we found.
const INTERVAL_UNITS: u16 = 100;
/// Members wait for a random part of this before each beacon: twice the contention window of 31 slots of 20 us.
const BEACON_SPREAD: Duration = Duration::from_micros(1_240);
/// We are gone so much before the end of a stay that was told.
pub(super) const LEAVING_TIME: Duration = Duration::from_millis(2);

impl Station {
    /// A group is joined as soon as it is heard, or founded after some time. Gives whether its channel is known now.
    pub(super) fn choose_group(&mut self, now: Timestamp, id: NetworkId) -> bool {
        let Some(network) = self.networks.get(&id) else { return false };
        let Some(settings) = network.settings.group.filter(|_| matches!(network.state, State::Searching))
        else {
            return false;
        };
        let active =
            |frequency| self.settings.channels.iter().any(|one| one.frequency == frequency && one.active);
        let is_ours = |seen: &&Seen| {
            seen.ad_hoc
                && seen.ssid.as_ref() == Some(&network.settings.ssid)
                && network.settings.bssid.is_none_or(|bssid| bssid == seen.bssid)
                && active(seen.frequency)
        };
        let heard = self.seen.iter().filter(is_ours).find(|seen| seen.protection == Protection::Open);
        let group = match heard {
            Some(seen) => Group {
                bssid: seen.bssid,
                frequency: seen.frequency,
                interval: seen.interval,
                rates: seen.rates.clone(),
                basic: seen.basic.clone(),
                clock: GroupClock::new(seen.heard, seen.clock),
                members: Default::default(),
                next_beacon: now + seen.interval,
                is_ours: false,
                unsent: None,
            },
            None if now.since(network.since) < FOUNDED_AFTER => return false,
            None if !active(settings.frequency) => {
                if self.networks.get_mut(&id).is_some_and(|network| network.is_news(Lost::Forbidden)) {
                    self.tell(Event::Trouble { network: id, reason: Lost::Forbidden });
                }
                return false;
            }
            None => {
                let mut bssid: [u8; 6] = self.randomness.random();
                // Local, and of one station (section 11.1.4.1).
                bssid[0] = bssid[0] & 0xfc | 2;
                let rates = own_rates(settings.frequency);
                let basic = vec![rates.first().copied().unwrap_or(Rate(12))];
                Group {
                    bssid: network.settings.bssid.unwrap_or(MacAddress(bssid)),
                    frequency: settings.frequency,
                    interval: management::TIME_UNIT * u32::from(INTERVAL_UNITS),
                    rates,
                    basic,
                    clock: GroupClock::new(now, 0),
                    members: Default::default(),
                    next_beacon: now,
                    is_ours: true,
                    unsent: None,
                }
            }
        };
        let (bssid, frequency) = (group.bssid, group.frequency);
        if let Some(network) = self.networks.get_mut(&id) {
            network.state = State::Grouped(Box::new(group));
            network.counters.ups += 1;
        }
        self.tell(Event::Up { network: id, bssid, frequency });
        true
    }

    /// Sends our beacon if it is due and nobody was faster.
    pub(super) fn drive_group(&mut self, now: Timestamp, id: NetworkId) {
        let due = self.group(id).is_some_and(|group| now >= group.next_beacon);
        if due && self.is_present() {
            self.send_beacon(now, id, None);
            self.plan_beacon(now, id);
        }
    }

    /// Tells the members of the groups here how long we stay.
    pub(super) fn tell_presence(&mut self, now: Timestamp) {
        let here: Vec<NetworkId> =
            self.here().filter(|network| network.group().is_some()).map(|network| network.id).collect();
        here.into_iter().for_each(|id| self.send_beacon(now, id, None));
    }

    /// Chance decides which member sends the next beacon.
    fn plan_beacon(&mut self, now: Timestamp, id: NetworkId) {
        let wait = BEACON_SPREAD.mul_f64(self.randomness.random_range(0.0..1.0));
        if let Some(group) = self.group_mut(id) {
            group.next_beacon = group.clock.next_beacon(now, group.interval) + wait;
        }
    }

    /// A beacon to all, or the answer to one who asked.
    fn send_beacon(&mut self, now: Timestamp, id: NetworkId, asked_by: Option<MacAddress>) {
        let stay = match self.phase {
            Phase::Present { until, .. } => until.since(now).saturating_sub(LEAVING_TIME),
            _ => return,
        };
        let sequence = self.next_sequence();
        let own = self.address_in(id);
        let Some(network) = self.networks.get_mut(&id) else { return };
        let ssid = network.settings.ssid.clone();
        let State::Grouped(group) = &mut network.state else { return };
        group.is_ours = true;
        let beacon = GroupBeacon {
            timestamp: group.clock.now(now),
            interval_units: u16::try_from(group.interval.as_micros() / management::TIME_UNIT.as_micros())
                .unwrap_or(INTERVAL_UNITS),
            ssid: ssid.as_bytes(),
            rates: &group.rates,
            basic: &group.basic,
            channel: group.frequency.channel().and_then(|channel| u8::try_from(channel).ok()).unwrap_or(0),
        };
        let mut body = Vec::new();
        beacon.write(&mut body);
        write_presence(&mut body, stay);
        let (kind, receiver, attempts) = match asked_by {
            Some(asked_by) => (Kind::ProbeResponse, asked_by, ATTEMPTS),
            None => (Kind::Beacon, MacAddress::BROADCAST, 1),
        };
        let frame = management_frame(kind, receiver, own, group.bssid, sequence, &body);
        let transmission = Transmission { frame, rate: group.safe_rate(), attempts };
        self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Other });
    }

    /// Somebody asks who is here.
    pub(super) fn handle_probe_request(&mut self, now: Timestamp, asked_by: MacAddress, body: &[u8]) {
        let asked = |network: &&Network| {
            let group = network.group().filter(|group| group.is_ours);
            group.is_some() && management::probe_asks_for(body, network.settings.ssid.as_bytes())
        };
        let asked: Vec<NetworkId> = self.here().filter(asked).map(|network| network.id).collect();
        if self.urgent.len() < MOST_ANSWERS {
            asked.into_iter().for_each(|id| self.send_beacon(now, id, Some(asked_by)));
        }
    }

    /// A beacon of an ad hoc group of a name that we are a member of: its clock, who sent it, and whether its group is the older one.
    pub(super) fn handle_group_beacon(&mut self, now: Timestamp, header: &Header, beacon: &Beacon<'_>) {
        let named = |network: &&Network| {
            network.group().is_some() && beacon.elements.ssid() == Some(network.settings.ssid.as_bytes())
        };
        let named: Vec<NetworkId> = self.here().filter(named).map(|network| network.id).collect();
        if beacon.privacy {
            return;
        }
        for id in named {
            let Some(network) = self.networks.get_mut(&id) else { continue };
            let fixed = network.settings.bssid;
            let State::Grouped(group) = &mut network.state else { continue };
            let older = beacon.timestamp > group.clock.now(now);
            if header.third != group.bssid {
                // Two groups of one name become one: the older one's (section 11.1.4.3).
                if !older || fixed.is_some_and(|bssid| bssid != header.third) {
                    continue;
                }
                group.bssid = header.third;
                group.members.clear();
                group.unsent = None;
                group.interval = beacon.interval;
            }
            if older {
                group.clock = GroupClock::new(now, beacon.timestamp);
            }
            group.is_ours = false;
            group.member(now, header.transmitter).told(now, beacon.elements);
            // Among members that tell how long they stay each says it itself.
            if !group.is_telling(now) || group.next_beacon <= now {
                self.plan_beacon(now, id);
            }
        }
    }

    /// A frame of a member to us or to all.
    pub(super) fn handle_group_frame(&mut self, now: Timestamp, id: NetworkId, header: &Header, body: &[u8]) {
        let own = self.address_in(id);
        let Some(group) = self.group_mut(id) else { return };
        let member = group.member(now, header.transmitter);
        let plain = matches!(header.control.kind, Kind::Data | Kind::QosData)
            && !header.control.protected
            && !header.is_aggregate();
        if member.duplicates.is_repeat(header) || !plain {
            return;
        }
        member.duplicates.note(header);
        let Some(body) = member.pieces.join(header, body.to_vec(), None) else { return };
        let packet = Packet::from_body(header.source(), header.destination(), &body);
        let packet = packet.ok().filter(|one| one.source != own && one.ethernet_type != EAPOL_TYPE);
        match packet.map(|packet| packet.to_ethernet()) {
            Some(packet) => {
                self.deliver(id, vec![packet]);
                self.note_activity(now, id);
            }
            None => {
                if let Some(network) = self.networks.get_mut(&id) {
                    network.counters.dropped_frames += 1;
                }
            }
        }
    }

    /// The next packet that is of use now, as a frame, if there is time for it before we leave.
    pub(super) fn next_group_frame(&mut self, now: Timestamp, id: NetworkId) -> Option<Outgoing> {
        let own = self.address_in(id);
        let network = self.networks.get(&id)?;
        let group = network.group()?;
        let is_there = |bytes: &Vec<u8>| receiver(bytes).is_none_or(|to| group.is_there(now, to));
        let at = network.waiting.iter().position(is_there);
        let (length, rate) = match (&group.unsent, at.and_then(|at| network.waiting.get(at))) {
            (Some((transmission, _, rate)), _) => (transmission.frame.len(), *rate),
            (None, Some(bytes)) => {
                let member = receiver(bytes).and_then(|to| group.members.get(&to));
                (bytes.len() + FRAMING, member.map_or(group.safe_rate(), |member| member.rates.best()))
            }
            (None, None) => return None,
        };
        if !self.has_time_for(now, self.air_time(length, rate)) {
            return None;
        }
        let sequence = self.next_sequence();
        let network = self.networks.get_mut(&id)?;
        let State::Grouped(group) = &mut network.state else { return None };
        if let Some((transmission, peer, rate)) = group.unsent.take() {
            return Some(Outgoing { transmission, purpose: Purpose::Peer { network: id, peer, rate } });
        }
        let at = at?;
        let bytes = network.waiting.remove(at)?;
        let Ok(packet) = Packet::from_ethernet(&bytes) else {
            network.counters.refused_packets += 1;
            return None;
        };
        let peer = packet.destination;
        let mut header = Header::new(Kind::Data, peer, own, group.bssid);
        header.sequence.number = sequence;
        let mut frame = Vec::with_capacity(24 + bytes.len());
        header.write(&mut frame);
        packet.write_body(&mut frame);
        let member = group.members.get(&peer);
        let rate = member.map_or_else(|| group.safe_rate(), |member| member.rates.next(&mut self.randomness));
        let attempts = if peer.is_group() { 1 } else { ATTEMPTS };
        network.counters.sent_packets += 1;
        network.counters.sent_bytes += bytes.len() as u64;
        network.slot_bytes += bytes.len() as u64;
        let transmission = Transmission { frame, rate, attempts };
        Some(Outgoing { transmission, purpose: Purpose::Peer { network: id, peer, rate } })
    }

    pub(super) fn group(&self, id: NetworkId) -> Option<&Group> {
        self.networks.get(&id)?.group()
    }

    pub(super) fn group_mut(&mut self, id: NetworkId) -> Option<&mut Group> {
        match &mut self.networks.get_mut(&id)?.state {
            State::Grouped(group) => Some(group),
            _ => None,
        }
    }
}

/// Whom an Ethernet frame is for.
pub(super) fn receiver(ethernet: &[u8]) -> Option<MacAddress> {
    ethernet.first_chunk().copied().map(MacAddress)
}

/// By so many bytes a frame is longer than its packet: 24 and 8 in place of 14 (IEEE 802.11-2020 section 9.3.2.1, IEEE 802 section 10.3).
const FRAMING: usize = 18;
/// Answers to who asks that wait to be sent.
const MOST_ANSWERS: usize = 16;
