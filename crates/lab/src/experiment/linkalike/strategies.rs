//! The ways to carry a file that the experiments compare, and one run of each.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use sim::neighbourhood::{
    NeighbourhoodSpec, RATES, Transfer, UplinkSpec, air_times, carried_bytes, coded, parse, striping,
};
use upload::{RateChoice, Settings, Strategy};
use wire::upload::RateIndex;

use super::capacity::{Heard, neighbourhood_bound};

/// 5.5 Mbit/s, by its place among [`RATES`]: where the paper reckons with one bit rate (`[LINKALIKE] VI.D`).
pub(super) const FIXED_RATE: usize = 2;

/// How long the best transfer takes at least (`[LINKALIKE] VI.B`).
pub(super) const SECONDS: f64 = 60.0;

/// A way to carry a file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Way {
    /// The own uplink alone.
    Own,
    /// Network coding, or a code at the source.
    Coded(coded::Mixing),
    /// TCP through each neighbour.
    Tcp,
    /// One of `upload`'s; whether the source knows from before who hears what.
    Core(Settings, bool),
}

/// UDP unicast of `[LINKALIKE] III.B`, with receptions known from before.
pub(super) const UNICAST: Way = Way::Core(Settings { strategy: Strategy::Unicast, ..Settings::PAPER }, true);
/// The paper's broadcast, with receptions known from before.
pub(super) const PAPER: Way = Way::Core(Settings::PAPER, true);
/// Each neighbour carries what it likes.
pub(super) const RANDOM: Way = Way::Core(Settings { strategy: Strategy::Random, ..Settings::PAPER }, true);

/// Neighbours combine what they have heard.
pub(super) const CODING: Way = Way::Coded(coded::Mixing::Neighbours);
/// A code at the source over scheduled broadcast.
pub(super) const SOURCE_CODE: Way = Way::Coded(coded::Mixing::Source);

/// Every way by its name in results and on the command line.
pub(super) fn all_ways() -> [(&'static str, Way); 8] {
    [
        ("own", Way::Own),
        ("tcp", Way::Tcp),
        ("unicast", UNICAST),
        ("random", RANDOM),
        ("coding", CODING),
        ("source_code", SOURCE_CODE),
        ("paper", PAPER),
        ("ours", ours()),
    ]
}

/// Ours.
pub(super) fn ours() -> Way {
    Way::Core(Settings::default(), false)
}

/// What a run of any way gave.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Carried {
    /// Chunks a second in all.
    pub(super) rate: f64,
    /// Frames a second on the air.
    pub(super) frame_rate: f64,
    /// Milliseconds of air for each chunk that a neighbour brought; 0 if none did.
    pub(super) air_ms: f64,
    /// Chunks that each neighbour brought.
    pub(super) by_neighbour: Vec<u32>,
    /// Which neighbours heard frames together, and how often.
    pub(super) heard: Heard,
}

impl Way {
    /// At one bit rate only.
    pub(super) fn at_fixed_rate(self) -> Self {
        match self {
            Self::Own | Self::Coded(_) | Self::Tcp => self,
            Self::Core(settings, known) => {
                let rate = RateChoice::Fixed(RateIndex(FIXED_RATE as u8));
                Self::Core(Settings { rate, ..settings }, known)
            }
        }
    }

