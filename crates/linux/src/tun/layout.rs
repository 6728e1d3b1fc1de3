//! Where the headers of a TCP or UDP packet lie, and nothing else.

/// Offsets of a packet that can be split or joined: IPv4 without options or fragments or IPv6 without extension
/// headers, then TCP or UDP, with matching lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) ipv6: bool,
    /// The IP protocol number: 6 or 17.
    pub(super) protocol: u8,
    /// Bytes of IP header.
    pub(super) ip_header: usize,
    /// Bytes of IP and transport header.
    pub(super) headers: usize,
}

impl Layout {
    /// Reads the layout; `None` if the packet is of another form or cut short.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let (ipv6, protocol, ip_header, total) = match packet.first()? >> 4 {
            4 if packet.len() >= IPV4_HEADER => {
                let fragmented = u16_at(packet, 6) & 0x3fff != 0;
                if packet[0] != 0x45 || fragmented {
                    return None;
                }
                (false, packet[9], IPV4_HEADER, usize::from(u16_at(packet, 2)))
            }
            6 if packet.len() >= IPV6_HEADER => {
                (true, packet[6], IPV6_HEADER, IPV6_HEADER + usize::from(u16_at(packet, 4)))
            }
            _ => return None,
        };
        if total != packet.len() {
            return None;
        }
        let transport_header = match protocol {
            TCP if total >= ip_header + TCP_HEADER => usize::from(packet[ip_header + 12] >> 4) * 4,
            UDP if total >= ip_header + UDP_HEADER => UDP_HEADER,
            _ => return None,
        };
        let headers = ip_header + transport_header;
        let valid = match protocol {
            TCP => transport_header >= TCP_HEADER && headers <= total,
            _ => usize::from(u16_at(packet, ip_header + 4)) == total - ip_header,
        };
        valid.then_some(Self { ipv6, protocol, ip_header, headers })
    }

    pub(super) fn is_udp(&self) -> bool {
        self.protocol == UDP
    }

    /// Offset of the checksum inside the transport header.
    pub(super) fn checksum_offset(&self) -> usize {
        if self.is_udp() { 6 } else { 16 }
    }

    /// Offset of the transport checksum in the packet.
    pub(super) fn checksum_at(&self) -> usize {
        self.ip_header + self.checksum_offset()
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
