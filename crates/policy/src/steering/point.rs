//! An access point over time: what is known of it, what it may do, and what becomes of it.

use std::time::Duration;

use units::{BitRate, Timestamp};

use super::fair::FairPart;
use super::hidden::Apart;
use super::lapse::Lapse;
use super::marking::{MOST_MARKS, MarkShare};
use super::reason::{Lack, SteeringReason, longer};
use super::share::{Rank, Standing, kept, must_leave};
use super::{FULL_PACKET, PointView, Steered, SteeringSettings};

/// Once marked, a network is marked until it is this near to the best, as a part of the threshold.
const RELEASE: f64 = 0.5;
/// A packet time is believed for so long after the last frame.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Less than this is not acted upon.
pub(super) const LEAST_CONFIDENCE: f64 = 0.25;
/// No network changes between used and ready more often, but for the best one.
const DWELL: Duration = Duration::from_secs(1);
/// How long one that nothing is known of is tried ...
const TRIAL: Duration = Duration::from_secs(1);
/// ... with so many packets a second: few, as they may be slow ones, unless it is heard better than the best.
pub(super) const TRIAL_PACKETS: f64 = 10.0;
/// One that left since it was heard worse is back once it is heard no worse than by so much, dB: signals go up and down, too.
const HEARD_AS_WELL: f32 = 1.5;
/// One that is heard better than the best by so much, dB, is tried whatever is remembered of it: while it carries hardly anything, its rate control
/// learns nothing, and an estimate of it is of the past. Signals are a reason to look, and no verdict.
const HEARD_BETTER: f32 = 3.0;
/// Then with so many packets a second, as a rate control needs some to find its rate ...
const PROVING_PACKETS: f64 = 50.0;
/// ... and again after this, which doubles up to [`LONGEST_PAUSE`] as long as it turns out to be slower.
const FIRST_PROVING_PAUSE: Duration = Duration::from_secs(2);
/// It begins anew once it is heard so much better, dB, beside the best one than when that was found: then somebody has moved. By as much more than when
/// it last carried anything, one is tried that is heard as well as the best.
const NEARER: f32 = 6.0;
/// And once the best one takes so many times as long as the least since then, if it is heard as well: whatever has become of the best one, what was found
/// beside it says no more that it is the better one.
const FALLEN: f64 = 2.0;
/// One that was away to be compared, for two seconds, and is then heard better or worse by so much, dB, beside the best one, has to show anew what it is:
/// its packets take another time. Less than for [`NEARER`], as to begin with little costs little.
const MOVED: f32 = 3.0;
/// One that carries nothing and is heard better by so much, dB, is alone at once, without a trial: somebody walks past the middle between two access points
/// in two seconds, and fades hardly ever take so much of the mean of some beacons.
const HEARD_FAR_BETTER: f32 = 9.0;
/// What is carried is smoothed: each [`STEP`] counts for this part.
const NEWS: f64 = 0.3;
/// And signals, which fade, but are means over some beacons already: somebody who walks gets 4 dB nearer to the next access point in a second.
const SIGNAL_NEWS: f32 = 0.3;
/// One that nothing is known of and that is heard worse than the best by so much, dB, is tried only while air is free: the few packets take all of it for
/// half a second.
const HEARD_WORSE: f32 = 10.0;
/// A trial goes on for so long in all while the packet time still falls, to less than this part of what it was half a second before: then the rate control
/// has not found its rate yet.
const LONGEST_TRIAL: Duration = Duration::from_secs(2);
const FALLS: f64 = 0.8;
const FALLS_IN: Duration = Duration::from_millis(500);
/// And packet times, on a logarithmic scale: in half a second of a link that fades they go up and down by half ...
const TIME_NEWS: f64 = 0.15;
/// ... by more for one that is to prove itself: what was known of it is what is in doubt.
const PROVING_NEWS: f64 = 0.4;
/// ... but for a change by so many times, of which somebody is so sure: that is no chance, and counts at once.
const ABRUPT: f64 = 2.5;
const ABRUPT_CONFIDENCE: f64 = 0.75;
/// Who needs so many times what the best needs has no bad moment: of two that fade alike half a second hardly ever differs so much, and with two that have
/// changed places by more than this the traffic has to be elsewhere within a second.
const NO_FADE: f64 = 4.0;
/// One that stands by has no more than this part of the air if the others fail, until it is judged anew: what is far away would take all of it, and
/// the others might have answered in the next moment.
const STANDING_BY: f64 = 0.5;
/// Until one that was not worth it is tried again; doubles each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(160);
/// One that brought so many packets a second ...
const BUSY: f64 = 20.0;
/// ... in so many of the ten [`STEP`](super::STEP)s before has fallen silent after so many without; one frame may still get through.
const BUSY_STEPS: u32 = 5;
const SILENT_STEPS: u32 = 3;
/// Another one has taken over that brought so many packets a second, as one on trial does and no sign of life, in so many of the last four steps, and hardly ever in the second half of the last sixteen.
const TAKEN_OVER: f64 = TRIAL_PACKETS / 2.0;
const TAKEN_OVER_STEPS: u32 = 3;
const HARDLY_EVER: u32 = 2;
/// What is estimated so soon after a silence rests on frames from before it.
const FLUSHED: Duration = Duration::from_millis(600);
/// No access point carries more packets a second; what is beyond is a mistake.
const MOST_CARRIED: f64 = 1e7;
/// No packet takes less, seconds.
const LEAST_TIME: f64 = 1e-6;
/// Bits a second; less would hold a single packet up for too long.
const LEAST_LIMIT: f64 = 12_000.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub view: PointView,
    /// The last packet time, how far to believe it, and when.
    pub time: Option<(Duration, f64, Timestamp)>,
    /// What was known when it fell silent; nothing more is known of it since.
    left: Option<Left>,
    /// In which of the last steps it was busy, and in which anything came by it, the last one in the lowest bit.
    busy: u16,
    brought: u16,
    /// What the packet time was half a second ago or up to twice as long, and the next such.
    earlier: [Option<(Duration, Timestamp)>; 2],
    /// Smoothed, packets a second.
    pub carried: f64,
    /// Smoothed, a part of the air.
    pub others: f64,
    /// Smoothed.
    pub signal_dbm: Option<f32>,
    pub marked: bool,
    /// It would disturb the best one, or it is found out whether it does.
    pub kept_apart: Option<Apart>,
    pub stage: Stage,
    pub since: Timestamp,
    pub pause: Duration,
    /// How soon it may prove again that it is as good as it is heard.
    pub proving_pause: Duration,
    /// By how much it is heard better than the best, dB ...
    lead: Option<f32>,
    /// ... and by how much it was when a trial last found it slower, or found nothing.
    refuted_lead: Option<f32>,
    /// That is to be told by the next update, as this one took it for the best.
    has_failed: bool,
    /// ... and when it last carried what its packet time can be told from.
    learnt_lead: Option<f32>,
    /// The best one's packet time, if that is another one, and the least that it has been since.
    best: Option<Duration>,
    least_best: Option<Duration>,
    /// It proves itself with as many packets as it can carry.
    proves_freely: bool,
    /// It was the best or as good as that at the last update.
    pub was_good: bool,
    /// What is remembered of that.
    pub lapse: Lapse,
    /// It passes for as good until it is known better.
    is_waited_for: bool,
    /// The part of the air that it may take while it is slower than the best and used.
    pub allowed: f64,
    /// Of what was taken back from that, so much may have yet to show.
    pub taken_back: f64,
    /// What it had when it had to leave to be compared again ...
    pub proven: f64,
    /// ... and by how much it was heard better than the best then, dB.
    proven_lead: Option<f32>,
    /// No more marks are needed to hold senders to that.
    pub enough: MarkShare,
    /// What others of its channel leave to it while it is one of the good ones.
    pub fair: FairPart,
}

