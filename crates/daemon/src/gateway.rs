//! The gateway: from its clients to the Internet.

use identity::StateDirectory;
use thiserror::Error;

use crate::config::Config;

/// What a gateway needs to start.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayOptions {
    /// Where its key, its registry and its control socket are.
    pub state: StateDirectory,
    /// Its configuration.
    pub config: Config,
}

/// Why a gateway cannot start, or had to stop.
#[derive(Debug, Error)]
pub enum GatewayError {
    /// This build has no gateway loop.
    #[error("this build cannot run a gateway")]
    NotBuilt,
}

/// Runs a gateway until it is told to stop (control socket, SIGTERM, SIGINT), then takes back what it changed.
///
/// # Errors
/// Any [`GatewayError`].
pub fn run(_options: GatewayOptions) -> Result<(), GatewayError> {
    Err(GatewayError::NotBuilt)
}

/// Everything that [`run`] would change on the machine, a line each, without changing it.
///
/// # Errors
/// Any [`GatewayError`].
pub fn plan(_options: &GatewayOptions) -> Result<Vec<String>, GatewayError> {
    Err(GatewayError::NotBuilt)
}
