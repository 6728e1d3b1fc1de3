//! Keys of a session: one pair for each epoch, and what seals and opens packets with them.

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::time::Duration;
use units::{PathId, Timestamp};
use wire::datagram::{FEATURE_AES_256_GCM, TAG_LEN};
use zeroize::Zeroizing;

/// A long-term public key: the identity of a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in &self.0[..4] {
            write!(formatter, "{byte:02x}")?;
        }
        write!(formatter, "..")
    }
}

/// A long-term private key. Wiped from memory when dropped, never printed.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl PrivateKey {
    /// A private key from its bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PrivateKey(..)")
    }
}

/// Raw keys of both directions, as they come out of a handshake.
pub(crate) struct RawKeys {
    pub(crate) send: Zeroizing<[u8; 32]>,
    pub(crate) receive: Zeroizing<[u8; 32]>,
}

/// A packet that cannot be opened: forged, damaged, or for another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("packet is not authentic")]
pub(crate) struct NotAuthentic;

/// What packets of a session are sealed with, in all its epochs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cipher {
    /// RFC 8439. Fast everywhere.
    ChaCha20Poly1305,
    /// NIST SP 800-38D. Three times as fast where the processor has instructions for it, slow elsewhere.
    Aes256Gcm,
}

impl Cipher {
    /// The cipher that two ends use which agreed on `features`.
    pub(crate) fn of(features: u16) -> Self {
        if features & FEATURE_AES_256_GCM == 0 { Self::ChaCha20Poly1305 } else { Self::Aes256Gcm }
    }

    fn key(self, bytes: &[u8; 32]) -> Option<LessSafeKey> {
        let algorithm = match self {
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Self::Aes256Gcm => &AES_256_GCM,
        };
        UnboundKey::new(algorithm, bytes).ok().map(LessSafeKey::new)
    }
}

/// One epoch's keys.
struct Epoch {
    number: u8,
    send: LessSafeKey,
    receive: LessSafeKey,
    /// Packets sealed with it.
    sealed: u64,
    since: Timestamp,
}

/// The keys of a session: the epoch that is sent with, the one before it, and one agreed but not yet confirmed.
pub(crate) struct SessionKeys {
    cipher: Cipher,
    current: Epoch,
    previous: Option<Epoch>,
    /// Responder's side of a rekey: used to send once the peer has used it.
    next: Option<Epoch>,
}

/// A new handshake is due after this many packets: AES-GCM's limit for the longest that there are (RFC 9001 section B.1.1: 2^28 for up to
/// 2^11 bytes, less in proportion to the square of the length for longer ones). ChaCha20-Poly1305 would allow far more.
pub const REKEY_AFTER_PACKETS: u64 = 1 << 24;
/// A new handshake is due after this time.
pub const REKEY_AFTER: Duration = Duration::from_secs(600);
/// The keys of the epoch before are kept this long for late packets.
const KEEP_PREVIOUS: Duration = Duration::from_secs(20);

impl SessionKeys {
    pub(crate) fn new(now: Timestamp, cipher: Cipher, raw: &RawKeys) -> Option<Self> {
        Some(Self { cipher, current: Epoch::new(now, cipher, 0, raw)?, previous: None, next: None })
    }

    /// The epoch that is sent with.
    pub(crate) fn epoch(&self) -> u8 {
        self.current.number
    }

    pub(crate) fn rekey_due(&self, now: Timestamp) -> bool {
        self.current.sealed >= REKEY_AFTER_PACKETS || now >= self.rekey_at()
    }

    pub(crate) fn rekey_at(&self) -> Timestamp {
        self.current.since + REKEY_AFTER
    }

    /// Initiator of a rekey: the new keys are used to send at once.
    pub(crate) fn advance(&mut self, now: Timestamp, raw: &RawKeys) {
        if let Some(next) = Epoch::new(now, self.cipher, self.current.number.wrapping_add(1), raw) {
            self.previous = Some(std::mem::replace(&mut self.current, next));
            self.next = None;
        }
    }

    /// Responder of a rekey: the new keys are used once the peer has used them.
    pub(crate) fn prepare(&mut self, now: Timestamp, raw: &RawKeys) {
        self.next = Epoch::new(now, self.cipher, self.current.number.wrapping_add(1), raw);
    }

    /// Forgets the keys of the epoch before once no late packet can need them.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        if now >= self.current.since + KEEP_PREVIOUS {
            self.previous = None;
        }
    }

    /// Seals `buffer[plain_from..]` in place with `buffer[header_from..plain_from]` as header, and appends the tag.
    pub(crate) fn seal(
        &mut self,
        path: PathId,
        number: u64,
        header_from: usize,
        plain_from: usize,
        buffer: &mut Vec<u8>,
    ) {
        self.current.sealed += 1;
        let (head, plain) = buffer.split_at_mut(plain_from);
        let header = head.get(header_from..).unwrap_or_default();
        // Sealing fails only for inputs of over 256 GiB.
        if let Ok(tag) =
            self.current.send.seal_in_place_separate_tag(nonce(path, number), Aad::from(header), plain)
        {
            buffer.extend_from_slice(tag.as_ref());
        }
    }

    /// Opens `sealed` in place; `epoch_bits` are the low two bits of the epoch it was sealed in.
    pub(crate) fn open<'a>(
        &mut self,
        now: Timestamp,
        epoch_bits: u8,
        path: PathId,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic> {
        let matches = |epoch: &&Epoch| epoch.number & 3 == epoch_bits;
        let known = Some(&self.current).filter(matches);
        let known = known.or(self.next.as_ref().filter(matches));
        let known = known.or(self.previous.as_ref().filter(matches)).ok_or(NotAuthentic)?;
        let number_of_epoch = known.number;
        let plain_len = sealed.len().checked_sub(TAG_LEN).ok_or(NotAuthentic)?;
        known
            .receive
            .open_in_place(nonce(path, number), Aad::from(header), sealed)
            .map_err(|_| NotAuthentic)?;
        if self.next.as_ref().is_some_and(|next| next.number == number_of_epoch) {
            self.confirm_next(now);
        }
        sealed.get_mut(..plain_len).ok_or(NotAuthentic)
    }

    fn confirm_next(&mut self, now: Timestamp) {
        if let Some(mut next) = self.next.take() {
            next.since = now;
            self.previous = Some(std::mem::replace(&mut self.current, next));
        }
    }
}

