//! The few messages of D-Bus that asking for a scope takes (D-Bus specification, "Message Protocol").
//!
//! ```text
//! endianness type flags version | body length | serial | length of fields | fields: code, variant ... | pad to 8 | body
//! ```

use super::Scope;

/// A call of a method.
pub(super) struct Call<'a> {
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) destination: &'a str,
    pub(super) member: &'a str,
    /// Types of the body's values.
    pub(super) signature: &'a str,
    pub(super) body: Vec<u8>,
}

/// What a message says about our call.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Done,
    /// With the text for people.
    Refused(String),
    /// It is about something else.
    Other,
}

/// Bytes before the fields.
pub(super) const HEAD: usize = 16;
const LONGEST: usize = 128 * 1024;
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

impl Call<'_> {
    /// The whole message.
    pub(super) fn bytes(&self, serial: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.0.extend([b'l', METHOD_CALL, 0, 1]);
        writer.number(self.body.len() as u32);
        writer.number(serial);
        let fields = writer.begin_array(8);
        for (code, kind, value) in
            [(1, "o", self.path), (2, "s", self.interface), (3, "s", self.member), (6, "s", self.destination)]
        {
            writer.pad(8);
            writer.0.push(code);
            writer.signature(kind);
            writer.text(value);
        }
        if !self.signature.is_empty() {
            writer.pad(8);
            writer.0.push(8);
            writer.signature("g");
            writer.signature(self.signature);
        }
        writer.end_array(fields);
        writer.pad(8);
        writer.0.extend(&self.body);
        writer.0
    }
}

/// The body of `StartTransientUnit`: name, mode, properties, no further units.
pub(super) fn transient_unit(scope: &Scope<'_>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.text(scope.name);
    writer.text("fail");
    let properties = writer.begin_array(8);
    let texts = [
        ("Description", Some(scope.description)),
        ("Slice", scope.slice),
        ("CollectMode", Some("inactive-or-failed")),
    ];
    for (name, value) in texts {
        let Some(value) = value else { continue };
        writer.pad(8);
        writer.text(name);
        writer.signature("s");
        writer.text(value);
    }
    writer.pad(8);
    writer.text("PIDs");
    writer.signature("au");
    let processes = writer.begin_array(4);
    writer.number(scope.process);
    writer.end_array(processes);
    writer.end_array(properties);
    let none = writer.begin_array(8);
    writer.end_array(none);
    writer.0
}

/// How many bytes follow the first [`HEAD`] ones; `None` if they are no message or if it is too long.
pub(super) fn rest_of(head: &[u8; HEAD]) -> Option<usize> {
    if head[0] != b'l' || head[3] != 1 {
        return None;
    }
    let (body, fields) = (number(head, 4)? as usize, number(head, 12)? as usize);
    (body <= LONGEST && fields <= LONGEST).then(|| fields.next_multiple_of(8) + body)
}

/// What the message says about the call with this serial; `None` if it is malformed.
pub(super) fn reply(head: &[u8; HEAD], rest: &[u8], serial: u32) -> Option<Reply> {
    let kind = head[1];
    let fields = rest.get(..number(head, 12)? as usize)?;
    let body = rest.get(fields.len().next_multiple_of(8)..)?;
    if !matches!(kind, METHOD_RETURN | ERROR) || reply_serial(fields)? != serial {
        return Some(Reply::Other);
    }
    if kind == METHOD_RETURN {
        return Some(Reply::Done);
    }
    let text = number(body, 0).and_then(|length| body.get(4..4 + length as usize)).unwrap_or_default();
    let text: String = String::from_utf8_lossy(text).chars().take(300).collect();
    Some(Reply::Refused(text))
}

