//! What two policies made of the same record.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use units::Bytes;

use super::{Carried, Decisions, FlowDecision, Over};
use crate::Treatment;

/// How two sets of decisions about the same record differ. `Display` sums it up for a person.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Difference {
    /// Flows that were compared.
    pub flows: usize,
    /// Those that got another treatment or network, in the order of the record.
    pub changes: Vec<Change>,
    /// What each network carried alone, before and after, by name.
    pub networks: BTreeMap<String, (Carried, Carried)>,
}

/// One flow that got something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The flow's number in the record.
    pub flow: u64,
    /// What it moved.
    pub bytes: Bytes,
    /// Treatment and carrier before.
    pub before: (Treatment, Over),
    /// The same after.
    pub after: (Treatment, Over),
    /// Why, after.
    pub why: String,
}

/// Compares decisions about the same record, flow by flow.
pub fn difference(before: &Decisions, after: &Decisions) -> Difference {
    let kept = |decision: &FlowDecision| (decision.treatment, decision.over.clone());
    let pairs = before.flows.iter().zip(&after.flows);
    let changes = pairs
        .filter(|(before, after)| kept(before) != kept(after))
        .map(|(before, after)| Change {
            flow: after.flow,
            bytes: after.bytes,
            before: kept(before),
            after: kept(after),
            why: after.why.clone(),
        })
        .collect();
    let names: BTreeSet<&String> = before.networks.keys().chain(after.networks.keys()).collect();
    let carried =
        |decisions: &Decisions, name: &String| decisions.networks.get(name).copied().unwrap_or_default();
    let networks =
        names.into_iter().map(|name| (name.clone(), (carried(before, name), carried(after, name)))).collect();
    Difference { flows: before.flows.len().min(after.flows.len()), changes, networks }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{} of {} flows would have gone another way.", self.changes.len(), self.flows)?;
        let mut ways: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for Change { before, after, bytes, .. } in &self.changes {
            let way = format!("{} over {} -> {} over {}", before.0, before.1, after.0, after.1);
            let (flows, sum) = ways.entry(way).or_default();
            *flows += 1;
            *sum = sum.saturating_add(bytes.0);
        }
        for (way, (flows, bytes)) in ways {
            writeln!(formatter, "  {way}: {flows} flows, {:.1} MB", bytes as f64 / 1e6)?;
        }
        for (name, (before, after)) in &self.networks {
            let megabytes = |carried: &Carried| carried.bytes.0 as f64 / 1e6;
            write!(formatter, "{name}: {:.1} MB -> {:.1} MB alone", megabytes(before), megabytes(after))?;
            if before.price > 0 || after.price > 0 {
                let (before, after) = (before.price as f64 / 1e3, after.price as f64 / 1e3);
                write!(formatter, ", price {before:.2} -> {after:.2}")?;
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}
