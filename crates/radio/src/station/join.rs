//! Joining networks and losing them (IEEE 802.11-2020 section 11.3).

use std::time::Duration;

use units::{Frequency, NetworkId, Timestamp};

use super::transmit::own_rates;
use super::{Event, PermittedChannel, Station};
use crate::airtime::Flavour;
use crate::beacons::BeaconClock;
use crate::frame::Kind;
use crate::frame::management::{self, Refusal};
use crate::joining;
use crate::link::Link;
use crate::network::{
    ANSWER_TIME, Asked, Joined, KEY_TIME, Life, Linked, Lost, MOST_REQUESTS, Network, State,
};
use crate::rates::RateChoice;
use crate::security::Supplicant;
use crate::waking::Drain;

/// After so long without trouble old failures are forgotten.
const STEADY_AFTER: Duration = Duration::from_secs(10);
/// Beacons between our visits at most; what the access point may forget us after is its own matter.
const LISTEN_INTERVAL: u16 = 10;
/// Questions whether an association still holds, or an access point is still there, unanswered, after which it does not, or is not (section 11.13).
const MOST_QUESTIONS: u8 = 4;
const QUESTION_TIME: Duration = Duration::from_millis(100);
/// An access point that is watched is asked for a sign of life after so long without any ...
const QUIET: Duration = Duration::from_millis(25);
/// ... and after so long again if it gave none.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Category and actions of an SA query (section 9.6.9).
pub(super) const SA_QUERY: u8 = 8;
pub(super) const SA_QUERY_REQUEST: u8 = 0;
pub(super) const SA_QUERY_RESPONSE: u8 = 1;

impl Station {
    /// Networks without an access point take the best that was seen.
    pub(super) fn choose_targets(&mut self, now: Timestamp) {
        let mut changed = false;
        let mut trouble = Vec::new();
        let joined = |network: &Network| {
            let (ssid, bssid) = (network.settings.ssid.clone(), network.bssid()?);
            Some(Joined { id: network.id, ssid, bssid, address: network.address })
        };
        let mut others: Vec<Joined> = self.networks.values().filter_map(joined).collect();
        for network in self.networks.values_mut() {
            match network.choose(now, &self.seen, &self.settings.channels, &others) {
                Ok(chosen) => {
                    changed |= chosen;
                    others.extend(joined(network).filter(|_| chosen));
                }
                Err(reason) => {
                    if network.is_news(reason.into()) {
                        trouble.push(Event::Trouble { network: network.id, reason: reason.into() });
                    }
                }
            }
        }
        trouble.into_iter().for_each(|event| self.tell(event));
        let groups = self.networks.values().filter(|network| network.settings.group.is_some());
        let groups: Vec<NetworkId> = groups.map(|network| network.id).collect();
        for id in groups {
            changed |= self.choose_group(now, id);
        }
        // Before listening ends, so that the next turn is that of who was found first.
        self.follow_channels();
        if changed {
            self.refresh_scan();
        }
    }

    /// Sends what is due, and gives up on what does not answer.
    pub(super) fn drive_joins(&mut self, now: Timestamp) {
        if !self.is_present() {
            return;
        }
        let here: Vec<NetworkId> = self.here().map(|network| network.id).collect();
        here.into_iter().for_each(|id| self.drive_join(now, id));
    }

    fn drive_join(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get_mut(&id) else { return };
        match &mut network.state {
            State::Searching => {}
            State::Grouped(_) => self.drive_group(now, id),
            State::Authenticating(_, asked) | State::Associating(_, asked) if now < asked.again => {}
            State::Authenticating(_, asked) | State::Associating(_, asked)
                if asked.times >= MOST_REQUESTS =>
            {
                self.lose(now, id, Lost::Silent);
            }
            State::Authenticating(_, asked) => {
                *asked = Asked { times: asked.times + 1, again: now + ANSWER_TIME };
                let mut body = Vec::new();
                management::write_authentication(&mut body);
                self.send_request(id, Kind::Authentication, &body);
            }
            State::Associating(target, asked) => {
                *asked = Asked { times: asked.times + 1, again: now + ANSWER_TIME };
                let has_passphrase = network.settings.passphrase.is_some();
                let security = match joining::choose(&target.protection, has_passphrase) {
                    Ok(security) => security,
                    Err(reason) => return self.lose(now, id, reason.into()),
                };
                let (ssid, rates) = (network.settings.ssid.as_bytes().to_vec(), own_rates(target.frequency));
                let mut body = Vec::new();
                management::write_association_request(
                    &mut body,
                    &ssid,
                    &rates,
                    LISTEN_INTERVAL,
                    security.as_ref(),
                );
                self.send_request(id, Kind::AssociationRequest, &body);
            }
            State::Linked(linked) => {
                if linked.beacons.is_gone(now, linked.life.seen) {
                    return self.ask_before_it_is_gone(now, id);
                }
                if !linked.link.is_open() && now.since(linked.since) >= KEY_TIME {
                    let wrong = linked.link.is_refusing_our_key();
                    return self.lose(now, id, if wrong { Lost::WrongPassphrase } else { Lost::Silent });
                }
                let steady = linked.link.is_open() && now.since(linked.since) >= STEADY_AFTER;
                let ask = watch_at(network.watched, linked).is_some_and(|at| at <= now);
                if ask {
                    linked.life.asked = now;
                }
                if steady {
                    network.is_steady();
                }
                if ask {
                    self.send_null(id, false);
                }
                self.ask_whether_it_holds(now, id);
            }
        }
    }

