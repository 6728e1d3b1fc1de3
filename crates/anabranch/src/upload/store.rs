//! A file that comes in pieces and in any order, and a journal of the pieces that are there.
//!
//! ```text
//! .NAME.NUMBER.part      the file, at its full length from the beginning
//! .NAME.NUMBER.journal   "anabranch upload 1\n" | hash (32) | length (8) | bytes of a chunk (2) | boot (36) | (first (4) | last (4))*
//! ```
//!
//! A piece is written before the journal says so, and the journal before anybody is told. The kernel keeps that order for who is killed; for who loses
//! current, a record (2^32 - 1, records) says how many of those before it are on the disk, and after a new start of the machine only those
//! count. In the end the hash of the whole decides.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use identity::PublicKey;
use ring::digest::{Context, SHA256};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use thiserror::Error;
use upload::RangeSet;
use wire::upload::roles::FileOffer;
use wire::upload::{Chunk, Run};

/// Files of one name that are kept beside each other.
const MAX_COPIES: u32 = 1_000;
const MAX_NAME: usize = 200;
/// Digits of a number that tells files of one name apart before they are whole.
const NUMBER_LENGTH: usize = 12;
const HEADER: &[u8] = b"anabranch upload 1\n";
const BOOT_LENGTH: usize = 36;
const HEADER_LENGTH: usize = HEADER.len() + 32 + 8 + 2 + BOOT_LENGTH;
/// First number of a record that counts what is on the disk.
const MARK: u32 = u32::MAX;
/// Largest journal that is read: what a file of 2^32 chunks in ranges of a few hundred takes.
const MAX_JOURNAL: u64 = 256 << 20;
const PIECE: usize = 256 * 1024;

/// Why a file is not stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Its name is none that may be used here.
    #[error("the source's name for the file is none that can be used")]
    Name,
    /// Another process receives it.
    #[error("{0} is being received already")]
    Busy(String),
    /// It cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// What came is not what was offered.
    #[error("{0} did not arrive as it was offered (its hash does not fit); it was thrown away")]
    Hash(String),
}

/// See the module.
pub(super) struct Store {
    directory: PathBuf,
    name: String,
    part: PathBuf,
    journal_path: PathBuf,
    file: File,
    journal: File,
    hash: [u8; 32],
    length: u64,
    chunk_length: u16,
    /// Written and not in the journal.
    fresh: Vec<Chunk>,
    records: u32,
    /// How many records are known to be on the disk.
    safe: u32,
}

