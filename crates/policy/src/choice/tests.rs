//! The policy as its users see it.

use proptest::prelude::*;
use units::BitRate;

use super::*;
use crate::energy::Card;
use crate::network::{CapReport, Price, RttSummary};
use crate::{NetworkPreference, Priority};

const MAINS: PowerSupply = PowerSupply::Mains;

fn battery(left: u8) -> PowerSupply {
    PowerSupply::Battery(Percent::new(left))
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn at(value: u64) -> Timestamp {
    Timestamp::from_millis(value)
}

fn input(id: u32) -> NetworkInput {
    NetworkInput::new(NetworkId(id), format!("net{id}"))
}

fn with_rtt(id: u32, time: u64) -> NetworkInput {
    let mut input = input(id);
    input.metrics.rtt = Some(RttSummary { smoothed: ms(time), variation: ms(time) / 8 });
    input
}

fn with_priority(id: u32, priority: u8) -> NetworkInput {
    let mut input = input(id);
    input.preference.priority = Priority(priority);
    input
}

fn policy(split: Split) -> NetworkPolicy {
    NetworkPolicy::new(ChoiceSettings { split, ..ChoiceSettings::default() })
}

fn shares(table: &Table) -> Vec<f64> {
    table.entries.iter().map(|entry| (entry.share.part() * 1e9).round() / 1e9).collect()
}

fn reasons(table: &Table) -> Vec<String> {
    table.entries.iter().map(|entry| entry.reason.to_string()).collect()
}

fn once(inputs: &[NetworkInput]) -> Table {
    policy(Split::InverseRtt).evaluate(Timestamp::ZERO, inputs, MAINS)
}

/// `[VIF] 3.1`: 0 is the highest, equals are used together.
#[test]
fn highest_priority_carries() {
    let table = once(&[with_priority(0, 1), with_priority(1, 0), with_priority(2, 0)]);
    assert_eq!(shares(&table), [0.0, 0.5, 0.5]);
    assert_eq!(reasons(&table)[0], "priority 1: networks of priority 0 are there");
    assert_eq!(table.entries[0].status, PathStatus::Backup);
    let table = once(&[with_priority(0, 1)]);
    assert_eq!(reasons(&table), ["the only one of priority 1"]);
}

/// `[VIF] eq. 2` once all are measured, eq. 3 before.
#[test]
fn nearness_after_samples_and_rate_before() {
    let table = once(&[with_rtt(0, 20), with_rtt(1, 60)]);
    assert_eq!(shares(&table), [0.75, 0.25]);
    assert_eq!(reasons(&table)[0], "1/RTT: 20 ms against 60 ms");
    let mut unmeasured = [with_rtt(0, 20), input(1)];
    unmeasured[0].metrics.nominal = Some(BitRate::from_mbps(10.0));
    unmeasured[1].metrics.nominal = Some(BitRate::from_mbps(30.0));
    let table = once(&unmeasured);
    assert_eq!(shares(&table), [0.25, 0.75]);
    assert_eq!(reasons(&table)[1], "bandwidth: 30.00 Mbit/s of 40.00 Mbit/s");
}

/// A gigabit port before a 20 Mbit/s line must not take all until somebody measured it.
#[test]
fn a_claim_counts_less_than_a_delivery() {
    let mut inputs = [input(0), input(1)];
    inputs[0].metrics.delivered = Some(BitRate::from_mbps(40.0));
    inputs[1].metrics.nominal = Some(BitRate::from_mbps(1_000.0));
    let table = policy(Split::Capacity).evaluate(Timestamp::ZERO, &inputs, MAINS);
    assert_eq!(shares(&table), [0.5, 0.5]);
    assert_eq!(table.entries[1].capacity, Some(BitRate::from_mbps(40.0)), "nor when single flows are placed");
    inputs[1].metrics.nominal = Some(BitRate::from_mbps(10.0));
    let table = policy(Split::Capacity).evaluate(Timestamp::ZERO, &inputs, MAINS);
    assert_eq!(shares(&table), [0.8, 0.2]);
}

#[test]
fn access_points_that_are_not_worth_their_air_wait_but_go_before_what_is_paid_for() {
    let mut inputs = [input(0), input(1), input(2)];
    inputs[1].spared = true;
    inputs[2].preference.metered = true;
    let table = once(&inputs);
    assert_eq!(shares(&table), [1.0, 0.0, 0.0]);
    assert_eq!(reasons(&table)[1], "its access point is slow: better ones need the air");
    inputs[0].up = false;
    let table = once(&inputs);
    assert_eq!(shares(&table), [0.0, 1.0, 0.0]);
    assert_eq!(reasons(&table)[1], "its access point is slow: nothing better is left");
    // All alike: as if nothing had been said.
    inputs[0] = NetworkInput { spared: true, ..input(0) };
    assert_eq!(shares(&once(&inputs)), [0.5, 0.5, 0.0]);
}

#[test]
fn backups_and_paid_ones_wait_until_nothing_else_is_left() {
    let mut inputs = [input(0), input(1), input(2), input(3)];
    inputs[1].preference.metered = true;
    inputs[2].price = Some(Price(2_000));
    inputs[3].preference.backup = Some(true);
    let table = once(&inputs);
    assert_eq!(shares(&table), [1.0, 0.0, 0.0, 0.0]);
    inputs[0].up = false;
    let table = once(&inputs);
    assert_eq!(shares(&table), [0.0, 1.0, 0.0, 0.0], "the cheaper of the paid ones");
    assert_eq!(
        reasons(&table),
        [
            "down",
            "paid by volume: nothing else is left",
            "costs 2.00 per GB: a cheaper network is there",
            "backup: other networks are there"
        ]
    );
    inputs[1].up = false;
    inputs[2].up = false;
    let table = once(&inputs);
    assert_eq!(reasons(&table)[3], "backup: nothing else is left");
    assert_eq!(shares(&table), [0.0, 0.0, 0.0, 1.0]);
    inputs[0] = NetworkInput { price: Some(Price(9_000)), ..input(0) };
    inputs[0].preference.backup = Some(false);
    inputs[1].up = true;
    let table = once(&inputs);
    assert_eq!(shares(&table), [1.0, 0.0, 0.0, 0.0], "the user may want to pay");
}

#[test]
fn captive_and_silent_networks_are_the_last_resort() {
    let mut inputs = [input(0), input(1), input(2)];
    inputs[0].reach = Reach::Captive;
    inputs[1].reach = Reach::Nothing;
    inputs[2].preference.backup = Some(true);
    let table = once(&inputs);
    assert_eq!(shares(&table), [0.0, 0.0, 1.0]);
    assert_eq!(table.entries[0].status, PathStatus::Off);
    assert_eq!(reasons(&table)[0], "captive portal: log in first");
    let table = once(&inputs[..2]);
    assert_eq!(shares(&table), [1.0, 0.0]);
    assert_eq!(reasons(&table)[0], "captive portal: nothing else is left; log in");
    let table = once(&inputs[1..2]);
    assert_eq!(shares(&table), [1.0]);
}

#[test]
fn data_caps_act() {
    let mut inputs = [input(0), input(1)];
    let cap = |effect| Some(CapReport { used: Bytes(950), limit: Bytes(1_000), effect });
    inputs[0].cap = cap(CapEffect::Backup);
    assert_eq!(shares(&once(&inputs)), [0.0, 1.0]);
    assert_eq!(shares(&once(&inputs[..1])), [1.0], "a backup is used for want of others");
    inputs[0].cap = cap(CapEffect::Off);
    let table = once(&inputs[..1]);
    assert_eq!(shares(&table), [0.0], "off is off");
    assert_eq!((table.preferred(), table.entries[0].status), (None, PathStatus::Off));
}

/// LTE and Wi-Fi by the MobiSys 2012 figures: the tail makes LTE dear for 64 KiB.
fn powered() -> [NetworkInput; 2] {
    let mut inputs = [with_rtt(0, 50), with_rtt(1, 100)];
    inputs[0].power = Card::by_name("lte-2012").map(|card| card.model);
    inputs[1].power = Card::by_name("wifi-2012").map(|card| card.model);
    inputs
}

#[test]
fn a_low_battery_keeps_to_the_least_energy() {
    let inputs = powered();
    let mut policy = policy(Split::InverseRtt);
    let table = policy.evaluate(at(0), &inputs, battery(9));
    assert_eq!(shares(&table), [0.0, 1.0]);
    assert_eq!(table.preferred(), Some(NetworkId(1)));
    assert!(reasons(&table)[1].starts_with("battery 9 %: least energy"), "{:?}", reasons(&table));
    assert!(reasons(&table)[0].contains("where another network needs"), "{:?}", reasons(&table));
    assert_eq!(table.entries[0].status, PathStatus::Backup);
    assert!(shares(&policy.evaluate(at(250), &inputs, MAINS))[0] > 0.5, "not on the mains");
    assert!(shares(&policy.evaluate(at(500), &inputs, battery(50)))[0] > 0.5, "not while it is full enough");
    let table = policy.evaluate(at(750), &inputs, battery(19));
    assert!(reasons(&table)[1].starts_with("battery 19 %: cheapest adapter"), "{:?}", reasons(&table));
    let mut unknown = powered();
    unknown[0].power = None;
    assert!(shares(&policy.evaluate(at(1_000), &unknown, battery(5)))[0] > 0.5, "cannot be compared");
}

/// A card that draws almost as much idle as busy costs little more when it is used. By hand, for 64 KiB at 3 Mbit/s: WaveLAN
/// 34 mA * 4.74 V / 11 Mbit/s * 524,288 bit = 7.7 mJ; the Wi-Fi of 2012 over 71.8 mJ for the bits alone.
#[test]
fn what_is_drawn_anyway_does_not_count() {
    let mut inputs = powered();
    inputs[0].power = Card::by_name("wavelan-11").map(|card| card.model);
    inputs[0].metrics.delivered = Some(BitRate::from_mbps(3.0));
    let table = policy(Split::InverseRtt).evaluate(at(0), &inputs, battery(9));
    assert_eq!(shares(&table), [1.0, 0.0], "{:?}", reasons(&table));
    assert!(reasons(&table)[0].contains("7.7 mJ"), "{:?}", reasons(&table));
}

/// `[VIF]` compares networks of the highest priority only, `[VCONN]` all that are not backups.
#[test]
fn the_two_saving_rules_look_at_different_networks() {
    let mut inputs = powered();
    inputs[1].preference.priority = Priority(1);
    assert_eq!(shares(&policy(Split::InverseRtt).evaluate(at(0), &inputs, battery(9))), [1.0, 0.0]);
    assert_eq!(shares(&policy(Split::InverseRtt).evaluate(at(0), &inputs, battery(15))), [0.0, 1.0]);
    inputs[1].preference = NetworkPreference { backup: Some(true), ..NetworkPreference::default() };
    assert_eq!(shares(&policy(Split::InverseRtt).evaluate(at(0), &inputs, battery(15))), [1.0, 0.0]);
}

/// `[VCONN] 3.3`: two evaluations in a row, 250 ms apart.
#[test]
fn the_preferred_network_changes_after_two_evaluations() {
    let mut policy = policy(Split::InverseRtt);
    let (before, after) = ([with_rtt(0, 20), with_rtt(1, 60)], [with_rtt(0, 90), with_rtt(1, 60)]);
    let mut preferred = |time, inputs: &[NetworkInput]| policy.evaluate(at(time), inputs, MAINS).preferred();
    assert_eq!(preferred(0, &before), Some(NetworkId(0)));
    assert_eq!(preferred(250, &after), Some(NetworkId(0)), "once");
    assert_eq!(preferred(300, &after), Some(NetworkId(0)), "too early to count");
    assert_eq!(preferred(500, &after), Some(NetworkId(1)), "twice");
    assert_eq!(preferred(750, &before), Some(NetworkId(1)));
    assert_eq!(preferred(1_000, &after), Some(NetworkId(1)), "not in a row");
    assert_eq!(preferred(1_010, &before[..1]), Some(NetworkId(0)), "the loss of it counts at once");
}

/// A flow that cannot take the first network, for its family or a rule, is not moved about either.
#[test]
fn the_order_behind_the_preferred_network_is_as_steady() {
    let mut policy = policy(Split::InverseRtt);
    let mut second = |time, first, others: [u64; 2]| {
        let inputs = [with_rtt(0, first), with_rtt(1, others[0]), with_rtt(2, others[1])];
        let table = policy.evaluate(at(time), &inputs, MAINS);
        assert_eq!(table.for_calls.len(), 3);
        table.restricted(|network| network != NetworkId(0)).preferred()
    };
    assert_eq!(second(0, 10, [30, 40]), Some(NetworkId(1)));
    assert_eq!(second(250, 10, [60, 40]), Some(NetworkId(1)), "once");
    assert_eq!(second(500, 10, [30, 40]), Some(NetworkId(1)));
    assert_eq!(second(750, 10, [60, 40]), Some(NetworkId(1)), "not in a row");
    assert_eq!(second(1_000, 10, [60, 40]), Some(NetworkId(2)), "twice");
    for step in 5..20 {
        assert_eq!(second(step * 250, 10, [37, 40]), Some(NetworkId(2)), "hardly better");
    }
}

/// A link that flaps 20 times a second carries nothing until it is quiet, and all if it is the only one.
#[test]
fn flapping_networks_are_left_alone() {
    let mut policy = policy(Split::InverseRtt);
    let both = |up| [NetworkInput { up, ..with_rtt(0, 20) }, with_rtt(1, 60)];
    policy.evaluate(at(0), &both(true), MAINS);
    for step in 1..200u64 {
        let table = policy.evaluate(at(step * 50), &both(step % 2 == 0), MAINS);
        assert_eq!(shares(&table), [0.0, 1.0], "step {step}");
    }
    let steady: Vec<Vec<f64>> =
        (0..3).map(|step| shares(&policy.evaluate(at(10_000 + step * 250), &both(true), MAINS))).collect();
    assert_eq!(steady, [[0.0, 1.0], [0.75, 0.25], [0.75, 0.25]]);
    let alone = [NetworkInput { up: true, ..with_rtt(0, 20) }];
    policy.evaluate(at(20_000), &[NetworkInput { up: false, ..input(0) }], MAINS);
    assert_eq!(shares(&policy.evaluate(at(20_010), &alone, MAINS)), [1.0]);
}

#[test]
fn memory_of_networks_is_bounded() {
    let mut policy = policy(Split::Capacity);
    for id in 0..2_000 {
        policy.evaluate(at(u64::from(id) * 250), &[input(id)], MAINS);
    }
    assert!(policy.seen.len() <= MOST_REMEMBERED);
}

prop_compose! {
    fn any_input()(
        up in proptest::bool::weighted(0.8),
        reach in prop_oneof![Just(Reach::Unknown), Just(Reach::Internet), Just(Reach::Captive), Just(Reach::Nothing)],
        priority in 0u8..3,
        backup in proptest::option::of(any::<bool>()),
        metered: bool,
        off in proptest::bool::weighted(0.1),
        price in proptest::option::of(0u64..5),
        effect in proptest::option::of(prop_oneof![
            Just(CapEffect::None), Just(CapEffect::Backup), Just(CapEffect::Off)
        ]),
        rtt in proptest::option::of(0u64..100_000_000),
        delivered in proptest::option::of(0u64..u64::MAX),
        nominal in proptest::option::of(0u64..u64::MAX),
        bulk_flows: u32,
        others: f64,
        load: u64,
        loss in -1.0f64..2.0,
        card in proptest::option::of(0usize..8),
    ) -> NetworkInput {
        let mut input = input(0);
        input.up = up;
        input.reach = reach;
        input.preference = NetworkPreference { priority: Priority(priority), backup, metered, off };
        input.price = price.map(Price);
        input.cap = effect.map(|effect| CapReport { used: Bytes(1), limit: Bytes(2), effect });
        input.metrics.rtt =
            rtt.map(|micros| RttSummary { smoothed: Duration::from_micros(micros), variation: ms(1) });
        input.metrics.delivered = delivered.map(BitRate);
        input.metrics.nominal = nominal.map(BitRate);
        input.metrics.bulk_flows = bulk_flows;
        input.metrics.others = others.into();
        input.metrics.load = BitRate(load);
        input.metrics.loss = loss.into();
        input.power = card.and_then(|at| crate::energy::CARDS.get(at)).map(|card| card.model);
        input
    }
}

proptest! {
    /// Whatever comes in: shares are whole or nothing, only active networks have them, and something is used if anything can be.
    #[test]
    fn tables_are_sound(
        rounds in proptest::collection::vec(proptest::collection::vec(any_input(), 0..8), 1..6),
        split in prop_oneof![Just(Split::Capacity), Just(Split::InverseRtt), Just(Split::Bandwidth)],
        charge in 0u8..=100,
        step in 0u64..600,
    ) {
        let mut policy = policy(split);
        let mut again = policy.clone();
        for (round, mut inputs) in (0u64..).zip(rounds) {
            for (id, input) in (0..).zip(&mut inputs) {
                input.id = NetworkId(id);
            }
            let table = policy.evaluate(at(round * step), &inputs, battery(charge));
            prop_assert_eq!(&table, &again.evaluate(at(round * step), &inputs, battery(charge)));
            let sum: f64 = table.entries.iter().map(|entry| entry.share.part()).sum();
            let could = |input: &NetworkInput| {
                input.up && !input.preference.off && input.cap.is_none_or(|cap| cap.effect != CapEffect::Off)
            };
            let expected = if inputs.iter().any(could) { 1.0 } else { 0.0 };
            prop_assert!((sum - expected).abs() < 1e-9, "{table:?}");
            prop_assert_eq!(table.preferred().is_some(), expected > 0.0);
            let active = table.entries.iter().filter(|entry| entry.status == PathStatus::Active);
            let mut active: Vec<NetworkId> = active.map(|entry| entry.network).collect();
            let mut ordered = table.for_calls.clone();
            active.sort_unstable();
            ordered.sort_unstable();
            prop_assert_eq!(active, ordered, "each once");
            for (entry, input) in table.entries.iter().zip(&inputs) {
                prop_assert_eq!(entry.network, input.id);
                prop_assert!(entry.share == Share::NONE || entry.status == PathStatus::Active);
                prop_assert!(could(input) || entry.status == PathStatus::Off);
                prop_assert!(!entry.reason.to_string().is_empty());
            }
        }
    }
}
