//! How much of something may be done: a bucket that fills evenly.

use units::Timestamp;

/// See the module. Counts in millionths, so that slow rates fill it too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    per_second: u64,
    most: u64,
    left: u64,
    as_of: Timestamp,
}

const MILLION: u64 = 1_000_000;
/// No bucket takes longer to fill.
const LONGEST_MICROS: u64 = 60 * MILLION;

impl Allowance {
    /// A full one of `most`, filled by `per_second`.
    pub(crate) fn new(now: Timestamp, per_second: u64, most: u64) -> Self {
        let most = most.min(u64::MAX / MILLION).saturating_mul(MILLION);
        Self { per_second: per_second.min(u64::MAX / LONGEST_MICROS), most, left: most, as_of: now }
    }

    /// Takes `amount`, if so much is left.
    pub(crate) fn take(&mut self, now: Timestamp, amount: u64) -> bool {
        let micros = (now.since(self.as_of).as_micros() as u64).min(LONGEST_MICROS);
        if micros > 0 {
            self.left = self.left.saturating_add(micros.saturating_mul(self.per_second)).min(self.most);
            self.as_of = now;
        }
        let amount = amount.saturating_mul(MILLION);
        let may = self.left >= amount;
        if may {
            self.left -= amount;
        }
        may
    }

    /// Nothing of it is used: forgetting it changes nothing.
    pub(crate) fn is_full(&self, now: Timestamp) -> bool {
        let micros = (now.since(self.as_of).as_micros() as u64).min(LONGEST_MICROS);
        self.left.saturating_add(micros.saturating_mul(self.per_second)) >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_evenly_up_to_its_most() {
        let at = Timestamp::from_millis;
        let mut allowance = Allowance::new(at(0), 10, 2);
        assert!(allowance.take(at(0), 1) && allowance.take(at(0), 1));
        assert!(!allowance.take(at(99), 1));
        assert!(allowance.take(at(100), 1));
        assert!(!allowance.is_full(at(200)));
        assert!(allowance.is_full(at(300)));
        assert!(allowance.take(at(60_000), 2) && !allowance.take(at(60_000), 1));
    }

    #[test]
    fn any_figures_are_borne() {
        let mut allowance = Allowance::new(Timestamp::ZERO, u64::MAX, u64::MAX);
        assert!(allowance.take(Timestamp::FAR_FUTURE, 1_000_000));
        assert!(!allowance.take(Timestamp::FAR_FUTURE, u64::MAX));
    }
}
