//! A bonded download that shares one of its networks with plain TCP downloads of somebody else.

use super::host::{FlowEnd, Host};
use super::node::{Junction, SimulatedNode};
use super::tcp::{Algorithm, TcpReceiver, TcpSender};
use super::trial::{Built, LINK_MTU, SimulatedWorld, Traffic, Trial, Way, addresses};
use super::tunnel::network_port;
use anyhow::Context;
use sim::{Capacity, Jitter, LinkId, LinkSpec, NetworkSpec, NodeId, Port, SeededRandom};
use std::time::Duration;
use units::{Bytes, Timestamp};

/// A bonded TCP download over all networks, and plain ones of another host over one of them.
#[derive(Clone, Debug)]
pub struct Fairness {
    /// The networks.
    pub networks: Vec<NetworkSpec>,
    /// Which of them lead over one link, that of the first of these, which the other host uses too; one at least.
    pub shared: Vec<usize>,
    /// Congestion control of all downloads.
    pub algorithm: Algorithm,
    /// That of the bond's paths.
    pub paths: bond::Algorithm,
    /// Whether hosts take a moment of chance to send a packet, up to what the shared link takes to carry a full one.
    ///
    /// Where hosts take no time and delays never vary, what a TCP sends for an acknowledgement comes to a full queue at the same point of the service
    /// of the packet at its head, round trip after round trip. A flow that always comes just before a packet leaves finds the queue one
    /// longer than the others do and has the losses of all: a phase effect, and this the remedy for it (Floyd and Jacobson, "On Traffic Phase Effects in
    /// Packet-Switched Gateways", 1992).
    pub hosts_take_time: bool,
    /// How many plain downloads there are.
    pub plain: u16,
    /// When the plain downloads begin, a tenth of a second apart; the bonded one does after a second.
    pub plain_start: Timestamp,
    /// What comes before is left out.
    pub measured_from: Timestamp,
    /// When both end.
    pub end: Timestamp,
    /// Decides all chance.
    pub seed: u64,
}

/// Who got what of the shared network, million bits per second on the link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FairnessOutcome {
    /// The bond.
    pub bond_mbps: f64,
    /// The plain downloads together.
    pub plain_mbps: f64,
    /// How many these are.
    pub plain: u16,
    /// Bytes per time of the bonded download, over all networks.
    pub bonded_goodput_mbps: f64,
}

impl FairnessOutcome {
    /// [`jain_index`] of the bond and the plain downloads, each of which counts as having as much as the others.
    pub fn jain_index(&self) -> f64 {
        let each = self.plain_mbps / f64::from(self.plain.max(1));
        let shares: Vec<f64> = std::iter::once(self.bond_mbps).chain((0..self.plain).map(|_| each)).collect();
        jain_index(&shares)
    }

    /// What the bond has, as a multiple of what each plain download has.
    pub fn over_each(&self) -> f64 {
        self.bond_mbps * f64::from(self.plain) / self.plain_mbps
    }
}

/// Jain's index (RFC 5166 section 2.3): 1 if all get the same, 1/n if one of n gets all; 0 if nobody gets anything.
pub fn jain_index(shares: &[f64]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let sum: f64 = shares.iter().sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 }
}

/// Of the first plain download.
const PLAIN_PORTS: (u16, u16) = (50_000, 9_000);
const PLAIN_APART: Duration = Duration::from_millis(100);
/// Bytes of a full plain packet on the link per byte of payload.
const LINK_BYTES_PER_PAYLOAD: f64 = 1_500.0 / 1_448.0;

/// Sums at one moment: bytes on the shared downlink, of the plain and of the bonded download.
struct Sums([u64; 3]);

impl Fairness {
    /// Runs all downloads.
    ///
    /// # Errors
    /// If the simulation cannot go on, or the shared network is not in the list.
    pub fn run(&self) -> anyhow::Result<FairnessOutcome> {
        let Built { mut world, device, device_end, gateway_end, .. } = self.trial().build_with(self.paths)?;
        let ends = device_end.zip(gateway_end).context("the bond lacks an end")?;
        let (client, down) = self.share(&mut world, ends)?;
        let sums = |world: &SimulatedWorld| {
            Sums([world.link_statistics(down).delivered_bytes, bytes(world, client), bytes(world, device)])
        };
        world.run_until(self.measured_from).context("run the simulation")?;
        let Sums(before) = sums(&world);
        world.run_until(self.end).context("run the simulation")?;
        let Sums(after) = sums(&world);
        let seconds = self.end.since(self.measured_from).as_secs_f64();
        let mbps = |index: usize| (after[index] - before[index]) as f64 * 8.0 / seconds / 1e6;
        let plain_mbps = mbps(1) * LINK_BYTES_PER_PAYLOAD;
        Ok(FairnessOutcome {
            bond_mbps: mbps(0) - plain_mbps,
            plain_mbps,
            plain: self.plain,
            bonded_goodput_mbps: mbps(2),
        })
    }

    fn trial(&self) -> Trial {
        Trial {
            networks: self.networks.clone(),
            traffic: Traffic::Tcp { algorithm: self.algorithm, flows: 1 },
            way: Way::Bonded((0..self.networks.len()).collect()),
            duration: Duration::ZERO,
            bytes: None,
            seed: self.seed,
        }
    }

