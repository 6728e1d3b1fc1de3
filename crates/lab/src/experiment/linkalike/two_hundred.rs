//! LINKALIKE figs 4 to 8: the 200 committed neighbourhoods.

use std::collections::BTreeMap;

use sim::neighbourhood::NeighbourhoodSpec;
use upload::Settings;

use super::capacity::measured_bound;
use super::strategies::{
    Carried, PAPER, RANDOM, SECONDS, UNICAST, Way, chunk_rate, neighbourhoods, ours, uplinks, whole_bound,
};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// The parts of all at which distributions are drawn.
const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

fn spec(rates: &str) -> toml::Table {
    let mut spec = toml::Table::new();
    spec.insert("neighbourhoods".into(), "experiments/LINKALIKE/neighbourhoods.txt".into());
    spec.insert("file".into(), "as much as the best can carry in 60 s".into());
    spec.insert("bit_rates".into(), rates.into());
    spec.insert("chunk_bytes".into(), 1_400.into());
    spec
}

/// Fig 4: what is carried beside the bound, at 5.5 Mbit/s.
pub(super) fn capacity_experiment() -> Experiment {
    Experiment {
        id: id("fig4-capacity"),
        title: "200 neighbourhoods at 5.5 Mbit/s: what is carried as a part of the bound".to_owned(),
        spec: spec("5.5 Mbit/s"),
        paper: Some(
            "figure 4: 95 % of 200 runs reach 0.9 of the bound, whose B is what the source sent".to_owned(),
        ),
        goals: vec![Goal::at_least("ours.reach_0.95", 0.95)],
        beds: vec![Bed::Sim],
        bars: ["reach_0.95", "reach_0.90", "median", "lowest_5_percent"]
            .map(|metric| BarGroup {
                label: metric.replace('_', " "),
                bars: CAPACITY_WAYS.map(|name| (name.to_owned(), format!("{name}.{metric}"))).to_vec(),
            })
            .to_vec(),
        unit: "part of the bound or of neighbourhoods",
        axes: Axes { over: Some("per cent of the neighbourhoods"), unit: None },
        runner: Box::new(|_bed, seed| capacity(seed)),
    }
}

const CAPACITY_WAYS: [&str; 4] = ["random", "paper", "ours_5_percent", "ours"];

