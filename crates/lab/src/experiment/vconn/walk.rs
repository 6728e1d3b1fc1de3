//! VCONN figure 6: a file is downloaded while the two ends part until Bluetooth does not reach any more, and come together again.
//!
//! Both ends have Bluetooth and an ad hoc network of Wi-Fi, as in the paper, and prefer what draws less. Out of range is a controller that passes nothing on: the
//! emulator is stopped, so the link falls silent without a word.

use anyhow::Context;

use super::id;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::traffic::SocketsReport;
use crate::vm::measurement::Programs;
use crate::vm::{Job, Machine, bluetooth, program};

/// As in the paper.
const BYTES: u64 = 20_000_000;
/// When they part, and meet again, seconds after the download was begun.
const PART: f64 = 1.5;
const MEET: f64 = 3.5;
/// What an 802.11b card as the paper's carries, Mbit/s.
const WIFI_MBPS: u32 = 6;
const BLUETOOTH: &str = "hci0";
const WIFI: &str = "wlan0";

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("bytes".into(), (BYTES as i64).into());
    spec.insert("out_of_bluetooth_s".into(), vec![toml::Value::from(PART), MEET.into()].into());
    spec.insert("bluetooth".into(), "btvirt, L2CAP over BR/EDR, as fast as the guest's processor".into());
    spec.insert("wifi".into(), format!("mac80211_hwsim, ad hoc, no loss, held to {WIFI_MBPS} Mbit/s").into());
    spec.insert("wish".into(), "the cheapest adapter: what draws least".into());
    let bar = |label: &str, metric: &str| (label.to_owned(), metric.to_owned());
    Experiment {
        id: id("fig6-walk"),
        title: "a download goes by Bluetooth, by Wi-Fi while that is out of range, and by Bluetooth again"
            .to_owned(),
        spec,
        paper: Some("figure 6: no data lost; latency as that of whichever adapter is in use".to_owned()),
        goals: vec![
            Goal::at_most("bytes_missing", 0.0),
            Goal::at_least("intact", 1.0),
            Goal::at_least("went_by_wifi", 1.0),
            Goal::at_least("came_back_to_bluetooth", 1.0),
        ],
        beds: vec![Bed::Vm],
        bars: vec![BarGroup {
            label: "mean round trip beside the download".to_owned(),
            bars: vec![
                bar("Bluetooth", "bluetooth.round_trip_ms"),
                bar("Wi-Fi", "wifi.round_trip_ms"),
                bar("Bluetooth again", "bluetooth_again.round_trip_ms"),
            ],
        }],
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
    let mut job = Job::new("");
    let functions = bluetooth::add_to(&mut job)?;
    job.modules.push("mac80211_hwsim radios=2".to_owned());
    job.programs.extend([programs.lab.clone(), program("iw", "iw")?]);
    job.seed = u32::try_from(seed % u64::from(u32::MAX))?;
    job.script = format!(
        r#"{functions}
controllers; wires
for name in wlan0 wlan1; do iw dev $name set type ibss || fail ibss; ip link set $name up; iw dev $name ibss join walk 2437 fixed-freq 02:ca:fe:00:00:01 || fail join; done
for name in wlan0 wlan1; do tc qdisc add dev $name root tbf rate {WIFI_MBPS}mbit burst 16k latency 100ms || fail tc; done
wire wlan0 wlan1
for _ in $(seq 50); do ping -c 1 -W 1 -I wlan0 10.9.0.2 >/dev/null && break; sleep 0.1; done
ping -c 1 -W 1 -I wlan0 10.9.0.2 >/dev/null || {{ ip addr; iw dev; fail 'no ad hoc network'; }}
anabranch-lab traffic sockets-serve --adapter hci1 --adapter wlan1 >/results/far.log 2>&1 &
sleep 1
(sleep {PART}; kill -STOP $emulator; sleep {away}; kill -CONT $emulator) &
anabranch-lab traffic sockets-fetch --adapter hci0 --adapter wlan0 --address bt:$far_device:4700 --cheapest --interval-ms 20 --bytes {BYTES} --json /results/report >/results/near.log 2>&1 || {{ cat /results/near.log; fail fetch; }}
"#,
        away = MEET - PART,
    );
    let outcome = machine.run(&job)?.succeeded()?;
    let report = outcome.files.get("report").context("the download left no report")?;
    Ok(judge(&serde_json::from_slice(report).context("reading the report of the download")?))
}

fn judge(seen: &SocketsReport) -> Report {
    let flag = |is: bool| f64::from(u8::from(is));
    let first_by = |name: &str, after: f64| {
        seen.carried_by.iter().find(|(at, by)| by == name && *at >= after).map(|(at, _)| *at)
    };
    let begins = seen.carried_by.first().is_some_and(|(_, by)| by == BLUETOOTH);
    let to_wifi = first_by(WIFI, PART - 0.2).filter(|_| begins);
    let back = to_wifi.and_then(|left| first_by(BLUETOOTH, left));
    let mut metrics = Metrics::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(name.to_owned(), (value * 1e3).round() / 1e3);
    };
    put("bytes_missing", BYTES.saturating_sub(seen.flow.bytes) as f64);
    put("intact", flag(seen.flow.intact && seen.flow.bytes == BYTES));
    put("went_by_wifi", flag(to_wifi.is_some()));
    put("came_back_to_bluetooth", flag(back.is_some()));
    put("seconds", seen.flow.seconds);
    put("longest_gap_ms", seen.flow.longest_gap.milliseconds);
    put("switches", seen.carried_by.len().saturating_sub(1) as f64);
    if let (Some(left), Some(back)) = (to_wifi, back) {
        put("back_after_ms", (back - MEET).max(0.0) * 1e3);
        for (name, from, to) in
            [("bluetooth", 0.0, PART), ("wifi", left, back), ("bluetooth_again", back, f64::INFINITY)]
        {
            let within: Vec<f64> = seen
                .round_trips
                .iter()
                .filter(|(at, _)| (from..to).contains(at))
                .map(|(_, taken)| *taken)
                .collect();
            if !within.is_empty() {
                put(&format!("{name}.round_trip_ms"), within.iter().sum::<f64>() / within.len() as f64);
            }
        }
    }
    let series = vec![("round trip, ms".to_owned(), seen.round_trips.clone())];
    Report { metrics, series, void: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{FlowReport, Gap};

    #[test]
    fn a_walk_is_there_and_back() {
        let flow = FlowReport {
            began_at: 0.0,
            bytes: BYTES,
            seconds: 6.0,
            first_byte_milliseconds: 1.0,
            longest_gap: Gap { at_seconds: 1.5, milliseconds: 80.0 },
            gaps: Vec::new(),
            tenths: Vec::new(),
            intact: true,
        };
        let by = |at: f64, name: &str| (at, name.to_owned());
        let seen = SocketsReport {
            connect_milliseconds: 10.0,
            flow,
            events: Vec::new(),
            carried_by: vec![by(0.0, BLUETOOTH), by(1.6, WIFI), by(3.9, BLUETOOTH)],
            round_trips: vec![(1.0, 30.0), (2.0, 4.0), (3.0, 6.0), (5.0, 34.0)],
        };
        let metrics = judge(&seen).metrics;
        assert_eq!(metrics["came_back_to_bluetooth"], 1.0);
        assert_eq!((metrics["wifi.round_trip_ms"], metrics["back_after_ms"]), (5.0, 400.0));
        let stayed = SocketsReport { carried_by: vec![by(0.0, BLUETOOTH)], ..seen };
        assert_eq!(judge(&stayed).metrics["went_by_wifi"], 0.0);
    }
}
