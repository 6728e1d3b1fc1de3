//! Round trips through any0, idle and beside a download that fills all paths, over pairs of steady networks
//! in the virtual machine: real programs and kernel, virtual time.

use super::Effort;
use crate::experiment::{Goal, Metrics};
use crate::vm::Machine;
use crate::vm::measurement::{Arrangement, Measurement, Programs};
use anyhow::Context;
use sim::NetworkSpec;
use std::time::Duration;

/// The pairs: name, and rate in Mbit/s and round trip in ms of each network.
const PAIRS: [(&str, [(f64, u64); 2]); 2] =
    [("alike", [(20.0, 20), (20.0, 20)]), ("unlike", [(30.0, 20), (10.0, 60)])];
const MOST_ADDED_MS: f64 = 20.0;

pub(super) fn goals() -> Vec<Goal> {
    PAIRS.map(|(pair, _)| Goal::at_most(format!("{pair}.added_p99_ms"), MOST_ADDED_MS)).into()
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let machine = Machine::find()?;
    let programs = Programs::beside_this_one()?;
    let length = Duration::from_secs(if effort == Effort::Quick { 5 } else { 30 });
    let mut metrics = Metrics::new();
    for (pair, networks) in PAIRS {
        let [first, second] = networks;
        let networks = vec![
            NetworkSpec::symmetric("first", first.0, first.1),
            NetworkSpec::symmetric("second", second.0, second.1),
        ];
        let measurement =
            Measurement { length, ping: true, ..Measurement::new(networks, Arrangement::Tunnel) };
        let measured =
            measurement.run(&machine, &programs).with_context(|| format!("measure the pair {pair}"))?;
        let idle = measured.idle_ping.context("no idle ping was measured")?;
        let loaded = measured.loaded_ping.context("no ping was measured beside the download")?;
        for (name, value) in [
            ("idle_p99_ms", idle.p99_milliseconds),
            ("loaded_p50_ms", loaded.p50_milliseconds),
            ("loaded_p99_ms", loaded.p99_milliseconds),
            ("added_p99_ms", loaded.p99_milliseconds - idle.p99_milliseconds),
            ("lost_pings", (loaded.sent - loaded.received) as f64),
            ("goodput_mbps", measured.report.goodput_mbps),
            ("guest_idle", measured.guest_idle),
        ] {
            metrics.insert(format!("{pair}.{name}"), value);
        }
    }
    Ok(metrics)
}
