//! All sessions of one identity: one on a device, many on a gateway. Tells datagrams apart, begins and answers handshakes, and keeps
//! time for its sessions.

mod connecting;
mod incoming;

use crate::address::Address;
use crate::handshake::{TokenKey, public_key};
use crate::keys::{PrivateKey, PublicKey};
use crate::session::transmit::Transmit;
use crate::session::{PathReport, SendMessageError, Session, SessionConfig, SessionCounters, SessionEvent};
use connecting::Connecting;
use incoming::{Answer, Incoming};
use policy::{PathStatus, Treatment};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use units::{NetworkId, Timestamp};
use wire::datagram::{Datagram, FEATURE_AES_256_GCM, RESET_TOKEN_LEN, Reset};
use wire::frame::CLOSE_REPLACED;
use wire::inner::{Ecn, FlowKey, Headers};

/// An initiator whose paths have all been silent this long begins a new handshake.
const STALL_PATIENCE: Duration = Duration::from_millis(1_200);
/// Handshake messages that may wait to be sent.
const MAX_OUTBOX: usize = 512;
/// Resets sent per second at most.
const MAX_RESETS: u32 = 200;

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The identity.
    pub key: PrivateKey,
    /// Settings of its sessions.
    pub session: SessionConfig,
    /// Whether others may begin sessions.
    pub accept: bool,
    /// Initiations a second above which their senders must first prove their address.
    pub retry_above: u32,
    /// Whether this machine's processor has instructions for AES: if both ends do, packets are sealed with AES-256-GCM.
    pub aes: bool,
}

impl EndpointConfig {
    /// The optional features of this end, as they stand in an initiation.
    fn features(&self) -> u16 {
        if self.aes { FEATURE_AES_256_GCM } else { 0 }
    }
}

/// A session, for as long as the owner wants it: it outlives handshakes and gateway restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// A peer that wants a session and waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IncomingId(pub u64);

/// A path to keep open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathConfig {
    /// Network, carrier and remote address.
    pub address: Address,
    /// Largest UDP payload that the network's interface sends in one piece.
    pub mtu_limit: u16,
    /// How it is to be used.
    pub status: PathStatus,
    /// 0 is used first.
    pub priority: u8,
}

/// What the owner should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointEvent {
    /// A peer wants a session: answer with [`Endpoint::accept`] or [`Endpoint::refuse`].
    Incoming {
        /// For the answer.
        id: IncomingId,
        /// Who it is: proved by the handshake.
        peer: PublicKey,
        /// What it said.
        payload: Vec<u8>,
        /// Where it came from.
        from: Address,
    },
    /// A session is established, anew or again.
    Connected {
        /// The session.
        session: SessionId,
        /// Who it is with.
        peer: PublicKey,
        /// What the responder answered; empty on the responder's side.
        payload: Vec<u8>,
    },
    /// The peer's identity is right but nothing answers; tries go on.
    NoAnswer {
        /// The session.
        session: SessionId,
        /// Initiations sent so far.
        tries: u32,
    },
    /// Something happened in a session.
    Session {
        /// The session.
        session: SessionId,
        /// What.
        event: SessionEvent,
    },
    /// A session is over; one of `wire::frame::CLOSE_*` tells why.
    Closed {
        /// The session.
        session: SessionId,
        /// Who it was with.
        peer: PublicKey,
        /// Why.
        reason: u8,
    },
}

/// Why a session could not be begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The payload is longer than a handshake carries.
    #[error("handshake payload is longer than {} bytes", crate::MAX_PAYLOAD_LEN)]
    PayloadTooLong,
    /// The peer's public key is not a key.
    #[error("the peer's public key is not valid")]
    BadKey,
}

/// Datagrams that belonged to no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Not of this format.
    pub malformed: u64,
    /// Of a session that is not known here.
    pub unknown_session: u64,
    /// Handshake messages that were not authentic, or of another version.
    pub bad_handshakes: u64,
    /// Initiations that were seen before.
    pub replayed_handshakes: u64,
    /// Initiations answered with a retry.
    pub retries: u64,
    /// Resets sent.
    pub resets: u64,
    /// Packets of sessions that were rejected.
    pub rejected: u64,
}

struct Slot {
    peer: PublicKey,
    session: Option<Session>,
    own_index: Option<u32>,
    reset_token: Option<[u8; RESET_TOKEN_LEN]>,
    connecting: Option<Box<Connecting>>,
    renewal: Option<Renewal>,
    paths: Vec<WantedPath>,
    answer: Option<Answer>,
    announced: bool,
    timer: Option<Timestamp>,
    ready: bool,
    delivering: bool,
}

