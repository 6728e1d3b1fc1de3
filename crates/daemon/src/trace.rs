//! Reads what a device has recorded (`record` under `[device]`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use policy::replay::{TraceRecord, arrange};
use thiserror::Error;

/// A record in the order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// The records.
    pub records: Vec<TraceRecord>,
    /// The last line was cut off, as a crash or a copy of a file in use leaves it; it is left out.
    pub is_cut_off: bool,
}

/// Why a file is no record.
#[derive(Debug, Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line is something else.
    #[error("{path} line {number} is no record of a trace: {error}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        number: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// It is too long to be looked at in one piece.
    #[error("{path} has more than {MOST_RECORDS} records; split it")]
    TooLong {
        /// Which file.
        path: PathBuf,
    },
}

/// Reads the record in `path`: one JSON object a line.
///
/// # Errors
/// Any [`TraceError`].
pub fn read(path: &Path) -> Result<Trace, TraceError> {
    let unreadable = |error| TraceError::Read { path: path.to_owned(), error };
    let mut lines = BufReader::new(File::open(path).map_err(unreadable)?);
    let (mut records, mut line) = (Vec::new(), Vec::new());
    for number in 1.. {
        line.clear();
        let length = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(unreadable)?;
        if length == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if records.len() >= MOST_RECORDS {
            return Err(TraceError::TooLong { path: path.to_owned() });
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(error) if error.is_eof() && !line.ends_with(b"\n") && number > 1 => {
                return Ok(Trace { records: arrange(records), is_cut_off: true });
            }
            Err(error) => return Err(TraceError::Line { path: path.to_owned(), number, error }),
        }
    }
    Ok(Trace { records: arrange(records), is_cut_off: false })
}

const MOST_RECORDS: usize = 2_000_000;
/// A record of 64 networks has some 30 kB.
const LONGEST_LINE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORKS: &str = r#"{"at": {"secs": 1, "nanos": 0}, "networks": {"networks": []}}"#;

    fn read_text(text: &str) -> Result<Trace, TraceError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("day.jsonl");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_last_line_that_was_cut_off_is_left_out() {
        let cut = read_text(&format!("{NETWORKS}\n\n{NETWORKS}\n{}", &NETWORKS[..30])).unwrap();
        assert_eq!((cut.records.len(), cut.is_cut_off), (2, true));
        let whole = read_text(&format!("{NETWORKS}\n{NETWORKS}")).unwrap();
        assert_eq!((whole.records.len(), whole.is_cut_off), (2, false));
    }

    #[test]
    fn anything_else_is_named() {
        let middle = read_text(&format!("{NETWORKS}\n{}\n{NETWORKS}\n", &NETWORKS[..30])).unwrap_err();
        assert!(middle.to_string().contains("line 2 is no record"), "{middle}");
        assert!(read_text("{").is_err(), "nothing of it is a record");
        assert!(read_text("").unwrap().records.is_empty());
        let missing = read(Path::new("/nowhere/day.jsonl")).unwrap_err();
        assert!(missing.to_string().contains("/nowhere/day.jsonl"), "{missing}");
    }
}
