//! Names of peers: the C library is asked for their addresses in place of their names, so that all it answers is its own and is freed by it.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

use libc::{AF_INET, AF_INET6, addrinfo, hostent};

use crate::original::original;
use crate::peers;

/// The longest address of IPv6 as text, and its end.
type Text = [u8; 46];

type GetAddrInfo =
    unsafe extern "C" fn(*const c_char, *const c_char, *const addrinfo, *mut *mut addrinfo) -> c_int;
type GetHostByName = unsafe extern "C" fn(*const c_char) -> *mut hostent;
type GetHostByName2 = unsafe extern "C" fn(*const c_char, c_int) -> *mut hostent;
type GetHostByNameR = unsafe extern "C" fn(
    *const c_char,
    *mut hostent,
    *mut c_char,
    libc::size_t,
    *mut *mut hostent,
    *mut c_int,
) -> c_int;
type GetHostByName2R = unsafe extern "C" fn(
    *const c_char,
    c_int,
    *mut hostent,
    *mut c_char,
    libc::size_t,
    *mut *mut hostent,
    *mut c_int,
) -> c_int;

/// The address of the peer of this name, as text that ends with a zero; `None` if the name is no peer's.
///
/// # Safety
/// `name` must be null or a text of C.
unsafe fn address_of(name: *const c_char, family: c_int) -> Option<Text> {
    if name.is_null() {
        return None;
    }
    // SAFETY: our caller promises a text of C.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    let peer = peers::told()?.by_name(name)?;
    let mut text: Text = [0; 46];
    // One byte less: the end is a zero.
    let mut place = &mut text[..45];
    match peer.v4 {
        Some(v4) if family != AF_INET6 => write!(place, "{v4}").ok()?,
        _ if family == AF_INET => return None,
        _ => write!(place, "{}", peer.v6).ok()?,
    }
    Some(text)
}

/// The text to ask for in place of `name`; the room must live as long.
fn instead(name: *const c_char, room: Option<&Text>) -> *const c_char {
    room.map_or(name, |text| text.as_ptr().cast())
}

/// getaddrinfo(3). A peer has an IPv4 and an IPv6 address; whoever asks for both gets both, IPv4 first, which works on every socket.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    found: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the arguments are our caller's: hints is null or can be read, node null or a text.
    let (room, further) = unsafe {
        let family = hints.as_ref().map_or(libc::AF_UNSPEC, |hints| hints.ai_family);
        let further = if family == libc::AF_UNSPEC { address_of(node, AF_INET6) } else { None };
        (address_of(node, family), further)
    };
    let first = instead(node, room.as_ref());
    // SAFETY: as above, and the type is that of the C library's function.
    let outcome =
        unsafe { original!(c"getaddrinfo" as GetAddrInfo, libc::EAI_SYSTEM, (first, service, hints, found)) };
    let Some(further) = further.filter(|further| outcome == 0 && Some(further) != room.as_ref()) else {
        return outcome;
    };
    let mut more: *mut addrinfo = std::ptr::null_mut();
    // SAFETY: as above; `more` lives for the call. On success both lists end with a null, and the C library frees lists entry by
    // entry, so one may follow the other.
    unsafe {
        let second = further.as_ptr().cast::<c_char>();
        let outcome = original!(
            c"getaddrinfo" as GetAddrInfo,
            libc::EAI_SYSTEM,
            (second, service, hints, &raw mut more)
        );
        let mut last = found;
        while outcome == 0 && !(*last).is_null() {
            last = &raw mut (**last).ai_next;
        }
        if outcome == 0 {
            *last = more;
        }
    }
    0
}

/// gethostbyname(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gethostbyname(name: *const c_char) -> *mut hostent {
    // SAFETY: the argument is our caller's, and the type is that of the C library's function.
    unsafe {
        let room = address_of(name, AF_INET);
        let name = instead(name, room.as_ref());
        original!(c"gethostbyname" as GetHostByName, std::ptr::null_mut(), (name))
    }
}

/// gethostbyname2(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
    // SAFETY: the arguments are our caller's, and the type is that of the C library's function.
    unsafe {
        let room = address_of(name, family);
        let name = instead(name, room.as_ref());
        original!(c"gethostbyname2" as GetHostByName2, std::ptr::null_mut(), (name, family))
    }
}

/// gethostbyname_r(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gethostbyname_r(
    name: *const c_char,
    into: *mut hostent,
    buffer: *mut c_char,
    length: libc::size_t,
    found: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are our caller's, and the type is that of the C library's function.
    unsafe {
        let room = address_of(name, AF_INET);
        let name = instead(name, room.as_ref());
        original!(
            c"gethostbyname_r" as GetHostByNameR,
            libc::ENOSYS,
            (name, into, buffer, length, found, error)
        )
    }
}

/// gethostbyname2_r(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gethostbyname2_r(
    name: *const c_char,
    family: c_int,
    into: *mut hostent,
    buffer: *mut c_char,
    length: libc::size_t,
    found: *mut *mut hostent,
    error: *mut c_int,
) -> c_int {
    // SAFETY: the arguments are our caller's, and the type is that of the C library's function.
    unsafe {
        let room = address_of(name, family);
        let name = instead(name, room.as_ref());
        original!(
            c"gethostbyname2_r" as GetHostByName2R,
            libc::ENOSYS,
            (name, family, into, buffer, length, found, error)
        )
    }
}
