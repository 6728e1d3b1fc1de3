//! What can go wrong with virtual sockets.

use std::io;
use std::time::Duration;

use identity::PublicKey;
use thiserror::Error;

/// Why an endpoint cannot be made.
#[derive(Debug, Error)]
pub enum BindError {
    /// The kernel does not tell of its adapters.
    #[error("cannot watch the network adapters: {0}")]
    Adapters(#[from] linux::netlink::NetlinkError),
    /// No socket on any adapter.
    #[error(transparent)]
    Socket(#[from] linux::BindError),
    /// No socket on a Bluetooth controller.
    #[error(transparent)]
    Bluetooth(#[from] linux::bluetooth::LinkError),
    /// The system gives no randomness.
    #[error("no randomness from the system: {0}")]
    Randomness(#[from] rand::rand_core::OsError),
    /// The system gives no thread or descriptor.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    /// The key cannot be used.
    #[error("the private key cannot be used")]
    Key,
}

/// Why there is no connection, or no more.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    /// Nothing answered in time.
    #[error("{} does not answer, by any network, within {} s", short(peer), patience.as_secs())]
    NoAnswer {
        /// Who.
        peer: PublicKey,
        /// How long was waited.
        patience: Duration,
    },
    /// No address of it is known.
    #[error("no address of {} is known; say where it may be reached", short(.0))]
    NoAddress(PublicKey),
    /// It does not know this end.
    #[error("{} does not let this machine in: its key is not known there", short(.0))]
    NotKnown(PublicKey),
    /// The invitation was no good.
    #[error("{} refuses the invitation: it was used before, has expired, or was made elsewhere", short(.0))]
    InvitationRefused(PublicKey),
    /// It is there, but takes no connections.
    #[error("{} takes no connections now", short(.0))]
    NotListening(PublicKey),
    /// It speaks otherwise.
    #[error("{} is no peer of this version: it answered something else", short(.0))]
    Incomprehensible(PublicKey),
    /// All networks were gone for longer than the bound.
    #[error("no network reached {} for {} s", short(peer), patience.as_secs())]
    Lost {
        /// Who.
        peer: PublicKey,
        /// The bound.
        patience: Duration,
    },
    /// It was started anew and has forgotten the connection.
    #[error("{} was started anew, and has forgotten the connection", short(.0))]
    Restarted(PublicKey),
    /// It ended the connection.
    #[error("{} has ended the connection", short(.0))]
    Ended(PublicKey),
    /// It broke the protocol.
    #[error("{} broke the rules of the protocol", short(.0))]
    Broken(PublicKey),
    /// The endpoint works in no such group.
    #[error("this end does not work in the group {0}")]
    NotInGroup(String),
    /// The endpoint is closed.
    #[error("this endpoint is closed")]
    Closed,
}

impl ConnectError {
    /// The same as an I/O error, for readers and writers.
    pub(super) fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::NoAnswer { .. } | Self::Lost { .. } => io::ErrorKind::TimedOut,
            Self::NoAddress(_) => io::ErrorKind::AddrNotAvailable,
            Self::NotKnown(_) | Self::InvitationRefused(_) => io::ErrorKind::PermissionDenied,
            Self::NotListening(_) => io::ErrorKind::ConnectionRefused,
            Self::Incomprehensible(_) | Self::Broken(_) => io::ErrorKind::InvalidData,
            Self::Restarted(_) | Self::Ended(_) => io::ErrorKind::ConnectionReset,
            Self::NotInGroup(_) => io::ErrorKind::InvalidInput,
            Self::Closed => io::ErrorKind::NotConnected,
        };
        io::Error::new(kind, self)
    }
}

/// Enough of a key to tell peers apart.
fn short(key: &PublicKey) -> String {
    key.to_string().chars().take(8).collect()
}
