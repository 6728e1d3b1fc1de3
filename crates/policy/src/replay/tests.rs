//! A small recorded day.

use units::BitRate;

use super::*;
use crate::calendar::BillingDay;
use crate::energy::Card;
use crate::network::{Percent, RttSummary};
use crate::rules::{NetworkChoice, Rule};
use crate::{NetworkPreference, Split};

fn network(id: u32, name: &str, ms: u64, mbps: f64) -> NetworkInput {
    let mut input = NetworkInput::new(NetworkId(id), name);
    let smoothed = Duration::from_millis(ms);
    input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
    input.metrics.delivered = Some(BitRate::from_mbps(mbps));
    input
}

fn flow(id: u64, port: u16, class: FlowClass, bytes: u64) -> TraceEvent {
    TraceEvent::Flow(TraceFlow {
        id,
        program: None,
        cgroup: None,
        user: Some(1_000),
        destination: IpAddr::from([192, 0, 2, 1]),
        domains: vec!["example.org".to_owned()],
        protocol: 6,
        port,
        dscp: 0,
        class,
        bytes: Bytes(bytes),
    })
}

/// Wi-Fi and a paid modem; the Wi-Fi is gone from 2 s to 3 s.
fn day() -> Vec<TraceRecord> {
    let wifi = network(0, "wlan0", 20, 20.0);
    let modem = NetworkInput { price: Some(Price(2_000)), ..network(1, "wwan0", 60, 50.0) };
    let networks = |wifi_up| TraceEvent::Networks {
        networks: vec![NetworkInput { up: wifi_up, ..wifi.clone() }, modem.clone()],
        power: PowerSupply::Mains,
    };
    let at = |ms, event| TraceRecord { at: Duration::from_millis(ms), event };
    vec![
        at(0, networks(true)),
        at(1_000, flow(1, 443, FlowClass::Bulk, 1_000_000_000)),
        at(2_000, networks(false)),
        at(2_100, flow(2, 443, FlowClass::Bulk, 500_000_000)),
        at(3_000, networks(true)),
        at(3_100, flow(3, 22, FlowClass::Interactive, 10_000)),
        at(4_000, flow(4, 22, FlowClass::Interactive, 10_000)),
    ]
}

fn over(decisions: &Decisions) -> Vec<String> {
    decisions.flows.iter().map(|flow| format!("{} {}", flow.treatment, flow.over)).collect()
}

#[test]
fn networks_come_and_go_and_cost() {
    let policy = PolicySet::default();
    let decisions = replay(&day(), &policy, 1).unwrap();
    assert_eq!(
        over(&decisions),
        ["direct wlan0", "direct wwan0", "direct wwan0", "direct wlan0"],
        "bonded without a gateway is direct; Wi-Fi is used again once it has stayed"
    );
    assert_eq!(decisions.networks["wwan0"].price, 1_000, "half a gigabyte at 2 per GB, and a trace");
    assert_eq!(decisions.flows[1].why, "the only network in use");
    assert_eq!(decisions.preferred_changes, 2);
}

#[test]
fn two_policies_differ() {
    let before = replay(&day(), &PolicySet::default(), 1).unwrap();
    let calm = NetworkChoice { names: vec!["wlan0".into()], strictness: Strictness::Only };
    let only_wifi = Rule::new("calm", vec![], None, Some(calm)).unwrap();
    let policy = PolicySet { rules: Rules::new(vec![only_wifi]).unwrap(), ..PolicySet::default() };
    let after = replay(&day(), &policy, 1).unwrap();
    assert_eq!(after.flows[1].rule.as_deref(), Some("calm"));
    assert_eq!(
        difference(&before, &after).to_string(),
        "2 of 4 flows would have gone another way.\n  \
         direct over wwan0 -> direct over nothing: 1 flows, 500.0 MB\n  \
         direct over wwan0 -> direct over wlan0: 1 flows, 0.0 MB\n\
         wlan0: 1000.0 MB -> 1000.0 MB alone\n\
         wwan0: 500.0 MB -> 0.0 MB alone, price 1.00 -> 0.00\n"
    );
    let none = difference(&before, &before);
    assert!(none.changes.is_empty());
    let bonded = PolicySet { gateway: true, ..PolicySet::default() };
    let bonded = replay(&day(), &bonded, 1).unwrap();
    assert_eq!(over(&bonded)[0], "bonded the bond");
    let wanted = NetworkPreference { backup: Some(false), ..NetworkPreference::default() };
    let choice = ChoiceSettings { split: Split::Capacity, ..ChoiceSettings::default() };
    let preferences = BTreeMap::from([("wwan0".to_owned(), wanted)]);
    let spread = replay(&day(), &PolicySet { choice, preferences, ..PolicySet::default() }, 1).unwrap();
    assert_eq!(over(&spread)[0], "direct wwan0", "bulk goes where a flow gets most");
}

