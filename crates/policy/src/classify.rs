//! What a flow needs, learned from what it does.
//!
//! ```text
//!                  more than 64 kB in about a second, or a queue
//!   Interactive ------------------------------------------------> Bulk
//!        |  ^ <------- little for a second, or idle for two --------|
//!        |  |                                                        |
//!   RTP, |  | four windows           RTP, DSCP or a steady stream    |
//!   DSCP |  | without                of packets below full size      |
//!   or   v  | any of it                                              |
//!   steady RealTime <------------------------------------------------+
//! ```
//!
//! Nothing is asked of the application: real-time flows are known by a rate that stays the same, by RTP's sequence
//! numbers (RFC 3550 section 5.1; the two first bits that RFC 9443 sets apart from QUIC, DTLS and STUN), or by a DSCP
//! (RFC 4594, RFC 8622). TCP is never real-time, since it must stay in order. A meter has a fixed size.

use crate::FlowClass;
use crate::rules::Dscp;
use std::time::Duration;
use units::{Bytes, Timestamp};
use wire::inner::{self, Headers};

/// Learns the class of one direction of one flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowMeter {
    last_packet: Timestamp,
    window_started: Timestamp,
    /// Bytes of the last second or so: a bucket that leaks.
    level: f32,
    /// Packets of the current window.
    window_packets: u16,
    class: FlowClass,
    windows_seen: u8,
    /// Packets per window: mean and mean deviation.
    mean_packets: f32,
    deviation: f32,
    mean_size: f32,
    steady_windows: u8,
    unsteady_windows: u8,
    rtp: Rtp,
}

/// How much a UDP flow looks like RTP.
#[derive(Clone, Copy, Debug, Default)]
struct Rtp {
    source: u32,
    sequence: u16,
    score: u8,
}

/// What the sender's DSCP asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    None,
    RealTime,
    Background,
}

impl FlowMeter {
    /// A meter for a flow whose first packet comes at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            last_packet: now,
            window_started: now,
            level: 0.0,
            window_packets: 0,
            class: FlowClass::Interactive,
            windows_seen: 0,
            mean_packets: 0.0,
            deviation: 0.0,
            mean_size: 0.0,
            steady_windows: 0,
            unsteady_windows: 0,
            rtp: Rtp::default(),
        }
    }

    /// Counts one packet of the flow and returns the flow's class with it. `packet` is the whole inner IP packet.
    pub fn on_packet(&mut self, now: Timestamp, packet: &[u8], headers: &Headers) -> FlowClass {
        self.forget_if_idle(now);
        let elapsed = now.since(self.last_packet);
        self.last_packet = now.max(self.last_packet);
        self.level = (self.level - elapsed.as_secs_f32() * LEAK).max(0.0);
        if headers.is_pure_ack() {
            self.class = self.by_level();
            return self.class;
        }
        let size = packet.len() as f32;
        self.level = (self.level + size).min(2.0 * BULK_LEVEL);
        self.mean_size =
            if self.mean_size == 0.0 { size } else { self.mean_size + (size - self.mean_size) / 16.0 };
        self.close_windows(now);
        self.window_packets = self.window_packets.saturating_add(1);
        self.class = self.judge(packet, headers);
        self.class
    }

    /// Tells that so much of the flow waits in its queue: what builds a queue is bulk, unless it is real-time.
    pub fn on_queue(&mut self, queued: Bytes) -> FlowClass {
        if queued.0 > BULK_QUEUE && self.class == FlowClass::Interactive {
            self.level = 2.0 * BULK_LEVEL;
            self.class = FlowClass::Bulk;
        }
        self.class
    }

    /// The class as of the last packet.
    pub fn class(&self) -> FlowClass {
        self.class
    }

    /// When the flow's last packet came.
    pub fn last_packet(&self) -> Timestamp {
        self.last_packet
    }

    fn judge(&mut self, packet: &[u8], headers: &Headers) -> FlowClass {
        let wish = wish(headers.dscp);
        if wish == Wish::Background {
            return FlowClass::Bulk;
        }
        if headers.key.protocol == inner::TCP {
            return self.by_level();
        }
        if headers.key.protocol == inner::UDP {
            self.look_for_rtp(packet, headers);
        }
        let told = wish == Wish::RealTime || self.rtp.score >= RTP_SURE;
        if told && self.packets_per_second() * self.mean_size < MOST_REAL_TIME {
            return FlowClass::RealTime;
        }
        if headers.key.protocol == inner::UDP && self.is_steady_stream() {
            return FlowClass::RealTime;
        }
        self.by_level()
    }

    fn by_level(&self) -> FlowClass {
        let bound = if self.class == FlowClass::Bulk { BULK_LEVEL / 4.0 } else { BULK_LEVEL };
        if self.level > bound { FlowClass::Bulk } else { FlowClass::Interactive }
    }

    fn is_steady_stream(&self) -> bool {
        if self.class == FlowClass::RealTime {
            self.unsteady_windows < WINDOWS_TO_TELL && self.mean_size < MEDIUM_SIZE_LEAVING
        } else {
            self.steady_windows >= WINDOWS_TO_TELL && self.mean_size < MEDIUM_SIZE
        }
    }

    fn packets_per_second(&self) -> f32 {
        self.mean_packets.max(f32::from(self.window_packets)) / WINDOW.as_secs_f32()
    }

    fn close_windows(&mut self, now: Timestamp) {
        let mut passed = now.since(self.window_started).as_nanos() / WINDOW.as_nanos();
        if passed == 0 {
            return;
        }
        passed = passed.min(u128::from(MOST_EMPTY_WINDOWS));
        for _ in 0..passed {
            let packets = f32::from(self.window_packets);
            self.window_packets = 0;
            self.close_window(packets);
        }
        let over = now.since(self.window_started).as_nanos() % WINDOW.as_nanos();
        self.window_started = now - Duration::from_nanos(u64::try_from(over).unwrap_or(0));
    }

    fn close_window(&mut self, packets: f32) {
        if self.windows_seen == 0 {
            self.mean_packets = packets;
            self.deviation = packets / 4.0;
        } else {
            self.deviation += ((packets - self.mean_packets).abs() - self.deviation) / 4.0;
            self.mean_packets += (packets - self.mean_packets) / 4.0;
        }
        self.windows_seen = self.windows_seen.saturating_add(1);
        let steady = (LEAST_PACKETS..=MOST_PACKETS).contains(&self.mean_packets)
            && self.deviation <= STEADINESS * self.mean_packets + 0.5;
        if steady {
            self.steady_windows = self.steady_windows.saturating_add(1);
            self.unsteady_windows = 0;
        } else {
            self.steady_windows = 0;
            self.unsteady_windows = self.unsteady_windows.saturating_add(1);
        }
    }

    /// RFC 3550: version 2, and a sequence number that goes on within a source.
    fn look_for_rtp(&mut self, packet: &[u8], headers: &Headers) {
        let payload = headers.transport_offset.and_then(|offset| packet.get(offset + UDP_HEADER..));
        let Some([first, _, s0, s1, _, _, _, _, x0, x1, x2, x3, ..]) = payload else { return };
        if first >> 6 != RTP_VERSION {
            self.rtp.score = self.rtp.score.saturating_sub(1);
            return;
        }
        let sequence = u16::from_be_bytes([*s0, *s1]);
        let source = u32::from_be_bytes([*x0, *x1, *x2, *x3]);
        if source == self.rtp.source {
            let ahead = sequence.wrapping_sub(self.rtp.sequence);
            let goes_on = (1..=RTP_GAP).contains(&ahead);
            self.rtp.score =
                if goes_on { (self.rtp.score + 2).min(2 * RTP_SURE) } else { self.rtp.score / 2 };
        }
        self.rtp.source = source;
        self.rtp.sequence = sequence;
    }

    fn forget_if_idle(&mut self, now: Timestamp) {
        let idle = now.since(self.last_packet);
        if idle > IDLE {
            let rtp = if idle > RTP_IDLE { Rtp::default() } else { self.rtp };
            *self = Self { rtp, ..Self::new(now) };
        }
    }
}

