//! The air between simulated radios: [`sim::medium`] as the medium of the kernel's `mac80211_hwsim`.
//!
//! `anabranch-lab medium CONFIG` runs it in the guest, in the initial network namespace, before the radios are used:
//!
//! ```text
//! kernel's radios --- frames ---> front end --- transmit ---> medium (pure)
//!        ^                            |  <--- receptions, outcomes, when to wake ---
//!        +--- deliveries, reports ----+
//! ```
//! The kernel knows on which channel a radio is, the medium does not: it offers each frame to every radio, and what the kernel refuses was not
//! heard. Time is the guest's; what the front end is late for happens at its own time, so its processor time is no air time.
//! Radios acknowledge the addresses of their interfaces. Of monitors the kernel says nothing: they are taken to be active, for addresses that carry
//! their radio's number (02:00:00:00:NN:xx).
//! The cost of a change of channel is the station's to spend, not the medium's (`anabranch radio up --channel-cost`).

mod capture;
mod config;
mod front_end;
mod numbers;
mod partings;
mod rates;
mod report;

pub use config::{Config, ConfigError, GroundConfig, LinkConfig, PlaceConfig, Quality};
pub use front_end::run;
pub use report::{RadioCounts, Report};
