//! The model on a simulated link.

use super::cubic::CubicController;
use super::model::ModelController;
use super::test_link::{DATAGRAM, Link, World};
use super::{AckSample, Controller, LossSample};
use std::time::Duration;
use units::{BitRate, PathId, Timestamp};

fn world(link: Link, seed: u64) -> World<ModelController> {
    World::new(ModelController::new(DATAGRAM, Timestamp::from_millis(1_000)), link, seed)
}

/// Asserts that `rate` is at least `part` of `mbps`.
fn at_least(rate: BitRate, part: f64, mbps: f64) {
    assert!(rate.as_mbps() >= part * mbps, "{rate} is less than {part} of {mbps} Mbit/s");
}

const fn seconds(value: u64) -> Duration {
    Duration::from_secs(value)
}

const fn millis(value: u64) -> Duration {
    Duration::from_millis(value)
}

#[test]
fn fills_a_link_within_fifteen_rounds() {
    for (mbps, delay) in [(2.0, 40), (20.0, 20), (40.0, 40), (50.0, 120), (20.0, 320), (200.0, 10)] {
        let mut world = world(Link::new(mbps, delay), 1);
        world.run(millis(delay) * 15);
        let rate = world.run(seconds(5));
        at_least(rate, 0.95, mbps);
        let estimate = world.controller.rate_estimate().unwrap().as_mbps();
        assert!((0.95..1.15).contains(&(estimate / mbps)), "{estimate} of {mbps} at {delay} ms");
        assert!(world.controller.settled());
    }
}

#[test]
fn keeps_the_queue_small() {
    for (mbps, delay) in [(20.0, 20), (40.0, 40), (50.0, 120), (20.0, 320)] {
        let mut world = world(Link::new(mbps, delay), 1);
        world.run(seconds(5));
        world.run(seconds(20));
        let (p99, mean) = (world.queue_p99(40_000), world.mean_queue(40_000));
        assert!(p99 < 16.0 + 0.05 * delay as f64, "{p99:.1} ms of queue at {mbps} Mbit/s, {delay} ms");
        assert!(mean < 6.0 + 0.01 * delay as f64, "mean {mean:.1} ms of queue at {mbps} Mbit/s, {delay} ms");
    }
}

#[test]
fn ignores_random_loss() {
    for (loss, part) in [(0.005, 0.95), (0.02, 0.92), (0.05, 0.85)] {
        let mut world = world(Link { loss, ..Link::new(40.0, 40) }, 2);
        world.run(seconds(3));
        at_least(world.run(seconds(10)), part, 40.0);
    }
}

#[test]
fn jitter_does_not_collapse_it() {
    // Jitter that keeps the order holds every packet back by nearly its maximum and looks like a queue.
    for (mbps, delay, jitter, reorders) in [
        (20.0, 40, 5, true),
        (20.0, 40, 20, true),
        (20.0, 40, 20, false),
        (40.0, 20, 20, false),
        (20.0, 20, 50, false),
        (40.0, 120, 50, false),
    ] {
        let link = Link { jitter: millis(jitter), reorders, ..Link::new(mbps, delay) };
        let mut world = world(link, 7);
        world.run(seconds(5));
        at_least(world.run(seconds(20)), 0.95, mbps);
        let p99 = world.queue_p99(20_000);
        assert!(p99 < 60.0, "{p99:.1} ms of queue at {mbps} Mbit/s with {jitter} ms jitter");
    }
}

#[test]
fn a_busy_receiver_on_a_short_way_does_not_hold_it_down() {
    for (mbps, every) in [(200.0, 1), (200.0, 4), (500.0, 4), (200.0, 8)] {
        let mut world = world(Link { buffer: 4_000_000, ..Link::new(mbps, 0) }, 11);
        // While little is sent the receiver has time.
        world.offered = Some(BitRate::from_mbps(1.0));
        world.run(seconds(3));
        world.link.looks_every = millis(every);
        world.offered = Some(BitRate::from_mbps(20.0));
        world.run(seconds(2));
        world.offered = None;
        world.run(seconds(1));
        let rate = world.run(seconds(3));
        at_least(rate, 0.9, mbps);
        let p99 = world.queue_p99(20_000);
        assert!(p99 < 10.0, "{p99:.1} ms of queue at {mbps} Mbit/s, looked at every {every} ms");
    }
}

#[test]
fn a_satellite_with_a_shallow_buffer_is_filled() {
    for loss in [0.0, 0.02] {
        let mut world = world(Link { loss, buffer: 62_500, ..Link::new(10.0, 600) }, 7);
        world.run(seconds(8));
        at_least(world.run(seconds(20)), 0.93, 10.0);
    }
}

#[test]
fn follows_a_tenfold_drop() {
    let mut world = world(Link { buffer: 4_000_000, ..Link::new(40.0, 40) }, 6);
    world.run(seconds(5));
    world.link.rate = BitRate::from_mbps(4.0);
    world.run(millis(400));
    let estimate = world.controller.rate_estimate().unwrap().as_mbps();
    assert!(estimate < 8.0, "still {estimate:.1} after ten base round-trip times");
    world.run(millis(600));
    at_least(world.run(seconds(3)), 0.9, 4.0);
    assert!(world.queue_p99(500) < 40.0, "{:.1} ms", world.queue_p99(500));
}

