//! From a passphrase to the keys of one association (IEEE 802.11-2020 sections 12.7.1 and J.4).

use std::fmt;
use std::num::NonZeroU32;

use aes::Aes128;
use cmac::{Cmac, Mac};
use ring::{hmac, pbkdf2};
use thiserror::Error;
use units::MacAddress;
use zeroize::Zeroizing;

use crate::frame::KeyManagement;

/// Rounds of PBKDF2 (IEEE 802.11-2020 section J.4.1).
const ROUNDS: NonZeroU32 = NonZeroU32::new(4_096).unwrap();

/// Why a text is no passphrase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PassphraseError {
    /// Of a wrong length.
    #[error("a Wi-Fi passphrase has 8 to 63 characters, or 64 hexadecimal digits; this one has {0}")]
    Length(usize),
    /// A character that passphrases cannot have.
    #[error("a Wi-Fi passphrase has only printable ASCII characters")]
    Character,
    /// 64 characters that are not all hexadecimal digits.
    #[error("64 characters are a key only if all are hexadecimal digits; a passphrase has at most 63")]
    Hexadecimal,
}

/// The secret of a network; never shown.
#[derive(Clone)]
pub struct Passphrase(Secret);

#[derive(Clone)]
enum Secret {
    Text(Zeroizing<String>),
    Key(Zeroizing<[u8; 32]>),
}

impl Passphrase {
    /// Takes 8 to 63 printable characters, or a key of 64 hexadecimal digits.
    ///
    /// # Errors
    /// Anything else.
    pub fn new(text: &str) -> Result<Self, PassphraseError> {
        if !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(PassphraseError::Character);
        }
        match text.len() {
            8..=63 => Ok(Self(Secret::Text(Zeroizing::new(text.to_owned())))),
            64 => {
                let mut key = Zeroizing::new([0; 32]);
                for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    let value =
                        |digit: u8| char::from(digit).to_digit(16).ok_or(PassphraseError::Hexadecimal);
                    *byte = (value(digits[0])? << 4 | value(digits[1])?) as u8;
                }
                Ok(Self(Secret::Key(key)))
            }
            other => Err(PassphraseError::Length(other)),
        }
    }

    /// The key that all members of a network of this name share (PMK). Takes some milliseconds: keep it.
    pub fn shared_key(&self, ssid: &[u8]) -> SharedKey {
        match &self.0 {
            Secret::Key(key) => SharedKey(key.clone()),
            Secret::Text(text) => {
                let mut key = Zeroizing::new([0; 32]);
                pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, ROUNDS, ssid, text.as_bytes(), key.as_mut_slice());
                SharedKey(key)
            }
        }
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Passphrase")
    }
}

/// The key that all members of a network share (PMK); never shown.
#[derive(Clone)]
pub struct SharedKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for SharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKey")
    }
}

/// Who takes part in a handshake, and with which random numbers.
pub(super) struct Parties {
    pub access_point: MacAddress,
    pub station: MacAddress,
    pub access_point_nonce: [u8; 32],
    pub station_nonce: [u8; 32],
}

/// The keys of one association (PTK).
pub(super) struct PairKeys {
    /// Signs key frames (KCK).
    pub confirmation: Zeroizing<[u8; 16]>,
    /// Encrypts key data (KEK).
    pub encryption: Zeroizing<[u8; 16]>,
    /// Encrypts frames (TK).
    pub temporal: Zeroizing<[u8; 16]>,
}

impl PairKeys {
    /// Section 12.7.1.3: PRF-384 with SHA-1, or KDF-384 with SHA-256, over both addresses and both random numbers in order.
    pub fn derive(shared: &SharedKey, parties: &Parties, management: KeyManagement) -> Self {
        let mut context = Vec::with_capacity(76);
        let (a, b) = (parties.access_point.0, parties.station.0);
        context.extend_from_slice(&a.min(b));
        context.extend_from_slice(&a.max(b));
        let (a, b) = (parties.access_point_nonce, parties.station_nonce);
        context.extend_from_slice(&a.min(b));
        context.extend_from_slice(&a.max(b));
        let label = b"Pairwise key expansion";
        let keys: Zeroizing<[u8; 48]> = match management {
            KeyManagement::PskSha256 => key_derivation(shared, label, &context),
            _ => pseudo_random(shared, label, &context),
        };
        let part = |from: usize| {
            let mut key = Zeroizing::new([0; 16]);
            key.copy_from_slice(&keys[from..from + 16]);
            key
        };
        Self { confirmation: part(0), encryption: part(16), temporal: part(32) }
    }

    /// The signature of a key frame whose own signature is zero (table 12-10).
    pub fn sign(&self, frame: &[u8], management: KeyManagement) -> [u8; 16] {
        let mut mic = [0; 16];
        if management == KeyManagement::PskSha256 {
            let mut cmac = Cmac::<Aes128>::new((&*self.confirmation).into());
            cmac.update(frame);
            mic.copy_from_slice(&cmac.finalize().into_bytes());
        } else {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.confirmation.as_slice());
            mic.copy_from_slice(&hmac::sign(&key, frame).as_ref()[..16]);
        }
        mic
    }

    /// Opens encrypted key data (RFC 3394); `None` if it was not wrapped with this key.
    pub fn unwrap_data(&self, data: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut open = Zeroizing::new(vec![0; data.len().checked_sub(8)?]);
        aes_kw::KekAes128::from(*self.encryption).unwrap(data, &mut open).ok()?;
        Some(open)
    }
}

/// PRF-n (section 12.7.1.2).
fn pseudo_random<const N: usize>(key: &SharedKey, label: &[u8], context: &[u8]) -> Zeroizing<[u8; N]> {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.0.as_slice());
    let mut output = Zeroizing::new([0; N]);
    for (round, block) in output.chunks_mut(20).enumerate() {
        let mut signer = hmac::Context::with_key(&key);
        for part in [label, &[0], context, &[round as u8]] {
            signer.update(part);
        }
        block.copy_from_slice(&signer.sign().as_ref()[..block.len()]);
    }
    output
}

/// KDF-SHA-256-n (section 12.7.1.6.2).
fn key_derivation<const N: usize>(key: &SharedKey, label: &[u8], context: &[u8]) -> Zeroizing<[u8; N]> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.0.as_slice());
    let mut output = Zeroizing::new([0; N]);
    for (block, round) in output.chunks_mut(32).zip(1u16..) {
        let mut signer = hmac::Context::with_key(&key);
        for part in [&round.to_le_bytes(), label, context, &(N as u16 * 8).to_le_bytes()] {
            signer.update(part);
        }
        block.copy_from_slice(&signer.sign().as_ref()[..block.len()]);
    }
    output
}
