//! Which interfaces are networks, and what happens to them. Decides only; sockets and paths are the loop's.

use std::collections::{BTreeMap, BTreeSet};

use anabranch::link::rides_on_others;
use linux::monitor::Interface;
use policy::{NetworkPreference, PathStatus};
use units::NetworkId;

use crate::config::{CarrierChoice, Config, NetworkConfig};

/// One network of this device: an interface, whether it is there now or was once.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// Its number; stays with the name while the daemon lives.
    pub id: NetworkId,
    /// The interface as last seen.
    pub interface: Interface,
    /// Whether the interface is there now.
    pub present: bool,
    /// Whether packets can leave by it now.
    pub connected: bool,
    /// Whether it came up with another address or next hop than it had before.
    pub elsewhere: bool,
    /// The interface as it was when packets could leave by it.
    pub place: Interface,
    /// What the user prefers.
    pub preference: NetworkPreference,
    /// What its paths ride on.
    pub carrier: CarrierChoice,
}

/// What the loop must follow up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkEvent {
    /// Packets can leave by it, for the first time or again.
    Connected(NetworkId),
    /// It is connected, but its addresses or next hops are others now.
    Moved(NetworkId),
    /// No packet can leave by it.
    Disconnected(NetworkId),
    /// It was gone and has made room for another; its number does not come back.
    Forgotten(NetworkId),
}

/// The networks that are there and those that were, by name of the interface; at most [`MAXIMUM_NETWORKS`], of which the
/// oldest that is gone makes room for a new one.
#[derive(Debug)]
pub struct Networks {
    own_interface: String,
    config: BTreeMap<String, NetworkConfig>,
    known: BTreeMap<String, Network>,
    next: u32,
    /// Interfaces whose access points cost better ones more than they bring.
    spared: BTreeSet<String>,
}

impl Networks {
    /// No network yet; `config` says what is preferred.
    pub fn new(config: &Config) -> Self {
        Self {
            own_interface: config.device.interface.clone(),
            config: config.networks.clone(),
            known: BTreeMap::new(),
            next: 0,
            spared: BTreeSet::new(),
        }
    }

    /// Takes in what the monitor sees now and says what changed.
    pub fn update(&mut self, interfaces: &[Interface]) -> Vec<NetworkEvent> {
        let mut events = Vec::new();
        for (name, network) in &mut self.known {
            let gone = !interfaces.iter().any(|interface| interface.name == *name);
            network.present = !gone;
            if gone && network.connected {
                network.connected = false;
                events.push(NetworkEvent::Disconnected(network.id));
            }
        }
        for interface in interfaces {
            if self.may_be_network(interface) {
                self.take_in(interface, &mut events);
            }
        }
        events
    }

    fn take_in(&mut self, interface: &Interface, events: &mut Vec<NetworkEvent>) {
        let connected = interface.is_running() && (reaches(interface, false) || reaches(interface, true));
        let Some(network) = self.known.get_mut(&interface.name) else {
            if connected {
                self.add(interface, events);
            }
            return;
        };
        let moved = is_elsewhere(&network.interface, interface);
        if connected {
            network.elsewhere = is_elsewhere(&network.place, interface);
            network.place = interface.clone();
        }
        let before = std::mem::replace(&mut network.connected, connected);
        network.interface = interface.clone();
        match (before, connected) {
            (false, true) => events.push(NetworkEvent::Connected(network.id)),
            (true, false) => events.push(NetworkEvent::Disconnected(network.id)),
            (true, true) if moved => events.push(NetworkEvent::Moved(network.id)),
            _ => {}
        }
    }

