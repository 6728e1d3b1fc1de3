//! Whether slower access points are worth the air that they take, by what arrives with them and without.
//!
//! ```text
//!           one begins               no gain, or time to look again
//!   Alone -------------> Beside ---------------------------------> Alone
//! ```
//! How much air a packet takes is reckoned from what is heard, and less than the truth where many attempts fail that nobody hears. So air may seem free
//! that is not, and a slow access point eats what a fast one would have carried. What arrives is the judge: now and then the fast ones are alone for a
//! second, and if all together then bring less than they alone and half of what the slow ones bring, these leave.

use std::time::Duration;

use units::Timestamp;

/// After a change so long passes until what arrives tells anything: senders follow, and queues run dry.
const FOLLOWED: Duration = Duration::from_millis(600);
/// How long what arrives is averaged.
const COMPARED: Duration = Duration::from_secs(1);
/// Of what slower ones bring, at least this part has to be gain ...
const LEAST_GAIN: f64 = 0.5;
/// ... but for what may be chance, as a part of what arrives without them.
const CHANCE: f64 = 0.1;
/// They are kept away for so long after they brought no gain; doubles each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(80);
/// While they bring gain, it is compared again after this: that costs what they bring in some three seconds, so a twentieth of it.
const PROOF: Duration = Duration::from_secs(60);
/// It is compared again at once when the best one needs less air for a packet by so much, as a part of what it needed: alone it would bring more now.
const BETTER: f64 = 0.7;

/// What is known of whether the slower access points of a channel bring anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// While they are in use: what arrived without them, packets a second, and what the best one needed for a packet.
    alone: Option<(f64, Duration)>,
    /// Since when it is as it is.
    since: Timestamp,
    quiet_until: Timestamp,
    pause: Duration,
    /// What is being averaged, and the last mean since the change.
    began: Timestamp,
    sum: f64,
    count: u32,
    mean: Option<f64>,
}

/// What may become of the slower ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// None may begin.
    NotYet,
    /// They may.
    MayBegin,
    /// Those in use go on.
    GoOn,
    /// Those in use have to leave at once, as they bring no gain.
    Leave,
    /// Those in use have to leave at once, to be compared again; what they had was worth it.
    LookAgain,
}

impl Worth {
    /// None is in use.
    pub fn new(now: Timestamp) -> Self {
        Self {
            alone: None,
            since: now,
            quiet_until: now,
            pause: FIRST_PAUSE,
            began: now,
            sum: 0.0,
            count: 0,
            mean: None,
        }
    }

    /// Takes what arrives now, packets a second: by `all` access points of the channel, and by those `slower` ones that are in use; `None` if there are none.
    /// `best`: air time for a packet of the best one.
    pub fn update(&mut self, now: Timestamp, best: Duration, all: f64, slower: Option<f64>) -> Verdict {
        match (self.alone, slower) {
            (None, Some(_)) => self.change(now, Some((self.mean.unwrap_or(all), best))),
            (Some(_), None) => self.change(now, None),
            _ => {}
        }
        if now.since(self.since) < FOLLOWED {
            self.began = now;
        } else {
            (self.sum, self.count) = (self.sum + all, self.count + 1);
        }
        let is_whole = now.since(self.began) >= COMPARED && self.count > 0;
        if is_whole {
            self.mean = Some(self.sum / f64::from(self.count));
            (self.began, self.sum, self.count) = (now, 0.0, 0);
        }
        let (Some((alone, needed)), Some(slower)) = (self.alone, slower) else {
            let is_known = self.mean.is_some() && now >= self.quiet_until;
            return if is_known { Verdict::MayBegin } else { Verdict::NotYet };
        };
        let together = self.mean.filter(|_| is_whole);
        if together.is_some_and(|together| together < alone * (1.0 - CHANCE) + slower * LEAST_GAIN) {
            self.quiet_until = now + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.change(now, None);
            return Verdict::Leave;
        }
        if best >= needed.mul_f64(BETTER) && now.since(self.since) < PROOF {
            return Verdict::GoOn;
        }
        self.pause = FIRST_PAUSE;
        self.change(now, None);
        Verdict::LookAgain
    }

    /// Whether slower ones are kept away because they brought no gain.
    pub fn is_refuted(&self, now: Timestamp) -> bool {
        now < self.quiet_until
    }

    fn change(&mut self, now: Timestamp, alone: Option<(f64, Duration)>) {
        (self.alone, self.since, self.began) = (alone, now, now);
        (self.sum, self.count, self.mean) = (0.0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow one that is let in whenever it may be, for 200 s: how many of its seconds it was in use. `with`, `without`: what arrives.
    fn used(without: f64, with: f64, slow: f64) -> u32 {
        let mut worth = Worth::new(Timestamp::ZERO);
        let (mut in_use, mut steps) = (false, 0);
        for step in 0..2_000_u64 {
            let all = if in_use { with } else { without };
            // Chance, 5 % up and down.
            let all = all * (0.95 + 0.1 * (step * 37 % 11) as f64 / 10.0);
            let best = Duration::from_micros(500);
            match worth.update(Timestamp::from_millis(step * 100), best, all, in_use.then_some(slow)) {
                Verdict::MayBegin => in_use = true,
                Verdict::Leave | Verdict::LookAgain => in_use = false,
                Verdict::NotYet | Verdict::GoOn => {}
            }
            steps += u32::from(in_use);
        }
        steps / 10
    }

    #[test]
    fn who_brings_more_than_it_costs_stays_but_for_a_second_now_and_then() {
        let seconds = used(400.0, 660.0, 260.0);
        assert!((188..196).contains(&seconds), "{seconds}");
        // Little, but at no cost.
        assert!(used(1_000.0, 1_030.0, 30.0) > 185);
    }

    #[test]
    fn it_is_looked_again_when_the_best_one_has_become_better() {
        let mut worth = Worth::new(Timestamp::ZERO);
        let mut look = |step: u64, micros: u64, slower| {
            worth.update(Timestamp::from_millis(step * 100), Duration::from_micros(micros), 500.0, slower)
        };
        let before: Vec<Verdict> = (0..20).map(|step| look(step, 1_000, None)).collect();
        assert_eq!((before[14], before[19]), (Verdict::NotYet, Verdict::MayBegin));
        assert!((20..40).all(|step| look(step, 800, Some(100.0)) == Verdict::GoOn));
        assert_eq!(look(40, 550, Some(100.0)), Verdict::LookAgain);
    }

    #[test]
    fn who_costs_more_than_it_brings_is_seldom_tried() {
        let seconds = used(1_000.0, 400.0, 150.0);
        assert!((4..14).contains(&seconds), "{seconds}");
        assert!(used(1_000.0, 950.0, 250.0) < 14, "what one has the other lacks");
    }
}
