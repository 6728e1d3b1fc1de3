//! Two access points of a channel that are equally good, and fade each by itself.

use super::tests::view;
use super::*;

const STEP: Duration = Duration::from_millis(100);

/// What two need for a packet in turn, as if each faded: for half a second half as long again, then two thirds of 800 us.
fn faded(step: u32) -> [u64; 2] {
    if step % 10 < 5 { [1_200, 533] } else { [533, 1_200] }
}

struct World {
    steering: Steering,
    now: Timestamp,
    used: [bool; 2],
    steered: Vec<Steered>,
}

impl World {
    fn new() -> Self {
        let steering = Steering::new(SteeringSettings::default());
        Self { steering, now: Timestamp::ZERO, used: [true; 2], steered: Vec::new() }
    }

    /// A step in which they need so many us, and are heard so well; gives which of them are used.
    fn step(&mut self, micros: [u64; 2], signals_dbm: [Option<f32>; 2], delivered: f64) -> [bool; 2] {
        self.take(micros.map(Some), signals_dbm, delivered)
    }

    /// The same; `None` needs nothing, as nothing is sent.
    fn take(&mut self, micros: [Option<u64>; 2], signals_dbm: [Option<f32>; 2], delivered: f64) -> [bool; 2] {
        self.now += STEP;
        let busy = self.used.iter().filter(|used| **used).count().max(1) as f64;
        let views = [0, 1].map(|at| PointView {
            packet_time: micros[at].filter(|_| self.used[at]).map(Duration::from_micros),
            carried: micros[at].filter(|_| self.used[at]).map_or(0.0, |micros| 1e6 / busy / micros as f64),
            delivered: Some(delivered),
            signal_dbm: signals_dbm[at],
            ..view(at as u32, 0)
        });
        self.steered = self.steering.update(self.now, &views);
        self.used = [0, 1].map(|at| self.steered[at].used);
        self.used
    }

    /// The part of so many steps in which both are used.
    fn both(&mut self, steps: u32, mut step: impl FnMut(&mut Self, u32) -> [bool; 2]) -> f64 {
        let both = (0..steps).filter(|at| step(self, *at) == [true; 2]).count();
        both as f64 / f64::from(steps)
    }
}

const ALIKE: [Option<f32>; 2] = [Some(-60.0), Some(-61.0)];

#[test]
fn both_carry_while_each_has_bad_moments() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
    let both = world.both(600, |world, at| world.step(faded(at), ALIKE, 0.9));
    assert!(both > 0.95, "{both}");
}

/// Where it is not known how well they are heard, as before: who seems slower stands by.
#[test]
fn a_bad_moment_counts_where_nothing_says_that_they_are_alike() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 800], [None; 2], 1.0));
    let both = world.both(600, |world, at| world.step(faded(at), [None; 2], 1.0));
    assert!(both < 0.8, "{both}");
}

#[test]
fn who_is_heard_worse_leaves_with_the_first_bad_moment_and_is_back_when_heard_as_well_again() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
    let worse = [Some(-60.0), Some(-68.0)];
    let steps = (1..20).find(|_| world.step([800, 1_400], worse, 1.0) == [true, false]);
    assert!(steps.is_some_and(|steps| steps <= 8), "{steps:?}");
    assert_eq!(world.both(30, |world, _| world.step([800, 1_400], worse, 1.0)), 0.0);
    let steps = (1..20).find(|_| world.step([800, 800], ALIKE, 1.0) == [true; 2]);
    assert!(steps.is_some_and(|steps| steps <= 8), "{steps:?}");
}

#[test]
fn who_is_slower_and_heard_as_well_stands_by_within_three_seconds_and_for_good() {
    // Of twice as long 1.5 s, and of 1.6 times 2.6 s: packet times are smoothed before.
    for (micros, tenths) in [(8_000, 1..=1), (2_400, 3..=5), (1_600, 14..=16), (1_280, 25..=28)] {
        let mut world = World::new();
        world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
        let steps = (1..50).find(|_| world.step([800, micros], ALIKE, 1.0) == [true, false]);
        assert!(steps.is_some_and(|steps| tenths.contains(&steps)), "{micros}: {steps:?}");
        let both = world.both(80, |world, _| world.step([800, micros], ALIKE, 1.0));
        assert_eq!(both, 0.0, "{micros}");
    }
}

