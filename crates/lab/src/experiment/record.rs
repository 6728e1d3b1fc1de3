//! What is kept of a run: `experiments/KEY/NAME/` with `spec.toml`, `result.json`, `series.csv`,
//! `plot.svg` and `README.md`. Runs on another bed than the experiment's usual one lie beside them:
//! `result-BED.json`, `series-BED.csv`, `plot-BED.svg`. The README tells of all of them.

use super::seeds::means;
use super::{
    Axes, Bed, Experiment, ExperimentId, Goal, Metrics, Report, SeedRun, SeededReport, Verdict, spread,
    verdict,
};
use crate::plot;
use anyhow::Context;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A run's figures and the verdict on them.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// Which experiment.
    pub experiment: ExperimentId,
    /// Where it ran.
    pub bed: Bed,
    /// What decided chance; the first of several.
    pub seed: u64,
    /// The figures; the means over all seeds.
    pub metrics: Metrics,
    /// The figure of the paper that it repeats.
    pub paper: Option<String>,
    /// What it should show.
    pub goal: Vec<Goal>,
    /// How it did.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
    /// Each seed's own figures, where there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<SeedRun>,
}

impl Record {
    /// The record of `experiment`'s runs with different seeds. The verdict is that on the means; one void run voids all.
    pub fn new(experiment: &Experiment, bed: Bed, reports: &[SeededReport]) -> Self {
        let metrics = means(reports.iter().map(|(_, report)| &report.metrics));
        let void = reports.iter().find_map(|(_, report)| report.void.as_deref());
        let (verdict, reason) = verdict(&metrics, &experiment.goals, void);
        let runs = reports.iter().filter(|_| reports.len() > 1);
        let runs =
            runs.map(|(seed, report)| SeedRun { seed: *seed, metrics: report.metrics.clone() }).collect();
        Self {
            experiment: experiment.id.clone(),
            bed,
            seed: reports.first().map_or(0, |(seed, _)| *seed),
            metrics,
            paper: experiment.paper.clone(),
            goal: experiment.goals.clone(),
            verdict,
            reason,
            runs,
        }
    }

    /// What the record would be had only `seed` been run; `None` if it was not.
    pub fn of_seed(&self, seed: u64) -> Option<Self> {
        if self.runs.is_empty() {
            return (self.seed == seed).then(|| self.clone());
        }
        let metrics = self.runs.iter().find(|run| run.seed == seed)?.metrics.clone();
        let (verdict, reason) = verdict(&metrics, &self.goal, None);
        Some(Self { seed, metrics, verdict, reason, runs: Vec::new(), ..self.clone() })
    }

    /// With how many seeds it was run.
    pub fn seeds(&self) -> u64 {
        self.runs.len().max(1) as u64
    }

    /// "seed 1" or "seeds 1 to 5".
    pub fn seeds_text(&self) -> String {
        match self.runs.last() {
            Some(last) => format!("seeds {} to {}", self.seed, last.seed),
            None => format!("seed {}", self.seed),
        }
    }

    /// By what the networks' rates were multiplied, where a bed cannot carry the whole.
    pub fn rate_scale(&self) -> Option<f64> {
        self.metrics.get(RATE_SCALE).copied().filter(|scale| *scale != 1.0)
    }

    /// The record as a file's text.
    ///
    /// # Errors
    /// If a figure is not a number.
    pub fn to_json(&self) -> anyhow::Result<String> {
        let mut text = serde_json::to_string_pretty(self).context("write the result as JSON")?;
        text.push('\n');
        Ok(text)
    }
}

/// The metric that has [`Record::rate_scale`].
pub(super) const RATE_SCALE: &str = "rate_scale";

/// `experiments` of the source tree around the current directory, or in the current directory.
pub fn experiments_directory() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("find the current directory")?;
    let found = here.ancestors().map(|directory| directory.join("experiments")).find(|path| path.is_dir());
    Ok(found.unwrap_or_else(|| here.join("experiments")))
}

