//! MULTIAP fig 3: a device at one place after another between two access points that hear each other, downloading over both at once, on 802.11's own
//! contention with links that fade.
//!
//! What the outcome hangs on is how access points choose their rates (section 4.2), so there are three cases: both at one rate, as in the paper's
//! simulation; both at the rate that gets most through, as `minstrel` has it; and the farther one at the rate at which it loses few frames.

use std::time::Duration;

use bond::Algorithm;
use radio::Rate;
use radio::airtime::Flavour;
use sim::medium::{Passage, PassageKind, Series, StationId, fade_db};
use units::Timestamp;

use super::gaps::quantile;
use super::nomadic::{APART, FRAME, signal_dbm};
use super::shared_air::{Air, Contended, NO_LIMIT, Point, SharedAir, Transmitter, Way, loss};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Metres of the device from the first access point.
const PLACES: [f64; 7] = [2.0, 10.0, 18.0, MIDDLE, 32.0, 40.0, 48.0];
pub(super) const MIDDLE: f64 = 25.0;
/// What both send with in the first case: the rate that the paper's first access point preferred.
const ONE_RATE: Rate = Rate(48);
/// A rate loses few frames if so many arrive.
const FEW_LOST: f64 = 0.9;
const ROUND_TRIP: Duration = Duration::from_millis(25);
const SETTLING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(10);

/// How an access point chooses its rates.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Choice {
    OneRate,
    MostThrough,
    FewLost,
}

/// Name, and the choices of the nearer and of the farther access point.
const CASES: [(&str, [Choice; 2]); 3] = [
    ("one_rate", [Choice::OneRate; 2]),
    ("most_through", [Choice::MostThrough; 2]),
    ("far_slow", [Choice::MostThrough, Choice::FewLost]),
];

/// What the paper has over both by kernel MPTCP, by case and part: as much as the better one at the ends, a tenth more between, and under half where
/// the far one sends slowly (`[MULTIAP] section 4.2`).
const PAPER: [(&str, &str, f64); 5] = [
    ("one_rate", "ends", 1.0),
    ("one_rate", "middle", 1.1),
    ("most_through", "ends", 1.0),
    ("most_through", "middle", 1.1),
    ("far_slow", "ends", 0.5),
];

fn paper_metric(case: &str, part: &str) -> String {
    format!("paper.{case}.{part}")
}

