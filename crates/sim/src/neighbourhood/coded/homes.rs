//! A neighbour that carries combinations.

use std::collections::{BTreeMap, VecDeque};

use rand::rngs::StdRng;
use units::Timestamp;
use upload::coding::{Combination, Span};
use wire::upload::{AirNumber, Chunk, Message, Report, Runs, Transfer};

use super::super::spec::UplinkSpec;
use super::super::uplink::Uplink;
use super::destination::Order;
use super::{CONTENT, FrameId, GATHERED, GENERATION, Mixing};

/// Frames of a generation that a report can tell apart.
const FRAMES: u32 = 4_096;

/// See the module.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) uplink: Uplink,
    /// To hear a frame.
    pub(super) chance: f64,
    mixing: Mixing,
    spans: BTreeMap<u32, Span>,
    frames: BTreeMap<FrameId, Combination>,
    orders: VecDeque<FrameId>,
    unreported: Vec<FrameId>,
    report_due: Timestamp,
    /// Its connection to the destination takes a round trip, as in [`super::super::Transfer`].
    connected: Timestamp,
    woken: Timestamp,
}

impl Home {
    pub(super) fn new(uplink: UplinkSpec, chance: f64, mixing: Mixing) -> Self {
        Self {
            connected: Timestamp::ZERO + uplink.delay * 2,
            uplink: Uplink::new(uplink),
            chance,
            mixing,
            spans: BTreeMap::new(),
            frames: BTreeMap::new(),
            orders: VecDeque::new(),
            unreported: Vec::new(),
            report_due: Timestamp::FAR_FUTURE,
            woken: Timestamp::ZERO,
        }
    }

    /// A frame was heard. Who combines anew reports only what told it something.
    pub(super) fn hear(&mut self, now: Timestamp, id: FrameId, combination: Combination) {
        self.report_due = self.report_due.min(now + GATHERED);
        match self.mixing {
            Mixing::Neighbours => {
                let size = combination.coefficients.len();
                let span = self.spans.entry(id.generation).or_insert_with(|| Span::new(size, CONTENT));
                if !span.insert(combination) {
                    return;
                }
            }
            Mixing::Source => {
                self.frames.insert(id, combination);
            }
        }
        self.unreported.push(id);
    }

    pub(super) fn handle_order(&mut self, order: Order) {
        match order {
            Order::Carry(id) => self.orders.push_back(id),
            Order::Whole(generation) => {
                self.orders.retain(|id| id.generation != generation);
                self.spans.remove(&generation);
                self.frames.retain(|id, _| id.generation != generation);
            }
        }
    }

    /// What was heard since the last report, and when the report arrives.
    pub(super) fn poll_report(&mut self, now: Timestamp) -> Option<(Vec<FrameId>, Timestamp)> {
        if self.report_due.max(self.connected) > now || !self.uplink.has_room(now) {
            return None;
        }
        self.report_due = Timestamp::FAR_FUTURE;
        let mut heard = std::mem::take(&mut self.unreported);
        heard.sort_unstable();
        let numbers: Vec<Chunk> =
            heard.iter().map(|id| Chunk(id.generation * FRAMES + id.index.min(FRAMES - 1))).collect();
        let report = Report {
            transfer: Transfer(1),
            through: AirNumber(0),
            window: self.uplink.window(),
            buffered: 0,
            receptions: Vec::new(),
            heard: Runs::of_chunks(&numbers).0,
            away: 0,
        };
        let arrival = self.uplink.send(now, Message::Report(report).encode().len());
        Some((heard, arrival))
    }

    /// The next combination for the destination, and when it arrives.
    pub(super) fn poll_carry(
        &mut self,
        now: Timestamp,
        factors: &mut StdRng,
    ) -> Option<(FrameId, Combination, Timestamp)> {
        while self.uplink.has_room(now) {
            let id = self.orders.pop_front()?;
            let (combination, coefficients) = match self.mixing {
                Mixing::Neighbours => {
                    (self.spans.get(&id.generation).and_then(|span| span.combine(factors)), GENERATION)
                }
                Mixing::Source => (self.frames.remove(&id), 0),
            };
            if let Some(combination) = combination {
                return Some((id, combination, self.uplink.send_combination(now, coefficients)));
            }
        }
        None
    }

    /// When there is something to do again, if that was not said before.
    pub(super) fn next_wake(&mut self, now: Timestamp) -> Option<Timestamp> {
        let carry = (!self.orders.is_empty()).then(|| self.uplink.ready_at());
        let report = Some(self.report_due.max(self.connected).max(self.uplink.ready_at()))
            .filter(|_| self.report_due < Timestamp::FAR_FUTURE);
        let next = carry.into_iter().chain(report).min().filter(|next| *next > now)?;
        if self.woken > now && self.woken <= next {
            return None;
        }
        self.woken = next;
        Some(next)
    }
}
