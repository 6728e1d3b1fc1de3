//! Which network a *new* flow gets. Living flows stay where they are, whatever happens to the shares.
//!
//! | flow | network |
//! |---|---|
//! | held to networks by a rule or by its user | one of those, by the lines below |
//! | real-time | the first of [`Table::for_calls`]; by shares where that is empty |
//! | interactive | least smoothed round-trip time, of those that bulk flows have not filled |
//! | bulk, split by capacity | where it costs our flows least time ([`crate::shares::Loaded::cost_of_one_more`]) |
//! | bulk, other splits | by shares |
//!
//! `[JUGGLER] 3.1` assigns to whichever network is on the air and names matching by class as work to do.

use std::fmt;

use units::NetworkId;

use crate::shares::Loaded;
use crate::table::{Entry, Table};
use crate::{FlowClass, PathStatus, Split};

/// A flow that has no network yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFlow<'a> {
    /// What it needs, as far as known.
    pub class: FlowClass,
    /// What its rule or its user said.
    pub wish: Wish<'a>,
}

/// Which networks a flow may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wish<'a> {
    /// Any.
    #[default]
    Any,
    /// These while one of them can be used, else any.
    Prefer(&'a [NetworkId]),
    /// These or none.
    Only(&'a [NetworkId]),
}

/// The network of a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The network.
    pub network: NetworkId,
    /// Why this one.
    pub why: Why,
    /// Whether the flow was held to networks that it names.
    pub held: bool,
}

/// What decided between the networks that a flow may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// There is no other.
    Only,
    /// A real-time flow: least delay and jitter.
    Calls,
    /// An interactive flow: least round-trip time.
    LeastRtt,
    /// A bulk flow: least time for it and for those of ours that are there.
    LeastTime,
    /// By share.
    Share,
}

/// Why a flow gets no network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoNetwork {
    /// None can be used.
    #[error("no network can be used")]
    None,
    /// None of those that the flow is held to can be used.
    #[error("none of the networks that the flow is held to can be used")]
    NoneOfThose,
}

/// The network of a new flow. `random` decides by shares: any number, evenly drawn by the caller.
///
/// # Errors
/// [`NoNetwork`] if there is none that the flow may use.
pub fn assign(flow: NewFlow<'_>, table: &Table, random: u64) -> Result<Assignment, NoNetwork> {
    let listed = match flow.wish {
        Wish::Any => None,
        Wish::Prefer(networks) | Wish::Only(networks) => Some(usable(table, |id| networks.contains(&id))),
    };
    let (candidates, held) = match (listed, flow.wish) {
        (Some(listed), _) if !listed.is_empty() => (listed, true),
        (_, Wish::Only(_)) => return Err(NoNetwork::NoneOfThose),
        _ => (usable(table, |_| true), false),
    };
    let (network, why) = choose(flow.class, table, &candidates, random).ok_or(NoNetwork::None)?;
    Ok(Assignment { network, why, held })
}

/// The active ones of those that `may` be used; backups only if that leaves none.
///
/// A flow that is held to a backup uses it, but never one that is off.
fn usable(table: &Table, may: impl Fn(NetworkId) -> bool) -> Vec<&Entry> {
    let with = |status| -> Vec<&Entry> {
        table.entries.iter().filter(|entry| entry.status == status && may(entry.network)).collect()
    };
    let active = with(PathStatus::Active);
    if active.is_empty() { with(PathStatus::Backup) } else { active }
}

fn choose(class: FlowClass, table: &Table, candidates: &[&Entry], random: u64) -> Option<(NetworkId, Why)> {
    if let [only] = candidates {
        return Some((only.network, Why::Only));
    }
    let by_share = || Some((by_share(candidates, random)?, Why::Share));
    match class {
        FlowClass::RealTime if table.for_calls.is_empty() => by_share(),
        FlowClass::RealTime => {
            let is_candidate = |id: &&NetworkId| candidates.iter().any(|entry| entry.network == **id);
            let preferred = table.for_calls.iter().find(is_candidate).copied();
            let least =
                candidates.iter().min_by(|left, right| left.for_calls().total_cmp(&right.for_calls()));
            Some((preferred.or(least.map(|entry| entry.network))?, Why::Calls))
        }
        FlowClass::Interactive => {
            let near = |entry: &&&Entry| entry.rtt.map(|rtt| (entry.full, rtt.smoothed));
            let measured = candidates.iter().filter(|entry| entry.rtt.is_some()).min_by_key(near);
            measured.map_or_else(by_share, |entry| Some((entry.network, Why::LeastRtt)))
        }
        FlowClass::Bulk if table.split == Split::Capacity => {
            let costs: Option<Vec<(f64, NetworkId)>> =
                candidates.iter().map(|entry| Some((cost_of_one_more(entry)?, entry.network))).collect();
            let least = costs.and_then(|costs| {
                costs.into_iter().min_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)))
            });
            least.map_or_else(by_share, |(_, network)| Some((network, Why::LeastTime)))
        }
        FlowClass::Bulk => by_share(),
    }
}

