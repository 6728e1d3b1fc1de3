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
    let (indices, arrangement) = match &trial.way {
        Way::Plain(index) => (vec![*index], Arrangement::Plain),
        Way::Bonded(indices) => (indices.clone(), Arrangement::Tunnel),
    };
    run_measurement(trial, measurement(trial, indices, arrangement)?, machine, programs)
}

/// Runs the traffic of `trial` by kernel MPTCP over all its networks.
///
/// # Errors
/// If the traffic is not TCP, or a step in the guest fails.
pub fn run_multipath_tcp(trial: &Trial, machine: &Machine, programs: &Programs) -> Result<Outcome> {
    ensure!(matches!(trial.traffic, Traffic::Tcp { .. }), "MPTCP carries TCP only");
    let all = (0..trial.networks.len()).collect();
    run_measurement(trial, measurement(trial, all, Arrangement::Mptcp)?, machine, programs)
}

fn run_measurement(
    trial: &Trial,
    measurement: Measurement,
    machine: &Machine,
    programs: &Programs,
) -> Result<Outcome> {
    let measured = measurement.run(machine, programs)?;
    // Without a download there was nothing to measure it by.
    let processor_idle = (trial.traffic != Traffic::Idle).then_some(measured.guest_idle);
    Ok(Outcome { processor_idle, ..outcome(trial, measured) })
}

fn measurement(trial: &Trial, indices: Vec<usize>, arrangement: Arrangement) -> Result<Measurement> {
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
            Algorithm::Reno => Congestion::Reno,
        },
        length: trial.duration,
        // One byte is as good as idle, and ends.
        bytes: if trial.traffic == Traffic::Idle { Some(1) } else { trial.bytes },
        // Pings cost the guest time; experiments look at those through the whole bond only.
        ping: trial.bytes.is_none() && arrangement == Arrangement::Tunnel && networks.len() > 1,
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
        processor_idle: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Report;
    use sim::NetworkSpec;

    fn trial(way: Way, bytes: Option<u64>) -> Trial {
        Trial {
            networks: vec![NetworkSpec::symmetric("a", 10.0, 20), NetworkSpec::symmetric("b", 5.0, 40)],
            traffic: Traffic::Tcp { algorithm: Algorithm::Bbr, flows: 8 },
            way,
            duration: Duration::from_secs(30),
            bytes,
            seed: 7,
        }
    }

    #[test]
    fn a_trial_keeps_its_networks_and_its_flows() {
        let plain = trial(Way::Plain(1), None);
        let plain = measurement(&plain, vec![1], Arrangement::Plain).unwrap();
        assert_eq!(plain.networks.iter().map(|network| network.name).collect::<Vec<_>>(), ["b"]);
        assert_eq!(
            (plain.arrangement, plain.congestion, plain.flows),
            (Arrangement::Plain, Congestion::Bbr, 8)
        );
        let bonded = trial(Way::Bonded(vec![0, 1]), Some(5));
        let bonded = measurement(&bonded, vec![0, 1], Arrangement::Tunnel).unwrap();
        assert_eq!(
            (bonded.arrangement, bonded.networks.len(), bonded.bytes),
            (Arrangement::Tunnel, 2, Some(5))
        );
        assert!(measurement(&trial(Way::Plain(2), None), vec![2], Arrangement::Plain).is_err());
    }

    #[test]
    fn a_download_that_did_not_end_is_not_complete() {
        let flow = |bytes| {
            let report = serde_json::json!({
                "began_at": 9.5, "bytes": bytes, "seconds": 2.0, "first_byte_milliseconds": 1.0, "gaps": [], "tenths": [bytes],
                "longest_gap": {"at_seconds": 0.5, "milliseconds": 70.0}, "intact": true,
            });
            serde_json::from_value(report).unwrap()
        };
        let outcome_of = |bytes| {
            let report =
                Report::of_flows(Transport::Tcp, Congestion::Bbr, false, vec![flow(1_000_000), flow(bytes)]);
            let measured = Measured {
                report,
                idle_ping: None,
                loaded_ping: None,
                guest_idle: 0.5,
                wall_seconds: 1.0,
                logs: Vec::new(),
            };
            outcome(&trial(Way::Plain(0), Some(1_000_000)), measured)
        };
        assert_eq!(outcome_of(1_000_000).completed_after, Some(Duration::from_secs(2)));
        assert!((outcome_of(1_000_000).goodput_mbps - 8.0).abs() < 1e-9);
        assert_eq!(outcome_of(999_999).completed_after, None);
        assert_eq!(outcome_of(1).longest_gap, Duration::from_millis(70));
    }
}
