//! Sessions that one end does not know any more.

use super::Endpoint;
use crate::address::Address;
use std::time::Duration;
use units::Timestamp;
use wire::datagram::Reset;

/// Resets sent per second at most.
const MAX_RESETS: u32 = 200;

impl Endpoint {
    /// A packet of a session that is not known here: tell its sender, unless that would send more than came.
    pub(super) fn on_unknown_session(&mut self, now: Timestamp, from: Address, index: u32, size: usize) {
        self.counters.unknown_session += 1;
        if now.since(self.resets_since) >= Duration::from_secs(1) {
            self.resets_since = now;
            self.resets = 0;
        }
        // What is another part's came here by chance: the kernel joins datagrams of one sender, and looks at the first of them.
        let is_own = self.part.has(index);
        if !is_own || !self.config.accept || size < Reset::LEN || self.resets >= MAX_RESETS {
            return;
        }
        self.resets += 1;
        self.counters.resets += 1;
        let mut message = Vec::with_capacity(Reset::LEN);
        Reset { unknown_index: index, token: self.tokens.reset(index) }.put(&mut message);
        self.post(from, message);
    }

    /// The peer does not know the session any more: begin again, if it proves that it is the peer.
    ///
    /// Somebody else who has the peer's key, as a copy of its machine, makes the same tokens; it never knew the session, and is where
    /// the session never was.
    pub(super) fn on_reset(&mut self, now: Timestamp, from: Address, reset: &Reset) {
        let found = self.slots.iter().find(|(_, slot)| {
            let session = slot.session.as_ref().filter(|session| session.peer_index == reset.unknown_index);
            session.is_some_and(|session| session.was_at(from)) && slot.reset_token == Some(reset.token)
        });
        let Some((&id, _)) = found else { return };
        // A handshake under way was sent to a gateway that was not there: now it is.
        match self.slots.get_mut(&id).and_then(|slot| slot.connecting.as_mut()) {
            Some(connecting) => connecting.hurry(now),
            None => self.begin_again(now, id),
        }
        self.continue_handshake(now, id);
        self.touch(id);
    }
}
