//! The outer format: what a carrier transports.
//!
//! ```text
//! data           1EEN N000 | receiver index (4) | path id (1) | packet number (1-3) | sealed frames | tag (16)
//! handshake      0x01 | version (1) | features (2) | sender index (4) | Noise message 1 length (2) | Noise message 1
//!                     | retry token length (1) | retry token | mac (16)
//! response       0x02 | version (1) | receiver index (4) | sender index (4) | Noise message 2
//! retry          0x03 | receiver index (4) | retry token (24) | mac (16)
//! reset          0x04 | receiver index that was not known (4) | reset token (16)
//! ```
//!
//! `EE` is the key epoch modulo 4, `NN` the length of the packet number less one. Integers are big-endian.
//!
//! The index of a handshake and those of data stand at fixed places, so that a [`Part`] of a responder is found without a look at the rest.

use crate::cursor::{Malformed, Reader};
use units::PathId;

/// Version of the bond's wire format; both ends must have the same.
pub const VERSION: u8 = 1;
/// Feature of an initiation and its answer: data packets are sealed with AES-256-GCM in place of ChaCha20-Poly1305.
pub const FEATURE_AES_256_GCM: u16 = 1;
/// Bytes of the authentication tag behind sealed frames.
pub const TAG_LEN: usize = 16;
/// Largest data header.
pub const MAX_HEADER_LEN: usize = 9;
/// Bytes of a `mac`.
pub const MAC_LEN: usize = 16;
/// Bytes of a retry token.
pub const RETRY_TOKEN_LEN: usize = 24;
/// Bytes of a reset token.
pub const RESET_TOKEN_LEN: usize = 16;
/// Largest Noise message that is accepted in a handshake.
pub const MAX_NOISE_LEN: usize = 1024;

const TYPE_INITIATION: u8 = 0x01;
const TYPE_RESPONSE: u8 = 0x02;
const TYPE_RETRY: u8 = 0x03;
const TYPE_RESET: u8 = 0x04;

/// The bit of a first byte that tells data from all else.
pub const DATA_BIT: u8 = 0x80;
/// Where the receiver index of data begins.
pub const DATA_INDEX_AT: usize = 1;
/// Where the sender index of a handshake begins.
pub const HANDSHAKE_INDEX_AT: usize = 4;

/// One of several endpoints that have one key and share the sessions among them: index modulo their number.
///
/// A responder's part takes the handshakes whose initiator has chosen such an index, and gives its sessions such indexes itself. Which
/// part that is is the initiator's choice by chance; all messages of one handshake, on whatever carrier, reach the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    number: u32,
    of: u32,
}

impl Part {
    /// The only one.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// All parts of a responder that has `of` (at least one).
    pub fn all(of: u32) -> impl Iterator<Item = Self> {
        let of = of.max(1);
        (0..of).map(move |number| Self { number, of })
    }

    /// Which one it is, from 0.
    pub fn number(self) -> usize {
        self.number as usize
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.of as usize
    }

    /// Whether the sessions with this index are its own.
    pub fn has(self, index: u32) -> bool {
        index % self.of == self.number
    }

    /// The number of the part that a datagram to the responder is for. What is too short to tell is for the first.
    pub fn of_datagram(self, datagram: &[u8]) -> usize {
        let is_data = datagram.first().is_some_and(|first| first & DATA_BIT != 0);
        let at = if is_data { DATA_INDEX_AT } else { HANDSHAKE_INDEX_AT };
        let index = datagram.get(at..).and_then(<[u8]>::first_chunk);
        index.map_or(0, |index| (u32::from_be_bytes(*index) % self.of) as usize)
    }
}

/// A datagram, told apart but not authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram<'a> {
    /// Sealed frames of an established session.
    Data(DataHeader),
    /// First message of a handshake.
    Initiation(Initiation<'a>),
    /// Second message of a handshake.
    Response(Response<'a>),
    /// The responder is under load and wants the initiation again, with this token.
    Retry(Retry),
    /// The sender does not know the session that it was sent a packet of.
    Reset(Reset),
}

/// Header of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// Session, by the number that its receiver gave it.
    pub receiver_index: u32,
    /// Key epoch modulo 4.
    pub epoch: u8,
    /// The path.
    pub path: PathId,
    /// Low bits of the packet number.
    pub truncated_number: u32,
    /// How many bytes of the packet number were sent, 1 to 3.
    pub number_len: u8,
}

