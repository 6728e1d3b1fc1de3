//! One neighbourhood of a file, with a strategy by its name.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sim::neighbourhood::NeighbourhoodSpec;
use units::Bytes;

use super::strategies::{SECONDS, all_ways, whole_bound};

/// Carries a file through one neighbourhood, simulated, and says how fast.
#[derive(clap::Args, Clone, Debug)]
pub struct OneNeighbourhood {
    /// Neighbourhoods, one a line, as in experiments/LINKALIKE/neighbourhoods.txt.
    file: PathBuf,
    /// Which of them, from 0.
    #[arg(long, default_value_t = 0)]
    number: usize,
    /// own, tcp, unicast, random, coding, source_code, paper or ours; all of them without this.
    #[arg(long)]
    strategy: Option<String>,
    /// Each side chooses bit rates; otherwise all is sent at 5.5 Mbit/s, for which the bound is.
    #[arg(long)]
    any_rate: bool,
    /// So much as the best can carry in this time.
    #[arg(long, default_value_t = SECONDS, value_name = "SECONDS", value_parser = sensible)]
    lasts: f64,
    /// Decides chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn sensible(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "that is not a number".to_owned())?;
    if (0.1..=600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 600 seconds".to_owned()) }
}

impl OneNeighbourhood {
    /// Runs it and returns what it found, a line for each strategy.
    ///
    /// # Errors
    /// If the file cannot be read, has no such neighbourhood, or there is no such strategy.
    pub fn run(&self) -> anyhow::Result<String> {
        let spec = neighbourhood(&self.file, self.number)?;
        let names = all_ways().map(|(name, _)| name);
        let chosen: Vec<_> = all_ways()
            .into_iter()
            .filter(|(name, _)| self.strategy.as_ref().is_none_or(|wanted| wanted == name))
            .collect();
        anyhow::ensure!(!chosen.is_empty(), "there is no such strategy; there are {}", names.join(", "));
        let bound = whole_bound(&spec)?;
        let chunks = (bound * self.lasts).ceil() as u32;
        let mut text = format!(
            "bound at 5.5 Mbit/s: {bound:.1} chunks/s\nstrategy     chunks/s  kbit/s  of the bound  own uplink  each neighbour\n"
        );
        for (name, way) in chosen {
            let way = if self.any_rate { way } else { way.at_fixed_rate() };
            let carried = way.carry(&spec, chunks, !self.any_rate, self.seed)?;
            let part = |count: u32| format!("{:.1} %", 100.0 * f64::from(count) / f64::from(chunks));
            let own = chunks.saturating_sub(carried.by_neighbour.iter().sum());
            let each: Vec<String> = carried.by_neighbour.iter().map(|count| part(*count)).collect();
            let kilobits = carried.rate * CHUNK.0 as f64 * 8.0 / 1e3;
            text += &format!(
                "{name:11}  {:8.1}  {kilobits:6.0}  {:12.3}  {:>10}  {}\n",
                carried.rate,
                carried.rate / bound,
                part(own),
                each.join(", ")
            );
        }
        Ok(text)
    }
}

const CHUNK: Bytes = sim::neighbourhood::CHUNK;

fn neighbourhood(path: &Path, number: usize) -> anyhow::Result<NeighbourhoodSpec> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let all = sim::neighbourhood::parse(&text).with_context(|| format!("read {}", path.display()))?;
    let count = all.len();
    all.into_iter()
        .nth(number)
        .with_context(|| format!("{} has {count} neighbourhoods, from 0", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(number: usize, strategy: Option<&str>) -> anyhow::Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), "# one\n400/25 | 800/25 1 1 0.9 0.5 | 800/50 0.9 0.8 0.7 0.3\n")?;
        let file_path = file.path().to_owned();
        let strategy = strategy.map(str::to_owned);
        OneNeighbourhood { file: file_path, number, strategy, any_rate: false, lasts: 5.0, seed: 1 }.run()
    }

    #[test]
    fn every_strategy_runs_on_a_file_and_wrong_names_are_told() {
        let text = one(0, None).unwrap();
        for (name, _) in all_ways() {
            assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
        }
        assert_eq!(one(0, Some("coding")).unwrap().lines().count(), 3);
        assert!(one(0, Some("carrier-pigeon")).unwrap_err().to_string().contains("source_code"));
        assert!(one(1, None).unwrap_err().to_string().contains("1 neighbourhoods"));
    }
}
