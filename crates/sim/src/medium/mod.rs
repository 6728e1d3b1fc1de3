//! A radio medium: what happens to 802.11 frames between the moment a station hands them over and the moment others hear them.
//!
//! ```text
//!  transmit --> queue --> back-off ---> attempt ends --> answer ends ---> Outcome
//!                           ^              |                 |
//!                           |              +--> Receptions   | no acknowledgement: window doubles, Retry is set
//!                           +--------------------------------+
//! ```
//! Stations on a channel that sense each other take turns by random back-off, frame for
//! frame; those that end theirs in the same slot collide (IEEE Std 802.11-2020 section 10.3, air time by [`radio::airtime`]). Who does not sense
//! another sends beside it, and a receiver that hears both reads the one that is strong enough, or none. A frame to one station is repeated as
//! its [`Rates`] say until its acknowledgement arrives; if only the acknowledgement was lost, the receiver hears it again. Frames to a
//! group are sent once and go first, as from a card's beacon queue. Every other station on the channel overhears.
//!
//! The seam for more: [`Propagation`] says what arrives where and who senses whom. [`Links`] are steady, or follow from where stations are and go, with
//! fades ([`Ground`]). Who may send when is decided
//! in `contention.rs` only, what becomes of frames that overlap in `propagation.rs` only.
//!
//! The contract is that of the other pure cores: after any call with `now` drain [`Medium::poll_event`], then call
//! [`Medium::handle_timeout`] at [`Medium::poll_timeout`]. Time may lag: what was due earlier happens at its own time, so a slow owner costs no air time.

mod channel;
mod contention;
mod engine;
mod exchange;
mod frame;
mod ground;
mod propagation;
mod rates;
mod station;
mod statistics;

pub use engine::{Medium, Refused, Timing};
pub use frame::{
    AccessCategory, Attempt, Event, Frame, FrameId, Outcome, Rates, Reception, Series, SeriesError, Tuning,
};
pub use ground::{Fade, Ground, PathLoss, Trace, fade_db};
pub use propagation::{Link, Links, Passage, PassageKind, Propagation, SignalLoss, error_rate};
pub use statistics::{ChannelStatistics, StationStatistics};

/// A station of a [`Medium`], by the order in which it was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StationId(pub usize);

#[cfg(test)]
mod hidden_tests;
#[cfg(test)]
mod tests;
