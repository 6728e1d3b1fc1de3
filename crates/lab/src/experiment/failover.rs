//! BOND/failover: what a download feels when the network that carries most of it goes away.

use super::record::RATE_SCALE;
use super::{Axes, BarGroup, Bed, Experiment, ExperimentId, Goal, Metrics, Report};
use crate::simbed::{Failover, FailoverOutcome, quantile};
use crate::vm::Machine;
use crate::vm::measurement::Programs;
use crate::vm::outages::{Outages, OutagesMeasured};
use sim::NetworkSpec;
use std::time::Duration;
use units::Timestamp;

/// Trials of each kind.
const TRIALS: u64 = 20;
/// The first outage comes this long after the start, the others at other moments of the flow's life.
const FIRST_OUTAGE: Duration = Duration::from_millis(5_000);
const OUTAGE_STEP: Duration = Duration::from_millis(137);
/// Nothing else is left to chance in the simulation: each seed has moments of its own.
const SEED_STEP: Duration = Duration::from_millis(29);
const OUTAGE: Duration = Duration::from_secs(3);
/// The busiest network and the other one: rate in Mbit/s, round trip in ms.
const BUSIEST: (f64, u64) = (40.0, 20);
const OTHER: (f64, u64) = (20.0, 50);
/// A silent network's gap at the median: this and one round trip of the network that is left, ms.
const SILENT_GAP_MS: f64 = 150.0;
const REPORTED_GAP_MS: f64 = 50.0;
const RETURN_MS: f64 = 1_000.0;
/// By what rates are divided in the virtual machine, which cannot carry the whole.
const VM_DIVISOR: u32 = 4;

/// The experiment.
pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("trials".into(), (TRIALS as i64).into());
    spec.insert("outage_s".into(), (OUTAGE.as_secs() as i64).into());
    spec.insert("seed_step_ms".into(), (SEED_STEP.as_millis() as i64).into());
    spec.insert("busiest".into(), format!("{} Mbit/s, round trip {} ms", BUSIEST.0, BUSIEST.1).into());
    spec.insert("other".into(), format!("{} Mbit/s, round trip {} ms", OTHER.0, OTHER.1).into());
    spec.insert("traffic".into(), "tcp-cubic".into());
    spec.insert("rate_scale_vm".into(), (1.0 / f64::from(VM_DIVISOR)).into());
    let bar = |kind: &str, value: &str| (value.to_owned(), format!("{kind}.{value}"));
    let group = |kind: &str, label: &str| BarGroup {
        label: label.to_owned(),
        bars: ["median_gap_ms", "worst_gap_ms", "median_return_ms", "worst_return_ms"]
            .map(|value| bar(kind, value))
            .to_vec(),
    };
    Experiment {
        id: ExperimentId { key: "BOND".to_owned(), name: "failover".to_owned() },
        title: "the busiest of two networks goes silent, or the kernel reports it down, and comes back"
            .to_owned(),
        spec,
        paper: None,
        goals: vec![
            Goal::at_most("silent.median_gap_ms", SILENT_GAP_MS + OTHER.1 as f64),
            Goal::at_most("reported.median_gap_ms", REPORTED_GAP_MS),
            Goal::at_most("silent.worst_return_ms", RETURN_MS),
            Goal::at_most("reported.worst_return_ms", RETURN_MS),
        ],
        beds: vec![Bed::Sim, Bed::Vm],
        bars: vec![group("silent", "goes silent"), group("reported", "reported down")],
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(run),
    }
}

fn run(bed: Bed, seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    if bed == Bed::Vm {
        metrics.insert(RATE_SCALE.to_owned(), 1.0 / f64::from(VM_DIVISOR));
        let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
        for (kind, measured) in outages(seed)?.run(&machine, &programs)? {
            let OutagesMeasured { gaps, returns, goodput_mbps, guest_idle } = measured;
            add_times(&mut metrics, kind, &gaps, &returns);
            metrics.insert(format!("{kind}.goodput_mbps"), goodput_mbps);
            metrics.insert(format!("{kind}.processor_idle"), guest_idle);
        }
        return Ok(Report { metrics, ..Report::default() });
    }
    for (kind, is_reported) in [("silent", false), ("reported", true)] {
        let outcomes = (0..TRIALS).map(|number| trial(number, is_reported, seed).run());
        let outcomes: Vec<FailoverOutcome> = outcomes.collect::<anyhow::Result<_>>()?;
        let gaps: Vec<f64> = outcomes.iter().map(|outcome| milliseconds(outcome.gap)).collect();
        // A network that did not come back took for ever.
        let returns: Vec<f64> =
            outcomes.iter().map(|outcome| outcome.returned_after.map_or(f64::MAX, milliseconds)).collect();
        add_times(&mut metrics, kind, &gaps, &returns);
    }
    Ok(Report { metrics, ..Report::default() })
}

fn add_times(metrics: &mut Metrics, kind: &str, gaps: &[f64], returns: &[f64]) {
    for (name, values) in [("gap_ms", gaps), ("return_ms", returns)] {
        for (rank, fraction) in [("median", 0.5), ("worst", 1.0)] {
            if let Some(value) = quantile(values, fraction) {
                metrics.insert(format!("{kind}.{rank}_{name}"), (value * 1e3).round() / 1e3);
            }
        }
    }
}

fn networks() -> [NetworkSpec; 2] {
    [("busiest", BUSIEST), ("other", OTHER)]
        .map(|(name, (mbps, round_trip_ms))| NetworkSpec::symmetric(name, mbps, round_trip_ms))
}

fn outages(seed: u64) -> anyhow::Result<Outages> {
    let [leaving, other] = networks().map(|network| network.slowed(VM_DIVISOR));
    let seed = u32::try_from(seed % u64::from(u32::MAX))?;
    Ok(Outages { leaving, others: vec![other], trials: TRIALS as u32, seed })
}

fn trial(number: u64, is_reported: bool, seed: u64) -> Failover {
    Failover {
        networks: networks().into(),
        index: 0,
        is_reported,
        at: Timestamp::ZERO + FIRST_OUTAGE + OUTAGE_STEP * number as u32 + seed_step(seed, SEED_STEP),
        outage: OUTAGE,
        seed: seed.wrapping_mul(1_000).wrapping_add(number),
    }
}

/// What the seed adds to the moments of an experiment: nothing for the first, then `step` more for each of ten.
pub(super) fn seed_step(seed: u64, step: Duration) -> Duration {
    step * (seed.wrapping_sub(1) % 10) as u32
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
