//! A file of records that grows by whole lines, up to a bound.
//!
//! A line that a crash has cut off is removed at the next start; one that the disk had no room for, at once. So every line but
//! the last is whole, whatever happens. When the file is full it becomes `NAME.old`, in the place of an older one.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use identity::StateDirectory;
use policy::replay::{TraceEvent, TraceRecord};
use thiserror::Error;

/// Why something is not recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file cannot be opened, read or renamed.
    #[error("{path}: {error}")]
    Open {
        /// Which.
        path: String,
        /// Why.
        error: String,
    },
    /// The disk is full, or worse.
    #[error("cannot write {path}: {error}")]
    Write {
        /// Which file.
        path: String,
        /// Why.
        error: io::Error,
    },
}

/// An open record.
pub struct TraceFile {
    state: StateDirectory,
    name: String,
    file: File,
    /// Up to here all lines are whole.
    length: u64,
    bound: u64,
}

/// How far an earlier run came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// The latest time in the file's last lines.
    pub at: Duration,
    /// The greatest number of a flow there.
    pub flow: Option<u64>,
}

impl TraceFile {
    /// Opens `name` in the state directory, mode 0600, to go on behind what is there. `bound` is its greatest size in bytes.
    ///
    /// # Errors
    /// [`RecordError::Open`].
    pub fn open(state: StateDirectory, name: &str, bound: u64) -> Result<(Self, Left), RecordError> {
        let cannot =
            |error: String| RecordError::Open { path: state.file(name).display().to_string(), error };
        let file = append(&state, name).map_err(&cannot)?;
        let (length, left) = read_end(&state, name).map_err(|error| cannot(error.to_string()))?;
        file.set_len(length).map_err(|error| cannot(error.to_string()))?;
        Ok((Self { name: name.to_owned(), file, length, bound, state }, left))
    }

    /// Begins a new file if this one is full. True if it did: the new one knows of no network yet.
    ///
    /// # Errors
    /// [`RecordError::Open`]; the old file stays in use.
    pub fn turn_over(&mut self) -> Result<bool, RecordError> {
        if self.length < self.bound {
            return Ok(false);
        }
        let path = self.path();
        let cannot = |error: String| RecordError::Open { path: path.clone(), error };
        let old = self.state.file(&format!("{}.old", self.name));
        fs::rename(self.state.file(&self.name), old).map_err(|error| cannot(error.to_string()))?;
        self.file = append(&self.state, &self.name).map_err(&cannot)?;
        self.length = 0;
        Ok(true)
    }

    /// Adds records, all of them or none.
    ///
    /// # Errors
    /// [`RecordError::Write`].
    pub fn append(&mut self, records: &[TraceRecord]) -> Result<(), RecordError> {
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record)
                .map_err(|error| RecordError::Write { path: self.path(), error: error.into() })?;
            lines.push(b'\n');
        }
        if let Err(error) = self.file.write_all(&lines) {
            // What can be taken back of half a line is taken back; else the next start does it.
            if let Err(error) = self.file.set_len(self.length) {
                tracing::debug!("half a line stays in {}: {error}", self.path());
            }
            return Err(RecordError::Write { path: self.path(), error });
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    fn path(&self) -> String {
        self.state.file(&self.name).display().to_string()
    }
}

fn append(state: &StateDirectory, name: &str) -> Result<File, String> {
    let file = state.append_to(name).map_err(|error| error.to_string())?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(|error| error.to_string())?;
    Ok(file)
}

/// The length up to the last whole line, and what the last lines say.
fn read_end(state: &StateDirectory, name: &str) -> io::Result<(u64, Left)> {
    let mut file = File::open(state.file(name))?;
    let whole = file.metadata()?.len();
    let start = whole.saturating_sub(END);
    file.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    let Some(last) = end.iter().rposition(|byte| *byte == b'\n') else {
        // One line without an end, and longer than any that was written whole.
        return Ok((if start == 0 { 0 } else { whole }, Left::default()));
    };
    let mut left = Left::default();
    for line in end[..last].split(|byte| *byte == b'\n') {
        let Ok(record) = serde_json::from_slice::<TraceRecord>(line) else { continue };
        left.at = left.at.max(record.at);
        if let TraceEvent::Flow(flow) = record.event {
            left.flow = left.flow.max(Some(flow.id));
        }
    }
    Ok((start + last as u64 + 1, left))
}

/// How much of the end of a file is looked at: some thousand lines.
const END: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use policy::network::PowerSupply;

    use super::*;

    fn networks(seconds: u64) -> TraceRecord {
        let event = TraceEvent::Networks { networks: Vec::new(), power: PowerSupply::Mains };
        TraceRecord { at: Duration::from_secs(seconds), event }
    }

    fn directory() -> (tempfile::TempDir, StateDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        (directory, state)
    }

    #[test]
    fn a_record_goes_on_behind_a_line_that_was_cut_off() {
        let (_directory, state) = directory();
        let (mut file, left) = TraceFile::open(state.clone(), "day.jsonl", 1_000).unwrap();
        assert_eq!(left, Left::default());
        file.append(&[networks(1), networks(5)]).unwrap();
        drop(file);
        let path = state.file("day.jsonl");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"at\": {\"secs\": 9"].concat()).unwrap();
        let (mut file, left) = TraceFile::open(state, "day.jsonl", 1_000).unwrap();
        assert_eq!(left, Left { at: Duration::from_secs(5), flow: None });
        assert_eq!(fs::read(&path).unwrap(), whole);
        file.append(&[networks(6)]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_full_file_makes_room_for_a_new_one() {
        let (_directory, state) = directory();
        let (mut file, _) = TraceFile::open(state.clone(), "day.jsonl", 100).unwrap();
        assert!(!file.turn_over().unwrap());
        file.append(&[networks(1), networks(2)]).unwrap();
        assert!(file.turn_over().unwrap());
        file.append(&[networks(3)]).unwrap();
        let lines = |name: &str| fs::read_to_string(state.file(name)).unwrap().lines().count();
        assert_eq!((lines("day.jsonl.old"), lines("day.jsonl")), (2, 1));
    }

    #[test]
    fn what_others_put_there_is_not_followed() {
        let (directory, state) = directory();
        let elsewhere = directory.path().join("precious");
        fs::write(&elsewhere, "content").unwrap();
        std::os::unix::fs::symlink(&elsewhere, state.file("day.jsonl")).unwrap();
        assert!(TraceFile::open(state, "day.jsonl", 100).is_err());
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "content");
    }
}
