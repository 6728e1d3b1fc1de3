//! MULTIAP fig 6c: one to ten access points beside a good one, all poor or spread evenly; settled, and in the first seconds, when nothing is known of them.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;

use super::shared_air::{Point, SharedAir, TOLD, Way};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const GOOD_US: u64 = 500;
const POOR_US: u64 = 6_000;
const ROUND_TRIP: Duration = Duration::from_millis(25);
/// Access points beside the good one.
const COUNTS: [u32; 5] = [0, 1, 3, 6, 10];
const MOST: u32 = 10;
const SETTLING: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_secs(60);
/// From the moment on at which the ends have come together, and up to 2.6 s later, by the seed.
const FIRST: Duration = Duration::from_secs(20);

const WAYS: [(&str, Algorithm, Way); 4] = [
    ("plain", Algorithm::Olia, Way::Plain),
    ("marks_exact", Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
    ("marks_fitted", Algorithm::Olia, Way::Fitted),
    ("ours", Algorithm::Model, Way::Preference),
];
/// The others are all poor, or spread evenly between the good one and poor.
const MIXES: [&str; 2] = ["poor", "spread"];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("good_packet_time_us".into(), (GOOD_US as i64).into());
    spec.insert("poor_packet_time_us".into(), (POOR_US as i64).into());
    spec.insert("beside_it".into(), COUNTS.map(|count| toml::Value::from(i64::from(count))).to_vec().into());
    spec.insert("first".into(), format!("the first {} s", FIRST.as_secs()).into());
    spec.insert("mixes".into(), MIXES.map(toml::Value::from).to_vec().into());
    let bars = MIXES.map(|mix| BarGroup {
        label: format!("{MOST} {mix}"),
        bars: WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.{mix}_{MOST}"))).to_vec(),
    });
    let first = BarGroup {
        label: format!("{MOST} poor, first {} s", FIRST.as_secs()),
        bars: WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.first.poor_{MOST}"))).to_vec(),
    };
    Experiment {
        id: id("fig6c-manyaps"),
        title:
            "poor access points beside a good one: what arrives, as a part of what the good one alone carries"
                .to_owned(),
        spec,
        paper: Some(
            "figure 6c: the more access points, the less arrives; more than three or four are a bad idea"
                .to_owned(),
        ),
        goals: MIXES
            .iter()
            .flat_map(|mix| [format!("ours.{mix}_{MOST}"), format!("ours.first.{mix}_{MOST}")])
            .map(|metric| Goal::at_least(metric, 0.95))
            .collect(),
        beds: vec![Bed::Sim],
        bars: bars.into_iter().chain([first]).collect(),
        unit: "part of the good one alone",
        axes: Axes { over: Some("access points beside it"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    let run = |points, (algorithm, way), (settling, measured)| {
        let round_trip = ROUND_TRIP;
        SharedAir { points, round_trip, algorithm, way, settling, measured, changes: Vec::new(), seed }.run()
    };
    let (settled, first) = ((SETTLING, MEASURED), (Duration::ZERO, FIRST));
    let alone = |times| run(points("poor", 0), (Algorithm::Model, Way::Plain), times);
    let (alone, alone_first) = (alone(settled)?, alone(first)?);
    for (name, algorithm, way) in WAYS {
        for mix in MIXES {
            let mut line = Vec::new();
            for count in COUNTS {
                let part = run(points(mix, count), (algorithm, way), settled)? / alone;
                metrics.insert(format!("{name}.{mix}_{count}"), rounded(part));
                line.push((f64::from(count), part));
            }
            let part = run(points(mix, MOST), (algorithm, way), first)? / alone_first;
            metrics.insert(format!("{name}.first.{mix}_{MOST}"), rounded(part));
            // The paper's marks would hide the line of no steering at all.
            if name != "marks_exact" {
                series.push((format!("{name}, {mix}"), line));
            }
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// A good one, and so many beside it.
fn points(mix: &str, count: u32) -> Vec<Point> {
    let time = |number: u32| match (number, mix) {
        (0, _) => GOOD_US,
        (_, "poor") => POOR_US,
        (number, _) => GOOD_US + (POOR_US - GOOD_US) * u64::from(number) / u64::from(MOST),
    };
    let point = |number| Point { packet_time: Duration::from_micros(time(number)), weight: 1.0, uplink: 1e6 };
    (0..=count).map(point).collect()
}
