//! One long download in the virtual machine (real programs and kernel, virtual time), while the busiest of two
//! networks goes away and comes back twenty times: silently, or so that the kernel reports its link down.

use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use crate::simbed::quantile;
use crate::vm::Machine;
use crate::vm::measurement::Programs;
use crate::vm::outages::Outages;
use anyhow::Context;
use sim::NetworkSpec;

/// Rate in Mbit/s and round trip in ms. The device has to tell the gateway that a link is down, so no gap can be
/// shorter than the other network's round trip.
const BUSIEST: (f64, u64) = (10.0, 20);
const OTHER: (f64, u64) = (5.0, 20);

pub(super) fn goals() -> Vec<Goal> {
    vec![
        Goal::at_most("silent.median_gap_ms", 150.0 + OTHER.1 as f64),
        Goal::at_most("reported.median_gap_ms", 50.0),
        Goal::at_most("silent.worst_return_ms", 1_000.0),
        Goal::at_most("reported.worst_return_ms", 1_000.0),
    ]
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let machine = Machine::find()?;
    let programs = Programs::beside_this_one()?;
    let trials = if effort == Effort::Quick { 2 } else { 20 };
    let mut metrics = Metrics::new();
    metrics.insert("trials".to_owned(), f64::from(trials));
    let outages = Outages {
        leaving: NetworkSpec::symmetric("busiest", BUSIEST.0, BUSIEST.1),
        others: vec![NetworkSpec::symmetric("other", OTHER.0, OTHER.1)],
        trials,
        seed: 1,
    };
    for (kind, measured) in outages.run(&machine, &programs)? {
        for (name, values) in [("gap_ms", &measured.gaps), ("return_ms", &measured.returns)] {
            metrics.insert(format!("{kind}.median_{name}"), median(values).context("no trial was run")?);
            metrics
                .insert(format!("{kind}.worst_{name}"), quantile(values, 1.0).context("no trial was run")?);
        }
        metrics.insert(format!("{kind}.goodput_mbps"), measured.goodput_mbps);
        metrics.insert(format!("{kind}.guest_idle"), measured.guest_idle);
    }
    Ok(metrics)
}
