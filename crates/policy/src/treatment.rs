//! What can be decided about a flow and about a path.

use std::fmt;

/// How a flow is carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    /// One network, no gateway.
    Direct,
    /// All networks, packet by packet.
    #[default]
    Bonded,
    /// Every packet on two or more networks.
    Duplicated,
    /// Bonded, with forward error correction.
    Protected,
    /// Direct, over kernel MPTCP subflows.
    Mptcp,
}

impl Treatment {
    /// Whether it takes a gateway at the far end.
    pub const fn needs_gateway(self) -> bool {
        matches!(self, Self::Bonded | Self::Duplicated | Self::Protected)
    }
}

impl fmt::Display for Treatment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Direct => "direct",
            Self::Bonded => "bonded",
            Self::Duplicated => "duplicated",
            Self::Protected => "protected",
            Self::Mptcp => "mptcp",
        })
    }
}

/// What a flow needs, learned from what it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FlowClass {
    /// A steady stream of small packets (calls, games): lowest delay, never waits behind others.
    RealTime,
    /// Sparse traffic that a person or a handshake waits for.
    Interactive,
    /// A queue-building transfer that trades delay for rate.
    Bulk,
}

impl fmt::Display for FlowClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::RealTime => "real-time",
            Self::Interactive => "interactive",
            Self::Bulk => "bulk",
        })
    }
}

/// Whether a path may carry data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PathStatus {
    /// Carries data.
    #[default]
    Active,
    /// Carries data only while no active path is usable.
    Backup,
    /// Carries nothing but what keeps it known.
    Off,
}

/// Order of preference of networks: 0 is used first.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Priority(pub u8);
