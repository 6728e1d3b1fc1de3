//! Keys of a pair of neighbours, and what is done with them.
//!
//! The X25519 secret of the two identities makes one key for each direction (HKDF-SHA-256); each message has a key of its own,
//! made from that and its salt, so no nonce is ever used twice and nothing on the link tells who speaks to whom.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use wire::neighbour::{NONCE_LEN, SALT_LEN, SEAL_LEN, TAG_LEN};
use wire::short_announcement::{PLACE_LEN, SEALED_PLACE_LEN, SHORT_NONCE_LEN, Served};

use crate::{KeyPair, PublicKey};

/// Seals where one machine serves something for others, into as few bytes as a short announcement has.
#[derive(Clone)]
pub struct PlaceKey(pub(crate) hmac::Key);

impl PlaceKey {
    /// Seals a place: a stream of the key's, and a tag over what comes out.
    pub fn seal(
        &self,
        served: Served,
        nonce: [u8; SHORT_NONCE_LEN],
        place: [u8; PLACE_LEN],
    ) -> [u8; SEALED_PLACE_LEN] {
        let hidden = hide_place(&self.0, served, nonce, place);
        let mut sealed = [0; SEALED_PLACE_LEN];
        let (first, last) = sealed.split_at_mut(PLACE_LEN);
        first.copy_from_slice(&hidden);
        last.copy_from_slice(&place_tag(&self.0, served, nonce, hidden));
        sealed
    }

    /// Opens what was sealed by this key; `None` for all else, but for one in 65,536.
    pub fn open(
        &self,
        served: Served,
        nonce: [u8; SHORT_NONCE_LEN],
        sealed: [u8; SEALED_PLACE_LEN],
    ) -> Option<[u8; PLACE_LEN]> {
        let (hidden, tag) = sealed.split_first_chunk()?;
        let is_ours = place_tag(&self.0, served, nonce, *hidden)[..] == *tag;
        is_ours.then(|| hide_place(&self.0, served, nonce, *hidden))
    }
}

/// What seals to a neighbour and opens what came from it.
pub struct PairKeys {
    out: hmac::Key,
    into: hmac::Key,
}

impl PairKeys {
    /// Of this device and `peer`; `None` for a key that gives no secret.
    pub fn new(own: &KeyPair, peer: PublicKey) -> Option<Self> {
        let secret = own.shared_secret(peer)?;
        let root = hmac::Key::new(hmac::HMAC_SHA256, b"anabranch neighbour keys 1");
        let root = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, secret.as_slice()).as_ref());
        let from_to = |from: PublicKey, to: PublicKey| {
            let names = [&from.0[..], &to.0[..]].concat();
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, &names).as_ref())
        };
        Some(Self { out: from_to(own.public(), peer), into: from_to(peer, own.public()) })
    }

    /// What the neighbour knows a beacon of ours by.
    pub fn tag(&self, nonce: &[u8; NONCE_LEN]) -> [u8; TAG_LEN] {
        tag(&self.out, nonce)
    }

    /// What we know a beacon of the neighbour's by.
    pub fn expected_tag(&self, nonce: &[u8; NONCE_LEN]) -> [u8; TAG_LEN] {
        tag(&self.into, nonce)
    }

    /// What seals for the peer where we serve something.
    pub fn own_place(&self) -> PlaceKey {
        PlaceKey(self.out.clone())
    }

    /// What opens where the peer serves something for us.
    pub fn place(&self) -> PlaceKey {
        PlaceKey(self.into.clone())
    }

    /// Seals a message; `salt` must never be used again.
    pub fn seal(&self, salt: &[u8; SALT_LEN], message: &[u8]) -> Option<Vec<u8>> {
        seal(&self.out, salt, message)
    }

    /// Opens what the neighbour has sealed for us; `None` for all else.
    pub fn open(&self, salt: &[u8; SALT_LEN], sealed: &[u8]) -> Option<Vec<u8>> {
        open(&self.into, salt, sealed)
    }
}

fn tag(key: &hmac::Key, nonce: &[u8; NONCE_LEN]) -> [u8; TAG_LEN] {
    let whole = hmac::sign(key, &[&b"beacon"[..], nonce].concat());
    let mut tag = [0; TAG_LEN];
    tag.copy_from_slice(&whole.as_ref()[..TAG_LEN]);
    tag
}

