//! Whole trials.

use super::{Algorithm, Outcome, Traffic, Trial, Way};
use sim::{Jitter, Loss, NetworkSpec};
use std::time::Duration;

const CUBIC: Traffic = Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 };

fn trial(networks: Vec<NetworkSpec>, traffic: Traffic, way: Way, seed: u64) -> Outcome {
    Trial { networks, traffic, way, duration: Duration::from_secs(6), bytes: None, seed }.run().unwrap()
}

fn lossy_pair() -> Vec<NetworkSpec> {
    let lossy = |name, jitter| {
        NetworkSpec::symmetric(name, 20.0, 40)
            .with_loss(Loss::Random(0.005))
            .with_jitter(Jitter::Reordering(Duration::from_millis(jitter)))
    };
    vec![lossy("a", 3), lossy("b", 9)]
}

#[test]
fn the_seed_decides_every_figure() {
    let figures = |traffic, way: &Way, seed| {
        let outcome = trial(lossy_pair(), traffic, way.clone(), seed);
        (outcome.goodput_mbps.to_bits(), outcome.ping_ms.iter().map(|ms| ms.to_bits()).collect::<Vec<_>>())
    };
    for traffic in [CUBIC, Traffic::Quic { algorithm: Algorithm::Cubic }] {
        for way in [Way::Plain(0), Way::Bonded(vec![0, 1])] {
            assert_eq!(figures(traffic, &way, 4), figures(traffic, &way, 4), "{traffic:?} {way:?}");
        }
        assert_ne!(figures(traffic, &Way::Plain(0), 4), figures(traffic, &Way::Plain(0), 5));
    }
}

#[test]
fn the_tunnel_alone_costs_its_headers_only() {
    let networks = || vec![NetworkSpec::symmetric("a", 30.0, 30)];
    let plain = trial(networks(), CUBIC, Way::Plain(0), 1).goodput_mbps;
    let tunnelled = trial(networks(), CUBIC, Way::Bonded(vec![0]), 1).goodput_mbps;
    assert!(tunnelled > 0.85 * plain, "{tunnelled} of {plain} Mbit/s");
    assert!(tunnelled < plain, "{tunnelled} of {plain} Mbit/s");
}

#[test]
fn quic_fills_a_plain_network() {
    let networks = vec![NetworkSpec::symmetric("a", 20.0, 30)];
    let outcome = trial(networks, Traffic::Quic { algorithm: Algorithm::Cubic }, Way::Plain(0), 1);
    assert!(outcome.goodput_mbps > 17.0, "{} Mbit/s", outcome.goodput_mbps);
}

#[test]
fn pings_alone_show_the_round_trip_time() {
    let networks = vec![NetworkSpec::symmetric("a", 20.0, 40)];
    let outcome = trial(networks, Traffic::Idle, Way::Plain(0), 1);
    let median = outcome.ping_p50_ms().unwrap();
    assert!((40.0..41.0).contains(&median), "{median} ms");
    assert_eq!(outcome.pings_lost, 0);
}