impl DataHeader {
    /// Bytes of the header; the sealed frames follow.
    pub const fn len(&self) -> usize {
        6 + self.number_len as usize
    }

    /// A header is never empty.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends the header.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        let length = self.number_len.clamp(1, 3);
        buffer.push(DATA_BIT | (self.epoch & 3) << 5 | (length - 1) << 3);
        buffer.extend_from_slice(&self.receiver_index.to_be_bytes());
        buffer.push(self.path.0);
        let number = self.truncated_number.to_be_bytes();
        buffer.extend_from_slice(number.get(4 - usize::from(length)..).unwrap_or_default());
    }
}

/// How many bytes of `number` to send so that a receiver finds the whole number: eight times the distance to what is known to
/// have arrived must be representable. RFC 9000 section 17.1 asks for twice, which is too little where packets overtake.
pub const fn packet_number_len(number: u64, largest_acked: Option<u64>) -> u8 {
    let distance = match largest_acked {
        Some(acked) => number.saturating_sub(acked),
        None => number + 1,
    };
    match distance {
        0..=0x1f => 1,
        0x20..=0x1fff => 2,
        _ => 3,
    }
}

/// Finds the whole packet number nearest to the one expected (RFC 9000 appendix A.3).
pub const fn expand_packet_number(truncated: u32, length: u8, largest_seen: Option<u64>) -> u64 {
    let window = 1u64 << (8 * length as u32);
    let half = window / 2;
    let expected = match largest_seen {
        Some(seen) => seen + 1,
        None => 0,
    };
    let candidate = (expected & !(window - 1)) | (truncated as u64 & (window - 1));
    if candidate + half <= expected {
        return candidate + window;
    }
    if candidate > expected + half && candidate >= window {
        return candidate - window;
    }
    candidate
}

/// First message of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initiation<'a> {
    /// Wire format version of the initiator.
    pub version: u8,
    /// Optional features that the initiator has; bound into the handshake by its prologue.
    pub features: u16,
    /// Number that the initiator gave the session.
    pub sender_index: u32,
    /// Noise message 1.
    pub noise: &'a [u8],
    /// Token of an earlier retry, or empty.
    pub retry_token: &'a [u8],
    /// Shows that the sender knows the responder's public key.
    pub mac: [u8; MAC_LEN],
}

impl Initiation<'_> {
    /// Appends all but the `mac`, which covers exactly these bytes.
    pub fn put_without_mac(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&[TYPE_INITIATION, self.version]);
        buffer.extend_from_slice(&self.features.to_be_bytes());
        buffer.extend_from_slice(&self.sender_index.to_be_bytes());
        buffer.extend_from_slice(&(self.noise.len() as u16).to_be_bytes());
        buffer.extend_from_slice(self.noise);
        buffer.push(self.retry_token.len() as u8);
        buffer.extend_from_slice(self.retry_token);
    }
}

/// Second message of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// Wire format version of the responder.
    pub version: u8,
    /// Session, by the number that the initiator gave it.
    pub receiver_index: u32,
    /// Number that the responder gave the session.
    pub sender_index: u32,
    /// Noise message 2.
    pub noise: &'a [u8],
}

impl Response<'_> {
    /// Appends the message.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&[TYPE_RESPONSE, self.version]);
        buffer.extend_from_slice(&self.receiver_index.to_be_bytes());
        buffer.extend_from_slice(&self.sender_index.to_be_bytes());
        buffer.extend_from_slice(self.noise);
    }
}

/// A request to repeat the initiation with a token that proves the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// Session, by the number that the initiator gave it.
    pub receiver_index: u32,
    /// The token.
    pub token: [u8; RETRY_TOKEN_LEN],
    /// Covers index and token.
    pub mac: [u8; MAC_LEN],
}

