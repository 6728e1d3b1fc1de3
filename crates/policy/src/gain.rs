//! What bonding is worth at the moment: the rate of all networks together beside what the best of them could carry alone.
//!
//! The proof is careful on both sides. What is bonded is the mean of the last [`WINDOW`] samples. What a network could carry alone is
//! the largest of what its path's model expects and of what it was seen to carry in one sample of the window.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use units::{BitRate, NetworkId};

/// Samples that count, one a second.
pub const WINDOW: usize = 10;
/// Below this nobody asks what bonding is worth.
const LEAST: BitRate = BitRate(100_000);
/// A network with less than this part of the whole does not make it a bond.
const LEAST_PART: f64 = 0.02;

/// Which way packets go, as this machine sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Out.
    Sending,
    /// In.
    Receiving,
}

/// One network in one sample: index 0 is out, 1 is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkSample {
    /// Which.
    pub network: NetworkId,
    /// What its paths carried.
    pub carried: [BitRate; 2],
    /// What the models of its paths expect; `None` if that is not known.
    pub expected: [Option<BitRate>; 2],
}

/// What bonding is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gain {
    /// The busier direction.
    pub direction: Direction,
    /// What all networks carried together.
    pub bonded: BitRate,
    /// What the best of them could carry alone; more than `bonded` if more was not asked for.
    pub best_alone: BitRate,
    /// That one.
    pub best: NetworkId,
}

/// The last samples.
#[derive(Clone, Debug, Default)]
pub struct GainMeter {
    samples: VecDeque<Vec<NetworkSample>>,
}

impl GainMeter {
    /// Takes one sample: one entry for each network that has a path.
    pub fn sample(&mut self, networks: Vec<NetworkSample>) {
        if self.samples.len() == WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back(networks);
    }

    /// What bonding is worth; `None` unless at least two networks carry something worth speaking of.
    pub fn gain(&self) -> Option<Gain> {
        let sums = [0, 1].map(|way| self.all().map(|sample| sample.carried[way].0).sum::<u64>());
        let (way, direction) =
            if sums[1] > sums[0] { (1, Direction::Receiving) } else { (0, Direction::Sending) };
        let bonded = BitRate(sums[way] / self.samples.len().max(1) as u64);
        if bonded < LEAST {
            return None;
        }
        let latest = self.samples.back()?;
        let carried = |network: NetworkId| {
            let of_network = self.all().filter(move |sample| sample.network == network);
            of_network.map(move |sample| sample.carried[way].0)
        };
        let part = |network| carried(network).sum::<u64>() as f64 / sums[way] as f64;
        if latest.iter().filter(|sample| part(sample.network) >= LEAST_PART).count() < 2 {
            return None;
        }
        let alone = |sample: &NetworkSample| {
            let seen = carried(sample.network).max().unwrap_or(0);
            sample.expected[way].map_or(seen, |rate| rate.0.max(seen))
        };
        let best = latest.iter().max_by_key(|sample| alone(sample))?;
        Some(Gain { direction, bonded, best_alone: BitRate(alone(best)), best: best.network })
    }

    fn all(&self) -> impl Iterator<Item = &NetworkSample> {
        self.samples.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(network: u32, carried: u64, expected: Option<u64>) -> NetworkSample {
        NetworkSample {
            network: NetworkId(network),
            carried: [BitRate(0), BitRate(carried * 1_000_000)],
            expected: [None, expected.map(|rate| BitRate(rate * 1_000_000))],
        }
    }

    #[test]
    fn the_sum_beside_the_best_network() {
        let mut meter = GainMeter::default();
        assert_eq!(meter.gain(), None);
        for _ in 0..WINDOW {
            meter.sample(vec![sample(1, 37, Some(38)), sample(2, 21, Some(20))]);
        }
        let gain = meter.gain().unwrap();
        assert_eq!(
            (gain.direction, gain.bonded.as_mbps(), gain.best),
            (Direction::Receiving, 58.0, NetworkId(1))
        );
        assert_eq!(gain.best_alone.as_mbps(), 38.0);
    }

    #[test]
    fn what_was_seen_counts_if_the_model_says_less() {
        let mut meter = GainMeter::default();
        meter.sample(vec![sample(1, 20, None), sample(2, 30, Some(10))]);
        meter.sample(vec![sample(1, 20, None), sample(2, 10, Some(10))]);
        let gain = meter.gain().unwrap();
        assert_eq!((gain.bonded.as_mbps(), gain.best_alone.as_mbps(), gain.best), (40.0, 30.0, NetworkId(2)));
    }

    #[test]
    fn where_less_is_asked_for_one_network_would_do() {
        let mut meter = GainMeter::default();
        meter.sample(vec![sample(1, 3, Some(40)), sample(2, 2, Some(20))]);
        let gain = meter.gain().unwrap();
        assert!(gain.best_alone > gain.bonded);
    }

    #[test]
    fn one_network_is_no_bond_and_a_trickle_no_proof() {
        let mut meter = GainMeter::default();
        meter.sample(vec![sample(1, 50, Some(50)), sample(2, 0, Some(20))]);
        assert_eq!(meter.gain(), None);
        let mut trickle = GainMeter::default();
        trickle.sample(vec![
            NetworkSample { carried: [BitRate(9_000); 2], ..sample(1, 0, None) },
            NetworkSample { carried: [BitRate(9_000); 2], ..sample(2, 0, None) },
        ]);
        assert_eq!(trickle.gain(), None);
        // Networks that have gone since are not the best one.
        meter.sample(vec![sample(2, 5, None), sample(3, 5, None)]);
        assert_ne!(meter.gain().unwrap().best, NetworkId(1));
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut meter = GainMeter::default();
        for _ in 0..WINDOW {
            meter.sample(vec![sample(1, 30, None), sample(2, 30, None)]);
        }
        for _ in 0..WINDOW {
            meter.sample(vec![sample(1, 0, None), sample(2, 0, None)]);
        }
        assert_eq!(meter.gain(), None);
    }
}
