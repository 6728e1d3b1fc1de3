//! The inner packets of the load: each says whose it is and which, and its other bytes follow from that.

use crate::simbed::segment::{FlowAddresses, udp_packet};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// Bytes of one inner packet: what a cable's packet of 1500 bytes carries without being cut, in round figures.
pub(super) const PACKET: usize = 1_400;
/// Bytes of it that are the application's.
pub(super) const PAYLOAD: usize = PACKET - 28;
const BODY: usize = PAYLOAD - Stamp::LENGTH;
const POOL: usize = 1 << 16;

/// Which packet it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// The run of the load that it belongs to.
    pub(super) run: u32,
    /// Which flow it is of.
    pub(super) flow: u32,
    /// Its number in that flow and this run.
    pub(super) number: u64,
}

/// A payload that no source of this load has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a packet arrived with other bytes than it was sent with")]
pub(super) struct Damaged;

/// Random bytes, of which each packet holds a part.
pub(super) struct Pattern(Box<[u8]>);

impl Stamp {
    const LENGTH: usize = 16;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.run.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.flow.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8; Self::LENGTH]) -> Self {
        let all = u128::from_be_bytes(*bytes);
        Self { run: (all >> 96) as u32, flow: (all >> 64) as u32, number: all as u64 }
    }

    /// Where in the pool its body begins: neighbours are far from each other.
    fn offset(self) -> usize {
        let parts = [u64::from(self.run), u64::from(self.flow), self.number];
        let mixed = parts
            .iter()
            .fold(0u64, |mixed, part| (mixed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        (mixed >> 16) as usize % (POOL - BODY)
    }
}

impl Pattern {
    /// The same bytes every time.
    pub(super) fn new() -> Self {
        let mut pool = vec![0; POOL].into_boxed_slice();
        ChaCha20Rng::seed_from_u64(1).fill_bytes(&mut pool);
        Self(pool)
    }

    fn body(&self, stamp: Stamp) -> &[u8] {
        self.0.get(stamp.offset()..).and_then(|from| from.get(..BODY)).unwrap_or_default()
    }

    /// Appends the payload of a packet.
    pub(super) fn put(&self, stamp: Stamp, payload: &mut Vec<u8>) {
        payload.extend_from_slice(&stamp.to_bytes());
        payload.extend_from_slice(self.body(stamp));
    }

    /// The whole inner packet from `flow.local` to `flow.remote`, with the checksums that a kernel would write.
    pub(super) fn packet(&self, stamp: Stamp, flow: FlowAddresses) -> Vec<u8> {
        let mut payload = Vec::with_capacity(PAYLOAD);
        self.put(stamp, &mut payload);
        let mut packet = udp_packet(flow, &payload);
        linux::tun::write_checksum(&mut packet);
        packet
    }

    /// Whose payload this is.
    ///
    /// # Errors
    /// If a single byte is not as it was sent.
    pub(super) fn read(&self, payload: &[u8]) -> Result<Stamp, Damaged> {
        let (head, body) = payload.split_first_chunk().ok_or(Damaged)?;
        let stamp = Stamp::read(head);
        if body == self.body(stamp) { Ok(stamp) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simbed::segment::udp_payload;
    use std::net::{Ipv4Addr, SocketAddrV4};

    const STAMP: Stamp = Stamp { run: 3, flow: 999, number: 70_000_000_001 };

    #[test]
    fn every_byte_counts() {
        let pattern = Pattern::new();
        let mut payload = Vec::new();
        pattern.put(STAMP, &mut payload);
        assert_eq!((payload.len(), pattern.read(&payload)), (PAYLOAD, Ok(STAMP)));
        for at in 0..payload.len() {
            payload[at] ^= 1;
            assert_eq!(pattern.read(&payload), Err(Damaged), "byte {at}");
            payload[at] ^= 1;
        }
        assert_eq!(pattern.read(&payload[..PAYLOAD - 1]), Err(Damaged));
        assert_eq!(pattern.read(&[]), Err(Damaged));
    }

    #[test]
    fn packets_are_whole() {
        let end = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 86, 0, last), port);
        let flow = FlowAddresses { local: end(1, 7), remote: end(2, 9) };
        let pattern = Pattern::new();
        let packet = pattern.packet(STAMP, flow);
        assert_eq!(packet.len(), PACKET);
        assert_eq!(pattern.read(udp_payload(&packet).unwrap()), Ok(STAMP));
        // RFC 768: the sum over pseudo header, header and data, checksum included, is all ones.
        let words = |bytes: &[u8]| -> u32 {
            bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
        };
        let total = words(&packet[12..]) + 17 + (PACKET as u32 - 20);
        assert_eq!((total & 0xffff) + (total >> 16), 0xffff);
    }
}
