//! Congestion control of the TCP model behind one trait. Windows are counted in packets, as in Linux.

use super::bbr::Bbr;
use super::cubic::Cubic;
use super::reno::Reno;
use std::time::Duration;
use units::{BitRate, Timestamp};

/// A congestion control algorithm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// CUBIC.
    Cubic,
    /// BBR.
    Bbr,
    /// Reno.
    Reno,
}

impl Algorithm {
    /// A controller for a TCP flow with packets of `packet_bytes`.
    pub(super) fn controller(self, packet_bytes: u64) -> Box<dyn Control> {
        match self {
            Self::Cubic => Box::new(Cubic::new()),
            Self::Bbr => Box::new(Bbr::new(packet_bytes)),
            Self::Reno => Box::new(Reno::new()),
        }
    }
}

/// Delivery rate over the flight of the newest packet that an acknowledgement delivered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct RateSample {
    /// Packets delivered meanwhile.
    pub(super) delivered: u64,
    /// In this time.
    pub(super) interval: Duration,
    /// Total delivered when that packet was sent.
    pub(super) prior_delivered: u64,
    /// The sender had nothing more to send then.
    pub(super) application_limited: bool,
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckEvent {
    pub(super) now: Timestamp,
    /// Packets newly acknowledged, cumulatively or selectively.
    pub(super) newly_delivered: u64,
    /// Packets newly acknowledged cumulatively.
    pub(super) newly_acknowledged: u64,
    /// Packets newly found lost.
    pub(super) newly_lost: u64,
    /// Packets believed to be in the network, after this event and before it.
    pub(super) in_flight: u64,
    pub(super) prior_in_flight: u64,
    /// Round-trip time of the newest packet delivered, if it was sent once.
    pub(super) rtt: Option<Duration>,
    pub(super) rate: Option<RateSample>,
    /// Packets delivered in total.
    pub(super) total_delivered: u64,
    /// First unacknowledged and next new packet.
    pub(super) first_unacknowledged: u64,
    pub(super) next_new: u64,
    /// A recovery from loss is under way.
    pub(super) in_recovery: bool,
    /// Retransmitted packets count for rate reduction: sent since recovery began.
    pub(super) sent_in_recovery: u64,
    /// The window was what held sending back since the last acknowledgement.
    pub(super) window_limited: bool,
}

/// A congestion controller of the TCP model.
pub(super) trait Control: std::fmt::Debug {
    /// Packets that may be in flight.
    fn window(&self) -> u64;
    /// Pace; `None` to send as the window allows.
    fn pacing_rate(&self) -> Option<BitRate>;
    /// An acknowledgement arrived.
    fn on_ack(&mut self, event: &AckEvent);
    /// Packets were lost and a recovery begins.
    fn on_recovery(&mut self, now: Timestamp, in_flight: u64);
    /// The recovery is over.
    fn on_recovered(&mut self, now: Timestamp);
    /// The retransmission timer expired; everything in flight counts as lost.
    fn on_timeout(&mut self, now: Timestamp, in_flight: u64);
    /// The last recovery or time-out was a mistake: packets were late, not lost.
    fn on_undo(&mut self, now: Timestamp);
}
