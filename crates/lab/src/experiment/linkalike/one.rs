//! One neighbourhood of a file, with a strategy by its name.

use std::fs::File;
use std::io::Read;
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

/// A file of more bytes is none that somebody wrote.
const LARGEST_FILE: u64 = 16 << 20;

fn neighbourhood(path: &Path, number: usize) -> anyhow::Result<NeighbourhoodSpec> {
    let all = neighbourhoods_of(path)?;
    let count = all.len();
    let spec = all
        .into_iter()
        .nth(number)
        .with_context(|| format!("{} has {count} neighbourhoods, from 0", path.display()))?;
    anyhow::ensure!(
        spec.together.is_empty(),
        "neighbourhood {number} of {} has measured sets, and in the simulation losses are independent: take its lines with \"set\" out, or see \"anabranch lab run LINKALIKE/bound --file\" for its bound",
        path.display()
    );
    Ok(spec)
}

/// The neighbourhoods of a file, one at least.
///
/// # Errors
/// If it cannot be read; the message has the file and, where a line is wrong, its number and how it should look.
pub(super) fn neighbourhoods_of(path: &Path) -> anyhow::Result<Vec<NeighbourhoodSpec>> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    file.take(LARGEST_FILE + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("read {}", path.display()))?;
    anyhow::ensure!(
        bytes.len() as u64 <= LARGEST_FILE,
        "{} is larger than {} MB, which is no file of neighbourhoods",
        path.display(),
        LARGEST_FILE >> 20
    );
    let text = String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))?;
    let all = sim::neighbourhood::parse(&text).with_context(|| format!("read {}", path.display()))?;
    anyhow::ensure!(
        !all.is_empty(),
        "there is no neighbourhood in {}; one is a line like \"800/50 | 400/25 0.9 0.8 0.7 0.4\"",
        path.display()
    );
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "# one\n400/25 | 800/25 1 1 0.9 0.5 | 800/50 0.9 0.8 0.7 0.3\n";

    fn one(number: usize, strategy: Option<&str>) -> anyhow::Result<String> {
        one_of(ONE, number, strategy)
    }

    fn one_of(text: &str, number: usize, strategy: Option<&str>) -> anyhow::Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), text)?;
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
        let sets = format!("{ONE}set 11 0.3 0 1\nset 11 0.2 0\n");
        assert!(one_of(&sets, 0, Some("own")).unwrap_err().to_string().contains("measured sets"));
    }

    #[test]
    fn a_file_that_is_none_of_neighbourhoods_is_told() {
        let read = |bytes: &[u8]| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            format!("{:#}", neighbourhoods_of(file.path()).unwrap_err())
        };
        assert!(read(b"# nothing\n").contains("there is no neighbourhood in"));
        assert!(read(&[0xff, 0xfe]).contains("is no text"));
        assert!(read(&vec![b'#'; (16 << 20) + 1]).contains("larger than 16 MB"));
        assert!(
            format!("{:#}", neighbourhoods_of(Path::new("/nowhere")).unwrap_err()).contains("open /nowhere")
        );
    }
}
