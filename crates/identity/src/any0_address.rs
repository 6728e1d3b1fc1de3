//! The any0 addresses by which neighbours know a device, worked out from its key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ring::digest;
use units::IpPrefix;

use crate::PublicKey;

/// The /64 of all neighbours' IPv6 addresses.
pub const PREFIX_V6: Ipv6Addr = Ipv6Addr::new(0xfdab, 0x51ab, 0x51ab, 6, 0, 0, 0, 0);
/// The /16 of all neighbours' IPv4 addresses.
pub const PREFIX_V4: Ipv4Addr = Ipv4Addr::new(10, 254, 0, 0);
/// Everybody's address on any0.
pub const BROADCAST_V4: Ipv4Addr = Ipv4Addr::new(10, 254, 255, 255);

/// Both prefixes.
pub fn prefixes() -> Vec<IpPrefix> {
    [(IpAddr::V4(PREFIX_V4), 16), (IpAddr::V6(PREFIX_V6), 64)]
        .into_iter()
        .filter_map(|(address, length)| IpPrefix::new(address, length).ok())
        .collect()
}

/// The IPv6 address that belongs to a key: 64 bits of its hash. Nobody else can have it who does not have such a key.
pub fn v6_of(key: PublicKey) -> Ipv6Addr {
    let hash = hash(key);
    let host = hash.as_ref().first_chunk().map_or(1, |bytes| u64::from_be_bytes(*bytes).max(1));
    Ipv6Addr::from(u128::from(PREFIX_V6) | u128::from(host))
}

/// The IPv4 address that a device takes unless one is configured. 16 bits of the key's hash: two devices may have the same.
pub fn v4_of(key: PublicKey) -> Ipv4Addr {
    let hash = hash(key);
    let host = hash.as_ref().last_chunk().map_or(1, |bytes| u16::from_be_bytes(*bytes));
    // Neither the first, which is the network's, nor the last, which is everybody's.
    Ipv4Addr::from(u32::from(PREFIX_V4) | u32::from(host % 0xfffe + 1))
}

/// Whether a device may say that this is its address.
pub fn may_be_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    [first, second] == [10, 254] && address != PREFIX_V4 && address != BROADCAST_V4
}

fn hash(key: PublicKey) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"anabranch neighbour address 1");
    context.update(&key.0);
    context.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_keys_own_and_within_the_prefixes() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..=255 {
            let key = PublicKey([seed; 32]);
            assert_eq!(v6_of(key).segments()[..4], PREFIX_V6.segments()[..4]);
            assert!(seen.insert(v6_of(key)));
            assert!(may_be_v4(v4_of(key)), "{}", v4_of(key));
        }
        for foreign in ["8.8.8.8", "10.254.0.0", "10.254.255.255", "10.255.0.1"] {
            assert!(!may_be_v4(foreign.parse().unwrap()), "{foreign}");
        }
        assert_eq!(prefixes().len(), 2);
    }
}
