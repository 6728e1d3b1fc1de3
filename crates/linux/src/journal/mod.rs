//! Changes to the machine that are always taken back.
//!
//! Whatever the daemon changes outside its own process is a [`Change`]. Before one is made, how to undo it is
//! written to `undo.json` and forced to disk; so `down`, the next start after a crash and the next start after
//! a loss of power find what must be taken back. What vanishes by itself with the interface any0 (its
//! addresses and routes) is listed too, since a plan should name all.

mod change;
mod undo;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tracing::{info, warn};

pub use change::{Change, ChangeError};
pub use undo::Undo;

use crate::netlink::Netlink;
use crate::system_call::effective_user;

/// Why the journal could not be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("cannot {operation} the undo journal {path}: {error}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The file system's error.
        error: io::Error,
    },
    /// The file belongs to another user, who must not decide what this one does to the machine.
    #[error(
        "the undo journal {path} belongs to user {owner}, not to user {own}; if you trust its content run \"chown {own} {path}\", else remove it"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who this process is.
        own: u32,
    },
    /// The file holds something else.
    #[error(
        "the undo journal {path} cannot be understood: {error}; if the machine's routes and DNS are as they should be, remove the file"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
}

/// Why a plan was not carried out.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The journal could not be written, so nothing was changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The machine refused a change.
    #[error("cannot change the machine ({change}): {error}")]
    Change {
        /// The change in words.
        change: String,
        /// Why not.
        error: ChangeError,
    },
}

/// One thing that was taken back, or could not be.
#[derive(Debug)]
pub struct Undone {
    /// What it was, in words.
    pub what: String,
    /// Why it could not be taken back.
    pub failure: Option<ChangeError>,
}

/// The list of what must be undone, on disk before the machine is touched.
pub struct Journal {
    path: PathBuf,
    entries: Vec<Undo>,
}

impl Journal {
    /// Opens the journal in the state directory; it may hold what an earlier run left.
    pub fn open(state_directory: &Path) -> Result<Self, JournalError> {
        let path = state_directory.join(FILE_NAME);
        let entries = match read_own(&path)? {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| JournalError::Content { path: path.clone(), error })?,
            None => Vec::new(),
        };
        Ok(Self { path, entries })
    }

    /// What would be undone now, last change first, in words.
    pub fn pending(&self) -> impl Iterator<Item = String> {
        self.entries.iter().rev().map(Undo::to_string)
    }

    /// Makes `changes` in order, each only after its undoing is on disk.
    ///
    /// Stops at the first failure; what was made stays until [`Journal::restore`].
    pub fn apply(&mut self, changes: &[Change]) -> Result<(), ApplyError> {
        for change in changes {
            let fail = |error| ApplyError::Change { change: change.to_string(), error };
            let Some(undo) = change.undo().map_err(fail)? else { continue };
            if !self.entries.contains(&undo) {
                self.entries.push(undo);
                if let Err(error) = self.save() {
                    self.entries.pop();
                    return Err(error.into());
                }
            }
            change.make().map_err(fail)?;
            info!("set {change}");
        }
        Ok(())
    }

    /// Takes one change back before all others; nothing if the journal does not have it.
    ///
    /// What cannot be taken back stays in the journal.
    ///
    /// # Errors
    /// [`ApplyError`] if it is still there, or if the journal could not be written.
    pub fn take_back(&mut self, change: &Undo) -> Result<(), ApplyError> {
        let Some(at) = self.entries.iter().rposition(|entry| entry == change) else { return Ok(()) };
        change.carry_out().map_err(|error| ApplyError::Change { change: change.to_string(), error })?;
        self.entries.remove(at);
        Ok(self.save()?)
    }

    /// Takes everything back, last change first, and empties the journal.
    ///
    /// What cannot be taken back is reported and dropped: an entry that can never succeed must not block
    /// every later start. A disk that takes no shorter list, being full, does not stop it: taking back twice does no harm.
    ///
    /// A journal that cannot be removed, as on a read-only disk, is the last entry of the report.
    pub fn restore(&mut self) -> Result<Vec<Undone>, JournalError> {
        self.take_back_all(true)
    }

    /// The same for a daemon that starts again at once: marks of connections stay, and in the journal, so that those that live on keep
    /// their networks.
    pub fn restore_for_start(&mut self) -> Result<Vec<Undone>, JournalError> {
        self.take_back_all(false)
    }

    fn take_back_all(&mut self, with_marks: bool) -> Result<Vec<Undone>, JournalError> {
        let is_mark = |entry: &Undo| matches!(entry, Undo::FlowMarks { .. });
        // Marks of connections come last, when no table sets them any more.
        self.entries.sort_by_key(|entry| !is_mark(entry));
        let mut undone = Vec::new();
        let mut saved = Ok(());
        while let Some(entry) = self.entries.last().filter(|entry| with_marks || !is_mark(entry)) {
            let what = entry.to_string();
            let failure = entry.carry_out().err();
            match &failure {
                None => info!("undone: {what}"),
                Some(error) => warn!("cannot undo {what}: {error}"),
            }
            undone.push(Undone { what, failure });
            self.entries.pop();
            saved = self.save();
        }
        match saved {
            Err(JournalError::File { operation, path, error }) => {
                let what = "remove the undo journal".to_owned();
                let failure = Some(ChangeError::file(operation, &path)(error));
                undone.push(Undone { what, failure });
            }
            other => other?,
        }
        Ok(undone)
    }

    /// Writes the entries so that a crash at any point leaves either the old or the new list.
    fn save(&self) -> Result<(), JournalError> {
        let fail = |operation| move |error| JournalError::File { operation, path: self.path.clone(), error };
        if self.entries.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail("remove")(error)),
                _ => Ok(()),
            };
        }
        let bytes = serde_json::to_vec_pretty(&self.entries)
            .map_err(|error| fail("write")(io::Error::other(error)))?;
        write_durably(&self.path, &bytes).map_err(fail("write"))
    }
}

