//! The VIF family: what the paper measured of a virtual interface over several cards, on shaped wired links, where the air
//! does not matter (`-wired`). All of it runs in the virtual machine with real programs and a real kernel.

mod aggregation;
mod handover;
mod overhead;

use super::record::RATE_SCALE;
use super::{Experiment, ExperimentId, Metrics, Report};
use crate::simbed::quantile;
use crate::traffic::Report as TrafficReport;
use crate::vm::Machine;
use crate::vm::direct::{Answers, DirectJob};
use crate::vm::measurement::Programs;
use anyhow::Context;

/// By what the paper's rates are multiplied: the virtual machine's processor carries everything.
const SCALE: f64 = 0.5;
/// What an 802.11g card carried in the paper, and what an 802.11b card carries, Mbit/s of its wired stand-in.
const FAST_MBPS: f64 = 24.0;
const SLOW_MBPS: f64 = 6.0;
/// The paper measured round trips of 1.73 ms.
const ROUND_TRIP_MS: u64 = 2;
/// "Many flows"; the paper does not say how many.
const MANY: u32 = 6;
/// A processor with less time left than this part of all may be what bounds a flow.
const LEAST_IDLE: f64 = 0.1;

/// The experiments of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = vec![overhead::experiment(), handover::experiment()];
    all.extend(aggregation::experiments());
    all
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "VIF".to_owned(), name: name.to_owned() }
}

/// Where the jobs of one experiment run, and what has come of them so far.
struct Laboratory {
    machine: Machine,
    programs: Programs,
    seed: u32,
    report: Report,
}

impl Laboratory {
    fn open(seed: u64) -> anyhow::Result<Self> {
        let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
        let seed = u32::try_from(seed % u64::from(u32::MAX))?;
        Ok(Self { machine, programs, seed, report: Report::default() })
    }

    /// Runs a job; the whole run is void if its processor was busy all the time.
    fn run(&mut self, name: &str, job: DirectJob) -> anyhow::Result<Answers> {
        let job = DirectJob { seed: self.seed, ..job };
        let answers =
            job.run(&self.machine, &self.programs).with_context(|| format!("the run \"{name}\""))?;
        let idle = answers.processor_idle;
        tracing::info!("{name}: processor idle {idle:.2}");
        self.put(&format!("{name}.processor_idle"), idle);
        if idle < LEAST_IDLE {
            self.report.void = Some(format!(
                "the processor was idle for {idle:.2} of \"{name}\" only: it, not the networks, was measured"
            ));
        }
        Ok(answers)
    }

    fn put(&mut self, metric: &str, value: f64) {
        self.report.metrics.insert(metric.to_owned(), (value * 1e4).round() / 1e4);
    }

    /// The metric, or not a number, which no goal accepts.
    fn metric(&self, metric: &str) -> f64 {
        self.report.metrics.get(metric).copied().unwrap_or(f64::NAN)
    }

    /// The goodput of some flows, also as a line of the plot.
    fn goodput(&mut self, answers: &Answers, file: &str, metric: &str) -> anyhow::Result<f64> {
        let report: TrafficReport = answers.read(file)?;
        anyhow::ensure!(report.intact, "bytes arrived that were not sent");
        self.put(metric, report.goodput_mbps);
        Ok(report.goodput_mbps)
    }
}

/// Puts median and worst of times, in milliseconds.
fn put_times(metrics: &mut Metrics, name: &str, times: &[f64]) {
    for (rank, fraction) in [("median_ms", 0.5), ("worst_ms", 1.0)] {
        if let Some(value) = quantile(times, fraction) {
            metrics.insert(format!("{name}.{rank}"), (value * 1e3).round() / 1e3);
        }
    }
}
