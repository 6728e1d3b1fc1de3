//! One simulated download: networks, traffic and the way it takes.

use super::host::{FlowEnd, Host};
use super::measure::{Progress, quantile};
use super::node::SimulatedNode;
use super::packet::Packet;
use super::ping::{PingClient, PingServer};
use super::quic::{QuicEnd, QuicSetup};
use super::segment::{DEVICE_ADDRESS, FlowAddresses, SERVER_ADDRESS};
use super::tcp::{Algorithm, TcpReceiver, TcpSender};
use super::tunnel::{INNER_PORT, TunnelEnd, network_port};
use anyhow::{Context, ensure};
use bond::{PathReport, SessionCounters};
use sim::{LinkId, LinkSpec, NetworkSpec, NodeId, Port, SeededRandom, World};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;
use units::Timestamp;

/// What is downloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// So many TCP flows at once.
    Tcp {
        /// Under this congestion control.
        algorithm: Algorithm,
        /// How many.
        flows: u16,
    },
    /// One QUIC flow.
    Quic {
        /// Under this congestion control.
        algorithm: Algorithm,
    },
    /// Nothing; only the pings.
    Idle,
}

/// Which way the packets take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// Over this network of the list, without any tunnel.
    Plain(usize),
    /// Through the bond over these networks of the list.
    Bonded(Vec<usize>),
}

/// One simulated run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The networks that there are.
    pub networks: Vec<NetworkSpec>,
    /// What is downloaded.
    pub traffic: Traffic,
    /// Over what.
    pub way: Way,
    /// How long the run lasts.
    pub duration: Duration,
    /// Bytes per flow; without end if not given.
    pub bytes: Option<u64>,
    /// Decides all chance.
    pub seed: u64,
}

/// What a trial showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes in order per time of all flows together; the time is the trial's, or that of the last byte
    /// for downloads that ended.
    pub goodput_mbps: f64,
    /// The same by flow.
    pub flow_goodput_mbps: Vec<f64>,
    /// Longest time in which no flow moved, from the first byte on.
    pub longest_gap: Duration,
    /// When every download had ended; `None` if one did not.
    pub completed_after: Option<Duration>,
    /// Round-trip times of the pings, milliseconds.
    pub ping_ms: Vec<f64>,
    /// Pings without an answer, of those sent two seconds or more before the end.
    pub pings_lost: usize,
    /// (seconds, million bits per second) over the run, all flows.
    pub series: Vec<(f64, f64)>,
    /// What the bond's ends said at the end, device first; empty for a plain network.
    pub ends: Vec<EndReport>,
    /// Part of the processor time that was left over during the download; `None` where time is not the processor's.
    pub processor_idle: Option<f64>,
}

/// What one end of the bond knew at the end of a trial.
#[derive(Clone, Debug)]
pub struct EndReport {
    /// Its paths.
    pub paths: Vec<PathReport>,
    /// Its session's sums; `None` if no session came about.
    pub counters: Option<SessionCounters>,
}

impl Outcome {
    /// The ping's 99th percentile, milliseconds.
    pub fn ping_p99_ms(&self) -> Option<f64> {
        quantile(&self.ping_ms, 0.99)
    }

    /// The ping's median, milliseconds.
    pub fn ping_p50_ms(&self) -> Option<f64> {
        quantile(&self.ping_ms, 0.5)
    }
}

/// A trial's world, ready to run.
pub(super) struct Built {
    pub(super) world: SimulatedWorld,
    /// The device's host.
    pub(super) device: NodeId,
    /// The device's end of the bond; `None` for a plain network.
    pub(super) device_end: Option<NodeId>,
    /// The gateway's.
    pub(super) gateway_end: Option<NodeId>,
    /// Up and down of each network that is used, by its index.
    pub(super) links: BTreeMap<usize, [LinkId; 2]>,
}

/// MTU of a plain network.
pub(super) const LINK_MTU: usize = 1_500;
/// MTU of any0, as the daemon sets it.
const TUNNEL_MTU: usize = 1_440;
pub(super) const FIRST_CLIENT_PORT: u16 = 40_000;
const FIRST_SERVER_PORT: u16 = 8_000;
const PING_PORTS: (u16, u16) = (39_000, 7_000);
/// The bond's handshake and the pings come first.
const TRAFFIC_START: Timestamp = Timestamp::from_millis(1_000);
const PING_START: Timestamp = Timestamp::from_millis(500);
const PING_INTERVAL: Duration = Duration::from_millis(20);
/// Pings sent later than this before the end may still be under way.
const PING_GRACE: Duration = Duration::from_secs(2);

