//! Access points of one channel that do not hear each other: what they send at once meets at us, and both together carry less than one
//! (`[MULTIAP] section 4.1`).
//!
//! ```text
//!                  many attempts of the best fail              the best needs much less air for a packet
//!   Together -----------------------------------> Comparing --------------------------------> Exchanged --> Apart
//!     ^  ^        another one is in doubt            | as much                                 ^ |  ^         |  |
//!     |  +-------------------------------------------+             another one is heard better | |  +---------+  |
//!     |  +-------------------------------------------------------------------------------------+ |               |
//!     |  |        another one is heard far better                                                |               |
//!     |  +---------------------------------------------------------------------------------------+               |
//!     |               nothing failed beside another one                                                          |
//!     +---------------------------------------------------------------- the pause is over, or it went bad -------+
//! ```
//! That frames are lost may have other reasons, fades above all. So the others are kept from sending for a second, and what the best one then needs for a
//! packet is compared with what it needed before. Those that hear each other do not change it: they wait for each other. The flows
//! of single TCP senders find the same out by starving one of the two, after some time-outs; a bond that probes both would not.
//!
//! Which of the two spoils the other's frames more says little of which is better alone, and the one that is kept away has no chance to show it. So the
//! other one is then alone for as long, and the better of them stays. The same is done for one that is heard better and failed to show it beside the
//! best one, which may have been what failed it; at once if it is heard much better.

use std::time::Duration;

use units::{NetworkId, Timestamp};

/// Only if fewer attempts of the best one than this are read, it is asked why; asking costs a second of the others now and then.
const SUSPICIOUS: f64 = 0.95;
/// The others are likely to be why if so much fails that a packet needs longer by this part of what they take of the air, and rather twice as much if they do
/// not hear it. Of two that hear each other and are equally good fades alone cost less: then it is asked once, and again only after [`LONGEST`].
const SPOILT: f64 = 0.5;
/// The others must take so much of the air for anything to be seen.
const LEAST_COMPANY: f64 = 0.02;
/// An estimate rests on the frames of so long; what is compared begins after that.
const FLUSHED: Duration = Duration::from_millis(600);
/// How long is compared.
const COMPARED: Duration = Duration::from_millis(500);
/// They disturb it if with them it takes longer for a packet by the part of the air that they take, but by this at least and ...
const LEAST_DISTURBED: f64 = 0.05;
/// ... by no more than this: where they hear each other but take all of the air, collisions and the lower rates that follow from these cost as much as 0.27
/// (seen with hostapd and minstrel). The less they take, the less is lost if they are kept away by mistake.
const MOST_DISTURBED: f64 = 0.4;
/// Apart, it has become so many times slower on the mean of so long: then the others may be better now.
const WENT_BAD: f64 = 1.5;
/// One that was kept away has rates to find, and a queue to outlast, so with it what is compared begins after that.
const FOUND_ITS_RATES: Duration = Duration::from_secs(1);
/// The other one stays if it needs so much less, as a part: a change costs something too.
const BETTER: f64 = 0.9;
const LOOKED_BACK: Duration = Duration::from_secs(2);
/// How long nothing is asked again after they did not disturb it, and how long they are apart after they did; each doubles ...
const FIRST_TOGETHER: Duration = Duration::from_secs(5);
const FIRST_APART: Duration = Duration::from_secs(15);
/// ... up to this, as long as it is the same outcome.
const LONGEST: Duration = Duration::from_secs(120);
/// One that is heard better is not alone again for so long after it was; doubles up to [`LONGEST`] as long as it turns out to be no better.
const FIRST_EXCHANGE_PAUSE: Duration = Duration::from_secs(10);

/// Why all but one are kept from sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Apart {
    /// To find out whether they disturb each other, or which is better alone.
    Asked,
    /// They do.
    Found,
}

