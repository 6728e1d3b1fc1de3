//! The routing table, RFC 3561 section 6.2: one entry for each destination, with spare next hops beside the one in use.

use std::collections::BTreeMap;
use std::time::Duration;

use arrayvec::ArrayVec;
use units::Timestamp;
use wire::mesh::{NodeId, Sequence};

use crate::Hop;

/// Most destinations that are kept; whichever expires first gives way.
const MOST: usize = 1_024;
/// Spare next hops of one destination.
const SPARES: usize = 4;
/// Neighbours that are told when a way ends; further ones find out by themselves.
const PRECURSORS: usize = 16;
/// A way that has ended is remembered so long for its sequence number: `DELETE_PERIOD`, RFC 3561 section 10.
const DELETE_PERIOD: Duration = Duration::from_secs(50);

/// The way to one destination.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) sequence: Sequence,
    /// Hops to the destination.
    pub(crate) hops: u8,
    pub(crate) next: Hop,
    /// Other neighbours that have offered the same way, with their own distance.
    pub(crate) spares: ArrayVec<(Hop, u8), SPARES>,
    pub(crate) expires: Timestamp,
    pub(crate) is_valid: bool,
    /// Who sends by this node to there: precursor list, RFC 3561 section 6.2.
    pub(crate) precursors: ArrayVec<Hop, PRECURSORS>,
    /// It leads to who asked, not to who answered.
    pub(crate) is_back: bool,
    /// Packets sent there since one came from there, and when the last was sent.
    pub(crate) unanswered: u32,
    pub(crate) used: Timestamp,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    routes: BTreeMap<NodeId, Route>,
}

impl Route {
    pub(crate) fn is_usable(&self, now: Timestamp) -> bool {
        self.is_valid && self.expires > now
    }

    pub(crate) fn add_precursor(&mut self, hop: Hop) {
        if !self.precursors.contains(&hop) && !self.precursors.is_full() {
            self.precursors.push(hop);
        }
    }

    /// Takes a spare next hop in place of the one that does not serve any more; false, and the way has ended, if there is none. Only those nearer to
    /// the destination than this node is are taken: they cannot lead back here (the rule of Marina and Das, "Ad hoc On-demand Multipath
    /// Distance Vector Routing", 2001).
    pub(crate) fn turn_to_spare(&mut self, serves: impl Fn(Hop) -> bool) -> bool {
        self.spares.retain(|(hop, _)| serves(*hop));
        match self.spares.iter().position(|(_, distance)| *distance < self.hops) {
            Some(at) => {
                let (hop, distance) = self.spares.remove(at);
                self.next = hop;
                self.hops = distance.saturating_add(1);
                self.unanswered = 0;
                true
            }
            None => {
                self.is_valid = false;
                false
            }
        }
    }

    /// Data from the destination, which had asked for the way, comes by `hop`: that is the way which it found good. So both directions go by the same relays,
    /// whatever a relay on another way says of its length.
    pub(crate) fn follow(&mut self, hop: Hop) {
        if self.next == hop || !self.is_back {
            return;
        }
        if let Some((spare, distance)) = self.spares.iter_mut().find(|(spare, _)| *spare == hop) {
            let before = (self.next, self.hops.saturating_sub(1));
            (self.next, self.hops) = (*spare, distance.saturating_add(1));
            (*spare, *distance) = before;
        }
    }
}

/// What a message says of a way: to whom, from how far the one who told it is, and by whom it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) destination: NodeId,
    pub(crate) sequence: Sequence,
    /// The neighbour's own distance to the destination.
    pub(crate) distance: u8,
    pub(crate) by: Hop,
    pub(crate) expires: Timestamp,
    /// It is the way back to who asked.
    pub(crate) is_back: bool,
}

impl Routes {
    pub(crate) fn get(&self, destination: NodeId) -> Option<&Route> {
        self.routes.get(&destination)
    }

    pub(crate) fn get_mut(&mut self, destination: NodeId) -> Option<&mut Route> {
        self.routes.get_mut(&destination)
    }

    pub(crate) fn usable(&mut self, now: Timestamp, destination: NodeId) -> Option<&mut Route> {
        self.routes.get_mut(&destination).filter(|route| route.is_usable(now))
    }

    /// Whether something with this sequence number is older than what is known, RFC 3561 section 6.2 (i).
    pub(crate) fn is_stale(&self, destination: NodeId, sequence: Sequence) -> bool {
        self.routes.get(&destination).is_some_and(|known| known.sequence.is_newer_than(sequence))
    }

    /// Takes an offer where it is newer or shorter than what is known, else keeps it as a spare if it can be one. Whether it is in use now.
    pub(crate) fn offer(&mut self, now: Timestamp, offer: Offer) -> bool {
        if self.is_stale(offer.destination, offer.sequence) {
            return false;
        }
        let hops = offer.distance.saturating_add(1);
        let Some(known) = self.routes.get_mut(&offer.destination) else {
            self.make_room(now);
            self.routes.insert(offer.destination, Route::of(&offer, hops));
            return true;
        };
        let is_newer = offer.sequence.is_newer_than(known.sequence);
        let is_usable = known.is_usable(now);
        if is_newer || !is_usable {
            // Who sent by this node before is told too if the new way ends.
            let precursors = known.precursors.clone();
            *known = Route { precursors, ..Route::of(&offer, hops) };
            return true;
        }
        known.expires = known.expires.max(offer.expires);
        let is_known = known.next == offer.by || known.spares.iter().any(|(hop, _)| *hop == offer.by);
        if !is_known && !known.spares.is_full() {
            known.spares.push((offer.by, offer.distance));
        }
        if hops < known.hops
            && let Some(at) = known.spares.iter().position(|(hop, _)| *hop == offer.by)
        {
            let longer = (known.next, known.hops.saturating_sub(1));
            known.spares.remove(at);
            known.spares.push(longer);
            (known.next, known.hops) = (offer.by, hops);
            known.unanswered = 0;
        }
        known.next == offer.by
    }

