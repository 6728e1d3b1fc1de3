//! PURE. Many paths, one session: handshake, paths, schedulers, congestion control, ARQ and FEC, resequencer.
//!
//! No clock, no sockets, no randomness of its own. The owner feeds datagrams, inner packets and time into an [`Endpoint`] and drains
//! what comes out; see ARCHITECTURE.md, "The bond's contract".
#![forbid(unsafe_code)]

mod address;
pub mod congestion;
mod endpoint;
mod fec;
mod flows;
mod handshake;
mod keys;
mod path;
mod resequencer;
mod scheduler;
mod session;
mod streams;
mod unit;

pub use address::{Address, Carrier, CarrierProperties};
pub use congestion::Algorithm;
pub use endpoint::{
    ConnectError, Counters, Endpoint, EndpointConfig, EndpointEvent, IncomingId, PathConfig, SessionId,
};
pub use handshake::MAX_PAYLOAD_LEN;
pub use keys::{PrivateKey, PublicKey, REKEY_AFTER, REKEY_AFTER_PACKETS};
pub use path::ecn::EcnTrouble;
pub use path::mtu::BASE_MTU;
pub use path::{PathCounters, PathState};
pub use scheduler::{Choice, Demand, PathView, Scheduler};
pub use session::transmit::Transmit;
pub use session::{MAX_PATHS, PathReport, SendMessageError, SessionConfig, SessionCounters, SessionEvent};
pub use streams::{MAX_DATAGRAM_LEN, Remains, StreamError, StreamEvent, StreamLimits};
pub use wire::stream::StreamId;
