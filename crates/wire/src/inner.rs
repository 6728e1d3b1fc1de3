//! Headers of the packets that a bond carries: enough of IPv4, IPv6, TCP and UDP to tell flows apart, to mark congestion and to clamp
//! segment sizes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;

/// A transport 5-tuple; ports are zero where the protocol has none or the packet is a later fragment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// The ECN field of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// The transport does not understand marks.
    #[default]
    NotEct,
    /// ECN-capable, codepoint 1.
    Ect1,
    /// ECN-capable, codepoint 0.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the two low bits of a traffic class octet.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// What the headers of an inner packet say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The flow that it belongs to.
    pub key: FlowKey,
    /// Differentiated services code point.
    pub dscp: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// Bytes behind the transport header; for other protocols, behind the IP header.
    pub payload_len: usize,
    /// TCP flags, zero for others.
    pub tcp_flags: u8,
    /// Where the transport header begins; `None` for a later fragment or an unknown header chain.
    pub transport_offset: Option<usize>,
}

impl Headers {
    /// TCP flag FIN.
    pub const FIN: u8 = 0x01;
    /// TCP flag SYN.
    pub const SYN: u8 = 0x02;
    /// TCP flag RST.
    pub const RST: u8 = 0x04;
    /// TCP flag PSH.
    pub const PSH: u8 = 0x08;
    /// TCP flag ACK.
    pub const ACK: u8 = 0x10;

    /// A TCP segment that carries nothing but an acknowledgement.
    pub const fn is_pure_ack(&self) -> bool {
        self.key.protocol == TCP
            && self.payload_len == 0
            && self.tcp_flags & (Self::SYN | Self::FIN | Self::RST) == 0
            && self.transport_offset.is_some()
    }
}

/// Why bytes are not an inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAPacket {
    /// Neither IPv4 nor IPv6.
    #[error("IP version {0}")]
    Version(u8),
    /// The header says more than there is.
    #[error("shorter than its header says")]
    Truncated,
    /// The header contradicts itself.
    #[error("bad IP header")]
    Header,
}

/// Reads the headers of an IP packet.
///
/// # Errors
/// [`NotAPacket`] if `bytes` are not one whole IPv4 or IPv6 packet.
pub fn parse(bytes: &[u8]) -> Result<Headers, NotAPacket> {
    match bytes.first().ok_or(NotAPacket::Truncated)? >> 4 {
        4 => parse_v4(bytes),
        6 => parse_v6(bytes),
        other => Err(NotAPacket::Version(other)),
    }
}

fn parse_v4(bytes: &[u8]) -> Result<Headers, NotAPacket> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(NotAPacket::Truncated)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header_len < 20 || total_len < header_len {
        return Err(NotAPacket::Header);
    }
    if bytes.len() < total_len {
        return Err(NotAPacket::Truncated);
    }
    let later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let [_, _, _, _, _, _, _, _, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let key = FlowKey {
        source: IpAddr::V4(Ipv4Addr::new(s0, s1, s2, s3)),
        destination: IpAddr::V4(Ipv4Addr::new(d0, d1, d2, d3)),
        protocol,
        source_port: 0,
        destination_port: 0,
    };
    let body = bytes.get(header_len..total_len).ok_or(NotAPacket::Truncated)?;
    Ok(with_transport(key, header[1], body, header_len, later_fragment))
}

fn parse_v6(bytes: &[u8]) -> Result<Headers, NotAPacket> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(NotAPacket::Truncated)?;
    let total_len = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if bytes.len() < total_len {
        return Err(NotAPacket::Truncated);
    }
    let traffic_class = header[0] << 4 | header[1] >> 4;
    let mut source = [0; 16];
    let mut destination = [0; 16];
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..40]);
    let (protocol, offset, later_fragment) = skip_extensions(bytes, header[6], total_len)?;
    let key = FlowKey {
        source: IpAddr::V6(Ipv6Addr::from(source)),
        destination: IpAddr::V6(Ipv6Addr::from(destination)),
        protocol,
        source_port: 0,
        destination_port: 0,
    };
    let body = bytes.get(offset..total_len).ok_or(NotAPacket::Truncated)?;
    Ok(with_transport(key, traffic_class, body, offset, later_fragment))
}

