//! How the trials of a BOND experiment run on each bed.

use super::{Bed, at_once};
use crate::netbed;
use crate::simbed::{Outcome, Trial};
use crate::vm;
use crate::vm::measurement::Programs;
use anyhow::{Context, bail};
use std::collections::BTreeMap;

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
    let most = if bed == Bed::Netns { 1 } else { at_once::cores() };
    let outcomes = at_once::each(trials, most, |named| {
        let outcome = run_one(named).with_context(|| format!("the trial \"{}\"", named.name))?;
        let idle = outcome.processor_idle.map(|idle| format!(", processor idle {idle:.2}"));
        tracing::info!("{}: {:.2} Mbit/s{}", named.name, outcome.goodput_mbps, idle.unwrap_or_default());
        Ok((named.name.clone(), outcome))
    })?;
    Ok(outcomes.into_iter().collect())
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
