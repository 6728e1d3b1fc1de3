//! The loop of a gateway's part: keeps the sessions of its clients, moves packets.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anabranch::control::{EventKind, Role, SessionState, Status, Traffic, UnixMillis};
use bond::{Endpoint, EndpointEvent, IncomingId, PathState, PublicKey, SessionEvent, SessionId};
use linux::clock;
use linux::poll::Waker;
use rustc_hash::FxHashSet;
use tracing::debug;
use units::{BitRate, Bytes, Timestamp};
use wire::frame::{CLOSE_GOODBYE, CLOSE_RENEWED, CLOSE_REPLACED, CLOSE_REVOKED};
use wire::inner::FlowKey;
use wire::request::{MOST_RATES, PathRates, Request, Sibling};

use super::admission::{Admitted, Standing};
use super::clients::Clients;
use super::messages::{Command, ConnectedClient, Task};
use super::parts::{Arrival, Arrived, Given, Parts, Places};
use crate::control::EventLog;
use crate::dataplane::{Meter, Plane, off_the_wire, path_report};
use crate::mailbox::Mailbox;

/// What the loop works with.
pub struct GatewayLoop {
    plane: Plane,
    clients: Clients,
    /// Number of this part; the first speaks for all.
    part: usize,
    parts: Parts,
    /// Who has come here from other parts, which are to hear of it: their numbers, who it is, and when. No more than clients in this round,
    /// unless another part does not take out anything any more.
    arrived: Vec<(usize, PublicKey, Arrival)>,
    tasks: Mailbox<Task>,
    events: Arc<EventLog>,
    /// What the status says that never changes.
    status: Status,
    /// What devices are told of other gateways, if anything.
    siblings: Option<Vec<u8>>,
    total: Meter,
    next_sample: Timestamp,
    next_count: Timestamp,
    stopping: Option<Timestamp>,
}

