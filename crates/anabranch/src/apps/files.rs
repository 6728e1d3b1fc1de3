//! Files: each on a stream of its own, resumed where it was left, verified by hash.
//!
//! ```text
//! sender                                              receiver
//! "anabranch files 1\n"
//! name length (2) | name | size (8)          ---->
//!                                            <----    0 | bytes it has (8) | SHA-256 of them (32), or 1 and a refusal
//! first byte that follows (8)                ---->    what it has, if the hashes agree, else 0
//! (length (4) | bytes)*, length 0            ---->
//! SHA-256 of the whole file (32)             ---->
//!                                            <----    0: written, or 1 and a refusal
//! ```
//!
//! In place of a length the sender may say `ffffffff` and a refusal: it cannot read the file any more, or the file has changed. A
//! refusal is a text: length (2), UTF-8. Integers are big-endian.

mod receive;
mod send;

pub use receive::{ReceiveError, Received, receive};
pub use send::{SendFileError, send};

use std::io::{self, Read, Write};

/// The first line of a stream that carries a file.
pub const FILES: &str = "anabranch files 1";
/// Bytes of one piece.
const PIECE: usize = 64 * 1024;
const MAX_PIECE: u32 = 1 << 20;
const MAX_TEXT: usize = 1_000;
const GIVEN_UP: u32 = u32::MAX;
const YES: u8 = 0;
const NO: u8 = 1;
const HASH: usize = 32;

/// How far a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that are there.
    pub done: u64,
    /// Bytes in all.
    pub size: u64,
}

fn put_text(text: &str, into: &mut impl Write) -> io::Result<()> {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    into.write_all(&(text.len() as u16).to_be_bytes())?;
    into.write_all(text.as_bytes())
}

/// Reads a text; what is not for a terminal is left out.
fn take_text(from: &mut impl Read) -> io::Result<String> {
    let length = usize::from(u16::from_be_bytes(take(from)?));
    if length > MAX_TEXT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).chars().filter(|character| !character.is_control()).collect())
}

fn take<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
