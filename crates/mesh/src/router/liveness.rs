//! Who is there: hellos, RFC 3561 section 6.9.
//!
//! Relays say now and then that they are there, the less often the more of them are heard, so that what each hears stays the same. A
//! neighbour that packets depend on is asked as soon as nothing comes back from it; RFC 3561's own two lost hellos of a second each would be
//! too slow for a conversation.

use std::time::Duration;

use units::Timestamp;
use wire::mesh::{Hello, Signature};

use super::{Recipient, Router};
use crate::Hop;
use crate::signer::node_id;

/// Who was heard so lately is there.
pub(super) const PRESENT: Duration = Duration::from_secs(30);
/// Between the hellos of a relay: this much for each one that it hears, and at least the second.
const HELLO_PER_NEIGHBOUR: Duration = Duration::from_secs(1);
const HELLO_INTERVAL: Duration = Duration::from_secs(5);
const LONGEST_HELLO_INTERVAL: Duration = Duration::from_secs(60);
/// A neighbour that was sent to and is silent for the first is asked, again after the second, and lost after so many questions.
const SILENCE: Duration = Duration::from_millis(150);
const ASK_INTERVAL: Duration = Duration::from_millis(100);
const QUESTIONS: u8 = 3;

impl Router {
    /// Data goes to the neighbour: something is to come back.
    pub(super) fn note_use(&mut self, now: Timestamp, hop: Hop) {
        if self.neighbours.get(hop).is_none() {
            self.neighbours.hear(now, hop);
        }
        let Some(neighbour) = self.neighbours.get_mut(hop) else { return };
        neighbour.used = now;
        if neighbour.waits_since.is_none() {
            neighbour.waits_since = Some(now);
            neighbour.ask_at = now + SILENCE;
        }
    }

    pub(super) fn ask_the_silent(&mut self, now: Timestamp) {
        let due: Vec<(Hop, u8)> = self
            .neighbours
            .iter()
            .filter(|(_, neighbour)| neighbour.ask_at <= now)
            .map(|(hop, neighbour)| (hop, neighbour.asked))
            .collect();
        for (hop, asked) in due {
            if asked >= QUESTIONS {
                self.hop_lost(now, hop);
                continue;
            }
            if let Some(neighbour) = self.neighbours.get_mut(hop) {
                neighbour.asked += 1;
                neighbour.ask_at = now + ASK_INTERVAL;
            }
            self.say(Recipient::One(hop), true);
        }
    }

    pub(super) fn say_hello(&mut self, now: Timestamp) {
        if self.next_hello > now {
            return;
        }
        let heard = self.neighbours(now).min(1_000) as u32;
        let interval = (HELLO_PER_NEIGHBOUR * heard).clamp(HELLO_INTERVAL, LONGEST_HELLO_INTERVAL);
        let jitter = self.jitter(interval / 4);
        self.next_hello = now + interval - interval / 8 + jitter;
        self.say(Recipient::Everybody, false);
    }

    fn say(&mut self, to: Recipient, asks: bool) {
        let sequence = self.next_statement();
        let unsigned = Hello {
            asks,
            relays: self.relays(),
            sequence,
            node: self.node,
            addresses: self.addresses.clone(),
            signature: Signature([0; wire::mesh::SIGNATURE_LEN]),
        };
        let signature = self.signer.sign(&unsigned.signed_bytes());
        self.counters.hellos += 1;
        self.send(to, Hello { signature, ..unsigned }.encode());
    }

    /// Whether it is heeded.
    pub(super) fn on_hello(&mut self, now: Timestamp, from: Hop, hello: &Hello) -> bool {
        let who = node_id(&hello.node);
        let known = self.neighbours.get(from).and_then(|neighbour| neighbour.node);
        // Addresses change hands, but not while packets go by there; and what a node has said before is no news.
        let is_refused = known.is_some_and(|(node, last)| match node == who {
            true => !hello.sequence.is_newer_than(last),
            false => !self.routes.by_hop(now, from).is_empty(),
        });
        if is_refused || who == self.id {
            return false;
        }
        if !self.is_signed(now, &hello.node.key, &hello.signed_bytes(), &hello.signature) {
            return false;
        }
        if let Some(neighbour) = self.neighbours.get_mut(from) {
            neighbour.node = Some((who, hello.sequence));
            neighbour.relays = hello.relays;
        }
        if hello.relays && known.is_none() {
            self.hurry(now);
        }
        if hello.asks && self.answers.take(now, 1) {
            self.say(Recipient::One(from), false);
        }
        true
    }
}
