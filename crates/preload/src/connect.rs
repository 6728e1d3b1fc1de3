//! `connect`.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libc::{IPPROTO_IPV6, SO_PROTOCOL, SO_TYPE, SOCK_STREAM, SOL_SOCKET, sockaddr, socklen_t};
use wire::preload::NamedPeer;

use crate::call::{self, Connect, Errno};
use crate::original::original;
use crate::socks::Refusal;
use crate::{names, peers, socket_address, socks};

/// How long a peer may take; the proxy gives up before.
const PATIENCE: Duration = Duration::from_secs(20);

/// connect(2). A TCP socket that is meant for a peer comes to the proxy, which has reached the peer when this returns.
///
/// # Safety
/// As the C library's: `address` points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: as our caller promises.
    let destination = unsafe { socket_address::read(address, length) };
    let meant = destination.and_then(|destination| Some((destination, peers::behind(destination)?)));
    let outcome = match meant {
        Some((destination, (at, peer))) if is_tcp(socket) => reach(socket, destination, at, peer),
        // SAFETY: the arguments are our caller's, and the type is that of the C library's function.
        _ => return unsafe { original!(c"connect" as Connect, -1, (socket, address, length)) },
    };
    match outcome {
        Ok(()) => 0,
        Err(Errno(code)) => call::fail(code),
    }
}

fn is_tcp(socket: c_int) -> bool {
    let protocol = call::option(socket, SOL_SOCKET, SO_PROTOCOL);
    call::option(socket, SOL_SOCKET, SO_TYPE) == Some(SOCK_STREAM)
        && matches!(protocol, Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
}

/// Connects a socket to a peer by the proxy; `errno` as a plain connection would have it.
fn reach(socket: c_int, destination: SocketAddr, at: usize, peer: &NamedPeer) -> Result<(), Errno> {
    if call::name(socket, true).is_some() {
        return Err(Errno(libc::EISCONN));
    }
    let ipv6 = call::option(socket, SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6);
    let (name, port) = (peer.name.as_str(), destination.port());
    let Err(refusal) = through_proxy(socket, ipv6, name, port) else {
        names::remember(socket, at, destination);
        return Ok(());
    };
    call::disconnect(socket);
    let (reason, code) = match refusal {
        Refusal::Proxy(_) => {
            ("cannot be reached over virtual sockets: `anabranch run` has ended", libc::ENETUNREACH)
        }
        Refusal::NotServed => {
            ("does not serve this port: `anabranch serve` there says which", libc::ECONNREFUSED)
        }
        // What any program says itself.
        Refusal::Refused => return Err(Errno(libc::ECONNREFUSED)),
        Refusal::Unreachable => {
            ("does not answer over virtual sockets: is `anabranch serve` running there?", libc::EHOSTUNREACH)
        }
    };
    if call::any0_leads_to(destination) {
        call::say(format_args!("{name} (port {port}) {reason}; going over any0, without virtual sockets"));
        return call::connect(socket, destination, ipv6);
    }
    call::say(format_args!("{name} (port {port}) {reason}"));
    Err(Errno(code))
}

fn through_proxy(socket: c_int, ipv6: bool, name: &str, port: u16) -> Result<(), Refusal> {
    let proxy = peers::told().map(|told| SocketAddr::V4(told.proxy)).ok_or(Refusal::Unreachable)?;
    let deadline = Instant::now() + PATIENCE;
    if ipv6 {
        // The proxy listens on IPv4: an IPv6 socket reaches it unless it was told to be nothing else.
        call::set_option(socket, IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
    }
    match call::connect(socket, proxy, ipv6) {
        Ok(()) => {}
        Err(Errno(libc::EINPROGRESS | libc::EINTR)) => {
            call::wait(socket, true, deadline).map_err(Refusal::Proxy)?;
            match call::option(socket, SOL_SOCKET, libc::SO_ERROR) {
                Some(0) => {}
                other => return Err(Refusal::Proxy(Errno(other.unwrap_or(libc::ECONNABORTED)))),
            }
        }
        Err(error) => return Err(Refusal::Proxy(error)),
    }
    socks::ask(socket, name, port, deadline)
}
