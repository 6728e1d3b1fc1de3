//! MULTIAP tables 1 to 3: the device over two access points of one channel, each of which has a plain TCP client close by.
//!
//! What the air gives is fitted to the paper's rows in which all three are plain TCP; the rows with both access points are what is then found out.
//! With those rows as totals of each access point (Mbit/s), 22 Mbit/s for a client alone, and one queue for both of its clients in each
//! access point, two figures of a far access point's packets to the device follow: the air time that is left to them, and how many turns at the
//! air one costs, for it fails more often and each failure doubles the wait.

use std::time::Duration;

use bond::Algorithm as Paths;
use policy::steering::MarkingForm;

use super::shared_air::{NO_LIMIT, PlainClient, Point, SharedAir, Shares, TOLD, Way};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::{Algorithm, jain_index};

const ROUND_TRIP: Duration = Duration::from_millis(25);
const SETTLING: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(45);
/// A full packet at 22 Mbit/s, microseconds.
const CLOSE_US: u64 = 545;
const CLOSE: Reach = Reach { packet_us: CLOSE_US, turns: 1.0 };

/// How an access point reaches the device.
#[derive(Clone, Copy)]
struct Reach {
    /// Air time of a full packet.
    packet_us: u64,
    /// How many turns at the air a packet costs, of those that one to a close client costs.
    turns: f64,
}

/// One of the paper's tables.
struct Table {
    name: &'static str,
    /// In the paper.
    number: u32,
    /// From each access point.
    reach: [Reach; 2],
    /// The paper's rows: the device over the first, the second, both; Mbit/s of each client and of the device.
    paper: [[f64; 3]; 3],
}

static TABLES: [Table; 3] = [
    Table {
        name: "close",
        number: 1,
        reach: [CLOSE, CLOSE],
        paper: [[5.0, 10.0, 5.0], [10.0, 5.0, 5.0], [7.0, 7.0, 7.0]],
    },
    // First row: 292 packets a second to each client of the first, 1,083 to that of the second: 2 / (1 + turns) = 584 / 1,083, and
    // 292 (545 us + packet) + 1,083 * 545 us = 1 s.
    Table {
        name: "near_second",
        number: 2,
        reach: [Reach { packet_us: 860, turns: 2.71 }, CLOSE],
        paper: [[3.5, 13.0, 3.5], [10.0, 5.0, 5.0], [10.0, 5.0, 5.0]],
    },
    // In the same way from the first two rows, with the mean of the two that are in one queue.
    Table {
        name: "between",
        number: 3,
        reach: [Reach { packet_us: 880, turns: 3.15 }, Reach { packet_us: 910, turns: 3.67 }],
        paper: [[3.5, 13.5, 3.0], [14.0, 3.0, 3.0], [8.5, 6.5, 5.0]],
    },
];

