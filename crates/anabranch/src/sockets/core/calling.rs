//! Calling peers: the first time, by further adapters, and again when all networks were gone.

use std::time::Duration;

use bond::{PathConfig, SessionId};
use identity::PublicKey;
use policy::{PathStatus, Priority};
use units::Timestamp;
use wire::peer::{AdapterAddress, Adapters, Conversation as ConversationKey, Greeting};

use super::super::adapter::kind_code;
use super::super::conversation::{Conversation, ConversationId, State};
use super::super::error::ConnectError;
use super::super::options::{ConnectOptions, Peer};
use super::super::paths::Candidate;
use super::{Core, MAX_PATHS};
use crate::machine;

/// An end that was called, and whose networks have all changed, waits this long between calls of its own.
const CALL_INTERVAL: Duration = Duration::from_secs(3);
/// ... and leaves the other end this time before the first.
const CALLER_FIRST: Duration = Duration::from_millis(2_500);

impl Core {
    /// The conversation with a peer, begun if there is none.
    ///
    /// # Errors
    /// If there is no address to try, or the bond refuses.
    pub(in crate::sockets) fn converse(
        &mut self,
        now: Timestamp,
        peer: &Peer,
        options: &ConnectOptions,
    ) -> Result<ConversationId, ConnectError> {
        if self.closing.is_some() {
            return Err(ConnectError::Closed);
        }
        let known = self.conversations.iter().find(|(_, known)| known.peer == peer.key && !known.is_over());
        if let Some(id) = known.map(|(id, _)| *id) {
            if let Some(conversation) = self.conversations.get_mut(&id) {
                let new = peer.addresses.iter().filter(|address| !conversation.hints.contains(address));
                let new: Vec<_> = new.copied().collect();
                conversation.hints.extend(new);
            }
            self.plan_paths(now, id);
            return Ok(id);
        }
        if peer.addresses.is_empty() {
            return Err(ConnectError::NoAddress(peer.key));
        }
        let key = ConversationKey(u64::from_be_bytes(self.random_bytes()));
        let greeting = Greeting {
            conversation: key,
            name: self.options.name.clone(),
            invitation: options.invitation.clone(),
        };
        let far_end = bond::PublicKey(peer.key.0);
        let session = self
            .bond
            .connect(now, far_end, greeting.encode(), machine::stamp())
            .map_err(|_| ConnectError::Incomprehensible(peer.key))?;
        let state = State::Connecting { until: now + options.deadline };
        let settings = self.options.choice;
        let mut conversation = Conversation::new(peer.key, key, session, true, state, settings, options.wish);
        conversation.hints.clone_from(&peer.addresses);
        conversation.deadline = options.deadline;
        let id = self.add(conversation);
        self.plan_paths(now, id);
        Ok(id)
    }

    fn random_bytes(&self) -> [u8; 8] {
        // The seed's first bytes; a machine without randomness had no endpoint either.
        let mut bytes = [0; 8];
        let seed = machine::seed().unwrap_or_default();
        bytes.copy_from_slice(seed.first_chunk::<8>().unwrap_or(&[0; 8]));
        bytes
    }

    /// Opens a path for each pair of adapters that may reach each other, as far as there is room.
    pub(super) fn plan_paths(&mut self, now: Timestamp, id: ConversationId) {
        let Some(conversation) = self.conversations.get(&id) else { return };
        if !conversation.is_caller || conversation.is_over() {
            return;
        }
        let session = conversation.session;
        let successor = conversation.successor.map(|(session, _)| session);
        for candidate in self.candidates(id) {
            let Some(conversation) = self.conversations.get_mut(&id) else { return };
            let network = candidate.address.network;
            if conversation.paths.contains_key(&network) || conversation.paths.len() >= MAX_PATHS {
                continue;
            }
            conversation.paths.insert(network, false);
            // Whichever answers first becomes the active one.
            let waits = conversation.active.is_some() && !self.options.spread;
            self.open(now, session, candidate, if waits { PathStatus::Backup } else { PathStatus::Active });
            if let Some(successor) = successor {
                self.open(now, successor, candidate, PathStatus::Active);
            }
        }
    }

