//! Whether the machine has slept. Pure.

use std::time::Duration;

/// Compares how long the machine has been suspended in all with what it was before.
#[derive(Clone, Copy, Debug)]
pub struct SleepWatch {
    asleep: Duration,
}

impl SleepWatch {
    /// `asleep` as [`linux::clock::asleep`] has it now.
    pub const fn new(asleep: Duration) -> Self {
        Self { asleep }
    }

    /// Takes it anew; gives for how long the machine has slept since the last call, if that was long enough to matter.
    pub fn look(&mut self, asleep: Duration) -> Option<Duration> {
        let slept = asleep.saturating_sub(std::mem::replace(&mut self.asleep, asleep));
        (slept >= NOTICED).then_some(slept)
    }
}

/// Shorter naps change nothing.
const NOTICED: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_told_once_and_naps_are_not() {
        let at = Duration::from_secs;
        let mut watch = SleepWatch::new(at(100));
        assert_eq!([at(100), at(104), at(108)].map(|asleep| watch.look(asleep)), [None; 3]);
        assert_eq!(watch.look(at(3_708)), Some(at(3_600)));
        assert_eq!(watch.look(at(3_708)), None);
        assert_eq!(watch.look(at(7)), None, "to some microseconds it may go back");
    }
}
