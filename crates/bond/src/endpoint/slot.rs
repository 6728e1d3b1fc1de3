//! What an endpoint keeps of each session.

use super::PathConfig;
use super::connecting::Connecting;
use super::incoming::Answer;
use crate::keys::PublicKey;
use crate::session::Session;
use units::Timestamp;
use wire::datagram::RESET_TOKEN_LEN;

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
            announced: false,
            timer: None,
            ready: false,
            delivering: false,
        }
    }
}
