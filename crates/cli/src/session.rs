//! What all commands start from: the state directory and the daemon on it.

use std::path::PathBuf;

use anabranch::control::{
    BlockingClient, ClientError, DEFAULT_INTERFACE, SOCKET_NAME, open_socket, radio_socket,
};
use anyhow::Context;
use identity::{StateDirectory, StateError};

use crate::arguments::OpenDaemon;

/// Makes a device's state, for messages.
const JOIN: &str = "anabranch join -";
/// Makes a gateway's state, for messages.
const INIT: &str = "anabranch gateway init";

/// The radio's state, below the device's.
const RADIO_DIRECTORY: &str = "radio";

/// A state directory that may not exist yet.
pub struct Session {
    path: PathBuf,
}

impl Session {
    pub fn new(state: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = state.map_or_else(StateDirectory::default_path, Ok)?;
        let path = std::path::absolute(&path).with_context(|| format!("cannot use {}", path.display()))?;
        Ok(Self { path })
    }

    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The directory, made if it is not there.
    pub fn create(&self) -> Result<StateDirectory, StateError> {
        StateDirectory::create(&self.path)
    }

    /// The directory of a device.
    pub fn device(&self) -> Result<StateDirectory, StateError> {
        StateDirectory::open(&self.path, JOIN)
    }

    /// The directory of a gateway.
    pub fn gateway(&self) -> Result<StateDirectory, StateError> {
        StateDirectory::open(&self.path, INIT)
    }

    /// That of the radio, which has a lock, a journal and a control socket of its own.
    pub fn radio(&self) -> Self {
        Self { path: self.path.join(RADIO_DIRECTORY) }
    }

    /// The daemon on it.
    pub fn client(&self) -> Result<BlockingClient, ClientError> {
        Ok(BlockingClient::of_state(&self.path)?)
    }

    /// The radio below it, or if this user has none, the machine's: every local user may ask it how it is.
    pub fn any_radio(&self) -> Result<BlockingClient, ClientError> {
        let own = self.radio().path.join(SOCKET_NAME);
        Ok(BlockingClient::new(if own.exists() { own } else { radio_socket() })?)
    }

    /// The daemon on it, or if this user has no daemon there, the device that `daemon` names: every local user may ask it
    /// about the own flows.
    pub fn any_client(&self, daemon: &OpenDaemon) -> Result<BlockingClient, ClientError> {
        let own = self.path.join(SOCKET_NAME);
        match &daemon.interface {
            None if own.exists() => Ok(BlockingClient::new(own)?),
            None => Ok(BlockingClient::new(open_socket(DEFAULT_INTERFACE))?),
            Some(interface) => Ok(BlockingClient::new(open_socket(interface))?),
        }
    }
}

/// Whether nobody listens on the control socket.
pub fn is_not_running<T>(answer: &Result<T, ClientError>) -> bool {
    matches!(answer, Err(ClientError::NotRunning(_)))
}
