//! What lies beyond each network's first hop: when to ask, and what the answers mean. Pure.
//!
//! ```text
//!             204                        redirect, page
//!  unknown -----------> internet  <----------------------> captive
//!     |                    |
//!     +--- three failures in a row, nothing moves ---> nothing
//! ```
//! Any answer leads to its state from each other. Bytes that move say "internet" too, but not of a captive network:
//! the portal's own pages move there.
//!
//! Where something flowed and nothing comes back any more, it is asked at once, and again at once after a failure: so a network that
//! dies in use is found within some ten seconds.

use std::time::Duration;

use policy::network::Reach;
use units::Timestamp;

/// What came of asking once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The expected answer, and the time that the connection took.
    Internet(Duration),
    /// Another answer: somebody stands between; the address of its login page if it gave one.
    Captive(Option<String>),
    /// None.
    Nothing,
}

/// One network's reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Horizon {
    reach: Reach,
    portal: Option<String>,
    failures: u8,
    asking: bool,
    answered: bool,
    due: Timestamp,
    doubt: Doubt,
}

/// Whether flows give reason to ask out of turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Doubt {
    /// There is reason now.
    is_there: bool,
    /// What flows show is no reason before: an answer has just come.
    trusted_until: Timestamp,
    /// Doubts in a row that an answer has dispelled.
    dispelled: u8,
}

impl Horizon {
    /// Unknown; the first question is due after `jitter` of the first pause.
    pub fn new(now: Timestamp, jitter: f64) -> Self {
        let due = now + FIRST.mul_f64(jitter);
        let doubt = Doubt { is_there: false, trusted_until: now, dispelled: 0 };
        Self { reach: Reach::Unknown, portal: None, failures: 0, asking: false, answered: false, due, doubt }
    }

    /// What was sent over the network has got no answer for a while, or what came from it has stopped: it is asked at once.
    pub fn doubt(&mut self, now: Timestamp) {
        let is_settled = matches!(self.reach, Reach::Captive | Reach::Nothing);
        if self.doubt.is_there || is_settled || now < self.doubt.trusted_until {
            return;
        }
        self.doubt.is_there = true;
        self.due = self.due.min(now);
    }

    /// Whether the last question was not answered.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Whether it is asked because of a doubt: the answer is wanted soon.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_there
    }

    /// What is known.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Whether a question was ever answered.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// The login page of a captive network.
    pub fn portal(&self) -> Option<&str> {
        self.portal.as_deref()
    }

    /// When to ask next; `None` while an answer is waited for.
    pub fn due(&self) -> Option<Timestamp> {
        (!self.asking).then_some(self.due)
    }

    /// Whether to ask now. Where bytes `moved` nobody needs to ask, but for the first time: only of a network that has answered once is
    /// it known that it would.
    pub fn ask(&mut self, now: Timestamp, moved: bool, pause: Pause) -> bool {
        if self.asking || now < self.due {
            return false;
        }
        let was_asked = self.answered || self.failures > 0;
        if moved && was_asked && self.reach != Reach::Captive {
            (self.reach, self.failures, self.doubt.is_there) = (Reach::Internet, 0, false);
            self.due = now + pause.after(WHEN_REACHED);
            return false;
        }
        self.asking = true;
        true
    }

    /// An answer, or that there is none. True if what is known changed.
    pub fn on_outcome(&mut self, now: Timestamp, outcome: Outcome, pause: Pause) -> bool {
        self.asking = false;
        self.answered |= outcome != Outcome::Nothing;
        let before = (self.reach, self.portal.take());
        match outcome {
            Outcome::Internet(_) => {
                (self.reach, self.failures) = (Reach::Internet, 0);
                self.due = now + pause.after(WHEN_REACHED);
                self.dispel(now, pause);
            }
            Outcome::Captive(portal) => {
                (self.reach, self.portal, self.failures) = (Reach::Captive, portal, 0);
                self.doubt.is_there = false;
                self.due = now + pause.jittered(WHEN_CAPTIVE);
            }
            Outcome::Nothing => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES {
                    self.reach = Reach::Nothing;
                    self.doubt.is_there = false;
                } else {
                    self.portal = before.1.clone();
                }
                let doubled = AFTER_FAILURE.saturating_mul(1 << (self.failures - 1).min(8));
                let wait = if self.doubt.is_there { IN_DOUBT } else { doubled.min(WHEN_REACHED) };
                self.due = now + pause.jittered(wait);
            }
        }
        before != (self.reach, self.portal.clone())
    }

    /// One connection may hang for minutes whatever the network does: it is asked more and more seldom because of it.
    fn dispel(&mut self, now: Timestamp, pause: Pause) {
        let doubt = &mut self.doubt;
        let in_a_row = now < doubt.trusted_until + FORGOTTEN;
        doubt.dispelled = match (doubt.is_there, in_a_row) {
            (true, true) => doubt.dispelled.saturating_add(1).min(MOST_DOUBLED),
            (true, false) => 0,
            (false, _) => doubt.dispelled,
        };
        let trusted = TRUSTED.saturating_mul(1 << doubt.dispelled);
        doubt.is_there = false;
        doubt.trusted_until = now + if pause.metered { trusted * METERED } else { trusted };
    }
}

/// How long to wait between questions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pause {
    /// Drawn anew each time, 0 to 1.
    pub jitter: f64,
    /// Questions cost money there.
    pub metered: bool,
}

impl Pause {
    fn after(self, pause: Duration) -> Duration {
        self.jittered(if self.metered { pause * METERED } else { pause })
    }

    /// Three quarters to five quarters, so that devices do not ask in step.
    fn jittered(self, pause: Duration) -> Duration {
        pause.mul_f64(0.75 + 0.5 * self.jitter.clamp(0.0, 1.0))
    }
}

