//! BIP: management frames to groups, signed with AES-CMAC (IEEE 802.11-2020 section 12.5.4).

use aes::Aes128;
use cmac::{Cmac, Mac};
use zeroize::Zeroizing;

use crate::frame::Header;

/// The management MIC element (section 9.4.2.54), which ends the frame: key number 2, packet number 6, signature 8.
const ELEMENT: u8 = 76;
const BODY_LENGTH: usize = 16;
const MIC_LENGTH: usize = 8;

/// A key in use.
pub struct Key {
    key: Zeroizing<[u8; 16]>,
    number: u16,
    received: u64,
}

impl Key {
    /// A fresh key with its number (4 or 5) and the last packet number that its sender has used.
    pub fn new(key: &[u8; 16], number: u16, received: u64) -> Self {
        Self { key: Zeroizing::new(*key), number, received }
    }

    /// Whether it is the same key.
    pub fn is(&self, key: &[u8; 16]) -> bool {
        *self.key == *key
    }

    /// Whether a frame's body is signed with this key and newer than all before it.
    pub fn verify(&mut self, header: &Header, body: &[u8]) -> bool {
        let Some((rest, element)) = body.split_last_chunk::<{ 2 + BODY_LENGTH }>() else { return false };
        let [ELEMENT, length, a, b, p0, p1, p2, p3, p4, p5, mic @ ..] = element else { return false };
        let number = u64::from_le_bytes([*p0, *p1, *p2, *p3, *p4, *p5, 0, 0]);
        if usize::from(*length) != BODY_LENGTH
            || u16::from_le_bytes([*a, *b]) != self.number
            || number <= self.received
        {
            return false;
        }
        let mut control = header.control;
        control.retry = false;
        control.power_save = false;
        control.more_data = false;
        let mut cmac = Cmac::<Aes128>::new((&*self.key).into());
        cmac.update(&control.to_bytes());
        for address in [header.receiver, header.transmitter, header.third] {
            cmac.update(&address.0);
        }
        cmac.update(rest);
        cmac.update(&element[..2 + BODY_LENGTH - MIC_LENGTH]);
        cmac.update(&[0; MIC_LENGTH]);
        if cmac.verify_truncated_left(mic).is_err() {
            return false;
        }
        self.received = number;
        true
    }
}
