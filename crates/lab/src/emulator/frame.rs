//! An Ethernet frame on an emulated link.

use sim::LinkPacket;
use units::Bytes;

/// Bytes of an Ethernet header; a link's rate and queue count what is behind it.
const ETHERNET_HEADER_BYTES: usize = 14;

/// A whole frame.
pub(super) struct Frame(pub(super) Vec<u8>);

impl LinkPacket for Frame {
    fn link_bytes(&self) -> Bytes {
        Bytes(self.0.len().saturating_sub(ETHERNET_HEADER_BYTES) as u64)
    }

    fn mark_congestion(&mut self) -> bool {
        match (self.0.get(12..ETHERNET_HEADER_BYTES), self.0.len()) {
            (Some([0x08, 0x00] | [0x86, 0xdd]), 34..) => {
                wire::inner::mark_ce(&mut self.0[ETHERNET_HEADER_BYTES..])
            }
            _ => false,
        }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
