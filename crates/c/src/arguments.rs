//! What C hands over, as Rust has it.

use std::ffi::{CStr, c_char};
use std::time::Duration;

use anabranch::{ConnectOptions, Peer, PeerAddress};
use identity::PublicKey;
use policy::ConnectionWish;

use crate::outcome::Failure;

/// Length of a key, bytes.
pub const KEY: usize = 32;
/// Room for the name of an adapter.
pub const NAME: usize = 16;
/// Addresses of one peer that are looked at.
const MAX_ADDRESSES: usize = 64;

/// `anabranch_connect_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CConnectOptions {
    pub(crate) deadline: u32,
    pub(crate) wish: u32,
}

/// What a pointer points to.
///
/// # Safety
/// It must be null, or point to a value that lives, and is not changed, for as long as the answer is used.
pub unsafe fn required<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: as our caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(what))
}

/// Makes something and hands it to C, which gives it back to [`free`].
///
/// # Safety
/// `place` must be null or a place for a pointer.
pub unsafe fn hand_over<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid("there is no place for the outcome"));
    }
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as our caller promises.
    unsafe { place.write(made) };
    Ok(())
}

/// Takes back what was handed over.
///
/// # Safety
/// `handed` must be null or from [`hand_over`], and not be used again.
pub unsafe fn free<T>(handed: *mut T) {
    if !handed.is_null() {
        // SAFETY: it came from a box, as our caller promises.
        drop(unsafe { Box::from_raw(handed) });
    }
}

/// A text of C; `None` if it is null.
///
/// # Safety
/// It must be null or end with a zero, and live as long as the answer.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as our caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Failure::invalid("a text is not UTF-8"))
}

/// A key.
///
/// # Safety
/// The pointer must be null or point to 32 bytes.
pub unsafe fn key(pointer: *const u8) -> Result<[u8; KEY], Failure> {
    // SAFETY: as our caller promises; bytes have no alignment.
    unsafe { required(pointer.cast::<[u8; KEY]>(), "the key is null") }.copied()
}

/// Copies bytes to C, as many as there is room for.
///
/// # Safety
/// `place` must have room for so many bytes, or be null if that is 0.
pub unsafe fn put(bytes: &[u8], place: *mut u8, room: usize) {
    let fits = bytes.len().min(room);
    if fits > 0 && !place.is_null() {
        // SAFETY: both have so many bytes, and C's are not Rust's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, fits) };
    }
}

/// The name of an adapter with its final zero, cut off if it is longer than the kernel's names.
pub fn name(text: &str) -> [u8; NAME] {
    let mut name = [0; NAME];
    for (place, byte) in name.iter_mut().take(NAME - 1).zip(text.bytes()) {
        *place = byte;
    }
    name
}

/// The peer of a key and addresses.
///
/// # Safety
/// `peer` must be null or point to 32 bytes, `addresses` to `count` texts.
pub unsafe fn peer(peer: *const u8, addresses: *const *const c_char, count: usize) -> Result<Peer, Failure> {
    // SAFETY: as our caller promises.
    let key = PublicKey(unsafe { key(peer) }?);
    if count > MAX_ADDRESSES || addresses.is_null() && count > 0 {
        return Err(Failure::invalid("the addresses are null, or more than 64"));
    }
    let mut found = Vec::new();
    for at in 0..count {
        // SAFETY: there are `count` pointers to texts, as our caller promises.
        let address = unsafe { text(*addresses.add(at)) }?.unwrap_or_default();
        let parsed: Result<PeerAddress, _> = address.parse();
        found.push(parsed.map_err(|error| Failure::invalid(&format!("{address}: {error}")))?);
    }
    Ok(Peer { key, addresses: found })
}

/// The settings of a connection.
///
/// # Safety
/// The pointer must be null or point to such settings.
pub unsafe fn connect_options(options: *const CConnectOptions) -> Result<ConnectOptions, Failure> {
    let mut chosen = ConnectOptions::default();
    // SAFETY: as our caller promises.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(chosen) };
    if options.deadline > 0 {
        chosen.deadline = Duration::from_millis(options.deadline.into());
    }
    chosen.wish = match options.wish {
        0 => ConnectionWish::Balanced,
        1 => ConnectionWish::RealTime,
        2 => ConnectionWish::Cheapest,
        other => return Err(Failure::invalid(&format!("{other} is no wish"))),
    };
    Ok(chosen)
}
