//! MULTIAP/reaction: two access points change places from one moment to the next; how long until the traffic has moved.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;

use super::shared_air::{Change, NO_LIMIT, PACKET_PART, Point, SharedAir, TOLD, Way};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::quantile;

const ROUND_TRIPS_MS: [u64; 3] = [10, 50, 100];
/// Air time of a full packet over the good access point, and over the bad one.
const GOOD: Duration = Duration::from_micros(1_000);
const BAD: Duration = Duration::from_micros(6_000);
const SETTLING: Duration = Duration::from_secs(5);
/// The access points change places this often, and once more than they are counted.
const CHANGES: u32 = 10;
const BETWEEN: Duration = Duration::from_secs(10);
/// What arrives is counted in these pieces; the traffic has moved with the first of [`STEADY`] in a row that are good enough.
const PIECE: Duration = Duration::from_millis(50);
const STEADY: usize = 10;
/// As much of what the good one alone carries.
pub(super) const MOVED: f64 = 0.8;

/// Each actuator, and nothing at all.
const WAYS: [(&str, Algorithm, Way); 4] = [
    ("plain", Algorithm::Olia, Way::Plain),
    ("marks_exact", Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
    ("marks_fitted", Algorithm::Olia, Way::Fitted),
    ("ours", Algorithm::Model, Way::Preference),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert(
        "access_points".into(),
        "two on one channel, of which one is good, and they change places".into(),
    );
    spec.insert("packet_times_us".into(), vec![micros(GOOD), micros(BAD)].into());
    spec.insert("round_trips_ms".into(), ROUND_TRIPS_MS.map(|millis| millis as i64).to_vec().into());
    spec.insert("changes".into(), format!("{CHANGES}, every {} s", BETWEEN.as_secs()).into());
    let part = format!("{MOVED} of what the good one alone carries, over half a second");
    spec.insert("moved".into(), part.into());
    let bars = |millis: u64| {
        WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.rtt_{millis}.worst_s"))).to_vec()
    };
    Experiment {
        id: id("reaction"),
        title: "an access point becomes bad and another one good: until the traffic has moved".to_owned(),
        spec,
        paper: Some("section 6.1: the traffic has shifted after 1 to 2 s at 50 ms; no figure".to_owned()),
        goals: vec![Goal::at_most("ours.rtt_50.worst_s", 1.0), Goal::at_most("ours.rtt_10.worst_s", 1.0)],
        beds: vec![Bed::Sim],
        bars: ROUND_TRIPS_MS
            .map(|millis| BarGroup { label: format!("{millis} ms"), bars: bars(millis) })
            .to_vec(),
        unit: "s, worst of ten",
        axes: Axes { over: Some("s after a change"), unit: Some("part of the good one alone") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for millis in ROUND_TRIPS_MS {
        for (name, algorithm, way) in WAYS {
            let air = SharedAir {
                points: [GOOD, BAD]
                    .map(|packet_time| Point { packet_time, weight: 1.0, uplink: NO_LIMIT })
                    .to_vec(),
                round_trip: Duration::from_millis(millis),
                algorithm,
                way,
                settling: SETTLING,
                measured: BETWEEN * (CHANGES + 1),
                changes: changes(),
                seed,
            };
            let arrived = air.arrivals(PIECE)?;
            let alone = PIECE.as_secs_f64() / (GOOD.as_secs_f64() * PACKET_PART);
            let parts: Vec<f64> = arrived.iter().map(|count| *count as f64 / alone).collect();
            let pieces = (BETWEEN.as_micros() / PIECE.as_micros()) as usize;
            let after: Vec<&[f64]> = parts.chunks_exact(pieces).skip(1).collect();
            // One that never comes so far counts as if it came at the next change.
            let moved: Vec<f64> =
                after.iter().map(|parts| until_moved(parts, PIECE, STEADY).as_secs_f64()).collect();
            let key = format!("{name}.rtt_{millis}");
            metrics.insert(format!("{key}.mean_s"), rounded(mean(&moved)));
            metrics.insert(format!("{key}.worst_s"), rounded(quantile(&moved, 1.0).unwrap_or(f64::NAN)));
            if millis == 50 {
                series.push((name.to_owned(), course(&after, PIECE)));
            }
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

fn changes() -> Vec<Change> {
    let places = |round: u32| if round % 2 == 1 { [BAD, GOOD] } else { [GOOD, BAD] };
    let at_once = |round: u32| {
        let at = BETWEEN * round;
        let change = move |(point, time)| Change { at, point, packet_time: Some(time), signal_dbm: None };
        places(round).into_iter().enumerate().map(change)
    };
    (1..=CHANGES).flat_map(at_once).collect()
}

/// When the first piece begins from which on enough arrives for `steady` of them, on average; the whole time if there is none.
pub(super) fn until_moved(parts: &[f64], piece: Duration, steady: usize) -> Duration {
    let first = parts.windows(steady).position(|window| mean(window) >= MOVED);
    piece * first.unwrap_or(parts.len()) as u32
}

/// What arrives after a change, on average over all, by seconds.
pub(super) fn course(after: &[&[f64]], piece: Duration) -> Vec<(f64, f64)> {
    let pieces = after.iter().map(|parts| parts.len()).min().unwrap_or_default();
    let at = |number: usize| mean(&after.iter().map(|parts| parts[number]).collect::<Vec<_>>());
    (0..pieces).map(|number| (rounded(piece.as_secs_f64() * number as f64), rounded(at(number)))).collect()
}

fn micros(time: Duration) -> i64 {
    time.as_micros() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_is_the_first_moment_from_which_enough_arrives() {
        let mut parts = vec![0.1; 30];
        assert_eq!(until_moved(&parts, PIECE, STEADY), PIECE * 30);
        parts[12..].fill(1.0);
        // A window of ten with two poor ones is good enough.
        assert_eq!(until_moved(&parts, PIECE, STEADY), PIECE * 10);
    }

    #[test]
    fn places_change_each_time() {
        let changes = changes();
        assert_eq!(changes.len(), 2 * CHANGES as usize);
        assert_eq!((changes[0].packet_time, changes[1].packet_time), (Some(BAD), Some(GOOD)));
        assert_eq!((changes[2].packet_time, changes[3].packet_time), (Some(GOOD), Some(BAD)));
    }
}
