//! Noise IK (The Noise Protocol Framework, revision 34, section 7.5) by `snow`, with randomness from the caller, and the macs that keep
//! strangers from costing anything.

use crate::keys::{PrivateKey, PublicKey, RawKeys};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use ring::hmac;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use std::net::SocketAddr;
use wire::datagram::{MAC_LEN, RESET_TOKEN_LEN, RETRY_TOKEN_LEN};
use zeroize::Zeroizing;

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// Longest payload of a handshake message.
pub const MAX_PAYLOAD_LEN: usize = 768;
/// Bytes that a Noise IK message adds to its payload, at most (e, s and two tags).
const MAX_NOISE_OVERHEAD: usize = 32 + 48 + 16;

/// Why a handshake message was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("handshake is not authentic")]
    NotAuthentic,
    #[error("handshake payload is longer than {MAX_PAYLOAD_LEN} bytes")]
    PayloadTooLong,
}

/// A handshake that waits for the peer's message.
pub(crate) struct Handshake(Box<snow::HandshakeState>);

/// What the responder read in message 1.
pub(crate) struct Opened {
    pub(crate) handshake: Handshake,
    pub(crate) peer: PublicKey,
    pub(crate) payload: Vec<u8>,
}

impl Handshake {
    /// Writes message 1.
    pub(crate) fn initiate(
        own: &PrivateKey,
        peer: &PublicKey,
        prologue: &[u8],
        payload: &[u8],
        random: &mut ChaCha20Rng,
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let builder = snow::Builder::with_resolver(params()?, Box::new(Resolver::new(random)));
        let mut state = builder
            .local_private_key(own.bytes())
            .and_then(|builder| builder.remote_public_key(&peer.0))
            .and_then(|builder| builder.prologue(prologue))
            .and_then(snow::Builder::build_initiator)
            .map_err(|_| HandshakeError::NotAuthentic)?;
        let message = write(&mut state, payload)?;
        Ok((Self(Box::new(state)), message))
    }

    /// Reads message 1.
    pub(crate) fn open(
        own: &PrivateKey,
        prologue: &[u8],
        message: &[u8],
        random: &mut ChaCha20Rng,
    ) -> Result<Opened, HandshakeError> {
        let builder = snow::Builder::with_resolver(params()?, Box::new(Resolver::new(random)));
        let mut state = builder
            .local_private_key(own.bytes())
            .and_then(|builder| builder.prologue(prologue))
            .and_then(snow::Builder::build_responder)
            .map_err(|_| HandshakeError::NotAuthentic)?;
        let payload = read(&mut state, message)?;
        let peer = state.get_remote_static().and_then(|key| key.try_into().ok());
        let peer = PublicKey(peer.ok_or(HandshakeError::NotAuthentic)?);
        Ok(Opened { handshake: Self(Box::new(state)), peer, payload })
    }

    /// Responder: writes message 2 and ends.
    pub(crate) fn answer(mut self, payload: &[u8]) -> Result<(Vec<u8>, RawKeys), HandshakeError> {
        let message = write(&mut self.0, payload)?;
        let (to_responder, to_initiator) = self.0.dangerously_get_raw_split();
        let keys = RawKeys { send: Zeroizing::new(to_initiator), receive: Zeroizing::new(to_responder) };
        Ok((message, keys))
    }

    /// Initiator: reads message 2. On an error the handshake goes on waiting for an authentic one.
    pub(crate) fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, RawKeys), HandshakeError> {
        let payload = read(&mut self.0, message)?;
        let (to_responder, to_initiator) = self.0.dangerously_get_raw_split();
        let keys = RawKeys { send: Zeroizing::new(to_responder), receive: Zeroizing::new(to_initiator) };
        Ok((payload, keys))
    }
}

fn params() -> Result<NoiseParams, HandshakeError> {
    PATTERN.parse().map_err(|_| HandshakeError::NotAuthentic)
}

fn write(state: &mut snow::HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    if payload.len() > MAX_PAYLOAD_LEN {
        return Err(HandshakeError::PayloadTooLong);
    }
    let mut message = vec![0; payload.len() + MAX_NOISE_OVERHEAD];
    let written = state.write_message(payload, &mut message).map_err(|_| HandshakeError::NotAuthentic)?;
    message.truncate(written);
    Ok(message)
}

fn read(state: &mut snow::HandshakeState, message: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut payload = vec![0; message.len()];
    let read = state.read_message(message, &mut payload).map_err(|_| HandshakeError::NotAuthentic)?;
    payload.truncate(read);
    Ok(payload)
}

/// The public key that belongs to a private one.
pub(crate) fn public_key(private: &PrivateKey) -> Option<PublicKey> {
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519)?;
    dh.set(private.bytes());
    dh.pubkey().try_into().ok().map(PublicKey)
}

/// `snow`'s own primitives with the caller's randomness.
struct Resolver(ChaCha20Rng);

