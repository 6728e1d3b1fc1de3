//! What every pair of networks gives without any0: each network alone and kernel MPTCP over both, in the virtual machine.
//! `cargo run --release -p anabranch-lab --example vm_baselines -- FILE [SCENARIO...]`; figures that FILE already has are kept.

use anyhow::Context;
use lab::traffic::{Congestion, Transport};
use lab::vm::Machine;
use lab::vm::measurement::{Arrangement, Measurement, Programs};
use serde::{Deserialize, Serialize};
use sim::NetworkSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Figures of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Figures {
    goodput_mbps: f64,
    longest_gap_ms: f64,
    guest_idle: f64,
    wall_seconds: f64,
}

/// By scenario, then by traffic and arrangement.
type Table = BTreeMap<String, BTreeMap<String, Figures>>;

struct Run {
    scenario: &'static str,
    kind: &'static str,
    name: String,
    measurement: Measurement,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = PathBuf::from(arguments.next().context("name the file for the figures")?);
    let chosen: Vec<String> = arguments.collect();
    let table: Table = match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text)?,
        Err(_) => Table::new(),
    };
    let runs: Vec<Run> = runs()
        .into_iter()
        .filter(|run| chosen.is_empty() || chosen.iter().any(|name| name == run.scenario))
        .filter(|run| !table.get(run.scenario).is_some_and(|row| row.contains_key(&run.name)))
        .collect();
    let machine = Machine::find()?;
    let directory = std::env::current_exe()?.ancestors().nth(2).context("no directory above")?.to_path_buf();
    let programs = Programs { lab: directory.join("anabranch-lab"), anabranch: None };
    let (table, next) = (Mutex::new(table), AtomicUsize::new(0));
    // Scenarios have networks in common; a run of the same links gives the same figures.
    let known: Mutex<BTreeMap<String, Figures>> = Mutex::default();
    let work = || -> anyhow::Result<()> {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let links = run.measurement.networks.iter().map(|network| (&network.up, &network.down));
            let links = format!("{:?} {:?}", run.measurement.arrangement, links.collect::<Vec<_>>());
            let key = format!("{} {links}", run.kind);
            let seen = known.lock().ok().and_then(|known| known.get(&key).cloned());
            let figures = match seen {
                Some(figures) => figures,
                None => measure(run, &machine, &programs)?,
            };
            if let Ok(mut known) = known.lock() {
                known.insert(key, figures.clone());
            }
            println!("{} {}: {figures:?}", run.scenario, run.name);
            let mut table = table.lock().map_err(|_| anyhow::anyhow!("another run failed"))?;
            table.entry(run.scenario.to_owned()).or_default().insert(run.name.clone(), figures);
            std::fs::write(&file, serde_json::to_string_pretty(&*table)? + "\n")?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker failed"))?)
    })
}

fn measure(run: &Run, machine: &Machine, programs: &Programs) -> anyhow::Result<Figures> {
    let measured = run.measurement.run(machine, programs)?;
    Ok(Figures {
        goodput_mbps: thousandth(measured.report.goodput_mbps),
        longest_gap_ms: thousandth(measured.report.longest_gap_milliseconds),
        guest_idle: thousandth(measured.guest_idle),
        wall_seconds: thousandth(measured.wall_seconds),
    })
}

/// The most telling kinds of traffic of all scenarios first.
fn runs() -> Vec<Run> {
    let kinds = [
        ("tcp-cubic", Transport::Tcp, Congestion::Cubic, 1),
        ("tcp-bbr", Transport::Tcp, Congestion::Bbr, 1),
        ("tcp-cubic-8", Transport::Tcp, Congestion::Cubic, 8),
        ("quic-cubic", Transport::Quic, Congestion::Cubic, 1),
    ];
    let mut runs = Vec::new();
    for (kind, transport, congestion, flows) in kinds {
        for scenario in sim::scenario::scenarios(1) {
            let measurement = |networks: Vec<NetworkSpec>, arrangement| Measurement {
                transport,
                congestion,
                flows,
                ..Measurement::new(networks, arrangement)
            };
            for network in &scenario.networks {
                let name = format!("{kind} plain {}", network.name);
                let measurement = measurement(vec![network.clone()], Arrangement::Plain);
                runs.push(Run { scenario: scenario.name, kind, name, measurement });
            }
            if transport == Transport::Tcp {
                let name = format!("{kind} mptcp");
                let measurement = measurement(scenario.networks.clone(), Arrangement::Mptcp);
                runs.push(Run { scenario: scenario.name, kind, name, measurement });
            }
        }
    }
    runs
}

fn thousandth(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
