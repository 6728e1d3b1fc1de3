//! MULTIAP fig 9: the same 10 MB again and again over two access points whose air varies for reasons of its own.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;
use sim::SeededRandom;

use super::shared_air::{Change, PACKET_PART, Point, SharedAir, TOLD, Way};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::quantile;

/// 10 MB in packets of `shared_air`.
const DOWNLOAD_PACKETS: f64 = 10e6 / 1_400.0;
const SETTLING: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(1_200);
const INTERVAL: Duration = Duration::from_millis(20);
const ROUND_TRIP: Duration = Duration::from_millis(25);
/// How long the air of an access point stays as it is, on average, seconds; of exponential distribution.
const STAY: f64 = 6.0;
/// Air times of a full packet, microseconds, with their chances: mostly good, now and then very poor.
const STATES: [(u64, f64); 4] = [(600, 0.55), (900, 0.25), (2_000, 0.13), (6_000, 0.07)];

/// The paper's medians in seconds, over the better one of the access points and over both.
pub(super) const PAPER_MEDIANS: [(&str, f64); 2] = [("one", 5.0), ("both", 6.0)];

pub(super) fn paper_bar((over, _): (&str, f64)) -> (String, String) {
    (format!("paper, {over}"), paper_metric(over))
}

pub(super) fn paper_metric(over: &str) -> String {
    format!("paper.{over}.median_s")
}

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert("access_points".into(), "two on one channel, each with an air that varies by itself".into());
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("stay_s".into(), STAY.into());
    let states = STATES.map(|(time, chance)| toml::Value::from(format!("{time} us: {chance}")));
    spec.insert("packet_times".into(), states.to_vec().into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    spec.insert("download".into(), "10 MB, one after the other in one long flow".into());
    spec.insert("ideal".into(), "what the better one at every moment would carry alone".into());
    let bars = |metric: &str| {
        ["one", "other", "plain", "marks_exact", "marks_fitted", "ours", "ideal"]
            .map(|name| (name.to_owned(), format!("{name}.{metric}")))
            .to_vec()
    };
    Experiment {
        id: id("fig9-static"),
        title: "10 MB again and again over two access points whose air varies".to_owned(),
        spec,
        paper: Some(
            "figure 9: medians of 5 s and 5.6 s over one access point and 6 s over both; the 99th percentile over both is half".to_owned(),
        ),
        goals: vec![Goal::at_most("ours.median_over_best", 1.0), Goal::at_most("ours.p99_over_best", 0.5)],
        beds: vec![Bed::Sim],
        bars: vec![
            BarGroup { label: "median".into(), bars: bars("median_s").into_iter().chain(PAPER_MEDIANS.map(paper_bar)).collect() },
            BarGroup { label: "99th percentile".into(), bars: bars("p99_s") },
        ],
        unit: "s",
        axes: Axes { over: Some("s"), unit: Some("part of the downloads that took no longer") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let airs = [0, 1].map(|point| air(point, seed));
    let mut metrics: Metrics = PAPER_MEDIANS.map(|(over, median)| (paper_metric(over), median)).into();
    let mut series = Vec::new();
    let runs: [(&str, &[usize], Algorithm, Way); 6] = [
        ("one", &[0], Algorithm::Model, Way::Plain),
        ("other", &[1], Algorithm::Model, Way::Plain),
        ("plain", &[0, 1], Algorithm::Olia, Way::Plain),
        ("marks_exact", &[0, 1], Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
        ("marks_fitted", &[0, 1], Algorithm::Olia, Way::Fitted),
        ("ours", &[0, 1], Algorithm::Model, Way::Preference),
    ];
    for (name, used, algorithm, way) in runs {
        let mut changes: Vec<Change> = Vec::new();
        for (point, air) in used.iter().enumerate() {
            changes.extend(airs[*air].iter().map(|(at, time)| Change {
                at: *at,
                point,
                packet_time: Some(*time),
                signal_dbm: None,
            }));
        }
        changes.sort_by_key(|change| change.at);
        let point = Point { packet_time: Duration::from_micros(STATES[0].0), weight: 1.0, uplink: 1e6 };
        let air = SharedAir {
            points: vec![point; used.len()],
            round_trip: ROUND_TRIP,
            algorithm,
            way,
            settling: SETTLING,
            measured: MEASURED,
            changes,
            seed,
        };
        let arrived = air.arrivals(INTERVAL)?;
        let times = downloads(arrived.into_iter().map(|count| count as f64));
        put_times(&mut metrics, name, &times);
        series.push((name.to_owned(), distribution(times)));
    }
    put_times(&mut metrics, "ideal", &downloads(ideal(&airs)));
    for (rank, ratio) in [("median_s", "median_over_best"), ("p99_s", "p99_over_best")] {
        let best = metrics[&format!("one.{rank}")].min(metrics[&format!("other.{rank}")]);
        for name in ["plain", "marks_exact", "marks_fitted", "ours", "ideal"] {
            let value = metrics[&format!("{name}.{rank}")] / best;
            metrics.insert(format!("{name}.{ratio}"), rounded(value));
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

fn put_times(metrics: &mut Metrics, name: &str, times: &[f64]) {
    for (rank, fraction) in [("median_s", 0.5), ("p99_s", 0.99)] {
        metrics.insert(format!("{name}.{rank}"), rounded(quantile(times, fraction).unwrap_or(f64::NAN)));
    }
    metrics.insert(format!("{name}.downloads"), times.len() as f64);
}

/// Packets in each interval, if each went over the access point that is the better one then.
fn ideal(airs: &[Vec<(Duration, Duration)>]) -> impl Iterator<Item = f64> {
    let intervals = MEASURED.div_duration_f64(INTERVAL) as u32;
    (0..intervals).map(move |number| {
        let now = INTERVAL * number;
        let time = |air: &Vec<(Duration, Duration)>| {
            air.get(air.partition_point(|(at, _)| *at <= now).checked_sub(1)?).map(|(_, time)| *time)
        };
        let best = airs.iter().filter_map(time).min();
        best.map_or(0.0, |time| INTERVAL.div_duration_f64(time) / PACKET_PART)
    })
}

/// When the air of an access point changes, and to what.
fn air(point: u32, seed: u64) -> Vec<(Duration, Duration)> {
    let mut chance = SeededRandom::derive(seed, &format!("varying air {point}"));
    let (mut at, mut changes) = (0.0, Vec::new());
    while at < MEASURED.as_secs_f64() {
        let mut drawn = chance.unit();
        let state = STATES.iter().find(|(_, part)| {
            drawn -= part;
            drawn < 0.0
        });
        let (time, _) = state.unwrap_or(&STATES[0]);
        changes.push((Duration::from_secs_f64(at), Duration::from_micros(*time)));
        at -= STAY * (1.0 - chance.unit()).ln();
    }
    changes
}

/// Seconds that each download took, of what arrived in each interval.
fn downloads(arrived: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let (mut times, mut packets, mut began) = (Vec::new(), 0.0, 0.0);
    for (number, count) in (1_u32..).zip(arrived) {
        packets += count;
        if packets >= DOWNLOAD_PACKETS {
            packets -= DOWNLOAD_PACKETS;
            let now = (INTERVAL * number).as_secs_f64();
            times.push(now - began);
            began = now;
        }
    }
    times
}

/// Part of the downloads that took no longer, by seconds.
fn distribution(mut times: Vec<f64>) -> Vec<(f64, f64)> {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    (1..).zip(times).map(|(rank, time)| (time, f64::from(rank) / count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_timed_by_what_arrived() {
        // Half a download in each of four intervals, with one in between in which nothing arrives.
        let half = DOWNLOAD_PACKETS / 2.0;
        let times = downloads([half, half, 0.0, half, half]);
        assert_eq!(times.len(), 2);
        assert!((times[0] - 0.04).abs() < 1e-9 && (times[1] - 0.06).abs() < 1e-9, "{times:?}");
    }

    #[test]
    fn the_ideal_is_the_better_one_at_every_moment() {
        let seconds = Duration::from_secs;
        let [fast, slow] = [600, 1_200].map(Duration::from_micros);
        let airs =
            [vec![(seconds(0), fast), (seconds(10), slow)], vec![(seconds(0), slow), (seconds(20), fast)]];
        let packets: Vec<f64> = ideal(&airs).collect();
        let at = |second: usize| packets[second * 50];
        assert!((at(5) - 2.0 * at(15)).abs() < 1e-9 && at(25) == at(5), "{} {}", at(5), at(15));
    }

    #[test]
    fn the_air_varies_as_described() {
        let changes = air(0, 1);
        assert_eq!(changes, air(0, 1));
        assert!(changes != air(1, 1) && changes.is_sorted_by_key(|(at, _)| *at));
        assert!((150..260).contains(&changes.len()), "{}", changes.len());
    }
}
