//! Direct mode beside plain routing: bulk TCP and new connections over one cable without a limit, in turns; and how long
//! a change of weights takes, in the kernel's table and in the policy.
//!
//! Three beds, each with namespaces of its own: one without a daemon, one where nftables alone leads flows out directly
//! (`nft`), since there is a rule, and one as it is without rules, where the kernel chooses at `connect` by BPF if it can
//! (`fast`). Only ratios of one round are compared ([`super::ways`]).

use super::Effort;
use super::ways::{PLAIN, Sample, Way, record, rounds};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{ChildProcess, DirectDevice, GATEWAY_ADDRESS, NetBed};
use crate::simbed::quantile;
use crate::traffic::{ConnectReport, ExchangeReport, Report};
use anyhow::Context;
use linux::direct::Direct;
use policy::network::{PowerSupply, RttSummary};
use policy::rules::Dscp;
use policy::{ChoiceSettings, FlowClass, NetworkInput, NetworkPolicy};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use units::{BitRate, NetworkId, Timestamp};

/// The cases of bulk flows: name, number, device sends.
const CASES: [(&str, u32, bool); 4] =
    [("down-1", 1, false), ("down-4", 4, false), ("up-1", 1, true), ("up-4", 4, true)];
const SERVE_PORT: u16 = 9_000;
const ACCEPT_PORT: u16 = 9_001;
const ECHO_PORT: u16 = 9_002;
const START_PATIENCE: Duration = Duration::from_secs(10);
/// What bulk flows are to keep of plain routing's rate, by nftables alone and with the BPF fast path.
const BULK_GOALS: [(&str, f64); 2] = [("nft", 0.79), ("fast", 0.90)];
/// What new connections a second are to keep by the way that runs unless there are rules, which is BPF where the kernel has it. What
/// nftables alone keeps is recorded beside it.
const CONNECTIONS_GOAL: (&str, f64) = ("fast", 0.95);

