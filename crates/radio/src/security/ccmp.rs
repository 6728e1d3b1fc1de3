//! CCMP: frames encrypted with AES-CCM (IEEE 802.11-2020 section 12.5.3).
//!
//! ```text
//! +--------+---------------------------------+---------------------+-------+
//! | header | PN0 PN1 0 (key << 6 | 0x20) PN2..PN5 | encrypted body | MIC 8 |
//! +--------+---------------------------------+---------------------+-------+
//! ```

use aes::Aes128;
use ccm::aead::generic_array::GenericArray;
use ccm::aead::{AeadInPlace, KeyInit};
use ccm::consts::{U8, U13};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::frame::{Header, Kind};

const HEADER_LENGTH: usize = 8;
const MIC_LENGTH: usize = 8;
const EXTENDED: u8 = 0x20;
/// Packet numbers have 48 bits; a key is not used beyond them.
const LAST_NUMBER: u64 = (1 << 48) - 1;
/// One counter for each traffic identifier, and one for management frames (section 12.5.3.4.4).
const COUNTERS: usize = 17;

/// Why a frame is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum OpenError {
    /// Shorter than its own header and signature.
    #[error("an encrypted frame ends too early")]
    Truncated,
    /// Not encrypted with CCMP.
    #[error("a frame is encrypted in another way")]
    Cipher,
    /// Its number was used already.
    #[error("a frame was replayed")]
    Replayed,
    /// It was changed, or encrypted with another key.
    #[error("a frame does not fit its signature")]
    Forged,
}

/// A frame that was opened.
#[derive(PartialEq, Eq, Debug)]
pub struct Opened {
    /// What it carries.
    pub body: Vec<u8>,
    /// Its packet number.
    pub number: u64,
}

/// Which key a protected body names, 0 to 3; `None` if it is too short to.
pub fn key_number(body: &[u8]) -> Option<u8> {
    body.get(3).map(|octet| octet >> 6)
}

/// A key in use: the next number to send with, and the last received of each kind.
pub struct Key {
    cipher: ccm::Ccm<Aes128, U8, U13>,
    number: u8,
    key: Zeroizing<[u8; 16]>,
    sent: u64,
    received: [u64; COUNTERS],
}

impl Key {
    /// A fresh key, with its number (0 to 3) and the last packet number that its sender has used.
    pub fn new(key: &[u8; 16], number: u8, received: u64) -> Self {
        Self {
            cipher: ccm::Ccm::new(GenericArray::from_slice(key)),
            number: number & 3,
            key: Zeroizing::new(*key),
            sent: 0,
            received: [received; COUNTERS],
        }
    }

    /// Whether it is the same key: one in use is not installed again, or its numbers would be used twice.
    pub fn is(&self, key: &[u8; 16]) -> bool {
        *self.key == *key
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Appends the CCMP header, the encrypted body and its signature to a frame that holds the header only; `None` when all numbers
    /// are used up.
    pub fn seal(&mut self, header: &Header, body: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        let number = self.sent.checked_add(1).filter(|number| *number <= LAST_NUMBER)?;
        self.sent = number;
        let [p0, p1, p2, p3, p4, p5, ..] = number.to_le_bytes();
        frame.extend_from_slice(&[p0, p1, 0, EXTENDED | self.number << 6, p2, p3, p4, p5]);
        let start = frame.len();
        frame.extend_from_slice(body);
        let (nonce, data) = (nonce(header, number), additional_data(header));
        let tag = self
            .cipher
            .encrypt_in_place_detached(&nonce.into(), data.as_slice(), &mut frame[start..])
            .ok()?;
        frame.extend_from_slice(&tag);
        Some(())
    }

    /// Opens the body of a protected frame.
    ///
    /// # Errors
    /// Frames that are replayed, changed, too short or encrypted otherwise. The counter only moves for a frame that is none of these.
    pub fn open(&mut self, header: &Header, body: &[u8]) -> Result<Opened, OpenError> {
        let (prefix, rest) = body.split_first_chunk::<HEADER_LENGTH>().ok_or(OpenError::Truncated)?;
        let [p0, p1, _, octet, p2, p3, p4, p5] = *prefix;
        if octet & EXTENDED == 0 {
            return Err(OpenError::Cipher);
        }
        let number = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, 0, 0]);
        let counter = counter(header);
        if number <= self.received[counter] {
            return Err(OpenError::Replayed);
        }
        let length = rest.len().checked_sub(MIC_LENGTH).ok_or(OpenError::Truncated)?;
        let (sealed, tag) = rest.split_at(length);
        let mut body = sealed.to_vec();
        let (nonce, data) = (nonce(header, number), additional_data(header));
        let tag = GenericArray::from_slice(tag);
        let opened = self.cipher.decrypt_in_place_detached(&nonce.into(), data.as_slice(), &mut body, tag);
        opened.map_err(|_| OpenError::Forged)?;
        self.received[counter] = number;
        Ok(Opened { body, number })
    }
}

fn counter(header: &Header) -> usize {
    if header.control.kind.is_management() { COUNTERS - 1 } else { header.traffic().into() }
}

/// Section 12.5.3.3.4: priority and kind, transmitter, packet number from its highest byte.
fn nonce(header: &Header, number: u64) -> [u8; 13] {
    let mut nonce = [0; 13];
    nonce[0] = header.traffic() | u8::from(header.control.kind.is_management()) << 4;
    nonce[1..7].copy_from_slice(&header.transmitter.0);
    nonce[7..].copy_from_slice(&number.to_be_bytes()[2..]);
    nonce
}

/// Section 12.5.3.3.3: the header without what may change between attempts.
fn additional_data(header: &Header) -> Vec<u8> {
    let mut control = header.control;
    control.retry = false;
    control.power_save = false;
    control.more_data = false;
    control.protected = true;
    let is_data = control.kind.is_data();
    if is_data && header.qos.is_some() {
        control.order = false;
    }
    let [mut first, flags] = control.to_bytes();
    if is_data {
        // The subtype but for the bit that says QoS.
        first &= if header.qos.is_some() { 0x8f } else { 0x0f };
    }
    let mut data = Vec::with_capacity(24);
    data.extend_from_slice(&[first, flags]);
    for address in [header.receiver, header.transmitter, header.third] {
        data.extend_from_slice(&address.0);
    }
    data.extend_from_slice(&u16::from(header.sequence.fragment).to_le_bytes());
    if header.qos.is_some() && !matches!(header.control.kind, Kind::Other(..)) {
        data.extend_from_slice(&u16::from(header.traffic()).to_le_bytes());
    }
    data
}
