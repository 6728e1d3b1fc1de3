//! What is sent, in which order, and what became of it.

use std::time::Duration;

use units::{Bytes, MacAddress, NetworkId, Timestamp};

use super::Station;
use super::turns::{Phase, is_silent};
use crate::airtime::{CHECK_SEQUENCE, Flavour};
use crate::frame::data::{EAPOL_TYPE, Packet};
use crate::frame::{Header, Kind, management, power_save_poll};
use crate::network::{MOST_WAITING, Network, State, lowest_rate};
use crate::{Outcome, Rate, Transmission};

/// Frames that the card holds at once: enough to keep it busy, few enough that leaving is quick.
const MOST_IN_FLIGHT: usize = 8;
/// Of frames for a group the card holds no more than take so long: one goes out and the next one waits. At 1 Mbit/s a full frame takes 12.6 ms, so eight of them would
/// still go out when the radio is long elsewhere.
const GROUP_AHEAD: Duration = Duration::from_millis(15);
/// Where a card does not tell when a frame to all was out, it may have been so much later than reckoned.
const UNTOLD_TIME: Duration = Duration::from_millis(2);
/// After so long an outcome does not come any more.
const OUTCOME_TIME: Duration = Duration::from_millis(200);
/// A poll is answered within this, or never.
const POLL_TIME: Duration = Duration::from_millis(20);
/// While asleep in the access point's eyes, we ask again after this.
const POLL_AGAIN: Duration = Duration::from_millis(5);
pub(super) const ATTEMPTS: u8 = 7;

/// Why a frame is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Data { network: NetworkId, rate: Rate },
    Peer { network: NetworkId, peer: MacAddress, rate: Rate },
    Null { network: NetworkId, sleeping: bool },
    Poll { network: NetworkId },
    Other,
}

impl Purpose {
    /// Whose access point it is for, if that is to acknowledge it.
    fn network(self) -> Option<NetworkId> {
        match self {
            Self::Data { network, .. } | Self::Null { network, .. } | Self::Poll { network } => Some(network),
            Self::Peer { .. } | Self::Other => None,
        }
    }

    /// Whether it is for members of a group, who keep nothing for us and whom nobody tells that we leave.
    const fn is_for_group(self) -> bool {
        matches!(self, Self::Peer { .. })
    }
}

/// A frame that goes before data.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub transmission: Transmission,
    pub purpose: Purpose,
}

/// A frame whose outcome is awaited.
#[derive(Debug)]
pub(super) struct InFlight {
    receiver: MacAddress,
    sequence: Option<u16>,
    purpose: Purpose,
    /// When it is forgotten.
    pub due: Timestamp,
    /// How long it takes on an idle channel, for one for a group.
    air: Duration,
    /// When the frames for groups before it were out.
    begun: Timestamp,
}

