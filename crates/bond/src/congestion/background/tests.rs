use super::*;
use crate::congestion::samples::{ack, loss};
use crate::congestion::test_link::{DATAGRAM, Link, World};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn world(link: Link) -> World<BackgroundController> {
    World::new(BackgroundController::new(DATAGRAM, Timestamp::from_millis(1_000)), link, 1)
}

/// By hand: 2 * 60 / 50 = 2.4, so a third; 2 * 60 / 200 is below one; 2 * 60 / 5 = 24, of which 16 count.
#[test]
fn gain_by_hand() {
    assert_eq!(gain(ms(60), ms(50)), 1.0 / 3.0);
    assert_eq!(gain(ms(60), ms(200)), 1.0);
    assert_eq!(gain(ms(60), ms(5)), 1.0 / 16.0);
    assert_eq!(gain(ms(60), Duration::ZERO), 1.0 / 16.0);
}

/// By hand: a tenth over the target costs a twentieth, as much again or more a half.
#[test]
fn decrease_by_hand() {
    assert!((decrease(ms(66), ms(60)) - 0.95).abs() < 1e-9);
    assert_eq!(decrease(ms(120), ms(60)), 0.5);
    assert_eq!(decrease(ms(600), ms(60)), 0.5);
}

#[test]
fn one_reduction_in_a_round_trip() {
    let at = Timestamp::from_millis;
    let mut controller = BackgroundController::new(1_000, Timestamp::ZERO);
    controller.window = 16.0;
    controller.phase = Phase::Steady;
    controller.on_loss(&loss(at(100), at(50)), PathId(0), &[]);
    assert_eq!(controller.window(), 8_000);
    controller.on_loss(&loss(at(110), at(90)), PathId(0), &[]);
    assert_eq!(controller.window(), 8_000, "sent before the reduction");
    let marked = |millis| AckSample { now: at(millis), ce_marks: 1, prior_in_flight: 0, ..ack(1_000) };
    controller.on_ack(&marked(130), PathId(0), &[]);
    assert_eq!(controller.window(), 8_000, "30 ms later, of a round trip of 40");
    controller.on_ack(&marked(140), PathId(0), &[]);
    assert_eq!(controller.window(), 4_000);
    controller.on_loss(&loss(at(800), at(790)), PathId(0), &[]);
    assert_eq!(controller.window(), 1_000, "the second loss in ten seconds");
    let acked = |millis| AckSample { now: at(millis), ..ack(1_000) };
    controller.on_ack(&acked(3_700), PathId(0), &[]);
    assert!(matches!(controller.phase, Phase::Yielding { .. }));
    controller.on_ack(&acked(3_800), PathId(0), &[]);
    assert!(matches!(controller.phase, Phase::Steady));
    controller.on_loss(&LossSample { persistent: true, ..loss(at(3_900), at(3_890)) }, PathId(0), &[]);
    assert_eq!(controller.window(), 1_000);
    assert!(controller.pacing_rate().unwrap() >= BitRate(5_000), "some pace is left");
}

#[test]
fn what_nobody_else_uses_it_fills_with_little_queue() {
    for (mbps, delay) in [(0.4, 100), (0.8, 50), (1.2, 150), (8.0, 30), (40.0, 10), (100.0, 60)] {
        let mut world = world(Link::new(mbps, delay));
        world.run(Duration::from_secs(5));
        let packets = world.queue_delays.len();
        let rate = world.run(Duration::from_secs(60)).as_mbps();
        let queue = world.queue_p99(world.queue_delays.len() - packets);
        // One and a half packets' time or 25 ms, the packet itself, and one that a round trip may overshoot.
        let packet = DATAGRAM as f64 * 8e-3 / mbps;
        let most = (1.5 * packet).clamp(25.0, 60.0) + 2.0 * packet + 3.0;
        assert!(rate >= 0.95 * mbps, "{rate:.3} of {mbps}, {delay} ms");
        assert!(queue <= most, "{queue:.1} ms of {most:.1}, {mbps} Mbit/s, {delay} ms");
    }
}

#[test]
fn it_gives_way_to_a_queue_of_others_and_comes_back() {
    for mbps in [0.4, 1.2, 8.0, 40.0] {
        let own = Link::new(mbps, 60);
        let mut world = world(own.clone());
        world.run(Duration::from_secs(30));
        // The queue of others is a delay.
        world.link.delay = own.delay + ms(200);
        world.run(Duration::from_secs(4));
        let left = world.run(Duration::from_secs(60)).as_mbps();
        assert!(left <= (0.022 * mbps).max(0.0075), "{left:.3} of {mbps}");
        assert!(left >= 0.006, "{left:.4}: a packet in 1.5 s stays");
        world.link.delay = own.delay;
        world.run(Duration::from_secs(4));
        let regained = world.run(Duration::from_secs(2)).as_mbps();
        assert!(regained >= 0.9 * mbps, "{regained:.3} of {mbps}");
    }
}

#[test]
fn the_base_is_forgotten_after_twenty_minutes_at_most() {
    let mut world = world(Link::new(1.2, 60));
    world.run(Duration::from_secs(20));
    world.link.delay = ms(260);
    world.run(Duration::from_secs(9 * 60));
    assert!(world.run(Duration::from_secs(20)).as_mbps() < 0.05, "a queue may last for so long");
    world.run(Duration::from_secs(11 * 60));
    assert!(world.run(Duration::from_secs(20)).as_mbps() > 1.1, "it was another way after all");
}

