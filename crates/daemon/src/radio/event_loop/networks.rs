//! The networks of the loop: their interfaces and addresses, which of them carries it all, and what is told of them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use anabranch::control::EventKind;
use linux::dns::NetworkServers;
use linux::tap::Tap;
use radio::{Event, NetworkStatus};
use tracing::{debug, warn};
use units::{NetworkId, Timestamp};

use super::{ANSWER_TIME, Attached, BUDGET, FIRST_INTERFACE, NAMES_EVERY, RadioLoop};
use crate::radio::address::MTU;
use crate::radio::lease::LeaseClient;
use crate::radio::soft_handoff::{Leased, SoftHandoff};
use crate::radio::{KnownNetwork, control};
use crate::supervision::Request;
use linux::clock;

impl RadioLoop {
    pub(super) fn read_interface(&mut self, number: u64) {
        let id =
            number.checked_sub(FIRST_INTERFACE).and_then(|number| u32::try_from(number).ok()).map(NetworkId);
        let Some((id, attached)) = id.and_then(|id| Some((id, self.attached.get_mut(&id)?))) else { return };
        let mut buffer = [0; Tap::longest_frame(MTU)];
        for _ in 0..BUDGET {
            match attached.tap.read_frame(&mut buffer) {
                Ok(length) => drop(self.station.handle_packet(clock::now(), id, &buffer[..length])),
                Err(_) => break,
            }
        }
    }

    pub(super) fn deliver(&mut self, id: NetworkId, packet: Vec<u8>) {
        let Some(attached) = self.attached.get_mut(&id) else { return };
        let lease = attached.lease.as_mut().filter(|_| LeaseClient::wants(&packet));
        if let Some(lease) = lease {
            let keep = LeaseClient::is_from_server(&packet);
            lease.receive(packet.clone());
            if keep {
                return;
            }
        }
        if let Err(error) = attached.tap.write_frame(&packet) {
            debug!("{}: {error}", attached.tap.name());
        }
    }

    pub(super) fn note(&mut self, event: Event) {
        let (Event::Up { network, .. } | Event::Down { network, .. } | Event::Trouble { network, .. }) =
            event;
        let Some(attached) = self.attached.get_mut(&network) else { return };
        let ssid = attached.known.ssid.clone();
        let (carrier, kind, text) = match event {
            Event::Up { bssid, frequency, .. } => {
                attached.trouble = None;
                if let Some(lease) = &mut attached.lease {
                    let now = clock::now();
                    let address = self.station.address_in(network);
                    let known = &attached.known;
                    let wall = SystemTime::now();
                    let point = Some(bssid);
                    lease.came_up(now, point, self.memory.candidates(now, wall, known, address, point));
                }
                let text = format!("up, by {bssid} on {} MHz, as {}", frequency.0, attached.tap.name());
                (Some(true), EventKind::NetworkUp, text)
            }
            Event::Down { reason, .. } => {
                attached.trouble = Some(reason.to_string());
                (Some(false), EventKind::NetworkDown, format!("down: {reason}"))
            }
            Event::Trouble { reason, .. } => {
                attached.trouble = Some(reason.to_string());
                (None, EventKind::Warning, reason.to_string())
            }
        };
        self.events.push(kind, Some(&ssid), text);
        if let Some(carrier) = carrier {
            if let Err(error) = attached.tap.set_carrier(carrier) {
                warn!("{}: {error}", attached.tap.name());
            }
            if let Err(error) = attached.address.set_passes(attached.tap.index(), carrier) {
                warn!("{ssid}: {error}");
            }
            self.names_due = clock::now();
        }
        if let Some(handoff) = &mut self.handoff {
            handoff.hurry();
        }
    }

