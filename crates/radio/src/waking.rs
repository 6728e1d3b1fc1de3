//! How what an access point kept is taken, and which way is the faster one, found by trying both (`[JUGGLER] section 3.3`).
//!
//! Whoever says that he is awake gets all at once. Access points of Linux do not say of those frames that more follow (the "more data" bit), so a pause tells
//! their end, or their number. Whoever asks for one frame after the other (PS-Poll) is told whether more wait. That way is tried with a few frames of a visit
//! only, after which the rest is taken by saying that we are awake: a trial must not cost more than the choice can save.

use std::time::Duration;

use units::{MacAddress, Timestamp};

/// How frames that an access point kept are taken (`[JUGGLER] section 3.3`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waking {
    /// Say that we are awake; all comes at once.
    Announce,
    /// Stay asleep in its eyes, and ask for one frame after the other.
    Poll,
    /// Try both, and keep to the faster one.
    Measured,
}

/// How a visit begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taking {
    /// By saying that we are awake.
    Announce,
    /// By polling.
    Poll,
    /// By polling for a few frames, to see how long they take.
    TryPolling,
}

/// Visits by which each way is measured.
const TRIAL_VISITS: u32 = 4;
/// Frames that a trial polls for.
const TRIAL_FRAMES: u32 = 4;
/// Kept frames without which a visit tells nothing.
const LEAST_FRAMES: u32 = 2;
/// Kept frames follow each other at once; what comes after this much has come by itself. A full packet takes less from 12 Mbit/s on; who is slower is not
/// measured, and not polled.
const PAUSE: Duration = Duration::from_micros(1_500);
/// A frame that was polled for in vain counts as one that took so long.
const IN_VAIN: Duration = Duration::from_millis(20);
/// Polling must take no more than this part of the time: it keeps the access point from sending what comes while we are there, too.
const WORTH: f64 = 0.75;

/// Which way of waking serves an access point better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WakingChoice {
    setting: Waking,
    /// Whom the measurements are of.
    point: Option<MacAddress>,
    announced: Trials,
    polled: Trials,
}

/// Time for each frame of some visits.
#[derive(Clone, Copy, Default, Debug)]
struct Trials {
    sum: Duration,
    visits: u32,
}

impl Trials {
    fn is_over(&self) -> bool {
        self.visits >= TRIAL_VISITS
    }

    fn mean(&self) -> Option<Duration> {
        self.is_over().then(|| self.sum / self.visits)
    }
}

impl WakingChoice {
    pub fn new(setting: Waking) -> Self {
        Self { setting, point: None, announced: Trials::default(), polled: Trials::default() }
    }

    /// The network has this access point now; what was measured of another one says nothing of it.
    pub fn meet(&mut self, point: MacAddress) {
        if self.point != Some(point) {
            *self = Self { point: Some(point), ..Self::new(self.setting) };
        }
    }

    /// How to begin a visit before which about so many frames were kept.
    pub fn next(&self, expected: u32) -> Taking {
        match (self.setting, self.means()) {
            (Waking::Announce, _) => Taking::Announce,
            (Waking::Poll, _) => Taking::Poll,
            (Waking::Measured, Some((announced, polled))) if polled < announced.mul_f64(WORTH) => {
                Taking::Poll
            }
            (Waking::Measured, Some(_)) => Taking::Announce,
            // Where little is kept there is nothing to gain by polling either.
            (Waking::Measured, None) if self.announced.is_over() && expected >= LEAST_FRAMES => {
                Taking::TryPolling
            }
            (Waking::Measured, None) => Taking::Announce,
        }
    }

    /// What a visit has shown.
    pub fn learn(&mut self, measured: Measured) {
        let trials = if measured.polling { &mut self.polled } else { &mut self.announced };
        if measured.frames >= LEAST_FRAMES && !trials.is_over() {
            trials.sum += measured.time / measured.frames;
            trials.visits += 1;
        }
    }

