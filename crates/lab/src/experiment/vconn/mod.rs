//! The family VCONN: connections that outlive their network, after Yusuf and Ramachandran, "VirtualConnection".

mod battery;
mod cost;
mod mesh;
mod multihop;
mod setup;
mod switch;
mod walk;
mod wires;

use super::{Experiment, ExperimentId};

/// The experiments of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    vec![
        setup::experiment(),
        switch::experiment(),
        cost::experiment(),
        walk::experiment(),
        battery::experiment(),
        multihop::experiment(),
        mesh::experiment(),
    ]
}

fn id(name: &str) -> ExperimentId {
    ExperimentId { key: "VCONN".to_owned(), name: name.to_owned() }
}
