//! The simulated test bed: hosts with TCP and QUIC flows over simulated networks, with or without the
//! bond between them, in virtual time.

mod failover;
mod fairness;
mod host;
mod measure;
mod node;
mod packet;
mod ping;
mod quic;
mod ranges;
pub(crate) mod segment;
mod stream_flow;
mod tcp;
#[cfg(test)]
mod tests;
mod trial;
mod tunnel;
mod uplink;

pub use failover::{Failover, FailoverOutcome};
pub use fairness::{Fairness, FairnessOutcome, jain_index};
pub use measure::{Progress, quantile};
pub use tcp::Algorithm;
pub(crate) use tcp::{TcpReceiver, TcpSender};
pub use trial::{EndReport, Outcome, Traffic, Trial, Way};
pub use uplink::{LentUplink, LentUplinkOutcome};
