//! What can be decided about a flow and about a path.

/// How a flow is carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
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

/// What a flow needs, learned from what it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowClass {
    /// A steady stream of small packets (calls, games): lowest delay, never waits behind others.
    RealTime,
    /// Sparse traffic that a person or a handshake waits for.
    Interactive,
    /// A queue-building transfer that trades delay for rate.
    Bulk,
}

/// Whether a path may carry data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
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
pub struct Priority(pub u8);
