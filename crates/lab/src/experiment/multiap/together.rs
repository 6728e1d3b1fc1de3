//! MULTIAP section 8, the paper's stated end: access points of one channel and of others together. Two on one channel, of which one is poor, and two
//! on another, unequal ones.
//!
//! The radio's own station at rest, on the simulated medium with its 802.11g contention; steering decides within each channel by what the station
//! measures, and turns among the channels follow from what comes of that.

use std::time::Duration;

use radio::Succession;
use radio::slots::SlotSettings;
use units::{Frequency, Timestamp};

use super::street::{Memory, PAYLOAD, Pass, Passed, go};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Name, channel, metres along the street: signals of -61, -88, -61 and -76 dBm.
const POINTS: [(&str, Frequency, f64); 4] = [
    ("one", CHANNELS[0], 0.0),
    ("two", CHANNELS[0], 88.0),
    ("three", CHANNELS[1], 0.0),
    ("four", CHANNELS[1], 38.0),
];
const CHANNELS: [Frequency; 2] = [Frequency(2_412), Frequency(2_462)];
/// What each uplink gives, in Mbit/s; `None`: more than the air.
type Case = (&'static str, [Option<f64>; 4]);
const CASES: [Case; 3] =
    [("air", [None; 4]), ("uplinks", [Some(4.0); 4]), ("one_fast", [None, None, Some(4.0), Some(4.0)])];
/// What is compared: one access point, the best; turns between one of each channel, the best two; all of one channel, the better one, steered; all
/// without steering; ours; and ours with `--settle`.
const WAYS: [&str; 6] = ["single", "one_each", "one_channel", "unsteered", "ours", "ours_settle"];
const SETTLING: Duration = Duration::from_secs(15);
const MEASURED: Duration = Duration::from_secs(20);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let points = POINTS.map(|(name, channel, metres)| {
        format!("{name}: channel {}, {metres} m along the street", channel.channel().unwrap_or(0)).into()
    });
    spec.insert("access_points".into(), toml::Value::Array(points.to_vec()));
    for (case, uplinks) in CASES {
        let uplinks = uplinks.map(|uplink| uplink.map_or("more than the air".into(), toml::Value::from));
        spec.insert(format!("{case}_uplinks_mbps"), toml::Value::Array(uplinks.to_vec()));
    }
    spec.insert("single".into(), "the best of the four alone".into());
    spec.insert("one_each".into(), "turns between one of each channel, the best such two".into());
    spec.insert("one_channel".into(), "all of one channel, steered, the better one".into());
    spec.insert("unsteered".into(), "all together, each asked for all it has".into());
    spec.insert("ours".into(), "all together, steered, our radio as it is without options".into());
    spec.insert("ours_settle".into(), "the same with --settle".into());
    spec.insert("settling_s".into(), (SETTLING.as_secs() as i64).into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    let goals = ["ours", "ours_settle"].into_iter().flat_map(|way| {
        let no_worse = CASES.map(|(case, _)| Goal::at_least(format!("{case}.{way}_over_best_other"), 0.95));
        // Four uplinks of which three can be filled, where no other way fills more than two.
        let sum = Goal::at_least(format!("uplinks.{way}_over_best_other"), 1.25);
        no_worse.into_iter().chain([sum])
    });
    Experiment {
        id: id("sec8-together"),
        title: "two access points on one channel, of which one is poor, and two on another: what arrives in Mbit/s"
            .to_owned(),
        spec,
        paper: Some("section 8: the stated end, not reached there; no figure".to_owned()),
        goals: goals.collect(),
        beds: vec![Bed::Sim],
        bars: CASES
            .map(|(case, _)| BarGroup {
                label: case.into(),
                bars: WAYS.map(|way| (way.to_owned(), format!("{case}.{way}_mbps"))).to_vec(),
            })
            .to_vec(),
        unit: "Mbit/s",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    for case in CASES {
        let name = case.0;
        let all = [0, 1, 2, 3];
        let mut best_other = 0.0_f64;
        for (way, sets) in [
            ("single", all.map(|at| vec![at]).to_vec()),
            ("one_each", [[0, 2], [0, 3], [1, 2], [1, 3]].map(|pair| pair.to_vec()).to_vec()),
            ("one_channel", vec![vec![0, 1], vec![2, 3]]),
        ] {
            let mut best = 0.0_f64;
            for set in sets {
                let passed = go(&pass(case, &set, way == "one_channel", SlotSettings::default(), seed))?;
                best = best.max(mbps(&passed).iter().sum());
            }
            metrics.insert(format!("{name}.{way}_mbps"), rounded(best));
            best_other = best_other.max(best);
        }
        let settle = SlotSettings { settle: true, ..SlotSettings::default() };
        for (way, steered, slots) in [
            ("unsteered", false, SlotSettings::default()),
            ("ours", true, SlotSettings::default()),
            ("ours_settle", true, settle),
        ] {
            let passed = go(&pass(case, &all, steered, slots, seed))?;
            let each = mbps(&passed);
            let sum: f64 = each.iter().sum();
            metrics.insert(format!("{name}.{way}_mbps"), rounded(sum));
            metrics.insert(format!("{name}.{way}_over_best_other"), rounded(sum / best_other));
            for ((point, ..), mbps) in POINTS.iter().zip(each) {
                metrics.insert(format!("{name}.{way}_{point}_mbps"), rounded(mbps));
            }
            let changes = f64::from(passed.switches) / MEASURED.as_secs_f64();
            metrics.insert(format!("{name}.{way}_changes_per_s"), rounded(changes));
        }
    }
    Ok(Report { metrics, ..Report::default() })
}

/// With these of the four.
fn pass((_, uplinks): Case, set: &[usize], steered: bool, slots: SlotSettings, seed: u64) -> Pass {
    let spacing =
        |at: &usize| uplinks[*at].map(|mbps| Duration::from_secs_f64(PAYLOAD as f64 * 8.0 / (mbps * 1e6)));
    Pass {
        points: set
            .iter()
            .map(|at| (POINTS[*at].2, POINTS[*at].0.as_bytes().to_vec(), POINTS[*at].1))
            .collect(),
        channels: CHANNELS.to_vec(),
        metres_per_second: 0.0,
        walls_db: 0.0,
        offer_time: Duration::ZERO,
        time: SETTLING + MEASURED,
        spacing: set.iter().map(spacing).collect(),
        slots,
        carrier_sense: true,
        steered,
        memory: Some(Memory { succession: Succession::default(), lease: true }),
        counted_from: Timestamp::ZERO + SETTLING,
        seed,
    }
}

/// Of each access point.
fn mbps(passed: &Passed) -> Vec<f64> {
    let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6 / MEASURED.as_secs_f64();
    passed.services.iter().map(|service| mbps(service.bytes.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_channels_have_is_brought_together() {
        let mbps = |set: &[usize], steered| -> Vec<f64> {
            mbps(&go(&pass(CASES[1], set, steered, SlotSettings::default(), 1)).unwrap())
        };
        let (alone, all) = (mbps(&[0], false), mbps(&[0, 1, 2, 3], true));
        assert!((3.8..4.1).contains(&alone[0]), "{alone:?}");
        assert!(all.iter().sum::<f64>() > 2.5 * alone[0], "{all:?}");
        assert!(all[1] < all[0] && all[2] > 0.0 && all[3] > 0.0, "{all:?}");
    }
}
