//! MULTIAP fig 7: a device that stays at one place after another between two access points of one channel whose rate control gives up speed
//! for few losses.
//!
//! The paper has 802.11n here, and names the cause for what it sees: a rate control that loses few frames wherever the device is, so that both access
//! points win the air equally often, however long their packets take (section 4.2, case II). The simulated radio knows 802.11a and g and no
//! aggregates; so this is that cause under 802.11a, and 802.11n itself is not reproduced.

use std::time::Duration;

use bond::Algorithm;
use policy::steering::MarkingForm;
use radio::Rate;
use radio::airtime::Flavour;
use sim::medium::{Link, Links, Passage, PassageKind, Propagation, SignalLoss, StationId};
use units::{Bytes, Timestamp};

use super::shared_air::{NO_LIMIT, Point, SharedAir, TOLD, Way};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Metres between the access points, and of the device from the first.
pub(super) const APART: f64 = 50.0;
const PLACES: [f64; 9] = [2.0, 8.0, 14.0, 20.0, 25.0, 30.0, 36.0, 42.0, 48.0];
/// What an access point sends with, and what is left of it after a metre at 5.18 GHz in the open.
const POWER_DBM: f64 = 17.0;
const FIRST_METRE_DB: f64 = 46.7;
/// A home, IEEE 802.11-03/940r4 (TGn channel models), model B: as in the open up to so many metres, then 3.5 times the decades.
const OPEN_METRES: f64 = 5.0;
const EXPONENTS: (f64, f64) = (2.0, 3.5);
/// The rate control takes the fastest rate at which so many frames arrive, as `minstrel_ht` prefers.
const DELIVERED: f64 = 0.9;
/// A full packet in a QoS frame of 802.11: header, LLC and check sequence.
pub(super) const FRAME: Bytes = Bytes(1_500 + 26 + 8 + 4);
const ROUND_TRIP: Duration = Duration::from_millis(25);
const SETTLING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(12);

