//! The device's state in the words of the control API.

use std::net::IpAddr;

use anabranch::control::{DirectReport, NetworkReport, PathReport};
use policy::{PathStatus, Priority};

use super::networks::Network;

/// One network with the paths that it has and what direct mode says of it.
pub fn network(
    network: &Network,
    status: PathStatus,
    paths: Vec<PathReport>,
    direct: Option<DirectReport>,
) -> NetworkReport {
    let preference = network.preference;
    let addresses: Vec<IpAddr> = network.interface.addresses.iter().map(|prefix| prefix.address()).collect();
    NetworkReport {
        id: network.id,
        name: network.interface.name.clone(),
        connected: network.connected,
        addresses,
        status: if network.connected { status } else { PathStatus::Off },
        why: why_network(network, status, paths.is_empty()),
        priority: Priority(preference.priority.0),
        backup: preference.backup.unwrap_or(preference.metered),
        metered: preference.metered,
        off: preference.off,
        paths,
        direct,
    }
}

fn why_network(network: &Network, status: PathStatus, pathless: bool) -> String {
    let preference = network.preference;
    let text = match status {
        _ if !network.present => "the interface is not there",
        _ if !network.interface.up => "the interface is switched off",
        _ if !network.interface.carrier => "no link: cable out, not associated, or modem not connected",
        _ if !network.connected => "no address or no default route yet",
        PathStatus::Off => "switched off by the configuration or by command",
        PathStatus::Active if pathless => "ready; there is no session with the gateway",
        PathStatus::Active => "in use",
        PathStatus::Backup if preference.backup == Some(true) => {
            "a backup: waits until no other network is left"
        }
        PathStatus::Backup if preference.metered => "metered: waits until no other network is left",
        PathStatus::Backup => "networks with a lower priority number are in use",
    };
    text.to_owned()
}
