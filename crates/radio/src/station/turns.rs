//! Whose turn it is, and how the radio gets from one channel to the next (`[JUGGLER] section 3.3`).

use std::time::Duration;

use units::{Frequency, NetworkId, Timestamp};

use super::group::LEAVING_TIME;
use super::{MOST_SWITCHES, Station, Switch};
use crate::group::Group;
use crate::network::{Lost, Network, State};
use crate::slots::{Fill, Member, Slot};
use crate::waking::{Drain, Taking};

/// Nothing happened here for so long, so another's packets may go first.
const IDLE: Duration = Duration::from_millis(5);
/// A slot is full if frames followed each other closely in this part of it.
const FULL_PART: f64 = 0.8;
/// The air of a channel is taken if data frames were heard or sent in so much of it, each with what it waits for; those that collide are not heard.
const TAKEN_AIR: f64 = 0.75;
/// Of a pause so much may be a frame on the air, with what it waits for. The rest of it the air had room.
const FRAME_TIME: Duration = Duration::from_millis(1);
/// How long a slot may be drawn out while a network is being joined.
const JOINING_TIME: Duration = Duration::from_millis(300);
/// One request, which is repeated after 30 ms.
const UNANSWERED_TIME: Duration = Duration::from_millis(28);
/// An access point has so long to confirm that it knows that we sleep.
const PARTING_TIME: Duration = Duration::from_millis(15);
/// Frames for a group that the card has are waited for so long: the two that it may have, on a channel that others use half of the time.
const EMPTYING_TIME: Duration = Duration::from_millis(50);
/// How often an access point is told that we sleep or wake, each time with all the card's attempts.
const MOST_TELLINGS: u8 = 3;
/// Frames in a row without acknowledgement, each with all the card's attempts, after which a visit is not worth its air: one more that fails ends it.
const SILENT_FRAMES: u32 = 3;
/// A beacon with group traffic is met this much before it is due.
const EARLY: Duration = Duration::from_millis(2);
/// How long a channel is listened to.
const SCAN_TIME: Duration = Duration::from_millis(30);
/// Frames that access points keep for a sleeping station: 64 in Linux (`STA_MAX_TX_BUFFER`).
const KEPT_FRAMES: u32 = 64;
/// Of those so many are planned for.
const PLANNED_FRAMES: u32 = 40;
/// Where the air has room and another network is what they wait for, so many only. What waited comes at once, the receiver's answers too, so the sender's next packets are as large a burst for
/// the queue in front of the slowest link, which need not hold more than a connection may begin with (RFC 3390: 4 segments).
const BURST_FRAMES: u32 = 4;
/// For that, slots are not made shorter than this many changes of channel: 5 % of the time.
const SWITCHES_WORTH: u32 = 20;
/// By this part of the difference the rate of arrivals falls with each visit.
const FALL_PART: f64 = 0.25;
/// Visits in a row without confirmation after which an access point counts as gone.
const MOST_UNCONFIRMED: u8 = 5;
/// ... if nothing was heard of it for so long either.
const GONE_AFTER: Duration = Duration::from_secs(1);
/// A slot is drawn out by at most this part of a cycle, so that the next begins when a group meets.
const STRETCH_PART: u32 = 4;
/// A cycle that is this little longer than the time between meetings is shortened to it.
const CYCLE_TOLERANCE: f64 = 0.9;
/// The longest absence that is worth a bound.
const LONG_ABSENCE: Duration = Duration::from_secs(1);
/// What follows a DTIM beacon within this time is taken as its group traffic.
const GROUP_TIME: Duration = Duration::from_millis(8);
/// Two DTIMs as most access points have them, 205 ms apart: an answer, and the answer to what was said to it.
const HELD_MOST: Duration = Duration::from_millis(450);

/// What the radio does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// There is nothing to do.
    Resting,
    /// On a channel, in a slot.
    Present {
        since: Timestamp,
        until: Timestamp,
        /// When a frame was last sent or heard here for us.
        active: Timestamp,
        /// How long frames followed each other closely.
        busy: Duration,
        /// How long there may have been one on the air.
        on_air: Duration,
    },
    /// The access points here are told that we sleep.
    Leaving { next: Slot, to: Frequency, since: Timestamp },
    /// The card changes channel.
    Tuning { slot: Slot },
}

