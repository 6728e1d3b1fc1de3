//! The time that an access point evidently spends on packets for us, by when its frames come.
//!
//! ```text
//!   -F--F--F---------------R--F--F--------------------L--F--F-----> time; L: numbers before it are missing
//!    |->|  |-------------->|  |->|------------------->|
//!   smooth      tried          smooth     tried
//! ```
//! `[MULTIAP] eq. 1` reckons the time of attempts that fail from how many fail, as if each failed by itself. In a fade they fail one after the
//! other, at ever slower rates, and nothing is heard of most. But time passes: where frames otherwise follow each other at once, an
//! access point that is silent and then repeats, or has skipped numbers, was sending all the while. Nor can attempts have taken more time than has gone
//! by: those that fail at a faster rate, which is tried now and then, take less than those that are heard.

use std::time::Duration;

use crate::airtime::Flavour;

use super::window::{Count, Counts};

/// A longer silence is no matter of a packet.
pub(super) const LONGEST: Duration = Duration::from_millis(250);
/// With fewer frames that came smoothly nobody knows whether the access point had more to send.
const ENOUGH_SMOOTH: u32 = 5;

/// Gaps before an access point's frames to us, each from the frame before it to anybody.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Gaps {
    /// Frames heard at the first attempt, with none missing before them.
    smooth: u32,
    /// The gaps before those, in microseconds.
    smooth_us: u32,
    /// What those took by themselves, in microseconds, as if they were full.
    exchange_us: u32,
    /// Packets of the others, those missing included.
    tried: u32,
    /// The gaps before those, in microseconds.
    tried_us: u32,
    /// Packets that were heard, of both kinds.
    heard: u32,
}

impl Count for Gaps {
    fn add(&mut self, other: &Self) {
        self.smooth = self.smooth.saturating_add(other.smooth);
        self.smooth_us = self.smooth_us.saturating_add(other.smooth_us);
        self.exchange_us = self.exchange_us.saturating_add(other.exchange_us);
        self.tried = self.tried.saturating_add(other.tried);
        self.tried_us = self.tried_us.saturating_add(other.tried_us);
        self.heard = self.heard.saturating_add(other.heard);
    }
}

impl Gaps {
    /// A frame came at the first attempt, and right after the one before it.
    pub fn smooth(&mut self, gap: Duration, exchange_us: u32) {
        self.smooth = self.smooth.saturating_add(1);
        self.smooth_us = self.smooth_us.saturating_add(micros(gap));
        self.exchange_us = self.exchange_us.saturating_add(exchange_us);
        self.heard = self.heard.saturating_add(1);
    }

    /// A frame came that was repeated, or before which `packets - 1` are missing; `packets` is 0 if it was counted before.
    pub fn tried(&mut self, gap: Duration, packets: u16) {
        self.tried = self.tried.saturating_add(packets.into());
        self.tried_us = self.tried_us.saturating_add(micros(gap));
        self.heard = self.heard.saturating_add(u32::from(packets > 0));
    }

    /// Air time for each packet that arrives, those that never do included, without the time in which the access point had nothing to send or
    /// others had the air. `exchange`: of one attempt. `None` if too little is known.
    ///
    /// The gap before a smooth frame is such time, and one attempt. As much is taken off each gap of the others; of what remains the part counts
    /// which that attempt is of a smooth gap, since who shares the air waits before each attempt.
    pub fn packet_time(&self, flavour: Flavour, exchange: Duration, counts: &Counts) -> Option<Duration> {
        if self.smooth < ENOUGH_SMOOTH {
            return None;
        }
        let once = flavour.mean_back_off(0).as_secs_f64();
        let smooth = f64::from(self.smooth_us) * 1e-6 / f64::from(self.smooth);
        let own = self.own(flavour);
        let beyond = (f64::from(self.tried_us) * 1e-6 - f64::from(self.tried) * smooth).max(0.0);
        let heard = f64::from(counts.heard());
        let packets = heard + f64::from(counts.lost.max(0));
        Some(Duration::from_secs_f64(
            ((exchange.as_secs_f64() + once) * packets + beyond * own) / heard.max(1.0),
        ))
    }

    /// What has gone by for each packet that arrived, of an access point that sends all the time and nearly alone, full packets or as good as such: no packet
    /// took more. `None` of others.
    pub fn elapsed(&self, flavour: Flavour) -> Option<Duration> {
        // Where frames follow each other sooner than full ones could, a full one would take more than goes by.
        let are_full = self.own(flavour) < 1.0;
        let is_busy = self.smooth >= ENOUGH_SMOOTH && self.is_alone(flavour) && are_full;
        let elapsed = Duration::from_micros(u64::from(self.smooth_us) + u64::from(self.tried_us));
        is_busy.then(|| elapsed / self.heard.max(1))
    }

    /// Nobody else seems to have a part of the air: how long a packet takes is no matter of theirs.
    pub fn is_alone(&self, flavour: Flavour) -> bool {
        self.own(flavour) > ALONE
    }

    /// The part of a smooth gap that one attempt takes, 0 to 1.
    fn own(&self, flavour: Flavour) -> f64 {
        let smooth = f64::from(self.smooth_us) * 1e-6 / f64::from(self.smooth.max(1));
        let exchange = f64::from(self.exchange_us) * 1e-6 / f64::from(self.smooth.max(1));
        let attempt = exchange + flavour.mean_back_off(0).as_secs_f64();
        if smooth > attempt { attempt / smooth } else { 1.0 }
    }
}

/// The part of a smooth gap from which on nobody else is taken to have the air.
const ALONE: f64 = 0.8;

fn micros(gap: Duration) -> u32 {
    gap.as_micros() as u32
}
