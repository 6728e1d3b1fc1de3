//! What is done to a frame from a network between the air and its packet: repeats dropped, pieces joined.

use std::collections::VecDeque;

use crate::frame::Header;

/// Traffic identifiers, and one place for management frames.
const KINDS: usize = 17;
/// The longest packet in pieces.
const MOST_BYTES: usize = 2_304;
/// Packets whose pieces are waited for at once, for each network.
const MOST_PARTIAL: usize = 4;

/// Drops frames that came before (IEEE 802.11-2020 section 10.3.2.14): one per sender.
#[derive(Debug)]
pub struct Duplicates([Option<(u16, u8)>; KINDS]);

impl Default for Duplicates {
    fn default() -> Self {
        Self([None; KINDS])
    }
}

impl Duplicates {
    /// Whether the frame is the last one of its kind once more.
    pub fn is_repeat(&self, header: &Header) -> bool {
        header.control.retry && !header.receiver.is_group() && self.0[kind(header)] == Some(number(header))
    }

    /// The frame is the last one of its kind now. Not one that may be forged: what its sender repeats would be taken for known.
    pub fn note(&mut self, header: &Header) {
        if !header.receiver.is_group() {
            self.0[kind(header)] = Some(number(header));
        }
    }
}

fn kind(header: &Header) -> usize {
    if header.control.kind.is_management() { KINDS - 1 } else { usize::from(header.traffic()) }
}

fn number(header: &Header) -> (u16, u8) {
    (header.sequence.number, header.sequence.fragment)
}

#[derive(Debug)]
struct Partial {
    traffic: u8,
    number: u16,
    next: u8,
    /// Packet number of the last piece if they are encrypted.
    sealed: Option<u64>,
    body: Vec<u8>,
}

/// Joins the pieces of packets of one sender.
///
/// Pieces of one packet follow each other, are all encrypted or all not, and have consecutive packet numbers; otherwise an attacker could mix pieces
/// of two packets (CVE-2020-24587, CVE-2020-26147). Forgotten with the keys (CVE-2020-24586).
#[derive(Default, Debug)]
pub struct Pieces(VecDeque<Partial>);

impl Pieces {
    /// Takes the body of a data frame that is no repeat; gives the whole packet once its last piece is there. `sealed`: packet number of a frame that
    /// was encrypted.
    pub fn join(&mut self, header: &Header, body: Vec<u8>, sealed: Option<u64>) -> Option<Vec<u8>> {
        let (number, fragment) = (header.sequence.number, header.sequence.fragment);
        let more = header.control.more_fragments;
        if fragment == 0 {
            if !more {
                return Some(body);
            }
            self.0.retain(|partial| partial.traffic != header.traffic());
            if self.0.len() == MOST_PARTIAL {
                self.0.pop_front();
            }
            self.0.push_back(Partial { traffic: header.traffic(), number, next: 1, sealed, body });
            return None;
        }
        let at = self.0.iter().position(|partial| partial.traffic == header.traffic())?;
        let partial = &mut self.0[at];
        let follows = partial.number == number
            && partial.next == fragment
            && partial.sealed.map(|number| number + 1) == sealed
            && partial.body.len() + body.len() <= MOST_BYTES;
        if !follows {
            self.0.remove(at);
            return None;
        }
        partial.body.extend_from_slice(&body);
        partial.next += 1;
        partial.sealed = sealed;
        if more { None } else { self.0.remove(at).map(|partial| partial.body) }
    }

    /// Forgets all pieces: other keys are in use now.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;
    use units::MacAddress;

    fn piece(number: u16, fragment: u8, more: bool) -> Header {
        let mut header = Header::new(Kind::Data, MacAddress([2; 6]), MacAddress([4; 6]), MacAddress([4; 6]));
        (header.sequence.number, header.sequence.fragment) = (number, fragment);
        header.control.more_fragments = more;
        header
    }

    #[test]
    fn only_marked_repeats_are_dropped() {
        let mut duplicates = Duplicates::default();
        let mut header = piece(7, 0, false);
        header.control.retry = true;
        assert!(!duplicates.is_repeat(&header), "the first that came of it");
        duplicates.note(&header);
        assert!(duplicates.is_repeat(&header));
        header.control.retry = false;
        assert!(!duplicates.is_repeat(&header), "not marked as a repeat");
        (header.control.retry, header.sequence.fragment) = (true, 1);
        assert!(!duplicates.is_repeat(&header));
    }

    #[test]
    fn pieces_make_a_packet_and_mixed_ones_do_not() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.join(&piece(1, 0, false), vec![1], None), Some(vec![1]));
        assert_eq!(pieces.join(&piece(2, 0, true), vec![1], Some(10)), None);
        assert_eq!(pieces.join(&piece(2, 1, true), vec![2], Some(11)), None);
        assert_eq!(pieces.join(&piece(2, 2, false), vec![3], Some(12)), Some(vec![1, 2, 3]));
        // Another packet's piece, a gap in the packet numbers, an open piece after an encrypted one, a missing first piece.
        let wrong =
            [(piece(4, 1, false), Some(11)), (piece(3, 1, false), Some(12)), (piece(3, 1, false), None)];
        for (second, sealed) in wrong {
            assert_eq!(pieces.join(&piece(3, 0, true), vec![1], Some(10)), None);
            assert_eq!(pieces.join(&second, vec![2], sealed), None);
            assert_eq!(pieces.join(&piece(3, 1, false), vec![2], Some(11)), None, "all was forgotten");
        }
    }

    #[test]
    fn endless_packets_are_bounded() {
        let mut pieces = Pieces::default();
        for number in 0..100u16 {
            let mut header = piece(number, 0, true);
            header.qos = Some(number % 16);
            header.control.kind = Kind::QosData;
            assert_eq!(pieces.join(&header, vec![0; 2_000], None), None);
        }
        assert!(pieces.0.len() <= MOST_PARTIAL);
        let mut header = piece(99, 1, false);
        header.qos = Some(99 % 16);
        assert_eq!(pieces.join(&header, vec![0; 2_000], None), None, "longer than any packet");
    }
}
