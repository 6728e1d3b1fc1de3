//! What each access point of a channel brings, and what it costs the better ones.

use std::time::Duration;

use units::NetworkId;

use super::reason::longer;

/// Access points of one channel that carry data at once: with more, collisions eat what they bring (`[MULTIAP] fig 6c`: 3 or 4 at most).
const MOST_USED: usize = 4;
/// One that is as good as the best finds the air free when that one repeats: 10 % more in all (`[MULTIAP] section 4.2`).
const DIVERSITY: f64 = 0.1;
/// Gain and cost must differ by this factor before anything changes.
const STEADINESS: f64 = 1.25;
/// One that is in use stays as good as the best up to this much beyond the threshold, marked.
const KEEP: f64 = 1.5;
/// If less of the air is free than this it is full.
const FULL: f64 = 0.1;

/// An access point in the contest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub network: NetworkId,
    pub time: Duration,
    /// Packets in a second.
    pub carried: f64,
    pub in_use: bool,
    /// The part of the air that was free when it was last not in use.
    pub free_without: Option<f64>,
}

/// What was found of one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Judged {
    pub network: NetworkId,
    pub worth: Worth,
    /// The part of the air that the others leave.
    pub free: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Worth {
    Best,
    AsGood,
    /// The others leave air enough.
    FreeAir,
    /// Parts of what the best one can carry.
    Not {
        gain: f64,
        cost: f64,
    },
}

/// Judges all of one channel; the best one is first.
pub(super) fn judge(known: &[Known], threshold: f64) -> Vec<Judged> {
    let Some(best) = known.first() else { return Vec::new() };
    let mut used = 0;
    let mut judged = Vec::with_capacity(known.len());
    for one in known {
        let free = free_for(one, known);
        let over = longer(one.time, best.time);
        let bound = if one.in_use { threshold * KEEP } else { threshold };
        let (gain, cost) = (gain(over, free), cost(one, over, free));
        let factor = if one.in_use { STEADINESS } else { STEADINESS.recip() };
        let worth = if judged.is_empty() {
            Worth::Best
        } else if over <= bound && used < MOST_USED {
            Worth::AsGood
        } else if over > bound && used < MOST_USED && gain * factor > cost {
            Worth::FreeAir
        } else {
            let gain = if over <= bound { 0.0 } else { gain };
            Worth::Not { gain, cost }
        };
        used += usize::from(!matches!(worth, Worth::Not { .. }));
        judged.push(Judged { network: one.network, worth, free });
    }
    judged
}

/// The part of the air that it takes.
pub(super) fn air(known: &Known) -> f64 {
    known.carried.max(0.0) * known.time.as_secs_f64()
}

/// What the others leave of the air. If `one` takes part itself and the air is full, nobody can tell what they would take without it: then it is
/// what they left when it last did not.
fn free_for(one: &Known, all: &[Known]) -> f64 {
    let others: f64 = all.iter().filter(|other| other.network != one.network).map(air).sum();
    let free = (1.0 - others).clamp(0.0, 1.0);
    if one.in_use && free - air(one) < FULL { one.free_without.unwrap_or(0.0).min(free) } else { free }
}

/// Free air carries less over a slow one; one as good as the best carries a little more even without.
fn gain(over: f64, free: f64) -> f64 {
    if over == 0.0 { DIVERSITY.max(free) } else { free / (1.0 + over) }
}

/// The air that it takes beyond what is free is lost to the best one, but for what it carries itself. In use, what it takes is seen; before, it is
/// what the MAC gives it that deals packets out evenly.
fn cost(one: &Known, over: f64, free: f64) -> f64 {
    let taken = if one.in_use { air(one).min(1.0) } else { (1.0 + over) / (2.0 + over) };
    (taken - free).max(0.0) * (1.0 - 1.0 / (1.0 + over))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(network: u32, micros: u64, carried: f64) -> Known {
        Known {
            network: NetworkId(network),
            time: Duration::from_micros(micros),
            carried,
            in_use: false,
            free_without: None,
        }
    }

    fn used(known: &[Known]) -> Vec<u32> {
        let judged = judge(known, 0.2).into_iter();
        judged.filter(|one| !matches!(one.worth, Worth::Not { .. })).map(|one| one.network.0).collect()
    }

    #[test]
    fn poor_ones_are_left_out_where_the_best_one_fills_the_air() {
        let mut all = vec![known(0, 500, 1_900.0)];
        all.extend((1..=9).map(|network| known(network, 6_000, 0.0)));
        assert_eq!(used(&all), [0]);
        // Spread evenly between the best and 6 ms.
        let all: Vec<Known> =
            (0..10).map(|n| known(n, 500 + 611 * u64::from(n), if n == 0 { 1_900.0 } else { 0.0 })).collect();
        assert_eq!(used(&all), [0]);
    }

    /// `[MULTIAP] fig 6b`: 3 ms beside 0.5 ms, whose uplink gives it 5 of 25 Mbit/s: 417 packets a second, a fifth of the air.
    #[test]
    fn a_slow_one_takes_the_air_that_the_best_one_leaves() {
        let judged = judge(&[known(0, 500, 417.0), known(1, 3_000, 0.0)], 0.2);
        assert_eq!(judged[1].worth, Worth::FreeAir);
        assert!((judged[1].free - 0.7915).abs() < 1e-9);
        // Two poor ones find room for one: the first takes it.
        let slow = Known { in_use: true, free_without: Some(0.7915), ..known(1, 3_000, 240.0) };
        assert_eq!(used(&[known(0, 500, 417.0), slow, known(2, 6_000, 0.0)]), [0, 1]);
    }

    #[test]
    fn of_many_good_ones_a_few_are_used() {
        let all: Vec<Known> =
            (0..10).map(|network| known(network, 500 + 5 * u64::from(network), 200.0)).collect();
        assert_eq!(used(&all), [0, 1, 2, 3]);
    }

    #[test]
    fn one_that_fills_the_air_itself_does_not_prove_that_it_is_needed() {
        // Packet for packet: each 285 a second, the slow one has 86 % of the air.
        let both = |free_without| {
            [
                Known { in_use: true, ..known(0, 500, 285.0) },
                Known { in_use: true, free_without, ..known(1, 3_000, 285.0) },
            ]
        };
        assert_eq!(used(&both(None)), [0]);
        assert_eq!(used(&both(Some(0.05))), [0], "without it the best one filled the air");
        assert_eq!(used(&both(Some(0.8))), [0, 1], "without it the air was free");
    }

    #[test]
    fn costs_by_hand() {
        // Packet for packet six of seven parts of the air, of which a sixth is not lost.
        assert!((cost(&known(1, 3_000, 0.0), 5.0, 0.0) - 5.0 / 7.0).abs() < 1e-9);
        // In use 0.3 of the air.
        let used = Known { in_use: true, ..known(1, 3_000, 100.0) };
        assert!((cost(&used, 5.0, 0.0) - 0.25).abs() < 1e-9);
        assert_eq!(cost(&used, 5.0, 0.4), 0.0);
        assert!((gain(5.0, 0.3) - 0.05).abs() < 1e-9);
        let absurd = Known { time: Duration::ZERO, carried: f64::MAX, ..used };
        assert!(judge(&[absurd, absurd], 0.2).iter().all(|judged| (0.0..=1.0).contains(&judged.free)));
    }
}