impl Store {
    /// Opens the store of a file, or makes one; what is stored already.
    pub(super) fn open(
        directory: &Path,
        source: PublicKey,
        offer: &FileOffer,
    ) -> Result<(Self, RangeSet), StoreError> {
        let name = offer.name.as_str();
        if !is_plain(name) {
            return Err(StoreError::Name);
        }
        let number: String = offer
            .hash
            .iter()
            .take(NUMBER_LENGTH / 2)
            .zip(source.0)
            .map(|(hash, key)| format!("{:02x}", hash ^ key))
            .collect();
        let part = directory.join(format!(".{name}.{number}.part"));
        let journal_path = directory.join(format!(".{name}.{number}.journal"));
        let failed = |source| StoreError::Write { path: part.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // Nobody else's file, wherever a link of that name may lead.
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&part).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StoreError::Busy(name.to_owned()))?;
        let journal = options.open(&journal_path).map_err(failed)?;
        let mut store = Self {
            directory: directory.to_owned(),
            name: name.to_owned(),
            part: part.clone(),
            journal_path,
            file,
            journal,
            hash: offer.hash,
            length: offer.offer.length,
            chunk_length: offer.offer.chunk_length,
            fresh: Vec::new(),
            records: 0,
            safe: 0,
        };
        let stored = store.restore(offer).map_err(failed)?;
        if let Err(error) = store.reserve().and_then(|()| store.begin(&stored)) {
            if stored.count() == 0 {
                store.discard();
            }
            return Err(failed(error));
        }
        Ok((store, stored))
    }

    /// Keeps a chunk; [`Store::commit`] must follow before anybody is told.
    pub(super) fn write(&mut self, chunk: Chunk, bytes: &[u8]) -> Result<(), StoreError> {
        let at = u64::from(chunk.0) * u64::from(self.chunk_length);
        self.file.write_all_at(bytes, at).map_err(|source| self.failed(source))?;
        self.fresh.push(chunk);
        Ok(())
    }

    /// How many bytes a chunk must have.
    pub(super) fn length_of(&self, chunk: Chunk) -> usize {
        let at = u64::from(chunk.0) * u64::from(self.chunk_length);
        usize::try_from(self.length.saturating_sub(at).min(self.chunk_length.into())).unwrap_or(0)
    }

    /// Notes what was written.
    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        self.fresh.sort_unstable();
        let runs = RangeSet::from_runs(self.fresh.drain(..).filter_map(|chunk| Run::new(chunk, chunk)));
        self.append(runs.runs()).map_err(|source| self.failed(source))
    }

    /// What brings all that was committed to the disk, on whichever thread; its result goes to [`Store::synced`]. `None` if there is nothing to do.
    pub(super) fn sync(&self) -> Option<impl FnOnce() -> Option<u32> + Send + use<>> {
        let (records, file) = (self.records, self.file.try_clone().ok()?);
        (records > self.safe).then_some(move || file.sync_data().is_ok().then_some(records))
    }

    /// So many records are on the disk.
    pub(super) fn synced(&mut self, records: u32) -> Result<(), StoreError> {
        self.safe = records;
        let record = [MARK.to_be_bytes(), records.to_be_bytes()].concat();
        self.journal.write_all(&record).map_err(|source| self.failed(source))
    }

    /// Everything is there: verifies it and gives it its name, or a number beside that.
    pub(super) fn keep(self) -> Result<PathBuf, StoreError> {
        let hash = hash_of(&self.file, self.length).map_err(|source| self.failed(source))?;
        if hash != self.hash {
            self.discard();
            return Err(StoreError::Hash(self.name));
        }
        self.file.sync_all().map_err(|source| self.failed(source))?;
        for copy in 1..=MAX_COPIES {
            let path = self.directory.join(numbered(&self.name, copy));
            let kept = match fs::hard_link(&self.part, &path) {
                // File systems without hard links, as on memory sticks.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !path.exists() => {
                    fs::rename(&self.part, &path)
                }
                Ok(()) => fs::remove_file(&self.part),
                other => other,
            };
            match kept {
                Ok(()) => {
                    drop(fs::remove_file(&self.journal_path));
                    drop(File::open(&self.directory).and_then(|directory| directory.sync_all()));
                    return Ok(path);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(self.failed(source)),
            }
        }
        Err(self.failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Nothing of it can be relied on, or is wanted.
    pub(super) fn discard(&self) {
        drop(fs::remove_file(&self.part));
        drop(fs::remove_file(&self.journal_path));
    }

    /// What the journal says, as far as it can be believed.
    fn restore(&mut self, offer: &FileOffer) -> io::Result<RangeSet> {
        let mut bytes = Vec::new();
        let length = self.journal.metadata()?.len();
        if length <= MAX_JOURNAL && self.file.metadata()?.len() == self.length {
            (&self.journal).read_to_end(&mut bytes)?;
        }
        let header = self.header();
        let same = bytes.get(..HEADER_LENGTH - BOOT_LENGTH) == header.get(..HEADER_LENGTH - BOOT_LENGTH);
        let boot = bytes.get(HEADER_LENGTH - BOOT_LENGTH..HEADER_LENGTH);
        let same_boot = boot == header.get(HEADER_LENGTH - BOOT_LENGTH..);
        let (Some(records), true) = (bytes.get(HEADER_LENGTH..), same) else {
            return Ok(RangeSet::default());
        };
        // What was being written when its writer was killed is no record.
        let records: Vec<(u32, u32)> = records.chunks_exact(8).filter_map(record).collect();
        let marks = records.iter().filter(|(first, _)| *first == MARK);
        let safe = marks.map(|(_, count)| *count as usize).max().unwrap_or(0);
        let runs = records.iter().filter(|(first, _)| *first != MARK);
        let believed = if same_boot { usize::MAX } else { safe };
        let last = offer.offer.chunks().and_then(|chunks| chunks.checked_sub(1)).map(Chunk);
        let runs = runs.take(believed).filter_map(|(first, end)| {
            let run = Run::new(Chunk(*first), Chunk(*end))?;
            (Some(run.last()) <= last).then_some(run)
        });
        Ok(RangeSet::from_runs(runs))
    }

    /// Takes the room on the disk now, so that nothing is carried in vain.
    fn reserve(&self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        if self.length == 0 {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, self.length) {
            // File systems that cannot.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Begins a journal with what is stored already.
    fn begin(&mut self, stored: &RangeSet) -> io::Result<()> {
        self.file.sync_data()?;
        let beside = self.journal_path.with_extension("journal-new");
        drop(fs::remove_file(&beside));
        let mut journal = OpenOptions::new().write(true).create_new(true).open(&beside)?;
        let mut bytes = self.header();
        for run in stored.runs() {
            put_record(&mut bytes, run);
            self.records += 1;
        }
        bytes.extend([MARK.to_be_bytes(), self.records.to_be_bytes()].concat());
        self.safe = self.records;
        journal.write_all(&bytes)?;
        journal.sync_all()?;
        fs::rename(&beside, &self.journal_path)?;
        self.journal = journal;
        Ok(())
    }

    fn append(&mut self, runs: impl Iterator<Item = Run>) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut count = 0;
        for run in runs {
            put_record(&mut bytes, run);
            count += 1;
        }
        // One write, or a record could be torn by who has killed us.
        self.journal.write_all(&bytes)?;
        self.records = self.records.saturating_add(count);
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
        let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut boot: Vec<u8> = boot.into_iter().take(BOOT_LENGTH).collect();
        boot.resize(BOOT_LENGTH, b' ');
        let (length, chunk) = (self.length.to_be_bytes(), self.chunk_length.to_be_bytes());
        [HEADER, &self.hash, &length, &chunk, &boot].concat()
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Write { path: self.part.clone(), source }
    }
}

/// The same file under that name, or that name with a number.
pub(super) fn find_same(directory: &Path, offer: &FileOffer) -> Option<PathBuf> {
    if !is_plain(&offer.name) {
        return None;
    }
    for copy in 1..=MAX_COPIES {
        let path = directory.join(numbered(&offer.name, copy));
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() != offer.offer.length {
            continue;
        }
        let hash = File::open(&path).and_then(|file| hash_of(&file, offer.offer.length));
        if hash.is_ok_and(|hash| hash == offer.hash) {
            return Some(path);
        }
    }
    None
}

/// Deletes what has come of files that nobody went on with for so long; what they were to be called.
pub(super) fn forget_old(directory: &Path, now: SystemTime, kept: Duration) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut forgotten = Vec::new();
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let Some(stem) = file_name.to_str().and_then(|name| name.strip_suffix(".journal")) else { continue };
        let Some((name, number)) = stem.strip_prefix('.').and_then(|stem| stem.rsplit_once('.')) else {
            continue;
        };
        let is_number = number.len() == NUMBER_LENGTH && number.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (part, journal) = (directory.join(format!("{stem}.part")), entry.path());
        let is_old = |path: &Path| {
            let written = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
            written.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age > kept))
        };
        if !is_number || !is_plain(name) || !is_old(&part) || !is_old(&journal) {
            continue;
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        // Whoever receives it holds the lock.
        let is_free = |file: &File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let Some(_file) = options.open(&part).ok().filter(is_free) else { continue };
        if fs::remove_file(&part).and_then(|()| fs::remove_file(&journal)).is_ok() {
            forgotten.push(name.to_owned());
        }
    }
    forgotten.sort();
    forgotten
}

