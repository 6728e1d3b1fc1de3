//! Other clients of the access points: each downloads by plain TCP, from an end on the same far side, over one of them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use units::Timestamp;

use super::{INNER, SEED_STEP, SharedAir, Way, World};
use crate::simbed::segment::FlowAddresses;
use crate::simbed::{Algorithm, TcpReceiver, TcpSender};

/// A client with one plain TCP download.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct PlainClient {
    /// Over which access point.
    pub point: usize,
    /// Air time of a full packet from there to this client.
    pub packet_time: Duration,
    /// How often the access point wins the air with packets to this client.
    pub weight: f64,
    /// Congestion control of the sender.
    pub algorithm: Algorithm,
}

/// What each had, million bits of payload a second.
#[derive(Clone, PartialEq, Debug)]
pub(in super::super) struct Shares {
    /// The download through the bond; nothing without one.
    pub bonded: f64,
    /// Each plain client, in the order given.
    pub plain: Vec<f64>,
}

/// A plain client and the server that it downloads from.
pub(super) struct Plain {
    client: PlainClient,
    sender: TcpSender,
    receiver: TcpReceiver,
}

impl SharedAir {
    /// The device's download beside those of plain clients.
    ///
    /// # Errors
    /// If the two ends of the bond do not come together.
    pub fn run_beside(&self, clients: &[PlainClient]) -> anyhow::Result<Shares> {
        let mut world = World::new(self.clone())?;
        world.connect()?;
        self.shares(world, clients)
    }

    /// Plain clients alone: the device does nothing.
    ///
    /// # Errors
    /// If the simulation cannot go on.
    pub fn run_without_bond(&self, clients: &[PlainClient]) -> anyhow::Result<Shares> {
        let world = World::new(Self { way: Way::Plain, ..self.clone() })?;
        self.shares(world, clients)
    }

    fn shares(&self, mut world: World, clients: &[PlainClient]) -> anyhow::Result<Shares> {
        let begin = world.now;
        world.plain = clients
            .iter()
            .zip(1..)
            .map(|(client, number)| {
                Plain::new(
                    *client,
                    number,
                    begin + BETWEEN * u32::from(number) + SEED_STEP * (self.seed % 16) as u32,
                )
            })
            .collect();
        (world.shares, world.sharing) = (vec![0.0; clients.len()], vec![0.0; clients.len()]);
        world.advance(begin + self.settling)?;
        let (packets, bytes) = (world.received, world.plain_bytes());
        world.advance(begin + self.settling + self.measured)?;
        let mbps = |bytes: u64| bytes as f64 * 8.0 / self.measured.as_secs_f64() / 1e6;
        let after = world.plain_bytes();
        Ok(Shares {
            bonded: mbps((world.received - packets) * PAYLOAD),
            plain: after.into_iter().zip(bytes).map(|(after, before)| mbps(after - before)).collect(),
        })
    }
}

impl World {
    fn plain_bytes(&self) -> Vec<u64> {
        self.plain.iter().map(|plain| plain.receiver.progress().bytes()).collect()
    }
}

impl Plain {
    fn new(client: PlainClient, number: u16, start: Timestamp) -> Self {
        let flow = FlowAddresses {
            local: SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1), 50_000 + number),
            remote: SocketAddrV4::new(Ipv4Addr::new(10, 2, 0, 1), 9_000),
        };
        let sender = TcpSender::new(flow.reversed(), client.algorithm, MTU, None);
        Self { client, sender, receiver: TcpReceiver::new(flow, start) }
    }

    /// The access point that it uses.
    pub fn point(&self) -> usize {
        self.client.point
    }

    /// Air time of a full packet, how often the air is won, and the size of a packet of `bytes` on it.
    pub fn on_air(&self, bytes: usize) -> (Option<Duration>, f64, usize) {
        (Some(self.client.packet_time), self.client.weight, bytes)
    }

    /// A packet arrived at the client.
    pub fn handle_down(&mut self, now: Timestamp, packet: &[u8]) {
        self.receiver.handle_packet(now, packet);
    }

    /// A packet arrived at the server.
    pub fn handle_up(&mut self, now: Timestamp, packet: &[u8]) {
        self.sender.handle_packet(now, packet);
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.sender.poll_timeout().into_iter().chain(self.receiver.poll_timeout()).min()
    }

    /// Timers of both ends that are due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.sender.handle_timeout(now);
        self.receiver.handle_timeout(now);
    }

    /// The server's next packet.
    pub fn poll_down(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.sender.poll_packet(now)
    }

    /// The client's next packet.
    pub fn poll_up(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.receiver.poll_packet(now)
    }
}

/// Between the beginnings of two downloads.
const BETWEEN: Duration = Duration::from_millis(311);
const MTU: usize = 1_500;
/// Of a packet of the download through the bond, without its headers.
const PAYLOAD: u64 = INNER as u64 - 40;

#[cfg(test)]
mod tests {
    use super::super::Point;
    use super::*;

    fn air(algorithm: bond::Algorithm) -> SharedAir {
        let point = Point { packet_time: Duration::from_micros(545), weight: 1.0, uplink: 1e6 };
        SharedAir {
            points: vec![point; 2],
            round_trip: Duration::from_millis(25),
            algorithm,
            way: Way::Plain,
            settling: Duration::from_secs(5),
            measured: Duration::from_secs(10),
            changes: Vec::new(),
            seed: 1,
        }
    }

    fn client(point: usize, packet_us: u64, weight: f64) -> PlainClient {
        let packet_time = Duration::from_micros(packet_us);
        PlainClient { point, packet_time, weight, algorithm: Algorithm::Cubic }
    }

    #[test]
    fn two_plain_clients_share_the_air_packet_for_packet() {
        let shares = air(bond::Algorithm::Olia)
            .run_without_bond(&[client(0, 545, 1.0), client(1, 1_090, 1.0)])
            .unwrap();
        // A packet of each takes 1.635 ms: 612 a second with 1,448 bytes.
        assert_eq!(shares.bonded, 0.0);
        for mbps in &shares.plain {
            assert!((6.6..7.2).contains(mbps), "{shares:?}");
        }
    }

    #[test]
    fn packets_that_lose_the_air_more_often_wait() {
        let shares =
            air(bond::Algorithm::Olia).run_without_bond(&[client(0, 545, 0.5), client(1, 545, 1.0)]).unwrap();
        let ratio = shares.plain[1] / shares.plain[0];
        assert!((1.8..2.2).contains(&ratio), "{shares:?}");
    }

    #[test]
    fn the_device_has_its_part_beside_plain_clients() {
        let run =
            || air(bond::Algorithm::Olia).run_beside(&[client(0, 545, 1.0), client(1, 545, 1.0)]).unwrap();
        let shares = run();
        assert!(shares.bonded > 1.0 && shares.plain.iter().all(|mbps| *mbps > 1.0), "{shares:?}");
        let sum = shares.bonded + shares.plain.iter().sum::<f64>();
        assert!((18.0..21.5).contains(&sum), "{shares:?}");
        assert_eq!(shares, run());
    }
}
