//! The sending half of a stream.
//!
//! ```text
//!  base                      highest                written
//!   |  acknowledged, pending   |    never sent          |
//!   |  again, or in flight     |    (all pending)       |
//!   +--------------------------+------------------------+
//!   kept in the buffer until acknowledged
//! ```

use super::Span;
use super::ranges::Ranges;
use std::collections::VecDeque;
use std::ops::Range;
use wire::stream::StreamId;

/// Bytes that may always wait to be sent and acknowledged ...
const LEAST_BUFFER: u64 = 256 * 1024;
/// ... and at most, as a multiple of what is in flight: the writer is ahead of the network, not of time.
const BUFFER_PER_FLIGHT: u64 = 2;

/// How the half ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// It has not been asked to.
    Open,
    /// The last byte is known and the peer is to be told.
    Wanted,
    /// The peer has been told.
    Sent,
    /// The peer knows.
    Acknowledged,
    /// Given up.
    Reset { code: u64, acknowledged: bool },
}

/// See the module.
#[derive(Debug)]
pub(super) struct SendHalf {
    buffer: VecDeque<u8>,
    base: u64,
    highest: u64,
    pending: Ranges,
    acknowledged: Ranges,
    /// The peer takes bytes up to here.
    limit: u64,
    ending: Ending,
    /// The packet with the last byte was acknowledged.
    fin_arrived: bool,
    /// The peer has not heard of the stream yet.
    unannounced: bool,
    /// The writer waits for room.
    pub(super) writer_waits: bool,
    /// The owner waits until all is acknowledged.
    pub(super) finisher_waits: bool,
}

impl SendHalf {
    pub(super) fn new(limit: u64, announce: bool) -> Self {
        Self {
            buffer: VecDeque::new(),
            base: 0,
            highest: 0,
            pending: Ranges::default(),
            acknowledged: Ranges::default(),
            limit,
            ending: Ending::Open,
            fin_arrived: false,
            unannounced: announce,
            writer_waits: false,
            finisher_waits: false,
        }
    }

    pub(super) fn ending(&self) -> Ending {
        self.ending
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Bytes that count against the session's limit.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Bytes that wait to be sent.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending.total()
    }

    /// Bytes kept.
    pub(super) fn kept(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Whether everything has arrived, or will not.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.ending, Ending::Acknowledged | Ending::Reset { acknowledged: true, .. })
    }

    /// Room for more, given the most that may be kept.
    pub(super) fn room(&self, most: u64) -> usize {
        let in_flight = self.highest - self.base;
        let may = (in_flight * BUFFER_PER_FLIGHT).clamp(LEAST_BUFFER.min(most), most);
        may.saturating_sub(self.kept()) as usize
    }

    /// Takes bytes to be sent; the caller has looked for room.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let from = self.written();
        self.buffer.extend(bytes);
        self.pending.insert(from..self.written());
    }

    pub(super) fn finish(&mut self) {
        if self.ending == Ending::Open {
            self.ending = Ending::Wanted;
        }
    }

    /// Gives the half up; false if it was over already.
    pub(super) fn reset(&mut self, code: u64) -> bool {
        if matches!(self.ending, Ending::Acknowledged | Ending::Reset { .. }) {
            return false;
        }
        self.ending = Ending::Reset { code, acknowledged: false };
        self.buffer = VecDeque::new();
        self.pending.clear();
        self.acknowledged.clear();
        self.base = self.highest;
        self.unannounced = false;
        true
    }

    pub(super) fn on_reset_acknowledged(&mut self) {
        if let Ending::Reset { acknowledged, .. } = &mut self.ending {
            *acknowledged = true;
        }
    }

    pub(super) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Whether [`SendHalf::take`] would give something.
    pub(super) fn has_something(&self, credit: u64) -> bool {
        let Some(first) = self.pending.first() else {
            return self.unannounced || self.ending == Ending::Wanted;
        };
        first.start < self.limit && (first.start < self.highest || credit > 0)
    }

    /// What could be taken in one piece after the first `depth` bytes that wait.
    pub(super) fn piece(&self, depth: u64, credit: u64) -> Option<Range<u64>> {
        let piece = self.pending.after(depth)?;
        let end = piece.end.min(self.limit).min(self.highest.saturating_add(credit));
        (piece.start < end).then_some(piece.start..end)
    }

    /// Takes up to `room(offset)` bytes after the first `depth` that wait, if there are so many, and how much of `credit` they
    /// use up.
    pub(super) fn take(
        &mut self,
        id: StreamId,
        depth: u64,
        room: impl Fn(u64) -> usize,
        credit: u64,
    ) -> Option<(Span, u64)> {
        let piece = self.piece(depth, credit).or_else(|| self.piece(0, credit));
        let (from, to) = match piece {
            Some(piece) => (piece.start, piece.end.min(piece.start + room(piece.start) as u64)),
            None if self.unannounced || (self.ending == Ending::Wanted && self.pending.is_empty()) => {
                (self.written(), self.written())
            }
            None => return None,
        };
        self.pending.remove(from..to);
        let used = to.saturating_sub(self.highest);
        self.highest = self.highest.max(to);
        self.unannounced = false;
        let ends = matches!(self.ending, Ending::Wanted | Ending::Sent) && to == self.written();
        if ends {
            self.ending = Ending::Sent;
        }
        Some((Span { stream: id, from, to, fin: ends }, used))
    }

    /// Appends the bytes of a span that is not acknowledged.
    pub(super) fn copy(&self, span: &Span, into: &mut Vec<u8>) {
        let from = span.from.saturating_sub(self.base) as usize;
        let to = (span.to.saturating_sub(self.base) as usize).min(self.buffer.len());
        let (front, back) = self.buffer.as_slices();
        if from < front.len() {
            into.extend_from_slice(front.get(from..to.min(front.len())).unwrap_or_default());
        }
        if to > front.len() {
            let start = from.saturating_sub(front.len());
            into.extend_from_slice(back.get(start..to - front.len()).unwrap_or_default());
        }
    }

    pub(super) fn on_acknowledged(&mut self, span: &Span) {
        if matches!(self.ending, Ending::Reset { .. }) {
            return;
        }
        let from = span.from.max(self.base);
        if from < span.to {
            self.acknowledged.insert(from..span.to);
            self.pending.remove(from..span.to);
        }
        if let Some(first) = self.acknowledged.first().filter(|first| first.start <= self.base) {
            self.buffer.drain(..(first.end - self.base) as usize);
            self.base = first.end;
            self.acknowledged.remove(first);
        }
        // The last byte's packet may overtake others: the half is over when nothing is missing.
        self.fin_arrived |= span.fin;
        if self.fin_arrived && self.base == self.written() {
            self.ending = Ending::Acknowledged;
        }
    }

    pub(super) fn on_lost(&mut self, span: &Span) {
        if matches!(self.ending, Ending::Reset { .. }) {
            return;
        }
        self.pending.insert(span.from.max(self.base)..span.to.max(self.base));
        self.pending.remove_all(&self.acknowledged);
        if span.fin && self.ending == Ending::Sent {
            self.ending = Ending::Wanted;
        }
        self.unannounced |= self.highest == 0;
    }

    /// Everything that was in flight is gone, with the session that carried it.
    pub(super) fn lose_all(&mut self) {
        let (base, highest) = (self.base, self.highest);
        let fin = self.ending == Ending::Sent && !self.fin_arrived;
        self.on_lost(&Span { stream: StreamId(0), from: base, to: highest, fin });
    }
}