/// SHA-256 of the first `length` bytes of a file.
///
/// # Errors
/// If it cannot be read, or has fewer.
pub(super) fn hash_of(file: &File, length: u64) -> io::Result<[u8; 32]> {
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let most = usize::try_from(length - at).unwrap_or(PIECE).min(PIECE);
        let room = piece.get_mut(..most).unwrap_or_default();
        file.read_exact_at(room, at)?;
        context.update(room);
        at += most as u64;
    }
    context.finish().as_ref().try_into().map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether a name is one of a file, and none of this module's own.
fn is_plain(name: &str) -> bool {
    let own = name.starts_with('.') && (name.ends_with(".part") || name.contains(".journal"));
    let special = name.is_empty() || name == "." || name == ".." || name.contains('/');
    name.len() <= MAX_NAME && !own && !special && !name.chars().any(char::is_control)
}

/// `NAME (2).EXTENSION` for the second file of a name.
fn numbered(name: &str, copy: u32) -> String {
    match name.rsplit_once('.') {
        _ if copy == 1 => name.to_owned(),
        Some((stem, extension)) if !stem.is_empty() => format!("{stem} ({copy}).{extension}"),
        _ => format!("{name} ({copy})"),
    }
}

fn record(bytes: &[u8]) -> Option<(u32, u32)> {
    let (first, last) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*first), u32::from_be_bytes(last.try_into().ok()?)))
}