impl Station {
    /// Listening has a turn if it is wanted, or as long as a network is sought.
    pub(super) fn refresh_scan(&mut self) {
        let sought = self.networks.values().any(|network| matches!(network.state, State::Searching));
        let wanted = sought || self.networks.is_empty() || self.scan_left > 0;
        let weight = self.settings.scan_weight;
        self.slots.set_listening((weight > 0 || wanted).then_some(weight));
    }

    /// Turns go where the networks are.
    pub(super) fn follow_channels(&mut self) {
        for network in self.networks.values() {
            self.slots.set_channel(network.id, network.frequency());
        }
    }

    /// Begins if nothing is going on.
    pub(super) fn wake(&mut self, now: Timestamp) {
        if matches!(self.phase, Phase::Resting) && !self.without_card {
            self.advance(now);
        }
    }

    /// Ends the present slot and begins the next one.
    fn advance(&mut self, now: Timestamp) {
        self.account(now);
        if std::mem::take(&mut self.scan_slot) && self.scan_left > 0 {
            self.scan_left -= 1;
            self.refresh_scan();
        }
        let Some((slot, frequency)) = self.next_slot() else {
            self.phase = Phase::Resting;
            return;
        };
        if self.frequency == Some(frequency) {
            self.begin_slot(now, slot);
            return;
        }
        self.switching = self.frequency.map(|_| Switch { begun: now, asleep: now, tuned: now });
        let awake: Vec<NetworkId> = self
            .here()
            .filter(|network| stays_to_be_told(network) && !is_silent(network))
            .map(|network| network.id)
            .collect();
        for id in awake {
            self.forget_vain_telling(id);
            self.send_null(id, true);
        }
        self.phase = Phase::Leaving { next: slot, to: frequency, since: now };
        self.leave_if_asleep(now);
    }

    /// Tunes once every access point here knows that we sleep.
    pub(super) fn leave_if_asleep(&mut self, now: Timestamp) {
        let Phase::Leaving { next, to, since } = self.phase else { return };
        let late = now.since(since) >= PARTING_TIME;
        let in_vain = |network: &Network| {
            is_silent(network) || network.linked().is_some_and(|linked| linked.told_in_vain >= MOST_TELLINGS)
        };
        let told = self.here().all(|network| !stays_to_be_told(network) || in_vain(network));
        let polled =
            self.here().any(|network| network.linked().is_some_and(|linked| linked.drain.polled.is_some()));
        if (!told || polled || !self.urgent.is_empty()) && !late {
            return;
        }
        // They would go out on the next channel, in front of all that is sent there.
        if self.holds_group_frames() && now.since(since) < EMPTYING_TIME {
            return;
        }
        let visited: Vec<NetworkId> = self.here().map(|network| network.id).collect();
        visited.into_iter().for_each(|id| self.learn_absence(now, id));
        let mut silent = Vec::new();
        for network in self.here_mut() {
            let id = network.id;
            let unconfirmed = stays_to_be_told(network);
            network.counters.unconfirmed_partings += u64::from(unconfirmed);
            let Some(linked) = network.linked_mut() else { continue };
            linked.unconfirmed = if unconfirmed { linked.unconfirmed.saturating_add(1) } else { 0 };
            linked.awake = false;
            linked.beacons.leave(now);
            linked.drain.left = Some(now);
            linked.drain.polled = None;
            if linked.unconfirmed >= MOST_UNCONFIRMED && now.since(linked.life.seen) >= GONE_AFTER {
                silent.push(id);
            }
        }
        self.urgent.clear();
        if let Some(switch) = &mut self.switching {
            switch.asleep = now;
        }
        self.frequency = None;
        self.tune = Some(to);
        self.phase = Phase::Tuning { slot: next };
        silent.into_iter().for_each(|id| self.lose(now, id, Lost::Silent));
    }

