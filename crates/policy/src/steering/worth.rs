//! Whether slower access points are worth the air that they take, by what arrives with them and without.
//!
//! ```text
//!              one begins              suspected, or time to look again
//!      Alone -------------> Beside --------------------------------------> Alone
//!        ^                                                                   |
//!        +--- of those suspected: they begin again, or are kept away --------+
//! ```
//! How much air a packet takes is reckoned from what is heard, and less than the truth where many attempts fail that nobody hears. So air may seem free
//! that is not, and a slow access point eats what a fast one would have carried. What arrives is the judge: now and then the fast ones are alone for a
//! second, and slower ones are suspected if all together then bring less than they alone and half of what the slow ones bring.
//!
//! But somebody may want less, or what is behind the fast ones may carry more in one second than in the next. So who is suspected gets a trial: turns
//! with them and without, until more is missing than chance explains, which is known from how much one second differs from the next. What is missing in a
//! turn is counted from the lesser of the seconds before and after it. If that does not become clear, they stay in use.
//!
//! All slower ones in use are judged together.

use std::time::Duration;

use units::Timestamp;

/// After a change so long passes until what arrives tells anything: senders follow, and queues run dry.
const FOLLOWED: Duration = Duration::from_millis(600);
/// How long what arrives is averaged.
const COMPARED: Duration = Duration::from_secs(1);
/// Of what slower ones bring, at least this part has to be gain.
const LEAST_GAIN: f64 = 0.5;
/// They are kept away for so long after they brought no gain, and not suspected for so long after a trial that did not show that; doubles each time ...
const FIRST_TERM: Duration = Duration::from_secs(5);
/// ... up to this where they are kept away ...
const LONGEST_PAUSE: Duration = Duration::from_secs(80);
/// ... and this where they are not suspected, or it is not looked for what arrives without them.
const LONGEST_TRUST: Duration = Duration::from_secs(20);
/// While they bring gain, it is compared again after this: that costs what they bring in some three seconds, so a twentieth of it.
const PROOF: Duration = Duration::from_secs(60);
/// It is compared again at once when the best one needs less air for a packet by so much, as a part of what it needed: alone it would bring more now.
const BETTER: f64 = 0.7;
/// With fewer packets a second nobody wants anything, and what arrives tells nothing.
const DEMAND: f64 = 20.0;
/// The standard deviation of what arrives in one second, as a part of it, until it is known.
const CHANCE: f64 = 0.1;
/// No two seconds are taken to differ by a larger one, so that a download that begins does not pass for chance.
const MOST_CHANCE: f64 = 0.5;
/// Its square is averaged over about so many seconds.
const REMEMBERED: f64 = 8.0;
/// More is missing than chance explains if it is so many standard deviations of one second (of their mean after several turns). By chance alone one turn
/// in 17 misses as much: it differs from the lesser of two seconds, which is 0.56 below the mean, by 1.3 on average.
const SURE: f64 = 1.5;
/// A trial has at most so many turns ...
const MOST_TURNS: u32 = 6;
/// ... and each ends so soon after the one before.
const STALE: Duration = Duration::from_secs(30);

/// Packets a second.
#[derive(Clone, Copy, Default, Debug)]
struct Arrived {
    /// By all.
    all: f64,
    /// Of that by slower ones.
    slower: f64,
}

/// What arrives, in whole seconds since the last change.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// The last change.
    since: Timestamp,
    began: Timestamp,
    sum: Arrived,
    count: u32,
    /// In the last whole second.
    last: Option<Arrived>,
    /// The variance of a second, relative to the square of what arrives.
    variance: f64,
}

impl Arriving {
    fn new(now: Timestamp) -> Self {
        Self {
            since: now,
            began: now,
            sum: Arrived::default(),
            count: 0,
            last: None,
            variance: CHANCE * CHANCE,
        }
    }

    /// Something has changed, so seconds begin anew.
    fn change(&mut self, now: Timestamp) {
        *self = Self { variance: self.variance, ..Self::new(now) };
    }

