//! LINKALIKE/strategies: every way to carry a file on the same neighbourhoods.

use std::collections::BTreeMap;

use sim::neighbourhood::NeighbourhoodSpec;

use super::strategies::{FIXED_RATE, SECONDS, all_ways, medium_rate, neighbourhoods, uplinks, whole_bound};
use super::two_hundred::{distribution, mixed};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// A short file: as much as the best can carry in so many seconds. What a start and an end cost shows there.
const SHORT_SECONDS: f64 = 5.0;

/// Long and short files.
const FILES: [(&str, f64); 2] = [("long", SECONDS), ("short", SHORT_SECONDS)];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("neighbourhoods".into(), "experiments/LINKALIKE/neighbourhoods.txt".into());
    spec.insert("files".into(), "as much as the best can carry in 60 s, and in 5 s".into());
    spec.insert("bit_rate_mbps".into(), 5.5.into());
    spec.insert("chunk_bytes".into(), 1_400.into());
    spec.insert("chunks_of_a_generation".into(), (sim::neighbourhood::coded::GENERATION as i64).into());
    let bars =
        |metric: &str| all_ways().map(|(name, _)| (name.to_owned(), format!("{name}.{metric}"))).to_vec();
    let group = |label: &str, metric: &str| BarGroup { label: label.to_owned(), bars: bars(metric) };
    Experiment {
        id: id("strategies"),
        title: "200 neighbourhoods at 5.5 Mbit/s: every strategy as a part of the bound".to_owned(),
        spec,
        paper: Some(
            "section III.C.1: scheduling was chosen over random carrying and coding; no figure".to_owned(),
        ),
        goals: vec![
            Goal::at_least("ours.over_best_other_median.long", 1.0),
            Goal::at_least("ours.over_best_other_median.short", 1.0),
        ],
        beds: vec![Bed::Sim],
        bars: vec![
            group("median", "long.median"),
            group("lowest 5 %", "long.lowest_5_percent"),
            group("short files", "short.median"),
        ],
        unit: "part of the bound",
        axes: Axes { over: Some("per cent of the neighbourhoods"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let list = neighbourhoods()?;
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for (file, seconds) in FILES {
        let mut parts: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (at, spec) in list.iter().enumerate() {
            let bound = whole_bound(spec)?;
            for (name, way) in all_ways() {
                let chunks = (bound * seconds).ceil() as u32;
                let carried = way.at_fixed_rate().carry(spec, chunks, true, mixed(seed, at))?;
                parts.entry(name).or_default().push(carried.rate / bound);
            }
        }
        for (name, parts) in &parts {
            for (metric, part) in [("median", 0.5), ("lowest_5_percent", 0.05), ("least", 0.0)] {
                metrics.insert(format!("{name}.{file}.{metric}"), rounded(quantile(parts, part)));
            }
        }
        compare(&mut metrics, file, &list, &parts);
        if file == "long" {
            series.extend(all_ways().map(|(name, _)| (name.to_owned(), distribution(&parts[name]))));
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// Where another way than ours is ahead.
fn compare(metrics: &mut Metrics, file: &str, list: &[NeighbourhoodSpec], parts: &BTreeMap<&str, Vec<f64>>) {
    let Some(ours) = parts.get("ours") else { return };
    let others = || parts.iter().filter(|(name, _)| **name != "ours");
    let best = others().map(|(_, parts)| quantile(parts, 0.5)).fold(0.0, f64::max);
    metrics
        .insert(format!("ours.over_best_other_median.{file}"), rounded(quantile(ours, 0.5) / best.max(1e-9)));
    for (name, parts) in others() {
        let over: Vec<f64> = parts.iter().zip(ours).map(|(other, ours)| other / ours).collect();
        let ahead: Vec<usize> = (0..over.len()).filter(|at| over[*at] > 1.0).collect();
        let by_air = ahead.iter().filter(|at| is_limited_by_air(&list[**at])).count();
        metrics.insert(format!("{name}.over_ours.{file}.median"), rounded(quantile(&over, 0.5)));
        metrics.insert(format!("{name}.over_ours.{file}.most"), rounded(quantile(&over, 1.0)));
        metrics.insert(format!("{name}.ahead_of_ours.{file}.neighbourhoods"), ahead.len() as f64);
        metrics.insert(format!("{name}.ahead_of_ours.{file}.limited_by_air"), by_air as f64);
    }
}

/// Whether the uplinks could carry more than all neighbours hear.
fn is_limited_by_air(spec: &NeighbourhoodSpec) -> bool {
    let all = (1 << spec.neighbours.len()) - 1;
    uplinks(spec).iter().sum::<f64>() > medium_rate(FIXED_RATE) * spec.heard_by_any(all, FIXED_RATE)
}
