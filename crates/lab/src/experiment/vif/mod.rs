//! The VIF family: what the paper measured of a virtual interface over several cards, on shaped wired links, where the air
//! does not matter (`-wired`). All of it runs in the virtual machine with real programs and a real kernel.

mod aggregation;
mod energy;
mod handover;
mod neighbour;
mod overhead;

use super::{Experiment, ExperimentId};

/// By what the paper's rates are multiplied: the virtual machine's processor carries everything.
const SCALE: f64 = 0.5;
/// What an 802.11g card carried in the paper, and what an 802.11b card carries, Mbit/s of its wired stand-in.
const FAST_MBPS: f64 = 24.0;
const SLOW_MBPS: f64 = 6.0;
/// The paper measured round trips of 1.73 ms.
const ROUND_TRIP_MS: u64 = 2;
/// Of the pings that see how long nothing gets through.
const PING_INTERVAL_MS: f64 = 10.0;
/// "Many flows"; the paper does not say how many.
const MANY: u32 = 6;

/// The experiments of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    let mut all =
        vec![overhead::experiment(), handover::experiment(), neighbour::experiment(), energy::experiment()];
    all.extend(aggregation::experiments());
    all
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "VIF".to_owned(), name: name.to_owned() }
}

/// The longest run of unanswered pings of each trial, ms; nought if all were answered. `begin` is in seconds since the first ping;
/// a trial ends where the next one begins.
fn ping_gaps(round_trips: &[f64], trials: u32, begin: impl Fn(u32) -> f64) -> Vec<f64> {
    let longest = |trial| {
        let (mut run, mut longest) = (0_u32, 0_u32);
        for (number, time) in (0_u32..).zip(round_trips) {
            let at = f64::from(number) * PING_INTERVAL_MS / 1e3;
            let is_within = (begin(trial)..begin(trial + 1)).contains(&at);
            run = if is_within && *time < 0.0 { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        f64::from(longest) * PING_INTERVAL_MS
    };
    (0..trials).map(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_their_trial() {
        let mut round_trips = vec![2.0; 4_000];
        // 70 ms from 4.01 s on, 2 s from 10.1 s on.
        round_trips[401..408].fill(-1.0);
        round_trips[1_010..1_210].fill(-1.0);
        let gaps = ping_gaps(&round_trips, 4, |trial| 3.7 + 6.037 * f64::from(trial));
        assert_eq!(gaps, [70.0, 2_000.0, 0.0, 0.0]);
    }
}
