//! Measures one scenario in the virtual machine, e.g.
//! `cargo run --release -p anabranch-lab --example vm_measure -- equal mptcp bbr`.
//! The programs `anabranch-lab` and `anabranch` must be in the directory above the example's.

use anyhow::Context;
use clap::Parser;
use lab::traffic::{Congestion, Transport};
use lab::vm::Machine;
use lab::vm::measurement::{Arrangement, Measurement, Programs};
use std::path::PathBuf;
use std::time::Duration;

/// What to measure.
#[derive(Parser)]
struct Arguments {
    /// A scenario of the simulator.
    scenario: String,
    /// How its networks are used.
    arrangement: Arrangement,
    /// Congestion control of the sender.
    congestion: Congestion,
    /// Only this network of the scenario, counted from 0.
    #[arg(long)]
    network: Option<usize>,
    /// Divide all rates and queues by this.
    #[arg(long, default_value_t = 1)]
    slowed: u32,
    /// QUIC instead of TCP.
    #[arg(long)]
    quic: bool,
    /// Number of flows.
    #[arg(long, default_value_t = 1)]
    flows: u32,
    /// Length of the measurement.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Decides all chance.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Ping beside it.
    #[arg(long)]
    ping: bool,
    /// Commands to run beside it.
    #[arg(long, default_value = "")]
    beside: String,
    /// Programs of this machine for that.
    #[arg(long)]
    beside_program: Vec<PathBuf>,
    /// Print what the daemons logged.
    #[arg(long)]
    logs: bool,
    /// Directory of the programs.
    #[arg(long)]
    programs: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let scenario = sim::scenario::scenarios(1)
        .into_iter()
        .find(|scenario| scenario.name == arguments.scenario)
        .context("there is no such scenario")?;
    let mut networks: Vec<_> =
        scenario.networks.into_iter().map(|network| network.slowed(arguments.slowed)).collect();
    if let Some(index) = arguments.network {
        anyhow::ensure!(index < networks.len(), "the scenario has {} networks", networks.len());
        networks = vec![networks.swap_remove(index)];
    }
    let mut measurement = Measurement::new(networks, arguments.arrangement);
    measurement.congestion = arguments.congestion;
    measurement.flows = arguments.flows;
    measurement.ping = arguments.ping;
    measurement.seed = arguments.seed;
    measurement.beside = arguments.beside;
    measurement.beside_programs = arguments.beside_program;
    measurement.length = Duration::try_from_secs_f64(arguments.seconds)?;
    if arguments.quic {
        measurement.transport = Transport::Quic;
    }
    let directory = match arguments.programs {
        Some(directory) => directory,
        None => std::env::current_exe()?.ancestors().nth(2).context("no directory above")?.to_path_buf(),
    };
    let anabranch = directory.join("anabranch");
    let programs =
        Programs { lab: directory.join("anabranch-lab"), anabranch: anabranch.exists().then_some(anabranch) };
    let measured = measurement.run(&Machine::find()?, &programs)?;
    if arguments.logs {
        for (name, text) in &measured.logs {
            println!("== {name}\n{text}");
        }
    }
    println!("{}", serde_json::to_string(&measured)?);
    println!(
        "{:.2} Mbit/s, longest gap {:.0} ms, guest idle {:.2}, wall {:.0} s",
        measured.report.goodput_mbps,
        measured.report.longest_gap_milliseconds,
        measured.guest_idle,
        measured.wall_seconds
    );
    Ok(())
}
