//! The neighbour database beside a simple model of it.

use proptest::prelude::*;

use super::*;

const WIFI: NetworkId = NetworkId(0);
const CABLE: NetworkId = NetworkId(1);
const BOTH: [(NetworkId, Priority); 2] = [(WIFI, Priority(0)), (CABLE, Priority(1))];
const EQUAL: [(NetworkId, Priority); 2] = [(WIFI, Priority(0)), (CABLE, Priority(0))];

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn neighbours() -> Neighbours {
    Neighbours::new(NeighbourSettings::default())
}

#[test]
fn priority_then_nearness_then_freshness() {
    let mut all = neighbours();
    let who = address(1);
    assert_eq!(all.route_to(at(0), who, &BOTH), None);
    all.on_heard(at(0), who, CABLE);
    assert_eq!(all.route_to(at(0), who, &BOTH), Some(CABLE));
    all.on_heard(at(1), who, WIFI);
    assert_eq!(all.route_to(at(1), who, &BOTH), Some(WIFI), "priority");
    assert_eq!(all.route_to(at(1), who, &BOTH[1..]), Some(CABLE), "only usable ones");
    assert_eq!(all.route_to(at(1), who, &EQUAL), Some(WIFI), "heard last");
    all.on_rtt(who, CABLE, Duration::from_millis(9));
    assert_eq!(all.route_to(at(1), who, &EQUAL), Some(CABLE), "measured before unmeasured");
    all.on_rtt(who, WIFI, Duration::from_millis(3));
    assert_eq!(all.route_to(at(1), who, &EQUAL), Some(WIFI), "nearer");
}

/// The hand-over of `[VIF]` table 2: the preferred interface falls silent, the other is still heard.
#[test]
fn maxdiff_bounds_how_stale_the_preferred_entry_may_be() {
    for (maxdiff, expected_ms) in [(10, 20), (100, 110), (1_000, 1_010)] {
        let settings =
            NeighbourSettings { maxdiff: Duration::from_millis(maxdiff), ..NeighbourSettings::default() };
        let mut all = Neighbours::new(settings);
        all.on_heard(at(0), address(1), WIFI);
        let handed_over = (0..200).map(|step| step * 10).find(|time| {
            all.on_heard(at(*time), address(1), CABLE);
            all.route_to(at(*time), address(1), &BOTH) == Some(CABLE)
        });
        assert_eq!(handed_over, Some(expected_ms), "maxdiff {maxdiff} ms");
    }
}

#[test]
fn entries_expire_and_networks_go() {
    let mut all = neighbours();
    all.on_heard(at(0), address(1), WIFI);
    all.on_heard(at(30_000), address(1), CABLE);
    assert_eq!(all.links(at(59_999), address(1)).count(), 2);
    assert_eq!(all.route_to(at(60_000), address(1), &BOTH), Some(CABLE), "expired even before it is dropped");
    all.expire(at(60_000));
    assert_eq!(all.links(at(0), address(1)).count(), 1);
    all.forget_network(CABLE);
    assert_eq!(all.addresses().count(), 0);
}

#[test]
fn a_flood_of_neighbours_drops_the_longest_silent() {
    let mut all = Neighbours::new(NeighbourSettings { most: 3, ..NeighbourSettings::default() });
    for last in 1..=3 {
        all.on_heard(at(u64::from(last)), address(last), WIFI);
    }
    all.on_heard(at(10), address(1), CABLE);
    all.on_heard(at(11), address(4), WIFI);
    assert_eq!(all.addresses().collect::<Vec<_>>(), [address(1), address(3), address(4)]);
}

#[test]
fn broadcasts_are_taken_once() {
    let mut seen = SeenBroadcasts::new(Duration::from_secs(1), 2);
    let broadcast = |sequence| Broadcast { origin: address(1), sequence };
    assert!(seen.is_first(at(0), broadcast(1)));
    assert!(!seen.is_first(at(1), broadcast(1)));
    assert!(seen.is_first(at(1), Broadcast { origin: address(2), sequence: 1 }), "another sender");
    assert!(seen.is_first(at(1_000), broadcast(1)), "expired");
}

proptest! {
    #[test]
    fn memory_is_bounded_and_ages_agree(
        events in proptest::collection::vec((0u64..200_000, any::<u8>(), 0u32..4, 0u8..10), 0..400),
        most in 0u32..20,
    ) {
        let mut all = Neighbours::new(NeighbourSettings { most, ..NeighbourSettings::default() });
        let mut seen = SeenBroadcasts::new(Duration::from_secs(5), most);
        for (ms, who, network, what) in events {
            match what {
                0 => all.expire(at(ms)),
                1 => all.forget_network(NetworkId(network)),
                2 => all.on_rtt(address(who), NetworkId(network), Duration::from_millis(ms)),
                _ => all.on_heard(at(ms), address(who), NetworkId(network)),
            }
            prop_assert!(all.entries.len() <= most.max(1) as usize);
            let ages: BTreeSet<(Timestamp, IpAddr)> =
                all.entries.iter().map(|(address, entry)| (entry.last_seen(), *address)).collect();
            prop_assert_eq!(&all.by_age, &ages);
            seen.is_first(at(ms), Broadcast { origin: address(who), sequence: network });
            prop_assert!(seen.order.len() <= most.max(1) as usize + 1);
            prop_assert_eq!(seen.order.len(), seen.known.len());
        }
    }

    /// Within lifetime and capacity, exactly the first copy of each is taken.
    #[test]
    fn first_copies_only(copies in proptest::collection::vec((0u8..5, 0u32..20), 0..200)) {
        let mut seen = SeenBroadcasts::new(Duration::from_secs(1_000), 1_000);
        let mut model = BTreeSet::new();
        for (ms, (who, sequence)) in (0u64..).zip(copies) {
            let broadcast = Broadcast { origin: address(who), sequence };
            prop_assert_eq!(seen.is_first(at(ms), broadcast), model.insert(broadcast));
        }
    }
}
