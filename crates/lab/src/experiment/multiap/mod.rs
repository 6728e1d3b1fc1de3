//! The experiments of MULTIAP: every access point in range, and only as much as each is worth.

mod broadcasts;
mod carrier_sense;
mod course;
mod cross_check;
mod estimator;
mod fairness;
mod fairness_mptcp;
mod gaps;
mod hidden;
mod kernel_mptcp;
mod many_points;
mod many_users;
mod moving;
mod mptcp_commands;
mod nomadic;
mod reaction;
mod real_crowd;
mod real_points;
mod repeats;
mod shared_air;
mod steering;
mod street;
mod switching_air;
mod together;
mod two_channels;
mod uplink;
mod varying;
mod vehicle;
mod walk;

use super::{Experiment, ExperimentId};

/// All of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        hidden::experiment(),
        repeats::experiment(),
        carrier_sense::experiment(),
        broadcasts::experiment(),
        gaps::experiment(),
        estimator::experiment(),
        steering::experiment(),
        real_points::experiment(),
        cross_check::experiment(),
        kernel_mptcp::good_and_bad(),
        uplink::experiment(),
        kernel_mptcp::busy_uplink(),
        many_points::experiment(),
        real_crowd::experiment(),
        walk::experiment(),
        moving::walk(),
        varying::experiment(),
        moving::varying(),
        reaction::experiment(),
        moving::reaction(),
        nomadic::experiment(),
        fairness::experiment(),
        fairness_mptcp::experiment(),
        two_channels::experiment(),
        many_users::experiment(),
        together::experiment(),
        vehicle::experiment(),
    ]
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "MULTIAP".to_owned(), name: name.to_owned() }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
