//! What people do with virtual sockets: [`files`] from one machine to another, [`chat`], joining a [`group`], and TCP programs that know nothing of all this
//! ([`tunnel`]). Where they listen: [`usual`]. The protocols are written down in docs/virtual-sockets.md; each stream begins with a line that says which one it speaks.

pub mod chat;
pub mod files;
pub mod group;
pub mod tunnel;
pub mod usual;

use std::io::{self, Read};

/// Longest first line of a stream, bytes.
const MAX_LINE: usize = 64;

/// Reads the first line of a stream, without its end.
///
/// # Errors
/// If the stream fails, or there is no such line.
pub fn read_line(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => break,
            [byte] if line.len() < MAX_LINE && (b' '..0x7f).contains(&byte) => line.push(byte),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer speaks another protocol")),
        }
    }
    // Only ASCII was let through.
    Ok(String::from_utf8_lossy(&line).into_owned())
}
