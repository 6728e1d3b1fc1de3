//! What counts are worth: delivery ratio, packet time, and how far to believe them.

use std::fmt;
use std::time::Duration;

use units::BitRate;

use crate::airtime::{Flavour, USUAL_ATTEMPTS};

use super::FULL_FRAME;
use super::gaps::Gaps;
use super::packet_time::packet_time;
use super::window::Counts;

/// With fewer frames than this an estimate is rough.
const ENOUGH_FRAMES: u32 = 20;
/// So many breaks in the numbers within the window are no chance.
const MANY_BREAKS: u32 = 3;
/// So many must be missing before it is asked why.
const SOME_LOST: u32 = 4;
/// A frame is sent at least so often before an access point gives it up (rate controls shorten the usual seven).
const LEAST_ATTEMPTS: i32 = 4;
/// More than so many times what chance explains is no chance.
const BEYOND_CHANCE: f64 = 4.0;
/// So much more time than independent losses take is no chance either; where others share the air, it may be theirs.
const TOGETHER: f64 = 1.25;
/// Of a normal distribution, 95 % lie within so many deviations of the mean.
const DEVIATIONS: f64 = 1.96;

/// Whose frames an estimate is made from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Those that were sent to us.
    ToUs,
    /// Those that were sent to others and overheard: how well we hear this access point, at rates that suit others.
    Overheard,
    /// Those that we sent, as the kernel counts them: the way up for the way down.
    Sent,
}

/// Why an estimate may be wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Doubt {
    /// There were few frames.
    FewFrames,
    /// More frames never came than independent losses explain: a sender that the access point does not hear may disturb it, in which case
    /// the true delivery ratio is some 10 % less (`[MULTIAP] section 6.1`), or it sends to others in a way that we cannot hear.
    HiddenSender,
    /// More time goes by than independent losses explain: attempts fail one after the other, in fades or while a hidden sender sends. Of several that
    /// fail the frame tells one, so the true delivery ratio is less (`[MULTIAP] section 6.1`: 10 %). The packet time counts that time.
    Together,
    /// The rate of most frames is unknown, so there is no packet time: a newer flavour than 802.11n, or a card that does not tell.
    UnknownRate,
    /// Sequence numbers jump, or frames that are no repeats come twice or late: a forger, a restarted access point, or two of them with one address.
    Numbers,
    /// Frames of one class arrive much better than those of another at the same time, though all go through the same air: one of the two is forged.
    Classes,
    /// Made from frames to others.
    OthersFrames,
    /// Made from counts of what we sent, since nothing is told of what was received.
    Coarse,
}

impl Doubt {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 8] = [
        Self::FewFrames,
        Self::HiddenSender,
        Self::Together,
        Self::UnknownRate,
        Self::Numbers,
        Self::Classes,
        Self::OthersFrames,
        Self::Coarse,
    ];
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::FewFrames => "few frames",
            Self::HiddenSender => "more is lost than chance explains: a hidden sender?",
            Self::Together => "attempts fail one after the other: fewer succeed than it seems",
            Self::UnknownRate => "unknown rates",
            Self::Numbers => "its frame numbers make no sense",
            Self::Classes => "of its classes of traffic one arrives much better than another: forged frames?",
            Self::OthersFrames => "only frames to others",
            Self::Coarse => "from the kernel's counts of what we sent",
        })
    }
}

/// What half a second of an access point's frames tells.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimate {
    /// How often an attempt succeeds, 0 to 1 (`[MULTIAP] eq. 2`).
    pub delivery_ratio: f64,
    /// Half of the interval in which it lies with 95 %, if losses are independent.
    pub margin: f64,
    /// Air time for a full packet that arrives, as attempts that fail by themselves would have it, or more where more evidently went by; `None`
    /// where rates are unknown.
    pub packet_time: Option<Duration>,
    /// Frames that it is made from, lost ones included.
    pub frames: u32,
    /// Whose.
    pub source: Source,
    doubts: u8,
}

