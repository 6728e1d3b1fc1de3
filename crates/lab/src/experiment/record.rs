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
    write(&result_name(experiment, record.bed), record.to_json()?)?;
    write(&format!("series{suffix}.csv"), series_text(&series, experiment.axes)?)?;
    write(&format!("plot{suffix}.svg"), plot::experiment_plot(experiment, record, &series))?;
    let spec = toml::to_string_pretty(&experiment.spec).context("write the spec as TOML")?;
    write("spec.toml", spec)?;
    write("README.md", readme(experiment, &kept_records(directory, experiment)?))?;
    Ok(place)
}

/// The kept records of `experiment`, one for each bed that it was run on, in the order of its beds.
fn kept_records(directory: &Path, experiment: &Experiment) -> anyhow::Result<Vec<Record>> {
    let kept = experiment.beds.iter().map(|bed| kept_record(directory, experiment, *bed));
    let kept: Vec<Option<(Record, Report)>> = kept.collect::<anyhow::Result<_>>()?;
    Ok(kept.into_iter().flatten().map(|(record, _)| record).collect())
}

/// What the names of a run's files have behind them.
fn suffix(experiment: &Experiment, bed: Bed) -> String {
    if experiment.beds.first() == Some(&bed) { String::new() } else { format!("-{bed}") }
}

/// The kept record and series of `experiment` on `bed` below `directory`; `None` if no run on that bed is kept.
///
/// # Errors
/// Names the file that cannot be read: what is kept and damaged is not the same as what was never run.
pub fn kept_record(
    directory: &Path,
    experiment: &Experiment,
    bed: Bed,
) -> anyhow::Result<Option<(Record, Report)>> {
    let id = &experiment.id;
    let result = directory.join(&id.key).join(&id.name).join(result_name(experiment, bed));
    match result.try_exists().with_context(|| format!("look for {}", result.display()))? {
        true => read_record(directory, experiment, bed).map(Some),
        false => Ok(None),
    }
}

fn result_name(experiment: &Experiment, bed: Bed) -> String {
    format!("result{}.json", suffix(experiment, bed))
}

/// The kept record and series of `experiment` on `bed` below `directory`.
///
/// # Errors
/// Names the file that is missing or damaged.
pub fn read_record(directory: &Path, experiment: &Experiment, bed: Bed) -> anyhow::Result<(Record, Report)> {
    let id = &experiment.id;
    let place = directory.join(&id.key).join(&id.name);
    let read = |name: &str| {
        let path = place.join(name);
        fs::read_to_string(&path).with_context(|| {
            format!("read {}; \"anabranch lab run {id} --bed {bed}\" makes it", path.display())
        })
    };
    let damaged = |name: &str| {
        let path = place.join(name);
        format!("{} is damaged; \"anabranch lab run {id} --bed {bed}\" makes it anew", path.display())
    };
    let (result, series) = (result_name(experiment, bed), format!("series{}.csv", suffix(experiment, bed)));
    let record: Record = serde_json::from_str(&read(&result)?).with_context(|| damaged(&result))?;
    let series = parse_series(&read(&series)?).with_context(|| damaged(&series))?;
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

/// One line per point: line's name, seconds or what else the lines are over, value. Names with a comma or a quotation mark
/// are quoted as in RFC 4180, section 2.
fn series_text(series: &Series, axes: Axes) -> anyhow::Result<String> {
    let mut text = format!("line,{},value\n", quoted(axes.over.unwrap_or("seconds")));
    for (name, points) in series {
        anyhow::ensure!(
            !name.contains(['\n', '\r']),
            "the name {name:?} of a line of the plot would not be read again: it has a line break"
        );
        for (seconds, value) in points {
            let _ = writeln!(text, "{},{seconds:.1},{value:.2}", quoted(name));
        }
    }
    Ok(text)
}

/// The inverse of [`series_text`]. Earlier versions wrote names as they are, commas included: the two numbers at the end have none.
fn parse_series(text: &str) -> anyhow::Result<Series> {
    let mut series: Series = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1) {
        let number = at + 1;
        let mut fields = line.rsplitn(3, ',');
        let (Some(value), Some(seconds), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            anyhow::bail!("line {number} has fewer than 3 fields");
        };
        let parsed = |field: &str| -> anyhow::Result<f64> {
            field.parse().with_context(|| format!("{field:?} in line {number} is not a number"))
        };
        let (name, point) = (unquoted(name), (parsed(seconds)?, parsed(value)?));
        match series.last_mut().filter(|(last, _)| *last == name) {
            Some((_, points)) => points.push(point),
            None => series.push((name, vec![point])),
        }
    }
    Ok(series)
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
}

