//! This node's own searches, in widening rings: RFC 3561 sections 6.3 and 6.4.
//!
//! ```text
//!            find                    reply
//! (none) -----------> Searching --------------> Found <--+
//!                       |   ^                     |      | spare way
//!    every ring in vain |   | pause is over       | way lost, or given up
//!                       v   |                     +------+---> Searching
//!                      Pausing
//! ```

use std::time::Duration;

use units::Timestamp;
use wire::mesh::{NodeId, Request, RequestId, Signature};

use super::{Event, Recipient, Router};
use crate::settings::{DIAMETER, HOP_TIME_BOUNDS, REPAIR_HOPS, RINGS, SEARCH_PAUSE, SLACK, WIDE_ATTEMPTS};

/// Most destinations that are looked for at a time.
const MOST: usize = 64;

/// Hops that even a wide search is thought to take.
const LIKELY_DIAMETER: u8 = 12;

/// Pauses before they get longer.
const SHORT_PAUSES: u32 = 4;

/// A search and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Discovery {
    purpose: Purpose,
    state: State,
    /// The requests of this search, the last first; replies to older ones are still welcome.
    asked: Vec<(RequestId, Timestamp)>,
    /// Length of the next pause, and searches since the last that was long enough ago.
    pause: Duration,
    in_a_row: u32,
    /// When a search was last begun.
    begun: Option<Timestamp>,
}

/// For whom it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// This node's own packets.
    Own,
    /// Those of others, whose way by here was broken: local repair, RFC 3561 section 6.12.
    Repair,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Searching { attempt: u8, until: Timestamp },
    Found,
    Pausing { until: Timestamp },
}

impl Discovery {
    pub(super) fn due(&self) -> Option<Timestamp> {
        match self.state {
            State::Searching { until, .. } | State::Pausing { until } => Some(until),
            State::Found => None,
        }
    }

    pub(super) fn has_asked(&self, id: RequestId) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == id)
    }
}

impl Router {
    /// Ways to a node are wanted from now on: looks for one unless one is there.
    pub fn find(&mut self, now: Timestamp, destination: NodeId) {
        if destination == self.id
            || (self.discoveries.len() >= MOST && !self.discoveries.contains_key(&destination))
        {
            return;
        }
        if let Some(known) = self.discoveries.get_mut(&destination) {
            known.purpose = Purpose::Own;
            if known.state != State::Found {
                return;
            }
        }
        match self.routes.usable(now, destination).map(|route| route.hops) {
            Some(hops) => {
                self.discoveries.entry(destination).or_insert_with(|| Discovery::new(Purpose::Own)).state =
                    State::Found;
                self.tell(Event::Found { destination, hops });
            }
            None => self.begin(now, destination, Purpose::Own),
        }
    }

    /// Ways to a node are not wanted any more.
    pub fn release(&mut self, destination: NodeId) {
        self.discoveries.remove(&destination);
    }

    /// Whether ways to the node are wanted.
    pub fn wants(&self, destination: NodeId) -> bool {
        self.discoveries.get(&destination).is_some_and(|known| known.purpose == Purpose::Own)
    }

    /// Looks for another way, if one is wanted and none is looked for.
    pub(super) fn search_again(&mut self, now: Timestamp, destination: NodeId) {
        let Some(known) = self.discoveries.get(&destination) else { return };
        if known.state == State::Found && known.purpose == Purpose::Own {
            self.begin(now, destination, Purpose::Own);
        }
    }

    /// Looks for another way for others, where the destination is near; whether it does.
    pub(super) fn repair(&mut self, now: Timestamp, destination: NodeId) -> bool {
        let near = self.routes.get(destination).is_some_and(|route| route.hops <= REPAIR_HOPS);
        let busy = self.discoveries.contains_key(&destination) || self.discoveries.len() >= MOST;
        if !near || busy || !self.relays() || !self.passing.take(now, 1) {
            return false;
        }
        self.begin(now, destination, Purpose::Repair);
        true
    }

    fn begin(&mut self, now: Timestamp, destination: NodeId, purpose: Purpose) {
        let known = self.discoveries.entry(destination).or_insert_with(|| Discovery::new(purpose));
        // A way that is lost again at once is looked for with pauses too.
        let again =
            known.begun.filter(|begun| now.since(*begun) < known.pause).map(|begun| begun + known.pause);
        if let Some(until) = again {
            known.lengthen_pause();
            known.state = State::Pausing { until };
            return;
        }
        if known.begun.is_none_or(|begun| now.since(begun) > SEARCH_PAUSE.1 * 2) {
            known.pause = SEARCH_PAUSE.0;
            known.in_a_row = 0;
        }
        known.begun = Some(now);
        self.ask(now, destination, 0);
    }

    /// The ring of an attempt; `None` after the last. Who was so far away before is looked for a little further first, RFC 3561 section 6.4.
    fn ring(&self, destination: NodeId, purpose: Purpose, attempt: u8) -> Option<u8> {
        let before = self.routes.get(destination).map(|route| route.hops.saturating_add(2));
        if purpose == Purpose::Repair {
            return before.filter(|_| attempt == 0);
        }
        let from = match before {
            Some(before) => RINGS.iter().filter(|ring| **ring < before).count() as u8,
            None => 0,
        };
        let at = usize::from(attempt.saturating_add(from));
        match RINGS.get(at) {
            Some(ring) if attempt == 0 => Some(before.unwrap_or(*ring).max(*ring)),
            Some(ring) => Some(*ring),
            None if attempt == 0 => before.map(|before| before.min(DIAMETER)),
            None if at < RINGS.len() + usize::from(WIDE_ATTEMPTS) => Some(DIAMETER),
            None => None,
        }
    }

