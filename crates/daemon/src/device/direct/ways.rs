//! What networks were seen to do to MPTCP: boxes that take its option out, and senders or boxes that leave no room for marks. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use linux::mptcp::WayCounts;
use units::{NetworkId, Timestamp};

/// What is remembered, by network.
#[derive(Default, Debug)]
pub struct Ways(BTreeMap<NetworkId, Way>);

#[derive(Clone, Copy, Default, Debug)]
struct Way {
    /// The counters when last read.
    counts: WayCounts,
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
    /// Takes what its counters show now; `marked` is whether packets that come by it are to be marked.
    pub fn take(
        &mut self,
        now: Timestamp,
        network: NetworkId,
        counts: WayCounts,
        marked: bool,
    ) -> Option<Finding> {
        let way = self.0.entry(network).or_default();
        let news = counts.since(&way.counts);
        way.counts = counts;
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
        self.0.get(&network).and_then(|way| way.left_out).is_some_and(|until| now < until)
    }

    /// Whether marks of the way there mean nothing.
    pub fn mangles(&self, network: NetworkId) -> bool {
        self.0.get(&network).is_some_and(|way| way.mangles)
    }

    /// All counters begin from nothing again.
    pub fn count_anew(&mut self) {
        self.0.values_mut().for_each(|way| way.counts = WayCounts::default());
    }

    /// All networks of which it is so.
    pub fn stripping(&self, now: Timestamp) -> Vec<NetworkId> {
        self.0.keys().copied().filter(|network| self.strips(now, *network)).collect()
    }

    /// All others are gone or have another address: what is on the way there may be another, too.
    pub fn keep(&mut self, is_as_before: impl Fn(NetworkId) -> bool) {
        self.0.retain(|network, _| is_as_before(*network));
    }
}

/// One may be a far end that has lost its connection meanwhile.
const ENOUGH_STRIPPED: u64 = 2;
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
    use super::*;

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
        assert_eq!(ways.take(at(0), WLAN, subflows(0, 1), true), None);
        assert_eq!(ways.take(at(10), WLAN, subflows(0, 1), true), None, "nothing new");
        assert_eq!(ways.take(at(20), WLAN, subflows(0, 2), true), Some(Finding::Strips));
        assert!(ways.strips(at(3_619), WLAN) && !ways.strips(at(3_620), WLAN));
        assert!(!ways.strips(at(20), NetworkId(1)));
        assert_eq!([ways.stripping(at(20)), ways.stripping(at(3_620))], [vec![WLAN], vec![]]);
        ways.keep(|network| network != WLAN);
        assert!(!ways.strips(at(21), WLAN));
    }

    #[test]
    fn one_that_lets_subflows_through_is_not() {
        let mut ways = Ways::default();
        for count in 1..10 {
            assert_eq!(ways.take(at(count), WLAN, subflows(count, count), true), None);
        }
        assert!(!ways.strips(at(10), WLAN));
        // Counters were made anew.
        assert_eq!(ways.take(at(11), WLAN, subflows(0, 2), true), Some(Finding::Strips));
        assert_eq!(ways.take(at(12), WLAN, subflows(1, 2), true), None);
        assert!(!ways.strips(at(12), WLAN), "it gets through again");
    }

    #[test]
    fn it_is_told_once_that_nothing_can_be_marked() {
        let mut ways = Ways::default();
        let packets = |markable, unmarkable| WayCounts { markable, unmarkable, ..WayCounts::default() };
        assert_eq!(ways.take(at(0), WLAN, packets(0, 150), true), None);
        assert_eq!(ways.take(at(10), WLAN, packets(0, 300), true), Some(Finding::Unmarkable));
        assert_eq!(ways.take(at(20), WLAN, packets(0, 900), true), None);
        assert_eq!(ways.take(at(30), WLAN, packets(5, 2_000), true), None, "some senders use it");
        assert_eq!(ways.take(at(35), WLAN, packets(5, 2_300), false), None, "nothing is to be marked");
        assert_eq!(ways.take(at(40), WLAN, packets(5, 2_500), true), Some(Finding::Unmarkable));
    }

    #[test]
    fn marks_on_everything_are_no_marks_until_they_end() {
        let mut ways = Ways::default();
        let packets = |markable, congested| WayCounts { markable, congested, ..WayCounts::default() };
        assert_eq!(ways.take(at(0), WLAN, packets(1_000, 400), false), None, "a short queue marks much");
        assert_eq!(ways.take(at(10), WLAN, packets(1_150, 550), false), None, "too few");
        assert_eq!(ways.take(at(20), WLAN, packets(1_250, 645), false), Some(Finding::Mangles));
        assert!(ways.mangles(WLAN) && !ways.mangles(NetworkId(1)));
        assert_eq!(ways.take(at(30), WLAN, packets(2_250, 1_500), false), None, "told once");
        assert!(ways.mangles(WLAN));
        assert_eq!(ways.take(at(40), WLAN, packets(3_250, 1_510), false), None);
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
        assert_eq!(ways.take(at(0), WLAN, counts(0, 1, 5, 0), true), None);
        assert_eq!(ways.take(at(10), WLAN, counts(0, 2, 9, 0), true), Some(Finding::Strips));
        // One that answers in the place of some servers.
        let wired = NetworkId(1);
        assert_eq!(ways.take(at(0), wired, counts(3, 0, 0, 1), true), None);
        assert_eq!(ways.take(at(10), wired, counts(3, 0, 0, 2), true), Some(Finding::Strips));
        assert!(ways.strips(at(11), wired));
    }

    #[test]
    fn counters_that_begin_anew_hide_nothing() {
        let mut ways = Ways::default();
        assert_eq!(ways.take(at(0), WLAN, subflows(0, 1), true), None);
        ways.count_anew();
        assert_eq!(ways.take(at(10), WLAN, subflows(0, 1), true), Some(Finding::Strips));
    }
}
