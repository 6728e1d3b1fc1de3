//! What the proxy is asked: SOCKS5 (RFC 1928), without authentication, by name.

use std::ffi::c_int;
use std::time::Instant;

use wire::preload::SUFFIX;

use crate::call::{self, Errno};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const DOMAIN: u8 = 3;
/// Greeting, request without its name, longest name.
const MAX_REQUEST: usize = 3 + 5 + 255 + 2;
/// The answers to both: the second as our proxy gives it, with an IPv4 address.
const ANSWERS: usize = 2 + 10;

/// Why the proxy does not connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The proxy itself cannot be talked to.
    Proxy(Errno),
    /// The peer does not offer the port.
    NotServed,
    /// Nothing answers on the port there.
    Refused,
    /// The peer does not answer.
    Unreachable,
}

/// Asks for a port of a peer, on a socket that is connected to the proxy. Greeting and request go together: our proxy asks for nothing.
pub fn ask(socket: c_int, name: &str, port: u16, deadline: Instant) -> Result<(), Refusal> {
    let mut request = [0; MAX_REQUEST];
    let length = name.len() + SUFFIX.len();
    let Ok(told) = u8::try_from(length) else { return Err(Refusal::Unreachable) };
    let head = [VERSION, 1, NO_AUTHENTICATION, VERSION, CONNECT, 0, DOMAIN, told];
    let mut used = 0;
    for part in [&head[..], name.as_bytes(), SUFFIX.as_bytes(), &port.to_be_bytes()] {
        if let Some(place) = request.get_mut(used..used + part.len()) {
            place.copy_from_slice(part);
        }
        used += part.len();
    }
    call::send(socket, request.get(..used).unwrap_or_default(), deadline).map_err(Refusal::Proxy)?;
    let mut answers = [0; ANSWERS];
    call::receive(socket, &mut answers, deadline).map_err(Refusal::Proxy)?;
    match answers {
        [VERSION, NO_AUTHENTICATION, VERSION, 0, ..] => Ok(()),
        [VERSION, NO_AUTHENTICATION, VERSION, 2, ..] => Err(Refusal::NotServed),
        [VERSION, NO_AUTHENTICATION, VERSION, 5, ..] => Err(Refusal::Refused),
        [VERSION, NO_AUTHENTICATION, VERSION, ..] => Err(Refusal::Unreachable),
        _ => Err(Refusal::Proxy(Errno(libc::EPROTO))),
    }
}
