//! The initiator's side of a handshake: sent on every path until an answer comes.

use super::paths::open_path;
use super::slot::Renewal;
use super::{ConnectError, Endpoint, EndpointConfig, EndpointEvent, STALL_PATIENCE, SessionId};
use crate::address::Address;
use crate::handshake::{Handshake, HandshakeError, mac, mac_is_right};
use crate::keys::{Cipher, PublicKey};
use crate::session::{Role, Session};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::time::Duration;
use units::Timestamp;
use wire::datagram::{Initiation, RESET_TOKEN_LEN, RETRY_TOKEN_LEN, Response, Retry, VERSION};

/// First pause between two tries; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(300);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// After this many tries with one message a new one is made.
const TRIES_PER_MESSAGE: u32 = 8;
/// Addresses whose retry token is remembered.
const MAX_TOKENS: usize = 16;

/// A handshake that waits for its answer.
pub(super) struct Connecting {
    handshake: Handshake,
    features: u16,
    noise: Vec<u8>,
    index: u32,
    payload: Vec<u8>,
    stamp: u64,
    started: Timestamp,
    next_try: Timestamp,
    pause: Duration,
    tries: u32,
    tokens: Vec<(Address, [u8; RETRY_TOKEN_LEN])>,
}

impl Connecting {
    pub(super) fn new(
        now: Timestamp,
        config: &EndpointConfig,
        peer: &PublicKey,
        index: u32,
        payload: Vec<u8>,
        stamp: u64,
        random: &mut ChaCha20Rng,
    ) -> Result<Self, ConnectError> {
        let (handshake, noise) = begin(config, peer, &payload, stamp, random)?;
        Ok(Self {
            handshake,
            features: config.features(),
            noise,
            index,
            payload,
            stamp,
            started: now,
            next_try: now,
            pause: FIRST_PAUSE,
            tries: 0,
            tokens: Vec::new(),
        })
    }

    /// When to send the initiation (again).
    pub(super) fn next_try(&self) -> Timestamp {
        self.next_try
    }

    /// A way has opened: try at once.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        self.next_try = now;
        self.pause = FIRST_PAUSE;
    }

    fn message(&self, peer: &PublicKey, address: Address) -> Vec<u8> {
        let token = self.tokens.iter().find(|(known, _)| *known == address);
        let mut message = Vec::with_capacity(256);
        Initiation {
            version: VERSION,
            features: self.features,
            sender_index: self.index,
            noise: &self.noise,
            retry_token: token.map_or(&[], |(_, token)| token),
            mac: [0; 16],
        }
        .put_without_mac(&mut message);
        let mac = mac(peer, &message);
        message.extend_from_slice(&mac);
        message
    }
}

/// The prologue binds version and features: an answer to anything else does not authenticate.
pub(super) fn prologue(version: u8, features: u16) -> [u8; 14] {
    let mut bytes = *b"anabranch\0\0\0\0\0";
    bytes[9] = version;
    bytes[10..12].copy_from_slice(&features.to_be_bytes());
    bytes
}