/// Walks IPv6 extension headers: (protocol, offset behind them, whether this is a later fragment).
fn skip_extensions(bytes: &[u8], first: u8, total_len: usize) -> Result<(u8, usize, bool), NotAPacket> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION_OPTIONS: u8 = 60;
    const MAX_EXTENSIONS: usize = 8;
    let mut protocol = first;
    let mut offset = 40;
    for _ in 0..MAX_EXTENSIONS {
        let length = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                8 + 8 * usize::from(*bytes.get(offset + 1).ok_or(NotAPacket::Truncated)?)
            }
            FRAGMENT => 8,
            _ => return Ok((protocol, offset, false)),
        };
        let extension = bytes.get(offset..offset + length).ok_or(NotAPacket::Truncated)?;
        if offset + length > total_len {
            return Err(NotAPacket::Truncated);
        }
        let later = protocol == FRAGMENT
            && matches!(extension, [_, _, high, low, ..] if u16::from_be_bytes([*high, *low]) & 0xfff8 != 0);
        protocol = *extension.first().ok_or(NotAPacket::Truncated)?;
        offset += length;
        if later {
            return Ok((protocol, offset, true));
        }
    }
    Err(NotAPacket::Header)
}

fn with_transport(
    mut key: FlowKey,
    traffic_class: u8,
    body: &[u8],
    offset: usize,
    later_fragment: bool,
) -> Headers {
    let mut headers = Headers {
        key,
        dscp: traffic_class >> 2,
        ecn: Ecn::from_bits(traffic_class),
        payload_len: body.len(),
        tcp_flags: 0,
        transport_offset: None,
    };
    if later_fragment {
        return headers;
    }
    match (key.protocol, body) {
        (TCP, [s0, s1, d0, d1, _, _, _, _, _, _, _, _, length, flags, ..]) => {
            key.source_port = u16::from_be_bytes([*s0, *s1]);
            key.destination_port = u16::from_be_bytes([*d0, *d1]);
            headers.tcp_flags = *flags;
            headers.payload_len = body.len().saturating_sub(usize::from(length >> 4) * 4);
            headers.transport_offset = Some(offset);
        }
        (UDP, [s0, s1, d0, d1, _, _, _, _, ..]) => {
            key.source_port = u16::from_be_bytes([*s0, *s1]);
            key.destination_port = u16::from_be_bytes([*d0, *d1]);
            headers.payload_len = body.len() - 8;
            headers.transport_offset = Some(offset);
        }
        _ => {}
    }
    headers.key = key;
    headers
}

/// Sets the ECN field of an IP packet to CE and mends the IPv4 checksum. Returns whether the packet could be marked: one
/// that is not ECN-capable is left alone.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    let version = packet.first().map(|byte| byte >> 4);
    match (version, packet) {
        (Some(4), [_, traffic_class, _, _, _, _, _, _, _, _, c0, c1, ..]) => {
            if Ecn::from_bits(*traffic_class) == Ecn::NotEct {
                return false;
            }
            let before = u16::from(*traffic_class);
            *traffic_class |= 3;
            let checksum = u16::from_be_bytes([*c0, *c1]);
            let mended = replace_in_checksum(checksum, before, u16::from(*traffic_class));
            [*c0, *c1] = mended.to_be_bytes();
            true
        }
        (Some(6), [_, second, ..]) => {
            if Ecn::from_bits(*second >> 4) == Ecn::NotEct {
                return false;
            }
            *second |= 0x30;
            true
        }
        _ => false,
    }
}

/// Lowers the maximum segment size of a TCP SYN to `limit` and mends the checksum. Returns whether it changed anything.
pub fn clamp_segment_size(packet: &mut [u8], headers: &Headers, limit: u16) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    let Some(offset) = headers.transport_offset else { return false };
    if headers.key.protocol != TCP || headers.tcp_flags & Headers::SYN == 0 {
        return false;
    }
    let Some(segment) = packet.get_mut(offset..) else { return false };
    let Some(header_len) = segment.get(12).map(|byte| usize::from(byte >> 4) * 4) else { return false };
    let mut at = 20;
    while at < header_len {
        let Some(&[kind, length]) = segment.get(at..at + 2).and_then(|bytes| bytes.first_chunk()) else {
            return false;
        };
        match kind {
            END => return false,
            NO_OPERATION => at += 1,
            MAXIMUM_SEGMENT_SIZE if length == 4 => return lower_segment_size(segment, at + 2, limit),
            _ if length < 2 => return false,
            _ => at += usize::from(length),
        }
    }
    false
}

