//! One long download in the virtual machine (real programs and kernel, virtual time), while one network goes away and
//! comes back again and again: silently, or so that the kernel reports its link down.

use std::time::Duration;

use anyhow::{Context, ensure};
use sim::{Change, LinkSpec, LinkState, NetworkSpec, TimedChange};

use super::Machine;
use super::measurement::{Arrangement, Measured, Measurement, Programs};
use crate::traffic::{FlowReport, MAX_GAPS, SHORTEST_GAP};

/// A bonded download with outages of one network.
#[derive(Clone, Debug)]
pub struct Outages {
    /// The network that goes away; its own schedule does not count.
    pub leaving: NetworkSpec,
    /// Those that stay.
    pub others: Vec<NetworkSpec>,
    /// The kernel reports it; otherwise the network just falls silent.
    pub is_reported: bool,
    /// How often.
    pub trials: u32,
    /// Seeds all chance of the run.
    pub seed: u32,
}

/// What the download felt.
#[derive(Clone, PartialEq, Debug)]
pub struct OutagesMeasured {
    /// The longest gap of each outage, milliseconds; [`SHORTEST_GAP`] if there was none as long.
    pub gaps: Vec<f64>,
    /// Milliseconds from each outage's end until the network had carried data again; for ever if it did not.
    pub returns: Vec<f64>,
    /// The whole download's.
    pub goodput_mbps: f64,
    /// Part of the guest's processor time that was left over.
    pub guest_idle: f64,
}

impl Outages {
    /// Boots `machine` and measures.
    ///
    /// # Errors
    /// If a program is missing, a step in the guest fails, or the run does not show each outage.
    pub fn run(&self, machine: &Machine, programs: &Programs) -> anyhow::Result<OutagesMeasured> {
        let measured = self.measurement().run(machine, programs)?;
        Ok(OutagesMeasured {
            gaps: gaps(&measured.report.flows, self.trials)?,
            returns: self.returns(&measured)?,
            goodput_mbps: measured.report.goodput_mbps,
            guest_idle: measured.guest_idle,
        })
    }

    fn measurement(&self) -> Measurement {
        let state = if self.is_reported { LinkState::Down } else { LinkState::Silent };
        let schedule: Vec<TimedChange> = (0..self.trials)
            .flat_map(|trial| {
                [(start_of(trial), state), (start_of(trial) + OUTAGE, LinkState::Up)]
                    .map(|(at, state)| TimedChange { at, change: Change::State(state) })
            })
            .collect();
        let cut = |link: &LinkSpec| link.clone().with_schedule(schedule.clone(), None);
        let leaving = &self.leaving;
        let mut networks =
            vec![NetworkSpec { name: leaving.name, up: cut(&leaving.up), down: cut(&leaving.down) }];
        networks.extend(self.others.iter().cloned());
        let length = start_of(self.trials);
        Measurement {
            length,
            // The clock in hundredths of a second and the bytes that came over the network.
            beside: format!(
                "in_namespace device sh -c 'until [ -e /tmp/over ]; do read now _ </proc/uptime; \
                 read bytes </sys/class/net/{}/statistics/rx_bytes; echo $now $bytes; sleep 0.02; done' \
                 >/results/{SAMPLES} & sleep {}; touch /tmp/over; wait",
                leaving.name,
                length.as_secs() - 1
            ),
            seed: self.seed,
            ..Measurement::new(networks, Arrangement::Tunnel)
        }
    }

    fn returns(&self, measured: &Measured) -> anyhow::Result<Vec<f64>> {
        let (_, text) = measured
            .logs
            .iter()
            .find(|(name, _)| name == SAMPLES)
            .context("the guest left no samples of the network's bytes")?;
        let samples = parse_samples(text)?;
        let returned = |trial| return_ms(&samples, start_of(trial).as_secs_f64()).unwrap_or(f64::MAX);
        Ok((0..self.trials).map(returned).collect())
    }
}

fn start_of(trial: u32) -> Duration {
    FIRST + (PERIOD + SHIFT) * trial
}

/// The longest gap that began or went on in each outage, milliseconds; one too short to be kept counts as the
/// shortest that is.
fn gaps(flows: &[FlowReport], trials: u32) -> anyhow::Result<Vec<f64>> {
    let [flow] = flows else { anyhow::bail!("{} flows were measured, not one", flows.len()) };
    ensure!(flow.gaps.len() < MAX_GAPS, "the flow had more gaps than are kept");
    let longest_in = |trial| {
        let start = start_of(trial).as_secs_f64() - CLOCK_SLACK;
        let end = start + OUTAGE.as_secs_f64();
        let inside = flow
            .gaps
            .iter()
            .filter(|gap| gap.at_seconds < end && gap.at_seconds + gap.milliseconds / 1e3 > start);
        inside.map(|gap| gap.milliseconds).fold(SHORTEST_GAP, f64::max)
    };
    Ok((0..trials).map(longest_in).collect())
}
