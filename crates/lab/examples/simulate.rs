//! Downloads over every named network, plain, in virtual time: `cargo run --example simulate [NAME]`.

use lab::simbed::{Algorithm, Traffic, Trial, Way};
use std::time::Duration;

fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().nth(1);
    let kinds = [
        ("cubic", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 }),
        ("bbr", Traffic::Tcp { algorithm: Algorithm::Bbr, flows: 1 }),
        ("8 cubic", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 8 }),
        ("quic", Traffic::Quic { algorithm: Algorithm::Cubic }),
    ];
    println!("{:<34}{:>10}{:>10}{:>10}{:>10}  Mbit/s", "network", "cubic", "bbr", "8 cubic", "quic");
    for scenario in sim::scenario::scenarios(1) {
        if wanted.as_ref().is_some_and(|wanted| wanted != scenario.name) {
            continue;
        }
        for index in 0..scenario.networks.len() {
            print!("{:<34}", format!("{} {}", scenario.name, scenario.networks[index].name));
            for (_, traffic) in kinds {
                let trial = Trial {
                    networks: scenario.networks.clone(),
                    traffic,
                    way: Way::Plain(index),
                    duration: Duration::from_secs(30),
                    bytes: None,
                    seed: 1,
                };
                print!("{:>10.2}", trial.run()?.goodput_mbps);
            }
            println!();
        }
    }
    Ok(())
}
