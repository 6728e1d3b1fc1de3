//! When flows whose senders cannot be told should begin anew over an access point.
//!
//! What a sender knows of one is of the past: losses and marks have made its window small, and after losses it waits for time-outs that double, for
//! seconds after the access point has become good. A flow's new way over it knows nothing of that. So flows begin anew
//!
//! - over one that stood by or was held back and may carry what it can again, and
//! - over all that have brought nothing for a while, when whatever carried data falls silent: whoever sends may be waiting there. Nobody can tell that
//!   from a download's end, which costs a few packets then.
//!
//! The one that carried last is left as it is, so that a flow never loses all its ways at once.

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
/// Who waits for time-outs has brought nothing for so long; twice in this time nothing begins anew.
const WAITS: Duration = Duration::from_secs(1);
/// While it stays silent they begin once more after this, which doubles ...
const AGAIN: Duration = Duration::from_secs(1);
/// ... so often in all.
const TIMES: u32 = 4;

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
    /// When the last one came, and by which network.
    last: Option<(Timestamp, NetworkId)>,
    /// How often they began anew in this silence, and when they do next.
    again: (u32, Timestamp),
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    free: bool,
    /// When it last brought more than a trickle.
    moved: Timestamp,
    renewals: u32,
    /// When it last began anew.
    renewed: Option<Timestamp>,
}

impl Renewals {
    /// Takes what comes now, and how much time has passed since the last call; networks that are not there are forgotten.
    pub fn update(&mut self, now: Timestamp, passed: Duration, carrying: &[Carrying]) {
        self.networks.retain(|network, _| carrying.iter().any(|one| one.network == *network));
        for one in carrying {
            let seen = self.networks.entry(one.network).or_insert(Seen {
                free: one.free,
                moved: now,
                renewals: 0,
                renewed: None,
            });
            if one.carried >= TRICKLE {
                seen.moved = now;
            }
            if one.free && !seen.free {
                seen.renew(now);
            }
            seen.free = one.free;
        }
        let total: f64 = carrying.iter().map(|one| one.carried).sum();
        let most = carrying.iter().max_by(|one, other| one.carried.total_cmp(&other.carried));
        if let Some(most) = most.filter(|most| most.carried >= TRICKLE) {
            let news = (passed.as_secs_f64() / LATELY.as_secs_f64()).min(1.0);
            self.lately += (total - self.lately) * news;
            self.last = Some((now, most.network));
            self.again = (0, now + SILENCE);
        } else if let Some((_, last)) = self.last.filter(|_| self.lately >= BUSY)
            && now >= self.again.1
            && self.again.0 < TIMES
        {
            let waiting = self
                .networks
                .iter_mut()
                .filter(|(network, seen)| **network != last && now.since(seen.moved) >= WAITS);
            waiting.for_each(|(_, seen)| seen.renew(now));
            self.again = (self.again.0 + 1, now + AGAIN * (1 << self.again.0));
        }
    }

    /// How often flows over a network were to begin anew.
    pub fn of(&self, network: NetworkId) -> u32 {
        self.networks.get(&network).map_or(0, |seen| seen.renewals)
    }
}

impl Seen {
    fn renew(&mut self, now: Timestamp) {
        if self.renewed.is_none_or(|at| now.since(at) >= WAITS) {
            (self.renewals, self.renewed) = (self.renewals.wrapping_add(1), Some(now));
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
        assert_eq!(world.run(500, (900.0, true), (0.0, true)), [0, 1]);
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
        world.run(3_000, (900.0, true), (5.0, true));
        assert_eq!(world.run(200, (0.0, true), (5.0, true)), [0, 0], "no silence yet");
        assert_eq!(world.run(200, (0.0, true), (5.0, true)), [0, 1]);
        assert_eq!(world.run(700, (0.0, true), (5.0, true)), [0, 1]);
        assert_eq!(world.run(400, (0.0, true), (5.0, true)), [0, 2], "and once more a second later");
        assert_eq!(
            world.run(60_000, (0.0, true), (5.0, true)),
            [0, 4],
            "but not for ever, and never the last one"
        );
        world.run(3_000, (0.0, true), (900.0, true));
        assert_eq!(world.run(500, (0.0, true), (0.0, true)), [1, 4]);
    }

    #[test]
    fn where_little_was_carried_silence_says_nothing() {
        let mut world = World::new();
        world.run(5_000, (50.0, true), (0.0, true));
        assert_eq!(world.run(5_000, (0.0, true), (0.0, true)), [0, 0]);
        // Others that have just brought something do not wait.
        world.run(3_000, (600.0, true), (300.0, true));
        assert_eq!(world.run(500, (0.0, true), (0.0, true)), [0, 0]);
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
