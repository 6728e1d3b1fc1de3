//! What a network carries for so many of our bulk flows, learned from what it carried.
//!
//! Flows at one bottleneck get about the same. With `n` of ours and `m` of other people's, ours get `C n / (n + m)` together: a
//! single flow on a network that others fill shows a fraction of what several would get. From two numbers of flows
//! both `C` and `m` follow, as `n / rate = n / C + m / C` is a line; with one number only, what others take is
//! seen against what the network carried not long ago.

use std::time::Duration;

use units::{BitRate, Timestamp};

use crate::network::OtherFlows;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct CapacityEstimator {
    /// What one flow got, what two got, and so on; the last one is for all greater numbers too.
    carried: [Option<Carried>; MOST_FLOWS],
    most: Peak,
    estimate: Option<Estimate>,
}

/// What flows got together.
#[derive(Clone, Copy, Debug)]
struct Carried {
    /// How many there were.
    flows: f64,
    /// Bit/s, smoothed.
    rate: f64,
    at: Timestamp,
}

/// `C` and `m`.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    capacity: f64,
    others: f64,
    at: Timestamp,
}

impl CapacityEstimator {
    /// `flows` bulk flows of ours, which the network and nothing else limited, got `rate` together for about a second.
    pub fn on_sample(&mut self, now: Timestamp, flows: u32, rate: BitRate) {
        let Some(slot) = (flows as usize).checked_sub(1).filter(|_| rate.0 > 0) else { return };
        let flows = f64::from(flows);
        let known = &mut self.carried[slot.min(MOST_FLOWS - 1)];
        let before = known.filter(|known| now.since(known.at) < WINDOW && known.flows == flows);
        let fresh = rate.0 as f64;
        let smoothed = before.map_or(fresh, |before| before.rate + GAIN * (fresh - before.rate));
        *known = Some(Carried { flows, rate: smoothed, at: now });
        self.most.on_sample(now, fresh);
        self.estimate = Some(self.fit(now, flows, smoothed));
    }

    /// No bulk flow of ours is there, so nothing shows what others do: what is thought of them fades.
    pub fn on_silence(&mut self, now: Timestamp) {
        if let Some(estimate) = &mut self.estimate {
            let passed = now.since(estimate.at);
            estimate.others *= 0.5_f64.powf(passed.as_secs_f64() / WINDOW.as_secs_f64());
            estimate.at = estimate.at.max(now);
        }
    }

    /// What ours would get if they were very many; `None` before the first sample.
    pub fn capacity(&self) -> Option<BitRate> {
        self.estimate.map(|estimate| BitRate(estimate.capacity as u64))
    }

    /// Other people's flows, in quarters, so that what hardly changes counts as the same.
    pub fn others(&self) -> OtherFlows {
        let others = self.estimate.map_or(0.0, |estimate| estimate.others);
        OtherFlows::from((others * 4.0).round() / 4.0)
    }

    /// The line through what is known of late, held to what was seen: never less than the network carried, never more than
    /// twice that, and such that it explains the latest sample.
    fn fit(&self, now: Timestamp, flows: f64, rate: f64) -> Estimate {
        let recent = self.carried.iter().flatten().filter(|known| now.since(known.at) < WINDOW);
        // Least squares of (flows / C + m / C) / (flows / rate) - 1: relative errors count, not large numbers.
        let (mut xx, mut xy, mut yy, mut x, mut y) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for known in recent {
            let (slope, offset) = (known.rate, known.rate / known.flows);
            xx += slope * slope;
            xy += slope * offset;
            yy += offset * offset;
            x += slope;
            y += offset;
        }
        let determinant = xx * yy - xy * xy;
        let most = self.most.get();
        let inverse = (x * yy - y * xy) / determinant;
        let extrapolated = if determinant > LEAST_DETERMINANT * xx * yy {
            if inverse > 0.0 { 1.0 / inverse } else { f64::INFINITY }
        } else {
            most
        };
        let capacity = extrapolated.clamp(most, BOLDEST * most);
        Estimate { capacity, others: (capacity * flows / rate - flows).max(0.0), at: now }
    }
}

/// The most of late. Only samples make it older: what an idle network could do is not forgotten.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    current: f64,
    previous: f64,
    half_started: Timestamp,
}

impl Peak {
    fn on_sample(&mut self, now: Timestamp, rate: f64) {
        if now.since(self.half_started) >= WINDOW / 2 {
            self.previous = std::mem::take(&mut self.current);
            self.half_started = now;
        }
        self.current = self.current.max(rate);
    }

    fn get(&self) -> f64 {
        self.current.max(self.previous)
    }
}

