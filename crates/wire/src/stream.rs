//! Frames of streams and datagrams: what virtual sockets send in a bond.
//!
//! ```text
//! 0x10-0x13 stream           stream v | offset v | [length (2)] | bytes
//! 0x14      stream reset     stream v | code v | final size v
//! 0x15      stream stop      stream v | code v
//! 0x16      stream limit     stream v | offset v
//! 0x17      session limit    bytes v
//! 0x18      stream count     streams v
//! 0x1a-0x1b datagram         [length (2)] | bytes
//! ```
//!
//! A stream frame's low bits: 1 the bytes are the last of the stream, 2 has a length (else it ends the packet). A datagram's
//! low bit: has a length.

use crate::cursor::{Malformed, Reader, VARINT_MAX, put_varint, varint_len};

const STREAM: u8 = 0x10;
const STREAM_LAST: u8 = 0x13;
const STREAM_FIN: u8 = 0x01;
const STREAM_LENGTH: u8 = 0x02;
const RESET: u8 = 0x14;
const STOP: u8 = 0x15;
const STREAM_LIMIT: u8 = 0x16;
const SESSION_LIMIT: u8 = 0x17;
const STREAM_COUNT: u8 = 0x18;
const DATAGRAM: u8 = 0x1a;
const DATAGRAM_WITH_LENGTH: u8 = 0x1b;

/// Number of a stream in its session. Even ones were opened by the end that began the conversation, odd ones by the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// A frame that has to do with streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamFrame<'a> {
    /// Bytes of a stream.
    Data(StreamData<'a>),
    /// The sender gives up its half of a stream; what was not delivered will not be.
    Reset {
        /// Which.
        stream: StreamId,
        /// Why: the applications' own number.
        code: u64,
        /// Bytes of the stream that count against the limits of flow control.
        final_size: u64,
    },
    /// The receiver wants no more of a stream.
    Stop {
        /// Which.
        stream: StreamId,
        /// Why: the applications' own number.
        code: u64,
    },
    /// Bytes of a stream may be sent up to this offset. It only grows.
    StreamLimit {
        /// Which.
        stream: StreamId,
        /// The first offset that may not be sent.
        offset: u64,
    },
    /// So many bytes of all streams together may be sent since the conversation began. It only grows.
    SessionLimit(u64),
    /// So many streams may be opened since the conversation began. It only grows.
    StreamCount(u64),
    /// One message that is not sent again.
    Datagram(&'a [u8]),
}

/// Bytes of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamData<'a> {
    /// Which.
    pub stream: StreamId,
    /// Place of the first byte.
    pub offset: u64,
    /// Nothing follows these bytes.
    pub fin: bool,
    /// The bytes; `offset` and their number together stay below 2^62.
    pub bytes: &'a [u8],
}

impl StreamData<'_> {
    /// Bytes of the frame without the stream's.
    pub const fn overhead(stream: StreamId, offset: u64, has_length: bool) -> usize {
        1 + varint_len(stream.0) + varint_len(offset) + if has_length { 2 } else { 0 }
    }

    /// Appends the frame; without `has_length` it must be the last of its packet.
    pub fn put(&self, has_length: bool, buffer: &mut Vec<u8>) {
        put_stream_header(self.stream, self.offset, self.fin, has_length.then_some(self.bytes.len()), buffer);
        buffer.extend_from_slice(self.bytes);
    }
}

/// Appends a stream frame up to its bytes, which are to follow; without a length it must be the last of its packet.
pub fn put_stream_header(
    stream: StreamId,
    offset: u64,
    fin: bool,
    length: Option<usize>,
    buffer: &mut Vec<u8>,
) {
    let kind = STREAM | if fin { STREAM_FIN } else { 0 } | if length.is_some() { STREAM_LENGTH } else { 0 };
    buffer.push(kind);
    put_varint(buffer, stream.0);
    put_varint(buffer, offset);
    if let Some(length) = length {
        buffer.extend_from_slice(&(length as u16).to_be_bytes());
    }
}

/// Bytes of a datagram's frame without its own, with a length.
pub const DATAGRAM_OVERHEAD: usize = 3;

