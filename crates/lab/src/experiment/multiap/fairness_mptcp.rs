//! Tables 1 to 3 with real access points and stations: the device over two of one channel, each of which has a plain TCP client close by. Kernel MPTCP's
//! subflows know nothing of each other, so it is reported only; fairness is owed by the bond.

use std::time::Duration;

use anyhow::Context;

use super::course::{Course, spec};
use super::mptcp_commands::mbps_in_pieces;
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::jain_index;

/// The access points of the second and third table, metres apart.
const APART: f64 = 25.0;
/// Where things are, metres along the line.
struct Table {
    name: &'static str,
    label: &'static str,
    second: f64,
    device: f64,
}

const TABLES: [Table; 3] = [
    Table { name: "close", label: "all close", second: 4.0, device: 2.0 },
    Table { name: "near_second", label: "device near the second", second: APART, device: APART - 3.0 },
    Table { name: "between", label: "device between", second: APART, device: APART / 2.0 },
];
/// How the device goes, with its name in the plot.
const WAYS: [(&str, &str); 5] = [
    ("first", "the first alone"),
    ("second", "the second alone"),
    ("mptcp_plain", "kernel MPTCP"),
    ("mptcp_marks", "with our marks"),
    ("ours", "ours"),
];
/// Over both.
const BOTH: [&str; 3] = ["mptcp_plain", "mptcp_marks", "ours"];
const CLIENTS: [&str; 2] = ["one", "two"];
/// Of each download, seconds.
const SETTLING: u32 = 5;
const MEASURED: u32 = 10;
const JAIN: f64 = 0.98;

pub(super) fn experiment() -> Experiment {
    let mut spec = spec();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put("points", "two on a line, open, 802.11g, channel 6; nothing fades".into());
    for table in &TABLES {
        let Table { second, device, .. } = table;
        put(table.name, format!("access points at 0 and {second} m, the device at {device} m"));
    }
    put(
        "clients",
        "one 1 m along the line from each access point, by plain TCP (CUBIC), with a radio of its own".into(),
    );
    put("round_trip_ms", "20".into());
    put("measured", format!("{MEASURED} s, after {SETTLING} s that are not counted"));
    put("first, second", "the device by plain TCP over one".into());
    put("best_one", "the fairer of these two".into());
    let mut goals = vec![Goal::at_least("close.ours.jain", JAIN)];
    goals.extend(
        TABLES
            .iter()
            .filter(|table| table.name != "close")
            .map(|table| Goal::at_least(format!("{}.ours.jain_over_best_one", table.name), JAIN)),
    );
    let bars = |table: &Table| {
        WAYS.map(|(way, label)| (label.to_owned(), format!("{}.{way}.jain", table.name))).to_vec()
    };
    Experiment {
        id: id("tables123-mptcp"),
        title: "over two real access points of one channel, each with a plain TCP client close by: how fair it is".to_owned(),
        spec,
        paper: Some("tables 1 to 3: all three alike where all are close; elsewhere no less fair than over the better one alone".to_owned()),
        goals,
        beds: vec![Bed::Vm],
        bars: TABLES.iter().map(|table| BarGroup { label: table.label.into(), bars: bars(table) }).collect(),
        unit: "Jain's index",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for table in &TABLES {
        let course = Course {
            points: vec![0.0, table.second],
            others: vec![(CLIENTS[0], 1.0), (CLIENTS[1], table.second - 1.0)],
            seed,
            ..Course::default()
        };
        let answers = course
            .answers(table.device, &[], &script(), Duration::from_secs(600))
            .with_context(|| table.name.to_owned())?;
        report.void = report.void.or_else(|| answers.air.as_ref().and_then(|air| air.void.clone()));
        let jain = |way: &str, metrics: &mut Metrics| -> anyhow::Result<f64> {
            let files = CLIENTS.map(|client| (client, format!("{client}-{way}")));
            let files = files.into_iter().chain([("device", way.to_owned())]);
            let mut shares = Vec::new();
            for (who, file) in files {
                let download = answers.read(&file)?;
                let mbps = mean(&mbps_in_pieces(&download, SETTLING.into(), MEASURED.into(), 1)?);
                metrics.insert(format!("{}.{way}.{who}_mbps", table.name), rounded(mbps));
                shares.push(mbps);
            }
            let jain = jain_index(&shares);
            metrics.insert(format!("{}.{way}.jain", table.name), rounded(jain));
            Ok(jain)
        };
        let metrics = &mut report.metrics;
        let best_one = jain("first", metrics)?.max(jain("second", metrics)?);
        for way in BOTH {
            let over = jain(way, metrics)? / best_one;
            metrics.insert(format!("{}.{way}.jain_over_best_one", table.name), rounded(over));
        }
    }
    Ok(report)
}

fn script() -> String {
    format!(
        r#"client() {{ in_namespace $1 anabranch-lab traffic fetch $server --congestion cubic --seconds {whole} --json /results/$1-$2 || echo "no download of $1"; }}
beside() {{ client one $2 & one=$!; client two $2 & two=$!; "$@" --seconds {whole}; wait $one; wait $two; sleep 1; }}
radio_up --kernel --channels 6; address_on wl-a; address_on wl-b
associate one wlan0 a || fail 'the first client'; associate two wlan0 b || fail 'the second client'
serve
fetch warm --bytes 100000 --interface wl-a; fetch warm --bytes 100000 --interface wl-b
head -1 /proc/stat >/results/before
beside fetch first --interface wl-a; beside fetch second --interface wl-b
plain_endpoints; fetch warm --transport mptcp --bytes 100000
beside fetch mptcp_plain --transport mptcp
no_endpoints
direct_up
steered warm --seconds 3; sleep 1
beside steered mptcp_marks
direct_down
tunnel_up
beside fetch ours
tunnel_down; radio_down
"#,
        whole = SETTLING + MEASURED,
    )
}
