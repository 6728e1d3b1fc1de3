//! Logs on standard error: of a daemon in the foreground, and of other commands where ANABRANCH_LOG asks for them.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Turns logging on where ANABRANCH_LOG asks for it, for commands that have other things to say.
pub fn start_if_asked() {
    if std::env::var_os("ANABRANCH_LOG").is_some() {
        start();
    }
}

/// Turns logging on: `info` and above, or what ANABRANCH_LOG says (`debug`, `bond=trace`, ...).
pub fn start() {
    let filter = EnvFilter::try_from_env("ANABRANCH_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // Told on standard error too, and where that is a file on a full disk telling it would panic.
        .log_internal_errors(false);
    // Only fails if logging is on already, and then there is nothing to do.
    let _ = subscriber.try_init();
}
