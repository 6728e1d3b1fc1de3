//! What stands in the simulated world.

use super::host::Host;
use super::packet::Packet;
use super::tunnel::TunnelEnd;
use sim::{Node, Port};
use units::Timestamp;

/// A node of the simulated world.
pub enum SimulatedNode {
    /// A host with flows.
    Host(Host),
    /// One end of the bond.
    Tunnel(Box<TunnelEnd>),
}

impl SimulatedNode {
    /// The host, if it is one.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Tunnel(_) => None,
        }
    }

    /// The end of the bond, if it is one.
    pub fn tunnel(&self) -> Option<&TunnelEnd> {
        match self {
            Self::Tunnel(end) => Some(end),
            Self::Host(_) => None,
        }
    }

    /// The end of the bond, if it is one.
    pub fn tunnel_mut(&mut self) -> Option<&mut TunnelEnd> {
        match self {
            Self::Tunnel(end) => Some(end),
            Self::Host(_) => None,
        }
    }

    /// The host, if it is one.
    pub fn host_mut(&mut self) -> Option<&mut Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Tunnel(_) => None,
        }
    }
}

impl Node<Packet> for SimulatedNode {
    fn handle_packet(&mut self, now: Timestamp, port: Port, packet: Packet) {
        match (self, packet) {
            (Self::Host(host), Packet::Inner(bytes)) => host.handle_packet(now, &bytes),
            (Self::Host(_), Packet::Datagram { .. }) => {}
            (Self::Tunnel(end), packet) => end.handle_packet(now, port, packet),
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Tunnel(end) => end.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, now: Timestamp) -> Option<(Port, Packet)> {
        match self {
            Self::Host(host) => host.poll_transmit(now),
            Self::Tunnel(end) => end.poll_transmit(now),
        }
    }

    fn poll_timeout(&mut self) -> Option<Timestamp> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Tunnel(end) => end.poll_timeout(),
        }
    }
}
