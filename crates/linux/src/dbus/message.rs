//! Messages of D-Bus (D-Bus specification, "Message Protocol").
//!
//! ```text
//! endianness type flags version | body length | serial | length of fields | fields: code, variant ... | pad to 8 | body
//! ```

use super::value::{Value, decode, encode, signature_of};

/// Bytes before the fields, with their length.
pub(crate) const HEAD: usize = 16;
/// More than this behind the head is not kept.
pub(super) const LONGEST: usize = 512 << 10;
/// The specification's bound for a whole message.
const MOST: usize = 128 << 20;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Call,
    Return,
    Error,
    Signal,
}

/// A message; texts that it does not have are empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) serial: u32,
    /// Which call it answers.
    pub(crate) answers: u32,
    pub(crate) path: String,
    pub(crate) interface: String,
    pub(crate) member: String,
    pub(crate) error: String,
    pub(crate) destination: String,
    pub(crate) sender: String,
    pub(crate) body: Vec<Value>,
}

impl Message {
    fn empty(kind: Kind) -> Self {
        let none = String::new;
        Self {
            kind,
            serial: 0,
            answers: 0,
            path: none(),
            interface: none(),
            member: none(),
            error: none(),
            destination: none(),
            sender: none(),
            body: Vec::new(),
        }
    }

    /// A call of a method, as in `org.bluez`, `/org/bluez/hci0`, `org.bluez.Adapter1`, `StartDiscovery`.
    pub(crate) fn call([destination, path, interface, member]: [&str; 4], body: Vec<Value>) -> Self {
        Self {
            path: path.to_owned(),
            interface: interface.to_owned(),
            member: member.to_owned(),
            destination: destination.to_owned(),
            body,
            ..Self::empty(Kind::Call)
        }
    }

    /// To whom it may concern.
    pub(crate) fn signal([path, interface, member]: [&str; 3], body: Vec<Value>) -> Self {
        Self { kind: Kind::Signal, ..Self::call(["", path, interface, member], body) }
    }

    /// The answer to a call.
    pub(crate) fn answer(&self, body: Vec<Value>) -> Self {
        Self { answers: self.serial, destination: self.sender.clone(), body, ..Self::empty(Kind::Return) }
    }

    /// The answer that there is no such method.
    pub(crate) fn unknown(&self) -> Self {
        let error = "org.freedesktop.DBus.Error.UnknownMethod".to_owned();
        Self { kind: Kind::Error, error, ..self.answer(vec![Value::text("there is no such method")]) }
    }

    /// Whether it is this signal.
    pub(crate) fn is_signal(&self, interface: &str, member: &str) -> bool {
        self.kind == Kind::Signal && self.interface == interface && self.member == member
    }

    /// The text for people, of an error.
    pub(crate) fn reason(&self) -> String {
        let text = self.body.first().and_then(Value::as_text).unwrap_or(&self.error);
        text.chars().take(300).collect()
    }