/// The device over both: name, control of the bond's paths, what the device does.
const WAYS: [(&str, Paths, Way); 6] = [
    ("uncoupled", Paths::Cubic, Way::Plain),
    ("plain_olia", Paths::Olia, Way::Plain),
    ("marks_exact", Paths::Olia, Way::Marks(MarkingForm::Exact)),
    ("ours", Paths::Model, Way::Preference),
    ("ours_lia", Paths::Lia, Way::Preference),
    ("ours_olia", Paths::Olia, Way::Preference),
];
/// Of all plain downloads.
const CONTROLS: [(&str, Algorithm); 2] = [("cubic", Algorithm::Cubic), ("reno", Algorithm::Reno)];
/// Those with goals: our own control, as in the other experiments of the family, and the paper's coupled one.
const OWED: [&str; 2] = ["ours", "ours_olia"];
const JAIN: f64 = 0.98;
/// Who they are, in the paper's order of columns.
const CLIENTS: [&str; 3] = ["first", "second", "device"];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("close_packet_time_us".into(), (CLOSE_US as i64).into());
    for table in &TABLES {
        let reach = table.reach.map(|reach| {
            toml::Value::from(format!("{} us, {} turns at the air", reach.packet_us, reach.turns))
        });
        spec.insert(format!("to_the_device_{}", table.name), reach.to_vec().into());
    }
    spec.insert("plain_clients".into(), CONTROLS.map(|(name, _)| toml::Value::from(name)).to_vec().into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    spec.insert("fitted".into(), "the air, to the paper's rows over one access point".into());
    let mut goals = OWED.map(|way| Goal::at_least(format!("close.cubic.{way}.jain"), JAIN)).to_vec();
    for table in TABLES.iter().filter(|table| table.name != "close") {
        goals.extend(
            OWED.map(|way| Goal::at_least(format!("{}.cubic.{way}.jain_over_best_one", table.name), JAIN)),
        );
    }
    let shown = [
        ("paper", "paper.both"),
        ("cubic", "cubic.uncoupled"),
        ("ours", "cubic.ours"),
        ("olia", "cubic.ours_olia"),
    ];
    let bars = TABLES.iter().flat_map(|table| {
        shown.map(|(label, row)| BarGroup {
            label: format!("{} {label}", table.number),
            bars: CLIENTS.map(|who| (who.to_owned(), format!("{}.{row}.{who}_mbps", table.name))).to_vec(),
        })
    });
    Experiment {
        id: id("tables123-fairness"),
        title: "the device over two access points of one channel, each with a plain TCP client: what each of the three gets"
            .to_owned(),
        spec,
        paper: Some(
            "tables 1 to 3 in section 6.5: over both 7, 7, 7 Mbit/s with all close, 10, 5, 5 near the second, 8.5, 6.5, 5 between".to_owned(),
        ),
        goals,
        beds: vec![Bed::Sim],
        bars: bars.collect(),
        unit: "Mbit/s",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    for table in &TABLES {
        for (row, shares) in ["first", "second", "both"].into_iter().zip(table.paper) {
            put(&mut metrics, &format!("{}.paper.{row}", table.name), shares);
        }
        for (control, algorithm) in CONTROLS {
            let name = |row: &str| format!("{}.{control}.{row}", table.name);
            let single = [0, 1].map(|point| table.over_one(point, algorithm, seed));
            let mut best = [0.0; 3];
            for (row, shares) in ["tcp_first", "tcp_second"].into_iter().zip(single) {
                let shares = shares?;
                put(&mut metrics, &name(row), shares);
                if shares[2] > best[2] {
                    best = shares;
                }
            }
            for (way, paths, steered) in WAYS {
                let shares = table.over_both(paths, steered, algorithm, seed)?;
                put(&mut metrics, &name(way), shares);
                let mut over = |metric: &str, value: f64| {
                    metrics.insert(format!("{}.{metric}_over_best_one", name(way)), rounded(value));
                };
                over("jain", jain_index(&shares) / jain_index(&best));
                over("device", shares[2] / best[2]);
                over("plain", (shares[0] + shares[1]) / (best[0] + best[1]));
            }
        }
    }
    Ok(Report { metrics, ..Report::default() })
}

impl Table {
    fn air(&self, algorithm: Paths, way: Way, seed: u64) -> SharedAir {
        let point = |reach: Reach| Point {
            packet_time: Duration::from_micros(reach.packet_us),
            weight: reach.turns.recip(),
            uplink: NO_LIMIT,
        };
        SharedAir {
            points: self.reach.map(point).to_vec(),
            round_trip: ROUND_TRIP,
            algorithm,
            way,
            settling: SETTLING,
            measured: MEASURED,
            changes: Vec::new(),
            seed,
        }
    }

    /// The device by plain TCP over one access point, as the paper's first two rows.
    fn over_one(&self, point: usize, algorithm: Algorithm, seed: u64) -> anyhow::Result<[f64; 3]> {
        let [first, second] = [0, 1].map(|point| client(point, CLOSE, algorithm));
        let clients = [first, second, client(point, self.reach[point], algorithm)];
        let Shares { plain, .. } = self.air(Paths::Model, Way::Plain, seed).run_without_bond(&clients)?;
        three(&plain)
    }

    /// The device by the bond over both.
    fn over_both(&self, paths: Paths, way: Way, algorithm: Algorithm, seed: u64) -> anyhow::Result<[f64; 3]> {
        let clients = [0, 1].map(|point| client(point, CLOSE, algorithm));
        let Shares { mut plain, bonded } = self.air(paths, way, seed).run_beside(&clients)?;
        plain.push(bonded);
        three(&plain)
    }
}

fn client(point: usize, reach: Reach, algorithm: Algorithm) -> PlainClient {
    let packet_time = Duration::from_micros(reach.packet_us);
    PlainClient { point, packet_time, weight: reach.turns.recip(), algorithm }
}

fn three(shares: &[f64]) -> anyhow::Result<[f64; 3]> {
    shares.try_into().map_err(|_| anyhow::anyhow!("{} shares of three", shares.len()))
}

fn put(metrics: &mut Metrics, row: &str, shares: [f64; 3]) {
    for (who, mbps) in CLIENTS.into_iter().zip(shares) {
        metrics.insert(format!("{row}.{who}_mbps"), rounded(mbps));
    }
    metrics.insert(format!("{row}.jain"), rounded(jain_index(&shares)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The far access point's two figures give back the paper's rows over one access point, packets of both clients in turn.
    #[test]
    fn the_air_is_fitted_to_the_rows_over_one_access_point() {
        let packets = |mbps: f64| mbps * 1e6 / 12_000.0;
        for table in &TABLES[1..] {
            for (far, reach) in table.reach.into_iter().enumerate().filter(|(_, reach)| reach.turns > 1.0) {
                let row = table.paper[far];
                let here = packets(f64::midpoint(row[far], row[2]));
                let other = packets(row[1 - far]);
                assert!((here * (1.0 + reach.turns) / other - 1.0).abs() < 0.02, "{} {far}", table.name);
                let [close, to_device] = [CLOSE_US, reach.packet_us].map(|us| us as f64 / 1e6);
                let air = here * (close + to_device) + other * close;
                assert!((air - 1.0).abs() < 0.02, "{} {far}: {air}", table.name);
            }
        }
    }
}
