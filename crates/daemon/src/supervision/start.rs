//! What every daemon does first and, with its journal, last.

use anabranch::control::DownReport;
use std::os::fd::OwnedFd;

use identity::{DaemonLock, LockError, StateDirectory};
use linux::journal::{Journal, JournalError};
use linux::privileges::requirements::{self, Missing, Purpose};
use thiserror::Error;
use tracing::warn;

use super::{Answer, take_lock};

/// Why a daemon cannot even begin.
#[derive(Debug, Error)]
pub enum StartError {
    /// Something is missing on this machine.
    #[error("this machine cannot be a {role} yet:{}", .missing.iter().map(|missing| format!("\n  {missing}")).collect::<String>())]
    Missing {
        /// What it was to be.
        role: &'static str,
        /// What is missing, and how to get it.
        missing: Vec<Missing>,
    },
    /// Another daemon is running.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The undo journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Checks the machine, takes the state directory for this process, and takes back what a dead daemon has left.
///
/// # Errors
/// Any [`StartError`].
pub fn begin(state: &StateDirectory, purpose: Purpose) -> Result<(DaemonLock, Journal), StartError> {
    let (lock, mut journal) = go_on(state, purpose, None)?;
    if journal.pending().next().is_some() {
        warn!("the last run was ended the hard way: taking its changes back");
        journal.restore_for_start()?;
    }
    Ok((lock, journal))
}

/// The same for a daemon that continues what another version of it has begun: its changes stay, and its lock, if that was handed over.
///
/// # Errors
/// Any [`StartError`].
pub fn go_on(
    state: &StateDirectory,
    purpose: Purpose,
    lock: Option<OwnedFd>,
) -> Result<(DaemonLock, Journal), StartError> {
    let missing = requirements::missing(purpose);
    if !missing.is_empty() {
        let role = if purpose == Purpose::Gateway { "gateway" } else { "device" };
        return Err(StartError::Missing { role, missing });
    }
    let lock = lock.map_or_else(|| take_lock(state), |descriptor| DaemonLock::adopt(state, descriptor))?;
    Ok((lock, Journal::open(state.path())?))
}

/// Undoes all that the journal holds.
///
/// # Errors
/// If the journal cannot be written; a change that cannot be taken back is in the report instead.
pub fn undo(journal: &mut Journal) -> Result<DownReport, JournalError> {
    let mut report = DownReport::default();
    for undone in journal.restore()? {
        match undone.failure {
            None => report.undone.push(undone.what),
            Some(failure) => report.failed.push(format!("{}: {failure}", undone.what)),
        }
    }
    Ok(report)
}

/// The same as the answer to [`super::Request::Restore`].
pub fn restore(journal: &mut Journal) -> Answer {
    undo(journal).map_or_else(
        |error| {
            warn!("{error}");
            Answer::Failed { reason: error.to_string() }
        },
        Answer::Restored,
    )
}