impl Epoch {
    fn new(now: Timestamp, cipher: Cipher, number: u8, raw: &RawKeys) -> Option<Self> {
        let (send, receive) = (cipher.key(&raw.send)?, cipher.key(&raw.receive)?);
        Some(Self { number, send, receive, sealed: 0, since: now })
    }
}

/// 96 bits: the path, then the packet number. Numbers never restart while a key lives, paths are never reused under it.
fn nonce(path: PathId, number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3] = path.0;
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(cipher: Cipher) -> (SessionKeys, SessionKeys) {
        let raw = |send: u8, receive: u8| RawKeys {
            send: Zeroizing::new([send; 32]),
            receive: Zeroizing::new([receive; 32]),
        };
        let now = Timestamp::ZERO;
        let keys = |raw: RawKeys| SessionKeys::new(now, cipher, &raw).unwrap();
        (keys(raw(1, 2)), keys(raw(2, 1)))
    }

    fn send(keys: &mut SessionKeys, number: u64) -> Vec<u8> {
        let mut buffer = b"headplain".to_vec();
        keys.seal(PathId(1), number, 0, 4, &mut buffer);
        buffer
    }

    #[test]
    fn opens_only_what_was_sealed() {
        for cipher in [Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm] {
            opens_only_what_was_sealed_with(cipher);
        }
        let (mut left, _) = pair(Cipher::ChaCha20Poly1305);
        let (_, mut right) = pair(Cipher::Aes256Gcm);
        let mut packet = send(&mut left, 5);
        let (header, sealed) = packet.split_at_mut(4);
        assert_eq!(right.open(Timestamp::ZERO, 0, PathId(1), 5, header, sealed), Err(NotAuthentic));
    }

    fn opens_only_what_was_sealed_with(cipher: Cipher) {
        let (mut left, mut right) = pair(cipher);
        let now = Timestamp::ZERO;
        let packet = send(&mut left, 5);
        let open = |keys: &mut SessionKeys, path, number, flip: Option<usize>| {
            let mut copy = packet.clone();
            if let Some(at) = flip {
                copy[at] ^= 1;
            }
            let (header, sealed) = copy.split_at_mut(4);
            keys.open(now, 0, path, number, header, sealed).map(|plain| plain.to_vec())
        };
        assert_eq!(open(&mut right, PathId(1), 5, None), Ok(b"plain".to_vec()));
        assert_eq!(open(&mut right, PathId(2), 5, None), Err(NotAuthentic));
        assert_eq!(open(&mut right, PathId(1), 6, None), Err(NotAuthentic));
        // Reflected to its sender.
        assert_eq!(open(&mut left, PathId(1), 5, None), Err(NotAuthentic));
        for at in 0..packet.len() {
            assert_eq!(open(&mut right, PathId(1), 5, Some(at)), Err(NotAuthentic), "byte {at}");
        }
    }

    #[test]
    fn rekeying_keeps_late_packets_readable() {
        let (mut left, mut right) = pair(Cipher::Aes256Gcm);
        let now = Timestamp::from_millis(1);
        let late = send(&mut left, 1);
        let raw = RawKeys { send: Zeroizing::new([3; 32]), receive: Zeroizing::new([4; 32]) };
        let mirrored = RawKeys { send: Zeroizing::new([4; 32]), receive: Zeroizing::new([3; 32]) };
        right.prepare(now, &mirrored);
        assert_eq!(right.epoch(), 0, "the responder waits for the initiator to use the key");
        left.advance(now, &raw);
        let fresh = send(&mut left, 2);
        let mut open = |packet: &[u8], number, epoch| {
            let mut copy = packet.to_vec();
            let (header, sealed) = copy.split_at_mut(4);
            right.open(now, epoch, PathId(1), number, header, sealed).map(|plain| plain.to_vec())
        };
        assert_eq!(open(&fresh, 2, 1), Ok(b"plain".to_vec()));
        assert_eq!(open(&late, 1, 0), Ok(b"plain".to_vec()));
        assert_eq!(right.epoch(), 1);
        right.forget_old(now + KEEP_PREVIOUS);
        let mut copy = late.clone();
        let (header, sealed) = copy.split_at_mut(4);
        assert_eq!(right.open(now, 0, PathId(1), 1, header, sealed), Err(NotAuthentic));
    }
}
