//! The gateway's loop: keeps the sessions of its clients, moves packets.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anabranch::control::{EventKind, Role, SessionState, Status, UnixMillis};
use bond::{EndpointEvent, IncomingId, PathState, PublicKey, SessionEvent, SessionId};
use linux::clock;
use linux::poll::Waker;
use tracing::{debug, info};
use units::{Bytes, Timestamp};
use wire::frame::{CLOSE_GOODBYE, CLOSE_REVOKED};
use wire::inner::FlowKey;
use wire::request::Request;

use super::admission::Admitted;
use super::clients::Clients;
use super::messages::{Command, ConnectedClient, Task};
use crate::control::EventLog;
use crate::dataplane::{Meter, Plane, off_the_wire};
use crate::mailbox::Mailbox;

/// What the loop works with.
pub struct GatewayLoop {
    plane: Plane,
    clients: Clients,
    tasks: Mailbox<Task>,
    events: Arc<EventLog>,
    /// What the status says that never changes.
    status: Status,
    total: Meter,
    next_sample: Timestamp,
    stopping: Option<Timestamp>,
}

impl GatewayLoop {
    /// Puts the parts together; `status` is the report of a gateway without clients.
    pub fn new(plane: Plane, tasks: Mailbox<Task>, events: Arc<EventLog>, status: Status) -> Self {
        Self {
            plane,
            clients: Clients::default(),
            tasks,
            events,
            status,
            total: Meter::default(),
            next_sample: Timestamp::ZERO,
            stopping: None,
        }
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// If waiting or the interface fails for good.
    pub fn run(mut self, commands: &Receiver<Command>, waker: &Waker) -> io::Result<()> {
        self.events.push(EventKind::Started, None, "the gateway has started");
        loop {
            let now = clock::now();
            if now >= self.next_sample {
                self.sample(now);
            }
            // Without clients there is nothing to measure.
            let sample = (self.clients.connected() > 0).then_some(self.next_sample);
            let deadline = [sample, self.stopping].into_iter().flatten().min();
            let deadline = deadline.unwrap_or(Timestamp::FAR_FUTURE);
            if self.plane.round(&mut self.clients, deadline, waker)? {
                while let Ok(command) = commands.try_recv() {
                    self.obey(command);
                }
                self.plane.drain(&mut self.clients)?;
            }
            while let Some(event) = self.plane.poll_event() {
                self.on_event(event);
            }
            if self.stopping.is_some_and(|at| clock::now() >= at) {
                return Ok(());
            }
        }
    }

    fn on_event(&mut self, event: EndpointEvent) {
        match event {
            EndpointEvent::Incoming { id, peer, payload, from } => {
                debug!(remote = %from.remote, "a device knocks");
                if !self.tasks.post(Task::Admit { id, peer, payload }) {
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
            Ok(None) => debug!(session = session.0, "a request of a later version"),
            Err(error) => debug!(session = session.0, "a request makes no sense: {error}"),
        }
    }

    fn on_connected(&mut self, session: SessionId) {
        let Some(client) = self.clients.confirm(session) else { return };
        let name = client.name.clone();
        self.tasks.post(Task::Seen(client.key));
        if client.first_time {
            self.events.push(EventKind::ClientJoined, Some(&name), format!("{name} has joined"));
        }
        info!("{name} is connected");
        self.events.push(EventKind::ClientConnected, Some(&name), format!("{name} is connected"));
    }

    fn on_closed(&mut self, session: SessionId, reason: u8) {
        let Some(client) = self.clients.remove(session) else { return };
        self.tasks.post(Task::Seen(client.key));
        // A newer session of the same client has taken its place: it is not gone.
        if client.confirmed && self.clients.of_key(client.key).is_empty() {
            info!("{} is gone", client.name);
            let text = match reason {
                CLOSE_GOODBYE => format!("{} has disconnected", client.name),
                _ => format!("the session of {} has ended", client.name),
            };
            self.events.push(EventKind::ClientGone, Some(&client.name), text);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Answer { id, peer, payload, admitted } => self.answer(id, peer, &payload, admitted),
            // The asker may have gone; then nobody needs the answer.
            Command::Status(reply) => drop(reply.try_send(self.status())),
            Command::Connected(reply) => drop(reply.try_send(self.connected())),
            Command::Revoke(key) => {
                for session in self.clients.of_key(key) {
                    self.clients.remove(session);
                    self.plane.endpoint.close(session, CLOSE_REVOKED);
                }
            }
            Command::Stop => self.stop(),
        }
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

    fn stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        self.events.push(EventKind::Stopping, None, "the gateway stops");
        let sessions: Vec<SessionId> = self.clients.confirmed().map(|(session, _)| session).collect();
        for session in sessions {
            self.plane.endpoint.close(session, CLOSE_GOODBYE);
        }
        self.stopping = Some(clock::now() + GOODBYE_TIME);
    }

    // ---- reports ----

    fn sample(&mut self, now: Timestamp) {
        self.next_sample = now + SAMPLE_INTERVAL;
        let counters = self.plane.counters;
        self.total.sample(now, counters.from_interface, counters.to_interface);
        let Self { plane, clients, .. } = self;
        for (session, client) in clients.confirmed() {
            if let Some(counters) = plane.endpoint.session_counters(session) {
                client.meter.sample(now, counters.bytes_in, counters.bytes_out);
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
            let paths = plane.endpoint.path_reports(session);
            let alive = paths.iter().filter(|path| path.state != PathState::Down);
            ConnectedClient {
                key: client.key,
                since: client.since,
                paths: alive.map(|path| path.address.remote).collect(),
                traffic: client.meter.traffic(counters.bytes_in, counters.bytes_out),
            }
        };
        clients.confirmed().map(report).collect()
    }
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
        traffic: anabranch::control::Traffic::default(),
        networks: Vec::new(),
    }
}

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const GOODBYE_TIME: Duration = Duration::from_millis(30);
