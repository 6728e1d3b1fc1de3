//! A device and a gateway over simple links in virtual time: the whole core together.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod bench;

use bench::{Bench, LinkSpec, OnTheWay};
use bond::{
    Algorithm, EcnTrouble, EndpointEvent, PathState, REKEY_AFTER, Scheduler, SessionConfig, SessionEvent,
};
use policy::steering::MarkShare;
use policy::{PathStatus, Treatment};
use std::time::Duration;
use units::{BitRate, NetworkId, PathId};

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
fn a_path_behind_somebody_elses_queue_is_used_all_the_same() {
    let mut bench = Bench::new(&[LinkSpec::new(60.0, 10), LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.saturate_down(Duration::from_secs(2));
    // Nothing of the paths' own tells that the first carries 300 kB while a packet is on its way by the second.
    bench.delay_down(1, Duration::from_millis(45));
    bench.saturate_down(Duration::from_secs(2));
    let rate = bench.saturate_down(Duration::from_secs(3));
    assert!(rate > 0.9 * 80.0, "{rate} of 80 Mbit/s\n{}", bench.report());
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

/// A radio in a fade delivers nothing for a while, and then all of it.
#[test]
fn what_a_silent_path_delivers_after_all_is_not_sent_again() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.saturate_down(Duration::from_secs(2));
    let timeouts =
        |bench: &Bench| bench.gateway.path_reports(bench.gateway_session.unwrap())[0].counters.timeouts;
    let before = timeouts(&bench);
    bench.delay_down(0, Duration::from_millis(200));
    bench.saturate_down(Duration::from_secs(1));
    assert!(timeouts(&bench) > before, "the path was silent");
    let device = bench.device.session_counters(bench.device_session).unwrap();
    let gateway = bench.gateway.session_counters(bench.gateway_session.unwrap()).unwrap();
    assert!(device.duplicates <= 2, "{device:?}");
    assert!(gateway.repeats <= 2, "{gateway:?}");
    assert_eq!(bench.missing_down(), 0);
    assert!(bench.received_down.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
}

/// Silences as long as one before are waited for, mostly, and one that does not end is noticed all the same.
#[test]
fn a_path_that_was_given_up_in_vain_is_waited_for() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    let timeouts =
        |bench: &Bench| bench.gateway.path_reports(bench.gateway_session.unwrap())[0].counters.timeouts;
    for _ in 0..4 {
        bench.saturate_down(Duration::from_secs(4));
        bench.delay_down(0, Duration::from_millis(100));
        bench.saturate_down(Duration::from_millis(100));
        bench.delay_down(0, Duration::ZERO);
        bench.saturate_down(Duration::from_millis(400));
    }
    assert!((1..=2).contains(&timeouts(&bench)), "{} of 4 times", timeouts(&bench));
    bench.saturate_down(Duration::from_secs(2));
    bench.set_alive(0, false);
    bench.saturate_down(Duration::from_millis(400));
    let state = bench.gateway.path_reports(bench.gateway_session.unwrap())[0].state;
    assert_eq!(state, PathState::Suspect);
}

/// What stands by is seldom asked; but when it is all there is, at once.
#[test]
fn a_backup_that_was_given_up_is_asked_when_nothing_else_works() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Backup, 0);
    let state = |bench: &Bench| {
        let reports = bench.gateway.path_reports(bench.gateway_session.unwrap());
        reports.iter().find(|report| report.status == PathStatus::Backup).map(|report| report.state)
    };
    for phase in 0..4 {
        bench.set_alive(1, true);
        bench.set_alive(0, false);
        bench.saturate_down(Duration::from_secs(1));
        assert!(bench.longest_gap_down < Duration::from_millis(300), "{phase}: {:?}", bench.longest_gap_down);
        bench.set_alive(1, false);
        bench.set_alive(0, true);
        bench.saturate_down(Duration::from_millis(3_000 + 530 * phase));
        assert_eq!(state(&bench), Some(PathState::Suspect));
    }
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

#[test]
fn keys_are_renewed_while_data_flows() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    let mut sent = 0;
    for index in 0..500u16 {
        bench.run(REKEY_AFTER / 200);
        bench.send_up(index, 200);
        bench.send_down(index, 200);
        sent += 1;
    }
    bench.run(Duration::from_secs(1));
    let rekeyed = |events: &[EndpointEvent]| {
        let event = |event: &&EndpointEvent| {
            matches!(event, EndpointEvent::Session { event: SessionEvent::Rekeyed, .. })
        };
        events.iter().filter(event).count()
    };
    assert_eq!(rekeyed(&bench.device_events), 2);
    assert_eq!((bench.received_up.len(), bench.received_down.len()), (sent, sent));
    assert_eq!(bench.connected_events, 1);
}

