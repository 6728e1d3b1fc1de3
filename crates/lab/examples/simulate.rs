//! One download over one named pair of networks, in virtual time, with what the bond knew at the end:
//! `cargo run --example simulate -- SCENARIO cubic|bbr|cubic8|quic plain|tunnelled|bonded [SECONDS]`.
//!
//! Without arguments: goodput of all downloads over every network alone.

use anyhow::Context;
use lab::simbed::{Algorithm, Outcome, Traffic, Trial, Way};
use sim::Scenario;
use std::time::Duration;

const KINDS: [(&str, Traffic); 4] = [
    ("cubic", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 }),
    ("bbr", Traffic::Tcp { algorithm: Algorithm::Bbr, flows: 1 }),
    ("cubic8", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 8 }),
    ("quic", Traffic::Quic { algorithm: Algorithm::Cubic }),
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scenarios = sim::scenario::scenarios(1);
    let [name, kind, way, rest @ ..] = arguments.as_slice() else {
        return show_networks(&scenarios);
    };
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).context("no such scenario")?;
    let (_, traffic) = KINDS.iter().find(|(known, _)| known == kind).context("no such traffic")?;
    let seconds: u64 = rest.first().map_or(Ok(30), |text| text.parse())?;
    let all: Vec<usize> = (0..scenario.networks.len()).collect();
    let ways: Vec<Way> = match way.as_str() {
        "plain" => all.iter().map(|index| Way::Plain(*index)).collect(),
        "tunnelled" => all.iter().map(|index| Way::Bonded(vec![*index])).collect(),
        _ => vec![Way::Bonded(all)],
    };
    for way in ways {
        println!("{way:?}");
        show(&run(scenario, *traffic, way, seconds)?);
    }
    Ok(())
}

fn run(scenario: &Scenario, traffic: Traffic, way: Way, seconds: u64) -> anyhow::Result<Outcome> {
    let networks = scenario.networks.clone();
    Trial { networks, traffic, way, duration: Duration::from_secs(seconds), bytes: None, seed: 1 }.run()
}

fn show(outcome: &Outcome) {
    println!(
        "  {:.2} Mbit/s, longest gap {:?}, ping p50 {:.1} p99 {:.1} ms, {} pings lost",
        outcome.goodput_mbps,
        outcome.longest_gap,
        outcome.ping_p50_ms().unwrap_or(f64::NAN),
        outcome.ping_p99_ms().unwrap_or(f64::NAN),
        outcome.pings_lost
    );
    let seconds: Vec<String> = outcome
        .series
        .chunks(10)
        .map(|second| {
            format!("{:.0}", second.iter().map(|(_, mbps)| mbps).sum::<f64>() / second.len() as f64)
        })
        .collect();
    println!("  by second: {}", seconds.join(" "));
    for end in &outcome.ends {
        println!("  {:?}", end.counters);
        for path in &end.paths {
            println!("    {path:?}");
        }
    }
}

fn show_networks(scenarios: &[Scenario]) -> anyhow::Result<()> {
    println!("{:<34}{:>10}{:>10}{:>10}{:>10}  Mbit/s", "network alone", "cubic", "bbr", "cubic8", "quic");
    for scenario in scenarios {
        for (index, network) in scenario.networks.iter().enumerate() {
            print!("{:<34}", format!("{} {}", scenario.name, network.name));
            for (_, traffic) in KINDS {
                print!("{:>10.2}", run(scenario, traffic, Way::Plain(index), 30)?.goodput_mbps);
            }
            println!();
        }
    }
    Ok(())
}
