//! Whether air that is free has been so for a while.
//!
//! For a moment the best access point always leaves some: while its sender makes up for lost packets or looks for a new rate, and above all when it has just
//! become the best one, and traffic has yet to move to it. If slower ones took that, its sender would never find it.

use std::time::Duration;

use units::Timestamp;

/// Air is free as far as it was on average in each of the last two parts: over several visits, of which each begins with all that was kept for us.
const PART: Duration = Duration::from_secs(1);

/// The least that was free on a channel lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeAir {
    since: Timestamp,
    /// Since then.
    sum: f64,
    count: u32,
    /// On average in the last part and in the one before; nothing is free until both are known.
    before: [f64; 2],
}

impl FreeAir {
    /// Nothing is known yet.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, sum: 0.0, count: 0, before: [0.0; 2] }
    }

    /// Slower ones have left only to be compared again: that there was room for them is known, and from now on it is seen whether there still is.
    pub fn without_those_compared(now: Timestamp) -> Self {
        Self { before: [1.0; 2], ..Self::new(now) }
    }

    /// Takes what is free now, beyond what is kept free; gives what has been free for a while.
    pub fn update(&mut self, now: Timestamp, spare: f64) -> f64 {
        if now.since(self.since) >= PART && self.count > 0 {
            let before = [self.sum / f64::from(self.count), self.before[0]];
            *self = Self { before, ..Self::new(now) };
        }
        (self.sum, self.count) = (self.sum + spare, self.count + 1);
        self.before[0].min(self.before[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_for_a_moment_is_not() {
        let at = |step: u64| Timestamp::from_millis(step * 100);
        let run = |spare: fn(u64) -> f64| -> Vec<f64> {
            let mut free = FreeAir::new(Timestamp::ZERO);
            (0..60).map(|step| free.update(at(step), spare(step))).collect()
        };
        let near = |free: &f64, by_hand: f64| (free - by_hand).abs() < 1e-9;
        let seen = run(|_| 0.5);
        assert!(seen[..20].iter().all(|free| *free == 0.0), "{seen:?}");
        assert!(seen[20..].iter().all(|free| near(free, 0.5)), "{seen:?}");
        // Free for a moment in a second that is full.
        let seen = run(|step| if step == 33 { 0.5 } else { 0.0 });
        assert!(seen.iter().all(|free| *free <= 0.05 + 1e-9), "{seen:?}");
        // Each visit of half a second begins with what was kept.
        let seen = run(|step| if step % 5 == 0 { -0.1 } else { 0.4 });
        assert!(seen[20..].iter().all(|free| near(free, 0.3)), "{seen:?}");
    }
}
