//! `struct tcp_info` (`linux/tcp.h`): what the kernel measures about a TCP connection anyhow.
//!
//! The structure grows at its end with the kernel's versions. What a kernel does not tell is `None`.

use std::time::Duration;

use units::{BitRate, Bytes};

use super::super::message::{long, number};

/// What the kernel knows about a TCP connection's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variance: Duration,
    /// Shortest round-trip time in the kernel's window (5 minutes by default); Linux 4.6.
    pub min_rtt: Option<Duration>,
    /// Time until the first repeat without an answer.
    pub retransmission_timeout: Duration,
    /// Consecutive unanswered repeats now.
    pub retransmits: u8,
    /// Segments repeated since the connection began.
    pub total_retransmits: u32,
    /// Segments sent and not yet acknowledged.
    pub unacknowledged: u32,
    /// Of those, segments believed lost.
    pub lost: u32,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Size of a full segment, in bytes.
    pub segment_size: u32,
    /// The path MTU as the connection believes it, in bytes.
    pub path_mtu: u32,
    /// Since data was last sent.
    pub since_sent: Duration,
    /// Since data last came.
    pub since_received: Duration,
    /// Data acknowledged by the peer; Linux 4.1.
    pub bytes_acknowledged: Option<Bytes>,
    /// Data received in order; Linux 4.1.
    pub bytes_received: Option<Bytes>,
    /// Latest sample of how fast data arrives at the peer; Linux 4.9.
    pub delivery_rate: Option<BitRate>,
    /// The application had too little to send while that was sampled: the path may carry more.
    pub delivery_rate_is_lower_bound: bool,
    /// Segments delivered, repeats counted once; Linux 4.18.
    pub delivered: Option<u32>,
    /// Of those, marked by a congested queue (ECN); Linux 4.18.
    pub delivered_with_congestion_mark: Option<u32>,
    /// Data sent, repeats included; Linux 4.19.
    pub bytes_sent: Option<Bytes>,
    /// Data sent again; Linux 4.19.
    pub bytes_retransmitted: Option<Bytes>,
}

impl TcpInfo {
    /// Reads what `bytes` holds; `None` if it ends before the fields that every kernel has.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        // The oldest form in use ends after tcpi_total_retrans.
        let field = |offset| number(bytes, offset);
        let micros = |offset| field(offset).map(|value| Duration::from_micros(value.into()));
        let millis = |offset| field(offset).map(|value| Duration::from_millis(value.into()));
        let size = |offset| long(bytes, offset).map(Bytes);
        Some(Self {
            retransmits: *bytes.get(2)?,
            delivery_rate_is_lower_bound: bytes.get(7)? & 1 != 0,
            retransmission_timeout: micros(8)?,
            segment_size: field(16)?,
            unacknowledged: field(24)?,
            lost: field(32)?,
            since_sent: millis(44)?,
            since_received: millis(52)?,
            path_mtu: field(60)?,
            rtt: micros(68)?,
            rtt_variance: micros(72)?,
            congestion_window: field(80)?,
            total_retransmits: field(100)?,
            bytes_acknowledged: size(120),
            bytes_received: size(128),
            min_rtt: micros(148).filter(|value| *value != NO_SAMPLE),
            delivery_rate: long(bytes, 160).map(|bytes| BitRate(bytes.saturating_mul(8))),
            delivered: field(192),
            delivered_with_congestion_mark: field(196),
            bytes_sent: size(200),
            bytes_retransmitted: size(208),
        })
    }
}

/// The kernel's way to say that there is no sample.
const NO_SAMPLE: Duration = Duration::from_micros(u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_the_kernel_and_short_forms_lack_the_newer_fields() {
        let mut bytes = [0; 232];
        let mut put = |offset: usize, value: u64, size: usize| {
            bytes[offset..offset + size].copy_from_slice(&value.to_ne_bytes()[..size]);
        };
        put(68, 20_000, 4);
        put(148, 15_000, 4);
        put(160, 1_250_000, 8);
        put(120, 777, 8);
        put(208, 55, 8);
        let info = TcpInfo::parse(&bytes).unwrap();
        assert_eq!(info.rtt, Duration::from_millis(20));
        assert_eq!(info.min_rtt, Some(Duration::from_millis(15)));
        assert_eq!(info.delivery_rate, Some(BitRate(10_000_000)));
        assert_eq!(info.bytes_acknowledged, Some(Bytes(777)));
        assert_eq!(info.bytes_retransmitted, Some(Bytes(55)));

        let old = TcpInfo::parse(&bytes[..104]).unwrap();
        assert_eq!(old.rtt, Duration::from_millis(20));
        assert_eq!((old.min_rtt, old.delivery_rate, old.bytes_acknowledged), (None, None, None));
        assert_eq!(TcpInfo::parse(&bytes[..103]), None);
    }

    #[test]
    fn a_path_without_a_sample_has_no_shortest_time() {
        let mut bytes = [0; 232];
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(TcpInfo::parse(&bytes).unwrap().min_rtt, None);
    }
}
