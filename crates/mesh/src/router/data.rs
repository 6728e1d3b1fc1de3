//! Packets: this node's own and those of others.

use units::Timestamp;
use wire::mesh::{DataHeader, NodeId};

use super::{Event, Router};
use crate::Hop;
use crate::settings::DIAMETER;

/// What is to be done with a packet that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// It is for this node.
    Deliver,
    /// It goes on with this header in place of its own.
    PassOn(Hop, DataHeader),
    /// It is lost.
    Drop,
}

/// A way as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// First hop.
    pub next: Hop,
    /// How many hops it has.
    pub hops: u8,
    /// Further first hops that are ready.
    pub spares: usize,
}

impl Router {
    /// The way to a node, if there is one.
    pub fn way(&self, now: Timestamp, destination: NodeId) -> Option<Way> {
        let route = self.routes.get(destination).filter(|route| route.is_usable(now))?;
        Some(Way { next: route.next, hops: route.hops, spares: route.spares.len() })
    }

    /// Where packets of this node's own go first, and their header; `None` if there is no way now. One is then looked for if it is wanted.
    pub fn next_hop(&mut self, now: Timestamp, destination: NodeId) -> Option<(Hop, DataHeader)> {
        let expires = now + self.settings.route_lifetime;
        let Some(route) = self.routes.usable(now, destination) else {
            self.search_again(now, destination);
            return None;
        };
        route.expires = expires;
        route.used = now;
        route.unanswered = route.unanswered.saturating_add(1);
        let hop = route.next;
        self.note_use(now, hop);
        Some((hop, DataHeader { hops_left: DIAMETER, destination, source: self.id }))
    }

    /// A packet of so many bytes has come from a neighbour.
    pub fn handle_data(
        &mut self,
        now: Timestamp,
        from: Hop,
        header: DataHeader,
        length: usize,
    ) -> Forwarding {
        self.neighbours.hear(now, from);
        let lifetime = self.settings.route_lifetime;
        // Whatever comes from a node shows that the way to it serves, RFC 3561 section 6.2.
        if let Some(route) = self.routes.get_mut(header.source) {
            route.unanswered = 0;
            if route.is_usable(now) {
                route.follow(from);
                route.expires = now + lifetime;
            }
        }
        if header.destination == self.id {
            return Forwarding::Deliver;
        }
        if !self.relays() || header.source == self.id || header.hops_left == 0 {
            self.counters.data_dropped += 1;
            return Forwarding::Drop;
        }
        let Some(route) = self.routes.usable(now, header.destination).filter(|route| route.next != from)
        else {
            self.counters.data_dropped += 1;
            self.report_no_way(now, from, header.destination);
            return Forwarding::Drop;
        };
        if !self.relayed.take(now, length as u64) {
            self.counters.data_dropped += 1;
            return Forwarding::Drop;
        }
        route.expires = now + lifetime;
        route.used = now;
        route.unanswered = route.unanswered.saturating_add(1);
        route.add_precursor(from);
        let hop = route.next;
        self.note_use(now, hop);
        self.counters.data_passed_on += 1;
        Forwarding::PassOn(hop, DataHeader { hops_left: header.hops_left - 1, ..header })
    }

    /// The ends have found that data for `destination` is lost: its next hop is avoided for a time, and another way is looked for, even
    /// if a spare one is there, since the loss may be anywhere and the relays must hear of it.
    pub fn give_up(&mut self, now: Timestamp, destination: NodeId) {
        let Some(route) = self.routes.usable(now, destination) else {
            self.search_again(now, destination);
            return;
        };
        let hop = route.next;
        route.is_valid = false;
        route.spares.clear();
        self.suspicions.add(now, destination, hop);
        if self.wants(destination) {
            self.tell(Event::Lost(destination));
        }
        self.search_again(now, destination);
    }

    /// The ends have found that data for `destination` arrives.
    pub fn confirm(&mut self, destination: NodeId) {
        if let Some(route) = self.routes.get_mut(destination).filter(|route| route.is_valid) {
            route.unanswered = 0;
            let hop = route.next;
            self.suspicions.clear(destination, hop);
        }
    }
}
