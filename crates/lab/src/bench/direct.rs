//! Direct mode beside plain routing: bulk TCP and new connections over one cable without a limit, in turns; and how long
//! a change of weights takes, in the kernel's table and in the policy.
//!
//! Three beds, each with namespaces of its own: one without a daemon, one where nftables alone leads flows out directly
//! (`nft`), since there is a rule, and one as it is without rules, where the kernel chooses at `connect` by BPF if it can
//! (`fast`). Only ratios of one round are compared.

use super::throughput::Lane;
use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{ChildProcess, DirectDevice, GATEWAY_ADDRESS, NetBed};
use crate::simbed::quantile;
use crate::traffic::ConnectReport;
use anyhow::Context;
use linux::direct::Direct;
use policy::network::{PowerSupply, RttSummary};
use policy::{ChoiceSettings, FlowClass, NetworkInput, NetworkPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::time::{Duration, Instant};
use units::{BitRate, NetworkId, Timestamp};

/// The cases of bulk flows: name, number, device sends.
const CASES: [(&str, u32, bool); 4] =
    [("down-1", 1, false), ("down-4", 4, false), ("up-1", 1, true), ("up-4", 4, true)];
const ACCEPT_PORT: u16 = 9_001;
const START_PATIENCE: Duration = Duration::from_secs(10);
/// What bulk flows are to keep of plain routing's rate, by nftables alone and with the BPF fast path.
const BULK_GOALS: [(&str, f64); 2] = [("nft", 0.79), ("fast", 0.90)];
/// What new connections a second are to keep, however they are led out.
const CONNECTIONS_GOAL: f64 = 0.95;

pub(super) fn goals() -> Vec<Goal> {
    let mut goals = Vec::new();
    for (way, bulk) in BULK_GOALS {
        let bulk = CASES.iter().map(|(case, _, _)| Goal::at_least(format!("{case}.{way}_over_plain"), bulk));
        goals.extend(bulk);
        goals.push(Goal::at_least(format!("connections.{way}_over_plain"), CONNECTIONS_GOAL));
    }
    goals.push(Goal::at_most("reweighting.median_ms", 50.0));
    goals.push(Goal::at_most("reweighting-64.median_ms", 50.0));
    goals.push(Goal::at_most("policy.median_ms", 1.0));
    goals
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let (rounds, seconds, repeats) = match effort {
        Effort::Quick => (1, 1.0, 5),
        Effort::Full => (5, 3.0, 100),
    };
    let beds = [NetBed::unshaped(1)?, NetBed::unshaped(1)?, NetBed::unshaped(1)?];
    let [plain, nft, fast] = &beds;
    let (mut by_nft, mut by_bpf) = (DirectDevice::start(nft, true)?, DirectDevice::start(fast, false)?);
    let mut ways = vec![("plain", plain), ("nft", nft)];
    // Where the kernel refuses it there are no figures of it, and its goals are not met.
    if by_bpf.has_fast_path() {
        ways.push(("fast", fast));
    }
    let mut metrics = Metrics::new();
    measure_bulk(&mut metrics, &ways, rounds, seconds)
        .and_then(|()| measure_connections(&mut metrics, &ways, rounds, seconds))
        .map_err(|error| by_nft.explain(by_bpf.explain(error)))?;
    by_nft.stop();
    by_bpf.stop();
    for (name, networks, slots) in [("reweighting", 2, 64), ("reweighting-64", 64, 256)] {
        let times = reweighting_times(nft, networks, slots, repeats)?;
        record_times(&mut metrics, name, &times)?;
    }
    record_times(&mut metrics, "policy", &evaluation_times(repeats * 10))?;
    Ok(metrics)
}

/// A way to lead flows out, and the bed where it is set up.
type Ways<'a> = [(&'static str, &'a NetBed)];

fn measure_bulk(metrics: &mut Metrics, ways: &Ways<'_>, rounds: u32, seconds: f64) -> anyhow::Result<()> {
    let target = IpAddr::V4(GATEWAY_ADDRESS);
    let mut lanes = Vec::new();
    for (name, bed) in ways {
        lanes.push((*name, Lane::start(bed, target, Vec::new())?));
    }
    for (_, lane) in &lanes {
        // The first packets find buffers small and caches cold.
        lane.measure(1, false, 1.0)?;
    }
    for (case, flows, upload) in CASES {
        let mut samples = Vec::new();
        for round in 1..=rounds {
            let measured =
                lanes.iter().map(|(name, lane)| Ok((*name, lane.measure(flows, upload, seconds)?.gbps)));
            samples.push(measured.collect::<anyhow::Result<Sample>>()?);
            eprintln!("  {case} round {round}: {:.2?} Gbit/s", samples.last());
        }
        record_ways(metrics, case, "gbps", &samples)?;
    }
    Ok(())
}

fn measure_connections(
    metrics: &mut Metrics,
    ways: &Ways<'_>,
    rounds: u32,
    seconds: f64,
) -> anyhow::Result<()> {
    let servers: anyhow::Result<Vec<ChildProcess>> = ways.iter().map(|(_, bed)| accepting(bed)).collect();
    let servers = servers?;
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let measured = ways.iter().map(|(name, bed)| Ok((*name, connections_a_second(bed, seconds)?)));
        samples.push(measured.collect::<anyhow::Result<Sample>>()?);
        eprintln!("  connections round {round}: {:.0?} a second", samples.last());
    }
    drop(servers);
    record_ways(metrics, "connections", "a_second", &samples)
}

