//! At which rate we send to a peer: the one that carries most, found by trying (in the manner of Minstrel).

use rand::Rng;

use units::Bytes;

use crate::Rate;
use crate::airtime::Flavour;

/// One frame in so many tries another rate.
const LOOK_AROUND: u32 = 16;
/// Weight of a new outcome in the average, if its rate was tried by the frame before too.
const NEW: f32 = 1.0 / 16.0;
/// Weight of one after so long that the average says nothing any more.
const MOST_NEW: f32 = 0.5;
/// A rate that gets less than this through is not worth its retries.
const LEAST_SUCCESS: f32 = 0.1;
/// For frames of this length the rate is chosen.
const FRAME: Bytes = Bytes(1_500);

#[derive(Clone, Copy, Debug)]
struct Tried {
    rate: Rate,
    /// How often an attempt is acknowledged; `None` before the first.
    success: Option<f32>,
    /// The frames sent at other rates since.
    unheard: i32,
}

/// The rates of one peer and how they fare.
#[derive(Clone, Debug)]
pub struct RateChoice {
    flavour: Flavour,
    rates: Vec<Tried>,
    lowest: Rate,
}

impl RateChoice {
    /// For a peer that takes these rates, in any order. Without any, the lowest of the band.
    pub fn new(flavour: Flavour, rates: &[Rate], lowest: Rate) -> Self {
        let mut rates: Vec<Rate> = rates.to_vec();
        rates.sort_unstable();
        rates.dedup();
        let tried = |rate| Tried { rate, success: None, unheard: 0 };
        Self { flavour, lowest, rates: rates.into_iter().map(tried).collect() }
    }

    /// The rate for the next frame of data.
    pub fn next(&self, randomness: &mut impl Rng) -> Rate {
        let best = self.best();
        if self.rates.len() > 1 && randomness.random_ratio(1, LOOK_AROUND) {
            // One above the best, or any below it: far above it all is lost, far below it all is slow.
            let place = self.rates.iter().position(|tried| tried.rate == best).unwrap_or_default();
            let highest = (place + 1).min(self.rates.len() - 1);
            return self.rates[randomness.random_range(place.saturating_sub(1)..=highest)].rate;
        }
        best
    }

    /// The rate that is expected to carry most.
    pub fn best(&self) -> Rate {
        let known = self.rates.iter().filter_map(|tried| {
            let success = tried.success.filter(|success| *success >= LEAST_SUCCESS)?;
            Some((success / self.flavour.exchange_time(tried.rate, FRAME).as_secs_f32(), tried.rate))
        });
        let best = known.max_by(|(a, _), (b, _)| a.total_cmp(b));
        // Nothing known yet: a middle one, from which both ways are short.
        let middle = || self.rates.get(self.rates.len() / 2).map_or(self.lowest, |tried| tried.rate);
        let tried = self.rates.iter().any(|tried| tried.success.is_some());
        best.map_or_else(|| if tried { self.lowest } else { middle() }, |(_, rate)| rate)
    }

    /// What became of a frame sent at a rate with so many attempts.
    ///
    /// An average is of the last frames, at whatever rate: of a rate that is seldom tried the first outcome says most, so that who was too far
    /// away for a while is back at its rate after some tries and not after as many as take to fill the average.
    pub fn learn(&mut self, rate: Rate, acknowledged: bool, attempts: u8) {
        for other in self.rates.iter_mut().filter(|tried| tried.rate != rate) {
            other.unheard = other.unheard.saturating_add(1);
        }
        let Some(tried) = self.rates.iter_mut().find(|tried| tried.rate == rate) else { return };
        let forgotten = 1.0 - (1.0 - NEW).powi(std::mem::take(&mut tried.unheard).min(100) + 1);
        let mut news = forgotten.min(MOST_NEW);
        let failed = attempts.max(1) - u8::from(acknowledged);
        for outcome in std::iter::repeat_n(0.0, failed.into()).chain(acknowledged.then_some(1.0)) {
            tried.success =
                Some(tried.success.map_or(outcome, |success| success + (outcome - success) * news));
            news = NEW;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    /// The rate that is used most in the second half of 4,000 frames, where an attempt at a rate succeeds with a probability.
    fn settled(success: impl Fn(Rate) -> f64) -> Rate {
        let mut randomness = ChaCha8Rng::seed_from_u64(1);
        let mut choice = RateChoice::new(Flavour::G, &Rate::OFDM, Rate(12));
        let mut used = std::collections::BTreeMap::new();
        for frame in 0..4_000 {
            let rate = choice.next(&mut randomness);
            let attempts = (1..=7).find(|_| randomness.random_bool(success(rate)));
            choice.learn(rate, attempts.is_some(), attempts.unwrap_or(7));
            if frame >= 2_000 {
                *used.entry(rate).or_insert(0) += 1;
            }
        }
        used.into_iter().max_by_key(|(_, times)| *times).unwrap().0
    }

    #[test]
    fn the_fastest_useful_rate_wins() {
        assert_eq!(settled(|_| 1.0), Rate(108));
        assert_eq!(settled(|rate| if rate <= Rate(48) { 0.95 } else { 0.02 }), Rate(48));
        // 54 Mbit/s at a third is slower than 36 at nearly all.
        assert_eq!(settled(|rate| if rate <= Rate(72) { 0.95 } else { 0.33 }), Rate(72));
    }

    #[test]
    fn after_a_time_in_which_nothing_arrived_the_fastest_is_back_within_900_frames_on_average() {
        let frames = |seed| {
            let mut randomness = ChaCha8Rng::seed_from_u64(seed);
            let mut choice = RateChoice::new(Flavour::G, &Rate::OFDM, Rate(12));
            for _ in 0..300 {
                choice.learn(choice.next(&mut randomness), false, 7);
            }
            assert_eq!(choice.best(), Rate(12));
            (1..10_000).find(|_| {
                choice.learn(choice.next(&mut randomness), true, 1);
                choice.best() == Rate(108)
            })
        };
        let frames: Vec<_> = (0..20).map(|seed| frames(seed).unwrap()).collect();
        assert!(frames.iter().all(|frames| *frames < 1_600), "{frames:?}");
        assert!(frames.iter().sum::<usize>() / frames.len() < 900, "{frames:?}");
    }

    /// A rate of which some attempts fail by chance is not left for a higher one that succeeds now and then.
    #[test]
    fn where_attempts_fail_by_chance_the_best_is_used_most_of_the_time() {
        let mut randomness = ChaCha8Rng::seed_from_u64(3);
        let mut choice = RateChoice::new(Flavour::G, &Rate::OFDM, Rate(12));
        let success = |rate: Rate| if rate <= Rate(72) { 0.8 } else { 0.3 };
        let mut best = 0;
        for _ in 0..8_000 {
            let rate = choice.next(&mut randomness);
            let attempts = (1..=7).find(|_| randomness.random_bool(success(rate)));
            choice.learn(rate, attempts.is_some(), attempts.unwrap_or(7));
            best += u32::from(choice.best() == Rate(72));
        }
        assert!(best > 6_400, "{best}");
    }

    #[test]
    fn where_nothing_gets_through_the_lowest_is_used() {
        assert_eq!(settled(|_| 0.0), Rate(12));
        assert_eq!(RateChoice::new(Flavour::G, &[], Rate(2)).best(), Rate(2));
    }
}
