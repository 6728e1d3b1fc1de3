//! Nodes joined by links, run in virtual time.

use crate::{Change, Link, LinkPacket, LinkSpec, LinkStatistics};
use std::time::Duration;
use units::Timestamp;

/// A node of a [`World`], by the order in which it was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

/// One of a node's places for a link, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub usize);

/// What takes part in a simulation: a host, a router, one end of a bond. Sans I/O.
pub trait Node<P> {
    /// A packet arrived on `port`.
    fn handle_packet(&mut self, now: Timestamp, port: Port, packet: P);
    /// The time of `poll_timeout` has come.
    fn handle_timeout(&mut self, now: Timestamp);
    /// The next packet to send and where; asked after every other call until it answers `None`.
    fn poll_transmit(&mut self, now: Timestamp) -> Option<(Port, P)>;
    /// When to call `handle_timeout`.
    fn poll_timeout(&mut self) -> Option<Timestamp>;
}

/// A node asked again and again to be called at a time that was already reached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the simulation does not get past {at_nanos} ns: node {} keeps asking for this time", .node.0)]
pub struct Stuck {
    /// Where time stands.
    pub at_nanos: u64,
    /// The node that keeps it.
    pub node: NodeId,
}

/// Nodes and the links between their ports.
#[derive(Debug)]
pub struct World<N, P> {
    now: Timestamp,
    nodes: Vec<N>,
    node_due: Vec<Option<Timestamp>>,
    links: Vec<Wire<P>>,
    link_due: Vec<Option<Timestamp>>,
    /// Index of the link that leaves a node's port.
    leaving: Vec<Vec<Option<usize>>>,
}

/// One direction of a link, and where it ends.
#[derive(Debug)]
struct Wire<P> {
    link: Link<P>,
    to: (NodeId, Port),
}

/// A direction of a link in a [`World`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkId(usize);

impl<N: Node<P>, P: LinkPacket> World<N, P> {
    /// An empty world at time zero.
    pub fn new() -> Self {
        Self {
            now: Timestamp::ZERO,
            nodes: Vec::new(),
            node_due: Vec::new(),
            links: Vec::new(),
            link_due: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Adds a node.
    pub fn add_node(&mut self, node: N) -> NodeId {
        self.nodes.push(node);
        self.node_due.push(Some(self.now));
        self.leaving.push(Vec::new());
        NodeId(self.nodes.len() - 1)
    }

    /// Joins `from` to `to` in one direction; what the port `from` led to before is replaced.
    pub fn add_link(
        &mut self,
        from: (NodeId, Port),
        to: (NodeId, Port),
        spec: LinkSpec,
        seed: u64,
    ) -> LinkId {
        let index = self.links.len();
        self.links.push(Wire { link: Link::starting_at(self.now, spec, seed), to });
        self.link_due.push(None);
        let ports = &mut self.leaving[from.0.0];
        if ports.len() <= from.1.0 {
            ports.resize(from.1.0 + 1, None);
        }
        ports[from.1.0] = Some(index);
        LinkId(index)
    }

    /// The time that was reached.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &N {
        &self.nodes[id.0]
    }

    /// All nodes, in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = &N> {
        self.nodes.iter()
    }

    /// A node, to command it; its packets leave when time goes on.
    pub fn node_mut(&mut self, id: NodeId) -> &mut N {
        self.node_due[id.0] = Some(self.now);
        &mut self.nodes[id.0]
    }

    /// Changes a link now.
    pub fn change_link(&mut self, id: LinkId, change: Change) {
        self.links[id.0].link.change(self.now, change);
        self.link_due[id.0] = self.links[id.0].link.next_event();
    }

    /// What happened on a link.
    pub fn link_statistics(&self, id: LinkId) -> LinkStatistics {
        self.links[id.0].link.statistics()
    }

