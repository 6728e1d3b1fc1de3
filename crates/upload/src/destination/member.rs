//! What the destination knows of one neighbour.

use std::collections::VecDeque;
use std::time::Duration;

use units::Timestamp;
use wire::upload::{AirNumber, Chunk, Grant, MAX_AWAY, Reception, Report, Runs, Transfer};

use super::standing::{PeerKey, Standing};
use super::{PERIODS_KEPT, PROBES};
use crate::ranges::RangeSet;

/// The window of a neighbour that has not told it yet.
const FIRST_WINDOW: u32 = 2;
/// The widest window that is believed.
const WIDEST_WINDOW: u32 = 1_024;
/// Chunks that a neighbour may claim in a second, and at once: more than a buffer holds.
const MAX_CLAIMS: usize = 16_384;
/// What a report counts at least among claims.
const REPORT_COST: usize = 64;
/// So much wider than the bandwidth-delay product is the window: grants are under way while chunks are.
const WINDOW_SLACK: u32 = 2;
/// A neighbour that brings nothing for so long, though it has something to carry, is given up for a while; at least.
const LEAST_PATIENCE: Duration = Duration::from_millis(600);
/// The same for one that has not brought anything yet.
const FIRST_PATIENCE: Duration = Duration::from_millis(1_500);
/// How many usual pauses between two chunks make one that is too long.
const PAUSES: u32 = 8;
/// However slow a neighbour is, it is not waited for longer.
const MOST_PATIENCE: Duration = Duration::from_secs(2);

/// Arrivals over time: how many a second, and how long since the last.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    last: Timestamp,
    /// Smoothed time between arrivals, seconds; none before the second.
    gap: Option<f64>,
    beats: u32,
}

impl Pulse {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { last: now, gap: None, beats: 0 }
    }

    /// There was a break: the next arrival says nothing of the time between two.
    pub(super) const fn interrupt(&mut self, now: Timestamp) {
        self.last = now;
        self.beats = 0;
    }

    pub(super) fn beat(&mut self, now: Timestamp) {
        if self.beats > 0 {
            let gap = now.since(self.last).as_secs_f64();
            self.gap = Some(self.gap.map_or(gap, |smoothed| smoothed + (gap - smoothed) / 8.0));
        }
        self.beats += 1;
        self.last = now;
    }

    /// A second; 0 while it is not known.
    pub(super) fn rate(&self) -> f64 {
        self.gap.map_or(0.0, |gap| 1.0 / gap.max(1e-6))
    }

    fn patience(&self) -> Duration {
        self.gap.map_or(FIRST_PATIENCE, |gap| {
            Duration::from_secs_f64(gap * f64::from(PAUSES)).clamp(LEAST_PATIENCE, MOST_PATIENCE)
        })
    }
}

/// Orders that wait to be sent.
#[derive(Clone, Default, Debug)]
pub(super) struct Orders {
    pub(super) carry: Vec<Chunk>,
    pub(super) stored: RangeSet,
    pub(super) withdrawn: RangeSet,
    pub(super) forget: RangeSet,
    pub(super) repeat: RangeSet,
    last: Timestamp,
}

impl Orders {
    pub(super) fn is_empty(&self) -> bool {
        self.carry.is_empty()
            && [&self.stored, &self.withdrawn, &self.forget, &self.repeat]
                .iter()
                .all(|chunks| chunks.is_empty())
    }

    /// What is to be carried or repeated goes at once, the rest when it is worth a message.
    pub(super) fn due(&self, delay: Duration) -> Option<Timestamp> {
        match (self.is_empty(), self.carry.is_empty() && self.repeat.is_empty()) {
            (true, _) => None,
            (false, true) => Some(self.last + delay),
            (false, false) => Some(Timestamp::ZERO),
        }
    }

    pub(super) fn is_due(&mut self, now: Timestamp, delay: Duration) -> bool {
        let due = self.due(delay).is_some_and(|due| due <= now);
        if due {
            self.last = now;
        }
        due
    }

