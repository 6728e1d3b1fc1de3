//! BOND/fairness: what a bond leaves to somebody else's plain TCP downloads on a network that both use.
//!
//! RFC 9743 asks that a new congestion control does not take much more than its share beside standard ones, nor gives way to
//! nothing. Both are one figure in Jain's index (RFC 5166 section 2.3) of what the two get of the link: 0.8 is one getting three times
//! what the other gets. Beside several downloads of others the bond may have three times what each of them has.

use super::failover::seed_step;
use super::{Axes, BarGroup, Bed, Experiment, ExperimentId, Goal, Metrics, Report};
use crate::simbed::{Algorithm, Fairness};
use sim::{NetworkSpec, QueueLimit};
use std::time::Duration;
use units::{BitRate, Timestamp};

/// Rate of both networks in Mbit/s, and round trip in ms.
const NETWORK: (f64, u64) = (40.0, 30);
/// The plain downloads join the bonded one, which is then left to settle.
const PLAIN_START: Timestamp = Timestamp::from_millis(10_000);
/// Nothing else is left to chance: with each seed it joins at a moment of its own.
const SEED_STEP: Duration = Duration::from_millis(173);
const MEASURED_FROM: Timestamp = Timestamp::from_millis(20_000);
const END: Timestamp = Timestamp::from_millis(60_000);
const LEAST_JAIN_INDEX: f64 = 0.8;
/// Control of all downloads by name.
const ALGORITHMS: [(&str, Algorithm); 2] = [("tcp-cubic", Algorithm::Cubic), ("tcp-bbr", Algorithm::Bbr)];
/// How many networks the bond has, by name; the first is shared.
const BONDS: [(&str, usize); 2] = [("tunnelled", 1), ("bonded", 2)];

/// Several plain downloads beside a bond alone on the network, by name: how many, and how many milliseconds of traffic the queue holds.
const CROWDS: [(&str, u16, u64); 4] =
    [("four", 4, 60), ("sixteen", 16, 60), ("four_short_queue", 4, 15), ("sixteen_short_queue", 16, 15)];
const MOST_OVER_EACH: f64 = 3.0;

/// The experiment.
pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "networks".into(),
        format!("two of {} Mbit/s, round trip {} ms", NETWORK.0, NETWORK.1).into(),
    );
    spec.insert("shared".into(), "the first of them".into());
    spec.insert("traffic".into(), ALGORITHMS.map(|(name, _)| toml::Value::from(name)).to_vec().into());
    spec.insert("queue_ms".into(), 60.into());
    for (name, plain, queue) in CROWDS {
        let text = format!("{plain} plain downloads (CUBIC) beside a tunnelled one, a queue of {queue} ms");
        spec.insert(name.into(), text.into());
    }
    spec.insert("plain_start_s".into(), seconds(PLAIN_START).into());
    spec.insert("seed_step_ms".into(), (SEED_STEP.as_millis() as i64).into());
    spec.insert("measured_s".into(), vec![seconds(MEASURED_FROM), seconds(END)].into());
    let kinds = || ALGORITHMS.iter().flat_map(|(name, _)| BONDS.map(|(bond, _)| format!("{name}.{bond}")));
    let group = |kind: String| BarGroup {
        bars: ["bond", "plain"].map(|who| (who.to_owned(), format!("{kind}.{who}_mbps"))).to_vec(),
        label: kind.trim_start_matches("tcp-").replace('.', ", "),
    };
    let crowd = |name: &str| BarGroup {
        bars: vec![
            ("bond".to_owned(), format!("{name}.bond_mbps")),
            ("each plain".to_owned(), format!("{name}.each_mbps")),
        ],
        label: name.replace("_short_queue", ", short"),
    };
    Experiment {
        id: ExperimentId { key: "BOND".to_owned(), name: "fairness".to_owned() },
        title: "a bond, alone on a network or with a second one, beside plain TCP downloads of another host"
            .to_owned(),
        spec,
        paper: None,
        goals: kinds()
            .map(|kind| Goal::at_least(format!("{kind}.jain_index"), LEAST_JAIN_INDEX))
            .chain(CROWDS.map(|(name, ..)| Goal::at_most(format!("{name}.bond_over_each"), MOST_OVER_EACH)))
            .chain(
                CROWDS.map(|(name, ..)| {
                    Goal::at_least(format!("{name}.bond_over_each"), MOST_OVER_EACH.recip())
                }),
            )
            .collect(),
        beds: vec![Bed::Sim],
        bars: kinds().map(group).chain(CROWDS.map(|(name, ..)| crowd(name))).collect(),
        unit: "Mbit/s",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    for (name, algorithm) in ALGORITHMS {
        for (bond, count) in BONDS {
            let networks = ["shared", "own"].into_iter().take(count).map(network).collect();
            let outcome = beside(networks, algorithm, 1, seed).run()?;
            for (metric, value) in [
                ("jain_index", outcome.jain_index()),
                ("bond_mbps", outcome.bond_mbps),
                ("plain_mbps", outcome.plain_mbps),
                ("goodput_mbps", outcome.bonded_goodput_mbps),
            ] {
                metrics.insert(format!("{name}.{bond}.{metric}"), (value * 1e4).round() / 1e4);
            }
        }
    }
    for (name, plain, queue_ms) in CROWDS {
        let mut shared = network("shared");
        let queue = BitRate::from_mbps(NETWORK.0).bytes_in(Duration::from_millis(queue_ms));
        shared.down = shared.down.with_queue(QueueLimit::Bytes(queue));
        // Without it the phases of so many flows decide who loses.
        let hosts_take_time = true;
        let run = Fairness { hosts_take_time, ..beside(vec![shared], Algorithm::Cubic, plain, seed) };
        let outcome = run.run()?;
        for (metric, value) in [
            ("bond_over_each", outcome.over_each()),
            ("bond_mbps", outcome.bond_mbps),
            ("each_mbps", outcome.plain_mbps / f64::from(plain)),
        ] {
            metrics.insert(format!("{name}.{metric}"), (value * 1e4).round() / 1e4);
        }
    }
    Ok(Report { metrics, ..Report::default() })
}

fn network(name: &'static str) -> NetworkSpec {
    NetworkSpec::symmetric(name, NETWORK.0, NETWORK.1)
}

/// A bonded download, and so many plain ones over the first of its networks.
fn beside(networks: Vec<NetworkSpec>, algorithm: Algorithm, plain: u16, seed: u64) -> Fairness {
    Fairness {
        networks,
        shared: vec![0],
        algorithm,
        paths: bond::Algorithm::default(),
        hosts_take_time: false,
        plain,
        plain_start: PLAIN_START + seed_step(seed, SEED_STEP),
        measured_from: MEASURED_FROM,
        end: END,
        seed,
    }
}

fn seconds(time: Timestamp) -> i64 {
    (time.as_micros() / 1_000_000) as i64
}
