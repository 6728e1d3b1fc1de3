//! From what the policy decided to what the kernel is to do. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::direct::{
    Best, Choice, Direct, Exit, MAXIMUM_EXITS, NextHop, Outcome, RealTime, Stay, Translation,
};
use linux::monitor::DefaultRoute;
use linux::prefix::IpPrefix;
use policy::rules::{Dscp, Rule, Strictness};
use policy::{FlowClass, Reason, Table, Treatment};
use units::NetworkId;

use super::rules::{self, Scene};
use crate::config::DeviceConfig;
use crate::device::networks::{Network, reaches};

/// The numbers that networks have in marks. A network keeps its number while the daemon lives, so that living flows keep
/// their network; if there are more networks than numbers, one that is gone makes room.
///
/// The number follows from the interface's, so it is the same after another start: sockets that outlive the daemon go on to have the mark.
/// Only where two interfaces are as far apart as there are numbers, one has to take the next free one.
#[derive(Clone, Debug, Default)]
pub struct Numbers(BTreeMap<NetworkId, u8>);

impl Numbers {
    /// Gives every network in `networks` a number, as far as there are some left.
    pub fn assign(&mut self, networks: &[Network]) {
        self.0.retain(|id, _| networks.iter().any(|network| network.id == *id));
        for network in networks {
            let taken: Vec<u8> = self.0.values().copied().collect();
            let own = network.interface.index.saturating_sub(1);
            let mut numbers = (0..u32::from(MAXIMUM_EXITS))
                .map(|further| ((own + further) % u32::from(MAXIMUM_EXITS)) as u8 + 1);
            if !self.0.contains_key(&network.id)
                && let Some(free) = numbers.find(|number| !taken.contains(number))
            {
                self.0.insert(network.id, free);
            }
        }
    }

    /// The network with this number.
    pub fn network(&self, number: u8) -> Option<NetworkId> {
        self.0.iter().find(|(_, own)| **own == number).map(|(id, _)| *id)
    }

    /// The number of a network.
    pub fn of(&self, network: NetworkId) -> Option<u8> {
        self.0.get(&network).copied()
    }
}

/// The translators of networks that carry IPv4 flows through a NAT64.
pub type Translated = BTreeMap<NetworkId, Translation>;

/// What the kernel is to do with flows.
pub fn direct(
    config: &DeviceConfig,
    addresses: &[IpAddr],
    near: &[IpPrefix],
    neighbourly: &[IpAddr],
    forwarding: bool,
    rules: &[&Rule],
    scene: &Scene<'_>,
) -> Direct {
    let number = |network: &Network| scene.numbers.of(network.id);
    let translation = |network: &Network| scene.translations.get(&network.id).cloned();
    let exits = scene.networks.iter();
    let exits = exits.filter_map(|network| exit(network, number(network)?, translation(network))).collect();
    let mut choices = vec![choice(scene, |_| true)];
    let rules = rules::compile(rules, scene, &mut choices);
    let otherwise = if scene.has_gateway && scene.default != Treatment::Direct {
        Outcome::Stay(Stay::Default)
    } else {
        Outcome::Leave(0)
    };
    let (interface, table) = (config.interface.clone(), config.table);
    let (addresses, mut near, neighbourly) = (addresses.to_vec(), near.to_vec(), neighbourly.to_vec());
    if !neighbourly.is_empty() {
        near.extend(identity::any0_address::prefixes());
    }
    Direct {
        interface,
        addresses,
        own_mark: config.mark,
        table,
        near,
        neighbourly,
        forwarding,
        ecn: false,
        exits,
        real_time: real_time(scene),
        choices,
        rules,
        otherwise,
    }
}

fn exit(network: &Network, number: u8, translation: Option<Translation>) -> Option<Exit> {
    let interface = &network.interface;
    let hop = |route: Option<DefaultRoute>, ipv6| {
        route.filter(|_| reaches(interface, ipv6)).map(|route| NextHop { gateway: route.gateway })
    };
    Some(Exit {
        number,
        interface: interface.name.clone(),
        index: network.connected.then_some(interface.index),
        subnets: interface.addresses.clone(),
        v4: hop(interface.default_route_v4, false),
        v6: hop(interface.default_route_v6, true),
        mtu: interface.mtu,
        translation,
    })
}

/// Whether a network takes flows of a family: by itself, or IPv4 ones through its NAT64.
pub(super) fn carries(network: &Network, translations: &Translated, ipv6: bool) -> bool {
    reaches(&network.interface, ipv6) || !ipv6 && translations.contains_key(&network.id)
}

