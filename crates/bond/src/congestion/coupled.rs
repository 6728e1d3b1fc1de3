//! Coupled control: paths that share a bottleneck take together what one flow would take there.
//!
//! LIA (RFC 6356), OLIA (draft-khalili-mptcp-congestion-control-05) and BALIA (draft-walid-mptcp-congestion-control-04)
//! differ in congestion avoidance and in the answer to loss; slow start is each path's own. Only siblings with the same
//! bottleneck id are coupled; a path alone at its bottleneck behaves as Reno.
//!
//! In the equations windows are packets and times seconds.

use super::loss_based::{LossBased, LossBasedController, Position, WindowRule};
use super::{AckSample, Sibling};
use units::{PathId, Timestamp};

/// The controller of one path.
pub type CoupledController = LossBasedController<Coupling>;

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
        Self { state: LossBased::new(datagram, now), rule: coupling }
    }
}

/// A path and all that are coupled with it.
struct Coupled {
    own: Subflow,
    subflows: arrayvec::ArrayVec<Subflow, MOST_COUPLED>,
}

impl Coupled {
    /// The siblings at the path's bottleneck, the path included with its present window.
    fn at(at: &Position<'_>) -> Self {
        let datagram = at.datagram as f64;
        let is_own = |sibling: &&Sibling| sibling.path == at.own;
        let bottleneck = at.siblings.iter().find(is_own).map(|sibling| sibling.bottleneck);
        let mut subflows = arrayvec::ArrayVec::<Subflow, MOST_COUPLED>::new();
        let mut place = None;
        for sibling in at.siblings.iter().filter(|sibling| Some(sibling.bottleneck) == bottleneck) {
            let is_own = is_own(&sibling);
            if subflows.is_full() && !is_own {
                continue;
            }
            if subflows.is_full() {
                subflows.pop();
            }
            if is_own {
                place = Some(subflows.len());
            }
            let window = if is_own { at.window } else { (sibling.window as f64 / datagram).max(1.0) };
            subflows.push(Subflow {
                path: sibling.path,
                window,
                rtt: sibling.smoothed_rtt.as_secs_f64().max(LEAST_RTT),
                run: sibling.acked_since_loss.max(sibling.acked_between_losses) as f64,
            });
        }
        let own = place.and_then(|place| subflows.get(place).copied()).unwrap_or(Subflow {
            path: at.own,
            window: at.window,
            rtt: 1.0,
            run: 0.0,
        });
        if subflows.is_empty() {
            subflows.push(own);
        }
        Self { own, subflows }
    }
}

impl WindowRule for Coupling {
    fn grown(&mut self, at: &Position<'_>, _sample: &AckSample, acked: f64) -> f64 {
        let coupled = Coupled::at(at);
        let per_packet = match self {
            Self::Lia => lia_increase(&coupled.own, &coupled.subflows),
            Self::Olia => olia_increase(&coupled.own, &coupled.subflows),
            Self::Balia => balia_increase(&coupled.own, &coupled.subflows),
        };
        (at.window + acked * per_packet).max(1.0)
    }

    fn reduced(&mut self, at: &Position<'_>) -> f64 {
        match self {
            Self::Lia | Self::Olia => at.window / 2.0,
            Self::Balia => {
                let coupled = Coupled::at(at);
                at.window - balia_decrease(&coupled.own, &coupled.subflows)
            }
        }
    }

    fn collapsed(&mut self, at: &Position<'_>) -> f64 {
        at.window / 2.0
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
