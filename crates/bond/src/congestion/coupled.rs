//! Coupled control: paths that share a bottleneck take together what one flow would take there.
//!
//! LIA (RFC 6356), OLIA (draft-khalili-mptcp-congestion-control-05) and BALIA (draft-walid-mptcp-congestion-control-04)
//! differ in congestion avoidance and in the answer to loss; slow start is each path's own. Only siblings with the same
//! bottleneck id are coupled; a path alone at its bottleneck behaves as Reno.
//!
//! In the equations windows are packets and times seconds.

use super::loss_based::{Growth, LossBased};
use super::{AckSample, Controller, LossSample, Sibling};
use units::{BitRate, PathId, Timestamp};

/// Which coupling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coupling {
    /// Linked increases, RFC 6356.
    Lia,
    /// Opportunistic linked increases.
    Olia,
    /// Balanced linked adaptation.
    Balia,
}

/// The controller of one path.
#[derive(Clone, Debug)]
pub struct CoupledController {
    coupling: Coupling,
    state: LossBased,
}

/// A sibling in the units of the equations.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Subflow {
    path: PathId,
    window: f64,
    rtt: f64,
    /// The greater of what was acknowledged since the last loss and between the last two, in any unit.
    run: f64,
}

impl CoupledController {
    /// A controller for a path whose datagrams have at most `datagram` bytes of UDP payload.
    pub fn new(coupling: Coupling, datagram: u64, now: Timestamp) -> Self {
        Self { coupling, state: LossBased::new(datagram, now) }
    }

    /// The siblings at this path's bottleneck, this path included with its present window.
    fn coupled(&self, own: PathId, siblings: &[Sibling]) -> Coupled {
        let datagram = self.state.datagram as f64;
        let bottleneck =
            siblings.iter().find(|sibling| sibling.path == own).map(|sibling| sibling.bottleneck);
        let mut subflows = arrayvec::ArrayVec::<Subflow, MOST_COUPLED>::new();
        let mut at = None;
        for sibling in siblings.iter().filter(|sibling| Some(sibling.bottleneck) == bottleneck) {
            let is_own = sibling.path == own;
            if subflows.is_full() && !is_own {
                continue;
            }
            if subflows.is_full() {
                subflows.pop();
            }
            if is_own {
                at = Some(subflows.len());
            }
            let window = if is_own { self.state.window } else { (sibling.window as f64 / datagram).max(1.0) };
            subflows.push(Subflow {
                path: sibling.path,
                window,
                rtt: sibling.smoothed_rtt.as_secs_f64().max(LEAST_RTT),
                run: sibling.acked_since_loss.max(sibling.acked_between_losses) as f64,
            });
        }
        let own = at.and_then(|at| subflows.get(at).copied()).unwrap_or(Subflow {
            path: own,
            window: self.state.window,
            rtt: 1.0,
            run: 0.0,
        });
        if subflows.is_empty() {
            subflows.push(own);
        }
        Coupled { own, subflows }
    }

    fn reduce(&mut self, now: Timestamp, own: PathId, siblings: &[Sibling]) {
        let coupled = self.coupled(own, siblings);
        let window = self.state.window;
        let reduced = match self.coupling {
            Coupling::Lia | Coupling::Olia => window / 2.0,
            Coupling::Balia => window - balia_decrease(&coupled.own, &coupled.subflows),
        };
        self.state.reduce_to(reduced, now);
    }
}

/// A path and all that are coupled with it.
struct Coupled {
    own: Subflow,
    subflows: arrayvec::ArrayVec<Subflow, MOST_COUPLED>,
}

impl Controller for CoupledController {
    fn on_sent(&mut self, _now: Timestamp, _bytes: u64, _in_flight: u64) {}

    fn on_ack(&mut self, sample: &AckSample, own: PathId, siblings: &[Sibling]) {
        if self.state.is_new_mark(sample) {
            self.reduce(sample.now, own, siblings);
            return;
        }
        let Growth::Avoidance(acked) = self.state.on_ack(sample) else { return };
        let coupled = self.coupled(own, siblings);
        let per_packet = match self.coupling {
            Coupling::Lia => lia_increase(&coupled.own, &coupled.subflows),
            Coupling::Olia => olia_increase(&coupled.own, &coupled.subflows),
            Coupling::Balia => balia_increase(&coupled.own, &coupled.subflows),
        };
        self.state.window = (self.state.window + acked * per_packet).max(1.0);
    }

    fn on_loss(&mut self, sample: &LossSample, own: PathId, siblings: &[Sibling]) {
        if sample.persistent {
            self.state.collapse(self.state.window / 2.0, sample.now);
        } else if self.state.is_new_event(sample) {
            self.reduce(sample.now, own, siblings);
        }
    }

