//! PURE. Treatments, priorities and the flow classifier: what bond, rules and direct mode share.
#![forbid(unsafe_code)]

mod rtt;
mod treatment;

pub use rtt::{BaseRtt, RttEstimator};
pub use treatment::{FlowClass, PathStatus, Priority, Treatment};
