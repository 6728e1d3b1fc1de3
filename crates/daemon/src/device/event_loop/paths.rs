//! From networks to paths: what the monitor saw, where a path may lead, its sockets.

use std::net::SocketAddr;

use anabranch::control::{EventKind, NetworkChange, NetworkReport, SessionState};
use bond::{Carrier, PathConfig};
use linux::monitor::Interface;
use policy::PathStatus;
use units::{NetworkId, Timestamp};

use super::{DeviceLoop, Link, Prefix, Task};
use crate::device::direct;
use crate::device::networks::{Network, NetworkEvent, reaches};
use crate::device::targets;

impl DeviceLoop {
    pub(super) fn on_interfaces(&mut self, now: Timestamp, interfaces: &[Interface]) {
        for event in self.networks.update(interfaces) {
            let (id, kind, what) = match event {
                NetworkEvent::Connected(id) => (id, EventKind::NetworkUp, "is connected"),
                NetworkEvent::Moved(id) => (id, EventKind::NetworkChanged, "has another address or next hop"),
                NetworkEvent::Disconnected(id) => (id, EventKind::NetworkDown, "is gone"),
                NetworkEvent::Forgotten(id) => {
                    self.forget(now, id);
                    continue;
                }
            };
            self.report_path(id, kind, what);
            match event {
                NetworkEvent::Disconnected(id) => {
                    self.plane.carriers.close_network(id);
                    self.plane.endpoint.network_down(now, id);
                    self.note_path(id, false, now);
                }
                NetworkEvent::Connected(id) | NetworkEvent::Moved(id) => self.on_connected(now, id),
                NetworkEvent::Forgotten(_) => {}
            }
        }
        self.tell_of_networks();
        self.update_statuses();
        if !self.networks.iter().any(|network| network.connected)
            && matches!(self.state.phase, SessionState::Connecting | SessionState::Up)
        {
            self.set_phase(SessionState::NoNetwork, "no network is connected");
        } else if self.state.phase == SessionState::NoNetwork && self.peer.is_none() {
            self.set_phase(SessionState::Up, "data flows");
        } else if self.state.phase == SessionState::NoNetwork && self.state.connected_since.is_none() {
            self.set_phase(SessionState::Connecting, "knocking at the gateway");
        }
    }

    fn forget(&mut self, now: Timestamp, id: NetworkId) {
        if let Some(session) = self.state.session {
            self.plane.endpoint.remove_path(now, session, id);
        }
        self.plane.carriers.close_network(id);
        self.state.links.remove(&id);
        self.state.prefixes.remove(&id);
        self.state.meters.remove(&id);
    }

    fn on_connected(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get(id) else { return };
        self.tasks.post(Task::LetIn(network.interface.name.clone()));
        if reaches(&network.interface, true) && !reaches(&network.interface, false) {
            self.tasks.post(Task::DiscoverNat64(id, network.interface.name.clone()));
        }
        let targets = self.targets_of(network);
        let changed = match self.state.links.get_mut(&id) {
            None => {
                self.state.links.insert(id, Link::new(id, targets, now));
                true
            }
            Some(link) => link.retarget(targets, now),
        };
        if changed {
            self.open(now, id);
        } else {
            // The same way as before: new sockets, and the path goes on where it was.
            self.open_socket(now, id);
            self.plane.endpoint.network_up(now, id);
        }
        if self.state.addresses.udp.is_empty() {
            self.resolve(now);
        }
    }

    pub(super) fn on_resolved(&mut self, now: Timestamp, addresses: Vec<SocketAddr>) {
        if addresses.is_empty() && !self.state.addresses.udp.is_empty() {
            return;
        }
        if addresses.is_empty() {
            let text = "the gateway's name cannot be looked up; trying again";
            self.events.push(EventKind::Warning, None, text);
            return;
        }
        self.state.addresses.udp = addresses;
        // A late answer is no reason to leave a way that works.
        self.retarget(now, |link| !link.works());
    }

    pub(super) fn on_nat64(&mut self, now: Timestamp, network: NetworkId, prefix: Option<Prefix>) {
        match prefix {
            // It may have been forgotten while the answer was on its way.
            Some(_) if self.networks.get(network).is_none() => None,
            Some(prefix) => self.state.prefixes.insert(network, prefix),
            None => self.state.prefixes.remove(&network),
        };
        self.retarget(now, |_| true);
    }