pub(super) fn goals() -> Vec<Goal> {
    let mut goals = Vec::new();
    for (way, bulk) in BULK_GOALS {
        let bulk = CASES.iter().map(|(case, _, _)| Goal::at_least(format!("{case}.{way}_over_plain"), bulk));
        goals.extend(bulk);
    }
    let (way, connections) = CONNECTIONS_GOAL;
    goals.push(Goal::at_least(format!("connections.{way}_over_plain"), connections));
    goals.push(Goal::at_most("reweighting.median_ms", 50.0));
    goals.push(Goal::at_most("reweighting-64.median_ms", 50.0));
    goals.push(Goal::at_most("policy.median_ms", 1.0));
    goals
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let (times, seconds, repeats) = match effort {
        Effort::Quick => (1, 1.0, 5),
        Effort::Full => (15, 1.0, 100),
    };
    let beds = [NetBed::unshaped(1)?, NetBed::unshaped(1)?, NetBed::unshaped(1)?];
    let [plain, nft, fast] = &beds;
    let (mut by_nft, mut by_bpf) = (DirectDevice::start(nft, true)?, DirectDevice::start(fast, false)?);
    let mut ways = vec![(PLAIN, plain), ("nft", nft)];
    // Where the kernel refuses it there are no figures of it, and its goals are not met.
    if by_bpf.has_fast_path() {
        ways.push(("fast", fast));
    }
    let mut metrics = Metrics::new();
    let duty = Duty { times, seconds };
    duty.bulk(&mut metrics, &ways)
        .and_then(|()| duty.connections(&mut metrics, &ways))
        .and_then(|()| duty.datagrams(&mut metrics, &ways))
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

/// How often and how long each way is measured.
struct Duty {
    times: u32,
    seconds: f64,
}

/// A way to lead flows out, and the bed where it is set up.
type Beds<'a> = [(&'static str, &'a NetBed)];

impl Duty {
    fn bulk(&self, metrics: &mut Metrics, beds: &Beds<'_>) -> anyhow::Result<()> {
        let ways = with_servers(beds, "serve", SERVE_PORT)?;
        let target = target(SERVE_PORT);
        for (case, flows, upload) in CASES {
            let arguments = |seconds: f64| -> Vec<String> {
                let text = format!("fetch {target} --flows {flows} --seconds {seconds}");
                let upload = upload.then_some("--upload");
                text.split(' ').chain(upload).map(str::to_owned).collect()
            };
            for way in &ways {
                // The first packets find buffers small and caches cold.
                way.run::<Report>(&arguments(0.3))?;
            }
            let samples = rounds(case, &ways, self.times, |way| {
                let (report, spent) = way.run::<Report>(&arguments(self.seconds))?;
                anyhow::ensure!(report.bytes > 0 && report.intact, "no bytes came through, or wrong ones");
                Ok(Sample { rate: report.goodput_mbps / 1e3, cost: spent / report.bytes as f64 })
            })?;
            record(metrics, case, "gbps", &samples)?;
        }
        Ok(())
    }

    fn connections(&self, metrics: &mut Metrics, beds: &Beds<'_>) -> anyhow::Result<()> {
        let ways = with_servers(beds, "accept", ACCEPT_PORT)?;
        let arguments = self.arguments("connect", ACCEPT_PORT);
        let samples = rounds("connections", &ways, self.times, |way| {
            let (report, spent) = way.run::<ConnectReport>(&arguments)?;
            anyhow::ensure!(report.failed == 0, "{} of {} connections failed", report.failed, report.made);
            Ok(Sample { rate: report.made as f64 / report.seconds, cost: spent / report.made as f64 })
        })?;
        record(metrics, "connections", "a_second", &samples)
    }

    /// Small packets of one UDP flow, which nftables leads out in any case.
    fn datagrams(&self, metrics: &mut Metrics, beds: &Beds<'_>) -> anyhow::Result<()> {
        let ways = with_servers(beds, "echo", ECHO_PORT)?;
        let arguments = self.arguments("exchange", ECHO_PORT);
        let samples = rounds("datagrams", &ways, self.times, |way| {
            let (report, spent) = way.run::<ExchangeReport>(&arguments)?;
            let packets = report.exchanged as f64;
            Ok(Sample { rate: packets / report.seconds, cost: spent / packets })
        })?;
        record(metrics, "datagrams", "a_second", &samples)
    }

    fn arguments(&self, what: &str, port: u16) -> Vec<String> {
        let text = format!("{what} {} --seconds {}", target(port), self.seconds);
        text.split(' ').map(str::to_owned).collect()
    }
}

fn target(port: u16) -> SocketAddr {
    SocketAddr::from((GATEWAY_ADDRESS, port))
}

/// Each way with `traffic WHAT` at its other end.
fn with_servers<'a>(beds: &Beds<'a>, what: &str, port: u16) -> anyhow::Result<Vec<Way<'a>>> {
    let lab = std::env::current_exe().context("find this program's file")?;
    // Answers to UDP packets come from the address on which the server listens.
    let listen = target(port).to_string();
    let start = |(name, bed): &(&'static str, &'a NetBed)| {
        let mut server = ChildProcess::start(&bed.gateway, lab.as_os_str(), &["traffic", what, &listen])?;
        server.wait_until("it must be reached from the device", START_PATIENCE, || {
            bed.device.run(|| is_reached(what, port)).unwrap_or(false)
        })?;
        Ok(Way { name, bed, server })
    };
    beds.iter().map(start).collect()
}

fn is_reached(what: &str, port: u16) -> bool {
    let patience = Duration::from_secs(1);
    if what != "echo" {
        return std::net::TcpStream::connect_timeout(&target(port), patience).is_ok();
    }
    let exchange = || {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(patience))?;
        socket.connect(target(port))?;
        socket.send(&[0])?;
        socket.recv(&mut [0])
    };
    exchange().is_ok()
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
        direct.reload(0).context("replace the table")?;
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
                "v4": {"gateway": format!("10.40.{number}.1")}, "v6": null, "mtu": 1500,
            })
        })
        .collect();
    let dealt: Vec<u32> =
        (0..u32::from(slots)).map(|slot| (slot * slot + round) % u32::from(networks) + 1).collect();
    let code_points = Dscp::REAL_TIME.map(Dscp::get);
    let value = serde_json::json!({
        "own_mark": 0xab51,
        "interface": "any0", "addresses": ["10.255.86.1"], "table": 43_857, "near": [], "neighbourly": [],
        "forwarding": false,
        "ecn": false,
        "exits": exits,
        "real_time": {"code_points": code_points, "services": []},
        "choices": [{"v4": dealt, "v6": [], "best": {"v4": 1, "v6": null}}], "rules": [], "otherwise": {"leave": 0},
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
    fn tables_are_such_as_root_takes_and_differ_from_round_to_round() {
        for (networks, slots) in [(2, 64), (64, 256)] {
            let [one, other] = [0, 1].map(|round| table(networks, slots, round).unwrap());
            assert!(one.check().is_ok() && one != other);
            assert_eq!(one.exits.len(), usize::from(networks));
        }
    }
}