/// A small packet passes a slow link in less than the base of full ones; one that lacks a few bytes is full.
#[test]
fn only_full_packets_tell_of_the_queue() {
    let at = |millis, acked_bytes, rtt| AckSample {
        now: Timestamp::from_millis(millis),
        latest_rtt: ms(rtt),
        ..ack(acked_bytes)
    };
    let mut controller = BackgroundController::new(1_000, Timestamp::ZERO);
    controller.on_ack(&at(100, 1_000, 130), PathId(0), &[]);
    controller.on_ack(&at(150, 1_000, 130), PathId(0), &[]);
    controller.on_ack(&at(200, 100, 100), PathId(0), &[]);
    controller.on_ack(&at(250, 100, 100), PathId(0), &[]);
    assert_eq!(controller.base.get(), Some(ms(130)));
    controller.on_ack(&at(300, 990, 120), PathId(0), &[]);
    assert_eq!(controller.base.get(), Some(ms(130)), "one sample may be wrong");
    controller.on_ack(&at(400, 990, 119), PathId(0), &[]);
    assert_eq!(controller.base.get(), Some(ms(120)));
}

#[test]
fn what_an_empty_path_is_like_outlives_a_silence() {
    let mut world = world(Link::new(1.2, 60));
    world.run(Duration::from_secs(20));
    let renewed = world.controller.renewed(world.now);
    assert_eq!(renewed.window(), 2 * DATAGRAM);
    assert_eq!(
        (renewed.base.get(), renewed.target()),
        (world.controller.base.get(), world.controller.target())
    );
    assert!(renewed.base.get().is_some());
}

/// By hand: of four seconds a slow start takes three round trips, and nothing else is lost.
#[test]
fn a_path_that_was_silent_is_filled_soon_and_not_beyond() {
    for (mbps, delay) in [(0.8, 150), (1.2, 50), (8.0, 30)] {
        let mut world = world(Link::new(mbps, delay));
        world.run(Duration::from_secs(20));
        world.offered = Some(BitRate(1));
        world.run(Duration::from_secs(1));
        world.offered = None;
        world.controller = world.controller.renewed(world.now);
        let packets = world.queue_delays.len();
        let rate = world.run(Duration::from_secs(4)).as_mbps();
        let queue = world.queue_p99(world.queue_delays.len() - packets);
        assert!(rate >= 0.86 * mbps, "{rate:.3} of {mbps}, {delay} ms");
        assert!(queue <= 40.0, "{queue:.1} ms, {mbps} Mbit/s, {delay} ms");
    }
}

/// A slowdown of two round trips in twenty seconds, and one more to fill the path again.
#[test]
fn slowdowns_cost_little_on_long_paths() {
    for (mbps, delay) in [(0.8, 150), (8.0, 150), (100.0, 60)] {
        let mut world = world(Link::new(mbps, delay));
        world.run(Duration::from_secs(10));
        let rate = world.run(Duration::from_secs(120)).as_mbps();
        assert!(rate >= 0.975 * mbps, "{rate:.3} of {mbps}, {delay} ms");
    }
}

#[test]
fn a_slowdown_lets_the_queue_run_empty() {
    let mut world = world(Link::new(8.0, 40));
    world.run(Duration::from_secs(10));
    let (mut slowdowns, mut was_slow) = (0, false);
    for _ in 0..12_000 {
        world.run(ms(10));
        let is_slow = matches!(world.controller.phase, Phase::Slowdown { .. });
        slowdowns += u32::from(is_slow && !was_slow);
        was_slow = is_slow;
    }
    assert!((4..=6).contains(&slowdowns), "{slowdowns} in two minutes");
}

#[test]
fn little_traffic_does_not_grow_the_window() {
    let mut world = world(Link::new(40.0, 40));
    world.offered = Some(BitRate::from_mbps(1.0));
    world.run(Duration::from_secs(60));
    assert!(world.controller.window() < 40 * DATAGRAM, "{}", world.controller.window());
}

/// Whatever happens to the link, something can be sent and what is sent comes; the same seed gives the same run.
#[test]
fn it_never_starves_and_never_runs_away() {
    for seed in 0..40 {
        let run = || {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut link = Link::new(random.random_range(0.3..60.0), random.random_range(2..200));
            link.buffer = random.random_range(5_000..400_000);
            link.loss = if random.random_bool(0.3) { random.random_range(0.0..0.1) } else { 0.0 };
            link.jitter = ms(random.random_range(0..20));
            let mut world = world(link.clone());
            for _ in 0..12 {
                world.link.delay = link.delay + ms(random.random_range(0..400));
                world.link.rate = BitRate((link.rate.0 as f64 * random.random_range(0.2..1.0)) as u64);
                let before = world.delivered;
                world.run(Duration::from_secs(5));
                assert!(world.delivered >= before + DATAGRAM, "seed {seed}: nothing in five seconds");
                assert!(world.controller.window() >= DATAGRAM, "seed {seed}");
                assert!(world.controller.pacing_rate().is_none_or(|rate| rate.0 >= 1_000), "seed {seed}");
                let most = link.rate.bytes_in(link.delay + ms(900)).0 + link.buffer * 2 + 50 * DATAGRAM;
                assert!(world.controller.window() <= most, "seed {seed}: {}", world.controller.window());
            }
            world.delivered
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}
