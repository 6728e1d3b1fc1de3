//! Connections that outlive their network.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bond::{PathState, Remains, StreamError, StreamId};
use identity::PublicKey;
use linux::clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use units::BitRate;

use super::conversation::{Conversation, ConversationId, State};
use super::core::Core;
use super::endpoint::Owner;
use super::error::ConnectError;
use super::wakers::Wait;

/// Bytes that one read copies at most.
const MOST_AT_ONCE: usize = 256 * 1024;

/// A connection to a peer, which goes on as long as one network reaches it, or comes back in time. Reading and writing are as
/// with a TCP socket. Dropping it ends both directions; what was written before is still delivered while the endpoint lives. What has arrived before
/// the connection ended, for whatever reason, can still be read; only then comes the error, or the end where the peer had finished.
pub struct VirtualStream {
    owner: Arc<Owner>,
    conversation: ConversationId,
    stream: StreamId,
    peer: PublicKey,
}

/// How a connection stands now.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// `ACTIVE_INT`: the adapter that carries it; `None` while it is suspended.
    pub adapter: Option<String>,
    /// Smoothed round-trip time over it.
    pub round_trip: Option<Duration>,
    /// `INT_BANDWIDTH`: what it is expected to carry.
    pub bandwidth: Option<BitRate>,
    /// Paths that could carry it: pairs of adapters.
    pub paths: usize,
}

impl VirtualStream {
    pub(super) fn new(
        owner: Arc<Owner>,
        conversation: ConversationId,
        stream: StreamId,
        peer: PublicKey,
    ) -> Self {
        Self { owner, conversation, stream, peer }
    }

    /// Who is at the other end: proved by its key.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    pub(super) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// What carries the connection now.
    pub fn standing(&self) -> Standing {
        let core = self.owner.shared().lock();
        let Some(known) = core.conversations.get(&self.conversation) else {
            return Standing { adapter: None, round_trip: None, bandwidth: None, paths: 0 };
        };
        let reports = core.bond.path_reports(known.session);
        let usable = || reports.iter().filter(|report| report.state == PathState::Usable);
        let active = usable().find(|report| Some(report.network) == known.active).or_else(|| usable().next());
        let adapter = active.and_then(|report| core.carriers.adapter_of(report.network));
        Standing {
            adapter: adapter.map(str::to_owned),
            round_trip: active.and_then(|report| report.smoothed_rtt),
            bandwidth: active.and_then(|report| report.rate),
            paths: usable().count(),
        }
    }

