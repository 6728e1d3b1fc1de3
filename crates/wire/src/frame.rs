//! Frames: what a sealed packet holds.
//!
//! ```text
//! 0x00 padding       the rest of the packet
//! 0x01 ping
//! 0x02 ack           largest v | delay us v | receive time us (4) | received bytes (4) | reordering us v | CE count v
//!                    | range count v | first range v | (gap v | range v)*
//! 0x03 challenge     (8)
//! 0x04 response      (8)
//! 0x05 path status   path (1) | sequence v | status (1) | priority (1) | limit, bytes/s v
//! 0x06 path abandon  path (1)
//! 0x07 gave up       flow (2) | first sequence (4) | count v
//! 0x08 hold          sequence v | hold us v
//! 0x09 rekey         step (1) | epoch (1) | length v | Noise message
//! 0x0a close         reason (1)
//! 0x0b repair        flow (2) | first sequence, low half (2) | count (1) | length xor (2) | payload xor to the packet's end
//! 0x0c message       length v | bytes for the owner of the session
//! 0x0d arrived       path (1) | largest v | range count v | first range v | (gap v | range v)*
//! 0x10-0x1f          streams and datagrams: see `stream`
//! 0x20-0x2f data     flow (2) | sequence (2 or 4) | [part (2)] | [length (2)] | bytes
//! ```
//!
//! `v` is a variable-length integer. A data frame's low bits: 1 ordered, 2 long sequence, 4 has a length (else it ends
//! the packet), 8 is a part of a packet (part: bit 15 "more follow", low bits the offset).

use crate::cursor::{Malformed, Reader, put_varint};
use crate::stream::StreamFrame;
use arrayvec::ArrayVec;
use std::ops::RangeInclusive;
use units::PathId;