    /// Runs for `time`.
    ///
    /// # Errors
    /// [`Stuck`] if a node does not let time go on.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Stuck> {
        self.run_until(self.now + time)
    }

    /// Runs until `end` has been reached, the events of that time included.
    ///
    /// # Errors
    /// [`Stuck`] if a node does not let time go on.
    pub fn run_until(&mut self, end: Timestamp) -> Result<(), Stuck> {
        let mut rounds_at_this_time = 0;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            if next > self.now {
                self.now = next;
                rounds_at_this_time = 0;
            }
            rounds_at_this_time += 1;
            if rounds_at_this_time > MAXIMUM_ROUNDS {
                let node = self.node_due.iter().position(|due| due.is_some_and(|due| due <= self.now));
                return Err(Stuck { at_nanos: self.now.as_nanos(), node: NodeId(node.unwrap_or_default()) });
            }
            self.step();
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Handles everything that is due at the present time, once.
    fn step(&mut self) {
        let now = self.now;
        for index in 0..self.links.len() {
            if self.link_due[index].is_none_or(|due| due > now) {
                continue;
            }
            let wire = &mut self.links[index];
            while let Some(packet) = wire.link.poll(now) {
                let (node, port) = wire.to;
                self.nodes[node.0].handle_packet(now, port, packet);
                self.node_due[node.0] = Some(now);
            }
            self.link_due[index] = wire.link.next_event();
        }
        for index in 0..self.nodes.len() {
            if self.node_due[index].is_none_or(|due| due > now) {
                continue;
            }
            let node = &mut self.nodes[index];
            if node.poll_timeout().is_some_and(|due| due <= now) {
                node.handle_timeout(now);
            }
            while let Some((port, packet)) = node.poll_transmit(now) {
                let Some(link) = self.leaving[index].get(port.0).copied().flatten() else { continue };
                self.links[link].link.enqueue(now, packet);
                self.link_due[link] = self.links[link].link.next_event();
            }
            self.node_due[index] = node.poll_timeout();
        }
    }

    fn next_time(&self) -> Option<Timestamp> {
        self.link_due.iter().chain(&self.node_due).flatten().min().copied()
    }
}

impl<N: Node<P>, P: LinkPacket> Default for World<N, P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Rounds that one point in time may take: far above what a burst of packets over ideal links needs.
const MAXIMUM_ROUNDS: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use units::BitRate;

    /// Sends `to_send` packets at the start and notes what arrives.
    #[derive(Default)]
    struct Host {
        to_send: usize,
        arrivals: Vec<(u64, usize)>,
        stubborn: bool,
    }

    impl Node<Vec<u8>> for Host {
        fn handle_packet(&mut self, now: Timestamp, port: Port, _packet: Vec<u8>) {
            self.arrivals.push((now.as_micros(), port.0));
        }

        fn handle_timeout(&mut self, _now: Timestamp) {}

        fn poll_transmit(&mut self, _now: Timestamp) -> Option<(Port, Vec<u8>)> {
            self.to_send = self.to_send.checked_sub(1)?;
            Some((Port(0), vec![0; 1_500]))
        }

        fn poll_timeout(&mut self) -> Option<Timestamp> {
            self.stubborn.then_some(Timestamp::ZERO)
        }
    }

    #[test]
    fn packets_cross_a_link_at_its_rate() {
        let mut world = World::new();
        let sender = world.add_node(Host { to_send: 3, ..Host::default() });
        let receiver = world.add_node(Host::default());
        let spec = LinkSpec::steady(BitRate::from_mbps(12.0), Duration::from_millis(10));
        world.add_link((sender, Port(0)), (receiver, Port(4)), spec, 1);
        world.run_for(Duration::from_secs(1)).unwrap();
        assert_eq!(world.node(receiver).arrivals, [(11_000, 4), (12_000, 4), (13_000, 4)]);
        assert_eq!(world.now(), Timestamp::from_millis(1_000));
    }

    #[test]
    fn a_node_that_stops_time_is_named() {
        let mut world = World::<Host, Vec<u8>>::new();
        world.add_node(Host::default());
        world.add_node(Host { stubborn: true, ..Host::default() });
        let stuck = world.run_for(Duration::from_secs(1)).unwrap_err();
        assert_eq!(stuck.node, NodeId(1));
    }
}
