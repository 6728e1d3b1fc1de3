//! VCONN/table5-setup: how long it takes until a connection can be used, beside TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anabranch::{ConnectOptions, Peer};
use sim::NetworkSpec;

use super::id;
use super::wires::{Wires, endpoint, milliseconds};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::netbed::{GATEWAY_ADDRESS, NetBed, provider_address};

/// As many as the paper's.
const TRIALS: usize = 100;
const ROUND_TRIP_MS: u64 = 40;
const MBPS: f64 = 50.0;
const PAPER_MS: f64 = 585.6;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("trials".into(), (TRIALS as i64).into());
    spec.insert("lan".into(), "a cable without a limit".into());
    spec.insert("far".into(), format!("{MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into());
    let bars = ["lan", "far"].map(|place| BarGroup {
        label: place.to_owned(),
        bars: ["connect", "answer", "tcp_connect", "tcp_answer"]
            .map(|what| (what.replace('_', " "), format!("{place}.{what}_median_ms")))
            .to_vec(),
    });
    Experiment {
        id: id("table5-setup"),
        title: "from the call until the connection is there, and until the first byte is answered".to_owned(),
        spec,
        paper: Some(
            "table 5: 585.6 ms in all, of which the exchange of adapters takes 392.1 and their choice 188.7"
                .to_owned(),
        ),
        goals: vec![
            Goal::at_most("far.answer_round_trips", 3.0),
            Goal::at_most("lan.answer_median_ms", 10.0),
        ],
        beds: vec![Bed::Netns],
        bars: bars.to_vec(),
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    metrics.insert("paper.setup_ms".to_owned(), PAPER_MS);
    let lan = NetBed::unshaped(1)?;
    measure(&mut metrics, "lan", &lan, Wires::open(&lan, provider_address(0))?)?;
    let far = NetBed::build(&[NetworkSpec::symmetric("far", MBPS, ROUND_TRIP_MS)], seed)?;
    measure(&mut metrics, "far", &far, Wires::open(&far, GATEWAY_ADDRESS)?)?;
    for what in ["connect", "answer", "tcp_connect", "tcp_answer"] {
        let median = metrics.get(&format!("far.{what}_median_ms")).copied().unwrap_or(f64::MAX);
        metrics.insert(format!("far.{what}_round_trips"), median / ROUND_TRIP_MS as f64);
    }
    Ok(Report { metrics, ..Report::default() })
}

fn measure(metrics: &mut Metrics, place: &str, bed: &NetBed, wires: Wires<'_>) -> anyhow::Result<()> {
    let (peer, address, _server) = wires.answer()?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..TRIALS {
        ours.push(virtual_socket(bed, &peer)?);
        plain.push(bed.device.run(|| tcp(address))??);
    }
    for (kind, times) in [("", ours), ("tcp_", plain)] {
        let (connect, answer): (Vec<Duration>, Vec<Duration>) = times.into_iter().unzip();
        for (what, times) in [("connect", connect), ("answer", answer)] {
            for (rank, fraction) in [("median", 0.5), ("worst", 1.0)] {
                metrics.insert(format!("{place}.{kind}{what}_{rank}_ms"), milliseconds(&times, fraction)?);
            }
        }
    }
    Ok(())
}

/// From the call: until it returns, and until a byte has come back. Each time by somebody whom the far end has never met.
fn virtual_socket(bed: &NetBed, peer: &Peer) -> anyhow::Result<(Duration, Duration)> {
    let client = endpoint(bed)?;
    let start = Instant::now();
    let mut stream = client.connect(peer, &ConnectOptions::default())?;
    let connected = start.elapsed();
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    Ok((connected, start.elapsed()))
}

fn tcp(address: SocketAddr) -> anyhow::Result<(Duration, Duration)> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let connected = start.elapsed();
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0])?;
    Ok((connected, start.elapsed()))
}
