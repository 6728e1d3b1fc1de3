//! Packets with bytes of streams, datagrams and what is said of streams.

use super::Session;
use super::transmit::{
    DATA_OVERHEAD, PIGGYBACK_RANGES, Pick, Source, Transmit, mtu_of, number_len, put_ack, start,
};
use crate::congestion::Controller;
use crate::scheduler::{Choice, Demand, PathView};
use crate::unit::Item;
use units::{Bytes, Timestamp};
use wire::datagram::TAG_LEN;
use wire::frame::Ack;
use wire::stream::{DATAGRAM_OVERHEAD, StreamData, StreamFrame, StreamId, put_stream_header};

/// Most bytes of a frame that says something of a stream.
const MAX_NOTICE_LEN: usize = 1 + 3 * 8;
/// A packet with less room than this for bytes of a further stream is full.
const LEAST_PIECE: usize = 64;
/// How far streams may be ahead of inner packets, or behind, while both wait; bytes.
const MOST_IMBALANCE: i64 = 64 * 1024;

impl Session {
    /// What is to be said of streams, if there is a path with room for it.
    pub(super) fn poll_notices(&mut self, now: Timestamp, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if !self.streams.as_ref()?.has_notices() {
            return None;
        }
        let index = self.best_path()?;
        let path = self.paths.get_mut(index)?;
        if path.sent.in_flight() + MAX_NOTICE_LEN as u64 > path.controller.window() {
            return None;
        }
        let room = usize::from(mtu_of(path)) - TAG_LEN;
        let mut draft = start(path, self.peer_index, self.keys.epoch(), buffer);
        put_ack(path, now, PIGGYBACK_RANGES, buffer);
        let streams = self.streams.as_mut()?;
        while buffer.len() - draft.header_from + MAX_NOTICE_LEN <= room
            && let Some((notice, frame)) = streams.take_notice()
        {
            frame.put(buffer);
            draft.items.push(Item::Notice(notice));
        }
        draft.eliciting = true;
        self.finish_single(now, index, draft, buffer)
    }

    /// Streams and bulk packets share the paths by bytes.
    pub(super) fn is_turn_of_streams(&mut self) -> bool {
        if !self.has_stream_data() || self.flows.bulk_len().is_none() {
            self.balance = 0;
            return false;
        }
        self.balance <= 0
    }

    /// An inner packet was sent.
    pub(super) fn count_packet(&mut self, len: usize) {
        if self.has_stream_data() {
            self.balance = (self.balance - len as i64).max(-MOST_IMBALANCE);
        }
    }

    pub(super) fn pick_stream(&mut self, views: &[(usize, PathView)], all: &[PathView]) -> Option<Pick> {
        if !self.has_stream_data() {
            return None;
        }
        let largest = self.data_paths().map(mtu_of).max()?;
        let streams = self.streams.as_mut()?;
        let (waiting, count) = (streams.waiting_bytes(), streams.waiting_streams().max(1));
        let most = usize::from(largest) - DATA_OVERHEAD;
        let piece = match streams.next_piece(0) {
            Some((_, piece)) => piece.map_or(1, |piece| piece.end - piece.start),
            // Datagrams alone.
            None => most as u64,
        };
        let size = Bytes(piece.min(most as u64) + DATA_OVERHEAD as u64);
        // Little is not worth waiting for a slower path to pay off, nor is what is to be there soon.
        let demand = if waiting <= most as u64 {
            Demand::Urgent { size }
        } else {
            Demand::Bulk { size, queued: Bytes(waiting) }
        };
        let Choice { path, depth } = self.config.scheduler.choose(all, demand)?;
        let source = Source::Stream { depth: Bytes(depth.0 / count) };
        Some(Pick { path: views.get(path)?.0, source })
    }

    /// Bytes of the datagram that the pick would make, if the piece of one stream fills it.
    pub(super) fn predicted_stream_size(&mut self, index: usize, depth: Bytes) -> Option<usize> {
        let path = self.paths.get(index)?;
        let room = usize::from(mtu_of(path));
        let header = 6 + usize::from(number_len(path));
        let streams = self.streams.as_mut()?;
        if streams.has_datagram() {
            return None;
        }
        let (id, piece) = streams.next_piece(depth.0)?;
        let piece = piece?;
        let bytes = room - header - TAG_LEN - StreamData::overhead(id, piece.start, false);
        (piece.end - piece.start >= bytes as u64).then_some(room)
    }

    pub(super) fn send_stream(
        &mut self,
        now: Timestamp,
        index: usize,
        depth: Bytes,
        may_acknowledge: bool,
        buffer: &mut Vec<u8>,
    ) {
        let Some(path) = self.paths.get_mut(index) else { return };
        let full = usize::from(mtu_of(path)) - TAG_LEN;
        let mut draft = start(path, self.peer_index, self.keys.epoch(), buffer);
        let begin = draft.header_from;
        let empty = buffer.len();
        if may_acknowledge
            && path.received.ack_due().is_some()
            && Ack::max_len(PIGGYBACK_RANGES) + LEAST_PIECE + (buffer.len() - begin) <= full
        {
            put_ack(path, now, PIGGYBACK_RANGES, buffer);
        }
        let acknowledged = buffer.len();
        let Some(streams) = &mut self.streams else { return };
        // Datagrams first: they are not worth sending later.
        while let Some(room) = full.checked_sub(buffer.len() - begin + DATAGRAM_OVERHEAD)
            && let Some(bytes) = streams.take_datagram(now, room)
        {
            StreamFrame::Datagram(&bytes).put(buffer);
        }
        let mut depth = depth.0;
        while full.saturating_sub(buffer.len() - begin) >= LEAST_PIECE {
            let left = full - (buffer.len() - begin);
            let room = |id: StreamId, offset| left - StreamData::overhead(id, offset, false);
            let Some(span) = streams.take(depth, room) else { break };
            depth = 0;
            let bytes = (span.to - span.from) as usize;
            // A length only where something may follow.
            let is_last = left <= bytes + StreamData::overhead(span.stream, span.from, true) + LEAST_PIECE;
            put_stream_header(span.stream, span.from, span.fin, (!is_last).then_some(bytes), buffer);
            streams.copy(&span, buffer);
            draft.items.push(Item::Stream(span));
            if is_last {
                break;
            }
        }
        if buffer.len() == acknowledged {
            // Nothing was left to send after all; an acknowledgement goes alone.
            if acknowledged == empty {
                buffer.truncate(begin);
                return;
            }
        } else {
            draft.eliciting = true;
            draft.paced = true;
        }
        self.balance = (self.balance + (buffer.len() - acknowledged) as i64).min(MOST_IMBALANCE);
        self.finish(now, index, draft, buffer);
    }
}
