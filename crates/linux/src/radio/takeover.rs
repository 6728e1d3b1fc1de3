//! Making a card ours, and giving it back.

use units::MacAddress;

use super::capabilities::Radio;
use crate::journal::Change;

/// The changes after which `radio` is ours, in order: NetworkManager lets its interfaces go, they are switched off, and a
/// monitor interface for each of `addresses` acknowledges frames to it.
///
/// The first is called `interface`, to be used with [`RadioCard::open`](super::RadioCard::open); the others only acknowledge,
/// for further stations on the same radio, and are called like it with a number. Not every card acknowledges several.
pub fn take_over(radio: &Radio, interface: &str, addresses: &[MacAddress]) -> Vec<Change> {
    let others = radio.interfaces.iter().filter(|one| one.name != interface);
    let mut changes: Vec<Change> =
        others.clone().map(|one| Change::Unmanaged { interface: one.name.clone() }).collect();
    changes.extend(others.map(|one| Change::LinkOff { interface: one.name.clone() }));
    changes.extend(addresses.iter().enumerate().map(|(at, address)| Change::Monitor {
        radio: radio.name.clone(),
        interface: if at == 0 { interface.to_owned() } else { format!("{interface}-{at}") },
        address: *address,
    }));
    changes
}
