//! The numbers of one sequence space: which came, which came late, which are missing.
//!
//! ```text
//!        |<----- 256 numbers are remembered ----->|
//!  ------+--x-x-x-.-x-x-x-x-.-.-x-x-x-x-x-x-x-x-x-H----------> numbers, modulo 4,096
//!                 |         |                     |  gap: lost, if so many can have been sent since
//!                 late: no longer lost            head
//! ```
//! (IEEE Std 802.11-2020 section 10.3.2.14.2: one space for each receiver and traffic class of QoS frames, one for all the rest.)

use std::time::Duration;

use units::Timestamp;

use super::Source;

/// Numbers behind the newest that may still come late, or again: the largest block acknowledgement window of 802.11ax; 64 in 802.11n.
const REMEMBERED: u16 = 256;
/// Numbers are counted modulo this.
const MODULUS: u16 = 4_096;
/// A gap of this many is as likely a step back.
const HALF: u16 = MODULUS / 2;
/// No frame takes less air than this, even in an aggregate: what is missing beyond was never sent.
const SHORTEST_FRAME: Duration = Duration::from_micros(10);
/// So many may always be missing: they were sent just before the last one that was heard, and are reordered.
const ALWAYS_PLAUSIBLE: u16 = 64;
/// Frames that are no data fill gaps up to this: where a driver counts beacons apart, their numbers mean nothing here.
const NEAR: u16 = 8;

/// What a number tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The frame is new, and so many before it are missing.
    New(u16),
    /// It was counted as missing.
    Late,
    /// The same, but what made it late was no data, which goes by another queue.
    Overtaken,
    /// It was here before.
    Again,
    /// It is older than the first that was waited for.
    Old,
    /// It makes no sense after those before: counting begins anew with it.
    Break,
    /// The first of all, or after a time in which we were away or heard nothing.
    Begin,
}

/// The state of one space.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Whom the last data frame was for.
    pub source: Source,
    head: u16,
    /// So many numbers up to the newest were waited for.
    known: u16,
    /// The newest of a frame that is no data.
    noted: Option<u16>,
    seen: [u64; REMEMBERED as usize / 64],
    last: Timestamp,
}

impl Space {
    /// A space in which `number` was heard.
    pub fn new(now: Timestamp, number: u16, source: Source) -> Self {
        // What came before was not waited for, so it cannot come late.
        Self {
            source,
            head: number % MODULUS,
            known: 1,
            noted: None,
            seen: [u64::MAX; REMEMBERED as usize / 64],
            last: now,
        }
    }

    /// When a data frame of it was last heard in order.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// A data frame was heard. `present_since`: from when on we could hear all.
    pub fn arrive(&mut self, now: Timestamp, number: u16, present_since: Timestamp) -> Arrival {
        let number = number % MODULUS;
        let ahead = number.wrapping_sub(self.head) % MODULUS;
        if self.last < present_since {
            *self = Self::new(now, number, self.source);
            return Arrival::Begin;
        }
        let passed = now.as_nanos().saturating_sub(self.last.as_nanos()) / SHORTEST_FRAME.as_nanos() as u64;
        let plausible = u64::from(ALWAYS_PLAUSIBLE).saturating_add(passed);
        match ahead {
            0 => Arrival::Again,
            1..=REMEMBERED if u64::from(ahead) <= plausible => {
                self.advance(number, ahead);
                self.last = now;
                Arrival::New(ahead - 1)
            }
            // So many in a row are no matter of single losses: the link was dead for a while, or the number is forged.
            1..HALF if u64::from(ahead) <= plausible => {
                *self = Self::new(now, number, self.source);
                Arrival::Begin
            }
            _ if MODULUS - ahead < REMEMBERED => {
                if self.has(number) {
                    return if MODULUS - ahead < self.known { Arrival::Again } else { Arrival::Old };
                }
                self.mark(number);
                let behind = |noted: u16| noted.wrapping_sub(number) % MODULUS;
                let is_overtaken = self.noted.is_some_and(|noted| (1..=NEAR).contains(&behind(noted)));
                if is_overtaken { Arrival::Overtaken } else { Arrival::Late }
            }
            _ => {
                *self = Self::new(now, number, self.source);
                Arrival::Break
            }
        }
    }