/// Writes everything about a run below `directory`.
///
/// # Errors
/// Names the file that cannot be written.
pub fn write_record(
    directory: &Path,
    experiment: &Experiment,
    record: &Record,
    report: &Report,
) -> anyhow::Result<PathBuf> {
    let place = directory.join(&record.experiment.key).join(&record.experiment.name);
    fs::create_dir_all(&place).with_context(|| format!("make the directory {}", place.display()))?;
    let write = |name: &str, text: String| {
        let path = place.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    let (suffix, series) = (suffix(experiment, record.bed), thinned(&report.series));
    write(&format!("result{suffix}.json"), record.to_json()?)?;
    write(&format!("series{suffix}.csv"), series_text(&series, experiment.axes))?;
    write(&format!("plot{suffix}.svg"), plot::experiment_plot(experiment, record, &series))?;
    let spec = toml::to_string_pretty(&experiment.spec).context("write the spec as TOML")?;
    write("spec.toml", spec)?;
    let kept = experiment.beds.iter().filter_map(|bed| read_record(directory, experiment, *bed).ok());
    let records: Vec<Record> = kept.map(|(record, _)| record).collect();
    write("README.md", readme(experiment, &records))?;
    Ok(place)
}

/// What the names of a run's files have behind them.
fn suffix(experiment: &Experiment, bed: Bed) -> String {
    if experiment.beds.first() == Some(&bed) { String::new() } else { format!("-{bed}") }
}

/// The kept record and series of `experiment` on `bed` below `directory`.
///
/// # Errors
/// Names the file that is missing or damaged.
pub fn read_record(directory: &Path, experiment: &Experiment, bed: Bed) -> anyhow::Result<(Record, Report)> {
    let id = &experiment.id;
    let place = directory.join(&id.key).join(&id.name);
    let suffix = suffix(experiment, bed);
    let read = |name: &str| {
        let path = place.join(name);
        fs::read_to_string(&path).with_context(|| {
            format!("read {}; \"anabranch lab run {id} --bed {bed}\" makes it", path.display())
        })
    };
    let (result, series) = (format!("result{suffix}.json"), format!("series{suffix}.csv"));
    let record: Record = serde_json::from_str(&read(&result)?)
        .with_context(|| format!("{} is damaged", place.join(&result).display()))?;
    let series = parse_series(&read(&series)?)
        .with_context(|| format!("{} is damaged", place.join(&series).display()))?;
    let report = Report { metrics: record.metrics.clone(), series, ..Report::default() };
    Ok((record, report))
}

type Series = Vec<(String, Vec<(f64, f64)>)>;

/// Seconds between the points that are kept.
const SERIES_STEP: f64 = 0.5;

/// Points within half a second averaged.
fn thinned(series: &Series) -> Series {
    let thin = |points: &Vec<(f64, f64)>| {
        let mut thin = Vec::new();
        let mut start = 0;
        while let Some((first, _)) = points.get(start) {
            let step = (first / SERIES_STEP + 1e-6).floor();
            let same = points[start..]
                .iter()
                .take_while(|(at, _)| (at / SERIES_STEP + 1e-6).floor() <= step)
                .count();
            let mean = points[start..start + same].iter().map(|(_, value)| value).sum::<f64>() / same as f64;
            thin.push((step * SERIES_STEP, (mean * 100.0).round() / 100.0));
            start += same;
        }
        thin
    };
    series.iter().map(|(name, points)| (name.clone(), thin(points))).collect()
}

/// One line per point: line's name, seconds or what else the lines are over, value.
fn series_text(series: &Series, axes: Axes) -> String {
    let mut text = format!("line,{},value\n", axes.over.unwrap_or("seconds"));
    for (name, points) in series {
        for (seconds, value) in points {
            let _ = writeln!(text, "{name},{seconds:.1},{value:.2}");
        }
    }
    text
}

fn parse_series(text: &str) -> anyhow::Result<Series> {
    let mut series: Series = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [name, seconds, value] = fields[..] else {
            anyhow::bail!("line {} has {} fields, not 3", number + 1, fields.len());
        };
        let point = (seconds.parse()?, value.parse()?);
        match series.last_mut().filter(|(last, _)| last == name) {
            Some((_, points)) => points.push(point),
            None => series.push((name.to_owned(), vec![point])),
        }
    }
    Ok(series)
}