/// What is known of whether the access points of a channel disturb each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    stage: Stage,
    since: Timestamp,
    /// The one that may send while others may not.
    chosen: Option<NetworkId>,
    /// Until when it is not asked again.
    quiet_until: Timestamp,
    /// Until when it is asked only if they are likely to disturb each other.
    unlikely_until: Timestamp,
    together_pause: Duration,
    apart_pause: Duration,
    /// What was found out the last time.
    disturbed: bool,
    /// Until when one that is heard better is not alone in place of the chosen one.
    no_exchange_until: Timestamp,
    /// The same for one that is heard far better. Only set when the last one alone was no better: who passes one access point after the other needs each.
    believes_none_until: Timestamp,
    exchange_pause: Duration,
    refuted: Option<NetworkId>,
    mean: Mean,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// All may send.
    Together,
    /// The others are kept from sending. What the best one needed before, in seconds, and how much of the air the others took.
    Comparing { together: f64, company: f64 },
    /// The same, with another one in its place: which one it was, and what it needed alone. Whether that one failed to show beside it what it can do.
    Exchanged { from: NetworkId, alone: f64, is_refuted: bool },
    /// All but the chosen one are kept from sending, since they disturb it. What it needed alone, and what it needs lately.
    Apart { alone: f64, lately: f64 },
}

/// The best one of a channel, and its company.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    pub network: NetworkId,
    /// Air time for a packet, as just estimated, and smoothed.
    pub packet_time: Option<Duration>,
    pub settled: Duration,
    /// The part of its attempts that are read, if known.
    pub delivered: Option<f64>,
    /// The part of the air that the other ones of ours take.
    pub company: f64,
}

/// Another one of the channel, which may be better alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    pub network: NetworkId,
    /// Than the best, by more than chance.
    pub is_heard_better: bool,
    /// By so much that it hardly needs a second look.
    pub is_heard_much_better: bool,
    /// By so much that it hardly needs a first one, and it does not carry data already.
    pub is_heard_far_better: bool,
    /// It was tried beside the best, and seemed slower all the same.
    pub is_refuted: bool,
}

/// A mean over a stretch of time.
#[derive(Clone, Copy, Default, Debug)]
struct Mean {
    since: Option<Timestamp>,
    sum: f64,
    count: u32,
}

impl Hidden {
    pub fn new(now: Timestamp) -> Self {
        Self {
            stage: Stage::Together,
            since: now,
            chosen: None,
            quiet_until: now,
            unlikely_until: now,
            together_pause: FIRST_TOGETHER,
            apart_pause: FIRST_APART,
            disturbed: false,
            no_exchange_until: now,
            believes_none_until: now,
            exchange_pause: FIRST_EXCHANGE_PAUSE,
            refuted: None,
            mean: Mean::default(),
        }
    }

    /// The one that goes on as the best while the others are kept away: what is remembered of those would let them seem better whenever it fades.
    pub fn chosen(&self) -> Option<NetworkId> {
        self.chosen
    }

    /// One that is alone only to show what it can do.
    pub fn on_trial(&self) -> Option<NetworkId> {
        self.chosen.filter(|_| matches!(self.stage, Stage::Exchanged { .. }))
    }

    /// One that was alone, and has just turned out to be no better.
    pub fn refuted(&self) -> Option<NetworkId> {
        self.refuted
    }

    /// They disturbed each other when it was last found out: who tries itself beside the best now fails, and spoils what that sends.
    pub fn disturbed(&self) -> bool {
        self.disturbed
    }

    /// Takes what is known now: the best one, which is the chosen one if there is one, and of the others the one that may be better alone. Gives why
    /// only the best one may send, if so.
    pub fn update(&mut self, now: Timestamp, best: Option<Best>, rival: Option<Rival>) -> Option<Apart> {
        let network = best.map(|best| best.network);
        self.refuted = None;
        match self.stage {
            _ if self.chosen.is_none() || self.chosen == network => {}
            Stage::Exchanged { from, alone, .. } if network == Some(from) => self.go_back(now, from, alone),
            // It is gone.
            _ => {
                self.quiet_until = now;
                self.turn(now, Stage::Together);
            }
        }
        match self.stage {
            Stage::Together => self.together(now, best, rival),
            Stage::Comparing { together, company } => self.compare(now, best, rival, together, company),
            Stage::Exchanged { from, alone, is_refuted } => {
                self.exchanged(now, best, from, alone, is_refuted)
            }
            Stage::Apart { alone, lately } => self.apart(now, best, rival, alone, lately),
        }
        match self.stage {
            Stage::Together => None,
            Stage::Exchanged { .. } if self.disturbed => Some(Apart::Found),
            Stage::Comparing { .. } | Stage::Exchanged { .. } => Some(Apart::Asked),
            Stage::Apart { .. } => Some(Apart::Found),
        }
    }