#[test]
fn path_numbers_that_are_used_up_are_renewed_by_a_handshake() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 20)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    for _ in 0..300 {
        bench.connect_again(1);
        bench.run(Duration::from_millis(20));
    }
    bench.run(Duration::from_secs(1));
    assert_eq!(bench.connected_events, 2);
    let reports = bench.device.path_reports(bench.device_session);
    assert!(
        reports.len() == 2 && reports.iter().all(|report| report.state == PathState::Usable),
        "{reports:?}"
    );
    bench.send_up(7, 200);
    bench.run(Duration::from_millis(200));
    assert_eq!(bench.received_up, [7]);
}

#[test]
fn a_backup_carries_nothing_until_it_is_needed() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Backup, 0);
    bench.run(Duration::from_millis(500));
    bench.saturate_down(Duration::from_secs(1));
    let sent_on_backup = |bench: &Bench| {
        let reports = bench.gateway.path_reports(bench.gateway_session.unwrap());
        reports.iter().find(|report| report.status == PathStatus::Backup).unwrap().counters.sent_bytes
    };
    assert!(sent_on_backup(&bench) < 20_000, "{}", bench.report());
    bench.set_alive(0, false);
    let rate = bench.saturate_down(Duration::from_secs(2));
    assert!(rate > 0.7 * 20.0, "{rate}\n{}", bench.report());
    bench.set_alive(0, true);
    bench.run(Duration::from_secs(1));
    let before = sent_on_backup(&bench);
    bench.saturate_down(Duration::from_secs(1));
    assert!(sent_on_backup(&bench) - before < 20_000, "{}", bench.report());
}

/// Of two access points on one air the worse one's packets would take it from the better one, as the device's wishes say by what each may carry.
#[test]
fn of_two_that_stand_by_the_one_that_is_worth_much_less_waits_for_the_other() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(10.0, 15), LinkSpec::new(10.0, 5)]);
    bench.connect();
    bench.saturate_down(Duration::from_secs(1));
    for (network, limit) in [(NetworkId(2), 2_000_000), (NetworkId(3), 100_000)] {
        bench.device.set_path_status(bench.device_session, network, PathStatus::Backup, 0);
        bench.device.set_path_limit(bench.device_session, network, Some(BitRate(limit)));
    }
    bench.run(Duration::from_millis(500));
    bench.saturate_down(Duration::from_secs(1));
    let sent = |bench: &Bench, path: u8| {
        let reports = bench.gateway.path_reports(bench.gateway_session.unwrap());
        reports.iter().find(|report| report.path == PathId(path)).unwrap().counters.sent_bytes
    };
    let before = [0, 1, 2].map(|path| sent(&bench, path));
    bench.set_alive(0, false);
    bench.saturate_down(Duration::from_millis(800));
    assert!(sent(&bench, 1) - before[1] > 300_000, "{}", bench.report());
    assert!(sent(&bench, 2) - before[2] < 3_000, "{}", bench.report());
    // It is all that is left.
    bench.set_alive(1, false);
    bench.saturate_down(Duration::from_millis(800));
    assert!(sent(&bench, 2) - before[2] > 300_000, "{}", bench.report());
}

