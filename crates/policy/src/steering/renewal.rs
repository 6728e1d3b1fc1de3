//! When flows whose senders cannot be told should begin anew over an access point.
//!
//! What a sender knows of one is of the past: losses and marks have made its window small, and after losses it waits for time-outs that double, for
//! seconds after the access point has become good. Or the flow has no way over it at all: the kernel tries once to add one, which fails where frames
//! are lost. So flows begin anew
//!
//! - over one that stood by or was held back, as soon as it may carry what it can or is to show it,
//! - over all that have brought nothing for a while, when whatever carried data falls silent, and
//! - again and again, ever more seldom, over one that may carry what it can and brings nothing.
//!
//! All that only while data is carried, and for some seconds after it. Nobody can tell a silence from a download's end, which costs a few packets then.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{NetworkId, Timestamp};

/// Fewer packets a second are signs of life, and nothing that is carried.
const TRICKLE: f64 = 20.0;
/// Data is carried while there are so many, smoothed over [`LATELY`]. What a flow that begins anew brings by that is less.
const BUSY: f64 = 100.0;
/// A network that brings this part of it has flows that are well.
const WELL: f64 = BUSY / 2.0;
const LATELY: Duration = Duration::from_secs(1);
/// For so long after data was carried somebody may wait for more.
const EXPECTED: Duration = Duration::from_secs(30);
/// Nothing for so long is silence: several round trips, and longer than a queue needs to find its way around a lost packet.
const SILENCE: Duration = Duration::from_millis(300);
/// Who has brought nothing for so long may wait for a time-out; twice in this time nothing begins anew.
const WAITS: Duration = Duration::from_secs(1);
/// So often they begin anew over one that goes on to bring nothing, each time after twice as long ...
const TIMES: u32 = 8;
/// ... up to this: in that time somebody who walks comes within reach of the next access point.
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// What a network brings now, and what is to be done with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrying {
    pub network: NetworkId,
    /// Packets a second.
    pub carried: f64,
    /// It is to carry data.
    pub used: bool,
    /// Then no more than the air that others leave.
    pub held: bool,
    /// Something is known of how good it is.
    pub known: bool,
}

/// How often flows over each network were to begin anew.
#[derive(Clone, Default, Debug)]
pub(super) struct Renewals {
    networks: BTreeMap<NetworkId, Seen>,
    /// Smoothed, of all together, packets a second.
    lately: f64,
    /// When data was last carried.
    busy: Option<Timestamp>,
    /// When more than a trickle last came.
    last: Timestamp,
    /// Nothing came for a while at the last call.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    used: bool,
    held: bool,
    /// Smoothed, packets a second.
    carried: f64,
    /// When it last brought more than a trickle.
    moved: Timestamp,
    renewals: u32,
    /// When it last began anew, and how often it has since it was well.
    renewed: Option<Timestamp>,
    in_vain: u32,
}

impl Renewals {
    /// Takes what comes now, and how much time has passed since the last call; networks that are not there are forgotten.
    pub fn update(&mut self, now: Timestamp, passed: Duration, carrying: &[Carrying]) {
        let news = (passed.as_secs_f64() / LATELY.as_secs_f64()).min(1.0);
        self.networks.retain(|network, _| carrying.iter().any(|one| one.network == *network));
        let total: f64 = carrying.iter().map(|one| one.carried).sum();
        self.lately += (total - self.lately) * news;
        if total >= TRICKLE {
            self.last = now;
            if self.lately >= BUSY {
                self.busy = Some(now);
            }
        }
        let was_silent = std::mem::replace(&mut self.is_silent, now.since(self.last) >= SILENCE);
        let since_busy = self.busy.map(|at| now.since(at));
        let falls_silent = self.is_silent && !was_silent && since_busy.is_some_and(|since| since < WAITS);
        let is_expected = since_busy.is_some_and(|since| since < EXPECTED);
        // Of those that wait one at a time, as each is another one's reserve.
        let mut waiting: Option<(Option<Timestamp>, NetworkId)> = None;
        for one in carrying {
            let seen = self.networks.entry(one.network).or_insert_with(|| Seen::new(now, one));
            if seen.take(now, news, one) && is_expected {
                seen.renew(now);
            } else if falls_silent && now.since(seen.moved) >= WAITS || is_expected && seen.is_due(now) {
                let this = (seen.renewed, one.network);
                waiting = Some(waiting.map_or(this, |other| other.min(this)));
            }
        }
        if let Some(seen) = waiting.and_then(|(_, network)| self.networks.get_mut(&network)) {
            seen.renew(now);
        }
    }