/// A network that has just come up still waits for its routes and name servers.
const FIRST: Duration = Duration::from_millis(500);
const WHEN_REACHED: Duration = Duration::from_secs(60);
const WHEN_CAPTIVE: Duration = Duration::from_secs(10);
/// Doubled with each failure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// In a row, until a network counts as leading nowhere.
const FAILURES: u8 = 3;
/// Between questions of a network that is in doubt.
const IN_DOUBT: Duration = Duration::from_millis(300);
/// An answer dispels doubts for so long, the first time; doubled while they come again.
const TRUSTED: Duration = Duration::from_secs(5);
const MOST_DOUBLED: u8 = 5;
/// Doubts that are further apart have nothing to do with each other.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// So much more seldom where bytes cost.
const METERED: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Pause = Pause { jitter: 0.5, metered: false };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn three_failures_are_nothing_and_one_answer_is_all() {
        let mut horizon = Horizon::new(at(0), 1.0);
        assert!(!horizon.ask(at(0), false, PAUSE), "not at once");
        for (now, changed) in [(1, false), (3, false), (7, true), (15, false)] {
            assert!(horizon.ask(at(now), false, PAUSE), "{now}: {:?}", horizon.due());
            assert!(!horizon.ask(at(now + 100), false, PAUSE), "one question at a time");
            assert_eq!(horizon.on_outcome(at(now), Outcome::Nothing, PAUSE), changed, "{now}");
        }
        assert_eq!((horizon.reach(), horizon.due()), (Reach::Nothing, Some(at(31))));
        assert!(horizon.ask(at(31), false, PAUSE));
        assert!(horizon.on_outcome(at(31), Outcome::Internet(Duration::ZERO), PAUSE));
        assert_eq!((horizon.reach(), horizon.due()), (Reach::Internet, Some(at(91))));
    }

    #[test]
    fn where_bytes_move_nobody_asks_but_a_portal_is_asked_again() {
        let mut horizon = Horizon::new(at(0), 0.0);
        assert!(horizon.ask(at(0), true, PAUSE), "whether it would answer is not known yet");
        assert!(horizon.on_outcome(at(0), Outcome::Internet(Duration::ZERO), PAUSE));
        assert_eq!((horizon.reach(), horizon.due()), (Reach::Internet, Some(at(60))));
        assert!(!horizon.ask(at(60), true, PAUSE));
        assert_eq!(horizon.due(), Some(at(120)));
        let mut horizon = Horizon::new(at(0), 0.0);
        horizon.answered = true;
        assert!(!horizon.ask(at(0), true, PAUSE));
        assert_eq!((horizon.reach(), horizon.due()), (Reach::Internet, Some(at(60))));
        let metered = Pause { metered: true, ..PAUSE };
        assert!(!horizon.ask(at(60), true, metered));
        assert_eq!(horizon.due(), Some(at(360)));
        assert!(horizon.ask(at(360), false, PAUSE));
        let portal = Some("http://login.example/".to_owned());
        assert!(horizon.on_outcome(at(360), Outcome::Captive(portal.clone()), PAUSE));
        assert_eq!((horizon.reach(), horizon.portal()), (Reach::Captive, portal.as_deref()));
        assert!(horizon.ask(at(370), true, PAUSE), "the portal's own pages move");
        assert!(!horizon.on_outcome(at(370), Outcome::Captive(portal), PAUSE));
        assert!(horizon.ask(at(380), true, PAUSE));
        assert!(horizon.on_outcome(at(380), Outcome::Internet(Duration::ZERO), PAUSE));
        assert_eq!(horizon.portal(), None);
    }

    #[test]
    fn a_network_in_doubt_is_asked_at_once_and_soon_again() {
        let reached = || {
            let mut horizon = Horizon::new(at(0), 0.0);
            assert!(horizon.ask(at(0), false, PAUSE));
            horizon.on_outcome(at(0), Outcome::Internet(Duration::ZERO), PAUSE);
            horizon
        };
        let mut horizon = reached();
        horizon.doubt(at(4));
        assert!(!horizon.is_in_doubt(), "it has just answered");
        horizon.doubt(at(20));
        let mut now = at(20);
        for changed in [false, false, true] {
            assert!(horizon.is_in_doubt() && horizon.ask(now, false, PAUSE), "{now:?}");
            assert_eq!(horizon.on_outcome(now, Outcome::Nothing, PAUSE), changed);
            now += Duration::from_millis(300);
        }
        assert_eq!((horizon.reach(), horizon.is_in_doubt()), (Reach::Nothing, false));
        assert_eq!(horizon.due(), Some(at(20) + Duration::from_millis(8_600)), "no hurry any more");

        // What comes meanwhile dispels it without an answer.
        let mut horizon = reached();
        horizon.doubt(at(20));
        assert!(!horizon.ask(at(20), true, PAUSE));
        assert_eq!((horizon.reach(), horizon.is_in_doubt()), (Reach::Internet, false));
    }

    #[test]
    fn a_doubt_that_comes_again_and_again_is_heeded_more_and_more_seldom() {
        let mut horizon = Horizon::new(at(0), 0.0);
        assert!(horizon.ask(at(0), false, PAUSE));
        horizon.on_outcome(at(0), Outcome::Internet(Duration::ZERO), PAUSE);
        let mut asked = Vec::new();
        for second in 0..300 {
            horizon.doubt(at(second));
            if horizon.ask(at(second), false, PAUSE) {
                asked.push(second);
                horizon.on_outcome(at(second), Outcome::Internet(Duration::ZERO), PAUSE);
            }
        }
        assert_eq!(asked, [5, 15, 35, 75, 135, 195, 255], "then it is asked each minute anyhow");
    }
}
