//! How often neighbours are asked for a sign of life, and how much may be said at all. Pure.

use std::time::Duration;

use units::Timestamp;

/// The pace for one neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// When packets from its any0 address were last seen.
    seen: Option<Timestamp>,
    /// Since when this has been so without a pause.
    since: Timestamp,
    next: Timestamp,
}

impl Pace {
    /// Packets came from its any0 address.
    pub fn on_traffic(&mut self, now: Timestamp) {
        if !self.is_used(now) {
            self.since = now;
            self.next = now;
        }
        self.seen = Some(now);
    }

    /// Whether it is time to ask.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.next
    }

    /// When it is time to ask.
    pub fn due(&self) -> Timestamp {
        self.next
    }

    /// It was asked.
    pub fn on_asked(&mut self, now: Timestamp, maxdiff: Duration) {
        self.next = now + if self.is_used(now) { quick(maxdiff) } else { IDLE };
    }

    /// How much staler a link may be than another: as configured, but no less than the time between questions.
    pub fn tolerance(&self, now: Timestamp, maxdiff: Duration) -> Duration {
        // At first the signs of life are as old as they were in idle times.
        let is_settled = self.is_used(now) && now.since(self.since) >= SETTLING + 4 * quick(maxdiff);
        if is_settled { maxdiff.max(2 * quick(maxdiff)) } else { maxdiff.max(2 * IDLE + SETTLING) }
    }

    fn is_used(&self, now: Timestamp) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) < LINGERING)
    }
}

/// Two questions in the time of `maxdiff`, so that the loss of one decides nothing.
fn quick(maxdiff: Duration) -> Duration {
    (maxdiff / 2).clamp(QUICKEST, IDLE)
}

/// How much may still be said or looked at: each is full after a second.
#[derive(Clone, Copy, Debug)]
pub struct Budgets {
    /// Datagrams of unknown hosts that are tried with every key.
    pub trials: Budget,
    /// Answers to hellos.
    pub answers: Budget,
    /// Broadcasts of our own programs.
    pub broadcasts: Budget,
    /// Broadcasts of neighbours.
    pub deliveries: Budget,
}

impl Budgets {
    /// All full.
    pub fn new(now: Timestamp) -> Self {
        let budget = |per_second| Budget { per_second, left: per_second, filled: now };
        Self {
            trials: budget(200),
            answers: budget(4_000),
            broadcasts: budget(200),
            deliveries: budget(1_000),
        }
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    per_second: u32,
    left: u32,
    filled: Timestamp,
}

impl Budget {
    /// Takes one, if there is one left.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let fresh = (now.since(self.filled).as_secs_f64() * f64::from(self.per_second)) as u32;
        if fresh > 0 {
            self.left = self.left.saturating_add(fresh).min(self.per_second);
            self.filled = now;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }
}

/// Between questions while nothing flows.
const IDLE: Duration = Duration::from_secs(1);
const QUICKEST: Duration = Duration::from_millis(5);
/// A neighbour is in use for so long after its last packet.
const LINGERING: Duration = Duration::from_secs(2);
const SETTLING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    const MAXDIFF: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn questions_come_quickly_while_something_flows() {
        let mut pace = Pace::default();
        assert!(pace.is_due(at(0)));
        pace.on_asked(at(0), MAXDIFF);
        assert_eq!(pace.due(), at(1_000));
        assert!(pace.tolerance(at(0), MAXDIFF) >= 2 * IDLE);
        pace.on_traffic(at(500));
        assert!(pace.is_due(at(500)), "at once");
        pace.on_asked(at(500), MAXDIFF);
        assert_eq!(pace.due(), at(550));
        pace.on_traffic(at(600));
        assert!(pace.tolerance(at(600), MAXDIFF) >= 2 * IDLE, "not before all links were asked");
        assert_eq!(pace.tolerance(at(900), MAXDIFF), MAXDIFF);
        pace.on_asked(at(2_700), MAXDIFF);
        assert_eq!(pace.due(), at(3_700), "nothing flows any more");
        pace.on_traffic(at(3_000));
        pace.on_asked(at(3_000), Duration::from_millis(1));
        assert_eq!(pace.due(), at(3_005));
        pace.on_asked(at(3_005), Duration::from_secs(60));
        assert_eq!(pace.due(), at(4_005));
    }

    #[test]
    fn a_budget_is_bounded_and_fills_again() {
        let mut budget = Budgets::new(at(0)).trials;
        assert_eq!((0..1_000).filter(|_| budget.take(at(1))).count(), 200);
        assert_eq!((0..1_000).filter(|_| budget.take(at(501))).count(), 100);
        assert_eq!((0..1_000).filter(|_| budget.take(at(99_000))).count(), 200);
    }
}
