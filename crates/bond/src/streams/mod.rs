//! Streams and datagrams of a session: what virtual sockets are made of.
//!
//! Bytes are kept until they are acknowledged. What a path loses, or takes with it when it dies, is sent again on whichever
//! path the scheduler then chooses; the receiver takes each byte once, by its offset. All of it can move to another session
//! with the same peer ([`Streams::moved`]), so streams outlive handshakes.

mod config;
mod ranges;
mod receive;
mod remains;
mod send;

pub use config::{MAX_DATAGRAM_LEN, StreamError, StreamEvent, StreamLimits};
pub(crate) use config::{Notice, Span, Violation};
pub use remains::Remains;

use config::{INITIAL_SESSION_WINDOW, INITIAL_STREAM_WINDOW, MAX_DATAGRAMS, MAX_STREAMS};
use receive::ReceiveHalf;
use send::{Ending, SendHalf};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use units::Timestamp;
use wire::stream::{StreamData, StreamFrame, StreamId};

#[derive(Debug)]
struct Stream {
    send: SendHalf,
    receive: ReceiveHalf,
    /// It stands in the line of those that have something to send.
    listed: bool,
}

/// A datagram that waits, and until when it is worth sending.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    until: Timestamp,
}

/// All streams of a conversation with one peer.
#[derive(Debug)]
pub(crate) struct Streams {
    limits: StreamLimits,
    /// This end's streams have even numbers.
    even: bool,
    streams: BTreeMap<StreamId, Stream>,
    /// Streams that this end has opened, and may.
    opened: u64,
    may_open: u64,
    opener_waits: bool,
    /// Streams that the peer has opened, and may.
    opened_by_peer: u64,
    peer_may_open: u64,
    /// Those of the peer's that nobody has accepted yet.
    fresh: VecDeque<StreamId>,
    /// Those with something to send, by turns.
    line: VecDeque<StreamId>,
    /// Bytes sent of all streams, and how many the peer takes.
    sent: u64,
    sent_limit: u64,
    /// Bytes received, read, and how many the peer may send.
    received: u64,
    consumed: u64,
    received_limit: u64,
    /// Bytes that wait or are in flight.
    kept: u64,
    notices: BTreeSet<Notice>,
    outgoing: VecDeque<Outgoing>,
    incoming: VecDeque<Vec<u8>>,
    events: VecDeque<StreamEvent>,
    /// Nothing is sent until the owner says that the peer is still the same process.
    held: bool,
}

impl Streams {
    /// No stream yet; exactly one of two ends is `even`.
    pub(crate) fn new(limits: StreamLimits, even: bool) -> Self {
        let mut streams = Self {
            limits,
            even,
            streams: BTreeMap::new(),
            opened: 0,
            may_open: MAX_STREAMS,
            opener_waits: false,
            opened_by_peer: 0,
            peer_may_open: MAX_STREAMS,
            fresh: VecDeque::new(),
            line: VecDeque::new(),
            sent: 0,
            sent_limit: INITIAL_SESSION_WINDOW,
            received: 0,
            consumed: 0,
            received_limit: INITIAL_SESSION_WINDOW,
            kept: 0,
            notices: BTreeSet::new(),
            outgoing: VecDeque::new(),
            incoming: VecDeque::new(),
            events: VecDeque::new(),
            held: false,
        };
        if limits.session_window.0 > INITIAL_SESSION_WINDOW {
            streams.received_limit = limits.session_window.0;
            streams.notices.insert(Notice::SessionLimit);
        }
        streams
    }

    pub(crate) fn limits(&self) -> StreamLimits {
        self.limits
    }

    // ---- what the owner does ----

    pub(crate) fn open(&mut self) -> Result<StreamId, StreamError> {
        if self.opened >= self.may_open {
            self.opener_waits = true;
            return Err(StreamError::Blocked);
        }
        let id = StreamId(self.opened * 2 + u64::from(!self.even));
        self.opened += 1;
        self.add(id, true);
        self.enlist(id);
        Ok(id)
    }

    pub(crate) fn accept(&mut self) -> Option<StreamId> {
        self.fresh.pop_front()
    }

