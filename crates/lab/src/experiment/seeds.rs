//! One experiment with several seeds: run side by side where time is virtual, judged by the means.

use super::{Bed, Experiment, Metrics, Report, at_once};
use anyhow::Context;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one seed gave.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct SeedRun {
    /// What decided chance.
    pub seed: u64,
    /// The figures.
    pub metrics: Metrics,
}

/// A seed and its report.
pub type SeededReport = (u64, Report);

/// Runs `experiment` once for each seed, on all cores where time is virtual. `on_run` hears how many of them have ended.
/// The reports come in the order of the seeds.
///
/// # Errors
/// Names the seed that cannot be run.
pub fn run_seeds(
    experiment: &Experiment,
    bed: Bed,
    seeds: Range<u64>,
    on_run: &(dyn Fn(usize) + Sync),
) -> anyhow::Result<Vec<SeededReport>> {
    let seeds: Vec<u64> = seeds.collect();
    let most = if bed == Bed::Sim { at_once::cores() } else { 1 };
    let ended = AtomicUsize::new(0);
    at_once::each(&seeds, most, |&seed| {
        let report = (experiment.runner)(bed, seed)
            .with_context(|| format!("run {} with seed {seed}", experiment.id))?;
        on_run(ended.fetch_add(1, Ordering::Relaxed) + 1);
        Ok((seed, report))
    })
}

/// The mean of each figure over the seeds; a figure that one of them lacks has none.
pub(super) fn means<'a>(runs: impl Iterator<Item = &'a Metrics> + Clone) -> Metrics {
    let count = runs.clone().count();
    let Some(first) = runs.clone().next().filter(|_| count > 1) else {
        return runs.clone().next().cloned().unwrap_or_default();
    };
    let mean = |name: &String| {
        let values = runs.clone().map(|metrics| metrics.get(name).copied());
        // Each is divided first: a time that never came is the greatest number there is.
        let mean = values.map(|value| value.map(|value| value / count as f64)).sum::<Option<f64>>()?;
        Some((name.clone(), if mean.abs() < 1e9 { (mean * 1e4).round() / 1e4 } else { mean }))
    };
    first.keys().filter_map(mean).collect()
}

/// The least and the greatest value of `metric` over the seeds; `None` where there was one seed.
pub fn spread(runs: &[SeedRun], metric: &str) -> Option<(f64, f64)> {
    let mut values = runs.iter().filter_map(|run| run.metrics.get(metric).copied());
    let first = values.next().filter(|_| runs.len() > 1)?;
    Some(values.fold((first, first), |(least, most), value| (least.min(value), most.max(value))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Axes, ExperimentId, Goal};
    use std::sync::atomic::AtomicUsize;

    fn metrics(values: &[(&str, f64)]) -> Metrics {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn a_mean_needs_every_seed() {
        let runs = [metrics(&[("gain", 1.0), ("gap_ms", 5.0)]), metrics(&[("gain", 2.0)])];
        assert_eq!(means(runs.iter()), metrics(&[("gain", 1.5)]));
        assert_eq!(means(runs[..1].iter()), runs[0], "one seed's figures are its own");
        let never = [metrics(&[("return_ms", f64::MAX)]), metrics(&[("return_ms", f64::MAX)])];
        assert!(means(never.iter())["return_ms"].is_finite(), "JSON knows no infinity");
        let runs = [1.0, 3.0, 2.0].map(|gain| SeedRun { seed: 1, metrics: metrics(&[("gain", gain)]) });
        assert_eq!(spread(&runs, "gain"), Some((1.0, 3.0)));
        assert_eq!(spread(&runs[..1], "gain"), None);
    }

    #[test]
    fn every_seed_is_run_once_and_in_order() {
        let experiment = Experiment {
            id: ExperimentId { key: "TEST".to_owned(), name: "seeds".to_owned() },
            title: String::new(),
            spec: toml::Table::new(),
            paper: None,
            goals: vec![Goal::at_least("seed", 1.0)],
            beds: vec![Bed::Sim],
            bars: Vec::new(),
            unit: "",
            axes: Axes::default(),
            runner: Box::new(|_, seed| {
                anyhow::ensure!(seed != 99, "no such seed");
                Ok(Report { metrics: metrics(&[("seed", seed as f64)]), ..Report::default() })
            }),
        };
        let heard = AtomicUsize::new(0);
        let count = |_| {
            heard.fetch_add(1, Ordering::Relaxed);
        };
        let reports = run_seeds(&experiment, Bed::Sim, 3..10, &count).unwrap();
        let seen: Vec<(u64, f64)> =
            reports.iter().map(|(seed, report)| (*seed, report.metrics["seed"])).collect();
        assert_eq!(seen, (3..10).map(|seed| (seed, seed as f64)).collect::<Vec<_>>());
        assert_eq!(heard.into_inner(), 7);
        assert!(run_seeds(&experiment, Bed::Sim, 98..100, &|_| {}).is_err());
    }
}
