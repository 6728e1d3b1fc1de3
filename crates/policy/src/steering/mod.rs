//! Which access points carry data, how much each, and how many of their packets are marked so that senders prefer better ones (`[MULTIAP] section 5`).
//!
//! Access points of one channel share its air: a packet over a slow one takes the time of several over a fast one, and the MAC often gives each the
//! same number of packets. So the good ones carry what they can, and slower ones no more than the air that those and others leave (`share.rs`).
//! Channels do not disturb each other and are judged apart; how long the radio stays on each is a matter of slots.
//!
//! ```text
//!              known: good, or air is free                known: better ones leave no air
//!   Trying ------------------------------> Used <------------------------------+
//!     ^  | known, no air is free            |  no air is left to it            | air is free
//!     |  +-------------------------> Ready <+----------------------------------+
//!     +--- nothing known for long, or heard so well that it may be better; one at a time --+
//! ```
//! Where attempts fail it is tried whether the others are to blame, which an access point that hears them would not bear: then only the best one of
//! the channel carries data (`hidden.rs`).
//!
//! The caller brings estimates every 100 ms or so ([`Steering::update`]). What is done with the outcome is one of three things: word to our own gateway of
//! what to use and how much, which needs no marks; marks on our own bond's paths; or marks on packets of TCP flows with several ways ([`marking`]),
//! where nobody can be told anything: as many as hold senders to what they would be told.

mod fair;
mod free_air;
mod hidden;
mod lapse;
pub mod marking;
mod point;
mod reason;
mod renewal;
mod share;
mod worth;

use std::collections::BTreeMap;
use std::time::Duration;

use units::{BitRate, Bytes, Frequency, MacAddress, NetworkId, Timestamp};

pub use fair::Sharer;
use fair::{FairPart, Ours, parts};
use free_air::FreeAir;
use hidden::{Apart, Best, Hidden, Rival};
pub use marking::{MOST_MARKS, MarkShare, MarkingForm, marks_of_flows, safe_marks, with_queue};
use point::{LEAST_CONFIDENCE, Point, Stage};
use reason::Lack;
pub use reason::SteeringReason;
use renewal::{Carrying, Renewals};
use share::{MOST_USED, Rank, Slower, Standing, beginning, has_room, ranks, share, spare};
use worth::{Verdict, Worth};

/// What is known of a network's access point when [`Steering::update`] is called.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PointView {
    /// The network.
    pub network: NetworkId,
    /// The address of its access point: of a network that has several, what is known of one says nothing of the next.
    pub access_point: MacAddress,
    /// Its channel.
    pub channel: Frequency,
    /// Air time for a packet of [`FULL_PACKET`]; `None` if nothing was heard of it lately.
    pub packet_time: Option<Duration>,
    /// How far to believe it, 0 to 1.
    pub confidence: f64,
    /// The part of its attempts that we read, 0 to 1; `None` if unknown.
    pub delivered: Option<f64>,
    /// Its signal lately, dBm; `None` if unknown.
    pub signal_dbm: Option<f32>,
    /// Flows over it have another way to go: only such are marked.
    pub other_way: bool,
    /// Full packets that it brought lately, in a second.
    pub carried: f64,
    /// The part of its channel's air that others took lately, 0 to 1; 0 if nobody knows.
    pub others: f64,
    /// The radio is on its channel all the time; else what arrives is a matter of turns too, and says nothing of who is worth the air.
    pub stays: bool,
    /// Something answers from beyond it.
    pub reaches: bool,
}

/// What is to be done with a network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Steered {
    /// The network.
    pub network: NetworkId,
    /// Whether it is to carry data; else it is kept associated and ready.
    pub used: bool,
    /// No more than this is to go over it, or over one that is only kept ready if all others fail; `None`: as much as it takes.
    pub limit: Option<BitRate>,
    /// No more than this is to come from a sender over several networks, as a bond's other end is, since others want the air as well. Flows that stand in each
    /// queue by themselves share each with those who do.
    pub fair_limit: Option<BitRate>,
    /// How many of its packets are to be marked where senders cannot be told: of one that has a limit as many as hold them to that, of one that is as good as
    /// the best the most, and then no more than [`safe_marks`] for the round trip ([`marks_of_flows`]). None of one that is to prove how good it is.
    pub marks: MarkShare,
    /// How often flows over it were to begin anew, where senders cannot be told, since it is there (`renewal.rs`).
    pub renewals: u32,
    /// The packet time that this rests on, which may be some seconds old.
    pub packet_time: Option<Duration>,
    /// Why.
    pub reason: SteeringReason,
}

