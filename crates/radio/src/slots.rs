//! Which channel's turn it is on the radio, and for how long (`[JUGGLER] sections 3.3 and 3.4`, `[MULTIAP] section 7`).
//!
//! Round robin. A cycle visits each channel once, however many networks are on it, and a channel that was given up once in a few cycles only. The
//! radio is in all networks of a channel at once, so they ask for its turn together (`Wish`) and are judged by what they deliver together:
//!
//! ```text
//! network 1, weight 1 --+-- channel 1: weight 2, what both deliver --+
//! network 2, weight 1 --+                                            +-- cycle: channel 1, channel 6
//! network 3, weight 1 ----- channel 6: weight 1, what it delivers ---+
//! ```
//! `[MULTIAP] section 8` leaves it open how access points of one channel and turns among channels go together. Here steering decides who carries
//! data within a channel; what comes of that is what `eq. 6` sees of the channel, and who only stands by asks for no time ([`Slots::set_standby`]).

mod networks;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use units::{Frequency, NetworkId};

use self::networks::{Asker, Wish, wish};
use crate::settling::{Reading, Settling};

/// Who has a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Member {
    /// A channel, with all networks on it.
    Channel(Frequency),
    /// Listening for networks, on one channel after another.
    Scan,
}

/// Whether a turn could have used more time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fill {
    /// There were pauses between our frames.
    Slack,
    /// Something of ours was under way nearly all the time, but the air has room: uplinks or senders are slower, and what does not come now will come later.
    Steady,
    /// The same, and the air is taken.
    Air,
}

/// How long a cycle is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cycle {
    /// As long as this but for chance, shared by weights: keeps round trips under the least retransmission time-out. `[MULTIAP] section 7`: 200 ms.
    Bounded(Duration),
    /// Each member its weight times this, however long the cycle gets; a channel's weight is that of its networks together. `[JUGGLER] section 3.4`: 100 ms.
    Multiples(Duration),
}

/// Settings of the turns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlotSettings {
    /// How long a cycle is.
    pub cycle: Cycle,
    /// The shortest slot: an access point must be able to send something in it. `[MULTIAP] section 7`: 10 ms.
    pub least: Duration,
    /// How much more time a channel gets that delivers more: the exponent of `[MULTIAP] eq. 6`. 0: weights alone decide.
    pub alpha: f64,
    /// Each channel's slot is shorter or longer by up to this part of it, drawn evenly: stations that share access points do not march in step, and weights
    /// stay as they are. Only where no network needs its slots whole. `[MULTIAP] section 7.1` adds up to 10 ms to slots of about 67 ms. Below 0 is taken
    /// as 0, above 1 as 1.
    pub spread: f64,
    /// Stay on one channel while the air there is taken, so that it alone delivers as much as turns would, and visit the others seldom. Only where the
    /// networks' weights are equal, `alpha` is not 0 and none needs its slots whole.
    pub settle: bool,
}

impl Default for SlotSettings {
    fn default() -> Self {
        Self {
            cycle: Cycle::Bounded(Duration::from_millis(200)),
            least: Duration::from_millis(10),
            alpha: 2.0,
            spread: 0.1,
            settle: false,
        }
    }
}

#[cfg(test)]
impl SlotSettings {
    /// The usual ones without chance: how long slots are, and when one meets a beacon, can be told beforehand.
    pub(crate) fn punctual() -> Self {
        Self { spread: 0.0, ..Self::default() }
    }
}

#[derive(Clone, Debug)]
struct Turn {
    member: Member,
    wish: Wish,
    /// Of the period's turns that were full.
    bytes: u64,
    time: Duration,
    /// ... and of these the ones in which the air was taken.
    air_time: Duration,
    /// Bytes a second while present and full, of the latest period; `None` if no turn was full.
    delivers: Option<f64>,
    /// What it delivers of what the best does, evened out over periods: above 0, at most 1.
    part: f64,
    /// The last turn was full.
    full: bool,
    /// Turns in a row in which nothing came.
    empty: u8,
    /// Periods in a row in which it delivered little.
    poor_periods: u8,
    given_up: bool,
}

