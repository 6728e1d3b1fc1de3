//! IPv4 addresses inside IPv6 addresses (RFC 6052 section 2.2).
//!
//! ```text
//!  bits 0        32     40     48     56     64 72    80     88     96    104         127
//!  /32  | prefix | IPv4 address               |u | suffix                              |
//!  /40  | prefix        | IPv4 address        |u |...| suffix                          |
//!  /96  | prefix                                           | IPv4 address              |
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

/// A prefix into which IPv4 addresses are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: Ipv6Addr,
    length: u8,
}

impl Prefix {
    /// The lengths that there are.
    pub const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

    /// The prefix of the first `length` bits of `address`; `None` if there is no such length.
    pub fn new(address: Ipv6Addr, length: u8) -> Option<Self> {
        let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let address = Ipv6Addr::from_bits(address.to_bits() & kept);
        Self::LENGTHS.contains(&length).then_some(Self { address, length })
    }

    /// Its address, with zeros behind the prefix.
    pub const fn address(self) -> Ipv6Addr {
        self.address
    }

    /// Its length in bits.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// The IPv6 form of an IPv4 address.
    pub fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.address.octets();
        for (at, octet) in positions(self.length).zip(address.octets()) {
            if let Some(place) = octets.get_mut(at) {
                *place = octet;
            }
        }
        Ipv6Addr::from(octets)
    }

    /// The IPv4 address in `address`; `None` if it does not have this prefix.
    pub fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let found = embedded(address, self.length);
        // What is not written by `embed` must be as it writes it, but for the suffix.
        let bits = u32::from(self.length);
        let same = (address.to_bits() ^ self.address.to_bits()).leading_zeros() >= bits;
        let reserved = self.length == 96 || address.octets()[8] == 0;
        (same && reserved).then_some(found)
    }

    /// The prefix under which `address` holds one of `known`, the longest first (RFC 7050 section 3).
    pub fn around(address: Ipv6Addr, known: &[Ipv4Addr]) -> Option<Self> {
        let holds = |length: u8| {
            known.contains(&embedded(address, length)) && (length == 96 || address.octets()[8] == 0)
        };
        let length = Self::LENGTHS.into_iter().find(|length| holds(*length))?;
        Self::new(address, length)
    }
}

fn embedded(address: Ipv6Addr, length: u8) -> Ipv4Addr {
    let octets = address.octets();
    let mut found = [0; 4];
    for (octet, at) in found.iter_mut().zip(positions(length)) {
        *octet = octets.get(at).copied().unwrap_or(0);
    }
    Ipv4Addr::from(found)
}

/// Where the four octets of the IPv4 address stand, leaving out octet 8.
fn positions(length: u8) -> impl Iterator<Item = usize> {
    (usize::from(length / 8)..16).filter(move |at| *at != 8 || length == 96).take(4)
}
