//! Ways over relays: when they are looked for, and when they are given up.
//!
//! Direct attempts come first: a search begins when no adapter has led to the peer for a moment, or none is left. A way over relays
//! carries data only while no adapter does.

use std::time::Duration;

use bond::Address;
use linux::clock;
use mesh::{Event, Recipient};
use units::{NetworkId, Timestamp};
use wire::group::MAX_AT_ONCE;
use wire::inner::Ecn;
use wire::mesh::{Message, NodeId};

use super::super::adapter::Sent;
use super::super::conversation::{ConversationId, State};
use super::super::options::EndpointOptions;
use super::super::paths::Candidate;
use super::super::relays::{
    Arrived, Mesh, Outcome, Place, Relays, address_of, link_address, node_of, remote_of,
};
use super::Core;
use super::calling::CALLER_FIRST;

/// How long direct attempts have before a way over relays is looked for too.
const DIRECT_FIRST: Duration = Duration::from_millis(300);
/// Nothing acknowledged for so long after a path fell silent: the way is given up.
const PATIENCE: Duration = Duration::from_millis(80);
/// A way that was found has this time, and that of [`PATIENCE`], to show that it serves.
const TRIAL: Duration = Duration::from_millis(400);

impl Core {
    /// Tells the mesh where this end is, and begins to take part in it once there is a socket.
    pub(super) fn follow_mesh(&mut self, now: Timestamp) {
        let addresses: Vec<_> = self.carriers.own_addresses().map(|(_, address)| address).collect();
        if self.webs.is_empty()
            && let Some(port) = addresses.first().map(|address| address.port())
        {
            let EndpointOptions { key, relays, groups, .. } = &self.options;
            let of_groups = groups.iter().take(MAX_AT_ONCE).map(|membership| Some(&membership.keys));
            let open = groups.is_empty().then_some(None);
            // Without randomness there is no endpoint either.
            let of = |group| Mesh::new(now, key, port, *relays, group).unwrap_or_default();
            self.webs = of_groups.chain(open).filter_map(of).collect();
        }
        let outside = addresses.into_iter().filter(|address| !address.ip().is_loopback());
        let outside: Vec<_> = outside.map(link_address).collect();
        for mesh in &mut self.webs {
            mesh.router().set_addresses(outside.clone());
        }
    }

    /// Hands what has come of the mesh to its router, and what is for the bond to that.
    pub(in crate::sockets) fn hear_mesh(&mut self, now: Timestamp) {
        for arrived in self.carriers.take_arrived() {
            let Arrived { hop, ecn, bytes } = arrived;
            let relays = matches!(self.options.relays, Relays::Offered(_));
            let beside = &mut self.beside;
            let opened = self.webs.iter_mut().enumerate().find_map(|(web, mesh)| {
                let opened = mesh.open(&bytes)?;
                if let (true, Ok(Message::Request(request))) = (relays, Message::parse(&opened)) {
                    beside.call_one(now, request.destination);
                }
                Some((web, mesh.handle(now, hop, &opened)))
            });
            let Some((web, outcome)) = opened else { continue };
            match outcome {
                Outcome::None => {}
                Outcome::Deliver(node, mut bytes) => {
                    if let Some(Candidate { address, .. }) = self.relayed_candidate((web, node)) {
                        self.bond.handle_datagram(now, address, ecn, &mut bytes);
                    }
                }
                Outcome::PassOn(hop, bytes) => {
                    let (place, remote) = remote_of(hop);
                    self.carriers.send_from(place, remote, ecn, &bytes, bytes.len());
                }
            }
        }
        self.say_to_mesh(now);
    }

    /// Sends what the mesh has to say, and follows up on what it has found.
    fn say_to_mesh(&mut self, now: Timestamp) {
        let called = self.beside.called(now);
        loop {
            let mut event = None;
            for (web, mesh) in self.webs.iter_mut().enumerate() {
                while let Some((to, bytes)) = mesh.poll_transmit() {
                    match to {
                        Recipient::Everybody => self.carriers.send_to_all(&bytes, &called),
                        Recipient::One(hop) => {
                            let (place, remote) = remote_of(hop);
                            self.carriers.send_from(place, remote, Ecn::NotEct, &bytes, bytes.len());
                        }
                    }
                }
                event = event.or_else(|| mesh.poll_event().map(|event| (web, event)));
            }
            match event {
                Some((web, Event::Found { destination, .. })) => self.on_way_found(now, (web, destination)),
                Some((_, Event::Lost(_) | Event::Nobody(_))) => {}
                None => return,
            }
        }
    }

    fn relayed_candidate(&mut self, place: Place) -> Option<Candidate> {
        let overhead = self.webs.get(place.0)?.overhead();
        self.carriers.relayed(address_of(place), overhead)
    }

    fn on_way_found(&mut self, now: Timestamp, destination: Place) {
        let Some(network) = self.relayed_candidate(destination).map(|way| way.address.network) else {
            return;
        };
        let (web, node) = destination;
        let concerned: Vec<ConversationId> = self
            .conversations
            .iter()
            .filter(|(_, known)| known.web == web && known.nodes.contains(&node) && !known.is_over())
            .map(|(id, _)| *id)
            .collect();
        let is_silent = |id: &ConversationId| {
            self.conversations.get(id).is_some_and(|known| known.paths.get(&network) == Some(&false))
        };
        let serves = |id: &ConversationId| {
            self.conversations.get(id).is_some_and(|known| known.paths.get(&network) == Some(&true))
        };
        if !concerned.iter().any(serves) {
            self.silent.insert(destination, now + TRIAL);
        }
        // What the bond knows of the old way does not hold for the new one.
        if concerned.iter().any(is_silent) {
            self.bond.network_up(now, network);
        }
        for id in concerned {
            self.plan_paths(now, id);
            self.call_instead(now, id);
        }
    }