    /// Lets the clients of networks that are up ask for addresses.
    pub(super) fn drive_leases(&mut self, now: Timestamp) {
        let up: Vec<NetworkStatus> = self.station.networks().filter(|network| network.up).collect();
        for id in up.iter().map(|network| network.network) {
            let Some(attached) = self.attached.get_mut(&id) else { continue };
            let Some(lease) = &mut attached.lease else { continue };
            let change = lease.poll(now);
            let is_settled = lease.is_settled();
            while let Some(frame) = lease.transmit() {
                self.station.handle_packet(now, id, &frame);
                if !is_settled {
                    self.station.expect_group_traffic(id, now + ANSWER_TIME);
                }
            }
            let Attached { known, tap, address, .. } = attached;
            if let Some(learnt) = lease.learnt() {
                let own = self.station.address_in(id);
                self.memory.remember(SystemTime::now(), known, own, &learnt);
            }
            let Some(change) = change else { continue };
            if let Some(text) = change.text() {
                self.events.push(EventKind::NetworkChanged, Some(&known.ssid), text);
            }
            if let Err(error) = address.apply(&known.ssid, tap.index(), change) {
                warn!("{}: the address that it lent cannot be used: {error}", known.ssid);
            }
            if is_settled {
                self.station.expect_group_traffic(id, now);
            }
            self.names_due = now;
            if let Some(handoff) = &mut self.handoff {
                handoff.hurry();
            }
        }
    }

    /// Where one network is to carry it all: which.
    pub(super) fn drive_handoff(&mut self, now: Timestamp) {
        let Some(handoff) = self.handoff.as_mut().filter(|handoff| handoff.timeout() <= now) else { return };
        let leased = self
            .attached
            .iter()
            .filter(|(_, attached)| attached.address.lent().is_some_and(|lent| lent.gateway.is_some()));
        let leased = leased
            .map(|(id, attached)| Leased { network: *id, interface: attached.tap.name().to_owned() })
            .collect::<Vec<_>>();
        let Some(change) = handoff.drive(now, &mut self.station, &leased) else { return };
        if let Some(attached) = self.attached.get(&change.to) {
            let (ssid, text) = (&attached.known.ssid, format!("carries the traffic now: {}", change.why));
            self.events.push(EventKind::NetworkChanged, Some(ssid), text);
        }
        // The new one's route first: it takes the place of the old one's at once.
        let others = self.attached.keys().copied().filter(|id| *id != change.to);
        for id in [change.to].into_iter().chain(others).collect::<Vec<_>>() {
            if let Some(attached) = self.attached.get_mut(&id)
                && let Err(error) = attached.address.set_primary(attached.tap.index(), id == change.to)
            {
                warn!("{}: {error}", attached.known.ssid);
            }
        }
        self.names_due = now;
    }

    /// Tells root whom names are asked: the primary's servers first, then those of the others that are up.
    pub(super) fn tell_names(&mut self, now: Timestamp) {
        if now < self.names_due {
            return;
        }
        self.names_due = now + NAMES_EVERY;
        let primary = self.handoff.as_ref().and_then(SoftHandoff::primary);
        let mut up: Vec<(&NetworkId, &Attached)> =
            self.attached.iter().filter(|(_, attached)| attached.address.passes()).collect();
        up.sort_by_key(|(id, _)| Some(**id) != primary);
        let networks: Vec<NetworkServers> = up
            .iter()
            .filter_map(|(_, attached)| {
                let servers = attached.address.lent()?.servers.iter().map(|server| IpAddr::V4(*server));
                Some(NetworkServers { interface: attached.tap.name().to_owned(), servers: servers.collect() })
            })
            .collect();
        // Aside, since running resolvectl takes longer than frames wait.
        let (root, events) = (Arc::clone(&self.root), Arc::clone(&self.events));
        let told = std::thread::Builder::new().name("names".to_owned()).spawn(move || {
            if let Err(error) = root.ask(&Request::Names { networks }) {
                warn!("names are not asked at the networks' own servers: {error}");
                events.push(
                    EventKind::Warning,
                    None,
                    format!("names are not asked at the networks' own servers: {error}"),
                );
            }
        });
        if let Err(error) = told {
            warn!("names are not asked at the networks' own servers: {error}");
        }
    }

    /// Tells what was heard, once every channel was listened to.
    pub(super) fn answer_scans(&mut self) {
        if self.scans.is_empty() || self.station.is_scanning() {
            return;
        }
        let known: Vec<&KnownNetwork> = self.attached.values().map(|attached| &attached.known).collect();
        let heard = control::heard_networks(self.station.seen(), &known);
        self.scans.drain(..).for_each(|reply| drop(reply.try_send(heard.clone())));
    }
}
