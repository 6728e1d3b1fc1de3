//! What `down` does: root takes everything back, or the journal of a dead daemon is carried out.

use anabranch::control::DownReport;
use identity::{DaemonLock, LockError, StateDirectory};
use linux::journal::{Journal, JournalError};
use thiserror::Error;

use super::BackendError;
use crate::supervision::{self, Request, Root};

/// Why a dead daemon's changes were not taken back.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The daemon is not dead, or the state directory cannot be written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Takes back what a daemon that no longer runs has changed on the machine.
///
/// # Errors
/// Any [`RestoreError`]; a change that cannot be taken back is in the report instead.
pub fn restore(state: &StateDirectory) -> Result<DownReport, RestoreError> {
    let _lock = DaemonLock::take(state)?;
    Ok(supervision::undo(&mut Journal::open(state.path())?)?)
}

/// Has root take everything back while the daemon still runs, then ends it by `stop`.
///
/// # Errors
/// If root does not say what was undone.
pub(crate) fn take_down(root: &Root, stop: impl FnOnce() -> bool) -> Result<DownReport, BackendError> {
    let report = root.ask(&Request::Restore);
    // Also if that failed: the supervising process takes everything back once more when this one has ended.
    stop();
    report.map_err(|error| {
        BackendError::Internal(format!("the daemon ends, but did not say what was undone: {error}"))
    })
}
