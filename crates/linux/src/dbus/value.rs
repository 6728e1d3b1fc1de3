//! Values of D-Bus messages and their bytes (D-Bus specification, "Marshaling"). Only little-endian, as every sender on the machines this runs on has it.

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number or a truth value, by the letter of its type; its bytes, little-endian.
    Number(u8, u64),
    /// `s`.
    Text(String),
    /// `o`.
    Path(String),
    /// `g`.
    Signature(String),
    /// `ay`.
    Bytes(Vec<u8>),
    /// Signature of the elements, which may be entries of a dictionary, and these.
    Array(String, Vec<Value>),
    /// Also an entry of a dictionary, which has two.
    Struct(Vec<Value>),
    /// A value of any type.
    Variant(Box<Value>),
}

/// Arrays in arrays, structures and variants; the specification allows 64.
const DEEPEST: usize = 16;

impl Value {
    /// `b`.
    pub fn boolean(value: bool) -> Self {
        Self::Number(b'b', value.into())
    }

    /// `u`.
    pub fn uint32(value: u32) -> Self {
        Self::Number(b'u', value.into())
    }

    /// `t`.
    pub fn uint64(value: u64) -> Self {
        Self::Number(b't', value)
    }

    /// `d`.
    pub fn double(value: f64) -> Self {
        Self::Number(b'd', value.to_bits())
    }

    /// `s`.
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// `as`.
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Array("s".to_owned(), texts.into_iter().map(Self::text).collect())
    }

    /// `o`; the caller knows that it is one.
    pub fn path(path: &str) -> Self {
        Self::Path(path.to_owned())
    }

    /// A dictionary of texts to values of any type, `a{sv}`.
    pub fn properties<'a>(entries: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let entry = |(name, value)| Self::Struct(vec![Self::text(name), Self::Variant(Box::new(value))]);
        Self::Array("{sv}".to_owned(), entries.into_iter().map(entry).collect())
    }

    /// The value of a dictionary's entry, out of its variant.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.entries().find_map(|(key, value)| (key.as_text()? == name).then_some(value))
    }

    /// Entries of a dictionary, values out of their variants; none if it is no dictionary.
    pub fn entries(&self) -> impl Iterator<Item = (&Self, &Self)> {
        let all = match self {
            Self::Array(_, all) => all.as_slice(),
            _ => &[],
        };
        all.iter().filter_map(|entry| match entry {
            Self::Struct(pair) => match pair.as_slice() {
                [key, Self::Variant(value)] => Some((key, &**value)),
                [key, value] => Some((key, value)),
                _ => None,
            },
            _ => None,
        })
    }

    /// The letters of a text, path or signature.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Path(text) | Self::Signature(text) => Some(text),
            _ => None,
        }
    }

    /// Its type, as signatures have it.
    pub fn signature(&self) -> String {
        match self {
            Self::Number(kind, _) => char::from(*kind).to_string(),
            Self::Text(_) => "s".to_owned(),
            Self::Path(_) => "o".to_owned(),
            Self::Signature(_) => "g".to_owned(),
            Self::Bytes(_) => "ay".to_owned(),
            Self::Array(element, _) => format!("a{element}"),
            Self::Struct(parts) => format!("({})", signature_of(parts)),
            Self::Variant(_) => "v".to_owned(),
        }
    }
}

/// The signature of several values.
pub fn signature_of(values: &[Value]) -> String {
    values.iter().map(Value::signature).collect()
}

/// The bytes of values one after the other, the first at a multiple of 8.
pub fn encode(values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| write(&mut bytes, value));
    bytes
}

/// Values of a signature from bytes that begin at a multiple of 8; `None` if they do not fit it, or are nested too deep.
pub fn decode(signature: &str, bytes: &[u8]) -> Option<Vec<Value>> {
    let mut reader = Reader { bytes, at: 0 };
    reader.values(signature.as_bytes(), DEEPEST)
}