/// What is remembered of one that fell silent.
#[derive(Clone, Copy, Debug)]
struct Left {
    time: Duration,
    confidence: f64,
    signal_dbm: Option<f32>,
    at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Trying,
    /// Known, but heard so well that it may have become better since; or the best one has become so much worse.
    Proving,
    Used,
    Ready,
}

/// A packet time after one more estimate.
pub(super) fn settled(before: Duration, estimate: Duration, confidence: f64, news: f64) -> Duration {
    let change = estimate.as_secs_f64().max(LEAST_TIME) / before.as_secs_f64().max(LEAST_TIME);
    let is_abrupt = !(1.0 / ABRUPT..=ABRUPT).contains(&change) && confidence >= ABRUPT_CONFIDENCE;
    let news = if is_abrupt { 1.0 } else { news };
    before.mul_f64(change.powf(news))
}

/// A history of steps after so many more, which were alike.
fn shifted(history: u16, steps: f64, bit: bool) -> u16 {
    let steps = (steps.round() as u32).max(1);
    let new = if bit { !u16::MAX.unbounded_shl(steps) } else { 0 };
    history.unbounded_shl(steps) | new
}

/// A figure from 0 to `most`; what is no number is nothing.
fn number(figure: f64, most: f64) -> f64 {
    if figure.is_nan() { 0.0 } else { figure.clamp(0.0, most) }
}

