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
    /// Where the stretch of sent packets began: number, the peer's count of marks, packets found lost so far. `None` before the first
    /// acknowledgement.
    began: Option<(u64, u64, u64)>,
    /// A stretch has ended since the path leads where it does.
    has_judged: bool,
    /// Packets are not sent as ECN-capable.
    is_incapable: bool,
    /// Marks are passed over.
    is_deaf: bool,
    received: Arrivals,
    /// The first stretch of received packets has ended, too.
    has_judged_arrivals: bool,
    /// What was told last, so as not to tell it again.
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

    /// The peer has acknowledged packets up to `largest`, but those that were `lost`, and has counted so many marks in all. Gives trouble once, when
    /// it is found.
    pub(crate) fn on_ack(&mut self, largest: u64, marks: u64, lost: u64) -> Option<EcnTrouble> {
        let (first, marks_before, lost_before) = *self.began.get_or_insert((largest, marks, lost));
        let packets = largest.saturating_sub(first).saturating_sub(lost.saturating_sub(lost_before));
        if packets < if self.has_judged { STRETCH } else { FIRST } {
            return None;
        }
        let share = marks.saturating_sub(marks_before) as f64 / packets as f64;
        (self.began, self.has_judged) = (Some((largest, marks, lost)), true);
        if share >= NEARLY_ALL {
            (self.is_deaf, self.is_incapable) = (true, true);
            return self.tell(EcnTrouble::AlwaysMarked);
        }
        self.is_deaf &= share > SOME;
        None
    }

    /// A packet of the peer's has arrived, which sends ECN-capable ones if it has no reason against. Gives trouble once, when it is found.
    pub(crate) fn on_arrival(&mut self, ecn: Ecn) -> Option<EcnTrouble> {
        self.received.all += 1;
        self.received.marked += u64::from(ecn == Ecn::Ce);
        self.received.plain += u64::from(ecn == Ecn::NotEct);
        if self.received.all < if self.has_judged_arrivals { STRETCH } else { FIRST } {
            return None;
        }
        self.has_judged_arrivals = true;
        let Arrivals { all, marked, plain } = std::mem::take(&mut self.received);
        let share = |count: u64| count as f64 / all as f64;
        match (share(marked), share(plain)) {
            (marked, _) if marked >= NEARLY_ALL => self.tell(EcnTrouble::AlwaysMarked),
            // The peer answers marks that are not true with packets that cannot be marked.
            (_, plain) if plain >= NEARLY_ALL && self.told != Some(EcnTrouble::AlwaysMarked) => {
                self.tell(EcnTrouble::Cleared)
            }
            (marked, plain) if marked.max(plain) < SOME => {
                self.told = None;
                None
            }
            _ => None,
        }
    }

    fn tell(&mut self, trouble: EcnTrouble) -> Option<EcnTrouble> {
        let before = self.told.replace(trouble);
        (before != Some(trouble)).then_some(trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_marks_everything_is_not_listened_to_until_it_marks_less() {
        let mut trust = EcnTrust::default();
        let found: Vec<u64> = (0..=400).filter(|&number| trust.on_ack(number, number, 0).is_some()).collect();
        assert_eq!(found, [FIRST], "told once, and soon");
        assert!(!trust.is_capable() && !trust.heeds_marks());
        // One in ten from here on.
        for number in 401..1_500 {
            assert_eq!(trust.on_ack(number, 400 + (number - 400) / 10, 0), None);
        }
        assert!(trust.heeds_marks() && !trust.is_capable(), "it may begin again");
        trust.moved();
        assert!(trust.heeds_marks() && trust.is_capable());
    }

    #[test]
    fn congestion_is_believed() {
        let mut trust = EcnTrust::default();
        assert!((0..10_000).all(|number| trust.on_ack(number, number * 4 / 5, 0).is_none()));
        assert!(trust.is_capable() && trust.heeds_marks());
        // Acknowledgements out of order, counts that shrink, and the largest there are.
        for (largest, marks) in [(5_000, 0), (u64::MAX, 3), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            trust.on_ack(largest, marks, marks / 2);
        }
    }

    #[test]
    fn lost_packets_are_no_word_against_it() {
        let mut trust = EcnTrust::default();
        // A fifth is lost, all others are marked.
        let found = (0..=400).find(|&number| trust.on_ack(number, number * 4 / 5, number / 5).is_some());
        assert!(found.is_some_and(|found| found < 40), "{found:?}");
    }

    #[test]
    fn a_network_that_marks_what_can_be_marked_is_not_said_to_clear_the_field() {
        let mut trust = EcnTrust::default();
        let arriving = (0..2_000).map(|number| if number < 40 { Ecn::Ce } else { Ecn::NotEct });
        let told: Vec<EcnTrouble> = arriving.filter_map(|ecn| trust.on_arrival(ecn)).collect();
        assert_eq!(told, [EcnTrouble::AlwaysMarked]);
        assert_eq!((0..100).find_map(|number| trust.on_ack(number, number, 0)), None, "told once");
        assert!(!trust.is_capable());
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