fn write(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Number(kind, number) => {
            let size = size_of_number(*kind).unwrap_or(1);
            pad(bytes, size);
            bytes.extend(&number.to_le_bytes()[..size]);
        }
        Value::Text(text) | Value::Path(text) => {
            length(bytes, text.len());
            // A zero ends a text. One within would be no text, and the bus hangs up on whoever sends that.
            bytes.extend(text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }).chain([0]));
        }
        Value::Signature(text) => signature(bytes, text),
        Value::Bytes(of) => {
            length(bytes, of.len());
            bytes.extend(of);
        }
        Value::Array(element, all) => {
            length(bytes, 0);
            let place = bytes.len() - 4;
            pad(bytes, alignment(element.as_bytes()));
            let start = bytes.len();
            all.iter().for_each(|value| write(bytes, value));
            let written = (bytes.len() - start) as u32;
            bytes[place..place + 4].copy_from_slice(&written.to_le_bytes());
        }
        Value::Struct(parts) => {
            pad(bytes, 8);
            parts.iter().for_each(|value| write(bytes, value));
        }
        Value::Variant(value) => {
            signature(bytes, &value.signature());
            write(bytes, value);
        }
    }
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn length(bytes: &mut Vec<u8>, length: usize) {
    pad(bytes, 4);
    bytes.extend((length as u32).to_le_bytes());
}

fn signature(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(text.len() as u8);
    bytes.extend(text.bytes().chain([0]));
}

/// Bytes of a number, which is also its alignment; `None` if it is none.
fn size_of_number(kind: u8) -> Option<usize> {
    Some(match kind {
        b'y' => 1,
        b'n' | b'q' => 2,
        b'b' | b'i' | b'u' | b'h' => 4,
        b'x' | b't' | b'd' => 8,
        _ => return None,
    })
}

fn alignment(signature: &[u8]) -> usize {
    match signature.first() {
        Some(b's' | b'o' | b'a') => 4,
        Some(b'(' | b'{') => 8,
        Some(kind) => size_of_number(*kind).unwrap_or(1),
        None => 1,
    }
}