/// What an initiator needs to begin again.
#[derive(Clone)]
struct Renewal {
    payload: Vec<u8>,
    stamp: u64,
    at: Timestamp,
}

#[derive(Clone, Copy)]
struct WantedPath {
    config: PathConfig,
    down: bool,
}

/// See the module's documentation.
pub struct Endpoint {
    config: EndpointConfig,
    public: PublicKey,
    tokens: TokenKey,
    random: ChaCha20Rng,
    slots: FxHashMap<SessionId, Slot>,
    by_index: FxHashMap<u32, SessionId>,
    by_peer: FxHashMap<PublicKey, SessionId>,
    next_session: u64,
    incoming: Incoming,
    outbox: VecDeque<(Address, Vec<u8>)>,
    ready: VecDeque<SessionId>,
    delivering: VecDeque<SessionId>,
    timers: BinaryHeap<Reverse<(Timestamp, SessionId)>>,
    events: VecDeque<EndpointEvent>,
    counters: Counters,
    resets_since: Timestamp,
    resets: u32,
}

impl Endpoint {
    /// An endpoint with this identity; `seed` must be random and never used twice.
    ///
    /// # Errors
    /// [`ConnectError::BadKey`] if the private key is unusable.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Result<Self, ConnectError> {
        let public = public_key(&config.key).ok_or(ConnectError::BadKey)?;
        Ok(Self {
            tokens: TokenKey::new(&config.key),
            public,
            random: ChaCha20Rng::from_seed(seed),
            slots: FxHashMap::default(),
            by_index: FxHashMap::default(),
            by_peer: FxHashMap::default(),
            next_session: 0,
            incoming: Incoming::default(),
            outbox: VecDeque::new(),
            ready: VecDeque::new(),
            delivering: VecDeque::new(),
            timers: BinaryHeap::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            resets_since: Timestamp::ZERO,
            resets: 0,
            config,
        })
    }

    /// This endpoint's own public key.
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    // ---- commands ----

    /// Wants a session with `peer`. Paths are added with [`Endpoint::add_path`]; the handshake goes out on all of them.
    /// `stamp` must grow with every call for one identity, over restarts too: wall-clock nanoseconds do.
    ///
    /// # Errors
    /// [`ConnectError`] if the payload is too long or the key is none.
    pub fn connect(
        &mut self,
        now: Timestamp,
        peer: PublicKey,
        payload: Vec<u8>,
        stamp: u64,
    ) -> Result<SessionId, ConnectError> {
        let id = self.new_session_id();
        let index = self.free_index();
        let connecting = Connecting::new(now, &self.config, &peer, index, payload, stamp, &mut self.random)?;
        self.by_index.insert(index, id);
        let mut slot = Slot::new(peer);
        slot.connecting = Some(Box::new(connecting));
        self.slots.insert(id, slot);
        self.touch(id);
        Ok(id)
    }

    /// Keeps a path open from now on. One with the same network replaces it.
    pub fn add_path(&mut self, now: Timestamp, session: SessionId, config: PathConfig) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        let network = config.address.network;
        let known = slot.paths.iter().position(|path| path.config.address.network == network);
        if let Some(at) = known {
            slot.paths.remove(at);
            if let Some(session) = &mut slot.session {
                session.remove_path(now, network);
            }
        }
        slot.paths.push(WantedPath { config, down: false });
        let mut used_up = false;
        if let Some(session) = &mut slot.session {
            used_up = session.path_ids_used_up();
            open_path(now, session, &config);
        }
        if let Some(connecting) = &mut slot.connecting {
            connecting.hurry(now);
        }
        if used_up {
            self.begin_again(now, session);
        }
        self.touch(session);
    }

    /// Gives a path up.
    pub fn remove_path(&mut self, now: Timestamp, session: SessionId, network: NetworkId) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        slot.paths.retain(|path| path.config.address.network != network);
        if let Some(session) = &mut slot.session {
            session.remove_path(now, network);
        }
        self.touch(session);
    }

    /// Changes how a path is used.
    pub fn set_path_status(
        &mut self,
        session: SessionId,
        network: NetworkId,
        status: PathStatus,
        priority: u8,
    ) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        if let Some(path) = slot.paths.iter_mut().find(|path| path.config.address.network == network) {
            path.config.status = status;
            path.config.priority = priority;
        }
        if let Some(session) = &mut slot.session {
            session.set_path_status(network, status, priority);
        }
        self.touch(session);
    }

    /// The kernel says that a network is gone: what was in flight there goes elsewhere at once.
    pub fn network_down(&mut self, now: Timestamp, network: NetworkId) {
        for id in self.sorted_sessions() {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let wanted = slot.paths.iter_mut().filter(|path| path.config.address.network == network);
            wanted.for_each(|path| path.down = true);
            if let Some(session) = &mut slot.session {
                session.network_down(now, network);
            }
            self.touch(id);
        }
    }

    /// A network is back, or its local address has changed.
    pub fn network_up(&mut self, now: Timestamp, network: NetworkId) {
        for id in self.sorted_sessions() {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let wanted = slot.paths.iter_mut().filter(|path| path.config.address.network == network);
            wanted.for_each(|path| path.down = false);
            if let Some(session) = &mut slot.session {
                session.network_up(now, network);
            }
            if let Some(connecting) = &mut slot.connecting {
                connecting.hurry(now);
            }
            self.touch(id);
        }
    }

    /// The kernel refused a datagram as too large for this network.
    pub fn datagram_too_large(&mut self, network: NetworkId, size: u16) {
        for slot in self.slots.values_mut() {
            if let Some(session) = &mut slot.session {
                session.datagram_too_large(network, size);
            }
        }
    }

    /// Fixes how one flow is treated.
    pub fn treat(&mut self, session: SessionId, flow: FlowKey, treatment: Treatment) {
        if let Some(session) = self.session_mut(session) {
            session.treat(flow, treatment);
        }
    }

    /// Fixes how flows of a session are treated of which nothing else was said; flows that are there stay as they are.
    pub fn set_default_treatment(&mut self, session: SessionId, treatment: Treatment) {
        if let Some(session) = self.session_mut(session) {
            session.set_default_treatment(treatment);
        }
    }

    /// Sends bytes to the peer's owner, reliably, in any order with other messages.
    ///
    /// # Errors
    /// If there is no such session, if they are more than `wire::frame::MAX_BLOB_LEN`, or if too many messages wait.
    pub fn send_message(&mut self, session: SessionId, bytes: Vec<u8>) -> Result<(), SendMessageError> {
        let outcome = self.session_mut(session).ok_or(SendMessageError::NoSession)?.send_message(bytes);
        self.touch(session);
        outcome
    }

    /// Ends a session: the peer is told, then it is forgotten. Drain [`Endpoint::poll_transmit`] afterwards.
    pub fn close(&mut self, session: SessionId, reason: u8) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        slot.connecting = None;
        match &mut slot.session {
            Some(session) => session.close(reason),
            None => self.forget(session),
        }
        self.touch(session);
    }

    // ---- input ----

    /// Takes in one datagram from a carrier; its contents are overwritten.
    pub fn handle_datagram(&mut self, now: Timestamp, from: Address, ecn: Ecn, datagram: &mut [u8]) {
        match Datagram::parse(datagram) {
            Ok(Datagram::Data(header)) => {
                let Some(&id) = self.by_index.get(&header.receiver_index) else {
                    self.on_unknown_session(now, from, header.receiver_index, datagram.len());
                    return;
                };
                let Some(slot) = self.slots.get_mut(&id) else { return };
                let Some(session) =
                    slot.session.as_mut().filter(|_| slot.own_index == Some(header.receiver_index))
                else {
                    return;
                };
                let outcome = session.handle_data(now, from, ecn, &header, datagram, &self.config.key);
                if outcome.is_err() {
                    session.count_rejected();
                    self.counters.rejected += 1;
                }
                self.after_input(now, id);
            }
            Ok(Datagram::Initiation(initiation)) => {
                let covered = datagram.len() - wire::datagram::MAC_LEN;
                let signed = datagram.get(..covered).unwrap_or_default();
                self.on_initiation(now, from, &initiation, signed);
            }
            Ok(Datagram::Response(response)) => self.on_response(now, from, &response),
            Ok(Datagram::Retry(retry)) => self.on_retry(now, from, &retry),
            Ok(Datagram::Reset(reset)) => self.on_reset(now, &reset),
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Takes in one inner packet from any0. Returns false if it was dropped: no such session, not an IP packet, or a full queue.
    pub fn handle_packet(&mut self, now: Timestamp, session: SessionId, packet: &[u8]) -> bool {
        let Ok(headers) = wire::inner::parse(packet) else { return false };
        self.handle_parsed_packet(now, session, &headers, packet)
    }

    /// As [`Endpoint::handle_packet`], for an owner that has read the headers already.
    pub fn handle_parsed_packet(
        &mut self,
        now: Timestamp,
        session: SessionId,
        headers: &Headers,
        packet: &[u8],
    ) -> bool {
        let Some(slot) = self.slots.get_mut(&session) else { return false };
        let Some(established) = &mut slot.session else { return false };
        let outcome = established.handle_packet(now, headers, packet.to_vec());
        if !slot.ready {
            slot.ready = true;
            self.ready.push_back(session);
        }
        outcome == crate::flows::Queueing::Queued
    }

    /// Time has come to [`Endpoint::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if slot.timer != Some(at) {
                continue;
            }
            slot.timer = None;
            if let Some(session) = &mut slot.session {
                session.handle_timeout(now, &self.config.key);
            }
            self.continue_handshake(now, id);
            self.after_input(now, id);
        }
        self.incoming.expire(now);
    }

    // ---- output ----

    /// The next datagrams to send: up to `max_segments` of equal size for one address, in `buffer`.
    pub fn poll_transmit(
        &mut self,
        now: Timestamp,
        buffer: &mut Vec<u8>,
        max_segments: usize,
    ) -> Option<Transmit> {
        if let Some((address, message)) = self.outbox.pop_front() {
            buffer.clear();
            buffer.extend_from_slice(&message);
            let size = buffer.len();
            return Some(Transmit { address, ecn: Ecn::NotEct, size, segment_size: size });
        }
        while let Some(&id) = self.ready.front() {
            let Some(slot) = self.slots.get_mut(&id) else {
                self.ready.pop_front();
                continue;
            };
            let transmit =
                slot.session.as_mut().and_then(|session| session.poll_transmit(now, buffer, max_segments));
            if transmit.is_some() {
                // Sessions take turns.
                self.ready.rotate_left(1);
                return transmit;
            }
            self.ready.pop_front();
            slot.ready = false;
            if slot.session.as_ref().is_some_and(Session::is_closed) {
                self.forget(id);
                continue;
            }
            self.set_timer(now, id);
        }
        None
    }

    /// The next inner packet for any0, and the session that it came by.
    pub fn poll_packet(&mut self) -> Option<(SessionId, Vec<u8>)> {
        while let Some(&id) = self.delivering.front() {
            let slot = self.slots.get_mut(&id);
            if let Some(slot) = slot {
                if let Some(packet) = slot.session.as_mut().and_then(Session::poll_packet) {
                    return Some((id, packet));
                }
                slot.delivering = false;
            }
            self.delivering.pop_front();
        }
        None
    }

    /// The next thing the owner should know.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// When to call [`Endpoint::handle_timeout`]; ask after [`Endpoint::poll_transmit`] has returned `None`.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if self.slots.get(&id).is_some_and(|slot| slot.timer == Some(at)) {
                return Some(at);
            }
            self.timers.pop();
        }
        None
    }

    // ---- reports ----

    /// Figures of a session's paths.
    pub fn path_reports(&self, session: SessionId) -> Vec<PathReport> {
        let established = self.slots.get(&session).and_then(|slot| slot.session.as_ref());
        established.map_or_else(Vec::new, Session::path_reports)
    }

    /// Figures of a session.
    pub fn session_counters(&self, session: SessionId) -> Option<SessionCounters> {
        self.slots.get(&session)?.session.as_ref().map(Session::counters)
    }

    /// Whether a session is established.
    pub fn is_connected(&self, session: SessionId) -> bool {
        self.slots.get(&session).is_some_and(|slot| slot.session.is_some())
    }

    /// Figures of datagrams that belonged to no session.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    // ---- inside ----

    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.slots.get_mut(&id)?.session.as_mut()
    }

    fn sorted_sessions(&self) -> Vec<SessionId> {
        let mut ids: Vec<_> = self.slots.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    fn new_session_id(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }

    fn free_index(&mut self) -> u32 {
        loop {
            let index = self.random.next_u32();
            if !self.by_index.contains_key(&index) {
                return index;
            }
        }
    }

    /// Something changed: the session may have something to send.
    fn touch(&mut self, id: SessionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if !slot.ready {
            slot.ready = true;
            self.ready.push_back(id);
        }
    }

    fn after_input(&mut self, now: Timestamp, id: SessionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let mut closed = None;
        if let Some(session) = &mut slot.session
            && session.confirmed
            && !slot.announced
        {
            slot.announced = true;
            slot.answer = None;
            self.on_confirmed(id);
        }
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if let Some(session) = &mut slot.session {
            while let Some(event) = session.poll_event() {
                if let SessionEvent::ClosedByPeer(reason) = event {
                    closed = Some(reason);
                }
                self.events.push_back(EndpointEvent::Session { session: id, event });
            }
            if !slot.delivering {
                slot.delivering = true;
                self.delivering.push_back(id);
            }
        }
        if let Some(reason) = closed {
            let peer = slot.peer;
            self.events.push_back(EndpointEvent::Closed { session: id, peer, reason });
            self.forget(id);
            return;
        }
        self.begin_again_if_stalled(now, id);
        self.touch(id);
    }

    /// Responder: the peer has used the keys. An older session with it is over.
    fn on_confirmed(&mut self, id: SessionId) {
        let Some(peer) = self.slots.get(&id).map(|slot| slot.peer) else { return };
        if let Some(older) = self.by_peer.insert(peer, id).filter(|&older| older != id) {
            self.events.push_back(EndpointEvent::Closed { session: older, peer, reason: CLOSE_REPLACED });
            self.close(older, CLOSE_REPLACED);
        }
        self.events.push_back(EndpointEvent::Connected { session: id, peer, payload: Vec::new() });
    }

    fn forget(&mut self, id: SessionId) {
        let Some(slot) = self.slots.remove(&id) else { return };
        self.by_index.retain(|_, session| *session != id);
        if self.by_peer.get(&slot.peer) == Some(&id) {
            self.by_peer.remove(&slot.peer);
        }
    }

    fn set_timer(&mut self, now: Timestamp, id: SessionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let session = slot.session.as_ref().and_then(|session| session.poll_timeout(now));
        let handshake = slot.connecting.as_ref().map(|connecting| connecting.next_try());
        // Only an initiator can begin again.
        let stalled = slot.session.as_ref().filter(|_| slot.connecting.is_none() && slot.renewal.is_some());
        let stalled = stalled.and_then(Session::stalled_since).map(|since| since + STALL_PATIENCE);
        let next = [session, handshake, stalled].into_iter().flatten().min();
        if next != slot.timer {
            slot.timer = next;
            self.timers.extend(next.map(|at| Reverse((at, id))));
        }
    }

    fn post(&mut self, address: Address, message: Vec<u8>) {
        if self.outbox.len() < MAX_OUTBOX {
            self.outbox.push_back((address, message));
        }
    }

    /// A packet of a session that is not known here: tell its sender, unless that would send more than came.
    fn on_unknown_session(&mut self, now: Timestamp, from: Address, index: u32, size: usize) {
        self.counters.unknown_session += 1;
        if now.since(self.resets_since) >= Duration::from_secs(1) {
            self.resets_since = now;
            self.resets = 0;
        }
        if !self.config.accept || size < Reset::LEN || self.resets >= MAX_RESETS {
            return;
        }
        self.resets += 1;
        self.counters.resets += 1;
        let mut message = Vec::with_capacity(Reset::LEN);
        Reset { unknown_index: index, token: self.tokens.reset(index) }.put(&mut message);
        self.post(from, message);
    }

    /// The peer does not know the session any more: begin again, if it proves that it is the peer.
    fn on_reset(&mut self, now: Timestamp, reset: &Reset) {
        let found = self.slots.iter().find(|(_, slot)| {
            let index = slot.session.as_ref().map(|session| session.peer_index);
            index == Some(reset.unknown_index) && slot.reset_token == Some(reset.token)
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

impl Slot {
    fn new(peer: PublicKey) -> Self {
        Self {
            peer,
            session: None,
            own_index: None,
            reset_token: None,
            connecting: None,
            renewal: None,
            paths: Vec::new(),
            answer: None,
            announced: false,
            timer: None,
            ready: false,
            delivering: false,
        }
    }
}

fn open_path(now: Timestamp, session: &mut Session, config: &PathConfig) {
    if session.add_path(now, config.address, config.mtu_limit).is_some()
        && (config.status != PathStatus::Active || config.priority != 0)
    {
        session.set_path_status(config.address.network, config.status, config.priority);
    }
}