/// Whether a rule's flows may take a network that the policy would not use by itself. What is held to it strictly may always: it logs in at
/// a portal, or tries. What only prefers it has others where it leads nowhere.
pub(super) fn may_be_named(table: &Table, network: NetworkId, strictness: Strictness) -> bool {
    let leads_nowhere =
        table.get(network).is_some_and(|entry| matches!(entry.reason, Reason::Captive | Reason::NoReach));
    strictness == Strictness::Only || !leads_nowhere
}

/// By what the kernel knows flows for which the policy has an order of networks.
fn real_time(scene: &Scene<'_>) -> RealTime {
    if scene.table.for_calls.is_empty() {
        return RealTime::default();
    }
    let services = scene.services.of_class(FlowClass::RealTime);
    RealTime {
        code_points: Dscp::REAL_TIME.map(Dscp::get).to_vec(),
        services: services.map(|service| (service.destination, service.protocol.0, service.port)).collect(),
    }
}

/// The networks that `may` take a flow: the slots of both families, and the best one of each.
pub(super) fn choice(scene: &Scene<'_>, may: impl Fn(NetworkId) -> bool) -> Choice {
    let [(v4, best_v4), (v6, best_v6)] = [false, true].map(|ipv6| slots(scene, ipv6, &may));
    Choice { v4, v6, best: Best { v4: best_v4, v6: best_v6 } }
}

/// The slots of one family, over those networks that carry it and that `may` take the flow, and the best of these.
fn slots(scene: &Scene<'_>, ipv6: bool, may: impl Fn(NetworkId) -> bool) -> (Vec<u8>, Option<u8>) {
    let carried = |id: NetworkId| {
        let mut networks = scene.networks.iter();
        may(id) && networks.any(|network| network.id == id && carries(network, scene.translations, ipv6))
    };
    let (table, numbers) = (scene.table.restricted(carried), scene.numbers);
    let mut slots: Vec<u8> = table.slots(SLOTS).into_iter().filter_map(|id| numbers.of(id)).collect();
    if slots.iter().all(|number| Some(number) == slots.first()) {
        slots.truncate(1);
    }
    let best = table.preferred().and_then(|id| numbers.of(id));
    (slots, best.filter(|_| table.for_calls.len() > 1))
}

/// What direct mode changes on the machine, in words.
pub fn plan(config: &DeviceConfig) -> Vec<String> {
    vec![
        format!("nftables table inet anabranch_direct_{}", config.interface),
        "BPF programs at connect() of this namespace's sockets, which go with the daemon".to_owned(),
        format!(
            "IPv4 and IPv6 rule {} and routing table {} and up for each network",
            linux::direct::PRIORITY,
            config.table + 1
        ),
        format!(
            "marks {:#x} of tracked connections",
            linux::direct::NETWORK_MASK | linux::direct::TREATMENT_MASK
        ),
        "file /proc/sys/net/netfilter/nf_conntrack_acct = 1, if it is 0".to_owned(),
    ]
}

/// Shares are met to the 64th.
const SLOTS: u16 = 64;

#[cfg(test)]
pub(super) mod tests {
    use policy::NetworkPreference;

    use super::*;
    use crate::config::CarrierChoice;
    use crate::device::networks::tests::interface;

    /// A network with IPv4, whose interface has this number and name.
    pub fn network(id: u32, index: u32, name: &str) -> Network {
        Network {
            id: NetworkId(id),
            interface: interface(name, index),
            present: true,
            connected: true,
            elsewhere: false,
            place: interface(name, index),
            preference: NetworkPreference::default(),
            carrier: CarrierChoice::Auto,
        }
    }

    #[test]
    fn numbers_follow_from_interfaces_and_are_never_shared() {
        let network = |id, index| network(id, index, &format!("net{id}"));
        let (cable, phone, tunnel) = (network(0, 3), network(1, 67), network(2, 4));
        let numbered = |networks: &[Network]| {
            let mut numbers = Numbers::default();
            numbers.assign(networks);
            networks.iter().map(|network| numbers.of(network.id)).collect::<Vec<_>>()
        };
        assert_eq!(numbered(&[cable.clone(), tunnel.clone()]), [Some(3), Some(4)]);
        assert_eq!(
            numbered(&[tunnel.clone(), cable.clone()]),
            [Some(4), Some(3)],
            "in whatever order they come"
        );
        assert_eq!(numbered(&[cable, phone, tunnel]), [Some(3), Some(4), Some(5)], "64 apart");
        let many: Vec<Network> = (0..70).map(|at| network(at, 1 + at)).collect();
        let all = numbered(&many);
        assert_eq!(all.iter().flatten().count(), 64);
        assert_eq!(numbered(&[network(9, 0)]), [Some(1)]);
    }
}
