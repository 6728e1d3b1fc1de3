//! The receiving end: asks for data, acknowledges as Linux does and keeps account of what came.

use super::sender::clock;
use crate::simbed::measure::Progress;
use crate::simbed::ranges::RangeSet;
use crate::simbed::segment::{ACK, FlowAddresses, SYN, Segment};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use units::Timestamp;

/// Room for data that the application has not read.
const RECEIVE_WINDOW: u64 = 16 << 20;
/// Linux's least delay of an acknowledgement.
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(40);
/// Segments at the start of a connection that are acknowledged at once.
const QUICK_ACKNOWLEDGEMENTS: u32 = 16;
const REQUEST_BYTES: usize = 120;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A TCP client's end of one connection.
#[derive(Debug)]
pub struct TcpReceiver {
    flow: FlowAddresses,
    stage: Stage,
    /// Next byte expected in order.
    expected: u64,
    /// Ends of what came out of order, and the latest of it first.
    out_of_order: RangeSet,
    latest_block: Option<Range<u64>>,
    duplicate: Option<Range<u64>>,
    unacknowledged_segments: u32,
    quick_left: u32,
    acknowledge_at: Option<Timestamp>,
    acknowledge_now: bool,
    echo: u32,
    outgoing: VecDeque<Segment>,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    Idle { start: Timestamp },
    Connecting { retry_at: Timestamp, attempt: u32 },
    Requesting { retry_at: Timestamp, attempt: u32 },
    Receiving,
}

impl TcpReceiver {
    /// A client on `flow.local` that connects to `flow.remote` at `start`.
    pub fn new(flow: FlowAddresses, start: Timestamp) -> Self {
        Self {
            flow,
            stage: Stage::Idle { start },
            expected: 1,
            out_of_order: RangeSet::default(),
            latest_block: None,
            duplicate: None,
            unacknowledged_segments: 0,
            quick_left: QUICK_ACKNOWLEDGEMENTS,
            acknowledge_at: None,
            acknowledge_now: false,
            echo: 0,
            outgoing: VecDeque::new(),
            progress: Progress::starting_at(start),
        }
    }

    /// What arrived in order, and when.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The same, to begin a measurement.
    pub fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// A packet from the server arrived.
    pub fn handle_packet(&mut self, now: Timestamp, packet: &[u8]) {
        let Some(segment) = Segment::from_packet(packet) else { return };
        if segment.flags & SYN != 0 {
            if matches!(self.stage, Stage::Connecting { .. }) {
                self.echo = segment.timestamp;
                self.request(now, 0);
            }
            return;
        }
        if segment.payload_bytes > 0 {
            self.stage = Stage::Receiving;
            self.take_data(now, &segment);
        }
    }

    /// A timer of `poll_timeout` expired.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        match self.stage {
            Stage::Idle { start } if start <= now => self.connect(now, 0),
            Stage::Connecting { retry_at, attempt } if retry_at <= now => self.connect(now, attempt + 1),
            Stage::Requesting { retry_at, attempt } if retry_at <= now => self.request(now, attempt + 1),
            _ => {}
        }
        if self.acknowledge_at.take_if(|at| *at <= now).is_some() {
            self.acknowledge_now = true;
        }
    }

    /// The next packet to send.
    pub fn poll_packet(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if let Some(segment) = self.outgoing.pop_front() {
            return Some(segment.to_packet(self.flow));
        }
        if !std::mem::take(&mut self.acknowledge_now) {
            return None;
        }
        self.unacknowledged_segments = 0;
        self.acknowledge_at = None;
        let selective = self.selective_blocks();
        let segment = Segment { selective, sequence: 1 + REQUEST_BYTES as u64, ..self.bare(now) };
        Some(segment.to_packet(self.flow))
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let stage = match self.stage {
            Stage::Idle { start } => Some(start),
            Stage::Connecting { retry_at, .. } | Stage::Requesting { retry_at, .. } => Some(retry_at),
            Stage::Receiving => None,
        };
        [stage, self.acknowledge_at].into_iter().flatten().min()
    }

    fn connect(&mut self, now: Timestamp, attempt: u32) {
        self.outgoing.push_back(Segment { flags: SYN, acknowledgement: 0, ..self.bare(now) });
        self.stage =
            Stage::Connecting { retry_at: now + CONNECT_TIMEOUT * 2_u32.pow(attempt.min(6)), attempt };
    }

    fn request(&mut self, now: Timestamp, attempt: u32) {
        self.outgoing.push_back(Segment { sequence: 1, payload_bytes: REQUEST_BYTES, ..self.bare(now) });
        self.stage =
            Stage::Requesting { retry_at: now + CONNECT_TIMEOUT * 2_u32.pow(attempt.min(6)), attempt };
    }

    fn take_data(&mut self, now: Timestamp, segment: &Segment) {
        let range = segment.sequence..segment.sequence + segment.payload_bytes as u64;
        if range.start <= self.expected {
            // RFC 7323 section 4.3: echo what advances the left edge.
            self.echo = segment.timestamp;
        }
        let is_known = range.end <= self.expected
            || self.out_of_order.containing(range.start).is_some_and(|known| known.end >= range.end);
        if is_known {
            self.duplicate = Some(range);
            self.acknowledge_now = true;
            return;
        }
        if range.start > self.expected {
            self.out_of_order.insert(range.clone());
            self.latest_block = self.out_of_order.containing(range.start);
            self.acknowledge_now = true;
            return;
        }
        let before = self.expected;
        self.expected = range.end;
        let filled_a_hole = !self.out_of_order.is_empty();
        if let Some(joined) = self.out_of_order.first().filter(|first| first.start <= self.expected) {
            self.expected = self.expected.max(joined.end);
        }
        self.out_of_order.remove_below(self.expected);
        self.progress.add(now, self.expected - before);
        self.unacknowledged_segments += 1;
        self.quick_left = self.quick_left.saturating_sub(1);
        if filled_a_hole || self.unacknowledged_segments >= 2 || self.quick_left > 0 {
            self.acknowledge_now = true;
        } else if self.acknowledge_at.is_none() {
            self.acknowledge_at = Some(now + ACKNOWLEDGEMENT_DELAY);
        }
    }

    /// A duplicate first (RFC 2883), then the block that grew last, then the highest others.
    fn selective_blocks(&mut self) -> Vec<Range<u64>> {
        let mut blocks: Vec<Range<u64>> = self.duplicate.take().into_iter().collect();
        let latest = self.latest_block.take().and_then(|block| self.out_of_order.containing(block.start));
        blocks.extend(latest.clone());
        blocks.extend(self.out_of_order.iter().rev().filter(|block| Some(block) != latest.as_ref()).take(3));
        blocks.truncate(3);
        blocks
    }

    fn bare(&self, now: Timestamp) -> Segment {
        Segment {
            flags: ACK,
            acknowledgement: self.expected,
            window: RECEIVE_WINDOW,
            timestamp: clock(now),
            timestamp_echo: self.echo,
            ..Segment::default()
        }
    }
}
