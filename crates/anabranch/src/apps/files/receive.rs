//! The receiver's side. A file is written under a name of its own until it is there and verified; what is left of it after a
//! failure is where the next try goes on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use identity::PublicKey;
use ring::digest::{Context, SHA256};
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use super::{GIVEN_UP, HASH, MAX_PIECE, NO, PIECE, Progress, YES, put_text, take, take_text};

/// Files of one name that are kept beside each other.
const MAX_COPIES: u32 = 1_000;

/// A file that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Where.
    pub path: PathBuf,
    /// Its bytes.
    pub size: u64,
    /// How many of them had come before.
    pub resumed_at: u64,
}

/// Why a file did not come.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// Its name is none that may be used here.
    #[error("the sender's name for the file is none: {0}")]
    Name(String),
    /// Another transfer of the same file from the same peer runs.
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
    /// The sender gave it up.
    #[error("the sender gave {name} up: {reason}")]
    GivenUp {
        /// The file.
        name: String,
        /// Its word.
        reason: String,
    },
    /// What came is not what was sent.
    #[error("{0} did not arrive as it was sent (its hash does not fit); it was thrown away")]
    Hash(String),
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Connection(#[source] io::Error),
}

/// Receives the file of a stream whose first line was read; it ends up below `directory`.
///
/// # Errors
/// Any [`ReceiveError`]; the sender is told where there is still a connection.
pub fn receive(
    stream: &mut (impl Read + Write),
    peer: PublicKey,
    directory: &Path,
    progress: &mut dyn FnMut(&str, Progress),
) -> Result<Received, ReceiveError> {
    let name = take_text(stream).map_err(ReceiveError::Connection)?;
    let size = u64::from_be_bytes(take(stream).map_err(ReceiveError::Connection)?);
    let outcome = Transfer::begin(&name, peer, directory)
        .and_then(|mut transfer| transfer.run(stream, size, progress).and_then(|()| transfer.keep(size)));
    match &outcome {
        Ok(_) => stream.write_all(&[YES]).map_err(ReceiveError::Connection)?,
        Err(ReceiveError::Connection(_) | ReceiveError::GivenUp { .. }) => {}
        // The sender may have gone too; what happened here is worth more than that.
        Err(error) => drop(stream.write_all(&[NO]).and_then(|()| put_text(&error.to_string(), stream))),
    }
    outcome
}

struct Transfer {
    name: String,
    directory: PathBuf,
    part: PathBuf,
    file: File,
    context: Context,
    has: u64,
    resumed_at: u64,
}

impl Transfer {
    fn begin(name: &str, peer: PublicKey, directory: &Path) -> Result<Self, ReceiveError> {
        let is_plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        if !is_plain || name.len() > 200 {
            return Err(ReceiveError::Name(name.to_owned()));
        }
        let sender: String = peer.to_string().chars().take(8).collect();
        let part = directory.join(format!(".{name}.{sender}.part"));
        let failed = |source| ReceiveError::Write { path: part.clone(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(&part).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ReceiveError::Busy(name.to_owned()))?;
        let mut context = Context::new(&SHA256);
        let has = digest(&mut file, &mut context).map_err(failed)?;
        let (name, directory) = (name.to_owned(), directory.to_owned());
        Ok(Self { name, directory, part, file, context, has, resumed_at: 0 })
    }

    fn run(
        &mut self,
        stream: &mut (impl Read + Write),
        size: u64,
        progress: &mut dyn FnMut(&str, Progress),
    ) -> Result<(), ReceiveError> {
        let mut answer = vec![YES];
        answer.extend(self.has.to_be_bytes());
        answer.extend(self.context.clone().finish().as_ref());
        stream.write_all(&answer).map_err(ReceiveError::Connection)?;
        let from = u64::from_be_bytes(take(stream).map_err(ReceiveError::Connection)?);
        if from != self.has {
            self.context = Context::new(&SHA256);
            self.has = 0;
            self.file.set_len(0).map_err(|source| self.failed(source))?;
            io::Seek::rewind(&mut self.file).map_err(|source| self.failed(source))?;
        }
        if from != self.has {
            return Err(ReceiveError::Connection(io::ErrorKind::InvalidData.into()));
        }
        self.resumed_at = from;
        let mut piece = Vec::new();
        loop {
            progress(&self.name, Progress { done: self.has, size });
            let length = u32::from_be_bytes(take(stream).map_err(ReceiveError::Connection)?);
            match length {
                0 => break,
                GIVEN_UP => {
                    let reason = take_text(stream).map_err(ReceiveError::Connection)?;
                    return Err(ReceiveError::GivenUp { name: self.name.clone(), reason });
                }
                1..=MAX_PIECE => {}
                _ => return Err(ReceiveError::Connection(io::ErrorKind::InvalidData.into())),
            }
            piece.resize(length as usize, 0);
            stream.read_exact(&mut piece).map_err(ReceiveError::Connection)?;
            self.file.write_all(&piece).map_err(|source| self.failed(source))?;
            self.context.update(&piece);
            self.has += u64::from(length);
        }
        let hash: [u8; HASH] = take(stream).map_err(ReceiveError::Connection)?;
        if self.has != size || self.context.clone().finish().as_ref() != hash {
            // Nothing of it can be relied on.
            drop(fs::remove_file(&self.part));
            return Err(ReceiveError::Hash(self.name.clone()));
        }
        Ok(())
    }

    /// Gives the file its name; one that is taken gets a number.
    fn keep(self, size: u64) -> Result<Received, ReceiveError> {
        self.file.sync_all().map_err(|source| self.failed(source))?;
        let (stem, extension) = match self.name.rsplit_once('.') {
            Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
            _ => (self.name.as_str(), String::new()),
        };
        for copy in 1..=MAX_COPIES {
            let name = if copy == 1 { self.name.clone() } else { format!("{stem} ({copy}){extension}") };
            let path = self.directory.join(name);
            // A hard link fails if the name is taken, where a rename would replace.
            match fs::hard_link(&self.part, &path) {
                Ok(()) => {
                    fs::remove_file(&self.part).map_err(|source| self.failed(source))?;
                    return Ok(Received { path, size, resumed_at: self.resumed_at });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !path.exists() => {
                    // File systems without hard links, as on memory sticks.
                    fs::rename(&self.part, &path).map_err(|source| self.failed(source))?;
                    return Ok(Received { path, size, resumed_at: self.resumed_at });
                }
                Err(source) => return Err(self.failed(source)),
            }
        }
        Err(self.failed(io::ErrorKind::AlreadyExists.into()))
    }

    fn failed(&self, source: io::Error) -> ReceiveError {
        ReceiveError::Write { path: self.part.clone(), source }
    }
}

/// Feeds all of a file; its length.
fn digest(file: &mut File, context: &mut Context) -> io::Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut length = 0;
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(length);
        }
        context.update(piece.get(..count).unwrap_or_default());
        length += count as u64;
    }
}
