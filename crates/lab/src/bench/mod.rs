//! Benchmarks of the release build: ratios within one run, and sizes.
//!
//! ```text
//! anabranch-lab bench            chooses, prepares, keeps the results
//!   +- bench NAME --stage enter    becomes unshare ...
//!        +- bench NAME --stage inside   ... and measures in namespaces of its own
//! ```
//!
//! A benchmark on the virtual machine bed needs no namespaces and runs in the first process. None is a
//! timed test: a figure says how this build compares with a rival, or with itself at rest, in the same
//! minute on the same machine.

mod accounting;
mod crowd;
mod direct;
mod estimator;
mod gap;
mod idle;
mod memory;
mod ping;
mod result;
mod sockets;
mod throughput;
mod upload;
mod upload_programs;
mod ways;
mod wireguard;

pub use result::{BenchmarkRecord, Conditions, results_directory};

use crate::experiment::{Bed, Goal, Metrics, Verdict};
use crate::netbed::isolation;
use anyhow::{Context, bail};
use rustix::mount::{MountFlags, mount};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// `anabranch-lab bench ...`
#[derive(Clone, Debug, clap::Args)]
pub struct BenchOptions {
    /// Which; all without a name
    names: Vec<String>,
    /// Shows what there is
    #[arg(long)]
    list: bool,
    /// Short runs, to see that everything works; the results are not kept
    #[arg(long)]
    quick: bool,
    /// Writes the results of this run here as well; "-" is the terminal
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How a benchmark in namespaces starts itself again
    #[arg(long, hide = true)]
    stage: Option<Stage>,
}

/// Where a process of the benchmark stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Stage {
    /// About to enter the namespaces.
    Enter,
    /// In them.
    Inside,
}

/// How thoroughly to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effort {
    Quick,
    Full,
}

/// One benchmark.
struct Benchmark {
    name: &'static str,
    title: &'static str,
    bed: Bed,
    goals: fn() -> Vec<Goal>,
    /// What must be there before the namespaces are entered, where there is no way to the Internet.
    prepare: fn() -> anyhow::Result<()>,
    run: fn(Effort) -> anyhow::Result<Metrics>,
}

fn nothing_to_prepare() -> anyhow::Result<()> {
    Ok(())
}

fn benchmarks() -> [Benchmark; 11] {
    [
        Benchmark {
            name: "throughput",
            title: "TCP through the tunnel on cables without a limit, beside wireguard-go",
            bed: Bed::Netns,
            goals: throughput::goals,
            prepare: || wireguard::install().map(drop),
            run: throughput::run,
        },
        Benchmark {
            name: "direct",
            title: "flows led out directly by nftables, beside plain routing; what a change of weights takes",
            bed: Bed::Netns,
            goals: direct::goals,
            prepare: nothing_to_prepare,
            run: direct::run,
        },
        Benchmark {
            name: "sockets",
            title: "virtual sockets beside plain TCP on one cable, without a limit and shaped",
            bed: Bed::Netns,
            goals: sockets::goals,
            prepare: nothing_to_prepare,
            run: sockets::run,
        },
        Benchmark {
            name: "crowd",
            title: "a thousand busy clients of one gateway, beside one client with as much to carry",
            bed: Bed::Netns,
            goals: crowd::goals,
            prepare: nothing_to_prepare,
            run: crowd::run,
        },
        Benchmark {
            name: "memory",
            title: "memory of a device under load, and of a gateway for each idle client",
            bed: Bed::Netns,
            goals: memory::goals,
            prepare: nothing_to_prepare,
            run: memory::run,
        },
        Benchmark {
            name: "idle",
            title: "processor time of a device and a gateway with two paths and nothing to do",
            bed: Bed::Netns,
            goals: idle::goals,
            prepare: nothing_to_prepare,
            run: idle::run,
        },
        Benchmark {
            name: "ping-under-load",
            title: "round trips through any0 beside a download that fills all paths",
            bed: Bed::Vm,
            goals: ping::goals,
            prepare: nothing_to_prepare,
            run: ping::run,
        },
        Benchmark {
            name: "estimator",
            title: "what it takes to reckon with each frame that a radio hears, and to remember an access point",
            bed: Bed::Sim,
            goals: estimator::goals,
            prepare: nothing_to_prepare,
            run: estimator::run,
        },
        Benchmark {
            name: "upload",
            title: "uploads through 32 neighbours: the destination's time for each chunk, and memory for 1 GiB",
            bed: Bed::Sim,
            goals: upload::goals,
            prepare: nothing_to_prepare,
            run: upload::run,
        },
        Benchmark {
            name: "upload-programs",
            title: "memory of accept, share and upload, for 1 GiB through 32 neighbours",
            bed: Bed::Netns,
            goals: upload_programs::goals,
            prepare: nothing_to_prepare,
            run: upload_programs::run,
        },
        Benchmark {
            name: "gap",
            title: "what a download feels when the busiest network goes away and comes back",
            bed: Bed::Vm,
            goals: gap::goals,
            prepare: nothing_to_prepare,
            run: gap::run,
        },
    ]
}

