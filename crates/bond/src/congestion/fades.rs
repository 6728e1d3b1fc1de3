//! Whether a path's rate falls and comes back within moments, as a radio's does while its signal fades.
//!
//! A path that has become slower for good wants its queue sent away. One that is back to its speed within a few round trips does not: whoever lets
//! the queue run empty meanwhile has nothing on the way when the link is fast again, and finds out only a few round trips later.

use std::time::Duration;
use units::{BitRate, Timestamp};

#[derive(Clone, Copy, Debug)]
struct Fade {
    begun: Timestamp,
    /// What the path carried before.
    before: BitRate,
    /// Whether it was seen to carry much less, and hardly anything. A queue may have other reasons.
    fell: bool,
    fell_deep: bool,
    /// How often it was looked since whether the path is back, and when last.
    tries: u8,
    tried: Option<Timestamp>,
}

/// What is remembered of a path's fades.
#[derive(Clone, Debug, Default)]
pub(super) struct Fades {
    /// The one that goes on.
    present: Option<Fade>,
    /// When the last one was over.
    ended: Option<Timestamp>,
    /// How many came back in time, less those that did not.
    returned: u8,
    /// Since when they are expected, though too few were seen.
    expected: Option<Timestamp>,
}

impl Fades {
    /// A queue shows that the path carries less than `before`.
    pub(super) fn begin(&mut self, now: Timestamp, before: BitRate) {
        self.present.get_or_insert(Fade {
            begun: now,
            before,
            fell: false,
            fell_deep: false,
            tries: 0,
            tried: None,
        });
    }

    /// What has arrived over the path in the last moments, and whether that was all that it carries.
    pub(super) fn observe(&mut self, now: Timestamp, recent: BitRate, is_all: bool) {
        self.expected = self.expected.filter(|since| now.since(*since) <= REMEMBERED);
        let Some(fade) = &mut self.present else {
            if self.ended.is_some_and(|ended| now.since(ended) > REMEMBERED) {
                self.returned = 0;
            }
            return;
        };
        let part = recent.0 as f64 / fade.before.0.max(1) as f64;
        fade.fell |= is_all && part <= FELL;
        fade.fell_deep |= is_all && part <= FELL_DEEP;
        if now.since(fade.begun) > LATEST_RETURN {
            self.returned = self.returned.saturating_sub(1);
            self.expected = None;
        } else if fade.fell && part >= RETURNED {
            self.returned = (self.returned + 1).min(MOST_RETURNED);
            self.expected = self.expected.or(Some(now).filter(|_| fade.fell_deep));
        } else {
            return;
        }
        self.present = None;
        self.ended = Some(now);
    }

    /// They are to be expected: another path, in whose place this one is now, has them.
    pub(super) fn expect(&mut self, now: Timestamp) {
        // What it did before it stood by is of the past.
        (self.present, self.expected) = (None, Some(now));
    }

    /// Whether enough were seen: what was lost and late in them had to do with nobody else.
    pub(super) fn were_seen(&self) -> bool {
        self.returned >= ENOUGH
    }

    /// Whether enough were seen, the last one lately.
    pub(super) fn were_seen_lately(&self, now: Timestamp) -> bool {
        self.were_seen() && self.ended.is_some_and(|ended| now.since(ended) <= REMEMBERED)
    }

    /// Whether to look how fast the path is although it has fallen: whoever sends little does not see that it is back.
    pub(super) fn is_worth_a_try(&mut self, now: Timestamp, rate: BitRate) -> bool {
        let Some(fade) = &mut self.present else { return false };
        let is_slow = (rate.0 as f64) < RETURNED * fade.before.0 as f64;
        let is_due = fade.tried.is_none_or(|tried| now.since(tried) >= TRY_AGAIN);
        if !fade.fell || !is_slow || !is_due || fade.tries >= MOST_TRIES {
            return false;
        }
        (fade.tries, fade.tried) = (fade.tries + 1, Some(now));
        true
    }

