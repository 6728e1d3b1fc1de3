//! Address prefixes such as `10.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An address and the number of leading bits that count.
///
/// The bits behind the prefix are kept, so that it can also say "this address in that subnet"; see
/// [`IpPrefix::network`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct IpPrefix {
    address: IpAddr,
    length: u8,
}

/// Why a text or pair is not a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PrefixError {
    /// The address part could not be read.
    #[error("\"{0}\" is not an address with a prefix length, such as 10.0.0.0/8 or fd00::/64")]
    Syntax(String),
    /// More bits than the address has.
    #[error("prefix length {length} is too large for {address}")]
    Length {
        /// The address.
        address: IpAddr,
        /// The length that was asked for, in bits.
        length: u8,
    },
}

impl IpPrefix {
    /// Every IPv4 address.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 };
    /// Every IPv6 address.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length: 0 };

    /// `address/length`.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, PrefixError> {
        if length > bits(address) {
            return Err(PrefixError::Length { address, length });
        }
        Ok(Self { address, length })
    }

    /// The prefix that holds `address` alone.
    pub const fn host(address: IpAddr) -> Self {
        Self { address, length: bits(address) }
    }

    /// The address, with the bits behind the prefix.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Number of leading bits that count.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The same prefix with the bits behind it cleared.
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask_v4(self.length))),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask_v6(self.length))),
        };
        Self { address, length: self.length }
    }

    /// Whether `address` lies in it.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()) & mask_v4(self.length) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()) & mask_v6(self.length) == 0
            }
            _ => false,
        }
    }

    /// Whether every address of `other` lies in it.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Whether it is an IPv4 prefix.
    pub const fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }
}

const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask_v4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask_v6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(syntax)?;
        let address = address.parse().map_err(|_| syntax())?;
        Self::new(address, length.parse().map_err(|_| syntax())?)
    }
}

impl TryFrom<String> for IpPrefix {
    type Error = PrefixError;

    fn try_from(text: String) -> Result<Self, PrefixError> {
        text.parse()
    }
}

impl From<IpPrefix> for String {
    fn from(prefix: IpPrefix) -> Self {
        prefix.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_compares_leading_bits_only() {
        let prefix: IpPrefix = "10.1.2.3/20".parse().unwrap();
        assert!(prefix.contains("10.1.15.255".parse().unwrap()));
        assert!(!prefix.contains("10.1.16.0".parse().unwrap()));
        assert!(!prefix.contains("::1".parse().unwrap()));
        assert_eq!(prefix.network().to_string(), "10.1.0.0/20");
        assert!(IpPrefix::ALL_V6.contains("2001:db8::1".parse().unwrap()));
        assert!(IpPrefix::host("fd00::1".parse().unwrap()).contains("fd00::1".parse().unwrap()));
    }

    #[test]
    fn covers_what_is_narrower() {
        let prefix = |text: &str| text.parse::<IpPrefix>().unwrap();
        assert!(prefix("10.0.0.0/8").covers(prefix("10.9.0.0/16")));
        assert!(prefix("10.0.0.0/8").covers(prefix("10.0.0.0/8")));
        assert!(!prefix("10.9.0.0/16").covers(prefix("10.0.0.0/8")));
        assert!(!prefix("0.0.0.0/0").covers(prefix("::/0")));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/8", "10.0.0.0/-1", "10.0.0.0/8/8"] {
            assert!(text.parse::<IpPrefix>().is_err(), "{text}");
        }
    }
}
