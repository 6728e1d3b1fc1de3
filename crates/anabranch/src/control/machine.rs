//! What the daemon of a device knows of the machine's networks and power.

use policy::network::{NetworkInput, PowerSupply};
use serde::{Deserialize, Serialize};

use super::{BlockingClient, Client, ClientError};

/// The networks as the policy judges them, and where power comes from: what others on the machine need to judge alike.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineReport {
    /// By the name of their interface. What stands there may change with any version.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<serde_json::Value>"))]
    pub networks: Vec<NetworkInput>,
    /// Where the power comes from.
    pub power: PowerSupply,
}

impl Client {
    /// Networks and power. Every local user may ask.
    ///
    /// # Errors
    /// Any [`ClientError`]; a gateway answers `WrongRole`.
    pub async fn machine(&self) -> Result<MachineReport, ClientError> {
        self.get("/v1/machine").await
    }
}

impl BlockingClient {
    /// See [`Client::machine`].
    ///
    /// # Errors
    /// As there.
    pub fn machine(&self) -> Result<MachineReport, ClientError> {
        self.wait(self.client.machine())
    }
}