    fn add(&mut self, interface: &Interface, events: &mut Vec<NetworkEvent>) {
        if self.known.len() >= MAXIMUM_NETWORKS {
            let gone =
                self.known.values().filter(|network| !network.connected).min_by_key(|network| network.id);
            let Some((id, name)) = gone.map(|network| (network.id, network.interface.name.clone())) else {
                return;
            };
            self.known.remove(&name);
            events.push(NetworkEvent::Forgotten(id));
        }
        let config = self.config.get(&interface.name).copied().unwrap_or_default();
        let id = NetworkId(self.next);
        self.next += 1;
        let network = Network {
            id,
            interface: interface.clone(),
            present: true,
            connected: true,
            elsewhere: false,
            place: interface.clone(),
            preference: preference(config),
            carrier: config.carrier,
        };
        self.known.insert(interface.name.clone(), network);
        events.push(NetworkEvent::Connected(id));
    }

    /// Interfaces that lead out by themselves: not ours, not local, not another tunnel, not a port of a bridge.
    fn may_be_network(&self, interface: &Interface) -> bool {
        leads_out(interface, &self.own_interface, self.config.contains_key(&interface.name))
    }

    /// Whether any is connected.
    pub fn any_connected(&self) -> bool {
        self.iter().any(|network| network.connected)
    }

    /// All networks, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Network> {
        self.known.values()
    }

    /// The network with that number.
    pub fn get(&self, id: NetworkId) -> Option<&Network> {
        self.known.values().find(|network| network.id == id)
    }

    /// The network of that name.
    pub fn by_name_mut(&mut self, name: &str) -> Option<&mut Network> {
        self.known.get_mut(name)
    }

    /// These interfaces are kept ready only, as long as there is another: their access points cost better ones more than they bring. Gives
    /// whether that is news.
    pub fn spare(&mut self, interfaces: BTreeSet<String>) -> bool {
        let is_news = self.spared != interfaces;
        self.spared = interfaces;
        is_news
    }

    /// Networks that carry data by what the user prefers, whatever their access points are worth.
    pub fn preferred(&self) -> Vec<&Network> {
        let (connected, statuses) = self.by_preference();
        let both = connected.into_iter().zip(statuses);
        both.filter(|(_, status)| *status == PathStatus::Active).map(|(network, _)| network).collect()
    }

    fn by_preference(&self) -> (Vec<&Network>, Vec<PathStatus>) {
        let connected: Vec<&Network> = self.known.values().filter(|network| network.connected).collect();
        let preferences: Vec<NetworkPreference> =
            connected.iter().map(|network| network.preference).collect();
        (connected, policy::statuses(&preferences))
    }

    /// What each network's paths may do, in order of names.
    pub fn statuses(&self) -> Vec<(NetworkId, PathStatus)> {
        let (connected, mut statuses) = self.by_preference();
        let is_spared = |network: &Network| self.spared.contains(&network.interface.name);
        let remain = connected
            .iter()
            .zip(&statuses)
            .any(|(one, status)| *status == PathStatus::Active && !is_spared(one));
        if remain {
            let spared = connected.iter().zip(&mut statuses).filter(|(network, _)| is_spared(network));
            let active = spared.filter(|(_, status)| **status == PathStatus::Active);
            active.for_each(|(_, status)| *status = PathStatus::Backup);
        }
        connected.iter().map(|network| network.id).zip(statuses).collect()
    }
}

/// Whether an interface is none of ours, which are called `own`, and rides on no other network, unless it is `wanted` all the same.
pub fn leads_out(interface: &Interface, own: &str, wanted: bool) -> bool {
    interface.name != own
        && !interface.loopback
        && !interface.enslaved
        && (wanted || !rides_on_others(interface))
}

/// Whether packets of the family can reach the Internet by the interface.
pub fn reaches(interface: &Interface, ipv6: bool) -> bool {
    let route = if ipv6 { interface.default_route_v6 } else { interface.default_route_v4 };
    route.is_some() && interface.address(ipv6).is_some()
}

/// What the user prefers of a network with this configuration.
pub fn preference(config: NetworkConfig) -> NetworkPreference {
    NetworkPreference {
        priority: config.priority,
        backup: config.backup,
        metered: config.metered,
        off: config.off,
    }
}

