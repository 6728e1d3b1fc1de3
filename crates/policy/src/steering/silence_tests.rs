//! An access point that falls silent, and another one that takes over.

use super::tests::view;
use super::*;

/// Packets a second over two access points, and what is known of each.
struct World {
    steering: Steering,
    /// Milliseconds between updates, and until the last one.
    step: u64,
    now: u64,
    steered: Vec<Steered>,
}

impl World {
    /// The second one is five times slower, and only stands by.
    fn new() -> Self {
        Self::with(100)
    }

    fn with(step: u64) -> Self {
        let mut world = Self { steering: Steering::default(), step, now: 0, steered: Vec::new() };
        world.run(50, heard(0, 1_000, 900.0), heard(1, 5_000, 0.0));
        assert_eq!(world.used(), [true, false]);
        world
    }

    fn run(&mut self, steps: u64, first: PointView, second: PointView) {
        for _ in 0..steps {
            self.now += self.step;
            let now = Timestamp::from_millis(self.now);
            self.steered = self.steering.update(now, &[first, second]);
        }
    }

    fn used(&self) -> Vec<bool> {
        self.steered.iter().map(|one| one.used).collect()
    }

    fn best(&self) -> Option<u32> {
        let best = self.steered.iter().find(|one| one.reason == SteeringReason::Best);
        best.map(|one| one.network.0)
    }
}

fn heard(network: u32, micros: u64, carried: f64) -> PointView {
    PointView { carried, ..view(network, micros) }
}

fn unheard(network: u32) -> PointView {
    PointView { packet_time: None, confidence: 0.0, ..view(network, 0) }
}

#[test]
fn one_that_stood_by_and_brings_what_the_silent_one_brought_is_the_best_within_half_a_second() {
    let mut world = World::new();
    // As few as it may bring, and a frame of the other now and then.
    world.run(2, heard(0, 1_000, 10.0), heard(1, 5_000, 10.0));
    assert_eq!(world.best(), Some(0));
    world.run(3, unheard(0), heard(1, 5_000, 10.0));
    assert_eq!(world.best(), Some(1));
    assert_eq!((world.used()[1], world.steered[1].limit), (true, None));
    // The other one may show at once that it is back, ...
    assert!(matches!(world.steered[0].reason, SteeringReason::Unknown), "{:?}", world.steered[0]);
    world.run(8, heard(0, 1_000, 10.0), heard(1, 5_000, 100.0));
    assert_eq!(world.best(), Some(0));
}

/// Where the kernel keeps the card it is looked less often.
#[test]
fn it_is_seen_at_other_steps_of_time_too() {
    for (step, most) in [(200, 2), (500, 1)] {
        // It may have begun just after a look, or just before.
        for last in [900.0, 100.0] {
            let mut world = World::with(step);
            world.run(1, heard(0, 1_000, last), heard(1, 5_000, if last < 900.0 { 20.0 } else { 0.0 }));
            assert_eq!(world.best(), Some(0));
            world.run(most, unheard(0), heard(1, 5_000, 40.0));
            assert_eq!(world.best(), Some(1), "{step} ms, {last}");
        }
        let mut world = World::with(step);
        for _ in 0..5 {
            world.run(1, unheard(0), heard(1, 5_000, if step < 500 { 5.0 } else { 4.0 }));
            world.run(1, unheard(0), heard(1, 5_000, 0.0));
        }
        assert_eq!(world.best(), Some(0), "{step} ms, signs of life");
    }
}

#[test]
fn frames_from_before_the_silence_are_no_sign_that_it_is_over() {
    let mut world = World::new();
    for _ in 0..8 {
        // The window of the estimate still holds some.
        world.run(1, heard(0, 1_000, 0.0), heard(1, 5_000, 30.0));
    }
    assert_eq!(world.best(), Some(1));
}

#[test]
fn silence_says_nothing_where_nothing_is_sent() {
    let mut world = World::new();
    world.run(60, unheard(0), heard(1, 5_000, 0.0));
    assert_eq!(world.best(), Some(0));
}

#[test]
fn a_sign_of_life_is_no_traffic() {
    let mut world = World::new();
    for _ in 0..20 {
        world.run(2, unheard(0), heard(1, 5_000, 0.0));
        world.run(2, unheard(0), heard(1, 5_000, 10.0));
    }
    assert_eq!(world.best(), Some(0));
}

/// Flows of somebody who does not ask, which ended over one access point and go on over the other.
#[test]
fn one_that_carried_before_has_taken_nothing_over() {
    let mut world = World::new();
    world.run(20, heard(0, 1_000, 800.0), heard(1, 5_000, 30.0));
    world.run(60, unheard(0), heard(1, 5_000, 30.0));
    assert_eq!(world.best(), Some(0));
}

#[test]
fn where_the_radio_is_away_in_between_silence_is_usual() {
    let away = |view| PointView { stays: false, ..view };
    let mut world = World::new();
    world.run(20, away(heard(0, 1_000, 900.0)), away(heard(1, 5_000, 0.0)));
    world.run(8, away(unheard(0)), away(heard(1, 5_000, 30.0)));
    assert_eq!(world.best(), Some(0));
}

/// Who walked out of its reach and hears one answer by chance does not go back to what was good there.
#[test]
fn one_that_is_heard_worse_when_something_answers_again_begins_anew() {
    let at = |signal, view| PointView { signal_dbm: Some(signal), ..view };
    let other = at(-75.0, heard(1, 5_000, 180.0));
    let after = |signal: f32| {
        let mut world = World::new();
        world.run(10, at(-60.0, heard(0, 1_000, 900.0)), at(-75.0, heard(1, 5_000, 0.0)));
        world.run(20, at(signal, PointView { reaches: false, ..unheard(0) }), other);
        assert_eq!((world.best(), world.steered[0].reason), (Some(1), SteeringReason::Dead));
        world.run(1, at(signal, unheard(0)), other);
        world
    };
    // Its router stood still.
    assert_eq!(after(-62.0).best(), Some(0));
    let world = after(-78.0);
    assert_eq!((world.best(), world.steered[0].used), (Some(1), true), "it is tried at once");
    let tried = world.steered[0].limit;
    assert!(tried.is_some_and(|limit| limit <= BitRate(120_000)), "{tried:?}");
}

/// What it sends to others is heard all the time.
#[test]
fn one_that_only_leads_nowhere_for_a_while_is_known_as_before() {
    let mut world = World::new();
    let cut_off = PointView { reaches: false, ..heard(0, 1_000, 0.0) };
    world.run(20, cut_off, heard(1, 5_000, 180.0));
    assert_eq!(world.best(), Some(1));
    world.run(1, heard(0, 1_000, 0.0), heard(1, 5_000, 180.0));
    assert_eq!(world.best(), Some(0));
}
