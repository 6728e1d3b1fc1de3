//! When an access point is looked for again that was lost at the edge of its reach, or soon after it was joined.
//!
//! There each attempt takes much of the channel's air, and holds up what else this radio has to send: its frames have the lowest rate and all their attempts.
//! Where another network is up, it is left alone for a while, or until it is heard better. One that is heard well beside other networks is looked for at
//! once: wpa_supplicant by itself looks every few seconds only.

use std::time::Duration;

use units::{MacAddress, Timestamp};

/// One that was there for so long was lost for another reason, and is looked for at once, ...
const LASTING: Duration = Duration::from_secs(10);
/// ... unless it is heard no better than this: there 802.11's lowest rates are what is left, and those only between fades.
const EDGE_DBM: f32 = -85.0;
/// Until it is looked for again; doubles each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// It is looked for earlier if it is heard better by so much, dB: more than the mean of its beacons varies by.
const NEARER: f32 = 3.0;
/// One that is heard and not joined is looked for again after this; doubles each time, up to [`LONGEST_PAUSE`], and is as at first after so long unheard.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// It has to be heard so well, dBm, to be looked for out of turn: after any look the kernel asks all its access points whether they are still there, and to
/// one that is far away that takes much of the air, as joining it does.
const HEARD_WELL_DBM: f32 = -80.0;
const UNHEARD: Duration = Duration::from_secs(10);
/// wpa_supplicant looks everywhere at once when it has lost one. There may be a better one elsewhere.
const AFTER_A_LOSS: Duration = Duration::from_secs(2);

fn is_heard_well(signal_dbm: f32) -> bool {
    signal_dbm > HEARD_WELL_DBM
}

/// What is remembered of how a network was lost.
#[derive(Default)]
pub(super) struct Patience {
    up_since: Option<Timestamp>,
    pause: Duration,
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy)]
struct Waiting {
    until: Timestamp,
    access_point: MacAddress,
    signal_dbm: Option<f32>,
}

impl Patience {
    /// It is there.
    pub fn came_up(&mut self, now: Timestamp) {
        self.up_since.get_or_insert(now);
        self.waiting = None;
    }

    /// It is lost, and its access point was heard so well lately. Gives for how long it should be left alone, if so.
    pub fn lost(
        &mut self,
        now: Timestamp,
        access_point: MacAddress,
        signal_dbm: Option<f32>,
    ) -> Option<Duration> {
        let up_since = self.up_since.take()?;
        if now.since(up_since) >= LASTING {
            self.pause = Duration::ZERO;
            if signal_dbm.is_none_or(|signal| signal > EDGE_DBM) {
                return None;
            }
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.waiting = Some(Waiting { until: now + self.pause, access_point, signal_dbm });
        Some(self.pause)
    }

    /// The access point that is left alone, and until when at the longest.
    pub fn waiting(&self) -> Option<(MacAddress, Timestamp)> {
        self.waiting.map(|waiting| (waiting.access_point, waiting.until))
    }

    /// Whether it is to be looked for now, once: the pause is over, it is heard better (`signal_dbm`: lately), or no other network is up. `other`: how well
    /// another access point of the network is heard, which has nothing to do with that one.
    pub fn ends(
        &mut self,
        now: Timestamp,
        signal_dbm: Option<f32>,
        other: Option<f32>,
        others_up: bool,
    ) -> bool {
        let is_nearer = |then: f32| signal_dbm.is_some_and(|signal| signal >= then + NEARER);
        let ended = self.waiting.is_some_and(|waiting| {
            let is_due = !others_up || now >= waiting.until;
            is_due || waiting.signal_dbm.is_some_and(is_nearer) || other.is_some_and(is_heard_well)
        });
        if ended {
            self.waiting = None;
        }
        ended
    }
}

/// When an access point that is heard is looked for.
#[derive(Default)]
pub(super) struct Looks {
    again: Option<Timestamp>,
    pause: Duration,
    heard: Option<Timestamp>,
}

impl Looks {
    /// It is there.
    pub fn came_up(&mut self) {
        *self = Self::default();
    }

    /// It is lost.
    pub fn lost(&mut self, now: Timestamp) {
        self.again = Some(now + AFTER_A_LOSS);
    }

