//! I/O. Who this machine is and whom it knows: key file, named peers, invitations and address leases.
//!
//! Everything stands in one [`StateDirectory`], mode 0700:
//!
//! | file | holds |
//! |---|---|
//! | `key` | the X25519 key pair ([`KeyPair`]), mode 0600 |
//! | `peers.toml` | far ends by name ([`Peers`]), mode 0600: it may hold an invitation that was not redeemed yet |
//! | `groups.toml` | groups that this machine is in ([`Groups`]), mode 0600: it holds their secrets |
//! | `gateway.sqlite` | a gateway's clients, leases, invitations and forwarded ports ([`Registry`]) |
//! | `uncounted.toml` | what a gateway's clients have carried while the registry was out of reach ([`Usage::keep`]) |
//! | `web-token` | what a browser has to show ([`WebToken`]), mode 0600 |
//! | `daemon.lock` | keeps a second daemon out ([`DaemonLock`]) |
//!
//! `examples/invite.rs` makes an invitation and redeems it.
#![forbid(unsafe_code)]

pub mod any0_address;
mod atomic_file;
mod groups;
mod key;
mod lock;
mod pair_keys;
mod peers;
mod pool;
mod registry;
mod signature;
mod state;
mod uncounted;
mod web_token;

pub use atomic_file::WriteError;
pub use groups::{Group, GroupError, GroupKeys, GroupSecret, GroupUse, Groups, MAX_GROUPS, Member};
pub use key::{KeyError, KeyPair, PublicKey, PublicKeyError};
pub use lock::{DaemonLock, LockError};
pub use pair_keys::{PairKeys, PlaceKey};
pub use peers::{JoinError, Joined, Peer, Peers, PeersError};
pub use pool::{Ipv4Pool, Ipv6Pool, PoolError};
pub use registry::{
    Client, CreateError, Forward, ForwardError, Invitation, InviteError, Invited, Lease, LimitError,
    OpenError, Pools, Protocol, RedeemError, Redeemed, Registry, RegistryError, RegistryPlace, RevokeError,
    Revoked, SharedRegistry, Usage, Used,
};
pub use signature::{SIGNATURE_LENGTH, Signature};
pub use state::{StateDirectory, StateError};
pub use uncounted::UncountedError;
pub use web_token::{WebToken, WebTokenError};
pub use wire::join_link::{InvitationKind, InvitationSecret, UnixSeconds};

use std::time::{SystemTime, UNIX_EPOCH};

/// The machine's wall time now; 1970 if the clock stands before that.
pub fn wall_time() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}
