//! What the bond tells: calls, answers, paths, streams.

use bond::{EndpointEvent, IncomingId, SessionEvent, SessionId, StreamEvent};
use identity::PublicKey;
use policy::{ConnectionWish, PathStatus};
use std::task::Waker;
use units::{NetworkId, Timestamp};
use wire::frame::{CLOSE_BROKEN, CLOSE_GOODBYE, CLOSE_REPLACED};
use wire::peer::{Adapters, Answer, FurtherAdapters, Greeting};

use super::super::conversation::{Conversation, ConversationId, State};
use super::super::error::ConnectError;
use super::super::event::EventKind;
use super::super::options::Caller;
use super::super::remote;
use super::super::wakers::Wait;
use super::Core;

/// A call that was answered must be taken up within this time.
const CONFIRMATION: std::time::Duration = std::time::Duration::from_secs(10);
/// Conversations with all peers together.
const MAX_CONVERSATIONS: usize = 4_096;
/// Conversations with one peer: one for each process that has its key.
const MAX_WITH_ONE_PEER: usize = 16;

impl Core {
    /// Follows up on everything that the bond has to tell.
    pub(in crate::sockets) fn hear(&mut self, now: Timestamp) {
        while let Some(event) = self.bond.poll_event() {
            match event {
                EndpointEvent::Incoming { id, peer, payload, .. } => {
                    self.on_call(now, id, PublicKey(peer.0), &payload);
                }
                EndpointEvent::Connected { session, payload, .. } => {
                    self.on_connected(now, session, &payload);
                }
                EndpointEvent::NoAnswer { .. } => {}
                EndpointEvent::Session { session, event } => self.on_session_event(now, session, event),
                EndpointEvent::Closed { session, reason, .. } => self.on_closed(session, reason),
            }
        }
        self.take_packets();
    }

    fn on_call(&mut self, now: Timestamp, call: IncomingId, peer: PublicKey, payload: &[u8]) {
        let Ok(greeting) = Greeting::parse(payload) else {
            self.bond.refuse(call, &Answer::NotListening.encode());
            return;
        };
        let known = self
            .conversations
            .iter()
            .find(|(_, known)| known.peer == peer && known.key == greeting.conversation && !known.is_over());
        if let Some(id) = known.map(|(id, _)| *id) {
            self.on_call_again(now, call, id, peer);
            return;
        }
        let with_peer = self.conversations.values().filter(|known| known.peer == peer).count();
        let crowded = self.conversations.len() >= MAX_CONVERSATIONS || with_peer >= MAX_WITH_ONE_PEER;
        let web = self.web_proved(peer, &greeting);
        let caller = Caller {
            key: peer,
            name: greeting.name.as_ref(),
            invitation: greeting.invitation.as_ref(),
            group: web.and_then(|web| self.options.groups.get(web)).map(|found| found.group.as_str()),
        };
        // Who is in no group of this end's is let in by an invitation, and by nothing else.
        let is_stranger = !self.options.groups.is_empty() && web.is_none() && greeting.invitation.is_none();
        let answer = if self.listeners == 0 || self.closing.is_some() || crowded {
            Answer::NotListening
        } else if !is_stranger && self.options.admission.admits(&caller) {
            Answer::Welcome
        } else if greeting.invitation.is_some() {
            Answer::InvitationRefused
        } else {
            Answer::Unknown
        };
        if answer != Answer::Welcome {
            self.bond.refuse(call, &answer.encode());
            return;
        }
        let accepted = self.bond.accept_beside(now, call, &answer.encode(), None);
        let Some(session) = accepted else { return };
        let state = State::Connecting { until: now + CONFIRMATION };
        let settings = self.options.choice;
        let wish = ConnectionWish::default();
        let mut conversation =
            Conversation::new(peer, greeting.conversation, session, false, state, settings, wish);
        conversation.deadline = CONFIRMATION;
        conversation.web = web.unwrap_or_default();
        self.add(conversation);
    }

    /// The group of this end's in which a caller has shown to be.
    fn web_proved(&self, caller: PublicKey, greeting: &Greeting) -> Option<usize> {
        let (proof, own) = (greeting.proof.as_ref()?, self.options.key.public());
        self.options.groups.iter().position(|membership| membership.keys.is_proved(caller, own, proof))
    }