const WAYS: [(&str, Algorithm, Way); 3] = [
    ("plain_olia", Algorithm::Olia, Way::Plain),
    ("plain_model", Algorithm::Model, Way::Plain),
    ("ours", Algorithm::Model, Way::Preference),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("access_points".into(), format!("two, {APART} m apart, on one channel, 802.11a").into());
    spec.insert("places_m".into(), PLACES.map(toml::Value::from).to_vec().into());
    spec.insert("signal".into(), "17 dBm, path loss of TGn model B, Rayleigh fades of 70 ms".into());
    spec.insert("cases".into(), CASES.map(|(name, _)| toml::Value::from(name)).to_vec().into());
    spec.insert("steering".into(), "told what the device reckons from the frames that it hears".into());
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    let group = |case: &str, part: &str| {
        let ours = WAYS.iter().map(|(way, ..)| ((*way).to_owned(), format!("{case}.{way}.{part}")));
        let told = PAPER.iter().filter(|(of, at, _)| (*of, *at) == (case, part));
        let paper = told.map(|_| ("paper".to_owned(), paper_metric(case, part)));
        BarGroup { label: format!("{case}, {part}"), bars: ours.chain(paper).collect() }
    };
    let mut goals = vec![
        Goal::at_least("one_rate.plain_olia.ends", 0.95),
        Goal::at_least("one_rate.plain_olia.middle", 1.0),
        Goal::at_least("most_through.plain_olia.ends", 0.95),
        Goal::at_least("most_through.plain_olia.middle", 1.0),
        Goal::at_most("far_slow.plain_olia.ends_most", 0.5),
    ];
    goals.extend(CASES.map(|(case, _)| Goal::at_least(format!("{case}.ours.worst"), 0.95)));
    // A little more where two are equally good.
    goals
        .extend(["one_rate", "most_through"].map(|case| Goal::at_least(format!("{case}.ours.middle"), 1.03)));
    Experiment {
        id: id("fig3-carriersense"),
        title: "place after place between two access points that hear each other: what arrives over both, as a part of what the better one alone carries"
            .to_owned(),
        spec,
        paper: Some(
            "figure 3 and section 4.2: as much as the better one close to either, 10 % more between them; under half where the far one sends slowly"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Sim],
        bars: CASES.iter().flat_map(|(case, _)| ["ends", "middle"].map(|part| group(case, part))).collect(),
        unit: "part of the better one alone",
        axes: Axes { over: Some("metres from the first access point"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let told = PAPER.iter().map(|(case, part, value)| (paper_metric(case, part), *value));
    let mut metrics: Metrics = told.collect();
    let mut series = Vec::new();
    for (case, choices) in CASES {
        let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); WAYS.len()];
        for place in PLACES {
            let second_is_farther = place <= MIDDLE;
            let of = |which, metres, farther| point(which, metres, choices[usize::from(farther)]);
            let points = [of(0, place, !second_is_farther)?, of(1, APART - place, second_is_farther)?];
            let name = format!("{case}.at_{place:.0}");
            let (mut best, mut best_own) = (1.0_f64, 1.0_f64);
            for (which, known) in ["first", "second"].into_iter().zip(&points) {
                let name = format!("{name}.{which}");
                metrics.insert(
                    format!("{name}.packet_us"),
                    (known.1.packet_time.as_nanos() as f64 / 1e3).round(),
                );
                for (control, algorithm) in [("olia", Algorithm::Olia), ("model", Algorithm::Model)] {
                    let alone = air(std::slice::from_ref(known), algorithm, Way::Plain, seed)?;
                    let name = format!("{name}.{control}");
                    metrics.insert(format!("{name}.alone"), rounded(alone.arrived));
                    metrics.insert(format!("{name}.air"), rounded(alone.air[0]));
                    metrics.insert(format!("{name}.delivered"), rounded(alone.delivered[0]));
                    metrics.insert(format!("{name}.lost"), rounded(alone.lost[0]));
                    gaps(&mut metrics, &name, &alone);
                    best = best.max(alone.arrived);
                    if algorithm == Algorithm::Model {
                        best_own = best_own.max(alone.arrived);
                    }
                }
            }
            metrics.insert(format!("{name}.model_alone"), rounded(best_own / best));
            for ((way, algorithm, steered), line) in WAYS.into_iter().zip(&mut lines) {
                let both = air(&points, algorithm, steered, seed)?;
                let part = both.arrived / best;
                metrics.insert(format!("{name}.{way}"), rounded(part));
                // 3b: what each has of the air.
                metrics.insert(format!("{name}.{way}.air_first"), rounded(both.air[0]));
                metrics.insert(format!("{name}.{way}.air_second"), rounded(both.air[1]));
                gaps(&mut metrics, &format!("{name}.{way}"), &both);
                line.push((place, part));
            }
        }
        for ((way, ..), line) in WAYS.into_iter().zip(lines) {
            let least = |of: &dyn Fn(f64) -> bool| {
                line.iter().filter(|(at, _)| of(*at)).map(|(_, part)| *part).fold(f64::INFINITY, f64::min)
            };
            let most = |of: &dyn Fn(f64) -> bool| {
                line.iter().filter(|(at, _)| of(*at)).map(|(_, part)| *part).fold(0.0, f64::max)
            };
            let end = |at: f64| at == PLACES[0] || at == PLACES[PLACES.len() - 1];
            metrics.insert(format!("{case}.{way}.ends"), rounded(least(&end)));
            metrics.insert(format!("{case}.{way}.ends_most"), rounded(most(&end)));
            metrics.insert(format!("{case}.{way}.middle"), rounded(least(&|at| at == MIDDLE)));
            metrics.insert(format!("{case}.{way}.worst"), rounded(least(&|_| true)));
            if way != "plain_model" {
                series.push((format!("{case}: {way}"), line));
            }
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// 3c: times between arrivals.
fn gaps(metrics: &mut Metrics, name: &str, run: &Contended) {
    for (label, part) in [("p50", 0.5), ("p99", 0.99)] {
        metrics.insert(format!("{name}.gap_{label}_ms"), rounded(quantile(run, part)));
    }
}

/// A download at one place.
pub(super) fn air(
    points: &[(Transmitter, Point)],
    algorithm: Algorithm,
    way: Way,
    seed: u64,
) -> anyhow::Result<Contended> {
    let (transmitters, points): (Vec<Transmitter>, Vec<Point>) = points.iter().cloned().unzip();
    let run = SharedAir {
        points,
        round_trip: ROUND_TRIP,
        algorithm,
        way,
        settling: SETTLING,
        measured: MEASURED,
        changes: Vec::new(),
        seed,
    };
    run.run_contended(&Air { transmitters, hidden: false, estimated: true })
}

/// An access point at a distance, and its packet time over all fades (`[MULTIAP] eq. 1`).
pub(super) fn point(fades: u32, metres: f64, choice: Choice) -> anyhow::Result<(Transmitter, Point)> {
    let signal_dbm = signal_dbm(metres);
    let mut by_throughput: Vec<Rate> = Rate::OFDM.to_vec();
    let time = |rate| attempt_time(rate).div_f64(delivered(rate, signal_dbm).max(LEAST_DELIVERED));
    by_throughput.sort_by_key(|rate| time(*rate));
    let lowest = Rate::OFDM[0];
    // Seven attempts in all.
    let rates = match choice {
        Choice::OneRate => vec![(ONE_RATE, 7)],
        // As `minstrel` has it: the best, the second, and in the end the surest.
        Choice::MostThrough => vec![(by_throughput[0], 3), (by_throughput[1], 2), (lowest, 2)],
        Choice::FewLost => {
            let sure = |rate: &Rate| delivered(*rate, signal_dbm) >= FEW_LOST;
            vec![(Rate::OFDM.into_iter().rev().find(sure).unwrap_or(lowest), 7)]
        }
    };
    let point = Point { packet_time: time(rates[0].0), weight: 1.0, uplink: NO_LIMIT };
    Ok((Transmitter { fades: Some(fades), signal_dbm, loss: None, rates: Some(Series::new(&rates)?) }, point))
}

/// Air of one attempt with a full packet.
pub(super) fn attempt_time(rate: Rate) -> Duration {
    Flavour::A.exchange_time(rate, FRAME) + Flavour::A.mean_back_off(0)
}

/// The part of frames that arrive, over all fades.
fn delivered(rate: Rate, mean_dbm: f64) -> f64 {
    let passage =
        Passage { from: StationId(1), to: StationId(0), kind: PassageKind::Frame, rate, length: FRAME };
    let arrives = |step: u32| {
        let signal = mean_dbm + fade_db((f64::from(step) + 0.5) / f64::from(STEPS));
        1.0 - loss(Some(signal.round().clamp(-127.0, 0.0) as i8), Timestamp::ZERO, &passage)
    };
    (0..STEPS).map(arrives).sum::<f64>() / f64::from(STEPS)
}

const STEPS: u32 = 400;
/// Below this nothing arrives at all.
const LEAST_DELIVERED: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_lost_in_fades() {
        // Mean 10 dB above where 54 Mbit/s has a tenth of losses: about a tenth of fades are below it.
        let part = delivered(Rate(108), -55.0);
        assert!((0.87..0.93).contains(&part), "{part}");
    }

    #[test]
    fn the_air_of_two_that_hear_each_other_is_shared_and_given_to_who_loses_little() {
        let near = point(0, 2.0, Choice::OneRate).unwrap();
        let far = point(1, 48.0, Choice::OneRate).unwrap();
        let alone = air(std::slice::from_ref(&near), Algorithm::Model, Way::Plain, 1).unwrap();
        // 16 + 4 + 65 symbols of 4 us, 34 us before, 16 + 28 us of an answer and 67.5 us of back-off: 0.67 ms.
        assert!((1_300.0..1_530.0).contains(&alone.arrived), "{}", alone.arrived);
        let both = air(&[near, far], Algorithm::Model, Way::Plain, 1).unwrap();
        assert!(both.air[0] > both.air[1], "{:?}", both.air);
        assert!(both.delivered[0] > 0.95 && both.delivered[1] < 0.5, "{:?}", both.delivered);
        assert!(both.air.iter().sum::<f64>() < 1.0, "{:?}", both.air);
    }
}
