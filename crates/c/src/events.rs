//! Events.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use anabranch::blocking::Events;
use anabranch::{ConnectError, Event, EventKind};

use crate::arguments::{self, KEY, NAME};
use crate::endpoint::CEndpoint;
use crate::outcome::{Failure, number};

/// `anabranch_events`.
pub struct CEvents(Mutex<Events>);

/// `anabranch_event`.
#[repr(C)]
#[derive(Debug)]
pub struct CEvent {
    pub(crate) kind: u32,
    pub(crate) flag: u32,
    pub(crate) peer: [u8; KEY],
    pub(crate) adapter: [u8; NAME],
    pub(crate) from: [u8; NAME],
}

impl From<&Event> for CEvent {
    fn from(event: &Event) -> Self {
        let (kind, flag, adapter, from) = match &event.kind {
            EventKind::New { adapter } => (1, false, adapter.as_str(), ""),
            EventKind::Off { adapter, suspended } => (2, *suspended, adapter.as_str(), ""),
            EventKind::On { adapter } => (3, false, adapter.as_str(), ""),
            EventKind::Switch { from, to } => (4, false, to.as_str(), from.as_str()),
            EventKind::ControlDeleted { adapter } => (5, false, adapter.as_str(), ""),
            EventKind::ControlChanged { adapter, usable } => (6, *usable, adapter.as_str(), ""),
            EventKind::Ended { .. } => (7, false, "", ""),
        };
        let (adapter, from) = (arguments::name(adapter), arguments::name(from));
        Self { kind, flag: u32::from(flag), peer: event.peer.0, adapter, from }
    }
}

/// See the header.
///
/// # Safety
/// `endpoint` must be null or open, `events` null or a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_events_open(endpoint: *mut CEndpoint, events: *mut *mut CEvents) -> c_int {
    // SAFETY: as our caller promises.
    number(unsafe {
        arguments::required(endpoint, "the endpoint is null").and_then(|endpoint| {
            arguments::hand_over(events, || Ok(CEvents(Mutex::new(endpoint.endpoint.events()))))
        })
    })
}

/// See the header.
///
/// # Safety
/// `events` must be null or open, `event` null or a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_events_next(events: *mut CEvents, event: *mut CEvent) -> c_int {
    // SAFETY: as our caller promises.
    let outcome = unsafe { arguments::required(events, "the events are null") }.and_then(|events| {
        if event.is_null() {
            return Err(Failure::invalid("there is no place for the event"));
        }
        let next = events.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        let next = next.ok_or(ConnectError::Closed)?;
        // SAFETY: as our caller promises.
        unsafe { event.write(CEvent::from(&next)) };
        Ok(())
    });
    number(outcome)
}

/// See the header.
///
/// # Safety
/// `events` must be null or open, and are not any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_events_free(events: *mut CEvents) {
    // SAFETY: as our caller promises.
    unsafe { arguments::free(events) };
}