/// Whether packets of the two would leave with another source or next hop: sockets must be opened anew.
fn is_elsewhere(before: &Interface, now: &Interface) -> bool {
    before.index != now.index
        || [false, true].into_iter().any(|ipv6| {
            reaches(before, ipv6) != reaches(now, ipv6)
                || reaches(now, ipv6) && before.address(ipv6) != now.address(ipv6)
        })
        || before.default_route_v4.map(|route| route.gateway)
            != now.default_route_v4.map(|route| route.gateway)
}

/// A session has at most this many paths.
const MAXIMUM_NETWORKS: usize = bond::MAX_PATHS;

#[cfg(test)]
pub(super) mod tests {
    use linux::monitor::DefaultRoute;

    use super::*;

    /// One with IPv4 that carries packets.
    pub fn interface(name: &str, index: u32) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            up: true,
            carrier: true,
            loopback: false,
            enslaved: false,
            mtu: 1_500,
            kind: None,
            alias: None,
            addresses: vec!["192.0.2.5/24".parse().unwrap()],
            default_route_v4: Some(DefaultRoute { gateway: "192.0.2.1".parse().ok(), metric: 0 }),
            default_route_v6: None,
        }
    }

    fn networks(config: &str) -> Networks {
        let mut all = Config::default();
        if !config.is_empty() {
            all.networks.insert(config.to_owned(), NetworkConfig::default());
        }
        Networks::new(&all)
    }

    #[test]
    fn a_network_keeps_its_number_over_its_absences() {
        let mut networks = networks("");
        let (wlan, lte) = (interface("wlan0", 3), interface("wwan0", 4));
        let events = networks.update(&[wlan.clone(), lte.clone()]);
        assert_eq!(events, [NetworkEvent::Connected(NetworkId(0)), NetworkEvent::Connected(NetworkId(1))]);
        assert_eq!(networks.update(&[wlan.clone(), lte.clone()]), []);
        assert_eq!(networks.update(std::slice::from_ref(&lte)), [NetworkEvent::Disconnected(NetworkId(0))]);
        let unplugged = Interface { carrier: false, ..lte.clone() };
        assert_eq!(networks.update(&[unplugged]), [NetworkEvent::Disconnected(NetworkId(1))]);
        let again = Interface { index: 9, ..wlan };
        assert_eq!(networks.update(&[again, lte]).len(), 2);
        assert_eq!(networks.by_name_mut("wlan0").unwrap().id, NetworkId(0));
    }

    #[test]
    fn those_in_reserve_and_those_that_are_off_are_not_preferred() {
        let mut networks = networks("");
        networks.update(&[interface("wlan0", 3), interface("wlan1", 4), interface("wwan0", 5)]);
        let names = |networks: &Networks| -> Vec<String> {
            networks.preferred().iter().map(|network| network.interface.name.clone()).collect()
        };
        assert_eq!(names(&networks), ["wlan0", "wlan1", "wwan0"]);
        networks.by_name_mut("wwan0").unwrap().preference.backup = Some(true);
        networks.by_name_mut("wlan1").unwrap().preference.off = true;
        assert_eq!(names(&networks), ["wlan0"]);
        networks.by_name_mut("wwan0").unwrap().preference.backup = None;
        networks.spare(["wlan0".to_owned()].into());
        assert_eq!(names(&networks), ["wlan0", "wwan0"], "one whose access point is poor is still judged");
    }

    /// Tethered phones show up under a new name each time.
    #[test]
    fn what_is_gone_makes_room() {
        let mut networks = networks("");
        let wlan = interface("wlan0", 1);
        networks.update(std::slice::from_ref(&wlan));
        for number in 0..40 {
            let phone = interface(&format!("usb{number}"), 2 + number);
            let events = networks.update(&[wlan.clone(), phone]);
            assert!(events.contains(&NetworkEvent::Connected(NetworkId(1 + number))), "{events:?}");
            assert!(networks.iter().count() <= MAXIMUM_NETWORKS);
        }
        assert_eq!(networks.by_name_mut("wlan0").unwrap().id, NetworkId(0));
        assert!(networks.get(NetworkId(1)).is_none(), "the oldest is forgotten first");
    }

    #[test]
    fn a_new_address_or_next_hop_is_a_move_and_a_new_metric_is_not() {
        let mut networks = networks("");
        let before = interface("wlan0", 3);
        networks.update(std::slice::from_ref(&before));
        let moved = Interface { addresses: vec!["198.51.100.7/24".parse().unwrap()], ..before.clone() };
        assert_eq!(networks.update(std::slice::from_ref(&moved)), [NetworkEvent::Moved(NetworkId(0))]);
        let route = DefaultRoute { gateway: "198.51.100.1".parse().ok(), metric: 0 };
        let rerouted = Interface { default_route_v4: Some(route), ..moved };
        assert_eq!(networks.update(std::slice::from_ref(&rerouted)), [NetworkEvent::Moved(NetworkId(0))]);
        let metric = Interface { default_route_v4: Some(DefaultRoute { metric: 600, ..route }), ..rerouted };
        assert_eq!(networks.update(std::slice::from_ref(&metric)), []);
        // Gone for a while, and back: at the same place, then at another one.
        for (address, elsewhere) in [("198.51.100.7/24", false), ("192.0.2.8/24", true)] {
            networks.update(&[Interface { addresses: Vec::new(), ..metric.clone() }]);
            networks.update(&[Interface { addresses: vec![address.parse().unwrap()], ..metric.clone() }]);
            assert_eq!(networks.get(NetworkId(0)).unwrap().elsewhere, elsewhere, "{address}");
        }
    }

    #[test]
    fn what_leads_nowhere_is_no_network() {
        let mut networks = networks("wg0");
        let routeless = Interface { default_route_v4: None, ..interface("docker0", 5) };
        let port = Interface { enslaved: true, ..interface("eth1", 6) };
        let radio = Interface {
            kind: Some("tun".to_owned()),
            alias: Some(linux::tap::SHARED_RADIO.to_owned()),
            ..interface("wl-home", 7)
        };
        assert!(leads_out(&radio, "any0", false));
        let kind = |name, kind: &str| Interface { kind: Some(kind.to_owned()), ..interface(name, 7) };
        let all = [routeless, port, interface("any0", 8), kind("tun0", "tun"), kind("wg0", "wireguard")];
        networks.update(&all);
        let names: Vec<&str> = networks.iter().map(|network| network.interface.name.as_str()).collect();
        assert_eq!(names, ["wg0"], "another tunnel is used only if the configuration names it");
    }

    #[test]
    fn statuses_are_those_of_connected_networks() {
        let mut networks = networks("");
        networks.update(&[interface("a", 1), interface("b", 2)]);
        networks.by_name_mut("a").unwrap().preference.backup = Some(true);
        assert_eq!(
            networks.statuses(),
            [(NetworkId(0), PathStatus::Backup), (NetworkId(1), PathStatus::Active)]
        );
        networks.update(&[interface("a", 1)]);
        assert_eq!(networks.statuses(), [(NetworkId(0), PathStatus::Backup)]);
    }

    #[test]
    fn what_is_not_worth_its_air_is_a_backup_while_there_is_another() {
        let mut networks = networks("");
        networks.update(&[interface("a", 1), interface("b", 2)]);
        let spared = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(networks.spare(spared(&["b"])) && !networks.spare(spared(&["b"])));
        let statuses = |networks: &Networks| -> Vec<PathStatus> {
            networks.statuses().into_iter().map(|(_, status)| status).collect()
        };
        assert_eq!(statuses(&networks), [PathStatus::Active, PathStatus::Backup]);
        networks.spare(spared(&["a", "b"]));
        assert_eq!(statuses(&networks), [PathStatus::Active; 2], "there is nothing better");
        networks.by_name_mut("b").unwrap().preference.backup = Some(true);
        assert_eq!(statuses(&networks), [PathStatus::Active, PathStatus::Backup]);
        networks.spare(spared(&[]));
        networks.by_name_mut("b").unwrap().preference.off = true;
        assert_eq!(statuses(&networks), [PathStatus::Active, PathStatus::Off]);
    }
}