fn cost_of_one_more(entry: &Entry) -> Option<f64> {
    let (flows, others) = (entry.bulk_flows, entry.others);
    Loaded { capacity: entry.capacity?, flows, others }.cost_of_one_more()
}

/// One of the candidates, each with the chance of its share; all with the same chance if none has any.
fn by_share(candidates: &[&Entry], random: u64) -> Option<NetworkId> {
    let sum: f64 = candidates.iter().map(|entry| entry.share.part()).sum();
    let part =
        |entry: &Entry| if sum > 0.0 { entry.share.part() / sum } else { 1.0 / candidates.len() as f64 };
    let mut left = (random >> 11) as f64 / (1u64 << 53) as f64;
    for entry in candidates {
        left -= part(entry);
        if left < 0.0 {
            return Some(entry.network);
        }
    }
    // Rounding may leave a trace of the whole: it belongs to the last that has a part.
    candidates.iter().rev().find(|entry| part(entry) > 0.0).map(|entry| entry.network)
}

impl fmt::Display for Assignment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.why, self.held) {
            (Why::Only, true) => return formatter.write_str("held to it"),
            (Why::Only, false) => formatter.write_str("the only network in use"),
            (Why::Calls, _) => formatter.write_str("real-time: least delay and jitter"),
            (Why::LeastRtt, _) => formatter.write_str("interactive: least round-trip time"),
            (Why::LeastTime, _) => {
                formatter.write_str("bulk: least time for it and the flows that are there")
            }
            (Why::Share, _) => formatter.write_str("by share"),
        }?;
        if self.held { formatter.write_str(", of those that it is held to") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use units::{BitRate, Timestamp};

    use super::*;
    use crate::network::{NetworkInput, PowerSupply, RttSummary};
    use crate::{ChoiceSettings, NetworkPolicy, NetworkPreference};

    const NEAR: NetworkId = NetworkId(0);
    const FAST: NetworkId = NetworkId(1);
    const BACKUP: NetworkId = NetworkId(2);
    const DEAD: NetworkId = NetworkId(3);

    /// 20 ms with 10 Mbit/s, 60 ms with 50 Mbit/s, a backup, one that is down.
    fn inputs() -> [NetworkInput; 4] {
        let mut all = [0, 1, 2, 3].map(|id| NetworkInput::new(NetworkId(id), format!("net{id}")));
        for (input, (ms, mbps)) in all.iter_mut().zip([(20, 10.0), (60, 50.0), (40, 20.0), (5, 100.0)]) {
            let smoothed = Duration::from_millis(ms);
            input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
            input.metrics.delivered = Some(BitRate::from_mbps(mbps));
        }
        all[2].preference = NetworkPreference { backup: Some(true), ..NetworkPreference::default() };
        all[3].up = false;
        all
    }

    fn table(split: Split, inputs: &[NetworkInput]) -> Table {
        let settings = ChoiceSettings { split, ..ChoiceSettings::default() };
        NetworkPolicy::new(settings).evaluate(Timestamp::ZERO, inputs, PowerSupply::Mains)
    }

    fn any(class: FlowClass) -> NewFlow<'static> {
        NewFlow { class, wish: Wish::Any }
    }

    #[test]
    fn classes_get_what_they_need() {
        let table = table(Split::Capacity, &inputs());
        let network = |class| assign(any(class), &table, 7).unwrap().network;
        assert_eq!(network(FlowClass::RealTime), NEAR);
        assert_eq!(network(FlowClass::Interactive), NEAR);
        assert_eq!(network(FlowClass::Bulk), FAST);
    }

    #[test]
    fn real_time_flows_are_dealt_out_where_the_user_wants_that() {
        let settings = ChoiceSettings { real_time_on_best: false, ..ChoiceSettings::default() };
        let table = NetworkPolicy::new(settings).evaluate(Timestamp::ZERO, &inputs(), PowerSupply::Mains);
        let ask = |draw| assign(any(FlowClass::RealTime), &table, draw).unwrap();
        assert_eq!([ask(0).network, ask(u64::MAX).network], [NEAR, FAST]);
        assert_eq!(ask(0).why, Why::Share);
    }

    #[test]
    fn interactive_flows_avoid_what_is_full() {
        let mut inputs = inputs();
        inputs[0].metrics.load = BitRate::from_mbps(9.5);
        inputs[0].metrics.bulk_flows = 3;
        let table = table(Split::Capacity, &inputs);
        assert_eq!(assign(any(FlowClass::Interactive), &table, 0).unwrap().network, FAST);
    }

    /// By hand: 1/50 < 1/10, 3/50 < 1/10, 5/50 = 1/10 with the tie going to the first; then 5/50, 7/50 and 9/50 < 3/10.
    #[test]
    fn bulk_flows_spread_by_what_a_further_one_costs() {
        let mut table = table(Split::Capacity, &inputs());
        let mut order = Vec::new();
        for _ in 0..6 {
            let network = assign(any(FlowClass::Bulk), &table, 0).unwrap().network;
            table.join(network);
            order.push(network);
        }
        assert_eq!(order, [FAST, FAST, NEAR, FAST, FAST, FAST]);
    }

    /// `[VIF] table 6`: two equal networks, one flow of other people on the first and its queue full. A single flow of any class
    /// takes the other one; of six bulk flows two or three belong on the saturated one.
    #[test]
    fn a_saturated_network_is_for_many_flows_not_for_one() {
        let mut inputs = [0, 1].map(|id| NetworkInput::new(NetworkId(id), format!("net{id}")));
        for (input, (ms, others)) in inputs.iter_mut().zip([(60, 1.0), (2, 0.0)]) {
            let smoothed = Duration::from_millis(ms);
            input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
            input.metrics.delivered = Some(BitRate::from_mbps(12.0));
            input.metrics.others = others.into();
        }
        let mut table = table(Split::Capacity, &inputs);
        for class in [FlowClass::RealTime, FlowClass::Interactive, FlowClass::Bulk] {
            assert_eq!(assign(any(class), &table, 0).unwrap().network, NetworkId(1), "{class:?}");
        }
        let mut counts = [0, 0];
        for _ in 0..6 {
            let network = assign(any(FlowClass::Bulk), &table, 0).unwrap().network;
            table.join(network);
            counts[network.0 as usize] += 1;
        }
        assert_eq!(counts, [3, 3], "by hand: 1, 2, 3, 4, 5, 6 twelfths by turns");
    }

    #[test]
    fn wishes_hold() {
        let table = table(Split::InverseRtt, &inputs());
        let ask = |wish| assign(NewFlow { class: FlowClass::Bulk, wish }, &table, 0);
        assert_eq!(ask(Wish::Only(&[BACKUP])).unwrap().network, BACKUP, "a backup may be asked for");
        assert_eq!(ask(Wish::Only(&[BACKUP, FAST])).unwrap().network, FAST, "an active one comes first");
        assert_eq!(ask(Wish::Only(&[DEAD])), Err(NoNetwork::NoneOfThose));
        assert_eq!(ask(Wish::Only(&[])), Err(NoNetwork::NoneOfThose));
        let fallen_back = ask(Wish::Prefer(&[DEAD])).unwrap();
        assert!(!fallen_back.held && [NEAR, FAST].contains(&fallen_back.network));
        assert!(ask(Wish::Prefer(&[BACKUP])).unwrap().held);
        let nothing = table.restricted(|network| network == DEAD);
        assert_eq!(assign(any(FlowClass::Bulk), &nothing, 0), Err(NoNetwork::None));
    }

    /// By hand: 1/20 and 1/60: 3/4 and 1/4.
    #[test]
    fn shares_are_met_over_even_draws() {
        let table = table(Split::InverseRtt, &inputs());
        let draws = 4_000u64;
        let near = (0..draws)
            .filter(|draw| {
                assign(any(FlowClass::Bulk), &table, u64::MAX / draws * draw).unwrap().network == NEAR
            })
            .count();
        assert!((2_999..=3_001).contains(&near), "{near}");
    }

    proptest! {
        #[test]
        fn never_off_and_never_outside_the_wish(
            random: u64,
            listed in proptest::collection::vec(0u32..6, 0..4),
            class in prop_oneof![Just(FlowClass::Bulk), Just(FlowClass::Interactive), Just(FlowClass::RealTime)],
            split in prop_oneof![Just(Split::Capacity), Just(Split::InverseRtt), Just(Split::Bandwidth)],
            up: [bool; 4],
        ) {
            let mut inputs = inputs();
            for (input, up) in inputs.iter_mut().zip(up) {
                input.up = up;
            }
            let table = table(split, &inputs);
            let listed: Vec<NetworkId> = listed.into_iter().map(NetworkId).collect();
            let is_up = |network: NetworkId| inputs.iter().any(|input| input.id == network && input.up);
            match assign(NewFlow { class, wish: Wish::Only(&listed) }, &table, random) {
                Ok(assignment) => prop_assert!(listed.contains(&assignment.network) && is_up(assignment.network)),
                Err(NoNetwork::NoneOfThose) => prop_assert!(!listed.iter().any(|id| is_up(*id))),
                Err(NoNetwork::None) => prop_assert!(false, "held flows have an error of their own"),
            }
            match assign(NewFlow { class, wish: Wish::Any }, &table, random) {
                Ok(assignment) => prop_assert!(is_up(assignment.network)),
                Err(_) => prop_assert!(up == [false; 4]),
            }
        }
    }
}
