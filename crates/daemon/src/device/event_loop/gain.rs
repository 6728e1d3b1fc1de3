//! What bonding is worth: the gateway says what it expects to carry towards this device, this end knows the rest.

use std::time::Duration;

use anabranch::control::GainReport;
use policy::gain::{GainMeter, NetworkSample};
use tracing::debug;
use units::{BitRate, PathId, Timestamp};
use wire::request::{PathRates, Request};

use super::DeviceLoop;
use crate::dataplane::Meter;

/// What this end remembers for it.
#[derive(Debug, Default)]
pub struct Worth {
    meter: GainMeter,
    told: PathRates,
    told_at: Timestamp,
}

impl Worth {
    /// What the gateway said is another one's word now.
    pub(super) fn forget(&mut self) {
        self.told.clear();
    }

    /// What the gateway expects to carry over a path, if it said so of late.
    fn told(&self, now: Timestamp, path: PathId) -> Option<BitRate> {
        let fresh = now.since(self.told_at) < FRESH;
        let told = self.told.iter().find(|(told, _)| fresh && *told == path);
        told.map(|(_, rate)| *rate)
    }
}

impl DeviceLoop {
    pub(super) fn on_message(&mut self, now: Timestamp, bytes: &[u8]) {
        match Request::parse(bytes) {
            Ok(Some(Request::PathRates(rates))) => {
                self.state.worth.told = rates;
                self.state.worth.told_at = now;
            }
            Ok(Some(Request::Siblings(siblings))) => self.on_siblings(siblings),
            Ok(_) => debug!("the gateway asks for what only a device can ask for, or is of a later version"),
            Err(error) => debug!("what the gateway says makes no sense: {error}"),
        }
    }

    /// Takes a sample, once the meters have theirs.
    pub(super) fn weigh(&mut self, now: Timestamp, paths: &[bond::PathReport]) {
        let mut samples: Vec<NetworkSample> = Vec::new();
        for path in paths {
            let meter = self.state.meters.get(&path.network).map(Meter::rates).unwrap_or_default();
            let expected = [path.rate, self.state.worth.told(now, path.path)];
            match samples.iter_mut().find(|sample| sample.network == path.network) {
                // The meter is the network's; its paths lead over the same link.
                Some(sample) => {
                    sample.expected = [0, 1].map(|way| sample.expected[way].max(expected[way]));
                }
                None => samples.push(NetworkSample { network: path.network, carried: meter, expected }),
            }
        }
        self.state.worth.meter.sample(samples);
    }

    pub(super) fn gain(&self) -> Option<GainReport> {
        let gain = self.state.worth.meter.gain()?;
        let network = self.networks.get(gain.best)?.interface.name.clone();
        Some(GainReport {
            direction: gain.direction,
            bonded: gain.bonded,
            best_alone: gain.best_alone,
            network,
        })
    }
}

/// The gateway says it each second while it sends.
const FRESH: Duration = Duration::from_secs(4);
