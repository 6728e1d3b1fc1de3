//! PURE. Virtual clock, seeded randomness and link models: the test bed of the pure crates.
//!
//! A [`Link`] is one direction of a network. The simulator drives it with a virtual clock, the lab's
//! link emulator drives the same code with the real one. [`World`] joins nodes by links and runs them
//! in virtual time; [`scenario`] names the pairs of links that experiments use. A [`medium`] is the air that Wi-Fi
//! stations share; a [`meadow`] is people with radios who pass on each other's packets; a [`neighbourhood`] is homes that lend each other their uplinks.
//!
//! ```
//! use sim::{Link, LinkSpec};
//! use std::time::Duration;
//! use units::{BitRate, Timestamp};
//!
//! // 12 Mbit/s send 1500 bytes in 1 ms; the way takes 20 ms.
//! let mut link = Link::new(LinkSpec::steady(BitRate::from_mbps(12.0), Duration::from_millis(20)), 1);
//! link.enqueue(Timestamp::ZERO, vec![0_u8; 1_500]);
//! assert_eq!(link.next_event(), Some(Timestamp::from_millis(21)));
//! assert!(link.poll(Timestamp::from_millis(20)).is_none());
//! assert!(link.poll(Timestamp::from_millis(21)).is_some());
//! ```
#![forbid(unsafe_code)]

pub mod cellular;
mod event_queue;
mod link;
pub mod meadow;
pub mod medium;
pub mod neighbourhood;
mod random;
pub mod scenario;
mod trace;
mod world;

pub use event_queue::EventQueue;
pub use link::{
    Capacity, Change, Jitter, Link, LinkPacket, LinkSpec, LinkState, LinkStatistics, Loss, QueueLimit,
    TimedChange,
};
pub use random::SeededRandom;
pub use scenario::{NetworkSpec, Scenario};
pub use trace::{DeliveryTrace, TraceError};
pub use world::{LinkId, Node, NodeId, Port, Stuck, World};
