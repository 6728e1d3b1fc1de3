//! Staying on one channel of several while it gives as much as turns would.
//!
//! A radio is on one channel at a time, so where all of them have something for it whenever it comes, turns carry no more than the best
//! of them alone. With other radios about they carry less: two are on one channel while another is idle, and `[MULTIAP] section 7.1` found
//! only 64 % carried where three radios share three channels. So a radio stays, visits the others shortly and seldom, and moves to one that gives clearly more. A visit
//! already shares the channel with those who are there, so it tells what a stay would give.
//!
//! ```text
//!     all are full, and the air of one is taken, by a coin      another one, whose air is taken, gave more in several periods, by a coin
//! taking turns ---------------------> staying on one ---------------------> staying on the other
//!      ^                                   |
//!      +-----------------------------------+ pauses, or room in the air: it alone does not fill the radio's time
//! ```
//! The coin keeps two radios that saw the same from moving together for ever.
//!
//! What waits in an access point for a turn comes at once, so while turns are taken a channel whose uplinks are slower than the air may look full. Only a
//! stay shows what it is. After a stay that found room in the air the next one is put off, twice as long each time.

use rand::Rng;

use crate::slots::Member;

/// What a channel's networks did in a period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Reading {
    /// What they delivered while the radio was there, in bytes a second; `None` if they did not keep the radio busy.
    pub delivers: Option<f64>,
    /// The air was taken meanwhile.
    pub air_is_taken: bool,
}

/// Whether turns are taken, or with whom the radio stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settling {
    on: Option<Member>,
    /// Periods in a row in which another gave clearly more.
    better_periods: u8,
    /// Periods that it has stayed.
    stayed: u8,
    /// Periods before it stays with anyone again.
    wait: u8,
    /// Short stays in a row that found room in the air.
    failures: u8,
}

impl Settling {
    /// With whom it stays; `None` while turns are taken.
    pub fn on(&self) -> Option<Member> {
        self.on
    }

    /// Takes turns again.
    pub fn stop(&mut self) {
        (self.on, self.better_periods, self.stayed) = (None, 0, 0);
    }

    /// Takes turns for a while.
    pub fn pause(&mut self) {
        self.take_turns_for(WAIT_PERIODS);
    }

    /// The same for longer each time, as staying was not worth it.
    fn fail(&mut self) {
        if self.stayed >= LONG_STAY {
            self.failures = 0;
        }
        self.take_turns_for(WAIT_PERIODS << self.failures);
        self.failures = (self.failures + 1).min(MOST_FAILURES);
    }

    fn take_turns_for(&mut self, periods: u8) {
        self.wait = periods;
        self.stop();
    }

    /// Judges a period of each channel. Gives with whom the radio stays from now on.
    pub fn end_period(
        &mut self,
        readings: &[(Member, Reading)],
        randomness: &mut impl Rng,
    ) -> Option<Member> {
        self.wait = self.wait.saturating_sub(1);
        let known = || readings.iter().filter_map(|(member, reading)| Some((*member, reading.delivers?)));
        let fills =
            |at: Member| readings.iter().any(|(member, reading)| *member == at && reading.air_is_taken);
        if readings.len() < 2 {
            self.stop();
            return None;
        }
        let Some(on) = self.on else {
            let most = known().map(|(_, delivers)| delivers).fold(0.0, f64::max);
            let all_are_full = most > 0.0 && known().count() == readings.len();
            if self.wait == 0 && all_are_full && randomness.random_bool(CHANCE) {
                let alike: Vec<Member> = known()
                    .filter(|(at, delivers)| delivers * CLEARLY_MORE >= most && fills(*at))
                    .map(|(at, _)| at)
                    .collect();
                self.on = alike.get(randomness.random_range(0..alike.len().max(1))).copied();
            }
            return self.on;
        };
        let Some((_, now)) = known().find(|(member, _)| *member == on) else {
            self.pause();
            return None;
        };
        if !fills(on) {
            self.fail();
            return None;
        }
        self.stayed = self.stayed.saturating_add(1);
        let better = known().filter(|(at, delivers)| fills(*at) && *delivers > now * CLEARLY_MORE);
        let best = better.max_by(|one, other| one.1.total_cmp(&other.1));
        self.better_periods = if best.is_some() { self.better_periods.saturating_add(1) } else { 0 };
        if let Some((best, _)) = best
            && self.better_periods >= BETTER_PERIODS
            && randomness.random_bool(CHANCE)
        {
            (self.on, self.better_periods) = (Some(best), 0);
        }
        self.on
    }
}