fn put_record(bytes: &mut Vec<u8>, run: Run) {
    bytes.extend(run.first().0.to_be_bytes());
    bytes.extend(run.last().0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::upload::{Offer, Transfer};

    const SOURCE: PublicKey = PublicKey([9; 32]);

    fn offer(name: &str, contents: &[u8]) -> FileOffer {
        let hash = ring::digest::digest(&SHA256, contents).as_ref().try_into().unwrap();
        let offer = Offer { transfer: Transfer(1), length: contents.len() as u64, chunk_length: 4 };
        let (chunk_key, air_key, signature) = ([0; 32], [0; 32], [0; 64]);
        FileOffer { offer, hash, chunk_key, air_key, signature, name: name.to_owned() }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_committed_is_there_after_a_restart_and_the_file_has_its_name_at_the_end_only() {
        let directory = tempfile::tempdir().unwrap();
        let offer = offer("file.txt", b"0123456789");
        {
            let (mut store, stored) = Store::open(directory.path(), SOURCE, &offer).unwrap();
            assert_eq!(stored.count(), 0);
            assert!(matches!(Store::open(directory.path(), SOURCE, &offer), Err(StoreError::Busy(_))));
            store.write(Chunk(2), b"89").unwrap();
            store.write(Chunk(0), b"0123").unwrap();
            store.commit().unwrap();
            // Killed before the journal has it: to be sent again.
            store.write(Chunk(1), b"4567").unwrap();
        }
        let (mut store, stored) = Store::open(directory.path(), SOURCE, &offer).unwrap();
        assert_eq!(stored.runs().flat_map(Run::chunks).collect::<Vec<_>>(), [Chunk(0), Chunk(2)]);
        assert_eq!(
            (store.length_of(Chunk(1)), store.length_of(Chunk(2)), store.length_of(Chunk(3))),
            (4, 2, 0)
        );
        assert!(!directory.path().join("file.txt").exists());
        store.write(Chunk(1), b"4567").unwrap();
        store.commit().unwrap();
        assert_eq!(store.keep().unwrap(), directory.path().join("file.txt"));
        assert_eq!(fs::read(directory.path().join("file.txt")).unwrap(), b"0123456789");
        assert_eq!(names(directory.path()), ["file.txt"]);
    }

    #[test]
    fn after_a_new_start_of_the_machine_only_what_was_on_the_disk_counts() {
        let directory = tempfile::tempdir().unwrap();
        let offer = offer("file", b"0123456789");
        let journal = {
            let (mut store, _) = Store::open(directory.path(), SOURCE, &offer).unwrap();
            store.write(Chunk(0), b"0123").unwrap();
            store.commit().unwrap();
            let records = store.sync().unwrap()().unwrap();
            store.synced(records).unwrap();
            assert!(store.sync().is_none());
            store.write(Chunk(1), b"4567").unwrap();
            store.commit().unwrap();
            store.journal_path.clone()
        };
        let mut bytes = fs::read(&journal).unwrap();
        bytes[HEADER_LENGTH - 1] ^= 1;
        // A torn record.
        bytes.extend([0, 0, 0]);
        fs::write(&journal, bytes).unwrap();
        let (_, stored) = Store::open(directory.path(), SOURCE, &offer).unwrap();
        assert_eq!(stored.runs().flat_map(Run::chunks).collect::<Vec<_>>(), [Chunk(0)]);
    }

    #[test]
    fn wrong_contents_are_thrown_away() {
        let directory = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(directory.path(), SOURCE, &offer("file", b"0123")).unwrap();
        store.write(Chunk(0), b"0124").unwrap();
        store.commit().unwrap();
        assert!(matches!(store.keep(), Err(StoreError::Hash(_))));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn no_file_is_replaced_and_the_same_one_is_found() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.b"), b"other").unwrap();
        let offer = offer("a.b", b"0123");
        assert_eq!(find_same(directory.path(), &offer), None);
        let (mut store, _) = Store::open(directory.path(), SOURCE, &offer).unwrap();
        store.write(Chunk(0), b"0123").unwrap();
        store.commit().unwrap();
        let kept = store.keep().unwrap();
        assert_eq!(kept, directory.path().join("a (2).b"));
        assert_eq!(find_same(directory.path(), &offer), Some(kept));
        assert_eq!(fs::read(directory.path().join("a.b")).unwrap(), b"other");
    }

    #[test]
    fn an_empty_file_is_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(directory.path(), SOURCE, &offer("empty", b"")).unwrap();
        assert_eq!(fs::read(store.keep().unwrap()).unwrap(), b"");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in
            ["", ".", "..", "a/b", "/etc/passwd", "a\nb", ".x.00.part", ".x.00.journal", &"a".repeat(201)]
        {
            let directory = tempfile::tempdir().unwrap();
            let opened = Store::open(directory.path(), SOURCE, &offer(name, b"0123"));
            assert!(matches!(opened, Err(StoreError::Name)), "{name:?}");
            assert!(names(directory.path()).is_empty());
        }
        assert!(is_plain(".profile") && is_plain("ä b (2).tar.gz"));
    }

    #[test]
    fn what_nobody_goes_on_with_is_deleted_after_a_time_and_nothing_else_is() {
        const DAY: Duration = Duration::from_secs(86_400);
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (offer("old.txt", b"0123456789"), offer("used.txt", b"abcdefghij"));
        drop(Store::open(directory.path(), SOURCE, &first).unwrap());
        let _used = Store::open(directory.path(), SOURCE, &second).unwrap();
        let others =
            [".notes.journal", ".notes.12.journal", ".notes.12.part", "old.txt", ".a.0123456789ag.journal"];
        for other in others {
            fs::write(directory.path().join(other), "mine").unwrap();
        }
        let before = names(directory.path());
        assert_eq!(forget_old(directory.path(), SystemTime::now() + DAY, 2 * DAY), [""; 0]);
        assert_eq!(names(directory.path()), before);
        assert_eq!(forget_old(directory.path(), SystemTime::now() + 3 * DAY, 2 * DAY), ["old.txt"]);
        let mut left = before;
        left.retain(|name| !name.starts_with(".old.txt."));
        assert_eq!(names(directory.path()), left);
        // A wall clock that was set back deletes nothing.
        assert_eq!(forget_old(directory.path(), SystemTime::UNIX_EPOCH, DAY), [""; 0]);
    }
}