impl Resolver {
    fn new(random: &mut ChaCha20Rng) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        random.fill_bytes(&mut *seed);
        Self(ChaCha20Rng::from_seed(*seed))
    }
}

struct Randomness(ChaCha20Rng);

impl Random for Randomness {
    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(destination);
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Randomness(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Proves that the sender of a handshake message knows this public key, which strangers that scan do not: HMAC-SHA-256 keyed
/// with the key, cut to 16 bytes.
pub(crate) fn mac(responder: &PublicKey, message: &[u8]) -> [u8; MAC_LEN] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &responder.0);
    cut(hmac::sign(&key, message).as_ref())
}

/// Whether `tag` is the mac of `message`, in constant time.
pub(crate) fn mac_is_right(responder: &PublicKey, message: &[u8], tag: &[u8; MAC_LEN]) -> bool {
    let expected = mac(responder, message);
    let difference = expected.iter().zip(tag).fold(0, |sum, (left, right)| sum | (left ^ right));
    difference == 0
}

/// Secrets for tokens that need no state: retry (bound to an address and a quarter of an hour) and reset (bound to a session).
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    /// Derived from the private key, so that resets still work after a restart.
    pub(crate) fn new(own: &PrivateKey) -> Self {
        let base = hmac::Key::new(hmac::HMAC_SHA256, own.bytes());
        let derived = hmac::sign(&base, b"anabranch tokens 1");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// Token of the session that this end numbered `index`.
    pub(crate) fn reset(&self, index: u32) -> [u8; RESET_TOKEN_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"reset");
        context.update(&index.to_be_bytes());
        cut(context.sign().as_ref())
    }

    /// Token that shows that `remote` receives what is sent to it.
    pub(crate) fn retry(&self, remote: SocketAddr, quarter_hour: u64) -> [u8; RETRY_TOKEN_LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"retry");
        context.update(remote.to_string().as_bytes());
        context.update(&quarter_hour.to_be_bytes());
        cut(context.sign().as_ref())
    }
}

fn cut<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut short = [0; N];
    for (to, from) in short.iter_mut().zip(digest) {
        *to = *from;
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(seed: u8) -> (PrivateKey, PublicKey) {
        let private = PrivateKey::new([seed; 32]);
        let public = public_key(&private).unwrap();
        (private, public)
    }

    #[test]
    fn both_ends_get_the_same_keys_and_learn_who_is_there() {
        let mut random = ChaCha20Rng::from_seed([1; 32]);
        let (device, device_public) = keys(1);
        let (gateway, gateway_public) = keys(2);
        let (mut initiator, first) =
            Handshake::initiate(&device, &gateway_public, b"v1", b"hello", &mut random).unwrap();
        let opened = Handshake::open(&gateway, b"v1", &first, &mut random).unwrap();
        assert_eq!(opened.peer, device_public);
        assert_eq!(opened.payload, b"hello");
        let (second, responder_keys) = opened.handshake.answer(b"welcome").unwrap();
        let mut damaged = second.clone();
        damaged[40] ^= 1;
        assert!(initiator.finish(&damaged).is_err());
        let (payload, initiator_keys) = initiator.finish(&second).unwrap();
        assert_eq!(payload, b"welcome");
        assert_eq!(*initiator_keys.send, *responder_keys.receive);
        assert_eq!(*initiator_keys.receive, *responder_keys.send);
    }

    #[test]
    fn other_version_other_key_and_same_seed() {
        let (device, _) = keys(1);
        let (gateway, gateway_public) = keys(2);
        let (stranger, _) = keys(3);
        let run = || {
            let mut random = ChaCha20Rng::from_seed([7; 32]);
            Handshake::initiate(&device, &gateway_public, b"v1", b"", &mut random).unwrap().1
        };
        assert_eq!(run(), run());
        let mut random = ChaCha20Rng::from_seed([8; 32]);
        assert!(Handshake::open(&gateway, b"v2", &run(), &mut random).is_err());
        assert!(Handshake::open(&stranger, b"v1", &run(), &mut random).is_err());
    }

    #[test]
    fn tokens_are_bound_to_what_they_speak_of() {
        let (gateway, public) = keys(2);
        let tokens = TokenKey::new(&gateway);
        assert_eq!(tokens.reset(5), TokenKey::new(&gateway).reset(5));
        assert_ne!(tokens.reset(5), tokens.reset(6));
        let here: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let there: SocketAddr = "192.0.2.1:10".parse().unwrap();
        assert_ne!(tokens.retry(here, 1), tokens.retry(there, 1));
        assert_ne!(tokens.retry(here, 1), tokens.retry(here, 2));
        assert!(mac_is_right(&public, b"m", &mac(&public, b"m")));
        assert!(!mac_is_right(&public, b"n", &mac(&public, b"m")));
    }
}
