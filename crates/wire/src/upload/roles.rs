//! What the programs of an upload say to each other beside the messages of the transfer itself: who takes part, and how it ends.
//!
//! ```text
//! file         58 | transfer (8) | length of the file (8) | bytes of a chunk (2) | SHA-256 of the file (32) | key of the chunks (32) | key of the air (32) | signature (64) | name    source to destination
//! ready        59 | transfer (8) | last (1) | stored: runs                                             destination to source
//! join         5a                                                                                      neighbour to destination
//! transfer     5b | transfer (8) | source (32) | key of the air (32) | chunks (4) | bytes of a chunk (2) | signature (64)    destination to neighbour
//! taking       5c | transfer (8) | repeats (1)                                                         neighbour to destination
//! over         5d | transfer (8) | end (1) | reason                                                    anybody
//! shares       5e | transfer (8) | own chunks (4) | count (1) | count times (neighbour (32) | chunks (4))    destination to source
//! ```
//!
//! Name and reason are the rest of their message, UTF-8. What is stored may take several `ready`; the last one says so. The signature is the source's over [`signed`]: the destination cannot make neighbours carry for
//! somebody who asked for nothing.

use super::{Chunk, MAX_MEMBERS, Offer, Runs, Transfer, check_offer, put_head, put_runs, runs};
use crate::cursor::{Malformed, Reader};

/// Longest name or reason, bytes.
pub const MAX_TEXT: usize = 1_000;
/// Bytes of a key.
pub const KEY_LEN: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;
/// The purpose of a source's signature.
pub const SIGNED_FOR: &str = "upload transfer";

const FILE: u8 = 0x58;
const READY: u8 = 0x59;
const JOIN: u8 = 0x5a;
const TRANSFER: u8 = 0x5b;
const TAKING: u8 = 0x5c;
const OVER: u8 = 0x5d;
const SHARES: u8 = 0x5e;

/// A file that a source has, and the keys of its transfer.
#[derive(Clone, PartialEq, Eq)]
pub struct FileOffer {
    /// The transfer, and the file's size.
    pub offer: Offer,
    /// SHA-256 of the file.
    pub hash: [u8; 32],
    /// Seals the chunks; for the destination alone.
    pub chunk_key: [u8; KEY_LEN],
    /// Authenticates frames; for the neighbours too.
    pub air_key: [u8; KEY_LEN],
    /// The source's, over [`signed`].
    pub signature: [u8; SIGNATURE_LEN],
    /// The file's name.
    pub name: String,
}

/// A transfer that a neighbour may take part in.
#[derive(Clone, PartialEq, Eq)]
pub struct TransferOffer {
    /// Its number.
    pub transfer: Transfer,
    /// The public key of the source.
    pub source: [u8; KEY_LEN],
    /// Authenticates frames.
    pub air_key: [u8; KEY_LEN],
    /// Chunks of the file.
    pub chunks: u32,
    /// Bytes of a chunk, unsealed.
    pub chunk_length: u16,
    /// The source's, over [`signed`].
    pub signature: [u8; SIGNATURE_LEN],
}

/// How a transfer has ended, or a part in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The file is stored and verified.
    Stored,
    /// The destination had the same file already.
    Same,
    /// It does not go on; the reason says why.
    Failed,
}

/// Who has carried how much, as the destination counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// The transfer.
    pub transfer: Transfer,
    /// Chunks by the source's own uplink.
    pub own: u32,
    /// Neighbours by their public keys.
    pub neighbours: Vec<([u8; KEY_LEN], u32)>,
}

/// Any of these messages.
#[derive(Clone, PartialEq, Eq)]
pub enum RoleMessage {
    /// A source has a file.
    File(Box<FileOffer>),
    /// The destination takes it, and has these chunks of it; whether that is all of them.
    Ready(Transfer, bool, Runs),
    /// A neighbour offers its uplink.
    Join,
    /// There is something to carry.
    Transfer(Box<TransferOffer>),
    /// The neighbour takes part; whether it repeats on the air what others do not hear.
    Taking(Transfer, bool),
    /// A transfer has ended, or the sender's part in it.
    Over(Transfer, End, String),
    /// Who has carried how much.
    Shares(Shares),
}