#[test]
fn follows_a_tenfold_rise() {
    let mut world = world(Link::new(4.0, 40), 7);
    world.run(seconds(5));
    world.link.rate = BitRate::from_mbps(40.0);
    world.run(millis(1_000));
    at_least(world.run(seconds(2)), 0.95, 40.0);
}

#[test]
fn alternating_rates_keep_three_quarters() {
    let mut world = world(Link { buffer: 500_000, ..Link::new(40.0, 40) }, 8);
    world.run(seconds(5));
    let before = world.delivered;
    for _ in 0..4 {
        world.link.rate = BitRate::from_mbps(4.0);
        world.run(seconds(5));
        world.link.rate = BitRate::from_mbps(40.0);
        world.run(seconds(5));
    }
    let share = (world.delivered - before) as f64 * 8.0 / (4.0 * 5.0 * 44e6);
    assert!(share > 0.85, "{share:.2} of what the link could carry");
}

#[test]
fn a_longer_way_is_not_taken_for_a_queue() {
    let mut world = world(Link::new(20.0, 20), 9);
    world.run(seconds(4));
    world.link.delay = millis(120);
    world.run(seconds(4));
    at_least(world.run(seconds(3)), 0.9, 20.0);
}

#[test]
fn a_shallow_buffer_is_not_flooded() {
    let mut world = world(Link { buffer: 10 * DATAGRAM, ..Link::new(20.0, 40) }, 10);
    world.run(seconds(4));
    at_least(world.run(seconds(10)), 0.85, 20.0);
}

#[test]
fn little_traffic_keeps_the_estimate() {
    let mut world = world(Link::new(20.0, 40), 11);
    world.run(seconds(4));
    world.offered = Some(BitRate::from_mbps(1.0));
    world.run(seconds(30));
    let estimate = world.controller.rate_estimate().unwrap();
    at_least(estimate, 0.9, 20.0);
}

#[test]
fn a_link_that_returns_is_used_at_once() {
    for mbps in [5.0, 40.0] {
        let mut world = world(Link::new(mbps, 40), 12);
        world.run(seconds(9));
        for _ in 0..3 {
            world.link.loss = 1.0;
            world.run(seconds(1));
            world.link.loss = 0.0;
            world.run(millis(500));
            at_least(world.run(millis(1_000)), 0.9, mbps);
            world.run(millis(7_500));
        }
    }
}

#[test]
fn heavy_loss_and_persistent_congestion_reduce() {
    let mut controller = settled_controller();
    let before = controller.window();
    let mut now = Timestamp::from_millis(5_000);
    for _ in 0..3 {
        now += millis(40);
        lose(&mut controller, now, 20 * DATAGRAM, false);
        acknowledge(&mut controller, now, 20.0);
    }
    assert!(controller.window() < before * 3 / 4, "{} of {before}", controller.window());

    let mut controller = settled_controller();
    let before = controller.rate_estimate().unwrap().0;
    lose(&mut controller, now, 20 * DATAGRAM, true);
    assert_eq!(controller.rate_estimate().unwrap().0, before / 2);
    for _ in 0..30 {
        lose(&mut controller, now, 20 * DATAGRAM, true);
    }
    assert_eq!(controller.window(), 4 * DATAGRAM, "four packets always remain");
    assert!(controller.pacing_rate().unwrap().0 > 0);
}

fn settled_controller() -> ModelController {
    let mut controller = ModelController::new(DATAGRAM, Timestamp::ZERO);
    for round in 1..40 {
        acknowledge(&mut controller, Timestamp::from_millis(round * 40), 20.0);
    }
    assert!(controller.settled());
    controller
}

fn acknowledge(controller: &mut ModelController, now: Timestamp, mbps: f64) {
    let sample = AckSample {
        now,
        acked_bytes: 80 * DATAGRAM,
        prior_in_flight: 80 * DATAGRAM,
        latest_rtt: millis(40),
        smoothed_rtt: millis(40),
        base_rtt: millis(40),
        delivery_rate: Some(BitRate::from_mbps(mbps)),
        application_limited: false,
        round_ended: true,
        ce_marks: 0,
        overshadowed: false,
        others_fade: false,
    };
    controller.on_ack(&sample, PathId(0), &[]);
}

fn lose(controller: &mut ModelController, now: Timestamp, lost_bytes: u64, persistent: bool) {
    controller.on_loss(&LossSample { now, lost_bytes, latest_sent: now, persistent }, PathId(0), &[]);
}

#[test]
fn a_path_that_was_held_back_is_filled_soon_once_it_is_freed() {
    let delivered = |is_told: bool| {
        let mut world = world(Link::new(2.0, 50), 1);
        world.run(seconds(5));
        world.link.rate = BitRate::from_mbps(20.0);
        world.offered = Some(BitRate::from_mbps(0.5));
        world.run(seconds(20));
        world.offered = None;
        if is_told {
            world.controller.freed(world.now, true);
        }
        world.run(millis(50) * 8)
    };
    let (untold, told) = (delivered(false), delivered(true));
    at_least(told, 0.5, 20.0);
    assert!(told.as_mbps() > 1.5 * untold.as_mbps(), "{told} and {untold}");
}