impl Trial {
    /// Runs the trial.
    ///
    /// # Errors
    /// If the trial names a network that is not there, or the simulation cannot go on.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        let Built { mut world, device, .. } = self.build()?;
        let end = TRAFFIC_START + self.duration;
        if self.bytes.is_none() {
            world.run_until(end).context("run the simulation")?;
        } else {
            // Downloads that end: stop soon after the last byte.
            while world.now() < end && !self.has_ended(&world, device) {
                world.run_for(Duration::from_millis(20)).context("run the simulation")?;
            }
        }
        self.outcome(&world, device)
    }

    /// Nodes, links and flows at time zero.
    pub(super) fn build(&self) -> anyhow::Result<Built> {
        self.build_with(bond::Algorithm::default())
    }

    /// The same with this congestion control of the bond's paths.
    pub(super) fn build_with(&self, congestion: bond::Algorithm) -> anyhow::Result<Built> {
        let (mut built, server) = match &self.way {
            Way::Plain(index) => self.build_plain(*index)?,
            Way::Bonded(indices) => self.build_bonded(indices, congestion)?,
        };
        self.add_flows(&mut built.world, built.device, server)?;
        Ok(built)
    }

    fn build_plain(&self, index: usize) -> anyhow::Result<(Built, NodeId)> {
        let mut world = World::new();
        let device = world.add_node(SimulatedNode::Host(Host::new(LINK_MTU)));
        let server = world.add_node(SimulatedNode::Host(Host::new(LINK_MTU)));
        let links = self.join(&mut world, index, (device, Port(0)), (server, Port(0)))?;
        Ok((
            Built {
                world,
                device,
                device_end: None,
                gateway_end: None,
                links: BTreeMap::from([(index, links)]),
            },
            server,
        ))
    }

    /// host -- device's end of the bond == networks == gateway's end -- server
    fn build_bonded(
        &self,
        indices: &[usize],
        congestion: bond::Algorithm,
    ) -> anyhow::Result<(Built, NodeId)> {
        let seed = |name| SeededRandom::derive(self.seed, name).seed_bytes();
        let gateway_end = TunnelEnd::gateway(seed("gateway"), congestion)?;
        let device_end = TunnelEnd::device(seed("device"), congestion, gateway_end.public_key(), indices)?;
        let mut world = World::new();
        let device = world.add_node(SimulatedNode::Host(Host::new(TUNNEL_MTU)));
        let server = world.add_node(SimulatedNode::Host(Host::new(TUNNEL_MTU)));
        let near = world.add_node(SimulatedNode::Tunnel(Box::new(device_end)));
        let far = world.add_node(SimulatedNode::Tunnel(Box::new(gateway_end)));
        for (host, end) in [(device, near), (server, far)] {
            world.add_link((host, Port(0)), (end, INNER_PORT), LinkSpec::ideal(Duration::ZERO), 0);
            world.add_link((end, INNER_PORT), (host, Port(0)), LinkSpec::ideal(Duration::ZERO), 0);
        }
        let mut links = BTreeMap::new();
        for index in indices {
            let port = network_port(*index);
            links.insert(*index, self.join(&mut world, *index, (near, port), (far, port))?);
        }
        Ok((Built { world, device, device_end: Some(near), gateway_end: Some(far), links }, server))
    }

    /// Both directions of the network with this index.
    fn join(
        &self,
        world: &mut SimulatedWorld,
        index: usize,
        device: (NodeId, Port),
        server: (NodeId, Port),
    ) -> anyhow::Result<[LinkId; 2]> {
        let network = self.network(index)?;
        let seed = |way| SeededRandom::derive(self.seed, &format!("network {index} {way}")).next_u64();
        let up = world.add_link(device, server, network.up.clone(), seed("up"));
        let down = world.add_link(server, device, network.down.clone(), seed("down"));
        Ok([up, down])
    }

    fn network(&self, index: usize) -> anyhow::Result<&NetworkSpec> {
        self.networks.get(index).with_context(|| format!("there is no network {index}"))
    }

    fn add_flows(&self, world: &mut SimulatedWorld, device: NodeId, server: NodeId) -> anyhow::Result<()> {
        let mtu = world.node(device).host().context("the device has no host")?.mtu();
        let mut add = |ports: (u16, u16), ends: (FlowEnd, FlowEnd)| {
            if let Some(host) = world.node_mut(device).host_mut() {
                host.add(ports.0, ends.0);
            }
            if let Some(host) = world.node_mut(server).host_mut() {
                host.add(ports.1, ends.1);
            }
        };
        let ping = addresses(PING_PORTS);
        add(
            PING_PORTS,
            (
                FlowEnd::PingClient(PingClient::new(ping, PING_START, PING_INTERVAL)),
                FlowEnd::PingServer(PingServer::new(ping.reversed())),
            ),
        );
        match self.traffic {
            Traffic::Idle => {}
            Traffic::Tcp { algorithm, flows } => {
                ensure!((1..=1_000).contains(&flows), "{flows} TCP flows: 1 to 1000 are possible");
                for index in 0..flows {
                    let ports = (FIRST_CLIENT_PORT + index, FIRST_SERVER_PORT + index);
                    let flow = addresses(ports);
                    let receiver = TcpReceiver::new(flow, TRAFFIC_START);
                    let sender = TcpSender::new(flow.reversed(), algorithm, mtu, self.bytes);
                    add(ports, (FlowEnd::TcpReceiver(receiver), FlowEnd::TcpSender(Box::new(sender))));
                }
            }
            Traffic::Quic { algorithm } => {
                let ports = (FIRST_CLIENT_PORT, FIRST_SERVER_PORT);
                let setup = QuicSetup::new(algorithm, SeededRandom::derive(self.seed, "quic").seed_bytes())?;
                let client = QuicEnd::client(addresses(ports), &setup, TRAFFIC_START)?;
                let server = QuicEnd::server(addresses(ports).reversed(), &setup, self.bytes)?;
                add(ports, (FlowEnd::Quic(Box::new(client)), FlowEnd::Quic(Box::new(server))));
            }
        }
        Ok(())
    }

    fn has_ended(&self, world: &SimulatedWorld, device: NodeId) -> bool {
        self.bytes.is_some_and(|bytes| downloads(world, device).all(|progress| progress.bytes() >= bytes))
    }

    fn outcome(&self, world: &SimulatedWorld, device: NodeId) -> anyhow::Result<Outcome> {
        let host = world.node(device).host().context("the device has no host")?;
        let last = downloads(world, device).filter_map(Progress::last_arrival).max();
        let ended = self.has_ended(world, device) && self.bytes.is_some();
        let completed_after = last.filter(|_| ended).map(|last| last.since(TRAFFIC_START));
        let time = completed_after.unwrap_or(self.duration);
        let flow_goodput_mbps: Vec<f64> =
            downloads(world, device).map(|progress| progress.goodput_mbps(time)).collect();
        let end = if ended { None } else { Some(world.now()) };
        let longest_gap = downloads(world, device).map(|progress| progress.longest_gap(end)).min();
        let (ping_ms, pings_lost) = match host.flow(PING_PORTS.0) {
            Some(FlowEnd::PingClient(client)) => {
                (client.round_trips_ms().to_vec(), client.unanswered(world.now() - PING_GRACE))
            }
            _ => (Vec::new(), 0),
        };
        Ok(Outcome {
            goodput_mbps: flow_goodput_mbps.iter().sum(),
            flow_goodput_mbps,
            longest_gap: longest_gap.unwrap_or_default(),
            completed_after,
            ping_ms,
            pings_lost,
            series: sum_series(downloads(world, device).map(Progress::series)),
            ends: world.nodes().filter_map(SimulatedNode::tunnel).map(TunnelEnd::report).collect(),
            processor_idle: None,
        })
    }
}

