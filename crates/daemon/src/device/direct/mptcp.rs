//! Which networks MPTCP connections are to use, once a program has asked to be carried so. Pure.

use linux::mptcp::{PathNetwork, Paths};
use policy::Treatment;
use policy::rules::Rule;

use super::plan::slots;
use super::rules::Scene;
use crate::device::networks::Network;

/// Whether a rule asks for it.
pub fn is_wanted<'a>(mut rules: impl Iterator<Item = &'a Rule>) -> bool {
    rules.any(|rule| rule.treatment() == Some(Treatment::Mptcp))
}

/// Every network that may be used; those to which the policy gives no new flows are backups. `table` is before the first network's.
pub fn paths(table: u32, scene: &Scene<'_>) -> Paths {
    let dealt: Vec<u8> = [false, true].into_iter().flat_map(|ipv6| slots(scene, ipv6, |_| true)).collect();
    let usable = scene.networks.iter().filter(|network| network.connected && !network.preference.off);
    let path = |network: &Network| {
        let number = scene.numbers.of(network.id)?;
        let own = network.interface.addresses.iter().map(|subnet| subnet.address());
        Some(PathNetwork {
            number,
            interface: network.interface.index,
            addresses: own.filter(|address| !address.is_loopback()).collect(),
            backup: !dealt.contains(&number),
        })
    };
    Paths { table, networks: usable.filter_map(path).collect() }
}
