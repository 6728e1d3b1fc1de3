//! PURE. Newtypes for time, sizes, rates, ids and address prefixes shared by every crate.
#![forbid(unsafe_code)]

mod prefix;
mod rate;
mod time;
mod wireless;

pub use prefix::{IpPrefix, PrefixError};
pub use rate::{BitRate, Bytes};
pub use time::Timestamp;
pub use wireless::{Frequency, MacAddress, MacAddressError, Ssid};

use std::fmt;

/// A network of this host: one way out (an interface, an access point, a modem).
///
/// Assigned by whoever watches the networks; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkId(pub u32);

/// A path of a bond: one network to one remote address. Never reused under one key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathId(pub u8);

impl fmt::Display for NetworkId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "network {}", self.0)
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "path {}", self.0)
    }
}