fn unquoted(field: &str) -> String {
    let inner = field.strip_prefix('"').and_then(|field| field.strip_suffix('"'));
    inner.map_or_else(|| field.to_owned(), |inner| inner.replace("\"\"", "\""))
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
        assert_eq!(parse_series(&series_text(&thin, Axes::default()).unwrap()).unwrap(), thin);
        assert_eq!(thinned(&thin), thin);
        for bad in ["one,2", "one,2,x", "2.0,1.0"] {
            let error = parse_series(&format!("line,seconds,value\n{bad}\n")).unwrap_err();
            assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        }
    }

    #[test]
    fn names_of_lines_may_have_commas_and_quotation_marks() {
        let series: Series = ["round trip, ms", "5\" of \"rain\"", "\"", "\"all\"", ",", "plain"]
            .map(|name| (name.to_owned(), vec![(0.0, 1.0), (0.5, 2.0)]))
            .to_vec();
        let over = Axes { over: Some("access points, all"), ..Axes::default() };
        let text = series_text(&series, over).unwrap();
        assert!(
            text.starts_with("line,\"access points, all\",value\n\"round trip, ms\",0.0,1.00\n"),
            "{text}"
        );
        assert_eq!(parse_series(&text).unwrap(), series);
        let before = "line,seconds,value\nround trip, ms,0.0,1.00\nround trip, ms,0.5,2.00\n";
        assert_eq!(parse_series(before).unwrap(), series[..1], "as earlier versions wrote it");
        let broken = vec![("two\nlines".to_owned(), vec![(0.0, 1.0)])];
        assert!(series_text(&broken, Axes::default()).is_err());
    }

    #[test]
    fn a_kept_result_that_cannot_be_read_is_told_and_not_left_out() {
        let experiment = registry().into_iter().next().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let record = Record::new(&experiment, Bed::Sim, &[(1, Report::default())]);
        let place = write_record(directory.path(), &experiment, &record, &Report::default()).unwrap();
        assert!(kept_record(directory.path(), &experiment, Bed::Vm).unwrap().is_none());
        fs::write(place.join("series.csv"), "line,seconds,value\none\n").unwrap();
        let vm = Record::new(&experiment, Bed::Vm, &[(1, Report::default())]);
        for error in [
            write_record(directory.path(), &experiment, &vm, &Report::default()).map(drop),
            kept_record(directory.path(), &experiment, Bed::Sim).map(drop),
        ] {
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains("series.csv is damaged") && error.contains("line 2"), "{error}");
        }
    }

    #[test]
    fn every_kept_record_is_read_and_its_readme_tells_of_it() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let mut kept = 0;
        for experiment in registry() {
            let place = directory.join(&experiment.id.key).join(&experiment.id.name);
            let readme = fs::read_to_string(place.join("README.md")).unwrap_or_default();
            for record in kept_records(&directory, &experiment).unwrap() {
                let told =
                    format!("**{}** on the bed {}", capitalised(&record.verdict.to_string()), record.bed);
                assert!(readme.contains(&told), "{} says nothing of bed {}", place.display(), record.bed);
                kept += 1;
            }
        }
        let families = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let places = families.filter(|path| path.is_dir()).flat_map(|family| fs::read_dir(family).unwrap());
        let files = places.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        let files = files.flat_map(|place| fs::read_dir(place).unwrap());
        let results = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let results = results.filter(|name| name.starts_with("result") && name.ends_with(".json")).count();
        assert_eq!(
            kept, results,
            "some kept result is of no experiment, or of no bed that its experiment has"
        );
    }
}
