//! The header in front of each packet of a TUN with IFF_VNET_HDR (virtio 1.2 section 5.1.6, legacy byte order).
//!
//! ```text
//!  0         1         2         4         6         8         10
//! +---------+---------+---------+---------+---------+---------+
//! |  flags  |  type   |  header |  size of| checksum| checksum|
//! |         |         |  length | segments| start   | offset  |
//! +---------+---------+---------+---------+---------+---------+
//! ```
//! Numbers are in the host's byte order.

/// Size of the header, in bytes.
pub(super) const LENGTH: usize = 10;

/// What one read from or write to the TUN holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct VirtioHeader {
    pub(super) flags: u8,
    pub(super) kind: u8,
    pub(super) header_length: u16,
    pub(super) segment_size: u16,
    pub(super) checksum_start: u16,
    pub(super) checksum_offset: u16,
}

impl VirtioHeader {
    pub(super) fn read(bytes: &[u8; LENGTH]) -> Self {
        let short = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            kind: bytes[1],
            header_length: short(2),
            segment_size: short(4),
            checksum_start: short(6),
            checksum_offset: short(8),
        }
    }

    pub(super) fn write(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = self.flags;
        bytes[1] = self.kind;
        bytes[2..4].copy_from_slice(&self.header_length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.segment_size.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        bytes
    }
}

/// The checksum field holds the pseudo header's sum only.
pub(super) const NEEDS_CHECKSUM: u8 = 1;
/// One packet, not several.
pub(super) const SINGLE: u8 = 0;
/// TCP over IPv4, to be cut into segments.
pub(super) const TCP_V4: u8 = 1;
/// TCP over IPv6, to be cut into segments.
pub(super) const TCP_V6: u8 = 4;
/// UDP over either, to be cut into datagrams.
pub(super) const UDP_SEGMENTS: u8 = 5;
/// Set beside the kind: the first segment carries CWR.
pub(super) const ECN: u8 = 0x80;
