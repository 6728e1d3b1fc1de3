//! A radio medium: what happens to 802.11 frames between the moment a station hands them over and the moment others hear them.
//!
//! ```text
//!  transmit --> queue --> back-off ---> attempt ends --> answer ends ---> Outcome
//!                           ^              |                 |
//!                           |              +--> Receptions   | no acknowledgement: window doubles, Retry is set
//!                           +--------------------------------+
//! ```
//! All stations on a channel sense each other: exchanges follow one another, and senders take turns by random back-off, frame for
//! frame; those that end theirs in the same slot collide (IEEE Std 802.11-2020 section 10.3, air time by [`radio::airtime`]). A frame to one station is repeated as
//! its [`Rates`] say until its acknowledgement arrives; if only the acknowledgement was lost, the receiver hears it again. Frames to a
//! group are sent once and go first, as from a card's beacon queue. Every other station on the channel overhears.
//!
//! The seams for more: [`Propagation`] says what arrives where, so fading is a further implementation of it; who defers to whom is decided
//! in `contention.rs` only (everybody, to everybody); what becomes of frames that overlap in `exchange.rs` only (none is heard).
//!
//! The contract is that of the other pure cores: after any call with `now` drain [`Medium::poll_event`], then call
//! [`Medium::handle_timeout`] at [`Medium::poll_timeout`]. Time may lag: what was due earlier happens at its own time, so a slow owner costs no air time.

mod contention;
mod engine;
mod exchange;
mod frame;
mod propagation;
mod rates;
mod station;
mod statistics;

pub use engine::{Medium, Refused, Timing};
pub use frame::{Attempt, Event, Frame, FrameId, Outcome, Rates, Reception, Series, SeriesError, Tuning};
pub use propagation::{Link, Links, Passage, PassageKind, Propagation, SignalLoss, error_rate};
pub use statistics::{ChannelStatistics, StationStatistics};

/// A station of a [`Medium`], by the order in which it was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StationId(pub usize);

#[cfg(test)]
mod tests;
