//! PURE. Byte formats of Anabranch: bond datagrams and frames, join links, handshake payloads, inner IP headers.
//!
//! Nothing here keeps state. Every parser takes untrusted bytes, is bounded, and answers with a typed error.
#![forbid(unsafe_code)]

pub mod announcement;
pub mod cursor;
pub mod datagram;
pub mod frame;
pub mod group;
pub mod hello;
pub mod inner;
pub mod join_link;
pub mod mesh;
pub mod neighbour;
pub mod peer;
pub mod preload;
pub mod request;
pub mod short_announcement;
pub mod stream;
pub mod translation;
pub mod upload;

pub use cursor::Malformed;
