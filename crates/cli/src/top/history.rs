//! What each network carried in the last seconds. Kept here, so it begins with the program.

use std::collections::{BTreeMap, VecDeque};

use anabranch::control::NetworkReport;
use units::BitRate;

use super::figures::Figures;

/// Samples that are kept, one a second.
pub const KEPT: usize = 30;
/// Networks that are kept; of more nothing is drawn.
const MOST_NETWORKS: usize = 64;

/// Rates in both directions together, latest last.
#[derive(Clone, Debug, Default)]
pub struct History(BTreeMap<String, VecDeque<u64>>);

impl History {
    pub fn add(&mut self, networks: &[NetworkReport]) {
        self.0.retain(|name, _| networks.iter().any(|network| network.name == *name));
        for network in networks {
            if self.0.len() >= MOST_NETWORKS && !self.0.contains_key(&network.name) {
                continue;
            }
            let figures = Figures::of(network);
            let rates = self.0.entry(network.name.clone()).or_default();
            rates.push_back(figures.sending.0.saturating_add(figures.receiving.0));
            if rates.len() > KEPT {
                rates.pop_front();
            }
        }
    }

    /// Most that any network had, which all are drawn against.
    pub fn most(&self) -> BitRate {
        BitRate(self.0.values().flatten().copied().max().unwrap_or(0))
    }

    pub fn of(&self, name: &str) -> impl Iterator<Item = BitRate> {
        self.0.get(name).into_iter().flatten().copied().map(BitRate)
    }
}
