//! How new flows are split over networks of equal rank.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, NetworkId};

use crate::network::NetworkInput;
use crate::{Reason, Share, shares};

/// Rule for splitting new flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// By measured capacity and the flows, ours and others', that each network carries already ([`shares::by_capacity`]): this project's.
    #[default]
    Capacity,
    /// By nearness, `[VIF] eq. 2`; by rate, `[VIF] eq. 3`, while any of the networks has no sample yet.
    InverseRtt,
    /// By rate, `[VIF] eq. 3`.
    Bandwidth,
}

/// Each chosen network's share and why. `sole` is the reason that stands if the split adds nothing to it.
pub(super) fn shares(
    split: Split,
    chosen: &[&NetworkInput],
    sole: Reason,
) -> BTreeMap<NetworkId, (Share, Reason)> {
    let with = |parts: Vec<(Share, Reason)>| chosen.iter().map(|input| input.id).zip(parts).collect();
    if chosen.len() < 2 {
        return with(vec![(Share::WHOLE, sole)]);
    }
    let times: Option<Vec<Duration>> =
        chosen.iter().map(|input| input.metrics.rtt.map(|rtt| rtt.smoothed)).collect();
    let known = known_rates(chosen);
    with(match (split, times, known) {
        (Split::InverseRtt, Some(times), _) => by_nearness(&times),
        (_, _, None) => {
            shares::by_rate(&vec![BitRate(0); chosen.len()]).into_iter().map(|share| (share, sole)).collect()
        }
        (Split::Capacity, _, Some(rates)) => by_capacity(chosen, &rates),
        (_, _, Some(rates)) => by_rate(&rates),
    })
}

fn by_nearness(times: &[Duration]) -> Vec<(Share, Reason)> {
    let reason = |(at, own): (usize, &Duration)| {
        let others = || times.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, time)| *time);
        let (least, most) = (others().min().unwrap_or_default(), others().max().unwrap_or_default());
        Reason::InverseRtt { own: *own, least, most }
    };
    shares::by_round_trip_time(times).into_iter().zip(times.iter().enumerate().map(reason)).collect()
}

fn by_rate(rates: &[BitRate]) -> Vec<(Share, Reason)> {
    let all = sum(rates);
    let reason = |own: &BitRate| Reason::Bandwidth { own: *own, all };
    shares::by_rate(rates).into_iter().zip(rates.iter().map(reason)).collect()
}

fn by_capacity(chosen: &[&NetworkInput], rates: &[BitRate]) -> Vec<(Share, Reason)> {
    let all = sum(rates);
    let loaded: Vec<shares::Loaded> = rates
        .iter()
        .zip(chosen)
        .map(|(rate, input)| shares::Loaded {
            capacity: *rate,
            flows: input.metrics.bulk_flows,
            others: input.metrics.others,
        })
        .collect();
    let reason = |network: &shares::Loaded| Reason::Capacity {
        own: network.capacity,
        all,
        flows: network.flows,
        others: network.others,
    };
    shares::by_capacity(&loaded).into_iter().zip(loaded.iter().map(reason)).collect()
}

/// Each network's rate; `None` if nothing is known of any.
///
/// What was delivered counts where it is known. A network that nobody used yet is taken to be like the mean of the others,
/// but no faster than its link claims: a gigabit port says nothing about the line behind it. With no delivery known
/// anywhere the claims count, as `[VIF]` has it.
pub(super) fn known_rates(chosen: &[&NetworkInput]) -> Option<Vec<BitRate>> {
    let known = |rate: &Option<BitRate>| rate.filter(|rate| rate.0 > 0);
    let delivered: Vec<Option<BitRate>> =
        chosen.iter().map(|input| known(&input.metrics.delivered)).collect();
    let nominal: Vec<Option<BitRate>> = chosen.iter().map(|input| known(&input.metrics.nominal)).collect();
    let guess = |nominal: &Option<BitRate>, mean: BitRate| nominal.map_or(mean, |claimed| claimed.min(mean));
    if let Some(mean) = mean(&delivered) {
        return Some(
            delivered
                .iter()
                .zip(&nominal)
                .map(|(rate, nominal)| rate.unwrap_or_else(|| guess(nominal, mean)))
                .collect(),
        );
    }
    let mean = mean(&nominal)?;
    Some(nominal.iter().map(|rate| rate.unwrap_or(mean)).collect())
}

fn mean(rates: &[Option<BitRate>]) -> Option<BitRate> {
    let known: Vec<BitRate> = rates.iter().copied().flatten().collect();
    (!known.is_empty()).then(|| BitRate(sum(&known).0 / known.len() as u64))
}

fn sum(rates: &[BitRate]) -> BitRate {
    BitRate(rates.iter().fold(0, |sum, rate| sum.saturating_add(rate.0)))
}
