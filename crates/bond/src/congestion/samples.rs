//! Plain samples for the controllers' unit tests.

use super::{AckSample, LossSample};
use std::time::Duration;
use units::Timestamp;

/// `acked_bytes` acknowledged on a path of 40 ms whose window was full.
pub(super) fn ack(acked_bytes: u64) -> AckSample {
    AckSample {
        now: Timestamp::from_millis(1_000),
        acked_bytes,
        prior_in_flight: u64::MAX / 4,
        latest_rtt: Duration::from_millis(40),
        smoothed_rtt: Duration::from_millis(40),
        base_rtt: Duration::from_millis(40),
        delivery_rate: None,
        application_limited: false,
        round_ended: false,
        ce_marks: 0,
        overshadowed: false,
        others_fade: false,
    }
}

/// One lost packet.
pub(super) fn loss(now: Timestamp, latest_sent: Timestamp) -> LossSample {
    LossSample { now, lost_bytes: 1_000, latest_sent, persistent: false }
}