    /// The peer calls again, to go on with the streams of before.
    fn on_call_again(&mut self, now: Timestamp, call: IncomingId, id: ConversationId, peer: PublicKey) {
        if self.own_call_goes_first(now, id, peer) {
            self.bond.ignore(call);
            return;
        }
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        let (older, own_call) = (conversation.session, conversation.successor.take());
        let established = conversation.established;
        if let Some((tried, _)) = own_call {
            // Without a word: the peer may have taken it up just now, and a goodbye would end everything.
            self.bond.abandon(tried);
            self.by_session.remove(&tried);
        }
        // A call that was answered and never taken up is no conversation yet: there are no streams to go on with.
        let answer = if established { Answer::Continued } else { Answer::Welcome };
        let accepted = self.bond.accept_beside(now, call, &answer.encode(), Some(older));
        let Some(session) = accepted else { return };
        if let Some(conversation) = self.conversations.get_mut(&id) {
            conversation.successor = Some((session, now));
        }
        self.by_session.insert(session, id);
    }

    fn on_connected(&mut self, now: Timestamp, session: SessionId, payload: &[u8]) {
        let Some(id) = self.by_session.get(&session).copied() else {
            self.bond.close(session, CLOSE_GOODBYE);
            return;
        };
        let Some(conversation) = self.conversations.get(&id) else { return };
        let (peer, established) = (conversation.peer, conversation.established);
        // What was answered is empty only where this end answered.
        if !payload.is_empty() {
            let error = match Answer::parse(payload) {
                Ok(Answer::Welcome) if established => Some(ConnectError::Restarted(peer)),
                Ok(Answer::Welcome | Answer::Continued) => None,
                Ok(Answer::Unknown) => Some(ConnectError::NotKnown(peer)),
                Ok(Answer::InvitationRefused) => Some(ConnectError::InvitationRefused(peer)),
                Ok(Answer::NotListening) if established => Some(ConnectError::Restarted(peer)),
                Ok(Answer::NotListening) => Some(ConnectError::NotListening(peer)),
                Err(_) => Some(ConnectError::Incomprehensible(peer)),
            };
            if let Some(error) = error {
                let left = self.bond.take_remains(session);
                if let Some(conversation) = self.conversations.get_mut(&id).filter(|_| established) {
                    conversation.remains = left;
                }
                // The peer keeps no session: what is said on this one would only be answered by resets.
                self.bond.continue_streams(now, session, false);
                self.fail(id, error);
                return;
            }
            self.bond.continue_streams(now, session, true);
        }
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        let other = conversation.successor.take().map(|(other, _)| other).filter(|other| *other != session);
        if conversation.session != session {
            self.by_session.remove(&conversation.session);
            conversation.session = session;
            conversation.is_caller = !payload.is_empty();
            conversation.taken_over = (established && conversation.is_caller).then_some(now);
            conversation.paths.clear();
            conversation.active = None;
        }
        conversation.state = State::Up;
        conversation.established = true;
        conversation.wakers.wake_others();
        if let Some(other) = other {
            // Calls crossed. The one that lost must not take the streams away later.
            self.bond.abandon(other);
            self.by_session.remove(&other);
        }
        for report in self.bond.path_reports(session) {
            let usable = report.state == bond::PathState::Usable;
            self.note_path(id, report.network, usable);
            self.note_node(id, report.network);
            self.note_way(now, report.network, usable);
        }
        self.begin_with_first(now, id);
        self.tell_adapters(id);
        self.plan_paths(now, id);
    }

