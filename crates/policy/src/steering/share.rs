//! How much of a channel's air each of its access points may take: the better ones as much as they want, slower ones what those leave free.
//!
//! Packet for packet an access point that needs six times as long for one takes six parts of seven of the air. So a slower one is never let loose: it
//! begins with little, has more as long as air stays free, and less at once when it does not. Whether the better ones fill the air, or something
//! behind them holds them back, need not be known (`[MULTIAP] fig 6b and 6c` are the same rule).

use std::time::Duration;

use super::marking::MarkShare;
use super::reason::longer;

/// Access points of one channel that carry data at once: with more, collisions eat what they bring (`[MULTIAP] fig 6c`: 3 or 4 at most).
pub(super) const MOST_USED: usize = 4;
/// One that is in use stays as good as the best up to this much beyond the threshold.
const KEEP: f64 = 1.5;
/// This part of the air is kept free: only there can it be seen that a better one wants more. It is also what a better one's control of its own rate
/// leaves free now and then, which is no invitation.
const KEPT_FREE: f64 = 0.08;
/// A slower one is let in if so much more than that is free ...
const ROOM_TO_BEGIN: f64 = 0.1;
/// ... begins with this ...
const FIRST: f64 = 0.05;
/// ... and has to leave when it may have less than this.
const LEAST: f64 = 0.02;
/// This part of what is free is given away at each step ...
const GIVEN: f64 = 0.15;
/// ... to one that takes this part of what it has.
const TAKEN: f64 = 0.7;
/// At each step it has so much less when nothing at all is free.
const CUT: f64 = 0.35;
/// Of what was taken back, so much has yet to show in what is taken after each step.
const LAG: f64 = 0.8;
/// Of what is between what one takes and what it may take, marks make up for so much at each step: a window needs several round trips to follow.
const EASED: f64 = 0.1;
/// One factor of marks at a step is no more than as if it took this many times as much as it may, or as little.
const FARTHEST: f64 = 3.0;
/// Fewer marks than these do not hold a window back.
const LEAST_MARKS: f64 = 1e-4;

/// How one compares with the best of its channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rank {
    Best,
    AsGood,
    Slower,
}

/// What is expected of one to pass for as good as the best.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It carries nothing: it takes no longer than the threshold.
    Ready,
    /// It is in use: nor longer than by [`KEEP`] of that.
    Used,
    /// It was as good, and whether it has fallen behind is not known yet: nothing.
    Good,
}

/// Ranks packet times, given the least first. At most [`MOST_USED`] are not slower.
pub(super) fn ranks(times: &[(Duration, Standing)], threshold: f64) -> Vec<Rank> {
    let Some((best, _)) = times.first() else { return Vec::new() };
    let is_as_good = |time: Duration, standing| match standing {
        Standing::Ready => longer(time, *best) <= threshold,
        Standing::Used => longer(time, *best) <= kept(threshold),
        Standing::Good => true,
    };
    let mut places = MOST_USED;
    let rank = |(time, standing): &(Duration, Standing)| {
        let is_first = places == MOST_USED;
        let is_good = places > 0 && (is_first || is_as_good(*time, *standing));
        places -= usize::from(is_good);
        match (is_first, is_good) {
            (true, _) => Rank::Best,
            (false, true) => Rank::AsGood,
            (false, false) => Rank::Slower,
        }
    };
    times.iter().map(rank).collect()
}

/// How much longer one that is in use may take.
pub(super) fn kept(threshold: f64) -> f64 {
    threshold * KEEP
}

/// One that is slower than the best and in use.
#[derive(Debug)]
pub(super) struct Slower<'a> {
    /// The part of the air that it takes.
    pub takes: f64,
    /// The part that it may take; below [`LEAST`] it has to leave.
    pub allowed: &'a mut f64,
    /// The part of the air that was taken back from it lately, less what must have shown by now in what it takes.
    pub taken_back: &'a mut f64,
    /// The marks that hold senders to that, where they cannot be told.
    pub marks: &'a mut MarkShare,
}

/// What is free now beyond what is kept free, if `taken` is taken in all, by others too; negative if too much is.
pub(super) fn spare(taken: f64) -> f64 {
    1.0 - KEPT_FREE - taken.clamp(0.0, 1.0)
}

/// Whether `lasting`, what has been free for a while, is enough for another slower one.
pub(super) fn has_room(lasting: f64) -> bool {
    lasting > ROOM_TO_BEGIN
}

/// Whether another slower one may begin, beside those that are in use; and with what. `lasting`: what has been free for a while.
pub(super) fn beginning(lasting: f64, in_use: &[Slower]) -> Option<f64> {
    let growing = in_use.iter().any(|one| one.has_use());
    (has_room(lasting) && !growing).then_some(FIRST)
}