    /// Takes what arrives now; gives the mean of a second that is whole.
    fn take(&mut self, now: Timestamp, arrived: Arrived) -> Option<Arrived> {
        if now.since(self.since) < FOLLOWED {
            self.began = now;
            return None;
        }
        self.sum = Arrived { all: self.sum.all + arrived.all, slower: self.sum.slower + arrived.slower };
        self.count += 1;
        if now.since(self.began) < COMPARED {
            return None;
        }
        let count = f64::from(self.count);
        let mean = Arrived { all: self.sum.all / count, slower: self.sum.slower / count };
        if let Some(before) = self.last.filter(|before| before.all + mean.all >= 2.0 * DEMAND) {
            // The variance of a difference is twice that of either.
            let apart = (before.all - mean.all) / ((before.all + mean.all) / 2.0);
            let seen = (apart * apart / 2.0).min(MOST_CHANCE * MOST_CHANCE);
            self.variance += (seen - self.variance) / REMEMBERED;
        }
        *self = Self { began: now, sum: Arrived::default(), count: 0, last: Some(mean), ..*self };
        Some(mean)
    }

    /// The standard deviation of a second in which `mean` arrives.
    fn deviation(&self, mean: f64) -> f64 {
        self.variance.sqrt() * mean
    }
}

/// A second with slower ones in use.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// What arrived without them before, packets a second.
    before: f64,
    together: Arrived,
}

impl Turn {
    /// How much less arrived than would have to for them to be worth it, if `without` arrives without them; packets a second.
    fn missing(&self, without: f64) -> f64 {
        without + self.together.slower * LEAST_GAIN - self.together.all
    }
}

/// Turns with slower ones that are suspected to cost more than they bring.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// When the last turn ended.
    at: Timestamp,
    /// The last turn, until it is known what arrives without them after it.
    open: Option<Turn>,
    turns: u32,
    /// Sum over the turns of what was missing ...
    missing: f64,
    /// ... and of what arrived without them.
    without: f64,
}

/// How a trial ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Costs,
    Stays,
    /// Nothing is wanted any more.
    Unknown,
}

impl Trial {
    fn new(now: Timestamp, turn: Turn) -> Self {
        Self { at: now, open: Some(turn), turns: 0, missing: 0.0, without: 0.0 }
    }

    /// Takes what arrives without them after a turn; gives what is known by now, if that is anything.
    fn close(&mut self, after: f64, arriving: &Arriving) -> Option<Outcome> {
        let turn = self.open.take()?;
        if after < DEMAND {
            return Some(Outcome::Unknown);
        }
        self.turns += 1;
        self.missing += turn.missing(turn.before.min(after));
        self.without += (turn.before + after) / 2.0;
        let turns = f64::from(self.turns);
        let missing = self.missing / turns;
        if missing > SURE * arriving.deviation(self.without / turns) / turns.sqrt() {
            return Some(Outcome::Costs);
        }
        (missing <= 0.0 || self.turns >= MOST_TURNS).then_some(Outcome::Stays)
    }
}

/// A time that is twice as long when it begins soon after its last end.
#[derive(Clone, Copy, Debug)]
struct Term {
    until: Timestamp,
    next: Duration,
    longest: Duration,
}

impl Term {
    /// One that is over.
    fn new(now: Timestamp, longest: Duration) -> Self {
        Self { until: now, next: FIRST_TERM, longest }
    }

    fn begin(&mut self, now: Timestamp) {
        let length = if now.since(self.until) > PROOF { FIRST_TERM } else { self.next };
        (self.until, self.next) = (now + length, (length * 2).min(self.longest));
    }

    fn is_on(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// What is known of whether the slower access points of a channel bring anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// While they are in use: what arrived without them, packets a second, and what the best one needed for a packet.
    alone: Option<(f64, Duration)>,
    arriving: Arriving,
    trial: Option<Trial>,
    /// They are kept away.
    pause: Term,
    /// They are not suspected.
    trust: Term,
    /// What arrives without them was looked for as soon as something was wanted, and is not again.
    looked: Term,
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
    /// Those in use have to leave at once, to be compared again; nothing is said against what they had.
    LookAgain,
    /// Those that were in use cost more than they brought. None may begin, and then with little.
    Refuted,
}

impl Worth {
    /// None is in use.
    pub fn new(now: Timestamp) -> Self {
        Self {
            alone: None,
            arriving: Arriving::new(now),
            trial: None,
            pause: Term::new(now, LONGEST_PAUSE),
            trust: Term::new(now, LONGEST_TRUST),
            looked: Term::new(now, LONGEST_TRUST),
        }
    }