    /// The card is on a channel.
    pub(super) fn arrive(&mut self, now: Timestamp, frequency: Frequency) {
        let Phase::Tuning { slot } = self.phase else { return };
        self.frequency = Some(frequency);
        self.qualities.arrived(now);
        if let Some(switch) = self.switching.take() {
            let cost = now.since(switch.begun);
            self.switch_cost = (self.switch_cost * 7 + cost) / 8;
            if self.switches.len() == MOST_SWITCHES {
                self.switches.pop_front();
            }
            self.switches.push_back(Switch { tuned: now, ..switch });
        }
        let mut linked = Vec::new();
        for network in self.here_mut() {
            let (id, is_open) = (network.id, network.is_open());
            let State::Linked(link) = &mut network.state else { continue };
            link.beacons.arrive(now);
            link.life.sign = now;
            link.told_in_vain = 0;
            let left = link.drain.left;
            let away = left.map_or(Duration::ZERO, |left| now.since(left));
            let expected = (link.arrivals * away.as_secs_f64()) as u32;
            let taking = if is_open { network.waking.next(expected) } else { Taking::Announce };
            link.drain = Drain::begin(now, left, taking, expected);
            linked.push((id, link.drain.polling));
        }
        for (id, polling) in linked {
            if polling { self.send_poll(now, id) } else { self.send_null(id, false) }
        }
        self.begin_slot(now, slot);
    }

    fn begin_slot(&mut self, now: Timestamp, slot: Slot) {
        let (until, none) = (now + slot.length, Duration::ZERO);
        self.phase = Phase::Present { since: now, until, active: now, busy: none, on_air: none };
        self.tell_presence(now);
        if slot.member == Member::Scan {
            self.scan_slot = true;
            self.seen.forget_old(now);
            self.send_probes();
        }
        self.drive_joins(now);
    }

    /// The next slot that has somewhere to be.
    fn next_slot(&mut self) -> Option<(Slot, Frequency)> {
        let members = self.slots.members().count();
        for _ in 0..members {
            let slot = self.slots.advance(&mut self.randomness)?;
            match slot.member {
                Member::Channel(frequency) => {
                    let length = self.length_with_group(slot.length, frequency);
                    return Some((Slot { length, ..slot }, frequency));
                }
                Member::Scan => {
                    if let Some(frequency) = self.next_scan_channel() {
                        let alone = self.networks.values().all(|network| network.frequency().is_none());
                        let length = if alone { SCAN_TIME } else { slot.length };
                        return Some((Slot { length, ..slot }, frequency));
                    }
                }
            }
        }
        None
    }

    /// How long to be there for a slot so long. A group's own time begins with the beacon and ends when its members stop sending to us; it is
    /// met once from one meeting to the next, not once in a cycle.
    fn length_with_group(&self, length: Duration, channel: Frequency) -> Duration {
        let Some(group) = self.groups_on(channel).next() else { return length };
        let cycles = self.between_meetings(group).div_duration_f64(self.slots.cycle());
        EARLY + length.mul_f64(cycles.max(1.0)) + LEAVING_TIME
    }

    fn next_scan_channel(&mut self) -> Option<Frequency> {
        if let Some(frequency) = self.next_expected_channel() {
            return Some(frequency);
        }
        let channels = &self.settings.channels;
        let channel = channels.get(self.next_scan % channels.len().max(1))?;
        self.next_scan = (self.next_scan + 1) % channels.len();
        Some(channel.frequency)
    }

    /// In every second visit, as long as a network is sought that is expected somewhere and no whole round was asked for.
    fn next_expected_channel(&mut self) -> Option<Frequency> {
        let (was_expected, next) = self.next_expected;
        self.next_expected.0 = false;
        if was_expected || self.scan_left > 0 {
            return None;
        }
        let permitted = |frequency| self.settings.channels.iter().any(|one| one.frequency == frequency);
        let sought = self.networks.values().filter(|network| matches!(network.state, State::Searching));
        let expected = sought.flat_map(|network| network.succession.expected().iter().copied());
        let expected: Vec<Frequency> = expected.filter(|frequency| permitted(*frequency)).collect();
        let frequency = *expected.get(next % expected.len().max(1))?;
        self.next_expected = (true, next.wrapping_add(1));
        Some(frequency)
    }

