//! The sessions with gateways: knocking, being let in or refused, losing one, going to another.

use std::time::Duration;

use anabranch::control::{EventKind, SessionState, UnixMillis};
use bond::{EcnTrouble, EndpointEvent, SessionEvent, SessionId};
use identity::{Peer, PublicKey};
use linux::clock;
use tracing::info;
use units::{NetworkId, Timestamp};
use wire::frame::{CLOSE_GOODBYE, CLOSE_RENEWED, CLOSE_REPLACED, CLOSE_REVOKED};
use wire::hello::{Features, Hello, Refusal, Reply, Welcome};
use wire::request::{Request, Sibling};

use super::{DeviceLoop, Task};
use crate::dataplane::stamp;
use crate::device::direct;
use crate::device::gateways::{Contact, Gateway};
use crate::device::messages::Lease;

impl DeviceLoop {
    /// Knocks at those gateways whose time has come, ends tries that are over, and moves if the silent gateway's time is over.
    pub(super) fn keep_gateways(&mut self, now: Timestamp) {
        for (gateway, session) in self.gateways.to_give_up(now) {
            self.plane.endpoint.abandon(session);
            self.set_contact(gateway, Contact::Silent { knock_at: now });
        }
        if let Some((gateway, _)) = self.gateways.ready().filter(|(_, until)| *until <= now) {
            self.serve_ready(now, gateway);
        }
        if self.state.stopping.is_none() {
            for gateway in self.gateways.to_knock_at(now, self.networks.any_connected()) {
                self.knock(now, gateway);
            }
        }
    }

    fn knock(&mut self, now: Timestamp, key: PublicKey) {
        let Some(gateway) = self.gateways.get(key) else { return };
        if let Some(outrun) = gateway.session() {
            self.plane.endpoint.abandon(outrun);
        }
        let hello = Hello {
            name: self.name.clone(),
            secret: gateway.peer.invitation.clone(),
            features: Features::default(),
            treatment: self.treatment,
        };
        match self.plane.endpoint.connect(now, bond::PublicKey(key.0), hello.encode(), stamp()) {
            Ok(session) => {
                self.set_contact(key, Contact::Knocking(session));
                if !self.gateways.all_refuse() && self.gateways.serving().is_none() {
                    self.set_phase(SessionState::Connecting, self.knocking());
                }
                self.begin_links(now, key);
            }
            Err(error) => {
                self.refused(now, key, REFUSED_PAUSE, format!("cannot connect: {error}"));
            }
        }
    }