/// RFC 4594 (and RFC 8622 for lower effort).
fn wish(dscp: u8) -> Wish {
    match dscp {
        _ if Dscp::REAL_TIME.iter().any(|own| own.get() == dscp) => Wish::RealTime,
        // LE, CS1.
        1 | 8 => Wish::Background,
        _ => Wish::None,
    }
}

/// Time over which packets are counted.
const WINDOW: Duration = Duration::from_millis(250);
/// Fewer packets per window (20 a second, with slack) are too sparse to tell a stream.
const LEAST_PACKETS: f32 = 4.0;
/// More (400 a second) are no call or game.
const MOST_PACKETS: f32 = 100.0;
/// Mean deviation of a steady stream's packets per window, relative to their mean.
const STEADINESS: f32 = 0.3;
/// Steady windows that make a stream real-time, unsteady ones that end it: a second.
const WINDOWS_TO_TELL: u8 = 4;
/// Windows without packets that are worth counting one by one.
const MOST_EMPTY_WINDOWS: u8 = 8;
/// Mean packet size of calls and games, bytes; a bulk transfer's packets are full.
const MEDIUM_SIZE: f32 = 1_000.0;
/// The same for a stream already known to be real-time.
const MEDIUM_SIZE_LEAVING: f32 = 1_100.0;
/// Bytes in about a second that make a flow bulk.
const BULK_LEVEL: f32 = 64_000.0;
/// Bytes per second that leave the bucket.
const LEAK: f32 = 64_000.0;
/// Bytes in a flow's own queue that make it bulk.
const BULK_QUEUE: u64 = 32_000;
/// Bytes per second beyond which no mark and no RTP header makes a flow real-time: 24 Mbit/s.
const MOST_REAL_TIME: f32 = 3_000_000.0;
/// A flow silent for so long starts again.
const IDLE: Duration = Duration::from_secs(2);
/// A call may be silent for longer.
const RTP_IDLE: Duration = Duration::from_secs(30);
/// Score at which a flow is RTP: two packets in sequence.
const RTP_SURE: u8 = 4;
/// Packets of a source that may be missing between two.
const RTP_GAP: u16 = 64;
/// Version in the first two bits.
const RTP_VERSION: u8 = 2;
const UDP_HEADER: usize = 8;

#[cfg(test)]
mod tests;
