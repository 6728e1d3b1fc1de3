//! What networks were seen to do to MPTCP: boxes that take its option out, and senders or boxes that leave no room for marks. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use linux::monitor::Interface;
use linux::mptcp::WayCounts;
use units::{IpPrefix, NetworkId, Timestamp};

/// What is remembered, by network.
#[derive(Default, Debug)]
pub struct Ways {
    networks: BTreeMap<NetworkId, Way>,
    /// Until when networks are left out that are gone, those that went last at the end.
    gone: Vec<(Place, Timestamp)>,
}

/// By what a network is known again: an interface's subnets and next hops, those of IPv6, whose prefixes come and go, only where there are no others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    interface: String,
    subnets: Vec<IpPrefix>,
    next_hop: Option<IpAddr>,
}

impl Place {
    /// Where an interface is; `None` without an address.
    pub fn of(interface: &Interface) -> Option<Self> {
        let is_v4 = interface.addresses.iter().any(|prefix| prefix.address().is_ipv4());
        let of_family = interface.addresses.iter().filter(|prefix| prefix.address().is_ipv4() == is_v4);
        let mut subnets: Vec<IpPrefix> = of_family.map(|prefix| prefix.network()).collect();
        subnets.sort();
        subnets.dedup();
        let route = if is_v4 { &interface.default_route_v4 } else { &interface.default_route_v6 };
        let next_hop = route.as_ref().and_then(|route| route.gateway);
        (!subnets.is_empty()).then(|| Self { interface: interface.name.clone(), subnets, next_hop })
    }
}

#[derive(Clone, Default, Debug)]
struct Way {
    place: Option<Place>,
    /// The counters when last read.
    counts: WayCounts,
    /// How often connections were to begin anew over it when last read: then each tries to join that could not before.
    renewals: Option<u32>,
    /// Further subflows that were answered as plain TCP since one was answered as such, and first ones to servers that speak MPTCP.
    stripped: [u64; 2],
    /// Until when the network is left out.
    left_out: Option<Timestamp>,
    /// Packets in a row of readings that could not be marked.
    unmarkable: u64,
    told_unmarkable: bool,
    /// Packets that could be marked since it was last judged whether all are, and those of them that were.
    ecn: (u64, u64),
    mangles: bool,
}

/// What has become known of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Something on the way takes MPTCP's option out.
    Strips,
    /// What comes by it cannot be marked.
    Unmarkable,
    /// All that comes by it is marked already.
    Mangles,
}

impl Finding {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Strips => {
                "something on the way takes MPTCP out of connections: for an hour none uses it as a further way, and none begins there \
                 if another network is in use; those that do are plain TCP"
            }
            Self::Unmarkable => {
                "its access point is slow, but senders cannot be told by marks: what comes has no ECN, for the servers do not use it or a box on \
                 the way clears it"
            }
            Self::Mangles => {
                "something on the way says of every packet that it has met a queue, which would hold senders to next to nothing: \
                 it is not heeded there as long as this goes on"
            }
        }
    }
}