impl Point {
    pub fn new(now: Timestamp, view: PointView) -> Self {
        Self {
            view,
            time: None,
            left: None,
            busy: 0,
            brought: 0,
            earlier: [None; 2],
            carried: number(view.carried, MOST_CARRIED),
            others: 0.0,
            signal_dbm: view.signal_dbm,
            marked: false,
            kept_apart: None,
            stage: Stage::Ready,
            since: now,
            // Tried as soon as no other is.
            pause: Duration::ZERO,
            proving_pause: Duration::ZERO,
            lead: None,
            refuted_lead: None,
            has_failed: false,
            learnt_lead: None,
            best: None,
            least_best: None,
            proves_freely: false,
            was_good: false,
            lapse: Lapse::default(),
            is_waited_for: false,
            allowed: 0.0,
            taken_back: 0.0,
            proven: 0.0,
            proven_lead: None,
            enough: MOST_MARKS,
            fair: FairPart::default(),
        }
    }

    pub fn take(&mut self, now: Timestamp, steps: f64, view: PointView) {
        let was_reached = std::mem::replace(&mut self.view, view).reaches;
        let news = (NEWS * steps).min(1.0);
        let carried = number(view.carried, MOST_CARRIED);
        self.carried += (carried - self.carried) * news;
        self.others += (number(view.others, 1.0) - self.others) * news;
        self.signal_dbm = match (self.signal_dbm, view.signal_dbm) {
            (Some(before), Some(now)) => {
                Some(before + (now - before) * (SIGNAL_NEWS * steps as f32).min(1.0))
            }
            (_, now) => now,
        };
        self.busy = shifted(self.busy, steps, carried >= BUSY);
        self.brought = shifted(self.brought, steps, carried >= TAKEN_OVER);
        let is_flushed = self.left.is_none_or(|left| now.since(left.at) >= FLUSHED && carried > 0.0);
        let estimate = view.packet_time.filter(|_| view.confidence >= LEAST_CONFIDENCE && is_flushed);
        match (was_reached, view.reaches) {
            // Nothing is heard of it either: then what is remembered is no reason to go back to it.
            (true, false) if estimate.is_none() => self.forget(now),
            (false, true) if self.time.is_none() => self.come_back(now),
            _ => {}
        }
        if let Some(time) = estimate {
            self.left = None;
            // Else it is clear already that it is no better.
            self.proves_freely &= self.best.is_none_or(|best| time <= best.mul_f64(NO_FADE));
            let news = if self.stage == Stage::Proving { PROVING_NEWS } else { TIME_NEWS };
            let news = (news * steps).min(1.0);
            let time = self.known(now).map_or(time, |before| settled(before, time, view.confidence, news));
            if self.stage != Stage::Ready || self.learnt_lead.is_none() {
                self.learnt_lead = self.lead;
                self.least_best = self.best;
            }
            self.time = Some((time, view.confidence, now));
            if self.earlier[1].is_none_or(|(_, at)| now.since(at) >= FALLS_IN) {
                self.earlier = [self.earlier[1], Some((time, now))];
            }
        }
    }

    /// Nothing is known of it any more, and it may be tried at once.
    pub fn forget(&mut self, now: Timestamp) {
        let Some((time, confidence, _)) = self.time.take() else { return };
        self.left = Some(Left { time, confidence, signal_dbm: self.signal_dbm, at: now });
        self.earlier = [None; 2];
        (self.pause, self.proving_pause) = (Duration::ZERO, Duration::ZERO);
    }

    /// Something answers behind it again. Heard as well as before it is as good as it was; else it may show by a few packets what it is now.
    fn come_back(&mut self, now: Timestamp) {
        self.pause = Duration::ZERO;
        let Some(left) = self.left.filter(|left| now.since(left.at) <= REMEMBERED) else { return };
        if left.signal_dbm.zip(self.signal_dbm).is_some_and(|(then, now)| now >= then - NEARER) {
            self.time = Some((left.time, left.confidence, now));
            self.left = None;
        }
    }

