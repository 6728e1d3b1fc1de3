//! The responder's side of a handshake: cheap checks first, no state for strangers or replays.

use super::connecting::{prologue, write_answer};
use super::slot::Slot;
use super::{Endpoint, EndpointEvent, IncomingId, SessionId};
use crate::address::Address;
use crate::handshake::{Handshake, mac, mac_is_right};
use crate::keys::{Cipher, PublicKey};
use crate::session::{Role, Session};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rustc_hash::FxHashMap;
use std::time::Duration;
use units::Timestamp;
use wire::datagram::{Initiation, RESET_TOKEN_LEN, Response, Retry, VERSION};

/// Peers that may wait for the owner's answer.
const MAX_WAITING: usize = 1_024;
/// How long the owner has for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// A retry token is good for one to two of these.
const TOKEN_LIFE: Duration = Duration::from_secs(900);
/// Identities whose last stamp is remembered. Beyond, an address must be proved by a token instead.
const MAX_STAMPS: usize = 65_536;
/// Addresses that one answer goes to.
const MAX_ADDRESSES: usize = 8;

/// Peers that wait, and what keeps replays out.
#[derive(Default)]
pub(super) struct Incoming {
    waiting: FxHashMap<IncomingId, Waiting>,
    next: u64,
    stamps: FxHashMap<PublicKey, u64>,
    counted_since: Timestamp,
    counted: u32,
}

struct Waiting {
    handshake: Handshake,
    peer: PublicKey,
    peer_index: u32,
    /// Those of the peer's features that this end has too.
    features: u16,
    addresses: Vec<Address>,
    ephemeral: [u8; 32],
    since: Timestamp,
}

/// An answer that was given, kept until the peer has used it: its initiation may come again by another network.
pub(super) struct Answer {
    ephemeral: [u8; 32],
    message: Vec<u8>,
}

impl Incoming {
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.waiting.retain(|_, waiting| now.since(waiting.since) < PATIENCE);
    }

    /// Counts an initiation and tells whether there are too many to answer all.
    fn under_load(&mut self, now: Timestamp, limit: u32) -> bool {
        if now.since(self.counted_since) >= Duration::from_secs(1) {
            self.counted_since = now;
            self.counted = 0;
        }
        self.counted = self.counted.saturating_add(1);
        self.counted > limit || self.waiting.len() >= MAX_WAITING
    }
}

impl Endpoint {
    /// Checks an initiation, cheapest first: known version, right mac (knows our key), load, duplicate, then cryptography.
    pub(super) fn on_initiation(
        &mut self,
        now: Timestamp,
        from: Address,
        initiation: &Initiation<'_>,
        signed: &[u8],
    ) {
        let Some(&ephemeral) = initiation.noise.first_chunk::<32>() else {
            self.counters.bad_handshakes += 1;
            return;
        };
        let right = initiation.version == VERSION && mac_is_right(&self.public, signed, &initiation.mac);
        if !self.config.accept || !right {
            self.counters.bad_handshakes += 1;
            return;
        }
        if self.repeat_answer(from, &ephemeral) {
            return;
        }
        let proved = self.token_is_right(now, from, initiation.retry_token);
        if self.incoming.under_load(now, self.config.retry_above) && !proved {
            self.send_retry(now, from, initiation.sender_index);
            return;
        }
        let prologue = prologue(initiation.version, initiation.features);
        let opened = Handshake::open(&self.config.key, &prologue, initiation.noise, &mut self.random);
        let Ok(opened) = opened else {
            self.counters.bad_handshakes += 1;
            return;
        };
        let Some((stamp, payload)) = opened.payload.split_first_chunk::<8>() else {
            self.counters.bad_handshakes += 1;
            return;
        };
        let stamp = u64::from_be_bytes(*stamp);
        let newest = self.incoming.stamps.get(&opened.peer).is_none_or(|&last| stamp > last);
        if !newest && !proved {
            // A replay, or a peer whose clock went back: the second can prove that it is there.
            self.counters.replayed_handshakes += 1;
            self.send_retry(now, from, initiation.sender_index);
            return;
        }
        if self.incoming.waiting.len() >= MAX_WAITING {
            return;
        }
        if self.incoming.stamps.len() < MAX_STAMPS || self.incoming.stamps.contains_key(&opened.peer) {
            self.incoming.stamps.insert(opened.peer, stamp);
        }
        self.incoming.next += 1;
        let id = IncomingId(self.incoming.next);
        let payload = payload.to_vec();
        let peer = opened.peer;
        self.incoming.waiting.insert(
            id,
            Waiting {
                handshake: opened.handshake,
                peer,
                peer_index: initiation.sender_index,
                features: initiation.features & self.config.features(),
                addresses: vec![from],
                ephemeral,
                since: now,
            },
        );
        self.events.push_back(EndpointEvent::Incoming { id, peer, payload, from });
    }

