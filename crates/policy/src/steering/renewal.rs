//! When flows whose senders cannot be told should begin anew over an access point.
//!
//! What a sender knows of one is of the past: losses and marks have made its window small, and after losses it waits for time-outs that double, for
//! seconds after the access point has become good. Or the flow has no way over it at all: the kernel tries once to add one, which fails where frames
//! are lost. So flows begin anew
//!
//! - over one that stood by or was held back, as soon as it may carry what it can or is to show it,
//! - over all that have brought nothing for a while, when whatever carried data falls silent, and
//! - again and again, ever more seldom, over one that may carry what it can and brings nothing, once data has been carried at all. Nobody can tell that
//!   from a download's end, which costs a few packets then.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{NetworkId, Timestamp};

/// Fewer packets a second are signs of life, and nothing that is carried.
const TRICKLE: f64 = 20.0;
/// Data is carried while there are so many ...
const BUSY: f64 = 100.0;
/// ... smoothed over this time.
const LATELY: Duration = Duration::from_secs(1);
/// Nothing for so long is silence: several round trips, and longer than a queue needs to find its way around a lost packet.
const SILENCE: Duration = Duration::from_millis(300);
/// Who has brought nothing for so long may wait for a time-out; twice in this time nothing begins anew.
const WAITS: Duration = Duration::from_secs(1);
/// So often, each time after twice as long, they begin anew over one that goes on to bring nothing.
const TIMES: u32 = 5;

/// What a network brings now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrying {
    pub network: NetworkId,
    /// Full packets a second.
    pub carried: f64,
    /// It may carry as much as it can.
    pub free: bool,
}

/// How often flows over each network were to begin anew.
#[derive(Clone, Default, Debug)]
pub(super) struct Renewals {
    networks: BTreeMap<NetworkId, Seen>,
    /// Smoothed, of all together, packets a second; as it was when the last one came.
    lately: f64,
    /// When the last one came.
    last: Timestamp,
    /// All were silent at the last call.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    free: bool,
    /// When it last brought more than a trickle.
    moved: Timestamp,
    renewals: u32,
    /// When it last began anew, and how often it has without bringing anything since.
    renewed: Option<Timestamp>,
    in_vain: u32,
}

impl Renewals {
    /// Takes what comes now, and how much time has passed since the last call; networks that are not there are forgotten.
    pub fn update(&mut self, now: Timestamp, passed: Duration, carrying: &[Carrying]) {
        self.networks.retain(|network, _| carrying.iter().any(|one| one.network == *network));
        let total: f64 = carrying.iter().map(|one| one.carried).sum();
        if total >= TRICKLE {
            let news = (passed.as_secs_f64() / LATELY.as_secs_f64()).min(1.0);
            self.lately += (total - self.lately) * news;
            self.last = now;
        }
        let has_carried = self.lately >= BUSY;
        let is_silent = has_carried && now.since(self.last) >= SILENCE;
        let falls_silent = is_silent && !self.is_silent;
        self.is_silent = is_silent;
        for one in carrying {
            let seen = self.networks.entry(one.network).or_insert(Seen {
                free: one.free,
                moved: now,
                renewals: 0,
                renewed: None,
                in_vain: 0,
            });
            if one.carried >= TRICKLE {
                (seen.moved, seen.in_vain) = (now, 0);
            }
            let is_freed = one.free && !seen.free;
            seen.free = one.free;
            if is_freed {
                seen.in_vain = 0;
            }
            if is_freed || falls_silent && now.since(seen.moved) >= WAITS || has_carried && seen.is_due(now) {
                seen.renew(now);
            }
        }
    }

    /// How often flows over a network were to begin anew.
    pub fn of(&self, network: NetworkId) -> u32 {
        self.networks.get(&network).map_or(0, |seen| seen.renewals)
    }
}

impl Seen {
    /// Whether it brings nothing though it may.
    fn is_due(&self, now: Timestamp) -> bool {
        let since = self.renewed.map_or(self.moved, |renewed| renewed.max(self.moved));
        self.free && self.in_vain < TIMES && now.since(since) >= WAITS * (1 << self.in_vain)
    }