    /// Whether nothing comes by it any more, soon after much did.
    pub fn is_silent(&self) -> bool {
        let before = (self.busy >> SILENT_STEPS) & 0x3ff;
        self.stage == Stage::Used
            && self.view.stays
            && self.busy.trailing_zeros() >= SILENT_STEPS
            && before.count_ones() >= BUSY_STEPS
    }

    /// Whether it brings what was not sent by it before.
    pub fn has_taken_over(&self) -> bool {
        let (lately, before) = (self.brought & 0xf, self.brought >> 8);
        self.view.reaches && lately.count_ones() >= TAKEN_OVER_STEPS && before.count_ones() <= HARDLY_EVER
    }

    /// Whether a trial is over.
    fn is_tried(&self, now: Timestamp) -> bool {
        let stayed = now.since(self.since);
        let falls = |(earlier, _): (Duration, Timestamp)| {
            self.known(now).is_some_and(|time| time < earlier.mul_f64(FALLS))
        };
        stayed >= TRIAL && (stayed >= LONGEST_TRIAL || !self.earlier[0].is_some_and(falls))
    }

    /// Its packet time, if it is not too old.
    pub fn known(&self, now: Timestamp) -> Option<Duration> {
        let (time, _, at) = self.time?;
        (now.since(at) <= REMEMBERED).then_some(time)
    }