    /// Takes what arrives now, packets a second: by `all` access points of the channel, and by those `slower` ones that are in use; `None` if there are none.
    /// `best`: air time for a packet of the best one.
    pub fn update(&mut self, now: Timestamp, best: Duration, all: f64, slower: Option<f64>) -> Verdict {
        match (self.alone, slower) {
            (None, Some(_)) => {
                let alone = self.arriving.last.map_or(all, |last| last.all);
                self.change(now, Some((alone, best)));
            }
            (Some(_), None) => self.change(now, None),
            _ => {}
        }
        let whole = self.arriving.take(now, Arrived { all, slower: slower.unwrap_or(0.0) });
        let Some((alone, needed)) = self.alone else {
            return self.without(now, whole);
        };
        let is_better = best < needed.mul_f64(BETTER);
        let is_proven = now.since(self.arriving.since) >= PROOF;
        if is_better {
            (self.trial, self.trust) = (None, Term::new(now, LONGEST_TRUST));
        } else if is_proven {
            self.pause = Term::new(now, LONGEST_PAUSE);
        }
        let turn = whole.map(|together| Turn { before: alone, together });
        if is_better || is_proven || turn.is_some_and(|turn| self.has_to_leave(now, turn)) {
            self.change(now, None);
            return Verdict::LookAgain;
        }
        Verdict::GoOn
    }

    /// Whether slower ones are kept away because they brought no gain.
    pub fn is_refuted(&self, now: Timestamp) -> bool {
        self.pause.is_on(now)
    }

    /// What may become of them while none is in use, once what arrives in a second is known.
    fn without(&mut self, now: Timestamp, whole: Option<Arrived>) -> Verdict {
        self.trial = self.trial.filter(|trial| now.since(trial.at) < STALE);
        let closed = whole.zip(self.trial.as_mut());
        let outcome = closed.and_then(|(after, trial)| trial.close(after.all, &self.arriving));
        if outcome.is_some() {
            self.trial = None;
        }
        match outcome {
            Some(Outcome::Costs) => {
                self.pause.begin(now);
                self.trust = Term::new(now, LONGEST_TRUST);
                return Verdict::Refuted;
            }
            Some(Outcome::Stays) => self.trust.begin(now),
            Some(Outcome::Unknown) | None => {}
        }
        let is_known = self.arriving.last.is_some() && !self.pause.is_on(now);
        if is_known { Verdict::MayBegin } else { Verdict::NotYet }
    }

    /// Whether slower ones have to leave after a turn, to see what arrives without them: they are suspected, or nothing was wanted before.
    fn has_to_leave(&mut self, now: Timestamp, turn: Turn) -> bool {
        if let Some(trial) = &mut self.trial {
            (trial.at, trial.open) = (now, Some(turn));
            return true;
        }
        if self.trust.is_on(now) {
            return false;
        }
        if turn.before < DEMAND {
            let looks = turn.together.all >= DEMAND && !self.looked.is_on(now);
            if looks {
                self.looked.begin(now);
            }
            return looks;
        }
        let is_suspected = turn.missing(turn.before) > self.arriving.deviation(turn.before);
        self.trial = is_suspected.then(|| Trial::new(now, turn));
        is_suspected
    }

