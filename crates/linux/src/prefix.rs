//! Address prefixes such as `10.0.0.0/8`.

pub use units::{IpPrefix, PrefixError};
