//! What a gateway says about its clients and invitations.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use policy::limit::Limit;
use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes};

use super::{PathReport, Seconds, Traffic, UnixMillis};

/// A port, 1 to 65535.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct PortNumber(pub NonZeroU16);

impl fmt::Display for PortNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransportProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl TransportProtocol {
    /// `tcp` or `udp`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// All clients and open invitations of a gateway, by name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GatewayClients {
    /// Devices that joined.
    pub clients: Vec<ClientReport>,
    /// Invitations that were not used yet.
    pub invitations: Vec<InvitationReport>,
}

/// One device that joined.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientReport {
    /// Name that the gateway's owner gave it.
    pub name: String,
    /// Its public key.
    pub public_key: String,
    /// Its leased addresses.
    pub addresses: Vec<IpAddr>,
    /// When it joined.
    pub joined: UnixMillis,
    /// When it was last heard of, if ever since it joined.
    pub last_seen: Option<UnixMillis>,
    /// Whether a session is up.
    pub connected: bool,
    /// Since when it is, if it is.
    pub connected_since: Option<UnixMillis>,
    /// Where its paths come from, while connected.
    pub paths: Vec<SocketAddr>,
    /// The same paths as the gateway sees them: how fast, how late and how lossy is what it sends, which is what the device receives.
    #[serde(default)]
    pub outward: Vec<PathReport>,
    /// What went to and from it since it is connected.
    pub traffic: Traffic,
    /// Ports of the gateway that lead to it.
    pub forwards: Vec<ForwardReport>,
    /// What it may carry.
    #[serde(default)]
    pub allowance: AllowanceReport,
}

/// What a client may carry, by its own limits or those of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AllowanceReport {
    /// Most in each direction; `None` for as much as there is.
    pub rate: Option<BitRate>,
    /// Most in a month, both directions together, before it is slowed down; `None` for as much as it likes.
    pub quota: Option<Bytes>,
    /// What it has carried in this month; of a connected client half a minute may be missing.
    pub used: Bytes,
    /// Whether it is slowed down because its quota is used up.
    pub slowed: bool,
}

/// New limits of a client's own; what is missing stays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LimitRequest {
    /// The client.
    pub client: String,
    /// In each direction: bits a second, `"default"` for what all clients have, or `"none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Limit<BitRate>>,
    /// In a month, both directions together: bytes, `"default"` or `"none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Limit<Bytes>>,
}

/// A gateway becomes the program that is installed in its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenewReport {
    /// Version of the one that has answered.
    pub was: String,
}

/// What became of a configuration that was read anew.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReloadReport {
    /// Keys that hold from now on.
    pub applied: Vec<String>,
    /// Keys that have changed too and hold only after a restart.
    pub after_restart: Vec<String>,
}

/// One invitation that was not used yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvitationReport {
    /// Name that the device will have.
    pub name: String,
    /// `gateway`, `peer` or `neighbour`.
    pub kind: String,
    /// When it was made.
    pub created: UnixMillis,
    /// When it ends.
    pub expires: UnixMillis,
    /// Whether its time is over.
    pub expired: bool,
}

/// What to invite.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InviteRequest {
    /// Name that the device will have.
    pub name: String,
    /// How long the link can be used.
    pub lifetime_seconds: Seconds,
}

/// A join link as text. It holds a secret: `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct LinkText(pub String);

impl fmt::Debug for LinkText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkText(..)")
    }
}

/// An invitation that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Invited {
    /// Name that the device will have.
    pub name: String,
    /// The link; it is shown this once.
    pub link: LinkText,
    /// When it ends.
    pub expires: UnixMillis,
    /// An older, unused invitation of the same name no longer works.
    pub replaced: bool,
}

/// What a revocation took away.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Revoked {
    /// The name.
    pub name: String,
    /// A client of that name was removed.
    pub client: bool,
    /// An unused invitation of that name was withdrawn.
    pub invitation: bool,
}

/// Which port of the gateway leads to which client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ForwardRequest {
    /// The client; needed where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Port on the gateway.
    pub port: PortNumber,
    /// Port on the device, if another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_port: Option<PortNumber>,
    /// TCP or UDP.
    #[serde(default)]
    pub protocol: TransportProtocol,
}

/// A forwarded port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForwardReport {
    /// The client.
    pub client: String,
    /// Port on the gateway.
    pub port: PortNumber,
    /// Port on the device.
    pub device_port: PortNumber,
    /// TCP or UDP.
    pub protocol: TransportProtocol,
}
