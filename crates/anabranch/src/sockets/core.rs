//! Everything an endpoint knows, behind one lock: the bond, the sockets, the conversations. The driver and the application's calls
//! both work on it.

mod calling;
mod choosing;
mod experience;
mod hearing;
mod relaying;
mod sparing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bond::{SessionId, StreamId};
pub(super) use experience::Experience;
use linux::poll::Poller;
use policy::network::PowerSupply;
use policy::unused::UnusedAdapters;
use tracing::debug;
use units::{NetworkId, Timestamp};
use wire::frame::CLOSE_GOODBYE;

use super::adapter::Adapter;
use super::beside::Beside;
use super::conversation::{Conversation, ConversationId, State};
use super::error::{BindError, ConnectError};
use super::event::{Audience, Event, EventKind};
use super::monitor::AdapterMonitor;
use super::options::EndpointOptions;
use super::packets::Arrivals;
use super::paths::{Carriers, Change};
use super::relays::{self, Mesh, Relays};

/// A conversation that nobody uses is ended after this time.
const IDLE: Duration = Duration::from_secs(30);
/// How long what was written is still delivered after the application has let go of everything.
const LINGER: Duration = Duration::from_secs(5);
/// Paths of one conversation.
const MAX_PATHS: usize = 12;

/// See the module.
pub(super) struct Core {
    pub(super) bond: bond::Endpoint,
    pub(super) carriers: Carriers,
    pub(super) poller_of_places: Poller,
    pub(super) adapters: Arc<Vec<Adapter>>,
    /// Those that are not to be used as well.
    all_adapters: Arc<Vec<Adapter>>,
    pub(super) power: PowerSupply,
    pub(super) version: u64,
    pub(super) conversations: BTreeMap<ConversationId, Conversation>,
    by_session: BTreeMap<SessionId, ConversationId>,
    next: u64,
    pub(super) options: EndpointOptions,
    pub(super) audience: Audience,
    /// Streams that peers have opened and nobody has accepted.
    pub(super) fresh: VecDeque<(ConversationId, StreamId)>,
    pub(super) accept_wakers: Vec<Waker>,
    /// Somebody listens.
    pub(super) listeners: usize,
    /// Nobody holds the endpoint any more, since.
    pub(super) closing: Option<Timestamp>,
    pub(super) ended: bool,
    pub(super) close_wakers: Vec<Waker>,
    pub(super) arrivals: Arrivals,
    adapters_sequence: u64,
    /// This end as a node of a mesh, once it has a port: one for each of its groups, or the one that is open to all.
    webs: Vec<Mesh>,
    pub(super) beside: Beside,
    /// Which adapters are off for want of use, and when to look again.
    unused: UnusedAdapters,
    spare_at: Timestamp,
    /// Ways over relays on which nothing is acknowledged, since.
    silent: BTreeMap<relays::Place, Timestamp>,
}

impl Core {
    pub(super) fn new(bond: bond::Endpoint, options: EndpointOptions) -> Result<Self, BindError> {
        Ok(Self {
            bond,
            carriers: Carriers::new(options.port, options.relays != Relays::Off),
            poller_of_places: Poller::new()?,
            adapters: Arc::default(),
            all_adapters: Arc::default(),
            power: PowerSupply::Mains,
            version: 0,
            conversations: BTreeMap::new(),
            by_session: BTreeMap::new(),
            next: 0,
            options,
            audience: Audience::default(),
            fresh: VecDeque::new(),
            accept_wakers: Vec::new(),
            listeners: 0,
            closing: None,
            ended: false,
            close_wakers: Vec::new(),
            arrivals: Arrivals::default(),
            adapters_sequence: 0,
            webs: Vec::new(),
            beside: Beside::default(),
            unused: UnusedAdapters::default(),
            spare_at: Timestamp::ZERO,
            silent: BTreeMap::new(),
        })
    }

    // ---- adapters ----

