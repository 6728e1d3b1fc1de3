//! The models of shared air against real access points in the virtual machine: twelve points, each as a part of what the good one alone carries through the
//! tunnel. One model is the paper's, behind fig6-steering: packets in turn, each with its whole packet time. The other one is that of 802.11, with back-off
//! and attempts.

use std::time::Duration;

use anyhow::Context;
use bond::Algorithm;
use radio::Rate;
use radio::airtime::USUAL_ATTEMPTS;
use sim::medium::Series;

use super::kernel_mptcp::{mbps, slow_above};
use super::real_points::{beginning, fetched, void_of};
use super::shared_air::{Air, NO_LIMIT, Point, SharedAir, Transmitter, Way};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::medium::Config;
use crate::vm::Machine;
use crate::vm::measurement::Programs;
use crate::vm::scene::near_and_far;

/// What is wrong with the bad access point, by name.
const PLACES: [(&str, Wrong); 6] = [
    ("loss_20", Wrong::Loses(0.2)),
    ("loss_40", Wrong::Loses(0.4)),
    ("loss_60", Wrong::Loses(0.6)),
    ("loss_80", Wrong::Loses(0.8)),
    ("slow_18", Wrong::Slow(Rate(36))),
    ("slow", Wrong::Slow(Rate(12))),
];

#[derive(Clone, Copy)]
enum Wrong {
    /// So many of its attempts, at any rate.
    Loses(f64),
    /// Everything arrives up to this rate, and nothing above.
    Slow(Rate),
}

impl Wrong {
    fn loss(self) -> f64 {
        match self {
            Self::Loses(loss) => loss,
            Self::Slow(_) => 0.0,
        }
    }

    fn rates(self) -> Option<Series> {
        match self {
            Self::Loses(_) => None,
            Self::Slow(rate) => Some(Series::steady(rate, USUAL_ATTEMPTS)),
        }
    }
}