/// Runs benchmarks and keeps their results. The exit code is 1 if a goal was missed.
///
/// # Errors
/// If a name is not a benchmark's, something that one needs is missing, or one fails.
pub fn run(options: &BenchOptions) -> anyhow::Result<ExitCode> {
    let effort = if options.quick { Effort::Quick } else { Effort::Full };
    let chosen = select(&options.names)?;
    if options.list {
        for benchmark in &chosen {
            println!("{:<16} {:<6} {}", benchmark.name, benchmark.bed.to_string(), benchmark.title);
        }
        return Ok(ExitCode::SUCCESS);
    }
    match options.stage {
        Some(Stage::Enter) => Err(isolation::enter(&inside_arguments(&chosen, effort)?)),
        Some(Stage::Inside) => measure_inside(&chosen, effort),
        None => run_all(&chosen, effort, options),
    }
}

fn select(names: &[String]) -> anyhow::Result<Vec<Benchmark>> {
    for name in names {
        let exists = benchmarks().iter().any(|benchmark| benchmark.name == *name);
        let all = benchmarks().map(|benchmark| benchmark.name).join(", ");
        anyhow::ensure!(exists, "there is no benchmark {name:?}; there are {all}");
    }
    let is_chosen =
        |benchmark: &Benchmark| names.is_empty() || names.iter().any(|name| name == benchmark.name);
    Ok(benchmarks().into_iter().filter(is_chosen).collect())
}

fn run_all(chosen: &[Benchmark], effort: Effort, options: &BenchOptions) -> anyhow::Result<ExitCode> {
    for benchmark in chosen {
        (benchmark.prepare)().with_context(|| format!("prepare {}", benchmark.name))?;
    }
    let mut records = Vec::new();
    for benchmark in chosen {
        let conditions = Conditions::now();
        eprintln!("{}: {} (bed {}) ...", benchmark.name, benchmark.title, benchmark.bed);
        let metrics = match benchmark.bed {
            Bed::Netns => measure_isolated(benchmark, effort),
            Bed::Sim | Bed::Vm => (benchmark.run)(effort),
        };
        let metrics = metrics.with_context(|| format!("run the benchmark {}", benchmark.name))?;
        let record = BenchmarkRecord::new(benchmark, metrics, conditions);
        print!("{record}");
        if effort == Effort::Full {
            // At once: a later benchmark that fails takes no result along.
            result::keep(&results_directory()?, std::slice::from_ref(&record))?;
        }
        records.push(record);
    }
    match options.json.as_deref() {
        Some(path) if path == Path::new("-") => print!("{}", result::to_json(&records)?),
        Some(path) => std::fs::write(path, result::to_json(&records)?)
            .with_context(|| format!("write {}", path.display()))?,
        None => {}
    }
    let is_met = records.iter().all(|record| record.verdict == Verdict::Met);
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures in a child of this process, which ends with its namespaces and all that runs in them.
fn measure_isolated(benchmark: &Benchmark, effort: Effort) -> anyhow::Result<Metrics> {
    let own = std::env::current_exe().context("find this program's file")?;
    let mut command = Command::new(own);
    command.args(["bench", benchmark.name, "--stage", "enter"]);
    if effort == Effort::Quick {
        command.arg("--quick");
    }
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .context("start this program again in namespaces")?;
    anyhow::ensure!(output.status.success(), "it failed inside its namespaces ({})", output.status);
    serde_json::from_slice(&output.stdout).context("read its figures")
}

fn inside_arguments(chosen: &[Benchmark], effort: Effort) -> anyhow::Result<Vec<OsString>> {
    let [benchmark] = chosen else { bail!("one benchmark runs inside at a time") };
    let mut arguments = vec!["bench", benchmark.name, "--stage", "inside"];
    if effort == Effort::Quick {
        arguments.push("--quick");
    }
    Ok(arguments.into_iter().map(OsString::from).collect())
}

fn measure_inside(chosen: &[Benchmark], effort: Effort) -> anyhow::Result<ExitCode> {
    let [benchmark] = chosen else { bail!("one benchmark runs inside at a time") };
    isolation::settle()?;
    // The numbers of the processes that are measured are those of the namespace.
    mount("proc", "/proc", "proc", MountFlags::empty(), None)
        .context("mount /proc for the processes of the benchmark")?;
    let metrics = (benchmark.run)(effort)?;
    println!("{}", serde_json::to_string(&metrics).context("write the figures")?);
    Ok(ExitCode::SUCCESS)
}

/// The value in the middle, or the mean of the two there.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    let lower = if sorted.len().is_multiple_of(2) { *sorted.get(half.checked_sub(1)?)? } else { upper };
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_those_that_are() {
        let Err(error) = select(&["throughput".to_owned(), "speed".to_owned()]) else {
            panic!("it was taken");
        };
        assert!(error.to_string().contains("\"speed\"") && error.to_string().contains("ping-under-load"));
        assert_eq!(select(&[]).unwrap().len(), benchmarks().len());
    }

    #[test]
    fn every_benchmark_has_goals() {
        for benchmark in benchmarks() {
            assert!(!(benchmark.goals)().is_empty(), "{}", benchmark.name);
        }
    }
}