    /// Tells the turns what came in the slot that ends, and learns from what was kept.
    fn account(&mut self, now: Timestamp) {
        let Phase::Present { since, busy, on_air, .. } = self.phase else { return };
        let time = now.since(since);
        let is_steady = busy >= time.mul_f64(FULL_PART);
        self.air_was_full = on_air >= time.mul_f64(FULL_PART);
        let take = |network: &mut Network| {
            network.visits.time += time;
            network.visits.received_packets = network.counters.received_packets;
            std::mem::take(&mut network.slot_bytes)
        };
        let bytes = self.here_mut().map(take).sum();
        if let Some(channel) = self.frequency {
            let fill = if !is_steady || bytes == 0 {
                Fill::Slack
            } else if self.qualities.air(now, channel) < TAKEN_AIR {
                Fill::Steady
            } else {
                Fill::Air
            };
            self.slots.delivered(channel, bytes, time, fill);
        }
    }

    /// A network sent or received something here.
    pub(super) fn note_activity(&mut self, now: Timestamp, id: NetworkId) {
        let here = self.frequency.is_some()
            && self.networks.get(&id).and_then(|network| network.frequency()) == self.frequency;
        if let Phase::Present { active, busy, on_air, .. } = &mut self.phase
            && here
        {
            let pause = now.since(*active);
            *on_air += pause.min(FRAME_TIME);
            if pause < IDLE {
                *busy += pause;
            }
            *active = now;
        }
    }

    /// A visit ends: how long we may stay away, by what came in this one. As much will come again.
    fn learn_absence(&mut self, now: Timestamp, id: NetworkId) {
        let gentlest = self.switch_cost * SWITCHES_WORTH;
        let in_a_hurry = self.air_was_full;
        let Some(network) = self.networks.get_mut(&id) else { return };
        let State::Linked(linked) = &mut network.state else { return };
        if let Some(measured) = linked.drain.leave() {
            network.waking.learn(measured);
        }
        let Drain { arrived, left: Some(left), came, .. } = linked.drain else { return };
        let (away, period) = (arrived.since(left).as_secs_f64(), now.since(left).as_secs_f64());
        if period <= 0.0 {
            return;
        }
        let rate = f64::from(came) / period;
        linked.arrivals = rate.max(linked.arrivals + (rate - linked.arrivals) * FALL_PART);
        network.counters.full_buffers += u64::from(rate * away >= f64::from(KEPT_FRAMES));
        let time_of = |frames: u32| Duration::try_from_secs_f64(f64::from(frames) / linked.arrivals);
        let bound = |time: Duration| (time < LONG_ABSENCE).then_some(time);
        let most = time_of(PLANNED_FRAMES).unwrap_or(LONG_ABSENCE);
        let gentle = time_of(BURST_FRAMES).unwrap_or(LONG_ABSENCE).max(gentlest);
        let gentle = if in_a_hurry { None } else { bound(gentle) };
        self.slots.set_absences(id, bound(most), gentle);
    }

