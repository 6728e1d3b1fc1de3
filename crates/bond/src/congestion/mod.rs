//! Congestion control of a path behind one trait, with a home for state that coupled controllers share.

mod background;
mod bottleneck;
mod choice;
mod coupled;
mod crowd;
mod cubic;
mod fades;
mod loss_based;
mod model;
#[cfg(test)]
mod model_tests;
mod rate_filter;
#[cfg(test)]
mod samples;
mod slow_start;
#[cfg(test)]
mod test_link;

pub use background::BackgroundController;
pub use bottleneck::BottleneckDetector;
pub use choice::{Algorithm, AnyController, UnknownAlgorithm};
pub use coupled::{CoupledController, Coupling};
pub use cubic::CubicController;
pub use model::ModelController;

use std::time::Duration;
use units::{BitRate, PathId, Timestamp};

/// What one acknowledgement told about a path. Sizes are bytes of UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When the acknowledgement arrived.
    pub now: Timestamp,
    /// Bytes that it newly acknowledged.
    pub acked_bytes: u64,
    /// Bytes in flight before it arrived.
    pub prior_in_flight: u64,
    /// Round-trip time of the largest newly acknowledged packet, acknowledgement delay removed.
    pub latest_rtt: Duration,
    /// Smoothed round-trip time (RFC 6298), after this sample.
    pub smoothed_rtt: Duration,
    /// Least smoothed round-trip time of the last 10 s.
    pub base_rtt: Duration,
    /// Delivery rate on the receiver's clock, if this acknowledgement gave a sample.
    pub delivery_rate: Option<BitRate>,
    /// The sample was taken while there was too little to send: a lower bound only.
    pub application_limited: bool,
    /// A round trip has passed since the last acknowledgement for which this was true.
    pub round_ended: bool,
    /// Newly reported CE marks.
    pub ce_marks: u64,
    /// Much is still under way on a path of the bond that carries nothing new: if both share a link, it is in the way of what is sent here.
    pub overshadowed: bool,
    /// A path of the bond that carries nothing any more was one whose rate falls and comes back within moments.
    pub others_fade: bool,
}

/// What one loss event told about a path.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// When the loss was noticed.
    pub now: Timestamp,
    /// Bytes newly found lost.
    pub lost_bytes: u64,
    /// When the latest of the lost packets had been sent; a loss sent before the last reduction is the same event.
    pub latest_sent: Timestamp,
    /// Nothing was acknowledged for so long that the path is suspect (RFC 9002 section 7.6).
    pub persistent: bool,
}

/// What a coupled controller may know of one path of the bond.
#[derive(Clone, Copy, Debug)]
pub struct Sibling {
    /// The path.
    pub path: PathId,
    /// Its congestion window, bytes.
    pub window: u64,
    /// Its smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Bytes acknowledged since its last loss, and between its last two (OLIA).
    pub acked_since_loss: u64,
    /// Bytes acknowledged between its last two losses (OLIA).
    pub acked_between_losses: u64,
    /// Paths with one value here were found to share a bottleneck and are coupled; others are not.
    pub bottleneck: u32,
}

/// Congestion control of one path.
///
/// `siblings` lists every live path of the bond, the controller's own included; an uncoupled controller ignores it.
pub trait Controller {
    /// `bytes` were sent; `in_flight` counts them.
    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64);
    /// An acknowledgement arrived.
    fn on_ack(&mut self, sample: &AckSample, own: PathId, siblings: &[Sibling]);
    /// Packets were found lost.
    fn on_loss(&mut self, sample: &LossSample, own: PathId, siblings: &[Sibling]);
    /// Bytes that may be in flight.
    fn window(&self) -> u64;
    /// Pace at which to send; `None` while nothing is known (send as the window allows).
    fn pacing_rate(&self) -> Option<BitRate>;
    /// What the path is believed to deliver; `None` until known.
    fn rate_estimate(&self) -> Option<BitRate>;
    /// Start-up is over: the rate estimate can be relied on by the scheduler.
    fn settled(&self) -> bool;
    /// Bytes that it lets through in every round trip, however bad things look: an estimate of less would never be put to the test.
    fn guaranteed_window(&self) -> u64 {
        GUARANTEED_WINDOW
    }
    /// What held the path back for a while, by the wish of either end, is gone: what is known of its rate is a lower bound. `takes_over`: it is in another
    /// one's place now. Else nothing better answers at this moment, and it may be far worse.
    fn freed(&mut self, _now: Timestamp, _takes_over: bool) {}
    /// The path was seen lately to be one whose rate falls and comes back within moments.
    fn fades(&self, _now: Timestamp) -> bool {
        false
    }
    /// Nothing shows that the path is full: it may carry more than the estimate.
    fn has_room(&self) -> bool {
        false
    }
}

/// Four packets.
const GUARANTEED_WINDOW: u64 = 4 * 1_200;