/// Numbers of flows that are told apart.
const MOST_FLOWS: usize = 8;
/// How long a sample tells something about now. What is thought of others is halved in as long.
const WINDOW: Duration = Duration::from_secs(60);
/// Weight of a new sample beside what the same number of flows got before.
const GAIN: f64 = 0.25;
/// How much more than it ever carried a network is believed to carry.
const BOLDEST: f64 = 2.0;
/// Below, all samples are of about one number of flows.
const LEAST_DETERMINANT: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn fed(samples: &[(u32, f64)]) -> CapacityEstimator {
        let mut estimator = CapacityEstimator::default();
        for (second, (flows, mbps)) in (1..).zip(samples) {
            estimator.on_sample(at(second), *flows, BitRate::from_mbps(*mbps));
        }
        estimator
    }

    fn megabits(estimator: &CapacityEstimator) -> f64 {
        estimator.capacity().map_or(0.0, BitRate::as_mbps)
    }

    /// By hand: 12 Mbit/s with one flow of others: one of ours gets 6, three get 9. The line through 1/6 and 3/9 has the slope
    /// 1/12 and the offset 1/12.
    #[test]
    fn others_show_when_there_are_more_of_ours() {
        assert_eq!(megabits(&fed(&[(1, 6.0)])), 6.0, "nothing tells of others yet");
        let estimator = fed(&[(1, 6.0), (3, 9.0)]);
        assert!((megabits(&estimator) - 12.0).abs() < 1e-6, "{estimator:?}");
        assert_eq!(estimator.others(), OtherFlows::from(1.0));
    }

    /// By hand: 12 Mbit/s alone, then 4 with the same one flow: 12 * 1 / 4 - 1 = 2 others.
    #[test]
    fn others_that_come_show_at_once_and_fade_when_nothing_is_seen() {
        let mut estimator = fed(&[(1, 12.0), (1, 12.0)]);
        assert_eq!(estimator.others(), OtherFlows::default());
        for second in 3..20 {
            estimator.on_sample(at(second), 1, BitRate::from_mbps(4.0));
        }
        assert_eq!((megabits(&estimator), estimator.others()), (12.0, OtherFlows::from(2.0)));
        estimator.on_silence(at(79));
        assert_eq!(estimator.others(), OtherFlows::from(1.0), "half of it after a minute");
        for second in 80..600 {
            estimator.on_silence(at(second));
        }
        assert_eq!((megabits(&estimator), estimator.others()), (12.0, OtherFlows::default()));
    }

    /// By hand: 20 Mbit/s at 1 s, 8 from 31 s on: the older half is let go at the second turn.
    #[test]
    fn a_slower_network_is_believed_in_the_end() {
        let mut estimator = CapacityEstimator::default();
        let mut feed = |second, mbps| {
            estimator.on_sample(at(second), 1, BitRate::from_mbps(mbps));
            megabits(&estimator)
        };
        assert_eq!(feed(40, 20.0), 20.0);
        assert_eq!(feed(60, 8.0), 20.0);
        assert_eq!(feed(71, 8.0), 20.0);
        let last = (102..120).map(|second| feed(second, 8.0)).last().unwrap();
        assert!((last - 8.0).abs() < 0.1, "{last}");
    }

    /// Ours got 6 beside others; these are gone when three of ours get 12: the line would go through the roof.
    #[test]
    fn what_is_believed_is_bounded() {
        let estimator = fed(&[(1, 2.0), (3, 12.0)]);
        assert!(megabits(&estimator) <= 24.0);
    }

    proptest! {
        /// Whatever the network: fed with what it gives to several numbers of flows, the estimator finds it, unless that is
        /// more than twice of what was seen.
        #[test]
        fn finds_what_is_there(
            mbps in 1.0f64..1_000.0,
            others in 0u32..6,
            flows in proptest::collection::vec(1u32..8, 2..20),
        ) {
            prop_assume!(flows.iter().any(|first| *first != flows[0]));
            let most = flows.iter().copied().max().unwrap();
            prop_assume!(most > others);
            let rate = |flows: u32| mbps * f64::from(flows) / f64::from(flows + others);
            let samples: Vec<(u32, f64)> = flows.iter().map(|flows| (*flows, rate(*flows))).collect();
            let estimator = fed(&samples);
            prop_assert!((megabits(&estimator) / mbps - 1.0).abs() < 1e-3, "{} of {mbps}", megabits(&estimator));
            prop_assert_eq!(estimator.others(), OtherFlows::from(f64::from(others)));
        }

        #[test]
        fn is_bounded_whatever_comes(
            samples in proptest::collection::vec((0u32..100, any::<u64>(), 0u64..1_000_000), 0..50),
        ) {
            let mut estimator = CapacityEstimator::default();
            let mut most = 0.0f64;
            let mut now = Timestamp::ZERO;
            for (flows, rate, pause) in samples {
                now += Duration::from_millis(pause);
                estimator.on_sample(now, flows, BitRate(rate));
                if flows > 0 {
                    most = most.max(rate as f64);
                }
                estimator.on_silence(now);
                let capacity = estimator.capacity().map_or(0.0, |rate| rate.0 as f64);
                prop_assert!(capacity <= (2.0 * most).max(0.0) * (1.0 + 1e-9));
                prop_assert!(estimator.others().number() >= 0.0);
            }
        }
    }
}
