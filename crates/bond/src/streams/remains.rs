//! What is left of a session's streams once it is over: what has arrived can still be read, as from a TCP socket whose peer has closed.

use super::receive::ReceiveHalf;
use super::send::Ending;
use super::{StreamError, Streams};
use std::collections::{BTreeMap, VecDeque};
use wire::stream::StreamId;

/// What a session had received and nobody had read, and which streams it had delivered whole. It holds no more than the session did.
#[derive(Debug)]
pub struct Remains {
    halves: BTreeMap<StreamId, Half>,
    datagrams: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Half {
    receive: ReceiveHalf,
    /// The peer has all that was written, and knows that it is all.
    delivered: bool,
}

impl Remains {
    pub(super) fn new(streams: Streams) -> Self {
        let halves = streams.streams.into_iter().map(|(id, stream)| {
            let mut receive = stream.receive;
            receive.drop_beyond();
            (id, Half { receive, delivered: stream.send.ending() == Ending::Acknowledged })
        });
        Self { halves: halves.collect(), datagrams: streams.incoming }
    }

    /// As [`Endpoint::read_stream`](crate::Endpoint::read_stream).
    ///
    /// # Errors
    /// [`StreamError::Blocked`] where the end of the stream has not come, and now never will; [`StreamError::NoStream`] if the stream was
    /// over, the reader knew of it.
    pub fn read(&mut self, stream: StreamId, into: &mut [u8]) -> Result<usize, StreamError> {
        let half = self.halves.get_mut(&stream).ok_or(StreamError::NoStream)?;
        let count = half.receive.read(into).map_err(StreamError::Reset)?.ok_or(StreamError::Blocked)?;
        if count == 0 && !into.is_empty() {
            half.receive.stop();
        }
        Ok(count)
    }

    /// Whether a reader would get something: bytes, the end, or a reset.
    pub fn is_readable(&self, stream: StreamId) -> bool {
        self.halves.get(&stream).is_some_and(|half| half.receive.is_readable())
    }

    /// Whether all bytes of a finished stream had arrived.
    ///
    /// # Errors
    /// [`StreamError::Closed`] if not; [`StreamError::NoStream`] if the stream was over both ways.
    pub fn is_finished(&self, stream: StreamId) -> Result<(), StreamError> {
        let half = self.halves.get(&stream).ok_or(StreamError::NoStream)?;
        if half.delivered { Ok(()) } else { Err(StreamError::Closed) }
    }

    /// The next message that had come.
    pub fn receive_datagram(&mut self) -> Option<Vec<u8>> {
        self.datagrams.pop_front()
    }

    /// Nobody reads the stream any more.
    pub fn forget(&mut self, stream: StreamId) {
        self.halves.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use super::super::StreamLimits;
    use super::*;
    use wire::stream::{StreamData, StreamFrame};

    fn receive(streams: &mut Streams, stream: u64, offset: u64, bytes: &[u8], fin: bool) {
        let data = StreamData { stream: StreamId(stream), offset, bytes, fin };
        streams.on_frame(&StreamFrame::Data(data)).unwrap();
    }

    #[test]
    fn what_came_whole_is_read_to_its_end_and_the_rest_to_its_first_gap() {
        let mut streams = Streams::new(StreamLimits::default(), true);
        receive(&mut streams, 1, 0, b"whole", true);
        receive(&mut streams, 3, 0, b"half", false);
        receive(&mut streams, 3, 1_000, &[7; 100_000], true);
        receive(&mut streams, 5, 0, b"given up", false);
        streams.on_frame(&StreamFrame::Reset { stream: StreamId(5), code: 9, final_size: 20 }).unwrap();
        receive(&mut streams, 7, 0, b"told", true);
        let mut into = [0; 100];
        assert_eq!(streams.read(StreamId(7), &mut into), Ok(4));
        assert_eq!(streams.read(StreamId(7), &mut into), Ok(0));
        let mut left = Remains::new(streams);
        assert_eq!(left.read(StreamId(1), &mut into[..3]), Ok(3));
        assert!(left.is_readable(StreamId(1)));
        assert_eq!(left.read(StreamId(1), &mut into), Ok(2));
        assert_eq!(&into[..2], b"le");
        for _ in 0..2 {
            assert_eq!(left.read(StreamId(1), &mut into), Ok(0));
        }
        assert_eq!(left.read(StreamId(3), &mut into), Ok(4));
        assert_eq!(left.read(StreamId(3), &mut into), Err(StreamError::Blocked));
        assert!(!left.is_readable(StreamId(3)));
        assert_eq!(left.read(StreamId(5), &mut into), Err(StreamError::Reset(9)));
        assert_eq!(left.read(StreamId(7), &mut into), Ok(0));
        assert_eq!(left.read(StreamId(9), &mut into), Err(StreamError::NoStream));
        left.forget(StreamId(3));
        assert_eq!(left.read(StreamId(3), &mut into), Err(StreamError::NoStream));
    }

    #[test]
    fn a_stream_that_was_delivered_is_finished_and_others_are_not() {
        let mut streams = Streams::new(StreamLimits::default(), true);
        let (one, other) = (streams.open().unwrap(), streams.open().unwrap());
        for id in [one, other] {
            streams.write(id, b"bytes").unwrap();
            streams.finish(id).unwrap();
        }
        let span = streams.take(0, |_, _| 100).unwrap();
        assert_eq!(span.stream, one);
        streams.on_acknowledged(&span);
        let left = Remains::new(streams);
        assert_eq!((left.is_finished(one), left.is_finished(other)), (Ok(()), Err(StreamError::Closed)));
    }
}