impl Retry {
    /// Appends the message.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        buffer.push(TYPE_RETRY);
        buffer.extend_from_slice(&self.receiver_index.to_be_bytes());
        buffer.extend_from_slice(&self.token);
        buffer.extend_from_slice(&self.mac);
    }
}

/// An authenticated word that a session is not known here (any more).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// The receiver index of the packet that caused it.
    pub unknown_index: u32,
    /// The token that was agreed on when the session began.
    pub token: [u8; RESET_TOKEN_LEN],
}

impl Reset {
    /// Bytes of the message: shorter than any data packet, so resets cannot breed.
    pub const LEN: usize = 5 + RESET_TOKEN_LEN;

    /// Appends the message.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        buffer.push(TYPE_RESET);
        buffer.extend_from_slice(&self.unknown_index.to_be_bytes());
        buffer.extend_from_slice(&self.token);
    }
}

impl<'a> Datagram<'a> {
    /// Tells what `bytes` are.
    ///
    /// # Errors
    /// [`Malformed`] if they follow no format of this version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8()?;
        if first & DATA_BIT != 0 {
            return parse_data(first, reader).map(Datagram::Data);
        }
        match first {
            TYPE_INITIATION => parse_initiation(reader).map(Datagram::Initiation),
            TYPE_RESPONSE => parse_response(reader).map(Datagram::Response),
            TYPE_RETRY => {
                let retry =
                    Retry { receiver_index: reader.u32()?, token: reader.array()?, mac: reader.array()? };
                end(reader)?;
                Ok(Datagram::Retry(retry))
            }
            TYPE_RESET => {
                let reset = Reset { unknown_index: reader.u32()?, token: reader.array()? };
                end(reader)?;
                Ok(Datagram::Reset(reset))
            }
            other => Err(Malformed::UnknownType(other)),
        }
    }
}

fn parse_data(first: u8, mut reader: Reader<'_>) -> Result<DataHeader, Malformed> {
    if first & 0x07 != 0 {
        return Err(Malformed::Field("reserved bits"));
    }
    let number_len = (first >> 3 & 3) + 1;
    if number_len > 3 {
        return Err(Malformed::Field("packet number length"));
    }
    let receiver_index = reader.u32()?;
    let path = PathId(reader.u8()?);
    let truncated_number =
        reader.bytes(usize::from(number_len))?.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
    if reader.rest().len() <= TAG_LEN {
        return Err(Malformed::Truncated);
    }
    Ok(DataHeader { receiver_index, epoch: first >> 5 & 3, path, truncated_number, number_len })
}