/// More by this factor is clearly more. One radio less among three on a channel gives the others 1.5 times as much.
const CLEARLY_MORE: f64 = 1.25;
/// ... if it is so for this many periods: one visit may have met a moment in which those who are there were away.
const BETTER_PERIODS: u8 = 2;
/// Chance of moving, and of settling, in each period in which it is due.
const CHANCE: f64 = 0.5;
/// Periods of turns after a stay: about half a minute with cycles of 200 ms.
const WAIT_PERIODS: u8 = 30;
/// Periods after which a stay was worth it, whatever came then.
const LONG_STAY: u8 = 30;
/// So often the wait doubles: to some four minutes.
const MOST_FAILURES: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use units::Frequency;

    const A: Member = Member::Channel(Frequency(2_412));
    const B: Member = Member::Channel(Frequency(2_462));

    /// What it is on after each of some periods with the same readings.
    fn periods(
        settling: &mut Settling,
        delivers: &[(Member, Option<f64>)],
        count: usize,
    ) -> Vec<Option<Member>> {
        of_readings(settling, delivers, |_| true, count)
    }

    /// The same where the air is taken on some of the channels.
    fn of_readings(
        settling: &mut Settling,
        delivers: &[(Member, Option<f64>)],
        air_is_taken: impl Fn(Member) -> bool,
        count: usize,
    ) -> Vec<Option<Member>> {
        let reading = |&(at, delivers): &(Member, Option<f64>)| {
            (at, Reading { delivers, air_is_taken: air_is_taken(at) })
        };
        let readings: Vec<_> = delivers.iter().map(reading).collect();
        let mut randomness = ChaCha8Rng::seed_from_u64(3);
        (0..count).map(|_| settling.end_period(&readings, &mut randomness)).collect()
    }

    #[test]
    fn it_stays_with_the_best_and_moves_where_clearly_more_is_found() {
        let mut settling = Settling::default();
        periods(&mut settling, &[(A, Some(2e6)), (B, Some(1e6))], 20);
        assert_eq!(settling.on(), Some(A));
        periods(&mut settling, &[(A, Some(1e6)), (B, Some(1.2e6))], 50);
        assert_eq!(settling.on(), Some(A), "a little more is not worth a move");
        let moved = periods(&mut settling, &[(A, Some(1e6)), (B, Some(2e6))], 20);
        assert_eq!((moved[0], settling.on()), (Some(A), Some(B)), "not by one reading");
    }

    #[test]
    fn who_is_not_kept_busy_takes_turns() {
        let mut settling = Settling::default();
        periods(&mut settling, &[(A, Some(2e6)), (B, None)], 50);
        assert_eq!(settling.on(), None, "the other has its own bottleneck: both together give more");
        periods(&mut settling, &[(A, Some(2e6)), (B, Some(2e6))], 20);
        assert!(settling.on().is_some());
        periods(&mut settling, &[(A, None), (B, None)], 1);
        assert_eq!(settling.on(), None);
        periods(&mut settling, &[(A, Some(2e6))], 20);
        assert_eq!(settling.on(), None, "one network alone has all the time anyhow");
    }

    #[test]
    fn after_a_stay_that_was_not_full_turns_are_taken_for_a_while() {
        let mut settling = Settling::default();
        let full = [(A, Some(2e6)), (B, Some(1e6))];
        periods(&mut settling, &full, 20);
        periods(&mut settling, &[(A, None), (B, Some(1e6))], 1);
        let then = periods(&mut settling, &full, 60);
        assert!(then[..29].iter().all(Option::is_none) && then[59] == Some(A), "{then:?}");
    }

    #[test]
    fn where_the_air_has_room_turns_bring_more() {
        let mut settling = Settling::default();
        let full = [(A, Some(2e6)), (B, Some(1.9e6))];
        of_readings(&mut settling, &full, |_| false, 50);
        assert_eq!(settling.on(), None);
        let stays = of_readings(&mut settling, &full, |at| at == B, 20);
        assert!(stays.iter().flatten().all(|on| *on == B) && settling.on() == Some(B), "{stays:?}");
        of_readings(&mut settling, &full, |_| false, 1);
        assert_eq!(settling.on(), None);
    }

    #[test]
    fn it_moves_only_where_the_air_is_taken() {
        let mut settling = Settling::default();
        let full = [(A, Some(2e6)), (B, Some(1e6))];
        of_readings(&mut settling, &full, |at| at == A, 20);
        // What had waited there came at once.
        let visited = [(A, Some(2e6)), (B, Some(5e6))];
        of_readings(&mut settling, &visited, |at| at == A, 50);
        assert_eq!(settling.on(), Some(A));
        of_readings(&mut settling, &visited, |_| true, 50);
        assert_eq!(settling.on(), Some(B));
    }

    #[test]
    fn who_has_lost_the_other_channel_or_has_nothing_more_may_soon_stay_again() {
        let full = [(A, Some(2e6)), (B, Some(2e6))];
        for (then, wait) in [(vec![(A, Some(2e6))], 0), (vec![(A, None), (B, None)], WAIT_PERIODS)] {
            let mut settling = Settling::default();
            for _ in 0..4 {
                periods(&mut settling, &full, 60);
                assert!(settling.on().is_some());
                periods(&mut settling, &then, 1);
                assert_eq!((settling.on(), settling.wait), (None, wait));
            }
        }
    }

    #[test]
    fn stays_that_were_not_worth_it_come_less_and_less_often() {
        let mut settling = Settling::default();
        let full = [(A, Some(2e6)), (B, Some(2e6))];
        let waits: Vec<usize> = (0..6)
            .map(|_| {
                let waits = periods(&mut settling, &full, 400).iter().take_while(|on| on.is_none()).count();
                settling.stayed = 1;
                settling.fail();
                waits
            })
            .collect();
        let bounds = [0, 29, 59, 119, 239, 239];
        assert!(
            waits.iter().zip(bounds).all(|(wait, least)| (least..least + 10).contains(wait)),
            "{waits:?}"
        );
        periods(&mut settling, &full, 300);
        settling.fail();
        let after = periods(&mut settling, &full, 100).iter().take_while(|on| on.is_none()).count();
        assert!(after < 40, "a long one was worth it: {after}");
    }
}
