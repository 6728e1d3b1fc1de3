//! A stream of the bond itself, as virtual sockets have it: one end writes without end, the other reads.

use super::measure::Progress;
use bond::{Endpoint, SessionId, StreamId};
use units::Timestamp;

/// Bytes that are written, or read, at once.
const AT_ONCE: usize = 16 * 1024;

/// One end of the stream.
#[derive(Debug)]
pub enum StreamFlow {
    /// Writes.
    Writer {
        /// Once it is open.
        stream: Option<StreamId>,
    },
    /// Reads.
    Reader {
        /// Once the peer has opened it.
        stream: Option<StreamId>,
        /// What has arrived since time zero.
        progress: Progress,
    },
}

impl StreamFlow {
    /// The end that writes.
    pub fn writer() -> Self {
        Self::Writer { stream: None }
    }

    /// The end that reads.
    pub fn reader() -> Self {
        Self::Reader { stream: None, progress: Progress::starting_at(Timestamp::ZERO) }
    }

    /// What has arrived, at the end that reads.
    pub fn progress(&self) -> Option<&Progress> {
        match self {
            Self::Writer { .. } => None,
            Self::Reader { progress, .. } => Some(progress),
        }
    }

    /// Does what can be done now.
    pub fn work(&mut self, now: Timestamp, endpoint: &mut Endpoint, session: SessionId) {
        match self {
            Self::Writer { stream } => {
                *stream = stream.or_else(|| endpoint.open_stream(now, session).ok());
                let Some(stream) = *stream else { return };
                while endpoint.write_stream(now, session, stream, &[0; AT_ONCE]).is_ok_and(|taken| taken > 0)
                {
                }
            }
            Self::Reader { stream, progress } => {
                *stream = stream.or_else(|| endpoint.accept_stream(session));
                let Some(stream) = *stream else { return };
                let mut bytes = [0; AT_ONCE];
                while let Ok(count @ 1..) = endpoint.read_stream(session, stream, &mut bytes) {
                    progress.add(now, count as u64);
                }
            }
        }
    }
}
