//! PURE. Virtual clock, seeded randomness and link models: the test bed of the pure crates.
//!
//! A [`Link`] is one direction of a network. The simulator drives it with a virtual clock, the lab's
//! link emulator drives the same code with the real one. [`World`] joins nodes by links and runs them
//! in virtual time; [`scenario`] names the pairs of links that experiments use.
#![forbid(unsafe_code)]

pub mod cellular;
mod event_queue;
mod link;
mod random;
pub mod scenario;
mod trace;
mod world;

pub use event_queue::EventQueue;
pub use link::{
    Capacity, Change, Jitter, Link, LinkPacket, LinkSpec, LinkState, LinkStatistics, Loss, QueueLimit, TimedChange,
};
pub use random::SeededRandom;
pub use scenario::{NetworkSpec, Scenario};
pub use trace::{DeliveryTrace, TraceError};
pub use world::{Node, NodeId, Port, World};
