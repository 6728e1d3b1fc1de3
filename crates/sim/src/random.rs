//! Randomness that a seed and a label determine.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded generator. Parts of a simulation derive their own by label, so that adding one part does
/// not change what another draws.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    generator: ChaCha8Rng,
}

impl SeededRandom {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The generator of the part called `label` under `seed`.
    pub fn derive(seed: u64, label: &str) -> Self {
        Self::new(derived_seed(seed, label))
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.generator.random::<f64>()
    }

    /// Uniform in `[low, high)`; `low` if the range is empty.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low).max(0.0) * self.unit()
    }

    /// True with probability `probability`; draws nothing where the outcome is certain.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (probability >= 1.0 || self.unit() < probability)
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A full seed for another seeded generator.
    pub fn seed_bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.generator.fill_bytes(&mut bytes);
        bytes
    }
}

/// The seed of the part called `label` under `seed` (FNV-1a over both).
pub(crate) fn derived_seed(seed: u64, label: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = seed.to_le_bytes();
    bytes
        .iter()
        .chain(label.as_bytes())
        .fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_and_seed_decide() {
        let draw = |seed, label| SeededRandom::derive(seed, label).next_u64();
        assert_eq!(draw(7, "loss"), draw(7, "loss"));
        assert_ne!(draw(7, "loss"), draw(7, "jitter"));
        assert_ne!(draw(7, "loss"), draw(8, "loss"));
    }

    #[test]
    fn normal_has_mean_zero_and_deviation_one() {
        let mut random = SeededRandom::new(3);
        let draws: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.03, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
    }
}
