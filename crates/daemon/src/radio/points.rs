//! Which of the access points that the radio is at are worth their air: brings what was measured to the rule, and tells what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch::control::{AccessPointReport, EventKind, Fraction, QualityReport, QualitySource};
use policy::steering::{PointView, Sharer, Steered, Steering, SteeringReason};
use radio::quality::{Doubt, Estimate, Source};
use units::{BitRate, Frequency, MacAddress, NetworkId, Timestamp};

use crate::control::EventLog;

/// How often it is decided: several times within the half second that an estimate covers.
const INTERVAL: Duration = Duration::from_millis(100);
/// One doubt about one access point is not told of again before this is over.
const QUIET: Duration = Duration::from_secs(60);
/// What a device said about networks that lead nowhere is believed for so long: it may have ended.
const UNREACHED_FOR: Duration = Duration::from_secs(10);
/// Less time on a channel than this tells nothing of how full it is.
const LEAST_TIME: Duration = Duration::from_millis(50);
/// What is let through to a network that is there seldom all the same: enough to try it.
const LEAST_LIMIT: BitRate = BitRate(120_000);
/// Who is kept ready and brings fewer packets a second, as a sign of life and a trial are, is not used by anybody.
const IDLE_RATE: f64 = 20.0;
/// So much counts of each look: over a second.
const RATE_NEWS: f64 = 0.1;

/// An access point that the radio is at.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub network: NetworkId,
    /// Its name, for people.
    pub ssid: String,
    /// The access point of it that we are at.
    pub bssid: MacAddress,
    pub channel: Frequency,
    pub estimate: Option<Estimate>,
    /// Of its beacons lately, dBm.
    pub signal_dbm: Option<f32>,
    /// Packets that have come by it in the time that the radio was on its channel.
    pub received: u64,
    /// The part of the time that the radio is on this channel, 0 to 1.
    pub presence: f64,
    /// How long it has been there in all, in whole visits.
    pub there: Duration,
    /// The part of the channel's air that others took lately, 0 to 1; 0 if nobody knows.
    pub others: f64,
    /// Who they are: the transmitter of full packets to each receiver, and how many in a second.
    pub sharers: Vec<(MacAddress, f64)>,
    /// Whether anything answers behind it, as far as is known.
    pub reaches: bool,
}

/// The rule, and what it was last told.
#[derive(Default)]
pub(crate) struct Points {
    steering: Steering,
    due: Timestamp,
    steered: Vec<Steered>,
    before: BTreeMap<NetworkId, Seen>,
    /// When each doubt was last told of.
    doubted: BTreeMap<(NetworkId, Doubt), Timestamp>,
    /// Interfaces behind which nothing answers, and when the device said so.
    unreached: (BTreeSet<String>, Timestamp),
}

/// What came by a network, as it was last looked at.
#[derive(Clone, Copy)]
struct Seen {
    /// How long the radio had been there, and how many packets had come.
    there: Duration,
    received: u64,
    /// Packets a second while it is there: at the last look, and lately.
    carried: f64,
    smoothed: f64,
}

impl Points {
    /// When to call [`Self::decide`] next; `None`: there is nothing to decide with less than two.
    pub fn timeout(&self, joined: usize) -> Option<Timestamp> {
        (joined > 1).then_some(self.due)
    }

    /// What was believed holds no more; what the device said of networks ends by itself.
    pub fn forget(&mut self) {
        *self = Self { unreached: std::mem::take(&mut self.unreached), ..Self::default() };
    }

    /// Whether it is time.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// The device says that nothing answers behind these interfaces, while something does behind others.
    pub fn tell_unreached(&mut self, now: Timestamp, interfaces: BTreeSet<String>) {
        if interfaces != self.unreached.0 {
            self.due = now;
        }
        self.unreached = (interfaces, now);
    }

    /// Whether something answers behind an interface, as far as is known.
    pub fn reaches(&self, now: Timestamp, interface: &str) -> bool {
        let (interfaces, told) = &self.unreached;
        now.since(*told) >= UNREACHED_FOR || !interfaces.contains(interface)
    }