/// Most ranges in one acknowledgement.
pub const MAX_ACK_RANGES: usize = 32;
/// Flow ids are below this.
pub const FLOW_ID_LIMIT: u16 = 1 << 14;
/// Most packets that one repair covers.
pub const MAX_REPAIR_COUNT: u8 = 64;
/// Longest message or Noise message in a frame.
pub const MAX_BLOB_LEN: usize = 1024;

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const CHALLENGE: u8 = 0x03;
const RESPONSE: u8 = 0x04;
const PATH_STATUS: u8 = 0x05;
const PATH_ABANDON: u8 = 0x06;
const GAVE_UP: u8 = 0x07;
const HOLD: u8 = 0x08;
const REKEY: u8 = 0x09;
const CLOSE: u8 = 0x0a;
const REPAIR: u8 = 0x0b;
const MESSAGE: u8 = 0x0c;
const ARRIVED: u8 = 0x0d;
const STREAMS: u8 = 0x10;
const STREAMS_LAST: u8 = 0x1f;
const DATA: u8 = 0x20;
const DATA_LAST: u8 = 0x2f;
const DATA_ORDERED: u8 = 0x01;
const DATA_LONG: u8 = 0x02;
const DATA_LENGTH: u8 = 0x04;
const DATA_PART: u8 = 0x08;
const PART_MORE: u16 = 0x8000;

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// Nothing but an acknowledgement is asked for.
    Ping,
    /// What arrived on this path.
    Ack(Ack),
    /// Asks the peer to show that it is reached at this address.
    Challenge([u8; 8]),
    /// Answers a challenge, on the path and from the address it came to.
    Response([u8; 8]),
    /// How the sender wants a path to be used.
    PathStatus(PathStatus),
    /// The sender will not use a path again.
    PathAbandon(PathId),
    /// These packets of a flow will never come.
    GaveUp(GaveUp),
    /// How long a gap may hold back a flow.
    Hold {
        /// Higher replaces lower.
        sequence: u64,
        /// Microseconds.
        micros: u64,
    },
    /// A step of a new handshake inside the session.
    Rekey(Rekey<'a>),
    /// The sender forgets the session.
    Close {
        /// One of the `CLOSE_*` constants, or unknown.
        reason: u8,
    },
    /// XOR of a run of packets of one flow.
    Repair(Repair<'a>),
    /// Bytes for the owner of the session.
    Message(&'a [u8]),
    /// What arrived on a path that can carry no acknowledgement any more.
    Arrived(Arrived),
    /// What has to do with streams and datagrams.
    Stream(StreamFrame<'a>),
    /// An inner packet or a part of one.
    Data(Data<'a>),
}

/// Status of a path whose network has vanished: what is in flight there will not arrive.
pub const STATUS_GONE: u8 = 3;
/// The peer is going away in good order.
pub const CLOSE_GOODBYE: u8 = 0;
/// The peer's identity is no longer accepted.
pub const CLOSE_REVOKED: u8 = 1;
/// The same identity opened a newer session.
pub const CLOSE_REPLACED: u8 = 2;
/// The peer broke the rules of streams.
pub const CLOSE_BROKEN: u8 = 3;

/// The peer is replaced by another version of itself, which answers at once.
pub const CLOSE_RENEWED: u8 = 4;

/// Received packet numbers, highest range first, neither overlapping nor touching.
pub type Ranges = ArrayVec<RangeInclusive<u64>, MAX_ACK_RANGES>;

/// Acknowledgement of packets of the path that carries it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// What was received.
    pub ranges: Ranges,
    /// Microseconds between the largest one's arrival and this frame.
    pub delay_micros: u64,
    /// When the largest one arrived: microseconds on the receiver's clock, modulo 2^32.
    pub receive_time: u32,
    /// Bytes received on this path so far (whole datagrams), modulo 2^32, counted when the largest one arrived.
    pub received_bytes: u32,
    /// How late, after a higher number, packets of this path still arrive; microseconds.
    pub reordering_micros: u64,
    /// Packets received with a CE mark so far.
    pub ce_count: u64,
}

/// What arrived on a path, said on another one: an acknowledgement that measures nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The path.
    pub path: PathId,
    /// What was received on it.
    pub ranges: Ranges,
}

/// Wanted use of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathStatus {
    /// The path.
    pub path: PathId,
    /// Higher replaces lower.
    pub sequence: u64,
    /// 0 active, 1 backup, 2 off, 3 gone: its network has vanished.
    pub status: u8,
    /// 0 is used first.
    pub priority: u8,
    /// Bytes a second that may be sent over it to the sender of this frame; 0 for as many as it takes.
    pub limit: u64,
}

/// A run of a flow's packets that will never come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GaveUp {
    /// The flow.
    pub flow: u16,
    /// First sequence number.
    pub first: u32,
    /// How many, at least 1.
    pub count: u32,
}

/// A step of a handshake inside the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rekey<'a> {
    /// 0 is the initiator's message, 1 the answer.
    pub step: u8,
    /// The epoch that the new key will have, modulo 256.
    pub epoch: u8,
    /// The Noise message.
    pub noise: &'a [u8],
}

/// XOR of the packets `first .. first + count` of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repair<'a> {
    /// The flow.
    pub flow: u16,
    /// Low 16 bits of the first sequence number covered.
    pub first: u16,
    /// How many are covered, 1 to [`MAX_REPAIR_COUNT`].
    pub count: u8,
    /// XOR of their lengths.
    pub length_xor: u16,
    /// XOR of their bytes, each padded with zeros to the longest.
    pub payload_xor: &'a [u8],
}

/// An inner packet or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// The flow.
    pub flow: u16,
    /// The packet's place in its flow; only the low 16 bits if `long` is false.
    pub sequence: u32,
    /// Whether all 32 bits of `sequence` are sent.
    pub long: bool,
    /// Whether packets before it must be delivered first.
    pub ordered: bool,
    /// Offset in the packet and whether more follows, if the packet was split.
    pub part: Option<Part>,
    /// The bytes.
    pub payload: &'a [u8],
}

/// Where a part belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Offset in the inner packet, below 32768.
    pub offset: u16,
    /// Whether there are bytes after this part.
    pub more: bool,
}

