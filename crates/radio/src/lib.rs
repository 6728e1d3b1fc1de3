//! PURE. A station that is in many Wi-Fi networks with one radio.
//!
//! The radio stays on one channel for a *slot*, tells the access point of the slot that ends that it sleeps (a null frame with
//! PM = 1), tunes, tells the next that it is awake, and takes what was kept for it (`[JUGGLER] section 3.3`).
#![forbid(unsafe_code)]

mod air;
pub mod airtime;
mod beacons;
pub mod frame;
mod group;
pub mod handoff;
mod joining;
mod link;
mod network;
mod overhearing;
pub mod pcap;
pub mod quality;
pub mod radiotap;
mod rates;
mod reception;
pub mod scan;
pub mod security;
mod settling;
pub mod slots;
mod station;
mod succession;
mod waking;

pub use air::{Heard, NotARate, Outcome, Rate, Transmission};
pub use group::GroupSettings;
pub use joining::Unjoinable;
pub use network::{Lost, MOST_WAITING, NetworkCounters, NetworkSettings, Visits};
pub use overhearing::{Overhearing, Stations};
pub use rates::RateChoice;
pub use station::{Event, Health, NetworkStatus, PermittedChannel, Station, StationSettings, Switch};
pub use succession::{MOST_FOLLOWERS, MOST_REMEMBERED, Succession};
pub use waking::Waking;
