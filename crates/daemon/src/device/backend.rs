//! The device as its control server sees it.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use anabranch::control::{DownReport, NetworkChange, NetworkReport, Status};

use super::messages::{Command, Mailbox};
use crate::control::{Backend, BackendError, EventLog};
use crate::supervision::{Request, Root};

/// Hands requests to the loop, and `down` to root.
pub struct DeviceBackend {
    /// The loop.
    pub commands: Mailbox<Command>,
    /// The process that kept root.
    pub root: Arc<Root>,
    /// What happened.
    pub events: Arc<EventLog>,
}

impl DeviceBackend {
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, BackendError> {
        let (sender, receiver) = sync_channel(1);
        let busy = || BackendError::Unavailable("the daemon is too busy to answer; try again".to_owned());
        if !self.commands.post(command(sender)) {
            return Err(busy());
        }
        receiver.recv_timeout(PATIENCE).map_err(|_| busy())
    }
}

impl Backend for DeviceBackend {
    fn status(&self) -> Result<Status, BackendError> {
        self.ask(Command::Status)
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        let report = self.root.ask(&Request::Restore);
        // Also if that failed: the supervising process takes everything back once more when this one has ended.
        self.commands.post(Command::Stop);
        report.map_err(|error| {
            BackendError::Internal(format!("the daemon ends, but did not say what was undone: {error}"))
        })
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn set_network(&self, name: &str, change: NetworkChange) -> Result<NetworkReport, BackendError> {
        self.ask(|reply| Command::SetNetwork(name.to_owned(), change, reply))?.ok_or_else(|| {
            BackendError::NotFound(format!(
                "there is no network called \"{name}\"; \"anabranch networks\" lists them"
            ))
        })
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