/// The field that says which call is answered; its variant's type is `u`.
fn reply_serial(fields: &[u8]) -> Option<u32> {
    let mut at = 0usize;
    while at < fields.len() {
        // `HEAD` is a multiple of 8, so offsets in the fields are aligned as those in the message.
        at = at.next_multiple_of(8);
        let (code, length, kind) = (*fields.get(at)?, *fields.get(at + 1)?, *fields.get(at + 2)?);
        if length != 1 {
            return None;
        }
        at += 4;
        match (code, kind) {
            (5, b'u') => return number(fields, at.next_multiple_of(4)),
            (_, b'u') => at = at.next_multiple_of(4) + 4,
            (_, b's' | b'o') => {
                at = at.next_multiple_of(4);
                at = at.checked_add(4)?.checked_add(number(fields, at)? as usize)?.checked_add(1)?;
            }
            (_, b'g') => at += usize::from(*fields.get(at)?) + 2,
            _ => return None,
        }
    }
    None
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[derive(Default)]
struct Writer(Vec<u8>);

/// Where an array's length stands, and where its first element begins.
struct Array(usize, usize);

impl Writer {
    fn pad(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.pad(4);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.bytes().chain([0]));
    }

    fn signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.bytes().chain([0]));
    }

    fn begin_array(&mut self, alignment: usize) -> Array {
        self.number(0);
        let length = self.0.len() - 4;
        self.pad(alignment);
        Array(length, self.0.len())
    }

    fn end_array(&mut self, Array(length, start): Array) {
        let bytes = (self.0.len() - start) as u32;
        self.0[length..length + 4].copy_from_slice(&bytes.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as a bus sends it: the fields 5 (reply serial), 6 (destination), 7 (sender), 8 (signature).
    fn answer(kind: u8, serial: u32, text: &str) -> (Vec<u8>, [u8; HEAD]) {
        let mut body = Writer::default();
        body.text(text);
        let mut writer = Writer(vec![b'l', kind, 1, 1]);
        writer.number(body.0.len() as u32);
        writer.number(77);
        let fields = writer.begin_array(8);
        for (code, value) in [(6, ":1.4"), (7, ":1.0")] {
            writer.pad(8);
            writer.0.push(code);
            writer.signature("s");
            writer.text(value);
        }
        writer.pad(8);
        writer.0.push(8);
        writer.signature("g");
        writer.signature("s");
        writer.pad(8);
        writer.0.push(5);
        writer.signature("u");
        writer.number(serial);
        writer.end_array(fields);
        writer.pad(8);
        writer.0.extend(body.0);
        let head = *writer.0.first_chunk().unwrap();
        (writer.0[HEAD..].to_vec(), head)
    }

    #[test]
    fn answers_are_told_from_signals_and_refusals() {
        let (rest, head) = answer(METHOD_RETURN, 3, "/job/1");
        assert_eq!(rest_of(&head), Some(rest.len()));
        assert_eq!(reply(&head, &rest, 3), Some(Reply::Done));
        assert_eq!(reply(&head, &rest, 4), Some(Reply::Other));
        let (rest, head) = answer(ERROR, 3, "Unit exists");
        assert_eq!(reply(&head, &rest, 3), Some(Reply::Refused("Unit exists".to_owned())));
        let (rest, head) = answer(4, 3, "");
        assert_eq!(reply(&head, &rest, 3), Some(Reply::Other));
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_message() {
        let (rest, head) = answer(ERROR, 3, "Unit exists");
        for length in 0..rest.len() {
            // The text of a refusal may be missing; all else tells that something is wrong.
            drop(reply(&head, &rest[..length], 3));
        }
        assert_eq!(reply(&head, &rest[..20], 3), None);
        let mut long = head;
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(rest_of(&long), None);
        assert_eq!(rest_of(&[0; HEAD]), None);
    }

    /// As `busctl` of systemd 252 writes it, but for the serial.
    #[test]
    fn a_call_is_laid_out_as_the_specification_says() {
        let call =
            Call { path: "/a", interface: "b.c", destination: "d", member: "E", signature: "", body: vec![] };
        let bytes = call.bytes(1);
        let head = [b'l', 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(bytes[..12], head);
        assert_eq!(bytes[16..27], [1, 1, b'o', 0, 2, 0, 0, 0, b'/', b'a', 0]);
        assert_eq!(bytes.len() % 8, 0);
        let fields = number(&bytes, 12).unwrap() as usize;
        assert_eq!(bytes.len(), (HEAD + fields).next_multiple_of(8));
    }
}
