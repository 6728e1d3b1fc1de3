//! MULTIAP fig 6c with real access points: poor ones beside a good one, all on one channel, as many as one radio is in; hostapd, mac80211's own rate
//! control, our radio, device and gateway.

use std::time::Duration;

use anyhow::Context;
use sim::NetworkSpec;

use super::real_points::{SECONDS, fetched, functions, void_of};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::medium::{Config, LinkConfig, Quality};
use crate::vm::Machine;
use crate::vm::measurement::{Programs, tunnel_commands};
use crate::vm::scene::RadioScene;
use crate::vm::wifi::{AccessPoint, Wifi, WifiNetwork};

/// With the good one as many as one radio is in.
const POOR: [&str; 7] = ["poor1", "poor2", "poor3", "poor4", "poor5", "poor6", "poor7"];
/// Poor ones beside the good one, in the order in which they are added.
const COUNTS: [usize; 4] = [0, 1, 3, POOR.len()];
/// Of what a poor one sends, so many attempts are lost.
const LOSS: f64 = 0.6;
/// Beacons of different access points must not always meet: time units between those of one.
const BEACON_INTERVALS: [u16; 7] = [97, 101, 103, 107, 109, 113, 127];
const WAYS: [&str; 2] = ["loose", "ours"];
/// The only metric whose run has no tunnel.
const ALONE: &str = "alone";

pub(super) fn experiment() -> Experiment {
    let most = POOR.len();
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put("access_points", format!("a good one and up to {most} poor ones, open, 802.11g, on channel 6"));
    put("loss", format!("{LOSS} of what a poor one sends; the good one's arrives"));
    put("behind", "50 Mbit/s, round trip 20 ms, each".into());
    put("traffic", format!("one TCP download (CUBIC) of {SECONDS} s through the tunnel"));
    put("loose", "without the radio's advice".into());
    put("ours", "with it".into());
    Experiment {
        id: id("fig6c-real"),
        title: "poor access points beside a good one, real ones: a download, as a part of that over the good one alone"
            .to_owned(),
        spec,
        paper: Some(
            "figure 6c: the more access points, the less arrives; more than three or four are a bad idea"
                .to_owned(),
        ),
        goals: vec![
            Goal::at_least(format!("ours.poor_{most}"), 0.95),
            Goal::at_least(format!("ours_over_loose.poor_{most}"), 1.0),
        ],
        beds: vec![Bed::Vm],
        bars: COUNTS[1..]
            .iter()
            .map(|count| BarGroup {
                label: format!("{count} poor"),
                bars: WAYS.map(|way| (way.to_owned(), format!("{way}.poor_{count}"))).to_vec(),
            })
            .collect(),
        unit: "part of the good one alone",
        axes: Axes { over: Some("poor access points"), unit: None },
        runner: Box::new(|_, seed| run(seed)),
    }
}

/// The names of a download's results.
fn name(way: &str, count: usize) -> String {
    format!("{way}-{count}")
}

/// All networks are joined from the start. By each way the poor ones are off at first, and come one after the other; the device finds the radio's advice
/// below its own state, so first it has none.
fn script() -> String {
    let fetches = |way: &str, state: &str| {
        let mut commands = String::new();
        let mut on = 0;
        for count in COUNTS {
            for poor in &POOR[on..count] {
                commands += &format!("at_home anabranch --state {state} network wl-{poor} --off=off\n");
            }
            on = count;
            // Long enough to learn of those that came.
            let look = format!("own aps --json >/results/aps-{}", name(way, count));
            commands += &format!("sleep 3; fetch {}; {look}\n", name(way, count));
        }
        commands
    };
    let off = |state: &str| {
        POOR.map(|poor| format!("at_home anabranch --state {state} network wl-{poor} --off\n")).concat()
    };
    let (first, second) = ("/tmp/device", "/tmp/state");
    format!(
        r#"{functions}radio_up --channels 6; for name in near {poor}; do address_on wl-$name; done
serve; fetch {ALONE} --interface wl-near
{tunnel}
{off_first}{loose}keep_state; device_up
{off_second}{ours}at_home anabranch --state {second} down; radio_down
air_down"#,
        functions = functions(),
        poor = POOR.join(" "),
        tunnel = tunnel_commands(),
        off_first = off(first),
        loose = fetches(WAYS[0], first),
        off_second = off(second),
        ours = fetches(WAYS[1], second),
    )
}

fn scene() -> RadioScene {
    let network = |name, beacon_interval| WifiNetwork {
        link: NetworkSpec::symmetric(name, 50.0, 20),
        points: vec![AccessPoint { beacon_interval, ..AccessPoint::open(name, 6) }],
    };
    let poor = POOR.into_iter().zip(BEACON_INTERVALS).map(|(name, interval)| network(name, interval));
    let networks: Vec<WifiNetwork> = std::iter::once(network("near", 100)).chain(poor).collect();
    // Radio 0 is the good access point, then come the poor ones, then the device.
    let device = networks.len();
    let quality = Quality { loss: LOSS, signal_dbm: -70, ..Quality::default() };
    let link = |from| LinkConfig {
        from: Some(from),
        to: Some(device),
        quality: quality.clone(),
        ..LinkConfig::default()
    };
    let known: String =
        networks.iter().map(|network| format!("[[network]]\nssid = \"{}\"\n\n", network.link.name)).collect();
    RadioScene {
        air: Some(Config { link: (1..device).map(link).collect(), ..Config::default() }),
        length: Duration::from_secs(1_200),
        ..RadioScene::new(Wifi::new(networks), known, script())
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
    let mut scene = scene();
    scene.air = scene.air.map(|air| Config { seed, ..air });
    let outcome = scene.run(&machine, &programs)?.succeeded()?;
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    metrics.insert(format!("{ALONE}.mbps"), rounded(fetched(&outcome, ALONE)?));
    for way in WAYS {
        let rates = COUNTS.map(|count| fetched(&outcome, &name(way, count)));
        let rates: Vec<f64> = rates.into_iter().collect::<anyhow::Result<_>>()?;
        let alone = *rates.first().context("no run over the good one alone")?;
        let line: Vec<(f64, f64)> =
            COUNTS.iter().zip(&rates).map(|(count, rate)| (*count as f64, rate / alone)).collect();
        for ((count, rate), (_, part)) in COUNTS.iter().zip(&rates).zip(&line) {
            metrics.insert(format!("{way}.poor_{count}.mbps"), rounded(*rate));
            metrics.insert(format!("{way}.poor_{count}"), rounded(*part));
        }
        series.push((way.to_owned(), line));
    }
    for count in COUNTS {
        let [loose, ours] = WAYS.map(|way| metrics.get(&format!("{way}.poor_{count}.mbps")).copied());
        if let (Some(loose), Some(ours)) = (loose, ours) {
            metrics.insert(format!("ours_over_loose.poor_{count}"), rounded(ours / loose));
        }
    }
    Ok(Report { metrics, series, void: void_of(&outcome)? })
}
