//! Experiments: what is run, what it should show, and what it showed.

mod at_once;
mod bond_family;
mod bond_trials;
mod coupled;
mod direct_laboratory;
mod failover;
mod fairness;
mod juggler;
mod linkalike;
mod multiap;
mod record;
mod registry;
mod seeds;
mod vconn;
mod verdict;
mod vif;

pub use linkalike::{OneNeighbourhood, bound_table};
pub use record::{Record, experiments_directory, kept_record, read_record, write_record};
pub use registry::{find, registry};
pub use seeds::{SeedRun, SeededReport, run_seeds, spread};
pub use verdict::{Bound, Goal, Verdict, verdict};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Where an experiment runs.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Bed {
    /// Pure crates under a virtual clock.
    Sim,
    /// Real processes in network namespaces, real time.
    Netns,
    /// A virtual machine in virtual time.
    Vm,
}

impl fmt::Display for Bed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sim => "sim",
            Self::Netns => "netns",
            Self::Vm => "vm",
        })
    }
}

/// Family and name of an experiment: `BOND/equal`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExperimentId {
    /// The family, in capitals.
    pub key: String,
    /// The name within the family.
    pub name: String,
}

/// A text is not an experiment's id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not KEY/NAME of an experiment; \"anabranch lab list\" shows all")]
pub struct NotAnExperimentId(String);

impl FromStr for ExperimentId {
    type Err = NotAnExperimentId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
        };
        let (key, name) = text
            .split_once('/')
            .filter(|(key, name)| {
                plain(key) && plain(name) && !name.starts_with('.') && !key.starts_with('.')
            })
            .ok_or_else(|| NotAnExperimentId(text.to_owned()))?;
        Ok(Self { key: key.to_owned(), name: name.to_owned() })
    }
}

impl TryFrom<String> for ExperimentId {
    type Error = NotAnExperimentId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ExperimentId> for String {
    fn from(id: ExperimentId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for ExperimentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.key, self.name)
    }
}

/// Figures by name; names are lower case, parts joined by dots.
pub type Metrics = BTreeMap<String, f64>;

/// What a run gave.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The figures.
    pub metrics: Metrics,
    /// Lines for the plot: name, then (seconds, value), or what [`Experiment::axes`] says.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
    /// The run does not count, and why.
    pub void: Option<String>,
}

/// The axes of an experiment's lines.
#[derive(Clone, Copy, Default, Debug)]
pub struct Axes {
    /// What they are drawn over; seconds if it is not said.
    pub over: Option<&'static str>,
    /// Unit of their values; the experiment's if it is not said.
    pub unit: Option<&'static str>,
}

/// A way to run an experiment on one bed with a seed.
pub type Runner = Box<dyn Fn(Bed, u64) -> anyhow::Result<Report> + Send + Sync>;

/// One experiment.
pub struct Experiment {
    /// Its id.
    pub id: ExperimentId,
    /// One line about what it shows.
    pub title: String,
    /// What it runs, in the words of its spec file (TOML).
    pub spec: toml::Table,
    /// The figure of the paper that it repeats.
    pub paper: Option<String>,
    /// What it should show.
    pub goals: Vec<Goal>,
    /// Beds on which it runs; the first is the usual one.
    pub beds: Vec<Bed>,
    /// Bars of its plot: groups and, in each, the metric of each bar.
    pub bars: Vec<BarGroup>,
    /// Unit of bars and lines.
    pub unit: &'static str,
    /// What its lines are drawn over.
    pub axes: Axes,
    /// Runs it.
    pub runner: Runner,
}

impl Experiment {
    /// With how many seeds a verdict on `bed` is taken: several where time is virtual and a run costs seconds.
    pub fn seeds(&self, bed: Bed) -> u64 {
        if bed == Bed::Sim { SIMULATED_SEEDS } else { 1 }
    }
}

/// A simulated run is one of many that could have been.
const SIMULATED_SEEDS: u64 = 3;

/// A group of bars: its label and (label of the bar, metric).
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// Below the group.
    pub label: String,
    /// Legend entry and metric of each bar.
    pub bars: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain() {
        let id: ExperimentId = "BOND/loss-0.5".parse().unwrap();
        assert_eq!((id.key.as_str(), id.name.as_str()), ("BOND", "loss-0.5"));
        for bad in ["BOND", "BOND/", "/equal", "BOND/../x", "BOND/a/b", "../a"] {
            assert!(bad.parse::<ExperimentId>().is_err(), "{bad}");
        }
    }
}
