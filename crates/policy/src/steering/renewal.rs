//! When flows whose senders cannot be told should begin anew over an access point.
//!
//! What a sender knows of one is of the past: losses and marks have made its window small, and after losses it waits for time-outs that double, for
//! seconds after the access point has become good. Or the flow has no way over it at all: the kernel tries once to add one, which fails where frames
//! are lost. So flows begin anew
//!
//! - over one that stood by or was held back, as soon as it may carry what it can or is to show it, and over a network's next access point,
//! - over those that have brought nothing for a while, when whatever carried data falls silent, and
//! - again and again, ever more seldom, over one that may carry what it can and brings nothing.
//!
//! All that only while data is carried, and for some seconds after it. Nobody can tell a silence from a download's end, which costs a few packets then.
//! They begin over one network at a time, as each is another one's reserve. What comes over it for a second after that is what beginning anew brings by
//! itself: neither data nor a sign that its flows are well.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{MacAddress, NetworkId, Timestamp};

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
/// Between two networks: a way that has begun is answered by then, and can be another one's reserve.
const APART: Duration = Duration::from_millis(500);
/// Who stood by or was held back for less has senders that still know what it can.
const FORGETS: Duration = Duration::from_secs(2);
/// So often they begin anew over one that goes on to bring nothing, each time after twice as long ...
const TIMES: u32 = 8;
/// ... up to this: in that time somebody who walks comes within reach of the next access point. Data that is carried after so long without any is new.
const LONGEST_WAIT: Duration = Duration::from_secs(4);
/// After that only while others carry data.
const SELDOM: Duration = Duration::from_secs(30);

/// What a network brings now, and what is to be done with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carrying {
    pub network: NetworkId,
    pub access_point: MacAddress,
    /// Packets a second.
    pub carried: f64,
    /// It is to carry data.
    pub used: bool,
    /// Then no more than the air that others leave.
    pub held: bool,
    /// Something is known of how good it is.
    pub known: bool,
    /// Something answers behind it, as far as known.
    pub reaches: bool,
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
    /// When flows last began anew over some network.
    renewed: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    access_point: MacAddress,
    used: bool,
    held: bool,
    /// Since when it stands by or is held back; kept when that ends.
    spared: Timestamp,
    /// Smoothed, packets a second.
    carried: f64,
    /// When it last brought more than a trickle.
    moved: Timestamp,
    renewals: u32,
    /// They are to begin anew over it as soon as it is its turn: it may carry what it can, or waits since nothing comes.
    freed: bool,
    waits: bool,
    /// When it last began anew, and how often it has since it was well.
    renewed: Option<Timestamp>,
    in_vain: u32,
}

impl Renewals {
    /// Takes what comes now, and how much time has passed since the last call; networks that are not there are forgotten. One alone has nothing to begin
    /// anew beside.
    pub fn update(&mut self, now: Timestamp, passed: Duration, carrying: &[Carrying]) {
        let news = (passed.as_secs_f64() / LATELY.as_secs_f64()).min(1.0);
        self.networks.retain(|network, _| carrying.iter().any(|one| one.network == *network));
        let began =
            |one: &&Carrying| self.networks.get(&one.network).is_some_and(|seen| seen.has_just_begun(now));
        let data: f64 = carrying.iter().filter(|one| !began(one)).map(|one| one.carried).sum();
        self.lately += (data - self.lately) * news;
        if carrying.iter().map(|one| one.carried).sum::<f64>() >= TRICKLE {
            self.last = now;
        }
        if data >= TRICKLE
            && self.lately >= BUSY
            && self.busy.replace(now).is_none_or(|before| now.since(before) >= LONGEST_WAIT)
        {
            self.networks.values_mut().for_each(|seen| seen.in_vain = 0);
        }
        let was_silent = std::mem::replace(&mut self.is_silent, now.since(self.last) >= SILENCE);
        let since_busy = self.busy.map(|at| now.since(at));
        let falls_silent = self.is_silent && !was_silent && since_busy.is_some_and(|since| since < WAITS);
        let is_expected = since_busy.is_some_and(|since| since < EXPECTED);
        let is_carried = since_busy.is_some_and(|since| since < WAITS);
        for one in carrying {
            let seen = self.networks.entry(one.network).or_insert_with(|| Seen::new(now, one));
            seen.freed |= seen.take(now, news, one);
            seen.freed &= is_expected && one.used && !one.held;
            seen.waits |= falls_silent && now.since(seen.moved) >= WAITS;
            seen.waits &= self.is_silent;
        }
        let is_turn = carrying.len() > 1 && self.renewed.is_none_or(|at| now.since(at) >= APART);
        let wanted = carrying.iter().filter(|one| one.reaches && is_turn).filter_map(|one| {
            let seen = self.networks.get(&one.network)?;
            let is_wanted = seen.freed || seen.waits || is_expected && seen.is_due(now, is_carried);
            (is_wanted && !seen.has_just_begun(now)).then_some((seen.renewed, !one.known, one.network))
        });
        if let Some(seen) = wanted.min().and_then(|(_, _, network)| self.networks.get_mut(&network)) {
            seen.renew(now);
            self.renewed = Some(now);
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
            access_point: one.access_point,
            used: one.used,
            held: one.held,
            spared: now,
            carried: one.carried,
            moved: now,
            renewals: 0,
            freed: false,
            waits: false,
            renewed: None,
            in_vain: 0,
        }
    }