    /// The path that answered first carries the data until another is found better.
    fn begin_with_first(&mut self, now: Timestamp, id: ConversationId) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        let first = conversation.paths.iter().find(|(_, usable)| **usable).map(|(network, _)| *network);
        let Some(first) = first else { return };
        conversation.active = Some(first);
        let again = std::mem::replace(&mut conversation.told_new, true);
        if conversation.is_caller && !self.options.spread {
            let session = conversation.session;
            let others: Vec<NetworkId> =
                conversation.paths.keys().copied().filter(|network| *network != first).collect();
            self.bond.set_path_status(session, first, PathStatus::Active, 0);
            for network in others {
                self.bond.set_path_status(session, network, PathStatus::Backup, 0);
            }
            self.choose_now(now, id);
        }
        let adapter = self.adapter_name(Some(first));
        self.tell(id, if again { EventKind::On { adapter } } else { EventKind::New { adapter } });
    }

    fn note_path(&mut self, id: ConversationId, network: NetworkId, usable: bool) {
        if let Some(conversation) = self.conversations.get_mut(&id) {
            conversation.paths.insert(network, usable);
        }
    }

    pub(super) fn on_session_event(&mut self, now: Timestamp, session: SessionId, event: SessionEvent) {
        let Some(id) = self.by_session.get(&session).copied() else { return };
        let Some(conversation) = self.conversations.get_mut(&id).filter(|known| known.session == session)
        else {
            return;
        };
        match event {
            SessionEvent::PathUp(network) => {
                self.note_way(now, network, true);
                self.note_node(id, network);
                let Some(conversation) = self.conversations.get_mut(&id) else { return };
                let was = conversation.paths.insert(network, true);
                let is_active = conversation.active == Some(network);
                if conversation.established && conversation.active.is_none() {
                    self.begin_with_first(now, id);
                } else if was != Some(true) && !is_active {
                    let adapter = self.adapter_name(Some(network));
                    self.tell(id, EventKind::ControlChanged { adapter, usable: true });
                }
            }
            SessionEvent::PathSilent(network) => self.on_silence(now, id, network),
            SessionEvent::PathMoved(network) => {
                conversation.paths.entry(network).or_insert(false);
            }
            SessionEvent::PathAbandoned(network) => {
                conversation.paths.remove(&network);
                let adapter = self.adapter_name(Some(network));
                self.tell(id, EventKind::ControlDeleted { adapter });
            }
            SessionEvent::Stalled => {
                conversation.state = State::Suspended { since: now };
                self.call_instead(now, id);
            }
            SessionEvent::Resumed => {
                conversation.state = State::Up;
                let usable = conversation.paths.iter().find(|(_, usable)| **usable);
                let adapter = usable.map(|(network, _)| *network);
                conversation.active = adapter;
                let adapter = self.adapter_name(adapter);
                self.tell(id, EventKind::On { adapter });
                self.choose_now(now, id);
                self.tell_adapters(id);
            }
            SessionEvent::Message(bytes) => self.on_message(now, id, &bytes),
            SessionEvent::Stream(event) => self.on_stream_event(id, event),
            SessionEvent::Ecn(..)
            | SessionEvent::QueueExpired
            | SessionEvent::Rekeyed
            | SessionEvent::ClosedByPeer(_) => {}
        }
    }

    fn on_silence(&mut self, now: Timestamp, id: ConversationId, network: NetworkId) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        conversation.paths.insert(network, false);
        self.note_way(now, network, false);
        let Some(conversation) = self.conversations.get(&id) else { return };
        let suspended = conversation.usable_paths() == 0;
        let was_active = conversation.active == Some(network);
        let adapter = self.adapter_name(Some(network));
        if was_active || suspended {
            self.tell(id, EventKind::Off { adapter, suspended });
            self.choose_now(now, id);
        } else {
            self.tell(id, EventKind::ControlChanged { adapter, usable: false });
        }
        self.drop_gone_paths(now, id);
    }

    fn on_message(&mut self, now: Timestamp, id: ConversationId, bytes: &[u8]) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        if let Ok(Some(told)) = FurtherAdapters::parse(bytes)
            && told.sequence > conversation.further_sequence
        {
            conversation.further_sequence = told.sequence;
            conversation.further = told.adapters.iter().map(|adapter| remote::of(adapter.address)).collect();
            self.plan_paths(now, id);
            return;
        }
        let Ok(Some(told)) = Adapters::parse(bytes) else { return };
        if told.sequence <= conversation.told_sequence {
            return;
        }
        conversation.told_sequence = told.sequence;
        conversation.peer_battery = told.battery;
        conversation.told = told.adapters.iter().map(|adapter| remote::of(adapter.address)).collect();
        self.plan_paths(now, id);
    }

    fn on_stream_event(&mut self, id: ConversationId, event: StreamEvent) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        match event {
            StreamEvent::Opened => {
                while let Some(stream) = self.bond.accept_stream(conversation.session) {
                    self.fresh.push_back((id, stream));
                }
                self.accept_wakers.drain(..).for_each(Waker::wake);
            }
            StreamEvent::Readable(stream) => conversation.wakers.wake(stream, Wait::Read),
            StreamEvent::Writable(stream) => conversation.wakers.wake(stream, Wait::Write),
            StreamEvent::Finished(stream) => conversation.wakers.wake(stream, Wait::Finish),
            StreamEvent::Stopped(stream) => {
                conversation.wakers.wake(stream, Wait::Write);
                conversation.wakers.wake(stream, Wait::Finish);
            }
            StreamEvent::MayOpen | StreamEvent::Datagram => conversation.wakers.wake_others(),
        }
    }

    fn on_closed(&mut self, session: SessionId, reason: u8) {
        let Some(id) = self.by_session.get(&session).copied() else { return };
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        let peer = conversation.peer;
        if conversation.session != session {
            self.by_session.remove(&session);
            conversation.successor = conversation.successor.filter(|(next, _)| *next != session);
            return;
        }
        // Its streams are with the session that follows.
        if reason == CLOSE_REPLACED && conversation.successor.is_some() {
            return;
        }
        let broken = reason == CLOSE_BROKEN;
        self.fail(id, if broken { ConnectError::Broken(peer) } else { ConnectError::Ended(peer) });
    }
}
