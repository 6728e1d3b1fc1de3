//! The VIF family: what the paper measured of a virtual interface over several cards, on shaped wired links, where the air
//! does not matter (`-wired`). All of it runs in the virtual machine with real programs and a real kernel.

mod aggregation;
mod energy;
mod handover;
mod overhead;

use super::{Experiment, ExperimentId};

/// By what the paper's rates are multiplied: the virtual machine's processor carries everything.
const SCALE: f64 = 0.5;
/// What an 802.11g card carried in the paper, and what an 802.11b card carries, Mbit/s of its wired stand-in.
const FAST_MBPS: f64 = 24.0;
const SLOW_MBPS: f64 = 6.0;
/// The paper measured round trips of 1.73 ms.
const ROUND_TRIP_MS: u64 = 2;
/// "Many flows"; the paper does not say how many.
const MANY: u32 = 6;

/// The experiments of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    let mut all = vec![overhead::experiment(), handover::experiment(), energy::experiment()];
    all.extend(aggregation::experiments());
    all
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "VIF".to_owned(), name: name.to_owned() }
}
