//! The 200 neighbourhoods of `experiments/LINKALIKE/neighbourhoods.txt`: made once, before any strategy ran on them.
//!
//! Uplinks are those of `[LINKALIKE]` table 1. The number of neighbours is binomial over the seven others of the paper's eight nodes, with its mean of 4.2.
//! Losses follow the measurements of Roofnet (Aguayo, Bicket, Biswas, Judd, Morris, "Link-level Measurements from an 802.11b Mesh Network", SIGCOMM
//! 2004): loss rates between nodes are about uniform over the whole range and steady from second to second, and multi-path fading, not distance, is their
//! likely cause. So the chance at 5.5 Mbit/s is uniform, and the other rates follow from it as under Rayleigh fading: a frame is heard with
//! probability exp(-t / s), s the mean signal and t the rate's threshold, so that p at one rate is p at another to the power of the ratio of thresholds.

use std::time::Duration;

use units::BitRate;

use super::spec::{NeighbourSpec, NeighbourhoodSpec, UplinkSpec};
use crate::SeededRandom;

/// How many neighbourhoods there are.
pub const NEIGHBOURHOODS: usize = 200;
/// How many with two hops there are.
pub const TWO_HOPS: usize = 100;
/// Decides them.
pub const SEED: u64 = 2_009;
const MEAN_NEIGHBOURS: f64 = 4.2;
const OTHERS: usize = 7;
/// Who hears less is no neighbour.
const LEAST_CHANCE: f64 = 0.05;
/// Thresholds of 1, 2, 5.5 and 11 Mbit/s in dB against that of 5.5: sensitivities of common cards, as in `medium::error_rate`.
const THRESHOLDS_DB: [f64; 4] = [-5.0, -2.0, 0.0, 4.0];

/// The neighbourhoods of a seed: [`NEIGHBOURHOODS`] of them with 4.2 neighbours on average, exactly.
pub fn generate(seed: u64) -> Vec<NeighbourhoodSpec> {
    let mut random = SeededRandom::derive(seed, "neighbourhoods");
    let wanted = (MEAN_NEIGHBOURS * NEIGHBOURHOODS as f64).round() as usize;
    let counts = loop {
        let counts: Vec<usize> = (0..NEIGHBOURHOODS).map(|_| count(&mut random)).collect();
        if counts.iter().sum::<usize>() == wanted {
            break counts;
        }
    };
    counts.into_iter().map(|count| neighbourhood(&mut random, count)).collect()
}

/// At least one neighbour: without any there is nothing to share.
fn count(random: &mut SeededRandom) -> usize {
    let chance = (MEAN_NEIGHBOURS - 1.0) / (OTHERS - 1) as f64;
    1 + (1..OTHERS).filter(|_| random.chance(chance)).count()
}

fn neighbourhood(random: &mut SeededRandom, count: usize) -> NeighbourhoodSpec {
    let own = uplink(random);
    let neighbours = (0..count).map(|_| neighbour(random)).collect();
    NeighbourhoodSpec { own, neighbours, common_loss: 0.0, between: Vec::new(), together: Vec::new() }
}

fn neighbour(random: &mut SeededRandom) -> NeighbourSpec {
    let uplink = uplink(random);
    NeighbourSpec { uplink, reception: reception(random) }
}

fn reception(random: &mut SeededRandom) -> [f64; 4] {
    let chance = random.between(LEAST_CHANCE, 1.0);
    THRESHOLDS_DB.map(|decibel| rounded(chance.powf(10_f64.powf(decibel / 10.0))))
}

/// The neighbourhoods of `experiments/LINKALIKE/two_hops.txt`, of a seed: one to three neighbours that hear the source and one to three that do not, each as likely. A
/// far one hears one of the near ones at least; any other two neighbours hear each other in half of the cases. Uplinks and chances are
/// drawn as for [`generate`].
pub fn two_hops(seed: u64) -> Vec<NeighbourhoodSpec> {
    let mut random = SeededRandom::derive(seed, "two hops");
    (0..TWO_HOPS).map(|_| two_hop_neighbourhood(&mut random)).collect()
}

fn two_hop_neighbourhood(random: &mut SeededRandom) -> NeighbourhoodSpec {
    let [near, far] = [0, 1].map(|_| 1 + (random.next_u64() % 3) as usize);
    let mut spec = neighbourhood(random, near + far);
    for neighbour in spec.neighbours.iter_mut().skip(near) {
        neighbour.reception = [0.0; 4];
    }
    for one in 0..near + far {
        let sure = (one >= near).then(|| random.next_u64() as usize % near);
        for other in 0..one {
            if sure == Some(other) || random.chance(0.5) {
                spec.between.push((other, one, reception(random)));
            }
        }
    }
    spec
}

/// As the file has it.
fn rounded(chance: f64) -> f64 {
    (chance * 1e3).round() / 1e3
}

/// Table 1: one of three rates and one of three delays, each as likely.
fn uplink(random: &mut SeededRandom) -> UplinkSpec {
    let mut one_of = |choices: [u64; 3]| choices[(random.next_u64() % 3) as usize];
    let (kilobits, millis) = (one_of([400, 800, 1_200]), one_of([25, 50, 75]));
    UplinkSpec { rate: BitRate(kilobits * 1_000), delay: Duration::from_millis(millis) }
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    #[test]
    fn the_committed_neighbourhoods_are_made_again() {
        for (file, made) in [("neighbourhoods", generate(SEED)), ("two_hops", two_hops(SEED))] {
            let path = format!("{}/../../experiments/LINKALIKE/{file}.txt", env!("CARGO_MANIFEST_DIR"));
            let kept: String = std::fs::read_to_string(path)
                .unwrap()
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| format!("{line}\n"))
                .collect();
            assert!(kept == write(&made), "{file} are fixed: strategies have run on them");
        }
    }

    #[test]
    fn they_have_the_mean_of_the_paper() {
        let all = generate(SEED);
        let neighbours: usize = all.iter().map(|one| one.neighbours.len()).sum();
        assert_eq!((all.len(), neighbours), (200, 840));
        let mean =
            all.iter().flat_map(|one| &one.neighbours).map(|one| one.reception[2]).sum::<f64>() / 840.0;
        assert!((mean - 0.525).abs() < 0.03, "{mean}");
    }
}