impl Ways {
    /// Takes what its counters show now; `marked` is whether packets that come by it are to be marked, `renewals` how often connections were to begin
    /// anew over it, if anybody says.
    pub fn take(
        &mut self,
        now: Timestamp,
        network: NetworkId,
        counts: WayCounts,
        marked: bool,
        renewals: Option<u32>,
    ) -> Option<Finding> {
        let way = self.networks.entry(network).or_default();
        let mut news = counts.since(&way.counts);
        way.counts = counts;
        if std::mem::replace(&mut way.renewals, renewals) != renewals {
            // One server behind a balancer that joins nobody would count as often as it is asked.
            news.join_stripped = 0;
        }
        if news.markable > 0 {
            (way.unmarkable, way.told_unmarkable) = (0, false);
        } else if marked {
            way.unmarkable += news.unmarkable;
        }
        // A box may take it out of one kind only, or on some ports.
        let kinds = [(news.joined, news.join_stripped), (news.begun, news.begin_stripped)];
        for (count, (passed, stripped)) in way.stripped.iter_mut().zip(kinds) {
            *count = if passed > 0 { 0 } else { *count + stripped };
        }
        if news.joined > 0 {
            way.left_out = None;
        }
        if way.stripped.iter().any(|count| *count >= ENOUGH_STRIPPED) {
            way.stripped = [0; 2];
            way.left_out = Some(now + REMEMBERED);
            return Some(Finding::Strips);
        }
        let (ecn, congested) = &mut way.ecn;
        (*ecn, *congested) = (*ecn + news.markable, *congested + news.congested);
        if *ecn >= ENOUGH_WITH_ECN {
            let part = *congested as f64 / *ecn as f64;
            let was = way.mangles;
            way.ecn = (0, 0);
            way.mangles = part >= if was { STILL_MANGLED } else { MANGLED };
            if way.mangles && !was {
                return Some(Finding::Mangles);
            }
        }
        if way.unmarkable >= ENOUGH_UNMARKABLE && !way.told_unmarkable {
            way.told_unmarkable = true;
            return Some(Finding::Unmarkable);
        }
        None
    }

    /// Whether MPTCP does not get through by the network, as far as known.
    pub fn strips(&self, now: Timestamp, network: NetworkId) -> bool {
        self.networks.get(&network).and_then(|way| way.left_out).is_some_and(|until| now < until)
    }

    /// Whether marks of the way there mean nothing.
    pub fn mangles(&self, network: NetworkId) -> bool {
        self.networks.get(&network).is_some_and(|way| way.mangles)
    }

    /// All counters begin from nothing again.
    pub fn count_anew(&mut self) {
        self.networks.values_mut().for_each(|way| way.counts = WayCounts::default());
    }

    /// All networks of which it is so.
    pub fn stripping(&self, now: Timestamp) -> Vec<NetworkId> {
        self.networks.keys().copied().filter(|network| self.strips(now, *network)).collect()
    }

    /// Takes where the networks are now. What is on the way may be another elsewhere; for how long one was to be left out is known again where it was.
    pub fn follow(&mut self, now: Timestamp, places: &BTreeMap<NetworkId, Place>) {
        let gone = &mut self.gone;
        self.networks.retain(|network, way| {
            let is_there = way.place.is_some() && places.get(network) == way.place.as_ref();
            if !is_there && let Some(memory) = way.place.take().zip(way.left_out) {
                gone.push(memory);
            }
            is_there
        });
        gone.retain(|(_, until)| now < *until);
        gone.drain(..gone.len().saturating_sub(MOST_GONE));
        for (network, place) in places {
            self.networks.entry(*network).or_insert_with(|| {
                let known = gone.iter().position(|(known, _)| known == place);
                let left_out = known.map(|at| gone.remove(at).1);
                Way { place: Some(place.clone()), left_out, ..Way::default() }
            });
        }
    }
}

/// One may be a far end that has lost its connection meanwhile.
const ENOUGH_STRIPPED: u64 = 2;
/// Networks that are gone and would be left out.
const MOST_GONE: usize = 64;
/// A box may be mended.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Servers without ECN are among those with.
const ENOUGH_UNMARKABLE: u64 = 200;
/// A sender halves its window for marks in a round trip: a queue that marks nearly all of so many packets is none.
const ENOUGH_WITH_ECN: u64 = 200;
const MANGLED: f64 = 0.9;
/// Once it is known, packets that are marked on the way to another queue do not end it.
const STILL_MANGLED: f64 = 0.5;

#[cfg(test)]
mod tests {
    use linux::monitor::DefaultRoute;

    use super::*;
    use crate::device::networks;

    const WLAN: NetworkId = NetworkId(3);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn subflows(joined: u64, join_stripped: u64) -> WayCounts {
        WayCounts { joined, join_stripped, ..WayCounts::default() }
    }

