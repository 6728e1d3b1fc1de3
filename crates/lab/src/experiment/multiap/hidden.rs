//! MULTIAP fig 2: a device at one place after another between two access points of one channel that do not hear each other, so that what both send
//! at once meets at the device.
//!
//! Without control of any kind both always send (2a and 2b, the UDP flows); with one, the more fortunate one has the air.

use std::time::Duration;

use bond::Algorithm;
use radio::Rate;
use sim::medium::Series;

use super::carrier_sense::{Choice, attempt_time, point as fading_point};
use super::nomadic::signal_dbm;
use super::shared_air::{Air, Contended, NO_LIMIT, Point, SharedAir, Transmitter, Way};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Metres between the access points: each hears the other with -83 dBm, less than it has to notice.
const APART: f64 = 66.0;
/// Metres of the device from the first one.
const PLACES: [f64; 9] = [5.0, 14.0, 22.0, 27.0, MIDDLE, 39.0, 44.0, 52.0, 61.0];
/// Metres of both from a device between them.
pub(super) const MIDDLE: f64 = 33.0;
/// The paper's simulation: 6 Mbit/s.
pub(super) const SLOW: Rate = Rate(12);
const ATTEMPTS: u8 = 7;
const ROUND_TRIP: Duration = Duration::from_millis(25);
const SETTLING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(30);
/// A packet without control, as long as one of the tunnel.
const PACKET: usize = 1_440;