/// The packets of the path before it take their time at a station that has become slow, and are soon gone.
#[test]
fn a_path_that_is_freed_takes_over_when_the_packets_of_the_one_before_are_gone() {
    let delivered = |is_told: bool| {
        let mut world = world(Link::new(12.0, 50), 1);
        world.offered = Some(BitRate::from_mbps(0.5));
        world.run(seconds(20));
        world.offered = None;
        world.controller.freed(world.now, true);
        world.link.rate = BitRate::from_mbps(1.7);
        world.overshadowed = is_told;
        world.run(millis(800));
        world.link.rate = BitRate::from_mbps(12.0);
        world.overshadowed = false;
        // Its own queue of before, and a little.
        world.run(millis(250));
        world.run(millis(250))
    };
    let (untold, told) = (delivered(false), delivered(true));
    at_least(told, 0.7, 12.0);
    assert!(told.as_mbps() > 1.3 * untold.as_mbps(), "{told} and {untold}");
}

/// One that is slow itself has its queue for no longer than that.
#[test]
fn a_slow_path_that_is_freed_keeps_no_queue() {
    let mut world = world(Link::new(2.0, 50), 1);
    world.offered = Some(BitRate::from_mbps(0.5));
    world.run(seconds(20));
    world.offered = None;
    world.controller.freed(world.now, true);
    world.overshadowed = true;
    world.run(millis(800));
    world.overshadowed = false;
    world.run(seconds(2));
    world.queue_delays.clear();
    world.run(seconds(3));
    let mean = world.queue_delays.iter().sum::<f64>() / world.queue_delays.len() as f64;
    assert!(mean < 30.0, "{mean} ms");
}

/// What each of so many CUBIC flows gets beside it for 30 s, and how many times as much it has itself. `inherits`: it has just taken the place of a path
/// that fades.
fn beside_others(link: &Link, others: u64, seed: u64, inherits: bool) -> (f64, f64) {
    let mut ours = world(link.clone(), seed);
    ours.run(seconds(2));
    let mut plain: Vec<_> = (0..others)
        .map(|number| ours.beside(CubicController::new(DATAGRAM, ours.now), seed * 100 + number))
        .collect();
    let mut run = |ours: &mut World<ModelController>, time: Duration| {
        let end = ours.now + time;
        while ours.now < end {
            ours.step();
            plain.iter_mut().for_each(World::step);
        }
        (ours.delivered, plain.iter().map(|one| one.delivered).sum::<u64>())
    };
    let before = run(&mut ours, seconds(15));
    if inherits {
        ours.others_fade = true;
        ours.controller.freed(ours.now, true);
    }
    let after = run(&mut ours, seconds(30));
    let (mine, theirs) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64 / others as f64);
    (theirs * 8.0 / 30e6, mine / theirs)
}

#[test]
fn others_who_heed_losses_keep_theirs() {
    for (mbps, delay, queue_ms) in [(25.0, 20, 60.0), (25.0, 20, 20.0), (40.0, 30, 15.0)] {
        for others in [1, 4, 16] {
            let buffer = (mbps * 125.0 * queue_ms) as u64;
            let link = Link { buffer, jitter: Duration::from_micros(500), ..Link::new(mbps, delay) };
            let (each, times) = beside_others(&link, others, 1, false);
            let case = format!("{mbps} Mbit/s, {delay} ms, a queue of {queue_ms} ms, {others} others");
            assert!((0.25..3.0).contains(&times), "{case}: {times:.1} times the {each:.2} Mbit/s of each");
            let (_, times_then) = beside_others(&link, others, 1, true);
            assert!(
                times_then < 3.0,
                "{case}: {times_then:.1} times after a path that fades, {times:.1} else"
            );
        }
    }
}

#[test]
fn what_others_leave_is_taken_within_seconds() {
    let link = Link { buffer: 62_500, jitter: Duration::from_micros(500), ..Link::new(25.0, 20) };
    let mut ours = world(link, 1);
    ours.run(seconds(2));
    let mut plain: Vec<_> =
        (0..4).map(|number| ours.beside(CubicController::new(DATAGRAM, ours.now), number)).collect();
    let end = ours.now + seconds(20);
    while ours.now < end {
        ours.step();
        plain.iter_mut().for_each(World::step);
    }
    assert!(ours.controller.window() < 100_000, "nobody was given way to");
    ours.run(seconds(25));
    at_least(ours.run(seconds(5)), 0.95, 25.0);
}

/// A radio loses at any time, so beside a queue that comes and goes its losses are nobody's.
#[test]
fn losses_at_any_time_are_no_others() {
    let jitter = millis(10);
    let mut world = world(Link { loss: 0.01, jitter, buffer: 200_000, ..Link::new(25.0, 20) }, 4);
    world.run(seconds(3));
    at_least(world.run(seconds(30)), 0.9, 25.0);
}