    /// No beacon came for long. All of them may be lost to another access point's that are sent at the same times, so it is asked.
    fn ask_before_it_is_gone(&mut self, now: Timestamp, id: NetworkId) {
        let linked = self.networks.get_mut(&id).and_then(|network| network.linked_mut());
        let Some(Linked { life, drain, .. }) = linked else { return };
        if life.unanswered > 0 || life.questions >= MOST_QUESTIONS {
            return self.lose(now, id, Lost::Gone);
        }
        if now >= life.asked + QUESTION_TIME {
            (life.asked, life.questions) = (now, life.questions + 1);
            let sleeping = drain.polling;
            self.send_null(id, sleeping);
        }
    }

    /// A frame said that we are not associated, and may be forged: ask the access point itself.
    pub(super) fn doubt(&mut self, id: NetworkId) {
        let linked = self.networks.get_mut(&id).and_then(|network| network.linked_mut());
        if let Some(linked) = linked.filter(|linked| linked.doubt.is_none()) {
            linked.doubt = Some(Asked::not_yet());
        }
    }

    fn ask_whether_it_holds(&mut self, now: Timestamp, id: NetworkId) {
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        let Some(asked) = linked.doubt.as_mut().filter(|asked| now >= asked.again) else { return };
        if asked.times >= MOST_QUESTIONS {
            return self.lose(now, id, Lost::Silent);
        }
        *asked = Asked { times: asked.times + 1, again: now + QUESTION_TIME };
        self.send_management(id, Kind::Action, &[SA_QUERY, SA_QUERY_REQUEST, 0x41, 0x62]);
    }

    /// The access point answered our authentication.
    pub(super) fn authenticated(&mut self, now: Timestamp, id: NetworkId, answer: Result<(), Refusal>) {
        let Some(network) = self.networks.get_mut(&id) else { return };
        let State::Authenticating(target, _) = &network.state else { return };
        match answer {
            Ok(()) => network.state = State::Associating(target.clone(), Asked::not_yet()),
            Err(refusal) => return self.lose(now, id, Lost::Refused(refusal)),
        }
        self.drive_join(now, id);
    }

    /// The access point answered our association request.
    pub(super) fn associated(
        &mut self,
        now: Timestamp,
        id: NetworkId,
        answer: Result<u16, (Refusal, Option<Duration>)>,
    ) {
        let own = self.address_in(id);
        let Some(network) = self.networks.get_mut(&id) else { return };
        let State::Associating(target, asked) = &mut network.state else { return };
        let association = match answer {
            Ok(association) => association,
            Err((_, Some(later))) => {
                // It doubts whether it is us who ask, and asks the station that it knows under our address first (section 11.13).
                *asked = Asked { times: asked.times, again: now + later };
                return;
            }
            Err((refusal, None)) => return self.lose(now, id, Lost::Refused(refusal)),
        };
        let target = target.clone();
        let chosen = joining::choose(&target.protection, network.settings.passphrase.is_some());
        let keys = match (chosen, &target.protection, network.shared_key()) {
            (Ok(Some(chosen)), crate::scan::Protection::Robust(announced), Some(shared)) => {
                let supplicant =
                    Supplicant::new(shared, target.bssid, own, announced.clone(), chosen.clone());
                Some((supplicant, chosen))
            }
            (Ok(None), ..) => None,
            (Err(reason), ..) => return self.lose(now, id, reason.into()),
            _ => return,
        };
        let ours = own_rates(target.frequency);
        let common: Vec<_> = target.rates.iter().copied().filter(|rate| ours.contains(rate)).collect();
        let rates = RateChoice::new(Flavour::of(target.frequency), &common, target.safe_rate());
        let link = Link::new(own, target.bssid, target.frequency, association, rates, keys);
        let mut beacons = BeaconClock::new(now, target.interval);
        beacons.arrive(now);
        network.waking.meet(target.bssid);
        let drain = Drain::nothing(now);
        network.state = State::Linked(Box::new(Linked {
            target,
            link,
            beacons,
            since: now,
            awake: true,
            unconfirmed: 0,
            told_in_vain: 0,
            announced: false,
            doubt: None,
            drain,
            arrivals: 0.0,
            life: Life::begun(now),
            moving: None,
            unsent: None,
        }));
        self.announce_if_open(now, id);
    }

