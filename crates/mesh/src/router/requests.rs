//! Requests of others: answered, passed on, or kept back.
//!
//! ```text
//! request --seen before--> count the copy; a spare way back; the destination answers up to 3 neighbours
//!    | new
//!    v  older than known? signature? too many?  --> refused
//! the way back to the originator
//!    |-- for this node: answer (replies.rs)
//!    |-- no relay, or as far as it may go: nothing
//!    v
//! wait a moment --enough copies heard meanwhile--> kept back
//!    v
//! passed on
//! ```
//!
//! The wait and the copies that cancel it are what keeps a request from costing more the more nodes hear each other. Without any wait
//! two relays that do not hear each other would speak at once, each time anew, and somebody between them would never hear a request (RFC 5148).

use std::time::Duration;

use units::Timestamp;
use wire::mesh::{NodeId, Request, RequestId};

use super::{Recipient, Router};
use crate::Hop;
use crate::allowance::Allowance;
use crate::routes::Offer;
use crate::seen::Seen;
use crate::settings::{DIAMETER, REQUESTS_PER_SECOND};
use crate::signer::node_id;

/// Originators whose requests are counted.
const MOST_ORIGINATORS: usize = 1_024;
/// Requests that wait to be passed on.
const MOST_WAITING: usize = 128;
/// The wait grows by this for each neighbour beyond two, up to the second.
const WAIT_PER_NEIGHBOUR: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// Some times what a request takes on the air at 6 Mbit/s.
const LEAST_WAIT: Duration = Duration::from_millis(2);
/// Requests that come so soon one after the other belong to one search; the narrow rings are as many.
const SOON: Duration = Duration::from_millis(500);
const FEW_IN_A_ROW: u32 = 2;
/// A node that was only just started does not know its neighbours yet.
const UNCERTAIN: Duration = Duration::from_secs(10);

/// A request that is to be passed on.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) due: Timestamp,
    key: (NodeId, RequestId),
    request: Request,
}

/// Who has asked lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Originator {
    allowance: Allowance,
    asked: Timestamp,
    /// Requests that each came soon after the one before.
    in_a_row: u32,
}

impl Router {
    /// Whether it is heeded.
    pub(super) fn on_request(&mut self, now: Timestamp, from: Hop, request: Request) -> bool {
        let originator = node_id(&request.originator);
        if originator == self.id || request.hop_count >= DIAMETER {
            return originator == self.id;
        }
        let key = (originator, request.id);
        let offer = Offer {
            destination: originator,
            sequence: request.sequence,
            distance: request.hop_count,
            by: from,
            expires: now + self.settings.route_lifetime,
            is_back: true,
        };
        if let Some(seen) = self.requests.get_mut(key) {
            if seen.signature != request.signature {
                return false;
            }
            seen.copies = seen.copies.saturating_add(1);
            let is_for_me = seen.destination == self.id;
            self.routes.offer(now, offer);
            if is_for_me {
                self.answer(now, key, from);
            }
            return true;
        }
        if self.routes.is_stale(originator, request.sequence)
            || !self.is_signed(now, &request.originator.key, &request.signed_bytes(), &request.signature)
        {
            return false;
        }
        // Only now: others must not use up what the originator is allowed.
        if !self.may_ask(now, originator) {
            return false;
        }
        self.note_lost_data(now, request.destination);
        self.requests.add(key, Seen::new(now, request.destination, request.signature, from));
        self.routes.offer(now, offer);
        if request.destination == self.id {
            self.answer(now, key, from);
        } else if self.relays() && request.hop_count.saturating_add(1) < request.reach {
            self.pass_on_soon(now, key, request);
        }
        true
    }

    /// Whether one more request of its is heeded: `RREQ_RATELIMIT`, RFC 3561 section 6.3, which others must hold it to.
    fn may_ask(&mut self, now: Timestamp, originator: NodeId) -> bool {
        if !self.originators.contains_key(&originator) && self.originators.len() >= MOST_ORIGINATORS {
            self.originators.retain(|_, known| !known.allowance.is_full(now));
            if self.originators.len() >= MOST_ORIGINATORS {
                return false;
            }
        }
        let per_second = u64::from(REQUESTS_PER_SECOND);
        let known = self.originators.entry(originator).or_insert_with(|| Originator {
            allowance: Allowance::new(now, per_second, per_second),
            asked: now,
            in_a_row: 0,
        });
        let is_soon = now.since(known.asked) < SOON;
        known.in_a_row = if is_soon { known.in_a_row.saturating_add(1) } else { 1 };
        known.asked = now;
        known.allowance.take(now, 1)
    }

    /// Somebody looks for a way to `destination` anew: if what went there by this node was not answered, its next hop is suspect.
    fn note_lost_data(&mut self, now: Timestamp, destination: NodeId) {
        const LATELY: Duration = Duration::from_secs(5);
        const FEW: u32 = 2;
        if let Some(route) = self.routes.usable(now, destination)
            && route.unanswered >= FEW
            && now.since(route.used) < LATELY
        {
            let hop = route.next;
            route.unanswered = 0;
            self.suspicions.add(now, destination, hop);
        }
    }

    fn pass_on_soon(&mut self, now: Timestamp, key: (NodeId, RequestId), request: Request) {
        if self.waiting.len() >= MOST_WAITING || !self.passing.take(now, 1) {
            self.counters.refused += 1;
            return;
        }
        if let Some(seen) = self.requests.get_mut(key) {
            seen.is_relayed = true;
        }
        // Who asks again and again is not understood: two relays may speak at once, so they take more time.
        let in_vain = self.originators.get(&key.0).is_some_and(|known| known.in_a_row > FEW_IN_A_ROW);
        let longest = self.longest_wait(now) * if in_vain { 3 } else { 1 };
        let due = now + self.jitter(longest);
        let hop_count = request.hop_count.saturating_add(1);
        self.waiting.push(Waiting { due, key, request: Request { hop_count, ..request } });
    }

    /// How long a relay here waits at most before it passes a request on.
    pub(super) fn longest_wait(&self, now: Timestamp) -> Duration {
        let heard = self.neighbours(now);
        let uncertain = heard < 2 && now.since(self.started) < UNCERTAIN;
        if uncertain {
            return LONGEST_WAIT / 4;
        }
        (LEAST_WAIT + WAIT_PER_NEIGHBOUR * heard.saturating_sub(2) as u32).min(LONGEST_WAIT)
    }

    pub(super) fn pass_on_what_waited(&mut self, now: Timestamp) {
        let due: Vec<Waiting> = self.waiting.extract_if(.., |waiting| waiting.due <= now).collect();
        for Waiting { key, request, .. } in due {
            let enough = self.settings.enough_copies;
            if let Some(seen) = self.requests.get_mut(key)
                && enough.is_some_and(|enough| seen.copies >= enough)
            {
                self.counters.requests_suppressed += 1;
                continue;
            }
            self.counters.requests_passed_on += 1;
            self.send(Recipient::Everybody, request.encode());
        }
    }
}