    /// Puts a junction at both ends of the shared link and a host behind each. Returns the host that downloads and
    /// the link's downward half.
    fn share(&self, world: &mut SimulatedWorld, ends: (NodeId, NodeId)) -> anyhow::Result<(NodeId, LinkId)> {
        let network = self.shared.first().and_then(|first| self.networks.get(*first));
        let network = network.context("the shared network is not in the list")?;
        let seed = |way| SeededRandom::derive(self.seed, &format!("shared network {way}")).next_u64();
        let at_most = time_of_full_packet(&network.down);
        let processing = |side| self.hosts_take_time.then(|| Processing { at_most, seed: seed(side) });
        let (near, client) = add_junction(world, ends.0, &self.shared, processing("near"));
        let (far, server) = add_junction(world, ends.1, &self.shared, processing("far"));
        let (near, far) = ((near, Junction::SHARED), (far, Junction::SHARED));
        world.add_link(near, far, network.up.clone(), seed("up"));
        let down = world.add_link(far, near, network.down.clone(), seed("down"));
        for number in 0..self.plain {
            let ports = (PLAIN_PORTS.0 + number, PLAIN_PORTS.1 + number);
            let flow = addresses(ports);
            let receiver = TcpReceiver::new(flow, self.plain_start + PLAIN_APART * u32::from(number));
            let sender = TcpSender::new(flow.reversed(), self.algorithm, LINK_MTU, None);
            for (node, port, flow) in [
                (client, ports.0, FlowEnd::TcpReceiver(receiver)),
                (server, ports.1, FlowEnd::TcpSender(Box::new(sender))),
            ] {
                world.node_mut(node).host_mut().context("a host is missing")?.add(port, flow);
            }
        }
        Ok((client, down))
    }
}

/// How long a host takes to send a packet: any time up to this, and the order is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processing {
    at_most: Duration,
    seed: u64,
}

/// None on a link that is not of a steady rate.
fn time_of_full_packet(link: &LinkSpec) -> Duration {
    match link.capacity {
        Capacity::Rate(rate) => rate.time_for(Bytes(LINK_MTU as u64)),
        Capacity::Unlimited | Capacity::Trace(_) => Duration::ZERO,
    }
}

/// A junction between an end of the bond, whose networks with these indices lead there, and the shared link, and the host behind it.
pub(super) fn add_junction(
    world: &mut SimulatedWorld,
    end: NodeId,
    shared: &[usize],
    processing: Option<Processing>,
) -> (NodeId, NodeId) {
    let junction = world.add_node(SimulatedNode::Junction(Junction::default()));
    let host = world.add_node(SimulatedNode::Host(Host::new(LINK_MTU)));
    let bond =
        shared.iter().map(|index| network_port(*index)).map(|port| (Junction::of_network(port), (end, port)));
    let ideal = LinkSpec::ideal(Duration::ZERO);
    for (port, node) in bond.chain([(Junction::PLAIN, (host, Port(0)))]) {
        world.add_link((junction, port), node, ideal.clone(), 0);
        let (sends, seed) = processing.map_or((ideal.clone(), 0), |Processing { at_most, seed }| {
            let sends = LinkSpec::ideal(at_most / 2).with_jitter(Jitter::OrderKept(at_most / 2));
            (sends, SeededRandom::derive(seed, &format!("port {}", port.0)).next_u64())
        });
        world.add_link(node, (junction, port), sends, seed);
    }
    (junction, host)
}

/// Bytes of the downloads that a host has got.
fn bytes(world: &SimulatedWorld, host: NodeId) -> u64 {
    let flows = world.node(host).host().into_iter().flat_map(Host::flows);
    flows
        .map(|(_, flow)| match flow {
            FlowEnd::TcpReceiver(receiver) => receiver.progress().bytes(),
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_by_hand() {
        assert!((jain_index(&[7.0; 3]) - 1.0).abs() < 1e-9);
        // 20 squared over three times 150.
        assert!((jain_index(&[10.0, 5.0, 5.0]) - 400.0 / 450.0).abs() < 1e-9);
        assert!((jain_index(&[1.0, 0.0]) - 0.5).abs() < 1e-9);
        assert_eq!(jain_index(&[0.0; 3]), 0.0);
    }

    /// A path alone under a coupled control is Reno, so it takes beside a plain Reno what that takes.
    #[test]
    fn the_same_control_takes_the_same_within_a_bond_and_outside() {
        let over_plain = |hosts_take_time| {
            let of_seed = |seed| {
                let outcome = Fairness {
                    networks: vec![NetworkSpec::symmetric("first", 40.0, 30)],
                    shared: vec![0],
                    algorithm: Algorithm::Reno,
                    paths: bond::Algorithm::Lia,
                    hosts_take_time,
                    plain: 1,
                    plain_start: Timestamp::from_millis(10_000),
                    measured_from: Timestamp::from_millis(30_000),
                    end: Timestamp::from_millis(90_000),
                    seed,
                }
                .run()
                .unwrap();
                outcome.bond_mbps / outcome.plain_mbps
            };
            (1..=4).map(of_seed).sum::<f64>() / 4.0
        };
        let (with, without) = (over_plain(true), over_plain(false));
        assert!((0.75..1.35).contains(&with), "{with} times as much");
        assert!(without > 1.5, "phase effects are gone without the remedy: {without} times as much");
    }
}
