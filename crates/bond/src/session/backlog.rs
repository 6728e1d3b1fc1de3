//! How much bulk may wait, now and for a while after a path has vanished.

use super::Session;
use crate::congestion::Controller;
use crate::flows::QueueLimits;
use crate::path::Path;
use std::time::Duration;
use units::{BitRate, Timestamp};

/// For so long what a vanished path had carried may wait: it may be back, and the inner sender cannot know.
const VANISHED_PATIENCE: Duration = Duration::from_secs(5);
/// After that, the time in which half of it must go.
const HALVING_TIME: Duration = Duration::from_secs(1);

/// What inner senders had under way when a path vanished. It has nowhere to go but the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranded {
    bytes: u64,
    since: Timestamp,
}

impl Stranded {
    /// Bytes of it that may still wait.
    fn allowed(self, now: Timestamp) -> u64 {
        let late = now.since(self.since).saturating_sub(VANISHED_PATIENCE);
        (self.bytes as f64 * (-late.div_duration_f64(HALVING_TIME)).exp2()) as u64
    }
}

impl Session {
    /// What limits the queues now.
    pub(super) fn queue_limits(&mut self, now: Timestamp) -> QueueLimits {
        let mut limits = self.steady_limits();
        self.usual_backlog = limits.bulk;
        let stranded = self.stranded.map_or(0, |stranded| stranded.allowed(now));
        if stranded <= limits.bulk {
            self.stranded = None;
        }
        limits.bulk = limits.bulk.max(stranded);
        limits
    }

    /// A path has vanished with `in_flight` bytes: what it carried now waits for the others.
    pub(super) fn strand(&mut self, now: Timestamp, in_flight: u64) {
        let before = self.stranded.map_or(0, |stranded| stranded.allowed(now));
        let bytes = before.max(self.usual_backlog + in_flight);
        self.stranded = Some(Stranded { bytes, since: now });
    }

    /// How much later packets arrive over the slowest path than over the fastest, whoever's queues they wait in. No packet
    /// is under way for longer than a round trip, whatever the peer's clock says.
    fn delay_spread(&self) -> Duration {
        let delays = || self.data_paths().filter_map(Path::one_way_delay);
        let (least, most) = (delays().min_by(f64::total_cmp), delays().max_by(f64::total_cmp));
        let micros = least.zip(most).map_or(0.0, |(least, most)| most - least);
        let longest = self.data_paths().map(|path| path.rtt.smoothed()).max().unwrap_or_default();
        longest.min(Duration::from_micros(micros as u64))
    }

    /// Enough bulk to keep every path busy while the inner sender reacts.
    ///
    /// `rate_fast * delay difference + sum of rates * (half of (largest + smallest delay) + margin + hold) + 30 packets`
    fn steady_limits(&self) -> QueueLimits {
        const MARGIN: Duration = Duration::from_millis(10);
        const PACKETS: u64 = 30 * 1_500;
        /// At this loss a gap is held open nearly all the time.
        const MUCH_LOSS: f64 = 0.001;
        /// While a path's rate is being found out the inner sender, which does the same, must not be cut short.
        const START_UP_BYTES: u64 = 256 * 1_500;
        let mut hold = Duration::ZERO;
        let mut least_limit = 0;
        let mut fastest: Option<(Duration, BitRate)> = None;
        let mut slowest = Duration::ZERO;
        let mut sum = BitRate(0);
        let mut loss_rate: f64 = 0.0;
        for path in self.data_paths() {
            let delay = path.base_rtt() / 2 + path.peer_reordering();
            let rate = path.rate();
            if !path.controller.settled() {
                least_limit = START_UP_BYTES;
            }
            // After a gap the inner sender answers with a burst: there must be room for what it held back.
            let repeat = path.rtt.smoothed() + path.peer_reordering();
            hold = hold.max(repeat.mul_f64((path.loss_rate() / MUCH_LOSS).min(1.0)));
            sum.0 = sum.0.saturating_add(rate.0);
            slowest = slowest.max(delay);
            loss_rate = loss_rate.max(path.loss_rate());
            if fastest.is_none_or(|(least, _)| delay < least) {
                fastest = Some((delay, rate));
            }
        }
        let Some((least, rate)) = fastest else {
            return QueueLimits { bulk: PACKETS * 8, loss_rate };
        };
        let spread = rate.bytes_per_second() * (slowest - least).max(self.delay_spread()).as_secs_f64();
        let buffer = sum.bytes_per_second() * ((slowest + least) / 2 + MARGIN + hold).as_secs_f64();
        let bulk = ((spread + buffer) as u64 + PACKETS).max(least_limit);
        QueueLimits { bulk, loss_rate }
    }
}
