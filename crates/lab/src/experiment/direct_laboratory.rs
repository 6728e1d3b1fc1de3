//! Where the experiments of direct mode run: one virtual machine after the other, and what has come of them so far.

use super::{Metrics, Report};
use crate::simbed::quantile;
use crate::traffic::Report as TrafficReport;
use crate::vm::direct::{Answers, DirectJob, Way};
use crate::vm::measurement::Programs;
use crate::vm::{Job, Machine};
use anyhow::Context;

/// A processor with less time left than this part of all may be what bounds a flow.
const LEAST_IDLE: f64 = 0.1;

/// How the device reaches its networks where an experiment has both kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Links {
    /// By shaped cables.
    Wired,
    /// By access points and simulated radios.
    Air,
}

impl Links {
    /// What the experiment `name` is called with them.
    pub(super) fn of(self, name: &str) -> String {
        match self {
            Self::Wired => format!("{name}-wired"),
            Self::Air => name.to_owned(),
        }
    }
}

/// A run of one experiment.
pub(super) struct Laboratory {
    machine: Machine,
    programs: Programs,
    seed: u32,
    pub(super) report: Report,
}

impl Laboratory {
    pub(super) fn open(seed: u64) -> anyhow::Result<Self> {
        let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
        let seed = u32::try_from(seed % u64::from(u32::MAX))?;
        Ok(Self { machine, programs, seed, report: Report::default() })
    }

    /// Runs a job; the whole run is void if its processor was busy all the time.
    pub(super) fn run(&mut self, name: &str, job: DirectJob) -> anyhow::Result<Answers> {
        let job = DirectJob { seed: self.seed, ..job };
        let answers =
            job.run(&self.machine, &self.programs).with_context(|| format!("the run \"{name}\""))?;
        self.look_at_processor(name, &answers);
        if job.way == Way::Direct
            && let Some(is_fast) = answers.has_fast_path()
        {
            self.put(&format!("{name}.fast_path"), f64::from(u8::from(is_fast)));
        }
        Ok(answers)
    }

    /// The same with a job that builds everything itself and has both programs.
    pub(super) fn run_job(&mut self, name: &str, mut job: Job) -> anyhow::Result<Answers> {
        job.seed = self.seed;
        job.programs.extend([self.programs.lab.clone(), self.programs.anabranch()?]);
        let answers = self.machine.run(&job).map_err(anyhow::Error::from).and_then(Answers::of);
        let answers = answers.with_context(|| format!("the run \"{name}\""))?;
        self.look_at_processor(name, &answers);
        Ok(answers)
    }

    fn look_at_processor(&mut self, name: &str, answers: &Answers) {
        let idle = answers.processor_idle;
        tracing::info!("{name}: processor idle {idle:.2}");
        self.put(&format!("{name}.processor_idle"), idle);
        if let Some(reason) = answers.air.as_ref().and_then(|air| air.void.as_ref()) {
            self.report.void = Some(format!("the air of \"{name}\" does not count: {reason}"));
        }
        if idle < LEAST_IDLE {
            self.report.void = Some(format!(
                "the processor was idle for {idle:.2} of \"{name}\" only: it, not the networks, was measured"
            ));
        }
    }

    pub(super) fn put(&mut self, metric: &str, value: f64) {
        self.report.metrics.insert(metric.to_owned(), (value * 1e4).round() / 1e4);
    }

    /// The metric, or not a number, which no goal accepts.
    pub(super) fn metric(&self, metric: &str) -> f64 {
        self.report.metrics.get(metric).copied().unwrap_or(f64::NAN)
    }

    /// Puts the goodput of some flows.
    pub(super) fn goodput(&mut self, answers: &Answers, file: &str, metric: &str) -> anyhow::Result<f64> {
        let report: TrafficReport = answers.read(file)?;
        anyhow::ensure!(report.intact, "bytes arrived that were not sent");
        self.put(metric, report.goodput_mbps);
        Ok(report.goodput_mbps)
    }
}

/// Puts median and worst of times, in milliseconds.
pub(super) fn put_times(metrics: &mut Metrics, name: &str, times: &[f64]) {
    for (rank, fraction) in [("median_ms", 0.5), ("worst_ms", 1.0)] {
        if let Some(value) = quantile(times, fraction) {
            metrics.insert(format!("{name}.{rank}"), (value * 1e3).round() / 1e3);
        }
    }
}