    /// Bytes that were written to connections with this peer and wait to be sent.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let core = self.owner.shared().lock();
        let known = core.conversations.get(&self.conversation);
        known.map_or(0, |known| core.bond.waiting_stream_bytes(known.session))
    }

    /// Gives the connection up at once: what is on its way either way is lost, the peer reads `code` as an error, and calls that
    /// wait here return.
    pub fn reset(&self, code: u64) {
        let shared = self.owner.shared();
        let mut core = shared.lock();
        let Core { bond, conversations, .. } = &mut *core;
        if let Some(known) = conversations.get_mut(&self.conversation) {
            bond.reset_stream(clock::now(), known.session, self.stream, code);
            bond.stop_stream(clock::now(), known.session, self.stream, code);
            for what in [Wait::Read, Wait::Write, Wait::Finish] {
                known.wakers.wake(self.stream, what);
            }
        }
        shared.done(core);
    }

    /// Says that no more bytes follow, and waits until the peer has all.
    ///
    /// # Errors
    /// If it will not have all: the peer went away, or wants no more.
    pub async fn finish(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_finish(context)).await
    }

    pub(crate) fn poll_finish(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let left = |left: &mut Remains, stream| match left.is_finished(stream) {
            Ok(()) | Err(StreamError::NoStream) => Some(Ok(())),
            Err(_) => None,
        };
        self.with(left, |core, known, stream| {
            let finished = core.finish_stream(clock::now(), known.session, stream);
            match finished.and_then(|()| core.is_stream_finished(known.session, stream)) {
                Ok(true) => Poll::Ready(Ok(())),
                // It is over in both directions and forgotten.
                Err(StreamError::NoStream) => Poll::Ready(Ok(())),
                Ok(false) => {
                    known.wakers.wait(stream, Wait::Finish, context);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(into_io(error))),
            }
        })
    }

    pub(crate) fn poll_read_some(&self, context: &Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let most = into.len().min(MOST_AT_ONCE);
        let into = into.get_mut(..most).unwrap_or_default();
        // The same bytes are lent to whichever of the two is called.
        let into = std::cell::Cell::new(into);
        let left = |left: &mut Remains, stream| match left.read(stream, into.take()) {
            Ok(count) => Some(Ok(count)),
            Err(StreamError::NoStream) => Some(Ok(0)),
            // There are no more, and their end has not come.
            Err(StreamError::Blocked) => None,
            Err(error) => Some(Err(into_io(error))),
        };
        self.with(left, |core, known, stream| match core.read_stream(known.session, stream, into.take()) {
            Ok(count) => Poll::Ready(Ok(count)),
            Err(StreamError::Blocked) => {
                known.wakers.wait(stream, Wait::Read, context);
                Poll::Pending
            }
            // The end was told before, and the stream forgotten.
            Err(StreamError::NoStream) => Poll::Ready(Ok(0)),
            Err(error) => Poll::Ready(Err(into_io(error))),
        })
    }

    pub(crate) fn poll_write_some(&self, context: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(
            |_, _| None,
            |core, known, stream| match core.write_stream(clock::now(), known.session, stream, bytes) {
                Ok(count) => Poll::Ready(Ok(count)),
                Err(StreamError::Blocked) => {
                    known.wakers.wait(stream, Wait::Write, context);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(into_io(error))),
            },
        )
    }

    /// Does something with the bond while the conversation lives, or with what is left of it; where that has nothing to say, tells why it ended.
    fn with<T>(
        &self,
        act_on_remains: impl FnOnce(&mut Remains, StreamId) -> Option<io::Result<T>>,
        act: impl FnOnce(&mut bond::Endpoint, &mut Conversation, StreamId) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let shared = self.owner.shared();
        let mut core = shared.lock();
        let Core { bond, conversations, .. } = &mut *core;
        let Some(known) = conversations.get_mut(&self.conversation) else {
            return Poll::Ready(Err(ConnectError::Closed.into_io()));
        };
        if let State::Over(error) = &known.state {
            let left = known.remains.as_mut().and_then(|left| act_on_remains(left, self.stream));
            return Poll::Ready(left.unwrap_or_else(|| Err(error.clone().into_io())));
        }
        let outcome = act(bond, known, self.stream);
        shared.done(core);
        outcome
    }
}

fn into_io(error: StreamError) -> io::Error {
    let kind = match error {
        StreamError::Reset(_) => io::ErrorKind::ConnectionReset,
        StreamError::Closed => io::ErrorKind::BrokenPipe,
        StreamError::NoSession | StreamError::NoStream => io::ErrorKind::NotConnected,
        StreamError::Blocked | StreamError::TooLong => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl AsyncRead for VirtualStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_read_some(context, into.initialize_unfilled());
        read.map_ok(|count| into.advance(count))
    }
}

impl AsyncWrite for VirtualStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_some(context, bytes)
    }

    /// What was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// As [`VirtualStream::finish`].
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_finish(context)
    }
}

impl Drop for VirtualStream {
    fn drop(&mut self) {
        let shared = self.owner.shared();
        let mut core = shared.lock();
        if let Some(known) = core.conversations.get_mut(&self.conversation) {
            known.wakers.forget(self.stream);
            known.remains.iter_mut().for_each(|left| left.forget(self.stream));
            let session = known.session;
            // Over already, if there is no such stream.
            let _ = core.bond.finish_stream(clock::now(), session, self.stream);
            core.bond.stop_stream(clock::now(), session, self.stream, 0);
        }
        core.release(self.conversation);
        shared.done(core);
    }
}
