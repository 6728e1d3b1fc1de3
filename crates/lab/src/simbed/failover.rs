//! What a download feels when the network that carries most of it goes away and comes back.

use super::host::FlowEnd;
use super::tcp::Algorithm;
use super::trial::{Built, FIRST_CLIENT_PORT, SimulatedWorld, Traffic, Trial, Way};
use anyhow::Context;
use sim::{Change, LinkState, NetworkSpec, NodeId};
use std::time::Duration;
use units::Timestamp;

/// A bonded TCP download during which one network goes away.
#[derive(Clone, Debug)]
pub struct Failover {
    /// The device's networks.
    pub networks: Vec<NetworkSpec>,
    /// Which of them goes away.
    pub index: usize,
    /// The device's kernel reports it; otherwise the network just falls silent.
    pub is_reported: bool,
    /// When it goes away.
    pub at: Timestamp,
    /// How long it is away.
    pub outage: Duration,
    /// Decides all chance.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FailoverOutcome {
    /// Longest time in which the TCP receiver got nothing, from the outage's start to its end.
    pub gap: Duration,
    /// Time from the network's return until it carries data; `None` if it did not.
    pub returned_after: Option<Duration>,
}

/// The network carries data again when so many bytes have come over it.
const CARRYING_BYTES: u64 = 20_000;
/// How long its return is watched.
const RETURN_PATIENCE: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_millis(5);

impl Failover {
    /// Runs the download and the outage.
    ///
    /// # Errors
    /// If the simulation cannot go on, or nothing is downloaded.
    pub fn run(&self) -> anyhow::Result<FailoverOutcome> {
        let Built { mut world, device, device_end, links, .. } = self.trial().build()?;
        let device_end = device_end.context("the bond has no end at the device")?;
        let links = *links.get(&self.index).with_context(|| format!("there is no network {}", self.index))?;
        let set = |world: &mut SimulatedWorld, is_up: bool| {
            let state = if is_up { LinkState::Up } else { LinkState::Silent };
            for link in links {
                world.change_link(link, Change::State(state));
            }
            let now = world.now();
            if self.is_reported
                && let Some(end) = world.node_mut(device_end).tunnel_mut()
            {
                end.set_network(now, self.index, is_up);
            }
        };
        world.run_until(self.at).context("run the simulation")?;
        forget_gaps(&mut world, device)?;
        set(&mut world, false);
        world.run_for(self.outage).context("run the simulation")?;
        let gap = longest_gap(&world, device)?;
        set(&mut world, true);
        let (returned, before) = (world.now(), world.link_statistics(links[1]).delivered_bytes);
        let mut returned_after = None;
        while returned_after.is_none() && world.now() < returned + RETURN_PATIENCE {
            world.run_for(STEP).context("run the simulation")?;
            if world.link_statistics(links[1]).delivered_bytes >= before + CARRYING_BYTES {
                returned_after = Some(world.now().since(returned));
            }
        }
        Ok(FailoverOutcome { gap, returned_after })
    }

    fn trial(&self) -> Trial {
        Trial {
            networks: self.networks.clone(),
            traffic: Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 },
            way: Way::Bonded((0..self.networks.len()).collect()),
            duration: Duration::ZERO,
            bytes: None,
            seed: self.seed,
        }
    }
}

fn forget_gaps(world: &mut SimulatedWorld, device: NodeId) -> anyhow::Result<()> {
    match world.node_mut(device).host_mut().and_then(|host| host.flow_mut(FIRST_CLIENT_PORT)) {
        Some(FlowEnd::TcpReceiver(receiver)) => {
            receiver.progress_mut().forget_gaps();
            Ok(())
        }
        _ => anyhow::bail!("there is no download"),
    }
}

fn longest_gap(world: &SimulatedWorld, device: NodeId) -> anyhow::Result<Duration> {
    match world.node(device).host().and_then(|host| host.flow(FIRST_CLIENT_PORT)) {
        Some(FlowEnd::TcpReceiver(receiver)) => Ok(receiver.progress().longest_gap(Some(world.now()))),
        _ => anyhow::bail!("there is no download"),
    }
}
