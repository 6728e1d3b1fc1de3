//! MULTIAP fig 8: a walk past five access points on one channel, against the best of them at every moment.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;

use super::shared_air::{Change, PACKET_PART, Point, SharedAir, Single, TOLD, Way};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Access points along a corridor, metres apart, and how fast one walks.
const POINTS: usize = 5;
const APART: f64 = 30.0;
const METRES_A_SECOND: f64 = 1.4;
/// Air time of a full packet close by; it doubles with so many metres beyond the first ones; then nothing arrives.
const CLOSE: Duration = Duration::from_micros(500);
const CLOSE_METRES: f64 = 10.0;
const DOUBLES: f64 = 6.0;
const REACH_METRES: f64 = 34.0;
/// How well its beacons are heard at one metre.
const NEXT_TO_IT_DBM: f64 = -40.0;
const ROUND_TRIP: Duration = Duration::from_millis(25);
const SETTLING: Duration = Duration::from_secs(5);
/// Between two changes.
const STEP: Duration = Duration::from_millis(100);
/// In which it counts whether anything arrives.
const INTERVAL: Duration = Duration::from_millis(20);

const WAYS: [(&str, Algorithm, Way); 8] = [
    ("ideal_handover", Algorithm::Model, Way::Single(Single::Ideal)),
    ("beacon_handover", Algorithm::Olia, Way::Single(Single::Beacons)),
    ("turns_backup", Algorithm::Olia, Way::Single(Single::TurnsByBackup)),
    ("turns_power_save", Algorithm::Olia, Way::Single(Single::TurnsByPowerSave)),
    ("plain", Algorithm::Olia, Way::Plain),
    ("marks_exact", Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
    ("marks_fitted", Algorithm::Olia, Way::Fitted),
    ("ours", Algorithm::Model, Way::Preference),
];

/// Over time; more lines could not be told apart.
const DRAWN: [&str; 4] = ["beacon_handover", "turns_power_save", "plain", "ours"];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert("access_points".into(), format!("{POINTS}, {APART} m apart, on one channel").into());
    spec.insert("walk".into(), format!("from the first to the last at {METRES_A_SECOND} m/s").into());
    spec.insert(
        "packet_time".into(),
        format!(
            "{} us up to {CLOSE_METRES} m, twice as much every {DOUBLES} m, out of reach from {REACH_METRES} m on",
            CLOSE.as_micros()
        )
        .into(),
    );
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("ideal_handover".into(), "always by the best one, without a gap".into());
    spec.insert(
        "beacon_handover".into(),
        "by another one when ten more of its beacons were heard in two seconds; the old one is left first"
            .into(),
    );
    spec.insert(
        "turns".into(),
        "all in reach in 200 ms, the others backups, or the device asleep to them".into(),
    );
    spec.insert("best".into(), "what the nearest access point alone would carry at every moment".into());
    let bars = |metric: &str| WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.{metric}"))).to_vec();
    Experiment {
        id: id("fig8-walk"),
        title: "a walk past five access points: what arrives, as a part of what the best one at every moment carries"
            .to_owned(),
        spec,
        paper: Some(
            "figure 8: all access points at once track the best one; a hand-over by beacon counts stands still for 5 to 10 s".to_owned(),
        ),
        goals: vec![Goal::at_least("ours.of_best", 0.92), Goal::at_most("ours.longest_gap_ms", 200.0)],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup { label: "the whole walk".into(), bars: bars("of_best") }],
        unit: "part of the best one",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let length = Duration::from_secs_f64(APART * (POINTS - 1) as f64 / METRES_A_SECOND);
    let steps = length.div_duration_f64(STEP) as u32;
    let metres = |step: u32| {
        let place = (STEP * step).as_secs_f64() * METRES_A_SECOND;
        (0..POINTS).map(move |point| (place - point as f64 * APART).abs())
    };
    let times = |step: u32| metres(step).map(packet_time);
    let at_first: Vec<Option<Duration>> = times(0).collect();
    // Before the walk, what is out of reach is as it is at its edge.
    let changes = (0..steps).flat_map(|step| {
        metres(step).enumerate().map(move |(point, metres)| {
            let packet_time = packet_time(metres);
            let signal_dbm = packet_time.map(|_| signal(metres));
            Change { at: STEP * step, point, packet_time, signal_dbm }
        })
    });
    let changes: Vec<Change> = changes.collect();
    let farthest = packet_time(REACH_METRES - 0.1).unwrap_or(CLOSE);
    let points: Vec<Point> = at_first
        .iter()
        .map(|time| Point { packet_time: time.unwrap_or(farthest), weight: 1.0, uplink: 1e6 })
        .collect();
    let best: Vec<f64> = (0..steps)
        .map(|step| {
            let best = times(step).flatten().min().map_or(0.0, |time| PACKET_PART * time.as_secs_f64());
            if best > 0.0 { STEP.as_secs_f64() / best } else { 0.0 }
        })
        .collect();
    let total: f64 = best.iter().sum();
    let mut metrics = Metrics::new();
    let mut series = vec![("best".to_owned(), by_second(&best, STEP))];
    for (name, algorithm, way) in WAYS {
        let walk = SharedAir {
            points: points.clone(),
            round_trip: ROUND_TRIP,
            algorithm,
            way,
            settling: SETTLING,
            measured: STEP * steps,
            changes: changes.clone(),
            seed,
        };
        let arrived = walk.arrivals(INTERVAL)?;
        let gaps = arrived.split(|packets| *packets > 0).map(<[u64]>::len).max().unwrap_or_default();
        metrics.insert(format!("{name}.of_best"), rounded(arrived.iter().sum::<u64>() as f64 / total));
        metrics
            .insert(format!("{name}.longest_gap_ms"), rounded((INTERVAL * gaps as u32).as_secs_f64() * 1e3));
        if DRAWN.contains(&name) {
            let arrived: Vec<f64> = arrived.iter().map(|packets| *packets as f64).collect();
            series.push((name.to_owned(), by_second(&arrived, INTERVAL)));
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// Packets a second in each second.
fn by_second(counts: &[f64], interval: Duration) -> Vec<(f64, f64)> {
    let each = Duration::from_secs(1).div_duration_f64(interval) as usize;
    (0..)
        .zip(counts.chunks_exact(each))
        .map(|(second, part)| (f64::from(second), part.iter().sum()))
        .collect()
}

fn packet_time(metres: f64) -> Option<Duration> {
    let factor = ((metres - CLOSE_METRES).max(0.0) / DOUBLES).exp2();
    (metres < REACH_METRES).then(|| CLOSE.mul_f64(factor))
}

/// Of its beacons, dBm: indoors, falling with the third power of the distance.
fn signal(metres: f64) -> f32 {
    (NEXT_TO_IT_DBM - 30.0 * metres.max(1.0).log10()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_longer_the_farther_away_until_none_arrives() {
        assert_eq!(packet_time(3.0), Some(CLOSE));
        assert_eq!(packet_time(16.0), Some(CLOSE * 2));
        assert_eq!(packet_time(34.0), None);
        // In the middle between two, both are of use.
        assert!(packet_time(APART / 2.0).is_some_and(|time| time < CLOSE * 2));
    }
}