    /// Takes what comes now; says whether it may carry what it can and could not before, or is another access point. One that was held back and of
    /// which nothing is known any more has not become better by that.
    fn take(&mut self, now: Timestamp, news: f64, one: &Carrying) -> bool {
        let is_another = std::mem::replace(&mut self.access_point, one.access_point) != one.access_point;
        if !self.has_just_begun(now) {
            self.carried += (one.carried - self.carried) * news;
            if one.carried >= TRICKLE {
                self.moved = now;
                if self.carried >= WELL {
                    self.in_vain = 0;
                }
            }
        }
        let is_free = one.used && !one.held;
        let is_freed = is_free && (!self.used || self.held && one.known);
        let is_forgotten = now.since(self.spared) >= FORGETS || self.carried < WELL;
        if self.used && !self.held && !is_free {
            self.spared = now;
        }
        self.held = one.held || self.held && one.used && !one.known;
        self.used = one.used;
        let begins = is_freed && is_forgotten || is_free && is_another;
        if begins {
            self.in_vain = 0;
        }
        begins
    }

    /// Whether what comes may be no more than what beginning anew brings.
    fn has_just_begun(&self, now: Timestamp) -> bool {
        self.renewed.is_some_and(|at| now.since(at) < WAITS)
    }

    /// Whether it brings nothing though it may. `is_carried`: others do.
    fn is_due(&self, now: Timestamp, is_carried: bool) -> bool {
        let since = self.renewed.map_or(self.moved, |renewed| renewed.max(self.moved));
        let wait = match self.in_vain {
            ..TIMES => (WAITS * (1 << self.in_vain)).min(LONGEST_WAIT),
            _ if is_carried => SELDOM,
            _ => return false,
        };
        self.used && !self.held && now.since(since) >= wait
    }

