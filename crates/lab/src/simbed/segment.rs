//! IPv4 packets with TCP segments and UDP datagrams inside, as real stacks write them. TCP and UDP
//! checksums are zero: nothing in the simulated world reads them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use wire::inner::{TCP, UDP};

/// Bytes of an IPv4 header and of a TCP header with the timestamp option.
pub const TCP_HEADER_BYTES: usize = 20 + 20 + 12;
/// TCP flag SYN.
pub const SYN: u8 = 0x02;
/// TCP flag ACK.
pub const ACK: u8 = 0x10;
/// The receive window travels divided by this (window scale 8).
const WINDOW_UNIT: u64 = 256;

/// Both ends of a flow as its owner sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowAddresses {
    /// This end.
    pub local: SocketAddrV4,
    /// The other end.
    pub remote: SocketAddrV4,
}

impl FlowAddresses {
    /// The same flow as the other end sees it.
    pub fn reversed(self) -> Self {
        Self { local: self.remote, remote: self.local }
    }
}

/// A TCP segment. Sequence numbers start at 0 and do not wrap: a simulated transfer stays under 4 GiB.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// [`SYN`], [`ACK`].
    pub flags: u8,
    /// Number of the first payload byte.
    pub sequence: u64,
    /// Bytes of payload; all zero.
    pub payload_bytes: usize,
    /// Next byte expected from the other end.
    pub acknowledgement: u64,
    /// Bytes that may be sent beyond `acknowledgement`.
    pub window: u64,
    /// Sender's clock, milliseconds.
    pub timestamp: u32,
    /// The timestamp that is answered.
    pub timestamp_echo: u32,
    /// Selective acknowledgement, at most three blocks; the first may report a duplicate.
    pub selective: Vec<Range<u64>>,
}

impl Segment {
    /// The segment as an IPv4 packet from `flow.local` to `flow.remote`.
    pub fn to_packet(&self, flow: FlowAddresses) -> Vec<u8> {
        let blocks = self.selective.len().min(3);
        let option_bytes = 12 + if blocks > 0 { 4 + 8 * blocks } else { 0 };
        let mut packet = ipv4_header(flow, TCP, 20 + option_bytes + self.payload_bytes);
        packet.extend_from_slice(&flow.local.port().to_be_bytes());
        packet.extend_from_slice(&flow.remote.port().to_be_bytes());
        packet.extend_from_slice(&(self.sequence as u32).to_be_bytes());
        packet.extend_from_slice(&(self.acknowledgement as u32).to_be_bytes());
        packet.push((((20 + option_bytes) / 4) << 4) as u8);
        packet.push(self.flags);
        let window = (self.window / WINDOW_UNIT).min(u64::from(u16::MAX)) as u16;
        packet.extend_from_slice(&window.to_be_bytes());
        packet.extend_from_slice(&[0; 4]);
        packet.extend_from_slice(&[1, 1, TIMESTAMP_OPTION, 10]);
        packet.extend_from_slice(&self.timestamp.to_be_bytes());
        packet.extend_from_slice(&self.timestamp_echo.to_be_bytes());
        if blocks > 0 {
            packet.extend_from_slice(&[1, 1, SELECTIVE_OPTION, 2 + 8 * blocks as u8]);
            for block in self.selective.iter().take(blocks) {
                packet.extend_from_slice(&(block.start as u32).to_be_bytes());
                packet.extend_from_slice(&(block.end as u32).to_be_bytes());
            }
        }
        packet.resize(packet.len() + self.payload_bytes, 0);
        packet
    }

