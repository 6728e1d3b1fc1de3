//! PURE. Many paths, one session: handshake, paths, schedulers, congestion control, ARQ and FEC, resequencer.
#![forbid(unsafe_code)]

pub mod congestion;
