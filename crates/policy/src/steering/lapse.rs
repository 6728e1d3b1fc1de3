//! Whether an access point that was as good as the best one has fallen behind, or only has a bad moment.
//!
//! In half a second of a link that fades a packet takes half as long again as on average, or two thirds of that. So of two that are equally good one seems
//! worse every second or two. If it stood by each time, little would be gained by having both: it has to be asked back, and each change costs half a second.
//!
//! ```text
//!              as good               behind for long enough, or it only has what better ones leave
//!     None ---------------> Good ----------------------------------------------------------------> None
//!                           ^  | seems slower, and is heard worse; or carries nothing for another reason
//!      as good, or heard as |  v
//!      well again           Away (it may have had a bad moment)
//! ```
//! The logarithm of how much longer it takes than it may is summed over time, and never below nothing: Page's test for a change (E. S. Page, Continuous
//! inspection schemes, Biometrika 41, 1954). Where it takes no longer than the best the sum falls by as much as if it took as long. Who
//! takes twice as long is behind in 0.7 s, and who takes 1.5 times as long in two seconds, as that costs less; from the moment of the change it is twice
//! that, as packet times are smoothed first (`point.rs`), and cover half a second.
//!
//! Somebody who walks away from it is soon heard worse as well, and then nothing is waited for; nor where it is not known how well each is heard, nor
//! where one takes so much longer that it is no chance (`NO_FADE` in `point.rs`).

use std::time::Duration;

use super::reason::longer;

/// It is behind when the sum reaches this, in seconds. When it was chosen, half of it lost 0.01 of what two that are equally good bring
/// (MULTIAP/fig3-carriersense, in the middle), and more brought no more.
const BEHIND: f64 = 0.3;

/// What is remembered of one that was as good as the best.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) enum Lapse {
    /// It was not, or it has fallen behind.
    #[default]
    None,
    /// It was, in the last step; and how far it is behind, in seconds.
    Good(f64),
    /// It was when it last carried data, and how far it was behind then.
    Away(f64),
}

impl Lapse {
    /// Takes what a packet takes over it and over the best one; it may take longer by `bound`, as a part of that.
    pub fn take(&mut self, time: Duration, best: Duration, bound: f64, seconds: f64) {
        if let Self::Good(behind) = self {
            let apart = longer(time, best).ln_1p() - bound.ln_1p();
            *behind = (*behind + apart * seconds).max(0.0);
        }
    }

    /// Whether it passes for as good until it is known better; if it is heard as well.
    pub fn is_chance(self) -> bool {
        matches!(self, Self::Good(behind) | Self::Away(behind) if behind < BEHIND)
    }

    /// Takes what became of it in this step: whether it carries data, and passed for as good.
    pub fn turn(&mut self, is_used: bool, is_good: bool) {
        *self = match *self {
            // Who is back has not become better by being away.
            Self::Good(behind) | Self::Away(behind) if is_used && is_good => Self::Good(behind),
            _ if is_used && is_good => Self::Good(0.0),
            Self::Good(behind) | Self::Away(behind) if !is_used && behind < BEHIND => Self::Away(behind),
            _ => Self::None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: f64 = 0.1;
    const BOUND: f64 = 0.3;

    fn good() -> Lapse {
        let mut lapse = Lapse::default();
        lapse.turn(true, true);
        lapse
    }

    /// Steps until one that takes so many times as long is behind.
    fn steps(times: f64) -> Option<usize> {
        let (mut lapse, best) = (good(), Duration::from_millis(1));
        (1..=1_000).find(|_| {
            lapse.take(best.mul_f64(times), best, BOUND, STEP);
            !lapse.is_chance()
        })
    }

    #[test]
    fn the_longer_it_takes_the_sooner_it_is_behind() {
        // By hand: 0.3 / ln(10 / 1.3) = 0.147 s, 0.3 / ln(2 / 1.3) = 0.696 s, 0.3 / ln(1.5 / 1.3) = 2.096 s.
        assert_eq!([10.0, 2.0, 1.5].map(steps), [Some(2), Some(7), Some(21)]);
        assert_eq!([1.3, 1.0, 0.5].map(steps), [None; 3]);
    }

    #[test]
    fn who_is_as_good_on_average_is_never_behind() {
        let (mut lapse, best) = (good(), Duration::from_millis(1));
        for step in 0..1_000 {
            // Half a second half as long again, half a second two thirds.
            let times = if step % 10 < 5 { 1.5 } else { 1.0 / 1.5 };
            lapse.take(best.mul_f64(times), best, BOUND, STEP);
            assert!(lapse.is_chance(), "{step}: {lapse:?}");
        }
    }

    #[test]
    fn who_leaves_in_doubt_is_remembered_and_who_was_behind_is_not() {
        let best = Duration::from_millis(1);
        let after = |steps: usize| {
            let mut lapse = good();
            (0..steps).for_each(|_| lapse.take(2 * best, best, BOUND, STEP));
            lapse.turn(false, false);
            lapse
        };
        assert!(matches!(after(3), Lapse::Away(behind) if behind > 0.1));
        assert!(after(3).is_chance());
        assert_eq!(after(10), Lapse::None);
        // What it needs is not known while it is away.
        let mut away = after(3);
        away.take(9 * best, best, BOUND, 9.0);
        assert_eq!(away, after(3));
        away.turn(true, true);
        assert!(matches!((away, after(3)), (Lapse::Good(now), Lapse::Away(then)) if now == then), "{away:?}");
        away.turn(true, false);
        assert_eq!(away, Lapse::None, "it carries what better ones leave");
    }
}
