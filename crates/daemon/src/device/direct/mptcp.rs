//! Which networks MPTCP connections are to use, once a program has asked to be carried so. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use linux::direct::Choice;
use linux::mptcp::{PathNetwork, Paths};
use policy::rules::Rule;
use policy::{BaseRtt, NetworkInput, Treatment};
use units::{NetworkId, Timestamp};

use super::plan::choice;
use super::rules::Scene;
use super::ways::Ways;
use crate::device::messages::PointAdvice;
use crate::device::networks::Network;

/// Whether a rule asks for it.
pub fn is_wanted<'a>(mut rules: impl Iterator<Item = &'a Rule>) -> bool {
    rules.any(|rule| rule.treatment() == Some(Treatment::Mptcp))
}

/// Downloads of minutes keep a queue all the time, so networks' round-trip times without one are older than that.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Round-trip times of networks with empty queues, as far as they were seen.
#[derive(Default)]
pub struct EmptyRoundTrips(BTreeMap<NetworkId, BaseRtt>);

impl EmptyRoundTrips {
    /// Takes what is known of the networks now; those that are gone are forgotten.
    pub fn observe(&mut self, now: Timestamp, judged: &[NetworkInput]) {
        self.0.retain(|id, _| judged.iter().any(|network| network.id == *id));
        for network in judged {
            if let Some(rtt) = network.metrics.rtt {
                let least = self.0.entry(network.id).or_insert_with(|| BaseRtt::new(REMEMBERED));
                least.on_sample(now, rtt.smoothed);
            }
        }
    }

    fn of(&self, id: NetworkId) -> Option<Duration> {
        self.0.get(&id)?.get()
    }
}

/// How many in a million packets of each network's access point are to be marked, by interface; `judged` is what is known of the networks.
pub fn marks(
    advice: &[PointAdvice],
    judged: &[NetworkInput],
    empty: &EmptyRoundTrips,
) -> BTreeMap<String, u32> {
    let of = |point: &PointAdvice| {
        let network = judged.iter().find(|network| network.name == point.interface)?;
        Some((point.interface.clone(), in_a_million(point.marks_for(empty.of(network.id)).part())))
    };
    // One alone is no better than itself.
    if advice.len() < 2 { BTreeMap::new() } else { advice.iter().filter_map(of).collect() }
}

/// To one digit, so that not each new estimate makes new rules.
fn in_a_million(part: f64) -> u32 {
    let exact = part * 1e6;
    if exact < 1.0 {
        return 0;
    }
    let unit = 10_f64.powf(exact.log10().floor());
    ((exact / unit).round() * unit) as u32
}