/// A network that is dear or slow is near all the same as long as nothing waits in it.
#[test]
fn what_any_path_may_carry_does_not_go_over_the_nearest_one_that_stands_by() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 40), LinkSpec::new(20.0, 5)]);
    bench.connect();
    bench.saturate_down(Duration::from_millis(500));
    bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Backup, 0);
    bench.run(Duration::from_millis(500));
    let sent_on_backup = |bench: &Bench| {
        let reports = bench.gateway.path_reports(bench.gateway_session.unwrap());
        reports.iter().find(|report| report.status == PathStatus::Backup).unwrap().counters.sent_packets
    };
    let before = sent_on_backup(&bench);
    // How long a gap may be waited for changes with the delay, and is told each time.
    for step in 0..20 {
        bench.delay_down(0, Duration::from_millis(if step % 2 == 0 { 40 } else { 150 }));
        bench.saturate_down(Duration::from_millis(400));
    }
    let sent = sent_on_backup(&bench) - before;
    assert!(sent < 3, "{sent}\n{}", bench.report());
}

/// One that stands by sends nothing, so that nothing it sends tells how long it did.
#[test]
fn a_path_that_stood_by_for_long_takes_over_at_once() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 25), LinkSpec::new(1.0, 25)]);
    bench.connect();
    let stands_by = |bench: &mut Bench, network| {
        for number in [1, 2] {
            let (status, limit) = match number == network {
                true => (PathStatus::Backup, Some(BitRate(768_000))),
                false => (PathStatus::Active, None),
            };
            bench.device.set_path_status(bench.device_session, NetworkId(number), status, 0);
            bench.device.set_path_limit(bench.device_session, NetworkId(number), limit);
        }
    };
    bench.saturate_down(Duration::from_secs(2));
    stands_by(&mut bench, 2);
    bench.saturate_down(Duration::from_secs(10));
    bench.set_rate(1, 20.0);
    stands_by(&mut bench, 1);
    bench.saturate_down(Duration::from_millis(350));
    let rate = bench.saturate_down(Duration::from_millis(250));
    assert!(rate > 0.8 * 20.0, "{rate}\n{}", bench.report());
}

/// The device needs half a second to find out that the better one is silent, and to say what it wishes instead.
#[test]
fn what_is_held_back_carries_what_it_can_when_nothing_better_works() {
    const STANDS_BY: (PathStatus, Option<BitRate>) = (PathStatus::Backup, Some(BitRate(768_000)));
    const SLOWER: (PathStatus, Option<BitRate>) = (PathStatus::Active, Some(BitRate(768_000)));
    for (status, limit) in [STANDS_BY, SLOWER] {
        let mut bench = Bench::new(&[LinkSpec::new(20.0, 25), LinkSpec::new(20.0, 25)]);
        bench.connect();
        bench.run(Duration::from_millis(500));
        bench.device.set_path_status(bench.device_session, NetworkId(2), status, 0);
        bench.device.set_path_limit(bench.device_session, NetworkId(2), limit);
        let rate = bench.saturate_down(Duration::from_secs(5));
        assert!(rate < 21.5, "{status:?}: {rate}\n{}", bench.report());
        bench.set_alive(0, false);
        bench.saturate_down(Duration::from_millis(600));
        let rate = bench.saturate_down(Duration::from_millis(500));
        assert!(rate > 0.8 * 20.0, "{status:?}: {rate}\n{}", bench.report());
        // Who says nothing new for long means it.
        bench.saturate_down(Duration::from_secs(2));
        let rate = bench.saturate_down(Duration::from_secs(1));
        assert!(rate < 1.0, "{status:?}: {rate}\n{}", bench.report());
        bench.set_alive(0, true);
        bench.saturate_down(Duration::from_secs(2));
        let rate = bench.saturate_down(Duration::from_secs(1));
        assert!((15.0..21.5).contains(&rate), "{status:?}: {rate}\n{}", bench.report());
    }
}

