//! Homes that lend each other their uplinks: the air between a source and its neighbours, and their ways to a destination, in virtual time.
//!
//! Pure: losses come from one seed. [`Transfer`] runs the state machines of `upload`; [`striping`] and [`coded`] are the baselines that have
//! none: TCP through each neighbour, and network coding.

pub mod coded;
mod generate;
mod spec;
pub mod striping;
mod text;
mod transfer;
mod uplink;

pub use generate::{NEIGHBOURHOODS, SEED, TWO_HOPS, generate, two_hops};
pub use spec::{AIR_FRAME, HeardTogether, NeighbourSpec, NeighbourhoodSpec, RATES, UplinkSpec, air_times};
pub use text::{NotANeighbourhood, RATE_NAMES, parse, write};
pub use transfer::{Absence, Conduct, Fault, Fellow, Outcome, Transfer};
pub use uplink::{CHUNK, carried_bytes};