    fn together(&mut self, now: Timestamp, best: Option<Best>, rival: Option<Rival>) {
        let is_evident = self.is_evident(now, rival);
        if let Some(best) = best.filter(|_| is_evident || self.is_in_doubt(now, rival)) {
            let (together, company) = (best.settled.as_secs_f64(), best.company);
            self.turn(now, Stage::Comparing { together, company });
            self.chosen = Some(best.network);
            if is_evident {
                self.exchange(now, rival, together);
            } else {
                self.skip_comparing(now, rival, together);
            }
            return;
        }
        let may_be_unlikely = now >= self.unlikely_until;
        let bound = |best: &Best| {
            let likely = 1.0 / (1.0 + SPOILT * best.company.min(1.0));
            if may_be_unlikely { SUSPICIOUS } else { SUSPICIOUS.min(likely) }
        };
        let fails = |best: &Best| best.delivered.is_some_and(|delivered| delivered < bound(best));
        let suspicious = best.filter(|best| best.company >= LEAST_COMPANY && fails(best));
        let Some(best) = suspicious.filter(|_| now >= self.quiet_until) else {
            self.mean = Mean::default();
            return;
        };
        if let Some(together) = self.mean.over(now, best, FLUSHED, COMPARED) {
            self.turn(now, Stage::Comparing { together, company: best.company });
            self.chosen = Some(best.network);
        }
    }

    /// Whether another one, which is heard better, has to be alone to show what it can do.
    fn is_in_doubt(&self, now: Timestamp, rival: Option<Rival>) -> bool {
        let is_doubtful = |rival: Rival| rival.is_heard_better && (rival.is_refuted || self.disturbed);
        now >= self.no_exchange_until && rival.is_some_and(is_doubtful)
    }

    /// Whether another one is heard so much better that it is alone without having failed.
    fn is_evident(&self, now: Timestamp, rival: Option<Rival>) -> bool {
        now >= self.believes_none_until && rival.is_some_and(|rival| rival.is_heard_far_better)
    }

    /// Somebody has moved: what the best one needs alone would be out of date by the time that it is known. Gives whether the other one is alone now.
    fn skip_comparing(&mut self, now: Timestamp, rival: Option<Rival>, together: f64) -> bool {
        let skips = rival.is_some_and(|rival| rival.is_heard_much_better) && self.is_in_doubt(now, rival);
        if skips {
            self.exchange(now, rival, together);
        }
        skips
    }

    fn compare(
        &mut self,
        now: Timestamp,
        best: Option<Best>,
        rival: Option<Rival>,
        together: f64,
        company: f64,
    ) {
        if self.skip_comparing(now, rival, together) {
            return;
        }
        let disturbed = 1.0 + company.clamp(LEAST_DISTURBED, MOST_DISTURBED);
        match best.and_then(|best| self.mean.over(now, best, FLUSHED, COMPARED)) {
            Some(alone) if together > alone * disturbed => {
                self.disturbed = true;
                (self.quiet_until, self.together_pause) = (now + self.apart_pause, FIRST_TOGETHER);
                self.unlikely_until = now;
                self.apart_pause = (self.apart_pause * 2).min(LONGEST);
                self.exchange(now, rival, alone);
            }
            Some(alone) => {
                let is_in_doubt = self.is_in_doubt(now, rival);
                self.disturbed = false;
                (self.quiet_until, self.apart_pause) = (now + self.together_pause, FIRST_APART);
                self.unlikely_until = now + LONGEST;
                self.together_pause = (self.together_pause * 2).min(LONGEST);
                if is_in_doubt {
                    self.exchange(now, rival, alone);
                } else {
                    self.turn(now, Stage::Together);
                }
            }
            // There is nothing to compare with if nothing is sent any more.
            None if now.since(self.since) > 3 * (FLUSHED + COMPARED) => self.turn(now, Stage::Together),
            None => {}
        }
    }

