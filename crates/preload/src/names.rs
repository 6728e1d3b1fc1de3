//! `getpeername`, which tells what the program meant and not the proxy.
//!
//! What is remembered goes by the socket's own port, not by its descriptor: so it holds for copies (`dup`, `fork`) too, and a
//! descriptor that is closed and used again cannot be taken for the old one. A program that is started by `exec` sees the proxy.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sockaddr, socklen_t};

use crate::original::original;
use crate::{call, peers, socket_address};

type GetPeerName = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// By the socket's port: 0, or 1, the family, the port and the number of the peer that was meant. Pages that are never written cost nothing.
static MEANT: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];

const IS_SET: u64 = 1 << 63;
const IS_V6: u64 = 1 << 62;

/// Remembers what a socket that is connected to the proxy was meant for.
pub fn remember(socket: c_int, peer: usize, destination: SocketAddr) {
    let family = if destination.is_ipv6() { IS_V6 } else { 0 };
    let packed = IS_SET | family | u64::from(destination.port()) << 32 | peer as u64 & 0xffff_ffff;
    if let Some(place) = place_of(socket) {
        place.store(packed, Ordering::Release);
    }
}

fn place_of(socket: c_int) -> Option<&'static AtomicU64> {
    MEANT.get(usize::from(call::name(socket, false)?.port()))
}

/// What a socket was meant for, if it is connected to the proxy.
fn meant(socket: c_int) -> Option<SocketAddr> {
    let told = peers::told()?;
    if call::name(socket, true)? != SocketAddr::V4(told.proxy) {
        return None;
    }
    let packed = place_of(socket)?.load(Ordering::Acquire);
    let peer = told.peers.get((packed & 0xffff_ffff) as usize).filter(|_| packed & IS_SET != 0)?;
    let address = if packed & IS_V6 == 0 { IpAddr::V4(peer.v4?) } else { IpAddr::V6(peer.v6) };
    Some(SocketAddr::new(address, (packed >> 32) as u16))
}

/// getpeername(2).
///
/// # Safety
/// As the C library's: `address` points to as many bytes as `length` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    if address.is_null() || length.is_null() {
        // SAFETY: the arguments are our caller's, and the type is that of the C library's function.
        return unsafe { original!(c"getpeername" as GetPeerName, -1, (socket, address, length)) };
    }
    let Some(meant) = meant(socket) else {
        // SAFETY: as above.
        return unsafe { original!(c"getpeername" as GetPeerName, -1, (socket, address, length)) };
    };
    let ipv6 = call::option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6);
    let (room, whole) = socket_address::write(meant, ipv6);
    // SAFETY: our caller promises that `length` can be read and written, and that `address` has so many bytes; no more are written.
    unsafe {
        let fits = whole.min(*length as usize);
        std::ptr::copy_nonoverlapping(room.as_ptr(), address.cast::<u8>(), fits);
        *length = whole as socklen_t;
    }
    0
}
