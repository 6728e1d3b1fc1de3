//! Devices on shared links whose keys are known.

use std::net::IpAddr;

use hyper::Method;
use serde::{Deserialize, Serialize};

use super::client::escape;
use super::{BlockingClient, Client, ClientError, Micros};

/// This device among its neighbours.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Neighbourhood {
    /// Whether it looks for them; `neighbours` under `[device]` in the configuration.
    pub on: bool,
    /// Its own key, to be told to others.
    pub public_key: String,
    /// Its own addresses on any0, by which they reach it.
    pub addresses: Vec<IpAddr>,
    /// Those whose keys are known, by name.
    pub neighbours: Vec<NeighbourReport>,
}

/// One whose key is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeighbourReport {
    /// Its name on this machine.
    pub name: String,
    /// Its key.
    pub public_key: String,
    /// Its addresses on any0: the IPv6 one, and the IPv4 one once it was heard.
    pub addresses: Vec<IpAddr>,
    /// Name of the network that packets to it take; `None` if it is not there.
    pub network: Option<String>,
    /// The networks over which it was heard lately.
    pub links: Vec<NeighbourLinkReport>,
}

/// A neighbour over one network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeighbourLinkReport {
    /// The network's name.
    pub network: String,
    /// The neighbour's address there.
    pub address: IpAddr,
    /// How long ago it was last heard.
    #[serde(rename = "last_seen_us")]
    pub last_seen: Micros,
    /// Smoothed round-trip time.
    #[serde(rename = "rtt_us")]
    pub rtt: Option<Micros>,
}

/// A key that was told in person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NeighbourKey {
    /// As [`Neighbourhood::public_key`] of the other device.
    pub public_key: String,
}

impl Client {
    /// Who is where.
    ///
    /// # Errors
    /// Any [`ClientError`]; a gateway answers `WrongRole`.
    pub async fn neighbours(&self) -> Result<Neighbourhood, ClientError> {
        self.get("/v1/neighbours").await
    }

    /// Makes a key known by a name.
    ///
    /// # Errors
    /// Any [`ClientError`]; `Conflict` if another one has the name.
    pub async fn add_neighbour(&self, name: &str, key: &NeighbourKey) -> Result<Neighbourhood, ClientError> {
        self.send(Method::PUT, &format!("/v1/neighbours/{}", escape(name)), Some(key)).await
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// Any [`ClientError`]; `NotFound` if nobody has the name.
    pub async fn forget_neighbour(&self, name: &str) -> Result<Neighbourhood, ClientError> {
        self.send(Method::DELETE, &format!("/v1/neighbours/{}", escape(name)), None::<&()>).await
    }
}

impl BlockingClient {
    /// See [`Client::neighbours`].
    ///
    /// # Errors
    /// As there.
    pub fn neighbours(&self) -> Result<Neighbourhood, ClientError> {
        self.wait(self.client.neighbours())
    }

    /// See [`Client::add_neighbour`].
    ///
    /// # Errors
    /// As there.
    pub fn add_neighbour(&self, name: &str, key: &NeighbourKey) -> Result<Neighbourhood, ClientError> {
        self.wait(self.client.add_neighbour(name, key))
    }

    /// See [`Client::forget_neighbour`].
    ///
    /// # Errors
    /// As there.
    pub fn forget_neighbour(&self, name: &str) -> Result<Neighbourhood, ClientError> {
        self.wait(self.client.forget_neighbour(name))
    }
}
