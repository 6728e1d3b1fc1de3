//! What the daemon is asked to change.

use anabranch::control::{NetworkChange, PinRequest};

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// A network's settings, until the daemon ends.
    Network { name: String, change: NetworkChange },
    /// Hold a destination's new flows.
    Pin(PinRequest),
    /// Remove a rule.
    Unpin(String),
    /// A network's share of the shared radio.
    Weight { ssid: String, weight: u16 },
    /// Shut a client out, or withdraw its invitation.
    Revoke(String),
    /// Take everything back, and end.
    Down,
}
