//! The addresses that a card acknowledges beside its own.

use std::fs;
use std::path::Path;

use units::MacAddress;

use super::capabilities::Radio;

/// Addresses that the driver offers for further interfaces of `radio`, its own left out; empty where it acknowledges one only or does
/// not tell.
pub fn further_addresses(radio: &Radio) -> Vec<MacAddress> {
    let text = fs::read_to_string(Path::new(CLASS).join(&radio.name).join("addresses"));
    listed(&text.unwrap_or_default(), radio.address)
}

/// One address a line.
fn listed(text: &str, own: Option<MacAddress>) -> Vec<MacAddress> {
    let mut found: Vec<MacAddress> = Vec::new();
    for address in text.lines().filter_map(|line| line.trim().parse().ok()).take(MOST_ADDRESSES) {
        if Some(address) != own && !address.is_group() && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

const CLASS: &str = "/sys/class/ieee80211";
const MOST_ADDRESSES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_address_and_nonsense_are_left_out() {
        let own = MacAddress([2, 0, 0, 0, 2, 0]);
        let other = MacAddress([0x42, 0, 0, 0, 2, 0]);
        let text = format!("{own}\n{other}\n{other}\nff:ff:ff:ff:ff:ff\nnonsense\n");
        assert_eq!(listed(&text, Some(own)), [other]);
    }
}