    /// Decides anew, and tells of what has changed.
    pub fn decide(&mut self, now: Timestamp, joined: &[Joined], events: &EventLog) {
        self.due = now + INTERVAL;
        let several = joined.len() > 1;
        self.before = joined.iter().map(|one| (one.network, self.look(one))).collect();
        let views: Vec<PointView> = joined.iter().map(|one| self.view(one, several)).collect();
        self.steering.hear(sharers(joined));
        let mut steered = self.steering.update(now, &views);
        for one in joined {
            let Some(found) = steered.iter_mut().find(|steered| steered.network == one.network) else {
                continue;
            };
            for limit in [&mut found.limit, &mut found.fair_limit].into_iter().flatten() {
                *limit = while_there(*limit, one.presence);
            }
        }
        self.doubted.retain(|(network, _), _| joined.iter().any(|one| one.network == *network));
        for one in joined {
            self.tell_of_doubts(now, one, events);
            let after = steered.iter().find(|steered| steered.network == one.network);
            if let Some(after) = after.filter(|after| self.is_news(after)) {
                let what = if after.used { "carries data" } else { "kept ready only" };
                let text = format!("{what}: {}", after.reason);
                events.push(EventKind::NetworkChanged, Some(&one.ssid), text);
            }
        }
        self.steered = steered;
    }

    /// Whether a network changes between used and ready, or nothing answers behind it any more, which may be found out after it was left for its silence.
    fn is_news(&self, after: &Steered) -> bool {
        // Before the first time nothing is held against it.
        let Some(before) = self.of(after.network) else { return !after.used };
        let is_dead = |steered: &Steered| steered.reason == SteeringReason::Dead;
        after.used != before.used || is_dead(after) && !is_dead(before)
    }

    /// What has come in the visits since the last look. Slots are longer than the time between looks, and what was kept comes at their beginning:
    /// over wall-clock time that would be feast and famine.
    fn look(&self, one: &Joined) -> Seen {
        let &Joined { there, received, .. } = one;
        let Some(before) = self.before.get(&one.network).copied() else {
            return Seen { there, received, carried: 0.0, smoothed: 0.0 };
        };
        let passed = there.saturating_sub(before.there);
        if passed < LEAST_TIME {
            return before;
        }
        let carried = received.saturating_sub(before.received) as f64 / passed.as_secs_f64();
        let smoothed = before.smoothed + (carried - before.smoothed) * RATE_NEWS;
        Seen { there, received, carried, smoothed }
    }

    fn view(&self, one: &Joined, several: bool) -> PointView {
        let carried = self.before.get(&one.network).map_or(0.0, |seen| seen.carried);
        let estimate = one.estimate.as_ref();
        PointView {
            network: one.network,
            access_point: one.bssid,
            channel: one.channel,
            packet_time: estimate.and_then(|estimate| estimate.packet_time),
            confidence: estimate.map_or(0.0, Estimate::packet_time_confidence),
            // Counts of what we sent do not tell who disturbs what we receive.
            stays: one.presence > 0.98,
            signal_dbm: one.signal_dbm,
            delivered: estimate
                .filter(|estimate| estimate.source != Source::Sent)
                .map(|estimate| estimate.delivery_ratio),
            other_way: several,
            carried,
            others: one.others,
            reaches: one.reaches,
        }
    }

    /// Of each network whether it asks for no time of the radio: it is only kept ready beside others of its channel, and nobody uses it all the
    /// same, as whoever does without the device may.
    pub fn standing_by(&self) -> impl Iterator<Item = (NetworkId, bool)> {
        let is_idle = |network| self.before.get(&network).is_none_or(|seen| seen.smoothed < IDLE_RATE);
        self.steered.iter().map(move |one| (one.network, !one.used && is_idle(one.network)))
    }

    fn tell_of_doubts(&mut self, now: Timestamp, one: &Joined, events: &EventLog) {
        let matters = |doubt: &Doubt| matches!(doubt, Doubt::HiddenSender | Doubt::Numbers | Doubt::Classes);
        for doubt in one.estimate.iter().flat_map(Estimate::doubts).filter(matters) {
            let key = (one.network, doubt);
            if self.doubted.get(&key).is_some_and(|told| now.since(*told) < QUIET) {
                continue;
            }
            self.doubted.insert(key, now);
            let text = format!("how good its access point is can only be guessed: {doubt}");
            events.push(EventKind::Warning, Some(&one.ssid), text);
        }
    }

    /// What was decided of a network.
    fn of(&self, network: NetworkId) -> Option<&Steered> {
        self.steered.iter().find(|steered| steered.network == network)
    }

