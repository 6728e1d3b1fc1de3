//! `anabranch radio aps`: access points in range, and how much each is worth.

use anabranch::control::{AccessPointReport, ClientError};

use crate::arguments::{OpenDaemon, RadioAps};
use crate::output;
use crate::radio_live::no_radio;
use crate::session::Session;
use crate::table::{Table, rate};

/// Shows what the running radio knows; without one, what the device knows of cards that other programs keep.
pub fn run(session: &Session, arguments: &RadioAps) -> anyhow::Result<()> {
    let (points, none) = match session.any_radio()?.radio_access_points() {
        Err(error @ ClientError::NotRunning(_)) => {
            let device = session.any_client(&OpenDaemon { interface: None });
            let points = device.and_then(|device| device.radio_access_points());
            let none = "No radio is running, and other programs keep fewer than two Wi-Fi cards: there is nothing to choose.";
            (points.map_err(|_| no_radio(error.into()))?, none)
        }
        points => (points?, "No access point is heard."),
    };
    if arguments.json {
        return output::json(&points);
    }
    if points.is_empty() {
        return output::line(none);
    }
    output::line(&table(&points))
}

fn table(points: &[AccessPointReport]) -> String {
    let mut table = Table::new(&[
        "ACCESS POINT",
        "NETWORK",
        "CHANNEL",
        "SIGNAL",
        "DELIVERED",
        "PACKET TIME",
        "CONFIDENCE",
        "SHARE",
        "OTHERS",
        "USED",
    ]);
    let dash = || "-".to_owned();
    let mut remarks = Vec::new();
    for point in points {
        let quality = point.quality.as_ref();
        let packet_time = quality.and_then(|quality| quality.packet_time).or(point.held_packet_time);
        let used = match (point.used, point.limit) {
            (false, _) => "ready".to_owned(),
            (true, Some(limit)) => format!("to {}", rate(limit)),
            (true, None) => "yes".to_owned(),
        };
        table.row(vec![
            point.bssid.clone(),
            point.ssid.clone().unwrap_or_else(|| "(hidden)".to_owned()),
            point.channel.map_or_else(|| format!("{} MHz", point.megahertz), |channel| channel.to_string()),
            point.signal_dbm.map_or_else(dash, |signal| format!("{signal:.0} dBm")),
            quality.map_or_else(dash, |quality| format!("{:.0} %", quality.delivery_ratio.0 * 100.0)),
            packet_time.map_or_else(dash, |time| format!("{:.2} ms", time.as_millis_f64())),
            quality.map_or_else(dash, |quality| format!("{:.2}", quality.confidence.0)),
            format!("{:.0} %", point.share.0 * 100.0),
            point.others.map_or_else(dash, |others| format!("{:.0} %", others.0 * 100.0)),
            if point.interface.is_some() { used } else { dash() },
        ]);
        if let Some(interface) = &point.interface {
            remarks.push(format!("{interface}: {}", point.reason));
        }
        let doubts = quality.map(|quality| quality.doubts.join("; ")).unwrap_or_default();
        if !doubts.is_empty() {
            remarks.push(format!("{}: {doubts}", point.bssid));
        }
    }
    let remarks: String = remarks.iter().map(|remark| format!("\n{remark}")).collect();
    table.render() + &remarks
}

#[cfg(test)]
mod tests {
    use anabranch::control::{Fraction, Micros, QualityReport, QualitySource};
    use units::BitRate;

    use super::*;

    #[test]
    fn each_point_is_shown_with_what_is_known_and_why() {
        let quality = QualityReport {
            delivery_ratio: Fraction(0.874),
            margin: Fraction(0.03),
            packet_time: Some(Micros(1_234)),
            frames: 400,
            source: QualitySource::ToUs,
            confidence: Fraction(0.94),
            doubts: vec!["few frames".into()],
        };
        let used = AccessPointReport {
            bssid: "02:00:00:00:01:00".into(),
            interface: Some("wl-home".into()),
            channel: Some(6),
            quality: Some(quality),
            share: Fraction(0.5),
            others: Some(Fraction(0.31)),
            used: true,
            reason: "takes the least time for a packet".into(),
            ..AccessPointReport::default()
        };
        let limited = AccessPointReport {
            interface: Some("wl-far".into()),
            limit: Some(BitRate(1_250_000)),
            ..used.clone()
        };
        let stranger = AccessPointReport { megahertz: 2_437, ..AccessPointReport::default() };
        let text = table(&[used, limited, stranger]);
        for part in [
            "87 %",
            "1.23 ms",
            "0.94",
            "50 %",
            "31 %",
            "yes",
            "to 1.2 Mbit/s",
            "2437 MHz",
            "(hidden)",
            "wl-home: takes the least time",
            "02:00:00:00:01:00: few frames",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