    fn renew(&mut self, now: Timestamp) {
        self.renewals = self.renewals.wrapping_add(1);
        self.renewed = Some(now);
        self.in_vain = self.in_vain.saturating_add(1);
        (self.freed, self.waits, self.carried) = (false, false, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NetworkId = NetworkId(0);
    const B: NetworkId = NetworkId(1);
    /// What beginning anew brings by itself: four packets, counted over a tenth of a second.
    const HANDSHAKE: f64 = 40.0;

    fn one(network: NetworkId, carried: f64, used: bool) -> Carrying {
        let access_point = MacAddress([2, 0, 0, 0, 0, network.0 as u8]);
        Carrying { network, access_point, carried, used, held: false, known: true, reaches: true }
    }

    struct World {
        renewals: Renewals,
        now: Timestamp,
        /// Between two calls, milliseconds.
        step: u64,
    }

    impl World {
        fn new() -> Self {
            Self { renewals: Renewals::default(), now: Timestamp::from_millis(50), step: 100 }
        }

        fn take(&mut self, carrying: &[Carrying]) -> [u32; 2] {
            let step = Duration::from_millis(self.step);
            self.now += step;
            self.renewals.update(self.now, step, carrying);
            [A, B].map(|network| self.renewals.of(network))
        }

        fn repeat(&mut self, times: u32, carrying: &[Carrying]) {
            for _ in 0..times {
                self.take(carrying);
            }
        }

        /// So many packets a second over each, and whether it is used, for so long; gives how often each began anew until then.
        fn run(&mut self, millis: u64, a: (f64, bool), b: (f64, bool)) -> [u32; 2] {
            for _ in 0..millis / self.step {
                self.take(&[one(A, a.0, a.1), one(B, b.0, b.1)]);
            }
            [A, B].map(|network| self.renewals.of(network))
        }

        /// The end of a download: nothing comes but what beginning anew brings.
        fn end(&mut self, millis: u64) -> [u32; 2] {
            let mut before = [A, B].map(|network| self.renewals.of(network));
            let mut brings = [0.0; 2];
            for _ in 0..millis / self.step {
                let after = self.take(&[one(A, brings[0], true), one(B, brings[1], true)]);
                brings = [0, 1].map(|index| if after[index] > before[index] { HANDSHAKE } else { 0.0 });
                before = after;
            }
            before
        }
    }

    #[test]
    fn who_stood_by_begins_anew() {
        let mut world = World::new();
        assert_eq!(world.run(2_500, (900.0, true), (0.0, false)), [0, 0]);
        assert_eq!(world.run(500, (900.0, true), (300.0, true)), [0, 1]);
        assert_eq!(world.run(2_500, (0.0, false), (900.0, true)), [0, 1]);
        assert_eq!(world.run(500, (900.0, true), (300.0, true)), [1, 1]);
        // Its sender still knows what it can.
        world.run(1_000, (900.0, true), (300.0, true));
        world.run(500, (900.0, true), (0.0, false));
        assert_eq!(world.run(1_000, (900.0, true), (300.0, true)), [1, 1]);
        // Where nothing came nobody knows anything.
        let mut world = World::new();
        world.run(2_500, (900.0, true), (0.0, true));
        let [_, before] = world.run(1_500, (900.0, true), (0.0, true));
        world.run(500, (900.0, true), (0.0, false));
        assert_eq!(world.run(100, (900.0, true), (0.0, true)), [0, before + 1]);
    }

    #[test]
    fn when_the_one_that_carries_falls_silent_others_begin_anew() {
        let mut world = World::new();
        world.run(3_000, (900.0, true), (5.0, false));
        assert_eq!(world.run(200, (0.0, true), (5.0, false)), [0, 0], "no silence yet");
        assert_eq!(world.run(200, (0.0, true), (5.0, false)), [0, 1]);
        assert_eq!(world.run(5_000, (0.0, false), (5.0, false)), [0, 1], "once");
        world.run(3_000, (0.0, false), (900.0, true));
        assert_eq!(world.run(500, (0.0, false), (0.0, true)), [1, 2], "B as it was freed");
        // Others that have just brought something do not wait.
        let mut world = World::new();
        world.run(3_000, (600.0, true), (300.0, true));
        assert_eq!(world.run(500, (0.0, true), (0.0, true)), [0, 0]);
    }

    /// Of several that stand by all have their turn, those behind which nothing answers aside, until one of them brings something.
    #[test]
    fn in_a_silence_one_after_the_other_begins_anew() {
        let others = [2, 3, 4].map(NetworkId);
        let scene = |a: f64, third: f64| {
            let mut all = vec![one(A, a, true)];
            all.extend(others.map(|network| one(network, 0.0, false)));
            (all[1].reaches, all[3].carried) = (false, third);
            all
        };
        let began = |world: &World| others.map(|network| world.renewals.of(network));
        let mut world = World::new();
        world.repeat(30, &scene(900.0, 0.0));
        world.repeat(5, &scene(0.0, 0.0));
        assert_eq!(began(&world), [0, 1, 0]);
        world.repeat(5, &scene(0.0, 0.0));
        assert_eq!(began(&world), [0, 1, 1]);
        let mut world = World::new();
        world.repeat(30, &scene(900.0, 0.0));
        world.repeat(5, &scene(0.0, 0.0));
        world.repeat(20, &scene(0.0, HANDSHAKE));
        assert_eq!(began(&world), [0, 1, 0]);
    }

    #[test]
    fn over_one_that_brings_nothing_they_begin_ever_more_seldom() {
        let mut world = World::new();
        assert_eq!(world.run(3_000, (900.0, true), (5.0, false)), [0, 0]);
        // As it is freed, then after 2 seconds, and after 4 each time.
        assert_eq!(world.run(6_500, (900.0, true), (5.0, true)), [0, 3]);
        assert_eq!(world.run(22_000, (900.0, true), (5.0, true)), [0, 8]);
        // What beginning anew brings by itself is no reason to begin anew; twice a minute it is tried all the same.
        for _ in 0..12 {
            world.run(4_900, (900.0, true), (0.0, true));
            world.run(100, (900.0, true), (HANDSHAKE, true));
        }
        assert!((8..=10).contains(&world.renewals.of(B)), "{:?}", world.renewals);
        let [_, before] = world.run(3_000, (900.0, true), (900.0, true));
        assert_eq!(world.run(1_500, (900.0, true), (0.0, true)), [0, before + 1], "it was well");
    }

    #[test]
    fn an_end_costs_little_and_the_next_download_is_a_new_matter() {
        for step in [20, 100, 200, 500] {
            let mut world = World { step, ..World::new() };
            world.run(3_000, (3_000.0, true), (3_000.0, true));
            assert_eq!(
                world.end(600_000),
                [8, 8],
                "{step} ms: after 1 and 3 seconds, then every 4, and no more"
            );
            // Of the next one nothing comes by B.
            world.run(2_000, (900.0, true), (0.0, true));
            assert_eq!(world.run(2_000, (900.0, true), (0.0, true))[1], 10, "{step} ms");
            assert_eq!(world.renewals.of(A), 8);
        }
    }

    /// Fifty that do nothing: what they bring when they begin anew is as much as a download.
    #[test]
    fn many_connections_without_data_do_not_keep_each_other_going() {
        let mut world = World::new();
        world.run(3_000, (900.0, true), (900.0, true));
        let mut before = [0; 2];
        let mut brings = [0.0; 2];
        for _ in 0..6_000 {
            let after = world.take(&[one(A, brings[0], true), one(B, brings[1], true)]);
            brings = [0, 1].map(|index| if after[index] > before[index] { 50.0 * HANDSHAKE } else { 0.0 });
            before = after;
        }
        assert_eq!(before, [8, 8]);
    }

    #[test]
    fn of_several_that_wait_one_begins_at_a_time() {
        let mut world = World::new();
        world.run(3_000, (600.0, true), (300.0, true));
        assert_eq!(world.run(1_000, (0.0, true), (0.0, true)), [1, 0]);
        assert_eq!(world.run(400, (0.0, true), (0.0, true)), [1, 0], "its way is not answered yet");
        assert_eq!(world.run(100, (0.0, true), (0.0, true)), [1, 1]);
    }

    #[test]
    fn a_networks_next_access_point_is_another_one() {
        let mut world = World::new();
        world.run(3_000, (900.0, true), (900.0, true));
        let next = Carrying { access_point: MacAddress([2, 0, 0, 0, 0, 9]), ..one(B, 900.0, true) };
        assert_eq!(world.take(&[one(A, 900.0, true), next]), [0, 1]);
        world.repeat(30, &[one(A, 900.0, true), next]);
        assert_eq!(world.renewals.of(B), 1);
    }

    #[test]
    fn one_alone_has_nothing_to_begin_anew_beside() {
        let mut world = World::new();
        world.repeat(30, &[one(A, 900.0, true)]);
        world.repeat(300, &[one(A, 0.0, true)]);
        assert_eq!(world.renewals.of(A), 0);
    }

    #[test]
    fn who_is_no_longer_alone_or_no_longer_known_has_not_become_better() {
        let mut world = World::new();
        let mut run = |held, known| {
            for _ in 0..30 {
                world.take(&[Carrying { held, known, ..one(A, 900.0, true) }, one(B, 900.0, true)]);
            }
            world.renewals.of(A)
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
        world.run(2_500, (900.0, true), (0.0, false));
        assert_eq!(world.run(100, (900.0, true), (0.0, true)), [0, 1]);
        assert_eq!(world.run(60_000, (0.0, true), (0.0, true))[1], 8);
        assert_eq!(world.run(60_000, (0.0, true), (0.0, false))[1], 8);
        assert_eq!(world.run(60_000, (0.0, true), (0.0, true))[1], 8, "nobody waits for anything");
        world.renewals.update(world.now, Duration::ZERO, &[]);
        assert_eq!(world.renewals.of(B), 0);
    }
}
