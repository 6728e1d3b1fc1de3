//! Whether what a source sends on the air is of use, as far as it can tell from the destination's word.

use std::time::Duration;

use thiserror::Error;
use units::Timestamp;

/// After so long without a neighbour that has heard something, it is said.
const SILENT: Duration = Duration::from_secs(5);
/// Frames that somebody would have heard: with fewer there was nothing to hear.
const ENOUGH: u32 = 10;

/// Why the air brings nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Silence {
    /// No adapter leads to a neighbourhood.
    #[error("no adapter of this machine leads to neighbours")]
    NoAdapter,
    /// Nobody lends its uplink for this destination and trusts this machine.
    #[error("no neighbour shares its uplink with this machine")]
    Nobody,
    /// Neighbours take part, and none hears this machine.
    #[error("none of the neighbours that share their uplinks hears this machine")]
    Unheard,
}

/// What came of frames, of one connection with the destination.
pub(super) struct Hearing {
    /// When something was heard by a neighbour last, or all began.
    heard: Timestamp,
    /// Frames sent since.
    unheard: u32,
    has_neighbours: bool,
    told: Option<Silence>,
}

impl Hearing {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { heard: now, unheard: 0, has_neighbours: false, told: None }
    }

    /// A frame went out.
    pub(super) fn handle_sent(&mut self) {
        self.unheard = self.unheard.saturating_add(1);
    }

    /// The destination has told of its neighbours, and of what they have heard.
    pub(super) fn handle_news(&mut self, now: Timestamp, has_neighbours: bool, is_heard: bool) {
        self.has_neighbours = has_neighbours;
        if is_heard {
            *self = Self { has_neighbours, ..Self::new(now) };
        }
    }

    /// What is to be told: a silence that has not been told of since something was heard.
    pub(super) fn silence(&mut self, now: Timestamp, has_adapter: bool) -> Option<Silence> {
        let is_long = now.since(self.heard) > SILENT;
        let silence = match (has_adapter, self.has_neighbours) {
            (false, _) => Silence::NoAdapter,
            (true, false) if is_long => Silence::Nobody,
            (true, true) if is_long && self.unheard >= ENOUGH => Silence::Unheard,
            _ => return None,
        };
        (self.told.replace(silence) != Some(silence)).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_machine_without_an_adapter_is_told_at_once_and_once() {
        let start = Timestamp::from_millis(1_000);
        let mut hearing = Hearing::new(start);
        assert_eq!(hearing.silence(start, false), Some(Silence::NoAdapter));
        assert_eq!(hearing.silence(start + 10 * SECOND, false), None);
        // One that came and hears nobody is another matter.
        assert_eq!(hearing.silence(start + 20 * SECOND, true), Some(Silence::Nobody));
    }

    #[test]
    fn an_air_that_falls_silent_on_the_way_is_told_each_time() {
        let start = Timestamp::from_millis(1_000);
        let mut hearing = Hearing::new(start);
        for round in 0..3 {
            let heard = start + (20 * round) * SECOND;
            hearing.handle_news(heard, true, true);
            (0..ENOUGH).for_each(|_| hearing.handle_sent());
            assert_eq!(hearing.silence(heard + 5 * SECOND, true), None);
            assert_eq!(hearing.silence(heard + 6 * SECOND, true), Some(Silence::Unheard));
            assert_eq!(hearing.silence(heard + 7 * SECOND, true), None);
        }
        // The last neighbour leaves.
        hearing.handle_news(start + 50 * SECOND, false, false);
        assert_eq!(hearing.silence(start + 51 * SECOND, true), Some(Silence::Nobody));
    }

    #[test]
    fn who_sends_nothing_is_not_unheard() {
        let start = Timestamp::from_millis(1_000);
        let mut hearing = Hearing::new(start);
        hearing.handle_news(start, true, true);
        (1..ENOUGH).for_each(|_| hearing.handle_sent());
        assert_eq!(hearing.silence(start + 60 * SECOND, true), None);
    }
}