    pub(crate) fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        let all = self.limits.session_buffer.0.saturating_sub(self.kept) as usize;
        let stream = self.streams.get_mut(&id).ok_or(StreamError::NoStream)?;
        if stream.send.ending() != Ending::Open {
            return Err(StreamError::Closed);
        }
        let count = bytes.len().min(stream.send.room(self.limits.send_buffer.0)).min(all);
        if count == 0 && !bytes.is_empty() {
            stream.send.writer_waits = true;
            return Err(StreamError::Blocked);
        }
        stream.send.write(bytes.get(..count).unwrap_or_default());
        self.kept += count as u64;
        self.enlist(id);
        Ok(count)
    }

    pub(crate) fn read(&mut self, id: StreamId, into: &mut [u8]) -> Result<usize, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::NoStream)?;
        let before = stream.receive.released();
        let outcome = stream.receive.read(into);
        if let Ok(None) = outcome {
            stream.receive.reader_waits = true;
            return Err(StreamError::Blocked);
        }
        self.release(id, before);
        outcome.map_err(StreamError::Reset)?.ok_or(StreamError::Blocked)
    }

    /// No more bytes follow. [`StreamEvent::Finished`] tells when all have arrived.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::NoStream)?;
        stream.send.finish();
        self.enlist(id);
        Ok(())
    }

    /// Whether all that was written to a finished stream has arrived; if not, an event will tell.
    pub(crate) fn is_finished(&mut self, id: StreamId) -> Result<bool, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::NoStream)?;
        match stream.send.ending() {
            Ending::Reset { .. } => Err(StreamError::Closed),
            Ending::Acknowledged => Ok(true),
            _ => {
                stream.send.finisher_waits = true;
                Ok(false)
            }
        }
    }

    /// Gives the sending half up.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let kept = stream.send.kept();
        if stream.send.reset(code) {
            self.kept -= kept;
            self.notices.insert(Notice::Reset(id));
        }
        self.wake_sender(id);
    }

    /// Nobody will read the receiving half.
    pub(crate) fn stop(&mut self, id: StreamId, code: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let before = stream.receive.released();
        stream.receive.stop();
        if stream.receive.is_unread() {
            self.notices.insert(Notice::Stop(id, code));
        }
        self.release(id, before);
    }

    /// Queues a datagram; the oldest gives way if too many wait.
    pub(crate) fn send_datagram(&mut self, bytes: Vec<u8>, until: Timestamp) -> Result<(), StreamError> {
        if bytes.len() > MAX_DATAGRAM_LEN {
            return Err(StreamError::TooLong);
        }
        if self.outgoing.len() >= MAX_DATAGRAMS {
            self.outgoing.pop_front();
        }
        self.outgoing.push_back(Outgoing { bytes, until });
        Ok(())
    }

    pub(crate) fn receive_datagram(&mut self) -> Option<Vec<u8>> {
        self.incoming.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    // ---- what the peer says ----

    pub(crate) fn on_frame(&mut self, frame: &StreamFrame<'_>) -> Result<(), Violation> {
        match *frame {
            StreamFrame::Data(data) => self.on_data(&data),
            StreamFrame::Reset { stream, code, final_size } => self.on_reset(stream, code, final_size),
            StreamFrame::Stop { stream, code } => {
                self.meet(stream)?;
                if self.streams.contains_key(&stream) {
                    self.reset(stream, code);
                    self.events.push_back(StreamEvent::Stopped(stream));
                }
                Ok(())
            }
            StreamFrame::StreamLimit { stream, offset } => {
                self.meet(stream)?;
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.send.raise_limit(offset);
                    self.enlist(stream);
                }
                Ok(())
            }
            StreamFrame::SessionLimit(limit) => {
                if limit > self.sent_limit {
                    self.sent_limit = limit;
                    let waiting: Vec<StreamId> = self.streams.keys().copied().collect();
                    waiting.into_iter().for_each(|id| self.enlist(id));
                }
                Ok(())
            }
            StreamFrame::StreamCount(count) => {
                if count > self.may_open {
                    self.may_open = count;
                    if std::mem::take(&mut self.opener_waits) {
                        self.events.push_back(StreamEvent::MayOpen);
                    }
                }
                Ok(())
            }
            StreamFrame::Datagram(bytes) => {
                if self.incoming.len() >= MAX_DATAGRAMS {
                    self.incoming.pop_front();
                }
                self.incoming.push_back(bytes.to_vec());
                self.events.push_back(StreamEvent::Datagram);
                Ok(())
            }
        }
    }

    fn on_data(&mut self, data: &StreamData<'_>) -> Result<(), Violation> {
        let id = data.stream;
        self.meet(id)?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let before = stream.receive.released();
        let further = stream.receive.on_data(data)?;
        self.after_receiving(id, further)?;
        self.release(id, before);
        Ok(())
    }

    fn on_reset(&mut self, id: StreamId, code: u64, final_size: u64) -> Result<(), Violation> {
        self.meet(id)?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let before = stream.receive.released();
        let further = stream.receive.on_reset(code, final_size)?;
        self.after_receiving(id, further)?;
        self.release(id, before);
        Ok(())
    }

    /// Opens what the peer has opened up to this stream; refuses what cannot be.
    fn meet(&mut self, id: StreamId) -> Result<(), Violation> {
        let (number, is_own) = (id.0 / 2, id.0.is_multiple_of(2) == self.even);
        if is_own {
            return if number < self.opened { Ok(()) } else { Err(Violation::Stream) };
        }
        if number >= self.peer_may_open {
            return Err(Violation::Stream);
        }
        while self.opened_by_peer <= number {
            let opened = StreamId(self.opened_by_peer * 2 + u64::from(self.even));
            self.opened_by_peer += 1;
            self.add(opened, false);
            self.fresh.push_back(opened);
            self.events.push_back(StreamEvent::Opened);
        }
        Ok(())
    }

    fn add(&mut self, id: StreamId, announce: bool) {
        let window = self.limits.stream_window.0;
        let mut receive = ReceiveHalf::new(INITIAL_STREAM_WINDOW);
        if receive.next_limit(window).is_some() {
            self.notices.insert(Notice::StreamLimit(id));
        }
        let send = SendHalf::new(INITIAL_STREAM_WINDOW, announce);
        self.streams.insert(id, Stream { send, receive, listed: false });
    }

    fn after_receiving(&mut self, id: StreamId, further: u64) -> Result<(), Violation> {
        self.received += further;
        if self.received > self.received_limit {
            return Err(Violation::Limit);
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.receive.is_readable()
            && std::mem::take(&mut stream.receive.reader_waits)
        {
            self.events.push_back(StreamEvent::Readable(id));
        }
        Ok(())
    }

    /// Bytes beyond the first `before` that were released are new room: tells the peer, where that is worth a frame.
    fn release(&mut self, id: StreamId, before: u64) {
        let Some(stream) = self.streams.get(&id) else { return };
        self.consumed += stream.receive.released().saturating_sub(before);
        let window = self.limits.session_window.0;
        if self.consumed + window >= self.received_limit + window / 4 {
            self.received_limit = self.consumed + window;
            self.notices.insert(Notice::SessionLimit);
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.receive.next_limit(self.limits.stream_window.0).is_some()
        {
            self.notices.insert(Notice::StreamLimit(id));
        }
        self.forget_if_over(id);
    }

    // ---- what goes out ----

    /// Puts a stream in line if it has something to send.
    fn enlist(&mut self, id: StreamId) {
        let credit = self.credit();
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.listed
            && stream.send.has_something(credit)
        {
            stream.listed = true;
            self.line.push_back(id);
        }
    }

    fn credit(&self) -> u64 {
        self.sent_limit.saturating_sub(self.sent)
    }

    /// Takes those out of the front of the line that cannot send.
    fn tidy_line(&mut self) {
        let credit = self.credit();
        while let Some(id) = self.line.front() {
            match self.streams.get_mut(id) {
                Some(stream) if stream.send.has_something(credit) => return,
                Some(stream) => stream.listed = false,
                None => {}
            }
            self.line.pop_front();
        }
    }

    /// Whether bytes or datagrams could be sent.
    pub(crate) fn has_data(&self) -> bool {
        !self.held && (!self.line.is_empty() || !self.outgoing.is_empty())
    }

    /// Whether a datagram waits.
    pub(crate) fn has_datagram(&self) -> bool {
        !self.held && !self.outgoing.is_empty()
    }

    /// Bytes that wait in all streams that may send.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let streams = self.line.iter().filter_map(|id| self.streams.get(id));
        streams.map(|stream| stream.send.pending_bytes().max(1)).sum()
    }

    /// Streams in line.
    pub(crate) fn waiting_streams(&self) -> u64 {
        self.line.len() as u64
    }

    /// The stream whose turn it is, and what it has in one piece after the first `depth` bytes that wait in it.
    pub(crate) fn next_piece(&mut self, depth: u64) -> Option<(StreamId, Option<Range<u64>>)> {
        if self.held {
            return None;
        }
        self.tidy_line();
        let id = *self.line.front()?;
        let credit = self.credit();
        self.streams.get(&id).map(|stream| (id, stream.send.piece(depth, credit)))
    }

    /// Takes up to `room(stream, offset)` bytes of the stream whose turn it is; the next one's turn follows.
    pub(crate) fn take(&mut self, depth: u64, room: impl Fn(StreamId, u64) -> usize) -> Option<Span> {
        if self.held {
            return None;
        }
        self.tidy_line();
        let id = *self.line.front()?;
        let credit = self.credit();
        let stream = self.streams.get_mut(&id)?;
        let taken = stream.send.take(id, depth, |offset| room(id, offset), credit);
        self.line.pop_front();
        stream.listed = false;
        let (span, used) = taken?;
        self.sent += used;
        self.enlist(id);
        Some(span)
    }

    /// Appends the bytes of a span.
    pub(crate) fn copy(&self, span: &Span, into: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get(&span.stream) {
            stream.send.copy(span, into);
        }
    }

    /// The next datagram that is still worth sending and no longer than `room`.
    pub(crate) fn take_datagram(&mut self, now: Timestamp, room: usize) -> Option<Vec<u8>> {
        while self.outgoing.front().is_some_and(|next| next.until < now) {
            self.outgoing.pop_front();
        }
        let fits = !self.held && self.outgoing.front().is_some_and(|next| next.bytes.len() <= room);
        fits.then(|| self.outgoing.pop_front().map(|next| next.bytes)).flatten()
    }

    /// Whether something waits to be said.
    pub(crate) fn has_notices(&self) -> bool {
        !self.held && !self.notices.is_empty()
    }

    /// The next thing to say, as it is now.
    pub(crate) fn take_notice(&mut self) -> Option<(Notice, StreamFrame<'static>)> {
        if self.held {
            return None;
        }
        while let Some(notice) = self.notices.pop_first() {
            let frame = match notice {
                Notice::SessionLimit => Some(StreamFrame::SessionLimit(self.received_limit)),
                Notice::StreamCount => Some(StreamFrame::StreamCount(self.peer_may_open)),
                Notice::StreamLimit(id) => self
                    .streams
                    .get(&id)
                    .map(|stream| StreamFrame::StreamLimit { stream: id, offset: stream.receive.limit() }),
                Notice::Stop(id, code) => {
                    self.streams.contains_key(&id).then_some(StreamFrame::Stop { stream: id, code })
                }
                Notice::Reset(id) => self.streams.get(&id).and_then(|stream| match stream.send.ending() {
                    Ending::Reset { code, .. } => {
                        Some(StreamFrame::Reset { stream: id, code, final_size: stream.send.highest() })
                    }
                    _ => None,
                }),
            };
            if let Some(frame) = frame {
                return Some((notice, frame));
            }
        }
        None
    }

    // ---- what became of it ----

    pub(crate) fn on_acknowledged(&mut self, span: &Span) {
        let Some(stream) = self.streams.get_mut(&span.stream) else { return };
        let before = stream.send.kept();
        stream.send.on_acknowledged(span);
        self.kept -= before - stream.send.kept();
        self.wake_sender(span.stream);
    }

    pub(crate) fn on_lost(&mut self, span: &Span) {
        if let Some(stream) = self.streams.get_mut(&span.stream) {
            stream.send.on_lost(span);
            self.enlist(span.stream);
        }
    }

    pub(crate) fn on_notice_acknowledged(&mut self, notice: Notice) {
        if let Notice::Reset(id) = notice
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.send.on_reset_acknowledged();
            self.forget_if_over(id);
        }
    }

    pub(crate) fn on_notice_lost(&mut self, notice: Notice) {
        self.notices.insert(notice);
    }

    fn wake_sender(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let is_open = stream.send.ending() == Ending::Open;
        // Not for a few bytes: the writer would be woken for each acknowledgement.
        let room = !is_open || stream.send.room(self.limits.send_buffer.0) > 32 * 1024;
        if room && std::mem::take(&mut stream.send.writer_waits) {
            self.events.push_back(StreamEvent::Writable(id));
        }
        let done = matches!(stream.send.ending(), Ending::Acknowledged | Ending::Reset { .. });
        if done && std::mem::take(&mut stream.send.finisher_waits) {
            self.events.push_back(StreamEvent::Finished(id));
        }
        self.forget_if_over(id);
    }

    fn forget_if_over(&mut self, id: StreamId) {
        let over = |stream: &Stream| stream.send.is_over() && stream.receive.is_over();
        if !self.streams.get(&id).is_some_and(over) {
            return;
        }
        self.streams.remove(&id);
        if id.0.is_multiple_of(2) != self.even {
            self.peer_may_open += 1;
            self.notices.insert(Notice::StreamCount);
        }
    }

    // ---- another session ----

    /// The session that carried the streams is gone: what was in flight waits again. Nothing is sent before
    /// [`Streams::go_on`] if `held`.
    pub(crate) fn moved(&mut self, held: bool) {
        self.held = held;
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.lose_all();
                self.notices.insert(Notice::StreamLimit(id));
                if stream.receive.is_unread() {
                    self.notices.insert(Notice::Stop(id, 0));
                }
                if matches!(stream.send.ending(), Ending::Reset { .. }) {
                    self.notices.insert(Notice::Reset(id));
                }
            }
            self.enlist(id);
        }
        self.notices.extend([Notice::SessionLimit, Notice::StreamCount]);
    }

    /// The peer still knows the streams.
    pub(crate) fn go_on(&mut self) {
        self.held = false;
    }

    /// What can still be read once the session is over.
    pub(crate) fn into_remains(self) -> Remains {
        Remains::new(self)
    }

    /// Streams that are not over.
    pub(crate) fn count(&self) -> usize {
        self.streams.len()
    }
}