    /// The same initiation by another network, or sent again: the same answer, no new state.
    fn repeat_answer(&mut self, from: Address, ephemeral: &[u8; 32]) -> bool {
        if let Some(waiting) =
            self.incoming.waiting.values_mut().find(|waiting| waiting.ephemeral == *ephemeral)
        {
            if waiting.addresses.len() < MAX_ADDRESSES && !waiting.addresses.contains(&from) {
                waiting.addresses.push(from);
            }
            return true;
        }
        let answered = self.slots.values().filter_map(|slot| slot.answer.as_ref());
        let message =
            answered.filter(|answer| answer.ephemeral == *ephemeral).map(|answer| answer.message.clone());
        let Some(message) = message.into_iter().next() else { return false };
        self.post(from, message);
        true
    }

    fn send_retry(&mut self, now: Timestamp, from: Address, peer_index: u32) {
        self.counters.retries += 1;
        let token = self.tokens.retry(from.remote, token_age(now));
        let mut signed = peer_index.to_be_bytes().to_vec();
        signed.extend_from_slice(&token);
        let mac = mac(&self.public, &signed);
        let mut message = Vec::with_capacity(64);
        Retry { receiver_index: peer_index, token, mac }.put(&mut message);
        self.post(from, message);
    }

    fn token_is_right(&self, now: Timestamp, from: Address, token: &[u8]) -> bool {
        let age = token_age(now);
        [age, age.saturating_sub(1)].iter().any(|&age| {
            let expected = self.tokens.retry(from.remote, age);
            token.len() == expected.len()
                && expected.iter().zip(token).fold(0, |sum, (left, right)| sum | (left ^ right)) == 0
        })
    }

    /// Answers a peer with `payload` and opens the session. `None` if it has waited too long.
    pub fn accept(&mut self, now: Timestamp, id: IncomingId, payload: &[u8]) -> Option<SessionId> {
        let waiting = self.incoming.waiting.remove(&id)?;
        let index = self.free_index();
        let answered = write_answer(self.tokens.reset(index), waiting.features, payload);
        let (noise, raw) = waiting.handshake.answer(&answered).ok()?;
        let random = ChaCha20Rng::seed_from_u64(self.random.next_u64());
        let mut session = Session::new(
            now,
            Role::Responder,
            waiting.peer,
            waiting.peer_index,
            Cipher::of(waiting.features),
            &raw,
            self.config.session,
            random,
        )?;
        self.streams.into_iter().for_each(|limits| session.carry_streams(limits));
        let mut message = Vec::with_capacity(256);
        Response { version: VERSION, receiver_index: waiting.peer_index, sender_index: index, noise: &noise }
            .put(&mut message);
        // At most one answer to a peer waits to be confirmed: a replay can only take the place of another. A call of our own stays.
        let unconfirmed =
            self.slots.iter().find(|(_, slot)| slot.peer == waiting.peer && slot.answer.is_some());
        if let Some(stale) = unconfirmed.map(|(id, _)| *id) {
            self.forget(stale);
        }
        let id = self.new_session_id();
        let mut slot = Slot::new(waiting.peer);
        session.answered = waiting.addresses.clone();
        slot.session = Some(session);
        slot.own_index = Some(index);
        slot.answer = Some(Answer { ephemeral: waiting.ephemeral, message: message.clone() });
        self.slots.insert(id, slot);
        self.by_index.insert(index, id);
        for address in waiting.addresses {
            self.post(address, message.clone());
        }
        self.touch(id);
        Some(id)
    }

    /// Answers a peer with `payload`, which tells why, and keeps nothing.
    pub fn refuse(&mut self, id: IncomingId, payload: &[u8]) {
        let Some(waiting) = self.incoming.waiting.remove(&id) else { return };
        let answered = write_answer([0; RESET_TOKEN_LEN], 0, payload);
        let Ok((noise, _)) = waiting.handshake.answer(&answered) else { return };
        let mut message = Vec::with_capacity(256);
        let sender_index = self.random.next_u32();
        Response { version: VERSION, receiver_index: waiting.peer_index, sender_index, noise: &noise }
            .put(&mut message);
        for address in waiting.addresses {
            self.post(address, message.clone());
        }
    }

    /// Drops a peer's initiation without a word.
    pub fn ignore(&mut self, id: IncomingId) {
        self.incoming.waiting.remove(&id);
    }
}

fn token_age(now: Timestamp) -> u64 {
    now.as_nanos() / TOKEN_LIFE.as_nanos() as u64
}
