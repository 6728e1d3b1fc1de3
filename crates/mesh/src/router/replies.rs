//! Replies: this node's own, and others' on their way back.
//!
//! Only the destination answers. RFC 3561 lets a relay answer from its table, which is where a black hole begins: here a reply bears
//! the destination's signature over the very request, so it can be neither invented nor used again. What a relay can still do is say a
//! smaller hop count, be chosen, and drop the data; see `suspicion.rs`.

use rand::Rng;
use units::Timestamp;
use wire::mesh::{NodeId, Reply, RequestId, Signature};

use super::{Recipient, Router, liveness};
use crate::Hop;
use crate::routes::Offer;
use crate::settings::{DIAMETER, SUSPECT_DELAY};
use crate::signer::node_id;
use std::time::Duration;

/// Replies that wait for a better one.
const MOST_HELD: usize = 64;

/// A reply that came by a suspect neighbour.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) due: Timestamp,
    from: Hop,
    reply: Reply,
}

impl Router {
    /// Answers a request for this node to the neighbour that a copy of it came from.
    pub(super) fn answer(&mut self, now: Timestamp, key: (NodeId, RequestId), to: Hop) {
        let Some(seen) = self.requests.get_mut(key) else { return };
        if seen.answered.is_full() || seen.answered.contains(&to) {
            return;
        }
        seen.answered.push(to);
        let known = seen.answer.clone();
        let reply = known.unwrap_or_else(|| {
            self.sequence = self.sequence.next();
            let unsigned = Reply {
                hop_count: 0,
                id: key.1,
                originator: key.0,
                sequence: self.sequence,
                lifetime_ms: self.settings.route_lifetime.as_millis() as u32,
                destination: self.node,
                signature: Signature([0; wire::mesh::SIGNATURE_LEN]),
            };
            Reply { signature: self.signer.sign(&unsigned.signed_bytes()), ..unsigned }
        });
        if let Some(seen) = self.requests.get_mut(key) {
            seen.answer = Some(reply.clone());
        }
        // What comes by it will be data.
        if let Some(route) = self.routes.usable(now, key.0) {
            route.add_precursor(to);
        }
        self.counters.replies += 1;
        self.send(Recipient::One(to), reply.encode());
    }

    /// Whether it is heeded.
    pub(super) fn on_reply(&mut self, now: Timestamp, from: Hop, reply: Reply) -> bool {
        let destination = node_id(&reply.destination);
        if reply.hop_count >= DIAMETER || destination == self.id {
            return false;
        }
        let checked = if reply.originator == self.id {
            let Some(search) = self.discoveries.get(&destination) else { return false };
            if !search.has_asked(reply.id) {
                return false;
            }
            None
        } else {
            let Some(seen) = self.requests.get_mut((reply.originator, reply.id)) else { return false };
            if !seen.is_relayed || seen.destination != destination {
                return false;
            }
            seen.replied
        };
        if checked != Some(reply.signature)
            && !self.is_signed(now, &reply.destination.key, &reply.signed_bytes(), &reply.signature)
        {
            return false;
        }
        let upstream = self.routes.get(reply.originator).map(|route| route.next);
        if self.suspicions.has(now, destination, from) && self.has_others(now, from, upstream) {
            // Who looks goes on looking, and is content with what has failed just now only if there is nothing else.
            let waits = reply.originator == self.id && self.suspicions.is_fresh(now, destination, from);
            let due = if waits { Timestamp::FAR_FUTURE } else { now + SUSPECT_DELAY };
            self.held.retain(|held| {
                held.due < Timestamp::FAR_FUTURE || held.reply.destination != reply.destination
            });
            if self.held.len() < MOST_HELD {
                self.held.push(Held { due, from, reply });
            }
            return true;
        }
        self.take_reply(now, from, reply);
        true
    }

    /// Whether a reply could come by somebody else than the neighbours on either side.
    fn has_others(&self, now: Timestamp, suspect: Hop, upstream: Option<Hop>) -> bool {
        let is_other = |hop: Hop| hop != suspect && Some(hop) != upstream;
        let mut present =
            self.neighbours.iter().filter(|(_, known)| now.since(known.heard) < liveness::PRESENT);
        present.any(|(hop, _)| is_other(hop))
    }

    pub(super) fn take_what_was_held(&mut self, now: Timestamp) {
        let due: Vec<Held> = self.held.extract_if(.., |held| held.due <= now).collect();
        for Held { from, reply, .. } in due {
            let destination = node_id(&reply.destination);
            let better = self
                .routes
                .get(destination)
                .is_some_and(|known| known.is_usable(now) && !reply.sequence.is_newer_than(known.sequence));
            if !better {
                self.take_reply(now, from, reply);
            }
        }
    }

    /// All attempts to find a node are over, and nobody but a suspect neighbour has shown a way: it is taken, if it is none too old.
    pub(super) fn take_suspect(&mut self, now: Timestamp, destination: NodeId) -> bool {
        let at = self.held.iter().position(|held| {
            held.reply.originator == self.id && node_id(&held.reply.destination) == destination
        });
        let Some(Held { from, reply, .. }) = at.map(|at| self.held.swap_remove(at)) else { return false };
        self.take_reply(now, from, reply);
        self.routes.usable(now, destination).is_some()
    }

    /// A reply that is to be believed: the way that it offers, and further back with it.
    fn take_reply(&mut self, now: Timestamp, from: Hop, reply: Reply) {
        let destination = node_id(&reply.destination);
        let lifetime = Duration::from_millis(u64::from(reply.lifetime_ms)).min(self.settings.route_lifetime);
        let offer = Offer {
            destination,
            sequence: reply.sequence,
            distance: reply.hop_count,
            by: from,
            expires: now + lifetime,
            is_back: false,
        };
        self.routes.offer(now, offer);
        if reply.originator == self.id {
            self.found(now, destination, reply.id);
            return;
        }
        if let Some(route) = self.routes.usable(now, reply.originator) {
            route.add_precursor(from);
        }
        let Some(seen) = self.requests.get_mut((reply.originator, reply.id)) else { return };
        // Where the first copy came from, and not the shortest way that somebody claims.
        let back = seen.from;
        // Further replies to the same request are spare ways of this node; those behind it have theirs.
        if seen.replied.replace(reply.signature).is_some() || back == from {
            return;
        }
        if let Some(route) = self.routes.usable(now, destination) {
            route.add_precursor(back);
        }
        self.counters.replies += 1;
        let hop_count = reply.hop_count.saturating_add(1);
        self.send(Recipient::One(back), Reply { hop_count, ..reply }.encode());
    }

    /// A number below `most`, for waits that should not all end at once.
    pub(super) fn jitter(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.random.random_range(0..=most.as_micros() as u64))
    }
}
