//! Which networks MPTCP connections are to use, once a program has asked to be carried so. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use linux::direct::Choice;
use linux::mptcp::{PathNetwork, Paths, UnmarkedRate};
use policy::limit::BURST;
use policy::rules::Rule;
use policy::{BaseRtt, NetworkInput, Treatment};
use units::{BitRate, NetworkId, Timestamp};

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

/// What is to be marked of what comes by a network.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Marks {
    /// So many of a million packets ...
    in_a_million: u32,
    /// ... that come faster than this.
    unmarked: Option<UnmarkedRate>,
}

/// What is to be marked of each network's access point, by interface; `judged` is what is known of the networks.
pub fn marks(
    advice: &[PointAdvice],
    judged: &[NetworkInput],
    empty: &EmptyRoundTrips,
) -> BTreeMap<String, Marks> {
    let of = |point: &PointAdvice| {
        let network = judged.iter().find(|network| network.name == point.interface)?;
        let marking = point.marks_for(empty.of(network.id));
        let marks = Marks {
            in_a_million: in_a_million(marking.part),
            unmarked: marking.beyond.filter(|_| marking.part > 0.0).map(unmarked),
        };
        Some((point.interface.clone(), marks))
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

/// Within 5 % of `rate`, so that not each new estimate makes new rules, which begin with a whole burst.
fn unmarked(rate: BitRate) -> UnmarkedRate {
    let steps = 8.0;
    let bytes = ((rate.bytes_per_second().max(1.0).log2() * steps).round() / steps).exp2();
    UnmarkedRate { bytes: bytes as u32, burst: (bytes * BURST.as_secs_f64()).ceil() as u32 }
}

/// Every network that may be used, but for those by which MPTCP does not get through; those to which the policy gives no new flows are backups.
/// `table` is before the first network's.
pub fn paths(
    table: u32,
    scene: &Scene<'_>,
    advice: &[PointAdvice],
    marks: &BTreeMap<String, Marks>,
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
        let marks = marks.get(&network.interface.name).copied().unwrap_or_default();
        let own = network.interface.addresses.iter().map(|subnet| subnet.address());
        Some(PathNetwork {
            number,
            interface: network.interface.index,
            addresses: own.filter(|address| !address.is_loopback()).collect(),
            backup: !dealt.contains(&number),
            marks: marks.in_a_million,
            unmarked: marks.unmarked,
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
        let marks = |in_a_million| Marks { in_a_million, unmarked: None };
        let marks = [("wl-a".to_owned(), marks(50)), ("wl-b".to_owned(), marks(50_000))].into();
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
        let of_all = |in_a_million| Marks { in_a_million, unmarked: None };
        assert_eq!([all["wl-a"], all["wl-b"], all["wl-c"]], [0, 5_000, 10].map(of_all), "{all:?}");
        let held =
            |mbps, marks| PointAdvice { limit: Some(BitRate::from_mbps(mbps)), ..point("wl-b", marks) };
        let of = |held| marks(&[point("wl-a", 0.0), held])["wl-b"];
        // By hand: half of the air is what a window of 0.59 of it at most has on average; an eighth of all that is faster is 5 % of all, and 882,353 bytes are
        // 19.75 octaves.
        let faster = UnmarkedRate { bytes: 881_743, burst: 88_175 };
        assert_eq!(of(held(6.0, 0.05)), Marks { in_a_million: 100_000, unmarked: Some(faster) });
        assert_eq!(of(held(6.1, 0.05)).unmarked, Some(faster), "hardly another one");
        assert_eq!(of(held(6.0, 0.0)), Marks::default());
        let ready = PointAdvice { used: false, ..held(6.0, 0.05) };
        assert_eq!(of(ready), of_all(50_000), "it stands by");
        assert!(marks(&[point("wl-b", 0.05)]).is_empty(), "there is no other way");
        assert!(!marks(&[point("wl-a", 0.0), point("wl-x", 0.05)]).contains_key("wl-x"));
        empty.observe(Timestamp::from_millis(6_000), &judged[..1]);
        assert_eq!(empty.of(units::NetworkId(2)), None);
    }
}