/// What a source signs: by its key, that a destination may have this carried.
pub fn signed(
    transfer: Transfer,
    destination: &[u8; KEY_LEN],
    air_key: &[u8; KEY_LEN],
    chunks: u32,
    chunk_length: u16,
) -> Vec<u8> {
    let numbers = [&transfer.0.to_be_bytes()[..], &chunks.to_be_bytes(), &chunk_length.to_be_bytes()];
    [&numbers.concat()[..], destination, air_key].concat()
}

impl RoleMessage {
    /// The message's bytes. What is beyond a bound is left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::File(file) => {
                put_head(&mut bytes, FILE, file.offer.transfer);
                bytes.extend(file.offer.length.to_be_bytes());
                bytes.extend(file.offer.chunk_length.to_be_bytes());
                for part in [&file.hash[..], &file.chunk_key, &file.air_key, &file.signature] {
                    bytes.extend(part);
                }
                put_text(&mut bytes, &file.name);
            }
            Self::Ready(transfer, last, stored) => {
                put_head(&mut bytes, READY, *transfer);
                bytes.push(u8::from(*last));
                put_runs(&mut bytes, stored);
            }
            Self::Join => bytes.push(JOIN),
            Self::Transfer(told) => {
                put_head(&mut bytes, TRANSFER, told.transfer);
                bytes.extend(told.source);
                bytes.extend(told.air_key);
                bytes.extend(told.chunks.to_be_bytes());
                bytes.extend(told.chunk_length.to_be_bytes());
                bytes.extend(told.signature);
            }
            Self::Taking(transfer, repeats) => {
                put_head(&mut bytes, TAKING, *transfer);
                bytes.push(u8::from(*repeats));
            }
            Self::Over(transfer, end, reason) => {
                put_head(&mut bytes, OVER, *transfer);
                bytes.push(match end {
                    End::Stored => 0,
                    End::Same => 1,
                    End::Failed => 2,
                });
                put_text(&mut bytes, reason);
            }
            Self::Shares(shares) => {
                put_head(&mut bytes, SHARES, shares.transfer);
                bytes.extend(shares.own.to_be_bytes());
                let neighbours =
                    shares.neighbours.get(..shares.neighbours.len().min(MAX_MEMBERS)).unwrap_or_default();
                bytes.push(neighbours.len() as u8);
                for (key, chunks) in neighbours {
                    bytes.extend(key);
                    bytes.extend(chunks.to_be_bytes());
                }
            }
        }
        bytes
    }

    /// Whether bytes begin as one of these messages.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|kind| (FILE..=SHARES).contains(kind))
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if kind == JOIN {
            return if reader.is_empty() { Ok(Self::Join) } else { Err(Malformed::Field("length")) };
        }
        if !(FILE..=SHARES).contains(&kind) {
            return Err(Malformed::UnknownType(kind));
        }
        let transfer = Transfer(u64::from_be_bytes(reader.array()?));
        let message = match kind {
            FILE => {
                let (length, chunk_length) = (u64::from_be_bytes(reader.array()?), reader.u16()?);
                let offer = Offer { transfer, length, chunk_length };
                check_offer(&offer)?;
                return Ok(Self::File(Box::new(FileOffer {
                    offer,
                    hash: reader.array()?,
                    chunk_key: reader.array()?,
                    air_key: reader.array()?,
                    signature: reader.array()?,
                    name: text(reader.rest())?,
                })));
            }
            READY => {
                let last = flag(&mut reader, "last")?;
                Self::Ready(transfer, last, runs(&mut reader)?)
            }
            TRANSFER => Self::Transfer(Box::new(TransferOffer {
                transfer,
                source: reader.array()?,
                air_key: reader.array()?,
                chunks: reader.u32()?,
                chunk_length: reader.u16()?,
                signature: reader.array()?,
            })),
            TAKING => Self::Taking(transfer, flag(&mut reader, "repeats")?),
            OVER => {
                let end = match reader.u8()? {
                    0 => End::Stored,
                    1 => End::Same,
                    2 => End::Failed,
                    _ => return Err(Malformed::Field("end")),
                };
                return Ok(Self::Over(transfer, end, text(reader.rest())?));
            }
            _ => {
                let (own, count) = (reader.u32()?, usize::from(reader.u8()?));
                if count > MAX_MEMBERS {
                    return Err(Malformed::Field("shares"));
                }
                let mut neighbours = Vec::with_capacity(count);
                for _ in 0..count {
                    neighbours.push((reader.array()?, reader.u32()?));
                }
                Self::Shares(Shares { transfer, own, neighbours })
            }
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed::Field("length")) }
    }
}

