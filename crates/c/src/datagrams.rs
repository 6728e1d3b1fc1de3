//! Datagrams.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use anabranch::blocking::Datagrams;

use crate::arguments::{self, CConnectOptions};
use crate::endpoint::CEndpoint;
use crate::outcome::{Failure, count, number};
use crate::stream::CStream;

/// `anabranch_datagrams`.
pub struct CDatagrams(Datagrams);

/// See the header.
///
/// # Safety
/// The pointers must be null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_datagrams_open(
    endpoint: *mut CEndpoint,
    peer: *const u8,
    addresses: *const *const c_char,
    count: usize,
    options: *const CConnectOptions,
    datagrams: *mut *mut CDatagrams,
) -> c_int {
    // SAFETY: as our caller promises.
    number(unsafe {
        arguments::required(endpoint, "the endpoint is null").and_then(|endpoint| {
            arguments::hand_over(datagrams, || {
                let peer = arguments::peer(peer, addresses, count)?;
                let options = arguments::connect_options(options)?;
                Ok(CDatagrams(endpoint.endpoint.datagrams(&peer, &options)?))
            })
        })
    })
}

/// See the header.
///
/// # Safety
/// `endpoint` and `stream` must be null or open, `datagrams` null or a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_datagrams_of(
    endpoint: *mut CEndpoint,
    stream: *const CStream,
    datagrams: *mut *mut CDatagrams,
) -> c_int {
    // SAFETY: as our caller promises.
    number(unsafe {
        arguments::required(endpoint, "the endpoint is null").and_then(|endpoint| {
            let stream = arguments::required(stream, "the stream is null")?;
            arguments::hand_over(datagrams, || Ok(CDatagrams(endpoint.endpoint.datagrams_of(&stream.0))))
        })
    })
}

/// See the header.
///
/// # Safety
/// `datagrams` must be null or open, `bytes` so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_datagram_send(
    datagrams: *mut CDatagrams,
    bytes: *const c_void,
    length: usize,
    deadline: u32,
) -> c_int {
    // SAFETY: as our caller promises.
    let outcome = unsafe { arguments::required(datagrams, "the datagrams are null") }.and_then(|datagrams| {
        if bytes.is_null() || isize::try_from(length).is_err() {
            return Err(Failure::invalid("there is nothing to send"));
        }
        // SAFETY: our caller promises so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        Ok(datagrams.0.send(bytes, Duration::from_millis(deadline.into()))?)
    });
    number(outcome)
}

/// See the header.
///
/// # Safety
/// `datagrams` must be null or open, `into` have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_datagram_receive(
    datagrams: *mut CDatagrams,
    into: *mut c_void,
    room: usize,
) -> isize {
    // SAFETY: as our caller promises.
    let outcome = unsafe { arguments::required(datagrams, "the datagrams are null") }.and_then(|datagrams| {
        let bytes = datagrams.0.receive()?;
        // SAFETY: as our caller promises.
        unsafe { arguments::put(&bytes, into.cast(), room) };
        Ok(bytes.len())
    });
    count(outcome)
}

/// See the header.
///
/// # Safety
/// `datagrams` must be null or open, and are not any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_datagrams_free(datagrams: *mut CDatagrams) {
    // SAFETY: as our caller promises.
    unsafe { arguments::free(datagrams) };
}
