//! One daemon on one state directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use thiserror::Error;

use crate::atomic_file::{WriteError, open_private};
use crate::state::StateDirectory;

/// Held by the daemon that uses a state directory; ends with the process, however that ends, unless a duplicate of its descriptor
/// is kept.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
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
        Self::lock(state, open(state)?)
    }

    /// Goes on with a lock that was handed over by its descriptor; takes it as [`DaemonLock::take`] does if that is of another file.
    ///
    /// # Errors
    /// As [`DaemonLock::take`].
    pub fn adopt(state: &StateDirectory, descriptor: OwnedFd) -> Result<Self, LockError> {
        let own = open(state)?;
        let is_same = match (fstat(&descriptor), fstat(&own)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        };
        Self::lock(state, if is_same { File::from(descriptor) } else { own })
    }

    fn lock(state: &StateDirectory, mut file: File) -> Result<Self, LockError> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held {
                    directory: state.path().to_owned(),
                    process: read_process(&mut file),
                });
            }
            Err(error) => return Err(WriteError::new(&state.file(NAME), error.into()).into()),
        }
        // The number is a courtesy to whoever finds the lock held: a full disk must not keep a daemon from running.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { file })
    }
}

impl AsFd for DaemonLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const NAME: &str = "daemon.lock";

fn open(state: &StateDirectory) -> Result<File, WriteError> {
    open_private(&state.file(NAME), OpenOptions::new().read(true).write(true).truncate(false))
}

fn read_process(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
