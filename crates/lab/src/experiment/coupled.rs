//! BOND/coupled: the two goals of coupled congestion control (RFC 6356 section 2), and that links which share nothing are not throttled for them.
//!
//! Both of the bond's networks lead over one link that a plain TCP download uses too: then the bond is to take no more of it than a plain download would.
//! Or they are separate and only the first is shared: then the bond is to carry at least what the better one alone would carry, and its fair
//! share of the shared one beside, which an algorithm that couples all paths of a bond gives up for nothing.

use super::failover::seed_step;
use super::{Axes, BarGroup, Bed, Experiment, ExperimentId, Goal, Metrics, Report};
use crate::simbed::{Algorithm, Fairness, FairnessOutcome};
use sim::NetworkSpec;
use std::time::Duration;
use units::Timestamp;

/// Rate of each link in Mbit/s, and round trip in ms.
const NETWORK: (f64, u64) = (40.0, 30);
const PLAIN_START: Timestamp = Timestamp::from_millis(10_000);
/// With each seed the plain download joins at a moment of its own, and the hosts take other times to send.
const SEED_STEP: Duration = Duration::from_millis(173);
/// Finding out what is shared takes some seconds.
const MEASURED_FROM: Timestamp = Timestamp::from_millis(30_000);
const END: Timestamp = Timestamp::from_millis(90_000);
/// What is compared: coupled ones, and what is not.
const PATHS: [bond::Algorithm; 5] = [
    bond::Algorithm::Model,
    bond::Algorithm::Cubic,
    bond::Algorithm::Lia,
    bond::Algorithm::Olia,
    bond::Algorithm::Balia,
];
const COUPLED: [bond::Algorithm; 3] = [bond::Algorithm::Lia, bond::Algorithm::Olia, bond::Algorithm::Balia];
/// The bond may have so much more of a common bottleneck than the plain download: their controls differ.
const NO_HARM: f64 = 1.25;
/// Of half of a shared link whose neighbour is separate.
const FAIR_SHARE: f64 = 0.6;
/// Of what the better network carries.
const NOT_WORSE: f64 = 0.95;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("links".into(), format!("{} Mbit/s, round trip {} ms", NETWORK.0, NETWORK.1).into());
    spec.insert("paths".into(), PATHS.map(|paths| toml::Value::from(paths.name())).to_vec().into());
    spec.insert("traffic".into(), "one TCP download (CUBIC) through the bond, one beside it".into());
    spec.insert(
        "hosts_take".into(),
        "up to what the link takes to carry a full packet, for each they send".into(),
    );
    spec.insert("plain_start_s".into(), seconds(PLAIN_START).into());
    spec.insert("measured_s".into(), vec![seconds(MEASURED_FROM), seconds(END)].into());
    let goals = COUPLED.iter().flat_map(|paths| {
        [
            Goal::at_most(format!("{paths}.one_link.over_plain"), NO_HARM),
            Goal::at_least(format!("{paths}.separate.of_fair_share"), FAIR_SHARE),
            Goal::at_least(format!("{paths}.separate.of_best"), NOT_WORSE),
        ]
    });
    let group = |label: &str, metric: &str| BarGroup {
        label: label.to_owned(),
        bars: PATHS.map(|paths| (paths.to_string(), format!("{paths}.{metric}"))).to_vec(),
    };
    Experiment {
        id: ExperimentId { key: "BOND".to_owned(), name: "coupled".to_owned() },
        title: "coupled congestion control: on one link with a plain download, and on two links of which one is shared".to_owned(),
        spec,
        paper: None,
        goals: goals.collect(),
        beds: vec![Bed::Sim],
        bars: vec![
            group("one link: bond over plain", "one_link.over_plain"),
            group("separate: of the fair share", "separate.of_fair_share"),
            group("separate: of the best network", "separate.of_best"),
        ],
        unit: "ratio",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let network = |name| NetworkSpec::symmetric(name, NETWORK.0, NETWORK.1);
    let run = |paths, networks: &[&'static str], shared: Vec<usize>| -> anyhow::Result<FairnessOutcome> {
        Fairness {
            networks: networks.iter().map(|name| network(name)).collect(),
            shared,
            algorithm: Algorithm::Cubic,
            paths,
            plain: 1,
            hosts_take_time: true,
            plain_start: PLAIN_START + seed_step(seed, SEED_STEP),
            measured_from: MEASURED_FROM,
            end: END,
            seed,
        }
        .run()
    };
    let mut metrics = Metrics::new();
    for paths in PATHS {
        let one = run(paths, &["first", "second"], vec![0, 1])?;
        let separate = run(paths, &["shared", "own"], vec![0])?;
        for (metric, value) in [
            ("one_link.over_plain", one.bond_mbps / one.plain_mbps),
            ("one_link.bond_mbps", one.bond_mbps),
            ("one_link.plain_mbps", one.plain_mbps),
            ("separate.of_fair_share", separate.bond_mbps / (NETWORK.0 / 2.0)),
            ("separate.of_best", separate.bonded_goodput_mbps / (NETWORK.0 * PAYLOAD)),
            ("separate.goodput_mbps", separate.bonded_goodput_mbps),
            ("separate.plain_mbps", separate.plain_mbps),
        ] {
            metrics.insert(format!("{paths}.{metric}"), (value * 1e4).round() / 1e4);
        }
    }
    Ok(Report { metrics, ..Report::default() })
}

/// Payload of a full packet through the tunnel.
const PAYLOAD: f64 = 1_388.0 / 1_500.0;

fn seconds(time: Timestamp) -> i64 {
    (time.as_micros() / 1_000_000) as i64
}
