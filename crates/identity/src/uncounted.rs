//! What clients have carried while their registry was out of reach, kept while the gateway does not run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use policy::calendar::Day;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::Bytes;

use crate::atomic_file::WriteError;
use crate::key::PublicKey;
use crate::registry::Usage;
use crate::state::StateDirectory;

const FILE_NAME: &str = "uncounted.toml";
/// More than the largest pool of addresses has clients for, in bytes.
const MAX_FILE: u64 = 8 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageFile {
    month: Day,
    bytes: BTreeMap<String, u64>,
}

/// Why what was kept cannot be read.
#[derive(Debug, Error)]
pub enum UncountedError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} is damaged and is left out: what clients had carried before is not counted", .0.display())]
    Damaged(PathBuf),
}

impl Usage {
    /// Keeps it in the state directory, in place of what was kept there.
    ///
    /// # Errors
    /// Any [`WriteError`].
    pub fn keep(&self, state: &StateDirectory) -> Result<(), WriteError> {
        let written = |(key, bytes): &(PublicKey, Bytes)| (key.to_string(), bytes.0.min(i64::MAX as u64));
        let file = UsageFile { month: self.month, bytes: self.bytes.iter().map(written).collect() };
        let failed = |error| WriteError::new(&state.file(FILE_NAME), io::Error::other(error));
        let text = toml::to_string(&file).map_err(failed)?;
        state.replace(FILE_NAME, text.as_bytes())
    }

    /// What was kept; `None` if nothing was.
    ///
    /// # Errors
    /// Any [`UncountedError`].
    pub fn kept(state: &StateDirectory) -> Result<Option<Self>, UncountedError> {
        let path = state.file(FILE_NAME);
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(UncountedError::Damaged(path));
            }
            Err(source) => return Err(UncountedError::Read { path, source }),
            Ok(length) if length as u64 > MAX_FILE => return Err(UncountedError::Damaged(path)),
            Ok(_) => {}
        }
        let file: Option<UsageFile> = toml::from_str(&text).ok();
        let usage = file.and_then(|file| {
            let bytes = file.bytes.iter().map(|(key, bytes)| Some((key.parse().ok()?, Bytes(*bytes))));
            Some(Self { month: file.month, bytes: bytes.collect::<Option<_>>()? })
        });
        usage.map(Some).ok_or(UncountedError::Damaged(path))
    }

    /// Removes what was kept: it has been counted.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn forget(state: &StateDirectory) -> Result<(), WriteError> {
        let path = state.file(FILE_NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(WriteError::new(&path, error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        assert_eq!(Usage::kept(&state).unwrap(), None);
        let keys = [[1; 32], [2; 32]].map(PublicKey);
        let usage = Usage { month: Day(20_400), bytes: vec![(keys[0], Bytes(7)), (keys[1], Bytes(8))] };
        usage.keep(&state).unwrap();
        let mut kept = Usage::kept(&state).unwrap().unwrap();
        kept.bytes.sort_by_key(|(key, _)| key.0);
        assert_eq!(kept, usage);
        Usage::forget(&state).unwrap();
        Usage::forget(&state).unwrap();
        assert_eq!(Usage::kept(&state).unwrap(), None);
    }

    #[test]
    fn what_is_no_such_file_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        for text in [
            &b"month = 1\n"[..],
            b"month = 1\n[bytes]\nnobody = 5\n",
            b"month = 1\nyear = 2\n[bytes]\n",
            b"month = 1\n[bytes]\naeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq = -5\n",
            b"\xff\xfe",
            &vec![b'#'; MAX_FILE as usize + 1],
        ] {
            fs::write(state.file(FILE_NAME), text).unwrap();
            assert!(matches!(Usage::kept(&state), Err(UncountedError::Damaged(_))));
        }
    }
}