impl Station {
    /// The next frame to send on the channel where the card is.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmission> {
        if !self.is_sending() || self.in_flight.len() >= MOST_IN_FLIGHT {
            return None;
        }
        if let Some(outgoing) = self.urgent.pop_front() {
            return Some(self.dispatch(now, outgoing));
        }
        if !self.is_present() {
            return None;
        }
        // Networks on this channel take turns, packet by packet.
        let open: Vec<NetworkId> = self
            .here()
            .filter(|network| network.is_open() && network.has_more() && self.may_answer(network))
            .map(|network| network.id)
            .collect();
        for place in 0..open.len() {
            let id = open[(place + self.next_data as usize) % open.len()];
            let grouped = self.group(id).is_some();
            let outgoing = if grouped { self.next_group_frame(now, id) } else { self.next_data_frame(id) };
            if let Some(outgoing) = outgoing {
                self.next_data = self.next_data.wrapping_add(1);
                self.note_activity(now, id);
                return Some(self.dispatch(now, outgoing));
            }
        }
        None
    }

    /// Whether a frame is worth its attempts: while the access point does not acknowledge, one has to come out well before the next goes to the card, which
    /// would hold up all others, on other channels too.
    fn may_answer(&self, network: &Network) -> bool {
        let unanswered = network.linked().map_or(0, |linked| linked.life.unanswered);
        let is_out = || self.in_flight.iter().any(|sent| sent.purpose.network() == Some(network.id));
        let is_vain = || is_out() || is_silent(network) && self.others_answer();
        unanswered == 0 || !is_vain()
    }

    /// The card has no room for a frame that [`Self::poll_transmit`] gave, and is about to leave the channel. A packet's frame is the
    /// first one when the radio comes back, since frames must be sent in the order of their packet numbers; others are dropped.
    pub fn handle_unsent(&mut self, now: Timestamp, transmission: Transmission) {
        let Some((receiver, sequence)) = identity(&transmission.frame) else { return };
        let same = |sent: &InFlight| sent.receiver == receiver && sent.sequence == sequence;
        let Some(sent) = self.in_flight.iter().rposition(same).and_then(|at| self.take_in_flight(now, at))
        else {
            return;
        };
        match sent.purpose {
            Purpose::Data { network, rate } => {
                let linked = self.networks.get_mut(&network).and_then(|network| network.linked_mut());
                if let Some(linked) = linked {
                    linked.unsent = Some((transmission, rate));
                }
            }
            Purpose::Peer { network, peer, rate } => {
                if let Some(group) = self.group_mut(network) {
                    group.unsent = Some((transmission, peer, rate));
                }
            }
            other => self.conclude(now, other, Some(false), 0),
        }
    }

    /// What became of a frame, by the card's account.
    pub fn handle_outcome(&mut self, now: Timestamp, outcome: &Outcome<'_>) {
        let Some((receiver, sequence)) = identity(outcome.frame) else { return };
        self.card_tells_of_all |= receiver.is_group();
        let same = |sent: &InFlight| sent.receiver == receiver && sent.sequence == sequence;
        let Some(at) = self.in_flight.iter().position(same) else { return };
        let Some(sent) = self.take_in_flight(now, at) else { return };
        self.conclude(now, sent.purpose, Some(outcome.acknowledged), outcome.attempts.unwrap_or(1));
    }

    /// Frames whose outcome the card never told count as failed.
    pub(super) fn forget_outcomes(&mut self, now: Timestamp) {
        while let Some(at) = self.in_flight.iter().position(|sent| sent.due <= now) {
            if let Some(sent) = self.take_in_flight(now, at) {
                self.conclude(now, sent.purpose, None, 1);
            }
        }
    }

    /// Whether a frame for a group is still in the card.
    pub(super) fn holds_group_frames(&self) -> bool {
        self.group_frames().next().is_some()
    }

    /// Whether the card can send a frame for a group that takes `air` before the slot ends: it would go out on the next channel otherwise, with all others
    /// there waiting behind it. One of more than half a slot need only begin in it.
    pub(super) fn has_time_for(&self, now: Timestamp, air: Duration) -> bool {
        let Phase::Present { since, until, .. } = self.phase else { return false };
        let ahead = self.group_ahead(now);
        let begins = now + ahead;
        let is_long = air > until.since(since) / 2;
        let fits = !self.will_leave() || if is_long { begins < until } else { begins + air <= until };
        fits && ahead <= GROUP_AHEAD
    }

    /// How long what the card has for groups takes yet.
    fn group_ahead(&self, now: Timestamp) -> Duration {
        let all: Duration = self.group_frames().map(|sent| sent.air).sum();
        let done = self.group_frames().next().map(|first| now.since(first.begun).min(first.air));
        all.saturating_sub(done.unwrap_or_default())
    }

    fn group_frames(&self) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter().filter(|sent| sent.purpose.is_for_group())
    }

    /// The frame at a place is out, or never will be; the next one for a group begins.
    fn take_in_flight(&mut self, now: Timestamp, at: usize) -> Option<InFlight> {
        let taken = self.in_flight.remove(at)?;
        let next = self.in_flight.iter_mut().find(|sent| sent.purpose.is_for_group());
        if let Some(next) = next.filter(|_| taken.purpose.is_for_group()) {
            next.begun = next.begun.max(now);
        }
        Some(taken)
    }

    fn conclude(&mut self, now: Timestamp, purpose: Purpose, acknowledged: Option<bool>, attempts: u8) {
        let success = acknowledged.unwrap_or(false);
        if let (Some(acknowledged), Some(id)) = (acknowledged, purpose.network())
            && attempts > 0
            && let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut())
        {
            if acknowledged {
                linked.life.seen(now);
            } else {
                linked.life.unanswered = linked.life.unanswered.saturating_add(1);
            }
        }
        match purpose {
            Purpose::Data { network, rate } => {
                let Some(network) = self.networks.get_mut(&network) else { return };
                network.counters.failed_frames += u64::from(!success);
                if let (Some(linked), Some(_)) = (network.linked_mut(), acknowledged) {
                    linked.link.rates.learn(rate, success, attempts);
                }
            }
            Purpose::Peer { network, peer, rate } => {
                if let Some(network) = self.networks.get_mut(&network).filter(|_| !peer.is_group()) {
                    network.counters.failed_frames += u64::from(!success);
                    if let (State::Grouped(group), Some(_)) = (&mut network.state, acknowledged)
                        && let Some(member) = group.members.get_mut(&peer)
                    {
                        member.rates.learn(rate, success, attempts);
                    }
                }
                self.leave_if_asleep(now);
            }
            Purpose::Null { network, sleeping } => self.confirm(now, network, sleeping, success),
            Purpose::Poll { network: id } => {
                let present = self.is_present();
                // A poll that was not heard will not be answered.
                if let Some(network) = self.networks.get_mut(&id).filter(|_| !success)
                    && let State::Linked(linked) = &mut network.state
                {
                    let measured = linked.drain.poll_in_vain();
                    measured.into_iter().for_each(|measured| network.waking.learn(measured));
                    if present && linked.drain.ends_trial() {
                        self.send_null(id, false);
                    }
                }
                self.leave_if_asleep(now);
            }
            Purpose::Other => {}
        }
    }

    fn dispatch(&mut self, now: Timestamp, outgoing: Outgoing) -> Transmission {
        let Outgoing { transmission, purpose } = outgoing;
        let counts = |receiver: MacAddress| !receiver.is_group() || purpose.is_for_group();
        if let Some((receiver, sequence)) =
            identity(&transmission.frame).filter(|(receiver, _)| counts(*receiver))
        {
            let air = self.air_time(transmission.frame.len(), transmission.rate);
            let due = if receiver.is_group() && !self.card_tells_of_all {
                // Nothing comes, so it is reckoned to be out when it can be, a beacon of ours before it included.
                now + self.group_ahead(now) + air + UNTOLD_TIME
            } else {
                now + OUTCOME_TIME
            };
            if let (Purpose::Data { .. } | Purpose::Peer { .. }, Some(channel)) = (&purpose, self.frequency) {
                self.qualities.sent(now, channel, air);
            }
            self.in_flight.push_back(InFlight { receiver, sequence, purpose, due, air, begun: now });
        }
        transmission
    }

    /// How long a frame of so many bytes takes by itself on an idle channel, back-off included.
    pub(super) fn air_time(&self, length: usize, rate: Rate) -> Duration {
        let flavour = self.frequency.map_or(Flavour::G, Flavour::of);
        let length = Bytes(length as u64 + CHECK_SEQUENCE.0);
        flavour.difs() + flavour.mean_back_off(0) + flavour.frame_time(rate, length)
    }

    fn next_data_frame(&mut self, id: NetworkId) -> Option<Outgoing> {
        let network = self.networks.get_mut(&id)?;
        if let Some((transmission, rate)) = network.linked_mut().and_then(|linked| linked.unsent.take()) {
            return Some(Outgoing { transmission, purpose: Purpose::Data { network: id, rate } });
        }
        let sequence = self.next_sequence();
        let network = self.networks.get_mut(&id)?;
        let bytes = network.waiting.pop_front()?;
        let polling = network.linked().is_some_and(|linked| linked.drain.polling);
        let State::Linked(linked) = &mut network.state else { return None };
        let frame = Packet::from_ethernet(&bytes)
            .ok()
            .and_then(|packet| linked.link.seal(&packet, sequence, polling));
        let Some(frame) = frame else {
            network.counters.refused_packets += 1;
            return None;
        };
        let rate = linked.link.rates.next(&mut self.randomness);
        network.counters.sent_packets += 1;
        network.counters.sent_bytes += bytes.len() as u64;
        network.slot_bytes += bytes.len() as u64;
        let transmission = Transmission { frame, rate, attempts: ATTEMPTS };
        Some(Outgoing { transmission, purpose: Purpose::Data { network: id, rate } })
    }

    /// Tells an access point that we sleep, or that we are awake.
    pub(super) fn send_null(&mut self, id: NetworkId, sleeping: bool) {
        let sequence = self.next_sequence();
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        if !sleeping {
            // From now on it may believe so, confirmed or not.
            linked.awake = true;
        }
        let frame = linked.link.null(sequence, sleeping);
        // At the rate of data it takes a fifth of the time; what is told in vain is told safely.
        let rate =
            if linked.told_in_vain == 0 { linked.link.rates.best() } else { linked.target.safe_rate() };
        let transmission = Transmission { frame, rate, attempts: ATTEMPTS };
        self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Null { network: id, sleeping } });
    }

    /// Asks for one kept frame.
    pub(super) fn send_poll(&mut self, now: Timestamp, id: NetworkId) {
        let own = self.address_in(id);
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        linked.drain.polled = Some(now);
        let frame = power_save_poll(linked.link.association, linked.link.bssid, own);
        let transmission = Transmission { frame, rate: linked.target.safe_rate(), attempts: ATTEMPTS };
        self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Poll { network: id } });
    }

    /// Polls that were not answered, and those that are due again.
    pub(super) fn drive_polls(&mut self, now: Timestamp) {
        let (mut due, mut awake) = (Vec::new(), Vec::new());
        let present = self.is_present();
        for network in self.here_mut() {
            let id = network.id;
            let State::Linked(linked) = &mut network.state else { continue };
            if !linked.drain.polling {
                continue;
            }
            let waited = linked.drain.polled.map(|polled| now.since(polled));
            if waited.is_some_and(|waited| waited >= POLL_TIME)
                && let Some(measured) = linked.drain.poll_in_vain()
            {
                network.waking.learn(measured);
            }
            if present && linked.drain.ends_trial() {
                awake.push(id);
                continue;
            }
            if linked.drain.polled.is_none() && linked.drain.next_poll.is_none_or(|next| now >= next) {
                linked.drain.next_poll = Some(now + POLL_AGAIN);
                due.push(id);
            }
        }
        if present {
            due.into_iter().for_each(|id| self.send_poll(now, id));
            awake.into_iter().for_each(|id| self.send_null(id, false));
        }
    }

    /// A frame of a key handshake, or another packet of our own making.
    pub(super) fn send_keys(&mut self, id: NetworkId, payload: &[u8]) {
        let sequence = self.next_sequence();
        let source = self.address_in(id);
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        let destination = linked.link.bssid;
        let packet = Packet { destination, source, ethernet_type: EAPOL_TYPE, payload };
        let Some(frame) = linked.link.seal(&packet, sequence, false) else { return };
        let transmission = Transmission { frame, rate: linked.target.safe_rate(), attempts: ATTEMPTS };
        self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Other });
    }

    /// A management frame within an association.
    pub(super) fn send_management(&mut self, id: NetworkId, kind: Kind, body: &[u8]) {
        let sequence = self.next_sequence();
        let Some(linked) = self.networks.get_mut(&id).and_then(|network| network.linked_mut()) else {
            return;
        };
        let Some(frame) = linked.link.seal_management(kind, body, sequence) else { return };
        let transmission = Transmission { frame, rate: linked.target.safe_rate(), attempts: ATTEMPTS };
        self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Other });
    }

    /// A management frame before there is an association.
    pub(super) fn send_request(&mut self, id: NetworkId, kind: Kind, body: &[u8]) {
        let sequence = self.next_sequence();
        let own = self.address_in(id);
        let Some(target) = self.networks.get(&id).and_then(|network| network.target()) else { return };
        let frame = management_frame(kind, target.bssid, own, target.bssid, sequence, body);
        let transmission = Transmission { frame, rate: target.safe_rate(), attempts: ATTEMPTS };
        self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Other });
    }

    /// Leaves in good order, if the network is on this channel.
    pub(super) fn say_goodbye(&mut self, id: NetworkId) {
        let here =
            self.is_sending() && self.here().any(|network| network.id == id && network.linked().is_some());
        if here {
            self.send_management(id, Kind::Deauthentication, &management::REASON_LEAVING.to_le_bytes());
        }
    }

    /// Asks who is on this channel, by name for those that hide it, where that is permitted.
    pub(super) fn send_probes(&mut self) {
        let Some(frequency) = self.frequency else { return };
        if !self.settings.channels.iter().any(|channel| channel.frequency == frequency && channel.active) {
            return;
        }
        let hidden =
            self.networks.values().filter(|network| network.settings.hidden && network.frequency().is_none());
        let mut names: Vec<Vec<u8>> =
            hidden.map(|network| network.settings.ssid.as_bytes().to_vec()).collect();
        names.push(Vec::new());
        let own = self.settings.address;
        let rates = own_rates(frequency);
        for name in names {
            let mut body = Vec::new();
            management::write_probe_request(&mut body, &name, &rates);
            let sequence = self.next_sequence();
            let all = MacAddress::BROADCAST;
            let frame = management_frame(Kind::ProbeRequest, all, own, all, sequence, &body);
            let transmission = Transmission { frame, rate: lowest_rate(frequency), attempts: 1 };
            self.urgent.push_back(Outgoing { transmission, purpose: Purpose::Other });
        }
        debug_assert!(self.urgent.len() <= MOST_WAITING, "urgent frames are few");
    }
}

/// The rates that we take on a channel, lowest first.
pub(super) fn own_rates(frequency: units::Frequency) -> Vec<Rate> {
    let slow: &[Rate] = if frequency.0 < 3_000 { &Rate::CCK } else { &[] };
    let mut rates = [slow, &Rate::OFDM].concat();
    rates.sort_unstable();
    rates
}

pub(super) fn management_frame(
    kind: Kind,
    receiver: MacAddress,
    own: MacAddress,
    bssid: MacAddress,
    sequence: u16,
    body: &[u8],
) -> Vec<u8> {
    let mut header = Header::new(kind, receiver, own, bssid);
    header.sequence.number = sequence;
    let mut frame = Vec::with_capacity(24 + body.len());
    header.write(&mut frame);
    frame.extend_from_slice(body);
    frame
}

/// What a frame is recognised by when its outcome comes: its receiver, and its number if it has one.
fn identity(frame: &[u8]) -> Option<(MacAddress, Option<u16>)> {
    let receiver = frame.get(4..10).and_then(|address| address.try_into().ok()).map(MacAddress)?;
    let sequence = frame.get(22..24).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]) >> 4);
    Some((receiver, sequence))
}
