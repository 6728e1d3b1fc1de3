//! One end of the bond in the simulated world: a `bond::Endpoint` between the application's side and
//! the networks.

use super::measure::Progress;
use super::packet::Packet;
use super::stream_flow::StreamFlow;
use super::trial::EndReport;
use anyhow::Context;
use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, PublicKey,
    SessionConfig, SessionId, StreamLimits,
};
use policy::PathStatus;
use sim::Port;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use units::{NetworkId, Timestamp};

/// The port of the application's side.
pub const INNER_PORT: Port = Port(0);
/// Largest UDP payload on a network with an MTU of 1500.
const MTU_LIMIT: u16 = 1_472;
/// Where the gateway listens.
const GATEWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)), 4_600);
/// The gateway sees all paths on one network of its own.
const GATEWAY_NETWORK: NetworkId = NetworkId(0);
/// Initiations a second above which senders must prove their address: far above what happens here.
const RETRY_ABOVE: u32 = 1_000;

/// One end of the bond.
pub struct TunnelEnd {
    endpoint: Endpoint,
    session: Option<SessionId>,
    role: Role,
    inner: VecDeque<Vec<u8>>,
    stream: Option<StreamFlow>,
    /// Datagrams of one transmission that are still to be handed on, in the order of sending.
    outgoing: VecDeque<(Port, Packet)>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Device,
    Gateway,
}

/// The port of the network with this index.
pub fn network_port(index: usize) -> Port {
    Port(index + 1)
}

impl TunnelEnd {
    /// The gateway's end.
    ///
    /// # Errors
    /// If its key is unusable.
    pub fn gateway(seed: [u8; 32], congestion: bond::Algorithm) -> anyhow::Result<Self> {
        Self::new(Role::Gateway, seed, congestion)
    }

    /// The device's end, with paths to `gateway` over the networks with these indices.
    ///
    /// # Errors
    /// If a key is unusable.
    pub fn device(
        seed: [u8; 32],
        congestion: bond::Algorithm,
        gateway: PublicKey,
        networks: &[usize],
    ) -> anyhow::Result<Self> {
        let mut end = Self::new(Role::Device, seed, congestion)?;
        let session =
            end.endpoint.connect(Timestamp::ZERO, gateway, Vec::new(), 1).context("begin a session")?;
        for index in networks {
            let network = NetworkId(network_port(*index).0 as u32);
            let address = Address { network, carrier: Carrier::Udp, remote: GATEWAY };
            let config =
                PathConfig { address, mtu_limit: MTU_LIMIT, status: PathStatus::Active, priority: 0 };
            end.endpoint.add_path(Timestamp::ZERO, session, config);
        }
        end.session = Some(session);
        Ok(end)
    }

    fn new(role: Role, seed: [u8; 32], congestion: bond::Algorithm) -> anyhow::Result<Self> {
        let config = EndpointConfig {
            key: PrivateKey::new(seed),
            session: SessionConfig { congestion, ..SessionConfig::default() },
            accept: role == Role::Gateway,
            retry_above: RETRY_ABOVE,
            aes: true,
        };
        Ok(Self {
            endpoint: Endpoint::new(config, seed).context("make an endpoint of the bond")?,
            session: None,
            role,
            inner: VecDeque::new(),
            stream: None,
            outgoing: VecDeque::new(),
            buffer: Vec::new(),
        })
    }

    /// The same end with a stream beside its packets: the device writes without end, the gateway reads.
    pub fn with_stream(mut self) -> Self {
        self.endpoint.carry_streams(StreamLimits::default());
        self.stream = Some(match self.role {
            Role::Device => StreamFlow::writer(),
            Role::Gateway => StreamFlow::reader(),
        });
        self
    }

    /// What has arrived of the stream that this end reads.
    pub fn stream_progress(&self) -> Option<&Progress> {
        self.stream.as_ref()?.progress()
    }

    /// Its public key.
    pub fn public_key(&self) -> PublicKey {
        self.endpoint.public_key()
    }