impl Data<'_> {
    /// Bytes of the frame without the payload.
    pub const fn overhead(long: bool, part: bool, has_length: bool) -> usize {
        3 + if long { 4 } else { 2 } + if part { 2 } else { 0 } + if has_length { 2 } else { 0 }
    }

    /// Most that [`Data::overhead`] can be without a length.
    pub const MAX_OVERHEAD: usize = 9;

    /// Appends the frame; without `has_length` it must be the last of its packet.
    pub fn put(&self, has_length: bool, buffer: &mut Vec<u8>) {
        let mut kind = DATA;
        kind |= if self.ordered { DATA_ORDERED } else { 0 };
        kind |= if self.long { DATA_LONG } else { 0 };
        kind |= if has_length { DATA_LENGTH } else { 0 };
        kind |= if self.part.is_some() { DATA_PART } else { 0 };
        buffer.push(kind);
        buffer.extend_from_slice(&self.flow.to_be_bytes());
        if self.long {
            buffer.extend_from_slice(&self.sequence.to_be_bytes());
        } else {
            buffer.extend_from_slice(&(self.sequence as u16).to_be_bytes());
        }
        if let Some(part) = self.part {
            let more = if part.more { PART_MORE } else { 0 };
            buffer.extend_from_slice(&(part.offset & !PART_MORE | more).to_be_bytes());
        }
        if has_length {
            buffer.extend_from_slice(&(self.payload.len() as u16).to_be_bytes());
        }
        buffer.extend_from_slice(self.payload);
    }
}

impl Frame<'_> {
    /// Appends the frame. Data, of packets and of streams, gets a length, so others may follow it.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Ping => buffer.push(PING),
            Self::Ack(ack) => ack.put(buffer),
            Self::Challenge(nonce) => put_nonce(CHALLENGE, nonce, buffer),
            Self::Response(nonce) => put_nonce(RESPONSE, nonce, buffer),
            Self::PathStatus(status) => {
                buffer.extend_from_slice(&[PATH_STATUS, status.path.0]);
                put_varint(buffer, status.sequence);
                buffer.extend_from_slice(&[status.status, status.priority]);
                put_varint(buffer, status.limit);
            }
            Self::PathAbandon(path) => buffer.extend_from_slice(&[PATH_ABANDON, path.0]),
            Self::GaveUp(gave_up) => {
                buffer.push(GAVE_UP);
                buffer.extend_from_slice(&gave_up.flow.to_be_bytes());
                buffer.extend_from_slice(&gave_up.first.to_be_bytes());
                put_varint(buffer, u64::from(gave_up.count));
            }
            Self::Hold { sequence, micros } => {
                buffer.push(HOLD);
                put_varint(buffer, *sequence);
                put_varint(buffer, *micros);
            }
            Self::Rekey(rekey) => {
                buffer.extend_from_slice(&[REKEY, rekey.step, rekey.epoch]);
                put_blob(rekey.noise, buffer);
            }
            Self::Close { reason } => buffer.extend_from_slice(&[CLOSE, *reason]),
            Self::Repair(repair) => repair.put(buffer),
            Self::Message(bytes) => {
                buffer.push(MESSAGE);
                put_blob(bytes, buffer);
            }
            Self::Arrived(arrived) => arrived.put(buffer),
            Self::Stream(frame) => frame.put(buffer),
            Self::Data(data) => data.put(true, buffer),
        }
    }
}

impl Repair<'_> {
    /// Bytes of the frame without the payload, at most.
    pub const MAX_OVERHEAD: usize = 8;

    /// Appends the frame, which must be the last of its packet.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        buffer.push(REPAIR);
        buffer.extend_from_slice(&self.flow.to_be_bytes());
        buffer.extend_from_slice(&self.first.to_be_bytes());
        buffer.push(self.count);
        buffer.extend_from_slice(&self.length_xor.to_be_bytes());
        buffer.extend_from_slice(self.payload_xor);
    }
}

