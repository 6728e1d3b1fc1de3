//! What an acknowledgement tells of a path: round trip, one-way delay and the rate at which packets arrived. Samples that are old are forgotten.

use std::time::Duration;

use units::{BitRate, Bytes, Timestamp};
use wire::frame::Ack;

use super::Path;
use super::sent::{AckOutcome, Delivered};

/// Lateness above which a path is taken to reorder, rather than to have timers.
const MUCH_REORDERING: Duration = Duration::from_millis(5);
/// One-way delay samples are averaged over this many round-trip times. By time, not by number: after a pause one sample must
/// tell that the queue is gone.
const DELAY_MEMORY: f64 = 2.0;
/// A round-trip time that is older than this many of itself is forgotten when a new sample comes ...
pub(super) const STALE_RTTS: u32 = 6;
/// ... or older than this and that many of the sample: in a fade it has been seconds.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// One this long is forgotten, however new, when samples come that are so many times shorter: what waited in a fade is gone, and with the old one the path
/// would be paced as if it waited still ...
const LONG: Duration = Duration::from_millis(300);
const SHORTER: u32 = 4;
/// ... so many in a row: a single one may have overtaken the others, which are then not lost.
const SHORT_SAMPLES: u32 = 2;
/// From so many samples on a smoothed round-trip time is one.
const SAMPLES_TO_TRUST: u32 = 8;

impl Path {
    /// Round-trip time, one-way delay and delivery rate of the largest acknowledged packet, if it is news.
    pub(super) fn take_samples(
        &mut self,
        now: Timestamp,
        ack: &Ack,
        outcome: &AckOutcome,
    ) -> (Option<BitRate>, bool) {
        let Some((sent_at, base, application_limited)) = outcome.largest else {
            return (None, self.application_limited());
        };
        let elapsed = now.since(sent_at);
        let delay = Duration::from_micros(ack.delay_micros).min(elapsed / 2);
        // Where packets overtake each other the largest number is the luckiest: take the mean of what came with it.
        let mean_sent_at = outcome.mean_sent_at().filter(|_| self.peer_reordering > MUCH_REORDERING);
        let luck = mean_sent_at.map_or(Duration::ZERO, |mean| sent_at.since(mean));
        let age = now.since(std::mem::replace(&mut self.sampled_at, now));
        let sample = elapsed - delay + luck;
        let stale = (sample * STALE_RTTS).max(STALE_AFTER).min(self.rtt.smoothed() * STALE_RTTS);
        let is_short = self.rtt.smoothed() > LONG && sample * SHORTER < self.rtt.smoothed();
        let reorders = self.peer_reordering > MUCH_REORDERING;
        self.short_samples = if is_short && !reorders { self.short_samples + 1 } else { 0 };
        if self.rtt.is_measured() && (age > stale || self.short_samples >= SHORT_SAMPLES) {
            self.rtt.reset();
            self.short_samples = 0;
        }
        self.rtt_samples = if self.rtt.is_measured() { self.rtt_samples.saturating_add(1) } else { 1 };
        self.rtt.on_sample(sample);
        let doubt = rtt_doubt(self.rtt.variation(), self.rtt_samples);
        self.base_rtt.on_sample(now, self.rtt.smoothed() + doubt);
        let delay = one_way_delay(ack, sent_at) as f64 + luck.as_secs_f64() * 1e6;
        let memory = DELAY_MEMORY * self.rtt.smoothed().as_secs_f64().max(0.01);
        let gain = 1.0 - (-age.as_secs_f64() / memory).exp();
        self.one_way_delay = Some(match self.one_way_delay {
            Some(smoothed) => smoothed + (delay - smoothed) * gain,
            None => delay,
        });
        let latest =
            Delivered { receive_time: ack.receive_time, received_bytes: ack.received_bytes, known: true };
        if !self.delivered.known || latest.receive_time.wrapping_sub(self.delivered.receive_time) as i32 >= 0
        {
            self.delivered = latest;
        }
        if !base.known {
            return (None, application_limited);
        }
        let micros = latest.receive_time.wrapping_sub(base.receive_time);
        let bytes = latest.received_bytes.wrapping_sub(base.received_bytes);
        if micros == 0 || micros > i32::MAX as u32 {
            return (None, application_limited);
        }
        let rate =
            BitRate::from_bytes_over(Bytes(u64::from(bytes)), Duration::from_micros(u64::from(micros)));
        (Some(rate), application_limited)
    }
}

/// How much a smoothed round-trip time may be too short because it rests on few samples: one lucky first packet on a path with jitter
/// would pass for the path's base, and every later one for a queue.
fn rtt_doubt(variation: Duration, samples: u32) -> Duration {
    variation * SAMPLES_TO_TRUST.saturating_sub(samples) / SAMPLES_TO_TRUST
}

/// Receive time less send time, microseconds: off by what the clocks differ, the same on all paths.
pub(super) fn one_way_delay(ack: &Ack, sent_at: Timestamp) -> i64 {
    i64::from(ack.receive_time.wrapping_sub(sent_at.as_micros() as u32) as i32)
}

#[cfg(test)]
mod tests {
    use policy::RttEstimator;

    use super::*;

    #[test]
    fn a_lucky_first_packet_does_not_pass_for_the_base() {
        let mut rtt = RttEstimator::default();
        let mut base: Option<Duration> = None;
        for (number, millis) in [29, 55, 50, 45, 60, 52, 48, 55, 50, 51].into_iter().enumerate() {
            rtt.on_sample(Duration::from_millis(millis));
            let seen = rtt.smoothed() + rtt_doubt(rtt.variation(), number as u32 + 1);
            base = Some(base.map_or(seen, |base| base.min(seen)));
        }
        let base = base.unwrap();
        assert!(base > Duration::from_millis(41), "{base:?}");
        assert_eq!(rtt_doubt(rtt.variation(), SAMPLES_TO_TRUST), Duration::ZERO);
    }
}
