//! LINKALIKE/sources: several sources at once among the same neighbours, on the same air.

use sim::neighbourhood::{Fellow, NeighbourhoodSpec, Outcome, Transfer};
use upload::{RateChoice, Settings};
use wire::upload::RateIndex;

use super::capacity::neighbourhood_bound;
use super::strategies::{FIXED_RATE, chunk_rate, medium_rate, neighbourhoods, uplinks};
use super::two_hundred::{distribution, mixed};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// How many sources there are.
const COUNTS: [usize; 3] = [2, 3, 5];
/// How long a file takes with just its part of everything.
const SECONDS: f64 = 30.0;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("neighbourhoods".into(), "experiments/LINKALIKE/neighbourhoods.txt".into());
    spec.insert("sources".into(), COUNTS.map(|count| toml::Value::from(count as i64)).to_vec().into());
    spec.insert("own_uplinks".into(), "all as the first one's".into());
    spec.insert(
        "receptions".into(),
        "each source is heard as the one before it, by the next neighbour of the list".into(),
    );
    spec.insert("file".into(), "what takes 30 s with the source's part of everything".into());
    spec.insert("bit_rates".into(), "5.5 Mbit/s".into());
    Experiment {
        id: id("sources"),
        title: "several sources at once: what each carries, beside the bound with its part of the air and of every neighbour's uplink".to_owned(),
        spec,
        paper: None,
        goals: COUNTS
            .iter()
            .flat_map(|count| {
                [
                    Goal::at_least(format!("{count}_sources.reach_0.95"), 0.95),
                    Goal::at_least(format!("{count}_sources.together.median"), 0.95),
                ]
            })
            .collect(),
        beds: vec![Bed::Sim],
        bars: COUNTS
            .map(|count| BarGroup {
                label: format!("{count} sources"),
                bars: ["each.median", "each.lowest_5_percent", "together.median", "fairness.median"]
                    .map(|metric| (metric.replace(['.', '_'], " "), format!("{count}_sources.{metric}")))
                    .to_vec(),
            })
            .to_vec(),
        unit: "part of the bound, or Jain's index",
        axes: Axes { over: Some("per cent of the sources"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let list = neighbourhoods()?;
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for count in COUNTS {
        let (mut all, mut together, mut fairness) = (Vec::new(), Vec::new(), Vec::new());
        for (at, spec) in list.iter().enumerate() {
            let (rates, bounds) = shares(spec, count, mixed(seed, at))?;
            let parts: Vec<f64> = rates.iter().zip(&bounds).map(|(rate, bound)| rate / bound).collect();
            together.push(rates.iter().sum::<f64>() / bounds.iter().sum::<f64>());
            let squares: f64 = parts.iter().map(|part| part * part).sum();
            fairness.push(parts.iter().sum::<f64>().powi(2) / (count as f64 * squares));
            all.extend(parts);
        }
        let reach = all.iter().filter(|part| **part >= 0.95).count() as f64 / all.len() as f64;
        let mut put = |name: &str, value| metrics.insert(format!("{count}_sources.{name}"), rounded(value));
        put("reach_0.95", reach);
        put("each.median", quantile(&all, 0.5));
        put("each.lowest_5_percent", quantile(&all, 0.05));
        put("each.least", quantile(&all, 0.0));
        put("together.median", quantile(&together, 0.5));
        put("together.least", quantile(&together, 0.0));
        put("fairness.median", quantile(&fairness, 0.5));
        put("fairness.least", quantile(&fairness, 0.0));
        series.push((format!("{count} sources"), distribution(&all)));
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// Chunks a second of each source until the first one ends, and the bound for each of what its part of everything allows.
fn shares(spec: &NeighbourhoodSpec, count: usize, seed: u64) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let part = |value: f64| value / count as f64;
    let each: Vec<f64> = uplinks(spec).into_iter().map(part).collect();
    let (mut fellows, mut bounds) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut seen = spec.clone();
        for (at, neighbour) in seen.neighbours.iter_mut().enumerate() {
            let other = spec.neighbours.iter().cycle().nth(at + number);
            neighbour.reception = other.map_or(neighbour.reception, |other| other.reception);
        }
        let air = part(medium_rate(FIXED_RATE));
        let bound = chunk_rate(&spec.own) + neighbourhood_bound(&seen, FIXED_RATE, air, &each)?;
        let reception = seen.neighbours.iter().map(|neighbour| neighbour.reception).collect();
        fellows.push(Fellow { own: spec.own, reception, chunks: (bound * SECONDS).ceil() as u32 });
        bounds.push(bound);
    }
    let rate = RateChoice::Fixed(RateIndex(FIXED_RATE as u8));
    let first = fellows.remove(0);
    let settings = Settings { rate, ..Settings::default() };
    let transfer = Transfer { fellows, ..Transfer::new(spec.clone(), settings, first.chunks, seed) };
    let outcomes = transfer.run_all();
    anyhow::ensure!(outcomes.iter().all(|outcome| outcome.took.is_some()), "a transfer did not end");
    let tenths =
        outcomes.iter().filter_map(|outcome| outcome.took).min().unwrap_or_default().as_millis() / 100;
    let rate = |outcome: &Outcome| {
        let arrived: u32 = outcome.arrivals.iter().take(tenths as usize).sum();
        f64::from(arrived) / (tenths as f64 / 10.0)
    };
    Ok((outcomes.iter().map(rate).collect(), bounds))
}
