//! Memory: a device that carries as much as it can, and a gateway with a thousand clients that say nothing.

use super::Effort;
use super::accounting::{peak_resident_kb, peak_shared_once_kb, process_tree, resident_kb};
use super::crowd::Crowd;
use super::throughput::Lane;
use crate::experiment::{Goal, Metrics};
use crate::netbed::{Bonded, NetBed};
use anabranch::control::BlockingClient;
use anyhow::{Context, ensure};
use sim::NetworkSpec;
use std::time::Duration;

/// Paths are validated and measured in this time.
const SETTLING: Duration = Duration::from_secs(3);
const KB_PER_MB: f64 = 1e3;

pub(super) fn goals() -> Vec<Goal> {
    vec![
        Goal::at_most("device.unshaped_shared_once_mb", 25.0),
        Goal::at_most("device.shaped_shared_once_mb", 25.0),
        Goal::at_most("gateway.kb_per_client", 60.0),
    ]
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let (clients, seconds) = match effort {
        Effort::Quick => (100, 2.0),
        Effort::Full => (1_000, 20.0),
    };
    let mut metrics = Metrics::new();
    let mut load = |name: &str, bed: NetBed| -> anyhow::Result<()> {
        let [peak, shared_once] = loaded_device_mb(&bed, seconds)?;
        metrics.insert(format!("device.{name}_mb"), peak);
        metrics.insert(format!("device.{name}_shared_once_mb"), shared_once);
        Ok(())
    };
    load("unshaped", NetBed::unshaped(2)?)?;
    // Unlike delays: what has overtaken waits at the receiving end.
    let unlike = [NetworkSpec::symmetric("fast", 80.0, 20), NetworkSpec::symmetric("slow", 40.0, 120)];
    load("shaped", NetBed::build(&unlike, 1)?)?;
    metrics.insert("gateway.clients".to_owned(), clients as f64);
    metrics.insert("gateway.kb_per_client".to_owned(), gateway_kb_per_client(clients)?);
    Ok(metrics)
}

/// The most that all processes of the device held while flows ran either way, added up; and the same where what
/// they share counts once, which is what the machine misses.
fn loaded_device_mb(bed: &NetBed, seconds: f64) -> anyhow::Result<[f64; 2]> {
    let mut bonded = Bonded::start(bed)?;
    let lane = Lane::through_any0(bed, &bonded)?;
    for upload in [false, true] {
        lane.measure(8, upload, seconds).map_err(|error| bonded.explain(error))?;
    }
    let device = process_tree(bonded.device_process())?;
    let memory = [peak_resident_kb(&device)?, peak_shared_once_kb(&device)?];
    drop(lane);
    bonded.stop();
    Ok(memory.map(|kb| kb as f64 / KB_PER_MB))
}

fn gateway_kb_per_client(clients: usize) -> anyhow::Result<f64> {
    let bed = NetBed::unshaped(1)?;
    let mut bonded = Bonded::start(&bed)?;
    let gateway = process_tree(bonded.gateway_process())?;
    let control = BlockingClient::of_state(bonded.gateway_state()).context("reach the gateway")?;
    let before = resident_kb(&gateway)?;
    let mut crowd = Crowd::new()?;
    crowd.join(&bed, &control, clients)?;
    crowd.idle(SETTLING)?;
    // The device of the bed is a client, too.
    let connected = control.status().context("ask the gateway for its clients")?.connected_clients;
    ensure!(connected == Some(clients + 1), "{connected:?} clients are connected, not {}", clients + 1);
    let after = resident_kb(&gateway)?;
    bonded.stop();
    Ok(after.saturating_sub(before) as f64 / clients as f64)
}
