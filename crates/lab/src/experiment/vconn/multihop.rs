//! VCONN/multihop: a connection between two that share no adapter, over four hops, and what it feels when a relay falls silent.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anabranch::blocking::Endpoint;
use anabranch::{Admission, ConnectOptions, EndpointOptions, Peer, Relaying, Relays};
use anyhow::Context;
use identity::KeyPair;
use linux::netns::Namespace;
use units::BitRate;

use super::id;
use super::wires::{Flow, milliseconds};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const TRIALS: usize = 10;
/// Machines: the ends are the first and the fifth, the others relay.
const MACHINES: usize = 8;
const FAR: usize = 4;
const CABLES: [(usize, usize); 8] = [(0, 1), (1, 2), (2, 3), (3, FAR), (0, 5), (5, 6), (6, 7), (7, FAR)];
const PORT: u16 = 4_700;
const HEALED_MS: f64 = 1_000.0;
const HOPS: f64 = 4.0;
/// IPv6 addresses are tried out by the kernel for a second or two before they serve (RFC 4862 section 5.4), and relays get to know each other.
const SETTLED: Duration = Duration::from_secs(4);
const SILENT: Duration = Duration::from_millis(2_500);
const REST: Duration = Duration::from_millis(2_000);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "machines".into(),
        "two ends that share no network, two ways of three relays each between them".into(),
    );
    spec.insert("trials".into(), (TRIALS as i64).into());
    spec.insert("traffic".into(), "4 Mbit/s, every byte checked".into());
    Experiment {
        id: id("multihop"),
        title:
            "a connection over four hops, and how long it pauses when a relay that carries it falls silent"
                .to_owned(),
        spec,
        paper: Some(
            "figure 1b: a third device relays between two that share no adapter; no figures".to_owned(),
        ),
        goals: vec![Goal::at_least("hops", HOPS), Goal::at_most("silent.worst_gap_ms", HEALED_MS)],
        beds: vec![Bed::Netns],
        bars: vec![BarGroup {
            label: "a relay falls silent".to_owned(),
            bars: ["median", "worst"].map(|rank| (rank.to_owned(), format!("silent.{rank}_gap_ms"))).to_vec(),
        }],
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(|_, _| run()),
    }
}

fn run() -> anyhow::Result<Report> {
    let machines = machines()?;
    let relays = (0..MACHINES)
        .filter(|at| ![0, FAR].contains(at))
        .map(|at| relay(machines.get(at).context("there is no such machine")?).map(|relay| (at, relay)));
    let relays: Vec<(usize, Endpoint)> = relays.collect::<anyhow::Result<_>>()?;
    let key = KeyPair::generate()?;
    let public = key.public();
    let options = EndpointOptions::listening(key, PORT, Admission::Anybody);
    let server = machines.get(FAR).context("there is no far end")?.run(|| Endpoint::bind(options))??;
    let listener = server.listen();
    let own = EndpointOptions::new(KeyPair::generate()?);
    let client = machines.first().context("there is no near end")?.run(|| Endpoint::bind(own))??;
    std::thread::sleep(SETTLED);
    let peer = Peer { key: public, addresses: server.asynchronous().addresses() };
    let start = Instant::now();
    let mut near = client.connect(&peer, &ConnectOptions::default())?;
    let set_up = start.elapsed();
    near.write_all(&[0])?;
    let mut far = listener.accept()?;
    far.read_exact(&mut [0])?;
    let flow = Flow::start(near, far, 2_000, Duration::from_millis(4));
    let mut gaps = Vec::new();
    let mut hops = usize::MAX;
    for _ in 0..TRIALS {
        let before = passed_on(&relays);
        std::thread::sleep(REST);
        let after = passed_on(&relays);
        let carrying: Vec<usize> = relays
            .iter()
            .zip(before.iter().zip(&after))
            .filter(|(_, (before, after))| *after > &(*before + 50))
            .map(|((at, _), _)| *at)
            .collect();
        hops = hops.min(carrying.len() + 1);
        let middle = *carrying.get(carrying.len() / 2).context("no relay carries")?;
        let machine = machines.get(middle).context("there is no such machine")?;
        flow.take_gap();
        silence(machine, true)?;
        std::thread::sleep(SILENT);
        gaps.push(flow.take_gap());
        silence(machine, false)?;
    }
    flow.finish()?;
    let mut metrics = Metrics::new();
    metrics.insert("hops".to_owned(), hops as f64);
    metrics.insert("set_up_ms".to_owned(), milliseconds(&[set_up], 1.0)?);
    for (rank, fraction) in [("median", 0.5), ("worst", 1.0)] {
        metrics.insert(format!("silent.{rank}_gap_ms"), milliseconds(&gaps, fraction)?);
    }
    Ok(Report { metrics, ..Report::default() })
}

/// Machines, with the cables of two ways of four hops between the ends.
fn machines() -> anyhow::Result<Vec<Namespace>> {
    let machines: Vec<Namespace> = (0..MACHINES)
        .map(|_| Namespace::anonymous())
        .collect::<Result<_, _>>()
        .context("make a network namespace")?;
    for machine in &machines {
        machine.set_up("lo", true)?;
    }
    for (number, (one, other)) in CABLES.iter().enumerate() {
        let (here, there) = (format!("to{other}"), format!("to{one}"));
        let ends = machines.get(*one).zip(machines.get(*other)).context("there is no such machine")?;
        ends.0.join(ends.1, &here, &there)?;
        for (machine, interface, host) in [(ends.0, &here, 1), (ends.1, &there, 2)] {
            machine.add_address(interface, format!("10.21.{number}.{host}/24").parse()?)?;
        }
    }
    Ok(machines)
}

fn relay(machine: &Namespace) -> anyhow::Result<Endpoint> {
    let relays = Relays::Offered(Relaying { rate: BitRate::from_mbps(500.0), ..Relaying::default() });
    let options = EndpointOptions::listening(KeyPair::generate()?, PORT, Admission::Nobody);
    Ok(machine.run(|| Endpoint::bind(EndpointOptions { relays, ..options }))??)
}

/// Packets that each relay has passed on so far.
fn passed_on(relays: &[(usize, Endpoint)]) -> Vec<u64> {
    relays.iter().map(|(_, relay)| relay.asynchronous().relayed().data_passed_on).collect()
}

/// Whether a machine neither hears nor says anything.
fn silence(machine: &Namespace, silent: bool) -> anyhow::Result<()> {
    let rules = match silent {
        true => {
            "add table inet silence; add chain inet silence in { type filter hook input priority 0; policy drop; }; \
                 add chain inet silence out { type filter hook output priority 0; policy drop; }"
        }
        false => "delete table inet silence",
    };
    anyhow::ensure!(machine.command("nft")?.arg(rules).status()?.success(), "nft cannot silence a machine");
    Ok(())
}