/// Whether it may have so little that it is not worth being in use.
pub(super) fn must_leave(allowed: f64) -> bool {
    allowed < LEAST
}

/// Shares what is free among those in use, given the best first: the best one that has use for it has more of what has been free for a while
/// (`lasting`), up to what is free now; if too much is taken, the worst one has less, by no more at each step than is missing while some is free, and if
/// nothing is free all have. `steps` is how often this would have been done in the time since the last call.
pub(super) fn share(spare: f64, lasting: f64, steps: f64, in_use: &mut [Slower]) {
    in_use.iter_mut().for_each(|one| *one.taken_back *= LAG.powf(steps));
    let on_its_way: f64 = in_use.iter().map(|one| one.on_its_way()).sum();
    if spare + on_its_way >= 0.0 {
        if let Some(one) = in_use.iter_mut().find(|one| one.has_use() && spare > 0.0) {
            let more = lasting.max(0.0) * (GIVEN * steps).min(1.0);
            *one.allowed = (*one.allowed + more).min(one.takes + spare).clamp(*one.allowed, 1.0);
        }
        return;
    }
    let missing = -(spare + on_its_way);
    let lack = lack(-missing);
    let all = if lack > 0.5 { in_use.len() } else { 1 };
    // While some of what is to be kept free still is, a better one that wants more has not yet had to do without it.
    let most = if lack < 1.0 { missing * steps / all as f64 } else { 1.0 };
    for one in in_use.iter_mut().rev().take(all) {
        let takes = one.allowed.min(one.takes.max(LEAST));
        let left = (takes * (1.0 - CUT * lack).powf(steps)).max(takes - most);
        *one.taken_back += (*one.allowed - left).max(0.0);
        *one.allowed = left;
    }
}

/// How much of what is to be kept free is taken, 0 to 1.
fn lack(spare: f64) -> f64 {
    (-spare / KEPT_FREE).clamp(0.0, 1.0)
}

