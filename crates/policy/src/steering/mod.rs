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
//!     +--- nothing known for long, or heard better than the best; one at a time --+
//! ```
//! Where attempts fail it is tried whether the others are to blame, which an access point that hears them would not bear: then only the best one of
//! the channel carries data (`hidden.rs`).
//!
//! The caller brings estimates every 100 ms or so ([`Steering::update`]). What is done with the outcome is one of three things: word to our own gateway of
//! what to use and how much, which needs no marks; marks on our own bond's paths; or marks on packets of TCP flows with several ways ([`marking`]),
//! where nobody can be told anything: as many as hold senders to what they would be told.

mod free_air;
mod hidden;
pub mod marking;
mod reason;
mod share;
mod worth;

use std::collections::BTreeMap;
use std::time::Duration;

use units::{BitRate, Bytes, Frequency, NetworkId, Timestamp};

use free_air::FreeAir;
use hidden::{Best, Hidden};
pub use marking::{MOST_MARKS, MarkShare, MarkingForm, safe_marks, with_queue};
pub use reason::SteeringReason;
use reason::longer;
use share::{MOST_USED, Rank, Slower, beginning, must_leave, ranks, share, spare};
use worth::{Verdict, Worth};

/// What is known of a network's access point when [`Steering::update`] is called.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PointView {
    /// The network.
    pub network: NetworkId,
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
    /// How many of its packets are to be marked where senders cannot be told: of one that has a limit as many as hold them to that, of one that is as good as
    /// the best the most, and then no more than [`safe_marks`] for the round trip.
    pub marks: MarkShare,
    /// The packet time that this rests on, which may be some seconds old.
    pub packet_time: Option<Duration>,
    /// Why.
    pub reason: SteeringReason,
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

/// Once marked, a network is marked until it is this near to the best, as a part of the threshold.
const RELEASE: f64 = 0.5;
/// A packet time is believed for so long after the last frame.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Less than this is not acted upon.
const LEAST_CONFIDENCE: f64 = 0.25;
/// No network changes between used and ready more often, but for the best one.
const DWELL: Duration = Duration::from_secs(1);
/// How long one that nothing is known of is tried ...
const TRIAL: Duration = Duration::from_secs(1);
/// ... with so many packets a second: few, as they may be slow ones.
const TRIAL_PACKETS: f64 = 10.0;
/// One that is heard better than the best by so much, dB, is tried whatever is remembered of it: while it carries hardly anything, its rate control
/// learns nothing, and an estimate of it is of the past. Signals are a reason to look, and no verdict.
const HEARD_BETTER: f32 = 3.0;
/// Then with so many packets a second, as a rate control needs some to find its rate ...
const PROVING_PACKETS: f64 = 50.0;
/// ... and again after this, which doubles up to [`LONGEST_PAUSE`] as long as it turns out to be slower.
const FIRST_PROVING_PAUSE: Duration = Duration::from_secs(2);
/// What is carried is smoothed: each [`STEP`] counts for this part.
const NEWS: f64 = 0.3;
/// And signals, which fade.
const SIGNAL_NEWS: f32 = 0.15;
/// And packet times, on a logarithmic scale: in half a second of a link that fades they go up and down by half ...
const TIME_NEWS: f64 = 0.15;
/// ... but for a change by so many times, of which somebody is so sure: that is no chance, and counts at once.
const ABRUPT: f64 = 2.5;
const ABRUPT_CONFIDENCE: f64 = 0.75;
/// One that stands by has no more than this part of the air if the others fail, until it is judged anew: what is far away would take all of it, and
/// the others might have answered in the next moment.
const STANDING_BY: f64 = 0.5;
/// The time for which the parts that are given and taken hold; updates further apart count for several.
const STEP: Duration = Duration::from_millis(100);
/// At most so many.
const MOST_STEPS: f64 = 10.0;
/// What a packet time is the time of.
pub const FULL_PACKET: Bytes = Bytes(1_500);
/// Until one that was not worth it is tried again; doubles each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(160);

