//! A [`Trial`] of the simulated bed, run in the virtual machine instead.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Machine;
use super::measurement::{Arrangement, Measured, Measurement, Programs};
use crate::simbed::{Algorithm, Outcome, Traffic, Trial, Way};
use crate::traffic::{Congestion, PingReport, Transport};

/// Runs `trial` with real programs and a real kernel. The outcome says nothing about the bond's ends.
///
/// # Errors
/// If the trial names a network that is not there, or a step in the guest fails.
pub fn run(trial: &Trial, machine: &Machine, programs: &Programs) -> Result<Outcome> {
    let measured = measurement(trial)?.run(machine, programs)?;
    ensure!(
        measured.guest_idle >= LEAST_IDLE,
        "the guest's processor was idle for {:.2} of the time only: it, not the networks, was measured",
        measured.guest_idle
    );
    Ok(outcome(trial, measured))
}

fn measurement(trial: &Trial) -> Result<Measurement> {
    let (indices, arrangement) = match &trial.way {
        Way::Plain(index) => (vec![*index], Arrangement::Plain),
        Way::Bonded(indices) => (indices.clone(), Arrangement::Tunnel),
    };
    let networks = indices
        .into_iter()
        .map(|index| {
            trial.networks.get(index).cloned().with_context(|| format!("the trial has no network {index}"))
        })
        .collect::<Result<Vec<_>>>()?;
    let (transport, algorithm, flows) = match trial.traffic {
        Traffic::Tcp { algorithm, flows } => (Transport::Tcp, algorithm, u32::from(flows)),
        Traffic::Quic { algorithm } => (Transport::Quic, algorithm, 1),
        Traffic::Idle => (Transport::Tcp, Algorithm::Cubic, 1),
    };
    Ok(Measurement {
        transport,
        flows,
        congestion: match algorithm {
            Algorithm::Cubic => Congestion::Cubic,
            Algorithm::Bbr => Congestion::Bbr,
        },
        length: trial.duration,
        // One byte is as good as idle, and ends.
        bytes: if trial.traffic == Traffic::Idle { Some(1) } else { trial.bytes },
        ping: trial.bytes.is_none(),
        seed: u32::try_from(trial.seed % u64::from(u32::MAX))?,
        ..Measurement::new(networks, arrangement)
    })
}

pub(crate) fn outcome(trial: &Trial, measured: Measured) -> Outcome {
    let report = measured.report;
    let complete = |bytes: u64| report.flows.iter().all(|flow| flow.bytes >= bytes);
    let completed = trial.bytes.is_some_and(complete);
    let pings = measured.loaded_ping.map_or(Vec::new(), |PingReport { round_trips, .. }| round_trips);
    let (answered, lost): (Vec<f64>, Vec<f64>) = pings.into_iter().partition(|time| *time >= 0.0);
    Outcome {
        goodput_mbps: report.goodput_mbps,
        flow_goodput_mbps: report
            .flows
            .iter()
            .map(|flow| flow.bytes as f64 * 8e-6 / report.seconds.max(1e-9))
            .collect(),
        longest_gap: Duration::from_secs_f64(report.longest_gap_milliseconds.max(0.0) / 1e3),
        completed_after: completed.then(|| Duration::from_secs_f64(report.seconds)),
        ping_ms: answered,
        pings_lost: lost.len(),
        series: (0..)
            .zip(&report.tenths)
            .map(|(tenth, bytes)| (f64::from(tenth) / 10.0, *bytes as f64 * 8e-5))
            .collect(),
        ends: Vec::new(),
    }
}

/// Less idle time than this, and the processor is what bounds a flow.
const LEAST_IDLE: f64 = 0.05;
