//! What an endpoint knows of one peer process that it talks to.
//!
//! ```text
//!             answered                  all paths silent
//! Connecting ----------> Up ----------------------------------> Suspended
//!     |                  ^ <------------- a path answers -----------|
//!     | deadline         |                                          | patience
//!     +-----------------------------> Over <------------------------+  (also: refused, ended, forgotten by the peer)
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bond::{Remains, SessionId};
use identity::PublicKey;
use policy::{ChoiceSettings, ConnectionPolicy, ConnectionWish};
use units::{NetworkId, Timestamp};
use wire::mesh::NodeId;
use wire::peer::Conversation as ConversationKey;

use super::core::Experience;
use super::error::ConnectError;
use super::wakers::Wakers;

/// A conversation of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConversationId(pub(super) u64);

/// Where a conversation stands; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    Connecting { until: Timestamp },
    Up,
    Suspended { since: Timestamp },
    Over(ConnectError),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) peer: PublicKey,
    pub(super) key: ConversationKey,
    pub(super) session: SessionId,
    /// This end opened the session, so it opens paths and chooses among them.
    pub(super) is_caller: bool,
    /// The session that is to take this one's place, and since when.
    pub(super) successor: Option<(SessionId, Timestamp)>,
    /// When a call of this end's own took the place of the session before.
    pub(super) taken_over: Option<Timestamp>,
    pub(super) state: State,
    /// It was up once: the peer knows its streams.
    pub(super) established: bool,
    /// The application has heard that it is there.
    pub(super) told_new: bool,
    /// What had arrived when it ended.
    pub(super) remains: Option<Remains>,
    /// Where the application says that the peer may be.
    pub(super) hints: Vec<SocketAddr>,
    /// Where the peer says that it is.
    pub(super) told: Vec<SocketAddr>,
    pub(super) told_sequence: u64,
    /// The same of adapters that are of no IP network.
    pub(super) further: Vec<SocketAddr>,
    pub(super) further_sequence: u64,
    pub(super) peer_battery: Option<u8>,
    /// The group that it belongs to, by its number among the endpoint's; 0 where there is none.
    pub(super) web: usize,
    /// The peer as a node of a mesh: under each port that it may have.
    pub(super) nodes: Vec<NodeId>,
    /// When the first call was made.
    pub(super) begun: Timestamp,
    /// The paths that are open, and whether each could carry data.
    pub(super) paths: BTreeMap<NetworkId, bool>,
    pub(super) active: Option<NetworkId>,
    pub(super) policy: ConnectionPolicy,
    pub(super) experience: Experience,
    pub(super) wakers: Wakers,
    /// Streams and the like that the application holds.
    pub(super) handles: usize,
    /// Nothing has used it since.
    pub(super) idle_since: Option<Timestamp>,
    pub(super) deadline: Duration,
}

impl Conversation {
    pub(super) fn new(
        peer: PublicKey,
        key: ConversationKey,
        session: SessionId,
        is_caller: bool,
        state: State,
        settings: ChoiceSettings,
        wish: ConnectionWish,
    ) -> Self {
        Self {
            peer,
            key,
            session,
            is_caller,
            successor: None,
            taken_over: None,
            state,
            established: false,
            told_new: false,
            remains: None,
            hints: Vec::new(),
            told: Vec::new(),
            told_sequence: 0,
            further: Vec::new(),
            further_sequence: 0,
            peer_battery: None,
            web: 0,
            nodes: Vec::new(),
            begun: Timestamp::ZERO,
            paths: BTreeMap::new(),
            active: None,
            policy: ConnectionPolicy::new(settings, wish),
            experience: Experience::default(),
            wakers: Wakers::default(),
            handles: 0,
            idle_since: None,
            deadline: Duration::ZERO,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// Where the peer may be, what it says itself first.
    pub(super) fn remotes(&self) -> Vec<SocketAddr> {
        let mut remotes = [self.told.as_slice(), &self.further].concat();
        let new: Vec<SocketAddr> =
            self.hints.iter().filter(|hint| !remotes.contains(hint)).copied().collect();
        remotes.extend(new);
        remotes
    }

    pub(super) fn usable_paths(&self) -> usize {
        self.paths.values().filter(|usable| **usable).count()
    }
}
