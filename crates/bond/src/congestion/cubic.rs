//! CUBIC, RFC 9438. Windows are in packets and times in seconds, as in its section 4.

use super::AckSample;
use super::loss_based::{LossBased, LossBasedController, Position, WindowRule};
use units::Timestamp;

/// The controller of one path.
pub type CubicController = LossBasedController<Cubic>;

/// CUBIC's window.
#[derive(Clone, Debug)]
pub struct Cubic {
    /// W_max: the window before the last reduction, lowered by fast convergence.
    window_maximum: f64,
    epoch: Option<Epoch>,
}

/// One stretch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    started: Timestamp,
    /// K: when the curve reaches W_max again.
    inflection: f64,
    /// W_est: what Reno would have.
    reno_window: f64,
    /// cwnd_prior: the window before the last reduction.
    prior_window: f64,
}

impl CubicController {
    /// A controller for a path whose datagrams have at most `datagram` bytes of UDP payload.
    pub fn new(datagram: u64, now: Timestamp) -> Self {
        Self { state: LossBased::new(datagram, now), rule: Cubic { window_maximum: 0.0, epoch: None } }
    }

    /// One that has `window` bytes in flight and is past its slow start.
    pub(super) fn at(window: u64, datagram: u64, now: Timestamp) -> Self {
        let mut controller = Self::new(datagram, now);
        controller.state.begin_at(window);
        controller
    }
}

impl WindowRule for Cubic {
    fn grown(&mut self, at: &Position<'_>, sample: &AckSample, acked: f64) -> f64 {
        let window = at.window;
        let maximum = self.window_maximum.max(window);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            started: sample.now,
            inflection: time_to_maximum(maximum, window),
            reno_window: window,
            prior_window: maximum,
        });
        let elapsed = sample.now.since(epoch.started).as_secs_f64();
        epoch.reno_window += reno_increment(acked, window, epoch.reno_window, epoch.prior_window);
        let curve = cubic_window(elapsed, epoch.inflection, maximum);
        if curve < epoch.reno_window {
            return epoch.reno_window.max(window);
        }
        let ahead = cubic_window(elapsed + sample.smoothed_rtt.as_secs_f64(), epoch.inflection, maximum);
        window + acked * (target(ahead, window) - window) / window
    }

    fn reduced(&mut self, at: &Position<'_>) -> f64 {
        self.window_maximum = fast_convergence(at.window, self.window_maximum);
        self.epoch = None;
        at.window * BETA
    }

    fn collapsed(&mut self, at: &Position<'_>) -> f64 {
        self.window_maximum = at.window;
        self.epoch = None;
        at.window * BETA
    }
}

/// RFC 9438 eq. 1: `W_cubic(t) = C * (t - K)^3 + W_max`.
fn cubic_window(elapsed: f64, inflection: f64, window_maximum: f64) -> f64 {
    C * (elapsed - inflection).powi(3) + window_maximum
}

/// RFC 9438 eq. 2: `K = cbrt((W_max - cwnd_epoch) / C)`.
fn time_to_maximum(window_maximum: f64, window: f64) -> f64 {
    ((window_maximum - window).max(0.0) / C).cbrt()
}

/// RFC 9438 section 4.2: the target is `W_cubic(t + RTT)`, held between the window and 1.5 windows.
fn target(curve_ahead: f64, window: f64) -> f64 {
    curve_ahead.clamp(window, 1.5 * window)
}

