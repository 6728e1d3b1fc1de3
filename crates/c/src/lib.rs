//! I/O. Virtual sockets for C: the functions of `include/anabranch.h`, which documents them.
//!
//! Each function turns its arguments into Rust's, calls [`anabranch::blocking`], and turns the outcome into a number; the words
//! are kept for each thread (`outcome.rs`). A test compiles the header and compares the layout of its structures with those here.
//!
//! The one crate beside `linux` and `preload` with `unsafe` code: its arguments are pointers that only its callers can vouch for.
#![expect(unsafe_code, reason = "it is called by C")]

mod arguments;
mod datagrams;
mod endpoint;
mod events;
mod keys;
#[cfg(test)]
mod layout;
mod outcome;
mod stream;
