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
    /// How often.
    pub trials: u32,
    /// Seeds all chance of the run.
    pub seed: u32,
}

/// What the download felt.
#[derive(Clone, PartialEq, Debug)]
pub struct OutagesMeasured {
    /// The longest gap of each outage, milliseconds; 20 if there was none as long.
    pub gaps: Vec<f64>,
    /// Milliseconds from each outage's end until the network had carried data again; for ever if it did not.
    pub returns: Vec<f64>,
    /// The whole download's.
    pub goodput_mbps: f64,
    /// Part of the guest's processor time that was left over.
    pub guest_idle: f64,
}

impl Outages {
    /// Boots `machine` twice at a time and measures silent outages and those that the kernel reports.
    ///
    /// # Errors
    /// If a program is missing or a step in the guest fails.
    pub fn run(
        &self,
        machine: &Machine,
        programs: &Programs,
    ) -> anyhow::Result<[(&'static str, OutagesMeasured); 2]> {
        let kinds = [("silent", LinkState::Silent), ("reported", LinkState::Down)];
        let measured = std::thread::scope(|scope| {
            kinds
                .map(|(_, state)| scope.spawn(move || self.measure(state, machine, programs)))
                .map(std::thread::ScopedJoinHandle::join)
        });
        let [silent, reported] = measured;
        let read = |kind: &'static str, measured: std::thread::Result<anyhow::Result<OutagesMeasured>>| {
            let measured = measured.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread panicked")));
            measured.map(|measured| (kind, measured)).with_context(|| format!("measure {kind} outages"))
        };
        Ok([read("silent", silent)?, read("reported", reported)?])
    }

    fn measure(
        &self,
        state: LinkState,
        machine: &Machine,
        programs: &Programs,
    ) -> anyhow::Result<OutagesMeasured> {
        let measured = self.measurement(state).run(machine, programs)?;
        Ok(OutagesMeasured {
            gaps: gaps(&measured.report.flows, self.trials)?,
            returns: self.returns(&measured)?,
            goodput_mbps: measured.report.goodput_mbps,
            guest_idle: measured.guest_idle,
        })
    }

    fn measurement(&self, state: LinkState) -> Measurement {
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

/// (seconds since the first sample, bytes).
fn parse_samples(text: &str) -> anyhow::Result<Vec<(f64, u64)>> {
    let mut samples: Vec<(f64, u64)> = Vec::new();
    let mut first = None;
    for line in text.lines() {
        let (now, bytes) = line.split_once(' ').with_context(|| format!("not a sample: {line:?}"))?;
        let now: f64 = now.parse().with_context(|| format!("not a sample: {line:?}"))?;
        samples.push((now - *first.get_or_insert(now), bytes.parse()?));
    }
    Ok(samples)
}

/// From the end of the outage that was to begin at `scheduled` until the network has carried [`DATA`], ms. The
/// outage began when bytes stopped to come; what was then on its way came one delay late, as does the data.
fn return_ms(samples: &[(f64, u64)], scheduled: f64) -> Option<f64> {
    // Surely within the outage.
    let middle = scheduled + OUTAGE.as_secs_f64() / 2.0;
    let (_, silent_bytes) = *samples.iter().rfind(|(at, _)| *at <= middle)?;
    let (stopped, _) = *samples.iter().find(|(_, bytes)| *bytes >= silent_bytes)?;
    let up = stopped + OUTAGE.as_secs_f64();
    let (_, bytes_at_return) = *samples.iter().rfind(|(at, _)| *at <= up)?;
    let carries = |sample: &&(f64, u64)| sample.0 > up && sample.1 >= bytes_at_return + DATA;
    samples.iter().find(carries).map(|(at, _)| (at - up) * 1e3)
}

/// From one outage to the next, and how long each lasts.
const PERIOD: Duration = Duration::from_secs(8);
const OUTAGE: Duration = Duration::from_secs(3);
/// The first outage, when the flow has long filled all networks.
const FIRST: Duration = Duration::from_secs(6);
/// Each outage is a little later within its period, so that it meets other moments of the flow.
const SHIFT: Duration = Duration::from_millis(37);
/// Fewer bytes than this are probes of a network that may be back, not data.
const DATA: u64 = 15_000;
/// What the flow's clock and the schedule's may differ by, seconds.
const CLOCK_SLACK: f64 = 0.2;
/// A file of the guest's; those that end so come back.
const SAMPLES: &str = "leaving.log";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Gap;

    #[test]
    fn a_return_is_counted_from_the_end_of_the_outage_to_data() {
        // 20 kB a sample until 6.04 s, one probe in the outage's end, data again from 9.3 s on.
        let mut samples = Vec::new();
        let mut bytes = 0;
        for number in 0..600 {
            let at = f64::from(number) * 0.02;
            bytes += match at {
                _ if at <= 6.05 => 20_000,
                _ if (9.09..9.11).contains(&at) => 100,
                _ if at >= 9.299 => 20_000,
                _ => 0,
            };
            samples.push((at, bytes));
        }
        let returned = return_ms(&samples, 6.0).unwrap();
        assert!((returned - 260.0).abs() < 21.0, "{returned}");
        assert_eq!(return_ms(&samples[..400], 6.0), None);
    }

    #[test]
    fn only_gaps_of_the_outage_count() {
        let gap = |at_seconds, milliseconds| Gap { at_seconds, milliseconds };
        let second = start_of(1).as_secs_f64();
        let flow = FlowReport {
            bytes: 1,
            seconds: 30.0,
            first_byte_milliseconds: 1.0,
            longest_gap: gap(0.5, 900.0),
            gaps: vec![gap(0.5, 900.0), gap(second - 0.01, 140.0), gap(second + 3.5, 300.0)],
            tenths: Vec::new(),
            intact: true,
        };
        assert_eq!(gaps(&[flow], 2).unwrap(), [SHORTEST_GAP, 140.0]);
    }

    #[test]
    fn samples_start_at_nought() {
        assert_eq!(parse_samples("12.50 100\n12.75 300\n").unwrap(), [(0.0, 100), (0.25, 300)]);
        assert!(parse_samples("12.50\n").is_err());
    }
}
