//! A device and a gateway over simple links in virtual time: the whole core together.

mod bench;

use bench::{Bench, LinkSpec};
use bond::{EndpointEvent, PathState, SessionEvent};
use std::time::Duration;

#[test]
fn connects_and_carries_packets_both_ways() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 20)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    let session = bench.device_session;
    let reports = bench.device.path_reports(session);
    assert_eq!(reports.len(), 2);
    assert!(reports.iter().all(|report| report.state == PathState::Usable), "{reports:?}");
    assert!(reports.iter().all(|report| report.mtu == 1_472), "{reports:?}");
    for index in 0..100u16 {
        bench.send_up(index, 500);
        bench.send_down(index, 1_400);
        bench.run(Duration::from_millis(5));
    }
    bench.run(Duration::from_millis(500));
    assert_eq!(bench.received_up, (0..100).collect::<Vec<_>>());
    assert_eq!(bench.received_down, (0..100).collect::<Vec<_>>());
}

#[test]
fn bulk_uses_both_paths_and_stays_in_order() {
    let mut bench = Bench::new(&[LinkSpec::new(40.0, 10), LinkSpec::new(20.0, 25)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    let rate = bench.saturate_down(Duration::from_secs(5));
    assert!(rate > 0.93 * 60.0, "{rate} of 60 Mbit/s\n{}", bench.report());
    assert!(bench.received_down.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
}

#[test]
fn a_silent_path_costs_time_but_no_packet() {
    let mut bench = Bench::new(&[LinkSpec::new(40.0, 10), LinkSpec::new(20.0, 25)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.saturate_down(Duration::from_secs(2));
    bench.set_alive(0, false);
    let start = bench.received_down.len();
    let rate = bench.saturate_down(Duration::from_secs(2));
    assert!(rate > 0.7 * 20.0, "{rate} of 20 Mbit/s");
    assert!(bench.longest_gap_down < Duration::from_millis(200), "{:?}", bench.longest_gap_down);
    let lost = bench.missing_down();
    assert_eq!(lost, 0, "of {}", bench.received_down.len() - start);
    bench.set_alive(0, true);
    bench.run(Duration::from_secs(1));
    let rate = bench.saturate_down(Duration::from_secs(3));
    assert!(rate > 0.85 * 60.0, "{rate} of 60 Mbit/s after the path came back\n{}", bench.report());
}

#[test]
fn random_loss_is_repaired_in_order() {
    let mut bench = Bench::new(&[LinkSpec::new(30.0, 15).loss(0.02), LinkSpec::new(30.0, 15).loss(0.02)]);
    bench.connect();
    bench.run(Duration::from_millis(500));
    let rate = bench.saturate_down(Duration::from_secs(5));
    assert!(rate > 0.85 * 60.0, "{rate}\n{}", bench.report());
    assert!(bench.received_down.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
    assert_eq!(bench.missing_down(), 0);
}

#[test]
fn a_gateway_that_forgot_us_is_joined_again() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.restart_gateway();
    bench.send_up(1, 200);
    bench.run(Duration::from_secs(2));
    assert_eq!(bench.connected_events, 2);
    bench.send_up(2, 200);
    bench.run(Duration::from_millis(200));
    assert!(bench.received_up.contains(&2));
}

#[test]
fn a_nat_that_rebinds_is_followed() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.rebind(0, 4_999);
    bench.send_up(1, 200);
    bench.run(Duration::from_millis(300));
    bench.send_down(2, 200);
    bench.run(Duration::from_millis(300));
    assert_eq!(bench.received_down, [2]);
    let moved = bench
        .gateway_events
        .iter()
        .any(|event| matches!(event, EndpointEvent::Session { event: SessionEvent::PathMoved(_), .. }));
    assert!(moved);
}

#[test]
fn same_seed_same_bytes() {
    let digest = |_: u32| {
        let mut bench = Bench::new(&[LinkSpec::new(20.0, 10).loss(0.01), LinkSpec::new(5.0, 40)]);
        bench.connect();
        bench.run(Duration::from_millis(300));
        bench.saturate_down(Duration::from_secs(1));
        bench.digest
    };
    assert_eq!(digest(0), digest(1));
}
