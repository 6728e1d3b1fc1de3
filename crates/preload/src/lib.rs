//! I/O. What `anabranch run --virtual` preloads (`LD_PRELOAD`, ld.so(8)) into unmodified programs, so that their TCP connections to
//! peers go over virtual sockets.
//!
//! ```text
//! getaddrinfo("far.peer")   -> the addresses that belong to far's key, of which nobody else has one
//! connect(one of these)     -> loopback proxy of `anabranch run`, asked for far by SOCKS5 (RFC 1928) before the program goes on
//! getpeername               -> the address that the program meant
//! ```
//!
//! All other names and addresses, and all other kinds of sockets, are the C library's as before. A socket that does not block is connected
//! when `connect` returns, as with a near host: the proxy is asked meanwhile.
//!
//! The one crate beside `linux` and the C interface with `unsafe` code: its functions are called by C programs under the names of the C
//! library's. Nothing here allocates after the first call, locks, or panics: `connect` may be called between `fork` and `exec`.
#![expect(
    unsafe_code,
    reason = "its functions are called by C programs, and call the C library's functions that they stand before"
)]

mod call;
mod connect;
mod names;
mod original;
mod peers;
mod resolve;
mod socket_address;
mod socks;
