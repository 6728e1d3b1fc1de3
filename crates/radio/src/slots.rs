//! Whose turn it is on the radio, and for how long (`[JUGGLER] sections 3.3 and 3.4`, `[MULTIAP] section 7`).
//!
//! Round robin. A cycle visits each member once; a member that was given up is visited once in a few cycles only.

use std::time::Duration;

use rand::Rng;
use units::NetworkId;

use crate::settling::Settling;

/// Who has a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Member {
    /// A network.
    Network(NetworkId),
    /// Listening for networks, on one channel after another.
    Scan,
}

/// How long a cycle is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cycle {
    /// As long as this, shared by weights: keeps round trips under the least retransmission time-out. `[MULTIAP] section 7`: 200 ms.
    Bounded(Duration),
    /// Each member its weight times this, however long the cycle gets. `[JUGGLER] section 3.4`: 100 ms.
    Multiples(Duration),
}

/// Settings of the turns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlotSettings {
    /// How long a cycle is.
    pub cycle: Cycle,
    /// The shortest slot: an access point must be able to send something in it. `[MULTIAP] section 7`: 10 ms.
    pub least: Duration,
    /// How much more time a network gets that delivers more: the exponent of `[MULTIAP] eq. 6`. 0: weights alone decide.
    pub alpha: f64,
    /// Added to each slot, drawn evenly between nothing and this: stations that share access points do not march in step.
    /// `[MULTIAP] section 7.1`: 10 ms.
    pub spread: Duration,
    /// Stay with one network while it alone delivers as much as turns would, and visit the others seldom. Only where weights are equal, `alpha`
    /// is not 0 and no member needs its slots whole.
    pub settle: bool,
}

impl Default for SlotSettings {
    fn default() -> Self {
        Self {
            cycle: Cycle::Bounded(Duration::from_millis(200)),
            least: Duration::from_millis(10),
            alpha: 2.0,
            spread: Duration::ZERO,
            settle: false,
        }
    }
}

#[derive(Clone, Debug)]
struct Turn {
    member: Member,
    weight: u16,
    /// Longest time away that does not overflow what keeps frames for us meanwhile.
    most_absence: Option<Duration>,
    /// Longest time that other networks should take where that costs nothing else.
    gentle_absence: Option<Duration>,
    /// Its slot may be shortened for that.
    is_divisible: bool,
    /// Of the period's turns that were full.
    bytes: u64,
    time: Duration,
    /// Bytes a second while present and full, of the latest period; `None` if no turn was full.
    delivers: Option<f64>,
    /// The last turn was full.
    full: bool,
    /// Periods in a row in which it delivered little.
    poor_periods: u8,
    given_up: bool,
}

/// The turns of one radio.
#[derive(Clone, Debug)]
pub struct Slots {
    settings: SlotSettings,
    turns: Vec<Turn>,
    /// Place of the member whose turn it is.
    at: usize,
    cycles: u32,
    settling: Settling,
}

/// A turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Whose.
    pub member: Member,
    /// How long.
    pub length: Duration,
}

impl Slots {
    /// Nobody's turn yet.
    pub fn new(settings: SlotSettings) -> Self {
        Self { settings, turns: Vec::new(), at: 0, cycles: 0, settling: Settling::default() }
    }

    /// Changes the settings; they hold from the next slot on.
    pub fn set_settings(&mut self, settings: SlotSettings) {
        self.settings = settings;
    }