    /// The other one is alone in place of the chosen one, which needed so much; if there is another one.
    fn exchange(&mut self, now: Timestamp, rival: Option<Rival>, alone: f64) {
        match self.chosen.zip(rival) {
            Some((from, rival)) => {
                self.turn(now, Stage::Exchanged { from, alone, is_refuted: rival.is_refuted });
                self.chosen = Some(rival.network);
            }
            None => self.turn(now, Stage::Apart { alone, lately: alone }),
        }
    }

    fn exchanged(
        &mut self,
        now: Timestamp,
        best: Option<Best>,
        from: NetworkId,
        alone: f64,
        is_refuted: bool,
    ) {
        let mean = best.and_then(|best| self.mean.over(now, best, FOUND_ITS_RATES, COMPARED));
        let is_mute = self.mean.since.is_none() && now.since(self.since) > FOUND_ITS_RATES;
        if let Some(mean) = mean.filter(|mean| *mean < alone * BETTER) {
            self.exchange_pause = FIRST_EXCHANGE_PAUSE;
            self.no_exchange_until = now + self.exchange_pause;
            if !self.disturbed && is_refuted {
                // It is better alone, and was not beside the other.
                self.disturbed = true;
                self.quiet_until = now + self.apart_pause;
            }
            self.settle(now, self.chosen, mean);
        } else if mean.is_some() || now.since(self.since) > 2 * (FOUND_ITS_RATES + COMPARED) || is_mute {
            self.go_back(now, from, alone);
        }
    }

    /// The other one is no better.
    fn go_back(&mut self, now: Timestamp, from: NetworkId, alone: f64) {
        self.no_exchange_until = now + self.exchange_pause;
        self.believes_none_until = self.no_exchange_until;
        self.refuted = self.chosen;
        self.exchange_pause = (self.exchange_pause * 2).min(LONGEST);
        self.settle(now, Some(from), alone);
    }

    /// It is known which one is better alone, and what it needs then.
    fn settle(&mut self, now: Timestamp, better: Option<NetworkId>, alone: f64) {
        if self.disturbed {
            self.turn(now, Stage::Apart { alone, lately: alone });
            self.chosen = better;
        } else {
            self.turn(now, Stage::Together);
        }
    }

    fn apart(&mut self, now: Timestamp, best: Option<Best>, rival: Option<Rival>, alone: f64, lately: f64) {
        // While it stood by few of its frames came, and those beside the other's.
        let mean = best.and_then(|best| self.mean.over(now, best, FLUSHED, LOOKED_BACK));
        if mean.is_some_and(|mean| mean > alone * WENT_BAD) {
            (self.quiet_until, self.apart_pause) = (now, FIRST_APART);
        }
        if now >= self.quiet_until {
            self.turn(now, Stage::Together);
        } else if self.is_in_doubt(now, rival) {
            self.exchange(now, rival, lately);
        } else if let Some(lately) = mean {
            self.stage = Stage::Apart { alone, lately };
            self.mean = Mean::default();
        }
    }

    fn turn(&mut self, now: Timestamp, stage: Stage) {
        (self.stage, self.since, self.mean) = (stage, now, Mean::default());
        if matches!(stage, Stage::Together) {
            self.chosen = None;
        }
    }
}

