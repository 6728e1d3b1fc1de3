//! Files that are either the old ones or the new ones, never half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a file could not be written. The old one, if there was one, is untouched.
#[derive(Debug, Error)]
pub enum WriteError {
    /// No room.
    #[error("no room left to write {}: free some space on that disk and try again", .0.display())]
    DiskFull(PathBuf),
    /// Read-only disk or directory.
    #[error("{} cannot be written: its disk or directory is read-only; choose another with --state DIR", .0.display())]
    ReadOnly(PathBuf),
    /// Missing rights.
    #[error("not allowed to write {}: run this as root or as the owner of the directory", .0.display())]
    NotAllowed(PathBuf),
    /// Anything else.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl WriteError {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(path),
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            io::ErrorKind::PermissionDenied => Self::NotAllowed(path),
            _ => Self::Io { path, source },
        }
    }
}

/// Opens a file of the state directory for its owner only, and no other file that a link of its name may lead to: root
/// works in a directory that belongs to the daemon's user.
pub(crate) fn open_private(path: &Path, options: &mut OpenOptions) -> Result<File, WriteError> {
    let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    options
        .create(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| WriteError::new(path, error))
}

/// Whether a file of that name may be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existing {
    Replace,
    /// Fail with `AlreadyExists`.
    Keep,
}

/// Writes `contents` with mode 0600 beside `path`, makes it durable, then puts it in place.
pub(crate) fn write(path: &Path, contents: &[u8], existing: Existing) -> Result<(), WriteError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let result = write_beside(&beside, contents).and_then(|()| match existing {
        Existing::Replace => fs::rename(&beside, path),
        Existing::Keep => fs::hard_link(&beside, path).and_then(|()| fs::remove_file(&beside)),
    });
    if let Err(error) = result {
        // Only the unfinished copy is removed; that it may not exist is no further fault.
        let _ = fs::remove_file(&beside);
        return Err(WriteError::new(path, error));
    }
    sync_directory(path).map_err(|error| WriteError::new(path, error))
}

fn write_beside(beside: &Path, contents: &[u8]) -> io::Result<()> {
    // A leftover of a process that had this number and was killed.
    match fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Makes the directory's new entry durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
