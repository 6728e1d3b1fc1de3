//! Whether what a path says by ECN is true: some networks clear the field, some set every packet to CE.
//!
//! Either end looks at stretches of packets: what it sent by what the peer acknowledges and counts as CE, and what it received by what arrived.
//! A path on which nearly every packet is CE says nothing (`RFC 9000 section 13.4.2` asks senders to find that out): its marks are passed over and
//! its packets are not ECN-capable any more, until it leads elsewhere. Where the field is cleared nothing is lost but the early word.

use wire::inner::Ecn;

/// A path's first stretch, packets: short, since with marks that are not true it carries hardly anything.
const FIRST: u64 = 24;
/// Each further one.
const STRETCH: u64 = 256;
/// So many of a stretch are nearly all.
const NEARLY_ALL: f64 = 0.9;
/// So few show that marks tell something again.
const SOME: f64 = 0.5;

/// What is wrong with ECN on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EcnTrouble {
    /// Nearly every packet arrives marked as if there were congestion.
    AlwaysMarked,
    /// Packets arrive without the field's word that they may be marked.
    Cleared,
}

/// What is known of ECN on a path.
#[derive(Debug, Default)]
pub(crate) struct EcnTrust {
    /// Where the stretch of sent packets began: number and the peer's count of marks. `None` before the first acknowledgement.
    began: Option<(u64, u64)>,
    /// A stretch has ended since the path leads where it does.
    has_judged: bool,
    /// Packets are not sent as ECN-capable.
    is_incapable: bool,
    /// Marks are passed over.
    is_deaf: bool,
    received: Arrivals,
    /// What was told of the received packets, so as not to tell it again.
    told: Option<EcnTrouble>,
}

/// Counts of a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    all: u64,
    marked: u64,
    plain: u64,
}

impl EcnTrust {
    /// Whether packets may say that they can be marked.
    pub(crate) fn is_capable(&self) -> bool {
        !self.is_incapable
    }

    /// Whether marks count.
    pub(crate) fn heeds_marks(&self) -> bool {
        !self.is_deaf
    }

    /// The path leads elsewhere.
    pub(crate) fn moved(&mut self) {
        *self = Self::default();
    }

    /// The peer has acknowledged packets up to `largest` and has counted so many marks in all. Gives trouble once, when it is found.
    pub(crate) fn on_ack(&mut self, largest: u64, marks: u64) -> Option<EcnTrouble> {
        let (first, marks_before) = *self.began.get_or_insert((largest, marks));
        let packets = largest.saturating_sub(first);
        if packets < if self.has_judged { STRETCH } else { FIRST } {
            return None;
        }
        let share = marks.saturating_sub(marks_before) as f64 / packets as f64;
        (self.began, self.has_judged) = (Some((largest, marks)), true);
        if share >= NEARLY_ALL {
            let is_news = !std::mem::replace(&mut self.is_deaf, true);
            self.is_incapable = true;
            return is_news.then_some(EcnTrouble::AlwaysMarked);
        }
        self.is_deaf &= share > SOME;
        None
    }

    /// A packet of the peer's has arrived, which sends ECN-capable ones if it has no reason against. Gives trouble once, when it is found.
    pub(crate) fn on_arrival(&mut self, ecn: Ecn) -> Option<EcnTrouble> {
        self.received.all += 1;
        self.received.marked += u64::from(ecn == Ecn::Ce);
        self.received.plain += u64::from(ecn == Ecn::NotEct);
        if self.received.all < STRETCH {
            return None;
        }
        let Arrivals { all, marked, plain } = std::mem::take(&mut self.received);
        let share = |count: u64| count as f64 / all as f64;
        let found = match (share(marked), share(plain)) {
            (marked, _) if marked >= NEARLY_ALL => Some(EcnTrouble::AlwaysMarked),
            (_, plain) if plain >= NEARLY_ALL => Some(EcnTrouble::Cleared),
            (marked, plain) if marked.max(plain) < SOME => None,
            // It is just changing.
            _ => return None,
        };
        // The peer answers marks that are not true with packets that cannot be marked.
        let is_answer = found == Some(EcnTrouble::Cleared) && self.told == Some(EcnTrouble::AlwaysMarked);
        if found == self.told || is_answer {
            return None;
        }
        self.told = found;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_marks_everything_is_not_listened_to_until_it_marks_less() {
        let mut trust = EcnTrust::default();
        let found: Vec<u64> = (0..=400).filter(|&number| trust.on_ack(number, number).is_some()).collect();
        assert_eq!(found, [FIRST], "told once, and soon");
        assert!(!trust.is_capable() && !trust.heeds_marks());
        // One in ten from here on.
        for number in 401..1_500 {
            assert_eq!(trust.on_ack(number, 400 + (number - 400) / 10), None);
        }
        assert!(trust.heeds_marks() && !trust.is_capable(), "it may begin again");
        trust.moved();
        assert!(trust.heeds_marks() && trust.is_capable());
    }

    #[test]
    fn congestion_is_believed() {
        let mut trust = EcnTrust::default();
        assert!((0..10_000).all(|number| trust.on_ack(number, number * 4 / 5).is_none()));
        assert!(trust.is_capable() && trust.heeds_marks());
        // Acknowledgements out of order, counts that shrink, and the largest there are.
        for (largest, marks) in [(5_000, 0), (u64::MAX, 3), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            trust.on_ack(largest, marks);
        }
    }

    #[test]
    fn what_arrives_is_told_of_when_it_changes() {
        let mut trust = EcnTrust::default();
        let mut tell = |ecn, count: u64| (0..count).filter_map(|_| trust.on_arrival(ecn)).collect::<Vec<_>>();
        assert_eq!(tell(Ecn::Ect0, 1_000), []);
        assert_eq!(tell(Ecn::NotEct, 1_000), [EcnTrouble::Cleared]);
        assert_eq!(tell(Ecn::Ect0, 1_000), []);
        assert_eq!(tell(Ecn::Ce, 1_000), [EcnTrouble::AlwaysMarked]);
        assert_eq!(tell(Ecn::NotEct, 1_000), [], "the peer's answer to that");
    }
}
