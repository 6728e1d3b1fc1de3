//! Streams of a session: what comes in, what has arrived, what was lost.

use super::{Role, Session, SessionEvent};
use crate::streams::{Notice, Span, StreamLimits, Streams};
use crate::unit::Item;
use units::Timestamp;
use wire::frame::CLOSE_BROKEN;
use wire::stream::StreamFrame;

impl Session {
    /// From now on the session carries streams.
    pub(crate) fn carry_streams(&mut self, limits: StreamLimits) {
        self.streams = Some(Box::new(Streams::new(limits, self.role == Role::Initiator)));
    }

    /// What the owner does with streams; `None` if the session carries none.
    pub(crate) fn streams_mut(&mut self) -> Option<&mut Streams> {
        self.streams.as_deref_mut()
    }

    /// Something of the owner's waits to be sent: the session is busy.
    pub(crate) fn on_stream_use(&mut self, now: Timestamp) {
        self.last_data_at = Some(now);
        self.tick_at = self.tick_at.min(now + super::TICK);
        self.report_streams();
    }

    /// Gives the streams away, to the session that takes this one's place.
    pub(crate) fn take_streams(&mut self) -> Option<Box<Streams>> {
        self.streams.take()
    }

    /// Takes over the streams of a session with the same peer; they wait for the owner's word if `held`.
    pub(crate) fn put_streams(&mut self, streams: Box<Streams>, held: bool) {
        let mut streams = streams;
        streams.moved(held);
        self.streams = Some(streams);
    }

    /// Streams without the loss of what is in flight: to put back what was taken for nothing.
    pub(crate) fn swap_streams(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.streams, &mut other.streams);
    }

    /// The streams came here from another session with the same peer.
    pub(crate) fn move_streams(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.moved(false);
        }
    }

    /// The owner has found out whether the peer still knows the streams.
    pub(crate) fn continue_streams(&mut self, known: bool) {
        let Some(streams) = &mut self.streams else { return };
        if known {
            streams.go_on();
        } else {
            let limits = streams.limits();
            self.carry_streams(limits);
        }
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.count())
    }

    pub(crate) fn waiting_stream_bytes(&self) -> u64 {
        self.streams.as_ref().map_or(0, |streams| streams.waiting_bytes())
    }

    pub(crate) fn is_responder(&self) -> bool {
        self.role == Role::Responder
    }

    pub(super) fn handle_stream(&mut self, now: Timestamp, frame: &StreamFrame<'_>) {
        let Some(streams) = &mut self.streams else { return };
        if streams.on_frame(frame).is_err() {
            // The peer breaks the rules: there is nothing to talk about.
            self.events.push_back(SessionEvent::ClosedByPeer(CLOSE_BROKEN));
            return;
        }
        self.on_stream_use(now);
    }

    pub(super) fn settle(&mut self, items: &[Item]) {
        let Some(streams) = self.streams.as_mut().filter(|_| !items.is_empty()) else { return };
        for item in items {
            match item {
                Item::Stream(span) => streams.on_acknowledged(span),
                Item::Notice(notice) => streams.on_notice_acknowledged(*notice),
                Item::Data(_) | Item::Control(_) => {}
            }
        }
        self.report_streams();
    }

    pub(super) fn lose_span(&mut self, span: &Span) {
        if let Some(streams) = &mut self.streams {
            self.counters.repeats += 1;
            streams.on_lost(span);
        }
    }

    pub(super) fn lose_notice(&mut self, notice: Notice) {
        if let Some(streams) = &mut self.streams {
            streams.on_notice_lost(notice);
        }
    }

    pub(super) fn has_stream_data(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.has_data())
    }

    fn report_streams(&mut self) {
        let Some(streams) = &mut self.streams else { return };
        while let Some(event) = streams.poll_event() {
            self.events.push_back(SessionEvent::Stream(event));
        }
    }
}
