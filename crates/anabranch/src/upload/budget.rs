//! What a neighbour may lend still: so much in all, so much in a second.

use std::time::Duration;

use units::{BitRate, Timestamp};

/// What may be carried at once after a pause, of what the limit allows in a second.
const BURST: f64 = 0.1;

/// What may be lent still.
pub(super) struct Budget {
    rate: Option<BitRate>,
    /// Bytes.
    volume: Option<u64>,
    spent: u64,
    /// Bytes that may be carried now.
    tokens: f64,
    filled: Timestamp,
}

impl Budget {
    pub(super) fn new(now: Timestamp, rate: Option<BitRate>, volume: Option<u64>) -> Self {
        Self { rate, volume, spent: 0, tokens: 0.0, filled: now }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.volume.is_some_and(|volume| self.spent >= volume)
    }

    /// `None` if more may be carried now, else when.
    pub(super) fn wait(&mut self, now: Timestamp) -> Option<Timestamp> {
        let rate = self.rate?.0.max(1) as f64 / 8.0;
        let most = (rate * BURST).max(1.0);
        self.tokens = (self.tokens + now.since(self.filled).as_secs_f64() * rate).min(most);
        self.filled = now;
        (self.tokens <= 0.0).then(|| now + Duration::from_secs_f64((1.0 - self.tokens) / rate))
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.spent += bytes;
        // What was too much is owed.
        self.tokens -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_kept_and_pauses_give_a_tenth_of_a_second() {
        let start = Timestamp::ZERO;
        let mut budget = Budget::new(start, Some(BitRate(800_000)), Some(30_000));
        let mut now = start + Duration::from_secs(10);
        let mut carried = 0;
        while now < start + Duration::from_millis(10_200) {
            match budget.wait(now) {
                Some(later) => now = later,
                None => {
                    budget.spend(1_000);
                    carried += 1;
                }
            }
        }
        assert!((30..=32).contains(&carried), "{carried}");
        assert!(budget.is_used_up());
    }
}
