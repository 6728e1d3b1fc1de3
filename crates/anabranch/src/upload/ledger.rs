//! What a neighbour has carried for whom: `[LINKALIKE] VII`, credit and liability. Lines of text, each signed by the neighbour's own key.
//!
//! ```text
//! DAY TRANSFER SOURCE DESTINATION BYTES SIGNATURE
//! ```
//!
//! The day is counted from 1970-01-01 (UTC). A line replaces those before it with the same day, transfer, source and destination: its bytes are the sum of that day. A line that
//! nobody has signed, as one that was cut off, does not count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use identity::{KeyPair, PublicKey, Signature, StateDirectory, WriteError, wall_time};
use wire::upload::Transfer;

const FILE_NAME: &str = "upload-ledger";
const PURPOSE: &str = "upload ledger";
const DAY_SECONDS: u64 = 86_400;
/// Longest line; a longer one is none.
const MAX_LINE: u64 = 400;

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LedgerEntry {
    /// Days from 1970-01-01, UTC.
    pub day: u64,
    /// The transfer.
    pub transfer: u64,
    /// Who sent it.
    pub source: PublicKey,
    /// Whom it went to.
    pub destination: PublicKey,
    /// What was carried that day, sealed bytes.
    pub bytes: u64,
}

type Row = (u64, u64, PublicKey, PublicKey);

/// The ledger of a neighbour, as it writes it.
pub struct Ledger {
    file: File,
    key: KeyPair,
    /// What is not written yet, and what the rows of this process have had before.
    rows: BTreeMap<Row, u64>,
    unwritten: Vec<Row>,
    /// Whether the file may end within a line.
    is_cut: bool,
}

impl Ledger {
    /// Opens the ledger of a state directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(state: &StateDirectory, key: KeyPair) -> Result<Self, WriteError> {
        let file = state.append_to(FILE_NAME)?;
        // A day goes on where the last process has left it.
        let today = wall_time().0 / DAY_SECONDS;
        let rows = Self::read(state, key.public()).unwrap_or_default();
        let rows = rows.into_iter().filter(|entry| entry.day == today);
        let rows = rows.map(|entry| (row(&entry), entry.bytes)).collect();
        // What a crash may have cut off must not spoil the next line.
        Ok(Self { file, key, rows, unwritten: Vec::new(), is_cut: true })
    }

    /// So many bytes were carried just now.
    pub(super) fn carried(
        &mut self,
        transfer: Transfer,
        source: PublicKey,
        destination: PublicKey,
        bytes: u64,
    ) {
        let row = (wall_time().0 / DAY_SECONDS, transfer.0, source, destination);
        *self.rows.entry(row).or_default() += bytes;
        if !self.unwritten.contains(&row) {
            self.unwritten.push(row);
        }
    }

    /// Writes what is new.
    ///
    /// # Errors
    /// If the disk is full, as an example; it is tried again at the next call.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while let Some(row) = self.unwritten.last().copied() {
            let (day, transfer, source, destination) = row;
            let bytes = self.rows.get(&row).copied().unwrap_or_default();
            let entry = LedgerEntry { day, transfer, source, destination, bytes };
            let mut line = text(&entry);
            let signature = self.key.sign(PURPOSE, line.as_bytes());
            line.push(' ');
            for byte in signature {
                let _ = write!(line, "{byte:02x}");
            }
            line.push('\n');
            if self.is_cut {
                line.insert(0, '\n');
            }
            // A full disk takes a part of it.
            self.is_cut = true;
            self.file.write_all(line.as_bytes())?;
            self.is_cut = false;
            self.unwritten.pop();
        }
        // Days that are over get no more.
        let today = wall_time().0 / DAY_SECONDS;
        self.rows.retain(|(day, ..), _| *day + 1 >= today);
        Ok(())
    }

    /// What the ledger of a state directory says, signed by `key`; oldest first.
    ///
    /// # Errors
    /// If it cannot be read. One that is not there is empty.
    pub fn read(state: &StateDirectory, key: PublicKey) -> io::Result<Vec<LedgerEntry>> {
        let file = match File::open(state.file(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut reader = BufReader::new(file);
        let mut rows: BTreeMap<Row, u64> = BTreeMap::new();
        loop {
            let mut line = Vec::new();
            if io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if let Some(entry) = str::from_utf8(&line).ok().and_then(|line| parse(line.trim_end(), key)) {
                rows.insert(row(&entry), entry.bytes);
            }
        }
        let entry = |((day, transfer, source, destination), bytes)| LedgerEntry {
            day,
            transfer,
            source,
            destination,
            bytes,
        };
        Ok(rows.into_iter().map(entry).collect())
    }
}

fn row(entry: &LedgerEntry) -> Row {
    (entry.day, entry.transfer, entry.source, entry.destination)
}

fn text(entry: &LedgerEntry) -> String {
    let LedgerEntry { day, transfer, source, destination, bytes } = entry;
    format!("{day} {transfer:016x} {source} {destination} {bytes}")
}

fn parse(line: &str, key: PublicKey) -> Option<LedgerEntry> {
    let (signed, signature) = line.rsplit_once(' ')?;
    let mut bytes: Signature = [0; identity::SIGNATURE_LENGTH];
    if signature.len() != 2 * bytes.len() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(signature.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    if !key.has_signed(PURPOSE, signed.as_bytes(), &bytes) {
        return None;
    }
    let mut words = signed.split(' ');
    let entry = LedgerEntry {
        day: words.next()?.parse().ok()?,
        transfer: u64::from_str_radix(words.next()?, 16).ok()?,
        source: words.next()?.parse().ok()?,
        destination: words.next()?.parse().ok()?,
        bytes: words.next()?.parse().ok()?,
    };
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_day_are_signed_and_go_on_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        let key = KeyPair::from_private([3; 32]).unwrap();
        let (source, destination) = (PublicKey([1; 32]), PublicKey([2; 32]));
        for _ in 0..2 {
            let mut ledger = Ledger::open(&state, key.clone()).unwrap();
            for transfer in [7, 8, 7] {
                ledger.carried(Transfer(transfer), source, destination, 100);
            }
            ledger.write().unwrap();
            ledger.carried(Transfer(7), source, destination, 1);
            ledger.write().unwrap();
        }
        let read = || Ledger::read(&state, key.public()).unwrap();
        let sums: Vec<(u64, u64)> = read().iter().map(|entry| (entry.transfer, entry.bytes)).collect();
        // At midnight they would be in two days.
        if read().iter().all(|entry| entry.day == read()[0].day) {
            assert_eq!(sums, [(7, 402), (8, 200)]);
        }
        let path = state.file(FILE_NAME);
        // A disk that was full for a moment has taken half of a line.
        let mut ledger = Ledger::open(&state, key.clone()).unwrap();
        ledger.carried(Transfer(9), source, destination, 5);
        ledger.write().unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 70]).unwrap();
        assert!(read().iter().all(|entry| entry.transfer != 9));
        (ledger.is_cut, ledger.unwritten) = (true, ledger.rows.keys().copied().collect());
        ledger.write().unwrap();
        assert!(read().iter().any(|entry| (entry.transfer, entry.bytes) == (9, 5)));
        let forged = std::fs::read_to_string(&path).unwrap().replace(" 402 ", " 40 ").replace(" 401 ", " 4 ");
        std::fs::write(&path, forged).unwrap();
        assert!(read().iter().all(|entry| entry.bytes != 40 && entry.bytes != 4));
        let other = KeyPair::from_private([4; 32]).unwrap().public();
        assert_eq!(Ledger::read(&state, other).unwrap(), []);
    }
}
