//! One daemon on one state directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;

use crate::atomic_file::{WriteError, open_private};
use crate::state::StateDirectory;

/// Held by the daemon that uses a state directory; ends with the process, however that ends.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

/// Why the lock was not had.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error(
        "a daemon is already running on {}{}; stop it with `anabranch down`, or name another directory with --state DIR",
        directory.display(),
        process.map_or_else(String::new, |process| format!(" (process {process})"))
    )]
    Held {
        /// The state directory.
        directory: PathBuf,
        /// The other daemon.
        process: Option<u32>,
    },
    /// The lock file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl DaemonLock {
    /// Takes the lock of a state directory, without waiting.
    ///
    /// # Errors
    /// [`LockError::Held`] while another process has it.
    pub fn take(state: &StateDirectory) -> Result<Self, LockError> {
        let path = state.file("daemon.lock");
        let mut file = open_private(&path, OpenOptions::new().read(true).write(true).truncate(false))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held {
                    directory: state.path().to_owned(),
                    process: read_process(&mut file),
                });
            }
            Err(error) => return Err(WriteError::new(&path, error.into()).into()),
        }
        // The number is a courtesy to whoever finds the lock held: a full disk must not keep a daemon from running.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

fn read_process(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