impl Estimate {
    /// `None` without any frame.
    pub(super) fn new(flavour: Flavour, counts: &Counts, gaps: &Gaps, source: Source) -> Option<Self> {
        let heard = counts.heard();
        let lost = u32::try_from(counts.lost).unwrap_or_default();
        let frames = counts.frames();
        if heard == 0 {
            return None;
        }
        let delivery_ratio = f64::from(counts.first) / f64::from(frames);
        let known = heard.saturating_sub(counts.unknown_rate);
        let times = (known > 0 && known >= counts.unknown_rate).then(|| {
            let exchange = Duration::from_micros(u64::from(counts.exchange_us / known));
            let likely = likely(f64::from(counts.first), f64::from(frames));
            let reckoned = packet_time(flavour, exchange, likely, USUAL_ATTEMPTS);
            let seen =
                gaps.packet_time(flavour, exchange, counts).map_or(reckoned, |seen| seen.max(reckoned));
            (reckoned, gaps.elapsed(flavour).map_or(seen, |elapsed| seen.min(elapsed)))
        });
        let packet_time = times.map(|(_, time)| time);
        let together =
            times.is_some_and(|(reckoned, time)| time > reckoned.mul_f64(TOGETHER)) && gaps.is_alone(flavour);
        let chance = f64::from(frames) * (1.0 - delivery_ratio).powi(LEAST_ATTEMPTS);
        let beyond_chance = lost >= SOME_LOST && f64::from(lost) > BEYOND_CHANCE * chance;
        let doubts = [
            (Doubt::FewFrames, frames < ENOUGH_FRAMES),
            (Doubt::HiddenSender, beyond_chance),
            (Doubt::Together, together && frames >= ENOUGH_FRAMES),
            (Doubt::UnknownRate, packet_time.is_none()),
            (Doubt::Numbers, counts.breaks >= MANY_BREAKS),
            (Doubt::OthersFrames, source == Source::Overheard),
        ];
        let doubts = bits(&doubts);
        let margin = margin(delivery_ratio, f64::from(frames));
        Some(Self { delivery_ratio, margin, packet_time, frames, source, doubts })
    }

    /// From the kernel's counts: frames that we sent, the repeats of those, the ones given up, and the rate at which the access point sends.
    /// `None` if nothing was sent.
    pub fn of_counts(
        flavour: Flavour,
        sent: u32,
        repeats: u32,
        failed: u32,
        rate: Option<BitRate>,
    ) -> Option<Self> {
        let attempts = sent.saturating_add(repeats);
        let arrived = sent.saturating_sub(failed);
        if attempts == 0 {
            return None;
        }
        let delivery_ratio = f64::from(arrived) / f64::from(attempts);
        let exchange = rate.filter(|rate| rate.0 > 0).map(|rate| flavour.exchange_time_at(rate, FULL_FRAME));
        let likely = likely(f64::from(arrived), f64::from(attempts));
        let packet_time = exchange.map(|exchange| packet_time(flavour, exchange, likely, USUAL_ATTEMPTS));
        let doubts = bits(&[
            (Doubt::FewFrames, attempts < ENOUGH_FRAMES),
            (Doubt::UnknownRate, packet_time.is_none()),
            (Doubt::Coarse, true),
        ]);
        let margin = margin(delivery_ratio, f64::from(attempts));
        Some(Self { delivery_ratio, margin, packet_time, frames: attempts, source: Source::Sent, doubts })
    }

    /// The same, with the packet time at the rate that the kernel tells, where the frames themselves told none.
    pub fn with_rate(mut self, flavour: Flavour, rate: Option<BitRate>) -> Self {
        if self.packet_time.is_none()
            && let Some(rate) = rate.filter(|rate| rate.0 > 0)
        {
            let exchange = flavour.exchange_time_at(rate, FULL_FRAME);
            let frames = f64::from(self.frames);
            let likely = likely(self.delivery_ratio * frames, frames);
            self.packet_time = Some(packet_time(flavour, exchange, likely, USUAL_ATTEMPTS));
            self.doubts &= !bit(Doubt::UnknownRate);
        }
        self
    }