    /// Mean time for a kept frame when all came at once and when they were polled for, once both are known.
    pub fn means(&self) -> Option<(Duration, Duration)> {
        Some((self.announced.mean()?, self.polled.mean()?))
    }
}

/// Kept frames that came and how long they took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Measured {
    polling: bool,
    frames: u32,
    time: Duration,
}

/// What is taken of the kept frames in one visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Kept frames are asked for one by one.
    pub polling: bool,
    /// A poll that was not answered yet.
    pub polled: Option<Timestamp>,
    pub next_poll: Option<Timestamp>,
    pub arrived: Timestamp,
    pub left: Option<Timestamp>,
    /// Frames with data for us that came in this visit, kept or not.
    pub came: u32,
    /// It polls for a few frames only.
    trial: bool,
    /// About so many frames were kept.
    expected: u32,
    /// Kept frames that came, the last one then.
    frames: u32,
    last: Timestamp,
    /// The access point says when more follow.
    tells: bool,
    /// All was taken, or enough to know how long it takes.
    finished: bool,
}

impl Drain {
    /// Nothing was kept: the access point has only just taken us in.
    pub fn nothing(now: Timestamp) -> Self {
        Self { finished: true, ..Self::begin(now, None, Taking::Announce, 0) }
    }

    /// A visit begins, after an absence since `left`, in which about so many frames came.
    pub fn begin(now: Timestamp, left: Option<Timestamp>, taking: Taking, expected: u32) -> Self {
        Self {
            polling: taking != Taking::Announce,
            polled: None,
            next_poll: None,
            arrived: now,
            left,
            came: 0,
            trial: taking == Taking::TryPolling,
            expected,
            frames: 0,
            last: now,
            tells: false,
            finished: false,
        }
    }

    /// A frame with data came, kept or not; `more` follow, as the access point says. Gives how long the kept ones took, once that is known.
    pub fn take(&mut self, now: Timestamp, more: bool) -> Option<Measured> {
        self.polled = None;
        self.came += 1;
        if self.finished {
            return None;
        }
        if !self.polling && !self.tells && now.since(self.last) > PAUSE {
            return self.finish();
        }
        self.frames += 1;
        self.last = now;
        self.tells |= more;
        let over = match (self.polling, self.tells) {
            (true, _) => !more || self.trial && self.frames >= TRIAL_FRAMES,
            (false, true) => !more,
            (false, false) => self.frames >= self.expected,
        };
        if over { self.finish() } else { None }
    }

    /// What was found out so far is all, if that was not known before.
    fn finish(&mut self) -> Option<Measured> {
        if std::mem::replace(&mut self.finished, true) {
            return None;
        }
        Some(Measured { polling: self.polling, frames: self.frames, time: self.last.since(self.arrived) })
    }

    /// The visit ends. Gives what it has shown, if that was not known before; a trial whose polls brought nothing has shown that they are in vain.
    pub fn leave(&mut self) -> Option<Measured> {
        if self.trial && !self.finished { self.poll_in_vain() } else { self.finish() }
    }

    /// A poll was not heard, or not answered. Gives what that says of polling, if this was a trial.
    pub fn poll_in_vain(&mut self) -> Option<Measured> {
        self.polled = None;
        if !self.trial || std::mem::replace(&mut self.finished, true) {
            return None;
        }
        Some(Measured { polling: true, frames: LEAST_FRAMES, time: IN_VAIN * LEAST_FRAMES })
    }