#[test]
fn records_must_be_in_order_and_survive_json() {
    let mut trace = day();
    let text = serde_json::to_string(&trace).unwrap();
    assert_eq!(serde_json::from_str::<Vec<TraceRecord>>(&text).unwrap(), trace);
    trace.swap(0, 1);
    assert_eq!(replay(&trace, &PolicySet::default(), 1), Err(ReplayError::OutOfOrder { number: 2 }));
    assert_eq!(replay(&[], &PolicySet::default(), 1), Ok(Decisions::default()));
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let choice = ChoiceSettings { split: Split::InverseRtt, ..ChoiceSettings::default() };
    let mut trace = vec![TraceRecord {
        at: Duration::ZERO,
        event: TraceEvent::Networks {
            networks: vec![network(0, "a", 20, 20.0), network(1, "b", 60, 50.0)],
            power: PowerSupply::Mains,
        },
    }];
    trace.extend(
        (0..4_000).map(|id| TraceRecord { at: Duration::ZERO, event: flow(id, 443, FlowClass::Bulk, 1) }),
    );
    let policy = PolicySet { choice, ..PolicySet::default() };
    let once = replay(&trace, &policy, 7).unwrap();
    assert_eq!(once, replay(&trace, &policy, 7).unwrap());
    let near = f64::from(once.networks["a"].flows) / 4_000.0;
    assert!((near - 0.75).abs() < 0.03, "{near}");
}

#[test]
fn prices_cards_and_caps_are_those_of_the_policy() {
    let costs = |price| NetworkCosts { price, ..NetworkCosts::default() };
    let with =
        |name: &str, costs| PolicySet { costs: [(name.to_owned(), costs)].into(), ..PolicySet::default() };
    let free = replay(&day(), &with("wwan0", costs(None)), 1).unwrap();
    assert!(free.networks["wwan0"].flows > 0 && free.networks["wwan0"].price == 0);
    let dear = replay(&day(), &with("wlan0", costs(Some(Price(5_000)))), 1).unwrap();
    assert_eq!(over(&dear)[0], "direct wwan0", "a dear network comes after a cheaper one");

    // Over the Wi-Fi at first, which then has used all that it may.
    let cap = CapSettings::new(Bytes(1_000_000_000), BillingDay::try_from(1).unwrap());
    let capped = replay(&day(), &with("wlan0", NetworkCosts { cap: Some(cap), ..costs(None) }), 1).unwrap();
    assert_eq!(over(&capped)[0], "direct wlan0");
    assert_eq!(over(&capped)[3], "direct wwan0", "a gigabyte has been carried");
}

#[test]
fn the_card_of_the_policy_decides_on_a_battery() {
    let mut day = day();
    for record in &mut day {
        if let TraceEvent::Networks { networks, power } = &mut record.event {
            *power = PowerSupply::Battery(Percent::new(15));
            // What a card draws depends on its rate.
            networks.iter_mut().for_each(|network| network.metrics.delivered = Some(BitRate::from_mbps(2.0)));
        }
    }
    let cards = |wifi: &str, modem: &str| {
        let card = |name: &str| NetworkCosts {
            power: Card::by_name(name).map(|card| card.model),
            ..NetworkCosts::default()
        };
        let costs = [("wlan0".to_owned(), card(wifi)), ("wwan0".to_owned(), card(modem))].into();
        over(&replay(&day, &PolicySet { costs, ..PolicySet::default() }, 1).unwrap())[0].clone()
    };
    assert_eq!(cards("wifi-2012", "lte-2012"), "direct wlan0");
    assert_eq!(cards("lte-2012", "wifi-2012"), "direct wwan0");
}
