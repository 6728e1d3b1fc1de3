//! A compact model of TCP as Linux runs it: SACK, RACK with an adaptive window (RFC 8985), tail loss
//! probes, proportional rate reduction (RFC 6937), undo of false recoveries by timestamps (RFC 4015),
//! CUBIC (RFC 9438) with HyStart, Reno, and BBR version 1.

mod bbr;
mod control;
mod cubic;
mod receiver;
mod recovery;
mod reno;
mod rtt;
mod scoreboard;
mod sender;
#[cfg(test)]
mod tests;

pub use control::Algorithm;
pub use receiver::TcpReceiver;
pub use sender::TcpSender;
