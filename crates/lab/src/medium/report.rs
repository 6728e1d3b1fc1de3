//! What the air carried in a run, and whether the run counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The counts of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Why the run says nothing; none if it counts.
    pub void: Option<String>,
    /// Counts of each radio, by its number.
    pub radios: BTreeMap<String, RadioCounts>,
    /// Seconds of frames and answers on the air, by channel in MHz.
    pub air_seconds: BTreeMap<u32, f64>,
    /// How often attempts collided.
    pub collisions: u64,
    /// How late the front end was for the medium, on average and at worst, in microseconds.
    pub mean_lateness_us: f64,
    /// The same at worst.
    pub worst_lateness_us: f64,
}

/// What became of a radio's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RadioCounts {
    /// Frames it sent.
    pub offered: u64,
    /// Attempts on the air.
    pub attempts: u64,
    /// Frames acknowledged.
    pub acknowledged: u64,
    /// Frames to groups and others that nobody answers.
    pub unanswered: u64,
    /// Frames given up.
    pub failed: u64,
    /// Frames that its full queue refused, as a real one does.
    pub queue_dropped: u64,
    /// Frames that it no longer had when it was told their outcome, though none of its interfaces had been taken down meanwhile; a few where
    /// that was a monitor, of which the kernel does not tell.
    pub gone: u64,
}

impl Report {
    /// A report of a run in which the simulated radios dropped frames by themselves is void: no real radio would have.
    pub(super) fn judge(&mut self, overflowed: bool) {
        let dropping = self.radios.iter().find(|(_, counts)| counts.gone >= DROPPED_AT_ONCE);
        self.void = if overflowed {
            Some("the kernel had more frames for the medium than there was room for".to_owned())
        } else {
            dropping.map(|(radio, RadioCounts { gone, .. })| {
                format!("{gone} frames were gone from radio {radio} before they had been sent: dropped by the kernel (tx_dropped)")
            })
        };
    }
}

/// How many a simulated radio with 200 frames drops before it takes another: the oldest, until it has 99 (`mac80211_hwsim`, `MAX_QUEUE` and
/// `WARN_QUEUE`).
const DROPPED_AT_ONCE: u64 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(gone: u64) -> Option<String> {
        let counts = RadioCounts { gone, ..RadioCounts::default() };
        let mut report = Report { radios: BTreeMap::from([("2".to_owned(), counts)]), ..Report::default() };
        report.judge(false);
        report.void
    }

    #[test]
    fn a_run_is_void_where_a_radio_made_room_for_itself() {
        assert!(judged(101).unwrap().starts_with("101 frames were gone from radio 2"));
    }

    #[test]
    fn what_a_monitor_left_behind_voids_no_run() {
        assert_eq!(judged(100), None);
    }
}
