//! A street with access points and a device in it, at rest or on its way: the radio's own station on the simulated medium.
//!
//! Access points are open; scan, authentication, association and DHCP by four messages are those of the station and of a model of what is behind
//! them, then comes a download that takes what the air and the uplinks give. The device may steer it, as the radio's daemon does.

mod drive;
mod road;
mod steered;

pub(super) use drive::{Memory, Pass, Passed, Service, go};
pub(super) use road::{PAYLOAD, WIRE};
