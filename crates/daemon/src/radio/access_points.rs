//! What the station of this program knows of the access points in range.

use anabranch::control::{AccessPointReport, Fraction};
use radio::quality::Estimate;
use radio::scan::Seen;
use radio::{NetworkStatus, Station};
use units::{Frequency, MacAddress, NetworkId, Timestamp};

use super::points::{Joined, Points, quality, reason_of_stranger};

/// Those by which networks are up. `known`: the name of a network, and whether it leads anywhere.
pub(super) fn joined(
    now: Timestamp,
    station: &Station,
    known: impl Fn(NetworkId) -> Option<(String, bool)>,
) -> Vec<Joined> {
    let statuses: Vec<NetworkStatus> = station.networks().collect();
    let up = statuses.iter().filter(|status| status.up);
    up.filter_map(|status| {
        let (bssid, channel) = status.bssid.zip(status.frequency)?;
        let (ssid, reaches) = known(status.network)?;
        Some(Joined {
            network: status.network,
            ssid,
            bssid,
            channel,
            estimate: station.qualities().estimate(now, channel, bssid),
            signal_dbm: status.signal_dbm,
            received: status.visits.received_packets,
            presence: status.presence,
            there: status.visits.time,
            others: station.qualities().others(now, channel),
            sharers: station.qualities().pairs(now, channel).collect(),
            reaches,
        })
    })
    .collect()
}

/// All in range, those that we are at first, then by signal. `interface`: that of a network.
pub(super) fn reports(
    now: Timestamp,
    station: &Station,
    points: &Points,
    interface: impl Fn(NetworkId) -> Option<String>,
) -> Vec<AccessPointReport> {
    let statuses: Vec<NetworkStatus> = station.networks().collect();
    let at = |bssid: MacAddress, frequency: Frequency| {
        let here = |status: &&NetworkStatus| {
            status.up && status.bssid == Some(bssid) && status.frequency == Some(frequency)
        };
        statuses.iter().find(here)
    };
    let names: Vec<_> = statuses
        .iter()
        .filter_map(|status| {
            let (bssid, frequency) = status.bssid.zip(status.frequency)?;
            station.seen().find(|seen| (seen.bssid, seen.frequency) == (bssid, frequency))?.ssid.clone()
        })
        .collect();
    let mut reports: Vec<AccessPointReport> = station
        .seen()
        .filter(|seen| !seen.ad_hoc)
        .map(|seen| {
            let estimate = station.qualities().estimate(now, seen.frequency, seen.bssid);
            let known = seen.ssid.as_ref().is_some_and(|ssid| names.contains(ssid));
            let mut report = stranger(seen, known, estimate.as_ref());
            if let Some(status) = at(seen.bssid, seen.frequency) {
                report.interface = interface(status.network);
                report.share = Fraction(status.presence);
                report.others = Some(Fraction(station.qualities().others(now, seen.frequency)));
                points.complete(status.network, estimate, &mut report);
            }
            report
        })
        .collect();
    sort(&mut reports);
    reports
}

/// One that we are not at. `known`: another one of its network is known.
pub(super) fn stranger(seen: &Seen, known: bool, estimate: Option<&Estimate>) -> AccessPointReport {
    AccessPointReport {
        ssid: seen.ssid.as_ref().map(ToString::to_string),
        bssid: seen.bssid.to_string(),
        channel: seen.frequency.channel(),
        megahertz: seen.frequency.0,
        signal_dbm: seen.signal_dbm,
        quality: estimate.map(quality),
        reason: reason_of_stranger(known, estimate).to_owned(),
        ..AccessPointReport::default()
    }
}

/// Those that we are at first, then by signal.
pub(super) fn sort(reports: &mut [AccessPointReport]) {
    let signal = |report: &AccessPointReport| report.signal_dbm.unwrap_or(f32::NEG_INFINITY);
    reports.sort_by(|a, b| {
        b.interface.is_some().cmp(&a.interface.is_some()).then(signal(b).total_cmp(&signal(a)))
    });
}
