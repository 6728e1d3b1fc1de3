//! MULTIAP fig 6b: the better access point's uplink is shared with more and more other flows.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;

use super::shared_air::{NO_LIMIT, Point, SharedAir, TOLD, Way};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// `[MULTIAP] section 6.2.1`, scenario 2.
const GOOD: Duration = Duration::from_micros(500);
const POOR: Duration = Duration::from_millis(3);
const ROUND_TRIP: Duration = Duration::from_millis(25);
/// 25 Mbit/s in packets of 1,500 bytes a second.
const UPLINK: f64 = 25e6 / 12_000.0;
/// Other flows, each of which gets as much of the uplink as we do.
const OTHERS: [u32; 6] = [0, 1, 2, 4, 8, 16];
const SETTLING: Duration = Duration::from_secs(6);
const MEASURED: Duration = Duration::from_secs(34);

const WAYS: [(&str, Algorithm, Way); 5] = [
    ("plain_olia", Algorithm::Olia, Way::Plain),
    ("marks_exact", Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
    ("marks_printed", Algorithm::Olia, Way::Marks(MarkingForm::Printed)),
    ("marks_fitted", Algorithm::Olia, Way::Fitted),
    ("ours", Algorithm::Model, Way::Preference),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("packet_times_ms".into(), vec![toml::Value::from(0.5), 3.0.into()].into());
    spec.insert("uplink_mbps".into(), 25.into());
    spec.insert("others".into(), OTHERS.map(|others| toml::Value::from(i64::from(others))).to_vec().into());
    spec.insert("sharing".into(), "each flow has an equal part of the uplink".into());
    Experiment {
        id: id("fig6b-uplink"),
        title: "the better access point's uplink is shared with other flows: what arrives, as a part of the most that can"
            .to_owned(),
        spec,
        paper: Some("figure 6b and section 6.2.1: 84 % of the optimum on average".to_owned()),
        goals: vec![Goal::at_least("ours.mean", 0.92), Goal::at_least("marks_fitted.mean", 0.84)],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "mean".into(),
            bars: std::iter::once(("paper, marks".to_owned(), "paper.mean".to_owned()))
                .chain(WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.mean"))))
                .chain([("better one alone".to_owned(), "best_alone.mean".to_owned())])
                .collect(),
        }],
        unit: "part of the optimum",
        axes: Axes { over: Some("others on the uplink"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    let run = |points, algorithm, way| {
        let (round_trip, settling, measured) = (ROUND_TRIP, SETTLING, MEASURED);
        SharedAir { points, round_trip, algorithm, way, settling, measured, changes: Vec::new(), seed }.run()
    };
    let point = |packet_time, uplink| Point { packet_time, weight: 1.0, uplink };
    // What the bond makes of the air alone, its own overhead included.
    let full = run(vec![point(GOOD, NO_LIMIT)], Algorithm::Model, Way::Plain)?;
    let efficiency = full * GOOD.as_secs_f64();
    for (name, algorithm, way) in WAYS {
        let mut parts = Vec::new();
        for others in OTHERS {
            let uplink = part_of_uplink(others);
            let arrived = run(vec![point(GOOD, uplink), point(POOR, NO_LIMIT)], algorithm, way)?;
            let part = arrived / (optimum(uplink) * efficiency);
            metrics.insert(format!("{name}.others_{others}"), rounded(part));
            parts.push(part);
        }
        metrics.insert(format!("{name}.mean"), rounded(mean(&parts)));
        series.push((name.to_owned(), OTHERS.into_iter().map(f64::from).zip(parts).collect()));
    }
    // Each of the two by itself, and the better one of them at each place.
    let mut best_alone = Vec::new();
    for others in OTHERS {
        let uplink = part_of_uplink(others);
        let most = optimum(uplink) * efficiency;
        let mut alone = |name: &str, only| -> anyhow::Result<f64> {
            let part = run(vec![only], Algorithm::Model, Way::Plain)? / most;
            metrics.insert(format!("{name}.others_{others}"), rounded(part));
            Ok(part)
        };
        let good = alone("good_alone", point(GOOD, uplink))?;
        best_alone.push(good.max(alone("poor_alone", point(POOR, NO_LIMIT))?));
    }
    metrics.insert("best_alone.mean".into(), rounded(mean(&best_alone)));
    series.push(("better one alone".to_owned(), OTHERS.into_iter().map(f64::from).zip(best_alone).collect()));
    metrics.insert("paper.mean".into(), 0.84);
    Ok(Report { metrics, series, ..Report::default() })
}

/// Packets a second that one of so many flows and another one has of the uplink.
fn part_of_uplink(others: u32) -> f64 {
    UPLINK / f64::from(others + 1)
}

/// The most packets in a second: our part of the uplink filled, and the rest of the air by the poor one.
fn optimum(uplink: f64) -> f64 {
    let good = uplink.min(1.0 / GOOD.as_secs_f64());
    good + (1.0 - good * GOOD.as_secs_f64()).max(0.0) / POOR.as_secs_f64()
}
