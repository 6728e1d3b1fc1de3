//! The sending end: answers a request with data, as much as asked or without end.

use super::control::{AckEvent, Algorithm, Control};
use super::recovery::{Episode, Recovery};
use super::rtt::RoundTrip;
use super::scoreboard::{Delivered, Scoreboard};
use crate::simbed::segment::{ACK, FlowAddresses, SYN, Segment, TCP_HEADER_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use units::Timestamp;

/// Linux's least time before a tail loss probe for a lone packet, for its acknowledgement's delay.
const LONE_PACKET_PROBE_DELAY: Duration = Duration::from_millis(200);

/// A TCP server's end of one connection.
#[derive(Debug)]
pub struct TcpSender {
    flow: FlowAddresses,
    payload_bytes: usize,
    /// Packets to send in all; without end if not given.
    packets: Option<u64>,
    last_payload_bytes: usize,
    established: bool,
    board: Scoreboard,
    control: Box<dyn Control>,
    round_trip: RoundTrip,
    recovery: Recovery,
    receive_window: u64,
    window_limited: bool,
    peer_timestamp: u32,
    /// Next byte expected of the request.
    request_end: u64,
    replies: VecDeque<Segment>,
    timers: Timers,
    probed: bool,
}

#[derive(Debug, Default)]
struct Timers {
    retransmit: Option<Timestamp>,
    probe: Option<Timestamp>,
    reordering: Option<Timestamp>,
    /// Paced: nothing leaves before.
    pace: Timestamp,
}

impl TcpSender {
    /// A server on `flow.local` for the client on `flow.remote` that will send `bytes`, or without end.
    pub fn new(flow: FlowAddresses, algorithm: Algorithm, mtu: usize, bytes: Option<u64>) -> Self {
        let payload_bytes = mtu - TCP_HEADER_BYTES;
        let packets = bytes.map(|bytes| bytes.div_ceil(payload_bytes as u64));
        let last = bytes.map_or(payload_bytes as u64, |bytes| {
            bytes - packets.unwrap_or(1).saturating_sub(1) * payload_bytes as u64
        });
        Self {
            flow,
            payload_bytes,
            packets,
            last_payload_bytes: last as usize,
            established: false,
            board: Scoreboard::default(),
            control: algorithm.controller(mtu as u64),
            round_trip: RoundTrip::default(),
            recovery: Recovery::Open,
            receive_window: 0,
            window_limited: true,
            peer_timestamp: 0,
            request_end: 0,
            replies: VecDeque::new(),
            timers: Timers::default(),
            probed: false,
        }
    }

    /// A packet from the client arrived.
    pub fn handle_packet(&mut self, now: Timestamp, packet: &[u8]) {
        let Some(segment) = Segment::from_packet(packet) else { return };
        self.peer_timestamp = self.peer_timestamp.max(segment.timestamp);
        self.receive_window = segment.window;
        if segment.flags & SYN != 0 {
            self.replies.push_back(Segment { flags: SYN | ACK, acknowledgement: 1, ..self.bare(now) });
            return;
        }
        if segment.payload_bytes > 0 {
            self.request_end = self.request_end.max(segment.sequence + segment.payload_bytes as u64);
            if self.established && self.board.is_empty() {
                self.replies.push_back(self.bare(now));
            }
            self.established = true;
        }
        if self.established {
            self.handle_acknowledgement(now, &segment);
        }
    }

    /// A timer of `poll_timeout` expired.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.timers.reordering.take_if(|at| *at <= now).is_some() {
            self.look_for_losses(now, Delivered::default(), self.board.in_flight(), None);
        }
        if self.timers.probe.take_if(|at| *at <= now).is_some() {
            self.send_probe(now);
        }
        if self.timers.retransmit.take_if(|at| *at <= now).is_some() {
            self.time_out(now);
        }
    }

    /// The next packet to send.
    pub fn poll_packet(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if let Some(reply) = self.replies.pop_front() {
            return Some(reply.to_packet(self.flow));
        }
        if !self.established || (self.control.pacing_rate().is_some() && self.timers.pace > now) {
            return None;
        }
        if self.board.in_flight() >= self.control.window() {
            self.window_limited = true;
            return None;
        }
        let number = match self.board.next_to_repeat() {
            Some(number) => {
                self.send_again(now, number);
                number
            }
            None if self.may_send_new() => self.board.send_new(now),
            None => {
                self.board.set_application_limited();
                return None;
            }
        };
        Some(self.transmit(now, number))
    }

    /// When to call `handle_timeout` or `poll_packet`.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let wants_to_send = self.established
            && self.control.pacing_rate().is_some()
            && self.board.in_flight() < self.control.window()
            && (self.board.next_to_repeat().is_some() || self.may_send_new());
        let pace = wants_to_send.then_some(self.timers.pace);
        [self.timers.retransmit, self.timers.probe, self.timers.reordering, pace].into_iter().flatten().min()
    }

    fn handle_acknowledgement(&mut self, now: Timestamp, segment: &Segment) {
        let acknowledged = self.packet_number(segment.acknowledgement);
        let mut blocks: Vec<Range<u64>> = Vec::with_capacity(segment.selective.len());
        for (index, block) in segment.selective.iter().enumerate() {
            let inside_next = segment
                .selective
                .get(index + 1)
                .is_some_and(|next| next.start <= block.start && block.end <= next.end);
            if index == 0 && (block.end <= segment.acknowledgement || inside_next) {
                self.on_duplicate_report();
            } else {
                blocks.push(self.packet_number(block.start)..self.packet_number(block.end));
            }
        }
        let prior_in_flight = self.board.in_flight();
        let delivered = self.board.acknowledge(now, acknowledged, &blocks, &self.round_trip);
        if let Some(rtt) = delivered.rtt {
            self.round_trip.add(rtt);
        }
        if delivered.newly_acknowledged > 0 {
            self.round_trip.reset_backoff();
            self.probed = false;
        }
        self.end_recovery_if_done(now, segment.timestamp_echo, &delivered);
        self.look_for_losses(now, delivered, prior_in_flight, Some(segment.timestamp_echo));
        if delivered.newly_delivered > 0 {
            self.arm_timers(now);
        }
    }

    /// Finds losses, opens a recovery for them and tells the controller.
    fn look_for_losses(
        &mut self,
        now: Timestamp,
        delivered: Delivered,
        prior_in_flight: u64,
        echo: Option<u32>,
    ) {
        let (newly_lost, again) = self.board.detect_losses(now, !self.recovery.is_open(), &self.round_trip);
        self.timers.reordering = again;
        if newly_lost > 0 && self.recovery.is_open() {
            self.recovery = Recovery::Recovering(Episode::until(self.board.next_new()));
            self.control.on_recovery(now, prior_in_flight);
        }
        if echo.is_none() && newly_lost == 0 {
            return;
        }
        let event = AckEvent {
            now,
            newly_delivered: delivered.newly_delivered,
            newly_acknowledged: delivered.newly_acknowledged,
            newly_lost,
            in_flight: self.board.in_flight(),
            prior_in_flight,
            rtt: delivered.rtt,
            rate: delivered.rate,
            total_delivered: self.board.total_delivered(),
            first_unacknowledged: self.board.first_unacknowledged(),
            next_new: self.board.next_new(),
            in_recovery: !self.recovery.is_open(),
            sent_in_recovery: self.recovery.episode().map_or(0, |episode| episode.sent),
            window_limited: self.window_limited,
        };
        self.control.on_ack(&event);
        self.window_limited = self.board.in_flight() >= self.control.window();
    }

    fn end_recovery_if_done(&mut self, now: Timestamp, echo: u32, delivered: &Delivered) {
        let Some(episode) = self.recovery.episode().copied() else { return };
        let mistaken = episode.was_mistaken(echo)
            && (delivered.acknowledged_repeated || episode.unexplained_repeats <= 0);
        if mistaken && delivered.newly_acknowledged > 0 {
            self.board.forgive_losses();
            self.control.on_undo(now);
            self.recovery = Recovery::Open;
        } else if self.board.first_unacknowledged() >= episode.end {
            self.recovery = Recovery::Open;
        } else {
            return;
        }
        self.control.on_recovered(now);
    }

    fn on_duplicate_report(&mut self) {
        self.board.on_duplicate_report();
        if let Some(episode) = self.recovery.episode_mut() {
            episode.unexplained_repeats -= 1;
        }
    }

    fn time_out(&mut self, now: Timestamp) {
        if self.board.is_empty() {
            return;
        }
        self.board.lose_everything();
        self.round_trip.back_off();
        self.recovery = Recovery::TimedOut(Episode::until(self.board.next_new()));
        self.control.on_timeout(now, self.board.in_flight());
        self.timers = Timers { pace: now, ..Timers::default() };
        self.timers.retransmit = Some(now + self.round_trip.timeout());
    }

    /// Sends the last packet again to find out whether the tail was lost (RFC 8985 section 7).
    fn send_probe(&mut self, now: Timestamp) {
        let Some(last) = self.board.next_new().checked_sub(1).filter(|_| !self.board.is_empty()) else {
            return;
        };
        self.probed = true;
        let number = if self.may_send_new() {
            self.board.send_new(now)
        } else {
            self.board.send_again(now, last);
            last
        };
        let segment = self.data_segment(now, number);
        self.replies.push_back(segment);
        self.timers.retransmit = Some(now + self.round_trip.timeout());
    }

    fn arm_timers(&mut self, now: Timestamp) {
        self.timers.probe = None;
        self.timers.retransmit = None;
        if self.board.is_empty() {
            return;
        }
        let timeout = self.round_trip.timeout();
        let probe = self
            .round_trip
            .smoothed()
            .filter(|_| self.recovery.is_open() && self.board.is_clean() && !self.probed);
        match probe {
            Some(smoothed) => {
                let lone = self.board.next_new() - self.board.first_unacknowledged() == 1;
                let extra = if lone { LONE_PACKET_PROBE_DELAY } else { Duration::from_millis(2) };
                self.timers.probe = Some(now + (smoothed * 2 + extra).min(timeout));
            }
            None => self.timers.retransmit = Some(now + timeout),
        }
    }

    fn send_again(&mut self, now: Timestamp, number: u64) {
        self.board.send_again(now, number);
        if let Some(episode) = self.recovery.episode_mut() {
            episode.first_repeat.get_or_insert(clock(now));
            episode.unexplained_repeats += 1;
        }
    }

    fn transmit(&mut self, now: Timestamp, number: u64) -> Vec<u8> {
        if let Some(episode) = self.recovery.episode_mut() {
            episode.sent += 1;
        }
        if self.timers.retransmit.is_none() && self.timers.probe.is_none() {
            self.arm_timers(now);
        }
        let segment = self.data_segment(now, number);
        if let Some(rate) = self.control.pacing_rate() {
            let bytes = units::Bytes((segment.payload_bytes + TCP_HEADER_BYTES) as u64);
            self.timers.pace = self.timers.pace.max(now) + rate.time_for(bytes);
        }
        segment.to_packet(self.flow)
    }

    fn may_send_new(&self) -> bool {
        let next = self.board.next_new();
        let unacknowledged = (next - self.board.first_unacknowledged() + 1) * self.payload_bytes as u64;
        self.packets.is_none_or(|packets| next < packets) && unacknowledged <= self.receive_window
    }

    fn data_segment(&self, now: Timestamp, number: u64) -> Segment {
        let is_last = self.packets.is_some_and(|packets| number + 1 == packets);
        Segment {
            sequence: 1 + number * self.payload_bytes as u64,
            payload_bytes: if is_last { self.last_payload_bytes } else { self.payload_bytes },
            ..self.bare(now)
        }
    }

    fn bare(&self, now: Timestamp) -> Segment {
        Segment {
            flags: ACK,
            sequence: 1 + self.board.next_new() * self.payload_bytes as u64,
            acknowledgement: self.request_end.max(1),
            window: 65_536,
            timestamp: clock(now),
            timestamp_echo: self.peer_timestamp,
            ..Segment::default()
        }
    }

    /// The packet that begins at or holds byte `sequence`; rounded up, for the last one is short.
    fn packet_number(&self, sequence: u64) -> u64 {
        sequence.saturating_sub(1).div_ceil(self.payload_bytes as u64)
    }
}

/// The timestamp clock: milliseconds, never zero.
pub(super) fn clock(now: Timestamp) -> u32 {
    (now.as_micros() / 1_000 + 1) as u32
}