/// Both good ones have a limit as well, for the sake of others.
#[test]
fn the_one_with_the_lowest_limit_takes_over_from_one_with_a_higher_one() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 25), LinkSpec::new(20.0, 25)]);
    bench.connect();
    bench.run(Duration::from_millis(500));
    let limit = |bench: &mut Bench, number, limit| {
        bench.device.set_inward_limit(bench.device_session, NetworkId(number), Some(BitRate(limit)));
    };
    limit(&mut bench, 1, 10_000_000);
    limit(&mut bench, 2, 250_000);
    bench.saturate_down(Duration::from_secs(3));
    let rate = bench.saturate_down(Duration::from_secs(2));
    assert!((8.5..11.0).contains(&rate), "{rate}\n{}", bench.report());
    bench.set_alive(0, false);
    // The device does not know yet, but hears that the second is better than it thought.
    for (after, more) in [(250, 500_000), (250, 1_000_000)] {
        bench.saturate_down(Duration::from_millis(after));
        limit(&mut bench, 2, more);
    }
    bench.saturate_down(Duration::from_millis(200));
    let rate = bench.saturate_down(Duration::from_millis(400));
    assert!(rate > 0.8 * 20.0, "{rate}\n{}", bench.report());
    bench.saturate_down(Duration::from_millis(100));
    // It knows by now, and wishes it all the same.
    bench.device.set_path_limit(bench.device_session, NetworkId(2), Some(BitRate(2_000_000)));
    bench.saturate_down(Duration::from_millis(300));
    let rate = bench.saturate_down(Duration::from_millis(500));
    assert!(rate < 2.2, "{rate}\n{}", bench.report());
}

#[test]
fn a_limit_for_what_comes_does_not_hold_for_what_goes() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(500));
    bench.device.set_inward_limit(bench.device_session, NetworkId(1), Some(BitRate(2_000_000)));
    bench.saturate_down(Duration::from_millis(500));
    let rate = bench.saturate_down(Duration::from_secs(2));
    assert!((1.7..2.1).contains(&rate), "{rate}\n{}", bench.report());
    let before = bench.received_up.len();
    for index in 0..2_000 {
        bench.send_up(index, 1_200);
        bench.run(Duration::from_millis(1));
    }
    let mbps = (bench.received_up.len() - before) as f64 * 1_200.0 * 8.0 / 2e6;
    assert!(mbps > 8.0, "{mbps}\n{}", bench.report());
}

#[test]
fn no_more_goes_over_a_path_than_the_device_allows() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(500));
    let limit = |bench: &mut Bench, limit| {
        bench.device.set_path_limit(bench.device_session, NetworkId(2), limit);
        bench.run(Duration::from_millis(100));
    };
    limit(&mut bench, Some(BitRate(1_000_000)));
    let rate = bench.saturate_down(Duration::from_secs(3));
    assert!((0.85 * 20.0..21.5).contains(&rate), "{rate}\n{}", bench.report());
    limit(&mut bench, Some(BitRate(4_000_000)));
    let rate = bench.saturate_down(Duration::from_secs(3));
    assert!((0.9 * 24.0..24.5).contains(&rate), "{rate}\n{}", bench.report());
    limit(&mut bench, None);
    bench.saturate_down(Duration::from_secs(2));
    let rate = bench.saturate_down(Duration::from_secs(2));
    assert!(rate > 0.85 * 40.0, "{rate}\n{}", bench.report());
}