    /// What it does that knocks.
    pub(super) fn knocking(&self) -> &'static str {
        if self.gateways.are_several() { "knocking at the gateways" } else { "knocking at the gateway" }
    }

    pub(super) fn on_event(&mut self, event: EndpointEvent) {
        let now = clock::now();
        match event {
            EndpointEvent::Connected { session, payload, .. } => {
                let Some(gateway) = self.gateways.of_session(session) else { return };
                match Reply::parse(&payload) {
                    Ok(Reply::Welcome(welcome)) => self.on_welcome(now, gateway, session, welcome),
                    Ok(Reply::Refusal(refusal)) => self.on_refusal(now, gateway, session, refusal),
                    Err(error) => {
                        self.plane.endpoint.close(session, CLOSE_GOODBYE);
                        let text = format!(
                            "the gateway's answer makes no sense ({error}); are both of one version?"
                        );
                        self.refused(now, gateway, RECONNECT_PAUSE, text);
                    }
                }
            }
            EndpointEvent::NoAnswer { session, tries } => self.on_no_answer(now, session, tries),
            EndpointEvent::Session { session, event } => {
                if Some(session) == self.gateways.session() {
                    self.on_session_event(now, event);
                } else if let Some(gateway) = self.gateways.of_session(session) {
                    self.on_waiting_event(now, gateway, session, &event);
                }
            }
            EndpointEvent::Closed { session, reason, .. } => {
                if let Some(gateway) = self.gateways.of_session(session) {
                    self.on_closed(now, gateway, reason);
                }
            }
            EndpointEvent::Incoming { .. } => {}
        }
    }

    fn on_welcome(&mut self, now: Timestamp, key: PublicKey, session: SessionId, welcome: Welcome) {
        // It was used, whether or not the gateway is needed now.
        if let Some(gateway) = self.gateways.get_mut(key)
            && gateway.peer.invitation.is_some()
            && self.tasks.post(Task::Redeemed(key))
        {
            gateway.peer.invitation = None;
        }
        let Some(gateway) = self.gateways.get(key) else { return };
        match (&gateway.contact, self.gateways.serving()) {
            (Contact::Silent { .. }, _) => {}
            (Contact::Outrun { until, .. }, _) => {
                let until = *until;
                self.plane.endpoint.close(session, CLOSE_GOODBYE);
                self.set_contact(key, Contact::Outrun { session, until });
            }
            (Contact::Knocking(_) | Contact::Ready { .. }, Some(silent)) => {
                let Some(asked) = silent.session() else { return };
                // The networks work: whether the silent one does is known after a round trip.
                let paths = self.plane.endpoint.path_reports(asked);
                let round_trip = paths.iter().filter_map(|path| path.smoothed_rtt).min().unwrap_or_default();
                let until = now + (round_trip * 2).clamp(SHORTEST_GRACE, LONGEST_GRACE);
                self.plane.endpoint.ask_again(now, asked);
                self.set_contact(key, Contact::Ready { session, welcome: Box::new(welcome), until });
            }
            (Contact::Knocking(_) | Contact::Ready { .. }, None) | (Contact::Serving { .. }, _) => {
                self.serve(now, key, session, &welcome);
            }
        }
    }

    fn serve_ready(&mut self, now: Timestamp, key: PublicKey) {
        if let Some(Contact::Ready { session, welcome, .. }) =
            self.gateways.get(key).map(|gateway| gateway.contact.clone())
        {
            self.serve(now, key, session, &welcome);
        }
    }

    /// Packets go by this gateway from now on.
    fn serve(&mut self, now: Timestamp, key: PublicKey, session: SessionId, welcome: &Welcome) {
        let lease = Lease::from(welcome);
        let left = self.gateways.serving().filter(|serving| serving.peer.public_key != key);
        let mut text = format!("connected with {}", welcome.name);
        if let Some((left, old)) = left.and_then(|left| Some((left.peer.name.clone(), left.session()?))) {
            text = format!("{text}, since {left} does not answer");
            // With other addresses they are nobody's any more.
            if self.state.leased.as_ref().is_some_and(|leased| leased.addresses == lease.addresses) {
                self.plane.endpoint.hand_on(now, old, session);
            }
        }
        self.release_others(now, key);
        self.set_contact(key, Contact::Serving { session, silent_since: None });
        if self.state.served_by.replace(key) != Some(key) {
            self.treatments.forget();
            self.state.worth.forget();
        }
        if let Some(gateway) = self.gateways.get_mut(key) {
            (gateway.refusals, gateway.refused) = (0, None);
        }
        self.state.hopeless = false;
        self.state.connected_since = Some(UnixMillis::now());
        self.events.push(EventKind::SessionUp, None, text);
        self.set_up(lease);
    }

    /// All gateways but this one are not needed any more.
    fn release_others(&mut self, now: Timestamp, but: PublicKey) {
        let until = now + OUTRUN_TIME;
        let others = self.gateways.iter_mut().filter(|gateway| gateway.peer.public_key != but);
        for gateway in others.filter(|gateway| gateway.is_wanted()) {
            let Some(session) = gateway.session() else { continue };
            if !matches!(gateway.contact, Contact::Knocking(_)) {
                self.plane.endpoint.close(session, CLOSE_GOODBYE);
            }
            gateway.contact = Contact::Outrun { session, until };
        }
    }

    /// Notes how far the device is with a gateway, and closes sockets that are not needed any more.
    pub(super) fn set_contact(&mut self, key: PublicKey, contact: Contact) {
        let ended = matches!(contact, Contact::Silent { .. });
        if let Some(gateway) = self.gateways.get_mut(key) {
            gateway.contact = contact;
        }
        // With no session left they wait for the next one.
        let needed = self.gateways.addresses();
        if ended && !needed.is_empty() {
            self.plane.carriers.keep_only(&needed);
        }
    }

    /// Has the interface set up with `lease`, unless it is so already.
    pub(super) fn set_up(&mut self, lease: Lease) {
        let again = self.state.leased.as_ref() == Some(&lease) && self.state.recapture_at.is_none();
        self.state.lease = lease.addresses.iter().map(|host| host.address()).collect();
        self.state.mtu = self.mtu.unwrap_or(lease.mtu);
        if !again {
            self.state.unset = Some(SETTING_UP.to_owned());
            self.state.leased = Some(lease.clone());
            self.tasks.post(Task::Capture(lease));
        }
        self.say_up();
    }

    /// Packets get through to a gateway, or go direct: data flows, once the interface and the routes are set up.
    pub(super) fn say_up(&mut self) {
        match self.state.unset.clone() {
            Some(reason) => self.set_phase(SessionState::Starting, reason),
            None => self.set_phase(SessionState::Up, "data flows"),
        }
    }

    pub(super) fn on_captured(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                self.direct.post(direct::Message::Captured(self.state.lease.clone()));
                self.state.unset = None;
            }
            Err(reason) => {
                self.state.recapture_at = Some(clock::now() + RECAPTURE_PAUSE);
                self.events.push(EventKind::Warning, None, reason.clone());
                self.state.unset = Some(reason);
            }
        }
        // The gateway may have been lost meanwhile.
        if self.state.phase == SessionState::Starting {
            self.say_up();
        }
    }

    fn on_refusal(&mut self, now: Timestamp, key: PublicKey, session: SessionId, refusal: Refusal) {
        self.plane.endpoint.close(session, CLOSE_GOODBYE);
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        gateway.refusals += 1;
        let pause = match refusal {
            Refusal::Unavailable | Refusal::NoAddressLeft => REFUSED_PAUSE,
            _ => REFUSED_PAUSE * gateway.refusals.min(LONGEST_PAUSE_FACTOR),
        };
        let text = match self.gateways.are_several() {
            true => format!("{}: {refusal}", self.name_of(key)),
            false => refusal.to_string(),
        };
        self.events.push(EventKind::Refused, None, text.clone());
        self.refused(now, key, pause, text);
    }

    /// A gateway does not let the device in. That concerns no other.
    fn refused(&mut self, now: Timestamp, key: PublicKey, pause: Duration, text: String) {
        let served = self.gateways.serving().is_some_and(|serving| serving.peer.public_key == key);
        self.set_contact(key, Contact::Silent { knock_at: now + pause });
        if let Some(gateway) = self.gateways.get_mut(key) {
            gateway.refused = Some(text.clone());
        }
        if served {
            self.state.connected_since = None;
            self.set_phase(SessionState::Connecting, text.clone());
            self.serve_waiting(now);
        }
        if self.gateways.all_refuse() {
            self.set_phase(SessionState::Refused, text);
        }
    }

    /// The gateway that serves names others: it is trusted with that, as it was met.
    pub(super) fn on_siblings(&mut self, siblings: Vec<Sibling>) {
        if let Some(serving) = self.gateways.serving().map(|serving| serving.peer.public_key) {
            self.keep_named(serving, siblings);
        }
    }

    fn keep_named(&mut self, by: PublicKey, siblings: Vec<Sibling>) {
        if self.learns {
            self.state.named.insert(by, siblings);
        }
    }

    /// Has what gateways have named kept, not more often than a disk and name servers bear.
    pub(super) fn learn(&mut self, now: Timestamp) {
        if now < self.state.next_learn {
            return;
        }
        let Some((by, siblings)) = self.state.named.pop_first() else { return };
        if self.state.named.is_empty() {
            self.state.next_learn = now + LEARN_PAUSE;
        }
        self.tasks.post(Task::Learn(by, siblings));
    }

    pub(super) fn on_gateways(&mut self, now: Timestamp, peers: Vec<Peer>) {
        for key in self.gateways.update(peers) {
            self.prepare_links(now, key);
            self.resolve(now, key);
        }
    }

    /// The gateway that served is gone: one that is ready has nothing to wait for.
    fn serve_waiting(&mut self, now: Timestamp) {
        if let Some((ready, _)) = self.gateways.ready() {
            self.serve_ready(now, ready);
        }
    }

    fn on_closed(&mut self, now: Timestamp, key: PublicKey, reason: u8) {
        let (text, pause) = match reason {
            CLOSE_REVOKED => ("the gateway has revoked this device; ask for a new invitation", REFUSED_PAUSE),
            CLOSE_REPLACED => (
                "another device with this device's key has connected; a key is for one device: join again with a new one",
                REPLACED_PAUSE,
            ),
            CLOSE_GOODBYE => ("the gateway is going down", RECONNECT_PAUSE),
            CLOSE_RENEWED => ("the gateway is being updated", RENEWED_PAUSE),
            _ => ("the gateway ended the session", RECONNECT_PAUSE),
        };
        let served = self.gateways.serving().is_some_and(|serving| serving.peer.public_key == key);
        self.set_contact(key, Contact::Silent { knock_at: now + pause });
        if !served {
            return;
        }
        if reason == CLOSE_RENEWED {
            // It is back at once, and connections through it go on.
            self.release_others(now, key);
            self.gateways.expect(key, now + RENEWAL_TIME);
        }
        self.state.connected_since = None;
        let text = match self.gateways.are_several() {
            true => format!("{}: {text}", self.name_of(key)),
            false => text.to_owned(),
        };
        self.events.push(EventKind::SessionDown, None, text.clone());
        self.set_phase(SessionState::Connecting, text);
        self.serve_waiting(now);
    }

    fn name_of(&self, key: PublicKey) -> &str {
        self.gateways.get(key).map_or("?", |gateway| &gateway.peer.name)
    }

    fn on_no_answer(&mut self, now: Timestamp, session: SessionId, tries: u32) {
        let Some(gateway) = self.gateways.of_session(session) else { return };
        if self.state.phase == SessionState::Connecting && self.gateways.serving().is_none() {
            let several = format!(
                "none of the gateways has answered {tries} times: are this machine's networks all right?"
            );
            let one = format!(
                "the gateway has not answered {tries} times: is it running, is its address right, and its key still that of the join link?"
            );
            self.set_phase(SessionState::Connecting, if self.gateways.are_several() { several } else { one });
        }
        self.resolve(now, gateway);
    }

    /// Has a gateway's addresses looked up again: they may be others by now.
    pub(super) fn resolve(&mut self, now: Timestamp, key: PublicKey) {
        let connected = self.networks.iter().filter(|network| network.connected);
        let interfaces = connected.map(|network| network.interface.name.clone()).collect();
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        if now >= gateway.next_resolve {
            gateway.next_resolve = now + RESOLVE_PAUSE;
            let addresses = gateway.peer.addresses.clone();
            self.tasks.post(Task::Resolve { gateway: key, addresses, interfaces });
        }
    }

    /// Something happened in a session that waits, or is not needed any more.
    fn on_waiting_event(&mut self, now: Timestamp, key: PublicKey, session: SessionId, event: &SessionEvent) {
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        match event {
            SessionEvent::PathUp(network) => note(gateway, *network, true, now),
            SessionEvent::PathSilent(network) | SessionEvent::PathAbandoned(network) => {
                note(gateway, *network, false, now);
            }
            SessionEvent::Stalled if matches!(gateway.contact, Contact::Ready { .. }) => {
                gateway.contact = Contact::Outrun { session, until: now };
            }
            // It is said once: the session may be the one that serves next.
            SessionEvent::Message(bytes) => {
                if let Ok(Some(Request::Siblings(siblings))) = Request::parse(bytes) {
                    self.keep_named(key, siblings);
                }
            }
            _ => {}
        }
    }

    fn on_session_event(&mut self, now: Timestamp, event: SessionEvent) {
        match event {
            SessionEvent::PathUp(network) => {
                self.state.hopeless = false;
                self.note_path(network, true, now);
                self.report_path(network, EventKind::PathUp, "carries data");
                self.tell_unreached(now);
            }
            SessionEvent::PathSilent(network) => {
                self.note_path(network, false, now);
                self.report_path(network, EventKind::PathSuspect, "is silent");
                self.tell_unreached(now);
                self.direct.post(direct::Message::Silent(network));
            }
            SessionEvent::PathAbandoned(network) => {
                self.note_path(network, false, now);
                self.report_path(network, EventKind::PathDown, "was given up by the gateway");
            }
            SessionEvent::Stalled => {
                let serving = self.gateways.serving().filter(|_| self.gateways.are_several());
                let text = serving.map_or_else(
                    || "no network answers; packets wait".to_owned(),
                    |serving| format!("{} answers over no network; packets wait", serving.peer.name),
                );
                self.events.push(EventKind::SessionDown, None, text.clone());
                self.set_phase(SessionState::NoNetwork, text);
                self.gateways.note_silence(Some(now));
                for gateway in self.gateways.keys() {
                    self.resolve(now, gateway);
                }
            }
            SessionEvent::Resumed => {
                self.events.push(EventKind::SessionUp, None, "a network answers again");
                self.say_up();
                self.gateways.note_silence(None);
                if let Some(serving) = self.gateways.serving().map(|serving| serving.peer.public_key) {
                    self.release_others(now, serving);
                }
            }
            SessionEvent::QueueExpired => {
                self.state.hopeless = true;
                self.events.push(
                    EventKind::Warning,
                    None,
                    "packets have waited too long for a network and were dropped",
                );
            }
            SessionEvent::Message(bytes) => self.on_message(now, &bytes),
            SessionEvent::Ecn(network, trouble) => {
                let what = match trouble {
                    EcnTrouble::AlwaysMarked => {
                        "marks every packet as if there were congestion: its marks are passed over"
                    }
                    EcnTrouble::Cleared => {
                        "lets no marks of congestion through (ECN): congestion is noticed by lost packets and delay alone"
                    }
                };
                self.report_path(network, EventKind::Warning, what);
            }
            SessionEvent::PathMoved(_)
            | SessionEvent::Rekeyed
            | SessionEvent::Stream(_)
            | SessionEvent::ClosedByPeer(_) => {}
        }
    }

    /// What the gateway that serves shows of a network.
    fn note_path(&mut self, network: NetworkId, works: bool, now: Timestamp) {
        let serving = self.gateways.session();
        let of_session = self.gateways.iter_mut().filter(|gateway| gateway.session() == serving);
        of_session.for_each(|gateway| note(gateway, network, works, now));
    }

    /// A network has gone: no gateway answers over it.
    pub(super) fn note_gone(&mut self, network: NetworkId, now: Timestamp) {
        let links = self.gateways.iter_mut().filter_map(|gateway| gateway.links.get_mut(&network));
        links.for_each(|link| link.note_gone(now));
    }

    pub(super) fn report_path(&self, network: NetworkId, kind: EventKind, what: &str) {
        let name = self.networks.get(network).map_or("?", |network| &network.interface.name);
        self.events.push(kind, Some(name), format!("{name} {what}"));
    }

    pub(super) fn set_phase(&mut self, phase: SessionState, why: impl Into<String>) {
        let why = why.into();
        if self.state.phase != phase || self.state.why != why {
            info!("{why}");
        }
        (self.state.phase, self.state.why) = (phase, why);
    }
}