    /// Carries `chunks` chunks.
    ///
    /// # Errors
    /// If that did not end.
    pub(super) fn carry(
        self,
        spec: &NeighbourhoodSpec,
        chunks: u32,
        fixed: bool,
        seed: u64,
    ) -> anyhow::Result<Carried> {
        let rate = fixed.then_some(FIXED_RATE);
        let run = match self {
            Self::Own => {
                let alone = NeighbourhoodSpec { neighbours: Vec::new(), ..spec.clone() };
                Run::of_core(&Transfer::new(alone, Settings::default(), chunks, seed), spec.neighbours.len())
            }
            Self::Coded(mixing) => {
                let coded = coded::run(spec, chunks, rate, mixing, seed);
                anyhow::ensure!(coded.took.is_none() || coded.identical, "{self:?} decoded something else");
                let (sets, frames) = (BTreeMap::new(), coded.frames);
                Run { took: coded.took, carried: coded.carried, air_time: coded.air_time, frames, sets }
            }
            Self::Tcp => {
                let striped = striping::run(spec, chunks, rate, seed);
                let (sets, frames) = (BTreeMap::new(), 0);
                Run { took: striped.took, carried: striped.carried, air_time: striped.air_time, frames, sets }
            }
            Self::Core(settings, known_receptions) => {
                let transfer =
                    Transfer { known_receptions, ..Transfer::new(spec.clone(), settings, chunks, seed) };
                Run::of_core(&transfer, spec.neighbours.len())
            }
        };
        let took = run.took.with_context(|| format!("{self:?} did not end"))?.as_secs_f64();
        let brought: u32 = run.carried.iter().sum();
        let air_ms = if brought == 0 { 0.0 } else { run.air_time.as_secs_f64() * 1e3 / f64::from(brought) };
        let all = f64::from(run.sets.values().sum::<u32>()).max(1.0);
        let heard = Heard(run.sets.into_iter().map(|(set, count)| (set, f64::from(count) / all)).collect());
        let (rate, frame_rate) = (f64::from(chunks) / took, run.frames as f64 / took);
        Ok(Carried { rate, frame_rate, air_ms, by_neighbour: run.carried, heard })
    }
}

/// What a run of any model tells.
struct Run {
    took: Option<Duration>,
    carried: Vec<u32>,
    air_time: Duration,
    frames: u64,
    sets: BTreeMap<u64, u32>,
}

impl Run {
    fn of_core(transfer: &Transfer, neighbours: usize) -> Self {
        let outcome = transfer.run();
        let mut carried: Vec<u32> = outcome.neighbours.iter().map(|report| report.brought).collect();
        carried.resize(neighbours, 0);
        let (sets, frames) = (outcome.heard, outcome.frames);
        Self { took: outcome.took, carried, air_time: outcome.air_time, frames, sets }
    }
}

/// The most chunks a second that a neighbourhood can bring at 5.5 Mbit/s, own uplink included.
///
/// # Errors
/// If the solver finds no solution, which there always is.
pub(super) fn whole_bound(spec: &NeighbourhoodSpec) -> anyhow::Result<f64> {
    let neighbours = neighbourhood_bound(spec, FIXED_RATE, medium_rate(FIXED_RATE), &uplinks(spec))?;
    Ok(chunk_rate(&spec.own) + neighbours)
}

/// The committed neighbourhoods.
///
/// # Errors
/// If the file is damaged.
pub(super) fn neighbourhoods() -> anyhow::Result<Vec<NeighbourhoodSpec>> {
    const TEXT: &str = include_str!("../../../../../experiments/LINKALIKE/neighbourhoods.txt");
    parse(TEXT).context("read experiments/LINKALIKE/neighbourhoods.txt")
}

/// Chunks a second over an uplink, headers reckoned with.
pub(super) fn chunk_rate(uplink: &UplinkSpec) -> f64 {
    uplink.rate.bytes_per_second() / carried_bytes().0 as f64
}

/// Chunks a second over each neighbour's uplink.
pub(super) fn uplinks(spec: &NeighbourhoodSpec) -> Vec<f64> {
    spec.neighbours.iter().map(|neighbour| chunk_rate(&neighbour.uplink)).collect()
}

/// `B`: the most frames a second that the medium carries at a bit rate.
pub(super) fn medium_rate(rate: usize) -> f64 {
    let times = air_times();
    debug_assert!(rate < RATES.len(), "a bit rate that there is");
    1.0 / times[rate.min(RATES.len() - 1)].as_secs_f64()
}