    fn window(&self) -> u64 {
        self.state.window_bytes()
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        self.state.pacing_rate()
    }

    fn rate_estimate(&self) -> Option<BitRate> {
        self.state.rate_estimate()
    }

    fn settled(&self) -> bool {
        self.state.slow_start.is_over()
    }
}

/// RFC 6356 section 3, increase per acknowledged packet: `min(alpha / cwnd_total, 1 / cwnd_i)`.
fn lia_increase(own: &Subflow, subflows: &[Subflow]) -> f64 {
    let total: f64 = subflows.iter().map(|subflow| subflow.window).sum();
    (lia_alpha(subflows) / total).min(1.0 / own.window)
}

/// RFC 6356 eq. 2: `alpha = cwnd_total * max(cwnd_i / rtt_i^2) / (sum(cwnd_i / rtt_i))^2`.
fn lia_alpha(subflows: &[Subflow]) -> f64 {
    let total: f64 = subflows.iter().map(|subflow| subflow.window).sum();
    let best = subflows.iter().map(|subflow| subflow.window / subflow.rtt.powi(2)).fold(0.0, f64::max);
    total * best / rate_sum(subflows).powi(2)
}

/// OLIA section 3, increase per acknowledged packet:
/// `(w_r / rtt_r^2) / (sum(w_p / rtt_p))^2 + alpha_r / w_r`.
fn olia_increase(own: &Subflow, subflows: &[Subflow]) -> f64 {
    own.window / own.rtt.powi(2) / rate_sum(subflows).powi(2) + olia_alpha(own, subflows) / own.window
}

/// OLIA section 3: moves window from the paths with the largest window to the best paths with a smaller one.
///
/// With n paths, those that are best but not largest share `1/n`, the largest lose `1/n` among them, all others and the
/// case that all best paths are largest give 0. A path is best if `l_r / rtt_r^2` is greatest.
fn olia_alpha(own: &Subflow, subflows: &[Subflow]) -> f64 {
    let largest = subflows.iter().map(|subflow| subflow.window).fold(0.0, f64::max);
    let best = subflows.iter().map(olia_quality).fold(0.0, f64::max);
    let is_largest = |subflow: &Subflow| subflow.window >= largest;
    let is_collected = |subflow: &Subflow| olia_quality(subflow) >= best && !is_largest(subflow);
    let collected = subflows.iter().filter(|subflow| is_collected(subflow)).count();
    if collected == 0 {
        return 0.0;
    }
    let paths = subflows.len() as f64;
    if is_collected(own) {
        1.0 / paths / collected as f64
    } else if is_largest(own) {
        let count = subflows.iter().filter(|subflow| is_largest(subflow)).count();
        -1.0 / paths / count as f64
    } else {
        0.0
    }
}

/// `l_r / rtt_r^2`: proportional to the square of the rate that Reno would reach at the path's loss.
fn olia_quality(subflow: &Subflow) -> f64 {
    subflow.run / subflow.rtt.powi(2)
}

/// BALIA section 3, increase per acknowledged packet, with `x = w / rtt`:
/// `x_r / (rtt_r * (sum x_k)^2) * (1 + alpha_r) / 2 * (4 + alpha_r) / 5`.
fn balia_increase(own: &Subflow, subflows: &[Subflow]) -> f64 {
    let alpha = balia_alpha(own, subflows);
    let rate = own.window / own.rtt;
    rate / (own.rtt * rate_sum(subflows).powi(2)) * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
}

/// BALIA section 3, decrease at a loss: `w_r / 2 * min(alpha_r, 1.5)`.
fn balia_decrease(own: &Subflow, subflows: &[Subflow]) -> f64 {
    own.window / 2.0 * balia_alpha(own, subflows).min(1.5)
}

/// BALIA section 3: `alpha_r = max(x_k) / x_r`.
fn balia_alpha(own: &Subflow, subflows: &[Subflow]) -> f64 {
    let best = subflows.iter().map(|subflow| subflow.window / subflow.rtt).fold(0.0, f64::max);
    best / (own.window / own.rtt)
}

/// `sum(w_p / rtt_p)`, packets per second.
fn rate_sum(subflows: &[Subflow]) -> f64 {
    subflows.iter().map(|subflow| subflow.window / subflow.rtt).sum()
}

/// Paths beyond this are left out of the coupling.
const MOST_COUPLED: usize = 16;
/// Keeps quotients finite, seconds.
const LEAST_RTT: f64 = 1e-5;

#[cfg(test)]
mod tests;