pub(super) type SimulatedWorld = World<SimulatedNode, Packet>;

/// The addresses of a flow as the device sees it.
pub(super) fn addresses(ports: (u16, u16)) -> FlowAddresses {
    FlowAddresses {
        local: SocketAddrV4::new(DEVICE_ADDRESS, ports.0),
        remote: SocketAddrV4::new(SERVER_ADDRESS, ports.1),
    }
}

fn downloads(world: &SimulatedWorld, device: NodeId) -> impl Iterator<Item = &Progress> {
    let flows = world.node(device).host().into_iter().flat_map(Host::flows);
    flows.filter_map(|(_, end)| match end {
        FlowEnd::TcpReceiver(receiver) => Some(receiver.progress()),
        FlowEnd::Quic(end) => end.progress(),
        FlowEnd::TcpSender(_) | FlowEnd::PingClient(_) | FlowEnd::PingServer(_) => None,
    })
}

fn sum_series(all: impl Iterator<Item = Vec<(f64, f64)>>) -> Vec<(f64, f64)> {
    let mut sum: Vec<(f64, f64)> = Vec::new();
    for series in all {
        for (index, (at, value)) in series.into_iter().enumerate() {
            match sum.get_mut(index) {
                Some(point) => point.1 += value,
                None => sum.push((at, value)),
            }
        }
    }
    sum
}