/// Every network that may be used, but for those by which MPTCP does not get through; those to which the policy gives no new flows are backups.
/// `table` is before the first network's.
pub fn paths(
    table: u32,
    scene: &Scene<'_>,
    advice: &[PointAdvice],
    marks: &BTreeMap<String, u32>,
    ways: &Ways,
    now: Timestamp,
) -> Paths {
    let Choice { v4, v6, .. } = choice(scene, |_| true);
    let dealt = [v4, v6].concat();
    let usable = scene.networks.iter().filter(|network| network.connected && !network.preference.off);
    let usable = usable.filter(|network| !ways.strips(now, network.id));
    let path = |network: &Network| {
        let number = scene.numbers.of(network.id)?;
        let point = advice.iter().find(|point| point.interface == network.interface.name);
        let own = network.interface.addresses.iter().map(|subnet| subnet.address());
        Some(PathNetwork {
            number,
            interface: network.interface.index,
            addresses: own.filter(|address| !address.is_loopback()).collect(),
            backup: !dealt.contains(&number),
            marks: marks.get(&network.interface.name).copied().unwrap_or(0),
            mangled: ways.mangles(network.id),
            renewals: point.map(|point| point.renewals),
        })
    };
    let mut networks: Vec<PathNetwork> = usable.filter_map(path).collect();
    if let [alone] = &mut networks[..] {
        // There is nowhere to go from it.
        alone.marks = 0;
    }
    Paths { table, networks }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linux::mptcp::WayCounts;
    use policy::network::{Metrics, PowerSupply, Reach, RttSummary};
    use policy::services::Services;
    use policy::steering::MarkShare;
    use policy::{ChoiceSettings, NetworkPolicy};

    use super::super::plan::{self, Numbers, Translated};
    use super::*;

    /// Networks 3 and 4, of which `spared` stand by and `stripping` let no MPTCP through: what connections are to use of each.
    fn paths_of(spared: &[u32], stripping: &[u32]) -> Vec<PathNetwork> {
        let networks = [plan::tests::network(0, 3, "wl-a"), plan::tests::network(1, 4, "wl-b")];
        let input = |network: &Network| NetworkInput {
            up: true,
            reach: Reach::Internet,
            spared: spared.contains(&network.id.0),
            ..NetworkInput::new(network.id, network.interface.name.clone())
        };
        let inputs: Vec<NetworkInput> = networks.iter().map(input).collect();
        let mut policy = NetworkPolicy::new(ChoiceSettings::default());
        let table = policy.evaluate(Timestamp::ZERO, &inputs, PowerSupply::Mains);
        let mut numbers = Numbers::default();
        numbers.assign(&networks);
        let scene = Scene {
            has_gateway: false,
            default: Treatment::Mptcp,
            networks: &networks,
            table: &table,
            numbers: &numbers,
            translations: &Translated::new(),
            services: &Services::default(),
            names: &BTreeMap::new(),
        };
        let mut ways = Ways::default();
        for network in stripping {
            let counts = WayCounts { join_stripped: 9, ..WayCounts::default() };
            ways.take(Timestamp::ZERO, NetworkId(*network), counts, false, None);
        }
        let marks = [("wl-a".to_owned(), 50), ("wl-b".to_owned(), 50_000)].into();
        paths(100, &scene, &[], &marks, &ways, Timestamp::ZERO).networks
    }

    #[test]
    fn what_stands_by_is_a_backup_and_what_strips_is_left_out() {
        let all = |spared: &[u32], stripping: &[u32]| -> Vec<(u32, bool, u32)> {
            let networks = paths_of(spared, stripping);
            networks.iter().map(|path| (path.interface, path.backup, path.marks)).collect()
        };
        assert_eq!(all(&[], &[]), [(3, false, 50), (4, false, 50_000)]);
        assert_eq!(all(&[1], &[]), [(3, false, 50), (4, true, 50_000)]);
        assert_eq!(all(&[0], &[]), [(3, true, 50), (4, false, 50_000)]);
        assert_eq!(all(&[], &[0]), [(4, false, 0)], "there is nowhere to go from it");
    }

    #[test]
    fn what_is_slow_is_marked_as_much_as_its_round_trip_bears() {
        let point = |interface: &str, marks| PointAdvice {
            interface: interface.to_owned(),
            used: true,
            limit: None,
            fair_limit: None,
            marks: MarkShare::new(marks),
            renewals: 0,
            packet_time: Some(Duration::from_millis(1)),
        };
        let network = |id, name: &str, millis| NetworkInput {
            metrics: Metrics {
                rtt: Some(RttSummary { smoothed: Duration::from_millis(millis), variation: Duration::ZERO }),
                ..Metrics::default()
            },
            ..NetworkInput::new(units::NetworkId(id), name)
        };
        let known =
            |b_millis| [network(1, "wl-a", 20), network(2, "wl-b", b_millis), network(3, "wl-c", 300)];
        let mut empty = EmptyRoundTrips::default();
        empty.observe(Timestamp::ZERO, &known(20));
        // A download has filled b's queue by now.
        let judged = known(120);
        empty.observe(Timestamp::from_millis(5_000), &judged);
        let marks = |advice: &[PointAdvice]| marks(advice, &judged, &empty);
        let all = marks(&[point("wl-a", 0.0), point("wl-b", 0.05), point("wl-c", 0.05)]);
        // By hand: 2e-6 * (1 / 0.02^2 - 1 / 0.12^2) = 0.00486, and 2e-6 * (1 / 0.3^2 - 1 / 0.4^2) = 9.7e-6.
        assert_eq!((all["wl-a"], all["wl-b"], all["wl-c"]), (0, 5_000, 10), "{all:?}");
        let held = PointAdvice { limit: Some(units::BitRate(1_000_000)), ..point("wl-b", 0.001) };
        assert_eq!(marks(&[point("wl-a", 0.0), held])["wl-b"], 1_000, "fitted to what is free");
        let ready = PointAdvice { used: false, ..point("wl-b", 0.05) };
        assert_eq!(marks(&[point("wl-a", 0.0), ready])["wl-b"], 50_000, "it stands by");
        assert!(marks(&[point("wl-b", 0.05)]).is_empty(), "there is no other way");
        assert!(!marks(&[point("wl-a", 0.0), point("wl-x", 0.05)]).contains_key("wl-x"));
        empty.observe(Timestamp::from_millis(6_000), &judged[..1]);
        assert_eq!(empty.of(units::NetworkId(2)), None);
    }
}
