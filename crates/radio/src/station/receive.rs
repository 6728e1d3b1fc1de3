//! What is heard: beacons, answers, packets.

use rand::RngCore;
use units::{NetworkId, Timestamp};

use super::join::{SA_QUERY, SA_QUERY_REQUEST, SA_QUERY_RESPONSE};
use super::{MOST_PACKETS, Station, StationSettings};
use crate::Heard;
use crate::frame::management::{self, Beacon};
use crate::frame::{Header, Kind};
use crate::link::Brought;
use crate::network::{Lost, Network, State};
use crate::scan::Protection;

impl Station {
    /// A frame that the card heard. Frames that do not concern us, or are none, change nothing.
    pub fn handle_frame(&mut self, now: Timestamp, heard: &Heard<'_>) {
        let Ok((header, body)) = Header::parse(heard.frame) else { return };
        if self.is_own(header.transmitter) || header.transmitter.is_group() {
            return;
        }
        let bssid = header.bssid();
        let from_access_point = header.transmitter == bssid;
        let is_for_us = self.is_own(header.receiver) && header.control.kind.is_data() && from_access_point;
        // What is for us is looked at first: it tells nothing of an access point whose keys it does not fit.
        if !is_for_us {
            self.judge(now, &header, heard);
        }
        if matches!(header.control.kind, Kind::Beacon | Kind::ProbeResponse) && !header.control.protected {
            if let Ok(beacon) = Beacon::parse(body) {
                self.handle_beacon(now, &header, &beacon, heard);
            }
            return;
        }
        if !self.is_own(header.receiver) && !header.receiver.is_group() {
            return;
        }
        let to_us = |network: &&Network| {
            let addressed = header.receiver.is_group() || header.receiver == network.address;
            addressed && network.target().is_some_and(|target| target.bssid == bssid)
        };
        let found: Vec<NetworkId> = self.networks.values().filter(to_us).map(|network| network.id).collect();
        if from_access_point {
            let handle = |is_forged, id| self.handle_network_frame(now, id, &header, body) || is_forged;
            let is_forged = found.into_iter().fold(false, handle);
            if is_for_us && !is_forged {
                self.judge(now, &header, heard);
            }
            return;
        }
        if header.control.kind == Kind::ProbeRequest {
            return self.handle_probe_request(now, header.transmitter, body);
        }
        let direct = !header.control.to_access_point && !header.control.from_access_point;
        if direct && header.control.kind.is_data() {
            let grouped = |network: &&Network| {
                let addressed = header.receiver.is_group() || header.receiver == network.address;
                addressed && network.group().is_some_and(|group| group.bssid == bssid)
            };
            let found: Vec<NetworkId> = self.here().filter(grouped).map(|network| network.id).collect();
            found.into_iter().for_each(|id| self.handle_group_frame(now, id, &header, body));
        }
    }

    /// How well its sender is heard is judged by a frame, too.
    fn judge(&mut self, now: Timestamp, header: &Header, heard: &Heard<'_>) {
        let StationSettings { address, further, .. } = &self.settings;
        let is_own = |receiver| receiver == *address || further.contains(&receiver);
        let networks = &self.networks;
        let is_joined = |bssid| networks.values().any(|network| network.bssid() == Some(bssid));
        self.qualities.take(now, header, heard, is_own, is_joined);
    }

    fn handle_beacon(&mut self, now: Timestamp, header: &Header, beacon: &Beacon<'_>, heard: &Heard<'_>) {
        if header.transmitter != header.third && !beacon.ad_hoc {
            return;
        }
        let Some((seen, is_new)) = self.seen.take(now, header.third, beacon, heard) else { return };
        let protection = seen.protection.clone();
        let bssid = header.third;
        if beacon.ad_hoc {
            self.handle_group_beacon(now, header, beacon);
        }
        let ours: Vec<NetworkId> = self
            .here()
            .filter(|network| network.target().is_some_and(|target| target.bssid == bssid))
            .map(|network| network.id)
            .collect();
        for id in ours {
            self.handle_own_beacon(now, id, header.control.kind, beacon, &protection);
        }
        if is_new || self.networks.values().any(|network| matches!(network.state, State::Searching)) {
            self.choose_targets(now);
            self.drive_joins(now);
        }
    }

    fn handle_own_beacon(
        &mut self,
        now: Timestamp,
        id: NetworkId,
        kind: Kind,
        beacon: &Beacon<'_>,
        protection: &Protection,
    ) {
        let present = self.is_present();
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        linked.life.seen(now);
        let announced = beacon.elements.channel_switch();
        if announced.is_none() && kind == Kind::Beacon {
            // It stays, or it was not the access point that said it goes.
            linked.moving = None;
        }
        // Beacons are not signed: another protection may be a forgery, and is only heeded when joining.
        if kind == Kind::Beacon && *protection == linked.target.protection {
            let map = beacon.elements.traffic_map();
            let (count, period) = map.map_or((0, 1), |map| (map.count, map.period));
            linked.beacons.heard(now, beacon.interval, count, period);
            let waits = map.is_some_and(|map| map.waits_for(linked.link.association));
            if waits && present && linked.drain.polling {
                linked.drain.next_poll = Some(now);
            } else if waits && present && linked.awake && linked.link.is_open() {
                // It takes us for asleep.
                self.send_null(id, false);
            }
        }
        if let Some((channel, count)) = announced {
            self.announced_move(now, id, channel, count);
        }
    }