impl Ack {
    /// Appends the frame; writes nothing if there are no ranges.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        let Some((first, others)) = self.ranges.split_first() else { return };
        buffer.push(ACK);
        put_varint(buffer, *first.end());
        put_varint(buffer, self.delay_micros);
        buffer.extend_from_slice(&self.receive_time.to_be_bytes());
        buffer.extend_from_slice(&self.received_bytes.to_be_bytes());
        put_varint(buffer, self.reordering_micros);
        put_varint(buffer, self.ce_count);
        put_ranges(first, others, buffer);
    }

    /// Most bytes that [`Ack::put`] writes with this many ranges.
    pub const fn max_len(ranges: usize) -> usize {
        1 + 8 + 8 + 4 + 4 + 8 + 8 + 1 + 8 + ranges.saturating_sub(1) * 16
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let largest = reader.varint()?;
        let delay_micros = reader.varint()?;
        let receive_time = reader.u32()?;
        let received_bytes = reader.u32()?;
        let reordering_micros = reader.varint()?;
        let ce_count = reader.varint()?;
        let ranges = parse_ranges(largest, reader)?;
        Ok(Self { ranges, delay_micros, receive_time, received_bytes, reordering_micros, ce_count })
    }
}

impl Arrived {
    /// Appends the frame; writes nothing if there are no ranges.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        let Some((first, others)) = self.ranges.split_first() else { return };
        buffer.extend_from_slice(&[ARRIVED, self.path.0]);
        put_varint(buffer, *first.end());
        put_ranges(first, others, buffer);
    }

    /// Most bytes that [`Arrived::put`] writes with this many ranges.
    pub const fn max_len(ranges: usize) -> usize {
        2 + 8 + 1 + 8 + ranges.saturating_sub(1) * 16
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let path = PathId(reader.u8()?);
        let largest = reader.varint()?;
        Ok(Self { path, ranges: parse_ranges(largest, reader)? })
    }
}

/// Appends what follows the greatest number in an acknowledgement.
fn put_ranges(first: &RangeInclusive<u64>, others: &[RangeInclusive<u64>], buffer: &mut Vec<u8>) {
    put_varint(buffer, others.len() as u64);
    put_varint(buffer, first.end() - first.start());
    let mut below = *first.start();
    for range in others {
        // Ranges neither touch nor overlap, so at least one number lies between.
        put_varint(buffer, below.saturating_sub(*range.end()).saturating_sub(2));
        put_varint(buffer, range.end() - range.start());
        below = *range.start();
    }
}

fn parse_ranges(largest: u64, reader: &mut Reader<'_>) -> Result<Ranges, Malformed> {
    let others = reader.varint()?;
    if others >= MAX_ACK_RANGES as u64 {
        return Err(Malformed::Field("range count"));
    }
    let mut ranges = ArrayVec::new();
    let mut start = largest.checked_sub(reader.varint()?).ok_or(Malformed::Field("range"))?;
    ranges.push(start..=largest);
    for _ in 0..others {
        let gap = reader.varint()?;
        let length = reader.varint()?;
        let end = start.checked_sub(gap).and_then(|low| low.checked_sub(2));
        let end = end.ok_or(Malformed::Field("gap"))?;
        start = end.checked_sub(length).ok_or(Malformed::Field("range"))?;
        ranges.push(start..=end);
    }
    Ok(ranges)
}

