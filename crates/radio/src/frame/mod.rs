//! Frames of IEEE 802.11-2020 (section 9): what they look like, not what they mean.
//!
//! Every reader here takes bytes from the air: bounded, without panics, each fault a [`FrameError`].
//!
//! ```text
//!  2 bytes   2          6           6           6          2          2 (QoS)  8 (protected)
//! +--------+----------+----------+-----------+----------+----------+--------+---------------+------
//! | control| duration | receiver |transmitter| third    | sequence | QoS    | CCMP header   | body
//! +--------+----------+----------+-----------+----------+----------+--------+---------------+------
//! ```

mod bytes;
pub mod data;
pub mod eapol;
mod element;
mod header;
pub mod management;
mod rsn;
mod tim;

pub use element::{Element, Elements, write_element};
pub use header::{FrameControl, Header, Kind, SequenceControl, power_save_poll};
pub use rsn::{Cipher, KeyManagement, RSN_ELEMENT, RobustSecurity};
pub use tim::TrafficMap;

use thiserror::Error;

/// Why bytes are no frame, or none that a station takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// Fewer bytes than the frame's own fields need.
    #[error("a frame ends too early")]
    Truncated,
    /// A protocol version other than 0.
    #[error("a frame of an unknown protocol version")]
    Version,
    /// Four addresses: a frame between access points.
    #[error("a frame between access points")]
    FourAddresses,
    /// A kind of frame for which the reader has no use.
    #[error("another kind of frame than expected")]
    Kind,
    /// A field with a value that the standard does not allow.
    #[error("a frame's field `{0}` has an illegal value")]
    Value(&'static str),
}
