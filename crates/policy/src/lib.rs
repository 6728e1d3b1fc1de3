//! PURE. Treatments, priorities and the flow classifier: what bond, rules and direct mode share.
#![forbid(unsafe_code)]

mod classify;
mod preference;
mod rtt;
pub mod shares;
mod treatment;

pub use classify::FlowMeter;
pub use preference::{NetworkPreference, statuses};
pub use rtt::{BaseRtt, RttEstimator};
pub use shares::Share;
pub use treatment::{FlowClass, PathStatus, Priority, Treatment};