const WAYS: [(&str, Algorithm, Way); 5] = [
    ("plain_olia", Algorithm::Olia, Way::Plain),
    ("marks_exact", Algorithm::Olia, Way::Marks(MarkingForm::Exact)),
    ("marks_fitted", Algorithm::Olia, Way::Fitted),
    ("plain_model", Algorithm::Model, Way::Plain),
    ("ours", Algorithm::Model, Way::Preference),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("steering".into(), TOLD.into());
    spec.insert("access_points".into(), format!("two, {APART} m apart, on one channel, 802.11a").into());
    spec.insert("802.11n".into(), "not reproduced: the simulated radio carries none".into());
    spec.insert("places_m".into(), PLACES.map(toml::Value::from).to_vec().into());
    spec.insert("signal".into(), format!("{POWER_DBM} dBm, path loss of TGn model B").into());
    spec.insert(
        "rate_control".into(),
        format!("the fastest rate at which {DELIVERED} of frames arrive").into(),
    );
    spec.insert("round_trip_ms".into(), (ROUND_TRIP.as_millis() as i64).into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    let group = |label: &str, part: &str| BarGroup {
        label: label.to_owned(),
        bars: WAYS
            .map(|(name, ..)| (name.to_owned(), format!("{name}.{part}")))
            .into_iter()
            .chain((part == "mean").then(|| ("paper, marks".to_owned(), format!("paper.{part}"))))
            .collect(),
    };
    Experiment {
        id: id("fig7-nomadic"),
        title: "place after place between two access points of 802.11a, packets in turn: what arrives, as a part of what the better one alone carries"
            .to_owned(),
        spec,
        paper: Some(
            "figure 7, with 802.11n: 85 % of the optimum with marks, half of the closest access point without".to_owned(),
        ),
        goals: vec![Goal::at_least("ours.mean", 0.92), Goal::at_least("ours.worst", 0.92)],
        beds: vec![Bed::Sim],
        bars: vec![group("mean", "mean"), group("worst", "worst")],
        unit: "part of the better one alone",
        axes: Axes { over: Some("metres from the first access point"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    let with = |points: &[Point], algorithm, way| {
        let air = SharedAir {
            points: points.to_vec(),
            round_trip: ROUND_TRIP,
            algorithm,
            way,
            settling: SETTLING,
            measured: MEASURED,
            changes: Vec::new(),
            seed,
        };
        air.run()
    };
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); WAYS.len()];
    for place in PLACES {
        let points = [place, APART - place].map(point);
        let name = format!("at_{place:.0}");
        for (which, point) in ["first", "second"].into_iter().zip(points) {
            metrics.insert(format!("{name}.{which}_us"), (point.packet_time.as_nanos() as f64 / 1e3).round());
        }
        let better = if points[0].packet_time <= points[1].packet_time { points[0] } else { points[1] };
        // The best that either of the two controls makes of the better one alone.
        let mut best = 0.0_f64;
        for algorithm in [Algorithm::Olia, Algorithm::Model] {
            best = best.max(with(&[better], algorithm, Way::Plain)?);
        }
        metrics.insert(format!("{name}.better_alone"), rounded(best));
        for ((way, algorithm, steered), line) in WAYS.into_iter().zip(&mut lines) {
            let part = with(&points, algorithm, steered)? / best;
            metrics.insert(format!("{way}.{name}"), rounded(part));
            line.push((place, part));
        }
    }
    for ((way, ..), line) in WAYS.into_iter().zip(&lines) {
        let parts: Vec<f64> = line.iter().map(|(_, part)| *part).collect();
        metrics.insert(format!("{way}.mean"), rounded(mean(&parts)));
        metrics.insert(format!("{way}.worst"), rounded(parts.iter().copied().fold(f64::INFINITY, f64::min)));
    }
    metrics.insert("paper.mean".into(), 0.85);
    let series = WAYS.into_iter().map(|(way, ..)| way.to_owned()).zip(lines).collect();
    Ok(Report { metrics, series, ..Report::default() })
}

/// An access point at a distance. As few of its frames are lost as of any other's, so it wins the air as often.
fn point(metres: f64) -> Point {
    Point { packet_time: packet_time(signal_dbm(metres)), weight: 1.0, uplink: NO_LIMIT }
}

/// Signal at so many metres, dBm.
pub(super) fn signal_dbm(metres: f64) -> f64 {
    let open = metres.clamp(1.0, OPEN_METRES).log10() * 10.0 * EXPONENTS.0;
    let indoors = (metres / OPEN_METRES).max(1.0).log10() * 10.0 * EXPONENTS.1;
    POWER_DBM - FIRST_METRE_DB - open - indoors
}

/// Air time of a full packet with all its attempts, at the rate that the rate control takes (`[MULTIAP] eq. 1`).
fn packet_time(signal_dbm: f64) -> Duration {
    let mut links = Links::default();
    let [from, to] = [StationId(0), StationId(1)];
    links.set(
        from,
        to,
        Link { signal_dbm: Some(signal_dbm.round() as i8), loss: SignalLoss::BySignal, ..Link::default() },
    );
    let mut delivered = |rate| {
        let passage = Passage { from, to, kind: PassageKind::Frame, rate, length: FRAME };
        1.0 - links.loss(Timestamp::ZERO, &passage)
    };
    let taken = Rate::OFDM.into_iter().rev().find(|rate| delivered(*rate) >= DELIVERED);
    let rate = taken.unwrap_or(Rate::OFDM[0]);
    let attempt = Flavour::A.exchange_time(rate, FRAME) + Flavour::A.mean_back_off(0);
    attempt.div_f64(delivered(rate).max(LEAST_DELIVERED))
}

/// Below this nothing arrives at all.
const LEAST_DELIVERED: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_hand() {
        // 17 - 46.7 - 20 log 5 - 35 log 10.
        assert!((signal_dbm(50.0) - (17.0 - 46.7 - 13.979 - 35.0)).abs() < 0.01);
        assert!((signal_dbm(0.1) - signal_dbm(1.0)).abs() < 1e-9);
    }

    #[test]
    fn close_packets_go_at_54_mbps_and_far_ones_take_longer() {
        // 16 + 4 + 57 or 58 symbols of 4 us, 34 us before, 16 + 28 us of an acknowledgement at 24 Mbit/s, and 67.5 us of back-off.
        let close = packet_time(signal_dbm(2.0));
        assert!((380..400).contains(&close.as_micros()), "{close:?}");
        let times: Vec<Duration> =
            (1..=50).map(|metres| packet_time(signal_dbm(f64::from(metres)))).collect();
        assert!(
            times.windows(2).all(|pair| pair[1].as_secs_f64() > 0.85 * pair[0].as_secs_f64()),
            "{times:?}"
        );
        assert!(times[47] > close * 2, "{times:?}");
    }
}
