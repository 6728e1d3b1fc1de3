//! A clean error for applications whose packets cannot go anywhere: ICMP "no route" (RFC 792, RFC 4443 section 3.1).
//!
//! ```text
//!  IP header, from the packet's destination to its source
//! +--------+--------+-----------------+
//! | type   | code   | checksum        |
//! +--------+--------+-----------------+
//! |             unused                |
//! +-----------------------------------+
//! | as much of the packet as fits ... |
//! ```

/// The answer to `packet`; `None` if it must not be answered (RFC 1122 section 3.2.2, RFC 4443 section 2.4): an ICMP
/// error, a later fragment, multicast, or no packet at all.
pub fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    match packet.first()? >> 4 {
        4 => answer_v4(packet),
        6 => answer_v6(packet),
        _ => None,
    }
}

fn answer_v4(packet: &[u8]) -> Option<Vec<u8>> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let header_length = usize::from(header[0] & 0x0f) * 4;
    let later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let icmp_error = header[9] == ICMP && !matches!(packet.get(header_length)?, ECHO_REQUEST_V4);
    if later_fragment || icmp_error || header[16] >= FIRST_MULTICAST_V4 {
        return None;
    }
    let quoted = packet.get(..packet.len().min(header_length + QUOTED_V4))?;
    let length = u16::try_from(IPV4_HEADER + ICMP_HEADER + quoted.len()).ok()?;
    let mut bytes = vec![0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, TTL, ICMP, 0, 0]);
    bytes.extend_from_slice(&header[16..20]);
    bytes.extend_from_slice(&header[12..16]);
    put_checksum(&mut bytes, 0, 10, 0);
    bytes.extend([UNREACHABLE_V4, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(quoted);
    put_checksum(&mut bytes, IPV4_HEADER, 2, 0);
    Some(bytes)
}

fn answer_v6(packet: &[u8]) -> Option<Vec<u8>> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let icmp_error = header[6] == ICMPV6 && packet.get(40)? & INFORMATIONAL_V6 == 0;
    if icmp_error || header[24] == MULTICAST_V6 {
        return None;
    }
    let quoted = packet.get(..packet.len().min(MINIMUM_MTU_V6 - IPV6_HEADER - ICMP_HEADER))?;
    let length = u16::try_from(ICMP_HEADER + quoted.len()).ok()?;
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([ICMPV6, TTL]);
    bytes.extend_from_slice(&header[24..40]);
    bytes.extend_from_slice(&header[8..24]);
    bytes.extend([UNREACHABLE_V6, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(quoted);
    let pseudo_header = sum(&header[8..40]) + u32::from(length) + u32::from(ICMPV6);
    put_checksum(&mut bytes, IPV6_HEADER, 2, pseudo_header);
    Some(bytes)
}

/// Writes the checksum of everything from `start` on at `start + offset` (RFC 1071).
fn put_checksum(bytes: &mut [u8], start: usize, offset: usize, pseudo_header: u32) {
    let mut total = sum(bytes.get(start..).unwrap_or_default()) + pseudo_header;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    if let Some(field) = bytes.get_mut(start + offset..start + offset + 2) {
        field.copy_from_slice(&(!(total as u16)).to_be_bytes());
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    whole + rest.first().map_or(0, |byte| u32::from(*byte) << 8)
}

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const ICMP_HEADER: usize = 8;
const MINIMUM_MTU_V6: usize = 1_280;
/// RFC 1812 section 4.3.2.3 allows more; 64 bytes hold every header that matters to a socket.
const QUOTED_V4: usize = 64;
const TTL: u8 = 64;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const UNREACHABLE_V4: u8 = 3;
const UNREACHABLE_V6: u8 = 1;
const ECHO_REQUEST_V4: &u8 = &8;
const INFORMATIONAL_V6: u8 = 0x80;
const FIRST_MULTICAST_V4: u8 = 224;
const MULTICAST_V6: u8 = 0xff;

#[cfg(test)]
mod tests {
    use super::*;

    fn udp_v4() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 192, 0, 2, 1];
        packet.extend([1; 12]);
        packet
    }

    fn udp_v6() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
        packet.extend([0xfd; 16]);
        packet.extend([0x20; 16]);
        packet.extend([1; 12]);
        packet
    }

    #[test]
    fn answers_go_back_and_their_checksums_are_right() {
        let v4 = answer(&udp_v4()).unwrap();
        assert_eq!((&v4[12..16], &v4[16..20]), (&[192, 0, 2, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!((v4[20], v4[21], &v4[28..]), (3, 0, &udp_v4()[..]));
        assert_eq!(folded(sum(&v4[..20])), 0xffff);
        assert_eq!(folded(sum(&v4[20..])), 0xffff);

        let v6 = answer(&udp_v6()).unwrap();
        assert_eq!((&v6[8..24], &v6[24..40]), (&[0x20; 16][..], &[0xfd; 16][..]));
        assert_eq!((v6[40], v6[41], &v6[48..]), (1, 0, &udp_v6()[..]));
        let pseudo_header = sum(&v6[8..40]) + (v6.len() as u32 - 40) + 58;
        assert_eq!(folded(sum(&v6[40..]) + pseudo_header), 0xffff);
    }

    fn folded(mut total: u32) -> u32 {
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total
    }

    #[test]
    fn errors_fragments_multicast_and_nonsense_are_not_answered() {
        for packet in
            [answer(&udp_v4()).unwrap(), answer(&udp_v6()).unwrap(), vec![], vec![0x45; 19], vec![0x60; 39]]
        {
            assert_eq!(answer(&packet), None, "{packet:?}");
        }
        let with = |packet: Vec<u8>, at: usize, value: u8| {
            let mut packet = packet;
            packet[at] = value;
            answer(&packet)
        };
        assert_eq!(with(udp_v4(), 7, 1), None);
        assert_eq!(with(udp_v4(), 16, 239), None);
        assert_eq!(with(udp_v6(), 24, 0xff), None);
    }
}