/// The state of steering. Networks that are not in an update any more are forgotten.
#[derive(Clone, Default, Debug)]
pub struct Steering {
    settings: SteeringSettings,
    points: BTreeMap<NetworkId, Point>,
    hidden: BTreeMap<Frequency, Hidden>,
    free: BTreeMap<Frequency, (FreeAir, Worth)>,
    /// Of the last update.
    updated: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    view: PointView,
    /// The last packet time, how far to believe it, and when.
    time: Option<(Duration, f64, Timestamp)>,
    /// Smoothed, packets a second.
    carried: f64,
    /// Smoothed, a part of the air.
    others: f64,
    /// Smoothed.
    signal_dbm: Option<f32>,
    marked: bool,
    /// It would disturb the best one.
    kept_apart: bool,
    stage: Stage,
    since: Timestamp,
    pause: Duration,
    /// How soon it may prove again that it is as good as it is heard.
    proving_pause: Duration,
    /// It was the best or as good as that at the last update.
    was_good: bool,
    /// The part of the air that it may take while it is slower than the best and used.
    allowed: f64,
    /// What it had when it had to leave to be compared again.
    proven: f64,
    /// No more marks are needed to hold senders to that.
    enough: MarkShare,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Trying,
    /// Known, but heard so well that it may have become better since.
    Proving,
    Used,
    Ready,
}

