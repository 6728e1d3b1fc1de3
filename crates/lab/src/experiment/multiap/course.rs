//! Real access points on a line, and a device that stands or moves beside it: hostapd, mac80211 with its own rate control, kernel MPTCP and our bond.

use std::time::Duration;

use sim::NetworkSpec;

use super::mptcp_commands::commands;
use crate::medium::{Config, GroundConfig, PlaceConfig, Quality};
use crate::vm::air::{ASSOCIATE, LEASE};
use crate::vm::direct::Answers;
use crate::vm::measurement::Programs;
use crate::vm::scene::RadioScene;
use crate::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use crate::vm::{Machine, program};

/// What the access points are called.
pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// How far beside the line the device is, metres.
pub(super) const ASIDE: f64 = 2.0;

/// What all experiments on a [`Course`] have in common.
pub(super) fn spec() -> toml::Table {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    let GroundConfig { metre_dbm, exponent, senses_from_dbm, .. } = GroundConfig::default();
    put(
        "signal",
        format!(
            "{metre_dbm} dBm a metre away, exponent {exponent}; radios notice each other from {senses_from_dbm} dBm on"
        ),
    );
    put("stations", "the kernel's own on one radio, by anabranch radio up --kernel, each with an unmodified wpa_supplicant".into());
    put("behind", "50 Mbit/s each".into());
    put("traffic", "one download (CUBIC)".into());
    put(
        "mptcp_marks",
        "anabranch run --treat mptcp in direct mode, with the radio's advice: nftables marks and backups"
            .into(),
    );
    put("ours", "through the tunnel over all, with the radio's advice to the gateway".into());
    spec
}

/// Access points with places, and who moves among them.
#[derive(Clone)]
pub(super) struct Course {
    /// Metres along the line.
    pub points: Vec<f64>,
    /// Other people's namespaces, each with a radio, and where they are.
    pub others: Vec<(&'static str, f64)>,
    /// Of what is behind each access point.
    pub round_trip_ms: u64,
    /// How long a fade lasts; 0: nothing fades.
    pub fades_ms: f64,
    /// Decides all chance.
    pub seed: u64,
}

impl Default for Course {
    fn default() -> Self {
        Self { points: Vec::new(), others: Vec::new(), round_trip_ms: 20, fades_ms: 0.0, seed: 1 }
    }
}

impl Course {
    /// What the access points are called.
    pub fn names(&self) -> &'static [&'static str] {
        &NAMES[..self.points.len().min(NAMES.len())]
    }

    /// The air while the device goes this way: seconds and metres along the line.
    pub fn air(&self, way: &[(f64, f64)]) -> Config {
        let mut place: Vec<PlaceConfig> = (0..)
            .zip(&self.points)
            .map(|(radio, along)| PlaceConfig { radio, trace: vec![[0.0, *along, 0.0]] })
            .collect();
        let trace = way.iter().map(|(seconds, along)| [*seconds, *along, ASIDE]).collect();
        place.push(PlaceConfig { radio: self.points.len(), trace });
        place.extend((self.points.len() + 1..).zip(&self.others).map(|(radio, (_, along))| {
            // On the other side of the line.
            PlaceConfig { radio, trace: vec![[0.0, *along, -ASIDE]] }
        }));
        Config {
            seed: self.seed,
            usual: Quality { by_signal: true, ..Quality::default() },
            ground: Some(GroundConfig { fading_ms: self.fades_ms, place, ..GroundConfig::default() }),
            ..Config::default()
        }
    }

    /// The device stands at `begin` at first; `script` has the functions of [`commands`], and `air NAME`.
    pub fn answers(
        &self,
        begin: f64,
        ways: &[(String, Vec<(f64, f64)>)],
        script: &str,
        length: Duration,
    ) -> anyhow::Result<Answers> {
        let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
        let network = |(&name, at): (&&'static str, u16)| WifiNetwork {
            link: NetworkSpec::symmetric(name, 50.0, self.round_trip_ms),
            // Beacons of one channel must not meet every time.
            points: vec![AccessPoint { beacon_interval: 100 - 3 * at, ..AccessPoint::open(name, 6) }],
        };
        let mut wifi = Wifi::new(self.names().iter().zip(0..).map(network).collect());
        wifi.stations.extend(self.others.iter().map(|(namespace, _)| (*namespace, 1)));
        wifi.files.push(("/job/lease", LEASE.into()));
        let commands = commands(self.names());
        let script =
            format!("{commands}{MANAGED}{ASSOCIATE}{script}head -1 /proc/stat >/results/after\nair_down\n");
        let known: String =
            self.names().iter().map(|name| format!("[[network]]\nssid = \"{name}\"\n")).collect();
        let mut scene = RadioScene::new(wifi, known, script);
        scene.air = Some(self.air(&[(0.0, begin)]));
        scene.later_airs = ways.iter().map(|(name, way)| (name.clone(), self.air(way))).collect();
        scene.length = length;
        scene.programs.push(program("wpa_supplicant", "wpasupplicant")?);
        Answers::of(scene.run(&machine, &programs)?)
    }
}

/// `managed STEP COMMAND...`: the step again and again until the command has ended.
const MANAGED: &str = r#"managed() {
    step=$1; shift; rm -f /tmp/stop
    while [ ! -e /tmp/stop ]; do $step; done & managing=$!
    "$@"
    touch /tmp/stop; wait $managing
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn airs_of_a_walk_can_be_read() {
        let course = Course {
            points: vec![0.0, 30.0],
            others: vec![("one", 1.0)],
            fades_ms: 38.0,
            ..Course::default()
        };
        let air = course.air(&[(4.0, 0.0), (25.4, 30.0)]);
        let again = Config::read(&toml::to_string(&air).unwrap()).unwrap();
        assert_eq!(again, air);
        assert_eq!(course.names(), ["a", "b"]);
    }
}