impl Steered {
    /// What is to be marked of flows with this round-trip time with an empty queue.
    pub fn marks_for(&self, empty: Option<Duration>) -> MarkShare {
        marks_of_flows(self.marks, self.limit.is_some() || !self.used, self.packet_time, empty)
    }

    fn carrying(&self, view: &PointView) -> Carrying {
        use SteeringReason::{Doubtful, FreeAir, Unknown};
        let Self { network, used, reason, .. } = *self;
        let PointView { access_point, carried, reaches, .. } = *view;
        let held = matches!(reason, FreeAir { .. });
        let known = !matches!(reason, Unknown | Doubtful { .. });
        Carrying { network, access_point, carried, used, held, known, reaches }
    }
}

/// How steering is done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SteeringSettings {
    /// Marked are those that take so much longer than the best, as a part of its time (`[MULTIAP] section 5.2`: 20 %).
    pub threshold: f64,
}

impl Default for SteeringSettings {
    fn default() -> Self {
        Self { threshold: 0.2 }
    }
}

/// The time for which the parts that are given and taken hold; updates further apart count for several.
const STEP: Duration = Duration::from_millis(100);
/// At most so many.
const MOST_STEPS: f64 = 10.0;
/// What a packet time is the time of.
pub const FULL_PACKET: Bytes = Bytes(1_500);

/// The state of steering. Networks that are not in an update any more are forgotten.
#[derive(Clone, Default, Debug)]
pub struct Steering {
    settings: SteeringSettings,
    points: BTreeMap<NetworkId, Point>,
    hidden: BTreeMap<Frequency, Hidden>,
    free: BTreeMap<Frequency, (FreeAir, Worth)>,
    renewals: Renewals,
    sharers: Vec<Sharer>,
    /// Of the last update.
    updated: Option<Timestamp>,
}