    /// How often flows over a network were to begin anew.
    pub fn of(&self, network: NetworkId) -> u32 {
        self.networks.get(&network).map_or(0, |seen| seen.renewals)
    }
}

impl Seen {
    fn new(now: Timestamp, one: &Carrying) -> Self {
        Self {
            used: one.used,
            held: one.held,
            carried: one.carried,
            moved: now,
            renewals: 0,
            renewed: None,
            in_vain: 0,
        }
    }

    /// Takes what comes now; says whether it may carry what it can and could not before. One that was held back and of which nothing is known any more
    /// has not become better by that.
    fn take(&mut self, now: Timestamp, news: f64, one: &Carrying) -> bool {
        self.carried += (one.carried - self.carried) * news;
        let is_freed = one.used && !one.held && (!self.used || self.held && one.known);
        if one.carried >= TRICKLE {
            self.moved = now;
        }
        if is_freed || one.carried >= TRICKLE && self.carried >= WELL {
            self.in_vain = 0;
        }
        self.held = one.held || self.held && one.used && !one.known;
        self.used = one.used;
        is_freed
    }

    /// Whether it brings nothing though it may.
    fn is_due(&self, now: Timestamp) -> bool {
        let since = self.renewed.map_or(self.moved, |renewed| renewed.max(self.moved));
        self.used
            && !self.held
            && self.in_vain < TIMES
            && now.since(since) >= (WAITS * (1 << self.in_vain)).min(LONGEST_WAIT)
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

        /// So many packets a second over each, and whether it is used, for so long; gives how often each began anew until then.
        fn run(&mut self, millis: u64, a: (f64, bool), b: (f64, bool)) -> [u32; 2] {
            for _ in 0..millis / 100 {
                self.now += Duration::from_millis(100);
                let one =
                    |network, (carried, used)| Carrying { network, carried, used, held: false, known: true };
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
        // As it is freed, then after 2 seconds, and after 4 each time.
        assert_eq!(world.run(6_500, (900.0, true), (5.0, true)), [0, 3]);
        assert_eq!(world.run(60_000, (900.0, true), (5.0, true)), [0, 8]);
        // What beginning anew brings by itself is no reason to begin anew: four packets in a tenth of a second.
        for _ in 0..50 {
            world.run(900, (900.0, true), (0.0, true));
            assert_eq!(world.run(100, (900.0, true), (40.0, true)), [0, 8]);
        }
        world.run(2_000, (900.0, true), (900.0, true));
        assert_eq!(world.run(1_500, (900.0, true), (0.0, true)), [0, 9]);
        let before = world.run(2_000, (900.0, true), (900.0, true));
        let after = world.run(600_000, (0.0, true), (0.0, true));
        let more = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(more, [8, 8], "an end costs little: after 1 and 3 seconds, then every 4");
    }

    #[test]
    fn of_several_that_wait_one_begins_at_a_time() {
        let mut world = World::new();
        world.run(3_000, (600.0, true), (300.0, true));
        assert_eq!(world.run(1_000, (0.0, true), (0.0, true)), [1, 0]);
        assert_eq!(world.run(100, (0.0, true), (0.0, true)), [1, 1]);
    }

    #[test]
    fn who_is_no_longer_alone_or_no_longer_known_has_not_become_better() {
        let mut renewals = Renewals::default();
        let mut now = Timestamp::from_millis(50);
        let mut run = |held, known| {
            for _ in 0..30 {
                now += Duration::from_millis(100);
                let one = Carrying { network: A, carried: 900.0, used: true, held, known };
                renewals.update(now, Duration::from_millis(100), &[one]);
            }
            renewals.of(A)
        };
        assert_eq!([run(false, false), run(false, true), run(false, false)], [0; 3]);
        assert_eq!([run(true, true), run(false, false)], [0; 2], "what held it back is only forgotten");
        assert_eq!(run(false, true), 1);
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
        assert_eq!(world.run(60_000, (0.0, true), (0.0, true))[1], 8);
        assert_eq!(world.run(60_000, (0.0, true), (0.0, false))[1], 8);
        assert_eq!(world.run(60_000, (0.0, true), (0.0, true))[1], 8, "nobody waits for anything");
        world.renewals.update(world.now, Duration::ZERO, &[]);
        assert_eq!(world.renewals.of(B), 0);
    }
}
