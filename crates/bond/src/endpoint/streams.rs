//! Streams and datagrams of sessions, and sessions that take the place of others.

use super::slot::Succession;
use super::{ConnectError, Endpoint, EndpointEvent, IncomingId, SessionId};
use crate::keys::PublicKey;
use crate::session::Session;
use crate::streams::{Remains, StreamError, StreamLimits, Streams};
use units::Timestamp;
use wire::datagram::DataHeader;
use wire::frame::CLOSE_REPLACED;
use wire::stream::StreamId;

impl Endpoint {
    /// Sessions that begin from now on carry streams and datagrams; without this they refuse them.
    pub fn carry_streams(&mut self, limits: StreamLimits) {
        self.streams = Some(limits);
    }

    /// Opens a stream. The peer hears of it at once.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], or [`StreamError::Blocked`] until `StreamEvent::MayOpen`.
    pub fn open_stream(&mut self, now: Timestamp, session: SessionId) -> Result<StreamId, StreamError> {
        self.use_streams(now, session, Streams::open)
    }

    /// The next stream that the peer has opened.
    pub fn accept_stream(&mut self, session: SessionId) -> Option<StreamId> {
        self.session_mut(session)?.streams_mut()?.accept()
    }

    /// Takes bytes to be sent, as many as there is room for; returns how many.
    ///
    /// # Errors
    /// [`StreamError::Blocked`] if there is no room until `StreamEvent::Writable`; others if there never will be.
    pub fn write_stream(
        &mut self,
        now: Timestamp,
        session: SessionId,
        stream: StreamId,
        bytes: &[u8],
    ) -> Result<usize, StreamError> {
        self.use_streams(now, session, |streams| streams.write(stream, bytes))
    }

    /// Fills `into` from the front with what has arrived in order; returns how many bytes, 0 at the end.
    ///
    /// # Errors
    /// [`StreamError::Blocked`] if nothing is there until `StreamEvent::Readable`; others if nothing will be.
    pub fn read_stream(
        &mut self,
        session: SessionId,
        stream: StreamId,
        into: &mut [u8],
    ) -> Result<usize, StreamError> {
        let streams = self.session_mut(session).and_then(Session::streams_mut);
        let streams = streams.ok_or(StreamError::NoSession)?;
        let outcome = streams.read(stream, into);
        if streams.has_notices() {
            self.touch(session);
        }
        outcome
    }

    /// No more bytes follow.
    ///
    /// # Errors
    /// If there is no such stream.
    pub fn finish_stream(
        &mut self,
        now: Timestamp,
        session: SessionId,
        stream: StreamId,
    ) -> Result<(), StreamError> {
        self.use_streams(now, session, |streams| streams.finish(stream))
    }

    /// Whether all bytes of a finished stream have arrived; if not, `StreamEvent::Finished` will tell.
    ///
    /// # Errors
    /// If there is no such stream, or it was given up.
    pub fn is_stream_finished(&mut self, session: SessionId, stream: StreamId) -> Result<bool, StreamError> {
        let streams = self.session_mut(session).and_then(Session::streams_mut);
        streams.ok_or(StreamError::NoSession)?.is_finished(stream)
    }

    /// Gives the sending half of a stream up; what was not delivered will not be.
    pub fn reset_stream(&mut self, now: Timestamp, session: SessionId, stream: StreamId, code: u64) {
        // A stream that is not there needs no reset.
        let _ = self.use_streams(now, session, |streams| {
            streams.reset(stream, code);
            Ok(())
        });
    }

    /// Wants no more of what the peer sends on a stream.
    pub fn stop_stream(&mut self, now: Timestamp, session: SessionId, stream: StreamId, code: u64) {
        // As above.
        let _ = self.use_streams(now, session, |streams| {
            streams.stop(stream, code);
            Ok(())
        });
    }

    /// Sends one message of at most [`MAX_DATAGRAM_LEN`](crate::MAX_DATAGRAM_LEN) bytes, once, unless it still waits at `until`.
    ///
    /// # Errors
    /// [`StreamError::NoSession`] or [`StreamError::TooLong`].
    pub fn send_datagram(
        &mut self,
        now: Timestamp,
        session: SessionId,
        bytes: Vec<u8>,
        until: Timestamp,
    ) -> Result<(), StreamError> {
        self.use_streams(now, session, |streams| streams.send_datagram(bytes, until))
    }

    /// The next message that has come.
    pub fn receive_datagram(&mut self, session: SessionId) -> Option<Vec<u8>> {
        self.session_mut(session)?.streams_mut()?.receive_datagram()
    }

    /// Bytes that were written to streams of a session and wait to be sent.
    pub fn waiting_stream_bytes(&self, session: SessionId) -> u64 {
        let session = self.slots.get(&session).and_then(|slot| slot.session.as_ref());
        session.map_or(0, Session::waiting_stream_bytes)
    }

