//! The VIF family: what the paper measured of a virtual interface over several cards, on shaped cables (`-wired`) and with access points
//! and cards of 802.11. All of it runs in the virtual machine with real programs and a real kernel.

mod aggregation;
mod energy;
mod handover;
mod neighbour;
mod overhead;

use super::direct_laboratory::Links;
use super::{Experiment, ExperimentId};
use crate::medium::{LinkConfig, Quality};
use sim::NetworkSpec;

/// By what the paper's rates are multiplied on cables: the virtual machine's processor carries everything.
const SCALE: f64 = 0.5;
/// What lies behind an access point carries more than the air.
const BEHIND_MBPS: f64 = 100.0;
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
    let mut all = vec![neighbour::experiment()];
    for links in [Links::Wired, Links::Air] {
        all.extend([overhead::experiment(links), handover::experiment(links), energy::experiment(links)]);
        all.extend(aggregation::experiments(links));
    }
    all
}

impl Links {
    /// By what the paper's rates are multiplied. Those of the air are 802.11's own.
    fn scale(self) -> f64 {
        match self {
            Self::Wired => SCALE,
            Self::Air => 1.0,
        }
    }
}

/// What lies behind an access point.
fn behind_point(name: &'static str) -> NetworkSpec {
    NetworkSpec::symmetric(name, BEHIND_MBPS, ROUND_TRIP_MS)
}

/// What a spec says of access points and cards with these of the paper's rates.
fn describe_air(spec: &mut toml::Table, interfaces: &[(&str, f64)]) {
    let each = interfaces.iter().map(|(name, mbps)| {
        if *mbps < FAST_MBPS {
            format!("{name}: 802.11b (1 to 11 Mbit/s)")
        } else {
            format!("{name}: 802.11g")
        }
    });
    spec.insert("kinds".into(), each.collect::<Vec<_>>().into());
    let behind = format!("{BEHIND_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms");
    spec.insert("behind_access_points".into(), behind.into());
    spec.insert("access_points".into(), "hostapd, open; the kernel's own station on each card".into());
}

/// Both directions between two radios carry the rates of 802.11b only.
fn old_rates(radios: [usize; 2]) -> LinkConfig {
    let loss_at = [("6", 1.0), ("11", 0.0), ("12", 1.0)].map(|(rate, loss)| (rate.to_owned(), loss)).into();
    let quality = Quality { loss_at, ..Quality::default() };
    LinkConfig { between: Some(radios), quality, ..LinkConfig::default() }
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
