//! The device: from its networks to any0.

use identity::StateDirectory;
use thiserror::Error;

use crate::config::Config;

/// What a device needs to start.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceOptions {
    /// Where its key, its peers and its control socket are.
    pub state: StateDirectory,
    /// Its configuration.
    pub config: Config,
}

/// Why a device cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// This build has no device loop.
    #[error("this build cannot run a device")]
    NotBuilt,
}

/// Runs a device until it is told to stop (control socket, SIGTERM, SIGINT), then takes back what it changed.
///
/// # Errors
/// Any [`DeviceError`].
pub fn run(_options: DeviceOptions) -> Result<(), DeviceError> {
    Err(DeviceError::NotBuilt)
}

/// Everything that [`run`] would change on the machine, a line each, without changing it.
///
/// # Errors
/// Any [`DeviceError`].
pub fn plan(_options: &DeviceOptions) -> Result<Vec<String>, DeviceError> {
    Err(DeviceError::NotBuilt)
}