    /// Adds a member at the end of the cycle, or changes its weight. A weight of 0 is taken as 1.
    pub fn set_weight(&mut self, member: Member, weight: u16) {
        let weight = weight.max(1);
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.member == member) {
            turn.weight = weight;
            return;
        }
        self.turns.push(Turn {
            member,
            weight,
            most_absence: None,
            gentle_absence: None,
            is_divisible: member != Member::Scan,
            bytes: 0,
            time: Duration::ZERO,
            delivers: None,
            full: false,
            poor_periods: 0,
            given_up: false,
        });
    }

    /// Takes a member out; what was its turn goes to the next.
    pub fn remove(&mut self, member: Member) {
        let Some(at) = self.turns.iter().position(|turn| turn.member == member) else { return };
        self.turns.remove(at);
        if self.settling.on() == Some(member) {
            self.settling.stop();
            self.turns.iter_mut().for_each(|turn| turn.given_up = false);
        }
        if at <= self.at {
            // The next turn is that of the one after it.
            self.at = self.at.checked_sub(1).unwrap_or(self.turns.len().saturating_sub(1));
        }
    }

    /// Whose turn is next, if it is not passed over.
    pub fn next_member(&self) -> Option<Member> {
        self.turns.get((self.at + 1) % self.turns.len().max(1)).map(|turn| turn.member)
    }

    /// Makes the next turn that of a member. Gives whether it is one.
    pub fn set_next(&mut self, member: Member) -> bool {
        let Some(at) = self.turns.iter().position(|turn| turn.member == member) else { return false };
        self.at = at.checked_sub(1).unwrap_or(self.turns.len() - 1);
        true
    }

    /// Members and their weights, in order of their turns.
    pub fn weights(&self) -> impl Iterator<Item = (Member, u16)> {
        self.turns.iter().map(|turn| (turn.member, turn.weight))
    }

    /// A member needs its slots whole, as listening does: while it has turns, nobody's is shortened for gentleness, so that weights hold.
    pub fn keep_whole(&mut self, member: Member) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.member == member) {
            turn.is_divisible = false;
        }
    }

    /// How long a member's frames may wait elsewhere, whatever becomes of the weights, and how long they should where all slots can be
    /// shortened alike. `None`: as long as it takes.
    pub fn set_absences(&mut self, member: Member, most: Option<Duration>, gentle: Option<Duration>) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.member == member) {
            (turn.most_absence, turn.gentle_absence) = (most, gentle);
        }
    }

    /// What a member delivered in a turn that took so long. Only a `full` turn, in which something was under way nearly all the time,
    /// tells what the member can deliver: `[MULTIAP] eq. 6` supposes that all paths are kept busy.
    pub fn delivered(&mut self, member: Member, bytes: u64, time: Duration, full: bool) {
        let settled = self.settling.on().is_some();
        let Some(turn) = self.turns.iter_mut().find(|turn| turn.member == member) else { return };
        turn.full = full;
        if full {
            turn.bytes += bytes;
            turn.time += time;
        } else if turn.given_up && settled {
            // What it could deliver at an earlier visit is no reason to move there.
            turn.delivers = None;
        }
    }

    /// Whether a member's last turn was full: it could use more time.
    pub fn is_full(&self, member: Member) -> bool {
        self.turns.iter().any(|turn| turn.member == member && turn.full)
    }

    /// Whether a member was given up for the time being: it is visited seldom.
    pub fn is_given_up(&self, member: Member) -> bool {
        self.turns.iter().any(|turn| turn.member == member && turn.given_up)
    }

    /// The next turn; `None` without members.
    pub fn advance(&mut self, randomness: &mut impl Rng) -> Option<Slot> {
        for _ in 0..self.turns.len() {
            self.at = (self.at + 1) % self.turns.len();
            if self.at == 0 {
                self.cycles = self.cycles.wrapping_add(1);
                if self.cycles.is_multiple_of(PERIOD_CYCLES) {
                    self.end_period(randomness);
                }
            }
            let skipped = self.turns[self.at].given_up && !self.cycles.is_multiple_of(GIVEN_UP_CYCLES);
            if !skipped {
                break;
            }
        }
        let member = self.turns.get(self.at)?.member;
        let spread = match self.settings.spread {
            Duration::ZERO => Duration::ZERO,
            most => most.mul_f64(randomness.random_range(0.0..1.0)),
        };
        Some(Slot { member, length: self.length(member)? + spread })
    }

    /// How long a cycle is now, without what chance adds.
    pub fn cycle(&self) -> Duration {
        self.turns.iter().filter_map(|turn| self.length(turn.member)).sum()
    }

    /// How long a member's slot is now, without what chance adds. `None` for one that has no turn.
    pub fn length(&self, member: Member) -> Option<Duration> {
        let turn = self.turns.iter().find(|turn| turn.member == member)?;
        if turn.given_up && self.settling.on().is_some() {
            return Some(self.settings.least);
        }
        let active = || self.turns.iter().filter(|other| !other.given_up || other.member == member);
        let planned = |turn: &Turn| self.planned(turn, &active);
        let others = u32::try_from(active().count().saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        let gentle: Vec<(&Turn, Duration)> =
            active().filter_map(|turn| Some((turn, turn.gentle_absence?))).collect();
        let length = match gentle[..] {
            _ if !active().all(|turn| turn.is_divisible) => planned(turn),
            [] => planned(turn),
            // Who has nothing to carry needs no share.
            [(only, _)] if only.member == member => planned(turn),
            [(_, absence)] => planned(turn).min(absence / others),
            // The cycle gets shorter as a whole, until a slot is not worth its change of channel any more.
            _ => {
                let all: Duration = active().map(planned).sum();
                let parts = gentle.iter().map(|(turn, absence)| {
                    let rest = all.saturating_sub(planned(turn)).max(self.settings.least);
                    absence.div_duration_f64(rest)
                });
                let shortest = active().map(planned).min().unwrap_or(all).max(self.settings.least);
                let floor = self.settings.least.div_duration_f64(shortest);
                planned(turn).mul_f64(parts.fold(1.0, f64::min).max(floor))
            }
        };
        // The others together stay away from each member no longer than its frames can wait.
        let absences = active().filter(|other| other.member != member).filter_map(|other| other.most_absence);
        let bound = absences.min().map(|absence| absence / others);
        Some(bound.map_or(length, |bound| length.min(bound)).max(self.settings.least))
    }

    /// How long a member's slot is by its share among `active` ones.
    fn planned<'a, Active: Iterator<Item = &'a Turn>>(
        &'a self,
        turn: &Turn,
        active: &impl Fn() -> Active,
    ) -> Duration {
        let cycle = match self.settings.cycle {
            Cycle::Multiples(unit) => return unit * turn.weight.into(),
            Cycle::Bounded(cycle) => cycle,
        };
        let shares: f64 = active().map(|turn| self.share(turn)).sum();
        // What the least slots take from the cycle, the others share.
        let ideal = |turn: &Turn| cycle.mul_f64(self.share(turn) / shares);
        let short = active().filter(|turn| ideal(turn) < self.settings.least);
        let (count, taken) = short.fold((0, 0.0), |(n, sum), turn| (n + 1, sum + self.share(turn)));
        if ideal(turn) < self.settings.least {
            self.settings.least
        } else {
            let rest = cycle.saturating_sub(self.settings.least * count);
            rest.mul_f64(self.share(turn) / (shares - taken).max(f64::MIN_POSITIVE))
        }
    }

    /// A member's part of the cycle, before the least slot: its weight, times `[MULTIAP] eq. 6` where it is known what it delivers. The
    /// unit is arbitrary.
    fn share(&self, turn: &Turn) -> f64 {
        let weight = f64::from(turn.weight);
        if self.settings.alpha == 0.0 || turn.member == Member::Scan {
            return weight;
        }
        let rates =
            self.turns.iter().filter(|turn| turn.member != Member::Scan).filter_map(|turn| turn.delivers);
        let best = rates.fold(0.0, f64::max);
        let delivers = turn.delivers.unwrap_or(best);
        if best == 0.0 { weight } else { weight * (delivers / best).powf(self.settings.alpha) }
    }

    /// Judges what came in the last few cycles.
    fn end_period(&mut self, randomness: &mut impl Rng) {
        for turn in &mut self.turns {
            // A member that is given up may have had no turn in this period.
            if !turn.time.is_zero() || !turn.given_up {
                turn.delivers = (!turn.time.is_zero()).then(|| turn.bytes as f64 / turn.time.as_secs_f64());
            }
            (turn.bytes, turn.time) = (0, Duration::ZERO);
        }
        if let Some(stays) = self.settle(randomness) {
            for turn in self.turns.iter_mut().filter(|turn| turn.member != Member::Scan) {
                (turn.given_up, turn.poor_periods) = (turn.member != stays, 0);
            }
            return;
        }
        if self.settings.alpha == 0.0 {
            self.turns.iter_mut().for_each(|turn| turn.given_up = false);
            return;
        }
        let best = self.turns.iter().filter_map(|turn| turn.delivers).fold(0.0, f64::max);
        for turn in self.turns.iter_mut().filter(|turn| turn.member != Member::Scan) {
            let part = turn.delivers.map_or(1.0, |delivers| if best == 0.0 { 1.0 } else { delivers / best });
            turn.poor_periods = if part < POOR_PART { turn.poor_periods.saturating_add(1) } else { 0 };
            if turn.given_up {
                turn.given_up = part < GOOD_PART;
            } else {
                turn.given_up = turn.poor_periods >= POOR_PERIODS;
            }
        }
    }

    /// With whom to stay, after what came in a period.
    fn settle(&mut self, randomness: &mut impl Rng) -> Option<Member> {
        let networks = || self.turns.iter().filter(|turn| turn.member != Member::Scan);
        let weight = networks().next().map(|turn| turn.weight);
        let is_equal = networks().all(|turn| turn.is_divisible && Some(turn.weight) == weight);
        let is_wanted = self.settings.settle && self.settings.alpha != 0.0 && is_equal;
        if !is_wanted {
            self.settling.stop();
            return None;
        }
        let readings: Vec<(Member, Option<f64>)> =
            networks().map(|turn| (turn.member, turn.delivers)).collect();
        self.settling.end_period(&readings, randomness)
    }
}

