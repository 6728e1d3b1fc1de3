//! Endpoints.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch::blocking::{Endpoint, VirtualListener};
use anabranch::{Admission, EndpointOptions};
use identity::{KeyPair, PublicKey};
use wire::hello::Name;

use crate::arguments::{self, CConnectOptions, KEY};
use crate::outcome::{Failure, number};
use crate::stream::CStream;

/// `anabranch_endpoint`.
pub struct CEndpoint {
    pub(crate) endpoint: Endpoint,
    /// Shared with the calls that wait in it.
    listener: Mutex<Option<Arc<VirtualListener>>>,
}

/// `anabranch_options`.
#[repr(C)]
#[derive(Debug)]
pub struct COptions {
    pub(crate) private_key: [u8; KEY],
    pub(crate) name: *const c_char,
    pub(crate) adapters: *const c_char,
    pub(crate) admitted_keys: *const u8,
    pub(crate) admitted_count: usize,
    pub(crate) patience: u32,
    pub(crate) port: u16,
    pub(crate) admission: u8,
    pub(crate) spread: u8,
}

/// See the header.
///
/// # Safety
/// The pointers must be null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_endpoint_open(
    options: *const COptions,
    endpoint: *mut *mut CEndpoint,
) -> c_int {
    // SAFETY: as our caller promises.
    number(unsafe {
        arguments::required(options, "the options are null").and_then(|options| {
            arguments::hand_over(endpoint, || {
                let endpoint = Endpoint::bind(options.read()?)?;
                Ok(CEndpoint { endpoint, listener: Mutex::default() })
            })
        })
    })
}

impl COptions {
    /// # Safety
    /// The pointers must be null or what the header says.
    unsafe fn read(&self) -> Result<EndpointOptions, Failure> {
        let key = KeyPair::from_private(self.private_key).map_err(|error| Failure::system(&error))?;
        let admission = match self.admission {
            0 => Admission::Nobody,
            1 => Admission::Anybody,
            2 if self.admitted_keys.is_null() && self.admitted_count > 0 => {
                return Err(Failure::invalid("the admitted keys are null"));
            }
            2 => {
                let keys = (0..self.admitted_count).map(|at| {
                    // SAFETY: there are so many keys of 32 bytes, as our caller promises.
                    unsafe { arguments::key(self.admitted_keys.add(at * KEY)) }.map(PublicKey)
                });
                Admission::Keys(keys.collect::<Result<_, _>>()?)
            }
            other => return Err(Failure::invalid(&format!("{other} is no admission"))),
        };
        let mut options = EndpointOptions::listening(key, self.port, admission);
        // SAFETY: as our caller promises.
        if let Some(name) = unsafe { arguments::text(self.name) }? {
            options.name = Some(Name::new(name).map_err(|error| Failure::invalid(&error.to_string()))?);
        }
        // SAFETY: as our caller promises.
        if let Some(adapters) = unsafe { arguments::text(self.adapters) }? {
            let only: Vec<String> = adapters.split_ascii_whitespace().map(str::to_owned).collect();
            if only.is_empty() {
                return Err(Failure::invalid(
                    "the list of adapters is empty: name one, or give null for all",
                ));
            }
            options.only = Some(only);
        }
        if self.patience > 0 {
            options.patience = Duration::from_millis(self.patience.into());
        }
        options.spread = self.spread != 0;
        Ok(options)
    }
}

/// See the header.
///
/// # Safety
/// `endpoint` must be null or open, `text` have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_endpoint_addresses(
    endpoint: *const CEndpoint,
    text: *mut c_char,
    room: usize,
) -> usize {
    // SAFETY: as our caller promises.
    let Ok(endpoint) = (unsafe { arguments::required(endpoint, "the endpoint is null") }) else { return 0 };
    let addresses = endpoint.endpoint.asynchronous().addresses();
    let mut lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let whole = lines.len() + 1;
    lines.truncate(room.saturating_sub(1));
    lines.push('\0');
    // SAFETY: as our caller promises.
    unsafe { arguments::put(lines.as_bytes(), text.cast(), room) };
    whole
}

/// See the header.
///
/// # Safety
/// `endpoint` must be null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_listen(endpoint: *mut CEndpoint) -> c_int {
    // SAFETY: as our caller promises.
    number(
        unsafe { arguments::required(endpoint, "the endpoint is null") }
            .map(|endpoint| drop(endpoint.listener())),
    )
}

impl CEndpoint {
    fn listener(&self) -> Arc<VirtualListener> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(listener.get_or_insert_with(|| Arc::new(self.endpoint.listen())))
    }
}

/// See the header.
///
/// # Safety
/// `endpoint` must be null or open, `stream` null or a place, `peer` null or have 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_accept(
    endpoint: *mut CEndpoint,
    stream: *mut *mut CStream,
    peer: *mut u8,
) -> c_int {
    // SAFETY: as our caller promises.
    number(unsafe {
        arguments::required(endpoint, "the endpoint is null").and_then(|endpoint| {
            arguments::hand_over(stream, || {
                let accepted = endpoint.listener().accept()?;
                arguments::put(&accepted.peer().0, peer, KEY);
                Ok(CStream(accepted))
            })
        })
    })
}

/// See the header.
///
/// # Safety
/// The pointers must be null or what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_connect(
    endpoint: *mut CEndpoint,
    peer: *const u8,
    addresses: *const *const c_char,
    count: usize,
    options: *const CConnectOptions,
    stream: *mut *mut CStream,
) -> c_int {
    // SAFETY: as our caller promises.
    number(unsafe {
        arguments::required(endpoint, "the endpoint is null").and_then(|endpoint| {
            arguments::hand_over(stream, || {
                let peer = arguments::peer(peer, addresses, count)?;
                let options = arguments::connect_options(options)?;
                Ok(CStream(endpoint.endpoint.connect(&peer, &options)?))
            })
        })
    })
}

/// See the header.
///
/// # Safety
/// `endpoint` must be null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_endpoint_close(endpoint: *mut CEndpoint) {
    // SAFETY: as our caller promises.
    let endpoint = unsafe { arguments::required(endpoint, "the endpoint is null") };
    number(endpoint.map(|endpoint| endpoint.endpoint.clone().close()));
}

/// See the header.
///
/// # Safety
/// `endpoint` must be null or open, and is not any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_endpoint_free(endpoint: *mut CEndpoint) {
    // SAFETY: as our caller promises.
    unsafe { arguments::free(endpoint) };
}
