//! The device's state in the words of the control API.

use std::net::IpAddr;

use anabranch::control::{CarrierKind, Fraction, NetworkReport, PathHealth, PathReport, Traffic};
use bond::{Carrier, PathState};
use policy::{PathStatus, Priority};
use units::Bytes;

use super::networks::Network;

/// One network with the paths that it has.
pub fn network(network: &Network, status: PathStatus, paths: Vec<PathReport>) -> NetworkReport {
    let preference = network.preference;
    let addresses: Vec<IpAddr> = network.interface.addresses.iter().map(|prefix| prefix.address()).collect();
    NetworkReport {
        id: network.id,
        name: network.interface.name.clone(),
        connected: network.connected,
        addresses,
        status: if network.connected { status } else { PathStatus::Off },
        why: why_network(network, status),
        priority: Priority(preference.priority.0),
        backup: preference.backup.unwrap_or(preference.metered),
        metered: preference.metered,
        off: preference.off,
        paths,
    }
}

fn why_network(network: &Network, status: PathStatus) -> String {
    let preference = network.preference;
    let text = match status {
        _ if !network.interface.up => "the interface is switched off",
        _ if !network.interface.carrier => "no link: cable out, not associated, or modem not connected",
        _ if !network.connected => "no address or no default route yet",
        PathStatus::Off => "switched off by the configuration or by command",
        PathStatus::Active => "in use",
        PathStatus::Backup if preference.backup == Some(true) => {
            "a backup: waits until no other network is left"
        }
        PathStatus::Backup if preference.metered => "metered: waits until no other network is left",
        PathStatus::Backup => "networks with a lower priority number are in use",
    };
    text.to_owned()
}

/// One path; `traffic` has its rates.
pub fn path(report: &bond::PathReport, traffic: Traffic) -> PathReport {
    let measured = !report.smoothed_rtt.is_zero() && report.counters.received_packets > 0;
    let health = match report.state {
        PathState::Validating => PathHealth::Validating,
        PathState::Usable => PathHealth::Good,
        PathState::Suspect => PathHealth::Suspect,
        PathState::Down => PathHealth::Dead,
    };
    PathReport {
        id: report.path,
        remote: report.address.remote,
        carrier: match report.address.carrier {
            Carrier::Udp => CarrierKind::Udp,
            Carrier::Tcp => CarrierKind::Tcp,
        },
        status: report.status,
        health,
        why: why_path(report).to_owned(),
        rate: report.rate,
        rtt: measured.then(|| report.smoothed_rtt.into()),
        min_rtt: measured.then(|| report.base_rtt.into()),
        extra_delay: measured.then(|| report.extra_delay.into()),
        loss: Fraction(report.loss_rate),
        in_flight: report.in_flight,
        // Packets are assigned to paths as late as possible, so none wait for a path of their own.
        queue: Bytes(0),
        mtu: Bytes(report.mtu.into()),
        traffic,
    }
}

fn why_path(report: &bond::PathReport) -> &'static str {
    match (report.state, report.status) {
        (PathState::Validating, _) => "waits for the first answer of the gateway",
        (PathState::Suspect, _) => "silent: its packets go elsewhere until it answers",
        (PathState::Down, _) => "the network is gone",
        (PathState::Usable, PathStatus::Active) => "carries data",
        (PathState::Usable, PathStatus::Backup) => "kept ready for when the active paths fail",
        (PathState::Usable, PathStatus::Off) => "switched off at one of the two ends",
    }
}
