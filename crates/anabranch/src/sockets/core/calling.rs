//! Calling peers: the first time, by further adapters, and again when all networks were gone.

use std::time::Duration;

use bond::{PathConfig, SessionId};
use identity::PublicKey;
use policy::{PathStatus, Priority};
use units::{NetworkId, Timestamp};
use wire::group::PROOF_LEN;
use wire::mesh::{Node, NodeId};
use wire::peer::{AdapterAddress, Adapters, Conversation as ConversationKey, FurtherAdapters, Greeting};

use super::super::adapter::kind_code;
use super::super::conversation::{Conversation, ConversationId, State};
use super::super::error::ConnectError;
use super::super::event::EventKind;
use super::super::options::{ConnectOptions, Peer};
use super::super::paths::Candidate;
use super::super::remote;
use super::{Core, MAX_PATHS};
use crate::machine;

/// An end that was called, and whose networks have all changed, waits this long between calls of its own.
const CALL_INTERVAL: Duration = Duration::from_secs(3);
/// ... and leaves the other end this time before the first.
pub(super) const CALLER_FIRST: Duration = Duration::from_millis(2_500);

/// Addresses of one peer that applications have told.
const MAX_HINTS: usize = 64;

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
        let web = self.web_called(options)?;
        self.hint(now, peer);
        let known = |(_, known): &(&ConversationId, &Conversation)| {
            known.peer == peer.key && known.web == web && !known.is_over()
        };
        if let Some((id, _)) = self.conversations.iter().find(known) {
            return Ok(*id);
        }
        if peer.addresses.is_empty() {
            return Err(ConnectError::NoAddress(peer.key));
        }
        let key = ConversationKey(u64::from_be_bytes(self.random_bytes()));
        let greeting = Greeting {
            conversation: key,
            name: self.options.name.clone(),
            invitation: options.invitation.clone(),
            proof: self.proof(web, peer.key),
        };
        let far_end = bond::PublicKey(peer.key.0);
        let session = self
            .bond
            .connect(now, far_end, greeting.encode(), machine::stamp())
            .map_err(|_| ConnectError::Incomprehensible(peer.key))?;
        let state = State::Connecting { until: now + options.deadline };
        let settings = self.options.choice;
        let mut conversation = Conversation::new(peer.key, key, session, true, state, settings, options.wish);
        conversation.hints = peer.addresses.iter().copied().map(remote::of).collect();
        conversation.begun = now;
        conversation.web = web;
        conversation.nodes = nodes_of(peer);
        conversation.deadline = options.deadline;
        let id = self.add(conversation);
        self.plan_paths(now, id);
        Ok(id)
    }

    /// Tells the conversations with a peer, if there are any, where else the peer may be.
    pub(in crate::sockets) fn hint(&mut self, now: Timestamp, peer: &Peer) {
        let known = self.conversations.iter().filter(|(_, known)| known.peer == peer.key && !known.is_over());
        let known: Vec<ConversationId> = known.map(|(id, _)| *id).collect();
        for id in known {
            let Some(conversation) = self.conversations.get_mut(&id) else { continue };
            let told = peer.addresses.iter().copied().map(remote::of);
            let new = told.filter(|address| !conversation.hints.contains(address));
            let room = MAX_HINTS.saturating_sub(conversation.hints.len());
            let new: Vec<_> = new.take(room).collect();
            conversation.hints.extend(new);
            self.plan_paths(now, id);
        }
    }

    /// The number of the group that a call is made in; 0 where this end works in none.
    fn web_called(&self, options: &ConnectOptions) -> Result<usize, ConnectError> {
        let Some(name) = &options.group else { return Ok(0) };
        let found = self.options.groups.iter().position(|membership| membership.group == *name);
        found.ok_or_else(|| ConnectError::NotInGroup(name.clone()))
    }

    /// Shows a peer that this end is in the group.
    fn proof(&self, web: usize, peer: PublicKey) -> Option<[u8; PROOF_LEN]> {
        let own = self.options.key.public();
        self.options.groups.get(web).map(|membership| membership.keys.proof(own, peer))
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
        self.drop_gone_paths(now, id);
        let Some(conversation) = self.conversations.get(&id) else { return };
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
            let relayed = self.carriers.is_relayed(network);
            let waits = conversation.active.is_some() && (relayed || !self.options.spread);
            self.open(now, session, candidate, if waits { PathStatus::Backup } else { PathStatus::Active });
            if let Some(successor) = successor {
                self.open(now, successor, candidate, PathStatus::Active);
            }
        }
    }

    /// Gives up silent paths of adapters that are there no more, and those to where the peer is no more: they would keep the room of new ones. The last
    /// path stays, and so do those over relays, which come and go by themselves.
    pub(super) fn drop_gone_paths(&mut self, now: Timestamp, id: ConversationId) {
        let Some(conversation) =
            self.conversations.get(&id).filter(|known| known.is_caller && !known.is_over())
        else {
            return;
        };
        let (session, remotes) = (conversation.session, conversation.remotes());
        let is_gone = |network: NetworkId| {
            let (carriers, adapters) = (&self.carriers, &self.all_adapters);
            let (Some(name), Some(remote)) = (carriers.adapter_of(network), carriers.remote_of(network))
            else {
                return false;
            };
            let is_there = adapters.iter().any(|adapter| adapter.name == name) && remotes.contains(&remote);
            !is_there && !carriers.is_relayed(network)
        };
        let silent = conversation.paths.iter().filter(|(network, usable)| {
            !**usable && conversation.active != Some(**network) && is_gone(**network)
        });
        let gone: Vec<NetworkId> = silent.map(|(network, _)| *network).collect();
        for network in gone {
            let Some(conversation) = self.conversations.get_mut(&id) else { return };
            if conversation.paths.len() < 2 {
                return;
            }
            conversation.paths.remove(&network);
            let successor = conversation.successor.map(|(session, _)| session);
            for session in std::iter::once(session).chain(successor) {
                self.bond.remove_path(now, session, network);
            }
            let adapter = self.adapter_name(Some(network));
            self.tell(id, EventKind::ControlDeleted { adapter });
        }
    }

    fn candidates(&mut self, id: ConversationId) -> Vec<Candidate> {
        let remotes = self.conversations.get(&id).map(Conversation::remotes).unwrap_or_default();
        let adapters = std::sync::Arc::clone(&self.adapters);
        let mut candidates: Vec<Candidate> =
            remotes.into_iter().flat_map(|remote| self.carriers.candidates(&adapters, remote)).collect();
        candidates.extend(self.relayed_candidates(id));
        candidates
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
            // Without a word: the peer may have taken it up just now, and a goodbye would end everything.
            self.bond.abandon(tried);
            self.by_session.remove(&tried);
        }
        let proof = self.proof(conversation.web, peer);
        let name = self.options.name.clone();
        let greeting = Greeting { conversation: key, name, invitation: None, proof };
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
            Some(AdapterAddress { kind: kind_code(adapter.kind), address: remote::told(address) })
        });
        let (sequence, adapters) = (self.adapters_sequence, adapters.collect::<Vec<_>>());
        let further = FurtherAdapters { sequence, adapters: adapters.clone() };
        let message = Adapters { sequence, battery, adapters };
        // If too many wait the next change tells again.
        let _ = self.bond.send_message(session, message.encode());
        if self.carriers.has_further() {
            let _ = self.bond.send_message(session, further.encode());
        }
    }

    /// Whether a call of the peer crossed one of this end's own that goes on: exactly one of the two thinks so, and drops the other's.
    ///
    /// A call that was answered just now has won already: the peer sent its own before it heard of that, and gives it up. If it does not
    /// it calls again, and is heard once the time is over.
    pub(super) fn own_call_goes_first(&self, now: Timestamp, id: ConversationId, peer: PublicKey) -> bool {
        const PATIENCE: Duration = Duration::from_secs(1);
        let Some(conversation) = self.conversations.get(&id) else { return false };
        let is_fresh = |since: Timestamp| now.since(since) < PATIENCE;
        let has_won = conversation.taken_over.is_some_and(is_fresh);
        let waits = conversation.successor.is_some_and(|(_, since)| is_fresh(since));
        has_won || (waits && self.options.key.public() < peer)
    }
}

/// The peer as a node of a mesh: its key with each port that it is thought to have.
fn nodes_of(peer: &Peer) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    for address in &peer.addresses {
        let node = mesh::node_id(&Node { key: peer.key.0, port: address.port() });
        if !nodes.contains(&node) && nodes.len() < MAX_NODES {
            nodes.push(node);
        }
    }
    nodes
}

/// Ports of one peer that are looked for over relays.
const MAX_NODES: usize = 3;