    /// The same, with one more doubt.
    #[must_use]
    pub fn doubted(self, doubt: Doubt) -> Self {
        Self { doubts: self.doubts | bit(doubt), ..self }
    }

    /// Why it may be wrong.
    pub fn doubts(&self) -> impl Iterator<Item = Doubt> {
        Doubt::ALL.into_iter().filter(|doubt| self.has(*doubt))
    }

    /// Whether a doubt holds.
    pub fn has(&self, doubt: Doubt) -> bool {
        self.doubts & bit(doubt) != 0
    }

    /// From 0, worthless, to 1: the part of the scale of delivery ratios that the margin rules out, halved by each doubt but that of few
    /// frames, which the margin has already.
    pub fn confidence(&self) -> f64 {
        self.confidence_despite(&[Doubt::FewFrames])
    }

    /// The same for the packet time, in which it is counted that attempts fail together.
    pub fn packet_time_confidence(&self) -> f64 {
        self.confidence_despite(&[Doubt::FewFrames, Doubt::Together])
    }

    fn confidence_despite(&self, harmless: &[Doubt]) -> f64 {
        let doubts = self.doubts().filter(|doubt| !harmless.contains(doubt)).count();
        (1.0 - 2.0 * self.margin).max(0.0) * 0.5_f64.powi(i32::try_from(doubts).unwrap_or(i32::MAX))
    }
}

/// What the ratio of all frames to come is to be taken for, after `arrived` of `frames`: as if half a frame more had arrived and half a one more had not
/// (Jeffreys' prior). None of four says that most fail, not that all do.
fn likely(arrived: f64, frames: f64) -> f64 {
    (arrived + 0.5) / (frames + 1.0)
}

/// Half of Wilson's interval (E. B. Wilson, 1927), which holds for few frames and ratios near 0 and 1 too.
fn margin(ratio: f64, frames: f64) -> f64 {
    let square = DEVIATIONS * DEVIATIONS;
    let spread = ratio * (1.0 - ratio) / frames + square / (4.0 * frames * frames);
    DEVIATIONS / (1.0 + square / frames) * spread.sqrt()
}

fn bits(doubts: &[(Doubt, bool)]) -> u8 {
    doubts.iter().filter(|(_, holds)| *holds).fold(0, |bits, (doubt, _)| bits | bit(*doubt))
}

