//! Small programs that the kernel runs itself, loaded through bpf(2) without compiler, library or object file.
//!
//! One family of programs only: [`FastPath`] gives new sockets the firewall mark of a network at `connect`, so that
//! direct mode needs no nftables rule per packet. Where the kernel refuses (no `CAP_BPF`, before Linux 5.8, no
//! cgroup version 2), direct mode works by nftables alone.

mod fast_path;
mod instruction;
mod program;
mod system;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

pub use fast_path::{FastPath, RealTimeMarks, Slots};

/// Why a BPF program could not be loaded or fed.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The kernel refused.
    #[error("BPF: cannot {operation}: {error}{}{}", hint(error), shown(log))]
    Refused {
        /// What was tried.
        operation: &'static str,
        /// The kernel's error.
        error: io::Error,
        /// What the kernel's verifier said of the program, its end; empty otherwise.
        log: String,
    },
    /// The directory is not a cgroup of version 2 that can be opened.
    #[error("BPF: cannot open the cgroup {}: {error}", path.display())]
    Cgroup {
        /// Which.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// More than the map holds.
    #[error("BPF: {count} {what} are too many, there is room for {room}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many were given.
        count: usize,
        /// How many fit.
        room: usize,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => " (it takes root, or CAP_BPF and CAP_NET_ADMIN)",
        Some(libc::ENOSYS) => " (this kernel has no BPF)",
        Some(libc::EINVAL) => " (it takes Linux 5.8 with CONFIG_CGROUP_BPF)",
        _ => "",
    }
}

fn shown(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; the verifier says: {log}") }
}