    /// Whether the path is one whose speed comes back.
    pub(super) fn are_usual(&self) -> bool {
        self.were_seen() || self.expected.is_some()
    }

    /// Whether the path is slower now, and probably only for moments.
    pub(super) fn one_passes(&self, now: Timestamp) -> bool {
        self.are_usual() && self.present.is_some_and(|fade| now.since(fade.begun) <= LONGEST)
    }
}

/// Part of the former rate below which a path has become slower.
const FELL: f64 = 0.65;
/// Part of it below which it was nearly gone. One such fade is enough to expect more.
const FELL_DEEP: f64 = 0.3;
/// Part of the former rate with which a path counts as back.
const RETURNED: f64 = 0.75;
/// In one fade it is looked so often whether the path is back, and so long after the last time.
const MOST_TRIES: u8 = 4;
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// A path that is slower for longer is treated as one that has become slower,
const LONGEST: Duration = Duration::from_secs(1);
/// and is one when it is not back by then.
const LATEST_RETURN: Duration = Duration::from_secs(2);
/// Fades that came back before the next one is expected to.
const ENOUGH: u8 = 2;
const MOST_RETURNED: u8 = 6;
/// A path without a fade for so long is as new.
const REMEMBERED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::Controller;
    use super::super::model::ModelController;
    use super::super::test_link::{DATAGRAM, Link, World};
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A fade from 20 to `low` Mbit/s that is over after `lasts` milliseconds.
    fn fade(fades: &mut Fades, low: f64, begins: u64, lasts: u64) {
        fades.begin(at(begins), BitRate::from_mbps(20.0));
        for time in (begins..begins + lasts).step_by(20) {
            fades.observe(at(time), BitRate::from_mbps(low), true);
        }
        fades.observe(at(begins + lasts), BitRate::from_mbps(18.0), true);
    }

    #[test]
    fn what_came_back_twice_is_expected_to() {
        let mut fades = Fades::default();
        fade(&mut fades, 8.0, 0, 100);
        assert!(!fades.are_usual());
        fade(&mut fades, 8.0, 300, 100);
        assert!(fades.are_usual());
        fades.begin(at(500), BitRate::from_mbps(20.0));
        assert!(
            fades.one_passes(at(1_500)) && !fades.one_passes(at(1_501)),
            "nothing is waited for for ever"
        );
        fades.observe(at(2_501), BitRate::from_mbps(5.0), true);
        assert!(!fades.are_usual(), "that one did not come back");
    }

    #[test]
    fn what_was_nearly_gone_and_came_back_once_is_expected_to() {
        let mut fades = Fades::default();
        fade(&mut fades, 5.0, 0, 100);
        assert!(fades.are_usual() && !fades.were_seen(), "others may have come and gone");
        fades.observe(at(10_200), BitRate::from_mbps(20.0), true);
        assert!(!fades.are_usual());
    }

    #[test]
    fn what_is_expected_is_not_of_the_past() {
        let mut fades = Fades::default();
        fade(&mut fades, 8.0, 0, 100);
        fade(&mut fades, 8.0, 300, 100);
        assert!(fades.were_seen_lately(at(10_000)) && !fades.were_seen_lately(at(11_000)));
        // It stood by in a fade, and is used again.
        fades.begin(at(500), BitRate::from_mbps(20.0));
        fades.expect(at(60_000));
        fades.observe(at(60_100), BitRate::from_mbps(5.0), true);
        assert!(fades.are_usual() && !fades.were_seen_lately(at(60_100)), "nobody has seen any");
        fades.begin(at(60_200), BitRate::from_mbps(20.0));
        fades.observe(at(62_201), BitRate::from_mbps(5.0), true);
        assert!(!fades.are_usual(), "it did not come back");
    }

    #[test]
    fn a_queue_or_little_to_send_is_no_fade() {
        let mut fades = Fades::default();
        for time in (0..2_000).step_by(100) {
            fades.begin(at(time), BitRate::from_mbps(20.0));
            fades.observe(at(time + 20), BitRate::from_mbps(15.0), true);
            fades.observe(at(time + 40), BitRate::from_mbps(2.0), false);
            fades.observe(at(time + 60), BitRate::from_mbps(20.0), true);
        }
        assert!(!fades.are_usual());
    }

    #[test]
    fn they_are_forgotten() {
        let mut fades = Fades::default();
        fade(&mut fades, 8.0, 0, 100);
        fade(&mut fades, 8.0, 300, 100);
        fades.observe(at(10_400), BitRate::from_mbps(20.0), true);
        assert!(fades.are_usual());
        fades.observe(at(10_401), BitRate::from_mbps(20.0), true);
        assert!(!fades.are_usual());
    }

    /// A link whose rate is drawn anew after each `every`.
    fn fading(mbps: &[f64], every: Duration, seed: u64) -> World<ModelController> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |_| BitRate::from_mbps(mbps[random.random_range(0..mbps.len())]);
        let fades = (0..2_000).map(&mut draw).collect();
        let link = Link { fades, fade: every, buffer: 250_000, ..Link::new(0.0, 25) };
        World::new(ModelController::new(DATAGRAM, at(1_000)), link, 1)
    }

    /// What it carries in so much time from now on, Mbit/s, and what the link could carry then.
    fn carries(world: &mut World<ModelController>, time: Duration) -> (f64, f64) {
        let Link { fades, fade, .. } = &world.link;
        let blocks = |time: Duration| (time.as_nanos() / fade.as_nanos()) as usize;
        let (before, during) = (blocks(world.now.since(Timestamp::ZERO)), blocks(time));
        let mean = fades.iter().cycle().skip(before).take(during).map(|rate| rate.as_mbps()).sum::<f64>();
        let mean = mean / during as f64;
        (world.run(time).as_mbps(), mean)
    }

    /// Goodput as a part of the mean rate of a link, and its mean queue in milliseconds.
    fn over_a_fading_link(mbps: &[f64], every: Duration, seed: u64) -> (f64, f64) {
        let mut world = fading(mbps, every, seed);
        world.run(Duration::from_secs(3));
        let (carried, mean) = carries(&mut world, Duration::from_secs(30));
        (carried / mean, world.mean_queue(20_000))
    }

    #[test]
    fn links_that_fade_are_filled() {
        let mostly_fast = [30.0, 30.0, 30.0, 30.0, 30.0, 30.0, 15.0, 15.0, 8.0, 3.0];
        let anything = [30.0, 25.0, 15.0, 10.0, 6.0, 3.0];
        let half = [30.0, 15.0];
        for (mbps, least) in [(&mostly_fast[..], 0.95), (&anything[..], 0.88), (&half[..], 0.92)] {
            for every in [20, 70, 200, 500] {
                let (part, queue) = over_a_fading_link(mbps, Duration::from_millis(every), 7);
                assert!(part > least, "{part:.3} of {mbps:?} Mbit/s, {every} ms each");
                assert!(queue < 60.0, "{queue:.1} ms of queue, {mbps:?} Mbit/s, {every} ms each");
            }
        }
    }

    /// 802.11g at 5, 10 and 15 m, Mbit/s: in some fades next to nothing gets through.
    const NEAR: [f64; 10] = [24.0, 24.0, 24.0, 24.0, 24.0, 22.0, 20.0, 18.0, 12.0, 0.3];
    const AWAY: [f64; 10] = [24.0, 20.0, 12.0, 9.0, 6.0, 3.0, 1.0, 0.3, 0.1, 0.1];
    const FAR: [f64; 10] = [20.0, 12.0, 6.0, 4.0, 2.0, 1.0, 0.3, 0.1, 0.1, 0.1];

    /// Each fade is as long as those of somebody who walks.
    #[test]
    fn links_that_fade_to_nothing_are_filled() {
        for (mbps, every, least) in [
            (&NEAR, 26, 0.97),
            (&NEAR, 52, 0.97),
            (&AWAY, 26, 0.9),
            (&AWAY, 52, 0.82),
            (&FAR, 26, 0.75),
            (&FAR, 52, 0.75),
        ] {
            let all: Vec<(f64, f64)> =
                (1..=6).map(|seed| over_a_fading_link(mbps, Duration::from_millis(every), seed)).collect();
            let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
            let (part, queue) = (mean(|one| one.0), mean(|one| one.1));
            assert!(part > least, "{part:.3} of {mbps:?} Mbit/s, {every} ms each");
            assert!(queue < 130.0, "{queue:.1} ms of queue, {mbps:?} Mbit/s, {every} ms each");
        }
    }

    #[test]
    fn links_that_fade_to_nothing_are_soon_known() {
        for (mbps, least) in [(NEAR, 0.92), (AWAY, 0.7), (FAR, 0.59)] {
            for every in [26, 52, 100, 200].map(Duration::from_millis) {
                let (mut carried, mut mean) = (0.0, 0.0);
                for seed in 1..=24 {
                    let mut world = fading(&mbps, every, seed);
                    let (own, link) = carries(&mut world, Duration::from_secs(8));
                    (carried, mean) = (carried + own, mean + link);
                }
                let part = carried / mean;
                assert!(part > least, "{part:.3} of {mbps:?} Mbit/s, {every:?} each");
            }
        }
    }

    /// The same of the first three seconds after it was freed, beside another one that fades or does not; means over some links.
    fn after_being_freed(mbps: &[f64], every: Duration, others_fade: bool) -> (f64, f64) {
        const LINKS: u64 = 24;
        let (mut carried, mut mean, mut queue) = (0.0, 0.0, 0.0);
        for seed in 1..=LINKS {
            let mut world = fading(mbps, every, seed);
            (world.offered, world.others_fade) = (Some(BitRate::from_mbps(0.3)), others_fade);
            world.run(Duration::from_secs(2));
            world.offered = None;
            world.controller.freed(world.now, true);
            world.queue_delays.clear();
            let (own, link) = carries(&mut world, Duration::from_secs(3));
            (carried, mean) = (carried + own, mean + link);
            queue += world.mean_queue(20_000) / LINKS as f64;
        }
        (carried / mean, queue)
    }

    #[test]
    fn one_that_takes_over_from_one_that_fades_is_expected_to_fade() {
        for (mbps, least, gain) in [(NEAR, 0.92, 1.04), (AWAY, 0.82, 1.25), (FAR, 0.72, 1.2)] {
            for every in [26, 52, 100, 200].map(Duration::from_millis) {
                let (untold, _) = after_being_freed(&mbps, every, false);
                let (told, queue) = after_being_freed(&mbps, every, true);
                assert!(told > least && told > gain * untold, "{told:.3} and {untold:.3}, {mbps:?} Mbit/s");
                assert!(queue < 150.0, "{queue:.1} ms of queue, {mbps:?} Mbit/s, {every:?} each");
            }
        }
    }

    #[test]
    fn jitter_is_no_fade() {
        for (mbps, delay, reorders) in [(40.0, 10, true), (40.0, 20, false), (5.0, 20, false)] {
            for seed in 1..4 {
                let jitter = Duration::from_millis(30);
                let link = Link { jitter, reorders, ..Link::new(mbps, delay) };
                let mut world = World::new(ModelController::new(DATAGRAM, at(1_000)), link, seed);
                world.run(Duration::from_secs(5));
                let part = world.run(Duration::from_secs(60)).as_mbps() / mbps;
                assert!(part > 0.93, "{part:.3} of {mbps} Mbit/s at {delay} ms, {seed}");
            }
        }
    }
}
