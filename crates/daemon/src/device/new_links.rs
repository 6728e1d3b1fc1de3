//! Links that have just come up. An answer to the first question for a next hop's hardware address is often lost then, and
//! the kernel asks again only after a second; whoever waits for that network waits as long.

use std::time::{Duration, Instant};

/// When hosts that have not answered on a link are to be asked again.
#[derive(Debug, Default)]
pub struct NewLinks {
    due: Vec<(Instant, u32)>,
}

impl NewLinks {
    /// The link of the interface with this number is up since `now`.
    pub fn came_up(&mut self, now: Instant, interface: u32) {
        self.due.retain(|(_, other)| *other != interface);
        self.due.extend(PAUSES.map(|pause| (now + pause, interface)));
    }

    /// Interfaces on which it is time to ask again.
    pub fn take_due(&mut self, now: Instant) -> Vec<u32> {
        self.due.extract_if(.., |(at, _)| *at <= now).map(|(_, interface)| interface).collect()
    }

    /// How long until the next is due.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.iter().map(|(at, _)| at.saturating_duration_since(now)).min()
    }
}

/// Since the link came up: at once, for what was asked while it was down; then when an answer over a slow link should have come.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(500)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_comes_up_is_due_at_once_and_twice_again() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut links = NewLinks::default();
        assert_eq!(links.wait(start), None);
        links.came_up(start, 7);
        assert_eq!((links.take_due(start), links.take_due(start)), (vec![7], vec![]));
        assert_eq!(links.wait(at(150)), Some(Duration::from_millis(50)));
        links.came_up(at(150), 8);
        assert_eq!(links.take_due(at(150)), [8]);
        assert_eq!(links.take_due(at(200)), [7]);
        // Down and up again: counted anew.
        links.came_up(at(300), 7);
        assert_eq!(links.take_due(at(350)), [8, 7]);
        assert_eq!(links.take_due(at(500)), [7]);
        assert_eq!(links.take_due(at(800)), [8, 7]);
        assert_eq!(links.wait(at(800)), None);
    }
}
