//! What is kept of benchmarks: `benchmarks/results.json`, and the same as a table in `benchmarks/README.md`.

use super::Benchmark;
use crate::experiment::{Bed, Goal, Metrics, Verdict, verdict};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

/// What else the machine did; a reader judges by it how far to trust a figure in real time.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Conditions {
    /// Processors that this program may use.
    pub processors: usize,
    /// Programs that wanted to run, on average over the minute before the benchmark.
    pub load_before: f64,
}

/// A benchmark's figures and the verdict on them.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BenchmarkRecord {
    /// Its name.
    pub benchmark: String,
    /// What it shows.
    pub title: String,
    /// Where it ran.
    pub bed: Bed,
    /// What else ran.
    pub conditions: Conditions,
    /// The figures.
    pub metrics: Metrics,
    /// What they should be.
    pub goal: Vec<Goal>,
    /// How it did.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
}

impl Conditions {
    /// As they are now.
    pub fn now() -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: load.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl BenchmarkRecord {
    pub(super) fn new(benchmark: &Benchmark, metrics: Metrics, conditions: Conditions) -> Self {
        let metrics: Metrics = metrics.into_iter().map(|(name, value)| (name, rounded(value))).collect();
        let goal = (benchmark.goals)();
        let (verdict, reason) = verdict(&metrics, &goal, None);
        Self {
            benchmark: benchmark.name.to_owned(),
            title: benchmark.title.to_owned(),
            bed: benchmark.bed,
            conditions,
            metrics,
            goal,
            verdict,
            reason,
        }
    }

    fn bound_of(&self, metric: &str) -> String {
        let goals = self.goal.iter().filter(|goal| goal.metric == metric);
        let bounds: Vec<String> =
            goals.map(|goal| goal.to_string().trim_start_matches(metric).trim().to_owned()).collect();
        bounds.join(", ")
    }
}

impl fmt::Display for BenchmarkRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}: {} ({})", self.benchmark, self.verdict, self.reason)?;
        for (metric, value) in &self.metrics {
            writeln!(formatter, "    {metric:<36} {value:>12}   {}", self.bound_of(metric))?;
        }
        Ok(())
    }
}

/// Four figures that count are all that a measurement here has.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = 3 - value.abs().log10().floor() as i32;
    if places <= 0 { value.round() } else { (value * 10f64.powi(places)).round() / 10f64.powi(places) }
}

/// `benchmarks` of the source tree around the current directory, or in the current directory.
///
/// # Errors
/// If the current directory is gone.
pub fn results_directory() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("find the current directory")?;
    let tree = here.ancestors().find(|directory| directory.join("crates/lab/Cargo.toml").is_file());
    Ok(tree.unwrap_or(&here).join("benchmarks"))
}

/// The records as a file's text.
///
/// # Errors
/// If a figure is not a number.
pub(super) fn to_json(records: &[BenchmarkRecord]) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(records).context("write the results as JSON")? + "\n")
}

/// Puts `records` in the place of earlier ones of the same benchmarks below `directory`.
///
/// # Errors
/// Names the file that is damaged or cannot be written.
pub(super) fn keep(directory: &Path, records: &[BenchmarkRecord]) -> anyhow::Result<()> {
    let path = directory.join("results.json");
    let mut all: BTreeMap<String, BenchmarkRecord> = match fs::read(&path) {
        Ok(bytes) => {
            let kept: Vec<BenchmarkRecord> = serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is damaged; remove it", path.display()))?;
            kept.into_iter().map(|record| (record.benchmark.clone(), record)).collect()
        }
        Err(_) => BTreeMap::new(),
    };
    all.extend(records.iter().map(|record| (record.benchmark.clone(), record.clone())));
    let all: Vec<BenchmarkRecord> = all.into_values().collect();
    fs::create_dir_all(directory).with_context(|| format!("make the directory {}", directory.display()))?;
    fs::write(&path, to_json(&all)?).with_context(|| format!("write {}", path.display()))?;
    let table = directory.join("README.md");
    fs::write(&table, page(&all)).with_context(|| format!("write {}", table.display()))
}

fn page(records: &[BenchmarkRecord]) -> String {
    let mut text = String::from(
        "# Benchmarks\n\nWritten by `make bench`; how each figure is made and what it says: \
         [docs/benchmarks.md](../docs/benchmarks.md).\nFigures in real time depend on the machine: read the \
         ratios.\n",
    );
    for record in records {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n## {}\n\n{}. Bed {}, {} processors, load {} before it began.\n\n**{}**: {}.\n\n\
             | figure | value | goal |\n|---|---|---|\n",
            record.benchmark,
            record.title,
            record.bed,
            record.conditions.processors,
            record.conditions.load_before,
            record.verdict,
            record.reason
        );
        for (metric, value) in &record.metrics {
            let _ = writeln!(text, "| {metric} | {value} | {} |", record.bound_of(metric));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, value: f64) -> BenchmarkRecord {
        let goal = vec![Goal::at_least("ratio", 1.5)];
        let metrics = Metrics::from([("ratio".to_owned(), value), ("other".to_owned(), 7.0)]);
        let (verdict, reason) = verdict(&metrics, &goal, None);
        BenchmarkRecord {
            benchmark: name.to_owned(),
            title: "a title".to_owned(),
            bed: Bed::Netns,
            conditions: Conditions { processors: 2, load_before: 0.5 },
            metrics,
            goal,
            verdict,
            reason,
        }
    }

    #[test]
    fn a_new_result_replaces_the_old_one_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        keep(directory.path(), &[record("one", 1.0), record("two", 2.0)]).unwrap();
        keep(directory.path(), &[record("one", 3.0)]).unwrap();
        let kept: Vec<BenchmarkRecord> =
            serde_json::from_slice(&fs::read(directory.path().join("results.json")).unwrap()).unwrap();
        assert_eq!(kept, [record("one", 3.0), record("two", 2.0)]);
        let page = fs::read_to_string(directory.path().join("README.md")).unwrap();
        assert!(page.contains("| ratio | 3 | at least 1.5 |") && page.contains("| other | 7 |  |"));
        fs::write(directory.path().join("results.json"), "[").unwrap();
        assert!(keep(directory.path(), &[record("one", 1.0)]).is_err());
    }

    #[test]
    fn four_figures_count() {
        for (value, kept) in [(1.234_56, 1.235), (0.012_345_6, 0.012_35), (12_345.6, 12_346.0), (0.0, 0.0)] {
            assert_eq!(rounded(value), kept);
        }
    }
}
