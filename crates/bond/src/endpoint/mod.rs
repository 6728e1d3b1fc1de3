//! All sessions of one identity: one on a device, many on a gateway. Tells datagrams apart, begins and answers handshakes, and keeps
//! time for its sessions.

mod config;
mod connecting;
mod event;
mod incoming;
mod input;
mod output;
mod paths;
mod reset;
mod slot;
mod streams;

pub use config::{ConnectError, EndpointConfig, PathConfig};
pub use event::{Counters, EndpointEvent, IncomingId, SessionId};

use crate::address::Address;
use crate::handshake::{TokenKey, public_key};
use crate::keys::PublicKey;
use crate::session::{PathReport, SendMessageError, Session, SessionCounters};
use crate::streams::{Remains, StreamLimits};
use connecting::Connecting;
use incoming::Incoming;
use policy::Treatment;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rustc_hash::FxHashMap;
use slot::Slot;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use units::Timestamp;
use wire::datagram::Part;
use wire::inner::FlowKey;

/// An initiator whose paths have all been silent this long begins a new handshake.
const STALL_PATIENCE: Duration = Duration::from_millis(1_200);
/// Handshake messages that may wait to be sent.
const MAX_OUTBOX: usize = 512;

/// See the module's documentation.
pub struct Endpoint {
    config: EndpointConfig,
    public: PublicKey,
    tokens: TokenKey,
    /// Bounds of streams; `None` if sessions carry none.
    streams: Option<StreamLimits>,
    part: Part,
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
    /// Of sessions that peers have closed, until their owner has heard of it.
    remains: FxHashMap<SessionId, Remains>,
    /// The session whose end was told last.
    told_closed: Option<SessionId>,
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
            streams: None,
            part: Part::WHOLE,
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
            remains: FxHashMap::default(),
            told_closed: None,
            counters: Counters::default(),
            resets_since: Timestamp::ZERO,
            resets: 0,
            config,
        })
    }

    /// The same endpoint as one of several that have its key and share its sessions, before it has any. What is for another part does
    /// not come here, or next to never.
    pub fn as_part(self, part: Part) -> Self {
        Self { part, ..self }
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

    /// Forgets a session without a word to the peer, which learns of it when it says something: for one of several that were begun at once.
    pub fn abandon(&mut self, session: SessionId) {
        self.forget(session);
    }

    /// Asks the peer of a session for a sign of life at once, on every path and by a handshake that may be under way: something else
    /// has shown that the networks work.
    pub fn ask_again(&mut self, now: Timestamp, session: SessionId) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        if let Some(established) = &mut slot.session {
            established.ask_again();
        }
        if let Some(connecting) = &mut slot.connecting {
            connecting.hurry(now);
        }
        self.continue_handshake(now, session);
        self.touch(session);
    }

    /// What waits in one session for a path, or was sent and not acknowledged, goes by another: the peer of the first is gone. Both must be established.
    /// What that peer has received without a word of it may arrive twice.
    pub fn hand_on(&mut self, now: Timestamp, from: SessionId, to: SessionId) {
        if from == to || !self.is_connected(to) {
            return;
        }
        let packets = self.session_mut(from).map_or_else(Vec::new, Session::drain_unsent);
        for packet in packets {
            self.handle_packet(now, to, &packet);
        }
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

    /// After what time at the earliest a full packet that arrives now is acknowledged, on the path where that is soonest; `None` without a path.
    pub fn acknowledgement_delay(&self, now: Timestamp) -> Option<Duration> {
        let sessions = self.slots.values().filter_map(|slot| slot.session.as_ref());
        sessions.filter_map(|session| session.acknowledgement_delay(now)).min()
    }

    /// Whether [`Endpoint::poll_transmit`] or [`Endpoint::poll_event`] may have something.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.outbox.is_empty() || !self.events.is_empty()
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
            if self.part.has(index) && !self.by_index.contains_key(&index) {
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

    fn forget(&mut self, id: SessionId) {
        let Some(slot) = self.slots.remove(&id) else { return };
        self.by_index.retain(|_, session| *session != id);
        if self.by_peer.get(&slot.peer) == Some(&id) {
            self.by_peer.remove(&slot.peer);
        }
    }

    fn post(&mut self, address: Address, message: Vec<u8>) {
        if self.outbox.len() < MAX_OUTBOX {
            self.outbox.push_back((address, message));
        }
    }
}