fn capacity(seed: u64) -> anyhow::Result<Report> {
    let five_percent =
        Way::Core(Settings { least_share: Settings::PAPER.least_share, ..Settings::default() }, false);
    let ways = [RANDOM, PAPER, five_percent, ours()];
    let list = neighbourhoods()?;
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for (name, way) in CAPACITY_WAYS.into_iter().zip(ways) {
        let (mut parts, mut of_sent) = (Vec::new(), Vec::new());
        for (at, spec) in list.iter().enumerate() {
            let (own, each) = (chunk_rate(&spec.own), uplinks(spec));
            let bound = whole_bound(spec)?;
            let carried =
                way.at_fixed_rate().carry(spec, (bound * SECONDS).ceil() as u32, true, mixed(seed, at))?;
            let sent = own + measured_bound(carried.frame_rate, &each, &carried.heard)?;
            parts.push(carried.rate / bound);
            of_sent.push(carried.rate / sent);
        }
        let reach =
            |least: f64| parts.iter().filter(|part| **part >= least).count() as f64 / parts.len() as f64;
        metrics.insert(format!("{name}.reach_0.95"), rounded(reach(0.95)));
        metrics.insert(format!("{name}.reach_0.90"), rounded(reach(0.9)));
        metrics.insert(format!("{name}.median"), rounded(quantile(&parts, 0.5)));
        metrics.insert(format!("{name}.lowest_5_percent"), rounded(quantile(&parts, 0.05)));
        metrics.insert(format!("{name}.least"), rounded(quantile(&parts, 0.0)));
        let sent = of_sent.iter().filter(|part| **part >= 0.9).count() as f64 / of_sent.len() as f64;
        metrics.insert(format!("{name}.of_sent.reach_0.90"), rounded(sent));
        metrics.insert(format!("{name}.of_sent.median"), rounded(quantile(&of_sent, 0.5)));
        series.push((name.to_owned(), distribution(&parts)));
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// Figs 5, 6 and 8: throughput beside the other ways.
pub(super) fn gain_experiment() -> Experiment {
    Experiment {
        id: id("fig568-gain"),
        title: "200 neighbourhoods: throughput over the own uplink alone".to_owned(),
        spec: spec("1, 2, 5.5 and 11 Mbit/s; TCP and unicast at the best for each neighbour, known from before"),
        paper: Some("figures 5, 6 and 8: medians of 2.6 (TCP), 2.9 (UDP unicast) and 3.7 (broadcast) own uplinks; +43 % and +28 %".to_owned()),
        goals: vec![
            Goal::at_least("ours.gain.median", 3.7),
            Goal::at_least("ours.over_tcp.median", 1.43),
            Goal::at_least("ours.over_unicast.median", 1.28),
        ],
        beds: vec![Bed::Sim],
        bars: std::iter::once(BarGroup {
            label: "median".to_owned(),
            bars: bars("gain.median"),
        })
        .chain((1..=7).map(|count| BarGroup {
            label: format!("{count} neighbours"),
            bars: bars(&format!("gain.{count}_neighbours")),
        }))
        .collect(),
        unit: "own uplinks",
        axes: Axes { over: Some("per cent of the neighbourhoods"), unit: None },
        runner: Box::new(|_bed, seed| gain(seed)),
    }
}

const WAYS: [&str; 4] = ["tcp", "unicast", "paper", "ours"];

fn bars(metric: &str) -> Vec<(String, String)> {
    WAYS.map(|name| (name.to_owned(), format!("{name}.{metric}"))).to_vec()
}

fn compared() -> [Way; 4] {
    [Way::Tcp, UNICAST, PAPER, ours()]
}

fn gain(seed: u64) -> anyhow::Result<Report> {
    let list = neighbourhoods()?;
    let runs = run_all(&list, false, seed)?;
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for (at, name) in WAYS.into_iter().enumerate() {
        let mut by_count: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        let mut gains = Vec::new();
        for (spec, runs) in list.iter().zip(&runs) {
            let gain = runs[at].rate / chunk_rate(&spec.own);
            gains.push(gain);
            by_count.entry(spec.neighbours.len()).or_default().push(gain);
        }
        metrics.insert(format!("{name}.gain.median"), rounded(quantile(&gains, 0.5)));
        for (count, gains) in by_count {
            metrics.insert(format!("{name}.gain.{count}_neighbours"), rounded(quantile(&gains, 0.5)));
        }
        series.push((name.to_owned(), distribution(&gains)));
    }
    for (at, other) in [(0, "tcp"), (1, "unicast"), (2, "paper")] {
        let over: Vec<f64> = runs.iter().map(|runs| runs[3].rate / runs[at].rate).collect();
        metrics.insert(format!("ours.over_{other}.median"), rounded(quantile(&over, 0.5)));
        metrics.insert(format!("ours.over_{other}.least"), rounded(quantile(&over, 0.0)));
    }
    for (name, gain) in [("tcp", 2.6), ("unicast", 2.9), ("broadcast", 3.7)] {
        metrics.insert(format!("papers_own.{name}.gain.median"), gain);
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// Fig 7: air time for each chunk that a neighbour brought.
pub(super) fn air_time_experiment() -> Experiment {
    let groups = |metric: &str, label: &str| BarGroup { label: label.to_owned(), bars: bars(metric) };
    Experiment {
        id: id("fig7-airtime"),
        title: "200 neighbourhoods: air time for each chunk that came through a neighbour".to_owned(),
        spec: spec("once 5.5 Mbit/s for all, once chosen"),
        paper: Some("figure 7: medians of 8.7 ms (TCP) and 5.9 ms (broadcast) at 5.5 Mbit/s".to_owned()),
        goals: vec![Goal::at_most("ours.fixed.median_ms", 5.9), Goal::at_most("ours.over_tcp.median", 0.68)],
        beds: vec![Bed::Sim],
        bars: vec![groups("fixed.median_ms", "5.5 Mbit/s"), groups("chosen.median_ms", "chosen bit rates")],
        unit: "ms",
        axes: Axes { over: Some("per cent of the neighbourhoods"), unit: None },
        runner: Box::new(|_bed, seed| air_time(seed)),
    }
}

fn air_time(seed: u64) -> anyhow::Result<Report> {
    let list = neighbourhoods()?;
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for (fixed, label) in [(true, "fixed"), (false, "chosen")] {
        let runs = run_all(&list, fixed, seed)?;
        for (at, name) in WAYS.into_iter().enumerate() {
            let times: Vec<f64> =
                runs.iter().map(|runs| runs[at].air_ms).filter(|time| *time > 0.0).collect();
            metrics.insert(format!("{name}.{label}.median_ms"), rounded(quantile(&times, 0.5)));
            if fixed {
                series.push((name.to_owned(), distribution(&times)));
            }
        }
        if fixed {
            let over: Vec<f64> = runs.iter().map(|runs| runs[3].air_ms / runs[0].air_ms.max(1e-9)).collect();
            metrics.insert("ours.over_tcp.median".into(), rounded(quantile(&over, 0.5)));
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

fn run_all(list: &[NeighbourhoodSpec], fixed: bool, seed: u64) -> anyhow::Result<Vec<[Carried; 4]>> {
    let mut all = Vec::new();
    for (at, spec) in list.iter().enumerate() {
        let chunks = (whole_bound(spec)? * SECONDS).ceil() as u32;
        let mut runs = Vec::new();
        for way in compared() {
            let way = if fixed { way.at_fixed_rate() } else { way };
            runs.push(way.carry(spec, chunks, fixed, mixed(seed, at))?);
        }
        all.extend(<[Carried; 4]>::try_from(runs).ok());
    }
    Ok(all)
}

/// A seed for each neighbourhood.
pub(super) fn mixed(seed: u64, at: usize) -> u64 {
    seed.wrapping_mul(1_000) + at as u64
}

/// A distribution as a line: percentage of neighbourhoods, value.
pub(super) fn distribution(values: &[f64]) -> Vec<(f64, f64)> {
    let ends = [0.0, 1.0];
    let mut parts: Vec<f64> =
        QUANTILES.into_iter().chain(ends).chain((1..10).map(|tenth| f64::from(tenth) / 10.0)).collect();
    parts.sort_by(f64::total_cmp);
    parts.dedup();
    parts.into_iter().map(|part| (part * 100.0, quantile(values, part))).collect()
}
