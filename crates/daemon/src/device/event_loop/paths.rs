//! From networks to paths: what the monitor saw, where a path may lead, its sockets.

use std::net::SocketAddr;

use anabranch::control::{EventKind, NetworkChange, NetworkReport, SessionState};
use bond::{Carrier, PathConfig};
use identity::PublicKey;
use linux::clock;
use linux::monitor::Interface;
use policy::PathStatus;
use units::{NetworkId, Timestamp};

use super::{DeviceLoop, Prefix, Task};
use crate::device::advice::Card;
use crate::device::direct;
use crate::device::gateways::Gateway;
use crate::device::networks::{Network, NetworkEvent, reaches};
use crate::device::targets::{self, Link, Target};

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
                    self.note_gone(id, now);
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
        } else if self.state.phase == SessionState::NoNetwork && self.gateways.is_empty() {
            self.say_up();
        } else if self.state.phase == SessionState::NoNetwork && self.state.connected_since.is_none() {
            self.set_phase(SessionState::Connecting, self.knocking());
        }
    }

    fn forget(&mut self, now: Timestamp, id: NetworkId) {
        for gateway in self.gateways.iter_mut() {
            if let Some(session) = gateway.session() {
                self.plane.endpoint.remove_path(now, session, id);
            }
            gateway.links.remove(&id);
        }
        self.plane.carriers.close_network(id);
        self.state.prefixes.remove(&id);
        self.state.meters.remove(&id);
    }

    fn on_connected(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get(id) else { return };
        self.tasks.post(Task::LetIn(network.interface.name.clone()));
        if reaches(&network.interface, true) && !reaches(&network.interface, false) {
            self.tasks.post(Task::DiscoverNat64(id, network.interface.name.clone()));
        }
        let prefix = self.state.prefixes.get(&id).copied();
        let mut others = Vec::new();
        let mut stays = false;
        for gateway in self.gateways.iter_mut() {
            let targets =
                targets::candidates(&network.interface, network.carrier, &gateway.addresses, prefix);
            let changed = match gateway.links.get_mut(&id) {
                None => {
                    gateway.links.insert(id, Link::new(id, targets, now));
                    true
                }
                Some(link) => {
                    link.note_back(network.elsewhere, now);
                    link.retarget(targets, now)
                }
            };
            if changed {
                others.push(gateway.peer.public_key);
            }
            stays |= !changed;
        }
        self.gateways.note_network(now);
        self.renew_sockets(now, id);
        if stays {
            // The same way as before: the path goes on where it was.
            self.plane.endpoint.network_up(now, id);
        }
        for gateway in others {
            self.lead(now, gateway, id);
        }
        for gateway in self.gateways.keys() {
            if self.gateways.get(gateway).is_some_and(|gateway| gateway.addresses.udp.is_empty()) {
                self.resolve(now, gateway);
            }
        }
    }

    pub(super) fn on_resolved(&mut self, now: Timestamp, key: PublicKey, addresses: Vec<SocketAddr>) {
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        if addresses.is_empty() && !gateway.addresses.udp.is_empty() {
            return;
        }
        if addresses.is_empty() {
            let text = format!("the name of {} cannot be looked up; trying again", gateway.peer.name);
            self.events.push(EventKind::Warning, None, text);
            return;
        }
        gateway.addresses.udp = addresses;
        // A late answer is no reason to leave a way that works.
        self.retarget(now, key, |link| !link.works());
    }

    pub(super) fn on_nat64(&mut self, now: Timestamp, network: NetworkId, prefix: Option<Prefix>) {
        match prefix {
            // It may have been forgotten while the answer was on its way.
            Some(_) if self.networks.get(network).is_none() => None,
            Some(prefix) => self.state.prefixes.insert(network, prefix),
            None => self.state.prefixes.remove(&network),
        };
        for gateway in self.gateways.keys() {
            self.retarget(now, gateway, |_| true);
        }
    }

    /// Has the links to a gateway lead to where it may be now.
    fn retarget(&mut self, now: Timestamp, key: PublicKey, which: impl Fn(&Link) -> bool) {
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        let mut changed = Vec::new();
        for network in self.networks.iter().filter(|network| network.connected) {
            let prefix = self.state.prefixes.get(&network.id).copied();
            let targets =
                targets::candidates(&network.interface, network.carrier, &gateway.addresses, prefix);
            let link = gateway.links.get_mut(&network.id).filter(|link| which(link));
            if link.is_some_and(|link| link.retarget(targets, now)) {
                changed.push(network.id);
            }
        }
        for id in changed {
            self.open(now, key, id);
        }
    }

    /// Has a link to a gateway over every network that is connected.
    pub(super) fn prepare_links(&mut self, now: Timestamp, key: PublicKey) {
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        for network in self.networks.iter().filter(|network| network.connected) {
            let link = || Link::new(network.id, Vec::new(), now);
            gateway.links.entry(network.id).or_insert_with(link);
        }
    }

    /// Leads paths to a gateway that is knocked at from now on, over every network.
    pub(super) fn begin_links(&mut self, now: Timestamp, key: PublicKey) {
        let networks: Vec<(NetworkId, bool)> =
            self.networks.iter().map(|network| (network.id, network.connected)).collect();
        for (id, is_connected) in networks {
            if !is_connected {
                // Made anew when it is back: this session has no path there that could come up again.
                if let Some(gateway) = self.gateways.get_mut(key) {
                    gateway.links.remove(&id);
                }
                continue;
            }
            let proved = self.gateways.proved(id);
            if let Some(link) = self.gateways.get_mut(key).and_then(|gateway| gateway.links.get_mut(&id)) {
                link.begin(proved, now);
            }
            self.lead(now, key, id);
        }
    }

    /// Opens the sockets of a network's target anew and has the bond keep a path there. What others have open stays.
    pub(super) fn open(&mut self, now: Timestamp, key: PublicKey, id: NetworkId) {
        if self.gateways.get(key).is_none_or(|gateway| gateway.session().is_none()) {
            return;
        }
        let is_alone = self.gateways.iter().filter(|gateway| gateway.session().is_some()).count() < 2;
        if is_alone {
            self.plane.carriers.close_network(id);
        } else {
            self.plane.carriers.keep_only(&self.gateways.addresses());
        }
        self.lead(now, key, id);
    }

    /// Has the bond keep a path over a network to a gateway that is spoken to.
    fn lead(&mut self, now: Timestamp, key: PublicKey, id: NetworkId) {
        let Some(gateway) = self.gateways.get(key) else { return };
        let Some(session) = gateway.session() else { return };
        if gateway.links.get(&id).is_some_and(|link| link.target().is_none()) {
            self.plane.endpoint.remove_path(now, session, id);
            return;
        }
        self.open_socket(now, key, id);
        self.add_path(now, key, id);
    }

    /// New sockets of a network for all gateways that are spoken to.
    pub(super) fn renew_sockets(&mut self, now: Timestamp, id: NetworkId) {
        self.plane.carriers.close_network(id);
        for gateway in self.gateways.keys() {
            self.open_socket(now, gateway, id);
        }
    }

    /// Opens the socket of a network's way to a gateway that is spoken to, unless there is one.
    pub(super) fn open_socket(&mut self, now: Timestamp, key: PublicKey, id: NetworkId) {
        let Some(network) = self.networks.get(id).filter(|network| network.connected) else { return };
        let Some(gateway) = self.gateways.get(key).filter(|gateway| gateway.session().is_some()) else {
            return;
        };
        let Some(link) = gateway.links.get(&id) else { return };
        let (Some(target), Some(address)) = (link.target(), link.address()) else { return };
        if self.plane.carriers.is_open(address) {
            return;
        }
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

    fn add_path(&mut self, now: Timestamp, key: PublicKey, id: NetworkId) {
        let (Some(gateway), Some(network)) = (self.gateways.get(key), self.networks.get(id)) else { return };
        let Some(session) = gateway.session().filter(|_| network.connected) else { return };
        let Some(link) = gateway.links.get(&id) else { return };
        let (Some(target), Some(address)) = (link.target(), link.address()) else { return };
        let path = PathConfig {
            address,
            mtu_limit: targets::mtu_limit(&network.interface, target),
            status: self.status_of(id),
            priority: network.preference.priority.0,
        };
        self.plane.endpoint.add_path(now, session, path);
    }

    /// A TCP connection has ended.
    pub(super) fn on_ended(&mut self, network: NetworkId, remote: SocketAddr) {
        let now = clock::now();
        for gateway in self.gateways.iter_mut() {
            let session = gateway.session();
            let link = gateway.links.get_mut(&network);
            let rode = |link: &Link| link.target() == Some(Target { carrier: Carrier::Tcp, remote });
            let Some(link) = link.filter(|link| rode(link)) else { continue };
            link.note_ended(now);
            if let Some(session) = session {
                self.plane.endpoint.path_lost(now, session, network);
            }
        }
    }

    pub(super) fn status_of(&self, id: NetworkId) -> PathStatus {
        let statuses = self.networks.statuses();
        statuses.iter().find(|(of, _)| *of == id).map_or(PathStatus::Off, |(_, status)| *status)
    }

    pub(super) fn update_statuses(&mut self) {
        let statuses = self.networks.statuses();
        for session in self.gateways.iter().filter_map(Gateway::session) {
            for (id, status) in &statuses {
                let priority = self.networks.get(*id).map_or(0, |network| network.preference.priority.0);
                self.plane.endpoint.set_path_status(session, *id, *status, priority);
            }
        }
    }

    fn tell_of_networks(&self) {
        self.direct.post(direct::Message::Networks(self.networks.iter().cloned().collect()));
        let card = |network: &Network| Card {
            network: network.id,
            interface: network.interface.name.clone(),
            index: network.interface.index,
        };
        self.cards.tell(self.networks.preferred().into_iter().map(card).collect());
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