    /// Datagrams of the bond for a node of the mesh.
    pub(in crate::sockets) fn send_relayed(
        &mut self,
        address: Address,
        ecn: Ecn,
        bytes: &[u8],
        segment: usize,
    ) -> Sent {
        let Some((web, node)) = node_of(address.remote) else { return Sent::Dropped };
        let Some(mesh) = self.webs.get_mut(web) else { return Sent::Dropped };
        let overhead = mesh.overhead();
        let Some((hop, bytes)) = mesh.wrap(clock::now(), node, bytes, segment) else { return Sent::Dropped };
        let (place, remote) = remote_of(hop);
        self.carriers.send_from(place, remote, ecn, &bytes, segment + overhead)
    }

    /// Ways to a peer over relays that are there now.
    pub(super) fn relayed_candidates(&mut self, id: ConversationId) -> Vec<Candidate> {
        let now = clock::now();
        let Some(conversation) = self.conversations.get(&id) else { return Vec::new() };
        let web = conversation.web;
        let Some(mesh) = self.webs.get_mut(web) else { return Vec::new() };
        let has_way = |node: &NodeId| mesh.router().way(now, *node).is_some();
        let nodes: Vec<NodeId> = conversation.nodes.iter().copied().filter(has_way).collect();
        nodes.into_iter().filter_map(|node| self.relayed_candidate((web, node))).collect()
    }

    /// A path over relays that the peer has opened: the peer is that node.
    pub(super) fn note_node(&mut self, id: ConversationId, network: NetworkId) {
        if !self.carriers.is_relayed(network) {
            return;
        }
        let node = self.carriers.remote_of(network).and_then(node_of);
        if let (Some((web, node)), Some(conversation)) = (node, self.conversations.get_mut(&id))
            && conversation.web == web
            && !conversation.nodes.contains(&node)
        {
            conversation.nodes = vec![node];
        }
    }

    /// What is acknowledged, or not any more, on a path.
    pub(super) fn note_way(&mut self, now: Timestamp, network: NetworkId, serves: bool) {
        if !self.carriers.is_relayed(network) {
            return;
        }
        let Some(place) = self.carriers.remote_of(network).and_then(node_of) else { return };
        let Some(mesh) = self.webs.get_mut(place.0) else { return };
        if serves {
            self.silent.remove(&place);
            mesh.router().confirm(place.1);
        } else {
            self.silent.entry(place).or_insert(now);
        }
    }

    /// Looks for ways where none is left, and gives up those that lose what is sent; returns when to come again.
    pub(super) fn tick_mesh(&mut self, now: Timestamp) -> Timestamp {
        let mut next = Timestamp::FAR_FUTURE;
        let mut wanted: Vec<Place> = Vec::new();
        for conversation in self.conversations.values().filter(|known| !known.is_over()) {
            let direct =
                |(network, usable): (&NetworkId, &bool)| *usable && !self.carriers.is_relayed(*network);
            let has_direct = conversation.paths.iter().any(direct);
            let wants = match conversation.state {
                State::Connecting { .. } if conversation.begun + DIRECT_FIRST > now => {
                    next = next.min(conversation.begun + DIRECT_FIRST);
                    conversation.paths.is_empty()
                }
                State::Connecting { .. } | State::Up => !has_direct && conversation.is_caller,
                // As with calls: the caller looks first, or each end would doubt what the other has just found.
                State::Suspended { since } if !conversation.is_caller => {
                    next = next.min(if since + CALLER_FIRST > now { since + CALLER_FIRST } else { next });
                    since + CALLER_FIRST <= now
                }
                State::Suspended { .. } => true,
                State::Over(_) => false,
            };
            if wants {
                wanted.extend(conversation.nodes.iter().map(|node| (conversation.web, *node)));
            }
        }
        for known in self.conversations.values() {
            let Some(router) = self.webs.get_mut(known.web).map(Mesh::router) else { continue };
            for node in &known.nodes {
                match (wanted.contains(&(known.web, *node)), router.wants(*node)) {
                    (true, false) => router.find(now, *node),
                    (false, true) => router.release(*node),
                    _ => {}
                }
            }
        }
        let is_found = |place: &Place| {
            self.webs.get_mut(place.0).is_some_and(|mesh| mesh.router().way(now, place.1).is_some())
        };
        if !wanted.is_empty() && !wanted.iter().any(is_found) {
            self.beside.call_all(now);
        }
        for (place, since) in std::mem::take(&mut self.silent) {
            if now.since(since) < PATIENCE {
                next = next.min(since + PATIENCE);
                self.silent.insert(place, since);
            } else if let Some(mesh) = self.webs.get_mut(place.0).filter(|_| wanted.contains(&place)) {
                mesh.router().give_up(now, place.1);
            }
        }
        for router in self.webs.iter_mut().map(Mesh::router) {
            if router.poll_timeout().is_some_and(|due| due <= now) {
                router.handle_timeout(now);
            }
            next = next.min(router.poll_timeout().unwrap_or(Timestamp::FAR_FUTURE));
        }
        self.say_to_mesh(now);
        next
    }

    /// What this end has done for others, and said to find ways.
    pub(in crate::sockets) fn relay_counters(&self) -> mesh::Counters {
        self.webs.iter().map(Mesh::counters).fold(mesh::Counters::default(), |sum, one| sum.plus(&one))
    }
}
