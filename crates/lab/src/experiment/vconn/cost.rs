//! VCONN/fig57-cost: what files of 20 MB take over virtual sockets, one and ten at a time, beside TCP on the same link.

use std::io::{self, Read, Write};
use std::time::Instant;

use sim::NetworkSpec;

use super::id;
use super::wires::Wires;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::netbed::{GATEWAY_ADDRESS, NetBed};
use crate::simbed::quantile;
use anyhow::Context;

/// As long as the paper's.
const FILE: usize = 20_000_000;
const PIECE: usize = 65_536;
const MBPS: f64 = 50.0;
const ROUND_TRIP_MS: u64 = 10;
/// Files at a time, and how often.
const CASES: [(usize, usize); 2] = [(1, 5), (10, 2)];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("file_bytes".into(), (FILE as i64).into());
    spec.insert("link".into(), format!("{MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into());
    Experiment {
        id: id("fig57-cost"),
        title: "20 MB over virtual sockets, one file and ten at a time, beside TCP".to_owned(),
        spec,
        paper: Some("figures 5 and 7: within 0.2 % of native sockets, whose rate was some Mbit/s".to_owned()),
        goals: CASES.map(|(files, _)| Goal::at_least(format!("{files}.goodput_over_tcp"), 0.97)).to_vec(),
        beds: vec![Bed::Netns],
        bars: CASES
            .map(|(files, _)| BarGroup {
                label: format!("{files} at a time"),
                bars: ["sockets", "tcp"]
                    .map(|kind| (kind.to_owned(), format!("{files}.{kind}_mbps")))
                    .to_vec(),
            })
            .to_vec(),
        unit: "Mbit/s",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let bed = NetBed::build(&[NetworkSpec::symmetric("link", MBPS, ROUND_TRIP_MS)], seed)?;
    let wires = Wires::open(&bed, GATEWAY_ADDRESS)?;
    let mut metrics = Metrics::new();
    for (files, rounds) in CASES {
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let plain = pairs(files, || wires.tcp_pair())?;
            let plain = transfer(plain)?;
            let ours = pairs(files, || wires.virtual_pair())?;
            samples.push((transfer(ours)?, plain));
        }
        let median = |of: fn(&(f64, f64)) -> f64| {
            quantile(&samples.iter().map(of).collect::<Vec<f64>>(), 0.5).context("no round was run")
        };
        metrics.insert(format!("{files}.sockets_mbps"), median(|(ours, _)| *ours)?);
        metrics.insert(format!("{files}.tcp_mbps"), median(|(_, plain)| *plain)?);
        metrics.insert(format!("{files}.goodput_over_tcp"), median(|(ours, plain)| ours / plain)?);
    }
    Ok(Report { metrics, ..Report::default() })
}

fn pairs<T>(count: usize, pair: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    (0..count).map(|_| pair()).collect()
}

/// Sends a file over each pair; Mbit/s of all together, until the last has arrived.
fn transfer<S: Write + Send, R: Read + Send>(pairs: Vec<(S, R)>) -> anyhow::Result<f64> {
    let (start, count) = (Instant::now(), pairs.len());
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut threads = Vec::new();
        for (sender, receiver) in pairs {
            threads.push(scope.spawn(move || send(sender)));
            threads.push(scope.spawn(move || receive(receiver)));
        }
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the transfer has panicked"))??;
        }
        Ok(())
    })?;
    Ok((FILE * count) as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e6)
}

fn send(mut sender: impl Write) -> io::Result<()> {
    let piece = vec![7; PIECE];
    let mut left = FILE;
    while left > 0 {
        let length = left.min(PIECE);
        sender.write_all(piece.get(..length).unwrap_or_default())?;
        left -= length;
    }
    Ok(())
}

fn receive(mut receiver: impl Read) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = FILE;
    while left > 0 {
        match receiver.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left = left.saturating_sub(count),
        }
    }
    Ok(())
}