fn accept_address() -> SocketAddr {
    SocketAddr::from((GATEWAY_ADDRESS, ACCEPT_PORT))
}

fn accepting(bed: &NetBed) -> anyhow::Result<ChildProcess> {
    let lab = std::env::current_exe().context("find this program's file")?;
    let arguments = ["traffic", "accept", &accept_address().to_string()];
    let mut server = ChildProcess::start(&bed.gateway, lab.as_os_str(), &arguments)?;
    let connect = || std::net::TcpStream::connect_timeout(&accept_address(), Duration::from_secs(1)).is_ok();
    server.wait_until("it must be reached from the device", START_PATIENCE, || {
        bed.device.run(connect).unwrap_or(false)
    })?;
    Ok(server)
}

fn connections_a_second(bed: &NetBed, seconds: f64) -> anyhow::Result<f64> {
    let lab = std::env::current_exe().context("find this program's file")?;
    let mut command = bed.device.command(lab).context("enter the device's namespace")?;
    command.args(["traffic", "connect", &accept_address().to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    let output = command.stdin(Stdio::null()).output().context("start the connections")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "the connections failed ({}): {}", output.status, said.trim());
    let report: ConnectReport =
        serde_json::from_slice(&output.stdout).context("read the report on the connections")?;
    anyhow::ensure!(report.failed == 0, "{} of {} connections failed", report.failed, report.made);
    Ok(report.made as f64 / report.seconds)
}

/// What each way came to in one round.
type Sample = BTreeMap<&'static str, f64>;

/// The median of each way, and of its ratios to plain routing in the same round.
fn record_ways(metrics: &mut Metrics, case: &str, unit: &str, samples: &[Sample]) -> anyhow::Result<()> {
    let ways: BTreeSet<&str> = samples.iter().flat_map(|sample| sample.keys().copied()).collect();
    for way in ways {
        let values: Vec<f64> = samples.iter().filter_map(|sample| sample.get(way).copied()).collect();
        metrics.insert(format!("{case}.{way}_{unit}"), median(&values).context("no round was run")?);
        if way == "plain" {
            continue;
        }
        let ratio = |sample: &Sample| Some(sample.get(way)? / sample.get("plain")?);
        let ratios: Vec<f64> = samples.iter().filter_map(ratio).collect();
        metrics.insert(format!("{case}.{way}_over_plain"), median(&ratios).context("no round was run")?);
    }
    Ok(())
}

fn record_times(metrics: &mut Metrics, name: &str, times: &[f64]) -> anyhow::Result<()> {
    for (rank, fraction) in [("median_ms", 0.5), ("p99_ms", 0.99), ("worst_ms", 1.0)] {
        let value = quantile(times, fraction).context("nothing was timed")?;
        metrics.insert(format!("{name}.{rank}"), value);
    }
    Ok(())
}

/// Milliseconds that each replacement of the kernel's table took, with other shares each time.
fn reweighting_times(bed: &NetBed, networks: u8, slots: u16, repeats: u32) -> anyhow::Result<Vec<f64>> {
    let time = |round: u32| -> anyhow::Result<f64> {
        let direct = table(networks, slots, round)?;
        let began = Instant::now();
        direct.reload().context("replace the table")?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    bed.device.run(|| (0..repeats).map(time).collect())?
}

/// A table as the daemon hands it to root. `round` shifts the shares.
fn table(networks: u8, slots: u16, round: u32) -> anyhow::Result<Direct> {
    let exits: Vec<serde_json::Value> = (1..=networks)
        .map(|number| {
            serde_json::json!({
                "number": number, "interface": format!("net{number}"), "index": null,
                "subnets": [format!("10.40.{number}.2/24")],
                "v4": {"gateway": format!("10.40.{number}.1")}, "v6": null,
            })
        })
        .collect();
    let dealt: Vec<u32> =
        (0..u32::from(slots)).map(|slot| (slot * slot + round) % u32::from(networks) + 1).collect();
    let value = serde_json::json!({
        "interface": "any0", "addresses": ["10.255.86.1"], "table": 43_857, "near": [], "exits": exits,
        "choices": [{"v4": dealt, "v6": []}], "rules": [], "otherwise": {"leave": 0},
    });
    serde_json::from_value(value).context("make a table")
}

/// Milliseconds of evaluations as they happen every 250 ms: 10,000 flows counted by network, shares, slots.
fn evaluation_times(repeats: u32) -> Vec<f64> {
    let flows: Vec<(u32, FlowClass)> = (0..FLOWS)
        .map(|flow| {
            let class = if flow % 4 == 0 { FlowClass::Bulk } else { FlowClass::Interactive };
            ((flow.wrapping_mul(2_654_435_761) >> 7) % NETWORKS, class)
        })
        .collect();
    let mut inputs: Vec<NetworkInput> = (0..NETWORKS)
        .map(|id| {
            let mut input = NetworkInput::new(NetworkId(id), format!("net{id}"));
            let smoothed = Duration::from_millis(u64::from(5 + id * 37 % 200));
            input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
            input.metrics.delivered = Some(BitRate(u64::from(1 + id * 53 % 90) * 1_000_000));
            input
        })
        .collect();
    let mut policy = NetworkPolicy::new(ChoiceSettings::default());
    (0..repeats)
        .map(|round| {
            let began = Instant::now();
            for input in &mut inputs {
                input.metrics.bulk_flows = 0;
            }
            for (network, class) in &flows {
                if let (FlowClass::Bulk, Some(input)) = (class, inputs.get_mut(*network as usize)) {
                    input.metrics.bulk_flows += 1;
                }
            }
            let now = Timestamp::ZERO + Duration::from_millis(250) * round;
            black_box(policy.evaluate(now, &inputs, PowerSupply::Mains).slots(SLOTS));
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect()
}

const NETWORKS: u32 = 64;
const FLOWS: u32 = 10_000;
const SLOTS: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_one_by_one() {
        let mut metrics = Metrics::new();
        let rounds =
            [(4.0, 5.0), (1.6, 2.0), (0.7, 1.0)].map(|(nft, plain)| [("nft", nft), ("plain", plain)].into());
        record_ways(&mut metrics, "down-1", "gbps", &rounds).unwrap();
        assert!((metrics["down-1.nft_over_plain"] - 0.8).abs() < 1e-9);
        assert_eq!((metrics["down-1.nft_gbps"], metrics["down-1.plain_gbps"]), (1.6, 2.0));
        assert_eq!(metrics.len(), 3);
    }

    #[test]
    fn tables_are_such_as_root_takes_and_differ_from_round_to_round() {
        for (networks, slots) in [(2, 64), (64, 256)] {
            let [one, other] = [0, 1].map(|round| table(networks, slots, round).unwrap());
            assert!(one.check().is_ok() && one != other);
            assert_eq!(one.exits.len(), usize::from(networks));
        }
    }
}
