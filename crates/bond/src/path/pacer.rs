//! Spreads packets over time at a given rate, in bursts that are worth a wake-up.

use std::time::Duration;
use units::{BitRate, Bytes, Timestamp};

/// A burst may be ahead of the pace by this time ...
const BURST_TIME: Duration = Duration::from_micros(1_000);
/// ... but by at least these packets and at most these bytes.
const MIN_BURST_PACKETS: u64 = 2;
const MAX_BURST_BYTES: u64 = 128 * 1024;

/// Once a burst is used up, sending goes on when this part of it has come together again: few large sends cost less
/// than many small ones.
const GATHERED: u32 = 2;

/// A leaky bucket that remembers when the next packet would leave at the exact pace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    next: Timestamp,
    rest_until: Timestamp,
}

impl Pacer {
    /// When the next packet may be sent.
    pub(crate) fn ready_at(&self, rate: Option<BitRate>, packet: u64) -> Timestamp {
        rate.map_or(Timestamp::ZERO, |rate| (self.next - burst(rate, packet)).max(self.rest_until))
    }

    /// Notes a sent packet.
    pub(crate) fn on_sent(&mut self, now: Timestamp, rate: Option<BitRate>, bytes: u64) {
        let Some(rate) = rate else { return };
        self.next = self.next.max(now) + rate.time_for(Bytes(bytes));
        let ready = self.next - burst(rate, bytes);
        if ready > now && rate.bytes_in(BURST_TIME).0 > 2 * MIN_BURST_PACKETS * bytes {
            self.rest_until = ready + burst(rate, bytes) / GATHERED;
        }
    }
}

fn burst(rate: BitRate, packet: u64) -> Duration {
    let bytes = rate.bytes_in(BURST_TIME).0;
    let bytes = bytes.clamp(packet * MIN_BURST_PACKETS, MAX_BURST_BYTES.max(packet * MIN_BURST_PACKETS));
    // The packet that is about to be sent is part of the burst.
    rate.time_for(Bytes(bytes.saturating_sub(packet)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_path_sends_in_bursts() {
        let rate = Some(BitRate::from_mbps(600.0));
        let mut pacer = Pacer::default();
        let mut now = Timestamp::from_millis(100);
        let end = now + Duration::from_secs(1);
        let (mut sent, mut pauses) = (0u64, 0u64);
        while now < end {
            let ready = pacer.ready_at(rate, 1_500);
            if ready > now {
                now = ready;
                pauses += 1;
                continue;
            }
            pacer.on_sent(now, rate, 1_500);
            sent += 1;
        }
        assert!((49_900..=50_200).contains(&sent), "600 Mbit/s are 50000 packets a second, not {sent}");
        assert!(sent / pauses >= 20, "{pauses} pauses");
    }

    #[test]
    fn keeps_the_pace_over_time() {
        let rate = Some(BitRate::from_mbps(12.0));
        let mut pacer = Pacer::default();
        let mut now = Timestamp::from_millis(100);
        let end = now + Duration::from_secs(1);
        let mut sent = 0u64;
        while now < end {
            let ready = pacer.ready_at(rate, 1_500);
            if ready > now {
                now = ready;
                continue;
            }
            pacer.on_sent(now, rate, 1_500);
            sent += 1;
        }
        assert!((1_000..=1_003).contains(&sent), "12 Mbit/s are 1000 packets a second, not {sent}");
    }
}
