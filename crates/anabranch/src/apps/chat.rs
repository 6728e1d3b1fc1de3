//! Chat: lines of text, both ways.
//!
//! After the first line, `anabranch chat 1`, each message is a length (2) and so many bytes of UTF-8.

use std::io::{self, Read, Write};

/// The first line of a stream that carries a chat.
pub const CHAT: &str = "anabranch chat 1";
/// Longest message, bytes.
pub const MAX_MESSAGE: usize = 16_000;

/// Sends a message; what does not fit is cut off.
///
/// # Errors
/// If the connection has ended.
pub fn say(text: &str, into: &mut impl Write) -> io::Result<()> {
    let mut end = text.len().min(MAX_MESSAGE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    let mut bytes = (text.len() as u16).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    into.write_all(&bytes)
}

/// The next message, without what could play with a terminal; `None` at the end.
///
/// # Errors
/// If the connection has failed, or a message is none.
pub fn hear(from: &mut impl Read) -> io::Result<Option<String>> {
    let mut length = [0; 2];
    match from.read(&mut length[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut length[1..])?,
    }
    let length = usize::from(u16::from_be_bytes(length));
    if length > MAX_MESSAGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(text.chars().filter(|character| !character.is_control()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_without_control_characters_and_not_too_long() {
        let mut bytes = Vec::new();
        say("hello \u{1b}[2Jthere", &mut bytes).unwrap();
        say(&"ä".repeat(MAX_MESSAGE), &mut bytes).unwrap();
        let mut from = &bytes[..];
        assert_eq!(hear(&mut from).unwrap().as_deref(), Some("hello [2Jthere"));
        assert_eq!(hear(&mut from).unwrap().map(|text| text.len()), Some(MAX_MESSAGE));
        assert_eq!(hear(&mut from).unwrap(), None);
        assert!(hear(&mut &[0xff, 0xff, 1][..]).is_err());
        assert!(hear(&mut &[0, 5, b'a'][..]).is_err());
    }
}
