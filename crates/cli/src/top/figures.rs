//! What a network does at the moment, from its paths or else from its direct flows.

use anabranch::control::{Fraction, Micros, NetworkReport, PathHealth};
use policy::PathStatus;
use units::{BitRate, Bytes};

use super::look::Tone;
use crate::status::word;
use crate::{networks, status};

/// One network's figures.
pub struct Figures<'a> {
    pub state: String,
    pub tone: Tone,
    pub sending: BitRate,
    pub receiving: BitRate,
    pub rtt: Option<Micros>,
    pub loss: Option<Fraction>,
    /// Sent and not yet acknowledged.
    pub queue: Option<Bytes>,
    pub signal_dbm: Option<i32>,
    pub share: Option<Fraction>,
    pub why: &'a str,
}

impl<'a> Figures<'a> {
    pub fn of(network: &'a NetworkReport) -> Self {
        let paths = &network.paths;
        let direct = network.direct.as_ref();
        let sum = |pick: fn(&anabranch::control::PathReport) -> u64| paths.iter().map(pick).sum::<u64>();
        let sending = sum(|path| path.traffic.sending.0);
        let receiving = sum(|path| path.traffic.receiving.0);
        let bonded = !paths.is_empty();
        // Direct flows are counted in the busier direction only.
        let load = direct.filter(|_| sending + receiving == 0).map_or(0, |direct| direct.load.0);
        let answering = || paths.iter().filter(|path| path.rtt.is_some());
        let worst = answering().map(|path| path.loss.0).max_by(f64::total_cmp).map(Fraction);
        let trouble = paths.iter().find(|path| matches!(path.health, PathHealth::Suspect | PathHealth::Dead));
        let shares: Vec<f64> = paths.iter().filter_map(|path| path.share).map(|share| share.0).collect();
        let share = Some(Fraction(shares.iter().sum())).filter(|_| !shares.is_empty());
        let (state, tone) = match (network.connected, trouble) {
            (false, _) => ("gone".to_owned(), Tone::Bad),
            (true, Some(path)) => {
                let dead = path.health == PathHealth::Dead;
                (word(&path.health), if dead { Tone::Bad } else { Tone::Doubtful })
            }
            (true, None) => match network.status {
                PathStatus::Active => (word(&network.status), Tone::Good),
                _ => (word(&network.status), Tone::Quiet),
            },
        };
        Self {
            state,
            tone,
            sending: BitRate(sending),
            receiving: BitRate(receiving.max(load)),
            rtt: answering()
                .filter_map(|path| path.rtt)
                .min()
                .or_else(|| direct.and_then(|direct| direct.rtt)),
            loss: worst.or(direct.map(|direct| direct.loss)).filter(|_| network.connected),
            queue: bonded.then(|| Bytes(sum(|path| path.in_flight.0))),
            signal_dbm: direct.and_then(|direct| direct.wifi.as_ref()).and_then(|wifi| wifi.signal_dbm),
            share: if bonded { share } else { direct.map(|direct| direct.share) },
            why: trouble
                .or(paths.first())
                .map_or_else(|| networks::why(network), |path| status::why(network, path)),
        }
    }
}
