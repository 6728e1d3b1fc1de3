//! What packets are made of, in the form that is kept until it is acknowledged.

use crate::streams::{Notice, Span};
use policy::FlowClass;
use units::{PathId, Timestamp};
use wire::frame::{Arrived, Frame, GaveUp, Part, PathStatus, Rekey};

/// Something that is sent again if it is lost.
#[derive(Debug)]
pub(crate) enum Item {
    Data(DataUnit),
    Control(Control),
    /// Bytes of a stream, which the stream keeps.
    Stream(Span),
    /// Something said of streams.
    Notice(Notice),
}

impl Item {
    /// Whether somebody wants to know that it has arrived.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Notice(_))
    }
}

/// An inner packet or a part of one, with its place in its flow.
#[derive(Debug, Clone)]
pub(crate) struct DataUnit {
    pub(crate) flow: u16,
    pub(crate) sequence: u32,
    pub(crate) ordered: bool,
    pub(crate) class: FlowClass,
    pub(crate) part: Option<Part>,
    /// How often it was sent again.
    pub(crate) repeats: u8,
    /// Number of the packet that it was taken out of when its path fell silent, until it is sent again.
    pub(crate) taken_from: Option<u64>,
    /// A second copy is wanted on another path.
    pub(crate) duplicate: bool,
    pub(crate) queued_at: Timestamp,
    pub(crate) payload: Payload,
}

/// Bytes of an inner packet, or the XOR of several.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    Packet(Vec<u8>),
    Repair { count: u8, length_xor: u16, xor: Vec<u8> },
}

impl DataUnit {
    /// From here on it is in another packet than the one that it may have been taken out of.
    pub(crate) fn sent_again(self) -> Self {
        Self { taken_from: None, ..self }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.payload {
            Payload::Packet(bytes) => bytes.len(),
            Payload::Repair { xor, .. } => xor.len(),
        }
    }
}

/// A control frame that must arrive.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    PathStatus(PathStatus),
    PathAbandon(PathId),
    /// Boxed: there are few, and they are large.
    Arrived(Box<Arrived>),
    GaveUp(GaveUp),
    Hold {
        sequence: u64,
        micros: u64,
    },
    Rekey {
        step: u8,
        epoch: u8,
        noise: Vec<u8>,
    },
    Message(Vec<u8>),
}

impl Control {
    pub(crate) fn frame(&self) -> Frame<'_> {
        match self {
            Self::PathStatus(status) => Frame::PathStatus(*status),
            Self::PathAbandon(path) => Frame::PathAbandon(*path),
            Self::Arrived(arrived) => Frame::Arrived(Arrived::clone(arrived)),
            Self::GaveUp(gave_up) => Frame::GaveUp(*gave_up),
            Self::Hold { sequence, micros } => Frame::Hold { sequence: *sequence, micros: *micros },
            Self::Rekey { step, epoch, noise } => Frame::Rekey(Rekey { step: *step, epoch: *epoch, noise }),
            Self::Message(bytes) => Frame::Message(bytes),
        }
    }
}
