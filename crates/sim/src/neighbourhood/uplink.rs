//! A home's way to the destination: a queue served at a rate, then a delay. Nothing is lost on it: what rides on it is TCP.

use std::time::Duration;

use units::{BitRate, Bytes, Timestamp};

use super::spec::UplinkSpec;

/// A chunk of the file (`[LINKALIKE] IV`).
pub const CHUNK: Bytes = Bytes(1_400);
/// What sealing adds to a chunk, and the bytes in front of it.
const CHUNK_OVERHEAD: u64 = 16 + wire::upload::CARRIED_HEADER_LEN as u64;
/// A message's length in front of it.
const LENGTH: u64 = 2;
/// TCP segments: so much of each packet of 1,500 bytes is content (RFC 9293 and time stamps, RFC 7323).
const SEGMENT: (u64, u64) = (1_448, 1_500);

/// Bytes on the wire for a message of `length`.
fn on_the_wire(length: u64) -> Bytes {
    Bytes(((length + LENGTH) * SEGMENT.1).div_ceil(SEGMENT.0))
}

/// Bytes on the wire for a chunk: what the bounds reckon with.
pub fn carried_bytes() -> Bytes {
    on_the_wire(CHUNK.0 + CHUNK_OVERHEAD)
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Uplink {
    spec: UplinkSpec,
    free_at: Timestamp,
}

impl Uplink {
    pub(super) const fn new(spec: UplinkSpec) -> Self {
        Self { spec, free_at: Timestamp::ZERO }
    }

    /// Sends a message of `length` bytes; when it arrives.
    pub(super) fn send(&mut self, now: Timestamp, length: usize) -> Timestamp {
        self.send_bytes(now, on_the_wire(length as u64))
    }

    /// Sends a chunk; when it arrives.
    pub(super) fn send_chunk(&mut self, now: Timestamp) -> Timestamp {
        self.send_combination(now, 0)
    }

    /// Sends a combination of chunks with so many coefficients in front of it, and how many those are; a chunk as it is where there are none.
    pub(super) fn send_combination(&mut self, now: Timestamp, coefficients: usize) -> Timestamp {
        let more = if coefficients > 0 { coefficients as u64 + 1 } else { 0 };
        self.send_bytes(now, on_the_wire(CHUNK.0 + CHUNK_OVERHEAD + more))
    }

    /// Whether the socket takes more: it holds back what would only wait.
    pub(super) fn has_room(&self, now: Timestamp) -> bool {
        self.ready_at() <= now
    }

    /// When the socket takes more.
    pub(super) fn ready_at(&self) -> Timestamp {
        self.free_at - self.spec.rate.time_for(carried_bytes()) / 2
    }

    /// The way there and back at this rate, in chunks: what the socket measures.
    pub(super) fn window(&self) -> u32 {
        let way = self.spec.delay * 2 + self.spec.rate.time_for(carried_bytes());
        (self.spec.rate.bytes_in(way).0).div_ceil(carried_bytes().0).max(1) as u32
    }

    pub(super) const fn rate(&self) -> BitRate {
        self.spec.rate
    }

    pub(super) const fn delay(&self) -> Duration {
        self.spec.delay
    }

    fn send_bytes(&mut self, now: Timestamp, bytes: Bytes) -> Timestamp {
        self.free_at = self.free_at.max(now) + self.spec.rate.time_for(bytes);
        self.free_at + self.spec.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_queue_and_the_socket_holds_back() {
        let spec = UplinkSpec { rate: BitRate(800_000), delay: Duration::from_millis(50) };
        let mut uplink = Uplink::new(spec);
        let each = spec.rate.time_for(carried_bytes());
        assert_eq!(uplink.send_chunk(Timestamp::ZERO), Timestamp::ZERO + each + spec.delay);
        assert!(!uplink.has_room(Timestamp::ZERO) && uplink.has_room(Timestamp::ZERO + each / 2));
        assert_eq!(uplink.send_chunk(Timestamp::ZERO), Timestamp::ZERO + each * 2 + spec.delay);
        assert_eq!(uplink.window(), 8, "100 ms and a chunk of 14.8 ms");
    }
}
