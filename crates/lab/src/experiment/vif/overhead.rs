//! VIF tables 1 and 3: what direct mode costs where there is one interface only.

use super::{FAST_MBPS, ROUND_TRIP_MS, behind_point, describe_air, id};
use crate::experiment::direct_laboratory::{Laboratory, Links};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::PingReport;
use crate::vm::air::Air;
use crate::vm::direct::{DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use sim::NetworkSpec;

/// Kilobytes that a program hands over at a time, and the paper's throughput with its interface over that without.
const MESSAGES: [(u32, f64); 6] = [
    (1, 21.047 / 21.914),
    (2, 21.243 / 22.139),
    (4, 21.984 / 22.814),
    (8, 22.455 / 23.108),
    (16, 23.022 / 23.363),
    (32, 23.482 / 23.743),
];
/// The paper's round trip with its interface over that without.
const PAPER_ROUND_TRIP: f64 = 1.799 / 1.730;
const PING_SECONDS: u32 = 100;
const FLOW_SECONDS: u32 = 10;

pub(super) fn experiment(links: Links) -> Experiment {
    let mut spec = toml::Table::new();
    match links {
        Links::Wired => {
            spec.insert(
                "network".into(),
                format!("{FAST_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into(),
            );
        }
        Links::Air => describe_air(&mut spec, &[("a", FAST_MBPS)]),
    }
    spec.insert("ping".into(), format!("UDP, every 20 ms for {PING_SECONDS} s").into());
    spec.insert(
        "traffic".into(),
        format!("one tcp-cubic upload of {FLOW_SECONDS} s for each message size").into(),
    );
    spec.insert(
        "message_kilobytes".into(),
        MESSAGES.map(|(size, _)| toml::Value::from(i64::from(size))).to_vec().into(),
    );
    let mut goals = vec![Goal::at_most("round_trip.direct_over_plain", 1.01)];
    let mut bars = vec![group("round trip", "round_trip")];
    for (size, _) in MESSAGES {
        goals.push(Goal::at_least(format!("messages_{size}k.direct_over_plain"), 0.99));
        bars.push(group(&format!("{size} KB"), &format!("messages_{size}k")));
    }
    Experiment {
        id: id(&links.of("table1-3-overhead")),
        title: "what direct mode adds to the round trip and takes from throughput with one interface".to_owned(),
        spec,
        paper: Some(
            "table 1: round trip 1.730 ms without and 1.799 ms with the virtual interface (+4.0 %); table 3: throughput -3.9 % \
             with messages of 1 KB to -1.1 % with 32 KB"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars,
        unit: "times plain",
        axes: Axes::default(),
        runner: Box::new(move |_, seed| run(links, seed)),
    }
}

fn group(label: &str, metric: &str) -> BarGroup {
    let bar = |label: &str, metric: String| (label.to_owned(), metric);
    BarGroup {
        label: label.to_owned(),
        bars: vec![
            bar("paper", format!("paper.{metric}")),
            bar("direct", format!("{metric}.direct_over_plain")),
        ],
    }
}

fn run(links: Links, seed: u64) -> anyhow::Result<Report> {
    let network = match links {
        Links::Wired => NetworkSpec::symmetric("a", FAST_MBPS, ROUND_TRIP_MS),
        Links::Air => behind_point("a"),
    };
    let mut script = format!(
        "traffic ping {SERVER_ADDRESS}:9100 --seconds {PING_SECONDS} --json /results/ping || fail ping\n"
    );
    for (size, _) in MESSAGES {
        script +=
            &format!("fetch {size} --upload --message {} --seconds {FLOW_SECONDS}\nsleep 1\n", size << 10);
    }
    let mut laboratory = Laboratory::open(seed)?;
    laboratory.put("paper.round_trip", PAPER_ROUND_TRIP);
    for (name, way) in [("plain", Way::Plain), ("direct", Way::Direct)] {
        let air = (links == Links::Air).then(|| Air::cards(&[1]));
        let job = DirectJob { air, ..DirectJob::new(vec![network.clone()], way, script.clone()) };
        let answers = laboratory.run(name, job)?;
        let ping: PingReport = answers.read("ping")?;
        let answered: Vec<f64> = ping.round_trips.iter().copied().filter(|time| *time >= 0.0).collect();
        laboratory
            .put(&format!("round_trip.{name}_ms"), answered.iter().sum::<f64>() / answered.len() as f64);
        laboratory.put(&format!("round_trip.{name}_lost"), (ping.sent - ping.received) as f64);
        for (size, _) in MESSAGES {
            laboratory.goodput(&answers, &size.to_string(), &format!("messages_{size}k.{name}_mbps"))?;
        }
    }
    let ratio = laboratory.metric("round_trip.direct_ms") / laboratory.metric("round_trip.plain_ms");
    laboratory.put("round_trip.direct_over_plain", ratio);
    for (size, paper) in MESSAGES {
        let figure = |name: &str| laboratory.metric(&format!("messages_{size}k.{name}_mbps"));
        let ratio = figure("direct") / figure("plain");
        laboratory.put(&format!("messages_{size}k.direct_over_plain"), ratio);
        laboratory.put(&format!("paper.messages_{size}k"), paper);
    }
    Ok(laboratory.report)
}