    /// Adds what is known and what was decided to a report.
    pub fn complete(&self, network: NetworkId, estimate: Option<Estimate>, report: &mut AccessPointReport) {
        let steered = self.of(network);
        // Two that do not hear each other break what the estimate supposes: that frames fail each by itself.
        let disturbs = steered.is_some_and(|steered| steered.reason == SteeringReason::Disturbs);
        let doubted =
            |estimate: Estimate| if disturbs { estimate.doubted(Doubt::HiddenSender) } else { estimate };
        report.quality = estimate.map(doubted).as_ref().map(quality);
        report.used = steered.is_none_or(|steered| steered.used);
        report.limit = steered.and_then(|steered| steered.limit);
        report.fair_limit = steered.and_then(|steered| steered.fair_limit);
        report.renewals = steered.map_or(0, |steered| steered.renewals);
        report.marks = Fraction(steered.map_or(0.0, |steered| steered.marks.part()));
        report.held_packet_time =
            steered.and_then(|steered| steered.packet_time).map(|packet_time| packet_time.into());
        report.reason = steered.map_or(SteeringReason::Unknown, |steered| steered.reason).to_string();
        if let Some(limit) = report.fair_limit {
            let part =
                format!("; others want the air as well, so a gateway sends no more than {limit} over it");
            report.reason += &part;
        }
    }
}

/// Who else is on the channels of these, each channel once.
fn sharers(joined: &[Joined]) -> impl Iterator<Item = Sharer> {
    let is_first =
        |at: usize, one: &Joined| joined.iter().take(at).all(|before| before.channel != one.channel);
    joined.iter().enumerate().filter(move |(at, one)| is_first(*at, one)).flat_map(|(_, one)| {
        let sharer = |&(transmitter, packets)| Sharer { channel: one.channel, transmitter, packets };
        one.sharers.iter().map(sharer)
    })
}

/// A limit for the time that the radio is on the channel, as one for all the time: what is sent meanwhile comes in that time too.
fn while_there(limit: BitRate, presence: f64) -> BitRate {
    let part = BitRate((limit.0 as f64 * presence.clamp(0.0, 1.0)) as u64);
    part.max(LEAST_LIMIT.min(limit))
}

/// An estimate, for the control API.
pub(super) fn quality(estimate: &Estimate) -> QualityReport {
    QualityReport {
        delivery_ratio: Fraction(estimate.delivery_ratio),
        margin: Fraction(estimate.margin),
        packet_time: estimate.packet_time.map(Into::into),
        frames: estimate.frames,
        source: match estimate.source {
            Source::ToUs => QualitySource::ToUs,
            Source::Overheard => QualitySource::Overheard,
            Source::Sent => QualitySource::Sent,
        },
        confidence: Fraction(estimate.confidence()),
        doubts: estimate.doubts().map(|doubt| doubt.to_string()).collect(),
    }
}

