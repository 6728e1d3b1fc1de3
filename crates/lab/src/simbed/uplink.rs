//! A home's uplink that is lent: a stream of the bond goes up beside what the home's owner sends.

use super::fairness::add_junction;
use super::host::FlowEnd;
use super::measure::Progress;
use super::node::{Junction, SimulatedNode};
use super::ping::{PingClient, PingServer};
use super::tcp::{Algorithm, TcpReceiver, TcpSender};
use super::trial::{LINK_MTU, addresses};
use super::tunnel::TunnelEnd;
use anyhow::Context;
use sim::{NetworkSpec, SeededRandom, World};
use std::time::Duration;
use units::Timestamp;

/// One run: who uses the uplink, and when.
#[derive(Clone, Debug)]
pub struct LentUplink {
    /// The home's way to the Internet.
    pub network: NetworkSpec,
    /// How the bond that is lent the uplink is controlled; `None` if nothing is lent.
    pub lent: Option<bond::Algorithm>,
    /// The owner sends so many bytes by TCP (CUBIC) from this time on.
    pub upload: Option<(Timestamp, u64)>,
    /// The owner's small datagrams, answered at once: one in this time.
    pub pings: Option<Duration>,
    /// When the run ends.
    pub end: Timestamp,
    /// Decides all chance.
    pub seed: u64,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub struct LentUplinkOutcome {
    /// From the owner's upload's beginning to its last arrival; `None` if nothing came.
    pub upload_took: Option<Duration>,
    /// What part of it has arrived.
    pub upload_part: f64,
    /// Round-trip times of the owner's small datagrams, milliseconds.
    pub ping_ms: Vec<f64>,
    /// (seconds, million bits per second) of what was carried for others.
    pub lent: Vec<(f64, f64)>,
    /// The same of the owner's upload, from time zero on.
    pub owner: Vec<(f64, f64)>,
}

const UPLOAD_PORTS: (u16, u16) = (50_000, 9_000);
const PING_PORTS: (u16, u16) = (39_000, 7_000);
/// The bond's handshake comes first.
const PING_START: Timestamp = Timestamp::from_millis(5_000);

impl LentUplink {
    /// Runs it.
    ///
    /// # Errors
    /// If the simulation cannot go on.
    pub fn run(&self) -> anyhow::Result<LentUplinkOutcome> {
        let seed = |name: &str| SeededRandom::derive(self.seed, name);
        let control = self.lent.unwrap_or_default();
        let far_end = TunnelEnd::gateway(seed("far").seed_bytes(), control)?;
        let home_end = TunnelEnd::device(seed("home").seed_bytes(), control, far_end.public_key(), &[0])?;
        let lend = |end: TunnelEnd| if self.lent.is_some() { end.with_stream() } else { end };
        let mut world = World::new();
        let [home_end, far_end] =
            [home_end, far_end].map(|end| world.add_node(SimulatedNode::Tunnel(Box::new(lend(end)))));
        let (near, home) = add_junction(&mut world, home_end, &[0], None);
        let (far, server) = add_junction(&mut world, far_end, &[0], None);
        let (near, far) = ((near, Junction::SHARED), (far, Junction::SHARED));
        world.add_link(near, far, self.network.up.clone(), seed("up").next_u64());
        world.add_link(far, near, self.network.down.clone(), seed("down").next_u64());
        let mut flows = Vec::new();
        if let Some((start, bytes)) = self.upload {
            let flow = addresses(UPLOAD_PORTS);
            // The far end asks for what the home then sends.
            let sender = TcpSender::new(flow, Algorithm::Cubic, LINK_MTU, Some(bytes));
            let receiver = TcpReceiver::new(flow.reversed(), start);
            flows.push((home, UPLOAD_PORTS.0, FlowEnd::TcpSender(Box::new(sender))));
            flows.push((server, UPLOAD_PORTS.1, FlowEnd::TcpReceiver(receiver)));
        }
        if let Some(interval) = self.pings {
            let flow = addresses(PING_PORTS);
            let client = PingClient::new(flow, PING_START, interval);
            flows.push((home, PING_PORTS.0, FlowEnd::PingClient(client)));
            flows.push((server, PING_PORTS.1, FlowEnd::PingServer(PingServer::new(flow.reversed()))));
        }
        for (node, port, flow) in flows {
            world.node_mut(node).host_mut().context("a host is missing")?.add(port, flow);
        }
        world.run_until(self.end).context("run the simulation")?;
        let host = |node| world.node(node).host().context("a host is missing");
        let ping_ms = match host(home)?.flow(PING_PORTS.0) {
            Some(FlowEnd::PingClient(client)) => client.round_trips_ms().to_vec(),
            _ => Vec::new(),
        };
        let lent = world.node(far_end).tunnel().and_then(TunnelEnd::stream_progress).map(Progress::series);
        let mut outcome = LentUplinkOutcome {
            upload_took: None,
            upload_part: 0.0,
            ping_ms,
            lent: lent.unwrap_or_default(),
            owner: Vec::new(),
        };
        if let Some(((start, bytes), FlowEnd::TcpReceiver(receiver))) =
            self.upload.zip(host(server)?.flow(UPLOAD_PORTS.1))
        {
            let progress = receiver.progress();
            outcome.upload_took = progress.last_arrival().map(|last| last.since(start));
            outcome.upload_part = progress.bytes() as f64 / bytes.max(1) as f64;
            let since = start.as_secs_f64();
            outcome.owner = progress.series().into_iter().map(|(at, rate)| (at + since, rate)).collect();
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lent: Option<bond::Algorithm>) -> LentUplinkOutcome {
        let network = NetworkSpec::symmetric("home", 1.2, 60);
        let upload = Some((Timestamp::from_millis(10_000), 1_500_000));
        let end = Timestamp::from_millis(40_000);
        LentUplink { network, lent, upload, pings: None, end, seed: 1 }.run().unwrap()
    }

    #[test]
    fn the_owner_has_its_uplink_to_itself_where_nothing_is_lent() {
        let alone = run(None);
        assert!(alone.lent.is_empty() && alone.upload_part == 1.0);
        // By hand: 1.5 MB and headers at 1.2 Mbit/s are 10.4 s.
        let took = alone.upload_took.unwrap();
        assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&took), "{took:?}");
    }

    #[test]
    fn what_yields_costs_the_owner_less() {
        let took = |lent| run(Some(lent)).upload_took.unwrap();
        let (equal, yields) = (took(bond::Algorithm::Model), took(bond::Algorithm::Background));
        assert!(yields < equal.mul_f64(0.9), "{yields:?} and {equal:?}");
    }
}
