//! The gateway as its control server sees it.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch::control::{
    AllowanceReport, ClientReport, DownReport, EventKind, ForwardReport, ForwardRequest, GatewayClients,
    InviteRequest, Invited, LimitRequest, ReloadReport, RenewReport, Revoked, Status,
};
use identity::{Protocol, PublicKey, Registry, RegistryError, wall_time};
use linux::nat::{Nat, PortForward};
use policy::limit::Allowance;

use super::admission::Standing;
use super::event_loop;
use super::live::LiveConfig;
use super::messages::{Command, ConnectedClient};
use super::parts::Parts;
use crate::control::clients::{self, Introduction};
use crate::control::{Backend, BackendError, EventLog, take_down};
use crate::supervision::{Request, Root};

/// Answers from the registry and from the loop.
pub struct GatewayBackend {
    /// The loops.
    pub parts: Parts,
    /// The process that kept root.
    pub root: Arc<Root>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// The clients.
    pub registry: Mutex<Registry>,
    /// The configuration.
    pub live: Arc<LiveConfig>,
    /// The gateway's key.
    pub public_key: PublicKey,
    /// The translation table without forwards.
    pub nat: Nat,
}

impl GatewayBackend {
    fn ask<T>(&self, command: impl Fn(SyncSender<T>) -> Command) -> Result<Vec<T>, BackendError> {
        self.parts.ask(PATIENCE, command).ok_or_else(busy)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change is a transaction of its own: a panic elsewhere leaves nothing half done.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload_nat(&self, registry: &mut Registry) -> Result<(), BackendError> {
        translation(&self.nat, &self.live, port_forwards(registry)?)
            .reload()
            .map_err(|error| BackendError::Internal(error.to_string()))
    }
}

fn busy() -> BackendError {
    BackendError::Unavailable("the gateway is too busy to answer; try again".to_owned())
}

/// The translation table with these ports, as the configuration has the rest.
pub fn translation(nat: &Nat, live: &LiveConfig, forwards: Vec<PortForward>) -> Nat {
    Nat { forwards, client_to_client: live.get().gateway.client_to_client, ..nat.clone() }
}

/// The forwarded ports, as the translation table wants them. A client without an IPv4 lease is reached by IPv6 only.
///
/// # Errors
/// If the registry fails.
pub fn port_forwards(registry: &mut Registry) -> Result<Vec<PortForward>, RegistryError> {
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
        event_loop::together(self.ask(Command::Status)?).ok_or_else(busy)
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        take_down(&self.root, || self.parts.tell(|| Command::Stop))
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn clients(&self) -> Result<GatewayClients, BackendError> {
        let connected: Vec<_> = self.ask(Command::Connected)?.into_iter().flatten().collect();
        let limits = self.live.get().gateway.limits;
        let mut list = clients::list(&mut self.registry(), &limits, wall_time())?;
        for report in &mut list.clients {
            let of_client =
                |one: &&ConnectedClient| identity::PublicKey(one.key.0).to_string() == report.public_key;
            if let Some(one) = connected.iter().find(of_client) {
                report.connected = true;
                report.connected_since = Some(one.since);
                report.paths.clone_from(&one.paths);
                report.outward.clone_from(&one.outward);
                report.traffic = one.traffic;
            }
        }
        Ok(list)
    }

    fn invite(&self, request: &InviteRequest) -> Result<Invited, BackendError> {
        let config = self.live.get();
        let introduction = Introduction {
            public_key: self.public_key,
            addresses: config.gateway.public_addresses.clone(),
            tcp_port: config.gateway.tcp,
        };
        clients::invite(&mut self.registry(), &introduction, request, wall_time())
    }

    fn revoke(&self, name: &str) -> Result<Revoked, BackendError> {
        let mut registry = self.registry();
        let (revoked, key) = clients::revoke(&mut registry, name)?;
        if let Some(key) = key {
            self.parts.tell(|| Command::Revoke(bond::PublicKey(key.0)));
            self.events.push(EventKind::ClientRevoked, Some(name), format!("{name} was revoked"));
            self.reload_nat(&mut registry)?;
        }
        Ok(revoked)
    }

    fn limit(&self, request: &LimitRequest) -> Result<ClientReport, BackendError> {
        let limits = self.live.get().gateway.limits;
        let (report, key) = clients::limit(&mut self.registry(), &limits, request, wall_time())?;
        let AllowanceReport { rate, quota, slowed, .. } = report.allowance;
        let standing = Standing { key: bond::PublicKey(key.0), allowance: Allowance { rate, quota, slowed } };
        self.parts.tell(|| Command::Allow(standing));
        Ok(report)
    }

    fn reload(&self) -> Result<ReloadReport, BackendError> {
        let report = self.live.reload().map_err(|error| BackendError::Conflict(error.to_string()))?;
        self.reload_nat(&mut self.registry())?;
        self.parts.tell(|| Command::Count);
        Ok(report)
    }

    fn renew(&self) -> Result<RenewReport, BackendError> {
        self.root.ask(&Request::Renew).map_err(|error| BackendError::Conflict(error.to_string()))?;
        if !self.parts.tell(|| Command::Renew) {
            return Err(BackendError::Unavailable("the gateway is too busy; try again".to_owned()));
        }
        Ok(RenewReport { was: env!("CARGO_PKG_VERSION").to_owned() })
    }

    fn forward(&self, request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
        let mut registry = self.registry();
        let report = clients::forward(&mut registry, request)?;
        self.reload_nat(&mut registry)?;
        Ok(report)
    }

    fn stop_forward(&self, request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
        let mut registry = self.registry();
        let report = clients::stop_forward(&mut registry, request)?;
        self.reload_nat(&mut registry)?;
        Ok(report)
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
