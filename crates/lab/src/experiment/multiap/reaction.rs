//! MULTIAP/reaction: two access points change places from one moment to the next; how long until the traffic has moved.
//!
//! On the paper's model of shared air steering is told the packet times; on the air of 802.11 it finds out from frames, while both are heard alike.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;

use super::shared_air::{
    Air, Change, Losses, NO_LIMIT, PACKET_PART, Point, SharedAir, TOLD, Transmitter, Way,
};
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
/// On the air of 802.11 the bad one loses so many of a hundred attempts, and the round trip is this.
const LOST: [u32; 3] = [50, 70, 90];
const FRAMES_ROUND_TRIP_MS: u64 = 50;
/// Both at the device.
const SIGNAL_DBM: f64 = -50.0;
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
    let part = format!("{MOVED} of what the good one alone carries, at once and over half a second");
    spec.insert("moved".into(), part.into());
    let lost = LOST.map(i64::from);
    spec.insert(
        "lost".into(),
        format!(
            "on 802.11a, {FRAMES_ROUND_TRIP_MS} ms: of the bad one's attempts {lost:?} % are lost, both are heard alike, steering is told what the device reckons"
        )
        .into(),
    );
    let bars =
        |case: &str| WAYS.map(|(name, ..)| (name.to_owned(), format!("{name}.{case}.worst_s"))).to_vec();
    let shared = ROUND_TRIPS_MS.map(|millis| (format!("{millis} ms"), format!("rtt_{millis}")));
    let frames = LOST.map(|lost| (format!("{lost} % lost"), format!("lost_{lost}")));
    Experiment {
        id: id("reaction"),
        title: "an access point becomes bad and another one good: until the traffic has moved".to_owned(),
        spec,
        paper: Some("section 6.1: the traffic has shifted after 1 to 2 s at 50 ms; no figure".to_owned()),
        goals: ["rtt_50".to_owned(), "rtt_10".to_owned()]
            .into_iter()
            .chain(LOST.map(|lost| format!("lost_{lost}")))
            .map(|case| Goal::at_most(format!("ours.{case}.worst_s"), 1.0))
            .collect(),
        beds: vec![Bed::Sim],
        bars: shared
            .into_iter()
            .chain(frames)
            .map(|(label, case)| BarGroup { label, bars: bars(&case) })
            .collect(),
        unit: "s, worst of ten",
        axes: Axes { over: Some("s after a change"), unit: Some("part of the good one alone") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    let mut put = |key: &str, arrived: &[u64], alone: f64| {
        let parts: Vec<f64> = arrived.iter().map(|count| *count as f64 / alone).collect();
        let pieces = (BETWEEN.as_micros() / PIECE.as_micros()) as usize;
        let after: Vec<&[f64]> = parts.chunks_exact(pieces).skip(1).collect();
        // One that never comes so far counts as if it came at the next change.
        let moved: Vec<f64> =
            after.iter().map(|parts| until_moved(parts, PIECE, STEADY).as_secs_f64()).collect();
        metrics.insert(format!("{key}.mean_s"), rounded(mean(&moved)));
        metrics.insert(format!("{key}.worst_s"), rounded(quantile(&moved, 1.0).unwrap_or(f64::NAN)));
        course(&after, PIECE)
    };
    for millis in ROUND_TRIPS_MS {
        for (name, algorithm, way) in WAYS {
            let air = shared_air(&[GOOD, BAD], millis, (algorithm, way), seed);
            let alone = PIECE.as_secs_f64() / (GOOD.as_secs_f64() * PACKET_PART);
            let course = put(&format!("{name}.rtt_{millis}"), &air.arrivals(PIECE)?, alone);
            if millis == 50 {
                series.push((name.to_owned(), course));
            }
        }
    }
    let good = Transmitter { fades: None, signal_dbm: SIGNAL_DBM, loss: Some(0.0), rates: None };
    let frames = |transmitters: &[Transmitter]| Air {
        transmitters: transmitters.to_vec(),
        hidden: false,
        estimated: true,
    };
    let alone = shared_air(&[GOOD], FRAMES_ROUND_TRIP_MS, (Algorithm::Model, Way::Plain), seed)
        .run_contended(&frames(std::slice::from_ref(&good)))?;
    for lost in LOST {
        let bad = Transmitter { loss: Some(f64::from(lost) / 100.0), ..good.clone() };
        let air = frames(&[good.clone(), bad]);
        for (name, algorithm, way) in WAYS {
            let shared = shared_air(&[GOOD, BAD], FRAMES_ROUND_TRIP_MS, (algorithm, way), seed);
            let arrived = shared.arrivals_contended(&air, &losses(lost), PIECE)?;
            put(&format!("{name}.lost_{lost}"), &arrived, alone.arrived * PIECE.as_secs_f64());
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

fn shared_air(times: &[Duration], millis: u64, (algorithm, way): (Algorithm, Way), seed: u64) -> SharedAir {
    let point = |packet_time: &Duration| Point { packet_time: *packet_time, weight: 1.0, uplink: NO_LIMIT };
    SharedAir {
        points: times.iter().map(point).collect(),
        round_trip: Duration::from_millis(millis),
        algorithm,
        way,
        settling: SETTLING,
        measured: BETWEEN * (CHANGES + 1),
        changes: changes(),
        seed,
    }
}

/// Which of both is the bad one, by the number of the change.
fn places<T>(round: u32, good: T, bad: T) -> [T; 2] {
    if round % 2 == 1 { [bad, good] } else { [good, bad] }
}

fn losses(lost: u32) -> Vec<Losses> {
    let at =
        |round: u32| Losses { at: BETWEEN * round, of: places(round, 0.0, f64::from(lost) / 100.0).to_vec() };
    (1..=CHANGES).map(at).collect()
}

fn changes() -> Vec<Change> {
    let at_once = |round: u32| {
        let at = BETWEEN * round;
        let change = move |(point, time)| Change { at, point, packet_time: Some(time), signal_dbm: None };
        places(round, GOOD, BAD).into_iter().enumerate().map(change)
    };
    (1..=CHANGES).flat_map(at_once).collect()
}

/// When the first piece begins in which enough arrives, and in `steady` from there on, on average; the whole time if there is none.
pub(super) fn until_moved(parts: &[f64], piece: Duration, steady: usize) -> Duration {
    let first = parts.windows(steady).position(|window| window[0] >= MOVED && mean(window) >= MOVED);
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
        parts[3] = 1.0;
        parts[12..].fill(1.0);
        assert_eq!(
            until_moved(&parts, PIECE, STEADY),
            PIECE * 12,
            "not what is poor before, nor a single one"
        );
        parts[14..16].fill(0.1);
        assert_eq!(
            until_moved(&parts, PIECE, STEADY),
            PIECE * 12,
            "with two poor ones in ten it is good enough"
        );
    }

    #[test]
    fn places_change_each_time() {
        let changes = changes();
        assert_eq!(changes.len(), 2 * CHANGES as usize);
        assert_eq!((changes[0].packet_time, changes[1].packet_time), (Some(BAD), Some(GOOD)));
        assert_eq!((changes[2].packet_time, changes[3].packet_time), (Some(GOOD), Some(BAD)));
    }
}