    /// Whether a trial is over, which is so once: the rest is taken by saying that we are awake.
    pub fn ends_trial(&mut self) -> bool {
        let ends = self.trial && self.finished;
        if ends {
            (self.trial, self.polling) = (false, false);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Timestamp {
        Timestamp::from_nanos(micros * 1_000)
    }

    /// A visit from 0 on in which frames come at `times`, each telling that more follow or not.
    fn visit(taking: Taking, expected: u32, times: &[(u64, bool)]) -> (Drain, Option<Measured>) {
        let mut drain = Drain::begin(Timestamp::ZERO, None, taking, expected);
        let mut measured = None;
        for (time, more) in times {
            measured = measured.or(drain.take(micros(*time), *more));
        }
        (drain, measured.or(drain.leave()))
    }

    fn shown(polling: bool, frames: u32, time: u64) -> Option<Measured> {
        Some(Measured { polling, frames, time: Duration::from_micros(time) })
    }

    #[test]
    fn an_access_point_that_does_not_say_that_more_follow_is_measured_by_a_pause_or_by_number() {
        let burst = [(400, false), (800, false), (1_200, false), (9_000, false)];
        assert_eq!(visit(Taking::Announce, 10, &burst).1, shown(false, 3, 1_200));
        assert_eq!(visit(Taking::Announce, 2, &burst).1, shown(false, 2, 800));
        let told = [(400, true), (5_000, true), (9_000, false), (9_400, false)];
        assert_eq!(visit(Taking::Announce, 10, &told).1, shown(false, 3, 9_000));
        assert_eq!(visit(Taking::Announce, 10, &[(7_000, false)]).1, shown(false, 0, 0));
    }

    #[test]
    fn a_trial_polls_for_a_few_frames_and_then_wakes() {
        let many: Vec<(u64, bool)> = (1..=9).map(|at| (at * 1_000, true)).collect();
        let (mut drain, measured) = visit(Taking::TryPolling, 20, &many[..4]);
        assert_eq!(measured, shown(true, 4, 4_000));
        assert!(drain.ends_trial() && !drain.polling && !drain.ends_trial());
        let (mut drain, measured) = visit(Taking::Poll, 20, &many);
        assert_eq!(measured, shown(true, 9, 9_000));
        assert!(!drain.ends_trial() && drain.polling);
    }

    #[test]
    fn the_faster_way_is_kept_to_until_there_is_another_access_point() {
        let learn = |announced: u64, polled: u64| {
            let mut choice = WakingChoice::new(Waking::Measured);
            choice.meet(MacAddress([2; 6]));
            for _ in 0..TRIAL_VISITS {
                assert_eq!(choice.next(10), Taking::Announce);
                choice.learn(visit(Taking::Announce, 2, &[(1, false), (announced, false)]).1.unwrap());
            }
            assert_eq!(choice.next(1), Taking::Announce);
            for _ in 0..TRIAL_VISITS {
                assert_eq!(choice.next(10), Taking::TryPolling);
                choice.learn(visit(Taking::TryPolling, 2, &[(1, true), (polled, false)]).1.unwrap());
            }
            choice
        };
        assert_eq!(learn(800, 2_000).next(10), Taking::Announce);
        assert_eq!(learn(1_000, 900).next(10), Taking::Announce);
        let mut choice = learn(1_400, 800);
        assert_eq!((choice.next(10), choice.next(0)), (Taking::Poll, Taking::Poll));
        assert_eq!(choice.means(), Some((Duration::from_micros(700), Duration::from_micros(400))));
        choice.meet(MacAddress([2; 6]));
        assert_eq!(choice.next(10), Taking::Poll);
        choice.meet(MacAddress([4; 6]));
        assert_eq!((choice.next(10), choice.means()), (Taking::Announce, None));
    }

    #[test]
    fn who_does_not_answer_polls_is_woken() {
        let mut drain = Drain::begin(Timestamp::ZERO, None, Taking::TryPolling, 9);
        assert_eq!(drain.poll_in_vain(), shown(true, 2, 40_000));
        assert!(drain.ends_trial() && drain.poll_in_vain().is_none());
        let mut drain = Drain::begin(Timestamp::ZERO, None, Taking::TryPolling, 9);
        assert_eq!(drain.leave(), shown(true, 2, 40_000));
        let mut drain = Drain::begin(Timestamp::ZERO, None, Taking::Poll, 9);
        assert_eq!(drain.poll_in_vain(), None);
    }
}