    /// Whether it is to be looked for now, once; how well it is heard, if it is.
    pub fn is_due(&mut self, now: Timestamp, signal_dbm: Option<f32>) -> bool {
        if self.heard.is_some_and(|heard| now.since(heard) >= UNHEARD) {
            *self = Self::default();
        }
        if !signal_dbm.is_some_and(is_heard_well) {
            return false;
        }
        self.heard = Some(now);
        let is_due = self.again.is_none_or(|again| now >= again);
        if is_due {
            self.pause = (self.pause * 2).clamp(FIRST_LOOK, LONGEST_PAUSE);
            self.again = Some(now + self.pause);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: MacAddress = MacAddress([2, 0, 0, 0, 1, 0]);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn one_that_was_there_for_long_is_looked_for_at_once() {
        for signal in [None, Some(-60.0), Some(-84.0)] {
            let mut patience = Patience::default();
            patience.came_up(at(1));
            patience.came_up(at(9));
            assert_eq!(patience.lost(at(11), POINT, signal), None);
            assert!(patience.waiting().is_none() && !patience.ends(at(12), None, None, true));
        }
    }

    #[test]
    fn one_that_was_there_for_long_and_is_hardly_heard_any_more_waits_like_the_first_time() {
        let mut patience = Patience::default();
        for _ in 0..2 {
            patience.came_up(at(1));
            assert_eq!(patience.lost(at(60), POINT, Some(-94.0)), Some(FIRST_PAUSE));
            assert!(
                !patience.ends(at(64), Some(-92.0), None, true)
                    && patience.ends(at(65), Some(-94.0), None, true)
            );
        }
        patience.came_up(at(65));
        assert_eq!(patience.lost(at(66), POINT, Some(-94.0)), Some(2 * FIRST_PAUSE));
    }

    #[test]
    fn pauses_double_until_one_lasts() {
        let mut patience = Patience::default();
        let mut now = at(1);
        let mut loses = |stays: u64| {
            patience.came_up(now);
            now += Duration::from_secs(stays);
            let pause = patience.lost(now, POINT, Some(-80.0));
            if let Some(pause) = pause {
                assert_eq!(patience.waiting(), Some((POINT, now + pause)));
                assert!(!patience.ends(now + pause - Duration::from_millis(1), Some(-78.0), None, true));
                now += pause;
                assert!(patience.ends(now, None, None, true) && !patience.ends(now, None, None, true));
            }
            pause.map(|pause| pause.as_secs())
        };
        let pauses: Vec<Option<u64>> = [3, 3, 3, 3, 3, 3, 30, 3].map(&mut loses).into();
        assert_eq!(pauses, [Some(5), Some(10), Some(20), Some(40), Some(60), Some(60), None, Some(5)]);
    }

    #[test]
    fn one_that_is_heard_well_is_looked_for_at_once_and_then_more_and_more_seldom() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(at(1), Some(-80.0)) && !looks.is_due(at(1), None), "hardly heard");
        let due: Vec<u64> = (1..200).filter(|second| looks.is_due(at(*second), Some(-79.0))).collect();
        assert_eq!(due, [1, 2, 4, 8, 16, 32, 64, 124, 184]);
        assert!(
            !looks.is_due(at(204), None) && !looks.is_due(at(208), Some(-60.0)),
            "only hidden for a moment"
        );
        assert!(looks.is_due(at(218), Some(-60.0)), "it was away");
        looks.came_up();
        looks.lost(at(300));
        assert!(!looks.is_due(at(301), Some(-60.0)) && looks.is_due(at(302), Some(-60.0)));
    }

    #[test]
    fn one_that_is_heard_better_or_the_last_one_does_not_wait() {
        let lost = |signal: Option<f32>| {
            let mut patience = Patience::default();
            patience.came_up(at(1));
            patience.lost(at(2), POINT, signal).unwrap();
            patience
        };
        assert!(!lost(Some(-93.0)).ends(at(3), Some(-90.5), None, true));
        assert!(lost(Some(-93.0)).ends(at(3), Some(-90.0), None, true));
        assert!(!lost(None).ends(at(3), Some(-60.0), None, true), "nobody knows that it was worse");
        assert!(lost(Some(-93.0)).ends(at(3), None, None, false));
        let other = |signal| lost(Some(-93.0)).ends(at(3), None, Some(signal), true);
        assert!(other(-79.0) && !other(-81.0), "another access point of it");
    }
}
