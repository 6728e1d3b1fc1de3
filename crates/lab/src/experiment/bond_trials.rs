//! How the trials of a BOND experiment run on each bed.

use super::Bed;
use crate::netbed;
use crate::simbed::{Outcome, Trial};
use crate::vm;
use crate::vm::measurement::Programs;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What carries a trial's traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ride {
    /// What the trial's way says.
    OfTrial,
    /// The kernel's MPTCP over all networks; bed vm only.
    MultipathTcp,
}

/// A trial and the name under which its outcome is filed.
#[derive(Clone, Debug)]
pub(super) struct NamedTrial {
    pub(super) name: String,
    pub(super) ride: Ride,
    pub(super) trial: Trial,
}

/// How a bed runs a trial.
type TrialRunner = Box<dyn Fn(&NamedTrial) -> anyhow::Result<Outcome> + Sync>;

/// Runs the trials: in virtual time on all cores at once, in real time one after the other.
///
/// # Errors
/// If a trial cannot be run; the message names it.
pub(super) fn run_all(bed: Bed, trials: &[NamedTrial]) -> anyhow::Result<BTreeMap<String, Outcome>> {
    let run_one = runner(bed)?;
    let threads =
        if bed == Bed::Netns { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> anyhow::Result<()> {
        while let Some(named) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run_one(named).with_context(|| format!("the trial \"{}\"", named.name))?;
            let idle = outcome.processor_idle.map(|idle| format!(", processor idle {idle:.2}"));
            tracing::info!("{}: {:.2} Mbit/s{}", named.name, outcome.goodput_mbps, idle.unwrap_or_default());
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.insert(named.name.clone(), outcome);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a trial panicked"))?)
    })?;
    Ok(outcomes.into_inner().unwrap_or_default())
}

fn runner(bed: Bed) -> anyhow::Result<TrialRunner> {
    let elsewhere = || bail!("kernel MPTCP runs on the bed vm only");
    Ok(match bed {
        Bed::Sim => Box::new(move |named| match named.ride {
            Ride::OfTrial => named.trial.run(),
            Ride::MultipathTcp => elsewhere(),
        }),
        Bed::Netns => Box::new(move |named| match named.ride {
            Ride::OfTrial => netbed::trial::run(&named.trial),
            Ride::MultipathTcp => elsewhere(),
        }),
        Bed::Vm => {
            let (machine, programs) = (vm::Machine::find()?, Programs::beside_this_one()?);
            Box::new(move |named| match named.ride {
                Ride::OfTrial => vm::trial::run(&named.trial, &machine, &programs),
                Ride::MultipathTcp => vm::trial::run_multipath_tcp(&named.trial, &machine, &programs),
            })
        }
    })
}
