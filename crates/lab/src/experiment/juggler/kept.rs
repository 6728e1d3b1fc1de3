//! What an access point keeps while the radio is away (JUGGLER section 3.3): packets lost at its buffer, by how long slots are asked to be.

use super::{CHANNELS, ROUND_TRIP_MS, id};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::StreamReport;
use crate::vm::air::Air;
use crate::vm::direct::{DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use sim::NetworkSpec;

/// Slots of both networks, in milliseconds, and whether 64 places hold what comes in one: packets come every 2 ms.
const SLOTS: [(u32, bool); 5] = [(20, true), (50, true), (100, true), (200, false), (400, false)];
const SPACING_MS: u64 = 2;
const SECONDS: u32 = 10;
const RATE_MBPS: f64 = 4.0;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("networks".into(), format!("two alike; hostapd, open, 802.11g on channels 1 and 11; {RATE_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into());
    spec.insert("radio".into(), "one, by `anabranch radio up --alpha 0 --slot N`".into());
    spec.insert(
        "packets".into(),
        format!("UDP that the server sends by itself, one in {SPACING_MS} ms for {SECONDS} s over the first network; the access point keeps 64").into(),
    );
    spec.insert("lost".into(), "packets that never came".into());
    spec.insert("lost_later".into(), "those of them behind the first second".into());
    let held = SLOTS.iter().filter(|(_, fits)| *fits);
    let mut goals: Vec<Goal> =
        held.map(|(slot, _)| Goal::at_most(format!("slot_{slot}.lost"), 0.0)).collect();
    goals.extend(SLOTS.map(|(slot, _)| Goal::at_most(format!("slot_{slot}.lost_later"), 0.0)));
    let bars = SLOTS.map(|(slot, _)| BarGroup {
        label: format!("{slot} ms"),
        bars: [("in all", "lost"), ("after 1 s", "lost_later")]
            .map(|(label, metric)| (label.to_owned(), format!("slot_{slot}.{metric}")))
            .to_vec(),
    });
    Experiment {
        id: id("sec33-kept"),
        title: "packets lost while the radio is away, by how long slots are asked to be".to_owned(),
        spec,
        paper: Some(
            "section 3.3: access points keep what comes meanwhile; the paper counts no losses".to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars: bars.to_vec(),
        unit: "packets",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    for (slot, _) in SLOTS {
        let networks = ["a", "b"].map(|name| NetworkSpec::symmetric(name, RATE_MBPS, ROUND_TRIP_MS)).to_vec();
        let script = format!(
            "traffic stream {SERVER_ADDRESS}:9100 --interval-ms {SPACING_MS} --seconds {SECONDS} --interface a --json /results/stream || fail stream\n"
        );
        let air = Some(Air::shared(&CHANNELS, format!("--alpha 0 --slot {slot}")));
        let name = format!("slot_{slot}");
        let answers =
            laboratory.run(&name, DirectJob { air, ..DirectJob::new(networks, Way::Plain, script) })?;
        let stream: StreamReport = answers.read("stream")?;
        let in_first_second = 1_000 / SPACING_MS;
        let later = stream.missing.iter().filter(|number| **number >= in_first_second).count();
        laboratory.put(&format!("{name}.lost"), stream.missing.len() as f64);
        laboratory.put(&format!("{name}.lost_later"), later as f64);
        laboratory.put(&format!("{name}.longest_gap_ms"), stream.longest_gap_milliseconds);
    }
    Ok(laboratory.report)
}
