//! JUGGLER figure 5: a film over one access point and over two with one radio, and for how long its player has to wait.

use super::{ROUND_TRIP_MS, TURNS, id};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::VideoReport;
use crate::vm::air::Air;
use crate::vm::direct::{DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use sim::NetworkSpec;
use std::time::Duration;

/// What each network carries, in thousand bytes a second.
const CASES: [(&str, &[u32]); 5] =
    [("25", &[25]), ("50", &[50]), ("25+25", &[25, 25]), ("25+50", &[25, 50]), ("50+50", &[50, 50])];
/// How often the film is fetched where the goal is about every run, and elsewhere.
const RUNS: (u32, u32) = (3, 1);
const BLOCKS: u32 = 625;
const BLOCK_BYTES: u32 = 16 << 10;
const BITS_A_SECOND: f64 = 400_000.0;
/// Blocks that the player has before it begins, and goes on. The paper does not tell its number; its mean gap of 6.091 s at 25 KB/s is the time of
/// 9.3 blocks.
const BUFFERED: usize = 10;
/// "Nearly 300 s" of gaps over 25 KB/s; a tenth of that over 50; over two of 25 a quarter of that over one.
const PAPER: [(&str, f64); 3] = [("25", 300.0), ("50", 30.0), ("25+25", 75.0)];
const CHANNELS: [u8; 2] = [1, 11];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("networks".into(), format!("hostapd, open, 802.11g on channels 1 and 11; rates in KB/s as the cases are called, round trip {ROUND_TRIP_MS} ms").into());
    spec.insert("radio".into(), format!("one, by `anabranch radio up {TURNS}`").into());
    spec.insert(
        "film".into(),
        format!("{BLOCKS} blocks of {BLOCK_BYTES} bytes (10 MB), {BITS_A_SECOND} bit/s").into(),
    );
    spec.insert("client".into(), "a thread for each network, its socket bound there: the earliest block that nobody has asked for, or `delta` further if that is more than the threads there are".into());
    spec.insert("buffered_blocks".into(), (BUFFERED as i64).into());
    spec.insert("runs".into(), format!("{} at 50+50, {} elsewhere", RUNS.0, RUNS.1).into());
    let bars = CASES.map(|(name, _)| BarGroup {
        label: name.to_owned(),
        bars: vec![
            ("paper".to_owned(), format!("paper.{name}.gaps_s")),
            ("mean".to_owned(), format!("{name}.gaps_mean_s")),
            ("worst".to_owned(), format!("{name}.gaps_worst_s")),
        ],
    });
    Experiment {
        id: id("fig5-video"),
        title: "how long the player of a film has to wait in all, with one access point and with two".to_owned(),
        spec,
        paper: Some("figure 5: nearly 300 s at 25 KB/s, a tenth of that at 50, a quarter at 25+25, next to none at 25+50, none in 95 % of runs at 50+50".to_owned()),
        goals: vec![
            Goal::at_most("25+25.gaps_over_50", 1.05),
            Goal::at_most("50+50.gaps_worst_s", 0.0),
        ],
        beds: vec![Bed::Vm],
        bars: bars.to_vec(),
        unit: "s",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    let shown = f64::from(BLOCK_BYTES) * 8.0 / BITS_A_SECOND;
    for (case, rates) in CASES {
        let names = &["a", "b"][..rates.len()];
        let runs = if case == "50+50" { RUNS.0 } else { RUNS.1 };
        let networks: Vec<NetworkSpec> = names
            .iter()
            .zip(rates)
            .map(|(name, rate)| NetworkSpec::symmetric(name, f64::from(*rate) * 8e-3, ROUND_TRIP_MS))
            .collect();
        let interfaces: String = names.iter().map(|name| format!(" --interface {name}")).collect();
        let film = |run: u32| {
            format!(
                "traffic video {SERVER_ADDRESS}:9300 --blocks {BLOCKS} --length {BLOCK_BYTES}{interfaces} --json /results/film-{run} || fail film\nsleep {}\n",
                // Another moment of the radio's cycle.
                1.0 + f64::from(run) * 0.037
            )
        };
        let script: String = (1..=runs).map(film).collect();
        let set_up =
            format!("in_namespace server anabranch-lab traffic video-serve {SERVER_ADDRESS}:9300 &\n");
        let air = Some(Air::shared(&CHANNELS[..rates.len()], TURNS));
        let length = Duration::from_secs(u64::from(runs) * 600);
        let job = DirectJob { air, set_up, length, ..DirectJob::new(networks, Way::Plain, script) };
        let answers = laboratory.run(case, job)?;
        let mut totals = Vec::new();
        for run in 1..=runs {
            let report: VideoReport = answers.read(&format!("film-{run}"))?;
            let gaps = report.gaps(shown, BUFFERED);
            totals.push(gaps.iter().fold(0.0, |sum, (_, gap)| sum + gap));
            if run == 1 {
                laboratory.put(&format!("{case}.gaps"), gaps.len() as f64);
                laboratory
                    .put(&format!("{case}.fetched_s"), report.finished.iter().copied().fold(0.0, f64::max));
            }
        }
        laboratory.put(&format!("{case}.gaps_mean_s"), totals.iter().sum::<f64>() / f64::from(runs));
        laboratory.put(&format!("{case}.gaps_worst_s"), totals.iter().copied().fold(0.0, f64::max));
    }
    let ratio = laboratory.metric("25+25.gaps_mean_s") / laboratory.metric("50.gaps_mean_s");
    laboratory.put("25+25.gaps_over_50", ratio);
    for (case, gaps) in PAPER {
        laboratory.put(&format!("paper.{case}.gaps_s"), gaps);
    }
    Ok(laboratory.report)
}
