//! What `down` does when no daemon is there to do it: the undo journal of a dead one is carried out.

use anabranch::control::DownReport;
use identity::{DaemonLock, LockError, StateDirectory};
use linux::journal::{Journal, JournalError};
use thiserror::Error;

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
    let mut report = DownReport::default();
    for undone in Journal::open(state.path())?.restore()? {
        match undone.failure {
            None => report.undone.push(undone.what),
            Some(failure) => report.failed.push(format!("{}: {failure}", undone.what)),
        }
    }
    Ok(report)
}