    /// What it knows of its paths and its session.
    pub fn report(&self) -> EndReport {
        let paths = self.session.map(|session| self.endpoint.path_reports(session)).unwrap_or_default();
        EndReport {
            paths,
            counters: self.session.and_then(|session| self.endpoint.session_counters(session)),
        }
    }

    /// The device's kernel says that the network with this index is gone, or that it is back.
    pub fn set_network(&mut self, now: Timestamp, index: usize, is_up: bool) {
        let network = NetworkId(network_port(index).0 as u32);
        if is_up {
            self.endpoint.network_up(now, network);
        } else {
            self.endpoint.network_down(now, network);
        }
        self.drain(now);
    }

    /// A packet arrived from the application's side or from a network.
    pub fn handle_packet(&mut self, now: Timestamp, port: Port, packet: Packet) {
        match packet {
            Packet::Inner(bytes) => {
                if let Some(session) = self.session {
                    // A packet that does not fit the queue is dropped, as on any interface.
                    let _ = self.endpoint.handle_packet(now, session, &bytes);
                }
            }
            Packet::Datagram { mut payload, ecn, .. } => {
                let address = self.address_behind(port);
                self.endpoint.handle_datagram(now, address, ecn, &mut payload);
            }
        }
        self.drain(now);
    }

    /// The time of `poll_timeout` has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.endpoint.handle_timeout(now);
        self.drain(now);
    }

    /// The next packet to send.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<(Port, Packet)> {
        if let Some(bytes) = self.inner.pop_front() {
            return Some((INNER_PORT, Packet::Inner(bytes)));
        }
        if self.outgoing.is_empty() {
            let transmit = self.endpoint.poll_transmit(now, &mut self.buffer, 1)?;
            let port = self.port_of(&transmit.address);
            for payload in self.buffer.get(..transmit.size)?.chunks(transmit.segment_size.max(1)) {
                let datagram =
                    Packet::Datagram { payload: payload.to_vec(), ecn: transmit.ecn, network: port };
                self.outgoing.push_back((port, datagram));
            }
        }
        self.outgoing.pop_front()
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        self.endpoint.poll_timeout()
    }

    fn drain(&mut self, now: Timestamp) {
        while let Some((_, bytes)) = self.endpoint.poll_packet() {
            self.inner.push_back(bytes);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Incoming { id, .. } => {
                    let accepted = match self.stream {
                        Some(_) => self.endpoint.accept_beside(now, id, &[], self.session),
                        None => self.endpoint.accept(now, id, &[]),
                    };
                    self.session = accepted.or(self.session);
                }
                EndpointEvent::Connected { session, .. } => {
                    if self.stream.is_some() && self.role == Role::Device {
                        // The gateway never forgets.
                        self.endpoint.continue_streams(now, session, true);
                    }
                    self.session = Some(session);
                }
                EndpointEvent::NoAnswer { .. }
                | EndpointEvent::Session { .. }
                | EndpointEvent::Closed { .. } => {}
            }
        }
        if let Some((stream, session)) = self.stream.as_mut().zip(self.session) {
            stream.work(now, &mut self.endpoint, session);
        }
    }

    /// The address of the other end as seen on `port`.
    fn address_behind(&self, port: Port) -> Address {
        let (network, remote) = match self.role {
            Role::Device => (NetworkId(port.0 as u32), GATEWAY),
            Role::Gateway => {
                let device = Ipv4Addr::new(10, 10 + port.0 as u8, 0, 2);
                (GATEWAY_NETWORK, SocketAddr::from((device, 4_601)))
            }
        };
        Address { network, carrier: Carrier::Udp, remote }
    }

    fn port_of(&self, address: &Address) -> Port {
        match (self.role, address.remote.ip()) {
            (Role::Gateway, IpAddr::V4(device)) => Port(usize::from(device.octets()[1]).saturating_sub(10)),
            (Role::Gateway, IpAddr::V6(_)) => INNER_PORT,
            (Role::Device, _) => Port(address.network.0 as usize),
        }
    }
}
