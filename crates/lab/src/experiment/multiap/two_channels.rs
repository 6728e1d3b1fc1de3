//! MULTIAP section 7: one radio on two channels, of which one carries less and less.

use std::time::Duration;

use radio::slots::SlotSettings;

use super::switching_air::{CHANGE_OF_CHANNEL, SwitchingAir};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// The first channel and the second, in Mbit/s: the paper's.
const FIRST: f64 = 20.0;
const SECONDS: [u32; 3] = [20, 14, 5];
const CYCLE: Duration = Duration::from_millis(200);
const SETTLING: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_secs(60);
/// What the paper has of the first channel's, for each second one.
const PAPER: [(&str, [f64; 3]); 2] = [("alpha_0", [0.9, 0.8, 0.6]), ("alpha_2", [0.9, 0.875, 0.875])];
const WAYS: [&str; 3] = ["alpha_0", "alpha_2", "ours_settle"];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("first_mbps".into(), FIRST.into());
    spec.insert(
        "second_mbps".into(),
        SECONDS.map(|second| toml::Value::from(i64::from(second))).to_vec().into(),
    );
    spec.insert("change_of_channel_us".into(), (CHANGE_OF_CHANNEL.as_micros() as i64).into());
    spec.insert("alpha_0".into(), "equal slots".into());
    spec.insert("alpha_2".into(), "eq. 6, our radio as it is without options".into());
    spec.insert("ours_settle".into(), "our radio with --settle".into());
    spec.insert(
        "predicted".into(),
        "what eq. 6 gives with the true rates, over a cycle of 200 ms and two changes of channel".into(),
    );
    spec.insert("best".into(), "the first channel alone".into());
    let label = |way: &str| if way == "ours_settle" { "ours, --settle".to_owned() } else { way.to_owned() };
    let ways = WAYS.map(|way| vec![(label(way), way.to_owned())]);
    let paper = PAPER.map(|(way, _)| vec![(format!("{way}, paper"), format!("paper_{way}"))]);
    let predicted =
        ["alpha_0", "alpha_2"].map(|way| vec![(format!("{way}, predicted"), format!("predicted_{way}"))]);
    let bars = SECONDS.map(|second| BarGroup {
        label: format!("{FIRST} and {second}"),
        bars: paper
            .iter()
            .chain(&predicted)
            .chain(&ways)
            .flatten()
            .map(|(label, metric)| (label.clone(), format!("{metric}.of_best_{second}")))
            .collect(),
    });
    let as_predicted = ["alpha_0", "alpha_2"].into_iter().flat_map(|way| {
        SECONDS.into_iter().flat_map(move |second| {
            let metric = format!("{way}.of_predicted_{second}");
            [Goal::at_least(metric.clone(), 0.98), Goal::at_most(metric, 1.02)]
        })
    });
    // Our radio as it is without options, and with it.
    let ours = ["alpha_2", "ours_settle"].into_iter().flat_map(|way| {
        SECONDS.into_iter().map(move |second| Goal::at_least(format!("{way}.of_best_{second}"), 0.95))
    });
    Experiment {
        id: id("sec7-slots"),
        title: "one radio on two channels, of 20 Mbit/s and of 20, 14 and 5, as it is and with --settle: what arrives, as a part of what the better one alone carries"
            .to_owned(),
        spec,
        paper: Some(
            "section 7: with alpha 2 18, 17.5 and 17.5 of 20 Mbit/s, with alpha 0 18, 16 and 12; a change of channel takes 5 ms there"
                .to_owned(),
        ),
        goals: ours.chain(as_predicted).collect(),
        beds: vec![Bed::Sim],
        bars: bars.to_vec(),
        unit: "part of the better one alone",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| Ok(run(seed))),
    }
}

fn run(seed: u64) -> Report {
    let mut metrics = Metrics::new();
    for (way, parts) in PAPER {
        for (second, part) in SECONDS.into_iter().zip(parts) {
            metrics.insert(format!("paper_{way}.of_best_{second}"), part);
        }
    }
    for way in WAYS {
        let usual = SlotSettings::default();
        let slots = match way {
            "alpha_0" => SlotSettings { alpha: 0.0, ..usual },
            "alpha_2" => usual,
            _ => SlotSettings { settle: true, ..usual },
        };
        for second in SECONDS {
            let rates = [FIRST, f64::from(second)];
            let air = SwitchingAir {
                channels: rates.to_vec(),
                clients: 1,
                slots,
                change: CHANGE_OF_CHANNEL,
                stays: false,
                settling: SETTLING,
                measured: MEASURED,
                seed,
            };
            let arrives: f64 = air.run().iter().sum();
            metrics.insert(format!("{way}.mbps_{second}"), rounded(arrives));
            metrics.insert(format!("{way}.of_best_{second}"), rounded(arrives / FIRST));
            if way != "ours_settle" {
                let predicted = equation_6(rates, slots.alpha);
                metrics.insert(format!("predicted_{way}.of_best_{second}"), rounded(predicted / FIRST));
                metrics.insert(format!("{way}.of_predicted_{second}"), rounded(arrives / predicted));
            }
        }
    }
    Report { metrics, ..Report::default() }
}

/// `[MULTIAP] eq. 6` in steady state: Mbit/s with a cycle shared by the rates to the power of `alpha`, less two changes of channel a cycle. No slot of
/// the experiment's is below the least one.
fn equation_6(rates: [f64; 2], alpha: f64) -> f64 {
    let parts = rates.map(|rate| rate.powf(alpha));
    let whole: f64 = parts.iter().sum();
    let carried: f64 = rates.iter().zip(parts).map(|(rate, part)| rate * part / whole).sum();
    carried * CYCLE.div_duration_f64(CYCLE + 2 * CHANGE_OF_CHANNEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equation_6_by_hand() {
        // 20 * 16 / 17 + 5 / 17 = 19.118; 200 ms of 206.396.
        assert!((equation_6([20.0, 5.0], 2.0) - 18.525).abs() < 0.01);
        assert!((equation_6([20.0, 14.0], 0.0) - 16.473).abs() < 0.01);
    }
}