    fn candidates(&mut self, id: ConversationId) -> Vec<Candidate> {
        let remotes = self.conversations.get(&id).map(Conversation::remotes).unwrap_or_default();
        let adapters = std::sync::Arc::clone(&self.adapters);
        remotes.into_iter().flat_map(|remote| self.carriers.candidates(&adapters, remote)).collect()
    }

    fn open(&mut self, now: Timestamp, session: SessionId, candidate: Candidate, status: PathStatus) {
        let Candidate { address, mtu_limit } = candidate;
        self.bond.add_path(
            now,
            session,
            PathConfig { address, mtu_limit, status, priority: Priority::default().0 },
        );
    }

    /// The other end opened the session and cannot know where this end is now: calls it, to go on with the same streams. Returns when
    /// to try again.
    pub(super) fn call_instead(&mut self, now: Timestamp, id: ConversationId) -> Timestamp {
        let Some(conversation) = self.conversations.get(&id) else { return Timestamp::FAR_FUTURE };
        let State::Suspended { since } = conversation.state else { return Timestamp::FAR_FUTURE };
        if conversation.is_caller {
            return Timestamp::FAR_FUTURE;
        }
        // The caller tries first, as it knows best where to; two calls at once would each take the streams from the other.
        let earliest = since + CALLER_FIRST;
        if now < earliest {
            return earliest;
        }
        let due = conversation.successor.map(|(_, since)| since + CALL_INTERVAL).filter(|due| *due > now);
        if let Some(due) = due {
            return due;
        }
        let candidates = self.candidates(id);
        let Some(conversation) = self.conversations.get(&id).filter(|_| !candidates.is_empty()) else {
            return now + CALL_INTERVAL;
        };
        let (peer, key, older) = (conversation.peer, conversation.key, conversation.session);
        if let Some((tried, _)) = conversation.successor {
            self.bond.close(tried, wire::frame::CLOSE_GOODBYE);
            self.by_session.remove(&tried);
        }
        let greeting = Greeting { conversation: key, name: self.options.name.clone(), invitation: None };
        let far_end = bond::PublicKey(peer.0);
        let begun = self.bond.connect_instead(now, far_end, greeting.encode(), machine::stamp(), older);
        let Ok(session) = begun else { return now + CALL_INTERVAL };
        if let Some(conversation) = self.conversations.get_mut(&id) {
            conversation.successor = Some((session, now));
        }
        self.by_session.insert(session, id);
        for candidate in candidates.into_iter().take(MAX_PATHS) {
            self.open(now, session, candidate, PathStatus::Active);
        }
        now + CALL_INTERVAL
    }

    /// Tells the peer where this end is reached.
    pub(super) fn tell_adapters(&mut self, id: ConversationId) {
        let Some(conversation) = self.conversations.get(&id).filter(|known| known.established) else {
            return;
        };
        let session = conversation.session;
        self.adapters_sequence += 1;
        let battery = match self.power {
            policy::network::PowerSupply::Battery(left) => Some(left.get()),
            policy::network::PowerSupply::Mains => None,
        };
        let adapters = self.carriers.own_addresses().filter_map(|(name, address)| {
            let adapter = self.adapters.iter().find(|adapter| adapter.name == name && !adapter.loopback)?;
            Some(AdapterAddress { kind: kind_code(adapter.kind), address })
        });
        let message = Adapters { sequence: self.adapters_sequence, battery, adapters: adapters.collect() };
        // If too many wait the next change tells again.
        let _ = self.bond.send_message(session, message.encode());
    }

    /// Whether a call of this end's own should be waited for, when the peer calls at the same time: exactly one of the two thinks so.
    pub(super) fn own_call_goes_first(&self, now: Timestamp, id: ConversationId, peer: PublicKey) -> bool {
        const PATIENCE: Duration = Duration::from_secs(1);
        let called = self.conversations.get(&id).and_then(|conversation| conversation.successor);
        let is_fresh = called.is_some_and(|(_, since)| now.since(since) < PATIENCE);
        is_fresh && self.options.key.public() < peer
    }
}
