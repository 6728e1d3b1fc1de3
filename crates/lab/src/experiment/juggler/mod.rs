//! The experiments of JUGGLER: one radio that takes turns, against what other radios and cables do.

mod bittorrent;
mod diversity;
mod handoff;
mod kept;
mod packet;
mod primary;
mod side;
mod striping;
mod switch;
mod takeover;
mod video;

use super::direct_laboratory::Links;
use super::{BarGroup, Experiment, ExperimentId};
use crate::vm::air::Air;
use crate::vm::direct::{DirectJob, Way};
use sim::NetworkSpec;

/// All of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        switch::experiment(),
        packet::experiment(),
        primary::experiment(),
        handoff::experiment(),
        kept::experiment(),
        side::experiment(),
        video::experiment(),
        diversity::experiment(),
        striping::experiment(Links::Wired),
        striping::experiment(Links::Air),
        bittorrent::experiment(Links::Wired),
        bittorrent::experiment(Links::Air),
    ]
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "JUGGLER".to_owned(), name: name.to_owned() }
}

/// How much is downloaded, as in the paper.
const FILE_BYTES: u64 = 10_000_000;
/// To an Internet server, and to either seed.
const ROUND_TRIP_MS: u64 = 30;

/// By access points on two channels, with a card for each or with one radio that takes turns of 100 ms.
impl Links {
    /// What the spec says of two networks of this kind.
    fn describe(self, spec: &mut toml::Table) {
        spec.insert("networks".into(), format!("two alike, round trip {ROUND_TRIP_MS} ms").into());
        if self == Self::Air {
            spec.insert(
                "access_points".into(),
                "hostapd, open, 802.11g on channels 1 and 11, strong signals".into(),
            );
            spec.insert(
                "cards".into(),
                "two radios with the kernel's own station, where sockets are bound".into(),
            );
            let radio = format!("one radio for direct mode, by `anabranch radio up {TURNS}`");
            spec.insert("radio".into(), radio.into());
        }
    }

    /// Those of `rates` at which there is a run: on the air, up to 500 KB/s.
    fn rates<const COUNT: usize>(self, rates: [(u32, bool); COUNT]) -> Vec<(u32, bool)> {
        rates.into_iter().filter(|(rate, _)| self == Self::Wired || (50..=500).contains(rate)).collect()
    }

    /// A job with two networks of `rate` thousand bytes a second of the plain link each way, by cards or, where programs are to bind nothing,
    /// in direct mode.
    fn job(self, rate: u32, way: Way, script: String) -> DirectJob {
        let mbps = f64::from(rate) * 8e-3;
        let networks: Vec<NetworkSpec> =
            ["a", "b"].map(|name| NetworkSpec::symmetric(name, mbps, ROUND_TRIP_MS)).into();
        let air = (self == Self::Air).then(|| match way {
            Way::Plain => Air::cards(&CHANNELS),
            Way::Direct | Way::Bonded => Air::shared(&CHANNELS, TURNS),
        });
        DirectJob { air, ..DirectJob::new(networks, way, script) }
    }
}

const CHANNELS: [u8; 2] = [1, 11];
/// Half of the time for each network, 100 ms at a time.
const TURNS: &str = "--slot 100 --alpha 0";

/// Bars of two cards and of direct mode, over one card, at each rate.
fn bars_over_one(rates: impl IntoIterator<Item = u32>) -> Vec<BarGroup> {
    let bars = |rate| {
        [("two cards", "two_cards_over_one"), ("direct", "direct_over_one")]
            .map(|(label, metric)| (label.to_owned(), format!("rate_{rate}.{metric}")))
            .to_vec()
    };
    rates.into_iter().map(|rate| BarGroup { label: format!("{rate} KB/s"), bars: bars(rate) }).collect()
}

/// Rates as a spec has them.
fn listed(rates: impl IntoIterator<Item = u32>) -> toml::Value {
    rates.into_iter().map(|rate| toml::Value::from(i64::from(rate))).collect::<Vec<_>>().into()
}
