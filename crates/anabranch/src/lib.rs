//! I/O. What applications link: the control client and its types.
//!
//! [`control`] talks to a running daemon over its Unix socket: its status, networks and events, and on a gateway its
//! clients. See `examples/watch.rs` for a program that follows what the daemon does.
#![forbid(unsafe_code)]

pub mod control;
