//! The model against what is known of Linux's TCP on such links.

use crate::simbed::{Algorithm, Outcome, Traffic, Trial, Way};
use sim::{Jitter, Loss, NetworkSpec};
use std::time::Duration;

fn download(network: NetworkSpec, algorithm: Algorithm, flows: u16, bytes: Option<u64>) -> Outcome {
    Trial {
        networks: vec![network],
        traffic: Traffic::Tcp { algorithm, flows },
        way: Way::Plain(0),
        duration: Duration::from_secs(20),
        bytes,
        seed: 11,
    }
    .run()
    .unwrap()
}

fn steady() -> NetworkSpec {
    NetworkSpec::symmetric("steady", 40.0, 30)
}

#[test]
fn a_clean_link_is_filled() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr, Algorithm::Reno] {
        let outcome = download(steady(), algorithm, 1, None);
        // 1448 of 1500 bytes are payload: 38.6 Mbit/s at most.
        assert!(outcome.goodput_mbps > 36.5, "{algorithm:?}: {} Mbit/s", outcome.goodput_mbps);
        assert!(outcome.goodput_mbps < 38.7, "{algorithm:?}: {} Mbit/s", outcome.goodput_mbps);
    }
}

#[test]
fn a_long_link_is_filled() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        let outcome = download(NetworkSpec::symmetric("long", 40.0, 320), algorithm, 1, None);
        assert!(outcome.goodput_mbps > 26.0, "{algorithm:?}: {} Mbit/s", outcome.goodput_mbps);
    }
}

#[test]
fn random_loss_breaks_cubic_but_not_bbr() {
    let lossy = || steady().with_loss(Loss::Random(0.01));
    let cubic = download(lossy(), Algorithm::Cubic, 1, None).goodput_mbps;
    let bbr = download(lossy(), Algorithm::Bbr, 1, None).goodput_mbps;
    assert!((1.5..9.0).contains(&cubic), "cubic: {cubic} Mbit/s");
    assert!(bbr > 32.0, "bbr: {bbr} Mbit/s");
}

#[test]
fn bbr_keeps_the_queue_short_and_cubic_fills_it() {
    let median = |algorithm| download(steady(), algorithm, 1, None).ping_p50_ms().unwrap();
    let (cubic, bbr) = (median(Algorithm::Cubic), median(Algorithm::Bbr));
    assert!(cubic > 50.0, "cubic: {cubic} ms");
    assert!(bbr < 50.0, "bbr: {bbr} ms");
}

#[test]
fn reordering_is_learned() {
    let jittery = steady().with_jitter(Jitter::Reordering(Duration::from_millis(4)));
    let outcome = download(jittery, Algorithm::Cubic, 1, None);
    assert!(outcome.goodput_mbps > 15.0, "{} Mbit/s", outcome.goodput_mbps);
}

#[test]
fn flows_share_a_link() {
    let outcome = download(steady(), Algorithm::Cubic, 8, None);
    assert!(outcome.goodput_mbps > 36.5, "{} Mbit/s", outcome.goodput_mbps);
    let least = outcome.flow_goodput_mbps.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > 1.0, "least of eight: {least} Mbit/s");
}

#[test]
fn a_file_arrives_whole_over_a_bad_link() {
    let bad = NetworkSpec::symmetric("bad", 10.0, 60)
        .with_loss(Loss::Random(0.03))
        .with_jitter(Jitter::Reordering(Duration::from_millis(20)));
    let outcome = download(bad, Algorithm::Bbr, 1, Some(1_000_001));
    assert!(outcome.completed_after.is_some());
}
