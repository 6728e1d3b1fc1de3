//! What applications say of their endpoints and connections.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use identity::{InvitationSecret, KeyPair, PublicKey};
use policy::{ChoiceSettings, ConnectionWish};
use wire::hello::Name;

/// Who may call.
#[derive(Clone)]
pub enum Admission {
    /// Nobody.
    Nobody,
    /// Whoever knows this end's public key.
    Anybody,
    /// Those with these keys.
    Keys(Vec<PublicKey>),
    /// Whom the function lets in. It must not block for long.
    Ask(Arc<AskAdmission>),
}

/// Decides about a caller.
pub type AskAdmission = dyn Fn(&Caller<'_>) -> bool + Send + Sync;

/// Somebody who calls.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Who: proved by its key.
    pub key: PublicKey,
    /// What it calls itself; proves nothing.
    pub name: Option<&'a Name>,
    /// The invitation that it shows.
    pub invitation: Option<&'a InvitationSecret>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => formatter.write_str("Nobody"),
            Self::Anybody => formatter.write_str("Anybody"),
            Self::Keys(keys) => formatter.debug_tuple("Keys").field(keys).finish(),
            Self::Ask(_) => formatter.write_str("Ask(..)"),
        }
    }
}

impl Admission {
    pub(super) fn admits(&self, caller: &Caller<'_>) -> bool {
        match self {
            Self::Nobody => false,
            Self::Anybody => true,
            Self::Keys(keys) => keys.contains(&caller.key),
            Self::Ask(ask) => ask(caller),
        }
    }
}

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Who this end is.
    pub key: KeyPair,
    /// What it calls itself to peers.
    pub name: Option<Name>,
    /// Port on every adapter; 0 takes any, which serves who only calls.
    pub port: u16,
    /// Who may call.
    pub admission: Admission,
    /// How long a connection waits for a network before it is lost.
    pub patience: Duration,
    /// How adapters are chosen.
    pub choice: ChoiceSettings,
    /// Use all adapters that are as good at once, packet by packet, in place of the best one.
    pub spread: bool,
}

impl EndpointOptions {
    /// An endpoint that only calls.
    pub fn new(key: KeyPair) -> Self {
        Self {
            key,
            name: None,
            port: 0,
            admission: Admission::Nobody,
            patience: Duration::from_secs(300),
            choice: ChoiceSettings::default(),
            spread: false,
        }
    }

    /// One that others may call on this port.
    pub fn listening(key: KeyPair, port: u16, admission: Admission) -> Self {
        Self { port, admission, ..Self::new(key) }
    }
}

/// Whom to call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Who it is.
    pub key: PublicKey,
    /// Where it may be reached: hints, all tried at once. Whoever answers must have the key.
    pub addresses: Vec<SocketAddr>,
}

/// Settings of one connection.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// What is wanted of the adapter; counts for all connections with the peer, the first one's.
    pub wish: ConnectionWish,
    /// How long the set-up may take.
    pub deadline: Duration,
    /// Shown to the peer in case that it does not know this end.
    pub invitation: Option<InvitationSecret>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { wish: ConnectionWish::default(), deadline: Duration::from_secs(20), invitation: None }
    }
}
