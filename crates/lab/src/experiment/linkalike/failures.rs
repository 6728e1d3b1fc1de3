//! LINKALIKE/failures: neighbours that are killed, lose their current and come back during a transfer.

use std::time::Duration;

use sim::SeededRandom;
use sim::neighbourhood::{Fault, NeighbourhoodSpec, Outcome, Transfer, parse};
use units::Timestamp;
use upload::Settings;
use wire::upload::Chunk;

use super::strategies::{SECONDS, chunk_rate, uplinks};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Where one neighbour's loss can be seen: uplinks are the bottleneck.
pub(super) const HOMES: &str = "800/50 | 1200/25 0.95 0.93 0.9 0.78 | 1200/50 0.9 0.86 0.8 0.57 | 800/75 0.85 0.8 0.7 0.41 | 400/50 0.8 0.72 0.6 0.28";
const FAILS: Timestamp = Timestamp::from_millis(20_000);
const RETURNS: Timestamp = Timestamp::from_millis(40_000);
/// As much of what the others carry alone, or of what all carry, is regained.
const REGAINED: f64 = 0.9;
/// Over so many tenths of a second arrivals are counted.
const SPAN: usize = 10;
/// Transfers with faults at random.
const RANDOM_RUNS: u64 = 20;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("neighbourhood".into(), HOMES.into());
    spec.insert("fails_s".into(), 20.into());
    spec.insert("returns_s".into(), 40.into());
    spec.insert("regained".into(), "0.9 of what the rest, or all, carry, over a second".into());
    spec.insert("random_runs".into(), (RANDOM_RUNS as i64).into());
    Experiment {
        id: id("failures"),
        title: "neighbours that are killed or lose their current and come back: time until the rest carry what they can".to_owned(),
        spec,
        paper: Some("section VI.E: transfers go on; no figures".to_owned()),
        goals: vec![
            Goal::at_least("identical", 1.0),
            Goal::at_most("killed.worst_s", 2.0),
            Goal::at_most("silenced.worst_s", 2.0),
            Goal::at_most("returned.worst_s", 2.0),
        ],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "until regained, worst of four neighbours".into(),
            bars: ["killed", "silenced", "returned"].map(|name| (name.to_owned(), format!("{name}.worst_s"))).to_vec(),
        }],
        unit: "s",
        axes: Axes { over: None, unit: Some("chunks a second") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let spec =
        parse(HOMES)?.into_iter().next().ok_or_else(|| anyhow::anyhow!("there is no neighbourhood"))?;
    let rate = chunk_rate(&spec.own) + uplinks(&spec).iter().sum::<f64>();
    let chunks = (rate * SECONDS) as u32;
    let whole = per_second(&Transfer::new(spec.clone(), Settings::default(), chunks, seed).run());
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    let mut waits: [Vec<f64>; 3] = Default::default();
    let mut identical = true;
    for fault in [Fault::Killed, Fault::Silenced] {
        for home in 0..spec.neighbours.len() {
            let mut rest = spec.clone();
            rest.neighbours.remove(home);
            let alone = per_second(&Transfer::new(rest, Settings::default(), chunks / 2, seed).run());
            let faults = vec![(FAILS, home, fault), (RETURNS, home, Fault::Started)];
            let transfer =
                Transfer { faults, ..Transfer::new(spec.clone(), Settings::default(), chunks, seed) };
            let outcome = transfer.run();
            identical &= is_identical(&transfer, &outcome);
            let failed = waits.get_mut(usize::from(fault == Fault::Silenced));
            failed.into_iter().for_each(|waits| waits.push(until(&outcome, FAILS, alone)));
            waits[2].push(until(&outcome, RETURNS, whole));
            if home == 0 {
                let name = if fault == Fault::Killed { "killed" } else { "silenced" };
                series.push((name.to_owned(), arrivals(&outcome)));
            }
        }
    }
    for (name, waits) in ["killed", "silenced", "returned"].into_iter().zip(&waits) {
        metrics.insert(format!("{name}.median_s"), rounded(quantile(waits, 0.5)));
        metrics.insert(format!("{name}.worst_s"), rounded(quantile(waits, 1.0)));
    }
    for run in 0..RANDOM_RUNS {
        let transfer = random_faults(&spec, seed.wrapping_mul(100) + run);
        identical &= is_identical(&transfer, &transfer.run());
    }
    metrics.insert("identical".into(), f64::from(u8::from(identical)));
    Ok(Report { metrics, series, ..Report::default() })
}

fn random_faults(spec: &NeighbourhoodSpec, seed: u64) -> Transfer {
    let mut random = SeededRandom::derive(seed, "faults");
    let mut faults = Vec::new();
    for home in 0..spec.neighbours.len() {
        let mut at = Timestamp::ZERO;
        loop {
            at += Duration::from_secs_f64(random.between(0.2, 8.0));
            if at > Timestamp::from_millis(30_000) {
                break;
            }
            faults.push((at, home, if random.chance(0.5) { Fault::Killed } else { Fault::Silenced }));
            at += Duration::from_secs_f64(random.between(0.0, 4.0));
            faults.push((at, home, Fault::Started));
        }
    }
    Transfer { faults, ..Transfer::new(spec.clone(), Settings::default(), 6_000, seed) }
}

fn is_identical(transfer: &Transfer, outcome: &Outcome) -> bool {
    outcome.contents.len() == transfer.chunks as usize
        && outcome.contents.iter().zip(0..).all(|(content, chunk)| *content == transfer.content(Chunk(chunk)))
}

/// Chunks a second between the first and the last two seconds.
fn per_second(outcome: &Outcome) -> f64 {
    let arrivals = &outcome.arrivals;
    let middle = arrivals.get(20..arrivals.len().saturating_sub(20)).unwrap_or_default();
    middle.iter().sum::<u32>() as f64 / (middle.len().max(1) as f64 / 10.0)
}

/// Seconds from `since` until a second begins in which as much comes as should; no time at all is as long as the transfer.
fn until(outcome: &Outcome, since: Timestamp, rate: f64) -> f64 {
    let first = (since.as_micros() / 100_000) as usize;
    let spans = outcome.arrivals.windows(SPAN).enumerate().skip(first);
    let mut enough =
        spans.filter(|(_, span)| f64::from(span.iter().sum::<u32>()) >= REGAINED * rate * SPAN as f64 / 10.0);
    enough.next().map_or(SECONDS, |(at, _)| (at - first) as f64 / 10.0)
}

fn arrivals(outcome: &Outcome) -> Vec<(f64, f64)> {
    let tenths = outcome.arrivals.iter().enumerate();
    tenths.map(|(tenth, count)| (tenth as f64 / 10.0, f64::from(*count) * 10.0)).collect()
}