/// The frames of an opened packet, in order.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// Frames of `payload`.
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { reader: Reader::new(payload) }
    }

    fn parse_one(&mut self) -> Result<Option<Frame<'a>>, Malformed> {
        let reader = &mut self.reader;
        if reader.is_empty() {
            return Ok(None);
        }
        let frame = match reader.u8()? {
            PADDING => {
                // The rest is padding, whatever it holds.
                self.reader = Reader::new(&[]);
                return Ok(None);
            }
            PING => Frame::Ping,
            ACK => Frame::Ack(Ack::parse(reader)?),
            CHALLENGE => Frame::Challenge(reader.array()?),
            RESPONSE => Frame::Response(reader.array()?),
            PATH_STATUS => Frame::PathStatus(PathStatus {
                path: PathId(reader.u8()?),
                sequence: reader.varint()?,
                status: at_most(reader.u8()?, STATUS_GONE, "status")?,
                priority: reader.u8()?,
                limit: reader.varint()?,
            }),
            PATH_ABANDON => Frame::PathAbandon(PathId(reader.u8()?)),
            GAVE_UP => {
                let flow = flow_id(reader)?;
                let first = reader.u32()?;
                let count = u32::try_from(reader.varint()?).map_err(|_| Malformed::Field("count"))?;
                if count == 0 || count > u32::from(u16::MAX) {
                    return Err(Malformed::Field("count"));
                }
                Frame::GaveUp(GaveUp { flow, first, count })
            }
            HOLD => Frame::Hold { sequence: reader.varint()?, micros: reader.varint()? },
            REKEY => Frame::Rekey(Rekey {
                step: at_most(reader.u8()?, 1, "step")?,
                epoch: reader.u8()?,
                noise: blob(reader)?,
            }),
            CLOSE => Frame::Close { reason: reader.u8()? },
            REPAIR => Frame::Repair(parse_repair(reader)?),
            MESSAGE => Frame::Message(blob(reader)?),
            ARRIVED => Frame::Arrived(Arrived::parse(reader)?),
            kind @ STREAMS..=STREAMS_LAST => Frame::Stream(StreamFrame::parse(kind, reader)?),
            kind @ DATA..=DATA_LAST => Frame::Data(parse_data(kind, reader)?),
            other => return Err(Malformed::UnknownType(other)),
        };
        Ok(Some(frame))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.parse_one().transpose();
        if matches!(item, Some(Err(_))) {
            self.reader = Reader::new(&[]);
        }
        item
    }
}

fn parse_data<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<Data<'a>, Malformed> {
    let flow = flow_id(reader)?;
    let long = kind & DATA_LONG != 0;
    let sequence = if long { reader.u32()? } else { u32::from(reader.u16()?) };
    let part = if kind & DATA_PART != 0 {
        let field = reader.u16()?;
        Some(Part { offset: field & !PART_MORE, more: field & PART_MORE != 0 })
    } else {
        None
    };
    let length = if kind & DATA_LENGTH != 0 { usize::from(reader.u16()?) } else { reader.rest().len() };
    let payload = reader.bytes(length)?;
    Ok(Data { flow, sequence, long, ordered: kind & DATA_ORDERED != 0, part, payload })
}

fn parse_repair<'a>(reader: &mut Reader<'a>) -> Result<Repair<'a>, Malformed> {
    let flow = flow_id(reader)?;
    let first = reader.u16()?;
    let count = at_most(reader.u8()?, MAX_REPAIR_COUNT, "count")?;
    if count == 0 {
        return Err(Malformed::Field("count"));
    }
    let length_xor = reader.u16()?;
    let payload_xor = reader.bytes(reader.rest().len())?;
    Ok(Repair { flow, first, count, length_xor, payload_xor })
}

fn flow_id(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    let id = reader.u16()?;
    if id >= FLOW_ID_LIMIT {
        return Err(Malformed::Field("flow"));
    }
    Ok(id)
}

fn at_most(value: u8, limit: u8, field: &'static str) -> Result<u8, Malformed> {
    if value > limit { Err(Malformed::Field(field)) } else { Ok(value) }
}

fn blob<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = reader.varint()?;
    if length > MAX_BLOB_LEN as u64 {
        return Err(Malformed::Field("length"));
    }
    reader.bytes(length as usize)
}

fn put_blob(bytes: &[u8], buffer: &mut Vec<u8>) {
    put_varint(buffer, bytes.len() as u64);
    buffer.extend_from_slice(bytes);
}

