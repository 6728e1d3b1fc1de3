//! The lab program behind `anabranch lab` and `anabranch demo`.

use anyhow::Context;
use clap::{Parser, Subcommand};
use lab::demo::{DemoOptions, FetchLine};
use lab::experiment::{
    Bed, Experiment, ExperimentId, OneNeighbourhood, Record, Verdict, bound_table, experiments_directory,
    find, kept_record, read_record, registry, run_seeds, write_record,
};
use lab::netbed::{FetchRequest, fetch, isolation, listen, serve};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Experiments and the demo of Anabranch.
#[derive(Parser)]
#[command(name = "anabranch-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows all experiments, the beds they run on (in brackets where no run is kept) and how the last run did.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Runs an experiment (KEY/NAME), a family (KEY) or everything (all) and keeps the results.
    Run {
        /// KEY/NAME, KEY or all.
        what: String,
        /// Where to run; by default each experiment's usual bed.
        #[arg(long)]
        bed: Option<Bed>,
        /// Decides all chance; where there are several runs, the first one's.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many runs, each with the next seed; the means are judged. By default 3 on the bed sim and 1 elsewhere.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
        seeds: Option<u64>,
        /// Writes the result here as well (one experiment only); "-" is the terminal.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Runs without touching the results that are kept.
        #[arg(long)]
        dry: bool,
        /// Compares with the result that is kept (with one seed, with what that seed gave) and fails where the verdict differs.
        #[arg(long)]
        check: bool,
        /// Prints the bounds of this file's neighbourhoods instead, and keeps nothing (LINKALIKE/bound only).
        #[arg(long, value_name = "FILE", conflicts_with_all = ["bed", "seed", "seeds", "json", "dry", "check"])]
        file: Option<PathBuf>,
        /// The namespaces have been entered: how a run on the bed netns starts itself again.
        #[arg(long, hide = true)]
        isolated: bool,
    },
    /// Shows bonding at work in network namespaces.
    Demo(DemoOptions),
    /// Serves the demo's downloads.
    #[command(hide = true)]
    ServeFile {
        /// Where to listen.
        address: SocketAddr,
    },
    /// Downloads from such a server and prints progress and report as lines of JSON.
    #[command(hide = true)]
    FetchFile(FetchArguments),
    /// Draws the plots of kept results anew.
    Plot {
        /// KEY/NAME, KEY or all.
        what: String,
    },
    /// Uploads through one neighbourhood of a file, simulated, with one strategy or all.
    Neighbourhood(OneNeighbourhood),
    /// Runs benchmarks and keeps their results: ratios to a rival in the same run, and sizes.
    Bench(lab::bench::BenchOptions),
    /// Is the air between the kernel's simulated radios, for use inside a test bed.
    #[command(hide = true)]
    Medium {
        /// What the air is like (TOML).
        config: PathBuf,
    },
    /// Bluetooth controllers, for use inside a test bed.
    #[command(subcommand, hide = true)]
    Bluetooth(lab::bluetooth::BluetoothCommand),
    /// What may happen to a radio, for use inside a test bed.
    #[command(subcommand, hide = true)]
    Mishap(lab::mishap::Mishap),
    /// Bulk flows, pings and paced commands, for use inside a test bed.
    #[command(subcommand, hide = true)]
    Traffic(lab::traffic::TrafficCommand),
}

