//! The device's state in the words of the control API.

use std::net::IpAddr;
use std::time::Duration;

use anabranch::control::{
    CarrierKind, DirectReport, Fraction, NetworkReport, PacketCounts, PathHealth, PathReport, Traffic,
};
use bond::{Carrier, PathState};
use policy::{PathStatus, Priority};
use units::Bytes;

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

/// One path; `traffic` has its rates, `all` is the sum of those of all paths both ways, bits per second.
pub fn path(report: &bond::PathReport, traffic: Traffic, all: u64) -> PathReport {
    let of_all = (traffic.sending.0 + traffic.receiving.0) as f64 / all as f64;
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
            Carrier::Bluetooth => CarrierKind::Bluetooth,
        },
        status: report.status,
        health,
        why: why_path(report),
        rate: report.rate,
        rtt: report.smoothed_rtt.map(Into::into),
        min_rtt: report.base_rtt.map(Into::into),
        extra_delay: report.smoothed_rtt.map(|_| report.extra_delay.into()),
        loss: Fraction(report.loss_rate),
        in_flight: report.in_flight,
        mtu: Bytes(report.mtu.into()),
        share: (all > 0).then_some(Fraction(of_all)),
        traffic,
        window: Some(report.window),
        packets: Some(PacketCounts {
            sent: report.counters.sent_packets,
            lost: report.counters.lost_packets,
        }),
    }
}

fn why_path(report: &bond::PathReport) -> String {
    let text = match (report.state, report.status) {
        (PathState::Validating, _) => "waits for the first answer of the gateway",
        (PathState::Suspect, _) => "silent: its packets go elsewhere until it answers",
        (PathState::Down, _) => "the network is gone",
        (PathState::Usable, PathStatus::Active) if report.loss_rate >= MUCH_LOSS => {
            return format!("carries data; repeats the {:.0} % that it loses", report.loss_rate * 100.0);
        }
        (PathState::Usable, PathStatus::Active) if report.extra_delay >= MUCH_LATER => {
            let later = report.extra_delay.as_millis();
            return format!("{later} ms later than the fastest: for downloads, where that pays off");
        }
        (PathState::Usable, PathStatus::Active) => "carries data",
        (PathState::Usable, PathStatus::Backup) => "kept ready for when the active paths fail",
        (PathState::Usable, PathStatus::Off) => "switched off at one of the two ends",
    };
    text.to_owned()
}

/// From here on loss is what explains a path's share.
const MUCH_LOSS: f64 = 0.03;
/// From here on its delay is.
const MUCH_LATER: Duration = Duration::from_millis(50);