fn lower_segment_size(segment: &mut [u8], at: usize, limit: u16) -> bool {
    let Some(&field) = segment.get(at..).and_then(|bytes| bytes.first_chunk::<2>()) else { return false };
    let announced = u16::from_be_bytes(field);
    if announced <= limit {
        return false;
    }
    let Some(&checksum) = segment.get(16..).and_then(|bytes| bytes.first_chunk::<2>()) else { return false };
    // An option at an odd offset contributes with its bytes exchanged.
    let (before, after) =
        if at.is_multiple_of(2) { (announced, limit) } else { (announced.swap_bytes(), limit.swap_bytes()) };
    let mended = replace_in_checksum(u16::from_be_bytes(checksum), before, after);
    if let Some(place) = segment.get_mut(at..at + 2) {
        place.copy_from_slice(&limit.to_be_bytes());
    }
    if let Some(place) = segment.get_mut(16..18) {
        place.copy_from_slice(&mended.to_be_bytes());
    }
    true
}

/// RFC 1624 equation 3: HC' = ~(~HC + ~m + m').
const fn replace_in_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    let mut sum = !checksum as u32 + !before as u32 + after as u32;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn syn_v4() -> Vec<u8> {
        let mut packet = vec![0x45, 0x02, 0, 44, 0, 1, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9];
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend_from_slice(&[
            0x30, 0x39, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 0x02, 1, 0, 0, 0, 0, 0,
        ]);
        packet.extend_from_slice(&[2, 4, 0x05, 0xb4]);
        let sum = checksum(&packet[20..]);
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn reads_a_syn() {
        let headers = parse(&syn_v4()).unwrap();
        assert_eq!(headers.key.source_port, 12_345);
        assert_eq!(headers.key.destination_port, 443);
        assert_eq!(headers.payload_len, 0);
        assert_eq!(headers.ecn, Ecn::Ect0);
        assert!(!headers.is_pure_ack());
    }

    #[test]
    fn marking_keeps_the_checksum_right() {
        let mut packet = syn_v4();
        assert!(mark_ce(&mut packet));
        assert_eq!(checksum(&packet[..20]), 0);
        assert_eq!(parse(&packet).unwrap().ecn, Ecn::Ce);
        packet[1] = 0;
        assert!(!mark_ce(&mut packet));
    }

    #[test]
    fn clamping_keeps_the_checksum_right() {
        let mut packet = syn_v4();
        let headers = parse(&packet).unwrap();
        assert!(clamp_segment_size(&mut packet, &headers, 1_388));
        assert_eq!(checksum(&packet[20..]), 0);
        assert_eq!(packet[42..44], 1_388u16.to_be_bytes());
        assert!(!clamp_segment_size(&mut packet, &headers, 1_400));
    }

    #[test]
    fn reads_ipv6_behind_extensions() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 60, 64];
        packet.extend_from_slice(&[0xfd; 16]);
        packet.extend_from_slice(&[0x20; 16]);
        packet.extend_from_slice(&[UDP, 0, 1, 4, 0, 0, 0, 0]);
        packet.extend_from_slice(&[0, 53, 0x13, 0x88, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let headers = parse(&packet).unwrap();
        assert_eq!((headers.key.protocol, headers.key.source_port, headers.payload_len), (UDP, 53, 8));
        for cut in 0..packet.len() {
            assert!(parse(&packet[..cut]).is_err());
        }
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut packet = syn_v4();
        packet[6..8].copy_from_slice(&100u16.to_be_bytes());
        let headers = parse(&packet).unwrap();
        assert_eq!((headers.key.source_port, headers.transport_offset), (0, None));
    }
}
