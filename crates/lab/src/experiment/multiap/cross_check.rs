//! The model of the air behind fig6-steering, against real access points in the virtual machine: six points, each as a part of what the good one alone carries.

use std::time::Duration;

use anyhow::Context;
use bond::Algorithm;

use super::real_points::{beginning, fetched};
use super::shared_air::{NO_LIMIT, Point, SharedAir, Way};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::medium::Config;
use crate::vm::Machine;
use crate::vm::measurement::Programs;
use crate::vm::scene::near_and_far;

/// Of what the bad access point sends, so many attempts are lost.
const LOSSES: [f64; 3] = [0.2, 0.4, 0.6];
/// Without steering and with it, by the model's names of them.
const WAYS: [(&str, Way); 2] = [("loose", Way::Plain), ("steered", Way::Preference)];
/// When the access points are looked at while both carry what they can.
const LOOKS: [u32; 3] = [3, 5, 7];
/// There and back behind the access points.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const SETTLING: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(8);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| spec.insert(key.to_owned(), value);
    put("losses", LOSSES.map(toml::Value::from).to_vec().into());
    put("vm", "as fig6-real: hostapd, minstrel, the radio's slots, device and gateway".into());
    put(
        "sim",
        "as fig6-steering, with the packet times that the radio reckoned in the vm without steering".into(),
    );
    let bars = |loss: f64| {
        let name = point(loss);
        let of = |(way, _): (&str, Way)| {
            ["vm", "sim"].map(|bed| (format!("{way} {bed}"), format!("{name}.{way}.{bed}")))
        };
        BarGroup {
            label: format!("{:.0} % lost", loss * 100.0),
            bars: WAYS.into_iter().flat_map(of).collect(),
        }
    };
    Experiment {
        id: id("fig6-crosscheck"),
        title: "the model of shared air against real access points: downloads as parts of what the good one alone carries"
            .to_owned(),
        spec,
        paper: None,
        goals: vec![Goal::at_most("difference.worst", 0.15), Goal::at_most("difference.mean", 0.1)],
        beds: vec![Bed::Vm],
        bars: LOSSES.map(bars).to_vec(),
        unit: "part of the good one alone",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn point(loss: f64) -> String {
    format!("loss_{:.0}", loss * 100.0)
}

fn script() -> String {
    let looks: String = LOOKS.map(|second| format!(" {second}")).concat();
    format!(
        r#"{}
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
    let mut differences = Vec::new();
    for loss in LOSSES {
        let mut scene = near_and_far(loss, script());
        scene.air = scene.air.map(|air| Config { seed, ..air });
        let outcome = scene.run(&machine, &programs)?.succeeded()?;
        let name = point(loss);
        let alone = fetched(&outcome, "alone")?;
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
        let with = |points: &[Point], way| SharedAir {
            points: points.to_vec(),
            round_trip: ROUND_TRIP,
            algorithm: Algorithm::Model,
            way,
            settling: SETTLING,
            measured: MEASURED,
            changes: Vec::new(),
            seed,
        };
        let model_alone = with(&points[..1], Way::Plain).run()?;
        for (way_name, way) in WAYS {
            let vm = fetched(&outcome, way_name)? / alone;
            let sim = with(&points, way).run()? / model_alone;
            metrics.insert(format!("{name}.{way_name}.vm"), rounded(vm));
            metrics.insert(format!("{name}.{way_name}.sim"), rounded(sim));
            differences.push((vm - sim).abs());
        }
    }
    metrics.insert("difference.mean".into(), rounded(mean(&differences)));
    metrics.insert("difference.worst".into(), rounded(differences.iter().copied().fold(0.0, f64::max)));
    Ok(Report { metrics, ..Report::default() })
}

/// What the radio reckons of the access point of an interface; `None` if it heard nothing lately.
fn packet_time_us(aps: &str, interface: &str) -> anyhow::Result<Option<f64>> {
    let points: Vec<serde_json::Value> =
        serde_json::from_str(aps).context("reading what the radio reckons")?;
    let of = points.iter().find(|point| point["interface"] == interface);
    Ok(of.and_then(|point| point["quality"]["packet_time_us"].as_f64()))
}
