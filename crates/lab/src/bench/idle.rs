//! The processor time of a device and a gateway that keep two paths alive and carry nothing.

use super::Effort;
use super::accounting::{process_tree, processor_time};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{Bonded, NetBed};
use std::time::{Duration, Instant};

/// What is measured on start-up is not idleness.
const SETTLING: Duration = Duration::from_secs(10);

pub(super) fn goals() -> Vec<Goal> {
    ["device", "gateway"].map(|side| Goal::at_most(format!("{side}.processor_percent"), 0.1)).into()
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let length = Duration::from_secs(if effort == Effort::Quick { 5 } else { 120 });
    let bed = NetBed::unshaped(2)?;
    let mut bonded = Bonded::start(&bed)?;
    std::thread::sleep(SETTLING);
    let trees = [
        ("device", process_tree(bonded.device_process())?),
        ("gateway", process_tree(bonded.gateway_process())?),
    ];
    let start = Instant::now();
    let mut before = Vec::new();
    for (_, tree) in &trees {
        before.push(processor_time(tree)?);
    }
    std::thread::sleep(length);
    let mut metrics = Metrics::new();
    for ((side, tree), before) in trees.iter().zip(before) {
        let spent = processor_time(tree)?.saturating_sub(before);
        let percent = spent.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
        metrics.insert(format!("{side}.processor_percent"), percent);
    }
    bonded.stop();
    Ok(metrics)
}