    #[test]
    fn a_network_that_strips_is_left_out_for_an_hour() {
        let mut ways = Ways::default();
        assert_eq!(ways.take(at(0), WLAN, subflows(0, 1), true, None), None);
        assert_eq!(ways.take(at(10), WLAN, subflows(0, 1), true, None), None, "nothing new");
        assert_eq!(ways.take(at(20), WLAN, subflows(0, 2), true, None), Some(Finding::Strips));
        assert!(ways.strips(at(3_619), WLAN) && !ways.strips(at(3_620), WLAN));
        assert!(!ways.strips(at(20), NetworkId(1)));
        assert_eq!([ways.stripping(at(20)), ways.stripping(at(3_620))], [vec![WLAN], vec![]]);
    }

    fn interface(addresses: &[&str], next_hop: [u8; 4]) -> Interface {
        let gateway = Some(IpAddr::from(next_hop));
        Interface {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            default_route_v4: Some(DefaultRoute { gateway, metric: 600 }),
            ..networks::tests::interface("wlan0", 2)
        }
    }

    #[test]
    fn a_network_that_strips_is_known_again_when_it_comes_back() {
        let places = |addresses: &[&str], next_hop| {
            Place::of(&interface(addresses, next_hop)).map(|place| (WLAN, place)).into_iter().collect()
        };
        let hotel = places(&["10.1.7.9/16"], [10, 1, 0, 1]);
        let mut ways = Ways::default();
        ways.follow(at(0), &hotel);
        assert_eq!(ways.take(at(10), WLAN, subflows(0, 2), true, None), Some(Finding::Strips));
        ways.follow(at(11), &hotel);
        assert!(ways.strips(at(11), WLAN));
        ways.follow(at(12), &places(&["10.1.7.9/16", "2001:db8::7/64"], [10, 1, 0, 1]));
        assert!(ways.strips(at(12), WLAN), "a second family is no other network");
        ways.follow(at(20), &places(&[], [10, 1, 0, 1]));
        assert!(!ways.strips(at(20), WLAN), "gone");
        ways.follow(at(30), &places(&["192.168.1.7/24"], [192, 168, 1, 1]));
        assert!(!ways.strips(at(30), WLAN), "elsewhere");
        ways.follow(at(40), &places(&["10.1.9.4/16"], [10, 1, 0, 1]));
        assert!(ways.strips(at(40), WLAN) && ways.strips(at(3_609), WLAN), "back, with another address");
        assert!(!ways.strips(at(3_610), WLAN), "for no longer than said");
        // It gets through again, which is no longer remembered elsewhere.
        assert_eq!(ways.take(at(50), WLAN, subflows(1, 2), true, None), None);
        ways.follow(at(60), &places(&[], [10, 1, 0, 1]));
        ways.follow(at(70), &hotel);
        assert!(!ways.strips(at(70), WLAN));
    }

    #[test]
    fn of_networks_that_are_gone_the_last_ones_are_remembered() {
        let place = |number: u8| {
            let place = Place::of(&interface(&[&format!("10.{number}.0.2/24")], [10, number, 0, 1]));
            place.map(|place| (WLAN, place)).into_iter().collect()
        };
        let mut ways = Ways::default();
        for number in 0..200 {
            ways.follow(at(10), &place(number));
            assert_eq!(ways.take(at(10), WLAN, subflows(0, 2), true, None), Some(Finding::Strips));
        }
        ways.follow(at(11), &BTreeMap::new());
        assert_eq!(ways.gone.len(), MOST_GONE);
        ways.follow(at(12), &place(199));
        assert!(ways.strips(at(12), WLAN));
        ways.follow(at(13), &place(0));
        assert!(!ways.strips(at(13), WLAN));
        ways.follow(at(4_000), &BTreeMap::new());
        assert!(ways.gone.is_empty(), "after an hour nothing is left");
    }

    /// One connection is tried again each time, which says no more than the first time.
    #[test]
    fn what_is_tried_anew_is_not_counted() {
        let mut ways = Ways::default();
        assert_eq!(ways.take(at(0), WLAN, subflows(0, 0), true, Some(4)), None);
        for count in 1..20 {
            let renewals = Some(4 + count as u32);
            assert_eq!(ways.take(at(count), WLAN, subflows(0, count), true, renewals), None);
        }
        assert_eq!(ways.take(at(30), WLAN, subflows(0, 21), true, Some(23)), Some(Finding::Strips));
    }

