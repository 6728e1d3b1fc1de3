//! All experiments, family by family.

use super::{
    Experiment, ExperimentId, bond_family, coupled, failover, fairness, juggler, linkalike, multiap, vconn,
    vif,
};
use std::collections::BTreeSet;

/// Every experiment of the lab, in the order in which it lists and runs them.
pub fn registry() -> Vec<Experiment> {
    let mut all = bond_family::experiments();
    all.push(failover::experiment());
    all.push(fairness::experiment());
    all.push(coupled::experiment());
    all.extend(vif::experiments());
    all.extend(juggler::experiments());
    all.extend(multiap::experiments());
    all.extend(linkalike::experiments());
    all.extend(vconn::experiments());
    all
}

/// The experiment called `id`.
///
/// # Errors
/// If there is none; the message names the nearest family's members.
pub fn find(id: &ExperimentId) -> anyhow::Result<Experiment> {
    let all = registry();
    let family: Vec<String> = all
        .iter()
        .filter(|experiment| experiment.id.key == id.key)
        .map(|experiment| experiment.id.name.clone())
        .collect();
    let hint = if family.is_empty() {
        let families: BTreeSet<&str> = all.iter().map(|experiment| experiment.id.key.as_str()).collect();
        format!("the families are {}", families.into_iter().collect::<Vec<_>>().join(", "))
    } else {
        format!("{} has {}", id.key, family.join(", "))
    };
    all.into_iter().find(|experiment| experiment.id == *id).ok_or_else(|| {
        anyhow::anyhow!("there is no experiment {id}: {hint}; \"anabranch lab list\" shows all")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_goals_are_there() {
        let all = registry();
        let ids: BTreeSet<_> = all.iter().map(|experiment| experiment.id.clone()).collect();
        assert_eq!(ids.len(), all.len());
        for experiment in &all {
            assert!(!experiment.goals.is_empty(), "{} has no goal", experiment.id);
            assert!(!experiment.beds.is_empty(), "{} runs nowhere", experiment.id);
            assert!(find(&experiment.id).is_ok());
        }
    }
}
