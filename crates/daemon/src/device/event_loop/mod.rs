//! The device's loop: follows its networks, keeps the session with the gateway, moves packets.

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
use identity::Peer;
use linux::clock;
use linux::poll::Waker;
use tracing::debug;
use units::{NetworkId, Timestamp};
use wire::frame::CLOSE_GOODBYE;
use wire::hello::{DefaultTreatment, Name};
use wire::inner::Headers;

use super::direct;
use super::messages::{Command, Lease, PointAdvice, Task};
use super::neighbours;
use super::networks::Networks;
use super::targets::{GatewayAddresses, Link};
use crate::config::SteeringChoice;
use crate::control::EventLog;
use crate::dataplane::{Meter, Owner, Plane, Verdict};
use crate::mailbox::Mailbox;
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
}

/// What the loop works with beside packets.
pub struct DeviceLoop {
    /// The packet mover.
    pub plane: Plane,
    /// The gateway, if there is one.
    pub peer: Option<Peer>,
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
    state: State,
}

/// What the loop remembers.
struct State {
    session: Option<SessionId>,
    phase: SessionState,
    why: String,
    connected_since: Option<UnixMillis>,
    started: UnixMillis,
    addresses: GatewayAddresses,
    links: BTreeMap<NetworkId, Link>,
    prefixes: BTreeMap<NetworkId, Prefix>,
    lease: Vec<IpAddr>,
    mtu: u16,
    leased: Option<Lease>,
    next_connect: Timestamp,
    refusals: u32,
    hopeless: bool,
    recapture_at: Option<Timestamp>,
    next_resolve: Timestamp,
    total: Meter,
    meters: BTreeMap<NetworkId, Meter>,
    worth: Worth,
    /// What the radio says of its access points.
    advice: Vec<PointAdvice>,
    next_sample: Timestamp,
    asleep: Duration,
    stopping: Option<Timestamp>,
}

/// What decides about packets: a device has one session, and the kernel chose what goes to any0.
struct Packets<'a> {
    treatments: &'a mut Treatments,
    openings: &'a mut Openings,
    neighbours: Option<&'a neighbours::Handle>,
    session: Option<SessionId>,
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
        peer: Option<Peer>,
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
            treatments,
            openings,
            steering,
            networks,
            reports,
            standing,
            neighbours,
        } = wishes;
        let openings = Openings::new(openings);
        let treatments = Treatments::new(treatments);
        let state = State {
            session: None,
            phase: SessionState::Connecting,
            why: "looking for networks".to_owned(),
            connected_since: None,
            started: UnixMillis::now(),
            addresses: GatewayAddresses {
                udp: Vec::new(),
                tcp: peer.as_ref().and_then(|peer| peer.tcp_port),
            },
            links: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            lease: Vec::new(),
            mtu: crate::config::DEFAULT_MTU,
            leased: None,
            next_connect: Timestamp::ZERO,
            refusals: 0,
            hopeless: false,
            recapture_at: None,
            next_resolve: Timestamp::ZERO,
            total: Meter::default(),
            meters: BTreeMap::new(),
            worth: Worth::default(),
            advice: Vec::new(),
            next_sample: Timestamp::ZERO,
            asleep: clock::asleep(),
            stopping: None,
        };
        Self {
            plane,
            peer,
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
            state,
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// If waiting or the interface fails for good.
    pub fn run(mut self, commands: &Receiver<Command>, waker: &Waker) -> io::Result<()> {
        self.events.push(EventKind::Started, None, "the daemon has started");
        if self.peer.is_none() {
            self.set_up(self.standing.clone());
        }
        loop {
            let now = clock::now();
            self.keep_time(now);
            let deadline = self.deadline();
            let (session, hopeless) = (self.state.session, self.state.hopeless);
            let mut packets = Packets {
                treatments: &mut self.treatments,
                openings: &mut self.openings,
                neighbours: self.neighbours.as_ref(),
                session,
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
                    hopeless,
                };
                self.plane.drain(&mut packets)?;
            }
            while let Some(event) = self.plane.poll_event() {
                self.on_event(event);
            }
            while let Some(network) = self.plane.carriers.take_ended() {
                if let Some(link) = self.state.links.get_mut(&network) {
                    link.note_ended(clock::now());
                }
            }
            if self.state.stopping.is_some_and(|at| clock::now() >= at) {
                return Ok(());
            }
        }
    }

    fn deadline(&self) -> Timestamp {
        let state = &self.state;
        let connect = (state.session.is_none() && self.peer.is_some()).then_some(state.next_connect);
        let links = state.links.values().flat_map(|link| [link.give_up_at(), link.reconnect_at()]);
        let links = links.flatten().min();
        [connect, links, Some(state.next_sample), state.recapture_at, state.stopping]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Timestamp::FAR_FUTURE)
    }

    /// What is due by itself.
    fn keep_time(&mut self, now: Timestamp) {
        let connects = self.peer.is_some() && self.state.session.is_none() && self.state.stopping.is_none();
        if connects && now >= self.state.next_connect {
            self.connect(now);
        }
        let due: Vec<NetworkId> = self
            .state
            .links
            .values_mut()
            .filter_map(|link| link.advance(now).then_some(link.network))
            .collect();
        for network in due {
            debug!(network = network.0, "trying another way to the gateway");
            self.open(now, network);
        }
        let ended: Vec<NetworkId> = self
            .state
            .links
            .values_mut()
            .filter_map(|link| link.take_reconnect(now).then_some(link.network))
            .collect();
        for network in ended {
            self.open_socket(now, network);
            self.plane.endpoint.network_up(now, network);
        }
        if self.state.recapture_at.take_if(|at| *at <= now).is_some()
            && let Some(lease) = self.state.leased.clone()
        {
            self.tasks.post(Task::Capture(lease));
        }
        if now >= self.state.next_sample {
            self.sample(now);
            for (destination, outcome) in self.openings.take(now) {
                self.direct.post(direct::Message::Opened(destination, outcome));
            }
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
            Command::Resolved(addresses) => self.on_resolved(now, addresses),
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
        if let Some(session) = self.state.session {
            self.plane.endpoint.close(session, CLOSE_GOODBYE);
        }
        self.state.stopping = Some(now + GOODBYE_TIME);
    }
}

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The goodbye must leave before the sockets close.
const GOODBYE_TIME: Duration = Duration::from_millis(30);
