//! The client for programs without an event loop.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use tokio::runtime::{Builder, Runtime};

use super::{
    Client, ClientError, ClientReport, DownReport, Event, EventSequence, EventStream, ForwardReport,
    ForwardRequest, GatewayClients, InviteRequest, Invited, LimitRequest, NetworkChange, NetworkReport,
    ReloadReport, RenewReport, Revoked, Status,
};

/// [`Client`], each call of which waits for its answer.
#[derive(Debug)]
pub struct BlockingClient {
    pub(super) client: Client,
    runtime: Runtime,
}

impl BlockingClient {
    /// A client of the daemon whose control socket is `socket`. Nothing is opened yet.
    ///
    /// # Errors
    /// If the system gives no event queue.
    pub fn new(socket: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self { client: Client::new(socket), runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// A client of the daemon that keeps its state in `directory`.
    ///
    /// # Errors
    /// As [`BlockingClient::new`].
    pub fn of_state(directory: &Path) -> io::Result<Self> {
        Self::new(directory.join(super::SOCKET_NAME))
    }

    /// See [`Client::status`].
    ///
    /// # Errors
    /// As there.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.wait(self.client.status())
    }

    /// See [`Client::networks`].
    ///
    /// # Errors
    /// As there.
    pub fn networks(&self) -> Result<Vec<NetworkReport>, ClientError> {
        self.wait(self.client.networks())
    }

    /// See [`Client::set_network`].
    ///
    /// # Errors
    /// As there.
    pub fn set_network(&self, name: &str, change: NetworkChange) -> Result<NetworkReport, ClientError> {
        self.wait(self.client.set_network(name, change))
    }

    /// See [`Client::events`].
    ///
    /// # Errors
    /// As there.
    pub fn events(&self, since: EventSequence) -> Result<Vec<Event>, ClientError> {
        self.wait(self.client.events(since))
    }

    /// See [`Client::follow_events`]; the iterator ends when the daemon does.
    ///
    /// # Errors
    /// As there.
    pub fn follow_events(&self, since: EventSequence) -> Result<BlockingEvents<'_>, ClientError> {
        let stream = self.wait(self.client.follow_events(since))?;
        Ok(BlockingEvents { runtime: &self.runtime, stream })
    }

    /// See [`Client::down`].
    ///
    /// # Errors
    /// As there.
    pub fn down(&self) -> Result<DownReport, ClientError> {
        self.wait(self.client.down())
    }

    /// See [`Client::gateway_clients`].
    ///
    /// # Errors
    /// As there.
    pub fn gateway_clients(&self) -> Result<GatewayClients, ClientError> {
        self.wait(self.client.gateway_clients())
    }

    /// See [`Client::invite`].
    ///
    /// # Errors
    /// As there.
    pub fn invite(&self, request: &InviteRequest) -> Result<Invited, ClientError> {
        self.wait(self.client.invite(request))
    }

    /// See [`Client::revoke`].
    ///
    /// # Errors
    /// As there.
    pub fn revoke(&self, name: &str) -> Result<Revoked, ClientError> {
        self.wait(self.client.revoke(name))
    }

    /// See [`Client::limit`].
    ///
    /// # Errors
    /// As there.
    pub fn limit(&self, request: &LimitRequest) -> Result<ClientReport, ClientError> {
        self.wait(self.client.limit(request))
    }

    /// See [`Client::reload`].
    ///
    /// # Errors
    /// As there.
    pub fn reload(&self) -> Result<ReloadReport, ClientError> {
        self.wait(self.client.reload())
    }

    /// See [`Client::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self) -> Result<RenewReport, ClientError> {
        self.wait(self.client.renew())
    }

    /// See [`Client::forward`].
    ///
    /// # Errors
    /// As there.
    pub fn forward(&self, request: &ForwardRequest) -> Result<ForwardReport, ClientError> {
        self.wait(self.client.forward(request))
    }

    /// See [`Client::stop_forward`].
    ///
    /// # Errors
    /// As there.
    pub fn stop_forward(&self, request: &ForwardRequest) -> Result<ForwardReport, ClientError> {
        self.wait(self.client.stop_forward(request))
    }

    pub(super) fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime.block_on(answer)
    }
}

/// Events as they happen.
#[derive(Debug)]
pub struct BlockingEvents<'a> {
    runtime: &'a Runtime,
    stream: EventStream,
}

impl Iterator for BlockingEvents<'_> {
    type Item = Result<Event, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.stream.next()).transpose()
    }
}