impl Mean {
    /// Takes a packet time; gives the mean of those that came within `length` from `flushed` after the first on, once that is over.
    fn over(&mut self, now: Timestamp, best: Best, flushed: Duration, length: Duration) -> Option<f64> {
        let packet_time = best.packet_time?;
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= flushed {
            self.sum += packet_time.as_secs_f64();
            self.count += 1;
        }
        (now.since(since) >= flushed + length).then(|| self.sum / f64::from(self.count.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);
    const FIVE_MINUTES: u32 = 3_000;

    const BEST: NetworkId = NetworkId(1);
    const OTHER: NetworkId = NetworkId(2);

    /// A best access point with a second one; what it needs for a packet, in microseconds, beside the other and alone, and how many attempts are read.
    struct World {
        hidden: Hidden,
        now: Timestamp,
        beside: (u64, f64),
        alone: (u64, f64),
        /// What the other one needs alone, and whether it is heard better; `None` if there is no reason to try it.
        other: Option<(u64, bool)>,
        is_heard_much_better: bool,
        is_heard_far_better: bool,
        is_apart: bool,
    }

    impl World {
        fn new(beside: (u64, f64), alone: (u64, f64)) -> Self {
            Self {
                hidden: Hidden::new(Timestamp::ZERO),
                now: Timestamp::ZERO,
                beside,
                alone,
                other: None,
                is_heard_much_better: false,
                is_heard_far_better: false,
                is_apart: false,
            }
        }

        fn best(&self) -> Best {
            let (micros, delivered) = if self.is_apart { self.alone } else { self.beside };
            let other = self.other.filter(|_| self.hidden.chosen() == Some(OTHER));
            let micros = other.map_or(micros, |(micros, _)| micros);
            Best {
                network: if other.is_some() { OTHER } else { BEST },
                packet_time: Some(Duration::from_micros(micros)),
                settled: Duration::from_micros(micros),
                delivered: Some(delivered),
                company: if self.is_apart { 0.0 } else { 0.3 },
            }
        }

        fn step(&mut self) {
            self.now += STEP;
            let best = self.best();
            let rival = self.other.map(|(_, is_heard_better)| Rival {
                network: if best.network == OTHER { BEST } else { OTHER },
                is_heard_better: is_heard_better && best.network == BEST,
                is_heard_much_better: self.is_heard_much_better && best.network == BEST,
                is_heard_far_better: self.is_heard_far_better && best.network == BEST,
                is_refuted: is_heard_better,
            });
            self.is_apart = self.hidden.update(self.now, Some(best), rival).is_some();
        }

        /// Of so many steps, the part apart.
        fn apart(&mut self, steps: u32) -> f64 {
            self.parts(steps).0
        }

        /// Of so many steps, the part apart, and the part in which the other one had the air.
        fn parts(&mut self, steps: u32) -> (f64, f64) {
            let (mut apart, mut other) = (0, 0);
            for _ in 0..steps {
                self.step();
                apart += u32::from(self.is_apart);
                other += u32::from(self.hidden.chosen() == Some(OTHER));
            }
            (f64::from(apart) / f64::from(steps), f64::from(other) / f64::from(steps))
        }
    }

    #[test]
    fn those_that_spoil_each_others_frames_are_apart_nearly_always() {
        let mut world = World::new((2_000, 0.4), (900, 0.95));
        world.apart(25);
        assert!(world.is_apart, "within 2.5 s");
        let apart = world.apart(FIVE_MINUTES);
        assert!((0.97..1.0).contains(&apart), "{apart}: tried again, seldom");
    }

    #[test]
    fn where_too_little_is_lost_for_what_the_others_take_it_is_asked_once_in_two_minutes() {
        let asked = |company: f64, delivered: f64| {
            let mut hidden = Hidden::new(Timestamp::ZERO);
            let packet_time = Duration::from_millis(1);
            let best = Best {
                network: BEST,
                packet_time: Some(packet_time),
                settled: packet_time,
                delivered: Some(delivered),
                company,
            };
            let steps: Vec<bool> = (0..1_100)
                .map(|step| hidden.update(Timestamp::ZERO + STEP * step, Some(best), None).is_some())
                .collect();
            steps.windows(2).filter(|two| !two[0] && two[1]).count()
        };
        // By hand: 1 / (1 + 0.45 / 2) = 0.816; of 0.04 half is 0.02, so 0.95 is the bound. After 1, 8, 20, 43 and 85 s, as pauses double.
        assert_eq!([0.96, 0.83, 0.80].map(|delivered| asked(0.45, delivered)), [0, 1, 5]);
        assert_eq!([0.96, 0.94].map(|delivered| asked(0.04, delivered)), [0, 5]);
        // Of several others the sum may be beyond all air.
        assert_eq!(asked(3.0, 0.7), asked(1.0, 0.7));
    }

    #[test]
    fn of_those_that_spoil_each_others_frames_the_better_one_alone_stays() {
        let mut world = World::new((2_000, 0.4), (900, 0.95));
        world.other = Some((600, false));
        world.apart(40);
        assert_eq!((world.is_apart, world.hidden.chosen()), (true, Some(OTHER)), "within 4 s");
        let mut world = World::new((2_000, 0.4), (900, 0.95));
        world.other = Some((1_500, false));
        let (apart, other) = world.parts(FIVE_MINUTES);
        assert!(apart > 0.97 && other > 0.0 && other < 0.04, "{apart} {other}: a second of it now and then");
    }

    #[test]
    fn one_that_is_heard_better_is_alone_for_a_moment_and_stays_if_it_is_better() {
        for (micros, stays) in [(500, true), (1_500, false)] {
            let mut world = World::new((2_000, 0.4), (900, 0.95));
            world.apart(40);
            assert_eq!(world.hidden.chosen(), Some(BEST));
            world.other = Some((micros, true));
            let (_, other) = world.parts(600);
            assert!(if stays { other > 0.9 } else { other > 0.0 && other < 0.15 }, "{micros}: {other}");
        }
    }

    #[test]
    fn one_that_failed_beside_the_best_has_its_turn_alone_though_nothing_seems_disturbed() {
        let mut world = World::new((1_000, 0.97), (1_000, 0.97));
        world.other = Some((500, true));
        let (apart, other) = world.parts(40);
        assert!(apart > 0.9 && other > 0.6, "{apart} {other}");
        // No better alone either.
        let mut world = World::new((1_000, 0.97), (1_000, 0.97));
        world.other = Some((1_500, true));
        let (apart, other) = world.parts(600);
        assert!((0.05..0.2).contains(&apart) && (0.02..0.1).contains(&other), "{apart} {other}");
    }

    #[test]
    fn one_that_is_heard_much_better_has_its_turn_alone_at_once() {
        for (before, steps) in [(0, 1), (6, 7)] {
            let mut world = World::new((1_000, 0.97), (1_000, 0.97));
            world.other = Some((500, true));
            world.apart(before);
            assert_ne!(world.hidden.chosen(), Some(OTHER));
            world.is_heard_much_better = true;
            world.apart(steps - before);
            assert_eq!(world.hidden.chosen(), Some(OTHER));
        }
        // One that did not fail beside the best has its turn too, and need not stay apart then.
        let mut world = World::new((1_000, 0.97), (1_000, 0.97));
        world.other = Some((500, false));
        world.is_heard_much_better = true;
        assert_eq!(world.apart(10), 0.0, "nothing is in doubt");
        world.is_heard_far_better = true;
        world.apart(1);
        assert_eq!(world.hidden.chosen(), Some(OTHER));
        (world.is_heard_much_better, world.is_heard_far_better) = (false, false);
        let apart = world.apart(100);
        assert!((0.1..0.2).contains(&apart) && !world.hidden.disturbed(), "{apart}");
        // No better all the same: no more than with a second look.
        let mut world = World::new((1_000, 0.97), (1_000, 0.97));
        (world.other, world.is_heard_much_better) = (Some((1_500, true)), true);
        let (apart, other) = world.parts(600);
        assert!((0.02..0.1).contains(&other) && apart == other, "{apart} {other}");
    }

    #[test]
    fn one_after_the_other_that_is_heard_far_better_has_its_turn() {
        let at = |step: u64| Timestamp::from_millis(step * 100);
        let mut hidden = Hidden::new(at(0));
        let best = |network: u32, micros: u64| Best {
            network: NetworkId(network),
            packet_time: Some(Duration::from_micros(micros)),
            settled: Duration::from_micros(micros),
            delivered: Some(0.97),
            company: 0.0,
        };
        let rival = |network: u32| {
            let network = NetworkId(network);
            let (is_heard_better, is_heard_much_better, is_heard_far_better) = (true, true, true);
            Some(Rival {
                network,
                is_heard_better,
                is_heard_much_better,
                is_heard_far_better,
                is_refuted: false,
            })
        };
        // The second one is better alone; three seconds later the third one is heard far better than that.
        assert!(hidden.update(at(1), Some(best(1, 4_000)), rival(2)).is_some());
        for step in 2..20 {
            hidden.update(at(step), Some(best(2, 1_000)), None);
        }
        assert_eq!(hidden.chosen(), None);
        hidden.update(at(31), Some(best(2, 4_000)), rival(3));
        assert_eq!(hidden.chosen(), Some(NetworkId(3)));
        // It is not, so the next one that is heard so is tried beside the best first.
        for step in 32..60 {
            hidden.update(at(step), Some(best(3, 8_000)), None);
        }
        assert_eq!((hidden.chosen(), hidden.update(at(61), Some(best(2, 4_000)), rival(4))), (None, None));
    }

    #[test]
    fn if_the_other_one_is_silent_the_first_one_has_the_air_again() {
        let mut world = World::new((2_000, 0.4), (900, 0.95));
        world.other = Some((500, false));
        while world.hidden.chosen() != Some(OTHER) {
            world.step();
        }
        let silent = Best { packet_time: None, ..world.best() };
        for _ in 0..35 {
            world.now += STEP;
            let network = world.hidden.chosen().unwrap();
            assert!(world.hidden.update(world.now, Some(Best { network, ..silent }), None).is_some());
        }
        assert_eq!(world.hidden.chosen(), Some(BEST));
        // And at once if nothing is known of it any more.
        let mut world = World::new((2_000, 0.4), (900, 0.95));
        world.other = Some((500, false));
        while world.hidden.chosen() != Some(OTHER) {
            world.step();
        }
        let first = Best { network: BEST, ..world.best() };
        assert_eq!(world.hidden.update(world.now + STEP, Some(first), None), Some(Apart::Found));
        assert_eq!(world.hidden.chosen(), Some(BEST));
    }

    #[test]
    fn those_that_only_fade_are_together_nearly_always() {
        let mut world = World::new((1_000, 0.7), (1_000, 0.7));
        let apart = world.apart(FIVE_MINUTES);
        assert!(apart > 0.0 && apart < 0.04, "{apart}");
        // Nobody asks why frames are lost if none are.
        assert_eq!(World::new((1_000, 0.97), (500, 0.97)).apart(FIVE_MINUTES), 0.0);
    }

    #[test]
    fn little_company_is_not_blamed_for_little() {
        let mut world = World::new((1_250, 0.7), (1_000, 0.7));
        assert!(world.apart(300) < 0.2, "a quarter more is not beyond what a third of the air explains");
    }

    #[test]
    fn one_that_went_bad_or_away_is_not_kept_alone() {
        for leaves in [false, true] {
            let mut world = World::new((2_000, 0.4), (900, 0.95));
            world.apart(40);
            assert_eq!((world.is_apart, world.hidden.chosen()), (true, Some(BEST)));
            world.alone = (5_000, 0.5);
            let mut steps = 0;
            while world.is_apart && steps < 100 {
                steps += 1;
                world.now += STEP;
                let best = Some(world.best()).filter(|_| !leaves);
                world.is_apart = world.hidden.update(world.now, best, None).is_some();
            }
            assert!(steps <= if leaves { 1 } else { 45 }, "{steps} steps");
            assert_eq!(world.hidden.chosen(), None);
        }
    }

    #[test]
    fn where_nothing_is_sent_any_more_nobody_is_kept_away() {
        let mut world = World::new((2_000, 0.4), (900, 0.95));
        while !world.is_apart {
            world.step();
        }
        for _ in 0..40 {
            world.now += STEP;
            let silent = Best { packet_time: None, ..world.best() };
            world.is_apart = world.hidden.update(world.now, Some(silent), None).is_some();
        }
        assert!(!world.is_apart);
    }
}
