//! Messages of D-Bus (D-Bus specification, "Message Protocol").
//!
//! ```text
//! endianness type flags version | body length | serial | length of fields | fields: code, variant ... | pad to 8 | body
//! ```

use super::value::{Value, decode, encode, signature_of};

/// Bytes before the fields, with their length.
pub const HEAD: usize = 16;
/// More than this behind the head is not kept.
pub(super) const LONGEST: usize = 512 << 10;
/// The specification's bound for a whole message.
const MOST: usize = 128 << 20;

const NO_REPLY: u8 = 1;
const INTERACTIVE: u8 = 4;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of a method.
    Call,
    /// The answer to it.
    Return,
    /// The answer that it failed.
    Error,
    /// News.
    Signal,
}

/// A message; texts that it does not have are empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Of a call: whether its sender wants no answer, and whether a person may be asked for leave.
    pub flags: Flags,
    /// Its sender's number for it.
    pub serial: u32,
    /// Which call it answers.
    pub answers: u32,
    /// The object that it is about.
    pub path: String,
    /// Of that object.
    pub interface: String,
    /// Name of the method or signal.
    pub member: String,
    /// Name of the error.
    pub error: String,
    /// For whom it is; a signal without is for all.
    pub destination: String,
    /// From whom it is, by the bus's own word.
    pub sender: String,
    /// What it says.
    pub body: Vec<Value>,
}

/// How a call wants to be treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// `NO_REPLY_EXPECTED`.
    pub no_reply: bool,
    /// `ALLOW_INTERACTIVE_AUTHORIZATION`.
    pub interactive: bool,
}

impl Message {
    fn empty(kind: Kind) -> Self {
        let none = String::new;
        Self {
            kind,
            flags: Flags::default(),
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
    pub fn call([destination, path, interface, member]: [&str; 4], body: Vec<Value>) -> Self {
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
    pub fn signal([path, interface, member]: [&str; 3], body: Vec<Value>) -> Self {
        Self { kind: Kind::Signal, ..Self::call(["", path, interface, member], body) }
    }

    /// The answer to a call.
    pub fn answer(&self, body: Vec<Value>) -> Self {
        Self { answers: self.serial, destination: self.sender.clone(), body, ..Self::empty(Kind::Return) }
    }

    /// The answer that there is no such method.
    pub fn unknown(&self) -> Self {
        self.failed("org.freedesktop.DBus.Error.UnknownMethod", "there is no such method")
    }

    /// The answer that a call failed: the error's name, and a text for people.
    pub fn failed(&self, error: &str, text: &str) -> Self {
        Self { kind: Kind::Error, error: error.to_owned(), ..self.answer(vec![Value::text(text)]) }
    }

    /// Whether it is this signal.
    pub fn is_signal(&self, interface: &str, member: &str) -> bool {
        self.kind == Kind::Signal && self.interface == interface && self.member == member
    }

    /// The text for people, of an error.
    pub fn reason(&self) -> String {
        let text = self.body.first().and_then(Value::as_text).unwrap_or(&self.error);
        text.chars().take(300).collect()
    }

    /// The whole message; calls are numbered.
    pub fn encode(&self, serial: u32) -> Vec<u8> {
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
        let flags = u8::from(self.flags.no_reply) * NO_REPLY + u8::from(self.flags.interactive) * INTERACTIVE;
        let mut bytes = [b'l', kind, flags, 1].to_vec();
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
    pub fn parse(head: &[u8; HEAD], rest: &[u8]) -> Option<Self> {
        let (mut message, signature) = Self::parse_fields(head, rest)?;
        message.body = decode(&signature, rest.get(fields_of(head)..)?)?;
        Some(message)
    }

    /// The same without its body, which may be missing or make no sense: enough to say so to its sender.
    pub fn parse_without_body(head: &[u8; HEAD], rest: &[u8]) -> Option<Self> {
        Self::parse_fields(head, rest).map(|(message, _)| message)
    }

    /// All but the body, and the body's signature.
    fn parse_fields(head: &[u8; HEAD], rest: &[u8]) -> Option<(Self, String)> {
        let kind = match head[1] {
            1 => Kind::Call,
            2 => Kind::Return,
            3 => Kind::Error,
            4 => Kind::Signal,
            _ => return None,
        };
        let flags = Flags { no_reply: head[2] & NO_REPLY != 0, interactive: head[2] & INTERACTIVE != 0 };
        let mut message = Self { flags, serial: number(head, 8)?, ..Self::empty(kind) };
        let length = usize::try_from(number(head, 12)?).ok()?;
        // From the length on, at a multiple of 8 as in the message: the length is at 12, so four bytes go before.
        let array = [&[0; 4], &head[12..], rest.get(..length)?].concat();
        let fields = decode("ua(yv)", &array)?;
        let mut signature = String::new();
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
                (8, _) => signature = text()?,
                _ => {}
            }
        }
        Some((message, signature))
    }
}

/// How many of the bytes that follow a head of [`rest_of`]'s liking are not the body's.
pub fn fields_of(head: &[u8; HEAD]) -> usize {
    number(head, 12).map_or(0, |fields| (fields as usize).next_multiple_of(8))
}

/// How many bytes follow the first [`HEAD`] ones; `None` if they are no message or if it is too long.
pub fn rest_of(head: &[u8; HEAD]) -> Option<usize> {
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
