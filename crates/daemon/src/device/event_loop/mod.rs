//! The device's loop: follows its networks, keeps the session with a gateway, moves packets.

mod gain;
mod openings;
mod paths;
mod session;
mod sleep;
mod state_report;
mod steering;
mod treatments;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anabranch::control::{EventKind, SessionState, UnixMillis};
use bond::SessionId;
use identity::{Peer, PublicKey};
use linux::clock;
use linux::poll::Waker;
use tracing::debug;
use units::{NetworkId, Timestamp};
use wire::frame::CLOSE_GOODBYE;
use wire::hello::{DefaultTreatment, Name};
use wire::inner::Headers;
use wire::request::Sibling;

use super::advice::Cards;
use super::direct;
use super::gateways::{Gateway, Gateways};
use super::messages::{Command, Lease, PointAdvice, Task};
use super::neighbours;
use super::networks::Networks;
use crate::config::SteeringChoice;
use crate::control::EventLog;
use crate::dataplane::{Meter, Owner, Plane, Verdict};
use crate::mailbox::Mailbox;
use crate::sleep::SleepWatch;
use gain::Worth;
use openings::Openings;
use treatments::Treatments;
use wire::translation::Prefix;

pub use treatments::Wanted;

/// What the configuration asks of a device.
pub struct Wishes {
    /// MTU of the interface if the configuration sets one.
    pub mtu: Option<u16>,
    /// How the gateway is to carry flows towards this device.
    pub treatment: DefaultTreatment,
    /// Whether gateways that the one in use names are used too.
    pub learns: bool,
    /// Whether rules give flows that stay a treatment.
    pub treatments: Wanted,
    /// Whether what comes of connections is to be told.
    pub openings: bool,
    /// How the gateway learns which access points are slow.
    pub steering: SteeringChoice,
    /// Which interfaces are networks.
    pub networks: Networks,
    /// What direct mode says of them.
    pub reports: direct::Board,
    /// What any0 has where no gateway leases addresses.
    pub standing: Lease,
    /// The thread that looks for neighbours, if it is wanted.
    pub neighbours: Option<neighbours::Handle>,
    /// Who watches access points.
    pub cards: Cards,
}

/// What the loop works with beside packets.
pub struct DeviceLoop {
    /// The packet mover.
    pub plane: Plane,
    gateways: Gateways,
    /// Whether gateways that the one in use names are used too.
    learns: bool,
    /// What this device calls itself.
    pub name: Name,
    /// This device's key, as text.
    pub public_key: String,
    /// MTU of the interface if the configuration sets one.
    pub mtu: Option<u16>,
    /// How the gateway is to carry flows towards this device.
    pub treatment: DefaultTreatment,
    treatments: Treatments,
    openings: Openings,
    /// How the gateway learns which access points are slow.
    pub steering: SteeringChoice,
    /// Which interfaces are networks.
    pub networks: Networks,
    /// What direct mode says of them.
    pub reports: direct::Board,
    /// What any0 has where no gateway leases addresses.
    pub standing: Lease,
    /// The thread that looks after the machine.
    pub tasks: Mailbox<Task>,
    /// The thread that chooses networks for flows.
    pub direct: Mailbox<direct::Message>,
    /// What happened.
    pub events: Arc<EventLog>,
    neighbours: Option<neighbours::Handle>,
    cards: Cards,
    state: State,
}

/// What the loop remembers.
struct State {
    phase: SessionState,
    why: String,
    /// The gateway that serves, or the last one that did.
    served_by: Option<PublicKey>,
    connected_since: Option<UnixMillis>,
    started: UnixMillis,
    prefixes: BTreeMap<NetworkId, Prefix>,
    lease: Vec<IpAddr>,
    mtu: u16,
    leased: Option<Lease>,
    /// Why the interface and the routes are not set up.
    unset: Option<String>,
    hopeless: bool,
    recapture_at: Option<Timestamp>,
    total: Meter,
    meters: BTreeMap<NetworkId, Meter>,
    worth: Worth,
    /// What the radio says of its access points.
    advice: Vec<PointAdvice>,
    /// Interfaces behind which nothing answers, since when, and when to look again.
    unreached: BTreeMap<String, Timestamp>,
    unreached_due: Option<Timestamp>,
    /// What gateways have named and was not handed on yet.
    named: BTreeMap<PublicKey, Vec<Sibling>>,
    next_learn: Timestamp,
    next_sample: Timestamp,
    sleep: SleepWatch,
    stopping: Option<Timestamp>,
}

