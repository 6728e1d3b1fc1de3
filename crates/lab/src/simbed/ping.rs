//! A flow of small datagrams that are answered: what a call beside a download feels.

use super::segment::{FlowAddresses, udp_packet, udp_payload};
use std::collections::VecDeque;
use std::time::Duration;
use units::Timestamp;

/// Payload of a ping: number, then filling.
const PAYLOAD_BYTES: usize = 64;

/// Sends a ping every interval and notes each round-trip time.
#[derive(Debug)]
pub struct PingClient {
    flow: FlowAddresses,
    interval: Duration,
    next_at: Timestamp,
    sent: Vec<Timestamp>,
    round_trips_ms: Vec<f64>,
}

/// Answers pings.
#[derive(Debug)]
pub struct PingServer {
    flow: FlowAddresses,
    answers: VecDeque<Vec<u8>>,
}

impl PingClient {
    /// Pings from `flow.local` to `flow.remote` from `start` on.
    pub fn new(flow: FlowAddresses, start: Timestamp, interval: Duration) -> Self {
        Self { flow, interval, next_at: start, sent: Vec::new(), round_trips_ms: Vec::new() }
    }

    /// Round-trip times in milliseconds, in the order of arrival.
    pub fn round_trips_ms(&self) -> &[f64] {
        &self.round_trips_ms
    }

    /// Pings without an answer among those sent before `deadline`.
    pub fn unanswered(&self, deadline: Timestamp) -> usize {
        let sent = self.sent.iter().filter(|at| **at < deadline).count();
        sent.saturating_sub(self.round_trips_ms.len())
    }

    /// An answer arrived.
    pub fn handle_packet(&mut self, now: Timestamp, packet: &[u8]) {
        let number = udp_payload(packet)
            .and_then(|payload| payload.first_chunk())
            .map(|bytes| u32::from_be_bytes(*bytes));
        if let Some(sent_at) = number.and_then(|number| self.sent.get(number as usize)) {
            self.round_trips_ms.push(now.since(*sent_at).as_secs_f64() * 1e3);
        }
    }

    /// The next ping if it is due.
    pub fn poll_packet(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if self.next_at > now {
            return None;
        }
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..4].copy_from_slice(&(self.sent.len() as u32).to_be_bytes());
        self.sent.push(now);
        self.next_at = now + self.interval;
        Some(udp_packet(self.flow, &payload))
    }

    /// When to ask for the next.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        Some(self.next_at)
    }
}

impl PingServer {
    /// Answers on `flow.local` to `flow.remote`.
    pub fn new(flow: FlowAddresses) -> Self {
        Self { flow, answers: VecDeque::new() }
    }

    /// A ping arrived.
    pub fn handle_packet(&mut self, packet: &[u8]) {
        if let Some(payload) = udp_payload(packet) {
            self.answers.push_back(udp_packet(self.flow, payload));
        }
    }

    /// The next answer.
    pub fn poll_packet(&mut self) -> Option<Vec<u8>> {
        self.answers.pop_front()
    }
}
