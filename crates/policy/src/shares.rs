//! Shares: each network's part of new flows or of a bond's packets.

use std::time::Duration;
use units::BitRate;

use crate::network::OtherFlows;

/// A part of the whole, 0 to 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Share(f64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0.0);
    /// The whole.
    pub const WHOLE: Self = Self(1.0);

    /// A part from 0 to 1; other numbers are clamped, what is no number is nothing.
    pub fn of_part(part: f64) -> Self {
        Self(if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) })
    }

    /// The same proportions, summing to one; all nothing if they were.
    pub fn whole(shares: impl Iterator<Item = Self> + Clone) -> Vec<Self> {
        let sum: f64 = shares.clone().map(Self::part).sum();
        shares.map(|share| if sum > 0.0 { Self(share.0 / sum) } else { Self::NONE }).collect()
    }

    /// The part as a number from 0 to 1.
    pub const fn part(self) -> f64 {
        self.0
    }

    /// This share of `slots` equal slots, rounded down.
    pub fn of(self, slots: u32) -> u32 {
        (self.0 * f64::from(slots)) as u32
    }
}

/// Shares by nearness, `[VIF] eq. 2`: `share_a = 1 / (RTT_a * sum_j(1 / RTT_j))`.
///
/// One share for each round-trip time, in the same order; they sum to one unless there are none. Times below one
/// microsecond count as one microsecond.
pub fn by_round_trip_time(times: &[Duration]) -> Vec<Share> {
    let inverse = |time: &Duration| 1.0 / time.as_secs_f64().max(LEAST_ROUND_TRIP);
    normalised(times.iter().map(inverse).collect())
}

/// Shares by rate, `[VIF] eq. 3`: `share_a = rate_a / sum_j(rate_j)`.
///
/// Meant for networks whose round-trip time is not known yet. Equal shares if no rate is known either.
pub fn by_rate(rates: &[BitRate]) -> Vec<Share> {
    normalised(rates.iter().map(|rate| rate.0 as f64).collect())
}

/// A network as [`by_capacity`] sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loaded {
    /// What all flows on it get together.
    pub capacity: BitRate,
    /// Our bulk flows on it.
    pub flows: u32,
    /// Those of other people.
    pub others: OtherFlows,
}

impl Loaded {
    /// What a further flow costs here, in seconds for each bit of its length: `(2 flows + others + 1) / capacity`.
    ///
    /// It gets `capacity / (flows + others + 1)`, and takes `flows / capacity` of the time of ours: flows of one length that end
    /// on a network take `flows (flows + others) / capacity` in all, of which this is the growth. `None` if the
    /// capacity is not known.
    pub fn cost_of_one_more(&self) -> Option<f64> {
        let after = 2.0 * f64::from(self.flows) + self.others.number() + 1.0;
        (self.capacity.0 > 0).then(|| after / self.capacity.0 as f64)
    }
}

/// Shares by capacity and by who uses it, the rule of this project: so many flows as there are (at least one for each
/// network) are thought to come, and each goes where it costs least ([`Loaded::cost_of_one_more`]): where the sum of the times
/// that our flows take grows least.
///
/// In the limit of small flows that fills the networks up to one level `t`: `2 (flows_a + share_a) + others_a = capacity_a t`. Idle
/// networks get shares by capacity. One that others fill gets less than that, but not nothing as soon as several
/// flows come: they press the others back, and whoever leaves the saturated network to the others leaves them its
/// capacity. One that carries more than its part already gets less, down to none. Equal shares if no capacity is known.
pub fn by_capacity(networks: &[Loaded]) -> Vec<Share> {
    let flows: f64 = networks.iter().map(|network| f64::from(network.flows)).sum();
    let to_come = flows.max(networks.len() as f64);
    let load = |network: &Loaded| 2.0 * f64::from(network.flows) + network.others.number();
    // Fullest last: a network takes part only while the level lies above what its flows have already.
    let mut order: Vec<(f64, f64)> = networks
        .iter()
        .map(|network| (network.capacity.0 as f64, load(network)))
        .filter(|(rate, _)| *rate > 0.0)
        .collect();
    order.sort_by(|left, right| (left.1 / left.0).total_cmp(&(right.1 / right.0)));
    let (mut capacity, mut carried, mut level) = (0.0, 0.0, 0.0);
    for (rate, load) in order {
        if capacity > 0.0 && load / rate >= level {
            break;
        }
        capacity += rate;
        carried += load;
        level = (2.0 * to_come + carried) / capacity;
    }
    let part = |network: &Loaded| (network.capacity.0 as f64 * level - load(network)).max(0.0);
    normalised(networks.iter().map(part).collect())
}