/// RFC 9438 eq. 4: `W_est += alpha * segments_acked / cwnd`, with alpha = 3 (1 - beta) / (1 + beta) until `W_est`
/// reaches the window before the last reduction, then 1.
fn reno_increment(acked: f64, window: f64, reno_window: f64, prior_window: f64) -> f64 {
    let alpha = if reno_window < prior_window { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
    alpha * acked / window
}

/// RFC 9438 section 4.7: a flow that did not get back to its old maximum gives way by `(1 + beta) / 2`.
fn fast_convergence(window: f64, last_maximum: f64) -> f64 {
    if window < last_maximum { window * (1.0 + BETA) / 2.0 } else { window }
}

/// C of RFC 9438 section 5, packets per second cubed.
const C: f64 = 0.4;
/// beta_cubic of RFC 9438 section 4.6.
const BETA: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::samples::{ack, loss};
    use crate::congestion::test_link::{DATAGRAM, Link, World};
    use crate::congestion::{Controller, LossSample};
    use std::time::Duration;
    use units::{BitRate, PathId};

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    /// By hand: W_max 100, window 70: K = cbrt(30 / 0.4) = cbrt(75) = 4.217163...;
    /// W(0) = 70, W(K) = 100, W(K + 5) = 0.4 * 125 + 100 = 150.
    #[test]
    fn curve_by_hand() {
        let inflection = time_to_maximum(100.0, 70.0);
        close(inflection, 4.217_163_326_508_746);
        close(cubic_window(0.0, inflection, 100.0), 70.0);
        close(cubic_window(inflection, inflection, 100.0), 100.0);
        close(cubic_window(inflection + 5.0, inflection, 100.0), 150.0);
        close(time_to_maximum(50.0, 70.0), 0.0);
    }

    /// By hand: alpha = 3 * 0.3 / 1.7 = 9 / 17; 34 packets at window 18 give 34 / 18 * 9 / 17 = 1.
    #[test]
    fn reno_region_by_hand() {
        close(reno_increment(34.0, 18.0, 10.0, 20.0), 1.0);
        close(reno_increment(9.0, 18.0, 20.0, 20.0), 0.5);
    }

    #[test]
    fn target_and_convergence_by_hand() {
        close(target(90.0, 100.0), 100.0);
        close(target(120.0, 100.0), 120.0);
        close(target(400.0, 100.0), 150.0);
        close(fast_convergence(80.0, 100.0), 68.0);
        close(fast_convergence(120.0, 100.0), 120.0);
    }

    #[test]
    fn one_reduction_per_event() {
        let mut cubic = CubicController::new(1_000, Timestamp::ZERO);
        let at = |millis| Timestamp::from_millis(millis);
        cubic.on_loss(&loss(at(100), at(50)), PathId(0), &[]);
        assert_eq!(cubic.window(), 7_000);
        cubic.on_loss(&loss(at(110), at(90)), PathId(0), &[]);
        assert_eq!(cubic.window(), 7_000, "sent before the reduction");
        cubic.on_loss(&loss(at(200), at(150)), PathId(0), &[]);
        assert_eq!(cubic.window(), 4_900);
        let mut marked = ack(1_000);
        marked.now = at(500);
        marked.ce_marks = 1;
        cubic.on_ack(&marked, PathId(0), &[]);
        assert_eq!(cubic.window(), 3_430);
        cubic.on_loss(&LossSample { persistent: true, ..loss(at(600), at(590)) }, PathId(0), &[]);
        assert_eq!(cubic.window(), 2_000);
    }

    #[test]
    fn fills_a_buffered_link() {
        for (mbps, delay, buffer) in [(20.0, 40, 100_000), (40.0, 100, 500_000)] {
            let controller = CubicController::new(DATAGRAM, Timestamp::from_millis(1_000));
            let mut world = World::new(controller, Link { buffer, ..Link::new(mbps, delay) }, 1);
            world.run(Duration::from_secs(5));
            let rate = world.run(Duration::from_secs(20)).as_mbps();
            assert!(rate > 0.9 * mbps, "{rate:.1} of {mbps}");
        }
    }

    #[test]
    fn little_traffic_does_not_grow_the_window() {
        let controller = CubicController::new(DATAGRAM, Timestamp::from_millis(1_000));
        let mut world = World::new(controller, Link::new(40.0, 40), 1);
        world.offered = Some(BitRate::from_mbps(1.0));
        world.run(Duration::from_secs(20));
        assert!(world.controller.window() < 40 * DATAGRAM, "{}", world.controller.window());
    }
}