#[test]
fn a_pause_in_a_bad_moment_is_not_held_against_one() {
    for tenths in [40, 150] {
        let mut world = World::new();
        world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
        assert_eq!(world.both(4, |world, _| world.step([800, 1_200], ALIKE, 1.0)), 1.0);
        world.both(tenths, |world, _| world.take([None; 2], ALIKE, 1.0));
        let both = world.both(200, |world, at| world.step(faded(at + 5), ALIKE, 1.0));
        assert!(both > 0.9, "{tenths}: {both}");
    }
}

/// How well it is heard goes up and down by more than it may, whoever is to blame: what is known of it is kept from one time to the next.
#[test]
fn signals_that_swing_do_not_let_a_slower_one_come_and_go_for_long() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
    // Without a limit, as a trial has.
    let carries = |world: &World| world.steered[1].used && world.steered[1].limit.is_none();
    let mut changes = 0;
    for step in 0..1_200 {
        let before = carries(&world);
        let swing = if step / 6 % 2 == 0 { -67.0 } else { -59.0 };
        world.step([800, 1_280], [Some(-60.0), Some(swing)], 1.0);
        changes += u32::from(step > 120 && carries(&world) != before);
    }
    assert_eq!(changes, 0, "after twelve seconds");
}

#[test]
fn bad_moments_are_not_marked_and_who_is_slower_is() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
    assert_eq!(world.both(8, |world, _| world.step([800, 1_280], ALIKE, 1.0)), 1.0);
    assert_eq!(world.steered[1].marks, MarkShare::NONE, "{:?}", world.steered[1]);
    assert!(world.both(40, |world, _| world.step([800, 1_280], ALIKE, 1.0)) < 1.0);
    assert_eq!(world.steered[1].marks, MOST_MARKS, "{:?}", world.steered[1]);
}

/// Somebody has moved, or something stands between: traffic has to be elsewhere within a second.
#[test]
fn an_abrupt_change_is_not_waited_for_nor_tried_again() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 800], ALIKE, 1.0));
    let steps = (1..20).find(|_| world.step([800, 4_000], ALIKE, 1.0) == [true, false]);
    assert_eq!(steps, Some(1));
    assert_eq!(world.both(80, |world, _| world.step([800, 4_000], ALIKE, 1.0)), 0.0);
}

/// Each waits for the other in vain: the better one carries more alone.
#[test]
fn who_disturbs_the_other_one_is_not_waited_for() {
    let mut world = World::new();
    // Both fail beside each other.
    let step = |world: &mut World, at: u32| {
        let apart = world.used != [true; 2];
        let micros = if apart { [800, 800] } else { faded(at).map(|micros| 3 * micros) };
        world.step(micros, ALIKE, if apart { 0.98 } else { 0.4 })
    };
    world.both(100, step);
    let both = world.both(1_200, step);
    assert!(both < 0.05, "{both}");
}

/// Something has come between: the other one, which was slow when it was last known, may be the better one now.
#[test]
fn when_the_best_one_falls_one_that_is_heard_as_well_is_let_loose_at_once() {
    for (signal, is_tried) in [(-61.0, true), (-70.0, false)] {
        let signals = [Some(-60.0), Some(signal)];
        let mut world = World::new();
        world.both(50, |world, _| world.step([800, 9_000], signals, 1.0));
        assert_eq!(world.used, [true, false], "{signal}");
        let both = world.both(30, |world, _| world.step([800, 9_000], signals, 1.0));
        assert_eq!(both, 0.0, "{signal}: nothing has changed");
        let steps =
            (1..30).find(|_| world.step([2_400, 800], signals, 0.6)[1] && world.steered[1].limit.is_none());
        assert_eq!(steps.is_some_and(|steps| steps <= 5), is_tried, "{signal}: {steps:?}");
    }
}

/// It was no better: it is asked more and more seldom, however often the best one falls and comes back.
#[test]
fn who_is_let_loose_in_vain_is_so_more_and_more_seldom() {
    let mut world = World::new();
    world.both(50, |world, _| world.step([800, 9_000], ALIKE, 1.0));
    let mut tried = |steps: u32| {
        world.both(steps, |world, at| {
            let best = if at / 20 % 2 == 0 { 2_400 } else { 800 };
            world.step([best, 9_000], ALIKE, 0.6)
        })
    };
    let (first, later) = (tried(300), tried(300));
    assert!(first < 0.25 && later < 0.1, "{first}, then {later}");
}