#[derive(clap::Args)]
struct FetchArguments {
    /// The server.
    server: SocketAddr,
    /// How many bytes.
    #[arg(long)]
    bytes: u64,
    /// Which bytes.
    #[arg(long)]
    seed: u64,
    /// Over this interface only.
    #[arg(long)]
    interface: Option<String>,
    /// Stop after so many seconds.
    #[arg(long)]
    most_s: Option<u64>,
    /// Give up after so many seconds without a byte.
    #[arg(long, default_value_t = 20)]
    patience_s: u64,
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // RUST_LOG=lab=info shows each trial as it ends; where trials take long, that is the default.
    let is_slow = matches!(command, Command::Run { bed: Some(Bed::Netns | Bed::Vm), .. });
    let default = if is_slow { "warn,lab::experiment=info" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("anabranch-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { json } => list(json),
        Command::Run { what, file: Some(file), .. } => {
            anyhow::ensure!(
                what == "LINKALIKE/bound",
                "{what} does not take --file; LINKALIKE/bound does, and prints the bounds of the file's neighbourhoods"
            );
            print_text(&bound_table(&file)?)
        }
        Command::Run { what, bed, seed, seeds, json, dry, check, file: None, isolated } => {
            let experiments = select(&what)?;
            if bed == Some(Bed::Netns) {
                settle_in_namespaces(isolated)?;
            }
            run_experiments(&experiments, &RunOptions { bed, seed, seeds, json, dry, check })
        }
        Command::Demo(options) => lab::demo::run(&options),
        Command::ServeFile { address } => {
            serve(&listen(address, "cubic")?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::FetchFile(arguments) => fetch_file(arguments),
        Command::Plot { what } => redraw(&select(&what)?),
        Command::Neighbourhood(one) => print_text(&one.run()?),
        Command::Bench(options) => lab::bench::run(&options),
        Command::Medium { config } => lab::medium::run(&config).map(|()| ExitCode::SUCCESS),
        Command::Bluetooth(command) => lab::bluetooth::run(command).map(|()| ExitCode::SUCCESS),
        Command::Mishap(mishap) => lab::mishap::run(mishap).map(|()| ExitCode::SUCCESS),
        Command::Traffic(command) => lab::traffic::run(command).map(|()| ExitCode::SUCCESS),
    }
}

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

fn fetch_file(arguments: FetchArguments) -> anyhow::Result<ExitCode> {
    let request = FetchRequest {
        server: arguments.server,
        interface: arguments.interface,
        bytes: arguments.bytes,
        seed: arguments.seed,
        most_time: arguments.most_s.map(Duration::from_secs),
        patience: Duration::from_secs(arguments.patience_s),
    };
    let mut output = std::io::stdout().lock();
    let mut say = |line: &FetchLine| -> anyhow::Result<()> {
        writeln!(output, "{}", serde_json::to_string(line)?)?;
        Ok(output.flush()?)
    };
    let mut last: Option<Instant> = None;
    let report = fetch(&request, &mut |bytes| {
        if last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return true;
        }
        last = Some(Instant::now());
        say(&FetchLine::Progress(bytes)).is_ok()
    })?;
    say(&FetchLine::Report(report))?;
    Ok(ExitCode::SUCCESS)
}

/// The experiments that `what` names.
fn select(what: &str) -> anyhow::Result<Vec<Experiment>> {
    if what.contains('/') {
        return Ok(vec![find(&what.parse::<ExperimentId>()?)?]);
    }
    let chosen: Vec<Experiment> =
        registry().into_iter().filter(|experiment| what == "all" || experiment.id.key == what).collect();
    anyhow::ensure!(
        !chosen.is_empty(),
        "there is no experiment or family {what:?}; \"anabranch lab list\" shows all"
    );
    Ok(chosen)
}

/// Starts this program again in namespaces of its own, or makes itself at home in them.
fn settle_in_namespaces(isolated: bool) -> anyhow::Result<()> {
    if isolated {
        return isolation::settle();
    }
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push("--isolated".into());
    Err(isolation::enter(&arguments))
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let directory = experiments_directory()?;
    let (mut rows, mut text) = (Vec::new(), String::new());
    for experiment in registry() {
        let usual = usual_bed(&experiment)?;
        let verdict_on = |bed: &Bed| match kept_record(&directory, &experiment, *bed) {
            Ok(kept) => kept.map(|(kept, _)| kept.verdict),
            Err(error) => {
                tracing::warn!("{error:#}");
                None
            }
        };
        let verdicts: BTreeMap<String, Option<Verdict>> =
            experiment.beds.iter().map(|bed| (bed.to_string(), verdict_on(bed))).collect();
        let beds: Vec<String> = experiment.beds.iter().map(Bed::to_string).collect();
        if json {
            rows.push(serde_json::json!({
                "experiment": experiment.id,
                "title": experiment.title,
                "beds": beds,
                "verdict": verdicts.get(&usual.to_string()),
                "verdicts": verdicts,
            }));
        } else {
            let shown: Vec<String> = beds
                .iter()
                .map(|bed| match verdicts.get(bed) {
                    Some(Some(verdict)) => format!("{bed} {verdict}"),
                    _ => format!("({bed})"),
                })
                .collect();
            let _ = writeln!(
                text,
                "{:<24} {:<30} {}",
                experiment.id.to_string(),
                shown.join(", "),
                experiment.title
            );
        }
    }
    if json {
        text = serde_json::to_string_pretty(&rows)? + "\n";
    }
    print_text(&text)
}

fn print_text(text: &str) -> anyhow::Result<ExitCode> {
    // Whoever reads it may have read enough (`| head`).
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("print the text"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

struct RunOptions {
    bed: Option<Bed>,
    seed: u64,
    seeds: Option<u64>,
    json: Option<PathBuf>,
    dry: bool,
    check: bool,
}

fn run_experiments(experiments: &[Experiment], options: &RunOptions) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        options.json.is_none() || experiments.len() == 1,
        "--json takes the result of one experiment; name one as KEY/NAME"
    );
    let directory = experiments_directory()?;
    let mut differs = false;
    for experiment in experiments {
        let record = run_one(experiment, options, &directory)?;
        println!("{:<26} {:<15} {}", experiment.id.to_string(), record.verdict.to_string(), record.reason);
        if options.check {
            let kept = read_record(&directory, experiment, record.bed)?.0;
            differs |= report_difference(&comparable(&kept, &record)?, &record);
        }
    }
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_one(experiment: &Experiment, options: &RunOptions, directory: &Path) -> anyhow::Result<Record> {
    let bed = options.bed.map_or_else(|| usual_bed(experiment), Ok)?;
    anyhow::ensure!(
        experiment.beds.contains(&bed),
        "{} does not run on bed {bed}, only on {}",
        experiment.id,
        experiment.beds.iter().map(Bed::to_string).collect::<Vec<_>>().join(", ")
    );
    let count = options.seeds.unwrap_or_else(|| experiment.seeds(bed));
    let last = options.seed.checked_add(count).context("there are no more seeds after that one")?;
    let reports =
        run_seeds(experiment, bed, options.seed..last, &|ended| show_progress(experiment, ended, count))?;
    let record = Record::new(experiment, bed, &reports);
    match options.json.as_deref() {
        Some(path) if path == Path::new("-") => print!("{}", record.to_json()?),
        Some(path) => {
            std::fs::write(path, record.to_json()?).with_context(|| format!("write {}", path.display()))?
        }
        None => {}
    }
    if !options.dry && !options.check {
        let (_, first) = reports.into_iter().next().context("nothing was run")?;
        write_record(directory, experiment, &record, &first)?;
    }
    Ok(record)
}

/// One line of progress on a terminal, overwritten by the next.
fn show_progress(experiment: &Experiment, ended: usize, count: u64) {
    let mut terminal = std::io::stderr();
    if count > 1 && terminal.is_terminal() {
        let line = format!("\r{}: {ended} of {count} seeds", experiment.id);
        let end = if ended as u64 == count { "\r\x1b[K" } else { "\x1b[K" };
        let _ = terminal.write_all((line + end).as_bytes()).and_then(|()| terminal.flush());
    }
}

/// What of the kept result a rerun can be compared with: the same seeds.
fn comparable(kept: &Record, record: &Record) -> anyhow::Result<Record> {
    if (kept.seed, kept.seeds()) == (record.seed, record.seeds()) {
        return Ok(kept.clone());
    }
    kept.of_seed(record.seed).filter(|_| record.seeds() == 1).with_context(|| {
        format!(
            "the kept result of {} is of {}, not {}",
            kept.experiment,
            kept.seeds_text(),
            record.seeds_text()
        )
    })
}

fn usual_bed(experiment: &Experiment) -> anyhow::Result<Bed> {
    experiment.beds.first().copied().with_context(|| format!("{} has no bed", experiment.id))
}

/// Whether a rerun gave another verdict than the one that is kept; prints what changed.
fn report_difference(kept: &Record, record: &Record) -> bool {
    for (metric, before) in &kept.metrics {
        match record.metrics.get(metric) {
            Some(now) if now == before => {}
            Some(now) => println!("  {metric}: {before} kept, {now} now"),
            None => println!("  {metric}: {before} kept, not measured now"),
        }
    }
    let differs = kept.verdict != record.verdict;
    if differs {
        println!("  verdict: {} kept, {} now", kept.verdict, record.verdict);
    }
    differs && kept.verdict != Verdict::NotReproduced
}

fn redraw(experiments: &[Experiment]) -> anyhow::Result<ExitCode> {
    let directory = experiments_directory()?;
    for experiment in experiments {
        for bed in &experiment.beds {
            let Some((record, report)) = kept_record(&directory, experiment, *bed)? else { continue };
            let place = write_record(&directory, experiment, &record, &report)?;
            println!("{} ({bed})", place.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
