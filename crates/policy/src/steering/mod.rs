//! Which access points carry data, and how many of their packets are marked so that senders prefer better ones (`[MULTIAP] section 5`).
//!
//! Access points of one channel share its air: a packet over a slow one takes the time of several over a fast one, and the MAC often gives each the
//! same number of packets. So the slow ones are *marked* ([`marking`]), and those that cost more than they bring are *not used* at all, since even the
//! least window of a flow takes air (`[MULTIAP] fig 6c`). Channels do not disturb each other and are judged apart; how long the radio stays on each is a
//! matter of slots.
//!
//! ```text
//!              known, worth it                     known, not worth it
//!   Trying ------------------------> Used <------------------------------+
//!     ^  | known, not worth it        |  not worth it                    | worth it now
//!     |  +-------------------> Ready <+----------------------------------+
//!     +--- nothing known for long, one at a time --+
//! ```
//! The caller brings estimates every 100 ms or so ([`Steering::update`]). What is done with the outcome is one of three things: marks on our own bond's
//! paths, marks on packets of TCP flows with several ways, or word to our own gateway, which needs no marks.

pub mod marking;
mod reason;
mod worth;

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Frequency, NetworkId, Timestamp};

pub use marking::{MOST_MARKS, MarkShare, MarkingForm, safe_marks};
pub use reason::SteeringReason;
use reason::longer;
use worth::{Judged, Known, Worth, air, judge};

/// What is known of a network's access point when [`Steering::update`] is called.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PointView {
    /// The network.
    pub network: NetworkId,
    /// Its channel.
    pub channel: Frequency,
    /// Air time for a packet; `None` if nothing was heard of it lately.
    pub packet_time: Option<Duration>,
    /// How far to believe it, 0 to 1.
    pub confidence: f64,
    /// Round-trip time of what goes over it, least of the last seconds; `None` if unknown.
    pub round_trip: Option<Duration>,
    /// Flows over it have another way to go: only such are marked.
    pub other_way: bool,
    /// Packets that it brought lately, in a second.
    pub carried: f64,
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
    /// How many of its packets are marked.
    pub marks: MarkShare,
    /// The packet time that this rests on, which may be some seconds old.
    pub packet_time: Option<Duration>,
    /// Why.
    pub reason: SteeringReason,
}

/// How steering is done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SteeringSettings {
    /// Which solution of eq. 4.
    pub form: MarkingForm,
    /// Marked are those that take so much longer than the best, as a part of its time (`[MULTIAP] section 5.2`: 20 %).
    pub threshold: f64,
}