    pub(super) fn drive_turns(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Resting => self.wake(now),
            Phase::Tuning { .. } => {}
            Phase::Leaving { .. } => self.leave_if_asleep(now),
            Phase::Present { since, until, .. } => {
                let joining = now.since(since) < self.joining_time().max(until.since(since))
                    && self.here().any(|network| network.is_joining());
                let ends = now >= until && !joining;
                if let Some((_, channel)) =
                    self.next_meeting(now, since).filter(|(at, _)| *at <= now && !joining)
                {
                    self.slots.set_next(Member::Channel(channel));
                    return self.advance(now);
                }
                if let Some(at) = self.held_for_group_traffic(now, since) {
                    return self.stretch(at.max(until));
                }
                match self.rendezvous_of_next(now).filter(|at| ends && *at > now) {
                    Some(at) => self.stretch(at),
                    None if ends || self.gives_way(now) => self.advance(now),
                    None => {}
                }
            }
        }
    }

    /// For how long a slot may be drawn out while a network here is being joined. The one that carries all the traffic need not wait for an access
    /// point that has not answered yet: it may be dead.
    fn joining_time(&self) -> Duration {
        let answered =
            |network: &Network| network.is_joining() && !matches!(network.state, State::Authenticating(..));
        let carries = |network: &Network| network.watched && network.is_open();
        let others_wait =
            self.networks.values().any(|network| carries(network) && network.frequency() != self.frequency);
        match others_wait && !self.here().any(answered) {
            // The network has a slot of its own beside this one.
            true if self.scan_slot => Duration::ZERO,
            true => UNANSWERED_TIME,
            false => JOINING_TIME,
        }
    }

    /// Whether the slot ends early: nothing happens here and others have packets, or a beacon with group traffic is due elsewhere.
    fn gives_way(&self, now: Timestamp) -> bool {
        let Phase::Present { since, until, active, .. } = self.phase else { return false };
        if now.since(since) < self.settings.slots.least || self.here().any(|network| network.is_joining()) {
            return false;
        }
        // Members were told how long we stay.
        if self.here().any(|network| network.group().is_some_and(|group| !group.members.is_empty())) {
            return false;
        }
        let waits = |network: &Network| network.has_more() && !is_silent(network);
        let idle = now.since(active) >= IDLE && !self.here().any(waits);
        let mut elsewhere = self.networks.values().filter(|network| network.frequency() != self.frequency);
        let wants = |network: &Network| {
            let has_enough = network.is_urgent() || self.has_full_channel(network);
            has_enough && !is_silent(network)
        };
        if idle && elsewhere.any(|network| network.is_open() && wants(network)) {
            return true;
        }
        let half = now.since(since) >= until.since(since) / 2;
        half && self.next_dtim_elsewhere(now).is_some_and(|dtim| dtim <= now + EARLY)
    }

    /// Until when the slot is held, since a network here waits for group traffic.
    fn held_for_group_traffic(&self, now: Timestamp, since: Timestamp) -> Option<Timestamp> {
        let waiting = self
            .here()
            .filter(|network| network.is_open() && network.group_expected.is_some_and(|until| now < until));
        let due = waiting.filter_map(|network| Some(network.linked()?.beacons.next_dtim(now) + GROUP_TIME));
        due.min().filter(|at| at.since(since) <= HELD_MOST)
    }

    /// Whether a network's channel was busy all the time when the radio was last there.
    fn has_full_channel(&self, network: &Network) -> bool {
        network.frequency().is_some_and(|channel| self.slots.is_full(channel))
    }

    fn groups_on(&self, channel: Frequency) -> impl Iterator<Item = &Group> {
        self.networks.values().filter_map(Network::group).filter(move |group| group.frequency == channel)
    }

    /// When the next network in turn, if it is on another channel, sends its group traffic.
    fn next_dtim_elsewhere(&self, now: Timestamp) -> Option<Timestamp> {
        let away = self.networks.values().filter(|network| network.frequency() != self.frequency);
        away.filter_map(|network| Some(network.linked()?.beacons.next_dtim(now))).min()
    }

    pub(super) fn turn_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        match self.phase {
            Phase::Resting | Phase::Tuning { .. } => None,
            Phase::Leaving { since, .. } if now.since(since) < PARTING_TIME => Some(since + PARTING_TIME),
            Phase::Leaving { since, .. } => Some(since + EMPTYING_TIME),
            Phase::Present { since, until, active, .. } => {
                let earliest = since + self.settings.slots.least;
                let joining = self.here().any(|network| network.is_joining());
                let end = if joining && until <= now { now + Duration::from_millis(5) } else { until };
                let idle = self
                    .networks
                    .values()
                    .any(|network| {
                        let wants = network.has_more() || self.has_full_channel(network);
                        network.frequency() != self.frequency && wants && !is_silent(network)
                    })
                    .then(|| (active + IDLE).max(earliest))
                    .filter(|at| *at > now);
                let half = since + until.since(since) / 2;
                let dtim = self.next_dtim_elsewhere(now).map(|dtim| {
                    Timestamp::from_nanos(dtim.as_nanos().saturating_sub(EARLY.as_nanos() as u64))
                });
                let dtim = dtim.filter(|at| *at > now).map(|at| at.max(half).max(earliest));
                let meeting =
                    self.next_meeting(now, since).map(|(at, _)| at).filter(|at| *at > now || !joining);
                [Some(end), idle, dtim, meeting].into_iter().flatten().min()
            }
        }
    }

    /// When to be with the group that is next in turn, if its members are met soon. Those who share their radio too come at the same
    /// times: every so many beacons of the group's clock, a power of two that fits the cycle.
    fn rendezvous_of_next(&self, now: Timestamp) -> Option<Timestamp> {
        let Member::Channel(channel) = self.slots.next_member()? else { return None };
        let meeting = self.groups_on(channel).map(|group| self.meeting(now, group)).min()?;
        let at = Timestamp::from_nanos(meeting.as_nanos().saturating_sub(EARLY.as_nanos() as u64));
        (at.since(now) <= self.slots.cycle() / STRETCH_PART).then_some(at)
    }

    /// When and where the members of a group elsewhere meet next, of all such groups the first, less what it takes to get there.
    fn next_meeting(&self, now: Timestamp, since: Timestamp) -> Option<(Timestamp, Frequency)> {
        let elsewhere = self.networks.values().filter(|network| network.frequency() != self.frequency);
        // One that is due in a moment counts as due, not the one after it.
        let at = |group: &Group| {
            let meeting = self.meeting(now, group);
            Timestamp::from_nanos(meeting.as_nanos().saturating_sub(EARLY.as_nanos() as u64))
        };
        let groups = elsewhere.filter_map(Network::group);
        let earliest = since + self.settings.slots.least;
        groups
            .map(|group| (at(group), group.frequency))
            .min()
            .map(|(at, channel)| (at.max(earliest), channel))
    }

    fn meeting(&self, now: Timestamp, group: &Group) -> Timestamp {
        group.clock.next_beacon(now, self.between_meetings(group))
    }

    fn between_meetings(&self, group: &Group) -> Duration {
        let cycle = self.slots.cycle().mul_f64(CYCLE_TOLERANCE);
        let mut apart = group.interval;
        while apart < cycle {
            apart *= 2;
        }
        apart
    }

    fn stretch(&mut self, to: Timestamp) {
        if let Phase::Present { until, .. } = &mut self.phase {
            *until = to;
        }
    }

    pub(super) fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Present { .. } | Phase::Leaving { .. })
    }

    pub(super) fn is_present(&self) -> bool {
        matches!(self.phase, Phase::Present { .. })
    }

    /// The access point knows, or does not know, that we are awake.
    pub(super) fn confirm(&mut self, now: Timestamp, id: NetworkId, sleeping: bool, confirmed: bool) {
        let here = self.here().any(|network| network.id == id);
        let leaving = matches!(self.phase, Phase::Leaving { .. });
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        if !here {
            return;
        }
        if confirmed {
            linked.awake = !sleeping;
        } else if sleeping == leaving {
            linked.told_in_vain += 1;
            let again = linked.told_in_vain < MOST_TELLINGS;
            if self.is_worth_nothing() {
                return self.advance(now);
            }
            if again {
                self.send_null(id, sleeping);
            }
        }
        self.leave_if_asleep(now);
    }

    /// Whether a slot on another channel will come.
    pub(super) fn will_leave(&self) -> bool {
        let elsewhere = |network: &Network| network.frequency().is_some_and(|at| Some(at) != self.frequency);
        self.networks.values().any(elsewhere) || self.slots.members().any(|member| member == Member::Scan)
    }

    /// Ends the present slot in favour of a network's.
    pub(super) fn go_to(&mut self, now: Timestamp, id: NetworkId) {
        let channel = self.networks.get(&id).and_then(|network| network.frequency());
        let Some(elsewhere) = channel.filter(|_| channel != self.frequency) else { return };
        if self.slots.set_next(Member::Channel(elsewhere)) && self.is_present() {
            self.advance(now);
        }
    }

    /// Whether nobody here answers, while others could use the time.
    fn is_worth_nothing(&self) -> bool {
        self.is_present() && self.here().all(is_silent) && self.others_answer()
    }

    /// Whether a network on another channel could use the time.
    pub(super) fn others_answer(&self) -> bool {
        let mut elsewhere = self.networks.values().filter(|network| network.frequency() != self.frequency);
        elsewhere.any(|network| network.is_open() && !is_silent(network))
    }

    fn forget_vain_telling(&mut self, id: NetworkId) {
        if let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) {
            linked.told_in_vain = 0;
        }
    }
}

/// Whether an access point may believe that we are awake.
fn stays_to_be_told(network: &Network) -> bool {
    network.linked().is_some_and(|linked| linked.awake && !linked.drain.polling)
}

/// Whether an access point has not acknowledged anything for a while. The one that carries all the traffic is listened to until it is clear that
/// it is gone.
pub(super) fn is_silent(network: &Network) -> bool {
    let unanswered = network.linked().map_or(0, |linked| linked.life.unanswered);
    !network.watched && unanswered >= SILENT_FRAMES
}