impl FileOffer {
    /// The last chunk and how many bytes it has; `None` of an empty file.
    pub fn last_chunk(&self) -> Option<(Chunk, u16)> {
        let last = self.offer.chunks()?.checked_sub(1)?;
        let before = u64::from(last) * u64::from(self.offer.chunk_length);
        Some((Chunk(last), u16::try_from(self.offer.length.checked_sub(before)?).ok()?))
    }
}

fn flag(reader: &mut Reader<'_>, name: &'static str) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::Field(name)),
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes.extend(text.as_bytes().get(..end).unwrap_or_default());
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let text = str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_TEXT);
    text.map(str::to_owned).ok_or(Malformed::Field("text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<RoleMessage> {
        let transfer = Transfer(7);
        let runs = Runs::of_chunks(&[Chunk(3), Chunk(4)]).0;
        vec![
            RoleMessage::File(Box::new(FileOffer {
                offer: Offer { transfer, length: 2_801, chunk_length: 1_400 },
                hash: [1; 32],
                chunk_key: [2; 32],
                air_key: [3; 32],
                signature: [4; 64],
                name: "näme".to_owned(),
            })),
            RoleMessage::Ready(transfer, true, runs),
            RoleMessage::Join,
            RoleMessage::Transfer(Box::new(TransferOffer {
                transfer,
                source: [5; 32],
                air_key: [6; 32],
                chunks: 3,
                chunk_length: 1_400,
                signature: [7; 64],
            })),
            RoleMessage::Taking(transfer, false),
            RoleMessage::Over(transfer, End::Failed, "disk full".to_owned()),
            RoleMessage::Shares(Shares { transfer, own: 3, neighbours: vec![([8; 32], 5)] }),
        ]
    }

    #[test]
    fn every_message_comes_back_and_no_cut_is_taken_for_a_whole() {
        for message in messages() {
            let bytes = message.encode();
            assert!(RoleMessage::is_one(&bytes) && RoleMessage::parse(&bytes) == Ok(message.clone()));
            let ends_with_text = matches!(message, RoleMessage::File(_) | RoleMessage::Over(..));
            let fixed = if ends_with_text { bytes.len() - 9 } else { bytes.len() };
            for cut in 0..fixed {
                assert!(RoleMessage::parse(&bytes[..cut]) != Ok(message.clone()), "cut at {cut}");
            }
            if !ends_with_text {
                assert!(RoleMessage::parse(&[&bytes[..], &[0]].concat()).is_err());
            }
        }
    }

    #[test]
    fn texts_are_bounded_and_text() {
        let over = |reason: &str| RoleMessage::Over(Transfer(1), End::Same, reason.to_owned()).encode();
        assert_eq!(over(&"ä".repeat(MAX_TEXT)).len(), 10 + MAX_TEXT);
        assert!(RoleMessage::parse(&[over("").as_slice(), &[b'a'; MAX_TEXT + 1]].concat()).is_err());
        assert!(RoleMessage::parse(&[over("").as_slice(), &[0xff]].concat()).is_err());
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        let RoleMessage::File(mut file) = messages().remove(0) else { panic!("no file") };
        assert_eq!(file.last_chunk(), Some((Chunk(2), 1)));
        file.offer.length = 2_800;
        assert_eq!(file.last_chunk(), Some((Chunk(1), 1_400)));
        file.offer.length = 0;
        assert_eq!(file.last_chunk(), None);
    }
}