/// Cycles after which shares are computed anew: about a second.
const PERIOD_CYCLES: u32 = 5;
/// A member that was given up is visited in one of so many cycles.
const GIVEN_UP_CYCLES: u32 = 4;
/// A member that delivers less than this part of the best ...
const POOR_PART: f64 = 0.1;
/// ... so many periods in a row is given up ...
const POOR_PERIODS: u8 = 3;
/// ... until it delivers this part.
const GOOD_PART: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const A: Member = Member::Network(NetworkId(1));
    const B: Member = Member::Network(NetworkId(2));

    fn slots(settings: SlotSettings, weights: &[(Member, u16)]) -> Slots {
        let mut slots = Slots::new(settings);
        weights.iter().for_each(|(member, weight)| slots.set_weight(*member, *weight));
        slots
    }

    /// Turns as they come, while each member delivers a fixed rate in bytes a second.
    fn run(slots: &mut Slots, turns: usize, delivers: impl Fn(Member) -> f64) -> Vec<(Member, u64)> {
        let mut randomness = ChaCha8Rng::seed_from_u64(5);
        (0..turns)
            .map(|_| {
                let slot = slots.advance(&mut randomness).unwrap();
                let bytes = delivers(slot.member) * slot.length.as_secs_f64();
                slots.delivered(slot.member, bytes as u64, slot.length, true);
                (slot.member, slot.length.as_millis() as u64)
            })
            .collect()
    }

    #[test]
    fn weights_are_multiples_as_in_juggler() {
        let settings = SlotSettings {
            cycle: Cycle::Multiples(Duration::from_millis(100)),
            alpha: 0.0,
            ..Default::default()
        };
        let mut slots = slots(settings, &[(A, 9), (B, 1)]);
        assert_eq!(run(&mut slots, 4, |_| 0.0), [(B, 100), (A, 900), (B, 100), (A, 900)]);
    }

    #[test]
    fn a_bounded_cycle_is_shared_and_leaves_nobody_out() {
        let mut slots = slots(SlotSettings::default(), &[(A, 90), (B, 1), (Member::Scan, 9)]);
        let turns = run(&mut slots, 3, |_| 1.0);
        assert_eq!(turns.iter().map(|(_, length)| length).sum::<u64>(), 199, "{turns:?}");
        assert_eq!(turns[0], (B, 10));
        assert_eq!(turns[1], (Member::Scan, 17));
    }

    #[test]
    fn equation_6_gives_the_better_network_more() {
        let mut equal = slots(SlotSettings { alpha: 0.0, ..Default::default() }, &[(A, 1), (B, 1)]);
        let mut adapting = slots(SlotSettings::default(), &[(A, 1), (B, 1)]);
        let delivers = |member| if member == A { 2e6 } else { 1e6 };
        assert_eq!(run(&mut equal, 40, delivers)[38..], [(B, 100), (A, 100)]);
        // By hand: 200 ms * 2^2 / (2^2 + 1^2) = 160 ms.
        assert_eq!(run(&mut adapting, 40, delivers)[38..], [(B, 40), (A, 160)]);
    }

    #[test]
    fn who_has_little_to_carry_is_not_taken_for_poor() {
        let mut slots = slots(SlotSettings::default(), &[(A, 1), (B, 1)]);
        let mut randomness = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..100 {
            let slot = slots.advance(&mut randomness).unwrap();
            let bytes = if slot.member == A { 5_000 } else { 100 };
            slots.delivered(slot.member, bytes, slot.length, false);
        }
        assert!(!slots.is_given_up(B) && !slots.is_full(A));
        assert_eq!(slots.length(B), Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_poor_network_is_visited_seldom_and_comes_back() {
        let mut slots = slots(SlotSettings::default(), &[(A, 1), (B, 1)]);
        let poor = run(&mut slots, 100, |member| if member == A { 2e6 } else { 1e4 });
        assert!(slots.is_given_up(B));
        let visits = poor[60..].iter().filter(|(member, _)| *member == B).count();
        assert!((5..=10).contains(&visits), "{visits} of 40");
        run(&mut slots, 60, |_| 2e6);
        assert!(!slots.is_given_up(B));
        assert_eq!(slots.length(B), Some(Duration::from_millis(100)));
    }

    #[test]
    fn nobody_is_away_longer_than_its_frames_can_wait() {
        let mut slots = slots(SlotSettings::default(), &[(A, 1), (B, 1)]);
        slots.set_absences(A, Some(Duration::from_millis(35)), None);
        assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 35), (A, 100)]);
    }

    #[test]
    fn gentleness_shortens_the_cycle_and_leaves_the_weights() {
        let mut slots = slots(SlotSettings { alpha: 0.0, ..Default::default() }, &[(A, 4), (B, 1)]);
        assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 40), (A, 160)]);
        slots.set_absences(A, Some(Duration::from_millis(90)), Some(Duration::from_millis(30)));
        assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 30), (A, 160)], "there is nothing to carry for B");
        slots.set_absences(B, None, Some(Duration::from_millis(900)));
        assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 30), (A, 120)]);
        slots.set_absences(A, Some(Duration::from_millis(90)), Some(Duration::from_millis(3)));
        assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 10), (A, 40)]);
    }

    #[test]
    fn who_needs_whole_slots_gets_its_share_all_the_same() {
        let settings = SlotSettings {
            cycle: Cycle::Multiples(Duration::from_millis(60)),
            alpha: 0.0,
            ..Default::default()
        };
        let mut listening = slots(settings, &[(A, 1), (B, 1), (Member::Scan, 1)]);
        listening.set_absences(A, Some(Duration::from_millis(100)), Some(Duration::from_millis(40)));
        assert_eq!(run(&mut listening, 3, |_| 1.0), [(B, 50), (Member::Scan, 50), (A, 60)]);
        let mut grouped = slots(settings, &[(A, 1), (B, 1)]);
        grouped.set_absences(A, None, Some(Duration::from_millis(20)));
        assert_eq!(run(&mut grouped, 2, |_| 1.0), [(B, 20), (A, 60)]);
        grouped.keep_whole(B);
        assert_eq!(run(&mut grouped, 2, |_| 1.0), [(B, 60), (A, 60)]);
    }

    #[test]
    fn who_settles_visits_the_others_shortly_and_moves_to_what_is_better() {
        let settings = SlotSettings { settle: true, ..SlotSettings::default() };
        let mut settled = slots(settings, &[(A, 1), (B, 1)]);
        let turns = run(&mut settled, 200, |member| if member == A { 2e6 } else { 1e6 });
        // By hand: four cycles of A, and a visit.
        assert_eq!(turns[195..].iter().filter(|turn| **turn == (A, 200)).count(), 4, "{:?}", &turns[190..]);
        assert!(turns[195..].contains(&(B, 10)));
        run(&mut settled, 200, |member| if member == B { 2e6 } else { 1e6 });
        assert_eq!((settled.length(B), settled.is_given_up(A)), (Some(Duration::from_millis(200)), true));
        settled.remove(B);
        assert!(!settled.is_given_up(A));
        let mut weighted = slots(settings, &[(A, 2), (B, 1)]);
        run(&mut weighted, 200, |_| 2e6);
        assert!(!weighted.is_given_up(A) && !weighted.is_given_up(B), "weights are a wish for turns");
    }

    #[test]
    fn chance_spreads_slots() {
        let settings = SlotSettings { spread: Duration::from_millis(10), ..Default::default() };
        let turns = run(&mut slots(settings, &[(A, 1), (B, 1)]), 50, |_| 1.0);
        assert!(turns.iter().all(|(_, length)| (100..=110).contains(length)));
        assert!(
            turns.iter().any(|(_, length)| *length > 107) && turns.iter().any(|(_, length)| *length < 103)
        );
    }

    #[test]
    fn one_can_be_next_out_of_turn() {
        let mut slots = slots(SlotSettings::default(), &[(A, 1), (B, 1), (Member::Scan, 1)]);
        let mut randomness = ChaCha8Rng::seed_from_u64(5);
        for member in [B, A, Member::Scan, A] {
            assert!(slots.set_next(member));
            assert_eq!(slots.next_member(), Some(member));
            assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(member));
        }
        assert!(!slots.set_next(Member::Network(NetworkId(9))));
    }

    #[test]
    fn members_come_and_go() {
        let mut randomness = ChaCha8Rng::seed_from_u64(1);
        let mut slots = slots(SlotSettings::default(), &[(A, 1)]);
        assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(A));
        slots.set_weight(B, 1);
        slots.remove(A);
        assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(B));
        slots.remove(B);
        assert_eq!(slots.advance(&mut randomness), None);
        slots.set_weight(Member::Scan, 1);
        assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(Member::Scan));
    }
}
