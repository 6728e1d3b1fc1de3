//! A path in the words of the control API, at either end of the bond.

use std::time::Duration;

use anabranch::control::{CarrierKind, Fraction, PacketCounts, PathHealth, PathReport, Traffic};
use bond::{Carrier, PathState};
use policy::PathStatus;
use units::Bytes;

/// One path; `traffic` has its rates, `all` is the sum of those of all paths both ways, bits per second.
pub fn describe(report: &bond::PathReport, traffic: Traffic, all: u64) -> PathReport {
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
        why: why(report),
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
            marked: report.counters.own_marks,
        }),
    }
}

fn why(report: &bond::PathReport) -> String {
    let text = match (report.state, report.status) {
        (PathState::Validating, _) => "waits for the first answer of the gateway",
        (PathState::Suspect, _) if report.trickles => {
            "next to nothing gets through: its packets go elsewhere until it answers as it used to"
        }
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