    /// Streams of a session that are not over.
    pub fn open_streams(&self, session: SessionId) -> usize {
        let session = self.slots.get(&session).and_then(|slot| slot.session.as_ref());
        session.map_or(0, Session::stream_count)
    }

    /// What is left of the streams of a session that is over: after `EndpointEvent::Closed` and before the next event, or before
    /// [`Endpoint::close`]. The session has none from then on.
    pub fn take_remains(&mut self, session: SessionId) -> Option<Remains> {
        let closed = self.remains.remove(&session);
        closed.or_else(|| self.session_mut(session)?.take_streams().map(|streams| streams.into_remains()))
    }

    // ---- sessions in place of others ----

    /// As [`Endpoint::connect`], for a session that is to take over the streams of `older` with the same peer.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub fn connect_instead(
        &mut self,
        now: Timestamp,
        peer: PublicKey,
        payload: Vec<u8>,
        stamp: u64,
        older: SessionId,
    ) -> Result<SessionId, ConnectError> {
        let id = self.connect(now, peer, payload, stamp)?;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.succession = Succession::Of(older);
        }
        Ok(id)
    }

    /// As [`Endpoint::accept`], but leaves other sessions of the same peer alone; one that it `continues` ends, and gives its streams.
    pub fn accept_beside(
        &mut self,
        now: Timestamp,
        id: IncomingId,
        payload: &[u8],
        continues: Option<SessionId>,
    ) -> Option<SessionId> {
        let session = self.accept(now, id, payload)?;
        if let Some(slot) = self.slots.get_mut(&session) {
            slot.succession = continues.map_or(Succession::Beside, Succession::Of);
        }
        Some(session)
    }

    /// After `EndpointEvent::Connected` on the initiator's side: whether the peer still knows the streams of before. If not,
    /// they are gone and new ones begin.
    pub fn continue_streams(&mut self, now: Timestamp, session: SessionId, known: bool) {
        if let Some(session) = self.session_mut(session) {
            session.continue_streams(known);
        }
        self.after_input(now, session);
    }

    /// Gives the streams of the session that `id` follows to it, as it is established; that one ends.
    pub(super) fn inherit(&mut self, id: SessionId) {
        let Some(Succession::Of(older)) = self.slots.get(&id).map(|slot| slot.succession) else { return };
        let Some(slot) = self.slots.get_mut(&older) else { return };
        let peer = slot.peer;
        let streams = slot.session.as_mut().and_then(Session::take_streams);
        if let (Some(session), Some(streams)) = (self.session_mut(id), streams) {
            session.put_streams(streams, true);
        }
        // Without a word: the peer must not let go of the streams before it has seen the new session.
        self.forget(older);
        self.events.push_back(EndpointEvent::Closed { session: older, peer, reason: CLOSE_REPLACED });
    }

    /// The responder's side: the peer has shown that it has the keys. The streams are here already.
    pub(super) fn succeed(&mut self, id: SessionId, older: SessionId, peer: PublicKey) {
        if let Some(session) = self.session_mut(id) {
            session.move_streams();
        }
        if self.slots.contains_key(&older) {
            self.forget(older);
            self.events.push_back(EndpointEvent::Closed { session: older, peer, reason: CLOSE_REPLACED });
        }
    }

    /// The responder's side: the first packet of a session that follows another one may speak of its streams already, so
    /// the new one has them while it is opened, and keeps them if the packet is authentic.
    pub(super) fn lend_streams(&mut self, header: &DataHeader, open: impl FnOnce(&mut Self)) {
        let follows = |endpoint: &Self| {
            let id = *endpoint.by_index.get(&header.receiver_index)?;
            let slot = endpoint.slots.get(&id)?;
            let session = slot.session.as_ref().filter(|session| !session.confirmed)?;
            match slot.succession {
                Succession::Of(older) if session.is_responder() => Some((id, older)),
                _ => None,
            }
        };
        let Some((id, older)) = follows(self) else { return open(self) };
        self.swap_streams(id, older);
        open(self);
        let confirmed = |slot: &super::Slot| slot.session.as_ref().is_some_and(|session| session.confirmed);
        if !self.slots.get(&id).is_some_and(confirmed) {
            self.swap_streams(id, older);
        }
    }

    fn swap_streams(&mut self, id: SessionId, older: SessionId) {
        let Some(mut slot) = self.slots.remove(&older) else { return };
        if let (Some(new), Some(old)) = (self.session_mut(id), slot.session.as_mut()) {
            new.swap_streams(old);
        }
        self.slots.insert(older, slot);
    }

    fn use_streams<T>(
        &mut self,
        now: Timestamp,
        id: SessionId,
        act: impl FnOnce(&mut Streams) -> Result<T, StreamError>,
    ) -> Result<T, StreamError> {
        let session = self.session_mut(id).ok_or(StreamError::NoSession)?;
        let outcome = act(session.streams_mut().ok_or(StreamError::NoSession)?);
        session.on_stream_use(now);
        self.after_input(now, id);
        outcome
    }
}
