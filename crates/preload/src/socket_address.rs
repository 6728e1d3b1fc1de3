//! Addresses as C has them.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// Room for an IPv4 or IPv6 address of C.
pub type Room = [u8; size_of::<sockaddr_in6>()];

/// Reads an address of C; `None` for what is no IP address. One that is IPv4 inside IPv6 is told as IPv4.
///
/// # Safety
/// `address` must be null or point to `length` bytes that can be read.
pub unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller promises so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length as usize) };
    parse(bytes)
}

/// As [`read`], from bytes.
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    if i32::from(family) == AF_INET {
        let port = part(bytes, offset_of!(sockaddr_in, sin_port))?;
        let address: [u8; 4] = part(bytes, offset_of!(sockaddr_in, sin_addr))?;
        return Some(SocketAddr::new(address.into(), u16::from_be_bytes(port)));
    }
    if i32::from(family) != AF_INET6 {
        return None;
    }
    let port = part(bytes, offset_of!(sockaddr_in6, sin6_port))?;
    let address: [u8; 16] = part(bytes, offset_of!(sockaddr_in6, sin6_addr))?;
    let address = Ipv6Addr::from(address).to_canonical();
    Some(SocketAddr::new(address, u16::from_be_bytes(port)))
}

fn part<const N: usize>(bytes: &[u8], from: usize) -> Option<[u8; N]> {
    bytes.get(from..)?.first_chunk().copied()
}

/// An address as C has it, for a socket of IPv6 or IPv4; its length.
pub fn write(address: SocketAddr, ipv6: bool) -> (Room, usize) {
    let mut room = [0; size_of::<sockaddr_in6>()];
    let mut put = |from: usize, bytes: &[u8]| {
        if let Some(place) = room.get_mut(from..from + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(v4) if !ipv6 => {
            put(0, &(AF_INET as u16).to_ne_bytes());
            put(offset_of!(sockaddr_in, sin_port), &port);
            put(offset_of!(sockaddr_in, sin_addr), &v4.octets());
            (room, size_of::<sockaddr_in>())
        }
        ip => {
            let v6 = match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            put(0, &(AF_INET6 as u16).to_ne_bytes());
            put(offset_of!(sockaddr_in6, sin6_port), &port);
            put(offset_of!(sockaddr_in6, sin6_addr), &v6.octets());
            (room, size_of::<sockaddr_in6>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_both_ways_and_short_ones_are_none() {
        for (text, ipv6) in [("10.254.1.2:80", false), ("10.254.1.2:80", true), ("[fdab::1]:443", true)] {
            let address: SocketAddr = text.parse().unwrap();
            let (room, length) = write(address, ipv6);
            assert_eq!(parse(&room[..length]), Some(address), "{text}");
            for short in 0..8 {
                assert_eq!(parse(&room[..short]), None);
            }
        }
        assert_eq!(parse(&(libc::AF_UNIX as u16).to_ne_bytes()), None);
    }
}
