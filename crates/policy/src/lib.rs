//! PURE. Decides which networks, treatments and shares flows get, from networks, metrics, rules and power: what bond,
//! rules and direct mode share. Its I/O lives in the daemon (`linux` for the kernel).
//!
//! - [`NetworkPolicy::evaluate`] makes a [`Table`] of shares from [`NetworkInput`]s; [`assign()`] gives a new flow its
//!   network; [`Table::slots`] makes the elements of the kernel's map.
//! - [`rules`] say what users want for their flows, and explain what came of it.
//! - [`replay`] runs a recorded day through all of it again.
//! - [`steering`] says which access points of a channel carry data, and how senders learn of it.
//! - [`gain`] says what bonding is worth at the moment.
//! - [`unused`] says which adapters need not be on.
//! - [`DataCap`], [`energy`], [`neighbours`] and [`refusal`] know what the choice needs beside metrics.
#![forbid(unsafe_code)]

mod assign;
pub mod calendar;
mod capacity;
mod choice;
mod classify;
mod data_cap;
pub mod energy;
pub mod gain;
pub mod limit;
pub mod neighbours;
pub mod network;
mod preference;
mod reason;
pub mod refusal;
pub mod replay;
mod rtt;
pub mod rules;
pub mod services;
pub mod shares;
pub mod slots;
pub mod steering;
mod table;
mod treatment;
pub mod unused;

pub use assign::{Assignment, NewFlow, NoNetwork, Why, Wish, assign};
pub use capacity::CapacityEstimator;
pub use choice::{ChoiceSettings, ConnectionPolicy, ConnectionWish, NetworkPolicy, Split};
pub use classify::FlowMeter;
pub use data_cap::{CapSettings, DataCap};
pub use network::NetworkInput;
pub use preference::{NetworkPreference, statuses};
pub use reason::Reason;
pub use rtt::{BaseRtt, RttEstimator};
pub use shares::Share;
pub use table::{Entry, Table};
pub use treatment::{FlowClass, PathStatus, Priority, Treatment};