/// Only where no path works is the queue given up: the owner then tells programs that there is no way.
#[test]
fn what_waits_for_long_behind_a_slow_path_is_not_told_as_hopeless() {
    let expired = |bench: &Bench| {
        bench
            .device_events
            .iter()
            .any(|event| matches!(event, EndpointEvent::Session { event: SessionEvent::QueueExpired, .. }))
    };
    let wait_long = |bench: &mut Bench| {
        for index in 0..60 {
            bench.send_up(index, 1_200);
        }
        bench.run(Duration::from_secs(15));
    };
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(500));
    bench.device.set_path_limit(bench.device_session, NetworkId(1), Some(BitRate(8_000)));
    wait_long(&mut bench);
    assert!((1..40).contains(&bench.received_up.len()), "{} have arrived", bench.received_up.len());
    assert!(!expired(&bench));
    bench.set_alive(0, false);
    wait_long(&mut bench);
    assert!(expired(&bench));
}

#[test]
fn packets_that_a_path_cannot_carry_whole_are_split() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10).mtu(1_300)]);
    bench.connect();
    bench.run(Duration::from_secs(4));
    let report = &bench.device.path_reports(bench.device_session)[0];
    assert!((1_270..=1_300).contains(&report.mtu), "{}", report.mtu);
    let rate = bench.saturate_down(Duration::from_secs(2));
    assert!(rate > 0.75 * 20.0, "{rate}\n{}", bench.report());
    assert_eq!(bench.missing_down(), 0);
    assert!(bench.received_down.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
}

#[test]
fn marks_are_reported_and_slow_the_path_down() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10).ecn(OnTheWay::SomeMarked)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.saturate_down(Duration::from_secs(1));
    let report = &bench.gateway.path_reports(bench.gateway_session.unwrap())[0];
    assert!(report.counters.ce_marks > 100, "{}", bench.report());
}

/// Hardly less gets through than without in the first five seconds, in which it is found out, and who receives is told.
#[test]
fn marks_that_are_not_true_do_not_count() {
    let carried = |ecn: OnTheWay, congestion: Algorithm| {
        let config = SessionConfig { congestion, ..SessionConfig::default() };
        let mut bench = Bench::with(&[LinkSpec::new(20.0, 25).ecn(ecn)], config);
        bench.connect();
        bench.run(Duration::from_millis(300));
        bench.saturate_down(Duration::from_secs(5));
        let told = bench.device_events.iter().filter_map(|event| match event {
            EndpointEvent::Session { event: SessionEvent::Ecn(_, trouble), .. } => Some(*trouble),
            _ => None,
        });
        (bench.received_down.len() as f64, told.collect::<Vec<EcnTrouble>>())
    };
    let all = [Algorithm::Model, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia, Algorithm::Balia];
    for congestion in all {
        let (kept, told) = carried(OnTheWay::Kept, congestion);
        assert_eq!(told, []);
        for (ecn, trouble) in
            [(OnTheWay::AllMarked, EcnTrouble::AlwaysMarked), (OnTheWay::Cleared, EcnTrouble::Cleared)]
        {
            let (carried, told) = carried(ecn, congestion);
            println!("{congestion:?} {ecn:?}: {:.3} of what is carried otherwise", carried / kept);
            assert_eq!(told, [trouble], "{congestion:?}");
            assert!(carried > 0.8 * kept, "{congestion:?} {ecn:?}: {carried} of {kept}");
        }
    }
}

/// `[MULTIAP] section 5.2` on our own paths: the receiver's marks move the sender to the other path.
#[test]
fn marks_of_the_receiver_steer_the_sender() {
    let sent_on_second = |congestion: Algorithm, marks: f64| {
        let config = SessionConfig { congestion, ..SessionConfig::default() };
        let mut bench = Bench::with(&[LinkSpec::new(20.0, 25), LinkSpec::new(20.0, 25)], config);
        bench.connect();
        bench.run(Duration::from_millis(500));
        bench.device.set_path_marks(bench.device_session, NetworkId(2), MarkShare::new(marks));
        bench.saturate_down(Duration::from_secs(5));
        let reports = bench.gateway.path_reports(bench.gateway_session.unwrap());
        let own = bench.device.path_reports(bench.device_session);
        let own_marks: u64 = own.iter().map(|report| report.counters.own_marks).sum();
        let second = reports.iter().find(|report| report.path == own[1].path).unwrap().counters;
        assert_eq!(own_marks > 0, marks > 0.0, "{}", bench.report());
        assert!(second.ce_marks <= own_marks && second.ce_marks + 20 > own_marks, "{}", bench.report());
        second.sent_bytes as f64
    };
    for congestion in [Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia, Algorithm::Balia] {
        let (without, with) = (sent_on_second(congestion, 0.0), sent_on_second(congestion, 0.05));
        assert!(with < 0.4 * without, "{congestion:?}: {with} of {without} bytes");
    }
}

