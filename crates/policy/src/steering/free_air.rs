//! Whether air that is free has been so for a while.
//!
//! For a moment the best access point always leaves some: while its sender makes up for lost packets or looks for a new rate, and above all when it has just
//! become the best one, and traffic has yet to move to it. If slower ones took that, its sender would never find it.

use std::time::Duration;

use units::Timestamp;

/// Air is free if it was during the part that runs and the one before.
const PART: Duration = Duration::from_secs(1);

/// The least that was free on a channel lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeAir {
    since: Timestamp,
    /// Since then, and in the part before; nothing is free until this is known.
    least: f64,
    before: f64,
}

impl FreeAir {
    /// Nothing is known yet.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, least: 0.0, before: 0.0 }
    }

    /// Takes what is free now, beyond what is kept free; gives what has been free for a while.
    pub fn update(&mut self, now: Timestamp, spare: f64) -> f64 {
        if now.since(self.since) >= PART {
            (self.before, self.least, self.since) = (self.least, spare, now);
        }
        self.least = self.least.min(spare);
        self.before.min(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_for_a_moment_is_not() {
        let mut free = FreeAir::new(Timestamp::ZERO);
        let at = |step: u64| Timestamp::from_millis(step * 100);
        let spare = |step: u64| if step == 34 { -0.02 } else { 0.5 };
        let seen: Vec<f64> = (0..60).map(|step| free.update(at(step), spare(step))).collect();
        assert!(seen[..20].iter().all(|free| *free == 0.0), "{seen:?}");
        assert!(seen[20..34].iter().all(|free| *free == 0.5), "{seen:?}");
        assert!(seen[34..50].iter().all(|free| *free == -0.02), "{seen:?}");
        assert!(seen[50..].iter().all(|free| *free == 0.5), "{seen:?}");
    }
}