    fn change(&mut self, now: Timestamp, alone: Option<(f64, Duration)>) {
        self.alone = alone;
        self.arriving.change(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether slower ones that are let in whenever they may be are in use in each tenth of a second. `arrives`: without them, with them, and of these what
    /// they bring, by the tenth.
    fn in_use(tenths: u64, mut arrives: impl FnMut(u64) -> (f64, f64, f64)) -> Vec<bool> {
        let (mut worth, mut in_use) = (Worth::new(Timestamp::ZERO), false);
        let mut tenth = |at: u64| {
            let (without, with, slow) = arrives(at);
            let all = if in_use { with } else { without };
            let best = Duration::from_micros(500);
            match worth.update(Timestamp::from_millis(at * 100), best, all, in_use.then_some(slow)) {
                Verdict::MayBegin => in_use = true,
                Verdict::LookAgain | Verdict::Refuted => in_use = false,
                Verdict::NotYet | Verdict::GoOn => {}
            }
            in_use
        };
        (0..tenths).map(&mut tenth).collect()
    }

    fn seconds(in_use: &[bool]) -> usize {
        in_use.iter().filter(|in_use| **in_use).count() / 10
    }

    /// A slow one for 200 s, with chance of 5 % up and down: how many of its seconds it was in use. `with`, `without`: what arrives.
    fn used(without: f64, with: f64, slow: f64) -> usize {
        let chance = |at: u64| 0.95 + 0.1 * (at * 37 % 11) as f64 / 10.0;
        seconds(&in_use(2_000, |at| (without * chance(at), with * chance(at), slow)))
    }

    /// Between 0 and 1, anything.
    fn anything(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as f64 / f64::from(1_u32 << 31)
    }

    /// A fast one whose uplink is shared with many: its part is another one every one to three seconds, from a tenth of what it has on average to nearly twice
    /// as much.
    fn busy(mut seed: u64) -> impl FnMut(u64) -> f64 {
        let (mut part, mut until) = (1.0, 0);
        move |at| {
            if at >= until {
                part = 0.1 + 1.8 * anything(&mut seed);
                until = at + 10 + (20.0 * anything(&mut seed)) as u64;
            }
            part
        }
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
        assert!(used(1_000.0, 950.0, 250.0) < 16, "what one has the other lacks");
    }

    /// Of 200 s, on average over 20 of them, how long a slow one is in use beside a fast one whose uplink is busy. `with`: what arrives with it, and what it
    /// brings of that, by what arrives without it.
    fn used_beside_busy(with: fn(f64) -> (f64, f64)) -> usize {
        let used = |seed| {
            let mut busy = busy(seed);
            seconds(&in_use(2_000, |at| {
                let fast = 600.0 * busy(at);
                let (together, slow) = with(fast);
                (fast, together, slow)
            }))
        };
        (0..20).map(used).sum::<usize>() / 20
    }

    #[test]
    fn a_busy_uplink_of_the_fast_one_is_no_fault_of_the_slow_one() {
        let mean = used_beside_busy(|fast| (fast + 200.0, 200.0));
        assert!(mean > 150, "{mean}");
    }

    #[test]
    fn who_costs_much_is_found_out_beside_a_busy_uplink_too() {
        let mean = used_beside_busy(|fast| (fast / 4.0 + 50.0, 50.0));
        assert!(mean < 60, "{mean}");
    }

    #[test]
    fn who_is_there_when_less_is_wanted_is_not_to_blame() {
        // Wanted for five seconds, and from then on a tenth of it: they are away as long as it takes to see that.
        let less = in_use(200, |at| if at < 50 { (2_000.0, 2_100.0, 500.0) } else { (100.0, 400.0, 100.0) });
        assert!(less[80..].iter().all(|in_use| *in_use), "{less:?}");
        // Nothing for ten seconds, and then less than before.
        let idle = in_use(250, |at| match at {
            0..50 => (2_000.0, 2_100.0, 500.0),
            50..150 => (0.0, 0.0, 0.0),
            _ => (100.0, 400.0, 100.0),
        });
        let away = idle[80..].iter().filter(|in_use| !**in_use).count();
        assert!((1..20).contains(&away), "as long as it takes to see what is wanted now: {idle:?}");
    }

    #[test]
    fn where_the_fast_one_brings_next_to_nothing_the_slow_one_is_seldom_asked() {
        let used = in_use(2_000, |_| (15.0, 215.0, 200.0));
        assert!(seconds(&used) > 160, "{used:?}");
        let changes = used.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes < 40, "{changes}");
    }

    #[test]
    fn pauses_in_what_is_wanted_do_not_hide_what_it_costs() {
        // Four seconds of each ten something is wanted, for ten minutes; then a slow one costs most of a download.
        let bursts = |at: u64| if at % 100 < 40 { (1_000.0, 1_100.0, 200.0) } else { (0.0, 0.0, 0.0) };
        let used = in_use(6_400, |at| if at < 6_000 { bursts(at) } else { (1_000.0, 200.0, 50.0) });
        let wanted: Vec<bool> = used.chunks(100).take(60).flat_map(|ten| ten[..40].to_vec()).collect();
        assert!(seconds(&wanted) > 180, "{} of 240", seconds(&wanted));
        assert!(seconds(&used[6_000..]) < 25, "{:?}", &used[6_000..]);
    }

    #[test]
    fn what_it_costs_is_seen_when_a_download_begins() {
        let begins = in_use(400, |at| if at < 100 { (0.0, 0.0, 0.0) } else { (2_000.0, 400.0, 100.0) });
        assert!(seconds(&begins[100..]) < 9, "{begins:?}");
    }
}
