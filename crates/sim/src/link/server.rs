//! The part of a link that takes time per byte: a steady rate or a trace of opportunities.

use super::spec::Capacity;
use crate::DeliveryTrace;
use crate::trace::OPPORTUNITY_BYTES;
use std::sync::Arc;
use units::{BitRate, Timestamp};

/// Bits times nanoseconds per second: one bit's worth of service at one bit per second.
const BIT: u64 = 1_000_000_000;

/// Serves one packet at a time.
#[derive(Clone, Debug)]
pub(super) enum Server {
    Unlimited { start: Timestamp },
    Rate { start: Timestamp, rate: BitRate, serving: Option<Serving> },
    Trace(TraceServer),
}

/// A packet in service at a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    /// Bits still to send, times 10^9.
    remaining: u64,
    since: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct TraceServer {
    start: Timestamp,
    trace: Arc<DeliveryTrace>,
    /// The next opportunity not yet used.
    next: u64,
    /// Bytes left of the opportunity before it, and when that was.
    left: u64,
    left_at: Timestamp,
    /// When the packet in service will have been sent.
    completion: Option<Timestamp>,
}

impl Server {
    pub(super) fn new(start: Timestamp, capacity: Capacity) -> Self {
        match capacity {
            Capacity::Unlimited => Self::Unlimited { start },
            Capacity::Rate(rate) => Self::Rate { start, rate, serving: None },
            Capacity::Trace(trace) => Self::Trace(TraceServer {
                start,
                trace,
                next: 0,
                left: 0,
                left_at: Timestamp::ZERO,
                completion: None,
            }),
        }
    }

    pub(super) fn is_unlimited(&self) -> bool {
        matches!(self, Self::Unlimited { .. })
    }

    /// When the packet in service will have been sent; `None` if none is or the rate is zero.
    pub(super) fn completion(&self) -> Option<Timestamp> {
        match self {
            Self::Unlimited { .. } => None,
            Self::Rate { rate, serving, .. } => {
                let serving = serving.filter(|_| rate.0 > 0)?;
                Some(Timestamp::from_nanos(
                    serving.since.as_nanos().saturating_add(serving.remaining.div_ceil(rate.0)),
                ))
            }
            Self::Trace(server) => server.completion,
        }
    }

    /// A packet of `bytes` came to an idle server.
    pub(super) fn start(&mut self, now: Timestamp, bytes: u64) {
        match self {
            Self::Unlimited { .. } => {}
            Self::Rate { serving, .. } => *serving = Some(Serving { remaining: service(bytes), since: now }),
            Self::Trace(server) => server.begin(now, bytes),
        }
    }

    /// The packet in service left at `at`; the next, if any, has `next_bytes`.
    pub(super) fn finished(&mut self, at: Timestamp, next_bytes: Option<u64>) {
        self.stop();
        if let Some(bytes) = next_bytes {
            self.start(at, bytes);
        }
    }

    /// No packet is in service any more.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Unlimited { .. } => {}
            Self::Rate { serving, .. } => *serving = None,
            Self::Trace(server) => server.completion = None,
        }
    }

    /// The capacity becomes `capacity` at `at`, with a packet of `head_bytes` in service. A change of rate
    /// keeps what was sent of it; a change of kind starts it anew.
    pub(super) fn change(&mut self, at: Timestamp, capacity: Capacity, head_bytes: Option<u64>) {
        if let (Self::Rate { rate, serving, .. }, Capacity::Rate(new_rate)) = (&mut *self, &capacity) {
            if let Some(serving) = serving {
                let done = u128::from(rate.0) * at.since(serving.since).as_nanos();
                serving.remaining = serving.remaining.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX));
                serving.since = at;
            }
            *rate = *new_rate;
            return;
        }
        let start = match self {
            Self::Unlimited { start } | Self::Rate { start, .. } => *start,
            Self::Trace(server) => server.start,
        };
        *self = Self::new(start, capacity);
        if let Some(bytes) = head_bytes {
            self.start(at, bytes);
        }
    }
}

impl TraceServer {
    /// Finds the opportunities that carry a packet of `bytes`. What is left of an opportunity serves
    /// packets that are there at its time only.
    fn begin(&mut self, now: Timestamp, bytes: u64) {
        let mut missing = bytes;
        let mut at = now;
        if self.left_at == now && self.left > 0 {
            let used = self.left.min(missing);
            self.left -= used;
            missing -= used;
        }
        if missing > 0 {
            self.next = self.next.max(self.trace.first_at_or_after(now.since(self.start).as_nanos() as u64));
        }
        while missing > 0 {
            at = Timestamp::from_nanos(
                self.start.as_nanos().saturating_add(self.trace.opportunity_nanos(self.next)),
            );
            self.next += 1;
            let used = OPPORTUNITY_BYTES.min(missing);
            missing -= used;
            self.left = OPPORTUNITY_BYTES - used;
            self.left_at = at;
        }
        self.completion = Some(at.max(now));
    }
}

/// Service that `bytes` need, in bits times 10^9.
fn service(bytes: u64) -> u64 {
    (bytes * 8).saturating_mul(BIT)
}
