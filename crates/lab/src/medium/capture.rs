//! Every attempt on the air, as a pcap file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use radio::pcap::{self, Record, Sent};
use sim::medium::Attempt;

/// An open capture.
pub(super) struct Capture {
    file: BufWriter<File>,
    record: Vec<u8>,
}

impl Capture {
    /// Begins a capture at `path`.
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        file.write_all(&pcap::file_header())?;
        Ok(Self { file, record: Vec::new() })
    }

    /// Adds an attempt. One that its receiver did not hear is marked as failed.
    pub(super) fn add(&mut self, attempt: &Attempt) -> io::Result<()> {
        let is_group = attempt.bytes.get(4).is_some_and(|first| first & 1 != 0);
        let succeeded = !attempt.collided && (attempt.heard || is_group);
        self.record.clear();
        pcap::append(
            &mut self.record,
            &Record {
                at: Duration::from_nanos(attempt.at.as_nanos()),
                frame: &attempt.bytes,
                frequency: attempt.frequency,
                rate: Some(attempt.rate),
                signal_dbm: None,
                sent: Some(Sent { succeeded, attempts: 1 }),
            },
        );
        self.file.write_all(&self.record)
    }

    /// Ends it.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.file.flush()
    }
}