/// Hides a place, or shows one that was hidden.
fn hide_place(
    key: &hmac::Key,
    served: Served,
    nonce: [u8; SHORT_NONCE_LEN],
    place: [u8; PLACE_LEN],
) -> [u8; PLACE_LEN] {
    let stream = hmac::sign(key, &[&b"place"[..], &served.context(nonce)].concat());
    let mut hidden = place;
    hidden.iter_mut().zip(stream.as_ref()).for_each(|(byte, of_stream)| *byte ^= of_stream);
    hidden
}

fn place_tag(
    key: &hmac::Key,
    served: Served,
    nonce: [u8; SHORT_NONCE_LEN],
    hidden: [u8; PLACE_LEN],
) -> [u8; SEALED_PLACE_LEN - PLACE_LEN] {
    let whole = hmac::sign(key, &[&b"place tag"[..], &served.context(nonce), &hidden].concat());
    let mut tag = [0; SEALED_PLACE_LEN - PLACE_LEN];
    tag.iter_mut().zip(whole.as_ref()).for_each(|(byte, of_whole)| *byte = *of_whole);
    tag
}

/// Seals a message under a key that is made of `key` and a salt that is never used again.
pub(crate) fn seal(key: &hmac::Key, salt: &[u8; SALT_LEN], message: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = message.to_vec();
    message_key(key, salt)?.seal_in_place_append_tag(nonce(), Aad::empty(), &mut bytes).ok()?;
    debug_assert_eq!(bytes.len(), message.len() + SEAL_LEN);
    Some(bytes)
}

/// Opens what [`seal`] has made.
pub(crate) fn open(key: &hmac::Key, salt: &[u8; SALT_LEN], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = sealed.to_vec();
    let length = message_key(key, salt)?.open_in_place(nonce(), Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

fn message_key(key: &hmac::Key, salt: &[u8; SALT_LEN]) -> Option<LessSafeKey> {
    let bytes = hmac::sign(key, &[&b"message"[..], salt].concat());
    UnboundKey::new(&aead::CHACHA20_POLY1305, bytes.as_ref()).ok().map(LessSafeKey::new)
}

/// Each key seals one message.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pair_understands_each_other_and_in_one_direction() {
        let [ann, bob, eve] = [1, 2, 3].map(|seed| KeyPair::from_private([seed; 32]).unwrap());
        let of = |own: &KeyPair, peer: &KeyPair| PairKeys::new(own, peer.public()).unwrap();
        let (ann_bob, bob_ann) = (of(&ann, &bob), of(&bob, &ann));
        let sealed = ann_bob.seal(&[7; SALT_LEN], b"hello").unwrap();
        assert_eq!(bob_ann.open(&[7; SALT_LEN], &sealed).unwrap(), b"hello");
        assert!(bob_ann.open(&[8; SALT_LEN], &sealed).is_none());
        assert!(ann_bob.open(&[7; SALT_LEN], &sealed).is_none(), "not to be given back to its sender");
        assert!(of(&bob, &eve).open(&[7; SALT_LEN], &sealed).is_none());
        assert!(of(&eve, &bob).open(&[7; SALT_LEN], &sealed).is_none());
        assert_eq!(ann_bob.tag(&[9; NONCE_LEN]), bob_ann.expected_tag(&[9; NONCE_LEN]));
        assert_ne!(ann_bob.tag(&[9; NONCE_LEN]), ann_bob.expected_tag(&[9; NONCE_LEN]));
        assert_ne!(ann_bob.tag(&[9; NONCE_LEN]), ann_bob.tag(&[8; NONCE_LEN]));
        let files = Served::of_word("files").unwrap();
        let (nonce, place) = ([1, 2, 3], [9; PLACE_LEN]);
        let told = ann_bob.own_place().seal(files, nonce, place);
        assert_eq!(bob_ann.place().open(files, nonce, told), Some(place));
        assert_eq!(bob_ann.place().open(Served::of_word("chat").unwrap(), nonce, told), None);
        assert_eq!(bob_ann.place().open(files, [1, 2, 4], told), None);
        assert_eq!(of(&eve, &ann).place().open(files, nonce, told), None);
        assert_eq!(ann_bob.place().open(files, nonce, told), None);
        for at in 0..told.len() {
            let mut damaged = told;
            damaged[at] ^= 1;
            assert_eq!(bob_ann.place().open(files, nonce, damaged), None);
        }
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(bob_ann.open(&[7; SALT_LEN], &damaged).is_none());
        }
    }
}