#[test]
fn every_scheduler_and_controller_carries_everything() {
    for scheduler in
        [Scheduler::EarliestArrival, Scheduler::MinimumRtt, Scheduler::InverseRtt, Scheduler::Duplicated]
    {
        for congestion in Algorithm::ALL {
            let config = SessionConfig { scheduler, congestion, ..SessionConfig::default() };
            let specs = [LinkSpec::new(20.0, 10), LinkSpec::new(10.0, 20).loss(0.002)];
            let mut bench = Bench::with(&specs, config);
            bench.connect();
            bench.run(Duration::from_millis(300));
            let rate = bench.saturate_down(Duration::from_secs(3));
            // CUBIC and its like halve on random loss, and duplicates fill the smaller path.
            let least = if scheduler == Scheduler::Duplicated { 5.0 } else { 10.0 };
            assert!(rate > least, "{scheduler:?} {congestion:?}: {rate}\n{}", bench.report());
            assert_eq!(bench.missing_down(), 0, "{scheduler:?} {congestion:?}\n{}", bench.report());
        }
    }
}

#[test]
fn protected_flows_are_repaired_without_a_repeat() {
    let config = SessionConfig { treatment: Treatment::Protected, ..SessionConfig::default() };
    let mut bench = Bench::with(&[LinkSpec::new(20.0, 50).loss(0.01)], config);
    bench.connect();
    bench.run(Duration::from_millis(500));
    bench.saturate_down(Duration::from_secs(4));
    let missing = bench.missing_down();
    // The overshoot of start-up may take all repeats of a few: one in a thousand.
    assert!(missing <= 6, "{missing}\n{}", bench.report());
    let counters = bench.device.session_counters(bench.device_session).unwrap();
    assert!(counters.repaired > 20, "{counters:?}");
}

#[test]
fn duplicated_flows_lose_nothing_to_one_bad_path() {
    let config = SessionConfig { treatment: Treatment::Duplicated, ..SessionConfig::default() };
    let mut bench = Bench::with(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 10).loss(0.3)], config);
    bench.connect();
    bench.run(Duration::from_secs(1));
    for index in 0..300u16 {
        bench.send_down(index, 160);
        bench.run(Duration::from_millis(20));
    }
    bench.run(Duration::from_secs(1));
    assert_eq!(bench.received_down.len(), 300);
    let counters = bench.device.session_counters(bench.device_session).unwrap();
    assert!(counters.duplicates > 150, "{counters:?}");
}

