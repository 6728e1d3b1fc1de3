//! What an endpoint says to its owner.

use crate::address::Address;
use crate::keys::PublicKey;
use crate::session::SessionEvent;

/// A session, for as long as the owner wants it: it outlives handshakes and gateway restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// A peer that wants a session and waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IncomingId(pub u64);

/// What the owner should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointEvent {
    /// A peer wants a session: answer with [`Endpoint::accept`](crate::Endpoint::accept) or [`Endpoint::refuse`](crate::Endpoint::refuse).
    Incoming {
        /// For the answer.
        id: IncomingId,
        /// Who it is: proved by the handshake.
        peer: PublicKey,
        /// What it said.
        payload: Vec<u8>,
        /// Where it came from.
        from: Address,
    },
    /// A session is established, anew or again.
    Connected {
        /// The session.
        session: SessionId,
        /// Who it is with.
        peer: PublicKey,
        /// What the responder answered; empty on the responder's side.
        payload: Vec<u8>,
    },
    /// The peer's identity is right but nothing answers; tries go on.
    NoAnswer {
        /// The session.
        session: SessionId,
        /// Initiations sent so far.
        tries: u32,
    },
    /// Something happened in a session.
    Session {
        /// The session.
        session: SessionId,
        /// What.
        event: SessionEvent,
    },
    /// A session is over; one of `wire::frame::CLOSE_*` tells why.
    Closed {
        /// The session.
        session: SessionId,
        /// Who it was with.
        peer: PublicKey,
        /// Why.
        reason: u8,
    },
}

/// Datagrams that belonged to no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Not of this format.
    pub malformed: u64,
    /// Of a session that is not known here.
    pub unknown_session: u64,
    /// Handshake messages that were not authentic, or of another version.
    pub bad_handshakes: u64,
    /// Initiations that were seen before.
    pub replayed_handshakes: u64,
    /// Initiations answered with a retry.
    pub retries: u64,
    /// Resets sent.
    pub resets: u64,
    /// Packets of sessions that were rejected.
    pub rejected: u64,
}
