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
    /// Frames that a radio no longer had when their outcome was reported, though none of its interfaces had been taken down meanwhile.
    pub gone: u64,
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
}

impl Report {
    /// A report of a run in which the simulated radios dropped frames by themselves is void: no real radio would have.
    pub(super) fn judge(&mut self, overflowed: bool) {
        self.void = if overflowed {
            Some("the kernel had more frames for the medium than there was room for".to_owned())
        } else if self.gone > 0 {
            Some(format!(
                "{} frames were gone from the simulated radios before they had been sent: dropped by the kernel (tx_dropped)",
                self.gone
            ))
        } else {
            None
        };
    }
}
