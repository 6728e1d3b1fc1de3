//! System calls on a program's socket, with Rust's types.

use std::ffi::c_int;
use std::io::Write;
use std::mem::size_of;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT, c_short, c_void, sockaddr, socklen_t};

use crate::original::original;
use crate::socket_address::{self, Room};

/// The type of the C library's `connect`, and of ours.
pub type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type Name = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// An `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

/// Sets `errno`; -1, what a failed function returns.
pub fn fail(code: c_int) -> c_int {
    // SAFETY: the C library gives each thread a place of its own, always there.
    unsafe { *libc::__errno_location() = code };
    -1
}

fn last() -> Errno {
    // SAFETY: as in `fail`.
    Errno(unsafe { *libc::__errno_location() })
}

/// An option of a socket that is a number.
pub fn option(socket: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: both places live for the call, and the length is that of the value.
    let outcome =
        unsafe { libc::getsockopt(socket, level, name, (&raw mut value).cast::<c_void>(), &raw mut length) };
    (outcome == 0).then_some(value)
}

/// Sets an option of a socket that is a number; nothing if the socket refuses.
pub fn set_option(socket: c_int, level: c_int, name: c_int, value: c_int) {
    let length = size_of::<c_int>() as socklen_t;
    // SAFETY: the value lives for the call, and the length is its.
    unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast::<c_void>(), length) };
}

/// The C library's `connect`.
pub fn connect(socket: c_int, address: SocketAddr, ipv6: bool) -> Result<(), Errno> {
    let (room, length) = socket_address::write(address, ipv6);
    connect_raw(socket, &room, length)
}

/// Undoes a connection, so that the socket may be connected again (connect(2), `AF_UNSPEC`).
pub fn disconnect(socket: c_int) {
    let room = [0; size_of::<Room>()];
    // A socket that cannot be used again says so when it is.
    let _ = connect_raw(socket, &room, size_of::<sockaddr>());
}

fn connect_raw(socket: c_int, room: &Room, length: usize) -> Result<(), Errno> {
    let address = room.as_ptr().cast::<sockaddr>();
    // SAFETY: the room is longer than the length, and the type is that of the C library's function.
    let outcome = unsafe { original!(c"connect" as Connect, -1, (socket, address, length as socklen_t)) };
    if outcome == 0 { Ok(()) } else { Err(last()) }
}

/// The other end of a socket, or this one, as the kernel has it.
pub fn name(socket: c_int, peer: bool) -> Option<SocketAddr> {
    let mut room: Room = [0; size_of::<Room>()];
    let mut length = room.len() as socklen_t;
    let address = room.as_mut_ptr().cast::<sockaddr>();
    // SAFETY: both places live for the call and the length is the room's; the type is that of the C library's function.
    let outcome = unsafe {
        if peer {
            original!(c"getpeername" as Name, -1, (socket, address, &raw mut length))
        } else {
            libc::getsockname(socket, address, &raw mut length)
        }
    };
    if outcome == 0 { socket_address::parse(&room) } else { None }
}

/// Waits until a socket can be read from or written to.
pub fn wait(socket: c_int, to_write: bool, deadline: Instant) -> Result<(), Errno> {
    let events: c_short = if to_write { POLLOUT } else { POLLIN };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return Err(Errno(libc::ETIMEDOUT));
        }
        let mut one = libc::pollfd { fd: socket, events, revents: 0 };
        let timeout = c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX).max(1);
        // SAFETY: one descriptor is told of, and it lives for the call.
        match unsafe { libc::poll(&raw mut one, 1, timeout) } {
            1.. => return Ok(()),
            0 => {}
            _ if last() == Errno(libc::EINTR) => {}
            _ => return Err(last()),
        }
    }
}

/// Sends all of it.
pub fn send(socket: c_int, bytes: &[u8], deadline: Instant) -> Result<(), Errno> {
    let mut left = bytes;
    while !left.is_empty() {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the bytes live for the call.
        let sent = unsafe { libc::send(socket, left.as_ptr().cast::<c_void>(), left.len(), flags) };
        match usize::try_from(sent) {
            Ok(count) => left = left.get(count..).unwrap_or_default(),
            Err(_) => retry(socket, true, deadline)?,
        }
    }
    Ok(())
}

/// Fills the place, and takes no byte more.
pub fn receive(socket: c_int, place: &mut [u8], deadline: Instant) -> Result<(), Errno> {
    let mut filled = 0;
    while let Some(left) = place.get_mut(filled..).filter(|left| !left.is_empty()) {
        // SAFETY: the place lives for the call, and the length is its.
        let got =
            unsafe { libc::recv(socket, left.as_mut_ptr().cast::<c_void>(), left.len(), libc::MSG_DONTWAIT) };
        match usize::try_from(got) {
            Ok(0) => return Err(Errno(libc::ECONNRESET)),
            Ok(count) => filled += count,
            Err(_) => retry(socket, false, deadline)?,
        }
    }
    Ok(())
}

fn retry(socket: c_int, to_write: bool, deadline: Instant) -> Result<(), Errno> {
    match last() {
        Errno(libc::EAGAIN | libc::EINTR) => wait(socket, to_write, deadline),
        error => Err(error),
    }
}

/// Whether the routes lead to an address over any0: from an address of the same prefix.
pub fn any0_leads_to(address: SocketAddr) -> bool {
    let family = if address.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: no memory is handed over.
    let probe = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if probe < 0 {
        return false;
    }
    // To connect a datagram socket sends nothing.
    let from = connect(probe, address, address.is_ipv6()).ok().and_then(|()| name(probe, false));
    // SAFETY: it was opened above, and nobody else knows it.
    unsafe { libc::close(probe) };
    match (from.map(|from| from.ip()), address.ip()) {
        (Some(std::net::IpAddr::V4(from)), std::net::IpAddr::V4(to)) => {
            from.octets()[..2] == to.octets()[..2]
        }
        (Some(std::net::IpAddr::V6(from)), std::net::IpAddr::V6(to)) => {
            from.segments()[..4] == to.segments()[..4]
        }
        _ => false,
    }
}

/// A line on standard error.
pub fn say(line: std::fmt::Arguments<'_>) {
    let mut room = [0; 400];
    let mut left = &mut room[..];
    // What is too long is cut off.
    let _ = writeln!(left, "anabranch: {line}");
    let unused = left.len();
    let used = room.len() - unused;
    let bytes = room.get(..used).unwrap_or_default();
    // SAFETY: the bytes live for the call. Nobody can be told that standard error is closed.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
}