impl Slower<'_> {
    /// What it takes beyond what it may, since it was taken back only now: senders follow, and what stands in queues still arrives.
    fn on_its_way(&self) -> f64 {
        (self.takes - *self.allowed).clamp(0.0, *self.taken_back)
    }

    fn has_use(&self) -> bool {
        self.takes >= TAKEN * *self.allowed
    }

    /// Marks fewer packets while it takes less than it may, and more while it takes more: what a flow takes goes with one over the root of its marks
    /// (`[MULTIAP] eq. 3`). Up to twice as many at each step when no air is free at all, and hardly any more when little is lacking: then what it may take
    /// is hardly less.
    pub(super) fn ease(&mut self, spare: f64, steps: f64) {
        let beyond = (self.takes / self.allowed.max(LEAST)).clamp(1.0 / FARTHEST, FARTHEST);
        let factor = (beyond.powf(2.0 * EASED) * (1.0 + lack(spare).powi(2))).powf(steps);
        *self.marks = MarkShare::new((self.marks.part() * factor).max(LEAST_MARKS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_near_the_best_are_as_good_up_to_four_in_all() {
        let micros = |list: &[(u64, Standing)]| -> Vec<Rank> {
            let times: Vec<_> = list.iter().map(|(us, at)| (Duration::from_micros(*us), *at)).collect();
            ranks(&times, 0.2)
        };
        use Rank::{AsGood, Best, Slower};
        use Standing::{Good, Ready, Used};
        assert_eq!(micros(&[(500, Used), (590, Ready), (610, Ready)]), [Best, AsGood, Slower]);
        assert_eq!(micros(&[(500, Used), (640, Used), (660, Used)]), [Best, AsGood, Slower]);
        assert_eq!(micros(&[(500, Used), (660, Used), (990, Good)]), [Best, Slower, AsGood]);
        assert_eq!(micros(&[(500, Ready); 6]), [Best, AsGood, AsGood, AsGood, Slower, Slower]);
        let slower = (900, Ready);
        let five = [(500, Used), slower, slower, slower, (990, Good)];
        assert_eq!(micros(&five), [Best, Slower, Slower, Slower, AsGood]);
        assert_eq!(micros(&[]), []);
    }

    #[test]
    fn free_air_goes_to_the_best_that_has_use_for_it_and_is_taken_from_the_worst() {
        let mut allowed = [0.2, 0.1, 0.1];
        let mut run = |spare, takes: [f64; 3]| {
            let (mut marks, mut back) = ([MarkShare::NONE; 3], [0.0; 3]);
            let parts = allowed.iter_mut().zip(&mut marks).zip(&mut back).zip(takes);
            let mut in_use: Vec<Slower> = parts
                .map(|(((allowed, marks), taken_back), takes)| Slower { takes, allowed, taken_back, marks })
                .collect();
            let beginning = beginning(spare, &in_use);
            share(spare, spare, 1.0, &mut in_use);
            (beginning, allowed)
        };
        assert_eq!(run(0.4, [0.1, 0.1, 0.1]), (None, [0.2, 0.16, 0.1]));
        assert_eq!(run(0.4, [0.1, 0.1, 0.05]), (Some(0.05), [0.2, 0.16, 0.1]));
        let (_, after) = run(-0.02, [0.2, 0.1, 0.1]);
        assert!(after[..2] == [0.2, 0.16] && (0.09..0.1).contains(&after[2]), "{after:?}");
        let (beginning, after) = run(-0.08, [0.2, 0.1, 0.1]);
        assert!(beginning.is_none() && after[0] == 0.2 * 0.65 && after[1] == 0.1 * 0.65, "{after:?}");
    }

    fn step(spare: f64, lasting: f64, steps: f64, takes: f64, allowed: &mut f64, taken_back: &mut f64) {
        let mut marks = MarkShare::NONE;
        share(spare, lasting, steps, &mut [Slower { takes, allowed, taken_back, marks: &mut marks }]);
    }

    #[test]
    fn what_was_taken_back_is_not_taken_once_more_while_it_has_yet_to_show() {
        let (mut allowed, mut taken_back) = (0.9, 0.0);
        let mut after = |spare: f64, takes: f64, steps: f64| {
            step(spare, 0.0, steps, takes, &mut allowed, &mut taken_back);
            allowed
        };
        let first = after(-0.04, 0.9, 1.0);
        assert!((first - 0.86).abs() < 1e-9);
        assert_eq!(after(-0.02, 0.88, 1.0), first, "it follows");
        // It does not, or a better one takes what it leaves.
        assert!(after(-0.04, 0.9, 1.0) > 0.84);
        assert!(after(-0.04, 0.9, 10.0) < 0.6);
        let followed = after(-0.08, 0.4, 1.0);
        assert!((followed - 0.4 * 0.65).abs() < 1e-9, "{followed}");
    }

    #[test]
    fn no_more_is_given_than_is_free_now() {
        let (mut allowed, mut taken_back) = (0.6, 0.0);
        let mut after = |spare: f64, takes: f64| {
            step(spare, 0.5, 5.0, takes, &mut allowed, &mut taken_back);
            allowed
        };
        let given = [after(0.4, 0.45), after(0.1, 0.7), after(0.05, 0.84), after(0.4, 0.3)];
        // It takes what it has, has yet to take what it has, takes it, and has no use for more.
        let by_hand = [0.85, 0.85, 0.89, 0.89];
        assert!(
            given.iter().zip(by_hand).all(|(given, by_hand)| (given - by_hand).abs() < 1e-9),
            "{given:?}"
        );
    }

    #[test]
    fn no_more_is_taken_back_than_is_missing_while_some_is_free() {
        let after = |spare: f64, steps: f64| {
            let (mut allowed, mut taken_back) = (0.9, 0.0);
            step(spare, 0.0, steps, 0.8, &mut allowed, &mut taken_back);
            allowed
        };
        // By hand: half of what is kept free is taken; 0.8 (1 - 0.35 / 2) would be 0.66.
        assert!((after(-0.04, 1.0) - 0.76).abs() < 1e-9);
        assert!((after(-0.04, 5.0) - 0.6).abs() < 1e-9);
        // Whoever takes all of it may want much more.
        assert!((after(-0.08, 5.0) - 0.8 * 0.65_f64.powi(5)).abs() < 1e-9);
    }

    #[test]
    fn marks_give_way_while_less_is_taken_than_may_be_and_come_back_at_once_when_air_is_lacking() {
        let mut marks = MarkShare::new(0.05);
        let mut after = |spare: f64, takes: f64, steps: f64| {
            Slower { takes, allowed: &mut 0.3, taken_back: &mut 0.0, marks: &mut marks }.ease(spare, steps);
            marks.part()
        };
        // By hand: a third is taken, 0.05 / 3^0.2 = 0.04014.
        assert!((after(0.4, 0.1, 1.0) - 0.040_14).abs() < 1e-5);
        assert!((after(0.4, 0.1, 4.0) - 0.05 / 3.0).abs() < 1e-9, "five steps");
        assert_eq!(after(0.4, 0.3, 10.0), after(0.4, 0.3, 1.0), "it takes what it may");
        let few = (0..100).map(|_| after(0.4, 0.0, 1.0)).last().unwrap();
        assert_eq!(few, LEAST_MARKS);
        let full = (0..10).map(|_| after(-0.08, 0.3, 1.0)).last().unwrap();
        assert_eq!(full, 0.05, "within a second");
    }
}