    /// The whole message; calls are numbered.
    pub(crate) fn encode(&self, serial: u32) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Call => 1,
            Kind::Return => 2,
            Kind::Error => 3,
            Kind::Signal => 4,
        };
        let texts = [
            (1, &self.path),
            (2, &self.interface),
            (3, &self.member),
            (4, &self.error),
            (6, &self.destination),
        ];
        let field = |code: u8, value| {
            Value::Struct(vec![Value::Number(b'y', code.into()), Value::Variant(Box::new(value))])
        };
        let mut fields: Vec<Value> = texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(code, text)| field(code, if code == 1 { Value::path(text) } else { Value::text(text) }))
            .collect();
        if self.answers != 0 {
            fields.push(field(5, Value::uint32(self.answers)));
        }
        let body = encode(&self.body);
        if !self.body.is_empty() {
            fields.push(field(8, Value::Signature(signature_of(&self.body))));
        }
        let mut bytes = [b'l', kind, 0, 1].to_vec();
        let rest = [
            Value::uint32(body.len() as u32),
            Value::uint32(serial),
            Value::Array("(yv)".to_owned(), fields),
        ];
        // The fields begin at a multiple of 8, with the four bytes before as without them and four more.
        bytes.extend(encode_after_four(&rest));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(body);
        bytes
    }

    /// Reads a message from its head and what follows; `None` if it is malformed.
    pub(crate) fn parse(head: &[u8; HEAD], rest: &[u8]) -> Option<Self> {
        let kind = match head[1] {
            1 => Kind::Call,
            2 => Kind::Return,
            3 => Kind::Error,
            4 => Kind::Signal,
            _ => return None,
        };
        let mut message = Self { serial: number(head, 8)?, ..Self::empty(kind) };
        let length = usize::try_from(number(head, 12)?).ok()?;
        // From the length on, at a multiple of 8 as in the message: the length is at 12, so four bytes go before.
        let array = [&[0; 4], &head[12..], rest.get(..length)?].concat();
        let fields = decode("ua(yv)", &array)?;
        let mut signature = "";
        let Some(Value::Array(_, fields)) = fields.get(1) else { return None };
        for field in fields {
            let Value::Struct(parts) = field else { return None };
            let [Value::Number(b'y', code), Value::Variant(value)] = parts.as_slice() else { return None };
            let text = || value.as_text().map(str::to_owned);
            match (code, &**value) {
                (1, _) => message.path = text()?,
                (2, _) => message.interface = text()?,
                (3, _) => message.member = text()?,
                (4, _) => message.error = text()?,
                (5, Value::Number(b'u', serial)) => message.answers = u32::try_from(*serial).ok()?,
                (6, _) => message.destination = text()?,
                (7, _) => message.sender = text()?,
                (8, _) => signature = value.as_text()?,
                _ => {}
            }
        }
        message.body = decode(signature, rest.get(length.next_multiple_of(8)..)?)?;
        Some(message)
    }
}

/// How many bytes follow the first [`HEAD`] ones; `None` if they are no message or if it is too long.
pub(crate) fn rest_of(head: &[u8; HEAD]) -> Option<usize> {
    if head[0] != b'l' || head[3] != 1 {
        return None;
    }
    let (body, fields) = (number(head, 4)? as usize, number(head, 12)? as usize);
    (body <= MOST && fields <= MOST).then(|| fields.next_multiple_of(8) + body)
}

/// Values whose first one is at 4.
fn encode_after_four(values: &[Value]) -> Vec<u8> {
    let all = [&[Value::uint32(0)], values].concat();
    encode(&all).split_off(4)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> Option<Message> {
        let head = bytes.first_chunk()?;
        let rest = bytes.get(HEAD..)?;
        (rest_of(head)? == rest.len()).then(|| Message::parse(head, rest)).flatten()
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let call = Message::call(["d", "/a", "b.c", "E"], vec![Value::text("x"), Value::properties([])]);
        let read = parsed(&call.encode(7)).unwrap();
        assert_eq!(read, Message { serial: 7, ..call.clone() });
        let answer = Message { sender: ":1.3".to_owned(), ..read }.answer(vec![Value::uint32(9)]);
        let read = parsed(&answer.encode(8)).unwrap();
        assert_eq!((read.kind, read.answers, read.destination.as_str()), (Kind::Return, 7, ":1.3"));
        let refusal = call.unknown();
        assert_eq!(parsed(&refusal.encode(1)).unwrap().reason(), "there is no such method");
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_message() {
        let bytes = Message::call(["d", "/a", "b.c", "E"], vec![Value::text("text")]).encode(1);
        let head: [u8; HEAD] = *bytes.first_chunk().unwrap();
        assert!((HEAD..bytes.len()).all(|cut| Message::parse(&head, &bytes[HEAD..cut]).is_none()));
        let mut long = head;
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(rest_of(&long), None, "beyond the specification");
        assert_eq!(rest_of(&[0; HEAD]), None);
    }

    /// As `busctl` of systemd 252 writes it, but for the serial.
    #[test]
    fn a_call_is_laid_out_as_the_specification_says() {
        let bytes = Message::call(["d", "/a", "b.c", "E"], Vec::new()).encode(1);
        assert_eq!(bytes[..12], [b'l', 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[16..27], [1, 1, b'o', 0, 2, 0, 0, 0, b'/', b'a', 0]);
        assert_eq!(bytes.len() % 8, 0);
        let fields = number(&bytes, 12).unwrap() as usize;
        assert_eq!(bytes.len(), (HEAD + fields).next_multiple_of(8));
    }
}
