//! PURE. AODV routing (RFC 3561) between peers: who passes on whose sealed packets. No I/O, no clock, no own randomness.
//!
//! A [`Router`] is one node. Its owner hands in what comes from adapters and sends what it is told to:
//!
//! | call | meaning |
//! |---|---|
//! | `find`, `release` | ways to a node are wanted, or not any more |
//! | `next_hop` | where a packet of this node's own goes first |
//! | `handle_data` | somebody's packet has come: for this node, to be passed on, or dropped |
//! | `handle_message` | a request, a reply, an error or a hello has come |
//! | `give_up`, `confirm` | what the two ends of a way found out about it by themselves |
//! | `handle_timeout`, `poll_timeout` | time |
//! | `poll_transmit`, `poll_event` | what is to be sent, and what the owner should know; to be drained after each call that takes `now` |
//!
//! Where this differs from the RFC, and why, stands at the item: only destinations answer requests, both sign ([`Signer`]), rebroadcasts are
//! suppressed where many nodes hear each other (`router/requests.rs`), neighbours are probed only while packets depend on them
//! (`router/liveness.rs`), and next hops that lose data are avoided for a time (`suspicion.rs`).
#![forbid(unsafe_code)]

mod allowance;
mod neighbours;
mod router;
mod routes;
mod seen;
mod settings;
mod signer;
mod suspicion;

pub use router::{Counters, Event, Forwarding, Recipient, Router, Transmit, Way};
pub use settings::{Relaying, Settings};
pub use signer::{Signer, node_id};

use units::NetworkId;
use wire::mesh::LinkAddress;

/// A node beside this one: one of this node's networks and who is meant there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hop {
    /// This node's network.
    pub network: NetworkId,
    /// The other node's address there.
    pub address: LinkAddress,
}
