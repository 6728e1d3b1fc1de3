//! Questions to DNS servers (RFC 1035): written, and their answers read. No socket here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A question for the addresses of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Name, type and class, as they stand in the message.
    section: Vec<u8>,
    kind: Kind,
}

/// Of which family the addresses are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

impl Question {
    /// `None` if `name` cannot be asked for: an empty or too long label, or too long in all (RFC 1035 section 2.3.4).
    pub fn new(name: &str, kind: Kind) -> Option<Self> {
        let mut section = Vec::new();
        for label in name.strip_suffix('.').unwrap_or(name).split('.') {
            let length =
                u8::try_from(label.len()).ok().filter(|length| (1..=MAXIMUM_LABEL).contains(length))?;
            section.push(length);
            section.extend(label.bytes());
        }
        section.push(0);
        if section.len() > MAXIMUM_NAME {
            return None;
        }
        section.extend(kind.number().to_be_bytes());
        section.extend(INTERNET.to_be_bytes());
        Some(Self { section, kind })
    }

    /// The message that asks it (section 4.1).
    pub fn message(&self, id: [u8; 2]) -> Vec<u8> {
        let mut message = Vec::from(id);
        message.extend(RECURSION_DESIRED);
        message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend(&self.section);
        message
    }

    /// The addresses in an answer to the message with this id; `None` if it is an answer to something else, or no
    /// answer but a failure.
    pub fn answers(&self, message: &[u8], id: [u8; 2]) -> Option<Vec<IpAddr>> {
        let (header, rest) = message.split_first_chunk::<12>()?;
        let (is_response, code) = (header[2] & 0x80 != 0, header[3] & 0x0f);
        if header[..2] != id || !is_response || !matches!(code, 0 | NO_SUCH_NAME) || header[4..6] != [0, 1] {
            return None;
        }
        // Servers may write the name in another case.
        let (asked, rest) = rest.split_at_checked(self.section.len())?;
        if !asked.eq_ignore_ascii_case(&self.section) {
            return None;
        }
        let count = u16::from_be_bytes([header[6], header[7]]);
        let of_family = |address: &IpAddr| address.is_ipv4() == (self.kind == Kind::V4);
        Some(addresses(rest, count).into_iter().map(|(address, _)| address).filter(of_family).collect())
    }
}

/// The addresses in the first `count` records, whatever their owners, each with its time to live; as far as the records can be read.
pub fn addresses(mut bytes: &[u8], count: u16) -> Vec<(IpAddr, Duration)> {
    let mut found = Vec::new();
    for _ in 0..usize::from(count).min(MAXIMUM_RECORDS) {
        let Some((address, after)) = record(bytes) else { break };
        found.extend(address);
        bytes = after;
    }
    found
}

type Record = Option<(IpAddr, Duration)>;

/// The address in the first record, if it has one, and what follows the record.
fn record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let rest = skip_name(bytes)?;
    let (header, rest) = rest.split_first_chunk::<10>()?;
    let [kind, class] = [[header[0], header[1]], [header[2], header[3]]].map(u16::from_be_bytes);
    let lifetime = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let length = usize::from(u16::from_be_bytes([header[8], header[9]]));
    let (data, rest) = rest.split_at_checked(length)?;
    let address = if class != INTERNET {
        None
    } else if kind == Kind::V4.number() {
        <[u8; 4]>::try_from(data).ok().map(|octets| Ipv4Addr::from(octets).into())
    } else if kind == Kind::V6.number() {
        <[u8; 16]>::try_from(data).ok().map(|octets| Ipv6Addr::from(octets).into())
    } else {
        None
    };
    Some((address.map(|address| (address, Duration::from_secs(lifetime.into()))), rest))
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 28,
        }
    }
}

/// What follows a name, which may end in a pointer (section 4.1.4).
fn skip_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first()?;
        match *length {
            0 => return Some(rest),
            0xc0..=0xff => return rest.get(1..),
            length @ 1..=MAXIMUM_LABEL => bytes = rest.get(usize::from(length)..)?,
            _ => return None,
        }
    }
}

const MAXIMUM_LABEL: u8 = 63;
const MAXIMUM_NAME: usize = 255;
/// More than a gateway or a chain of aliases has.
const MAXIMUM_RECORDS: usize = 64;
const RECURSION_DESIRED: [u8; 2] = [0x01, 0x00];
const INTERNET: u16 = 1;
const NO_SUCH_NAME: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 2] = [1, 2];

    /// An answer with these records: owner is a pointer to the question, then type, class, time to live, data.
    fn answer(question: &Question, code: u8, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = question.message(ID);
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        message[7] = records.len() as u8;
        for (kind, data) in records {
            message.extend([0xc0, 12]);
            message.extend(kind.to_be_bytes());
            message.extend([0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
            message.extend(*data);
        }
        message
    }

    #[test]
    fn a_question_is_written_as_rfc_1035_says() {
        let question = Question::new("ipv4only.arpa", Kind::V6).unwrap();
        let expected =
            b"\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x08ipv4only\x04arpa\x00\x00\x1c\x00\x01";
        assert_eq!(question.message(ID), expected);
        assert_eq!(Question::new("ipv4only.arpa.", Kind::V6), Some(question));
        for name in ["", "a..b", &"x".repeat(64), &format!("{}x", "x.".repeat(130))] {
            assert_eq!(Question::new(name, Kind::V4), None, "{name}");
        }
    }

    #[test]
    fn addresses_are_found_behind_aliases_and_nothing_else_is() {
        let question = Question::new("gw.example.org", Kind::V4).unwrap();
        let alias: &[u8] = b"\x01x\xc0\x0f";
        let good =
            answer(&question, 0, &[(5, alias), (1, &[192, 0, 2, 7]), (28, &[0; 16]), (1, &[192, 0, 2, 8])]);
        let expected: Vec<IpAddr> = ["192.0.2.7", "192.0.2.8"].map(|text| text.parse().unwrap()).to_vec();
        assert_eq!(question.answers(&good, ID), Some(expected));
        assert_eq!(question.answers(&good, [1, 3]), None, "another's answer");
        assert_eq!(question.answers(&question.message(ID), ID), None, "a question");
        assert_eq!(question.answers(&answer(&question, 2, &[]), ID), None, "a server that failed");
        assert_eq!(question.answers(&answer(&question, 3, &[]), ID), Some(Vec::new()), "no such name");
        let other = Question::new("gx.example.org", Kind::V4).unwrap();
        assert_eq!(other.answers(&good, ID), None, "about another name");
    }

    #[test]
    fn cut_or_counted_wrong_it_is_read_as_far_as_it_goes() {
        let question = Question::new("gw.example.org", Kind::V6).unwrap();
        let mut message = answer(&question, 0, &[(28, &[7; 16])]);
        for length in 0..message.len() {
            let found = question.answers(&message[..length], ID);
            assert!(found.is_none_or(|found| found.is_empty()), "cut at {length}");
        }
        message[6..8].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(question.answers(&message, ID).unwrap().len(), 1);
        // What stands after the answers is no answer.
        message[6..8].copy_from_slice(&[0, 0]);
        assert_eq!(question.answers(&message, ID), Some(Vec::new()));
    }
}
