//! What was counted in the last half second, in constant memory.

use std::time::Duration;

use units::Timestamp;

/// How long what was heard counts (`[MULTIAP] section 6.1`).
pub const WINDOW: Duration = Duration::from_millis(500);
/// Parts in which it is counted; what leaves the window leaves it part by part.
pub(super) const PARTS: usize = 20;
const PART: Duration = Duration::from_millis(500 / PARTS as u64);

/// Counts of frames. The paper keeps ten bytes for each frame heard; sums of 25 ms serve as well and do not grow with the rate.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    /// Heard at the first attempt (N0 of `[MULTIAP] eq. 2`).
    pub first: u32,
    /// Heard at a later one only (N1).
    pub repeated: u32,
    /// Not heard at all, by the numbers that are missing. Below zero where some came late whose gap has left the window.
    pub lost: i32,
    /// Of those heard, how many at an unknown rate.
    pub unknown_rate: u32,
    /// Air time that full frames would take at the rates of those heard, with acknowledgement and gaps, in microseconds.
    pub exchange_us: u32,
    /// Times that numbers made no sense.
    pub breaks: u32,
}

/// What can be counted part by part.
pub(super) trait Count: Copy + Default {
    /// Adds what another part has.
    fn add(&mut self, other: &Self);
}

impl Count for Counts {
    fn add(&mut self, other: &Self) {
        self.first = self.first.saturating_add(other.first);
        self.repeated = self.repeated.saturating_add(other.repeated);
        self.lost = self.lost.saturating_add(other.lost);
        self.unknown_rate = self.unknown_rate.saturating_add(other.unknown_rate);
        self.exchange_us = self.exchange_us.saturating_add(other.exchange_us);
        self.breaks = self.breaks.saturating_add(other.breaks);
    }
}

impl Counts {
    pub fn heard(&self) -> u32 {
        self.first.saturating_add(self.repeated)
    }

    /// Heard or missing.
    pub fn frames(&self) -> u32 {
        self.heard().saturating_add(u32::try_from(self.lost).unwrap_or_default())
    }
}

/// Counts of the last [`WINDOW`].
#[derive(Clone, Debug)]
pub(super) struct Window<C = Counts> {
    parts: [C; PARTS],
    /// Number of the part that is being filled, since the clock's origin.
    current: u64,
}

impl<C: Count> Window<C> {
    pub fn new(now: Timestamp) -> Self {
        Self { parts: [C::default(); PARTS], current: part_of(now) }
    }

    /// Where to count what is heard now. A clock that went back a little goes on in the present part; one that jumped begins anew.
    pub fn at(&mut self, now: Timestamp) -> &mut C {
        let part = part_of(now);
        let behind = self.current.saturating_sub(part);
        let ahead = part.saturating_sub(self.current);
        if behind >= PARTS as u64 || ahead >= PARTS as u64 {
            *self = Self::new(now);
        } else {
            for passed in self.current + 1..=part {
                self.parts[place(passed)] = C::default();
            }
            self.current = self.current.max(part);
        }
        &mut self.parts[place(self.current)]
    }

    /// All that was counted in the window that ends now.
    pub fn sum(&self, now: Timestamp) -> C {
        let mut sum = C::default();
        self.parts(now).for_each(|(_, part)| sum.add(part));
        sum
    }

    /// The same part by part: the place of each, less than [`PARTS`] and the same in all windows, and what was counted in it.
    pub fn parts(&self, now: Timestamp) -> impl Iterator<Item = (usize, &C)> {
        let part = part_of(now);
        let oldest = part.saturating_sub(PARTS as u64 - 1).max(self.current.saturating_sub(PARTS as u64 - 1));
        // None if the clock went back further than the window: what is there is of another time.
        let is_of_now = part.saturating_add(PARTS as u64) > self.current;
        (oldest..=self.current).filter(move |_| is_of_now).map(|part| (place(part), &self.parts[place(part)]))
    }
}

fn part_of(now: Timestamp) -> u64 {
    now.as_nanos() / PART.as_nanos() as u64
}

fn place(part: u64) -> usize {
    (part % PARTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(10_000 + millis)
    }

    #[test]
    fn what_is_older_than_the_window_is_gone() {
        let mut window: Window = Window::new(at(0));
        window.at(at(0)).first = 5;
        window.at(at(100)).first = 7;
        assert_eq!(window.sum(at(100)).first, 12);
        assert_eq!(window.sum(at(474)).first, 12);
        assert_eq!(window.sum(at(500)).first, 7);
        assert_eq!(window.sum(at(600)).first, 0);
        window.at(at(550)).first += 1;
        assert_eq!(window.sum(at(550)).first, 8);
    }

    #[test]
    fn clocks_that_jump_lose_the_window_and_nothing_else() {
        let mut window: Window = Window::new(at(0));
        window.at(at(0)).first = 5;
        window.at(at(0) - Duration::from_millis(60)).first += 1;
        assert_eq!(window.sum(at(0)).first, 6, "a little back");
        window.at(Timestamp::ZERO).first = 1;
        assert_eq!(window.sum(Timestamp::ZERO).first, 1, "far back");
        window.at(Timestamp::FAR_FUTURE).first = 2;
        assert_eq!(window.sum(Timestamp::FAR_FUTURE).first, 2, "far ahead");
        assert_eq!(window.sum(at(0)).first, 0, "asked about the past");
    }
}