impl GatewayLoop {
    /// Puts things together for the part with the number `part`; `status` is the report of a gateway without clients.
    pub fn new(
        plane: Plane,
        part: usize,
        parts: Parts,
        places: Places,
        tasks: Mailbox<Task>,
        events: Arc<EventLog>,
        status: Status,
    ) -> Self {
        Self {
            plane,
            clients: Clients::new(part, places),
            part,
            parts,
            arrived: Vec::new(),
            tasks,
            events,
            status,
            siblings: None,
            total: Meter::default(),
            next_sample: Timestamp::ZERO,
            next_count: Timestamp::ZERO,
            stopping: None,
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// If waiting or the interface fails for good.
    pub fn run(mut self, commands: &Receiver<Command>, waker: &Waker) -> io::Result<()> {
        if self.part == 0 {
            self.events.push(EventKind::Started, None, "the gateway has started");
        }
        loop {
            self.sample_if_due();
            // Without clients there is nothing to measure.
            let sample = (self.clients.connected() > 0).then_some(self.next_sample);
            let deadline = [sample, self.stopping].into_iter().flatten().min();
            let deadline = deadline.unwrap_or(Timestamp::FAR_FUTURE);
            if self.plane.round(&mut self.clients, deadline, waker)? {
                for left in (0..COMMANDS_A_ROUND).rev() {
                    let Ok(command) = commands.try_recv() else { break };
                    self.obey(command)?;
                    if left == 0 {
                        // More may wait, and so do packets.
                        waker.wake();
                    }
                }
                self.plane.drain(&mut self.clients)?;
            }
            while let Some(event) = self.plane.poll_event() {
                self.on_event(event);
            }
            self.hand_over();
            if self.stopping.is_some_and(|at| clock::now() >= at) {
                self.tasks.insist(Task::Count(self.clients.take_uncounted()));
                return Ok(());
            }
        }
    }

    /// Gives other parts what came here and is theirs.
    fn hand_over(&mut self) {
        let Self { parts, clients, arrived, .. } = self;
        // This must not be lost: packets would go to a session that the client has left.
        arrived.retain(|(before, key, arrival)| !parts.post(*before, Command::Moved(*key, *arrival)));
        for (part, packets) in clients.take_strays() {
            parts.give(part, Given::Packets(packets));
        }
        while let Some(connection) = self.plane.carriers.take_moving() {
            self.parts.give(connection.part, Given::Connection(Box::new(connection)));
        }
    }

    fn on_event(&mut self, event: EndpointEvent) {
        match event {
            EndpointEvent::Incoming { id, peer, payload, from } => {
                debug!(remote = %from.remote, "a device knocks");
                if !self.tasks.post(Task::Admit { part: self.part, id, peer, payload }) {
                    self.plane.endpoint.ignore(id);
                }
            }
            EndpointEvent::Connected { session, .. } => self.on_connected(session),
            EndpointEvent::Closed { session, reason, .. } => self.on_closed(session, reason),
            EndpointEvent::Session { session, event: SessionEvent::Message(bytes) } => {
                self.on_request(session, &bytes);
            }
            EndpointEvent::Session { session, event } => debug!(session = session.0, ?event, "session"),
            EndpointEvent::NoAnswer { .. } => {}
        }
    }

    /// What the device asks for concerns its own session only.
    fn on_request(&mut self, session: SessionId, bytes: &[u8]) {
        match Request::parse(bytes) {
            Ok(Some(Request::TreatFlow { flow, treatment })) => {
                let back = FlowKey {
                    source: flow.destination,
                    destination: flow.source,
                    source_port: flow.destination_port,
                    destination_port: flow.source_port,
                    ..flow
                };
                self.plane.endpoint.treat(session, back, off_the_wire(treatment));
            }
            Ok(Some(Request::Siblings(_))) => debug!(session = session.0, "a device has no siblings"),
            Ok(Some(Request::PathRates(_))) => {
                debug!(session = session.0, "a device says what it expects to carry")
            }
            Ok(None) => debug!(session = session.0, "a request of a later version"),
            Err(error) => debug!(session = session.0, "a request makes no sense: {error}"),
        }
    }

    fn on_connected(&mut self, session: SessionId) {
        let Some((client, arrived)) = self.clients.confirm(session) else { return };
        match arrived {
            Arrived::Here { before } => {
                self.arrived.extend(before.map(|before| (before, client.key, client.arrival())));
            }
            Arrived::Late => {
                debug!(name = client.name, "a session is late: its client has another one since");
                self.clients.remove(session);
                self.plane.endpoint.abandon(session);
                return;
            }
        }
        let name = client.name.clone();
        self.tasks.post(Task::Seen(client.key));
        if client.first_time {
            self.events.push(EventKind::ClientJoined, Some(&name), format!("{name} has joined"));
        }
        self.events.push(EventKind::ClientConnected, Some(&name), format!("{name} is connected"));
        self.tell_siblings(session);
    }

    fn on_siblings(&mut self, siblings: Vec<Sibling>) {
        let told = Request::Siblings(siblings).encode();
        if self.siblings.replace(told.clone()).is_some_and(|before| before == told) {
            return;
        }
        let sessions: Vec<SessionId> = self.clients.confirmed().map(|(session, _)| session).collect();
        for session in sessions {
            self.tell_siblings(session);
        }
    }

    fn tell_siblings(&mut self, session: SessionId) {
        let Some(siblings) = self.siblings.clone() else { return };
        if let Err(error) = self.plane.endpoint.send_message(session, siblings) {
            debug!(session = session.0, "a device is not told of other gateways: {error}");
        }
    }

    fn on_closed(&mut self, session: SessionId, reason: u8) {
        let Some(client) = self.clients.remove(session) else { return };
        let owed = self.clients.take_owed();
        self.hand_on(owed);
        self.tasks.post(Task::Seen(client.key));
        // A newer session of the same client has taken its place: it is not gone.
        if client.confirmed && self.clients.of_key(client.key).is_empty() {
            let text = match reason {
                CLOSE_GOODBYE => format!("{} has disconnected", client.name),
                _ => format!("the session of {} has ended", client.name),
            };
            self.events.push(EventKind::ClientGone, Some(&client.name), text);
        }
    }

    fn obey(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::Answer { id, peer, payload, admitted } => self.answer(id, peer, &payload, admitted),
            // The asker may have gone; then nobody needs the answer.
            Command::Status(reply) => {
                self.sample_if_due();
                drop(reply.try_send(self.status()));
            }
            Command::Connected(reply) => {
                self.sample_if_due();
                drop(reply.try_send(self.connected()));
            }
            Command::Standings(standings) => self.on_standings(standings),
            Command::Allow(standing) => self.allow(standing),
            Command::Siblings(siblings) => self.on_siblings(siblings),
            Command::Count => self.count(clock::now()),
            Command::Revoke(key) => self.revoke(key),
            Command::Moved(key, arrival) => self.let_go(key, arrival),
            Command::Given(given) => {
                self.parts.took(self.part, &given);
                match given {
                    Given::Packets(packets) => self.plane.take_in(&mut self.clients, &packets)?,
                    Given::Connection(connection) => self.plane.take_connection(*connection),
                }
            }
            Command::Stop => self.stop(CLOSE_GOODBYE, "the gateway stops"),
            Command::Renew => {
                self.stop(CLOSE_RENEWED, "the gateway becomes the program that is installed now")
            }
        }
        Ok(())
    }

    /// A client goes on at another part.
    fn let_go(&mut self, key: PublicKey, arrival: Arrival) {
        for session in self.clients.before(key, arrival) {
            self.clients.remove(session);
            self.plane.endpoint.close(session, CLOSE_REPLACED);
        }
        let owed = self.clients.take_owed();
        self.hand_on(owed);
    }

    fn answer(&mut self, id: IncomingId, peer: PublicKey, payload: &[u8], admitted: Option<Box<Admitted>>) {
        let Some(admitted) = admitted else {
            self.plane.endpoint.refuse(id, payload);
            return;
        };
        if let Some(session) = self.plane.endpoint.accept(clock::now(), id, payload) {
            self.plane.endpoint.set_default_treatment(session, admitted.treatment);
            self.clients.accept(session, peer, *admitted);
        }
    }

    fn revoke(&mut self, key: PublicKey) {
        self.tasks.post(Task::Forget(key));
        for session in self.clients.of_key(key) {
            self.clients.remove(session);
            self.plane.endpoint.close(session, CLOSE_REVOKED);
        }
    }

    fn on_standings(&mut self, standings: Vec<Standing>) {
        let known: FxHashSet<PublicKey> = standings.iter().map(|standing| standing.key).collect();
        let gone: Vec<(PublicKey, String)> = self
            .clients
            .confirmed()
            .filter(|(_, client)| !known.contains(&client.key))
            .map(|(_, client)| (client.key, client.name.clone()))
            .collect();
        for (key, name) in gone {
            self.events.push(EventKind::ClientRevoked, Some(&name), format!("{name} was revoked elsewhere"));
            self.revoke(key);
        }
        for standing in standings {
            self.allow(standing);
        }
    }

    fn allow(&mut self, standing: Standing) {
        if let Some(name) = self.clients.allow(standing) {
            let text = format!("{name} has used its quota of this month and is slowed down");
            self.events.push(EventKind::Warning, Some(name), text);
        }
    }

    /// Has counted what clients have carried since the last time.
    fn count(&mut self, now: Timestamp) {
        self.next_count = now + COUNT_INTERVAL;
        let carried = self.clients.take_uncounted();
        self.hand_on(carried);
    }

    /// What there is no room for now counts the next time.
    fn hand_on(&mut self, carried: Vec<(PublicKey, Bytes)>) {
        if !carried.is_empty()
            && let Err(Task::Count(carried)) = self.tasks.offer(Task::Count(carried))
        {
            self.clients.owe(&carried);
        }
    }

    fn stop(&mut self, reason: u8, text: &str) {
        if self.stopping.is_some() {
            return;
        }
        self.count(clock::now());
        if self.part == 0 {
            self.events.push(EventKind::Stopping, None, text);
        }
        let sessions: Vec<SessionId> = self.clients.confirmed().map(|(session, _)| session).collect();
        for session in sessions {
            self.plane.endpoint.close(session, reason);
        }
        self.stopping = Some(clock::now() + GOODBYE_TIME);
    }

    // ---- reports ----

    /// Also before a report: without clients nothing is sampled, and the last rates stay.
    fn sample_if_due(&mut self) {
        let now = clock::now();
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE_INTERVAL;
        if now >= self.next_count {
            self.count(now);
        }
        let counters = self.plane.counters;
        self.total.sample(now, counters.from_interface, counters.to_interface);
        let Self { plane, clients, .. } = self;
        for (session, client) in clients.confirmed() {
            if let Some(counters) = plane.endpoint.session_counters(session) {
                client.meter.sample(now, counters.bytes_in, counters.bytes_out);
            }
            let paths = plane.endpoint.path_reports(session);
            client.path_meters.retain(|id, _| paths.iter().any(|path| path.path == *id));
            for path in paths {
                let meter = client.path_meters.entry(path.path).or_default();
                meter.sample(now, path.counters.sent_bytes, path.counters.received_bytes);
            }
            if client.meter.rates()[0] >= WORTH_TELLING {
                tell_rates(&mut plane.endpoint, session);
            }
        }
    }

    fn status(&self) -> Status {
        let counters = self.plane.counters;
        Status {
            connected_clients: Some(self.clients.connected()),
            traffic: self.total.traffic(counters.from_interface, counters.to_interface),
            ..self.status.clone()
        }
    }

    fn connected(&mut self) -> Vec<ConnectedClient> {
        let Self { plane, clients, .. } = self;
        let report = |(session, client): (SessionId, &mut super::clients::ClientSession)| {
            let counters = plane.endpoint.session_counters(session).unwrap_or_default();
            let mut paths = plane.endpoint.path_reports(session);
            paths.retain(|path| path.state != PathState::Down);
            let traffic = |path: &bond::PathReport| {
                let meter = client.path_meters.get(&path.path).copied().unwrap_or_default();
                meter.traffic(path.counters.sent_bytes, path.counters.received_bytes)
            };
            let all = paths.iter().map(traffic).map(|traffic| traffic.sending.0 + traffic.receiving.0).sum();
            ConnectedClient {
                key: client.key,
                since: client.since,
                paths: paths.iter().map(|path| path.address.remote).collect(),
                outward: paths.iter().map(|path| path_report::describe(path, traffic(path), all)).collect(),
                traffic: client.meter.traffic(counters.bytes_in, counters.bytes_out),
            }
        };
        clients.confirmed().map(report).collect()
    }
}

/// Says what the paths towards a device are expected to carry: it cannot know, and wants to show what bonding is worth.
fn tell_rates(endpoint: &mut Endpoint, session: SessionId) {
    let paths = endpoint.path_reports(session);
    let rates: PathRates =
        paths.iter().filter_map(|path| Some((path.path, path.rate?))).take(MOST_RATES).collect();
    if paths.len() < 2 || rates.is_empty() {
        return;
    }
    if let Err(error) = endpoint.send_message(session, Request::PathRates(rates).encode()) {
        debug!(session = session.0, "a device is not told what its paths carry: {error}");
    }
}

/// The report of a gateway, from those of its parts; `None` if there is none.
pub fn together(parts: Vec<Status>) -> Option<Status> {
    parts.into_iter().reduce(|all, part| {
        let (one, other) = (all.traffic, part.traffic);
        Status {
            connected_clients: all
                .connected_clients
                .zip(part.connected_clients)
                .map(|(all, part)| all + part),
            traffic: Traffic {
                sent: Bytes(one.sent.0 + other.sent.0),
                received: Bytes(one.received.0 + other.received.0),
                sending: BitRate(one.sending.0 + other.sending.0),
                receiving: BitRate(one.receiving.0 + other.receiving.0),
            },
            ..all
        }
    })
}

/// The report of a gateway that nobody uses yet.
pub fn empty_status(name: String, public_key: String, interface: String, mtu: u16) -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: Role::Gateway,
        name,
        public_key,
        pid: std::process::id(),
        started: UnixMillis::now(),
        state: SessionState::Up,
        why: "waits for clients".to_owned(),
        interface,
        addresses: Vec::new(),
        mtu: Bytes(mtu.into()),
        far_end: None,
        connected_clients: Some(0),
        traffic: Traffic::default(),
        gain: None,
        delivery: None,
        networks: Vec::new(),
    }
}

/// A device that is sent less than this a second is not told what its paths could carry.
const WORTH_TELLING: BitRate = BitRate(100_000);
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at what clients may carry. A crash forgets this much of what they have used.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);
/// Commands between two looks at sockets and timers.
const COMMANDS_A_ROUND: usize = 64;
const GOODBYE_TIME: Duration = Duration::from_millis(30);
