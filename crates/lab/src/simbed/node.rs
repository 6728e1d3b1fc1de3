//! What stands in the simulated world.

use super::host::Host;
use super::packet::Packet;
use super::tunnel::TunnelEnd;
use sim::{Node, Port};
use std::collections::VecDeque;
use units::Timestamp;

/// A node of the simulated world.
pub enum SimulatedNode {
    /// A host with flows.
    Host(Host),
    /// One end of the bond.
    Tunnel(Box<TunnelEnd>),
    /// A place where the bond's datagrams and other packets come together.
    Junction(Junction),
}

/// Joins ways of an end of the bond and a host to one link: datagrams are the bond's, all else is the host's.
#[derive(Debug, Default)]
pub struct Junction {
    passing: VecDeque<(Port, Packet)>,
}

impl Junction {
    /// The port of the link.
    pub const SHARED: Port = Port(0);
    /// The port of the host.
    pub const PLAIN: Port = Port(1);

    /// The port of the bond's network that has this port at the bond's end.
    pub const fn of_network(port: Port) -> Port {
        Port(port.0 + 1)
    }

    fn handle_packet(&mut self, port: Port, packet: Packet) {
        let to = match (port, &packet) {
            (Self::SHARED, Packet::Datagram { network, .. }) => Self::of_network(*network),
            (Self::SHARED, Packet::Inner(_)) => Self::PLAIN,
            _ => Self::SHARED,
        };
        self.passing.push_back((to, packet));
    }
}

impl SimulatedNode {
    /// The host, if it is one.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Tunnel(_) | Self::Junction(_) => None,
        }
    }

    /// The end of the bond, if it is one.
    pub fn tunnel(&self) -> Option<&TunnelEnd> {
        match self {
            Self::Tunnel(end) => Some(end),
            Self::Host(_) | Self::Junction(_) => None,
        }
    }

    /// The end of the bond, if it is one.
    pub fn tunnel_mut(&mut self) -> Option<&mut TunnelEnd> {
        match self {
            Self::Tunnel(end) => Some(end),
            Self::Host(_) | Self::Junction(_) => None,
        }
    }

    /// The host, if it is one.
    pub fn host_mut(&mut self) -> Option<&mut Host> {
        match self {
            Self::Host(host) => Some(host),
            Self::Tunnel(_) | Self::Junction(_) => None,
        }
    }
}

impl Node<Packet> for SimulatedNode {
    fn handle_packet(&mut self, now: Timestamp, port: Port, packet: Packet) {
        match (self, packet) {
            (Self::Host(host), Packet::Inner(bytes)) => host.handle_packet(now, &bytes),
            (Self::Host(_), Packet::Datagram { .. }) => {}
            (Self::Tunnel(end), packet) => end.handle_packet(now, port, packet),
            (Self::Junction(junction), packet) => junction.handle_packet(port, packet),
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        match self {
            Self::Host(host) => host.handle_timeout(now),
            Self::Tunnel(end) => end.handle_timeout(now),
            Self::Junction(_) => {}
        }
    }

    fn poll_transmit(&mut self, now: Timestamp) -> Option<(Port, Packet)> {
        match self {
            Self::Host(host) => host.poll_transmit(now),
            Self::Tunnel(end) => end.poll_transmit(now),
            Self::Junction(junction) => junction.passing.pop_front(),
        }
    }

    fn poll_timeout(&mut self) -> Option<Timestamp> {
        match self {
            Self::Host(host) => host.poll_timeout(),
            Self::Tunnel(end) => end.poll_timeout(),
            Self::Junction(_) => None,
        }
    }
}
