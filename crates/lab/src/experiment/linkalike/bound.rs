//! LINKALIKE/bound: the bounds of section V for each neighbourhood of a file.

use anyhow::Context;
use sim::neighbourhood::RATES;

use super::capacity::{neighbourhood_bound, unicast_bound};
use super::strategies::{FIXED_RATE, chunk_rate, medium_rate, neighbourhoods, uplinks};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// The environment variable with the path of another file than the committed one.
const FILE: &str = "LINKALIKE_NEIGHBOURHOODS";

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "neighbourhoods".into(),
        "experiments/LINKALIKE/neighbourhoods.txt, or the file that LINKALIKE_NEIGHBOURHOODS names".into(),
    );
    spec.insert("bit_rate_mbps".into(), 5.5.into());
    Experiment {
        id: id("bound"),
        title: "the most that each neighbourhood of a file can carry, by broadcast and by unicast".to_owned(),
        spec,
        paper: Some("section V: the linear programs; no figure".to_owned()),
        goals: vec![Goal::at_least("least_broadcast_over_unicast", 0.9999)],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "median gain over the own uplink".into(),
            bars: ["unicast", "broadcast", "any_rate"]
                .map(|name| (name.to_owned(), format!("gain.{name}")))
                .to_vec(),
        }],
        unit: "own uplinks",
        axes: Axes { over: Some("number of the neighbourhood"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let file = std::env::var_os(FILE);
    let list = match &file {
        None => neighbourhoods()?,
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            sim::neighbourhood::parse(&text).with_context(|| format!("read {}", path.display()))?
        }
    };
    let mut gains: [Vec<f64>; 3] = Default::default();
    let (mut least, mut series) = (f64::INFINITY, [Vec::new(), Vec::new()]);
    // Every seed has the same bounds; one of them tells.
    if seed == 1 {
        println!(
            "neighbourhood  neighbours  chunks/s: own uplink  unicast  broadcast at 5.5 Mbit/s  at the best rate"
        );
    }
    for (at, spec) in list.iter().enumerate() {
        let (own, each) = (chunk_rate(&spec.own), uplinks(spec));
        let chances: Vec<f64> = spec.neighbours.iter().map(|one| one.reception[FIXED_RATE]).collect();
        let unicast = own + unicast_bound(medium_rate(FIXED_RATE), &each, &chances)?;
        let at_rate = |rate: usize| neighbourhood_bound(spec, rate, medium_rate(rate), &each);
        let broadcast = own + at_rate(FIXED_RATE)?;
        let best = (0..RATES.len())
            .map(at_rate)
            .try_fold(0.0_f64, |best, bound| bound.map(|bound| best.max(bound)))?;
        let any_rate = own + best;
        if seed == 1 {
            println!(
                "{at:13}  {:10}  {own:20.1}  {unicast:7.1}  {broadcast:23.1}  {any_rate:16.1}",
                each.len()
            );
        }
        least = least.min(broadcast / unicast);
        for (gains, bound) in gains.iter_mut().zip([unicast, broadcast, any_rate]) {
            gains.push(bound / own);
        }
        for (line, bound) in series.iter_mut().zip([unicast, broadcast]) {
            line.push((at as f64, bound / own));
        }
    }
    let mut metrics = Metrics::new();
    for (name, gains) in ["unicast", "broadcast", "any_rate"].into_iter().zip(&gains) {
        metrics.insert(format!("gain.{name}"), rounded(quantile(gains, 0.5)));
    }
    metrics.insert("least_broadcast_over_unicast".into(), rounded(least));
    let series = ["unicast", "broadcast"].map(str::to_owned).into_iter().zip(series).collect();
    Ok(Report { metrics, series, ..Report::default() })
}