/// How many letters of a signature its first complete type has; `None` if there is none.
fn first_type(signature: &[u8]) -> Option<usize> {
    let mut open = Vec::new();
    for (at, letter) in signature.iter().enumerate() {
        match letter {
            b'a' => continue,
            b'(' => open.push(b')'),
            b'{' => open.push(b'}'),
            b')' | b'}' if open.pop() != Some(*letter) => return None,
            _ => {}
        }
        if open.is_empty() {
            return Some(at + 1);
        }
    }
    None
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn values(&mut self, signature: &[u8], depth: usize) -> Option<Vec<Value>> {
        let (mut left, mut values) = (signature, Vec::new());
        while !left.is_empty() {
            let (first, rest) = left.split_at_checked(first_type(left)?)?;
            values.push(self.value(first, depth)?);
            left = rest;
        }
        Some(values)
    }

    fn value(&mut self, signature: &[u8], depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.align(alignment(signature));
        let (kind, inner) = signature.split_first()?;
        Some(match kind {
            b's' => Value::Text(self.text()?),
            b'o' => Value::Path(self.text()?),
            b'g' => Value::Signature(self.signature()?),
            b'v' => {
                let signature = self.signature()?.into_bytes();
                if first_type(&signature)? != signature.len() {
                    return None;
                }
                Value::Variant(Box::new(self.value(&signature, depth)?))
            }
            b'a' => {
                let length = usize::try_from(self.number(4)?).ok()?;
                self.align(alignment(inner));
                let mut part = Reader { bytes: self.bytes.get(..self.at.checked_add(length)?)?, at: self.at };
                self.at += length;
                if inner == b"y" {
                    return Some(Value::Bytes(part.take(length)?.to_vec()));
                }
                let mut all = Vec::new();
                while part.at < part.bytes.len() {
                    let before = part.at;
                    all.push(part.value(inner, depth)?);
                    // What takes no room would never end.
                    if part.at == before {
                        return None;
                    }
                }
                Value::Array(String::from_utf8(inner.to_vec()).ok()?, all)
            }
            b'(' | b'{' => Value::Struct(self.values(inner.get(..inner.len().checked_sub(1)?)?, depth)?),
            kind => Value::Number(*kind, self.number(size_of_number(*kind)?)?),
        })
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number(&mut self, size: usize) -> Option<u64> {
        let mut number = [0; 8];
        number.get_mut(..size)?.copy_from_slice(self.take(size)?);
        Some(u64::from_le_bytes(number))
    }

    /// What follows its own length, and is ended by a zero.
    fn ended(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8(self.take(length)?.to_vec()).ok()?;
        (self.take(1)? == [0]).then_some(text)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number(4)?).ok()?;
        self.ended(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = usize::try_from(self.number(1)?).ok()?;
        self.ended(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nested() -> Vec<Value> {
        let data = Value::properties([("0000aaaa-0000-1000-8000-00805f9b34fb", Value::Bytes(vec![1, 2, 3]))]);
        vec![
            Value::path("/org/bluez/hci0"),
            Value::properties([
                ("ServiceData", data),
                ("RSSI", Value::Number(b'n', 0xffc4)),
                ("New", Value::boolean(true)),
            ]),
            Value::Array("u".to_owned(), vec![Value::uint32(7), Value::uint32(8)]),
            Value::Array("(yv)".to_owned(), Vec::new()),
        ]
    }

    #[test]
    fn what_is_written_is_read_again_and_what_is_cut_off_is_nothing() {
        let (values, bytes) = (nested(), encode(&nested()));
        let signature = signature_of(&values);
        assert_eq!(signature, "oa{sv}aua(yv)");
        assert_eq!(decode(&signature, &bytes), Some(values.clone()));
        assert!((0..bytes.len()).all(|cut| decode(&signature, &bytes[..cut]).is_none()));
        let data = values[1].get("ServiceData").unwrap();
        assert_eq!(data.get("0000aaaa-0000-1000-8000-00805f9b34fb"), Some(&Value::Bytes(vec![1, 2, 3])));
        assert_eq!(values[1].get("RSSI"), Some(&Value::Number(b'n', 0xffc4)));
    }

    /// Laid out by hand after the specification's table of alignments.
    #[test]
    fn values_have_the_bytes_of_the_specification() {
        let values = [
            Value::Number(b'y', 5),
            Value::uint32(1),
            Value::text("ab"),
            Value::Variant(Box::new(Value::boolean(true))),
        ];
        let expected =
            [&[5, 0, 0, 0, 1, 0, 0, 0][..], &[2, 0, 0, 0, b'a', b'b', 0], &[1, b'b', 0, 0, 0, 1, 0, 0, 0]]
                .concat();
        // The variant begins at 15: its signature takes 3 bytes, its value is at a multiple of 4.
        assert_eq!(encode(&values), expected);
    }

    #[test]
    fn a_zero_within_a_text_does_not_end_it() {
        let bytes = encode(&[Value::text("a\0b"), Value::uint32(7)]);
        assert_eq!(decode("su", &bytes), Some(vec![Value::text("a b"), Value::uint32(7)]));
    }

    #[test]
    fn nonsense_is_refused() {
        for (signature, bytes) in [
            ("a()", &[4, 0, 0, 0, 0, 0, 0, 0][..]),
            ("(u", &[0; 8]),
            ("u)", &[0; 8]),
            ("a", &[0; 8]),
            ("?", &[0; 8]),
        ] {
            assert_eq!(decode(signature, bytes), None, "{signature}");
        }
        let nested = |depth| format!("{}y{}", "(".repeat(depth), ")".repeat(depth));
        assert!(decode(&nested(DEEPEST - 1), &[0; 8]).is_some());
        assert_eq!(decode(&nested(DEEPEST), &[0; 8]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(signature in "[ybnuqxsogva(){}]{0,12}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(decode(&signature, &bytes));
        }

        #[test]
        fn no_damage_panics(at in 0usize..200, byte in any::<u8>()) {
            let mut bytes = encode(&nested());
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            drop(decode("oa{sv}aua(yv)", &bytes));
        }
    }
}
