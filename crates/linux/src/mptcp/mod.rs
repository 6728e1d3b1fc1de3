//! The kernel's MPTCP (RFC 8684) as a carrier: [`PathManager`] says from which addresses connections open further subflows,
//! [`supervised`] has the TCP sockets of an unmodified program speak it.

mod marker;
mod marking;
mod notifications;
mod path_manager;
pub(crate) mod paths;
mod renewing;
pub mod supervised;
mod watching;
mod ways;

pub use marker::Marker;
pub use path_manager::{Endpoint, Limits, PathManager};
pub use paths::{MOST_ENDPOINTS, PathNetwork, Paths, PathsError};
pub use renewing::{Hindrance, wider_windows};
pub use watching::WayCounts;

use std::fs;

/// Why new connections cannot speak MPTCP, with what would help; `None` if they can.
pub fn why_not() -> Option<String> {
    match fs::read_to_string(SWITCH) {
        Ok(text) if text.trim() == "0" => Some(
            "MPTCP is switched off on this machine; switch it on: sysctl -w net.mptcp.enabled=1".to_owned(),
        ),
        Ok(_) => None,
        Err(_) => {
            Some("this kernel has no MPTCP; it takes Linux 5.6 or newer, built with CONFIG_MPTCP".to_owned())
        }
    }
}

const SWITCH: &str = "/proc/sys/net/mptcp/enabled";
