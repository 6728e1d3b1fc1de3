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

/// The address of a further station on a card with the address `card`: locally administered, a different one for each `number` from
/// 1 to 63, the same each time.
pub fn station_address(card: MacAddress, number: u8) -> MacAddress {
    let MacAddress([first, rest @ ..]) = card;
    // The two lowest bits are "to a group", which a station is not, and "locally administered".
    let first = ((first | 2) ^ (number << 2)) & !1;
    let [second, third, fourth, fifth, sixth] = rest;
    MacAddress([first, second, third, fourth, fifth, sixth])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_station_has_an_address_of_its_own() {
        for card in [MacAddress([0, 0x16, 0xea, 1, 2, 3]), MacAddress([2, 0, 0, 0, 3, 0])] {
            let mut addresses: Vec<MacAddress> =
                (1..=63).map(|number| station_address(card, number)).collect();
            addresses.push(card);
            assert!(addresses.iter().skip(1).all(|MacAddress([first, ..])| *first & 1 == 0));
            assert!(addresses[..63].iter().all(|MacAddress([first, ..])| *first & 2 == 2));
            addresses.sort();
            addresses.dedup();
            assert_eq!(addresses.len(), 64);
        }
    }
}
