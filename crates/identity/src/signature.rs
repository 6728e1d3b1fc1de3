//! Signatures with the identity's own X25519 key, for what is said to everybody and cannot be sealed to somebody.
//!
//! XEdDSA (Trevor Perrin, "The XEdDSA and VXEdDSA Signature Schemes", revision 1): the private scalar is used on the Edwards form of
//! the curve, with its sign chosen so that the public point has sign bit 0; whoever knows the X25519 public key works that point out. So a
//! public key alone says who may have signed, and there is no second key to carry.
//!
//! Deviation: the nonce is derived from key and message alone, as Ed25519 does (RFC 8032 section 5.1.6), in place of drawing 64 random bytes more.
//! What is signed begins with the length and name of its purpose, so that a signature serves no other.

use curve25519_dalek::EdwardsPoint;
use curve25519_dalek::montgomery::MontgomeryPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use ed25519_dalek::{Signature as EdwardsSignature, VerifyingKey};
use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroize;

use crate::key::{KeyPair, PublicKey};

/// Bytes of a signature.
pub const SIGNATURE_LENGTH: usize = 64;

/// A signature by a [`KeyPair`].
pub type Signature = [u8; SIGNATURE_LENGTH];

impl KeyPair {
    /// Signs `message` for `purpose`, of at most 255 bytes; the same input gives the same signature.
    pub fn sign(&self, purpose: &str, message: &[u8]) -> Signature {
        let mut scalar = Scalar::from_bytes_mod_order(clamp_integer(*self.private_bytes()));
        let point = EdwardsPoint::mul_base(&scalar);
        let negative = point.compress().to_bytes()[31] & 0x80 != 0;
        let (signing, public) = if negative { (-scalar, -point) } else { (scalar, point) };
        let nonces =
            Sha256::new().chain_update(b"anabranch signature nonce").chain_update(self.private_bytes());
        // The secret wipes itself.
        let secret = ExpandedSecretKey { scalar: signing, hash_prefix: nonces.finalize().into() };
        scalar.zeroize();
        raw_sign::<Sha512>(&secret, &labelled(purpose, message), &VerifyingKey::from(public)).to_bytes()
    }
}

impl PublicKey {
    /// Whether `signature` is one of `message` for `purpose` by the private half of this key.
    pub fn has_signed(&self, purpose: &str, message: &[u8], signature: &Signature) -> bool {
        let Some(point) = MontgomeryPoint(self.0).to_edwards(0) else { return false };
        // A key has one form: another would be somebody else by name.
        if point.to_montgomery().to_bytes() != self.0 {
            return false;
        }
        let key = VerifyingKey::from(point);
        key.verify_strict(&labelled(purpose, message), &EdwardsSignature::from_bytes(signature)).is_ok()
    }
}

fn labelled(purpose: &str, message: &[u8]) -> Vec<u8> {
    let purpose = purpose.as_bytes().get(..255).unwrap_or(purpose.as_bytes());
    [&[purpose.len() as u8][..], purpose, message].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_the_purpose_and_the_message_that_were_signed_fit() {
        // Both signs of the Edwards point occur among these.
        for seed in 0..16 {
            let pair = KeyPair::from_private([seed; 32]).unwrap();
            let signature = pair.sign("test", b"message");
            assert_eq!(signature, pair.sign("test", b"message"));
            assert!(pair.public().has_signed("test", b"message", &signature));
            assert!(!pair.public().has_signed("test", b"massage", &signature));
            assert!(!pair.public().has_signed("tes", b"tmessage", &signature));
            let other = KeyPair::from_private([seed + 100; 32]).unwrap();
            assert!(!other.public().has_signed("test", b"message", &signature));
            for at in [0, 31, 32, 63] {
                let mut changed = signature;
                changed[at] ^= 0x80;
                assert!(!pair.public().has_signed("test", b"message", &changed), "byte {at}");
            }
        }
    }

    #[test]
    fn keys_that_are_none_have_signed_nothing() {
        let signature = KeyPair::from_private([1; 32]).unwrap().sign("test", b"");
        for key in [[0; 32], [0xff; 32], [2; 32]] {
            assert!(!PublicKey(key).has_signed("test", b"", &signature));
        }
        // The same point, written with the unused bit set.
        let mut key = KeyPair::from_private([1; 32]).unwrap().public().0;
        key[31] |= 0x80;
        assert!(!PublicKey(key).has_signed("test", b"", &signature));
    }
}