fn note(gateway: &mut Gateway, network: NetworkId, works: bool, now: Timestamp) {
    if let Some(link) = gateway.links.get_mut(&network) {
        link.note(works, now);
    }
}

/// Time between a lost session and the next knock.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// What is sent to an updated gateway waits in its sockets until it listens.
const RENEWED_PAUSE: Duration = Duration::from_millis(50);
/// A gateway that is updated has this long before others are knocked at.
const RENEWAL_TIME: Duration = Duration::from_millis(1_500);
/// How long a gateway that is not needed has for its answer, to be told goodbye. Later it finds nobody.
const OUTRUN_TIME: Duration = Duration::from_secs(3);
/// How long a silent gateway has for an answer when another has given one: two round trips within these bounds.
const SHORTEST_GRACE: Duration = Duration::from_millis(150);
const LONGEST_GRACE: Duration = Duration::from_millis(700);
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE_FACTOR: u32 = 12;
/// Two devices with one key would throw each other out for ever: let the other one have it for a while.
const REPLACED_PAUSE: Duration = Duration::from_secs(60);
/// A full disk or a busy nft may be better by then.
const RECAPTURE_PAUSE: Duration = Duration::from_secs(10);
pub(super) const SETTING_UP: &str = "setting up the interface and the routes";
const RESOLVE_PAUSE: Duration = Duration::from_secs(5);
const LEARN_PAUSE: Duration = Duration::from_secs(10);