    fn renew(&mut self, now: Timestamp) {
        if self.renewed.is_none_or(|at| now.since(at) >= WAITS) {
            self.renewals = self.renewals.wrapping_add(1);
            self.renewed = Some(now);
            self.in_vain += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NetworkId = NetworkId(0);
    const B: NetworkId = NetworkId(1);

    struct World {
        renewals: Renewals,
        now: Timestamp,
    }

    impl World {
        fn new() -> Self {
            Self { renewals: Renewals::default(), now: Timestamp::from_millis(50) }
        }

        /// So many packets a second over each, and whether it is free, for so long; gives how often each began anew until then.
        fn run(&mut self, millis: u64, a: (f64, bool), b: (f64, bool)) -> [u32; 2] {
            for _ in 0..millis / 100 {
                self.now += Duration::from_millis(100);
                let one = |network, (carried, free)| Carrying { network, carried, free };
                self.renewals.update(self.now, Duration::from_millis(100), &[one(A, a), one(B, b)]);
            }
            [A, B].map(|network| self.renewals.of(network))
        }
    }

    #[test]
    fn who_stood_by_begins_anew() {
        let mut world = World::new();
        assert_eq!(world.run(2_000, (900.0, true), (0.0, false)), [0, 0]);
        assert_eq!(world.run(500, (900.0, true), (300.0, true)), [0, 1]);
        assert_eq!(world.run(2_000, (0.0, false), (900.0, true)), [0, 1]);
        assert_eq!(world.run(500, (900.0, true), (100.0, true)), [1, 1]);
        // Not twice in a second.
        world.run(100, (900.0, true), (0.0, false));
        assert_eq!(world.run(100, (900.0, true), (0.0, true)), [1, 2]);
        world.run(100, (900.0, true), (0.0, false));
        assert_eq!(world.run(100, (900.0, true), (0.0, true)), [1, 2]);
    }

    #[test]
    fn when_the_one_that_carries_falls_silent_others_begin_anew() {
        let mut world = World::new();
        world.run(3_000, (900.0, true), (5.0, false));
        assert_eq!(world.run(200, (0.0, true), (5.0, false)), [0, 0], "no silence yet");
        assert_eq!(world.run(200, (0.0, true), (5.0, false)), [0, 1]);
        assert_eq!(world.run(5_000, (0.0, false), (5.0, false)), [0, 1], "once");
        world.run(3_000, (0.0, false), (900.0, true));
        assert_eq!(world.run(500, (0.0, false), (0.0, true)), [1, 2]);
        // Others that have just brought something do not wait.
        let mut world = World::new();
        world.run(3_000, (600.0, true), (300.0, true));
        assert_eq!(world.run(500, (0.0, true), (0.0, true)), [0, 0]);
    }

    #[test]
    fn over_one_that_brings_nothing_they_begin_ever_more_seldom() {
        let mut world = World::new();
        assert_eq!(world.run(3_000, (900.0, true), (5.0, false)), [0, 0]);
        // As it is freed, then after 2, 4, 8 and 16 seconds.
        assert_eq!(world.run(6_500, (900.0, true), (5.0, true)), [0, 3]);
        assert_eq!(world.run(60_000, (900.0, true), (5.0, true)), [0, 5]);
        world.run(1_000, (900.0, true), (900.0, true));
        assert_eq!(world.run(1_500, (900.0, true), (0.0, true)), [0, 6]);
        assert_eq!(world.run(60_000, (0.0, true), (0.0, true)), [5, 10], "an end costs little");
    }

    #[test]
    fn where_little_was_carried_silence_says_nothing() {
        let mut world = World::new();
        world.run(5_000, (50.0, true), (0.0, true));
        assert_eq!(world.run(5_000, (0.0, true), (0.0, true)), [0, 0]);
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut world = World::new();
        world.run(1_000, (900.0, true), (0.0, false));
        assert_eq!(world.run(100, (900.0, true), (0.0, true)), [0, 1]);
        world.renewals.update(world.now, Duration::ZERO, &[]);
        assert_eq!(world.renewals.of(B), 0);
    }
}