fn parse_initiation(mut reader: Reader<'_>) -> Result<Initiation<'_>, Malformed> {
    let version = reader.u8()?;
    let features = reader.u16()?;
    let sender_index = reader.u32()?;
    let noise_len = usize::from(reader.u16()?);
    if noise_len > MAX_NOISE_LEN {
        return Err(Malformed::Field("Noise message length"));
    }
    let noise = reader.bytes(noise_len)?;
    let token_len = usize::from(reader.u8()?);
    if token_len != 0 && token_len != RETRY_TOKEN_LEN {
        return Err(Malformed::Field("retry token length"));
    }
    let retry_token = reader.bytes(token_len)?;
    let mac = reader.array()?;
    end(reader)?;
    Ok(Initiation { version, features, sender_index, noise, retry_token, mac })
}

fn parse_response(mut reader: Reader<'_>) -> Result<Response<'_>, Malformed> {
    let version = reader.u8()?;
    let receiver_index = reader.u32()?;
    let sender_index = reader.u32()?;
    if reader.rest().len() > MAX_NOISE_LEN {
        return Err(Malformed::Field("Noise message length"));
    }
    Ok(Response { version, receiver_index, sender_index, noise: reader.rest() })
}

fn end(reader: Reader<'_>) -> Result<(), Malformed> {
    if reader.is_empty() { Ok(()) } else { Err(Malformed::Field("length")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_header_round_trip_and_bytes() {
        let header = DataHeader {
            receiver_index: 0x0102_0304,
            epoch: 2,
            path: PathId(7),
            truncated_number: 0x0a0b,
            number_len: 2,
        };
        let mut bytes = Vec::new();
        header.put(&mut bytes);
        assert_eq!(bytes, [0xc8, 1, 2, 3, 4, 7, 0x0a, 0x0b]);
        assert_eq!(bytes.len(), header.len());
        bytes.extend_from_slice(&[0; TAG_LEN + 1]);
        assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Data(header)));
    }

    #[test]
    fn all_that_is_said_in_a_session_finds_the_same_part() {
        let parts: Vec<Part> = Part::all(3).collect();
        let mut found = [0; 3];
        for index in [0, 1, 2, 3, 0x8000_0001, u32::MAX] {
            let mut data = Vec::new();
            let (path, epoch) = (PathId(9), 1);
            DataHeader { receiver_index: index, epoch, path, truncated_number: 5, number_len: 1 }
                .put(&mut data);
            let mut hello = Vec::new();
            let (noise, retry_token) = ([7; 40], [8; RETRY_TOKEN_LEN]);
            let initiation = Initiation {
                version: VERSION,
                features: u16::MAX,
                sender_index: index,
                noise: &noise,
                retry_token: &retry_token,
                mac: [0; MAC_LEN],
            };
            initiation.put_without_mac(&mut hello);
            let takers: Vec<usize> =
                parts.iter().filter(|part| part.has(index)).map(|part| part.number()).collect();
            for part in &parts {
                assert_eq!([part.of_datagram(&data), part.of_datagram(&hello)], [takers[0]; 2]);
            }
            assert_eq!(takers.len(), 1);
            found[takers[0]] += 1;
        }
        assert_eq!(found, [4, 1, 1]);
        for short in [&[][..], &[0x80], &[0x80, 0, 0, 7], &[1, 1, 0, 0, 0, 0, 7]] {
            assert_eq!(parts[2].of_datagram(short), 0);
        }
        assert_eq!(Part::all(0).collect::<Vec<_>>(), [Part::WHOLE]);
        assert!(Part::WHOLE.has(u32::MAX));
    }

    #[test]
    fn packet_number_vectors_of_rfc_9000() {
        // Appendix A.3.
        assert_eq!(expand_packet_number(0x9b32, 2, Some(0xa82f30ea)), 0xa82f9b32);
    }

    #[test]
    fn packet_numbers_survive_the_wire() {
        for acked in [None, Some(0u64), Some(200), Some(70_000), Some(16_777_200)] {
            for ahead in [0u64, 1, 30, 31, 32, 100, 8_190, 8_191, 8_192, 30_000, 1_000_000] {
                let number = acked.map_or(0, |largest| largest + 1) + ahead;
                let length = packet_number_len(number, acked);
                let mask = (1u64 << (8 * length)) - 1;
                // The receiver has seen at least what was acknowledged, at most three flights more than this one.
                for seen in [acked, number.checked_sub(1), Some(number + 3 * ahead)] {
                    let whole = expand_packet_number((number & mask) as u32, length, seen);
                    assert_eq!(whole, number, "{acked:?} {ahead} {seen:?}");
                }
            }
        }
    }

    #[test]
    fn handshake_messages_round_trip() {
        let initiation = Initiation {
            version: VERSION,
            features: 3,
            sender_index: 9,
            noise: &[5; 96],
            retry_token: &[6; RETRY_TOKEN_LEN],
            mac: [7; MAC_LEN],
        };
        let mut bytes = Vec::new();
        initiation.put_without_mac(&mut bytes);
        bytes.extend_from_slice(&initiation.mac);
        assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Initiation(initiation)));
        for cut in 0..bytes.len() {
            assert!(Datagram::parse(&bytes[..cut]).is_err());
        }
        let retry = Retry { receiver_index: 1, token: [2; RETRY_TOKEN_LEN], mac: [3; MAC_LEN] };
        let mut bytes = Vec::new();
        retry.put(&mut bytes);
        assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Retry(retry)));
        let reset = Reset { unknown_index: 1, token: [2; RESET_TOKEN_LEN] };
        let mut bytes = Vec::new();
        reset.put(&mut bytes);
        assert_eq!(bytes.len(), Reset::LEN);
        assert_eq!(Datagram::parse(&bytes), Ok(Datagram::Reset(reset)));
    }
}