/// Without steering and with it, by the model's names of them.
const WAYS: [(&str, Way); 2] = [("loose", Way::Plain), ("steered", Way::Preference)];
/// The beds that are compared: real access points, packets in turn, contention.
const BEDS: [&str; 3] = ["vm", "turns", "contention"];
/// Of both access points at the device; what is lost is said apart.
const SIGNAL_DBM: f64 = -50.0;
/// When the access points are looked at while both carry what they can.
const LOOKS: [u32; 3] = [3, 5, 7];
/// There and back behind the access points.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const SETTLING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(8);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| spec.insert(key.to_owned(), value);
    for (name, wrong) in PLACES {
        let text = match wrong {
            Wrong::Loses(loss) => format!("{:.0} % of the bad one's attempts are lost", loss * 100.0),
            Wrong::Slow(rate) => format!("everything arrives up to {} Mbit/s, and nothing above", mbps(rate)),
        };
        put(name, text.into());
    }
    put("vm", "as fig6-real: hostapd, minstrel, the radio's slots, device and gateway".into());
    put(
        "turns",
        "as fig6-steering, with the packet times that the radio reckoned in the vm without steering".into(),
    );
    put(
        "contention",
        "802.11a as fig3-carriersense, the same losses, rates by trying, packet times as the radio reckons them".into(),
    );
    let bars = |(name, wrong): (&str, Wrong)| {
        let of =
            |(way, _): (&str, Way)| BEDS.map(|bed| (format!("{way} {bed}"), format!("{name}.{way}.{bed}")));
        BarGroup {
            label: match wrong {
                Wrong::Loses(loss) => format!("{:.0} % lost", loss * 100.0),
                Wrong::Slow(rate) => format!("{} Mbit/s", mbps(rate)),
            },
            bars: WAYS.into_iter().flat_map(of).collect(),
        }
    };
    Experiment {
        id: id("fig6-crosscheck"),
        title: "two models of shared air against real access points: downloads as parts of what the good one alone carries"
            .to_owned(),
        spec,
        paper: None,
        goals: ["turns", "contention"]
            .into_iter()
            .flat_map(|model| {
                [
                    Goal::at_most(format!("{model}.difference.worst"), 0.15),
                    Goal::at_most(format!("{model}.difference.mean"), 0.1),
                ]
            })
            .collect(),
        beds: vec![Bed::Vm],
        bars: PLACES.map(bars).to_vec(),
        unit: "part of the good one alone",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn script() -> String {
    let looks: String = LOOKS.map(|second| format!(" {second}")).concat();
    format!(
        r#"{}
at_home anabranch --state /tmp/device network wl-far --off; sleep 1; fetch tunnelled
at_home anabranch --state /tmp/device network wl-far --off=off; sleep 3
begin=$(date +%s)
for second in{looks}; do while [ $(($(date +%s) - begin)) -lt $second ]; do sleep 0.1; done; own aps --json >/results/aps-$second; done & looking=$!
fetch loose; wait $looking
keep_state; steer steered
air_down"#,
        beginning()
    )
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
    let mut metrics = Metrics::new();
    // By model, and by way.
    let (mut differences, mut void) = ([const { [const { Vec::new() }; WAYS.len()] }; 2], None);
    for (name, wrong) in PLACES {
        let mut scene = near_and_far(wrong.loss(), script());
        scene.air = scene.air.map(|mut air| {
            if let Wrong::Slow(rate) = wrong {
                air.link.iter_mut().for_each(|link| link.quality = slow_above(rate));
            }
            Config { seed, ..air }
        });
        let outcome = scene.run(&machine, &programs)?.succeeded()?;
        void = void.or(void_of(&outcome)?);
        let alone = fetched(&outcome, "tunnelled")?;
        metrics.insert(format!("{name}.alone_mbps"), rounded(alone));
        let mut points = Vec::new();
        for interface in ["wl-near", "wl-far"] {
            let mut times = Vec::new();
            for second in LOOKS {
                let text = outcome.text(&format!("aps-{second}"));
                times.extend(packet_time_us(&text, interface)?);
            }
            anyhow::ensure!(!times.is_empty(), "{name}: nothing was heard of {interface}");
            let time = mean(&times);
            metrics.insert(format!("{name}.{}_packet_time_us", &interface[3..]), rounded(time));
            let packet_time = Duration::from_secs_f64(time / 1e6);
            points.push(Point { packet_time, weight: 1.0, uplink: NO_LIMIT });
        }
        let transmitter =
            |loss, rates| Transmitter { fades: None, signal_dbm: SIGNAL_DBM, loss: Some(loss), rates };
        let transmitters = [transmitter(0.0, None), transmitter(wrong.loss(), wrong.rates())];
        // Of the first `count` access points, in turn and with contention.
        let models = |count: usize, way| -> anyhow::Result<[f64; 2]> {
            let run = SharedAir {
                points: points[..count].to_vec(),
                round_trip: ROUND_TRIP,
                algorithm: Algorithm::Model,
                way,
                settling: SETTLING,
                measured: MEASURED,
                changes: Vec::new(),
                seed,
            };
            let air = Air { transmitters: transmitters[..count].to_vec(), hidden: false, estimated: true };
            Ok([run.run()?, run.run_contended(&air)?.arrived])
        };
        let models_alone = models(1, Way::Plain)?;
        for (of, (way_name, way)) in WAYS.into_iter().enumerate() {
            let vm = fetched(&outcome, way_name)? / alone;
            metrics.insert(format!("{name}.{way_name}.vm"), rounded(vm));
            let both = models(2, way)?;
            for (index, bed) in BEDS[1..].iter().enumerate() {
                let part = both[index] / models_alone[index];
                metrics.insert(format!("{name}.{way_name}.{bed}"), rounded(part));
                differences[index][of].push((vm - part).abs());
            }
        }
    }
    for (bed, differences) in BEDS[1..].iter().zip(differences) {
        for ((way, _), differences) in WAYS.iter().zip(&differences) {
            metrics.insert(format!("{bed}.difference.{way}.mean"), rounded(mean(differences)));
        }
        let differences = differences.concat();
        metrics.insert(format!("{bed}.difference.mean"), rounded(mean(&differences)));
        let worst = differences.iter().copied().fold(0.0, f64::max);
        metrics.insert(format!("{bed}.difference.worst"), rounded(worst));
    }
    Ok(Report { metrics, void, ..Report::default() })
}

/// What the radio reckons of the access point of an interface; `None` if it heard nothing lately.
fn packet_time_us(aps: &str, interface: &str) -> anyhow::Result<Option<f64>> {
    let points: Vec<serde_json::Value> =
        serde_json::from_str(aps).context("reading what the radio reckons")?;
    let of = points.iter().find(|point| point["interface"] == interface);
    Ok(of.and_then(|point| point["quality"]["packet_time_us"].as_f64()))
}
