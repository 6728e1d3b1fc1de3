//! What a session tells of itself.

use crate::address::Address;
use crate::path::{PathCounters, PathState};
use policy::PathStatus;
use std::time::Duration;
use units::{BitRate, Bytes, NetworkId, PathId};

/// Figures of one path.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// The local network.
    pub network: NetworkId,
    /// Number on the wire.
    pub path: PathId,
    /// Where it leads.
    pub address: Address,
    /// Whether it works.
    pub state: PathState,
    /// It is suspect though it is not silent: next to nothing gets through.
    pub trickles: bool,
    /// How both ends want it used.
    pub status: PathStatus,
    /// Smoothed round-trip time; `None` until something was measured.
    pub smoothed_rtt: Option<Duration>,
    /// Least smoothed round-trip time of the last seconds; `None` until something was measured.
    pub base_rtt: Option<Duration>,
    /// Round-trip variation.
    pub rtt_variation: Duration,
    /// Expected rate towards the peer; `None` until a round trip was measured.
    pub rate: Option<BitRate>,
    /// Congestion window, bytes.
    pub window: Bytes,
    /// Bytes in flight.
    pub in_flight: Bytes,
    /// Largest datagram, bytes of UDP payload.
    pub mtu: u16,
    /// Recent share of lost bytes, 0 to 1.
    pub loss_rate: f64,
    /// How much later than the fastest path's packets arrive on this one, as measured one way.
    pub extra_delay: Duration,
    /// Sums since the path began.
    pub counters: PathCounters,
}

/// Figures of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Inner packets taken from any0.
    pub packets_in: u64,
    /// Bytes of them.
    pub bytes_in: u64,
    /// Inner packets given to any0.
    pub packets_out: u64,
    /// Bytes of them.
    pub bytes_out: u64,
    /// Inner packets dropped because a queue was full.
    pub queue_drops: u64,
    /// Packets sent again.
    pub repeats: u64,
    /// Copies that arrived twice and were removed.
    pub duplicates: u64,
    /// Packets restored by FEC.
    pub repaired: u64,
    /// Packets that the resequencer stopped waiting for.
    pub skipped: u64,
    /// Packets that arrived after that.
    pub late: u64,
    /// Datagrams that were not authentic, replayed, or made no sense.
    pub rejected: u64,
}