    /// What it needed before it fell silent, if that is not too long ago.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        let Left { time, at, .. } = self.left?;
        (now.since(at) <= REMEMBERED).then_some(time)
    }

    /// By what it is ranked; one behind which nothing answers is not. `sure`: how far the estimate of one in use is believed. What stands by or is tried
    /// has to be better by as much as its own is believed less: a few frames that happen to arrive are no reason to leave one that carries.
    pub fn in_contest(&self, now: Timestamp, sure: f64) -> Option<Duration> {
        let time = self.known(now).filter(|_| self.view.reaches)?;
        let (_, confidence, _) = self.time?;
        let doubt = if self.stage == Stage::Used { 1.0 } else { (sure / confidence).max(1.0) };
        Some(time.mul_f64(doubt))
    }

    /// Takes what a packet takes over it, and over the best one, which is heard so well; gives what is expected of it. `may_wait`: it does no harm to
    /// wait until it is known whether it is slower.
    pub fn stand(
        &mut self,
        time: Duration,
        (best, best_signal): (Duration, Option<f32>),
        (threshold, seconds): (f64, f64),
        may_wait: bool,
    ) -> Standing {
        let is_used = self.stage == Stage::Used;
        // What is only remembered tells nothing of now.
        if self.view.packet_time.is_some() && self.view.confidence >= LEAST_CONFIDENCE {
            self.lapse.take(time, best, kept(threshold), seconds);
        }
        let most_behind = if is_used { HEARD_BETTER } else { HEARD_AS_WELL };
        let heard = self.signal_dbm.zip(best_signal);
        let is_heard_as_well = heard.is_some_and(|(signal, best)| signal > best - most_behind);
        let may_fade = time <= best.mul_f64(NO_FADE);
        self.is_waited_for = may_wait && is_heard_as_well && may_fade && self.lapse.is_chance();
        match (self.is_waited_for, is_used) {
            (true, _) => Standing::Good,
            (false, true) => Standing::Used,
            (false, false) => Standing::Ready,
        }
    }

    /// Whether it is heard better than the best by more than chance.
    pub fn is_heard_better(&self, best: Option<f32>) -> bool {
        self.signal_dbm.zip(best).is_some_and(|(signal, best)| signal >= best + HEARD_BETTER)
    }

    /// Whether it is heard so much better that somebody must have moved.
    pub fn is_heard_much_better(&self, best: Option<f32>) -> bool {
        self.signal_dbm.zip(best).is_some_and(|(signal, best)| signal >= best + NEARER)
    }

    /// Whether it is heard so much better that it need not be tried first.
    pub fn is_heard_far_better(&self, best: Option<f32>) -> bool {
        self.signal_dbm.zip(best).is_some_and(|(signal, best)| signal >= best + HEARD_FAR_BETTER)
    }

    /// Whether it may have become better since its packet time was told: it is heard better than the best, or as well, and was not then.
    pub fn may_have_become_better(&self, best: Option<f32>) -> bool {
        let has_come_nearer = |(lead, learnt): (f32, f32)| lead >= 0.0 && lead >= learnt + NEARER;
        self.is_heard_better(best) || self.lead.zip(self.learnt_lead).is_some_and(has_come_nearer)
    }

    /// Whether the best one has become so much worse since this one's packet time was told, while they are heard alike, that this one may be the better.
    pub fn may_be_better_now(&self) -> bool {
        let has_fallen = |(best, least): (Duration, Duration)| best >= least.mul_f64(FALLEN);
        self.lead.is_some_and(|lead| lead > -HEARD_BETTER)
            && self.best.zip(self.least_best).is_some_and(has_fallen)
    }

    /// Whether it proves itself with as many packets as it can carry.
    pub fn is_let_loose(&self) -> bool {
        self.stage == Stage::Proving && self.proves_freely
    }

    /// It has to leave to be compared; nothing is said yet against what it had.
    pub fn leave(&mut self) {
        (self.proven, self.proven_lead) = (self.allowed, self.lead);
        self.allowed = 0.0;
    }

    /// It may come back while so much is free: with no more than that, and with little if somebody has moved, as then its packets take another time.
    pub fn may_come_back(&mut self, spare: f64) {
        let has_moved = |(then, now): (f32, f32)| (now - then).abs() >= MOVED;
        let is_elsewhere = self.proven_lead.zip(self.lead).is_some_and(has_moved);
        self.proven = if is_elsewhere { 0.0 } else { self.proven.min(spare.max(0.0)) };
    }

    /// Takes what the best one needs for a packet now, if that is another one, and how well it is heard.
    pub fn compare(&mut self, best: Option<Duration>, best_signal: Option<f32>) {
        self.lead = self.signal_dbm.zip(best_signal).map(|(signal, best)| signal - best);
        self.best = best;
        self.least_best = self.least_best.into_iter().chain(best).min().filter(|_| best.is_some());
        if std::mem::take(&mut self.has_failed) {
            self.refuted_lead = self.lead;
        }
        let is_nearer = |(lead, refuted): (f32, f32)| {
            lead >= refuted + NEARER || lead >= HEARD_FAR_BETTER && refuted < HEARD_FAR_BETTER
        };
        if self.lead.zip(self.refuted_lead).is_some_and(is_nearer) {
            (self.pause, self.proving_pause, self.refuted_lead) = (Duration::ZERO, Duration::ZERO, None);
        }
    }

    /// Whether it is time for it to prove how good it is.
    pub fn may_prove(&self, now: Timestamp) -> bool {
        self.view.reaches && now.since(self.since) >= self.proving_pause
    }

    /// The part of the air that it takes, as far as known.
    pub fn air(&self, now: Timestamp) -> Option<f64> {
        Some(self.carried * self.known(now)?.as_secs_f64())
    }

    /// What becomes of one that is known and not the best.
    pub fn ranked(
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
            (Stage::Proving, Rank::Slower) if !self.is_tried(now) => Stage::Proving,
            (_, Rank::Slower) if has_settled && first.is_some() => {
                self.allowed = first.take().unwrap_or_default().max(self.proven);
                Stage::Used
            }
            (Stage::Trying | Stage::Proving, _) => Stage::Ready,
            _ => stage,
        }
    }

    /// What becomes of one that nothing is known of, while something is of another, which is heard so well; `has_room`: air is free.
    pub fn unknown(
        &self,
        now: Timestamp,
        stage: Stage,
        best: Option<f32>,
        has_room: bool,
        trying: &mut bool,
    ) -> Stage {
        let stayed = now.since(self.since);
        let is_far = self.signal_dbm.zip(best).is_some_and(|(signal, best)| signal <= best - HEARD_WORSE);
        let may_try = self.view.reaches && !*trying && (has_room || !is_far);
        match stage {
            Stage::Ready if may_try && stayed >= self.pause => {
                *trying = true;
                Stage::Trying
            }
            Stage::Trying | Stage::Proving if self.view.reaches && stayed < TRIAL => stage,
            _ => Stage::Ready,
        }
    }

    /// It was no better alone either.
    pub fn failed(&mut self) {
        self.proving_pause = (self.proving_pause * 2).clamp(FIRST_PROVING_PAUSE, LONGEST_PAUSE);
        self.has_failed = true;
    }

    pub fn turn(&mut self, now: Timestamp, next: Stage) {
        if next == self.stage {
            return;
        }
        if next == Stage::Ready && matches!(self.stage, Stage::Trying | Stage::Proving) {
            (self.refuted_lead, self.least_best) = (self.lead, self.best);
        }
        match next {
            Stage::Trying => {}
            Stage::Proving => self.proves_freely = self.may_be_better_now(),
            Stage::Ready if self.stage == Stage::Proving => {
                self.proving_pause = (self.proving_pause * 2).clamp(FIRST_PROVING_PAUSE, LONGEST_PAUSE);
            }
            Stage::Ready => self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            Stage::Used => {
                (self.pause, self.proving_pause) = (FIRST_PAUSE / 2, Duration::ZERO);
                // With what it had, the marks that held senders to that.
                if std::mem::take(&mut self.proven) == 0.0 {
                    self.enough = MOST_MARKS;
                }
            }
        }
        (self.stage, self.since) = (next, now);
    }

    /// Whether it is far enough behind the best to be marked; not for what may be a bad moment.
    pub fn mark(
        &mut self,
        now: Timestamp,
        settings: &SteeringSettings,
        best: Option<Duration>,
        rank: Option<Rank>,
    ) {
        let limit = if self.marked { settings.threshold * RELEASE } else { settings.threshold };
        let is_chance = self.is_waited_for && rank == Some(Rank::AsGood);
        let is_longer = self.known(now).zip(best).is_some_and(|(time, best)| longer(time, best) > limit);
        self.marked = is_longer && !is_chance;
    }

    pub fn steered(
        &self,
        now: Timestamp,
        best: Option<Duration>,
        rank: Option<Rank>,
        is_single: bool,
        lack: Lack,
    ) -> Steered {
        let PointView { network, other_way, .. } = self.view;
        let time = self.known(now);
        let used = self.stage != Stage::Ready;
        let is_held = self.stage == Stage::Used && rank == Some(Rank::Slower);
        let enough = if is_held { self.enough } else { MOST_MARKS };
        // Held back by marks, senders would not find out what one that is to prove itself can do.
        let marks =
            if self.marked && other_way && self.stage != Stage::Proving { enough } else { MarkShare::NONE };
        let is_new = best.is_none() && !is_single && now.since(self.since) < TRIAL;
        let packets = match (self.stage, rank) {
            (Stage::Trying, _) if self.lead.is_none_or(|lead| lead < HEARD_BETTER) => Some(TRIAL_PACKETS),
            (Stage::Proving, _) if self.is_let_loose() => None,
            (Stage::Trying | Stage::Proving, _) => Some(PROVING_PACKETS),
            (Stage::Used, None) if is_new => Some(TRIAL_PACKETS),
            (Stage::Used, Some(Rank::Slower)) => {
                time.map(|time| self.allowed / time.as_secs_f64().max(LEAST_TIME))
            }
            // A power of two, so that it need not be told anew after every estimate.
            (Stage::Ready, _) => Some(time.or(self.left(now)).map_or(TRIAL_PACKETS, |time| {
                (STANDING_BY / time.as_secs_f64().max(LEAST_TIME)).log2().floor().exp2()
            })),
            _ => None,
        };
        let longer = time.zip(best).map(|(time, best)| longer(time, best)).unwrap_or_default();
        let reason = match rank {
            _ if !self.view.reaches => SteeringReason::Dead,
            _ if self.kept_apart == Some(Apart::Found) => SteeringReason::Disturbs,
            _ if self.kept_apart == Some(Apart::Asked) => SteeringReason::Compared,
            None if self.view.packet_time.is_some() => {
                SteeringReason::Doubtful { confidence: self.view.confidence }
            }
            None => SteeringReason::Unknown,
            Some(_) if is_single => SteeringReason::OnlyOne,
            Some(Rank::Best) => SteeringReason::Best,
            Some(Rank::AsGood) => SteeringReason::AsGood { longer },
            Some(Rank::Slower) if !other_way => SteeringReason::NoOtherWay { longer },
            Some(Rank::Slower) if self.is_let_loose() => SteeringReason::Fallen { longer },
            Some(Rank::Slower) if self.stage == Stage::Proving => SteeringReason::HeardBetter { longer },
            Some(Rank::Slower) if used => SteeringReason::FreeAir { longer, allowed: self.allowed },
            Some(Rank::Slower) => lack.reason(longer),
        };
        let rate = |packets: f64| BitRate((packets * FULL_PACKET.0 as f64 * 8.0).max(LEAST_LIMIT) as u64);
        let limit = packets.filter(|_| other_way).map(rate);
        let fair_limit = self.fair.packets().filter(|_| other_way && limit.is_none()).map(rate);
        Steered { network, used, limit, fair_limit, marks, renewals: 0, packet_time: time, reason }
    }
}
