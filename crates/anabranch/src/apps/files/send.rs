//! The sender's side.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use thiserror::Error;

use super::{FILES, GIVEN_UP, HASH, NO, PIECE, Progress, YES, put_text, take, take_text};

/// Why a file did not get there.
#[derive(Debug, Error)]
pub enum SendFileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is no file, or has no name.
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// It was written to meanwhile.
    #[error("{} was changed while it was sent; send it again", .0.display())]
    Changed(PathBuf),
    /// The receiver does not take it.
    #[error("the receiver refuses {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Its word.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection ended while {} was sent: {source}", path.display())]
    Connection {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Sends a file; returns once the receiver has it, verified.
///
/// # Errors
/// Any [`SendFileError`]; after [`SendFileError::Connection`] another try goes on where this one ended.
pub fn send(
    stream: &mut (impl Read + Write),
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), SendFileError> {
    let read_error = |source| SendFileError::Read { path: path.to_owned(), source };
    let lost = |source| SendFileError::Connection { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(read_error)?;
    let before = file.metadata().map_err(read_error)?;
    let name = path.file_name().and_then(|name| name.to_str()).filter(|_| before.is_file());
    let name = name.ok_or_else(|| SendFileError::NoFile(path.to_owned()))?;
    let size = before.len();
    let mut offer = format!("{FILES}\n").into_bytes();
    put_text(name, &mut offer).map_err(lost)?;
    offer.extend(size.to_be_bytes());
    stream.write_all(&offer).map_err(lost)?;

    answer(stream, path)?;
    let has = u64::from_be_bytes(take(stream).map_err(lost)?);
    let hash: [u8; HASH] = take(stream).map_err(lost)?;
    let mut context = Context::new(&SHA256);
    let mut from = 0;
    if has <= size {
        digest_first(&mut file, has, &mut context).map_err(read_error)?;
        if context.clone().finish().as_ref() == hash {
            from = has;
        }
    }
    if from == 0 {
        context = Context::new(&SHA256);
        file.seek(SeekFrom::Start(0)).map_err(read_error)?;
    }
    stream.write_all(&from.to_be_bytes()).map_err(lost)?;
    let mut done = from;
    progress(Progress { done, size });
    let mut piece = vec![0; PIECE + 4];
    loop {
        let (head, body) = piece.split_at_mut(4);
        let count = match file.read(body) {
            Ok(count) => count,
            Err(source) => {
                give_up(stream, "its sender cannot read it any more").map_err(lost)?;
                return Err(read_error(source));
            }
        };
        done += count as u64;
        let changed = done > size || count == 0 && done != size;
        if changed || count == 0 && !is_same(&file, &before) {
            give_up(stream, "it was changed while it was sent").map_err(lost)?;
            return Err(SendFileError::Changed(path.to_owned()));
        }
        head.copy_from_slice(&(count as u32).to_be_bytes());
        context.update(body.get(..count).unwrap_or_default());
        if let Err(source) = stream.write_all(piece.get(..4 + count).unwrap_or_default()) {
            // A receiver that wants no more, as one whose disk is full, has said why before.
            return Err(match answer(stream, path) {
                Err(refused @ SendFileError::Refused { .. }) => refused,
                _ => lost(source),
            });
        }
        if count == 0 {
            break;
        }
        progress(Progress { done, size });
    }
    stream.write_all(context.finish().as_ref()).map_err(lost)?;
    answer(stream, path)
}

fn answer(stream: &mut impl Read, path: &Path) -> Result<(), SendFileError> {
    let lost = |source| SendFileError::Connection { path: path.to_owned(), source };
    match take(stream).map_err(lost)? {
        [YES] => Ok(()),
        [NO] => {
            let reason = take_text(stream).map_err(lost)?;
            Err(SendFileError::Refused { path: path.to_owned(), reason })
        }
        _ => Err(lost(io::ErrorKind::InvalidData.into())),
    }
}

fn give_up(stream: &mut impl Write, reason: &str) -> io::Result<()> {
    stream.write_all(&GIVEN_UP.to_be_bytes())?;
    put_text(reason, stream)
}

fn is_same(file: &File, before: &std::fs::Metadata) -> bool {
    let unchanged =
        |now: std::fs::Metadata| now.len() == before.len() && now.modified().ok() == before.modified().ok();
    file.metadata().is_ok_and(unchanged)
}

/// Feeds the first `count` bytes of a file; it is then read from there.
fn digest_first(file: &mut File, count: u64, context: &mut Context) -> io::Result<()> {
    let mut left = count;
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let room = piece.get_mut(..most).unwrap_or_default();
        file.read_exact(room)?;
        context.update(room);
        left -= most as u64;
    }
    Ok(())
}
