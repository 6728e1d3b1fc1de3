//! How many bytes fill an uplink: its bandwidth-delay product, as the bond measures it.

use std::time::Duration;

use units::BitRate;

use crate::sockets::Standing;

/// Before anything was measured: the window of a new TCP connection (RFC 6928).
const FIRST: u64 = 14_600;
const WIDEST: u64 = 1_500_000;
/// What a chunk waits for beside the path's round trip: news are gathered for so long.
const NEWS_DELAY: Duration = Duration::from_millis(40);
/// An uplink that is never full shows no more than it is given, so it is given more than it has shown.
const HEADROOM: f64 = 1.25;
/// What the connection may have taken ahead of the uplink: longer than a busy machine leaves a program asleep.
const LEAD: Duration = Duration::from_millis(200);
/// Two chunks and some words.
const LEAST_WAITING: u64 = 4_000;

/// The window, in bytes, of a connection whose owner lets it have `limit` at most.
pub(super) fn window(standing: &Standing, limit: Option<BitRate>) -> u64 {
    let Some((rate, round_trip)) = standing.bandwidth.zip(standing.round_trip) else { return FIRST };
    let rate = (rate.0 as f64 * HEADROOM).min(limit.map_or(f64::INFINITY, |limit| limit.0 as f64));
    let bytes = rate / 8.0 * (round_trip + NEWS_DELAY).as_secs_f64();
    (bytes.ceil() as u64).min(WIDEST)
}

/// Bytes that may wait in the connection: more would be late where the uplink is wanted by others. What waits in front of it can still be withdrawn, or be
/// put into one report.
pub(super) fn most_waiting(standing: &Standing) -> u64 {
    let rate = standing.bandwidth.unwrap_or_default();
    rate.bytes_in(LEAD).0.max(LEAST_WAITING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(rate: Option<u64>, millis: u64) -> Standing {
        let round_trip = Some(Duration::from_millis(millis));
        Standing { adapter: None, round_trip, bandwidth: rate.map(BitRate), paths: 1 }
    }

    #[test]
    fn little_waits_in_a_slow_connection() {
        assert_eq!(most_waiting(&standing(Some(8_000_000), 60)), 200_000);
        assert_eq!(most_waiting(&standing(Some(12_000), 60)), LEAST_WAITING);
        assert_eq!(most_waiting(&standing(None, 60)), LEAST_WAITING);
    }

    #[test]
    fn it_is_the_bandwidth_delay_product() {
        // Worked by hand: 1.25 * 8 Mbit/s * (60 + 40) ms = 125,000 bytes.
        assert_eq!(window(&standing(Some(8_000_000), 60), None), 125_000);
        assert_eq!(window(&standing(Some(8_000_000), 60), Some(BitRate(1_000_000))), 12_500);
        assert_eq!(window(&standing(None, 60), None), FIRST);
        assert_eq!(window(&standing(Some(u64::MAX), 60), None), WIDEST);
    }
}