impl Steering {
    /// Without any network yet.
    pub fn new(settings: SteeringSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes who else has a part of the air, until told otherwise.
    pub fn hear(&mut self, sharers: impl IntoIterator<Item = Sharer>) {
        let is_number = |sharer: &Sharer| sharer.packets.is_finite() && sharer.packets > 0.0;
        self.sharers = sharers.into_iter().filter(is_number).collect();
    }

    /// Takes what is known now; gives what is to be done with each network, in the order of their numbers.
    pub fn update(&mut self, now: Timestamp, views: &[PointView]) -> Vec<Steered> {
        let passed = self.updated.replace(now).map_or(STEP, |before| now.since(before));
        let steps = (passed.as_secs_f64() / STEP.as_secs_f64()).min(MOST_STEPS);
        self.points.retain(|network, _| views.iter().any(|view| view.network == *network));
        for view in views {
            let point = self.points.entry(view.network).or_insert_with(|| Point::new(now, *view));
            if point.view.access_point != view.access_point {
                *point = Point::new(now, *view);
            }
            point.take(now, steps, *view);
        }
        let mut channels: Vec<Frequency> = views.iter().map(|view| view.channel).collect();
        channels.sort_unstable();
        channels.dedup();
        self.hidden.retain(|channel, _| channels.contains(channel));
        self.free.retain(|channel, _| channels.contains(channel));
        let mut steered: Vec<Steered> =
            channels.into_iter().flat_map(|channel| self.steer(now, steps, channel)).collect();
        steered.sort_unstable_by_key(|steered| steered.network);
        let carrying: Vec<Carrying> = steered
            .iter()
            .filter_map(|one| {
                let view = views.iter().find(|view| view.network == one.network)?;
                Some(one.carrying(view))
            })
            .collect();
        self.renewals.update(now, passed, &carrying);
        steered.iter_mut().for_each(|one| one.renewals = self.renewals.of(one.network));
        steered
    }

    /// What becomes of the networks of one channel.
    fn steer(&mut self, now: Timestamp, steps: f64, channel: Frequency) -> Vec<Steered> {
        let settings = self.settings;
        let sharers = self.sharers.iter().filter(|sharer| sharer.channel == channel);
        let sharers: Vec<_> = sharers.map(|sharer| (sharer.transmitter, sharer.packets)).collect();
        let mut here: Vec<&mut Point> =
            self.points.values_mut().filter(|point| point.view.channel == channel).collect();
        let hidden = self.hidden.entry(channel).or_insert_with(|| Hidden::new(now));
        forget_silent(now, &mut here);
        let sure = sureness(&here);
        // Those in the contest first, the best one first among them.
        here.sort_by_key(|point| {
            let time = point.in_contest(now, sure);
            let is_chosen = time.is_some() && hidden.chosen() == Some(point.view.network);
            (!is_chosen, time.unwrap_or(Duration::MAX), point.view.network)
        });
        let leader = here.first().and_then(|point| Some((point.in_contest(now, sure)?, point.signal_dbm)));
        // Those that disturb each other would cost the best one more than they bring.
        let may_wait = !hidden.disturbed();
        let pace = (settings.threshold, steps * STEP.as_secs_f64());
        let stand = |point: &mut Point| {
            let time = point.in_contest(now, sure)?;
            Some((time, point.stand(time, leader?, pace, may_wait)))
        };
        let times: Vec<(Duration, Standing)> = here.iter_mut().filter_map(|point| stand(point)).collect();
        let was_on_trial = hidden.on_trial();
        let apart = hidden.update(now, in_company(now, &here), rival(now, &here));
        let may_prove_beside = !hidden.disturbed();
        // In the order of this step, also as its trial ends.
        let on_trial = [was_on_trial, hidden.on_trial()];
        let others = here.iter().map(|point| point.others).fold(0.0, f64::max);
        let spare = spare(here.iter().filter_map(|point| point.air(now)).sum::<f64>() + others);
        let ranks = ranks(&times, settings.threshold);
        let best = times.first().and_then(|_| here.first()?.known(now));
        let best_signal = best.and_then(|_| here.first()?.signal_dbm);
        for (at, point) in here.iter_mut().enumerate() {
            point.compare(best.filter(|_| at > 0), best_signal);
        }
        let (free, worth) = self.free.entry(channel).or_insert_with(|| (FreeAir::new(now), Worth::new(now)));
        let stays = here.iter().all(|point| point.view.stays);
        let has_moved = stays && has_moved(now, &mut here, &ranks);
        if has_moved {
            (*free, *worth) = (FreeAir::new(now), Worth::new(now));
        }
        let lasting = if stays { free.update(now, spare) } else { spare };
        // None of those of which nothing is known.
        let rank = |at: usize| ranks.get(at).copied();
        let places = MOST_USED - ranks.iter().filter(|rank| **rank != Rank::Slower).count().min(MOST_USED);
        let slower = |point: &Point, at: usize| rank(at) == Some(Rank::Slower) && point.stage == Stage::Used;
        let carried: f64 = here.iter().map(|point| point.carried).sum();
        let of_slower = here.iter().enumerate().filter(|(at, point)| slower(point, *at));
        let of_slower = of_slower.map(|(_, point)| point.carried).reduce(|one, other| one + other);
        let verdict = if stays {
            worth.update(now, best.unwrap_or_default(), carried, of_slower)
        } else {
            // What arrives is a matter of turns.
            *worth = Worth::new(now);
            Verdict::GoOn
        };
        let mut in_use: Vec<Slower> = (here.iter_mut().enumerate())
            .filter(|(at, point)| slower(point, *at))
            .map(|(_, point)| Slower {
                takes: point.air(now).unwrap_or(0.0),
                allowed: &mut point.allowed,
                taken_back: &mut point.taken_back,
                marks: &mut point.enough,
            })
            .collect();
        share(spare, lasting, steps, &mut in_use);
        in_use.iter_mut().for_each(|one| one.ease(spare, steps));
        let may_begin = matches!(verdict, Verdict::MayBegin | Verdict::GoOn);
        let mut first = beginning(lasting, &in_use).filter(|_| may_begin).filter(|_| in_use.len() < places);
        let has_room = has_room(lasting);
        let lack = match (has_room, worth.is_refuted(now)) {
            (false, _) => Lack::Air,
            (true, true) => Lack::Gain,
            (true, false) => Lack::Turn,
        };
        let mut used = in_use.len();
        // To see what arrives without them, or whether they disturb the best one: nothing is said yet against what slower ones had.
        let is_compared =
            !has_moved && (verdict == Verdict::LookAgain || apart == Some(Apart::Asked) && used > 0);
        let leaves = has_moved || is_compared;
        for (_, point) in here.iter_mut().enumerate().filter(|(at, point)| leaves && slower(point, *at)) {
            point.leave();
        }
        if is_compared {
            *free = FreeAir::without_those_compared(now);
        }
        if has_moved || verdict == Verdict::Refuted || apart == Some(Apart::Found) {
            here.iter_mut().for_each(|point| point.proven = 0.0);
        }
        if first.is_some() {
            here.iter_mut().for_each(|point| point.may_come_back(spare));
        }
        let mut trying = here.iter().any(|point| matches!(point.stage, Stage::Trying | Stage::Proving));
        let some_used = here.iter().any(|point| point.stage == Stage::Used && point.view.reaches);
        let some_reach = here.iter().any(|point| point.view.reaches);
        for (at, point) in here.iter_mut().enumerate() {
            // Of which nothing is known, that are asked all the same now and then, by a few packets.
            let is_another = best.is_some() && !matches!(rank(at), None | Some(Rank::Best));
            point.kept_apart = apart.filter(|_| is_another);
            let has_fallen = apart.is_none() && point.may_be_better_now();
            let may_be_better = has_fallen || point.may_have_become_better(best_signal) && rank(at).is_some();
            let next = match (point.stage, rank(at)) {
                (_, Some(Rank::Best)) => Stage::Used,
                _ if point.kept_apart.is_some() => Stage::Ready,
                (Stage::Ready, None | Some(Rank::Slower))
                    if may_prove_beside && may_be_better && point.may_prove(now) && !trying =>
                {
                    trying = true;
                    Stage::Proving
                }
                (stage, Some(rank)) => point.ranked(now, stage, rank, used <= places, &mut first),
                (stage, None) if best.is_some() => {
                    point.unknown(now, stage, best_signal, has_room, &mut trying)
                }
                // Nothing is known of any: those that were used go on, or else all are; but none that leads nowhere, unless all do.
                (_, None) if some_reach && !point.view.reaches => Stage::Ready,
                (stage, None) if some_used => stage,
                (_, None) => Stage::Used,
            };
            if slower(point, at) && next != Stage::Used {
                used -= 1;
            }
            let pause = point.proving_pause;
            point.turn(now, next);
            let is_used = next == Stage::Used;
            // Idle it has no rank, and is what it was.
            if rank(at).is_some() || !is_used {
                point.lapse.turn(is_used, matches!(rank(at), Some(Rank::Best | Rank::AsGood)));
            }
            let has_failed = hidden.refuted() == Some(point.view.network);
            if has_failed {
                point.failed();
            }
            point.proving_pause = match rank(at) {
                _ if has_failed => point.proving_pause,
                _ if on_trial.contains(&Some(point.view.network)) => pause,
                Some(Rank::Best) => Duration::ZERO,
                _ => point.proving_pause,
            };
        }
        let is_good = |point: &Point, at: usize| {
            point.stage == Stage::Used && matches!(rank(at), Some(Rank::Best | Rank::AsGood))
        };
        share_fairly(steps, spare, &sharers, &mut here, is_good);
        let is_single = here.len() == 1;
        here.into_iter()
            .enumerate()
            .map(|(at, point)| {
                point.mark(now, &settings, best, rank(at));
                point.steered(now, best, rank(at), is_single, lack)
            })
            .collect()
    }
}

/// Finds out how much may go over the good ones while others fill the air.
fn share_fairly(
    steps: f64,
    spare: f64,
    sharers: &[(MacAddress, f64)],
    here: &mut [&mut Point],
    is_good: impl Fn(&Point, usize) -> bool,
) {
    let (good, others): (Vec<_>, Vec<_>) =
        here.iter_mut().enumerate().partition(|(at, point)| is_good(point, *at));
    others.into_iter().for_each(|(_, point)| point.fair = FairPart::default());
    let ours: Vec<Ours> = good
        .iter()
        .map(|(_, point)| Ours { access_point: point.view.access_point, carried: point.carried })
        .collect();
    let found = parts(&ours, sharers);
    for (at, (_, point)) in good.into_iter().enumerate() {
        let part = found.as_ref().and_then(|parts| parts.get(at).copied());
        point.fair.update(steps, spare, point.carried, part);
    }
}

/// One that is sent to and falls silent leaves no frames to judge it by, and idle it would look the same. But whoever sends then goes by another one
/// that brought nothing before: a bond, or MPTCP with its backups. So what was known of the silent one holds no longer.
fn forget_silent(now: Timestamp, here: &mut [&mut Point]) {
    if here.iter().any(|point| point.has_taken_over()) {
        here.iter_mut().filter(|point| point.is_silent()).for_each(|point| point.forget(now));
    }
}

/// Whether other access points are the good ones now: one has become the best that was not as good as that, or one has fallen behind, which then has
/// nothing of the air until some has been free without it.
fn has_moved(now: Timestamp, here: &mut [&mut Point], ranks: &[Rank]) -> bool {
    let mut has_moved = ranks.first().and(here.first()).is_some_and(|best| !best.was_good);
    for (at, point) in here.iter_mut().enumerate() {
        let rank = ranks.get(at);
        if point.was_good && rank == Some(&Rank::Slower) && point.stage == Stage::Used {
            point.turn(now, Stage::Ready);
            has_moved = true;
        }
        point.was_good = matches!(rank, Some(Rank::Best | Rank::AsGood));
    }
    has_moved
}

/// How far the estimate of the best known of those in use is to be believed; the others' are measured against that.
fn sureness(here: &[&mut Point]) -> f64 {
    let used = here.iter().filter(|point| point.stage == Stage::Used);
    used.filter_map(|point| Some(point.time?.1)).fold(0.0, f64::max)
}

/// The best of a channel's access points, which is the first one, beside the others.
fn in_company(now: Timestamp, here: &[&mut Point]) -> Option<Best> {
    let (best, others) = here.split_first()?;
    let settled = best.known(now).filter(|_| best.view.reaches)?;
    Some(Best {
        network: best.view.network,
        settled,
        packet_time: best.view.packet_time.filter(|_| best.view.confidence >= LEAST_CONFIDENCE),
        delivered: best.view.delivered,
        // One that is let loose for a moment will show by itself whether it is better.
        company: others.iter().filter(|point| !point.is_let_loose()).filter_map(|point| point.air(now)).sum(),
    })
}

/// Of a channel's access points but the best, which is the first one, the one that may be better alone: the one heard best, of those that are not heard
/// worse than the best.
fn rival(now: Timestamp, here: &[&mut Point]) -> Option<Rival> {
    let (best, others) = here.split_first()?;
    let heard = |point: &Point| point.signal_dbm.or(best.signal_dbm).unwrap_or_default();
    let may_be_better = others.iter().filter(|point| point.view.reaches && point.known(now).is_some());
    let may_be_better = may_be_better.filter(|point| !best.is_heard_better(point.signal_dbm));
    // The first one of those heard as well, which took the least time for a packet so far.
    let rival = may_be_better.rev().max_by(|one, other| heard(one).total_cmp(&heard(other)))?;
    Some(Rival {
        network: rival.view.network,
        is_heard_better: rival.is_heard_better(best.signal_dbm),
        is_heard_much_better: rival.is_heard_much_better(best.signal_dbm),
        // Different cards are no measure of each other; of those the delivery ratio is not known.
        is_heard_far_better: rival.stage != Stage::Used
            && best.view.delivered.is_some()
            && rival.is_heard_far_better(best.signal_dbm),
        is_refuted: rival.proving_pause > Duration::ZERO && rival.stage == Stage::Ready,
    })
}

#[cfg(test)]
mod lapse_tests;
#[cfg(test)]
mod silence_tests;
#[cfg(test)]
mod tests;