    /// Whether the access point cannot have sent the frame, as it does not fit the keys.
    fn handle_network_frame(&mut self, now: Timestamp, id: NetworkId, header: &Header, body: &[u8]) -> bool {
        let Some(network) = self.networks.get_mut(&id) else { return false };
        match (&mut network.state, header.control.kind) {
            (State::Authenticating(..), Kind::Authentication) if !header.control.protected => {
                if let Ok(answer) = management::parse_authentication(body) {
                    self.authenticated(now, id, answer);
                }
            }
            (State::Associating(..), Kind::AssociationResponse) if !header.control.protected => {
                if let Ok(answer) = management::parse_association_response(body) {
                    self.associated(now, id, answer);
                }
            }
            (
                State::Authenticating(..) | State::Associating(..),
                Kind::Deauthentication | Kind::Disassociation,
            ) => {
                if let Ok(reason) = management::parse_reason(body) {
                    self.lose(now, id, Lost::SentAway(reason));
                }
            }
            (State::Linked(linked), kind) => {
                linked.life.seen(now);
                let brought = linked.link.receive(header, body);
                let is_forged = matches!(brought, Brought::Dropped) && linked.link.is_protected();
                self.handle_brought(now, id, header, kind, brought);
                return is_forged;
            }
            _ => {}
        }
        false
    }

    fn handle_brought(
        &mut self,
        now: Timestamp,
        id: NetworkId,
        header: &Header,
        kind: Kind,
        brought: Brought,
    ) {
        let is_unicast_data = kind.is_data() && !header.receiver.is_group();
        match brought {
            Brought::Packets(packets) => self.deliver(id, packets),
            Brought::Keys(payload) => self.handle_key_frame(now, id, &payload),
            Brought::Management(body) => self.handle_management(now, id, kind, &body),
            Brought::Unprotected if matches!(kind, Kind::Deauthentication | Kind::Disassociation) => {
                self.doubt(id);
                self.drive_joins(now);
            }
            Brought::Dropped => {
                if let Some(network) = self.networks.get_mut(&id) {
                    network.counters.dropped_frames += 1;
                }
            }
            Brought::Unprotected | Brought::Nothing => {}
        }
        if is_unicast_data {
            self.note_activity(now, id);
            self.note_kept(now, id, header.control.more_data);
        }
    }

    /// A frame came from the access point's store, or at once; `more` are there.
    fn note_kept(&mut self, now: Timestamp, id: NetworkId, more: bool) {
        let present = self.is_present();
        let Some(network) = self.networks.get_mut(&id) else { return };
        let State::Linked(linked) = &mut network.state else { return };
        if let Some(measured) = linked.drain.take(now, more) {
            network.waking.learn(measured);
        }
        let polling = linked.drain.polling;
        if present && linked.drain.ends_trial() {
            self.send_null(id, false);
        } else if more && polling && present {
            self.send_poll(now, id);
        }
        self.leave_if_asleep(now);
    }

    pub(super) fn deliver(&mut self, id: NetworkId, packets: Vec<Vec<u8>>) {
        let Some(network) = self.networks.get_mut(&id).filter(|network| network.is_open()) else { return };
        for packet in packets {
            if self.packets.len() >= MOST_PACKETS {
                break;
            }
            network.counters.received_packets += 1;
            network.counters.received_bytes += packet.len() as u64;
            network.slot_bytes += packet.len() as u64;
            self.packets.push_back((id, packet));
        }
    }

    fn handle_key_frame(&mut self, now: Timestamp, id: NetworkId, payload: &[u8]) {
        let mut nonce = [0; 32];
        self.randomness.fill_bytes(&mut nonce);
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        match linked.link.handle_keys(payload, nonce) {
            Some(Ok(progress)) => {
                // The answer goes by the keys that were in use until now.
                self.send_keys(id, &progress.reply);
                if let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) {
                    linked.link.install(progress);
                }
                self.announce_if_open(now, id);
            }
            Some(Err(crate::security::KeyError::Downgraded)) => self.lose(now, id, Lost::Forged),
            Some(Err(_)) => {
                if let Some(network) = self.networks.get_mut(&id) {
                    network.counters.dropped_frames += 1;
                }
            }
            None => {}
        }
    }

    fn handle_management(&mut self, now: Timestamp, id: NetworkId, kind: Kind, body: &[u8]) {
        match kind {
            Kind::Deauthentication | Kind::Disassociation => {
                let Ok(reason) = management::parse_reason(body) else { return };
                let wrong = self
                    .networks
                    .get(&id)
                    .and_then(|network| network.linked())
                    .is_some_and(|linked| linked.link.is_refusing_our_key());
                self.lose(now, id, if wrong { Lost::WrongPassphrase } else { Lost::SentAway(reason) });
            }
            Kind::Action => match *body {
                [SA_QUERY, SA_QUERY_REQUEST, a, b, ..] => {
                    self.send_management(id, Kind::Action, &[SA_QUERY, SA_QUERY_RESPONSE, a, b]);
                }
                [SA_QUERY, SA_QUERY_RESPONSE, ..] => {
                    if let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut())
                    {
                        linked.doubt = None;
                    }
                }
                // Spectrum management, channel switch announcement (section 9.6.2.6), and the extended one (9.6.7.7).
                [0, 4, 37, 3, _, channel, count, ..] | [4, 4, _, _, channel, count, ..] => {
                    self.announced_move(now, id, channel, count);
                }
                _ => {}
            },
            _ => {}
        }
    }
}
