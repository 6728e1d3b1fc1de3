//! Where a path's datagrams go: network, carrier, remote address.

use std::net::SocketAddr;
use units::NetworkId;

/// What a path's packets ride on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// UDP datagrams.
    Udp,
    /// Datagrams framed on a TCP connection, for networks that block UDP.
    Tcp,
    /// Datagrams of a Bluetooth link (L2CAP).
    Bluetooth,
}

/// What a carrier promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CarrierProperties {
    /// Largest datagram, bytes.
    pub max_datagram: u16,
    /// Datagrams arrive in order.
    pub ordered: bool,
    /// Datagrams that were sent arrive, or the carrier breaks.
    pub reliable: bool,
    /// The carrier limits its own rate.
    pub congestion_controlled: bool,
}

impl Carrier {
    /// What this carrier promises.
    pub const fn properties(self) -> CarrierProperties {
        match self {
            Self::Udp => CarrierProperties {
                max_datagram: u16::MAX - 8,
                ordered: false,
                reliable: false,
                congestion_controlled: false,
            },
            Self::Tcp => CarrierProperties {
                max_datagram: 1_472,
                ordered: true,
                reliable: true,
                congestion_controlled: true,
            },
            // The controllers repeat what the air loses; the link says itself what is too large.
            Self::Bluetooth => CarrierProperties {
                max_datagram: 1_500,
                ordered: true,
                reliable: true,
                congestion_controlled: true,
            },
        }
    }
}

/// One way to the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The local network.
    pub network: NetworkId,
    /// What carries the datagrams.
    pub carrier: Carrier,
    /// The peer's address there.
    pub remote: SocketAddr,
}