impl Steering {
    /// Without any network yet.
    pub fn new(settings: SteeringSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes what is known now; gives what is to be done with each network, in the order of their numbers.
    pub fn update(&mut self, now: Timestamp, views: &[PointView]) -> Vec<Steered> {
        let passed = self.updated.replace(now).map_or(STEP, |before| now.since(before));
        let steps = (passed.as_secs_f64() / STEP.as_secs_f64()).min(MOST_STEPS);
        self.points.retain(|network, _| views.iter().any(|view| view.network == *network));
        for view in views {
            let point = self.points.entry(view.network).or_insert_with(|| Point::new(now, *view));
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
        steered
    }

    /// What becomes of the networks of one channel.
    fn steer(&mut self, now: Timestamp, steps: f64, channel: Frequency) -> Vec<Steered> {
        let settings = self.settings;
        let mut here: Vec<&mut Point> =
            self.points.values_mut().filter(|point| point.view.channel == channel).collect();
        let hidden = self.hidden.entry(channel).or_insert_with(|| Hidden::new(now));
        let sure = sureness(&here);
        // Those in the contest first, the best one first among them.
        here.sort_by_key(|point| {
            let time = point.in_contest(now, sure);
            let is_chosen = time.is_some() && hidden.chosen() == Some(point.view.network);
            (!is_chosen, time.unwrap_or(Duration::MAX), point.view.network)
        });
        let times: Vec<(Duration, bool)> = here
            .iter()
            .filter_map(|point| Some((point.in_contest(now, sure)?, point.stage == Stage::Used)))
            .collect();
        let apart = hidden.update(now, in_company(now, &here));
        let others = here.iter().map(|point| point.others).fold(0.0, f64::max);
        let spare = spare(here.iter().filter_map(|point| point.air(now)).sum::<f64>() + others);
        let ranks = ranks(&times, settings.threshold);
        let best = times.first().and_then(|_| here.first()?.known(now));
        let best_signal = best.and_then(|_| here.first()?.signal_dbm);
        let (free, worth) = self.free.entry(channel).or_insert_with(|| (FreeAir::new(now), Worth::new(now)));
        let has_moved = has_moved(now, &mut here, &ranks);
        if has_moved {
            (*free, *worth) = (FreeAir::new(now), Worth::new(now));
            here.iter_mut().for_each(|point| point.proven = 0.0);
        }
        let lasting = free.update(now, spare);
        // None of those of which nothing is known.
        let rank = |at: usize| ranks.get(at).copied();
        let places = MOST_USED - ranks.iter().filter(|rank| **rank != Rank::Slower).count().min(MOST_USED);
        let slower = |point: &Point, at: usize| rank(at) == Some(Rank::Slower) && point.stage == Stage::Used;
        let carried: f64 = here.iter().map(|point| point.carried).sum();
        let of_slower = here.iter().enumerate().filter(|(at, point)| slower(point, *at));
        let of_slower = of_slower.map(|(_, point)| point.carried).reduce(|one, other| one + other);
        let verdict = worth.update(now, best.unwrap_or_default(), carried, of_slower);
        let mut in_use: Vec<Slower> = (here.iter_mut().enumerate())
            .filter(|(at, point)| slower(point, *at))
            .map(|(_, point)| Slower {
                takes: point.air(now).unwrap_or(0.0),
                allowed: &mut point.allowed,
                marks: &mut point.enough,
            })
            .collect();
        share(spare, lasting, steps, &mut in_use);
        in_use.iter_mut().for_each(|one| one.ease(spare, steps));
        let may_begin = matches!(verdict, Verdict::MayBegin | Verdict::GoOn);
        let mut first = beginning(lasting, &in_use).filter(|_| may_begin).filter(|_| in_use.len() < places);
        let mut used = in_use.len();
        let leaves = has_moved || matches!(verdict, Verdict::Leave | Verdict::LookAgain);
        for (_, point) in here.iter_mut().enumerate().filter(|(at, point)| leaves && slower(point, *at)) {
            point.proven = if verdict == Verdict::LookAgain { point.allowed } else { 0.0 };
            point.allowed = 0.0;
        }
        let mut trying = here.iter().any(|point| matches!(point.stage, Stage::Trying | Stage::Proving));
        let some_used = here.iter().any(|point| point.stage == Stage::Used && point.view.reaches);
        let some_reach = here.iter().any(|point| point.view.reaches);
        for (at, point) in here.iter_mut().enumerate() {
            point.kept_apart = apart && best.is_some() && rank(at) != Some(Rank::Best);
            let is_heard_better = point.is_heard_better(best_signal);
            let next = match (point.stage, rank(at)) {
                (_, Some(Rank::Best)) => Stage::Used,
                _ if point.kept_apart => Stage::Ready,
                (Stage::Ready, Some(Rank::Slower)) if is_heard_better && point.may_prove(now) && !trying => {
                    trying = true;
                    Stage::Proving
                }
                (stage, Some(rank)) => point.ranked(now, stage, rank, used <= places, &mut first),
                (stage, None) if best.is_some() => point.unknown(now, stage, &mut trying),
                // Nothing is known of any: those that were used go on, or else all are; but none that leads nowhere, unless all do.
                (_, None) if some_reach && !point.view.reaches => Stage::Ready,
                (stage, None) if some_used => stage,
                (_, None) => Stage::Used,
            };
            if slower(point, at) && next != Stage::Used {
                used -= 1;
            }
            point.turn(now, next);
        }
        let is_single = here.len() == 1;
        here.into_iter()
            .enumerate()
            .map(|(at, point)| {
                point.mark(now, &settings, best);
                point.steered(now, best, rank(at), is_single)
            })
            .collect()
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

/// A packet time after one more estimate.
fn settled(before: Duration, estimate: Duration, confidence: f64, steps: f64) -> Duration {
    let change = estimate.as_secs_f64().max(LEAST_TIME) / before.as_secs_f64().max(LEAST_TIME);
    let is_abrupt = !(1.0 / ABRUPT..=ABRUPT).contains(&change) && confidence >= ABRUPT_CONFIDENCE;
    let news = if is_abrupt { 1.0 } else { (TIME_NEWS * steps).min(1.0) };
    before.mul_f64(change.powf(news))
}

/// How far the estimate of the best known of those in use is to be believed; the others' are measured against that.
fn sureness(here: &[&mut Point]) -> f64 {
    let used = here.iter().filter(|point| point.stage == Stage::Used);
    used.filter_map(|point| Some(point.time?.1)).fold(0.0, f64::max)
}

/// The best of a channel's access points, which is the first one, beside the others.
fn in_company(now: Timestamp, here: &[&mut Point]) -> Option<Best> {
    let (best, others) = here.split_first()?;
    best.known(now).filter(|_| best.view.reaches)?;
    Some(Best {
        network: best.view.network,
        packet_time: best.view.packet_time.filter(|_| best.view.confidence >= LEAST_CONFIDENCE),
        delivered: best.view.delivered,
        company: others.iter().filter_map(|point| point.air(now)).sum(),
    })
}

impl Point {
    fn new(now: Timestamp, view: PointView) -> Self {
        Self {
            view,
            time: None,
            carried: view.carried,
            others: 0.0,
            signal_dbm: view.signal_dbm,
            marked: false,
            kept_apart: false,
            stage: Stage::Ready,
            since: now,
            // Tried as soon as no other is.
            pause: Duration::ZERO,
            proving_pause: Duration::ZERO,
            was_good: false,
            allowed: 0.0,
            proven: 0.0,
            enough: MOST_MARKS,
        }
    }

    fn take(&mut self, now: Timestamp, steps: f64, view: PointView) {
        self.view = view;
        let news = (NEWS * steps).min(1.0);
        let carried = view.carried.clamp(0.0, MOST_CARRIED);
        self.carried += (carried - self.carried) * news;
        self.others += (view.others.clamp(0.0, 1.0) - self.others) * news;
        self.signal_dbm = match (self.signal_dbm, view.signal_dbm) {
            (Some(before), Some(now)) => {
                Some(before + (now - before) * (SIGNAL_NEWS * steps as f32).min(1.0))
            }
            (_, now) => now,
        };
        if let Some(time) = view.packet_time.filter(|_| view.confidence >= LEAST_CONFIDENCE) {
            let time = self.known(now).map_or(time, |before| settled(before, time, view.confidence, steps));
            self.time = Some((time, view.confidence, now));
        }
    }

    /// Its packet time, if it is not too old.
    fn known(&self, now: Timestamp) -> Option<Duration> {
        let (time, _, at) = self.time?;
        (now.since(at) <= REMEMBERED).then_some(time)
    }

    /// By what it is ranked; one behind which nothing answers is not. `sure`: how far the estimate of one in use is believed. What stands by or is tried
    /// has to be better by as much as its own is believed less: a few frames that happen to arrive are no reason to leave one that carries.
    fn in_contest(&self, now: Timestamp, sure: f64) -> Option<Duration> {
        let time = self.known(now).filter(|_| self.view.reaches)?;
        let (_, confidence, _) = self.time?;
        let doubt = if self.stage == Stage::Used { 1.0 } else { (sure / confidence).max(1.0) };
        Some(time.mul_f64(doubt))
    }

    /// Whether it is heard better than the best by more than chance.
    fn is_heard_better(&self, best: Option<f32>) -> bool {
        self.signal_dbm.zip(best).is_some_and(|(signal, best)| signal >= best + HEARD_BETTER)
    }

    /// Whether it is time for it to prove how good it is.
    fn may_prove(&self, now: Timestamp) -> bool {
        self.view.reaches && now.since(self.since) >= self.proving_pause
    }

    /// The part of the air that it takes, as far as known.
    fn air(&self, now: Timestamp) -> Option<f64> {
        Some(self.carried * self.known(now)?.as_secs_f64())
    }

    /// What becomes of one that is known and not the best.
    fn ranked(
        &mut self,
        now: Timestamp,
        stage: Stage,
        rank: Rank,
        has_place: bool,
        first: &mut Option<f64>,
    ) -> Stage {
        let stayed = now.since(self.since);
        let has_settled = stayed >= DWELL || matches!(stage, Stage::Trying | Stage::Proving);
        match (stage, rank) {
            (Stage::Used, Rank::Slower) if self.allowed == 0.0 => Stage::Ready,
            (Stage::Used, Rank::Slower) if !has_settled => stage,
            (Stage::Used, Rank::Slower) if !has_place || must_leave(self.allowed) => Stage::Ready,
            (Stage::Used, _) => stage,
            (_, Rank::AsGood) if has_settled => Stage::Used,
            (Stage::Proving, Rank::Slower) if stayed < TRIAL => Stage::Proving,
            (_, Rank::Slower) if has_settled && first.is_some() => {
                self.allowed = first.take().unwrap_or_default().max(std::mem::take(&mut self.proven));
                Stage::Used
            }
            (Stage::Trying | Stage::Proving, _) => Stage::Ready,
            _ => stage,
        }
    }

    /// What becomes of one that nothing is known of, while something is of another.
    fn unknown(&self, now: Timestamp, stage: Stage, trying: &mut bool) -> Stage {
        let stayed = now.since(self.since);
        match stage {
            Stage::Ready if self.view.reaches && !*trying && stayed >= self.pause => {
                *trying = true;
                Stage::Trying
            }
            Stage::Trying | Stage::Proving if self.view.reaches && stayed < TRIAL => stage,
            _ => Stage::Ready,
        }
    }

    fn turn(&mut self, now: Timestamp, next: Stage) {
        if next == self.stage {
            return;
        }
        match next {
            Stage::Trying | Stage::Proving => {}
            Stage::Ready if self.stage == Stage::Proving => {
                self.proving_pause = (self.proving_pause * 2).clamp(FIRST_PROVING_PAUSE, LONGEST_PAUSE);
            }
            Stage::Ready => self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            Stage::Used => {
                (self.pause, self.enough) = (FIRST_PAUSE / 2, MOST_MARKS);
                self.proving_pause = Duration::ZERO;
            }
        }
        (self.stage, self.since) = (next, now);
    }

    /// Whether it is far enough behind the best to be marked.
    fn mark(&mut self, now: Timestamp, settings: &SteeringSettings, best: Option<Duration>) {
        let limit = if self.marked { settings.threshold * RELEASE } else { settings.threshold };
        self.marked = self.known(now).zip(best).is_some_and(|(time, best)| longer(time, best) > limit);
    }

    fn steered(
        &self,
        now: Timestamp,
        best: Option<Duration>,
        rank: Option<Rank>,
        is_single: bool,
    ) -> Steered {
        let PointView { network, other_way, .. } = self.view;
        let time = self.known(now);
        let used = self.stage != Stage::Ready;
        let is_held = self.stage == Stage::Used && rank == Some(Rank::Slower);
        let enough = if is_held { self.enough } else { MOST_MARKS };
        let marks = if self.marked && other_way { enough } else { MarkShare::NONE };
        let is_new = best.is_none() && !is_single && now.since(self.since) < TRIAL;
        let packets = match (self.stage, rank) {
            (Stage::Trying, _) => Some(TRIAL_PACKETS),
            (Stage::Proving, _) => Some(PROVING_PACKETS),
            (Stage::Used, None) if is_new => Some(TRIAL_PACKETS),
            (Stage::Used, Some(Rank::Slower)) => {
                time.map(|time| self.allowed / time.as_secs_f64().max(LEAST_TIME))
            }
            // A power of two, so that it need not be told anew after every estimate.
            (Stage::Ready, _) => Some(time.map_or(TRIAL_PACKETS, |time| {
                (STANDING_BY / time.as_secs_f64().max(LEAST_TIME)).log2().floor().exp2()
            })),
            _ => None,
        };
        let longer = time.zip(best).map(|(time, best)| longer(time, best)).unwrap_or_default();
        let reason = match rank {
            _ if !self.view.reaches => SteeringReason::Dead,
            _ if self.kept_apart => SteeringReason::Disturbs,
            None if self.view.packet_time.is_some() => {
                SteeringReason::Doubtful { confidence: self.view.confidence }
            }
            None => SteeringReason::Unknown,
            Some(_) if is_single => SteeringReason::OnlyOne,
            Some(Rank::Best) => SteeringReason::Best,
            Some(Rank::AsGood) => SteeringReason::AsGood { longer },
            Some(Rank::Slower) if !other_way => SteeringReason::NoOtherWay { longer },
            Some(Rank::Slower) if self.stage == Stage::Proving => SteeringReason::HeardBetter { longer },
            Some(Rank::Slower) if used => SteeringReason::FreeAir { longer, allowed: self.allowed },
            Some(Rank::Slower) => SteeringReason::NoFreeAir { longer },
        };
        let limit = packets
            .filter(|_| other_way)
            .map(|packets| BitRate((packets * FULL_PACKET.0 as f64 * 8.0).max(LEAST_LIMIT) as u64));
        Steered { network, used, limit, marks, packet_time: time, reason }
    }
}

/// No access point carries more packets a second; what is beyond is a mistake.
const MOST_CARRIED: f64 = 1e7;
/// No packet takes less, seconds.
const LEAST_TIME: f64 = 1e-6;
/// Bits a second; less would hold a single packet up for too long.
const LEAST_LIMIT: f64 = 12_000.0;

#[cfg(test)]
mod tests;
