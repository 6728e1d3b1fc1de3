//! What a receiver notes while bytes arrive, and the report made of it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::pattern::Verifier;
use super::request::{Congestion, Transport};

/// A time in which nothing arrived.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Gap {
    /// Its start, seconds after the flow's.
    pub at_seconds: f64,
    /// Its length.
    pub milliseconds: f64,
}

/// What arrived in one flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowReport {
    /// When it began, seconds since the machine's start (the clock of `/proc/uptime`).
    pub began_at: f64,
    /// Bytes of content within the flow's time.
    pub bytes: u64,
    /// The flow's time: from the first step of its connection to its last byte or the end of the time asked for.
    pub seconds: f64,
    /// From the first step of the connection to the first byte.
    pub first_byte_milliseconds: f64,
    /// The longest gap between two arrivals, or from the last one to the end of the time asked for.
    pub longest_gap: Gap,
    /// All gaps of 20 ms and more, at most 1000.
    pub gaps: Vec<Gap>,
    /// Bytes in each 100 ms.
    pub tenths: Vec<u64>,
    /// Whether every byte was the right one.
    pub intact: bool,
}

/// What arrived in all flows of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What the flows spoke.
    pub transport: Transport,
    /// What their senders used.
    pub congestion: Congestion,
    /// Whether the device sent.
    pub upload: bool,
    /// Bytes of content of all flows.
    pub bytes: u64,
    /// The longest flow's time.
    pub seconds: f64,
    /// Million bits of content a second, of all flows.
    pub goodput_mbps: f64,
    /// The longest gap of any flow.
    pub longest_gap_milliseconds: f64,
    /// Bytes of all flows in each 100 ms.
    pub tenths: Vec<u64>,
    /// Whether every byte was the right one.
    pub intact: bool,
    /// Each flow.
    pub flows: Vec<FlowReport>,
}

/// Notes arrivals of one flow.
#[derive(Debug)]
pub struct Recorder {
    began_at: f64,
    start: Instant,
    window: Duration,
    first: Option<Instant>,
    last: Instant,
    bytes: u64,
    longest_gap: Gap,
    gaps: Vec<Gap>,
    tenths: Vec<u64>,
    verifier: Verifier,
}

impl Recorder {
    /// A flow that starts now and is watched for `window`.
    pub fn start(window: Duration) -> Self {
        let now = Instant::now();
        Self {
            began_at: linux::clock::now().as_nanos() as f64 / 1e9,
            start: now,
            window,
            first: None,
            last: now,
            bytes: 0,
            longest_gap: Gap { at_seconds: 0.0, milliseconds: 0.0 },
            gaps: Vec::new(),
            tenths: Vec::new(),
            verifier: Verifier::new(),
        }
    }

    /// When watching ends.
    pub fn deadline(&self) -> Instant {
        self.start + self.window
    }

    /// Bytes that arrived just now; not counted after the deadline.
    pub fn arrived(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        if now > self.deadline() {
            return;
        }
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.note_gap(now),
        }
        self.last = now;
        self.bytes += bytes.len() as u64;
        let tenth = (now.duration_since(self.start).as_millis() / 100) as usize;
        if self.tenths.len() <= tenth {
            self.tenths.resize(tenth + 1, 0);
        }
        self.tenths[tenth] += bytes.len() as u64;
        self.verifier.take(bytes);
    }

    /// The report; `ended` if the sender ended the flow, rather than the deadline.
    pub fn finish(mut self, ended: bool) -> FlowReport {
        let end = if ended { self.last } else { self.deadline() };
        if !ended && self.first.is_some() {
            self.note_gap(end);
        }
        let first = self.first.unwrap_or(end);
        FlowReport {
            began_at: self.began_at,
            bytes: self.bytes,
            seconds: end.duration_since(self.start).as_secs_f64(),
            first_byte_milliseconds: first.duration_since(self.start).as_secs_f64() * 1e3,
            longest_gap: self.longest_gap,
            gaps: self.gaps,
            tenths: self.tenths,
            intact: self.verifier.is_intact(),
        }
    }

    fn note_gap(&mut self, now: Instant) {
        let gap = Gap {
            at_seconds: self.last.duration_since(self.start).as_secs_f64(),
            milliseconds: now.duration_since(self.last).as_secs_f64() * 1e3,
        };
        if gap.milliseconds > self.longest_gap.milliseconds {
            self.longest_gap = gap;
        }
        if gap.milliseconds >= SHORTEST_GAP && self.gaps.len() < MAX_GAPS {
            self.gaps.push(gap);
        }
    }
}

impl Report {
    /// The sum of `flows`.
    pub fn of_flows(
        transport: Transport,
        congestion: Congestion,
        upload: bool,
        flows: Vec<FlowReport>,
    ) -> Self {
        let bytes = flows.iter().map(|flow| flow.bytes).sum();
        let seconds = flows.iter().map(|flow| flow.seconds).fold(0.0, f64::max);
        let mut tenths = vec![0; flows.iter().map(|flow| flow.tenths.len()).max().unwrap_or(0)];
        for flow in &flows {
            for (sum, bytes) in tenths.iter_mut().zip(&flow.tenths) {
                *sum += bytes;
            }
        }
        Self {
            transport,
            congestion,
            upload,
            bytes,
            seconds,
            goodput_mbps: if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 },
            longest_gap_milliseconds: flows
                .iter()
                .map(|flow| flow.longest_gap.milliseconds)
                .fold(0.0, f64::max),
            tenths,
            intact: flows.iter().all(|flow| flow.intact),
            flows,
        }
    }
}

/// Shorter gaps are not kept, milliseconds.
pub(crate) const SHORTEST_GAP: f64 = 20.0;
/// More gaps of a flow are not kept.
pub(crate) const MAX_GAPS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    #[test]
    fn gaps_are_seen_and_late_bytes_are_not_counted() {
        let content = super::super::pattern::block();
        let mut recorder = Recorder::start(Duration::from_millis(1_500));
        recorder.arrived(&content[..100]);
        sleep(Duration::from_millis(120));
        recorder.arrived(&content[100..150]);
        sleep(Duration::from_millis(1_400));
        recorder.arrived(&content[150..160]);
        let report = recorder.finish(false);
        assert_eq!(report.bytes, 150);
        assert!((report.seconds - 1.5).abs() < 1e-6);
        assert!(report.intact);
        assert_eq!(report.gaps.len(), 2);
        assert!(report.gaps[0].milliseconds >= 120.0 && report.longest_gap.milliseconds >= 120.0);
        assert_eq!(report.tenths.iter().sum::<u64>(), 150);
    }

    #[test]
    fn flows_add_up() {
        let flow = |bytes, seconds| FlowReport {
            began_at: 0.0,
            bytes,
            seconds,
            first_byte_milliseconds: 1.0,
            longest_gap: Gap { at_seconds: 0.0, milliseconds: bytes as f64 },
            gaps: Vec::new(),
            tenths: vec![bytes],
            intact: true,
        };
        let report = Report::of_flows(
            Transport::Tcp,
            Congestion::Cubic,
            false,
            vec![flow(250_000, 1.0), flow(750_000, 2.0)],
        );
        assert_eq!(report.bytes, 1_000_000);
        assert!((report.goodput_mbps - 4.0).abs() < 1e-9);
        assert_eq!(report.tenths, [1_000_000]);
        assert_eq!(report.longest_gap_milliseconds, 750_000.0);
    }
}