    /// Destinations whose next hop is `hop`, of ways that are in use.
    pub(crate) fn by_hop(&self, now: Timestamp, hop: Hop) -> Vec<NodeId> {
        let uses = |route: &Route| route.next == hop && route.is_usable(now);
        self.routes.iter().filter(|(_, route)| uses(route)).map(|(destination, _)| *destination).collect()
    }

    fn make_room(&mut self, now: Timestamp) {
        if self.routes.len() < MOST {
            return;
        }
        self.routes.retain(|_, route| route.expires + DELETE_PERIOD > now);
        if self.routes.len() < MOST {
            return;
        }
        let first = self.routes.iter().min_by_key(|(_, route)| (route.is_valid, route.expires));
        if let Some(first) = first.map(|(destination, _)| *destination) {
            self.routes.remove(&first);
        }
    }
}

impl Route {
    fn of(offer: &Offer, hops: u8) -> Self {
        Self {
            sequence: offer.sequence,
            hops,
            next: offer.by,
            spares: ArrayVec::new(),
            expires: offer.expires,
            is_valid: true,
            precursors: ArrayVec::new(),
            is_back: offer.is_back,
            unanswered: 0,
            used: Timestamp::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use units::NetworkId;
    use wire::mesh::LinkAddress;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const FAR: NodeId = NodeId([9; 16]);

    fn hop(port: u16) -> Hop {
        Hop { network: NetworkId(1), address: LinkAddress::V4(Ipv4Addr::LOCALHOST, port) }
    }

    fn offer(sequence: u32, distance: u8, by: u16) -> Offer {
        let expires = Timestamp::from_millis(5_000);
        let sequence = Sequence(sequence);
        Offer { destination: FAR, sequence, distance, by: hop(by), expires, is_back: true }
    }

    #[test]
    fn newer_wins_then_shorter() {
        let mut routes = Routes::default();
        assert!(routes.offer(NOW, offer(5, 3, 1)));
        assert!(!routes.offer(NOW, offer(4, 0, 2)), "older");
        assert!(!routes.offer(NOW, offer(5, 4, 2)), "longer");
        assert!(routes.offer(NOW, offer(5, 1, 3)), "shorter");
        assert_eq!(routes.get(FAR).unwrap().hops, 2);
        assert!(routes.offer(NOW, offer(6, 9, 4)), "newer, though longer");
        assert_eq!(routes.get(FAR).unwrap().next, hop(4));
        // A number that has wrapped round is newer.
        routes.get_mut(FAR).unwrap().sequence = Sequence(u32::MAX);
        assert!(routes.offer(NOW, offer(2, 3, 5)));
    }

    #[test]
    fn spares_are_nearer_than_this_node_and_take_over() {
        let mut routes = Routes::default();
        routes.offer(NOW, offer(5, 3, 1));
        routes.offer(NOW, offer(5, 3, 2));
        routes.offer(NOW, offer(5, 4, 3));
        let route = routes.get_mut(FAR).unwrap();
        assert!(route.turn_to_spare(|_| true));
        assert_eq!((route.next, route.hops), (hop(2), 4));
        assert_eq!(route.spares.as_slice(), [(hop(3), 4)]);
        assert!(!route.turn_to_spare(|_| true), "one as far away as this node may lead back here");
        assert!(!route.is_usable(NOW));
    }

    #[test]
    fn the_way_back_follows_what_comes() {
        let mut routes = Routes::default();
        routes.offer(NOW, offer(5, 3, 1));
        routes.offer(NOW, offer(5, 0, 2));
        let route = routes.get_mut(FAR).unwrap();
        assert_eq!((route.next, route.hops), (hop(2), 1), "it says that it is near");
        route.follow(hop(9));
        assert_eq!(route.next, hop(2), "who has offered no way is not followed");
        route.follow(hop(1));
        assert_eq!((route.next, route.hops), (hop(1), 4));
        assert_eq!(route.spares.as_slice(), [(hop(2), 0)]);
        route.is_back = false;
        route.follow(hop(2));
        assert_eq!(route.next, hop(1));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut routes = Routes::default();
        for number in 0..3_000u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            let expires = NOW + Duration::from_millis(u64::from(number) + 1);
            routes.offer(NOW, Offer { destination: NodeId(id), expires, ..offer(1, 1, 1) });
        }
        assert_eq!(routes.routes.len(), MOST);
        let mut last = [0; 16];
        last[..4].copy_from_slice(&2_999u32.to_be_bytes());
        assert!(routes.get(NodeId(last)).is_some(), "the one that expires last");
    }
}
