//! Where a network is looked for whose next access point is expected somewhere.

use std::time::Duration;

use rand::SeedableRng;
use units::Ssid;

use super::*;
use crate::waking::Waking;

const CHANNELS: [u32; 4] = [2_412, 2_437, 2_462, 5_180];

/// The channels that are listened to, one after the other.
fn visited(succession: Succession, visits: usize) -> Vec<u32> {
    let permitted = |megahertz| PermittedChannel { frequency: Frequency(megahertz), active: true };
    let settings = StationSettings {
        address: MacAddress([2, 0, 0, 0, 0, 9]),
        further: Vec::new(),
        channels: CHANNELS.map(permitted).to_vec(),
        slots: SlotSettings::default(),
        scan_weight: 0,
    };
    let mut station = Station::new(settings, StdRng::seed_from_u64(1));
    let network = NetworkSettings {
        ssid: Ssid::new(b"street").unwrap(),
        passphrase: None,
        bssid: None,
        avoided: Vec::new(),
        hidden: false,
        weight: 1,
        waking: Waking::Measured,
        group: None,
    };
    let mut now = Timestamp::ZERO;
    station.add_network(now, NetworkId(1), network);
    station.set_succession(NetworkId(1), succession.clone());
    assert_eq!(station.succession(NetworkId(1)), Some(&succession));
    let mut visited = Vec::new();
    while visited.len() < visits {
        if let Some(frequency) = station.poll_tune() {
            visited.push(frequency.0);
            station.handle_tuned(now, frequency);
        }
        while station.poll_transmit(now).is_some() {}
        now += Duration::from_millis(1);
        station.handle_timeout(now);
    }
    visited
}

#[test]
fn every_second_visit_is_where_it_is_expected_and_the_others_are_everywhere() {
    let point = |last| MacAddress([2, 0, 0, 0, 1, last]);
    let mut way = Succession::default();
    way.arrived(point(1), Frequency(2_412));
    way.arrived(point(2), Frequency(5_180));
    way.arrived(point(1), Frequency(2_412));
    let channels = visited(way.clone(), 12);
    let expected = channels.iter().filter(|channel| **channel == 5_180).count();
    assert!((5..=7).contains(&expected), "{channels:?}");
    assert!(CHANNELS.iter().all(|channel| channels.contains(channel)), "{channels:?}");
    way.begin();
    assert_eq!(visited(way, 8), [CHANNELS, CHANNELS].concat(), "nothing is expected");
}

#[test]
fn a_channel_that_the_card_does_not_have_is_not_expected() {
    let point = |last| MacAddress([2, 0, 0, 0, 1, last]);
    let mut way = Succession::default();
    way.arrived(point(1), Frequency(2_412));
    way.arrived(point(2), Frequency(5_825));
    way.arrived(point(1), Frequency(2_412));
    assert_eq!(visited(way, 8), [CHANNELS, CHANNELS].concat());
}