    /// A frame of the same space was heard that is no data: it is not missing.
    pub fn note(&mut self, number: u16) -> Option<u16> {
        let ahead = (number % MODULUS).wrapping_sub(self.head) % MODULUS;
        (1..=NEAR).contains(&ahead).then(|| {
            self.advance(number % MODULUS, ahead);
            self.noted = Some(number % MODULUS);
            ahead - 1
        })
    }

    fn advance(&mut self, number: u16, ahead: u16) {
        (1..ahead).for_each(|step| self.clear((self.head + step) % MODULUS));
        self.head = number;
        self.known = self.known.saturating_add(ahead).min(REMEMBERED);
        self.mark(number);
    }

    fn has(&self, number: u16) -> bool {
        let (word, bit) = position(number);
        self.seen[word] >> bit & 1 != 0
    }

    fn mark(&mut self, number: u16) {
        let (word, bit) = position(number);
        self.seen[word] |= 1 << bit;
    }

    fn clear(&mut self, number: u16) {
        let (word, bit) = position(number);
        self.seen[word] &= !(1 << bit);
    }
}

fn position(number: u16) -> (usize, u16) {
    let slot = number % REMEMBERED;
    (usize::from(slot / 64), slot % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn arrivals(numbers: &[u16]) -> Vec<Arrival> {
        let mut space = Space::new(at(0), numbers[0], Source::ToUs);
        let rest = numbers[1..].iter().enumerate();
        rest.map(|(index, number)| space.arrive(at(index as u64 + 1), *number, at(0))).collect()
    }

    #[test]
    fn gaps_late_ones_and_repeats_are_told_apart() {
        use Arrival::{Again, Late, New, Old};
        assert_eq!(arrivals(&[7, 8, 8, 11, 10, 10, 12]), [New(0), Again, New(2), Late, Again, New(0)]);
        assert_eq!(arrivals(&[4_094, 4_095, 0, 2, 1]), [New(0), New(0), New(1), Late], "round the end");
        assert_eq!(
            arrivals(&[7, 6, 8, 7, 6]),
            [Old, New(0), Again, Old],
            "what was before the first is not missed"
        );
    }

    #[test]
    fn what_cannot_have_been_sent_is_a_break() {
        // 100 numbers in a millisecond, at 10 us each, and some.
        assert_eq!(arrivals(&[0, 164]), [Arrival::New(163)]);
        assert_eq!(arrivals(&[0, 165]), [Arrival::Break]);
        assert_eq!(arrivals(&[0, 3_000]), [Arrival::Break], "far back");
        let mut space = Space::new(at(0), 0, Source::ToUs);
        assert_eq!(space.arrive(at(100), 256, at(0)), Arrival::New(255), "in 100 ms they can");
        assert_eq!(space.arrive(at(100), 255, at(0)), Arrival::Late);
        assert_eq!(space.arrive(at(200), 513, at(0)), Arrival::Begin, "257 in a row: a dead spell");
        assert_eq!(space.arrive(at(200), 512, at(0)), Arrival::Old, "before it nothing is missed");
        assert_eq!(space.arrive(at(9_000), 513 + HALF, at(0)), Arrival::Break, "forward or back?");
    }

    #[test]
    fn what_was_sent_while_we_were_away_is_not_missing() {
        let mut space = Space::new(at(0), 10, Source::ToUs);
        assert_eq!(space.arrive(at(200), 30, at(150)), Arrival::Begin);
        assert_eq!(space.arrive(at(201), 31, at(150)), Arrival::New(0));
    }

    #[test]
    fn other_frames_fill_gaps_only_nearby() {
        let mut space = Space::new(at(0), 10, Source::ToUs);
        assert_eq!(space.note(11), Some(0));
        assert_eq!(space.note(13), Some(1));
        assert_eq!(space.note(700), None, "beacons that are counted apart");
        assert_eq!(space.arrive(at(1), 14, at(0)), Arrival::New(0));
        assert_eq!(space.arrive(at(1), 12, at(0)), Arrival::Overtaken);
        assert_eq!(space.arrive(at(2), 17, at(0)), Arrival::New(2));
        assert_eq!(space.arrive(at(2), 16, at(0)), Arrival::Late, "by data");
    }
}
