//! Several ways to do the same, measured in turns: rates, and the processor time that each unit took.
//!
//! A round measures each way once, one right after the other and in another order than the round before; only what one round
//! gave is compared, and the median of the rounds counts. The rate is what a user sees and what else the machine does
//! spoils; processor time by unit is much steadier.

use super::accounting::lifetime_processor_time;
use super::median;
use crate::experiment::Metrics;
use crate::netbed::{ChildProcess, NetBed};
use anyhow::Context;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

/// A way that is measured.
pub(super) struct Way<'a> {
    pub(super) name: &'static str,
    pub(super) bed: &'a NetBed,
    /// Answers the traffic, in the bed's gateway.
    pub(super) server: ChildProcess,
}

/// What one way came to in one round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sample {
    /// Units a second.
    pub(super) rate: f64,
    /// Seconds of processor time of client and server for each unit.
    pub(super) cost: f64,
}

/// The samples of one round, by way.
pub(super) type Round = BTreeMap<&'static str, Sample>;

impl Way<'_> {
    /// Runs `anabranch-lab traffic ARGUMENTS` on the device; its report, with what client and server used meanwhile, in seconds.
    pub(super) fn run<T: DeserializeOwned>(&self, arguments: &[String]) -> anyhow::Result<(T, f64)> {
        let lab = std::env::current_exe().context("find this program's file")?;
        let spent = || -> anyhow::Result<f64> {
            let (_, ended) = lifetime_processor_time(std::process::id())?;
            let (server, _) = lifetime_processor_time(self.server.id())?;
            Ok((ended + server).as_secs_f64())
        };
        let before = spent()?;
        let mut command = self.bed.device.command(lab).context("enter the device's namespace")?;
        command.arg("traffic").args(arguments);
        let output = command.stdin(Stdio::null()).output().context("start the traffic")?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "the traffic failed ({}): {}", output.status, said.trim());
        let report = serde_json::from_slice(&output.stdout).context("read the report on the traffic")?;
        Ok((report, spent()? - before))
    }
}

/// Measures all ways `rounds` times.
pub(super) fn rounds<'a>(
    case: &str,
    ways: &[Way<'a>],
    rounds: u32,
    measure: impl Fn(&Way<'a>) -> anyhow::Result<Sample>,
) -> anyhow::Result<Vec<Round>> {
    let mut all = Vec::new();
    for number in 0..rounds as usize {
        let mut round = Round::new();
        for place in 0..ways.len() {
            let way = &ways[(place + number) % ways.len()];
            round.insert(way.name, measure(way).with_context(|| format!("{case} by {}", way.name))?);
        }
        eprintln!("  {case} round {}: {round:.3?}", number + 1);
        all.push(round);
    }
    Ok(all)
}

/// The median rate of each way, and of the ratios of rate and cost to those of plain routing in the same round.
pub(super) fn record(metrics: &mut Metrics, case: &str, unit: &str, rounds: &[Round]) -> anyhow::Result<()> {
    let ways: BTreeSet<&str> = rounds.iter().flat_map(|round| round.keys().copied()).collect();
    for way in ways {
        let mut put = |name: String, figure: &dyn Fn(&Sample, &Sample) -> f64| -> anyhow::Result<()> {
            let both = |round: &Round| Some(figure(round.get(way)?, round.get(PLAIN)?));
            let values: Vec<f64> = rounds.iter().filter_map(both).collect();
            metrics.insert(format!("{case}.{name}"), median(&values).context("no round was run")?);
            Ok(())
        };
        put(format!("{way}_{unit}"), &|sample, _| sample.rate)?;
        if way != PLAIN {
            put(format!("{way}_over_plain"), &|sample, plain| sample.rate / plain.rate)?;
            put(format!("{way}_processor_over_plain"), &|sample, plain| sample.cost / plain.cost)?;
        }
    }
    Ok(())
}

/// What all others are compared with.
pub(super) const PLAIN: &str = "plain";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_one_by_one() {
        let mut metrics = Metrics::new();
        let sample = |rate, cost| Sample { rate, cost };
        // A machine that slows down to a half from round to round: each round says the same.
        let rounds = [1.0, 0.5, 0.25].map(|part| {
            Round::from([("nft", sample(8.0 * part, 3.0 / part)), (PLAIN, sample(10.0 * part, 2.0 / part))])
        });
        record(&mut metrics, "down-1", "gbps", &rounds).unwrap();
        assert!((metrics["down-1.nft_over_plain"] - 0.8).abs() < 1e-9);
        assert!((metrics["down-1.nft_processor_over_plain"] - 1.5).abs() < 1e-9);
        assert_eq!((metrics["down-1.nft_gbps"], metrics["down-1.plain_gbps"]), (4.0, 5.0));
        assert_eq!(metrics.len(), 4);
    }
}
