//! A host of the simulated world: flows behind one network interface.

use super::packet::Packet;
use super::ping::{PingClient, PingServer};
use super::quic::QuicEnd;
use super::tcp::{TcpReceiver, TcpSender};
use sim::Port;
use std::collections::BTreeMap;
use units::Timestamp;

/// One end of a flow.
pub enum FlowEnd {
    /// Receives a TCP download.
    TcpReceiver(TcpReceiver),
    /// Sends it.
    TcpSender(Box<TcpSender>),
    /// Either end of a QUIC download.
    Quic(Box<QuicEnd>),
    /// Sends pings.
    PingClient(PingClient),
    /// Answers them.
    PingServer(PingServer),
}

impl FlowEnd {
    fn handle_packet(&mut self, now: Timestamp, packet: &[u8]) {
        match self {
            Self::TcpReceiver(end) => end.handle_packet(now, packet),
            Self::TcpSender(end) => end.handle_packet(now, packet),
            Self::Quic(end) => end.handle_packet(now, packet),
            Self::PingClient(end) => end.handle_packet(now, packet),
            Self::PingServer(end) => end.handle_packet(packet),
        }
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        match self {
            Self::TcpReceiver(end) => end.handle_timeout(now),
            Self::TcpSender(end) => end.handle_timeout(now),
            Self::Quic(end) => end.handle_timeout(now),
            Self::PingClient(_) | Self::PingServer(_) => {}
        }
    }

    fn poll_packet(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        match self {
            Self::TcpReceiver(end) => end.poll_packet(now),
            Self::TcpSender(end) => end.poll_packet(now),
            Self::Quic(end) => end.poll_packet(now),
            Self::PingClient(end) => end.poll_packet(now),
            Self::PingServer(end) => end.poll_packet(),
        }
    }

    fn poll_timeout(&mut self) -> Option<Timestamp> {
        match self {
            Self::TcpReceiver(end) => end.poll_timeout(),
            Self::TcpSender(end) => end.poll_timeout(),
            Self::Quic(end) => end.poll_timeout(),
            Self::PingClient(end) => end.poll_timeout(),
            Self::PingServer(_) => None,
        }
    }
}

/// Flows by their local port, sharing port 0 of the node. Packets larger than the MTU are dropped, as an
/// interface does with packets that may not be fragmented.
pub struct Host {
    mtu: usize,
    flows: BTreeMap<u16, FlowEnd>,
    /// The flow whose turn it is to send: one packet each.
    turn: u16,
}

impl Host {
    /// A host without flows.
    pub fn new(mtu: usize) -> Self {
        Self { mtu, flows: BTreeMap::new(), turn: 0 }
    }

    /// Largest packet, bytes.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Adds the end of a flow on `local_port`.
    pub fn add(&mut self, local_port: u16, end: FlowEnd) {
        self.flows.insert(local_port, end);
    }

    /// The end of the flow on `local_port`.
    pub fn flow(&self, local_port: u16) -> Option<&FlowEnd> {
        self.flows.get(&local_port)
    }

    /// The end of the flow on `local_port`, to command it.
    pub fn flow_mut(&mut self, local_port: u16) -> Option<&mut FlowEnd> {
        self.flows.get_mut(&local_port)
    }

    /// The flows and their local ports.
    pub fn flows(&self) -> impl Iterator<Item = (u16, &FlowEnd)> {
        self.flows.iter().map(|(port, end)| (*port, end))
    }

    /// A packet arrived at the interface.
    pub fn handle_packet(&mut self, now: Timestamp, packet: &[u8]) {
        let Ok(headers) = wire::inner::parse(packet) else { return };
        if let Some(flow) = self.flows.get_mut(&headers.key.destination_port) {
            flow.handle_packet(now, packet);
        }
    }

    /// A timer of `poll_timeout` expired.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        for flow in self.flows.values_mut() {
            if flow.poll_timeout().is_some_and(|at| at <= now) {
                flow.handle_timeout(now);
            }
        }
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<(Port, Packet)> {
        let order: Vec<u16> = self
            .flows
            .range(self.turn..)
            .chain(self.flows.range(..self.turn))
            .map(|(port, _)| *port)
            .collect();
        for port in order {
            let Some(flow) = self.flows.get_mut(&port) else { continue };
            while let Some(packet) = flow.poll_packet(now) {
                if packet.len() <= self.mtu {
                    self.turn = port.wrapping_add(1);
                    return Some((Port(0), Packet::Inner(packet)));
                }
            }
        }
        None
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        self.flows.values_mut().filter_map(FlowEnd::poll_timeout).min()
    }
}