/// What decides about packets: one gateway serves, and the kernel chose what goes to any0.
struct Packets<'a> {
    treatments: &'a mut Treatments,
    openings: &'a mut Openings,
    neighbours: Option<&'a neighbours::Handle>,
    session: Option<SessionId>,
    /// Whether there will be a session at once.
    begins: bool,
    /// Whether packets have waited for a network for too long.
    hopeless: bool,
}

impl Owner for Packets<'_> {
    fn judge(&mut self, headers: &Headers, _packet: &[u8]) -> Verdict {
        match self.session {
            Some(session) if !self.hopeless => {
                if self.openings.concerns(headers) {
                    self.openings.on_sent(clock::now(), headers);
                }
                match self.treatments.of(headers) {
                    None => Verdict::Send(session),
                    Some(treatment) => Verdict::Treat(session, treatment),
                }
            }
            // Programs try again, and are not told that there is no way.
            None if self.begins && !self.hopeless => Verdict::Drop,
            _ => Verdict::Unreachable,
        }
    }

    fn takes(&mut self, headers: &Headers, packet: &[u8]) -> bool {
        self.neighbours.is_some_and(|neighbours| neighbours.take(headers, packet))
    }

    fn allows(&mut self, session: SessionId, packet: &[u8]) -> bool {
        let allowed = self.session == Some(session);
        if allowed {
            self.openings.on_received(packet);
        }
        allowed
    }
}