const CASES: [&str; 2] = ["six", "fading"];
const WAYS: [(&str, Algorithm, Way); 3] = [
    ("plain_olia", Algorithm::Olia, Way::Plain),
    ("plain_model", Algorithm::Model, Way::Plain),
    ("ours", Algorithm::Model, Way::Preference),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let text = format!("two, {APART} m apart, on one channel, 802.11a; neither hears the other");
    spec.insert("access_points".into(), text.into());
    spec.insert("places_m".into(), PLACES.map(toml::Value::from).to_vec().into());
    spec.insert("signal".into(), "17 dBm, path loss of TGn model B".into());
    spec.insert("six".into(), "all frames at 6 Mbit/s, nothing fades".into());
    spec.insert("fading".into(), "the rates that get most through, Rayleigh fades of 70 ms".into());
    spec.insert("uncontrolled".into(), "both access points always have something to send".into());
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    let bars = |case: &str, part: &str| BarGroup {
        label: format!("{case}, {part}"),
        bars: std::iter::once("uncontrolled")
            .chain(WAYS.map(|(way, ..)| way))
            .map(|way| (way.to_owned(), format!("{case}.{way}.{part}")))
            .collect(),
    };
    let mut goals = vec![Goal::at_most("six.uncontrolled.middle", 0.5)];
    goals.extend(CASES.map(|case| Goal::at_least(format!("{case}.ours.worst"), 0.95)));
    Experiment {
        id: id("fig2-hidden"),
        title: "place after place between two access points that do not hear each other: what arrives over both, as a part of what the better one alone carries"
            .to_owned(),
        spec,
        paper: Some(
            "figure 2 and section 4.1: two UDP flows spoil each other in the middle, TCP over both has about as much as over the better one; with six repeats or more the rare sender loses 40 % of its packets, the other none"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Sim],
        bars: CASES.iter().flat_map(|case| ["middle", "worst"].map(|part| bars(case, part))).collect(),
        unit: "part of the better one alone",
        axes: Axes { over: Some("metres from the first access point"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    for case in CASES {
        let names = || std::iter::once("uncontrolled").chain(WAYS.map(|(way, ..)| way));
        let mut lines: Vec<(&str, Vec<(f64, f64)>)> = names().map(|name| (name, Vec::new())).collect();
        for place in PLACES {
            let points = [point(case, 0, place)?, point(case, 1, APART - place)?];
            let parts = at_place(&format!("{case}.at_{place:.0}"), &points, seed, &mut metrics)?;
            for ((_, line), part) in lines.iter_mut().zip(parts) {
                line.push((place, part));
            }
        }
        for (way, line) in lines {
            let least = line.iter().map(|(_, part)| *part).fold(f64::INFINITY, f64::min);
            let middle = line.iter().find(|(at, _)| *at == MIDDLE).map_or(0.0, |(_, part)| *part);
            metrics.insert(format!("{case}.{way}.worst"), rounded(least));
            metrics.insert(format!("{case}.{way}.middle"), rounded(middle));
            series.push((format!("{case}: {way}"), line));
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// What arrives without control and by each way, as parts of the better one alone.
fn at_place(
    name: &str,
    points: &[(Transmitter, Point)],
    seed: u64,
    metrics: &mut Metrics,
) -> anyhow::Result<[f64; 1 + WAYS.len()]> {
    let uncontrolled =
        |points: &[(Transmitter, Point)]| air(points).run_uncontrolled(PACKET, MEASURED, seed).arrived;
    let (mut best, mut best_uncontrolled) = (1.0_f64, 1.0_f64);
    for (which, known) in ["first", "second"].into_iter().zip(points) {
        let known = std::slice::from_ref(known);
        best_uncontrolled = best_uncontrolled.max(uncontrolled(known));
        for (control, algorithm) in [("olia", Algorithm::Olia), ("model", Algorithm::Model)] {
            let alone = controlled(known, algorithm, Way::Plain, seed)?.arrived;
            metrics.insert(format!("{name}.{which}.{control}_alone"), rounded(alone));
            best = best.max(alone);
        }
    }
    let mut parts = [uncontrolled(points) / best_uncontrolled, 0.0, 0.0, 0.0];
    metrics.insert(format!("{name}.uncontrolled"), rounded(parts[0]));
    for ((way, algorithm, steered), part) in WAYS.into_iter().zip(&mut parts[1..]) {
        let both = controlled(points, algorithm, steered, seed)?;
        *part = both.arrived / best;
        metrics.insert(format!("{name}.{way}"), rounded(*part));
        for (which, at) in ["first", "second"].into_iter().zip(0..) {
            metrics.insert(format!("{name}.{way}.air_{which}"), rounded(both.air[at]));
            metrics.insert(format!("{name}.{way}.delivered_{which}"), rounded(both.delivered[at]));
            metrics.insert(format!("{name}.{way}.lost_{which}"), rounded(both.lost[at]));
        }
    }
    Ok(parts)
}

fn air(points: &[(Transmitter, Point)]) -> Air {
    let transmitters = points.iter().map(|(transmitter, _)| transmitter.clone()).collect();
    Air { transmitters, hidden: true, estimated: true }
}

fn controlled(
    points: &[(Transmitter, Point)],
    algorithm: Algorithm,
    way: Way,
    seed: u64,
) -> anyhow::Result<Contended> {
    let run = SharedAir {
        points: points.iter().map(|(_, point)| *point).collect(),
        round_trip: ROUND_TRIP,
        algorithm,
        way,
        settling: SETTLING,
        measured: MEASURED,
        changes: Vec::new(),
        seed,
    };
    run.run_contended(&air(points))
}

fn point(case: &str, fades: u32, metres: f64) -> anyhow::Result<(Transmitter, Point)> {
    if case != "six" {
        return fading_point(fades, metres, Choice::MostThrough);
    }
    let point = Point { packet_time: attempt_time(SLOW), weight: 1.0, uplink: NO_LIMIT };
    let rates = Series::steady(SLOW, ATTEMPTS);
    Ok((Transmitter { fades: None, signal_dbm: signal_dbm(metres), loss: None, rates: Some(rates) }, point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_middle_both_spoil_each_others_frames_and_near_one_it_is_as_if_alone() {
        let part = |place: f64| {
            let [near, far] = [(0, place), (1, APART - place)].map(|(at, m)| point("six", at, m).unwrap());
            let measured = Duration::from_secs(2);
            let both = air(&[near.clone(), far]).run_uncontrolled(PACKET, measured, 1).arrived;
            both / air(&[near]).run_uncontrolled(PACKET, measured, 1).arrived
        };
        assert!(part(MIDDLE) < 0.5, "{}", part(MIDDLE));
        assert!(part(PLACES[0]) > 0.95, "{}", part(PLACES[0]));
    }
}