/// What stands before the owner's part in payload 2: the token of resets, and those of the offered features that are used.
pub(super) fn write_answer(token: [u8; RESET_TOKEN_LEN], features: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = token.to_vec();
    bytes.extend_from_slice(&features.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads payload 2; `None` if it is too short or uses a feature that was not `offered`.
fn read_answer(bytes: &[u8], offered: u16) -> Option<([u8; RESET_TOKEN_LEN], Cipher, &[u8])> {
    let (token, rest) = bytes.split_first_chunk::<RESET_TOKEN_LEN>()?;
    let (features, payload) = rest.split_first_chunk::<2>()?;
    let features = u16::from_be_bytes(*features);
    (features & !offered == 0).then(|| (*token, Cipher::of(features), payload))
}

fn begin(
    config: &EndpointConfig,
    peer: &PublicKey,
    payload: &[u8],
    stamp: u64,
    random: &mut ChaCha20Rng,
) -> Result<(Handshake, Vec<u8>), ConnectError> {
    let mut stamped = stamp.to_be_bytes().to_vec();
    stamped.extend_from_slice(payload);
    let prologue = prologue(VERSION, config.features());
    Handshake::initiate(&config.key, peer, &prologue, &stamped, random).map_err(|error| match error {
        HandshakeError::PayloadTooLong => ConnectError::PayloadTooLong,
        HandshakeError::NotAuthentic => ConnectError::BadKey,
    })
}

impl Endpoint {
    /// Sends the initiation of a session that waits for its answer, if it is time.
    pub(super) fn continue_handshake(&mut self, now: Timestamp, id: SessionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(connecting) = slot.connecting.as_mut().filter(|connecting| connecting.next_try <= now)
        else {
            return;
        };
        if connecting.tries > 0 && connecting.tries % TRIES_PER_MESSAGE == 0 {
            // Later than any message before: the gateway may have seen those.
            let waited = now.since(connecting.started).as_nanos() as u64;
            connecting.stamp = connecting.stamp.saturating_add(waited.max(1));
            connecting.started = now;
            let begun =
                begin(&self.config, &slot.peer, &connecting.payload, connecting.stamp, &mut self.random);
            if let Ok((handshake, noise)) = begun {
                connecting.handshake = handshake;
                connecting.noise = noise;
            }
        }
        connecting.tries += 1;
        connecting.next_try = now + connecting.pause;
        connecting.pause = (connecting.pause * 2).min(LAST_PAUSE);
        let tries = connecting.tries;
        let open = slot.paths.iter().filter(|path| !path.down).map(|path| path.config.address);
        let messages: Vec<_> =
            open.map(|address| (address, connecting.message(&slot.peer, address))).collect();
        for (address, message) in messages {
            self.post(address, message);
        }
        if tries > 3 {
            self.events.push_back(EndpointEvent::NoAnswer { session: id, tries });
        }
    }

    /// A session whose paths are all silent is begun again: the peer may have forgotten it.
    pub(super) fn begin_again_if_stalled(&mut self, now: Timestamp, id: SessionId) {
        let stalled = self.slots.get(&id).and_then(|slot| slot.session.as_ref()?.stalled_since());
        if stalled.is_some_and(|since| now.since(since) >= STALL_PATIENCE) {
            self.begin_again(now, id);
        }
    }

    /// Begins a new handshake for a session that goes on as long as it can.
    pub(super) fn begin_again(&mut self, now: Timestamp, id: SessionId) {
        let index = self.free_index();
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let initiator = slot.session.as_ref().is_some_and(|session| session.role == Role::Initiator);
        if slot.connecting.is_some() || !initiator {
            return;
        }
        let Some(renewal) = slot.renewal.clone() else { return };
        let waited = now.since(renewal.at).as_nanos() as u64;
        let stamp = renewal.stamp.saturating_add(waited.max(1));
        let begun =
            Connecting::new(now, &self.config, &slot.peer, index, renewal.payload, stamp, &mut self.random);
        if let Ok(connecting) = begun {
            slot.connecting = Some(Box::new(connecting));
            self.by_index.insert(index, id);
            self.continue_handshake(now, id);
            self.touch(id);
        }
    }

    /// The answer to an initiation: the session begins, or begins again with what still waited.
    pub(super) fn on_response(&mut self, now: Timestamp, from: Address, response: &Response<'_>) {
        let Some(&id) = self.by_index.get(&response.receiver_index) else {
            self.counters.bad_handshakes += 1;
            return;
        };
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(connecting) =
            slot.connecting.as_mut().filter(|connecting| connecting.index == response.receiver_index)
        else {
            return;
        };
        let finished = connecting.handshake.finish(response.noise);
        let Ok((payload, raw)) = finished else {
            self.counters.bad_handshakes += 1;
            return;
        };
        let Some((token, cipher, payload)) = read_answer(&payload, connecting.features) else {
            self.counters.bad_handshakes += 1;
            return;
        };
        let random = ChaCha20Rng::seed_from_u64(self.random.next_u64());
        let session = Session::new(
            now,
            Role::Initiator,
            slot.peer,
            response.sender_index,
            cipher,
            &raw,
            self.config.session,
            random,
        );
        let Some(mut session) = session else { return };
        self.streams.into_iter().for_each(|limits| session.carry_streams(limits));
        if let Some(connecting) = slot.connecting.take() {
            slot.renewal = Some(Renewal {
                payload: connecting.payload.clone(),
                stamp: connecting.stamp,
                at: connecting.started,
            });
        }
        for wanted in slot.paths.iter().filter(|path| !path.down) {
            open_path(now, &mut session, &wanted.config);
        }
        session.validate_path(from);
        let waiting = slot.session.as_mut().map_or_else(Vec::new, Session::drain_packets);
        for packet in waiting {
            if let Ok(headers) = wire::inner::parse(&packet) {
                session.handle_packet(now, &headers, packet);
            }
        }
        // Those of a session that is begun again; the owner knows whether the peer still does.
        let begun_again = slot.session.as_mut().and_then(Session::take_streams);
        if let Some(streams) = begun_again {
            session.put_streams(streams, true);
        }
        slot.session = Some(session);
        slot.reset_token = Some(token);
        slot.announced = true;
        if let Some(old) = slot.own_index.replace(response.receiver_index) {
            self.by_index.remove(&old);
        }
        let peer = slot.peer;
        let payload = payload.to_vec();
        self.inherit(id);
        self.events.push_back(EndpointEvent::Connected { session: id, peer, payload });
        self.after_input(now, id);
    }

    /// The responder is under load: say it again, with the token.
    pub(super) fn on_retry(&mut self, now: Timestamp, from: Address, retry: &Retry) {
        let Some(&id) = self.by_index.get(&retry.receiver_index) else { return };
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let Some(connecting) =
            slot.connecting.as_mut().filter(|connecting| connecting.index == retry.receiver_index)
        else {
            return;
        };
        let mut signed = retry.receiver_index.to_be_bytes().to_vec();
        signed.extend_from_slice(&retry.token);
        if !mac_is_right(&slot.peer, &signed, &retry.mac) {
            self.counters.bad_handshakes += 1;
            return;
        }
        connecting.tokens.retain(|(address, _)| *address != from);
        if connecting.tokens.len() < MAX_TOKENS {
            connecting.tokens.push((from, retry.token));
        }
        let message = connecting.message(&slot.peer, from);
        // The pause goes on: a responder that keeps asking gets no more than one answer each.
        connecting.next_try = connecting.next_try.max(now + FIRST_PAUSE);
        self.post(from, message);
        self.touch(id);
    }
}