fn bit(doubt: Doubt) -> u8 {
    1 << doubt as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(first: u32, repeated: u32, lost: i32) -> Estimate {
        let heard = first + repeated;
        let counts = Counts { first, repeated, lost, exchange_us: heard * 326, ..Counts::default() };
        Estimate::new(Flavour::A, &counts, &Gaps::default(), Source::ToUs).unwrap()
    }

    #[test]
    fn the_ratio_is_that_of_first_attempts() {
        let seen = estimate(75, 20, 5);
        assert_eq!((seen.delivery_ratio, seen.frames), (0.75, 100));
        // 1.96 / (1 + 0.0384) x sqrt(0.001875 + 0.0000960), by hand.
        assert!((seen.margin - 0.0838).abs() < 1e-4, "{}", seen.margin);
        let exchange = Duration::from_micros(326);
        assert_eq!(seen.packet_time, Some(packet_time(Flavour::A, exchange, 75.5 / 101.0, 7)));
        assert_eq!(
            Estimate::new(
                Flavour::A,
                &Counts { lost: 9, ..Counts::default() },
                &Gaps::default(),
                Source::ToUs
            ),
            None
        );
        let none = estimate(0, 4, 0);
        assert_eq!(
            (none.delivery_ratio, none.packet_time),
            (0.0, Some(packet_time(Flavour::A, exchange, 0.1, 7)))
        );
        assert_eq!(estimate(10, 0, -3).delivery_ratio, 1.0, "gaps that have left the window");
    }

    #[test]
    fn losses_beyond_chance_are_suspicious() {
        // A quarter fails; four times in a row one of 256.
        assert!(!estimate(300, 98, 2).has(Doubt::HiddenSender));
        assert!(estimate(300, 80, 20).has(Doubt::HiddenSender));
        assert!(!estimate(20, 40, 20).has(Doubt::HiddenSender), "where 3 of 4 fail, so many are lost");
    }

    /// Half of 200 attempts at 54 Mbit/s: 34 + 20 + 12288/54 + 16 + 28 us.
    #[test]
    fn the_kernels_counts_make_a_coarse_one() {
        let rate = Some(BitRate::from_mbps(54.0));
        let coarse = Estimate::of_counts(Flavour::A, 110, 90, 10, rate).unwrap();
        assert_eq!((coarse.delivery_ratio, coarse.frames, coarse.source), (0.5, 200, Source::Sent));
        let exchange = Duration::from_nanos(325_556);
        let time = packet_time(Flavour::A, exchange, 0.5, USUAL_ATTEMPTS);
        assert!(coarse.packet_time.unwrap().abs_diff(time) < Duration::from_micros(1));
        assert_eq!(coarse.doubts().collect::<Vec<_>>(), [Doubt::Coarse]);
        assert_eq!(Estimate::of_counts(Flavour::A, 0, 0, 0, rate), None);
        let absurd = Estimate::of_counts(Flavour::G, u32::MAX, u32::MAX, u32::MAX, Some(BitRate(0))).unwrap();
        assert_eq!((absurd.delivery_ratio, absurd.packet_time), (0.0, None));
    }

    /// Frames of a flavour that the card does not tell the rate of, as 802.11ac: 34 + 20 + 12288/54 + 16 + 28 us by the kernel's.
    #[test]
    fn the_kernels_rate_stands_in_where_frames_tell_none() {
        let counts = Counts { first: 60, repeated: 30, lost: 10, unknown_rate: 90, ..Counts::default() };
        let unknown = Estimate::new(Flavour::A, &counts, &Gaps::default(), Source::ToUs).unwrap();
        let rate = Some(BitRate::from_mbps(54.0));
        let told = unknown.clone().with_rate(Flavour::A, rate);
        let exchange = Duration::from_nanos(325_556);
        let time = packet_time(Flavour::A, exchange, 60.5 / 101.0, USUAL_ATTEMPTS);
        assert!(told.packet_time.unwrap().abs_diff(time) < Duration::from_micros(1), "{told:?}");
        assert!(unknown.has(Doubt::UnknownRate) && !told.has(Doubt::UnknownRate));
        assert!(told.confidence() > 1.9 * unknown.confidence());
        for nothing in [None, Some(BitRate(0))] {
            assert_eq!(unknown.clone().with_rate(Flavour::A, nothing), unknown);
        }
        let known = estimate(75, 20, 5);
        assert_eq!(known.clone().with_rate(Flavour::A, rate), known, "frames come first");
    }

    #[test]
    fn confidence_grows_with_frames_and_falls_with_doubts() {
        let few = estimate(5, 0, 0);
        let many = estimate(500, 0, 0);
        assert!(few.has(Doubt::FewFrames) && !many.has(Doubt::FewFrames));
        assert!(few.confidence() < 0.7 && many.confidence() > 0.98, "{few:?} {many:?}");
        let counts = Counts { first: 500, unknown_rate: 400, breaks: 3, ..Counts::default() };
        let doubtful = Estimate::new(Flavour::A, &counts, &Gaps::default(), Source::Overheard).unwrap();
        let doubts: Vec<Doubt> = doubtful.doubts().collect();
        assert_eq!(doubts, [Doubt::UnknownRate, Doubt::Numbers, Doubt::OthersFrames]);
        assert!((doubtful.confidence() - many.confidence() / 8.0).abs() < 1e-9);
        assert_eq!(doubtful.packet_time, None);
    }
}
