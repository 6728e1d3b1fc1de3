//! The session with the gateway: knocking, being let in or refused, losing it.

use std::time::Duration;

use anabranch::control::{EventKind, SessionState, UnixMillis};
use bond::{EndpointEvent, PublicKey, SessionEvent, SessionId};
use linux::clock;
use tracing::info;
use units::{NetworkId, Timestamp};
use wire::frame::{CLOSE_GOODBYE, CLOSE_RENEWED, CLOSE_REPLACED, CLOSE_REVOKED};
use wire::hello::{Features, Hello, Refusal, Reply, Welcome};

use super::{DeviceLoop, Task};
use crate::dataplane::stamp;
use crate::device::direct;
use crate::device::messages::Lease;

impl DeviceLoop {
    pub(super) fn connect(&mut self, now: Timestamp) {
        self.state.next_connect = now + RECONNECT_PAUSE;
        let Some(peer) = &self.peer else { return };
        let hello = Hello {
            name: self.name.clone(),
            secret: peer.invitation.clone(),
            features: Features::default(),
            treatment: self.treatment,
        };
        let key = PublicKey(peer.public_key.0);
        match self.plane.endpoint.connect(now, key, hello.encode(), stamp()) {
            Ok(session) => {
                self.state.session = Some(session);
                if self.state.phase != SessionState::Refused {
                    self.set_phase(SessionState::Connecting, "knocking at the gateway");
                }
                for network in self.state.links.keys().copied().collect::<Vec<_>>() {
                    self.add_path(now, network);
                }
            }
            Err(error) => self.set_phase(SessionState::Refused, format!("cannot connect: {error}")),
        }
    }

    pub(super) fn on_event(&mut self, event: EndpointEvent) {
        match event {
            EndpointEvent::Connected { session, payload, .. } if Some(session) == self.state.session => {
                match Reply::parse(&payload) {
                    Ok(Reply::Welcome(welcome)) => self.on_welcome(welcome),
                    Ok(Reply::Refusal(refusal)) => self.on_refusal(session, refusal),
                    Err(error) => {
                        self.disconnect(session);
                        let text = format!(
                            "the gateway's answer makes no sense ({error}); are both of one version?"
                        );
                        self.set_phase(SessionState::Refused, text);
                    }
                }
            }
            EndpointEvent::NoAnswer { tries, .. } => self.on_no_answer(tries),
            EndpointEvent::Session { session, event } if Some(session) == self.state.session => {
                self.on_session_event(event);
            }
            EndpointEvent::Closed { session, reason, .. } if Some(session) == self.state.session => {
                self.on_closed(reason);
            }
            _ => {}
        }
    }

    fn on_welcome(&mut self, welcome: Welcome) {
        self.state.refusals = 0;
        self.state.hopeless = false;
        self.state.connected_since = Some(UnixMillis::now());
        let text = format!("connected with {}", welcome.name);
        self.events.push(EventKind::SessionUp, None, text);
        self.set_up(Lease::from(&welcome));
    }

    /// Has the interface set up with `lease`, unless it is so already.
    pub(super) fn set_up(&mut self, lease: Lease) {
        let again = self.state.leased.as_ref() == Some(&lease) && self.state.recapture_at.is_none();
        self.state.lease = lease.addresses.iter().map(|host| host.address()).collect();
        self.state.mtu = self.mtu.unwrap_or(lease.mtu);
        if again {
            self.set_phase(SessionState::Up, "data flows");
            return;
        }
        self.set_phase(SessionState::Starting, "setting up the interface and the routes");
        self.state.leased = Some(lease.clone());
        self.tasks.post(Task::Capture(lease));
    }

