//! TCP through any0 and through wireguard-go, in turns, on cables without a limit.
//!
//! Both tunnels are up all the time, each in namespaces of its own; one carries the flows of the lab's
//! traffic program between device and gateway, the other idles. Only ratios of one round are compared, so
//! that whatever else the machine does concerns both.

use super::accounting::{process_tree, processor_time};
use super::wireguard::{GATEWAY_INNER, WireGuard};
use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{Bonded, ChildProcess, NetBed};
use crate::traffic::Report;
use anabranch::control::BlockingClient;
use anyhow::Context;
use linux::netns::Namespace;
use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

const PORT: u16 = 9_000;
/// The cases: name, number of flows, device sends.
const CASES: [(&str, u32, bool); 4] =
    [("down-1", 1, false), ("down-4", 4, false), ("up-1", 1, true), ("up-4", 4, true)];
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Which bench part of the goal: 1.5 times wireguard-go's throughput, less processor time a byte.
pub(super) fn goals() -> Vec<Goal> {
    CASES
        .iter()
        .flat_map(|(case, _, _)| {
            [
                Goal::at_least(format!("{case}.rate_over_wireguard_go"), 1.5),
                Goal::at_most(format!("{case}.processor_time_over_wireguard_go"), 1.0),
            ]
        })
        .collect()
}

/// A tunnel that can be measured.
pub(super) struct Lane<'a> {
    bed: &'a NetBed,
    target: SocketAddr,
    processes: Vec<u32>,
    _server: ChildProcess,
}

/// What one run of flows came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Thousand million bits a second.
    pub(super) gbps: f64,
    /// Processor seconds of the tunnel's processes on both sides for each thousand million bytes.
    pub(super) processor_seconds_per_gb: f64,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let (rounds, seconds) = match effort {
        Effort::Quick => (1, 1.0),
        Effort::Full => (5, 4.0),
    };
    let (our_bed, their_bed) = (NetBed::unshaped(1)?, NetBed::unshaped(1)?);
    let mut bonded = Bonded::start(&our_bed)?;
    let wireguard = WireGuard::start(&their_bed)?;
    let ours = Lane::through_any0(&our_bed, &bonded)?;
    let theirs = Lane::start(&their_bed, GATEWAY_INNER.into(), wireguard.processes())?;
    for lane in [&ours, &theirs] {
        // The first packets find buffers small and caches cold.
        lane.measure(1, false, 1.0).map_err(|error| bonded.explain(error))?;
    }
    let mut metrics = Metrics::new();
    for (case, flows, upload) in CASES {
        let mut samples = Vec::new();
        for round in 1..=rounds {
            let their = theirs.measure(flows, upload, seconds)?;
            let our = ours.measure(flows, upload, seconds).map_err(|error| bonded.explain(error))?;
            eprintln!("  {case} round {round}: {:.2} Gbit/s, wireguard-go {:.2}", our.gbps, their.gbps);
            samples.push((our, their));
        }
        record_case(&mut metrics, case, &samples)?;
    }
    drop((ours, theirs));
    bonded.stop();
    Ok(metrics)
}

fn record_case(metrics: &mut Metrics, case: &str, samples: &[(Sample, Sample)]) -> anyhow::Result<()> {
    let mut record = |name: &str, figure: &dyn Fn(&(Sample, Sample)) -> f64| -> anyhow::Result<()> {
        let values: Vec<f64> = samples.iter().map(figure).collect();
        metrics.insert(format!("{case}.{name}"), median(&values).context("no round was run")?);
        Ok(())
    };
    record("anabranch_gbps", &|(our, _)| our.gbps)?;
    record("wireguard_go_gbps", &|(_, their)| their.gbps)?;
    record("rate_over_wireguard_go", &|(our, their)| our.gbps / their.gbps)?;
    record("anabranch_processor_s_per_gb", &|(our, _)| our.processor_seconds_per_gb)?;
    record("wireguard_go_processor_s_per_gb", &|(_, their)| their.processor_seconds_per_gb)?;
    record("processor_time_over_wireguard_go", &|(our, their)| {
        our.processor_seconds_per_gb / their.processor_seconds_per_gb
    })
}