/// Why an access point has no part of the radio's time.
pub(super) fn reason_of_stranger(known: bool, estimate: Option<&Estimate>) -> &'static str {
    match (known, estimate) {
        (true, _) => "a network that the radio knows, by another access point now",
        (false, Some(_)) => "not a network of this radio; overheard",
        (false, None) => "not a network of this radio",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::steering::MarkShare;
    use radio::airtime::Flavour;

    fn joined(network: u32, mbps: f64, received: u64) -> Joined {
        let rate = Some(BitRate::from_mbps(mbps));
        Joined {
            network: NetworkId(network),
            ssid: format!("net{network}"),
            bssid: MacAddress([2, 0, 0, 0, 0, network as u8]),
            channel: Frequency(2_437),
            estimate: Estimate::of_counts(Flavour::G, 500, 0, 0, rate),
            signal_dbm: None,
            received,
            presence: 1.0,
            there: Duration::ZERO,
            others: 0.0,
            sharers: Vec::new(),
            reaches: true,
        }
    }

    /// The radio has been there all the time, in steps of 100 ms.
    fn after(step: u64, one: Joined) -> Joined {
        Joined { there: Duration::from_millis(step * 100), ..one }
    }

    #[test]
    fn what_comes_is_counted_over_the_time_on_the_channel_and_limits_hold_for_all_the_time() {
        let (mut points, events) = (Points::default(), EventLog::default());
        // Slots of 150 ms in 300: while the radio is there, 1,000 packets a second.
        for step in 0..40_u64 {
            let there = step / 3 * 150;
            let one = Joined { there: Duration::from_millis(there), presence: 0.5, ..joined(1, 54.0, there) };
            let other = Joined { presence: 0.5, ..joined(2, 24.0, 0) };
            points.decide(Timestamp::from_millis(10_000 + step * 100), &[one, other], &events);
            let carried = points.before[&NetworkId(1)].carried;
            assert!(carried == 0.0 || (carried - 1_000.0).abs() < 1.0, "{carried}");
        }
        assert!(points.before[&NetworkId(1)].carried > 0.0);
        assert_eq!(while_there(BitRate(4_000_000), 0.5), BitRate(2_000_000));
        assert_eq!(while_there(BitRate(100_000), 0.5), BitRate(100_000));
    }

    #[test]
    fn what_changes_is_told_with_its_reason() {
        let (mut points, events) = (Points::default(), EventLog::default());
        let at = |millis| Timestamp::from_millis(10_000 + millis);
        let mut received = [0, 0];
        for step in 0..30_u64 {
            assert!(points.is_due(at(step * 100)));
            // Packet for packet 15 in a step, or 250 by the first one alone.
            let both = points.of(NetworkId(2)).is_none_or(|steered| steered.used);
            let [first, second] = if both { [15, 15] } else { [250, 0] };
            received = [received[0] + first, received[1] + second];
            let all = [joined(1, 54.0, received[0]), joined(2, 2.0, received[1])];
            points.decide(at(step * 100), &all.map(|one| after(step, one)), &events);
        }
        assert_eq!(points.timeout(2), Some(at(3_000)));
        assert_eq!(points.timeout(1), None);
        let mut report = AccessPointReport::default();
        points.complete(NetworkId(2), joined(2, 2.0, 0).estimate, &mut report);
        assert!(!report.used && report.reason.ends_with("no air free"), "{report:?}");
        points.complete(NetworkId(1), None, &mut report);
        assert!(report.used && report.marks == Fraction(0.0), "{report:?}");
        assert_eq!(points.standing_by().collect::<Vec<_>>(), [(NetworkId(1), false), (NetworkId(2), true)]);
        let told = events.since(anabranch::control::EventSequence(0));
        assert!(told.iter().any(|event| event.text.contains("kept ready only")), "{told:?}");
    }

    /// Two good access points with a station of somebody else behind each, all air taken.
    #[test]
    fn a_bond_takes_no_more_than_its_part_beside_others() {
        let (mut points, events) = (Points::default(), EventLog::default());
        for step in 0..40_u64 {
            let all = [1, 2].map(|network| {
                let one = joined(network, 54.0, step * 100);
                let others = [1, 2].map(|number| (MacAddress([2, 0, 0, 0, 0, number]), 500.0)).to_vec();
                after(step, Joined { others: 0.8, sharers: others, ..one })
            });
            points.decide(Timestamp::from_millis(10_000 + step * 100), &all, &events);
        }
        let mut report = AccessPointReport::default();
        points.complete(NetworkId(1), None, &mut report);
        // By hand: of 3,000 packets a second a third, half of that by each, 12,000 bits each.
        let part = report.fair_limit.unwrap().0 as f64 / (500.0 * 12_000.0);
        assert!((0.9..1.1).contains(&part), "{report:?}");
        assert!(report.limit.is_none() && report.reason.contains("others want the air"), "{report:?}");
    }

    #[test]
    fn who_is_used_against_the_advice_keeps_its_time() {
        let (mut points, events) = (Points::default(), EventLog::default());
        let at = |step| Timestamp::from_millis(10_000 + step * 100);
        let decide = |points: &mut Points, step, second| {
            let all = [joined(1, 54.0, step * 250), joined(2, 2.0, second)];
            points.decide(at(step), &all.map(|one| after(step, one)), &events);
        };
        (0..30).for_each(|step| decide(&mut points, step, step * 10));
        assert!(!points.of(NetworkId(2)).unwrap().used);
        assert_eq!(points.standing_by().last(), Some((NetworkId(2), false)));
        (30..60).for_each(|step| decide(&mut points, step, 300));
        assert_eq!(points.standing_by().last(), Some((NetworkId(2), true)));
    }

    #[test]
    fn after_a_sleep_nothing_is_believed_but_what_the_device_says() {
        let (mut points, events) = (Points::default(), EventLog::default());
        let at = |step| Timestamp::from_millis(10_000 + step * 100);
        for step in 0..30 {
            let all = [joined(1, 54.0, step * 250), joined(2, 2.0, step * 10)];
            points.decide(at(step), &all.map(|one| after(step, one)), &events);
        }
        points.tell_unreached(at(30), ["wlan1".to_owned()].into());
        assert!(!points.of(NetworkId(2)).unwrap().used);
        points.forget();
        assert!(points.is_due(at(30)) && !points.reaches(at(31), "wlan1"));
        let mut report = AccessPointReport::default();
        points.complete(NetworkId(2), None, &mut report);
        assert!(report.used && report.limit.is_none(), "{report:?}");
        assert_eq!(points.standing_by().count(), 0);
        for step in 31..50 {
            let all = [joined(1, 54.0, step * 250), joined(2, 54.0, step * 10)];
            points.decide(at(step), &all.map(|one| after(step, one)), &events);
        }
        assert!(points.of(NetworkId(2)).unwrap().used, "as good as the other one now");
    }

    #[test]
    fn one_that_disturbs_another_is_told_with_less_confidence() {
        let told = |reason| {
            let steered = Steered {
                network: NetworkId(1),
                used: false,
                limit: None,
                fair_limit: None,
                marks: MarkShare::NONE,
                renewals: 0,
                packet_time: None,
                reason,
            };
            let points = Points { steered: vec![steered], ..Points::default() };
            let mut report = AccessPointReport::default();
            points.complete(NetworkId(1), joined(1, 54.0, 0).estimate, &mut report);
            report.quality.unwrap()
        };
        let (alone, disturbing) = (told(SteeringReason::OnlyOne), told(SteeringReason::Disturbs));
        assert_eq!(disturbing.confidence, Fraction(alone.confidence.0 / 2.0));
        assert!(disturbing.doubts.iter().any(|doubt| doubt.contains("hidden sender")), "{disturbing:?}");
        assert_eq!(alone.doubts.len() + 1, disturbing.doubts.len());
    }

    #[test]
    fn that_nothing_answers_is_told_also_of_one_that_was_left_before() {
        let (mut points, events) = (Points::default(), EventLog::default());
        let mut decide = |step: u64, reaches| {
            let silent = Joined { estimate: None, reaches, ..joined(1, 54.0, 250) };
            let other = joined(2, 54.0, step * 250);
            points.decide(
                Timestamp::from_millis(10_000 + step * 100),
                &[silent, after(step, other)],
                &events,
            );
            let told = events.since(anabranch::control::EventSequence(0));
            told.iter().filter(|event| event.text.contains("nothing comes from beyond it")).count()
        };
        assert_eq!((0..20).map(|step| decide(step, true)).sum::<usize>(), 0);
        assert_eq!((20..40).map(|step| decide(step, false)).max(), Some(1), "once");
    }

    /// Forged frames, or two access points with one address.
    #[test]
    fn numbers_that_cannot_be_true_are_told_of_once_a_minute() {
        let (mut points, events) = (Points::default(), EventLog::default());
        let mut told = |second: u64, doubt| {
            let odd = joined(1, 54.0, 0);
            let odd = Joined { estimate: odd.estimate.map(|estimate| estimate.doubted(doubt)), ..odd };
            points.decide(Timestamp::from_millis(second * 1_000), &[odd, joined(2, 54.0, 0)], &events);
            let all = events.since(anabranch::control::EventSequence(0));
            let warnings = all.into_iter().filter(|event| event.kind == EventKind::Warning);
            warnings.map(|event| (event.subject.unwrap(), event.text)).collect::<Vec<_>>()
        };
        let first = told(10, Doubt::Numbers);
        assert!(
            matches!(&first[..], [(network, text)] if network == "net1" && text.contains(&Doubt::Numbers.to_string())),
            "{first:?}"
        );
        assert_eq!(told(69, Doubt::Numbers), first);
        assert_eq!(told(69, Doubt::FewFrames), first, "that comes and goes all the time");
        assert_eq!(told(70, Doubt::Numbers).len(), 2);
        assert_eq!(told(71, Doubt::HiddenSender).len(), 3);
        assert_eq!(told(72, Doubt::Classes).len(), 4);
    }

    #[test]
    fn the_best_on_the_air_is_left_while_nothing_answers_behind_it() {
        let (mut points, events) = (Points::default(), EventLog::default());
        let at = |millis| Timestamp::from_millis(10_000 + millis);
        let mut used: Vec<[bool; 2]> = Vec::new();
        let mut received = [0, 0];
        for step in 0..220_u64 {
            let now = at(step * 100);
            match used.last() {
                None | Some([true, true]) => received = received.map(|sum| sum + 15),
                Some([true, false]) => received[0] += 250,
                Some(_) => received[1] += 16,
            }
            if step == 40 {
                points.tell_unreached(now, ["wlan1".to_owned()].into());
                assert!(points.is_due(now));
            }
            let one = |number, mbps, received| Joined {
                reaches: points.reaches(now, &format!("wlan{number}")),
                ..joined(number, mbps, received)
            };
            let all = [one(1, 54.0, received[0]), one(2, 2.0, received[1])];
            points.decide(now, &all.map(|one| after(step, one)), &events);
            used.push([1, 2].map(|network| points.of(NetworkId(network)).is_some_and(|one| one.used)));
        }
        assert_eq!(used[39], [true, false]);
        assert_eq!(used[60], [false, true]);
        let told = events.since(anabranch::control::EventSequence(0));
        assert!(told.iter().any(|event| event.text.contains("nothing comes from beyond it")), "{told:?}");
        // The device has ended, so nobody says so any more.
        assert_eq!(used[219], [true, false]);
    }
}