/// The content of a file of this process's own user; `None` if there is no file.
fn read_own(path: &Path) -> Result<Option<Vec<u8>>, JournalError> {
    let fail = |error| JournalError::File { operation: "read", path: path.to_owned(), error };
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(fail)?,
    };
    let (owner, own) = (file.metadata().map_err(fail)?.uid(), effective_user());
    if owner != own {
        return Err(JournalError::Foreign { path: path.to_owned(), owner, own });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(fail)?;
    Ok(Some(bytes))
}

/// Replaces `path` by a file with `bytes`, on disk before this returns.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // One that a killed process left is not written on: it may have got another owner since.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        drop(fs::remove_file(&temporary));
        return Err(error);
    }
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

fn open_netlink() -> Result<Netlink, ChangeError> {
    Ok(Netlink::open().map_err(crate::netlink::NetlinkError::from)?)
}

/// Switches an interface on or off. One that is gone, with its card, is as it should be.
fn set_link_up(interface: &str, up: bool) -> Result<(), ChangeError> {
    let mut netlink = open_netlink()?;
    match netlink.link(interface)? {
        Some(link) => Ok(netlink.set_link_up(link.index, up)?),
        None => Ok(()),
    }
}

/// Its name in the state directory.
pub const FILE_NAME: &str = "undo.json";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, lchown};

    use super::*;

    #[test]
    fn what_a_killed_process_left_does_not_lend_its_owner() {
        if effective_user() != 0 {
            println!("skipped: only root can give files away");
            return;
        }
        let directory = std::env::temp_dir().join(format!("ab-journal-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(FILE_NAME);
        let left = file.with_extension("new");
        fs::write(&left, "half").unwrap();
        lchown(&left, Some(65_534), Some(65_534)).unwrap();
        write_durably(&file, b"[]").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
        assert_eq!(fs::read(&file).unwrap(), b"[]");
        fs::remove_dir_all(&directory).unwrap();
    }
}
