//! The family LINKALIKE: upload through the neighbours, after Jakubczak, Andersen, Kaminsky, Papagiannaki, Seshan, "Link-alike".

mod analysis;
mod bound;
mod capacity;
mod compared;
mod failures;
mod one;
mod real;
mod real_failures;
mod sources;
mod strategies;
mod two_hops;
mod two_hundred;
mod yielding;

pub use bound::bound_table;
pub use one::OneNeighbourhood;

use super::{Experiment, ExperimentId};

/// The experiments of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        analysis::experiment(),
        bound::experiment(),
        two_hundred::capacity_experiment(),
        two_hundred::gain_experiment(),
        two_hundred::air_time_experiment(),
        compared::experiment(),
        two_hops::experiment(),
        failures::experiment(),
        sources::experiment(),
        real::experiment(),
        real_failures::experiment(),
        yielding::experiment(),
    ]
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "LINKALIKE".to_owned(), name: name.to_owned() }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The value below which `part` of all lie; 0 if there are none.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 - 1.0).max(0.0) * part).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}