/// The turns of one radio.
#[derive(Clone, Debug)]
pub struct Slots {
    settings: SlotSettings,
    networks: BTreeMap<NetworkId, Asker>,
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
        Self {
            settings,
            networks: BTreeMap::new(),
            turns: Vec::new(),
            at: 0,
            cycles: 0,
            settling: Settling::default(),
        }
    }

    /// Changes the settings; they hold from the next slot on.
    pub fn set_settings(&mut self, settings: SlotSettings) {
        self.settings = settings;
    }

    /// Adds a network, which has no turn before its channel is known, or changes its weight. A weight of 0 is taken as 1.
    pub fn set_weight(&mut self, network: NetworkId, weight: u16) {
        let weight = weight.max(1);
        self.networks.entry(network).or_insert_with(|| Asker::new(weight)).weight = weight;
        self.ask_for(network);
    }

    /// A network is on this channel now, joined or being joined; `None`: nowhere. A channel's turn begins with its first network, at the end of
    /// the cycle, and ends with its last. One more is a reason to judge a channel anew.
    pub fn set_channel(&mut self, network: NetworkId, channel: Option<Frequency>) {
        let Some(asker) = self.networks.get_mut(&network) else { return };
        let before = std::mem::replace(&mut asker.channel, channel);
        if before == channel {
            return;
        }
        if let Some(before) = before {
            self.ask(Member::Channel(before));
        }
        if let Some(channel) = channel {
            let member = Member::Channel(channel);
            self.ask(member);
            if let Some(turn) = self.turns.iter_mut().find(|turn| turn.member == member) {
                (turn.delivers, turn.part, turn.poor_periods, turn.given_up) = (None, 1.0, 0, false);
            }
        }
    }

    /// A network's access point is only kept ready, as others of its channel are better: it asks for no time while one of those carries data.
    pub fn set_standby(&mut self, network: NetworkId, stands_by: bool) {
        if let Some(asker) = self.networks.get_mut(&network) {
            asker.stands_by = stands_by;
            self.ask_for(network);
        }
    }

    /// A network needs its slots whole, as listening does: while its channel has turns, nobody's is shortened for gentleness, so that weights hold.
    pub fn keep_whole(&mut self, network: NetworkId) {
        if let Some(asker) = self.networks.get_mut(&network) {
            asker.needs_whole = true;
            self.ask_for(network);
        }
    }

    /// How long a network's frames may wait elsewhere, whatever becomes of the weights, and how long they should where all slots can be
    /// shortened alike. `None`: as long as it takes. The least of a channel's networks counts.
    pub fn set_absences(&mut self, network: NetworkId, most: Option<Duration>, gentle: Option<Duration>) {
        if let Some(asker) = self.networks.get_mut(&network) {
            (asker.most_absence, asker.gentle_absence) = (most, gentle);
            self.ask_for(network);
        }
    }

    /// Takes a network out, and with the last of a channel its turn.
    pub fn remove(&mut self, network: NetworkId) {
        self.set_channel(network, None);
        self.networks.remove(&network);
    }

    /// Gives listening a turn of this weight; 0 is taken as 1. `None`: none.
    pub fn set_listening(&mut self, weight: Option<u16>) {
        self.set_wish(Member::Scan, weight.map(Wish::of_listening));
    }

    /// What a network asks for has changed.
    fn ask_for(&mut self, network: NetworkId) {
        if let Some(channel) = self.networks.get(&network).and_then(|asker| asker.channel) {
            self.ask(Member::Channel(channel));
        }
    }

    fn ask(&mut self, member: Member) {
        let Member::Channel(channel) = member else { return };
        self.set_wish(member, wish(self.networks.values().filter(|asker| asker.channel == Some(channel))));
    }

    /// Adds a member at the end of the cycle, changes what it asks for, or takes it out; what was its turn goes to the next.
    fn set_wish(&mut self, member: Member, wish: Option<Wish>) {
        let at = self.turns.iter().position(|turn| turn.member == member);
        match (at, wish) {
            (Some(at), Some(wish)) => self.turns[at].wish = wish,
            (None, Some(wish)) => self.turns.push(Turn::new(member, wish)),
            (Some(at), None) => self.end_turns(at),
            (None, None) => {}
        }
    }

    fn end_turns(&mut self, at: usize) {
        let turn = self.turns.remove(at);
        if self.settling.on() == Some(turn.member) {
            self.settling.stop();
            self.give_all_turns();
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

    /// Who has turns, in their order.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.turns.iter().map(|turn| turn.member)
    }

    /// What all networks of a channel delivered together in a turn that took so long. Only a turn without slack tells what the channel can deliver:
    /// `[MULTIAP] eq. 6` supposes that all paths are kept busy.
    pub fn delivered(&mut self, channel: Frequency, bytes: u64, time: Duration, fill: Fill) {
        let settled = self.settling.on();
        let member = Member::Channel(channel);
        let Some(turn) = self.turns.iter_mut().find(|turn| turn.member == member) else { return };
        turn.full = fill > Fill::Slack;
        turn.empty = if bytes == 0 { turn.empty.saturating_add(1) } else { 0 };
        let is_gone = turn.empty >= EMPTY_TURNS && settled == Some(member);
        if turn.full {
            turn.bytes += bytes;
            turn.time += time;
            turn.air_time += if fill == Fill::Air { time } else { Duration::ZERO };
        } else if turn.given_up && settled.is_some() {
            // What it could deliver at an earlier visit is no reason to move there.
            turn.delivers = None;
        }
        if is_gone {
            // Another may have to take over: that is not left to the end of the period.
            self.settling.pause();
            self.give_all_turns();
        }
    }

    /// Nobody is visited seldom any more.
    fn give_all_turns(&mut self) {
        self.turns.iter_mut().for_each(|turn| turn.given_up = false);
    }

    /// Whether a channel's last turn was full: it could use more time.
    pub fn is_full(&self, channel: Frequency) -> bool {
        self.turn(channel).is_some_and(|turn| turn.full)
    }

    /// Whether a channel was given up for the time being: it is visited seldom.
    pub fn is_given_up(&self, channel: Frequency) -> bool {
        self.turn(channel).is_some_and(|turn| turn.given_up)
    }

    /// The part of the radio's time that a channel has, and so each of its networks: 0 to 1, listening and changes of channel aside.
    pub fn presence(&self, channel: Frequency) -> f64 {
        let time = |turn: &Turn| {
            let visits = if turn.given_up { 1.0 / f64::from(GIVEN_UP_CYCLES) } else { 1.0 };
            self.length(turn.member).unwrap_or_default().as_secs_f64() * visits
        };
        let all: f64 = self.turns.iter().filter(|turn| turn.member != Member::Scan).map(time).sum();
        self.turn(channel).filter(|_| all > 0.0).map_or(0.0, |turn| time(turn) / all)
    }

    fn turn(&self, channel: Frequency) -> Option<&Turn> {
        self.turns.iter().find(|turn| turn.member == Member::Channel(channel))
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
        let mut channels = self.active(member).filter(|turn| turn.member != Member::Scan);
        let is_spread = member != Member::Scan && channels.all(|turn| turn.wish.is_divisible);
        let spread = if is_spread { self.settings.spread.clamp(0.0, 1.0) } else { 0.0 };
        let by_chance = 1.0 + spread * randomness.random_range(-1.0..=1.0);
        let length = self.length(member)?.mul_f64(by_chance);
        let length = self.most(member).map_or(length, |most| length.min(most)).max(self.settings.least);
        Some(Slot { member, length })
    }

    /// How long a cycle is now, without chance.
    pub fn cycle(&self) -> Duration {
        self.turns.iter().filter_map(|turn| self.length(turn.member)).sum()
    }

    /// How long a member's slot is now, without chance. `None` for one that has no turn.
    pub fn length(&self, member: Member) -> Option<Duration> {
        let turn = self.turns.iter().find(|turn| turn.member == member)?;
        if turn.given_up && self.settling.on().is_some() {
            return Some(self.settings.least);
        }
        let active = || self.active(member);
        let planned = |turn: &Turn| self.planned(turn, &active);
        let others = u32::try_from(active().count().saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        let gentle: Vec<(&Turn, Duration)> =
            active().filter_map(|turn| Some((turn, turn.wish.gentle_absence?))).collect();
        let length = match gentle[..] {
            _ if !active().all(|turn| turn.wish.is_divisible) => planned(turn),
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
        Some(self.most(member).map_or(length, |most| length.min(most)).max(self.settings.least))
    }

    /// How long a member's slot may be at most, as far as that is bounded: the others together stay away from each member no longer than its frames can
    /// wait.
    fn most(&self, member: Member) -> Option<Duration> {
        let others = || self.active(member).filter(|other| other.member != member);
        let count = u32::try_from(others().count()).unwrap_or(u32::MAX).max(1);
        others().filter_map(|other| other.wish.most_absence).min().map(|absence| absence / count)
    }

    /// Who has a turn in every cycle, and this member.
    fn active(&self, member: Member) -> impl Iterator<Item = &Turn> {
        self.turns.iter().filter(move |other| !other.given_up || other.member == member)
    }

    /// How long a member's slot is by its share among `active` ones.
    fn planned<'a, Active: Iterator<Item = &'a Turn>>(
        &'a self,
        turn: &Turn,
        active: &impl Fn() -> Active,
    ) -> Duration {
        let cycle = match self.settings.cycle {
            Cycle::Multiples(unit) => return unit * turn.wish.weight,
            Cycle::Bounded(cycle) => cycle,
        };
        let shares: f64 = active().map(|turn| self.share(turn)).sum::<f64>() + self.sought();
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

    /// What networks that are nowhere would have. It is left free: the cycle is shorter, so that listening, which seeks them, comes round sooner.
    fn sought(&self) -> f64 {
        let nowhere = self.networks.values().filter(|asker| asker.channel.is_none());
        nowhere.map(|asker| f64::from(asker.weight)).sum()
    }

    /// A member's part of the cycle, before the least slot: its weight, times `[MULTIAP] eq. 6` where it is known what it delivers. The
    /// unit is arbitrary.
    fn share(&self, turn: &Turn) -> f64 {
        let weight = f64::from(turn.wish.weight);
        if turn.member == Member::Scan { weight } else { weight * turn.part.powf(self.settings.alpha) }
    }

    /// Takes what came in a period into the parts of `[MULTIAP] eq. 6`, a step of `1 / (1 + alpha)` on the logarithm at a time.
    ///
    /// Where the air limits what a channel delivers, that is the same whatever its time, and any step leads there. Where its access points' uplinks do, or
    /// senders that send no faster, the same bytes come in whatever time it has: with half the time it delivers twice as much a second. Two such channels have
    /// equal times as the equation's fixed point, but from a ratio of times `r` it leads to `r^-alpha`: with whole steps they swing between all and nothing for
    /// alpha above 1. With this step `r` becomes 1 at once, since `1 - (1 + alpha) / (1 + alpha) = 0`.
    /// Whole steps where the air limits were tried: the radios of many users then turn to the same channel at once (experiments/MULTIAP, sec71-users).
    fn even_out(&mut self) {
        let step = 1.0 / (1.0 + self.settings.alpha);
        let best = self.best();
        for turn in self.turns.iter_mut().filter(|turn| turn.member != Member::Scan) {
            turn.part = turn.part.powf(1.0 - step) * turn.latest_part(best).powf(step);
        }
    }

    /// What the channel delivers that delivers most, bytes a second; 0 if nothing is known.
    fn best(&self) -> f64 {
        self.turns.iter().filter_map(|turn| turn.delivers).fold(0.0, f64::max)
    }

    /// Judges what came in the last few cycles.
    fn end_period(&mut self, randomness: &mut impl Rng) {
        for turn in &mut self.turns {
            // A member that is given up may have had no turn in this period.
            if !turn.time.is_zero() || !turn.given_up {
                turn.delivers = (!turn.time.is_zero()).then(|| turn.bytes as f64 / turn.time.as_secs_f64());
            }
        }
        self.even_out();
        let stayed = self.settling.on().is_some();
        let stays = self.settle(randomness);
        self.turns.iter_mut().for_each(Turn::begin_period);
        if stayed && stays.is_none() {
            self.give_all_turns();
        }
        if let Some(stays) = stays {
            for turn in self.turns.iter_mut().filter(|turn| turn.member != Member::Scan) {
                (turn.given_up, turn.poor_periods) = (turn.member != stays, 0);
            }
            return;
        }
        if self.settings.alpha == 0.0 {
            self.give_all_turns();
            return;
        }
        let best = self.best();
        for turn in self.turns.iter_mut().filter(|turn| turn.member != Member::Scan) {
            let part = turn.latest_part(best);
            turn.poor_periods = if part < POOR_PART { turn.poor_periods.saturating_add(1) } else { 0 };
            if turn.given_up && part >= GOOD_PART {
                (turn.given_up, turn.part) = (false, part);
            } else if !turn.given_up {
                turn.given_up = turn.poor_periods >= POOR_PERIODS;
            }
        }
    }

    /// With whom to stay, after what came in a period.
    fn settle(&mut self, randomness: &mut impl Rng) -> Option<Member> {
        let channels = || self.turns.iter().filter(|turn| turn.member != Member::Scan);
        // Two networks on one channel and one on another wish nothing by weighing the same.
        let mut placed = self.networks.values().filter(|asker| asker.channel.is_some());
        let weight = placed.clone().next().map(|asker| asker.weight);
        let is_equal =
            channels().all(|turn| turn.wish.is_divisible) && placed.all(|asker| Some(asker.weight) == weight);
        let is_wanted = self.settings.settle && self.settings.alpha != 0.0 && is_equal;
        if !is_wanted {
            self.settling.stop();
            return None;
        }
        let reading = |turn: &Turn| Reading { delivers: turn.delivers, air_is_taken: turn.air_was_taken() };
        let readings: Vec<(Member, Reading)> = channels().map(|turn| (turn.member, reading(turn))).collect();
        self.settling.end_period(&readings, randomness)
    }
}

impl Turn {
    fn new(member: Member, wish: Wish) -> Self {
        Self {
            member,
            wish,
            bytes: 0,
            time: Duration::ZERO,
            air_time: Duration::ZERO,
            delivers: None,
            part: 1.0,
            full: false,
            empty: 0,
            poor_periods: 0,
            given_up: false,
        }
    }

    fn begin_period(&mut self) {
        (self.bytes, self.time, self.air_time) = (0, Duration::ZERO, Duration::ZERO);
    }

    /// In most of the period's full turns.
    fn air_was_taken(&self) -> bool {
        self.air_time * 2 > self.time
    }

    /// What it delivered in the latest period of what the best did; all of it, if that is not known.
    fn latest_part(&self, best: f64) -> f64 {
        self.delivers.filter(|_| best > 0.0).map_or(1.0, |delivers| delivers / best)
    }
}

/// Cycles after which shares are computed anew: about a second.
const PERIOD_CYCLES: u32 = 5;
/// A member that was given up is visited in one of so many cycles.
const GIVEN_UP_CYCLES: u32 = 4;
/// Turns without anything after which a channel on which the radio stays has nothing more: one ends after a few milliseconds of nothing, which is a pause of
/// any sender.
const EMPTY_TURNS: u8 = 2;
/// A member that delivers less than this part of the best ...
const POOR_PART: f64 = 0.1;
/// ... so many periods in a row is given up ...
const POOR_PERIODS: u8 = 3;
/// ... until it delivers this part.
const GOOD_PART: f64 = 0.3;

#[cfg(test)]
mod tests;
