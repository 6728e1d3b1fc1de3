//! A good and a bad access point on one channel, with real ones: hostapd and mac80211 with its own rate control, our radio, device and gateway; then the
//! kernel's own stations in place of our slots, judged by what is heard beside them.

use anyhow::Context;

use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::medium::{self, Config};
use crate::traffic;
use crate::vm::measurement::{Programs, tunnel_commands};
use crate::vm::scene::near_and_far;
use crate::vm::topology::SERVER_ADDRESS;
use crate::vm::{Machine, Outcome, program};

/// A download's length.
pub(super) const SECONDS: u32 = 8;
/// Of what the bad access point sends, so many attempts are lost.
const LOSS: f64 = 0.4;
/// What is compared, in the order in which it is run: first with slots, then with the kernel's own stations.
const RUNS: [&str; 6] = ["alone", "tunnelled", "loose", "steered", "kernel_alone", "kernel_steered"];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("access_points".into(), "two, open, 802.11g, on channel 6".into());
    spec.insert("loss".into(), format!("{LOSS} of what the bad one sends; the good one's arrives").into());
    spec.insert("behind".into(), "50 Mbit/s, round trip 20 ms, each".into());
    spec.insert("traffic".into(), format!("one TCP download (CUBIC) of {SECONDS} s").into());
    spec.insert("alone".into(), "over the good one, without the tunnel".into());
    spec.insert("tunnelled".into(), "through the tunnel over the good one, the other one off".into());
    spec.insert("loose".into(), "through the tunnel over both, without the radio's advice".into());
    spec.insert("steered".into(), "with it".into());
    spec.insert("kernel_alone".into(), "as alone, by the kernel's own stations".into());
    spec.insert("kernel_steered".into(), "as steered, by those".into());
    Experiment {
        id: id("fig6-real"),
        title: "a good and a bad access point on one channel, real ones: a download".to_owned(),
        spec,
        paper: None,
        goals: vec![
            Goal::at_least("steered.of_alone", 0.9),
            Goal::at_least("steered.over_loose", 1.0),
            Goal::at_least("kernel_steered.of_kernel_alone", 0.9),
        ],
        beds: vec![Bed::Vm],
        bars: vec![BarGroup {
            label: "download".into(),
            bars: RUNS.map(|name| (name.to_owned(), format!("{name}.mbps"))).to_vec(),
        }],
        unit: "Mbit/s",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

/// `serve` begins the server, `fetch NAME ARGUMENTS...` downloads. The device finds the radio's advice below its own state, so first it has none:
/// `keep_state` ends it and moves its state to the radio's, `device_up` begins it anew there.
pub(super) fn functions() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
serve() {{ in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 --transport tcp & sleep 1; }}
fetch() {{ name=$1; shift; at_home anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --transport tcp --congestion cubic --seconds {SECONDS} --json /results/$name "$@" || fail $name; }}
keep_state() {{ at_home anabranch --state /tmp/device down; mv /tmp/device/* /tmp/state/; }}
device_up() {{
    at_home anabranch --state /tmp/state up --foreground >>/results/steered.log 2>&1 &
    for _ in $(seq 200); do ip -n device link show any0 >/dev/null 2>&1 && break; sleep 0.1; done
}}
"#
    )
}

/// The radio is up; `alone` is fetched; then the device is up. `steer NAME` begins the device anew beside the radio's advice, fetches with it and ends
/// device and radio.
pub(super) fn beginning() -> String {
    format!(
        r#"{}steer() {{ device_up; sleep 3; fetch $1; own aps --json >/results/aps-$1; at_home anabranch --state /tmp/state down; radio_down; }}
radio_up --channels 6; address_on wl-near; address_on wl-far
serve; fetch alone --interface wl-near
{}"#,
        functions(),
        tunnel_commands()
    )
}

fn script() -> String {
    format!(
        r#"{}
at_home anabranch --state /tmp/device network wl-far --off; sleep 1; fetch tunnelled
at_home anabranch --state /tmp/device network wl-far --off=off; sleep 3; fetch loose
keep_state; steer steered
radio_up --kernel --channels 6; address_on wl-near; address_on wl-far; sleep 1
fetch kernel_alone --interface wl-near
steer kernel_steered
air_down"#,
        beginning()
    )
}

/// Mbit/s of the download `name` in the guest.
///
/// # Errors
/// If it is missing, or a wrong byte arrived.
pub(super) fn fetched(outcome: &Outcome, name: &str) -> anyhow::Result<f64> {
    let report: traffic::Report =
        serde_json::from_str(&outcome.text(name)).with_context(|| format!("reading {name} of the guest"))?;
    anyhow::ensure!(report.intact, "{name}: a wrong byte arrived");
    Ok(report.goodput_mbps)
}

/// Why the run does not count, if the air says that it does not.
///
/// # Errors
/// If the air's report is missing.
pub(super) fn void_of(outcome: &Outcome) -> anyhow::Result<Option<String>> {
    let air: medium::Report =
        serde_json::from_str(&outcome.text("air.json")).context("reading what the air carried")?;
    Ok(air.void)
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
    let mut scene = near_and_far(LOSS, script());
    scene.programs.push(program("wpa_supplicant", "wpasupplicant")?);
    scene.air = scene.air.map(|air| Config { seed, ..air });
    let outcome = scene.run(&machine, &programs)?.succeeded()?;
    let mut metrics = Metrics::new();
    let mut rates = Vec::new();
    for name in RUNS {
        let rate = fetched(&outcome, name)?;
        metrics.insert(format!("{name}.mbps"), rounded(rate));
        rates.push(rate);
    }
    if let [alone, tunnelled, loose, steered, kernel_alone, kernel_steered] = rates.as_slice() {
        metrics.insert("tunnelled.of_alone".into(), rounded(tunnelled / alone));
        metrics.insert("steered.of_tunnelled".into(), rounded(steered / tunnelled));
        metrics.insert("steered.of_alone".into(), rounded(steered / alone));
        metrics.insert("steered.over_loose".into(), rounded(steered / loose));
        metrics.insert("loose.of_alone".into(), rounded(loose / alone));
        metrics.insert("kernel_steered.of_kernel_alone".into(), rounded(kernel_steered / kernel_alone));
    }
    Ok(Report { metrics, void: void_of(&outcome)?, ..Report::default() })
}