    /// Takes over what the monitor sees, if it is news.
    ///
    /// # Errors
    /// If a socket was refused; the others are open.
    pub(super) fn follow_adapters(
        &mut self,
        now: Timestamp,
        monitor: &AdapterMonitor,
    ) -> Result<(), BindError> {
        let (adapters, power, version) = monitor.look();
        if version == self.version && !self.adapters.is_empty() {
            return Ok(());
        }
        self.version = version;
        self.all_adapters = Arc::clone(&adapters);
        self.adapters = match &self.options.only {
            Some(only) => Arc::new(adapters.iter().filter(|one| only.contains(&one.name)).cloned().collect()),
            None => adapters,
        };
        self.power = power;
        let (changes, refused) = self.carriers.follow(&self.poller_of_places, &self.adapters);
        for change in &changes {
            match change {
                Change::Up(pairs) => pairs.iter().for_each(|pair| self.bond.network_up(now, *pair)),
                Change::Down(pairs) => pairs.iter().for_each(|pair| self.bond.network_down(now, *pair)),
            }
        }
        if !changes.is_empty() {
            self.follow_mesh(now);
            for id in self.ids() {
                self.plan_paths(now, id);
                self.tell_adapters(id);
                self.call_instead(now, id);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Takes over what adapters with connections tell of them.
    pub(super) fn follow_links(&mut self, now: Timestamp) {
        for change in self.carriers.take_changes() {
            match change {
                Change::Up(pairs) => pairs.iter().for_each(|pair| self.bond.network_up(now, *pair)),
                // As silence, without the wait for it; the path asks for a connection again from then on.
                Change::Down(pairs) => pairs.iter().for_each(|pair| {
                    self.bond.network_down(now, *pair);
                    self.bond.network_up(now, *pair);
                }),
            }
        }
    }

    pub(super) fn sweep_pairs(&mut self) {
        if !self.carriers.is_crowded() {
            return;
        }
        let mut used: BTreeSet<NetworkId> = BTreeSet::new();
        for (session, id) in &self.by_session {
            used.extend(self.bond.path_reports(*session).iter().map(|report| report.network));
            used.extend(self.conversations.get(id).into_iter().flat_map(|known| known.paths.keys()));
        }
        self.carriers.forget_others(&used);
    }

    // ---- conversations ----

    fn ids(&self) -> Vec<ConversationId> {
        self.conversations.keys().copied().collect()
    }

    pub(super) fn conversation_of(&mut self, session: SessionId) -> Option<&mut Conversation> {
        self.conversations.get_mut(self.by_session.get(&session)?)
    }

    fn add(&mut self, conversation: Conversation) -> ConversationId {
        self.next += 1;
        let id = ConversationId(self.next);
        self.by_session.insert(conversation.session, id);
        self.conversations.insert(id, conversation);
        id
    }

    /// Ends a conversation for everybody who holds a part of it. What had arrived can still be read, unless this end wanted no more.
    fn fail(&mut self, id: ConversationId, error: ConnectError) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        if conversation.is_over() {
            return;
        }
        let why = error.to_string();
        if error != ConnectError::Closed && conversation.remains.is_none() {
            conversation.remains = self.bond.take_remains(conversation.session);
        }
        conversation.state = State::Over(error);
        conversation.wakers.wake_all();
        let (peer, session, established) =
            (conversation.peer, conversation.session, conversation.established);
        let successor = conversation.successor.take();
        for session in std::iter::once(session).chain(successor.map(|(session, _)| session)) {
            self.bond.close(session, CLOSE_GOODBYE);
            self.by_session.remove(&session);
        }
        let (remains, is_heard) = (conversation.remains.as_ref(), self.listeners > 0);
        let is_readable = |stream| is_heard && remains.is_some_and(|left| left.is_readable(stream));
        self.fresh.retain(|(of, stream)| *of != id || is_readable(*stream));
        if established {
            self.audience.tell(&Event { peer, kind: EventKind::Ended { why } });
        }
        self.forget_if_unused(id);
    }

    fn forget_if_unused(&mut self, id: ConversationId) {
        let is_unused = |known: &Conversation| known.is_over() && known.handles == 0;
        if self.conversations.get(&id).is_some_and(is_unused) && self.fresh.iter().all(|(of, _)| *of != id) {
            self.conversations.remove(&id);
        }
    }

    /// Nobody will accept the streams of conversations that are over.
    pub(super) fn forget_unheard(&mut self) {
        let conversations = &self.conversations;
        let is_live = |id: &ConversationId| conversations.get(id).is_some_and(|known| !known.is_over());
        self.fresh.retain(|(id, _)| is_live(id));
        self.ids().into_iter().for_each(|id| self.forget_if_unused(id));
    }

    /// The application lets go of a part of a conversation.
    pub(super) fn release(&mut self, id: ConversationId) {
        if let Some(conversation) = self.conversations.get_mut(&id) {
            conversation.handles = conversation.handles.saturating_sub(1);
        }
        self.forget_if_unused(id);
    }

    fn tell(&mut self, id: ConversationId, kind: EventKind) {
        if let Some(conversation) = self.conversations.get(&id) {
            debug!(?kind, "a conversation");
            self.audience.tell(&Event { peer: conversation.peer, kind });
        }
    }

    fn adapter_name(&self, network: Option<NetworkId>) -> String {
        let name = network.and_then(|network| self.carriers.adapter_of(network));
        name.unwrap_or("none").to_owned()
    }

    // ---- time ----

    /// Does what is due; returns when to come again.
    pub(super) fn tick(&mut self, now: Timestamp) -> Timestamp {
        let mut next = Timestamp::FAR_FUTURE;
        for id in self.ids() {
            next = next.min(self.tick_one(now, id));
        }
        if let Some(since) = self.closing {
            next = next.min(self.tick_closing(now, since));
        }
        next.min(self.tick_mesh(now)).min(self.spare_adapters(now))
    }

    fn tick_one(&mut self, now: Timestamp, id: ConversationId) -> Timestamp {
        let patience = self.options.patience;
        let Some(conversation) = self.conversations.get_mut(&id) else { return Timestamp::FAR_FUTURE };
        let peer = conversation.peer;
        match conversation.state {
            State::Over(_) => Timestamp::FAR_FUTURE,
            State::Connecting { until } if until <= now => {
                let patience = conversation.deadline;
                self.fail(id, ConnectError::NoAnswer { peer, patience });
                Timestamp::FAR_FUTURE
            }
            State::Connecting { until } => until,
            State::Suspended { since } if now.since(since) >= patience => {
                self.fail(id, ConnectError::Lost { peer, patience });
                Timestamp::FAR_FUTURE
            }
            State::Suspended { since } => {
                let again = self.call_instead(now, id);
                again.min(since + patience)
            }
            State::Up => {
                let unused = conversation.handles == 0 && self.bond.open_streams(conversation.session) == 0;
                let idle_since = conversation.idle_since.filter(|_| unused);
                conversation.idle_since = unused.then(|| idle_since.unwrap_or(now));
                let idle_until = conversation.idle_since.map(|since| since + IDLE);
                if idle_until.is_some_and(|until| until <= now) {
                    self.fail(id, ConnectError::Ended(peer));
                    return Timestamp::FAR_FUTURE;
                }
                let choose = self.choose(now, id);
                choose.min(idle_until.unwrap_or(Timestamp::FAR_FUTURE))
            }
        }
    }

    fn tick_closing(&mut self, now: Timestamp, since: Timestamp) -> Timestamp {
        let live = self.conversations.values().filter(|known| matches!(known.state, State::Up));
        let unsent: usize = live.map(|known| self.bond.open_streams(known.session)).sum();
        if unsent > 0 && now.since(since) < LINGER {
            return now + Duration::from_millis(20);
        }
        for id in self.ids() {
            self.fail(id, ConnectError::Closed);
        }
        self.ended = true;
        self.audience.close();
        self.close_wakers.drain(..).for_each(Waker::wake);
        self.accept_wakers.drain(..).for_each(Waker::wake);
        self.close_packets();
        Timestamp::FAR_FUTURE
    }
}