    pub(super) fn on_captured(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                if let Some(peer) = &mut self.peer {
                    peer.invitation = None;
                }
                self.direct.post(direct::Message::Captured(self.state.lease.clone()));
                self.set_phase(SessionState::Up, "data flows");
            }
            Err(reason) => {
                self.state.recapture_at = Some(clock::now() + RECAPTURE_PAUSE);
                self.events.push(EventKind::Warning, None, reason.clone());
                self.set_phase(SessionState::Starting, reason);
            }
        }
    }

    fn on_refusal(&mut self, session: SessionId, refusal: Refusal) {
        self.disconnect(session);
        self.state.refusals += 1;
        let pause = match refusal {
            Refusal::Unavailable | Refusal::NoAddressLeft => REFUSED_PAUSE,
            _ => REFUSED_PAUSE * self.state.refusals.min(LONGEST_PAUSE_FACTOR),
        };
        self.state.next_connect = clock::now() + pause;
        self.events.push(EventKind::Refused, None, refusal.to_string());
        self.set_phase(SessionState::Refused, refusal.to_string());
    }

    fn on_closed(&mut self, reason: u8) {
        self.state.session = None;
        self.state.connected_since = None;
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
        self.state.next_connect = clock::now() + pause;
        self.events.push(EventKind::SessionDown, None, text);
        self.set_phase(SessionState::Connecting, text);
    }

    fn on_no_answer(&mut self, tries: u32) {
        let now = clock::now();
        if self.state.phase == SessionState::Connecting {
            self.set_phase(
                SessionState::Connecting,
                format!(
                    "the gateway has not answered {tries} times: is it running, is its address right, and its key still that of the join link?"
                ),
            );
        }
        self.resolve(now);
    }

    /// Has the gateway's addresses looked up again: they may be others by now.
    pub(super) fn resolve(&mut self, now: Timestamp) {
        if now >= self.state.next_resolve {
            self.state.next_resolve = now + RESOLVE_PAUSE;
            let connected = self.networks.iter().filter(|network| network.connected);
            let names = connected.map(|network| network.interface.name.clone()).collect();
            self.tasks.post(Task::Resolve(names));
        }
    }

    fn on_session_event(&mut self, event: SessionEvent) {
        let now = clock::now();
        match event {
            SessionEvent::PathUp(network) => {
                self.state.hopeless = false;
                self.note_path(network, true, now);
                self.report_path(network, EventKind::PathUp, "carries data");
            }
            SessionEvent::PathSilent(network) => {
                self.note_path(network, false, now);
                self.report_path(network, EventKind::PathSuspect, "is silent");
            }
            SessionEvent::PathAbandoned(network) => {
                self.note_path(network, false, now);
                self.report_path(network, EventKind::PathDown, "was given up by the gateway");
            }
            SessionEvent::Stalled => {
                self.events.push(EventKind::SessionDown, None, "no network answers; packets wait");
                self.set_phase(SessionState::NoNetwork, "no network answers; packets wait");
                self.resolve(now);
            }
            SessionEvent::Resumed => {
                self.events.push(EventKind::SessionUp, None, "a network answers again");
                self.set_phase(SessionState::Up, "data flows");
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
            SessionEvent::PathMoved(_)
            | SessionEvent::Rekeyed
            | SessionEvent::Stream(_)
            | SessionEvent::ClosedByPeer(_) => {}
        }
    }

    pub(super) fn note_path(&mut self, network: NetworkId, works: bool, now: Timestamp) {
        if let Some(link) = self.state.links.get_mut(&network) {
            link.note(works, now);
        }
    }

    pub(super) fn report_path(&self, network: NetworkId, kind: EventKind, what: &str) {
        let name = self.networks.get(network).map_or("?", |network| &network.interface.name);
        self.events.push(kind, Some(name), format!("{name} {what}"));
    }

    fn disconnect(&mut self, session: SessionId) {
        self.plane.endpoint.close(session, CLOSE_GOODBYE);
        self.state.session = None;
        self.state.connected_since = None;
    }

    pub(super) fn set_phase(&mut self, phase: SessionState, why: impl Into<String>) {
        let why = why.into();
        if self.state.phase != phase || self.state.why != why {
            info!("{why}");
        }
        (self.state.phase, self.state.why) = (phase, why);
    }
}

/// Time between a lost session and the next knock.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// What is sent to an updated gateway waits in its sockets until it listens.
const RENEWED_PAUSE: Duration = Duration::from_millis(50);
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE_FACTOR: u32 = 12;
/// Two devices with one key would throw each other out for ever: let the other one have it for a while.
const REPLACED_PAUSE: Duration = Duration::from_secs(60);
/// A full disk or a busy nft may be better by then.
const RECAPTURE_PAUSE: Duration = Duration::from_secs(10);
const RESOLVE_PAUSE: Duration = Duration::from_secs(5);
