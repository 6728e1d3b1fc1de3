//! Names of peers, answered without asking anybody: `NAME.anabranch.internal` has the any0 addresses of the peer of that name. Pure.
//!
//! The domain `internal` is kept for private use (ICANN resolution 2024.07.29.06), so such a name never has a meaning elsewhere, and is
//! never asked for elsewhere. Only what stands before it is looked up, so a peer's name cannot hide a name of the Internet.

use std::net::IpAddr;

use super::names::read_question;

/// What names of peers end in.
pub const DOMAIN: &str = "anabranch.internal";

/// The answer to a question for a peer's name (RFC 1035 section 4.1); `None` if the question is for another name. `addresses_of` has the
/// addresses of the peers that are known.
pub fn answer(question: &[u8], addresses_of: impl Fn(&str) -> Option<Vec<IpAddr>>) -> Option<Vec<u8>> {
    let asked = read_question(question)?;
    let name = asked.name.strip_suffix(DOMAIN)?;
    let found = match name.strip_suffix('.') {
        Some(name) => addresses_of(name),
        // The domain itself has no addresses, and is there.
        None if name.is_empty() => Some(Vec::new()),
        None => return None,
    };
    let is_unknown = found.is_none();
    let data = |address: &IpAddr| match address {
        IpAddr::V4(address) if asked.kind == A => Some(address.octets().to_vec()),
        IpAddr::V6(address) if asked.kind == AAAA => Some(address.octets().to_vec()),
        _ => None,
    };
    let records: Vec<Vec<u8>> = found.iter().flatten().filter_map(data).collect();
    let (id, flags) = (question.get(..2)?, question.get(2)?);
    let mut message = id.to_vec();
    // An answer with authority; recursion as it was wanted, and available.
    message.extend([0x84 | flags & RECURSION_DESIRED, 0x80 | if is_unknown { NO_SUCH_NAME } else { 0 }]);
    message.extend([0, 1, 0, u8::try_from(records.len()).ok()?, 0, 0, 0, 0]);
    message.extend(question.get(HEADER..asked.end)?);
    for data in records {
        message.extend(POINTER_TO_QUESTION);
        message.extend(asked.kind.to_be_bytes());
        message.extend(INTERNET.to_be_bytes());
        message.extend(LIFETIME_SECONDS.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    }
    Some(message)
}

const HEADER: usize = 12;
const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const RECURSION_DESIRED: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
/// Peers are renamed and forgotten.
const LIFETIME_SECONDS: u32 = 30;
const POINTER_TO_QUESTION: [u8; 2] = [0xc0, HEADER as u8];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::names::read_answer;
    use super::*;
    use crate::device::question::{Kind, Question};

    const ID: [u8; 2] = [7, 9];

    fn known(name: &str) -> Option<Vec<IpAddr>> {
        (name == "far").then(|| vec!["fdab:51ab:51ab:6::7".parse().unwrap(), "10.254.3.4".parse().unwrap()])
    }

    fn ask(name: &str, kind: Kind) -> Option<Vec<IpAddr>> {
        let question = Question::new(name, kind).unwrap();
        question.answers(&answer(&question.message(ID), known)?, ID)
    }

    #[test]
    fn names_of_peers_have_their_addresses_and_no_other_name_is_answered() {
        assert_eq!(ask("far.anabranch.internal", Kind::V4), Some(vec!["10.254.3.4".parse().unwrap()]));
        assert_eq!(
            ask("FAR.Anabranch.Internal", Kind::V6),
            Some(vec!["fdab:51ab:51ab:6::7".parse().unwrap()])
        );
        assert_eq!(ask("near.anabranch.internal", Kind::V4), Some(Vec::new()), "there is no such name");
        assert_eq!(ask("anabranch.internal", Kind::V4), Some(Vec::new()));
        for other in ["example.org", "farranabranch.internal", "anabranch.internal.org", "internal"] {
            assert_eq!(ask(other, Kind::V4), None, "{other}");
        }
        let question = Question::new("near.anabranch.internal", Kind::V4).unwrap().message(ID);
        assert_eq!(answer(&question, known).unwrap()[3] & 0x0f, NO_SUCH_NAME);
        let question = Question::new("far.anabranch.internal", Kind::V4).unwrap().message(ID);
        let lesson = read_answer(&answer(&question, known).unwrap()).unwrap();
        assert_eq!(lesson.name, "far.anabranch.internal");
        let mut other_kind = question.clone();
        let at = other_kind.len() - 3;
        other_kind[at] = 15;
        assert_eq!(answer(&other_kind, known).unwrap()[7], 0, "no mail servers");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..60) {
            drop(answer(&bytes, known));
            let whole = Question::new("far.anabranch.internal", Kind::V6).unwrap().message(ID);
            drop(answer(&whole[..cut.min(whole.len())], known));
        }
    }
}
