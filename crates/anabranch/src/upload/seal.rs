//! Sealed chunks, and authenticators of frames.
//!
//! ```text
//! sealed chunk = nonce (12) | ChaCha20-Poly1305(key of the chunk, nonce, chunk; transfer | number)
//! ```
//!
//! A chunk is sealed whenever it is sent, and the file may have been changed in between. So the nonce is made from the contents: HMAC-SHA256 over number and plaintext. Two
//! contents of one chunk have different nonces but by chance of 2^-96 for each pair, and each chunk has a key of its own, so there are few pairs.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use wire::upload::roles::KEY_LEN;
use wire::upload::{AUTHENTICATOR_LEN, AirHeader, Chunk, Transfer};

use super::air::MAX_FRAME;

/// Bytes that sealing adds.
pub(super) const SEAL_LEN: usize = NONCE_LEN + 16;

/// Seals the chunks of one transfer.
pub(super) struct ChunkKey {
    key: hmac::Key,
    transfer: Transfer,
}

impl ChunkKey {
    pub(super) fn new(key: &[u8; KEY_LEN], transfer: Transfer) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), transfer }
    }

    /// `None` only if the cryptography fails.
    pub(super) fn seal(&self, chunk: Chunk, plain: &[u8]) -> Option<Vec<u8>> {
        let tag = self.derive(b"nonce", chunk, plain);
        let nonce: [u8; NONCE_LEN] = tag.as_ref().first_chunk().copied()?;
        let mut sealed = Vec::with_capacity(plain.len() + SEAL_LEN);
        sealed.extend(nonce);
        let mut body = plain.to_vec();
        let (key, associated) = (self.key_of(chunk)?, self.associated(chunk));
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(associated), &mut body).ok()?;
        sealed.extend(body);
        Some(sealed)
    }

    /// The chunk; `None` if this is not how it was sealed.
    pub(super) fn open(&self, chunk: Chunk, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut body = body.to_vec();
        let (key, associated) = (self.key_of(chunk)?, self.associated(chunk));
        let plain = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(associated), &mut body);
        let length = plain.ok()?.len();
        body.truncate(length);
        Some(body)
    }

    fn key_of(&self, chunk: Chunk) -> Option<LessSafeKey> {
        let key = self.derive(b"chunk", chunk, &[]);
        UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).ok().map(LessSafeKey::new)
    }

    fn derive(&self, purpose: &[u8; 5], chunk: Chunk, plain: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(purpose);
        context.update(&self.associated(chunk));
        context.update(plain);
        context.sign()
    }

    fn associated(&self, chunk: Chunk) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.transfer.0.to_be_bytes());
        bytes[8..].copy_from_slice(&chunk.0.to_be_bytes());
        bytes
    }
}

/// Tells frames of a transfer from strangers'.
pub(super) struct AirKey(hmac::Key);

impl AirKey {
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// A frame for the air: header, sealed chunk, authenticator.
    pub(super) fn frame(&self, header: &AirHeader, sealed: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(MAX_FRAME);
        header.put(&mut frame);
        frame.extend_from_slice(sealed);
        let authenticator = self.authenticator(&frame);
        frame.extend(authenticator);
        frame
    }

    fn authenticator(&self, frame: &[u8]) -> [u8; AUTHENTICATOR_LEN] {
        let mut short = [0; AUTHENTICATOR_LEN];
        let tag = hmac::sign(&self.0, frame);
        for (short, byte) in short.iter_mut().zip(tag.as_ref()) {
            *short = *byte;
        }
        short
    }

    pub(super) fn accepts(&self, frame: &[u8], authenticator: &[u8; AUTHENTICATOR_LEN]) -> bool {
        // In constant time, or a forger could find it byte by byte.
        let differences = self
            .authenticator(frame)
            .iter()
            .zip(authenticator)
            .fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(differences) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_chunk_of_the_same_transfer_opens() {
        let key = ChunkKey::new(&[7; 32], Transfer(1));
        let sealed = key.seal(Chunk(3), b"contents").unwrap();
        assert_eq!(sealed.len(), 8 + SEAL_LEN);
        assert_eq!(key.open(Chunk(3), &sealed).as_deref(), Some(&b"contents"[..]));
        assert_eq!(key.open(Chunk(4), &sealed), None);
        assert_eq!(ChunkKey::new(&[7; 32], Transfer(2)).open(Chunk(3), &sealed), None);
        assert_eq!(ChunkKey::new(&[8; 32], Transfer(1)).open(Chunk(3), &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(Chunk(3), &changed), None, "byte {at}");
        }
        assert_eq!(key.open(Chunk(3), &sealed[..20]), None);
    }

    #[test]
    fn contents_that_differ_have_nonces_that_differ() {
        let key = ChunkKey::new(&[7; 32], Transfer(1));
        let nonce = |chunk: u32, plain: &[u8]| key.seal(Chunk(chunk), plain).unwrap()[..NONCE_LEN].to_vec();
        assert_eq!(nonce(1, b"a"), nonce(1, b"a"));
        assert_ne!(nonce(1, b"a"), nonce(1, b"b"));
        assert_ne!(nonce(1, b"a"), nonce(2, b"a"));
    }

    #[test]
    fn a_frame_of_a_stranger_is_told() {
        let key = AirKey::new(&[1; 32]);
        let authenticator = key.authenticator(b"frame");
        assert!(key.accepts(b"frame", &authenticator));
        assert!(!key.accepts(b"frames", &authenticator));
        assert!(!AirKey::new(&[2; 32]).accepts(b"frame", &authenticator));
    }
}
