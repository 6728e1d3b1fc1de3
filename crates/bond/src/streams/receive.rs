//! The receiving half of a stream: puts bytes in order, each once, within the window that the peer was told.

use super::Violation;
use super::ranges::Ranges;
use std::collections::VecDeque;
use wire::stream::StreamData;

/// Pieces with gaps between them that are kept; more is a peer that cuts its stream to crumbs.
const MAX_PIECES: usize = 16_384;

/// How the half ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// More may come.
    Open,
    /// The peer gave it up and the reader has not heard.
    Reset(u64),
    /// Nobody reads any more.
    Unread,
    /// The reader knows the end.
    Told,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ReceiveHalf {
    /// Bytes from `read` on; those up to `ready` without a gap.
    buffer: VecDeque<u8>,
    read: u64,
    ready: u64,
    beyond: Ranges,
    /// The first offset that the peer has sent nothing from.
    highest: u64,
    final_size: Option<u64>,
    limit: u64,
    ending: Ending,
    /// The reader waits for bytes.
    pub(super) reader_waits: bool,
}

impl ReceiveHalf {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            buffer: VecDeque::new(),
            read: 0,
            ready: 0,
            beyond: Ranges::default(),
            highest: 0,
            final_size: None,
            limit,
            ending: Ending::Open,
            reader_waits: false,
        }
    }

    /// The offset up to which the peer may send.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes of the peer's that do not count against the session's window any more: read, or never to be.
    pub(super) fn released(&self) -> u64 {
        if self.ending == Ending::Open { self.read } else { self.highest }
    }

    /// Whether the reader has gone before the end.
    pub(super) fn is_unread(&self) -> bool {
        self.ending == Ending::Unread && !self.is_over()
    }

    /// Whether everything has arrived, or nobody cares.
    pub(super) fn is_over(&self) -> bool {
        let complete = self.final_size.is_some_and(|size| size == self.ready);
        matches!(self.ending, Ending::Told) || matches!(self.ending, Ending::Unread) && complete
    }

    /// Whether the reader would get something: bytes, the end, or a reset.
    pub(super) fn is_readable(&self) -> bool {
        self.ready > self.read
            || matches!(self.ending, Ending::Reset(_))
            || self.ending == Ending::Open && self.final_size == Some(self.read)
    }

    /// Takes in bytes; returns how many further ones count against the session's limit.
    pub(super) fn on_data(&mut self, data: &StreamData<'_>) -> Result<u64, Violation> {
        let end = data.offset + data.bytes.len() as u64;
        if end > self.limit {
            return Err(Violation::Limit);
        }
        self.check_final_size(end, data.fin)?;
        let further = end.saturating_sub(self.highest);
        self.highest = self.highest.max(end);
        match self.ending {
            Ending::Open => self.store(data.offset, data.bytes)?,
            // Counted, so that the peer's half ends in order, but not kept.
            Ending::Unread | Ending::Told => self.skip(data.offset, end),
            Ending::Reset(_) => {}
        }
        Ok(further)
    }

    /// The peer gave its half up; returns how many further bytes count against the session's limit.
    pub(super) fn on_reset(&mut self, code: u64, final_size: u64) -> Result<u64, Violation> {
        if final_size > self.limit {
            return Err(Violation::Limit);
        }
        // What arrived whole stays readable if its sender had ended it; otherwise the end would pass for its own.
        let is_whole = self.final_size == Some(self.ready);
        self.check_final_size(final_size, true)?;
        let further = final_size.saturating_sub(self.highest);
        self.highest = final_size;
        match self.ending {
            Ending::Open if is_whole => {}
            Ending::Open => {
                self.ending = Ending::Reset(code);
                self.drop_kept();
            }
            Ending::Unread => self.ending = Ending::Told,
            Ending::Reset(_) | Ending::Told => {}
        }
        Ok(further)
    }

    /// Nobody will read any more.
    pub(super) fn stop(&mut self) {
        self.ending = match self.ending {
            Ending::Open => Ending::Unread,
            Ending::Reset(_) => Ending::Told,
            other => other,
        };
        self.buffer = VecDeque::new();
        self.read = self.ready;
    }

    /// Takes bytes that have arrived in order: `Ok(None)` if there are none yet, `Ok(Some(0))` at the end.
    ///
    /// # Errors
    /// The code with which the peer gave the stream up.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, u64> {
        if let Ending::Reset(code) = self.ending {
            self.ending = Ending::Told;
            return Err(code);
        }
        let count = into.len().min((self.ready - self.read) as usize);
        if count == 0 && !into.is_empty() {
            if self.final_size == Some(self.read) || self.ending != Ending::Open {
                self.ending = Ending::Told;
                return Ok(Some(0));
            }
            return Ok(None);
        }
        let (front, back) = self.buffer.as_slices();
        let split = count.min(front.len());
        if let (Some(to), Some(from)) = (into.get_mut(..split), front.get(..split)) {
            to.copy_from_slice(from);
        }
        if let (Some(to), Some(from)) = (into.get_mut(split..count), back.get(..count - split)) {
            to.copy_from_slice(from);
        }
        self.buffer.drain(..count);
        self.read += count as u64;
        Ok(Some(count))
    }

    /// The new limit for a window of this size, if it is worth telling the peer.
    pub(super) fn next_limit(&mut self, window: u64) -> Option<u64> {
        let limit = self.read + window;
        let known = self.final_size.is_some();
        (!known && limit >= self.limit + window / 4).then(|| {
            self.limit = limit;
            limit
        })
    }

    fn check_final_size(&mut self, end: u64, is_last: bool) -> Result<(), Violation> {
        if self.final_size.is_some_and(|size| end > size || is_last && end != size) {
            return Err(Violation::FinalSize);
        }
        if is_last {
            if end < self.highest {
                return Err(Violation::FinalSize);
            }
            self.final_size = Some(end);
        }
        Ok(())
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
        let end = offset + bytes.len() as u64;
        if end <= self.ready {
            return Ok(());
        }
        if offset <= self.ready && self.beyond.is_empty() {
            let known = (self.ready - offset) as usize;
            self.buffer.extend(bytes.get(known..).unwrap_or_default());
            self.ready = end;
            return Ok(());
        }
        let from = offset.max(self.ready);
        let new = bytes.get((from - offset) as usize..).unwrap_or_default();
        let needed = (end - self.read) as usize;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.place((from - self.read) as usize, new);
        self.skip(offset, end);
        if self.beyond.count() > MAX_PIECES { Err(Violation::Crumbs) } else { Ok(()) }
    }

    fn place(&mut self, at: usize, bytes: &[u8]) {
        let (front, back) = self.buffer.as_mut_slices();
        let split = front.len().saturating_sub(at).min(bytes.len());
        let (first, second) = bytes.split_at(split);
        if let Some(to) = front.get_mut(at..at + first.len()) {
            to.copy_from_slice(first);
        }
        let start = (at + split).saturating_sub(front.len());
        if let Some(to) = back.get_mut(start..start + second.len()) {
            to.copy_from_slice(second);
        }
    }

    /// Notes that bytes have arrived, without keeping them.
    fn skip(&mut self, offset: u64, end: u64) {
        if end <= self.ready {
            return;
        }
        self.beyond.insert(offset.max(self.ready)..end);
        if let Some(first) = self.beyond.first().filter(|first| first.start <= self.ready) {
            self.ready = first.end;
            self.beyond.remove(first);
        }
        if self.ending != Ending::Open {
            self.read = self.ready;
        }
    }

    /// Nothing more comes: bytes after a gap are of no use.
    pub(super) fn drop_beyond(&mut self) {
        self.buffer.truncate((self.ready - self.read) as usize);
        self.buffer.shrink_to_fit();
        self.beyond.clear();
    }

    fn drop_kept(&mut self) {
        self.buffer = VecDeque::new();
        self.beyond.clear();
        self.read = self.ready;
    }
}
