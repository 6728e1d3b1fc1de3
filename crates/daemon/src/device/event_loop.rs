//! The device's loop: follows its networks, keeps the session with the gateway, moves packets.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anabranch::control::{
    EventKind, FarEnd, NetworkChange, NetworkReport, Role, SessionState, Status, UnixMillis,
};
use bond::{Carrier, EndpointEvent, PathConfig, PublicKey, SessionEvent, SessionId};
use identity::Peer;
use linux::clock;
use linux::monitor::Interface;
use linux::poll::Waker;
use policy::PathStatus;
use tracing::{debug, info};
use units::{Bytes, NetworkId, Timestamp};
use wire::frame::{CLOSE_GOODBYE, CLOSE_REPLACED, CLOSE_REVOKED};
use wire::hello::{DefaultTreatment, Features, Hello, Name, Refusal, Reply, Welcome};
use wire::inner::Headers;

use super::messages::{Command, Mailbox, Task};
use super::nat64::Prefix;
use super::networks::{Network, NetworkEvent, Networks, reaches};
use super::report;
use super::targets::{self, GatewayAddresses, Link};
use crate::control::EventLog;
use crate::dataplane::{Meter, Owner, Plane, Verdict, stamp};

/// What the loop works with beside packets.
pub struct DeviceLoop {
    /// The packet mover.
    pub plane: Plane,
    /// The gateway.
    pub peer: Peer,
    /// What this device calls itself.
    pub name: Name,
    /// This device's key, as text.
    pub public_key: String,
    /// MTU of the interface if the configuration sets one.
    pub mtu: Option<u16>,
    /// How the gateway is to carry flows towards this device.
    pub treatment: DefaultTreatment,
    /// Which interfaces are networks.
    pub networks: Networks,
    /// The other thread.
    pub tasks: Mailbox<Task>,
    /// What happened.
    pub events: Arc<EventLog>,
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
    welcomed: Option<Welcome>,
    next_connect: Timestamp,
    refusals: u32,
    hopeless: bool,
    recapture_at: Option<Timestamp>,
    next_resolve: Timestamp,
    total: Meter,
    meters: BTreeMap<NetworkId, Meter>,
    next_sample: Timestamp,
    stopping: Option<Timestamp>,
}

/// What decides about packets: a device has one session, and the kernel chose what goes to any0.
struct Packets {
    session: Option<SessionId>,
    /// Whether packets have waited for a network for too long.
    hopeless: bool,
}

impl Owner for Packets {
    fn judge(&mut self, _headers: &Headers) -> Verdict {
        match self.session {
            Some(session) if !self.hopeless => Verdict::Send(session),
            _ => Verdict::Unreachable,
        }
    }

    fn allows(&mut self, session: SessionId, _packet: &[u8]) -> bool {
        self.session == Some(session)
    }
}

