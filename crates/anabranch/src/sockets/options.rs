//! What applications say of their endpoints and connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use identity::{GroupKeys, InvitationSecret, KeyPair, PublicKey};
use policy::{ChoiceSettings, ConnectionWish};
use wire::hello::Name;
use wire::peer::PeerAddress;

use super::relays::Relays;
use super::switch_off::SwitchOff;

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
    /// The group of [`EndpointOptions::groups`] that it has shown to be in.
    pub group: Option<&'a str>,
}

/// A group that an endpoint works in.
#[derive(Clone, Debug)]
pub struct Membership {
    /// What it is called here.
    pub group: String,
    /// Its keys.
    pub keys: GroupKeys,
    /// Members that are known here: by Bluetooth only these are found nearby.
    pub members: Vec<PublicKey>,
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
    /// The only adapters that are used, by name; all if there is no such list.
    pub only: Option<Vec<String>>,
    /// Adapters that may be switched off while no connection uses them.
    pub switch_off: Option<SwitchOff>,
    /// How long a connection waits for a network before it is lost.
    pub patience: Duration,
    /// How adapters are chosen.
    pub choice: ChoiceSettings,
    /// Use all adapters that are as good at once, packet by packet, in place of the best one.
    pub spread: bool,
    /// What this end sends gives way to all other traffic of the networks that it uses: less than best effort (RFC 6297).
    pub background: bool,
    /// Whether peers are looked for over relays where no adapter leads to them, and what is done for others.
    pub relays: Relays,
    /// The groups that it works in, eight at most: only their members may call, beside whom [`Admission`] lets in by an invitation, and relays are
    /// those of the group alone, each group by itself. Without any, it works among all whom it knows, in no group.
    pub groups: Vec<Membership>,
}

impl EndpointOptions {
    /// An endpoint that only calls.
    pub fn new(key: KeyPair) -> Self {
        Self {
            key,
            name: None,
            port: 0,
            admission: Admission::Nobody,
            only: None,
            switch_off: None,
            patience: Duration::from_secs(300),
            choice: ChoiceSettings::default(),
            spread: false,
            background: false,
            relays: Relays::default(),
            groups: Vec::new(),
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
    /// Where it may be reached: hints, all tried at once. Whoever answers must have the key. One with the unspecified address says that
    /// the port is known and the place is not: relays may find it.
    pub addresses: Vec<PeerAddress>,
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
    /// The group of the endpoint's that the peer is called in; its first one unless named.
    pub group: Option<String>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            wish: ConnectionWish::default(),
            deadline: Duration::from_secs(20),
            invitation: None,
            group: None,
        }
    }
}
