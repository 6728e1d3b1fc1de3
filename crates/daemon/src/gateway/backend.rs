//! The gateway as its control server sees it.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch::control::{
    DownReport, EventKind, ForwardReport, ForwardRequest, GatewayClients, InviteRequest, Invited, Revoked,
    Status,
};
use identity::{Protocol, Registry, RegistryError, wall_time};
use linux::nat::{Nat, PortForward};

use super::messages::{Command, ConnectedClient};
use crate::control::clients::{self, Introduction};
use crate::control::{Backend, BackendError, EventLog, take_down};
use crate::mailbox::Mailbox;
use crate::supervision::Root;

/// Answers from the registry and from the loop.
pub struct GatewayBackend {
    /// The loop.
    pub commands: Mailbox<Command>,
    /// The process that kept root.
    pub root: Arc<Root>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// The clients.
    pub registry: Mutex<Registry>,
    /// What join links say.
    pub introduction: Introduction,
    /// The translation table without forwards.
    pub nat: Nat,
}

impl GatewayBackend {
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, BackendError> {
        let busy = || BackendError::Unavailable("the gateway is too busy to answer; try again".to_owned());
        self.commands.ask(PATIENCE, command).ok_or_else(busy)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change is a transaction of its own: a panic elsewhere leaves nothing half done.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self, registry: &Registry) -> Result<(), BackendError> {
        let nat = Nat { forwards: port_forwards(registry)?, ..self.nat.clone() };
        nat.reload().map_err(|error| BackendError::Internal(error.to_string()))
    }
}

/// The forwarded ports, as the translation table wants them. A client without an IPv4 lease is reached by IPv6 only.
///
/// # Errors
/// If the registry fails.
pub fn port_forwards(registry: &Registry) -> Result<Vec<PortForward>, RegistryError> {
    let clients = registry.clients()?;
    let mut forwards = Vec::new();
    for forward in registry.forwards()? {
        let Some(client) = clients.iter().find(|client| client.name == forward.client) else { continue };
        let v4 = client.lease.v4.map(|lease| IpAddr::V4(lease.address));
        for address in v4.into_iter().chain([IpAddr::V6(client.lease.v6.address)]) {
            forwards.push(PortForward {
                udp: forward.protocol == Protocol::Udp,
                port: forward.port.get(),
                to: SocketAddr::new(address, forward.device_port.get()),
            });
        }
    }
    Ok(forwards)
}

impl Backend for GatewayBackend {
    fn status(&self) -> Result<Status, BackendError> {
        self.ask(Command::Status)
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        take_down(&self.root, || self.commands.post(Command::Stop))
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn clients(&self) -> Result<GatewayClients, BackendError> {
        let connected = self.ask(Command::Connected)?;
        let mut list = clients::list(&mut self.registry(), wall_time())?;
        for report in &mut list.clients {
            let of_client =
                |one: &&ConnectedClient| identity::PublicKey(one.key.0).to_string() == report.public_key;
            if let Some(one) = connected.iter().find(of_client) {
                report.connected = true;
                report.connected_since = Some(one.since);
                report.paths.clone_from(&one.paths);
                report.traffic = one.traffic;
            }
        }
        Ok(list)
    }

    fn invite(&self, request: &InviteRequest) -> Result<Invited, BackendError> {
        clients::invite(&mut self.registry(), &self.introduction, request, wall_time())
    }

    fn revoke(&self, name: &str) -> Result<Revoked, BackendError> {
        let mut registry = self.registry();
        let (revoked, key) = clients::revoke(&mut registry, name)?;
        if let Some(key) = key {
            self.commands.post(Command::Revoke(bond::PublicKey(key.0)));
            self.events.push(EventKind::ClientRevoked, Some(name), format!("{name} was revoked"));
            self.reload(&registry)?;
        }
        Ok(revoked)
    }

    fn forward(&self, request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
        let mut registry = self.registry();
        let report = clients::forward(&mut registry, request)?;
        self.reload(&registry)?;
        Ok(report)
    }

    fn stop_forward(&self, request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
        let mut registry = self.registry();
        let report = clients::stop_forward(&mut registry, request)?;
        self.reload(&registry)?;
        Ok(report)
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
