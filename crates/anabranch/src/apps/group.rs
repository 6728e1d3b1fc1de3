//! How the secret of a group gets from a member to who has joined.
//!
//! ```text
//! who joins                        member
//! anabranch group 1\n         -->
//!                             <--  length (2) | secret, names, members      wire::group::Told
//! length (2) | own name       -->                                          once it has all
//! ```

use std::io::{self, Read, Write};

use wire::group::Told;
use wire::hello::Name;

pub use wire::group::Told as GroupTold;

/// The first line of such a stream.
pub const GROUP: &str = "anabranch group 1";

/// The member's part, after the first line: tells the secret, and waits until the other end has it; returns what that calls itself.
///
/// # Errors
/// If the connection fails, or the other end speaks otherwise.
pub fn hand_over(stream: &mut (impl Read + Write), told: &Told) -> io::Result<Option<Name>> {
    put(stream, &told.encode())?;
    let name = String::from_utf8(take(stream)?).map_err(|_| io::ErrorKind::InvalidData)?;
    if name.is_empty() {
        return Ok(None);
    }
    Name::new(&name).map(Some).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The part of who joins, after the first line: what it is told.
///
/// # Errors
/// If the connection fails, or the member speaks otherwise.
pub fn take_over(stream: &mut (impl Read + Write), name: Option<&Name>) -> io::Result<Told> {
    let told =
        Told::parse(&take(stream)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    put(stream, name.map_or("", Name::as_str).as_bytes())?;
    Ok(told)
}

fn put(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat())
}

fn take(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
