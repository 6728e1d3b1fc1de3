//! The ways to carry a file that the experiments compare, and one run of each.

use std::collections::BTreeMap;

use anyhow::Context;
use sim::neighbourhood::{
    NeighbourhoodSpec, Outcome, RATES, Transfer, UplinkSpec, air_times, carried_bytes, parse, striping,
};
use upload::{RateChoice, Settings, Strategy};
use wire::upload::RateIndex;

use super::capacity::Heard;

/// 5.5 Mbit/s, by its place among [`RATES`]: where the paper reckons with one bit rate (`[LINKALIKE] VI.D`).
pub(super) const FIXED_RATE: usize = 2;

/// How long the best transfer takes at least (`[LINKALIKE] VI.B`).
pub(super) const SECONDS: f64 = 60.0;

/// A way to carry a file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Way {
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
    /// Which neighbours heard frames together, and how often.
    pub(super) heard: Heard,
}

impl Way {
    /// At one bit rate only.
    pub(super) fn at_fixed_rate(self) -> Self {
        match self {
            Self::Tcp => Self::Tcp,
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
        let (took, by_neighbours, air_time, frames, sets) = match self {
            Self::Tcp => {
                let striped = striping::run(spec, chunks, fixed.then_some(FIXED_RATE), seed);
                (striped.took, striped.by_neighbours, striped.air_time, 0, BTreeMap::new())
            }
            Self::Core(settings, known_receptions) => {
                let transfer =
                    Transfer { known_receptions, ..Transfer::new(spec.clone(), settings, chunks, seed) };
                let outcome: Outcome = transfer.run();
                (outcome.took, chunks - outcome.own_chunks, outcome.air_time, outcome.frames, outcome.heard)
            }
        };
        let took = took.with_context(|| format!("{self:?} did not end"))?.as_secs_f64();
        let air_ms =
            if by_neighbours == 0 { 0.0 } else { air_time.as_secs_f64() * 1e3 / f64::from(by_neighbours) };
        let all = f64::from(sets.values().sum::<u32>()).max(1.0);
        let heard = Heard(sets.into_iter().map(|(set, count)| (set, f64::from(count) / all)).collect());
        Ok(Carried { rate: f64::from(chunks) / took, frame_rate: frames as f64 / took, air_ms, heard })
    }
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
