//! I/O. Event loops that join the pure crates to Linux; the control API.
#![forbid(unsafe_code)]

pub mod bond_trace;
pub mod config;
pub mod control;
mod dataplane;
pub mod device;
pub mod gateway;
mod mailbox;
pub mod radio;
mod sleep;
mod supervision;
pub mod trace;
