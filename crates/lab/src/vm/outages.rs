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
        let samples = samples(&measured)?;
        Ok(OutagesMeasured {
            gaps: gaps(&measured.report.flows, &samples, self.trials)?,
            returns: self.returns(&samples),
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

    fn returns(&self, samples: &[Sample]) -> Vec<f64> {
        (0..self.trials).map(|trial| return_ms(samples, trial).unwrap_or(f64::MAX)).collect()
    }
}

fn start_of(trial: u32) -> Duration {
    FIRST + (PERIOD + SHIFT) * trial
}

/// What the leaving network had carried at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sample {
    /// Seconds since the machine's start.
    at: f64,
    bytes: u64,
}

/// The longest gap that began or went on in each outage, milliseconds; one too short to be kept counts as the
/// shortest that is. The flow's own losses make gaps too: those that ended before the outage are not its.
fn gaps(flows: &[FlowReport], samples: &[Sample], trials: u32) -> anyhow::Result<Vec<f64>> {
    let [flow] = flows else { anyhow::bail!("{} flows were measured, not one", flows.len()) };
    ensure!(flow.gaps.len() < MAX_GAPS, "the flow had more gaps than are kept");
    let longest_in = |trial| -> anyhow::Result<f64> {
        let stopped = stop(samples, trial).context("the network's bytes were not sampled in an outage")?;
        let start = stopped.at - SAMPLED_LATE;
        let end = stopped.at + OUTAGE.as_secs_f64();
        let inside = flow.gaps.iter().filter(|gap| {
            let at = flow.began_at + gap.at_seconds;
            at < end && at + gap.milliseconds / 1e3 > start
        });
        Ok(inside.map(|gap| gap.milliseconds).fold(SHORTEST_GAP, f64::max))
    };
    (0..trials).map(longest_in).collect()
}

fn samples(measured: &Measured) -> anyhow::Result<Vec<Sample>> {
    let file = measured.logs.iter().find(|(name, _)| name == SAMPLES);
    let (_, text) = file.context("the guest left no samples of the network's bytes")?;
    parse_samples(text)
}

fn parse_samples(text: &str) -> anyhow::Result<Vec<Sample>> {
    let parse = |line: &str| -> anyhow::Result<Sample> {
        let (at, bytes) = line.split_once(' ').with_context(|| format!("not a sample: {line:?}"))?;
        Ok(Sample {
            at: at.parse().with_context(|| format!("not a sample: {line:?}"))?,
            bytes: bytes.parse().with_context(|| format!("not a sample: {line:?}"))?,
        })
    };
    text.lines().map(parse).collect()
}

/// The first sample after the network's last bytes before an outage.
fn stop(samples: &[Sample], trial: u32) -> Option<Sample> {
    // The schedule began with the samples. Surely within the outage:
    let middle = samples.first()?.at + start_of(trial).as_secs_f64() + OUTAGE.as_secs_f64() / 2.0;
    let silent = samples.iter().rfind(|sample| sample.at <= middle)?;
    samples.iter().find(|sample| sample.bytes >= silent.bytes).copied()
}

/// From the end of an outage until the network has carried [`DATA`], ms. The outage began when bytes stopped to come;
/// what was then on its way came one delay late, as does the data.
fn return_ms(samples: &[Sample], trial: u32) -> Option<f64> {
    let up = stop(samples, trial)?.at + OUTAGE.as_secs_f64();
    let at_return = samples.iter().rfind(|sample| sample.at <= up)?;
    let carries = |sample: &&Sample| sample.at > up && sample.bytes >= at_return.bytes + DATA;
    samples.iter().find(carries).map(|sample| (sample.at - up) * 1e3)
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
/// By how much a sample may be later than what it shows: the time between two, and the coarseness of their clock; seconds.
const SAMPLED_LATE: f64 = 0.03;
/// A file of the guest's; those that end so come back.
const SAMPLES: &str = "leaving.log";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Gap;

    /// 20 kB a sample until 106.04 s, one probe in the outage's end, data again from 109.3 s on.
    fn outage() -> Vec<Sample> {
        let mut bytes = 0;
        let sample = |number: u32| {
            let at = 100.0 + f64::from(number) * 0.02;
            bytes += match at {
                _ if at <= 106.05 => 20_000,
                _ if (109.09..109.11).contains(&at) => 100,
                _ if at >= 109.299 => 20_000,
                _ => 0,
            };
            Sample { at, bytes }
        };
        (0..600).map(sample).collect()
    }

    #[test]
    fn a_return_is_counted_from_the_end_of_the_outage_to_data() {
        let samples = outage();
        let returned = return_ms(&samples, 0).unwrap();
        assert!((returned - 260.0).abs() < 21.0, "{returned}");
        assert_eq!(return_ms(&samples[..400], 0), None);
    }

    #[test]
    fn only_gaps_of_the_outage_count() {
        let gap = |at_seconds, milliseconds| Gap { at_seconds, milliseconds };
        // The outage is from 5.94 s to 8.94 s of the flow, to a sample.
        let flow = FlowReport {
            began_at: 100.1,
            bytes: 1,
            seconds: 30.0,
            first_byte_milliseconds: 1.0,
            longest_gap: gap(0.5, 900.0),
            gaps: vec![gap(0.5, 900.0), gap(5.78, 120.0), gap(5.93, 40.0), gap(7.5, 35.0), gap(9.0, 300.0)],
            tenths: Vec::new(),
            intact: true,
        };
        assert_eq!(gaps(std::slice::from_ref(&flow), &outage(), 1).unwrap(), [40.0]);
        let quiet = FlowReport { gaps: Vec::new(), ..flow };
        assert_eq!(gaps(&[quiet], &outage(), 1).unwrap(), [SHORTEST_GAP]);
    }

    #[test]
    fn samples_are_read() {
        let samples = parse_samples("12.50 100\n12.75 300\n").unwrap();
        assert_eq!(samples, [Sample { at: 12.5, bytes: 100 }, Sample { at: 12.75, bytes: 300 }]);
        assert!(parse_samples("12.50\n").is_err());
    }
}