impl<'a> Lane<'a> {
    /// To the gateway's own address in the tunnel.
    pub(super) fn through_any0(bed: &'a NetBed, bonded: &Bonded) -> anyhow::Result<Self> {
        let client = BlockingClient::of_state(bonded.gateway_state()).context("reach the gateway")?;
        let addresses = client.status().context("ask the gateway for its address")?.addresses;
        let inner =
            addresses.into_iter().find(IpAddr::is_ipv4).context("the gateway has no inner address")?;
        let mut processes = process_tree(bonded.device_process())?;
        processes.extend(process_tree(bonded.gateway_process())?);
        Self::start(bed, inner, processes)
    }

    /// To this address of the gateway's, counting the processor time of `processes`.
    pub(super) fn start(bed: &'a NetBed, inner: IpAddr, processes: Vec<u32>) -> anyhow::Result<Self> {
        let lab = std::env::current_exe().context("find this program's file")?;
        let target = SocketAddr::new(inner, PORT);
        let mut server = ChildProcess::start(
            &bed.gateway,
            lab.as_os_str(),
            &["traffic", "serve", &format!("0.0.0.0:{PORT}")],
        )?;
        server.wait_until("it must be reached through the tunnel", START_PATIENCE, || {
            reaches(&bed.device, target)
        })?;
        Ok(Self { bed, target, processes, _server: server })
    }

    /// Runs flows for `seconds`.
    pub(super) fn measure(&self, flows: u32, upload: bool, seconds: f64) -> anyhow::Result<Sample> {
        let before = processor_time(&self.processes)?;
        let report = self.transfer(flows, upload, seconds)?;
        let spent = processor_time(&self.processes)?.saturating_sub(before);
        anyhow::ensure!(report.bytes > 0 && report.intact, "no bytes came through, or wrong ones");
        Ok(Sample {
            gbps: report.goodput_mbps / 1e3,
            processor_seconds_per_gb: spent.as_secs_f64() * 1e9 / report.bytes as f64,
        })
    }

    fn transfer(&self, flows: u32, upload: bool, seconds: f64) -> anyhow::Result<Report> {
        let lab = std::env::current_exe().context("find this program's file")?;
        let mut command = self.bed.device.command(lab).context("enter the device's namespace")?;
        command.args(["traffic", "fetch", &self.target.to_string(), "--flows", &flows.to_string()]);
        command.args(["--seconds", &seconds.to_string()]);
        if upload {
            command.arg("--upload");
        }
        let output = command.stdin(Stdio::null()).output().context("start the flows")?;
        anyhow::ensure!(
            output.status.success(),
            "the flows failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("read the report on the flows")
    }
}

fn reaches(device: &Namespace, target: SocketAddr) -> bool {
    let connect = || std::net::TcpStream::connect_timeout(&target, Duration::from_secs(1)).is_ok();
    device.run(connect).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_one_by_one() {
        let sample = |gbps, cost| Sample { gbps, processor_seconds_per_gb: cost };
        // A machine that slows down to a half from round to round: each round says twice as fast.
        let rounds: Vec<_> =
            [1.0, 0.5, 0.25].map(|part| (sample(4.0 * part, 1.0), sample(2.0 * part, 4.0))).into();
        let mut metrics = Metrics::new();
        record_case(&mut metrics, "down-1", &rounds).unwrap();
        assert_eq!(metrics["down-1.rate_over_wireguard_go"], 2.0);
        assert_eq!(metrics["down-1.processor_time_over_wireguard_go"], 0.25);
        assert_eq!(metrics["down-1.anabranch_gbps"], 2.0);
        for goal in goals().iter().filter(|goal| goal.metric.starts_with("down-1.")) {
            assert!(metrics.contains_key(&goal.metric), "{}", goal.metric);
        }
    }
}