    /// Tells that packets can pass, the first time that they can.
    pub(super) fn announce_if_open(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get_mut(&id) else { return };
        let State::Linked(linked) = &mut network.state else { return };
        if linked.announced || !linked.link.is_open() {
            return;
        }
        linked.announced = true;
        linked.since = now;
        network.counters.ups += 1;
        let (bssid, frequency) = (linked.target.bssid, linked.target.frequency);
        network.succession.arrived(bssid, frequency);
        self.tell(Event::Up { network: id, bssid, frequency });
    }

    /// Gives an access point up.
    pub(super) fn lose(&mut self, now: Timestamp, id: NetworkId, reason: Lost) {
        let Some(network) = self.networks.get_mut(&id) else { return };
        let was_open = network.fail(now, matches!(reason, Lost::SentAway(_)));
        // Nothing is kept for us there any more.
        self.slots.set_absences(id, None, None);
        let event = if was_open {
            Some(Event::Down { network: id, reason })
        } else {
            network.is_news(reason).then_some(Event::Trouble { network: id, reason })
        };
        event.into_iter().for_each(|event| self.tell(event));
        self.choose_targets(now);
        self.refresh_scan();
    }

    /// The access point says that it moves to another channel, after so many more beacons. It says so a few times, of which we may hear one.
    pub(super) fn announced_move(&mut self, now: Timestamp, id: NetworkId, channel: u8, beacons: u8) {
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        let Some(frequency) = frequency_in_band(linked.target.frequency, channel) else { return };
        let left = u32::from(beacons.saturating_sub(1));
        linked.moving = (frequency != linked.target.frequency)
            .then(|| (frequency, now + linked.beacons.interval() * left));
        self.drive_moves(now);
    }

    /// Follows the access points that have moved by now.
    pub(super) fn drive_moves(&mut self, now: Timestamp) {
        let mut forbidden = Vec::new();
        for network in self.networks.values_mut() {
            let id = network.id;
            let Some(linked) = network.linked_mut() else { continue };
            let Some((frequency, _)) = linked.moving.filter(|(_, at)| *at <= now) else { continue };
            linked.moving = None;
            let is_this = |permitted: &&PermittedChannel| permitted.frequency == frequency;
            if !self.settings.channels.iter().find(is_this).is_some_and(|permitted| permitted.active) {
                forbidden.push(id);
                continue;
            }
            linked.beacons.leave(now);
            linked.target.frequency = frequency;
            linked.link.frequency = frequency;
            linked.awake = false;
        }
        self.follow_channels();
        forbidden.into_iter().for_each(|id| self.lose(now, id, Lost::Forbidden));
    }

    pub(super) fn join_timeout(&self, now: Timestamp, network: &Network) -> Option<Timestamp> {
        let here = self.is_present() && self.frequency.is_some() && network.frequency() == self.frequency;
        match &network.state {
            State::Searching => network.next_attempt(now),
            _ if !here => None,
            State::Grouped(group) => Some(group.next_beacon.max(now)),
            State::Authenticating(_, asked) | State::Associating(_, asked) => Some(asked.again.max(now)),
            State::Linked(linked) => {
                let keys = (!linked.link.is_open()).then(|| linked.since + KEY_TIME);
                let doubt = linked.doubt.map(|asked| asked.again.max(now));
                let watch = watch_at(network.watched, linked).map(|at| at.max(now));
                let polls = linked.drain.polling.then(|| linked.drain.next_poll.unwrap_or(now).max(now));
                let gone = linked.beacons.gone_at(linked.life.seen).map(|at| match linked.life.unanswered {
                    0 => at.max(linked.life.asked + QUESTION_TIME),
                    _ => at,
                });
                [keys, doubt, polls, watch, gone].into_iter().flatten().min()
            }
        }
    }
}

/// When an access point that is watched is to be asked for a sign of life, if we are there.
fn watch_at(watched: bool, linked: &Linked) -> Option<Timestamp> {
    let life = linked.life;
    let pause = if life.unanswered > 0 { ASK_AGAIN } else { QUIET };
    (watched && linked.link.is_open() && !linked.drain.polling).then(|| life.sign.max(life.asked) + pause)
}

/// The frequency of a channel number in the band of another channel.
fn frequency_in_band(like: Frequency, channel: u8) -> Option<Frequency> {
    let channel = u32::from(channel);
    let frequency = match like.0 {
        0..3_000 if channel == 14 => 2_484,
        0..3_000 => 2_407 + 5 * channel,
        3_000..5_950 => 5_000 + 5 * channel,
        _ => 5_950 + 5 * channel,
    };
    Some(Frequency(frequency)).filter(|frequency| frequency.channel().map(u32::from) == Some(channel))
}
