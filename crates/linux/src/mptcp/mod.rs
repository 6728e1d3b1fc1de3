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

/// Why new connections of unmodified programs cannot speak MPTCP, with what would help; `None` if they can.
pub fn why_not() -> Option<String> {
    let release = fs::read_to_string(RELEASE).unwrap_or_default();
    if is_too_old(&release) {
        return Some(format!(
            "Linux {} is too old to give a program's sockets MPTCP; it takes 5.14 or newer",
            release.trim()
        ));
    }
    match fs::read_to_string(SWITCH) {
        Ok(text) if text.trim() == "0" => Some(
            "MPTCP is switched off on this machine; switch it on: sysctl -w net.mptcp.enabled=1".to_owned(),
        ),
        Ok(_) => None,
        Err(_) => Some("this kernel has no MPTCP; it takes one built with CONFIG_MPTCP".to_owned()),
    }
}

const SWITCH: &str = "/proc/sys/net/mptcp/enabled";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// The first that takes a descriptor as the answer to a call that waits (`SECCOMP_ADDFD_FLAG_SEND`); older ones fail at each socket.
const FIRST_RELEASE: [u32; 2] = [5, 14];

/// Whether a kernel's release is known, and of one before [`FIRST_RELEASE`].
fn is_too_old(release: &str) -> bool {
    let numbers: Vec<u32> = release
        .split(|sign: char| !sign.is_ascii_digit())
        .map_while(|part| part.parse().ok())
        .take(2)
        .collect();
    <[u32; 2]>::try_from(numbers).is_ok_and(|release| release < FIRST_RELEASE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_cannot_answer_with_a_socket_are_told_from_those_that_can() {
        for old in ["5.13.19-generic\n", "5.6.0", "4.19.0-27-amd64", "5.10.0-35+deb11"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in ["5.14.0", "5.15.0-1 \n", "6.1.0-40-amd64", "10.2", "", "mine", "6"] {
            assert!(!is_too_old(new), "{new}");
        }
    }
}