impl Default for SteeringSettings {
    fn default() -> Self {
        Self { form: MarkingForm::Exact, threshold: 0.2 }
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
/// How long one that nothing is known of is tried.
const TRIAL: Duration = Duration::from_secs(1);
/// Less of a channel's air than this is little ...
const LITTLE: f64 = 0.5;
/// ... and after so long with little it was quiet.
const QUIET: Duration = Duration::from_secs(2);
/// For so long it is believed how much of the air was free without one that is in use.
const FREE_BELIEVED: Duration = Duration::from_secs(30);
/// Until one that was not worth it is tried again; doubles each time ...
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(160);

/// The state of steering. Networks that are not in an update any more are forgotten.
#[derive(Clone, Default, Debug)]
pub struct Steering {
    settings: SteeringSettings,
    points: BTreeMap<NetworkId, Point>,
    channels: BTreeMap<Frequency, Channel>,
}

/// Since when a channel is wanted. What was free of an idle one says nothing of what is free once somebody downloads.
#[derive(Clone, Copy, Debug)]
struct Channel {
    /// Since when little is carried on it.
    quiet_since: Option<Timestamp>,
    /// When it was last asked for more after having been quiet for long.
    wanted_from: Timestamp,
}

impl Channel {
    /// One of which nothing was known counts as having been quiet.
    fn new(now: Timestamp) -> Self {
        Self { quiet_since: Some(now - QUIET), wanted_from: now }
    }

    fn take(&mut self, now: Timestamp, air: f64) {
        if air < LITTLE {
            self.quiet_since.get_or_insert(now);
        } else if self.quiet_since.take().is_some_and(|since| now.since(since) >= QUIET) {
            self.wanted_from = now;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Point {
    view: PointView,
    /// The last packet time, and when.
    time: Option<(Duration, Timestamp)>,
    marked: bool,
    stage: Stage,
    since: Timestamp,
    pause: Duration,
    /// The part of the air that was free while this one was not used, and when.
    free_without: Option<(f64, Timestamp)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Trying,
    Used,
    Ready,
}

impl Steering {
    /// Without any network yet.
    pub fn new(settings: SteeringSettings) -> Self {
        Self { settings, points: BTreeMap::new(), channels: BTreeMap::new() }
    }

    /// Takes what is known now; gives what is to be done with each network, in the order of their numbers.
    pub fn update(&mut self, now: Timestamp, views: &[PointView]) -> Vec<Steered> {
        self.points.retain(|network, _| views.iter().any(|view| view.network == *network));
        for view in views {
            self.points.entry(view.network).or_insert_with(|| Point::new(now, *view)).take(now, *view);
        }
        let mut channels: Vec<Frequency> = views.iter().map(|view| view.channel).collect();
        channels.sort_unstable();
        channels.dedup();
        self.channels.retain(|channel, _| channels.contains(channel));
        let mut steered: Vec<Steered> =
            channels.into_iter().flat_map(|channel| self.steer(now, channel)).collect();
        steered.sort_unstable_by_key(|steered| steered.network);
        steered
    }

    /// What becomes of the networks of one channel.
    fn steer(&mut self, now: Timestamp, channel: Frequency) -> Vec<Steered> {
        let settings = self.settings;
        let mut here: Vec<&mut Point> =
            self.points.values_mut().filter(|point| point.view.channel == channel).collect();
        // The best one first.
        here.sort_by_key(|point| (point.known(now).unwrap_or(Duration::MAX), point.view.network));
        let state = self.channels.entry(channel).or_insert_with(|| Channel::new(now));
        let contest = |state: &Channel| -> Vec<Known> {
            here.iter().filter_map(|point| point.in_contest(now, state.wanted_from)).collect()
        };
        state.take(now, contest(state).iter().map(air).sum());
        let known = contest(state);
        let judged = judge(&known, settings.threshold);
        let best = known.first().map(|known| known.time);
        let is_single = here.len() == 1;
        let mut trying = here.iter().any(|point| point.stage == Stage::Trying);
        here.into_iter()
            .map(|point| {
                let judged = judged.iter().find(|judged| judged.network == point.view.network).copied();
                point.settle(now, judged, best.is_some(), &mut trying);
                point.mark(now, &settings, best);
                point.steered(now, &settings, best, judged, is_single)
            })
            .collect()
    }
}

impl Point {
    fn new(now: Timestamp, view: PointView) -> Self {
        Self {
            view,
            time: None,
            marked: false,
            stage: Stage::Ready,
            since: now,
            // Tried as soon as no other is.
            pause: Duration::ZERO,
            free_without: None,
        }
    }

    fn take(&mut self, now: Timestamp, view: PointView) {
        self.view = view;
        if let Some(time) = view.packet_time.filter(|_| view.confidence >= LEAST_CONFIDENCE) {
            self.time = Some((time, now));
        }
    }

    /// Its packet time, if it is not too old.
    fn known(&self, now: Timestamp) -> Option<Duration> {
        let (time, at) = self.time?;
        (now.since(at) <= REMEMBERED).then_some(time)
    }

    /// By what it is judged; one behind which nothing answers is not.
    fn in_contest(&self, now: Timestamp, wanted_from: Timestamp) -> Option<Known> {
        let time = self.known(now).filter(|_| self.view.reaches)?;
        let counts = |at: Timestamp| at > wanted_from && now.since(at) <= FREE_BELIEVED;
        let free_without = self.free_without.filter(|(_, at)| counts(*at));
        Some(Known {
            network: self.view.network,
            time,
            carried: self.view.carried,
            in_use: self.stage != Stage::Ready,
            free_without: free_without.map(|(free, _)| free),
        })
    }

    /// Moves on in the diagram of the module. `contest`: something is known of at least one on the channel.
    fn settle(&mut self, now: Timestamp, judged: Option<Judged>, contest: bool, trying: &mut bool) {
        let stayed = now.since(self.since);
        let has_settled = stayed >= DWELL;
        if let (Stage::Ready, true, Some(judged)) = (self.stage, has_settled, judged) {
            self.free_without = Some((judged.free, now));
        }
        let next = match (self.stage, judged.map(|judged| judged.worth)) {
            (_, Some(Worth::Best)) => Stage::Used,
            (Stage::Trying, Some(Worth::AsGood | Worth::FreeAir)) => Stage::Used,
            (Stage::Ready, Some(Worth::AsGood | Worth::FreeAir)) if has_settled => Stage::Used,
            (Stage::Used, Some(Worth::Not { .. })) if has_settled => Stage::Ready,
            (Stage::Trying, Some(Worth::Not { .. })) => Stage::Ready,
            (stage, Some(_)) => stage,
            // There is nothing better.
            (_, None) if !contest => Stage::Used,
            (Stage::Ready, None) if self.view.reaches && !*trying && stayed >= self.pause => Stage::Trying,
            (Stage::Trying, None) if self.view.reaches && stayed < TRIAL => Stage::Trying,
            (_, None) => Stage::Ready,
        };
        if next == self.stage {
            return;
        }
        match next {
            Stage::Trying => *trying = true,
            Stage::Ready => self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            Stage::Used => self.pause = FIRST_PAUSE / 2,
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
        settings: &SteeringSettings,
        best: Option<Duration>,
        judged: Option<Judged>,
        is_single: bool,
    ) -> Steered {
        let PointView { network, round_trip, other_way, .. } = self.view;
        let time = self.known(now);
        let safe =
            |time| round_trip.map_or(MOST_MARKS, |round_trip| safe_marks(settings.form, time, round_trip));
        let marks = time.filter(|_| self.marked && other_way).map_or(MarkShare::NONE, safe);
        let used = self.stage != Stage::Ready;
        let longer = time.zip(best).map(|(time, best)| longer(time, best)).unwrap_or_default();
        let reason = match judged.map(|judged| judged.worth) {
            _ if !self.view.reaches => SteeringReason::Dead,
            None if self.view.packet_time.is_some() => {
                SteeringReason::Doubtful { confidence: self.view.confidence }
            }
            None => SteeringReason::Unknown,
            Some(_) if is_single => SteeringReason::OnlyOne,
            Some(Worth::Best) => SteeringReason::Best,
            Some(Worth::Not { gain, cost }) if !used => SteeringReason::NotWorthIt { gain, cost },
            Some(_) if self.marked && !other_way => SteeringReason::NoOtherWay { longer },
            Some(_) if self.marked => SteeringReason::Marked { longer, marks, capped: marks == MOST_MARKS },
            Some(_) => SteeringReason::AsGood { longer },
        };
        Steered { network, used, marks, packet_time: time, reason }
    }
}

#[cfg(test)]
mod tests;