    fn ask(&mut self, now: Timestamp, destination: NodeId, attempt: u8) {
        let Some(purpose) = self.discoveries.get(&destination).map(|known| known.purpose) else { return };
        let Some(reach) = self.ring(destination, purpose, attempt) else {
            self.found_nobody(now, destination, purpose);
            return;
        };
        self.sequence = self.sequence.next();
        let id = self.next_request;
        self.next_request = RequestId(id.0.wrapping_add(1));
        // There and back, a quarter more, and the waits on the way; longer each time the whole mesh is asked anew.
        let again = u32::from(attempt.saturating_sub(RINGS.len() as u8)) + 1;
        let hops = u32::from(reach.min(LIKELY_DIAMETER));
        let waits = self.longest_wait(now) * hops.saturating_sub(1);
        let wait = (self.hop_time * hops * 5 / 2 + waits) * again + SLACK;
        if let Some(known) = self.discoveries.get_mut(&destination) {
            known.asked.insert(0, (id, now));
            known.asked.truncate(8);
            known.state = State::Searching { attempt, until: now + wait };
        }
        let unsigned = Request {
            hop_count: 0,
            reach,
            id,
            sequence: self.sequence,
            originator: self.node,
            destination,
            signature: Signature([0; wire::mesh::SIGNATURE_LEN]),
        };
        let signature = self.signer.sign(&unsigned.signed_bytes());
        self.counters.requests += 1;
        self.send(Recipient::Everybody, Request { signature, ..unsigned }.encode());
    }

    fn found_nobody(&mut self, now: Timestamp, destination: NodeId, purpose: Purpose) {
        if purpose == Purpose::Repair {
            self.discoveries.remove(&destination);
            self.report_lost(now, &[destination]);
            return;
        }
        if self.take_suspect(now, destination) {
            return;
        }
        if let Some(known) = self.discoveries.get_mut(&destination) {
            let until = now + known.pause;
            known.lengthen_pause();
            known.state = State::Pausing { until };
        }
        self.tell(Event::Nobody(destination));
    }

    pub(super) fn go_on_searching(&mut self, now: Timestamp) {
        let due: Vec<(NodeId, State)> = self
            .discoveries
            .iter()
            .filter(|(_, known)| known.due().is_some_and(|due| due <= now))
            .map(|(destination, known)| (*destination, known.state))
            .collect();
        for (destination, state) in due {
            match state {
                State::Searching { attempt, .. } => self.ask(now, destination, attempt.saturating_add(1)),
                State::Pausing { .. } => {
                    if let Some(known) = self.discoveries.get_mut(&destination) {
                        known.begun = Some(now);
                    }
                    self.ask(now, destination, 0);
                }
                State::Found => {}
            }
        }
    }

    /// A relay has come: searches that pause go on, though none oftener than the shortest pause.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        for known in self.discoveries.values_mut() {
            if let State::Pausing { until } = &mut known.state {
                let soonest = known.begun.map_or(now, |begun| begun + SEARCH_PAUSE.0).max(now);
                *until = soonest.min(*until);
            }
        }
    }

    /// A reply to one of this node's requests is taken.
    pub(super) fn found(&mut self, now: Timestamp, destination: NodeId, id: RequestId) {
        let Some(hops) = self.routes.usable(now, destination).map(|route| route.hops) else { return };
        let Some(known) = self.discoveries.get_mut(&destination) else { return };
        if known.state == State::Found {
            return;
        }
        known.state = State::Found;
        let purpose = known.purpose;
        if let Some((_, asked)) = known.asked.iter().find(|(asked, _)| *asked == id) {
            let (least, most) = HOP_TIME_BOUNDS;
            // A reply that somebody has held back tells nothing, and cannot be told from a slow one.
            let most = most.min(self.hop_time * 4);
            let seen = (now.since(*asked) / (2 * u32::from(hops.max(1)))).clamp(least, most);
            // As RFC 6298 smooths round trips, a little faster.
            self.hop_time = (self.hop_time * 3 + seen) / 4;
        }
        match purpose {
            Purpose::Own => self.tell(Event::Found { destination, hops }),
            Purpose::Repair => {
                self.discoveries.remove(&destination);
            }
        }
    }
}

impl Discovery {
    fn new(purpose: Purpose) -> Self {
        let (state, pause) = (State::Found, SEARCH_PAUSE.0);
        Self { purpose, state, asked: Vec::new(), pause, in_a_row: 0, begun: None }
    }

    /// The first few stay short: what lies between two ends is seldom only bad ways.
    fn lengthen_pause(&mut self) {
        self.in_a_row += 1;
        if self.in_a_row > SHORT_PAUSES {
            self.pause = (self.pause * 2).min(SEARCH_PAUSE.1);
        }
    }
}
