//! Addresses as the bond has them: one form for all kinds of adapters.
//!
//! A Bluetooth device address becomes an IPv6 address of the prefix for packets that lead nowhere (`100::/64`, RFC 6666), so that it is
//! never taken for one of an IP network, nor sent to one.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use units::MacAddress;
use wire::peer::PeerAddress;

/// What addresses of an adapter's socket are of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Family {
    V4,
    V6,
    Bluetooth,
}

impl Family {
    pub(super) const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Bluetooth];

    pub(super) fn of(address: SocketAddr) -> Self {
        match (address, device_of(address)) {
            (_, Some(_)) => Self::Bluetooth,
            (SocketAddr::V4(_), None) => Self::V4,
            (SocketAddr::V6(_), None) => Self::V6,
        }
    }
}

/// The bond's form of an address.
pub(super) fn of(address: PeerAddress) -> SocketAddr {
    match address {
        PeerAddress::Ip(address) => address,
        PeerAddress::Bluetooth { device, port } => of_device(device, port),
    }
}

/// The same of a Bluetooth device address.
pub(super) fn of_device(device: MacAddress, port: u16) -> SocketAddr {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&PREFIX);
    octets[8..10].copy_from_slice(&MARK);
    octets[10..].copy_from_slice(&device.0);
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(octets)), port)
}

/// The address of that form.
pub(super) fn told(address: SocketAddr) -> PeerAddress {
    match device_of(address) {
        Some(device) => PeerAddress::Bluetooth { device, port: address.port() },
        None => PeerAddress::Ip(address),
    }
}

/// The Bluetooth device address of that form, if it is one.
pub(super) fn device_of(address: SocketAddr) -> Option<MacAddress> {
    let IpAddr::V6(address) = address.ip() else { return None };
    let (prefix, rest) =
        address.octets().split_first_chunk::<8>().map(|(prefix, rest)| (*prefix, rest.to_vec()))?;
    let device = rest.strip_prefix(&MARK).filter(|_| prefix == PREFIX)?;
    device.try_into().ok().map(MacAddress)
}

const PREFIX: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
const MARK: [u8; 2] = *b"bt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_comes_back() {
        for (text, family) in [
            ("192.0.2.1:80", Family::V4),
            ("[2001:db8::1]:80", Family::V6),
            ("[100::1]:80", Family::V6),
            ("bt:00:11:22:33:44:55:4610", Family::Bluetooth),
        ] {
            let address: PeerAddress = text.parse().unwrap();
            assert_eq!((told(of(address)), Family::of(of(address))), (address, family));
        }
    }
}