    fn retarget(&mut self, now: Timestamp, which: impl Fn(&Link) -> bool) {
        let targets: Vec<_> = self
            .networks
            .iter()
            .filter(|network| network.connected)
            .map(|network| (network.id, self.targets_of(network)))
            .collect();
        for (id, targets) in targets {
            let link = self.state.links.get_mut(&id).filter(|link| which(link));
            if link.is_some_and(|link| link.retarget(targets, now)) {
                self.open(now, id);
            }
        }
    }

    fn targets_of(&self, network: &Network) -> Vec<targets::Target> {
        let prefix = self.state.prefixes.get(&network.id).copied();
        targets::candidates(&network.interface, network.carrier, &self.state.addresses, prefix)
    }

    /// Opens the sockets of a network's target and has the bond keep a path there.
    pub(super) fn open(&mut self, now: Timestamp, id: NetworkId) {
        self.plane.carriers.close_network(id);
        if self.state.links.get(&id).is_some_and(|link| link.target().is_none()) {
            if let Some(session) = self.state.session {
                self.plane.endpoint.remove_path(now, session, id);
            }
            return;
        }
        self.open_socket(now, id);
        self.add_path(now, id);
    }

    pub(super) fn open_socket(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get(id) else { return };
        let Some(target) = self.state.links.get(&id).and_then(Link::target) else { return };
        let (name, local) = (&network.interface.name, targets::any_local(target.remote));
        let carriers = &mut self.plane.carriers;
        let opened = match target.carrier {
            Carrier::Udp => carriers.open_udp(&self.plane.poller, id, name, local),
            Carrier::Tcp => carriers.connect_tcp(&self.plane.poller, id, name, local, target.remote, now),
            // Virtual sockets have it, tunnels do not.
            Carrier::Bluetooth => return,
        };
        if let Err(error) = opened {
            self.events.push(EventKind::Warning, Some(name), error.to_string());
        }
    }

    pub(super) fn add_path(&mut self, now: Timestamp, id: NetworkId) {
        let (Some(session), Some(network)) = (self.state.session, self.networks.get(id)) else { return };
        let Some(link) = self.state.links.get(&id).filter(|_| network.connected) else { return };
        let (Some(target), Some(address)) = (link.target(), link.address()) else { return };
        let path = PathConfig {
            address,
            mtu_limit: targets::mtu_limit(&network.interface, target),
            status: self.status_of(id),
            priority: network.preference.priority.0,
        };
        self.plane.endpoint.add_path(now, session, path);
    }

    pub(super) fn status_of(&self, id: NetworkId) -> PathStatus {
        let statuses = self.networks.statuses();
        statuses.iter().find(|(of, _)| *of == id).map_or(PathStatus::Off, |(_, status)| *status)
    }

    pub(super) fn update_statuses(&mut self) {
        let Some(session) = self.state.session else { return };
        for (id, status) in self.networks.statuses() {
            let priority = self.networks.get(id).map_or(0, |network| network.preference.priority.0);
            self.plane.endpoint.set_path_status(session, id, status, priority);
        }
    }

    fn tell_of_networks(&self) {
        self.direct.post(direct::Message::Networks(self.networks.iter().cloned().collect()));
        if let Some(neighbours) = &self.neighbours {
            let preferences = self.networks.iter();
            neighbours.prefer(
                preferences.map(|network| (network.interface.name.clone(), network.preference)).collect(),
            );
        }
    }

    pub(super) fn set_network(&mut self, name: &str, change: NetworkChange) -> Option<NetworkReport> {
        let network = self.networks.by_name_mut(name)?;
        let preference = &mut network.preference;
        preference.priority = change.priority.unwrap_or(preference.priority);
        preference.backup = change.backup.or(preference.backup);
        preference.metered = change.metered.unwrap_or(preference.metered);
        preference.off = change.off.unwrap_or(preference.off);
        self.tell_of_networks();
        self.update_statuses();
        self.network_reports().into_iter().find(|report| report.name == name)
    }
}
