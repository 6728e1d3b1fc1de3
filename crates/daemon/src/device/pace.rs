//! How often users may have programs held to networks: each one costs a control group and a new table in the kernel. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;

/// What each user has used of late.
#[derive(Debug, Default)]
pub struct Pace {
    /// When a user's allowance is whole again.
    whole_at: BTreeMap<u32, Timestamp>,
}

impl Pace {
    /// Whether `user` may go on now; if so, that is counted.
    pub fn admits(&mut self, now: Timestamp, user: u32) -> bool {
        self.whole_at.retain(|_, at| *at > now);
        let whole = self.whole_at.get(&user).copied().unwrap_or(now).max(now);
        let fits = whole.since(now) + EACH <= EACH * BURST;
        let room = self.whole_at.contains_key(&user) || self.whole_at.len() < MOST_USERS;
        if fits && room {
            self.whole_at.insert(user, whole + EACH);
        }
        fits && room
    }
}

/// One more after this much time.
const EACH: Duration = Duration::from_millis(500);
/// That many at once: more than the rules that a user may have.
const BURST: u32 = 40;
/// Users that are remembered; as many must have been busy within twenty seconds for another to wait.
const MOST_USERS: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_two_a_second() {
        let mut pace = Pace::default();
        let start = Timestamp::ZERO + Duration::from_secs(9);
        let admitted = (0..200).filter(|_| pace.admits(start, 1000)).count();
        assert_eq!(admitted, 40);
        assert!(pace.admits(start, 1001), "another user");
        let later = start + Duration::from_secs(1);
        assert_eq!((0..9).filter(|_| pace.admits(later, 1000)).count(), 2);
        let much_later = later + Duration::from_secs(3_600);
        assert_eq!((0..200).filter(|_| pace.admits(much_later, 1000)).count(), 40, "never more than a burst");
    }

    #[test]
    fn memory_is_bounded_and_freed() {
        let mut pace = Pace::default();
        let start = Timestamp::ZERO + Duration::from_secs(1);
        assert_eq!((0..5_000).filter(|user| pace.admits(start, *user)).count(), MOST_USERS);
        assert!(pace.admits(start + EACH, 70_000));
        assert_eq!(pace.whole_at.len(), 1);
    }
}
