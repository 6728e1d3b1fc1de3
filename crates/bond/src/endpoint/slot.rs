//! What an endpoint keeps of each session.

use super::connecting::Connecting;
use super::incoming::Answer;
use super::{PathConfig, SessionId};
use crate::keys::PublicKey;
use crate::session::Session;
use units::Timestamp;
use wire::datagram::RESET_TOKEN_LEN;

/// What becomes of other sessions with the same peer once this one is established.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Succession {
    /// The responder ends an older one: the peer has forgotten it.
    #[default]
    Sole,
    /// They stay.
    Beside,
    /// This one ends, and its streams go on here; the others stay.
    Of(SessionId),
}

/// A session with its peer, established or not.
pub(super) struct Slot {
    pub(super) peer: PublicKey,
    pub(super) session: Option<Session>,
    pub(super) own_index: Option<u32>,
    pub(super) reset_token: Option<[u8; RESET_TOKEN_LEN]>,
    pub(super) connecting: Option<Box<Connecting>>,
    pub(super) renewal: Option<Renewal>,
    pub(super) paths: Vec<WantedPath>,
    pub(super) answer: Option<Answer>,
    pub(super) succession: Succession,
    pub(super) announced: bool,
    pub(super) timer: Option<Timestamp>,
    pub(super) ready: bool,
    pub(super) delivering: bool,
}

/// What an initiator needs to begin again.
#[derive(Clone)]
pub(super) struct Renewal {
    pub(super) payload: Vec<u8>,
    pub(super) stamp: u64,
    pub(super) at: Timestamp,
}

/// A path that the owner wants, whether or not there is a session to have it.
#[derive(Clone, Copy)]
pub(super) struct WantedPath {
    pub(super) config: PathConfig,
    pub(super) down: bool,
}

impl Slot {
    pub(super) fn new(peer: PublicKey) -> Self {
        Self {
            peer,
            session: None,
            own_index: None,
            reset_token: None,
            connecting: None,
            renewal: None,
            paths: Vec::new(),
            answer: None,
            succession: Succession::default(),
            announced: false,
            timer: None,
            ready: false,
            delivering: false,
        }
    }
}