#[test]
fn the_peer_is_told_of_a_network_that_vanished() {
    let mut bench = Bench::new(&[LinkSpec::new(40.0, 10), LinkSpec::new(20.0, 25)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    bench.saturate_down(Duration::from_secs(2));
    bench.unplug(0);
    bench.device.network_down(bench.now, NetworkId(1));
    let duplicates = |bench: &Bench| bench.device.session_counters(bench.device_session).unwrap().duplicates;
    let before = duplicates(&bench);
    bench.saturate_down(Duration::from_secs(1));
    // One way to the gateway and one way back by the other path, and what the queue there adds.
    assert!(bench.longest_gap_down < Duration::from_millis(62), "{:?}", bench.longest_gap_down);
    assert_eq!(bench.missing_down(), 0, "{}", bench.report());
    // What had arrived was said, although its acknowledgements had vanished: nothing else is sent twice.
    assert_eq!(duplicates(&bench) - before, 0, "{}", bench.report());
    bench.set_alive(0, true);
    bench.device.network_up(bench.now, NetworkId(1));
    bench.run(Duration::from_millis(500));
    let rate = bench.saturate_down(Duration::from_secs(3));
    assert!(rate > 0.8 * 60.0, "{rate}\n{}", bench.report());
}

/// After longer than the interval of signs of life, too.
#[test]
fn a_network_that_is_gone_or_silent_costs_next_to_no_packets_and_no_wakeups() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    let network = NetworkId(2);
    let sent = |bench: &Bench| {
        let reports = bench.device.path_reports(bench.device_session);
        reports.into_iter().find(|report| report.network == network).unwrap().counters.sent_packets
    };
    bench.unplug(1);
    bench.device.network_down(bench.now, network);
    bench.run(Duration::from_secs(60));
    let (steps, before) = (bench.steps, sent(&bench));
    bench.run(Duration::from_secs(60));
    // The gateway asks twice a second, and every 20 s there is a sign of life by the other one.
    assert!(bench.steps - steps < 150, "{} times in a minute", bench.steps - steps);
    assert_eq!(sent(&bench), before);

    let asked_with_data = |bench: &mut Bench, time: Duration| {
        let (before, end) = (sent(bench), bench.now + time);
        while bench.now < end {
            bench.send_up(0, 500);
            bench.run(Duration::from_millis(50));
        }
        sent(bench) - before
    };
    // It is there again, but nobody answers its challenge.
    bench.device.network_up(bench.now, network);
    let asked = asked_with_data(&mut bench, Duration::from_secs(5));
    assert!((3..=12).contains(&asked), "{asked} packets in 5 s");
    // It works, and then nothing comes by it any more.
    bench.set_alive(1, true);
    bench.device.network_up(bench.now, network);
    bench.run(Duration::from_secs(1));
    bench.set_alive(1, false);
    asked_with_data(&mut bench, Duration::from_secs(25));
    let asked = asked_with_data(&mut bench, Duration::from_secs(5));
    assert!((3..=12).contains(&asked), "{asked} packets in 5 s");
}

#[test]
fn small_sparse_packets_go_twice_where_packets_are_lost() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10).loss(0.02), LinkSpec::new(20.0, 12).loss(0.02)]);
    bench.connect();
    bench.run(Duration::from_millis(500));
    bench.saturate_down(Duration::from_secs(2));
    let before = bench.device.session_counters(bench.device_session).unwrap().duplicates;
    bench.run(Duration::from_secs(3));
    for index in 0..20u16 {
        bench.send_down(index, 100);
        bench.run(Duration::from_millis(200));
    }
    let after = bench.device.session_counters(bench.device_session).unwrap().duplicates;
    assert!(after - before >= 15, "{before} {after}");
}

#[test]
fn a_path_that_stands_by_is_measured_when_asked_for_and_only_while_data_flows() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10), LinkSpec::new(20.0, 10)]);
    bench.connect();
    let session = bench.device_session;
    let other = NetworkId(2);
    bench.device.set_path_status(session, other, PathStatus::Backup, 0);
    bench.run(Duration::from_millis(500));
    bench.delay_down(1, Duration::from_millis(100));
    let measured = |bench: &Bench| {
        let reports = bench.device.path_reports(session);
        let report = reports.into_iter().find(|report| report.network == other).unwrap();
        (report.smoothed_rtt.unwrap(), report.counters.sent_packets)
    };
    bench.run(Duration::from_secs(2));
    let (before, sent) = measured(&bench);
    bench.device.probe_path(bench.now, session, other);
    bench.run(Duration::from_millis(500));
    assert_eq!(measured(&bench), (before, sent), "nobody sends anything: nothing is asked");
    for step in 0..200 {
        bench.send_up(step, 500);
        if step % 10 == 0 {
            bench.device.probe_path(bench.now, session, other);
        }
        bench.run(Duration::from_millis(25));
    }
    let (after, asked) = measured(&bench);
    assert!(after > before + Duration::from_millis(80), "{before:?}, then {after:?}");
    assert!(asked - sent <= 30, "{} packets for 20 probes", asked - sent);
}