fn put_nonce(kind: u8, nonce: &[u8; 8], buffer: &mut Vec<u8>) {
    buffer.push(kind);
    buffer.extend_from_slice(nonce);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        let parsed: Vec<_> = Frames::new(&bytes).collect();
        assert_eq!(parsed, [Ok(frame.clone())]);
        for cut in 1..bytes.len() {
            let outcome: Result<Vec<_>, _> = Frames::new(&bytes[..cut]).collect();
            assert!(outcome.is_err(), "{frame:?} cut to {cut}");
        }
    }

    #[test]
    fn all_frames_round_trip_and_no_cut_is_accepted() {
        let ranges: Ranges = [90..=100, 80..=80, 3..=70].into_iter().collect();
        let arrived = Arrived { path: PathId(4), ranges: ranges.clone() };
        let ack = Ack {
            ranges,
            delay_micros: 400,
            receive_time: 0xfffe_0000,
            received_bytes: 123_456,
            reordering_micros: 2_000,
            ce_count: 1,
        };
        let mut bytes = Vec::new();
        ack.put(&mut bytes);
        assert!(bytes.len() <= Ack::max_len(3));
        let mut bytes = Vec::new();
        arrived.put(&mut bytes);
        assert!(bytes.len() <= Arrived::max_len(3));
        let part = Some(Part { offset: 1_200, more: true });
        let data = Data { flow: 300, sequence: 70_000, long: true, ordered: true, part, payload: b"inner" };
        let status = PathStatus { path: PathId(2), sequence: 5, status: 1, priority: 3, limit: 90_000 };
        for frame in [
            Frame::Ping,
            Frame::Ack(ack),
            Frame::Challenge([1; 8]),
            Frame::Response([2; 8]),
            Frame::PathStatus(status),
            Frame::PathAbandon(PathId(3)),
            Frame::GaveUp(GaveUp { flow: 7, first: u32::MAX, count: 2 }),
            Frame::Hold { sequence: 1, micros: 250_000 },
            Frame::Rekey(Rekey { step: 1, epoch: 2, noise: &[9; 48] }),
            Frame::Close { reason: CLOSE_GOODBYE },
            Frame::Message(b"hello"),
            Frame::Arrived(arrived),
            Frame::Data(data),
        ] {
            round_trip(&frame);
        }
    }

    #[test]
    fn a_data_frame_without_length_ends_the_packet() {
        let data = Data { flow: 1, sequence: 2, long: false, ordered: false, part: None, payload: b"abc" };
        let mut bytes = Vec::new();
        Frame::Ping.put(&mut bytes);
        data.put(false, &mut bytes);
        assert_eq!(bytes.len(), 1 + Data::overhead(false, false, false) + 3);
        let frames: Vec<_> = Frames::new(&bytes).collect();
        assert_eq!(frames, [Ok(Frame::Ping), Ok(Frame::Data(data))]);
    }

    #[test]
    fn a_repair_ends_the_packet() {
        let repair = Repair { flow: 300, first: 5, count: 8, length_xor: 3, payload_xor: b"xor" };
        let mut bytes = Vec::new();
        repair.put(&mut bytes);
        assert_eq!(bytes.len(), Repair::MAX_OVERHEAD + 3);
        assert_eq!(Frames::new(&bytes).collect::<Vec<_>>(), [Ok(Frame::Repair(repair))]);
        bytes[5] = 0;
        assert_eq!(Frames::new(&bytes).next(), Some(Err(Malformed::Field("count"))));
    }

    #[test]
    fn hostile_acks_are_refused() {
        // Range below zero.
        let mut bytes = vec![ACK];
        put_varint(&mut bytes, 5);
        bytes.extend_from_slice(&[0; 9]);
        bytes.extend_from_slice(&[0, 0, 0]);
        put_varint(&mut bytes, 6);
        assert_eq!(Frames::new(&bytes).next(), Some(Err(Malformed::Field("range"))));
        // More ranges than allowed.
        let mut bytes = vec![ACK];
        put_varint(&mut bytes, 5_000);
        bytes.extend_from_slice(&[0; 11]);
        put_varint(&mut bytes, 32);
        assert_eq!(Frames::new(&bytes).next(), Some(Err(Malformed::Field("range count"))));
    }
}