    /// Reads a packet that [`Segment::to_packet`] wrote; `None` for anything else.
    pub fn from_packet(packet: &[u8]) -> Option<Self> {
        let headers = wire::inner::parse(packet).ok().filter(|headers| headers.key.protocol == TCP)?;
        let header = packet.get(headers.transport_offset?..)?;
        let number = |at: usize| header.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let header_bytes = usize::from(*header.get(12)? >> 4) * 4;
        let mut segment = Self {
            flags: headers.tcp_flags,
            sequence: u64::from(number(4)?),
            payload_bytes: headers.payload_len,
            acknowledgement: u64::from(number(8)?),
            window: u64::from(number(12)? & 0xffff) * WINDOW_UNIT,
            ..Self::default()
        };
        let mut at = 20;
        while at < header_bytes {
            let (kind, length) = (*header.get(at)?, usize::from(*header.get(at + 1)?));
            match kind {
                1 => {
                    at += 1;
                    continue;
                }
                TIMESTAMP_OPTION => {
                    (segment.timestamp, segment.timestamp_echo) = (number(at + 2)?, number(at + 6)?)
                }
                SELECTIVE_OPTION => {
                    for block in (at + 2..at + length).step_by(8) {
                        segment.selective.push(u64::from(number(block)?)..u64::from(number(block + 4)?));
                    }
                }
                _ => {}
            }
            at += length.max(2);
        }
        Some(segment)
    }
}

/// A UDP datagram as an IPv4 packet from `flow.local` to `flow.remote`.
pub fn udp_packet(flow: FlowAddresses, payload: &[u8]) -> Vec<u8> {
    let mut packet = ipv4_header(flow, UDP, 8 + payload.len());
    packet.extend_from_slice(&flow.local.port().to_be_bytes());
    packet.extend_from_slice(&flow.remote.port().to_be_bytes());
    packet.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0; 2]);
    packet.extend_from_slice(payload);
    packet
}

/// The payload of a UDP packet; `None` for anything else.
pub fn udp_payload(packet: &[u8]) -> Option<&[u8]> {
    let headers = wire::inner::parse(packet).ok().filter(|headers| headers.key.protocol == UDP)?;
    let start = headers.transport_offset? + 8;
    packet.get(start..start + headers.payload_len)
}

/// An IPv4 header in front of `body_bytes` of `protocol`.
fn ipv4_header(flow: FlowAddresses, protocol: u8, body_bytes: usize) -> Vec<u8> {
    let mut packet = Vec::with_capacity(20 + body_bytes);
    packet.extend_from_slice(&[0x45, 0]);
    packet.extend_from_slice(&(20 + body_bytes as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend_from_slice(&flow.local.ip().octets());
    packet.extend_from_slice(&flow.remote.ip().octets());
    let sum: u32 = packet.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded + (folded >> 16)) as u16);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The address of the simulated device.
pub const DEVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);
/// The address of the simulated server in the Internet.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

const TIMESTAMP_OPTION: u8 = 8;
const SELECTIVE_OPTION: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> FlowAddresses {
        FlowAddresses {
            local: SocketAddrV4::new(DEVICE_ADDRESS, 40_000),
            remote: SocketAddrV4::new(SERVER_ADDRESS, 80),
        }
    }

    #[test]
    fn segments_survive_the_wire() {
        let segment = Segment {
            flags: ACK,
            sequence: 1_000_001,
            payload_bytes: 700,
            acknowledgement: 77,
            window: 256 * 40_000,
            timestamp: 123_456,
            timestamp_echo: 654_321,
            selective: vec![2_000..3_000, 5_000..5_001, 9_000..9_500],
        };
        let packet = segment.to_packet(flow());
        assert_eq!(Segment::from_packet(&packet), Some(segment));
        let headers = wire::inner::parse(&packet).unwrap();
        assert_eq!((headers.key.source_port, headers.key.destination_port), (40_000, 80));
    }

    #[test]
    fn datagrams_survive_the_wire() {
        let packet = udp_packet(flow(), b"hello");
        assert_eq!(udp_payload(&packet), Some(&b"hello"[..]));
        assert_eq!(udp_payload(&Segment::default().to_packet(flow())), None);
    }
}