impl DeviceLoop {
    /// Puts the parts together.
    pub fn new(
        plane: Plane,
        gateways: Vec<Peer>,
        name: Name,
        public_key: String,
        wishes: Wishes,
        tasks: Mailbox<Task>,
        direct: Mailbox<direct::Message>,
        events: Arc<EventLog>,
    ) -> Self {
        let Wishes {
            mtu,
            treatment,
            learns,
            treatments,
            openings,
            steering,
            networks,
            reports,
            standing,
            neighbours,
            cards,
        } = wishes;
        let openings = Openings::new(openings);
        let treatments = Treatments::new(treatments);
        let state = State {
            phase: SessionState::Connecting,
            why: "looking for networks".to_owned(),
            served_by: None,
            connected_since: None,
            started: UnixMillis::now(),
            prefixes: BTreeMap::new(),
            lease: Vec::new(),
            mtu: crate::config::DEFAULT_MTU,
            leased: None,
            unset: Some(session::SETTING_UP.to_owned()),
            hopeless: false,
            recapture_at: None,
            total: Meter::default(),
            meters: BTreeMap::new(),
            worth: Worth::default(),
            advice: Vec::new(),
            unreached: BTreeMap::new(),
            unreached_due: None,
            named: BTreeMap::new(),
            next_learn: Timestamp::ZERO,
            next_sample: Timestamp::ZERO,
            sleep: SleepWatch::new(clock::asleep()),
            stopping: None,
        };
        Self {
            plane,
            gateways: Gateways::new(gateways),
            learns,
            name,
            public_key,
            mtu,
            treatment,
            treatments,
            openings,
            steering,
            networks,
            reports,
            standing,
            tasks,
            direct,
            events,
            neighbours,
            cards,
            state,
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// If waiting or the interface fails for good.
    pub fn run(mut self, commands: &Receiver<Command>, waker: &Waker) -> io::Result<()> {
        self.events.push(EventKind::Started, None, "the daemon has started");
        if self.gateways.is_empty() {
            self.set_up(self.standing.clone());
        }
        for gateway in self.gateways.iter() {
            let (gateway, addresses) = (gateway.peer.public_key, gateway.peer.addresses.clone());
            self.tasks.post(Task::Resolve { gateway, addresses, interfaces: Vec::new() });
        }
        loop {
            let now = clock::now();
            self.keep_time(now);
            let deadline = self.deadline();
            let (session, hopeless) = (self.gateways.session(), self.state.hopeless);
            let begins = self.gateways.are_knocked_at();
            let mut packets = Packets {
                treatments: &mut self.treatments,
                openings: &mut self.openings,
                neighbours: self.neighbours.as_ref(),
                session,
                begins,
                hopeless,
            };
            if self.plane.round(&mut packets, deadline, waker)? {
                while let Ok(command) = commands.try_recv() {
                    self.obey(command);
                }
                let mut packets = Packets {
                    treatments: &mut self.treatments,
                    openings: &mut self.openings,
                    neighbours: self.neighbours.as_ref(),
                    session,
                    begins,
                    hopeless,
                };
                self.plane.drain(&mut packets)?;
            }
            while let Some(event) = self.plane.poll_event() {
                self.on_event(event);
            }
            while let Some((network, remote)) = self.plane.carriers.take_ended() {
                self.on_ended(network, remote);
            }
            if self.state.stopping.is_some_and(|at| clock::now() >= at) {
                return Ok(());
            }
        }
    }

    fn deadline(&self) -> Timestamp {
        let state = &self.state;
        if let Some(stopping) = state.stopping {
            return stopping;
        }
        let gateways = self.gateways.next_due(self.networks.any_connected());
        [gateways, Some(state.next_sample), state.recapture_at, state.unreached_due]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Timestamp::FAR_FUTURE)
    }

    /// What is due by itself.
    fn keep_time(&mut self, now: Timestamp) {
        self.keep_gateways(now);
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        for gateway in self.gateways.iter_mut().filter(|gateway| gateway.is_wanted()) {
            let key = gateway.peer.public_key;
            for (network, link) in &mut gateway.links {
                if link.advance(now) {
                    due.push((key, *network));
                } else if link.take_reconnect(now) {
                    ended.push((key, *network));
                }
            }
        }
        for (gateway, network) in due {
            debug!(network = network.0, %gateway, "trying another way to a gateway");
            self.open(now, gateway, network);
        }
        for (gateway, network) in ended {
            self.open_socket(now, gateway, network);
            if let Some(session) = self.gateways.get(gateway).and_then(Gateway::session) {
                self.plane.endpoint.path_back(now, session, network);
            }
        }
        if self.state.recapture_at.take_if(|at| *at <= now).is_some()
            && let Some(lease) = self.state.leased.clone()
        {
            self.tasks.post(Task::Capture(lease));
        }
        if self.state.unreached_due.is_some_and(|at| at <= now) {
            self.tell_unreached(now);
        }
        if now >= self.state.next_sample {
            self.sample(now);
            self.learn(now);
            for (destination, outcome) in self.openings.take(now) {
                self.direct.post(direct::Message::Opened(destination, outcome));
            }
            self.tell_unreached(now);
            if !self.state.advice.is_empty() {
                self.steer_paths();
            }
            self.notice_sleep(now);
        }
    }

    fn obey(&mut self, command: Command) {
        let now = clock::now();
        match command {
            Command::Interfaces(interfaces) => self.on_interfaces(now, &interfaces),
            Command::Resolved(gateway, addresses) => self.on_resolved(now, gateway, addresses),
            Command::Gateways(peers) => self.on_gateways(now, peers),
            Command::Nat64(network, prefix) => self.on_nat64(now, network, prefix),
            Command::Captured(outcome) => self.on_captured(outcome),
            Command::Deliver(packet) => {
                if let Err(error) = self.plane.give(&packet) {
                    debug!("a neighbour's broadcast was lost: {error}");
                }
            }
            Command::Advice(advice) => self.on_advice(advice),
            // The asker may have gone; then nobody needs the answer.
            Command::Status(reply) => drop(reply.try_send(self.status())),
            Command::SetNetwork(name, change, reply) => {
                drop(reply.try_send(self.set_network(&name, change)));
            }
            Command::Stop => self.stop(now),
        }
    }

    fn stop(&mut self, now: Timestamp) {
        if self.state.stopping.is_some() {
            return;
        }
        self.events.push(EventKind::Stopping, None, "the daemon stops");
        self.set_phase(SessionState::Stopping, "taking everything back");
        for session in self.gateways.iter().filter_map(Gateway::session) {
            self.plane.endpoint.close(session, CLOSE_GOODBYE);
        }
        self.state.stopping = Some(now + GOODBYE_TIME);
    }
}

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The goodbye must leave before the sockets close.
const GOODBYE_TIME: Duration = Duration::from_millis(30);
