//! MULTIAP fig 6a: 120 combinations of round trip, packet time and luck in contention, as parts of what the best access point alone carries.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;

use super::shared_air::{NO_LIMIT, Point, SharedAir, TOLD, Way};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// `[MULTIAP] section 6.2.1`.
const ROUND_TRIPS_MS: [u64; 4] = [10, 25, 50, 100];
const POOR_MS: [u64; 6] = [1, 2, 3, 4, 5, 6];
/// How often the poor one wins the air when the good one wins it once.
const WEIGHTS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
/// 22 Mbit/s.
const GOOD: Duration = Duration::from_micros(500);
const SETTLING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(8);

/// What is compared: name, congestion control of the bond, what the device does.
const WAYS: [(&str, Algorithm, Way); 6] = [
    ("plain_olia", Algorithm::Olia, Way::Plain),
    ("marks_exact", Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
    ("marks_printed", Algorithm::Olia, Way::Marks(MarkingForm::Printed)),
    ("marks_fitted", Algorithm::Olia, Way::Fitted),
    ("plain_model", Algorithm::Model, Way::Plain),
    ("ours", Algorithm::Model, Way::Preference),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    let mut put = |key: &str, value: toml::Value| spec.insert(key.to_owned(), value);
    put("round_trips_ms", ROUND_TRIPS_MS.map(|ms| toml::Value::from(ms as i64)).to_vec().into());
    put("poor_packet_times_ms", POOR_MS.map(|ms| toml::Value::from(ms as i64)).to_vec().into());
    put("weights", WEIGHTS.map(toml::Value::from).to_vec().into());
    put("good_packet_time_us", (GOOD.as_micros() as i64).into());
    put("measured_s", (MEASURED.as_secs() as i64).into());
    put("traffic", "one download that takes all it gets, through the bond".into());
    let group = |label: &str, part: &str| BarGroup {
        label: label.to_owned(),
        bars: std::iter::once(("paper, marks".to_owned(), format!("paper.{part}")))
            .chain(WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.{part}"))))
            .collect(),
    };
    Experiment {
        id: id("fig6-steering"),
        title: "a good and a poor access point on one channel: what arrives, as a part of what the good one alone carries"
            .to_owned(),
        spec,
        paper: Some(
            "figure 6a: with marks 85 % of the optimum on average and 65 % at worst; without 34 % on average".to_owned(),
        ),
        goals: vec![
            Goal::at_least("ours.mean", 0.92),
            Goal::at_least("ours.worst", 0.8),
            Goal::at_least("marks_fitted.mean", 0.85),
            Goal::at_least("marks_fitted.worst", 0.65),
        ],
        beds: vec![Bed::Sim],
        bars: vec![group("mean", "mean"), group("worst", "worst")],
        unit: "part of the best one alone",
        axes: Axes { over: Some("combinations, from the worst one"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let good = Point { packet_time: GOOD, weight: 1.0, uplink: NO_LIMIT };
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    for (name, algorithm, way) in WAYS {
        let mut parts = Vec::new();
        for round_trip in ROUND_TRIPS_MS.map(Duration::from_millis) {
            let with = |points: Vec<Point>, way| SharedAir {
                points,
                round_trip,
                algorithm,
                way,
                settling: SETTLING,
                measured: MEASURED,
                changes: Vec::new(),
                seed,
            };
            // The best that any of the two controllers makes of the good one alone.
            let mut best = 0.0_f64;
            for algorithm in [Algorithm::Olia, Algorithm::Model] {
                best = best.max(SharedAir { algorithm, ..with(vec![good], Way::Plain) }.run()?);
            }
            metrics.insert(format!("alone.{}ms", round_trip.as_millis()), rounded(best));
            for poor_ms in POOR_MS {
                for weight in WEIGHTS {
                    let poor =
                        Point { packet_time: Duration::from_millis(poor_ms), weight, uplink: NO_LIMIT };
                    parts.push(with(vec![good, poor], way).run()? / best);
                }
            }
        }
        parts.sort_by(f64::total_cmp);
        metrics.insert(format!("{name}.mean"), rounded(mean(&parts)));
        metrics.insert(format!("{name}.worst"), rounded(parts.first().copied().unwrap_or_default()));
        series.push((name.to_owned(), (0..).map(f64::from).zip(parts).collect()));
    }
    metrics.insert("paper.mean".into(), 0.85);
    metrics.insert("paper.worst".into(), 0.65);
    Ok(Report { metrics, series, ..Report::default() })
}
