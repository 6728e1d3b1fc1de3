//! Bounds of streams, and what their owner hears.

use units::Bytes;
use wire::stream::StreamId;

/// Bytes of a stream that may be sent before the receiver has said how many.
pub(crate) const INITIAL_STREAM_WINDOW: u64 = 1 << 20;
/// Bytes of all streams together that may be sent before the receiver has said how many.
pub(crate) const INITIAL_SESSION_WINDOW: u64 = 4 << 20;
/// Streams that an end may have open at a time of those that it opened.
pub(crate) const MAX_STREAMS: u64 = 256;
/// Datagrams that may wait, each way.
pub(crate) const MAX_DATAGRAMS: usize = 512;
/// Longest datagram that every path carries, bytes.
pub const MAX_DATAGRAM_LEN: usize = 1_100;

/// How much a session keeps for its streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamLimits {
    /// Received bytes of one stream that may wait for its reader.
    pub stream_window: Bytes,
    /// Received bytes of all streams together.
    pub session_window: Bytes,
    /// Bytes of one stream that are kept until they are acknowledged; the writer waits beyond.
    pub send_buffer: Bytes,
    /// The same for all streams together.
    pub session_buffer: Bytes,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            stream_window: Bytes(16 << 20),
            session_window: Bytes(48 << 20),
            send_buffer: Bytes(16 << 20),
            session_buffer: Bytes(64 << 20),
        }
    }
}

/// What happened to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// The peer has opened one: [`Endpoint::accept_stream`](crate::Endpoint::accept_stream).
    Opened,
    /// A reader that found nothing finds something now.
    Readable(StreamId),
    /// A writer that found no room finds some now.
    Writable(StreamId),
    /// All that was written has arrived, or the half was given up.
    Finished(StreamId),
    /// The peer wants no more of it; the sending half is given up.
    Stopped(StreamId),
    /// Streams may be opened again.
    MayOpen,
    /// A datagram has come: [`Endpoint::receive_datagram`](crate::Endpoint::receive_datagram).
    Datagram,
}

/// Something cannot be done with a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no such session, it carries no streams, or it has ended.
    #[error("there is no such session, or it carries no streams")]
    NoSession,
    /// The stream is over, or was never there.
    #[error("there is no such stream any more")]
    NoStream,
    /// Not now: an event will tell.
    #[error("not now")]
    Blocked,
    /// The peer gave the stream up with this code.
    #[error("the other end gave the stream up (code {0})")]
    Reset(u64),
    /// Bytes cannot be sent any more: the stream was finished, or the peer wants no more.
    #[error("the stream takes no more bytes")]
    Closed,
    /// It does not fit a packet.
    #[error("a datagram has at most {MAX_DATAGRAM_LEN} bytes")]
    TooLong,
}

/// What a peer must not do: the session with it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// It sent more than it was allowed.
    Limit,
    /// It changed its mind about where a stream ends.
    FinalSize,
    /// It cut a stream to crumbs.
    Crumbs,
    /// It opened too many streams, or spoke of one that it cannot know.
    Stream,
}

/// Bytes of a stream in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) stream: StreamId,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) fin: bool,
}

/// Something to be said of streams. What exactly is made up when it is sent, from how things stand then.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Notice {
    Reset(StreamId),
    Stop(StreamId, u64),
    SessionLimit,
    StreamCount,
    StreamLimit(StreamId),
}