/// What a directory's `README.md` says of all runs that are kept there, the usual bed's first.
fn readme(experiment: &Experiment, records: &[Record]) -> String {
    let mut text = format!("# {}\n\n{}.\n\n", experiment.id, capitalised(&experiment.title));
    for record in records {
        let suffix = suffix(experiment, record.bed);
        let (verdict, reason) = (capitalised(&record.verdict.to_string()), &record.reason);
        let _ = writeln!(
            text,
            "**{verdict}** on the bed {}: {reason}.\n\n![plot](plot{suffix}.svg)\n",
            record.bed
        );
    }
    if let Some(paper) = &experiment.paper {
        let _ = writeln!(text, "The paper: {paper}.\n");
    }
    for record in records {
        let scale = record.rate_scale();
        let scale = scale.map_or(String::new(), |scale| format!(", all rates and queues times {scale}"));
        let seeds = record.seeds_text();
        let means =
            if record.runs.is_empty() { "" } else { ": means, and in brackets the least and the greatest" };
        let _ = writeln!(
            text,
            "Bed {bed}, {seeds}{scale}{means}. Again: `anabranch lab run {} --bed {bed} --seed {seed}`.\n",
            experiment.id,
            bed = record.bed,
            seed = record.seed,
        );
    }
    let beds: Vec<String> = records.iter().map(|record| record.bed.to_string()).collect();
    let _ = writeln!(text, "| goal | {} |\n|---|{}", beds.join(" | "), "---|".repeat(records.len()));
    for goal in records.first().map_or(&experiment.goals, |record| &record.goal) {
        let _ = write!(text, "| {goal} |");
        for record in records {
            let value = record.metrics.get(&goal.metric).map(|value| (value * 1e4).round() / 1e4);
            let value = value.map_or("not measured".to_owned(), |value| value.to_string());
            let spread = spread(&record.runs, &goal.metric).map(|(least, most)| {
                format!(" ({} to {})", (least * 1e4).round() / 1e4, (most * 1e4).round() / 1e4)
            });
            let _ = write!(text, " {value}{} |", spread.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or(String::new(), |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::registry;

    #[test]
    fn the_readme_tells_of_every_bed_that_was_run() {
        let experiment = registry().into_iter().next().unwrap();
        let directory = std::env::temp_dir().join(format!("ab-{}-record", std::process::id()));
        let metrics = |value| experiment.goals.iter().map(move |goal| (goal.metric.clone(), value));
        for (bed, value) in [(Bed::Vm, 0.25), (Bed::Sim, 7.5)] {
            let scale = (bed == Bed::Vm).then(|| (RATE_SCALE.to_owned(), 0.5));
            let report = Report { metrics: metrics(value).chain(scale).collect(), ..Report::default() };
            let mut reports = vec![(1, report.clone())];
            if bed == Bed::Sim {
                reports.push((2, Report { metrics: metrics(8.5).collect(), ..Report::default() }));
            }
            let record = Record::new(&experiment, bed, &reports);
            write_record(&directory, &experiment, &record, &report).unwrap();
        }
        let text = fs::read_to_string(directory.join("BOND").join(&experiment.id.name).join("README.md"));
        fs::remove_dir_all(&directory).unwrap();
        let text = text.unwrap();
        assert!(text.contains("on the bed sim:") && text.contains("**Missed** on the bed vm:"), "{text}");
        assert!(text.contains("(plot.svg)") && text.contains("(plot-vm.svg)"), "{text}");
        assert!(text.contains("Bed vm, seed 1, all rates and queues times 0.5."), "{text}");
        assert!(text.contains("Bed sim, seeds 1 to 2: means"), "{text}");
        assert!(text.contains("| sim | vm |") && text.contains(" 8 (7.5 to 8.5) | 0.25 |"), "{text}");
    }

    #[test]
    fn the_means_are_judged_and_each_seed_can_be_judged_alone() {
        let experiment = registry().into_iter().next().unwrap();
        let report = |value| {
            let metrics = experiment.goals.iter().map(|goal| (goal.metric.clone(), value)).collect();
            Report { metrics, ..Report::default() }
        };
        let goals = vec![Goal::at_least(experiment.goals[0].metric.clone(), 0.95)];
        let experiment = Experiment { goals, ..experiment };
        let record = Record::new(&experiment, Bed::Sim, &[(1, report(0.9)), (2, report(1.1))]);
        assert_eq!((record.verdict, record.seeds()), (Verdict::Met, 2));
        let again: Record = serde_json::from_str(&record.to_json().unwrap()).unwrap();
        assert_eq!(again, record);
        assert_eq!(again.of_seed(1).unwrap().verdict, Verdict::Missed);
        assert_eq!(again.of_seed(2).unwrap().verdict, Verdict::Met);
        assert_eq!(again.of_seed(3), None);
        let alone = Record::new(&experiment, Bed::Sim, &[(1, report(0.9))]);
        assert_eq!(again.of_seed(1), Some(alone.clone()));
        assert_eq!(alone.of_seed(1), Some(alone.clone()));
        assert!(!alone.to_json().unwrap().contains("runs"));
        let void = Report { void: Some("frames were dropped".to_owned()), ..report(1.1) };
        let record = Record::new(&experiment, Bed::Sim, &[(1, report(1.1)), (2, void)]);
        assert_eq!(record.verdict, Verdict::NotReproduced);
    }

    #[test]
    fn series_survive_the_file() {
        let points = |offset: f64| (0..20).map(|n| (f64::from(n) * 0.1, offset + f64::from(n / 5))).collect();
        let series: Series = vec![("one".to_owned(), points(0.0)), ("two".to_owned(), points(5.0))];
        let thin = thinned(&series);
        assert_eq!(thin[0], ("one".to_owned(), vec![(0.0, 0.0), (0.5, 1.0), (1.0, 2.0), (1.5, 3.0)]));
        assert_eq!(parse_series(&series_text(&thin, Axes::default())).unwrap(), thin);
        assert_eq!(thinned(&thin), thin);
        assert!(parse_series("line,seconds,value\none,2\n").is_err());
    }
}