/// A link in a deep fade carries a packet now and then, so that its path is never silent.
#[test]
fn what_waits_on_a_path_that_only_trickles_goes_over_one_that_stands_by() {
    // An access point keeps what it cannot send.
    let in_a_fade = LinkSpec::new(20.0, 10).queue(Duration::from_secs(5));
    let mut bench = Bench::new(&[in_a_fade, LinkSpec::new(10.0, 15)]);
    bench.connect();
    bench.saturate_down(Duration::from_secs(1));
    bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Backup, 0);
    bench.run(Duration::from_millis(500));
    bench.saturate_down(Duration::from_secs(1));
    bench.set_rate(0, 0.3);
    bench.saturate_down(Duration::from_millis(600));
    let rate = bench.saturate_down(Duration::from_millis(600));
    assert!(rate > 6.0, "{rate}\n{}", bench.report());
    assert!(bench.trickles(0));
    // It is asked again and again, and used as soon as it answers as it used to.
    bench.set_rate(0, 20.0);
    // What is queued there has its times.
    bench.saturate_down(Duration::from_secs(3));
    let rate = bench.saturate_down(Duration::from_secs(1));
    assert!(rate > 15.0, "{rate}\n{}", bench.report());
    assert!(!bench.trickles(0));
    assert_eq!(bench.missing_down(), 0);
}

/// Little is better than nothing: whether the other one falls silent or is not to be used any more.
#[test]
fn a_path_that_only_trickles_is_used_where_there_is_no_other() {
    for is_silent in [true, false] {
        // An access point keeps what it cannot send.
        let in_a_fade = LinkSpec::new(20.0, 10).queue(Duration::from_secs(5));
        let mut bench = Bench::new(&[in_a_fade, LinkSpec::new(10.0, 15)]);
        bench.connect();
        bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Backup, 0);
        bench.run(Duration::from_millis(500));
        bench.saturate_down(Duration::from_secs(1));
        bench.set_rate(0, 0.3);
        bench.saturate_down(Duration::from_millis(600));
        if is_silent {
            bench.set_alive(1, false);
        } else {
            bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Off, 0);
        }
        bench.saturate_down(Duration::from_secs(3));
        let rate = bench.saturate_down(Duration::from_secs(2));
        assert!(rate > 0.2, "silent: {is_silent}, {rate}\n{}", bench.report());
    }
}

/// How late answers came in a fade says nothing of the time after it.
#[test]
fn a_path_that_comes_out_of_a_fade_takes_over_within_moments() {
    let mut bench =
        Bench::new(&[LinkSpec::new(20.0, 10).queue(Duration::from_secs(5)), LinkSpec::new(10.0, 15)]);
    bench.connect();
    bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Backup, 0);
    bench.run(Duration::from_millis(500));
    bench.saturate_down(Duration::from_secs(1));
    bench.set_rate(0, 0.3);
    bench.saturate_down(Duration::from_millis(500));
    bench.device.set_path_status(bench.device_session, NetworkId(1), PathStatus::Backup, 0);
    bench.device.set_path_status(bench.device_session, NetworkId(2), PathStatus::Active, 0);
    // What waits there arrives meanwhile.
    bench.saturate_down(Duration::from_secs(7));
    bench.set_rate(0, 20.0);
    bench.saturate_down(Duration::from_secs(2));
    bench.set_alive(1, false);
    bench.saturate_down(Duration::from_millis(400));
    let rate = bench.saturate_down(Duration::from_millis(400));
    assert!(rate > 12.0, "{rate}\n{}", bench.report());
}
