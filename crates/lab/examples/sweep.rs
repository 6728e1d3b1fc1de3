//! Every named pair of networks by every kind of download: each network plain and tunnelled, and bonded.
//! `cargo run --release --example sweep -- [SCENARIO-PREFIX|all] [KINDS,..] [SECONDS]`.

use lab::simbed::{Algorithm, Outcome, Traffic, Trial, Way};
use sim::Scenario;
use std::time::Duration;

const KINDS: [(&str, Traffic); 5] = [
    ("cubic", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 }),
    ("bbr", Traffic::Tcp { algorithm: Algorithm::Bbr, flows: 1 }),
    ("cubic8", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 8 }),
    ("quic", Traffic::Quic { algorithm: Algorithm::Cubic }),
    ("quicbbr", Traffic::Quic { algorithm: Algorithm::Bbr }),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let prefix = arguments.first().map_or("all", String::as_str);
    let kinds = arguments.get(1).map_or("cubic,bbr,quic", String::as_str);
    let seconds: u64 = arguments.get(2).map_or(Ok(30), |text| text.parse())?;
    for scenario in sim::scenario::scenarios(1) {
        if prefix != "all" && !scenario.name.starts_with(prefix) {
            continue;
        }
        for (name, traffic) in KINDS {
            if kinds.split(',').any(|wanted| wanted == name) {
                line(&scenario, name, traffic, seconds)?;
            }
        }
    }
    Ok(())
}

fn line(scenario: &Scenario, name: &str, traffic: Traffic, seconds: u64) -> anyhow::Result<()> {
    let count = scenario.networks.len();
    let mut plain = Vec::new();
    let mut tunnelled = Vec::new();
    for index in 0..count {
        plain.push(run(scenario, traffic, Way::Plain(index), seconds)?.goodput_mbps);
        tunnelled.push(run(scenario, traffic, Way::Bonded(vec![index]), seconds)?.goodput_mbps);
    }
    let bonded = run(scenario, traffic, Way::Bonded((0..count).collect()), seconds)?;
    let best_plain = plain.iter().copied().fold(0.0, f64::max);
    let best_tunnelled = tunnelled.iter().copied().fold(0.0, f64::max);
    let sum: f64 = tunnelled.iter().sum();
    let show = |list: &[f64]| list.iter().map(|mbps| format!("{mbps:5.1}")).collect::<Vec<_>>().join(" ");
    println!(
        "{:<18}{:<8} plain {} tunnelled {} bonded {:5.1}  /plain {:.2} /tunnelled {:.2} /sum {:.2}  gap {:4.0} ms ping p99 {:.0}",
        scenario.name,
        name,
        show(&plain),
        show(&tunnelled),
        bonded.goodput_mbps,
        bonded.goodput_mbps / best_plain,
        bonded.goodput_mbps / best_tunnelled,
        bonded.goodput_mbps / sum,
        bonded.longest_gap.as_secs_f64() * 1e3,
        bonded.ping_p99_ms().unwrap_or(f64::NAN),
    );
    Ok(())
}

fn run(scenario: &Scenario, traffic: Traffic, way: Way, seconds: u64) -> anyhow::Result<Outcome> {
    let networks = scenario.networks.clone();
    Trial { networks, traffic, way, duration: Duration::from_secs(seconds), bytes: None, seed: 1 }.run()
}