impl DeviceLoop {
    /// Puts the parts together.
    pub fn new(
        plane: Plane,
        peer: Peer,
        name: Name,
        public_key: String,
        mtu: Option<u16>,
        treatment: DefaultTreatment,
        networks: Networks,
        tasks: Mailbox<Task>,
        events: Arc<EventLog>,
    ) -> Self {
        let state = State {
            session: None,
            phase: SessionState::Connecting,
            why: "looking for networks".to_owned(),
            connected_since: None,
            started: UnixMillis::now(),
            addresses: GatewayAddresses { udp: Vec::new(), tcp: peer.tcp_port },
            links: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            lease: Vec::new(),
            mtu: crate::config::DEFAULT_MTU,
            welcomed: None,
            next_connect: Timestamp::ZERO,
            refusals: 0,
            hopeless: false,
            recapture_at: None,
            next_resolve: Timestamp::ZERO,
            total: Meter::default(),
            meters: BTreeMap::new(),
            next_sample: Timestamp::ZERO,
            stopping: None,
        };
        Self { plane, peer, name, public_key, mtu, treatment, networks, tasks, events, state }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// If waiting or the interface fails for good.
    pub fn run(mut self, commands: &Receiver<Command>, waker: &Waker) -> io::Result<()> {
        self.events.push(EventKind::Started, None, "the daemon has started");
        loop {
            let now = clock::now();
            self.keep_time(now);
            let mut packets = Packets { session: self.state.session, hopeless: self.state.hopeless };
            let deadline = self.deadline();
            if self.plane.round(&mut packets, deadline, waker)? {
                while let Ok(command) = commands.try_recv() {
                    self.obey(command);
                }
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
        let connect = state.session.is_none().then_some(state.next_connect);
        let links = state.links.values().flat_map(|link| [link.give_up_at(), link.reconnect_at()]);
        let links = links.flatten().min();
        let sample = state.session.is_some().then_some(state.next_sample);
        [connect, links, sample, state.recapture_at, state.stopping]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Timestamp::FAR_FUTURE)
    }

    /// What is due by itself.
    fn keep_time(&mut self, now: Timestamp) {
        if self.state.session.is_none() && self.state.stopping.is_none() && now >= self.state.next_connect {
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
            && let Some(welcome) = self.state.welcomed.clone()
        {
            self.tasks.post(Task::Capture(Box::new(welcome)));
        }
        if now >= self.state.next_sample {
            self.sample(now);
        }
    }

    // ---- session ----

    fn connect(&mut self, now: Timestamp) {
        self.state.next_connect = now + RECONNECT_PAUSE;
        let hello = Hello {
            name: self.name.clone(),
            secret: self.peer.invitation.clone(),
            features: Features::default(),
            treatment: self.treatment,
        };
        let key = PublicKey(self.peer.public_key.0);
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

    fn on_event(&mut self, event: EndpointEvent) {
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
        let again = self.state.welcomed.as_ref() == Some(&welcome) && self.state.recapture_at.is_none();
        let v4 = welcome.v4.map(|lease| IpAddr::V4(lease.address));
        let v6 = welcome.v6.map(|lease| IpAddr::V6(lease.address));
        self.state.lease = v4.into_iter().chain(v6).collect();
        self.state.mtu = self.mtu.unwrap_or(welcome.mtu);
        let text = format!("connected with {}", welcome.name);
        self.events.push(EventKind::SessionUp, None, text);
        if again {
            self.set_phase(SessionState::Up, "data flows");
            return;
        }
        self.set_phase(SessionState::Starting, "setting up the interface and the routes");
        self.state.welcomed = Some(welcome.clone());
        self.tasks.post(Task::Capture(Box::new(welcome)));
    }

    fn on_captured(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                self.peer.invitation = None;
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
                    "the gateway has not answered {tries} times; is it running, and are its addresses right?"
                ),
            );
        }
        if now >= self.state.next_resolve {
            self.state.next_resolve = now + RESOLVE_PAUSE;
            self.tasks.post(Task::Resolve);
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
            SessionEvent::PathMoved(_)
            | SessionEvent::Rekeyed
            | SessionEvent::Message(_)
            | SessionEvent::ClosedByPeer(_) => {}
        }
    }

    fn note_path(&mut self, network: NetworkId, works: bool, now: Timestamp) {
        if let Some(link) = self.state.links.get_mut(&network) {
            link.note(works, now);
        }
    }

    fn report_path(&self, network: NetworkId, kind: EventKind, what: &str) {
        let name = self.networks.get(network).map_or("?", |network| &network.interface.name);
        self.events.push(kind, Some(name), format!("{name} {what}"));
    }

    fn disconnect(&mut self, session: SessionId) {
        self.plane.endpoint.close(session, CLOSE_GOODBYE);
        self.state.session = None;
        self.state.connected_since = None;
    }

    fn set_phase(&mut self, phase: SessionState, why: impl Into<String>) {
        let why = why.into();
        if self.state.phase != phase || self.state.why != why {
            info!("{why}");
        }
        (self.state.phase, self.state.why) = (phase, why);
    }

    // ---- commands ----

    fn obey(&mut self, command: Command) {
        let now = clock::now();
        match command {
            Command::Interfaces(interfaces) => self.on_interfaces(now, &interfaces),
            Command::Resolved(addresses) => self.on_resolved(now, addresses),
            Command::Nat64(network, prefix) => self.on_nat64(now, network, prefix),
            Command::Captured(outcome) => self.on_captured(outcome),
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

    fn on_interfaces(&mut self, now: Timestamp, interfaces: &[Interface]) {
        for event in self.networks.update(interfaces) {
            let (id, kind, what) = match event {
                NetworkEvent::Connected(id) => (id, EventKind::NetworkUp, "is connected"),
                NetworkEvent::Moved(id) => (id, EventKind::NetworkChanged, "has another address or next hop"),
                NetworkEvent::Disconnected(id) => (id, EventKind::NetworkDown, "is gone"),
                NetworkEvent::Forgotten(id) => {
                    self.forget(now, id);
                    continue;
                }
            };
            self.report_path(id, kind, what);
            match event {
                NetworkEvent::Disconnected(id) => {
                    self.plane.carriers.close_network(id);
                    self.plane.endpoint.network_down(now, id);
                    self.note_path(id, false, now);
                }
                NetworkEvent::Connected(id) | NetworkEvent::Moved(id) => self.on_connected(now, id),
                NetworkEvent::Forgotten(_) => {}
            }
        }
        self.update_statuses();
        if !self.networks.iter().any(|network| network.connected)
            && matches!(self.state.phase, SessionState::Connecting | SessionState::Up)
        {
            self.set_phase(SessionState::NoNetwork, "no network is connected");
        } else if self.state.phase == SessionState::NoNetwork && self.state.connected_since.is_none() {
            self.set_phase(SessionState::Connecting, "knocking at the gateway");
        }
    }

    fn forget(&mut self, now: Timestamp, id: NetworkId) {
        if let Some(session) = self.state.session {
            self.plane.endpoint.remove_path(now, session, id);
        }
        self.plane.carriers.close_network(id);
        self.state.links.remove(&id);
        self.state.prefixes.remove(&id);
        self.state.meters.remove(&id);
    }

    fn on_connected(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get(id) else { return };
        self.tasks.post(Task::LetIn(network.interface.name.clone()));
        if reaches(&network.interface, true) && !reaches(&network.interface, false) {
            self.tasks.post(Task::DiscoverNat64(id, network.interface.name.clone()));
        }
        let targets = self.targets_of(network);
        let changed = match self.state.links.get_mut(&id) {
            None => {
                self.state.links.insert(id, Link::new(id, targets, now));
                true
            }
            Some(link) => link.retarget(targets, now),
        };
        if changed {
            self.open(now, id);
        } else {
            // The same way as before: new sockets, and the path goes on where it was.
            self.open_socket(now, id);
            self.plane.endpoint.network_up(now, id);
        }
    }

    fn on_resolved(&mut self, now: Timestamp, addresses: Vec<SocketAddr>) {
        if addresses.is_empty() {
            let text = "the gateway's name cannot be looked up; trying again";
            self.events.push(EventKind::Warning, None, text);
            return;
        }
        self.state.addresses.udp = addresses;
        self.retarget_all(now);
    }

    fn on_nat64(&mut self, now: Timestamp, network: NetworkId, prefix: Option<Prefix>) {
        match prefix {
            Some(prefix) => self.state.prefixes.insert(network, prefix),
            None => self.state.prefixes.remove(&network),
        };
        self.retarget_all(now);
    }

    fn retarget_all(&mut self, now: Timestamp) {
        let targets: Vec<_> = self
            .networks
            .iter()
            .filter(|network| network.connected)
            .map(|network| (network.id, self.targets_of(network)))
            .collect();
        for (id, targets) in targets {
            if self.state.links.get_mut(&id).is_some_and(|link| link.retarget(targets, now)) {
                self.open(now, id);
            }
        }
    }

    fn targets_of(&self, network: &Network) -> Vec<targets::Target> {
        let prefix = self.state.prefixes.get(&network.id).copied();
        targets::candidates(&network.interface, network.carrier, &self.state.addresses, prefix)
    }

    // ---- paths ----

    /// Opens the sockets of a network's target and has the bond keep a path there.
    fn open(&mut self, now: Timestamp, id: NetworkId) {
        self.plane.carriers.close_network(id);
        if self.state.links.get(&id).is_some_and(|link| link.target().is_none()) {
            if let Some(session) = self.state.session {
                self.plane.endpoint.remove_path(now, session, id);
            }
            return;
        }
        self.open_socket(now, id);
        self.add_path(now, id);
    }

    fn open_socket(&mut self, now: Timestamp, id: NetworkId) {
        let Some(network) = self.networks.get(id) else { return };
        let Some(target) = self.state.links.get(&id).and_then(Link::target) else { return };
        let (name, local) = (&network.interface.name, targets::any_local(target.remote));
        let carriers = &mut self.plane.carriers;
        let opened = match target.carrier {
            Carrier::Udp => carriers.open_udp(&self.plane.poller, id, name, local),
            Carrier::Tcp => carriers.connect_tcp(&self.plane.poller, id, name, local, target.remote, now),
        };
        if let Err(error) = opened {
            self.events.push(EventKind::Warning, Some(name), error.to_string());
        }
    }

    fn add_path(&mut self, now: Timestamp, id: NetworkId) {
        let (Some(session), Some(network)) = (self.state.session, self.networks.get(id)) else { return };
        let Some(link) = self.state.links.get(&id).filter(|_| network.connected) else { return };
        let (Some(target), Some(address)) = (link.target(), link.address()) else { return };
        let path = PathConfig {
            address,
            mtu_limit: targets::mtu_limit(&network.interface, target),
            status: self.status_of(id),
            priority: network.preference.priority.0,
        };
        self.plane.endpoint.add_path(now, session, path);
    }

    fn status_of(&self, id: NetworkId) -> PathStatus {
        let statuses = self.networks.statuses();
        statuses.iter().find(|(of, _)| *of == id).map_or(PathStatus::Off, |(_, status)| *status)
    }

    fn update_statuses(&mut self) {
        let Some(session) = self.state.session else { return };
        for (id, status) in self.networks.statuses() {
            let priority = self.networks.get(id).map_or(0, |network| network.preference.priority.0);
            self.plane.endpoint.set_path_status(session, id, status, priority);
        }
    }

    fn set_network(&mut self, name: &str, change: NetworkChange) -> Option<NetworkReport> {
        let network = self.networks.by_name_mut(name)?;
        let preference = &mut network.preference;
        preference.priority = change.priority.unwrap_or(preference.priority);
        preference.backup = change.backup.or(preference.backup);
        preference.metered = change.metered.unwrap_or(preference.metered);
        preference.off = change.off.unwrap_or(preference.off);
        self.update_statuses();
        self.network_reports().into_iter().find(|report| report.name == name)
    }

    // ---- reports ----

    fn sample(&mut self, now: Timestamp) {
        self.state.next_sample = now + SAMPLE_INTERVAL;
        let counters = self.plane.counters;
        self.state.total.sample(now, counters.from_interface, counters.to_interface);
        let Some(session) = self.state.session else { return };
        for path in self.plane.endpoint.path_reports(session) {
            let meter = self.state.meters.entry(path.network).or_default();
            meter.sample(now, path.counters.sent_bytes, path.counters.received_bytes);
        }
    }

    fn network_reports(&self) -> Vec<NetworkReport> {
        let paths =
            self.state.session.map_or_else(Vec::new, |session| self.plane.endpoint.path_reports(session));
        let traffic = |path: &bond::PathReport| {
            let meter = self.state.meters.get(&path.network).copied().unwrap_or_default();
            meter.traffic(path.counters.sent_bytes, path.counters.received_bytes)
        };
        let all: u64 = paths.iter().map(traffic).map(|traffic| traffic.sending.0 + traffic.receiving.0).sum();
        let report = |network: &Network| {
            let of_network = paths.iter().filter(|path| path.network == network.id);
            let of_network = of_network.map(|path| report::path(path, traffic(path), all)).collect();
            report::network(network, self.status_of(network.id), of_network)
        };
        self.networks.iter().map(report).collect()
    }

    fn status(&self) -> Status {
        let state = &self.state;
        let counters = self.plane.counters;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: Role::Device,
            name: self.name.to_string(),
            public_key: self.public_key.clone(),
            pid: std::process::id(),
            started: state.started,
            state: state.phase,
            why: state.why.clone(),
            interface: self.plane.tun.name().to_owned(),
            addresses: state.lease.clone(),
            mtu: Bytes(state.mtu.into()),
            far_end: Some(FarEnd {
                name: self.peer.name.clone(),
                public_key: self.peer.public_key.to_string(),
                connected_since: state.connected_since,
            }),
            connected_clients: None,
            traffic: state.total.traffic(counters.from_interface, counters.to_interface),
            networks: self.network_reports(),
        }
    }
}

/// Time between a lost session and the next knock.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE_FACTOR: u32 = 12;
/// Two devices with one key would throw each other out for ever: let the other one have it for a while.
const REPLACED_PAUSE: Duration = Duration::from_secs(60);
/// A full disk or a busy nft may be better by then.
const RECAPTURE_PAUSE: Duration = Duration::from_secs(10);
const RESOLVE_PAUSE: Duration = Duration::from_secs(15);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The goodbye must leave before the sockets close.
const GOODBYE_TIME: Duration = Duration::from_millis(30);
