//! A second implementation of the parts of docs/wire-format.md that seal and agree on keys, on `snow` and `ring` alone:
//! what the vectors are made with, and what the bond's own implementation is tried against.

pub mod vectors;

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use snow::HandshakeState;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use units::PathId;
use wire::datagram::{DataHeader, Initiation, Response, Retry, VERSION, packet_number_len};

const NOISE: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
const REKEY_PROLOGUE: &[u8] = b"anabranch rekey 1";

/// A key pair by its private half.
#[derive(Clone, Copy)]
pub struct Identity {
    pub private: [u8; 32],
    pub public: [u8; 32],
}

impl Identity {
    pub fn new(private: [u8; 32]) -> Self {
        Self { private, public: public_key(&private) }
    }
}

pub fn public_key(private: &[u8; 32]) -> [u8; 32] {
    let mut exchange = DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap();
    exchange.set(private);
    exchange.pubkey().try_into().unwrap()
}

/// Raw keys of a session's two directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    pub to_responder: [u8; 32],
    pub to_initiator: [u8; 32],
}

/// Prologue of the handshake that begins a session.
pub fn prologue(features: u16) -> Vec<u8> {
    let mut bytes = b"anabranch".to_vec();
    bytes.push(VERSION);
    bytes.extend(features.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Initiator's Noise state, with a fixed ephemeral key if the messages are to be vectors.
pub fn initiator(
    own: &Identity,
    peer: &[u8; 32],
    prologue: &[u8],
    ephemeral: Option<&[u8; 32]>,
) -> HandshakeState {
    let builder = snow::Builder::new(NOISE.parse().unwrap());
    let builder = builder.local_private_key(&own.private).unwrap().remote_public_key(peer).unwrap();
    let builder = builder.prologue(prologue).unwrap();
    match ephemeral {
        Some(key) => builder.fixed_ephemeral_key_for_testing_only(key),
        None => builder,
    }
    .build_initiator()
    .unwrap()
}

/// Responder's Noise state.
pub fn responder(own: &Identity, prologue: &[u8], ephemeral: Option<&[u8; 32]>) -> HandshakeState {
    let builder = snow::Builder::new(NOISE.parse().unwrap());
    let builder = builder.local_private_key(&own.private).unwrap().prologue(prologue).unwrap();
    match ephemeral {
        Some(key) => builder.fixed_ephemeral_key_for_testing_only(key),
        None => builder,
    }
    .build_responder()
    .unwrap()
}

/// Prologue of handshakes inside a session.
pub fn rekey_prologue() -> &'static [u8] {
    REKEY_PROLOGUE
}

pub fn write(state: &mut HandshakeState, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; payload.len() + 96];
    let length = state.write_message(payload, &mut message).unwrap();
    message.truncate(length);
    message
}

pub fn read(state: &mut HandshakeState, message: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; message.len()];
    let length = state.read_message(message, &mut payload).unwrap();
    payload.truncate(length);
    payload
}

/// The keys after message 2, as Noise's `Split` gives them.
pub fn split(state: &mut HandshakeState) -> Keys {
    let (to_responder, to_initiator) = state.dangerously_get_raw_split();
    Keys { to_responder, to_initiator }
}

/// HMAC-SHA-256 keyed with the responder's public key, cut to 16 bytes.
pub fn mac(responder: &[u8; 32], bytes: &[u8]) -> [u8; 16] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, responder);
    hmac::sign(&key, bytes).as_ref()[..16].try_into().unwrap()
}

/// An initiation around Noise message 1.
pub fn initiation(
    responder: &[u8; 32],
    features: u16,
    sender_index: u32,
    noise: &[u8],
    retry_token: &[u8],
) -> Vec<u8> {
    let message = Initiation { version: VERSION, features, sender_index, noise, retry_token, mac: [0; 16] };
    let mut bytes = Vec::new();
    message.put_without_mac(&mut bytes);
    let mac = mac(responder, &bytes);
    bytes.extend(mac);
    bytes
}

/// A response around Noise message 2.
pub fn response(receiver_index: u32, sender_index: u32, noise: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Response { version: VERSION, receiver_index, sender_index, noise }.put(&mut bytes);
    bytes
}

/// A retry with this token.
pub fn retry(responder: &[u8; 32], receiver_index: u32, token: [u8; 24]) -> Vec<u8> {
    let mut signed = receiver_index.to_be_bytes().to_vec();
    signed.extend(token);
    let mut bytes = Vec::new();
    Retry { receiver_index, token, mac: mac(responder, &signed) }.put(&mut bytes);
    bytes
}

/// Where a data packet belongs.
#[derive(Clone, Copy)]
pub struct Place {
    pub receiver_index: u32,
    pub epoch: u8,
    pub path: u8,
    pub number: u64,
    pub largest_acked: Option<u64>,
}

pub fn nonce(path: u8, number: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[3] = path;
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub fn header(place: Place) -> Vec<u8> {
    let number_len = packet_number_len(place.number, place.largest_acked);
    let truncated_number = (place.number & ((1 << (8 * u32::from(number_len))) - 1)) as u32;
    let mut bytes = Vec::new();
    DataHeader {
        receiver_index: place.receiver_index,
        epoch: place.epoch & 3,
        path: PathId(place.path),
        truncated_number,
        number_len,
    }
    .put(&mut bytes);
    bytes
}

/// A whole data packet of a session with these features.
pub fn seal(features: u16, key: &[u8; 32], place: Place, plain: &[u8]) -> Vec<u8> {
    let mut datagram = header(place);
    let mut sealed = plain.to_vec();
    aead(features, key)
        .seal_in_place_append_tag(nonce_of(place.path, place.number), Aad::from(&datagram), &mut sealed)
        .unwrap();
    datagram.extend(sealed);
    datagram
}

/// Opens a data packet whose number is known to be its truncated one.
pub fn open(features: u16, key: &[u8; 32], header: &DataHeader, datagram: &[u8]) -> Option<Vec<u8>> {
    let (head, sealed) = datagram.split_at(header.len());
    let mut sealed = sealed.to_vec();
    let nonce = nonce_of(header.path.0, u64::from(header.truncated_number));
    let plain = aead(features, key).open_in_place(nonce, Aad::from(head), &mut sealed).ok()?;
    Some(plain.to_vec())
}

fn aead(features: u16, key: &[u8; 32]) -> LessSafeKey {
    let algorithm = if features & 1 == 1 { &AES_256_GCM } else { &CHACHA20_POLY1305 };
    LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap())
}

fn nonce_of(path: u8, number: u64) -> Nonce {
    Nonce::assume_unique_for_key(nonce(path, number))
}
