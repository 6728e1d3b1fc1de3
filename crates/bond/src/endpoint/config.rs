//! What the owner of an endpoint says to it.

use crate::address::Address;
use crate::keys::PrivateKey;
use crate::session::SessionConfig;
use policy::PathStatus;
use wire::datagram::FEATURE_AES_256_GCM;

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The identity.
    pub key: PrivateKey,
    /// Settings of its sessions.
    pub session: SessionConfig,
    /// Whether others may begin sessions.
    pub accept: bool,
    /// Initiations a second above which their senders must first prove their address.
    pub retry_above: u32,
    /// Whether this machine's processor has instructions for AES: if both ends do, packets are sealed with AES-256-GCM.
    pub aes: bool,
}

impl EndpointConfig {
    /// The optional features of this end, as they stand in an initiation.
    pub(super) fn features(&self) -> u16 {
        if self.aes { FEATURE_AES_256_GCM } else { 0 }
    }
}

/// A path to keep open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathConfig {
    /// Network, carrier and remote address.
    pub address: Address,
    /// Largest UDP payload that the network's interface sends in one piece.
    pub mtu_limit: u16,
    /// How it is to be used.
    pub status: PathStatus,
    /// 0 is used first.
    pub priority: u8,
}

/// Why a session could not be begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The payload is longer than a handshake carries.
    #[error("handshake payload is longer than {} bytes", crate::MAX_PAYLOAD_LEN)]
    PayloadTooLong,
    /// The peer's public key is not a key.
    #[error("the peer's public key is not valid")]
    BadKey,
}
