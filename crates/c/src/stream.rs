//! Streams.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};

use anabranch::blocking::VirtualStream;

use crate::arguments::{self, NAME};
use crate::outcome::{Failure, count, number};

/// `anabranch_stream`.
pub struct CStream(pub(crate) VirtualStream);

/// `anabranch_standing`.
#[repr(C)]
#[derive(Debug)]
pub struct CStanding {
    pub(crate) round_trip: u64,
    pub(crate) bandwidth: u64,
    pub(crate) paths: u32,
    pub(crate) adapter: [u8; NAME],
}

/// See the header.
///
/// # Safety
/// `stream` must be null or open, `into` have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_read(stream: *mut CStream, into: *mut c_void, room: usize) -> isize {
    // SAFETY: as our caller promises.
    let outcome = unsafe { arguments::required(stream, "the stream is null") }.and_then(|stream| {
        if into.is_null() || room == 0 || isize::try_from(room).is_err() {
            return Err(Failure::invalid("there is no room to read into"));
        }
        // SAFETY: our caller promises so many bytes. They may never have been written to: Rust's reader only writes.
        let into = unsafe {
            std::ptr::write_bytes(into.cast::<u8>(), 0, room.min(MOST_AT_ONCE));
            std::slice::from_raw_parts_mut(into.cast::<u8>(), room.min(MOST_AT_ONCE))
        };
        Ok((&stream.0).read(into)?)
    });
    count(outcome)
}

/// See the header.
///
/// # Safety
/// `stream` must be null or open, `bytes` so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_write(stream: *mut CStream, bytes: *const c_void, length: usize) -> isize {
    // SAFETY: as our caller promises.
    let outcome = unsafe { arguments::required(stream, "the stream is null") }.and_then(|stream| {
        if bytes.is_null() || length == 0 || isize::try_from(length).is_err() {
            return Err(Failure::invalid("there is nothing to write"));
        }
        // SAFETY: our caller promises so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        Ok((&stream.0).write(bytes)?)
    });
    count(outcome)
}

/// See the header.
///
/// # Safety
/// `stream` must be null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_finish(stream: *mut CStream) -> c_int {
    // SAFETY: as our caller promises.
    let stream = unsafe { arguments::required(stream, "the stream is null") };
    number(stream.and_then(|stream| Ok(stream.0.finish()?)))
}

/// See the header.
///
/// # Safety
/// `stream` must be null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_reset(stream: *mut CStream, code: u64) {
    // SAFETY: as our caller promises.
    let stream = unsafe { arguments::required(stream, "the stream is null") };
    number(stream.map(|stream| stream.0.reset(code)));
}

/// See the header.
///
/// # Safety
/// `stream` must be null or open, `standing` null or a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_stream_standing(
    stream: *const CStream,
    standing: *mut CStanding,
) -> c_int {
    // SAFETY: as our caller promises.
    let outcome = unsafe { arguments::required(stream, "the stream is null") }.and_then(|stream| {
        if standing.is_null() {
            return Err(Failure::invalid("there is no place for the standing"));
        }
        let now = stream.0.standing();
        let told = CStanding {
            round_trip: now.round_trip.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            bandwidth: now.bandwidth.map_or(0, |rate| rate.0),
            paths: u32::try_from(now.paths).unwrap_or(u32::MAX),
            adapter: arguments::name(now.adapter.as_deref().unwrap_or_default()),
        };
        // SAFETY: as our caller promises.
        unsafe { standing.write(told) };
        Ok(())
    });
    number(outcome)
}

/// See the header.
///
/// # Safety
/// `stream` must be null or open, and is not any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_stream_free(stream: *mut CStream) {
    // SAFETY: as our caller promises.
    unsafe { arguments::free(stream) };
}

/// Bytes that one read fills at most.
const MOST_AT_ONCE: usize = 256 * 1024;
