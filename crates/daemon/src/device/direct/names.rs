//! What DNS answers teach: which addresses belong to a name. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Timestamp;

use crate::device::question::addresses;

/// What one answer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lesson {
    /// The name that was asked for, in lower case and without a final dot.
    pub name: String,
    /// Its addresses, those behind aliases included.
    pub addresses: Vec<IpAddr>,
    /// For how long the shortest-lived of them is good.
    pub lifetime: Duration,
}

/// Reads a DNS answer (RFC 1035 section 4.1); `None` if it is none, or has no address.
pub fn read_answer(message: &[u8]) -> Option<Lesson> {
    let (header, body) = message.split_first_chunk::<12>()?;
    let (is_answer, questions) = (header[2] & 0x80 != 0, u16::from_be_bytes([header[4], header[5]]));
    if !is_answer || header[3] & 0x0f != 0 || questions != 1 {
        return None;
    }
    let (name, rest) = read_name(body)?;
    let count = u16::from_be_bytes([header[6], header[7]]);
    let records = addresses(rest.get(4..)?, count);
    let lifetime = records.iter().map(|(_, lifetime)| *lifetime).min()?;
    Some(Lesson { name, addresses: records.into_iter().map(|(address, _)| address).collect(), lifetime })
}

/// What a question asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// In lower case and without a final dot.
    pub name: String,
    /// Number of the type of records.
    pub kind: u16,
    /// Where the question ends in the message.
    pub end: usize,
}

/// Reads a question for records of the Internet; `None` for all else.
pub fn read_question(message: &[u8]) -> Option<Asked> {
    let (header, body) = message.split_first_chunk::<12>()?;
    // Neither an answer nor another operation, and one question.
    if header[2] & 0xf8 != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let (name, rest) = read_name(body)?;
    let (kind, rest) = rest.split_first_chunk::<2>()?;
    let (class, rest) = rest.split_first_chunk::<2>()?;
    (*class == [0, 1]).then(|| Asked {
        name,
        kind: u16::from_be_bytes(*kind),
        end: message.len() - rest.len(),
    })
}

/// A name without pointers, as questions have it.
fn read_name(mut bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut name = String::new();
    loop {
        let (length, rest) = bytes.split_first()?;
        match *length {
            0 => return Some((name, rest)),
            length @ 1..=63 => {
                let (label, rest) = rest.split_at_checked(length.into())?;
                if !label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.') || name.len() > 255 {
                    return None;
                }
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(label.iter().map(|byte| byte.to_ascii_lowercase() as char));
                bytes = rest;
            }
            _ => return None,
        }
    }
}

/// The addresses of the names that rules speak of, as long as programs may keep using them.
#[derive(Debug, Default)]
pub struct Names {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    until: BTreeMap<(String, IpAddr), Timestamp>,
}

impl Names {
    /// Takes a lesson in; whether it told anything new.
    pub fn learn(&mut self, now: Timestamp, lesson: &Lesson) -> bool {
        let until = now + lesson.lifetime.clamp(SHORTEST, LONGEST);
        let mut new = false;
        for address in &lesson.addresses {
            let key = (lesson.name.clone(), *address);
            if !self.until.contains_key(&key) {
                if self.until.len() >= MAXIMUM_ADDRESSES {
                    continue;
                }
                new = true;
                self.addresses.entry(lesson.name.clone()).or_default().push(*address);
            }
            self.until.insert(key, until);
        }
        new
    }

    /// Forgets what is too old.
    pub fn expire(&mut self, now: Timestamp) {
        if self.until.values().all(|until| now < *until) {
            return;
        }
        self.until.retain(|_, until| now < *until);
        let until = &self.until;
        self.addresses.retain(|name, addresses| {
            addresses.retain(|address| until.contains_key(&(name.clone(), *address)));
            !addresses.is_empty()
        });
    }

    /// All addresses by name.
    pub fn addresses(&self) -> &BTreeMap<String, Vec<IpAddr>> {
        &self.addresses
    }
}

const MAXIMUM_ADDRESSES: usize = 4_096;
/// Programs keep addresses for longer than DNS allows.
const SHORTEST: Duration = Duration::from_secs(3_600);
const LONGEST: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![7, 7, 0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
        message.extend(b"\x03WWW\x07example\x03org\0\0\x01\0\x01");
        for (kind, data) in records {
            message.extend([0xc0, 12]);
            message.extend(kind.to_be_bytes());
            message.extend([0, 1, 0, 0, 0x1c, 0x20, 0, data.len() as u8]);
            message.extend(*data);
        }
        message
    }

    #[test]
    fn addresses_behind_aliases_belong_to_the_name_that_was_asked_for() {
        let lesson =
            read_answer(&answer(&[(5, b"\x01x\xc0\x10"), (1, &[192, 0, 2, 7]), (28, &[0xfd; 16])])).unwrap();
        assert_eq!(lesson.name, "www.example.org");
        assert_eq!(lesson.addresses[0], "192.0.2.7".parse::<IpAddr>().unwrap());
        assert_eq!((lesson.addresses.len(), lesson.lifetime), (2, Duration::from_secs(7_200)));
        assert_eq!(read_answer(&answer(&[])), None);
        let mut question = answer(&[(1, &[192, 0, 2, 7])]);
        question[2] = 1;
        assert_eq!(read_answer(&question), None, "a question");
    }

    #[test]
    fn names_are_forgotten_in_time_and_bounded() {
        let mut names = Names::default();
        let lesson = read_answer(&answer(&[(1, &[192, 0, 2, 7])])).unwrap();
        assert!(names.learn(Timestamp::ZERO, &lesson));
        assert!(!names.learn(Timestamp::ZERO, &lesson), "nothing new");
        names.expire(Timestamp::ZERO + Duration::from_secs(7_199));
        assert_eq!(names.addresses().len(), 1);
        names.expire(Timestamp::ZERO + Duration::from_secs(7_200));
        assert!(names.addresses().is_empty());
        for number in 0..5_000u32 {
            let addresses = vec![IpAddr::V4(number.into())];
            names.learn(Timestamp::ZERO, &Lesson { addresses, ..lesson.clone() });
        }
        assert_eq!(names.addresses()["www.example.org"].len(), MAXIMUM_ADDRESSES);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..80) {
            drop(read_answer(&bytes));
            let whole = answer(&[(1, &[192, 0, 2, 7]), (28, &[0xfd; 16])]);
            drop(read_answer(&whole[..cut.min(whole.len())]));
        }
    }
}
