//! Broadcasts of programs on any0: which packets they are, and how they become the device's own. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::inner::{self, Headers};

use identity::any0_address::BROADCAST_V4;

/// Whether a packet that a program has sent to any0 is for all neighbours: UDP to everybody on the link.
pub fn is_for_all(headers: &Headers) -> bool {
    let to_all = match headers.key.destination {
        IpAddr::V4(address) => address == Ipv4Addr::BROADCAST || address == BROADCAST_V4,
        IpAddr::V6(address) => is_link_group(address),
    };
    to_all && headers.key.protocol == inner::UDP
}

/// Whether a packet that a neighbour with these addresses has sent may be given to programs here.
pub fn may_come_from(packet: &[u8], v6: Ipv6Addr, v4: Option<Ipv4Addr>) -> bool {
    let Ok(headers) = inner::parse(packet) else { return false };
    let own = match headers.key.source {
        IpAddr::V4(source) => Some(source) == v4,
        IpAddr::V6(source) => source == v6,
    };
    own && is_for_all(&headers) && headers.transport_offset.is_some()
}

/// The packet with `source` in place of its own source address, so that neighbours can answer; `None` if it is a fragment, or of
/// the other family.
pub fn from_source(packet: &[u8], source: IpAddr) -> Option<Vec<u8>> {
    let headers = inner::parse(packet).ok()?;
    let udp = headers.transport_offset?;
    let mut bytes = packet.to_vec();
    let pseudo = match (headers.key.source, source, headers.key.destination) {
        (IpAddr::V4(_), IpAddr::V4(source), IpAddr::V4(to)) => {
            bytes.get_mut(12..16)?.copy_from_slice(&source.octets());
            bytes.get_mut(10..12)?.fill(0);
            let length = usize::from(bytes.first()? & 0x0f) * 4;
            let sum = checksum(0, bytes.get(..length)?);
            bytes.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
            add(add(0, &source.octets()), &to.octets())
        }
        (IpAddr::V6(_), IpAddr::V6(source), IpAddr::V6(to)) => {
            bytes.get_mut(8..24)?.copy_from_slice(&source.octets());
            add(add(0, &source.octets()), &to.octets())
        }
        _ => return None,
    };
    let length = usize::from(u16::from_be_bytes(*bytes.get(udp + 4..udp + 6)?.first_chunk()?));
    let end = udp.checked_add(length)?;
    bytes.get_mut(udp + 6..udp + 8)?.fill(0);
    let pseudo = pseudo + u64::from(inner::UDP) + length as u64;
    // Nought would say that there is none (RFC 768).
    let sum = match checksum(pseudo, bytes.get(udp..end)?) {
        0 => u16::MAX,
        sum => sum,
    };
    bytes.get_mut(udp + 6..udp + 8)?.copy_from_slice(&sum.to_be_bytes());
    Some(bytes)
}

/// `ff02::/16`.
fn is_link_group(address: Ipv6Addr) -> bool {
    address.segments()[0] == 0xff02
}

fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    sum + last + pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>()
}

/// RFC 1071.
fn checksum(start: u64, bytes: &[u8]) -> u16 {
    let mut sum = add(start, bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP from 10.255.86.1:1000 to everybody's port 2000 with an odd number of bytes.
    fn packet_v4(to: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 31, 0, 1, 0, 0, 64, 17, 0, 0, 10, 255, 86, 1];
        bytes.extend(to);
        bytes.extend([3, 232, 7, 208, 0, 11, 0, 0, b'a', b'b', b'c']);
        bytes
    }

    fn packet_v6(to: Ipv6Addr) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 11, 17, 1];
        bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        bytes.extend(to.octets());
        bytes.extend([3, 232, 7, 208, 0, 11, 0, 0, b'a', b'b', b'c']);
        bytes
    }

    #[test]
    fn broadcasts_are_told_from_all_else() {
        let is = |packet: &[u8]| is_for_all(&inner::parse(packet).unwrap());
        assert!(is(&packet_v4([255; 4])) && is(&packet_v4([10, 254, 255, 255])));
        assert!(is(&packet_v6("ff02::1".parse().unwrap())));
        assert!(!is(&packet_v4([10, 254, 1, 1])) && !is(&packet_v6("ff0e::1".parse().unwrap())));
        let mut tcp = packet_v4([255; 4]);
        tcp[9] = 6;
        tcp.extend([0; 20]);
        tcp[3] = 51;
        assert!(!inner::parse(&tcp).is_ok_and(|headers| is_for_all(&headers)));
    }

    #[test]
    fn the_source_becomes_our_own_with_right_checksums() {
        let own: Ipv4Addr = [10, 254, 3, 4].into();
        let own_v6: Ipv6Addr = "fdab:51ab:51ab:6::7".parse().unwrap();
        let v4 = from_source(&packet_v4([255; 4]), own.into()).unwrap();
        assert_eq!(checksum(0, &v4[..20]), 0);
        assert_eq!(checksum(add(add(0, &v4[12..16]), &v4[16..20]) + 17 + 11, &v4[20..]), 0);
        let v6 = from_source(&packet_v6("ff02::1".parse().unwrap()), own_v6.into()).unwrap();
        assert_eq!(checksum(add(0, &v6[8..40]) + 17 + 11, &v6[40..]), 0);
        assert!(may_come_from(&v4, own_v6, Some(own)) && may_come_from(&v6, own_v6, None));
        assert!(!may_come_from(&v4, own_v6, None) && !may_come_from(&v6, PREFIX, Some(own)));
        assert!(!may_come_from(&packet_v4([10, 254, 0, 1]), own_v6, Some([10, 255, 86, 1].into())), "to one");
        assert!(from_source(&v4, own_v6.into()).is_none() && from_source(&v6, own.into()).is_none());
        for cut in 0..v6.len() {
            let _ = from_source(&v6[..cut], own_v6.into());
            assert!(!may_come_from(&v6[..cut], own_v6, None) || cut >= 48);
        }
    }

    const PREFIX: Ipv6Addr = identity::any0_address::PREFIX_V6;
}
