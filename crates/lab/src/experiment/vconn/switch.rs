//! VCONN/table6-switch: what a transfer feels when the network that carries it dies unnoticed, or becomes worse than another.

use std::time::Duration;

use anabranch::Standing;
use anyhow::Context;
use sim::{Change, NetworkSpec};

use super::id;
use super::wires::{Flow, Wires, milliseconds, wait_for_paths};
use crate::emulator::Direction;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::netbed::{GATEWAY_ADDRESS, NetBed};

const TRIALS: usize = 20;
const MBPS: f64 = 40.0;
const ROUND_TRIP_MS: u64 = 20;
/// What the network that carries has when it has become worse.
const WORSE_ROUND_TRIP_MS: u64 = 120;
/// 4 kB each 2 ms: 16 Mbit/s.
const PIECE: usize = 4_000;
const PAUSE: Duration = Duration::from_millis(2);
const DEAD: Duration = Duration::from_millis(1_500);
const REST: Duration = Duration::from_millis(1_500);
const GAP_MS: f64 = 200.0;
const PAPER_MS: f64 = 110.2;
const PAPER_NOTICE_MS: f64 = 600.0;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("trials".into(), (TRIALS as i64).into());
    spec.insert("networks".into(), format!("two, {MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into());
    spec.insert("worse".into(), format!("round trip {WORSE_ROUND_TRIP_MS} ms").into());
    spec.insert("traffic".into(), "16 Mbit/s, every byte checked".into());
    let bar = |kind: &str, rank: &str| (format!("{kind}, {rank}"), format!("{kind}.{rank}_gap_ms"));
    Experiment {
        id: id("table6-switch"),
        title: "the longest pause when the network that carries a connection falls silent, or becomes worse than another"
            .to_owned(),
        spec,
        paper: Some("table 6: 110.2 ms to switch, beside about 600 ms to notice".to_owned()),
        goals: vec![
            Goal::at_most("dead.worst_gap_ms", GAP_MS),
            Goal::at_most("worse.worst_gap_over_round_trip", 1.0),
            Goal::at_most("dead.stayed", 0.0),
            Goal::at_most("worse.stayed", 0.0),
        ],
        beds: vec![Bed::Netns],
        bars: vec![BarGroup {
            label: "pause".to_owned(),
            bars: vec![
                ("paper, in all".to_owned(), "paper.in_all_ms".to_owned()),
                bar("dead", "median"),
                bar("dead", "worst"),
                bar("worse", "median"),
                bar("worse", "worst"),
            ],
        }],
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    metrics.insert("paper.in_all_ms".to_owned(), PAPER_MS + PAPER_NOTICE_MS);
    for (kind, is_dead) in [("dead", true), ("worse", false)] {
        let specs = ["one", "other"].map(|name| NetworkSpec::symmetric(name, MBPS, ROUND_TRIP_MS));
        let bed = NetBed::build(&specs, seed)?;
        let (gaps, stayed) = trials(bed, is_dead)?;
        metrics.insert(format!("{kind}.stayed"), f64::from(stayed));
        for (rank, fraction) in [("median", 0.5), ("worst", 1.0)] {
            metrics.insert(format!("{kind}.{rank}_gap_ms"), milliseconds(&gaps, fraction)?);
        }
    }
    let worst = metrics.get("worse.worst_gap_ms").copied().unwrap_or(f64::MAX);
    metrics.insert("worse.worst_gap_over_round_trip".to_owned(), worst / WORSE_ROUND_TRIP_MS as f64);
    Ok(Report { metrics, ..Report::default() })
}

/// The longest pause of each trial, and how often the connection was not moved in time.
fn trials(bed: NetBed, is_dead: bool) -> anyhow::Result<(Vec<Duration>, u32)> {
    // The endpoints live as long as the bed; its networks are changed meanwhile.
    let mut bed = bed;
    let mut networks = std::mem::take(&mut bed.networks);
    let wires = Wires::open(&bed, GATEWAY_ADDRESS)?;
    let (near, far) = wires.virtual_pair()?;
    wait_for_paths(&near, 2)?;
    let (sender, receiver) = (near.split(), far);
    let (reader, writer) = sender;
    let flow = Flow::start(writer, receiver, PIECE, PAUSE);
    let delay = |round_trip_ms: u64| Change::Delay(Duration::from_micros(round_trip_ms * 500));
    let (mut gaps, mut stayed) = (Vec::new(), 0);
    for _ in 0..TRIALS {
        wait_for_two(&|| reader.standing())?;
        std::thread::sleep(REST);
        let carries = reader.standing().adapter.context("nothing carries")?;
        let at = (0..2).find(|at| NetBed::interface(*at) == carries).context("an unknown network carries")?;
        let network = networks.get_mut(at).context("there is no such network")?;
        flow.take_gap();
        if is_dead {
            network.cut();
        } else {
            network.change(Direction::Both, delay(WORSE_ROUND_TRIP_MS));
        }
        std::thread::sleep(DEAD);
        gaps.push(flow.take_gap());
        stayed += u32::from(reader.standing().adapter.as_ref() == Some(&carries));
        if is_dead {
            network.restore();
        } else {
            network.change(Direction::Both, delay(ROUND_TRIP_MS));
        }
    }
    // The stream ends with its last half.
    drop(reader);
    flow.finish()?;
    Ok((gaps, stayed))
}

fn wait_for_two(standing: &dyn Fn() -> Standing) -> anyhow::Result<()> {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while standing().paths < 2 {
        anyhow::ensure!(std::time::Instant::now() < deadline, "a network has not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
