//! The control API's server: HTTP and JSON on `control.sock` in the state directory.
//!
//! The requests and answers are drawn in [`anabranch::control`]. A loop that wants to be controlled implements
//! [`Backend`], keeps an [`EventLog`] and starts a [`ControlServer`]:
//!
//! ```text
//! cli, applications --> control.sock --> ControlServer (own thread) --> Backend --> channel --> the loop's thread
//!                                              ^-- EventLog <-- any thread
//! ```

mod backend;
mod caller;
pub mod clients;
pub mod dbus;
mod event_log;
mod metrics;
mod restore;
mod routes;
mod server;
#[cfg(test)]
mod tests;
pub mod web;

pub use backend::{Backend, BackendError};
pub use caller::{Caller, Callers, RequestClass, Requester};
pub use dbus::BusDoor;
pub use event_log::EventLog;
pub(crate) use restore::take_down;
pub use restore::{RestoreError, restore};
pub use server::{ControlServer, Doors, ServeError, listen_abstract};
pub use web::{WebDoor, WebDoorError};
