//! Which adapters that nobody uses are switched off, where their owner allows it: the rest of what `[VCONN] 3.3` saves.
//!
//! ```text
//!       nobody uses it for the wait, and all connections have an adapter
//!   on ------------------------------------------------------------------> off
//!    ^                                                                      |
//!    +----------------------- returning <-----------------------------------+
//!       it is on                          something is wanted; the wait doubles where a connection has no adapter any more
//! ```
//!
//! Whoever switches one on in between has decided: it is left alone from then on.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;

/// How long nobody has to use an adapter before it is switched off, at first.
pub const UNUSED: Duration = Duration::from_secs(30);
/// The longest such wait: an adapter that is needed again and again stays on.
const LONGEST: Duration = Duration::from_secs(480);

/// An adapter that may be switched off, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdapterUse<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it is switched on.
    pub is_on: bool,
    /// Whether a connection uses it.
    pub in_use: bool,
}

/// How connections stand, all taken together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// There are some, and each has an adapter that carries it.
    Settled,
    /// There is none, so a peer may call by any adapter; or a call is under way.
    Open,
    /// A connection has no adapter any more.
    Stranded,
}

/// What is to be done with an adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Switching {
    /// Switch this one off.
    Off(String),
    /// Switch this one on again.
    On(String),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct UnusedAdapters {
    known: BTreeMap<String, (State, Duration)>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    On {
        unused: Option<Timestamp>,
    },
    /// By us; whether it has been seen off.
    Off {
        seen: bool,
    },
    /// It is to be on again, and was not seen so yet.
    Returning,
    LeftAlone,
}

impl UnusedAdapters {
    /// What is to be done now.
    pub fn evaluate(&mut self, now: Timestamp, adapters: &[AdapterUse<'_>], need: Need) -> Vec<Switching> {
        let (mut todo, settled) = (Vec::new(), need == Need::Settled);
        for adapter in adapters {
            let (state, wait) =
                self.known.entry(adapter.name.to_owned()).or_insert((State::On { unused: None }, UNUSED));
            *state = match *state {
                State::Off { seen: true } if adapter.is_on => State::LeftAlone,
                State::Off { .. } if !settled => {
                    if need == Need::Stranded {
                        *wait = (*wait * 2).min(LONGEST);
                    }
                    todo.push(Switching::On(adapter.name.to_owned()));
                    State::Returning
                }
                State::Off { seen } => State::Off { seen: seen || !adapter.is_on },
                State::Returning if adapter.is_on => State::On { unused: None },
                State::Returning => {
                    // The switch may not have been obeyed.
                    todo.extend((!settled).then(|| Switching::On(adapter.name.to_owned())));
                    State::Returning
                }
                State::On { .. } if !settled || adapter.in_use || !adapter.is_on => {
                    State::On { unused: None }
                }
                State::On { unused: Some(since) } if now.since(since) >= *wait => {
                    todo.push(Switching::Off(adapter.name.to_owned()));
                    State::Off { seen: false }
                }
                State::On { unused } => State::On { unused: unused.or(Some(now)) },
                State::LeftAlone => State::LeftAlone,
            };
        }
        todo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        unused: UnusedAdapters,
        now: Timestamp,
        is_on: bool,
        /// Switches that are not obeyed.
        deaf: u32,
    }

    impl Scene {
        fn new() -> Self {
            Self { unused: UnusedAdapters::default(), now: Timestamp::ZERO, is_on: true, deaf: 0 }
        }

        /// Seconds go by, each with an evaluation; what was done, and after how many.
        fn run(&mut self, seconds: u64, in_use: bool, need: Need) -> Vec<(u64, Switching)> {
            let mut done = Vec::new();
            for second in 1..=seconds {
                self.now += Duration::from_secs(1);
                let adapter = AdapterUse { name: "wlan0", is_on: self.is_on, in_use };
                for switching in self.unused.evaluate(self.now, &[adapter], need) {
                    match self.deaf.checked_sub(1) {
                        Some(left) => self.deaf = left,
                        None => self.is_on = matches!(switching, Switching::On(_)),
                    }
                    done.push((second, switching));
                }
            }
            done
        }
    }

    fn on(second: u64) -> (u64, Switching) {
        (second, Switching::On("wlan0".to_owned()))
    }

    fn off(second: u64) -> (u64, Switching) {
        (second, Switching::Off("wlan0".to_owned()))
    }

    #[test]
    fn an_adapter_that_nobody_uses_is_switched_off_and_on_again_when_a_connection_has_none() {
        let mut scene = Scene::new();
        assert_eq!(scene.run(100, true, Need::Settled), []);
        assert_eq!(scene.run(100, false, Need::Stranded), [], "a connection looks for an adapter");
        assert_eq!(scene.run(100, false, Need::Settled), [off(31)]);
        assert_eq!(scene.run(10, false, Need::Stranded), [on(1)]);
        assert_eq!(scene.run(100, false, Need::Settled), [off(61)], "it was needed: the wait has doubled");
    }

    #[test]
    fn who_may_call_by_it_brings_it_back_and_costs_no_longer_wait() {
        let mut scene = Scene::new();
        for _ in 0..5 {
            assert_eq!(scene.run(40, false, Need::Settled).len(), 1);
            assert_eq!(scene.run(40, false, Need::Open), [on(1)]);
        }
    }

    #[test]
    fn a_switch_that_is_not_obeyed_is_tried_again() {
        let mut scene = Scene::new();
        assert_eq!(scene.run(40, false, Need::Settled), [off(31)]);
        scene.deaf = 2;
        assert_eq!(scene.run(10, false, Need::Stranded), [on(1), on(2), on(3)]);
    }

    #[test]
    fn what_somebody_else_switches_is_theirs() {
        let mut scene = Scene::new();
        scene.run(40, false, Need::Settled);
        scene.is_on = true;
        assert_eq!(scene.run(1_000, false, Need::Settled), []);
        let mut scene = Scene::new();
        scene.is_on = false;
        assert_eq!(scene.run(100, false, Need::Settled), [], "it was off before");
        assert_eq!(scene.run(100, false, Need::Stranded), []);
    }

    #[test]
    fn the_wait_has_a_bound() {
        let mut scene = Scene::new();
        for _ in 0..10 {
            scene.run(1_000, false, Need::Settled);
            scene.run(2, false, Need::Stranded);
        }
        assert_eq!(scene.run(1_000, false, Need::Settled), [off(481)]);
    }
}
