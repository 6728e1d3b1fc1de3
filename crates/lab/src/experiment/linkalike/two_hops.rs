//! LINKALIKE/two-hops: neighbours out of the source's reach, for whom others repeat on the air.

use anyhow::Context;
use sim::neighbourhood::{NeighbourhoodSpec, Transfer, parse};
use upload::{RateChoice, Settings};
use wire::upload::RateIndex;

use super::strategies::{FIXED_RATE, SECONDS, chunk_rate, neighbourhoods, uplinks};
use super::two_hundred::{distribution, mixed};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const BARS: [(&str, &str); 3] = [
    ("two hops over one", "two_hops.gain.median"),
    ("two hops, greatest", "two_hops.gain.most"),
    ("where all are in reach", "one_hop.gain.median"),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("two_hops".into(), "experiments/LINKALIKE/two_hops.txt".into());
    spec.insert("one_hop".into(), "experiments/LINKALIKE/neighbourhoods.txt".into());
    spec.insert("file".into(), "as much as all uplinks carry in 60 s".into());
    spec.insert("bit_rate_mbps".into(), 5.5.into());
    Experiment {
        id: id("two-hops"),
        title: "neighbours out of the source's reach: what repeats by others on the air gain".to_owned(),
        spec,
        paper: Some("section VII, \"Multi-hop\": future work, no figure".to_owned()),
        goals: vec![
            Goal::at_least("two_hops.gain.median", 1.2),
            Goal::at_least("two_hops.gain.least", 0.99),
            Goal::at_least("one_hop.gain.least", 0.99),
        ],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "with repeats over without".into(),
            bars: BARS.map(|(name, metric)| (name.to_owned(), metric.to_owned())).to_vec(),
        }],
        unit: "with repeats / without",
        axes: Axes { over: Some("per cent of the neighbourhoods"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

/// What repeats do in one neighbourhood.
struct Gain {
    /// Rate with repeats over the rate without.
    rate: f64,
    /// Rate with repeats over all uplinks together.
    of_uplinks: f64,
    /// Repeats for each chunk that came.
    repeats: f64,
}

fn run(seed: u64) -> anyhow::Result<Report> {
    const TEXT: &str = include_str!("../../../../../experiments/LINKALIKE/two_hops.txt");
    let far = parse(TEXT).context("read experiments/LINKALIKE/two_hops.txt")?;
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for (name, list) in [("two_hops", far), ("one_hop", neighbourhoods()?)] {
        let gains: Vec<Gain> = list
            .iter()
            .enumerate()
            .map(|(at, spec)| gain(spec, mixed(seed, at)))
            .collect::<anyhow::Result<_>>()?;
        let of = |value: fn(&Gain) -> f64| gains.iter().map(value).collect::<Vec<f64>>();
        let rates = of(|gain| gain.rate);
        for (metric, part) in [("least", 0.0), ("median", 0.5), ("most", 1.0)] {
            metrics.insert(format!("{name}.gain.{metric}"), rounded(quantile(&rates, part)));
        }
        let uplinks = of(|gain| gain.of_uplinks);
        metrics.insert(format!("{name}.of_all_uplinks.median"), rounded(quantile(&uplinks, 0.5)));
        let repeats = of(|gain| gain.repeats);
        metrics.insert(format!("{name}.repeats_a_chunk.median"), rounded(quantile(&repeats, 0.5)));
        metrics.insert(format!("{name}.repeats_a_chunk.most"), rounded(quantile(&repeats, 1.0)));
        series.push((name.to_owned(), distribution(&rates)));
    }
    Ok(Report { metrics, series, ..Report::default() })
}

fn gain(spec: &NeighbourhoodSpec, seed: u64) -> anyhow::Result<Gain> {
    let all = chunk_rate(&spec.own) + uplinks(spec).iter().sum::<f64>();
    let chunks = (all * SECONDS).ceil() as u32;
    let rate = RateChoice::Fixed(RateIndex(FIXED_RATE as u8));
    let without = Transfer::new(spec.clone(), Settings { rate, ..Settings::default() }, chunks, seed);
    let with = Transfer { repeats: true, ..without.clone() };
    let (without, with) = (without.run(), with.run());
    let seconds = |took: Option<std::time::Duration>| took.map(|took| took.as_secs_f64());
    let without = seconds(without.took).context("without repeats it did not end")?;
    let took = seconds(with.took).context("with repeats it did not end")?;
    Ok(Gain {
        rate: without / took,
        of_uplinks: f64::from(chunks) / took / all,
        repeats: with.repeats as f64 / f64::from(chunks),
    })
}