    #[test]
    fn one_that_lets_subflows_through_is_not() {
        let mut ways = Ways::default();
        for count in 1..10 {
            assert_eq!(ways.take(at(count), WLAN, subflows(count, count), true, None), None);
        }
        assert!(!ways.strips(at(10), WLAN));
        // Counters were made anew.
        assert_eq!(ways.take(at(11), WLAN, subflows(0, 2), true, None), Some(Finding::Strips));
        assert_eq!(ways.take(at(12), WLAN, subflows(1, 2), true, None), None);
        assert!(!ways.strips(at(12), WLAN), "it gets through again");
    }

    #[test]
    fn it_is_told_once_that_nothing_can_be_marked() {
        let mut ways = Ways::default();
        let packets = |markable, unmarkable| WayCounts { markable, unmarkable, ..WayCounts::default() };
        assert_eq!(ways.take(at(0), WLAN, packets(0, 150), true, None), None);
        assert_eq!(ways.take(at(10), WLAN, packets(0, 300), true, None), Some(Finding::Unmarkable));
        assert_eq!(ways.take(at(20), WLAN, packets(0, 900), true, None), None);
        assert_eq!(ways.take(at(30), WLAN, packets(5, 2_000), true, None), None, "some senders use it");
        assert_eq!(ways.take(at(35), WLAN, packets(5, 2_300), false, None), None, "nothing is to be marked");
        assert_eq!(ways.take(at(40), WLAN, packets(5, 2_500), true, None), Some(Finding::Unmarkable));
    }

    #[test]
    fn marks_on_everything_are_no_marks_until_they_end() {
        let mut ways = Ways::default();
        let packets = |markable, congested| WayCounts { markable, congested, ..WayCounts::default() };
        assert_eq!(
            ways.take(at(0), WLAN, packets(1_000, 400), false, None),
            None,
            "a short queue marks much"
        );
        assert_eq!(ways.take(at(10), WLAN, packets(1_150, 550), false, None), None, "too few");
        assert_eq!(ways.take(at(20), WLAN, packets(1_250, 645), false, None), Some(Finding::Mangles));
        assert!(ways.mangles(WLAN) && !ways.mangles(NetworkId(1)));
        assert_eq!(ways.take(at(30), WLAN, packets(2_250, 1_500), false, None), None, "told once");
        assert!(ways.mangles(WLAN));
        assert_eq!(ways.take(at(40), WLAN, packets(3_250, 1_510), false, None), None);
        assert!(!ways.mangles(WLAN), "whoever it was has stopped");
    }

    #[test]
    fn first_subflows_and_further_ones_are_judged_apart() {
        let mut ways = Ways::default();
        let counts = |joined, join_stripped, begun, begin_stripped| WayCounts {
            joined,
            join_stripped,
            begun,
            begin_stripped,
            ..WayCounts::default()
        };
        // A box that knows connections' first packets and nothing more.
        assert_eq!(ways.take(at(0), WLAN, counts(0, 1, 5, 0), true, None), None);
        assert_eq!(ways.take(at(10), WLAN, counts(0, 2, 9, 0), true, None), Some(Finding::Strips));
        // One that answers in the place of some servers.
        let wired = NetworkId(1);
        assert_eq!(ways.take(at(0), wired, counts(3, 0, 0, 1), true, None), None);
        assert_eq!(ways.take(at(10), wired, counts(3, 0, 0, 2), true, None), Some(Finding::Strips));
        assert!(ways.strips(at(11), wired));
    }

    #[test]
    fn counters_that_begin_anew_hide_nothing() {
        let mut ways = Ways::default();
        assert_eq!(ways.take(at(0), WLAN, subflows(0, 1), true, None), None);
        ways.count_anew();
        assert_eq!(ways.take(at(10), WLAN, subflows(0, 1), true, None), Some(Finding::Strips));
    }
}