    pub(super) fn take(&mut self, transfer: Transfer) -> Grant {
        // The order of what is to be carried counts, so it is not sorted: what goes back begins the next message.
        let (carry, taken) = Runs::of_chunks(&self.carry);
        self.carry.drain(..taken);
        let (stored, withdrawn) = (self.stored.take_runs(), self.withdrawn.take_runs());
        let (forget, repeat) = (self.forget.take_runs(), self.repeat.take_runs());
        Grant { transfer, carry, stored, withdrawn, forget, repeat }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct MemberRecord {
    pub(super) key: PeerKey,
    pub(super) standing: Standing,
    /// Chunks that it has and that nobody carried when they were added, oldest first; some have been granted or stored since.
    pub(super) candidates: VecDeque<Chunk>,
    /// How many of what it has are not granted to anybody.
    pub(super) free: u32,
    /// Granted, in this order.
    pub(super) outstanding: VecDeque<Chunk>,
    pub(super) pulse: Pulse,
    /// Since when it has had something to carry without a pause.
    pub(super) busy_since: Option<Timestamp>,
    pub(super) through: AirNumber,
    pub(super) receptions: VecDeque<Reception>,
    pub(super) orders: Orders,
    /// Of the last chunks, how many it brought.
    pub(super) share: u32,
    /// Times in a row that it was given up.
    pub(super) strikes: u32,
    /// Nothing is granted before.
    pub(super) trusted_from: Timestamp,
    window: u32,
    reported: bool,
    /// When it last told of frames of the source that it had not told of; when it came, before the first.
    last_heard: Timestamp,
    /// For how long at a time it hears nothing since its radio is elsewhere, as it tells.
    away: Duration,
    /// Whether it repeats on the air for others.
    pub(super) repeats: bool,
    /// How many chunks it may claim at present, and when that was reckoned.
    claims: usize,
    claims_at: Timestamp,
}

impl MemberRecord {
    pub(super) fn new(now: Timestamp, key: PeerKey, standing: Standing) -> Self {
        Self {
            key,
            standing,
            candidates: VecDeque::new(),
            free: 0,
            outstanding: VecDeque::new(),
            pulse: Pulse::new(now),
            busy_since: None,
            through: AirNumber(0),
            receptions: VecDeque::new(),
            orders: Orders::default(),
            share: 0,
            strikes: 0,
            trusted_from: now,
            window: FIRST_WINDOW,
            reported: false,
            last_heard: now,
            away: Duration::ZERO,
            repeats: false,
            claims: MAX_CLAIMS,
            claims_at: now,
        }
    }

    pub(super) fn handle_report(&mut self, now: Timestamp, report: &Report) {
        self.reported = true;
        if report.through > self.through {
            self.last_heard = now;
        }
        self.through = report.through;
        self.away = Duration::from_millis(report.away.min(MAX_AWAY).into());
        self.window = report.window.clamp(1, WIDEST_WINDOW);
        self.receptions.extend(report.receptions.iter().cloned());
        let surplus = self.receptions.len().saturating_sub(PERIODS_KEPT);
        self.receptions.drain(..surplus);
    }

    /// How many chunks it may claim now.
    pub(super) fn claims(&mut self, now: Timestamp) -> usize {
        let gained = now.since(self.claims_at).as_secs_f64() * MAX_CLAIMS as f64;
        self.claims = MAX_CLAIMS.min(self.claims + gained as usize);
        self.claims_at = now;
        self.claims
    }

    /// It has sent a report with so many.
    pub(super) fn spend_claims(&mut self, claimed: usize) {
        self.claims = self.claims.saturating_sub(claimed.max(REPORT_COST));
    }

    /// Whether what it claims counts.
    pub(super) fn may_claim(&self, now: Timestamp) -> bool {
        self.standing.is_believed(now) && (self.strikes < 2 || self.useful() < PROBES)
    }

    /// Whether it tells of the source's frames, not only of repeated ones.
    pub(super) fn hears_source(&self, now: Timestamp, within: Duration) -> bool {
        self.reported && now.since(self.last_heard) <= within
    }

    /// The same for one that may be away meanwhile: silence for as long as it said is none.
    pub(super) fn hears_source_at_times(&self, now: Timestamp, within: Duration) -> bool {
        self.hears_source(now, within + self.away)
    }

    /// Whether it has told how its uplink is.
    pub(super) const fn has_reported(&self) -> bool {
        self.reported
    }

    pub(super) fn add_candidate(&mut self, chunk: Chunk, free: bool) {
        self.candidates.push_back(chunk);
        self.free += u32::from(free);
    }

    /// It does not carry a chunk any more.
    pub(super) fn take_back(&mut self, chunk: Chunk) {
        if let Some(at) = self.outstanding.iter().position(|granted| *granted == chunk) {
            self.outstanding.remove(at);
        }
        if self.outstanding.is_empty() {
            self.busy_since = None;
        }
    }

    /// A chunk has come; `wanted` if nobody had brought it. What was granted before it does not come any more: chunks are carried in the order of their grants.
    /// A chunk that is neither granted nor wanted is no sign of life: it may be sent again and again.
    pub(super) fn bring(&mut self, now: Timestamp, chunk: Chunk, wanted: bool) -> Vec<Chunk> {
        let at = self.outstanding.iter().position(|granted| *granted == chunk);
        if at.is_none() && !wanted {
            return Vec::new();
        }
        self.pulse.beat(now);
        self.strikes = 0;
        self.standing.keep_word(now);
        let skipped: Vec<Chunk> = self.outstanding.iter().take(at.unwrap_or(0)).copied().collect();
        self.standing.break_word(now, skipped.len() as u32);
        skipped
    }

    /// How many chunks may be granted at a time.
    pub(super) fn grantable(&self, now: Timestamp) -> usize {
        if now < self.trusted_from {
            return 0;
        }
        if self.strikes > 0 {
            return 1;
        }
        (self.window + WINDOW_SLACK) as usize
    }

    /// How many chunks it should have.
    pub(super) const fn target(&self, products: u32) -> u32 {
        (self.window + WINDOW_SLACK).saturating_mul(products)
    }

    /// How many chunks it has that are of use there.
    pub(super) fn useful(&self) -> u32 {
        self.free + self.outstanding.len() as u32
    }

    /// Whether it has been silent for too long with something to carry.
    pub(super) fn is_stalled(&self, now: Timestamp) -> bool {
        let since = self.busy_since.map(|busy| busy.max(self.pulse.last));
        since.is_some_and(|since| now.since(since) > self.pulse.patience())
    }

    /// It is trusted less: after each failure in a row it rests for twice as long.
    pub(super) fn strike(&mut self, now: Timestamp) {
        self.strikes = (self.strikes + 1).min(6);
        self.trusted_from = now + LEAST_PATIENCE * (1 << self.strikes) / 4;
    }

    /// It was given up without its fault.
    pub(super) const fn pardon(&mut self, now: Timestamp) {
        self.strikes = 0;
        self.trusted_from = now;
    }

    /// When a chunk at place `place` of what is granted should arrive; never if it has brought too little to tell.
    pub(super) fn arrival(&self, now: Timestamp, place: usize) -> f64 {
        let rate = self.pulse.rate();
        if rate == 0.0 || self.strikes > 0 {
            return f64::INFINITY;
        }
        let due = self.pulse.last.as_secs_f64() + (place + 1) as f64 / rate;
        due.max(now.as_secs_f64())
    }

    pub(super) fn memory(&self) -> usize {
        let orders = [&self.orders.stored, &self.orders.withdrawn, &self.orders.forget, &self.orders.repeat];
        let chunks = self.candidates.capacity() + self.outstanding.capacity() + self.orders.carry.capacity();
        chunks * size_of::<Chunk>()
            + orders.iter().map(|chunks| chunks.memory()).sum::<usize>()
            + size_of::<Self>()
    }
}
