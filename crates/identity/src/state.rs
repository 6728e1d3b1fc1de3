//! The state directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::atomic_file::{self, Existing, WriteError, open_private};

/// Where root keeps its state unless told otherwise.
const ROOT_DIRECTORY: &str = "/var/lib/anabranch";
const MODE: u32 = 0o700;

/// A directory that exists and that only its owner can read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

/// Why a state directory cannot be used.
#[derive(Debug, Error)]
pub enum StateError {
    /// It cannot be made or written.
    #[error("the state directory cannot be used: {0}")]
    Write(#[from] WriteError),
    /// It is not there.
    #[error("there is no state in {}: run `{command}` first, or name another directory with --state DIR", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
        /// What makes one.
        command: &'static str,
    },
    /// A file stands in its place.
    #[error("{} is not a directory; name another with --state DIR", .0.display())]
    NotADirectory(PathBuf),
    /// Others may read it and it belongs to somebody else, so that cannot be mended here.
    #[error("{} can be read by others (mode {mode:03o}) and is not yours: run `chmod 700 {}` as its owner", path.display(), path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Neither XDG_STATE_HOME nor HOME is set.
    #[error("no place for the state: set HOME, or name a directory with --state DIR")]
    NoHome,
}

impl StateDirectory {
    /// `/var/lib/anabranch` for root, else `$XDG_STATE_HOME/anabranch` or `~/.local/state/anabranch`.
    ///
    /// # Errors
    /// [`StateError::NoHome`].
    pub fn default_path() -> Result<PathBuf, StateError> {
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from(ROOT_DIRECTORY));
        }
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
        Ok(base.ok_or(StateError::NoHome)?.join("anabranch"))
    }

    /// Opens the directory, and makes it (mode 0700) if it is not there.
    ///
    /// # Errors
    /// Any [`StateError`] but `Missing`.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, StateError> {
        let path = path.into();
        DirBuilder::new().recursive(true).mode(MODE).create(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                StateError::NotADirectory(path.clone())
            }
            _ => StateError::Write(WriteError::new(&path, error)),
        })?;
        Self::open(path, "anabranch join -")
    }

    /// Opens a directory that must be there; `command` is what makes one, for the message.
    ///
    /// A mode that lets others in is mended.
    ///
    /// # Errors
    /// Any [`StateError`].
    pub fn open(path: impl Into<PathBuf>, command: &'static str) -> Result<Self, StateError> {
        let path = path.into();
        let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StateError::Missing { path: path.clone(), command },
            io::ErrorKind::NotADirectory => StateError::NotADirectory(path.clone()),
            _ => StateError::Write(WriteError::new(&path, error)),
        })?;
        if !metadata.is_dir() {
            return Err(StateError::NotADirectory(path));
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(MODE))
                .map_err(|_| StateError::Open { path: path.clone(), mode })?;
        }
        Ok(Self { path })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file in it for appending, made (mode 0600) if it is not there; never what a link of that name leads to.
    ///
    /// # Errors
    /// Any [`WriteError`].
    pub fn append_to(&self, name: &str) -> Result<File, WriteError> {
        open_private(&self.file(name), OpenOptions::new().append(true))
    }

    /// Puts `contents` in the place of a file in it (mode 0600), all of it or nothing, and makes that durable.
    ///
    /// # Errors
    /// Any [`WriteError`].
    pub fn replace(&self, name: &str, contents: &[u8]) -> Result<(), WriteError> {
        atomic_file::write(&self.file(name), contents, Existing::Replace)
    }

    /// User and group that own the directory.
    ///
    /// # Errors
    /// If the directory is gone.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        fs::metadata(&self.path).map(|metadata| (metadata.uid(), metadata.gid()))
    }

    /// Gives the directory and the files in it to the user that a daemon is about to become; all but those named in `kept`, and
    /// those of `shown` that belong to who calls this, which the user's group may read from then on.
    ///
    /// # Errors
    /// The first file that could not be given.
    pub fn hand_over(&self, user: u32, group: u32, kept: &[&str], shown: &[&str]) -> Result<(), WriteError> {
        let give = |path: &Path| match lchown(path, Some(user), Some(group)) {
            // Removed meanwhile by another process.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(WriteError::new(path, error)),
            _ => Ok(()),
        };
        let entries = fs::read_dir(&self.path).map_err(|error| WriteError::new(&self.path, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| WriteError::new(&self.path, error))?;
            let is_among = |names: &[&str]| names.iter().any(|name| entry.file_name() == *name);
            if is_among(kept) || (is_among(shown) && show(&entry.path(), group)?) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                give(&entry.path())?;
            }
        }
        give(&self.path)
    }
}

/// Lets a group read a file of this process's user, and write it no longer; false if it is somebody else's, or a link.
fn show(path: &Path, group: u32) -> Result<bool, WriteError> {
    let failed = |error| WriteError::new(path, error);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    // What the directory's owner puts in the file's place meanwhile is not touched.
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path) else {
        return Ok(false);
    };
    let metadata = file.metadata().map_err(failed)?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    if !is_own || !metadata.is_file() || metadata.nlink() > 1 {
        return Ok(is_own);
    }
    fchown(&file, None, Some(group)).map_err(failed)?;
    let mode = metadata.mode() & 0o604 | 0o640;
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(true)
}