impl<'a> StreamFrame<'a> {
    /// Appends the frame, with its length where it can have one.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        match *self {
            Self::Data(data) => data.put(true, buffer),
            Self::Reset { stream, code, final_size } => put(RESET, &[stream.0, code, final_size], buffer),
            Self::Stop { stream, code } => put(STOP, &[stream.0, code], buffer),
            Self::StreamLimit { stream, offset } => put(STREAM_LIMIT, &[stream.0, offset], buffer),
            Self::SessionLimit(bytes) => put(SESSION_LIMIT, &[bytes], buffer),
            Self::StreamCount(streams) => put(STREAM_COUNT, &[streams], buffer),
            Self::Datagram(bytes) => {
                buffer.push(DATAGRAM_WITH_LENGTH);
                buffer.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
                buffer.extend_from_slice(bytes);
            }
        }
    }

    /// Reads the frame whose type byte, already read, is `kind`.
    pub(crate) fn parse(kind: u8, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match kind {
            STREAM..=STREAM_LAST => Self::Data(parse_data(kind, reader)?),
            RESET => Self::Reset {
                stream: StreamId(reader.varint()?),
                code: reader.varint()?,
                final_size: reader.varint()?,
            },
            STOP => Self::Stop { stream: StreamId(reader.varint()?), code: reader.varint()? },
            STREAM_LIMIT => {
                Self::StreamLimit { stream: StreamId(reader.varint()?), offset: reader.varint()? }
            }
            SESSION_LIMIT => Self::SessionLimit(reader.varint()?),
            STREAM_COUNT => Self::StreamCount(reader.varint()?),
            DATAGRAM => Self::Datagram(reader.bytes(reader.rest().len())?),
            DATAGRAM_WITH_LENGTH => {
                let length = usize::from(reader.u16()?);
                Self::Datagram(reader.bytes(length)?)
            }
            other => return Err(Malformed::UnknownType(other)),
        })
    }
}

fn put(kind: u8, numbers: &[u64], buffer: &mut Vec<u8>) {
    buffer.push(kind);
    numbers.iter().for_each(|number| put_varint(buffer, *number));
}

fn parse_data<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<StreamData<'a>, Malformed> {
    let stream = StreamId(reader.varint()?);
    let offset = reader.varint()?;
    let length = if kind & STREAM_LENGTH != 0 { usize::from(reader.u16()?) } else { reader.rest().len() };
    let bytes = reader.bytes(length)?;
    if offset + length as u64 > VARINT_MAX {
        return Err(Malformed::Field("offset"));
    }
    Ok(StreamData { stream, offset, fin: kind & STREAM_FIN != 0, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Frames};

    const STREAM_7: StreamId = StreamId(7);

    #[test]
    fn all_frames_round_trip_and_no_cut_is_accepted() {
        let data = StreamData { stream: STREAM_7, offset: 70_000, fin: true, bytes: b"bytes" };
        for frame in [
            StreamFrame::Data(data),
            StreamFrame::Reset { stream: STREAM_7, code: 3, final_size: 1 << 40 },
            StreamFrame::Stop { stream: STREAM_7, code: 0 },
            StreamFrame::StreamLimit { stream: STREAM_7, offset: 1 << 20 },
            StreamFrame::SessionLimit(1 << 24),
            StreamFrame::StreamCount(100),
            StreamFrame::Datagram(b"one message"),
        ] {
            let mut bytes = Vec::new();
            Frame::Stream(frame).put(&mut bytes);
            assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::Stream(frame))]);
            for cut in 1..bytes.len() {
                let outcome: Result<Vec<_>, _> = Frames::new(&bytes[..cut]).collect();
                assert!(outcome.is_err(), "{frame:?} cut to {cut}");
            }
        }
    }

    #[test]
    fn bytes_without_a_length_end_the_packet() {
        let data = StreamData { stream: STREAM_7, offset: 5, fin: false, bytes: b"abc" };
        let mut bytes = Vec::new();
        Frame::Ping.put(&mut bytes);
        data.put(false, &mut bytes);
        assert_eq!(bytes.len(), 1 + StreamData::overhead(STREAM_7, 5, false) + 3);
        let frames: Vec<_> = Frames::new(&bytes).collect();
        assert_eq!(frames, [Ok(Frame::Ping), Ok(Frame::Stream(StreamFrame::Data(data)))]);
    }

    #[test]
    fn a_stream_without_end_is_refused() {
        let mut bytes = vec![STREAM, 0];
        put_varint(&mut bytes, VARINT_MAX);
        bytes.push(1);
        assert_eq!(Frames::new(&bytes).next(), Some(Err(Malformed::Field("offset"))));
        assert_eq!(Frames::new(&[0x19, 0]).next(), Some(Err(Malformed::UnknownType(0x19))));
    }
}
