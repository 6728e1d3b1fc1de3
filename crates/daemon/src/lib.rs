//! I/O. Event loops that join the pure crates to Linux; the control API.
#![forbid(unsafe_code)]
