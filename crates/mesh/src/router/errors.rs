//! Ways that end: RFC 3561 section 6.11, and local repair, section 6.12.
//!
//! A relay whose next hop is gone takes a spare one if it has one and says nothing; else it looks for the destination itself if that is near; else, or if that is
//! in vain, it tells those who send by it.

use units::Timestamp;
use wire::mesh::{MAX_LOST, NodeId, RouteError, Signature};

use super::{Event, Recipient, Router};
use crate::Hop;
use crate::signer::node_id;

impl Router {
    /// A neighbour is not reached any more.
    pub fn hop_lost(&mut self, now: Timestamp, hop: Hop) {
        self.neighbours.forget(hop);
        let concerned = self.routes.by_hop(now, hop);
        self.turn_from(now, hop, &concerned);
    }

    /// Packets for these go by `hop` no more.
    fn turn_from(&mut self, now: Timestamp, hop: Hop, destinations: &[NodeId]) {
        let mut ended = Vec::new();
        for destination in destinations {
            let suspicions = &self.suspicions;
            let serves = |spare: Hop| spare != hop && !suspicions.has(now, *destination, spare);
            let turned = self.routes.get_mut(*destination).is_some_and(|route| route.turn_to_spare(serves));
            if turned {
                continue;
            }
            if self.wants(*destination) {
                self.tell(Event::Lost(*destination));
                self.search_again(now, *destination);
            }
            let is_relayed = self.routes.get(*destination).is_some_and(|route| !route.precursors.is_empty());
            if is_relayed && !self.repair(now, *destination) {
                ended.push(*destination);
            }
        }
        self.report_lost(now, &ended);
    }

    /// Tells those who send by this node to `lost`.
    pub(super) fn report_lost(&mut self, now: Timestamp, lost: &[NodeId]) {
        let mut told: Vec<(Hop, Vec<NodeId>)> = Vec::new();
        for destination in lost {
            let Some(route) = self.routes.get_mut(*destination) else { continue };
            for hop in std::mem::take(&mut route.precursors) {
                match told.iter_mut().find(|(known, _)| *known == hop) {
                    Some((_, destinations)) => destinations.push(*destination),
                    None => told.push((hop, vec![*destination])),
                }
            }
        }
        for (hop, destinations) in told {
            for some in destinations.chunks(MAX_LOST) {
                self.say_error(now, hop, some.to_vec());
            }
        }
    }

    /// A packet has come that this node knows no way for.
    pub(super) fn report_no_way(&mut self, now: Timestamp, from: Hop, destination: NodeId) {
        // While one is looked for, what comes is lost but not in vain.
        if !self.discoveries.contains_key(&destination) {
            self.say_error(now, from, vec![destination]);
        }
    }

    fn say_error(&mut self, now: Timestamp, to: Hop, lost: Vec<NodeId>) {
        if !self.errors.take(now, 1) {
            return;
        }
        let sequence = self.next_statement();
        let signature = Signature([0; wire::mesh::SIGNATURE_LEN]);
        let unsigned = RouteError { sequence, node: self.node, lost, signature };
        let signature = self.signer.sign(&unsigned.signed_bytes());
        self.counters.errors += 1;
        self.send(Recipient::One(to), RouteError { signature, ..unsigned }.encode());
    }

    /// Whether it is heeded: it must come from the next hop of what it says, and be signed by whoever that is known to be.
    pub(super) fn on_error(&mut self, now: Timestamp, from: Hop, error: &RouteError) -> bool {
        let concerned: Vec<NodeId> = self.routes.by_hop(now, from);
        let concerned: Vec<NodeId> =
            error.lost.iter().filter(|lost| concerned.contains(lost)).copied().collect();
        if concerned.is_empty() {
            // What is no news needs no check.
            return true;
        }
        let who = node_id(&error.node);
        let known = self.neighbours.get(from).and_then(|neighbour| neighbour.node);
        if known.is_some_and(|(node, last)| node != who || !error.sequence.is_newer_than(last)) {
            return false;
        }
        if !self.is_signed(now, &error.node.key, &error.signed_bytes(), &error.signature) {
            return false;
        }
        if let Some(neighbour) = self.neighbours.get_mut(from) {
            neighbour.node = Some((who, error.sequence));
        }
        self.turn_from(now, from, &concerned);
        true
    }
}
