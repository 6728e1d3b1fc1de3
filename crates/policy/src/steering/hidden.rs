//! Access points of one channel that do not hear each other: what they send at once meets at us, and both together carry less than one
//! (`[MULTIAP] section 4.1`).
//!
//! ```text
//!                  many attempts of the best fail              the best needs much less air for a packet
//!   Together -----------------------------------> Comparing ----------------------------------------------> Apart
//!     ^  ^                                           | as much                                                |
//!     |  +-------------------------------------------+                   the pause is over, or it went bad |
//!     +-------------------------------------------------------------------------------------------------------+
//! ```
//! That frames are lost may have other reasons, fades above all. So the others are kept from sending for a second, and what the best one then needs for a
//! packet is compared with what it needed before. Those that hear each other do not change it: they wait for each other. The flows
//! of single TCP senders find the same out by starving one of the two, after some time-outs; a bond that probes both would not.

use std::time::Duration;

use units::{NetworkId, Timestamp};

/// Only if fewer attempts of the best one than this are read, it is asked why; asking costs a second of the others now and then.
const SUSPICIOUS: f64 = 0.95;
/// The others must take so much of the air for anything to be seen.
const LEAST_COMPANY: f64 = 0.02;
/// An estimate rests on the frames of so long; what is compared begins after that.
const FLUSHED: Duration = Duration::from_millis(600);
/// How long is compared.
const COMPARED: Duration = Duration::from_millis(500);
/// They disturb it if with them it takes longer for a packet by the part of the air that they take, but by this at least and ...
const LEAST_DISTURBED: f64 = 0.05;
/// ... by no more than this. The less they take, the less is lost if they are kept away by mistake.
const MOST_DISTURBED: f64 = 0.25;
/// Apart, it has become so many times slower on the mean of so long: then the others may be better now.
const WENT_BAD: f64 = 1.5;
const LOOKED_BACK: Duration = Duration::from_secs(2);
/// How long nothing is asked again after they did not disturb it, and how long they are apart after they did; each doubles ...
const FIRST_TOGETHER: Duration = Duration::from_secs(5);
const FIRST_APART: Duration = Duration::from_secs(15);
/// ... up to this, as long as it is the same outcome.
const LONGEST: Duration = Duration::from_secs(120);

/// What is known of whether the access points of a channel disturb each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    stage: Stage,
    since: Timestamp,
    /// The one that may send while others may not.
    chosen: Option<NetworkId>,
    /// Until when it is not asked again.
    quiet_until: Timestamp,
    together_pause: Duration,
    apart_pause: Duration,
    mean: Mean,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// All may send.
    Together,
    /// The others are kept from sending. What the best one needed before, in seconds, and how much of the air the others took.
    Comparing { together: f64, company: f64 },
    /// The same, since they disturb it. What it needs now.
    Apart { alone: f64 },
}

/// The best one of a channel, and its company.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    pub network: NetworkId,
    /// Air time for a packet, as just estimated.
    pub packet_time: Option<Duration>,
    /// The part of its attempts that are read, if known.
    pub delivered: Option<f64>,
    /// The part of the air that the other ones of ours take.
    pub company: f64,
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
            together_pause: FIRST_TOGETHER,
            apart_pause: FIRST_APART,
            mean: Mean::default(),
        }
    }

    /// The one that goes on as the best while the others are kept away: what is remembered of those would let them seem better whenever it fades.
    pub fn chosen(&self) -> Option<NetworkId> {
        self.chosen
    }

    /// Takes what is known now; gives whether only the best one may send.
    pub fn update(&mut self, now: Timestamp, best: Option<Best>) -> bool {
        if self.chosen.is_some() && best.map(|best| best.network) != self.chosen {
            // It is gone.
            self.quiet_until = now;
            self.turn(now, Stage::Together);
        }
        match self.stage {
            Stage::Together => self.together(now, best),
            Stage::Comparing { together, company } => self.compare(now, best, together, company),
            Stage::Apart { alone } => self.apart(now, best, alone),
        }
        !matches!(self.stage, Stage::Together)
    }

    fn together(&mut self, now: Timestamp, best: Option<Best>) {
        let fails = |best: &Best| best.delivered.is_some_and(|delivered| delivered < SUSPICIOUS);
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

    fn compare(&mut self, now: Timestamp, best: Option<Best>, together: f64, company: f64) {
        let disturbed = 1.0 + company.clamp(LEAST_DISTURBED, MOST_DISTURBED);
        match best.and_then(|best| self.mean.over(now, best, FLUSHED, COMPARED)) {
            Some(alone) if together > alone * disturbed => {
                (self.quiet_until, self.together_pause) = (now + self.apart_pause, FIRST_TOGETHER);
                self.apart_pause = (self.apart_pause * 2).min(LONGEST);
                self.turn(now, Stage::Apart { alone });
            }
            Some(_) => {
                (self.quiet_until, self.apart_pause) = (now + self.together_pause, FIRST_APART);
                self.together_pause = (self.together_pause * 2).min(LONGEST);
                self.turn(now, Stage::Together);
            }
            // There is nothing to compare with if nothing is sent any more.
            None if now.since(self.since) > 3 * (FLUSHED + COMPARED) => self.turn(now, Stage::Together),
            None => {}
        }
    }

    fn apart(&mut self, now: Timestamp, best: Option<Best>, alone: f64) {
        let mean = best.and_then(|best| self.mean.over(now, best, Duration::ZERO, LOOKED_BACK));
        if mean.is_some_and(|mean| mean > alone * WENT_BAD) {
            (self.quiet_until, self.apart_pause) = (now, FIRST_APART);
        }
        if now >= self.quiet_until {
            self.turn(now, Stage::Together);
        } else if mean.is_some() {
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

    /// A best access point with a second one; what it needs for a packet, in microseconds, beside the other and alone, and how many attempts are read.
    struct World {
        hidden: Hidden,
        now: Timestamp,
        beside: (u64, f64),
        alone: (u64, f64),
        is_apart: bool,
    }

    impl World {
        fn new(beside: (u64, f64), alone: (u64, f64)) -> Self {
            Self {
                hidden: Hidden::new(Timestamp::ZERO),
                now: Timestamp::ZERO,
                beside,
                alone,
                is_apart: false,
            }
        }

        fn best(&self) -> Best {
            let (micros, delivered) = if self.is_apart { self.alone } else { self.beside };
            Best {
                network: NetworkId(1),
                packet_time: Some(Duration::from_micros(micros)),
                delivered: Some(delivered),
                company: if self.is_apart { 0.0 } else { 0.3 },
            }
        }

        fn step(&mut self) {
            self.now += STEP;
            self.is_apart = self.hidden.update(self.now, Some(self.best()));
        }

        /// Of so many steps, the part apart.
        fn apart(&mut self, steps: u32) -> f64 {
            let mut apart = 0;
            for _ in 0..steps {
                self.step();
                apart += u32::from(self.is_apart);
            }
            f64::from(apart) / f64::from(steps)
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
            assert_eq!((world.is_apart, world.hidden.chosen()), (true, Some(NetworkId(1))));
            world.alone = (5_000, 0.5);
            let mut steps = 0;
            while world.is_apart && steps < 100 {
                steps += 1;
                world.now += STEP;
                let best = Some(world.best()).filter(|_| !leaves);
                world.is_apart = world.hidden.update(world.now, best);
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
            world.is_apart = world.hidden.update(world.now, Some(silent));
        }
        assert!(!world.is_apart);
    }
}
