//! Keys.

use std::ffi::{c_char, c_int};
use std::path::Path;

use identity::{KeyPair, StateDirectory};

use crate::arguments::{self, KEY};
use crate::outcome::{Failure, number};

/// See the header.
///
/// # Safety
/// `private_key` must be null or have room for 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_key_generate(private_key: *mut u8) -> c_int {
    let made = KeyPair::generate().map_err(|error| Failure::system(&error));
    // SAFETY: as our caller promises.
    number(made.and_then(|key| unsafe { give(key.private_bytes(), private_key) }))
}

/// See the header.
///
/// # Safety
/// `state_directory` must be null or a text, `private_key` null or have room for 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_key_load(state_directory: *const c_char, private_key: *mut u8) -> c_int {
    // SAFETY: as our caller promises.
    let loaded = unsafe { arguments::text(state_directory) }.and_then(|path| {
        let path = path.ok_or_else(|| Failure::invalid("the state directory is null"))?;
        let state = StateDirectory::create(Path::new(path)).map_err(|error| Failure::system(&error))?;
        KeyPair::load_or_create(&state).map_err(|error| Failure::system(&error))
    });
    // SAFETY: as our caller promises.
    number(loaded.and_then(|key| unsafe { give(key.private_bytes(), private_key) }))
}

/// See the header.
///
/// # Safety
/// Both must be null or have 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_key_public(private_key: *const u8, public_key: *mut u8) -> c_int {
    // SAFETY: as our caller promises.
    let key = unsafe { arguments::key(private_key) }
        .and_then(|private| KeyPair::from_private(private).map_err(|error| Failure::system(&error)));
    // SAFETY: as our caller promises.
    number(key.and_then(|key| unsafe { give(&key.public().0, public_key) }))
}

/// Copies a key to C.
///
/// # Safety
/// `place` must be null or have room for 32 bytes.
unsafe fn give(key: &[u8; KEY], place: *mut u8) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid("there is no place for the key"));
    }
    // SAFETY: as our caller promises.
    unsafe { arguments::put(key, place, KEY) };
    Ok(())
}