/// Splits `slots` equal slots by `shares` so that no slot is left: the largest remainders take what rounding leaves.
///
/// Of equal remainders the first wins, so the result is the same every time.
pub fn slots(shares: &[Share], slots: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = shares.iter().map(|share| share.of(slots)).collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    let remainder = |at: &usize| shares.get(*at).map_or(0.0, |share| (share.0 * f64::from(slots)).fract());
    order.sort_by(|left, right| remainder(right).total_cmp(&remainder(left)));
    let left = slots.saturating_sub(counts.iter().sum());
    for at in order.into_iter().cycle().take(if shares.is_empty() { 0 } else { left as usize }) {
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
    }
    counts
}

fn normalised(parts: Vec<f64>) -> Vec<Share> {
    let sum: f64 = parts.iter().sum();
    let equal = 1.0 / parts.len() as f64;
    parts.iter().map(|part| Share(if sum > 0.0 { part / sum } else { equal })).collect()
}

/// Seconds.
const LEAST_ROUND_TRIP: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(shares: &[Share]) -> Vec<f64> {
        shares.iter().map(|share| (share.part() * 1e9).round() / 1e9).collect()
    }

    /// By hand: 20, 40 and 40 ms: inverses 50, 25, 25; shares 1/2, 1/4, 1/4.
    #[test]
    fn nearness_by_hand() {
        let times = [20, 40, 40].map(Duration::from_millis);
        assert_eq!(parts(&by_round_trip_time(&times)), [0.5, 0.25, 0.25]);
    }

    /// By hand: 30, 10 and 0 Mbit/s: 3/4, 1/4, 0.
    #[test]
    fn rates_by_hand() {
        let rates = [30.0, 10.0, 0.0].map(BitRate::from_mbps);
        assert_eq!(parts(&by_rate(&rates)), [0.75, 0.25, 0.0]);
        assert_eq!(parts(&by_rate(&[BitRate(0), BitRate(0)])), [0.5, 0.5]);
        assert!(by_rate(&[]).is_empty());
    }

    fn loaded(mbps: f64, flows: u32, others: f64) -> Loaded {
        Loaded { capacity: BitRate::from_mbps(mbps), flows, others: OtherFlows::from(others) }
    }

    /// By hand: idle 30 and 10 Mbit/s: by capacity. Then 4 flows on the first: 4 more come, level (8 + 8) / 40 = 0.4 for each
    /// Mbit/s: (12 - 8) / 2 = 2 and 4 / 2 = 2. Then 9 on the first and 1 on the second: 10 come, level 1: 30 - 18 and 10 - 2. With 2
    /// flows on the second alone: 2 come, level of the first alone 4/30 < 4/10, so it takes all.
    #[test]
    fn capacity_by_hand() {
        let shares = |first: u32, second: u32| {
            parts(&by_capacity(&[loaded(30.0, first, 0.0), loaded(10.0, second, 0.0)]))
        };
        assert_eq!(shares(0, 0), [0.75, 0.25]);
        assert_eq!(shares(4, 0), [0.5, 0.5]);
        assert_eq!(shares(9, 1), [0.6, 0.4]);
        assert_eq!(shares(0, 2), [1.0, 0.0]);
        assert_eq!(parts(&by_capacity(&[loaded(0.0, 3, 0.0), loaded(0.0, 0, 0.0)])), [0.5, 0.5]);
        assert!(by_capacity(&[]).is_empty());
    }

    /// `[VIF] table 6`. By hand: twice 12 Mbit/s, others' flow on the first. Idle: 2 come, level 5/24: (2.5 - 1) / 2 = 0.75 and 1.25.
    /// With 2 and 3 of ours: 5 come, level (10 + 5 + 6) / 24: 10.5 - 5 and 10.5 - 6.
    #[test]
    fn a_saturated_network_gets_less_and_not_nothing() {
        let shares =
            |first, second| parts(&by_capacity(&[loaded(12.0, first, 1.0), loaded(12.0, second, 0.0)]));
        assert_eq!(shares(0, 0), [0.375, 0.625]);
        assert_eq!(shares(2, 3), [0.55, 0.45]);
        assert_eq!(parts(&by_capacity(&[loaded(12.0, 0, 9.0), loaded(12.0, 0, 0.0)])), [0.0, 1.0]);
    }

    /// By hand: one flow each on 12 Mbit/s, beside one of others on the first: 4/12 and 3/12 microseconds for each bit.
    #[test]
    fn costs_by_hand() {
        let cost = |others| (loaded(12.0, 1, others).cost_of_one_more().unwrap() * 12e6).round();
        assert_eq!((cost(1.0), cost(0.0)), (4.0, 3.0));
        assert_eq!(loaded(0.0, 1, 0.0).cost_of_one_more(), None);
    }

    /// By hand: 2/3 and 1/3 of 10: 6.67 and 3.33; the first has the larger remainder.
    #[test]
    fn slots_by_hand() {
        let times = [20, 40].map(Duration::from_millis);
        assert_eq!(slots(&by_round_trip_time(&times), 10), [7, 3]);
        assert_eq!(slots(&[], 10), [0u32; 0]);
    }

    proptest! {
        /// What the shares stand for: flows that go one after the other where they cost least.
        #[test]
        fn capacity_is_the_limit_of_joining(
            networks in proptest::collection::vec((1u64..1_000, 0u32..50, 0u32..20), 1..8)
        ) {
            let networks: Vec<Loaded> = networks
                .into_iter()
                .map(|(mbps, flows, others)| loaded(mbps as f64, flows, f64::from(others)))
                .collect();
            let shares = by_capacity(&networks);
            let to_come = networks.iter().map(|network| network.flows).sum::<u32>().max(networks.len() as u32);
            let mut joined = networks.clone();
            for _ in 0..to_come {
                let cost = |network: &&mut Loaded| network.cost_of_one_more().unwrap();
                let best = joined.iter_mut().min_by(|left, right| cost(left).total_cmp(&cost(right))).unwrap();
                best.flows += 1;
            }
            for (share, (before, after)) in shares.iter().zip(networks.iter().zip(&joined)) {
                let difference = share.part() * f64::from(to_come) - f64::from(after.flows - before.flows);
                prop_assert!(difference.abs() <= networks.len() as f64, "{shares:?} {joined:?} of {to_come}");
            }
        }

        /// No other way of dealing out the flows to come takes less time in all.
        #[test]
        fn joining_by_cost_takes_least_time(
            networks in proptest::collection::vec((1u64..100, 0u32..4, 0u32..4), 2..4),
            to_come in 1u32..6,
        ) {
            let networks: Vec<Loaded> = networks
                .into_iter()
                .map(|(mbps, flows, others)| loaded(mbps as f64, flows, f64::from(others)))
                .collect();
            let time = |networks: &[Loaded]| -> f64 {
                networks
                    .iter()
                    .map(|network| {
                        let flows = f64::from(network.flows);
                        flows * (flows + network.others.number()) / network.capacity.0 as f64
                    })
                    .sum()
            };
            let mut joined = networks.clone();
            for _ in 0..to_come {
                let cost = |network: &&mut Loaded| network.cost_of_one_more().unwrap();
                joined.iter_mut().min_by(|left, right| cost(left).total_cmp(&cost(right))).unwrap().flows += 1;
            }
            let ways = networks.len().pow(to_come);
            for way in 0..ways {
                let (mut other, mut rest) = (networks.clone(), way);
                for _ in 0..to_come {
                    other[rest % networks.len()].flows += 1;
                    rest /= networks.len();
                }
                prop_assert!(time(&joined) <= time(&other) * (1.0 + 1e-9), "{joined:?} against {other:?}");
            }
        }

        #[test]
        fn shares_are_whole(micros in proptest::collection::vec(0u64..10_000_000, 1..12), wanted in 1u32..300) {
            let times: Vec<Duration> = micros.iter().copied().map(Duration::from_micros).collect();
            let shares = by_round_trip_time(&times);
            let sum: f64 = shares.iter().map(|share| share.part()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9);
            for (left, right) in times.iter().zip(&shares).flat_map(|left| {
                times.iter().zip(&shares).map(move |right| (left, right))
            }) {
                prop_assert!(left.0 > right.0 || left.1.part() >= right.1.part(), "a nearer network never gets less");
            }
            prop_assert_eq!(slots(&shares, wanted).iter().sum::<u32>(), wanted);
        }
    }
}
