//! Counters of a medium.

use std::time::Duration;

/// What happened to the frames of a station. Each frame that is handed over ends in exactly one of the last four, or still waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StationStatistics {
    /// Frames handed over.
    pub offered: u64,
    /// Attempts on the air.
    pub attempts: u64,
    /// Frames acknowledged.
    pub acknowledged: u64,
    /// Frames that wanted no acknowledgement and were sent.
    pub unanswered: u64,
    /// Frames given up, or lost to a change of channel.
    pub failed: u64,
    /// Frames that the full queue refused.
    pub dropped: u64,
}

/// How a channel was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelStatistics {
    /// Attempts.
    pub attempts: u64,
    /// How many attempts began while another's frame was on the air.
    pub collisions: u64,
    /// Time in which frames were on the air, counted once where there were several.
    pub frames: Duration,
    /// Time for acknowledgements, or for waiting in vain for one, counted once where there were several.
    pub answers: Duration,
}
