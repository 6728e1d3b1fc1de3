//! What any bytes from the air may do to a station.

use std::time::Duration;

use radio::airtime::HighThroughput;
use radio::quality::MOST_FOLLOWED;
use radio::scan::MOST_SEEN;
use radio::slots::SlotSettings;
use radio::{Heard, NetworkSettings, PermittedChannel, Rate, Station, StationSettings, Waking};
use rand::SeedableRng;
use rand::rngs::StdRng;
use units::{Frequency, MacAddress, NetworkId, Ssid, Timestamp};

const CHANNEL: Frequency = Frequency(2412);
const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
/// The first network's access point, which every second frame pretends to be from.
const BSSID: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// Frames of up to 255 bytes, each behind its length, at a station that wants an open and a protected network. Nothing panics, what is
/// remembered stays bounded, what is sent are whole frames, and what is reckoned of access points are ratios.
pub fn wifi(bytes: &[u8]) {
    let channels = vec![PermittedChannel { frequency: CHANNEL, active: true }];
    let settings = StationSettings {
        address: OWN,
        further: Vec::new(),
        channels,
        slots: SlotSettings::default(),
        scan_weight: 1,
    };
    let mut station = Station::new(settings, StdRng::seed_from_u64(1));
    let mut now = Timestamp::from_millis(1);
    for (number, secret) in [(1, None), (2, Some("correct horse"))] {
        let passphrase = secret.and_then(|text| radio::security::Passphrase::new(text).ok());
        let Some(ssid) = Ssid::new(b"a") else { return };
        let network = NetworkSettings {
            ssid,
            passphrase,
            bssid: None,
            avoided: Vec::new(),
            hidden: false,
            weight: 1,
            waking: Waking::Measured,
            group: None,
        };
        station.add_network(now, NetworkId(number), network);
    }
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first() {
        let (frame, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let mut frame = frame.to_vec();
        if length % 2 == 1 && frame.len() >= 22 {
            frame[4..10].copy_from_slice(&OWN.0);
            frame[10..16].copy_from_slice(&BSSID);
            frame[16..22].copy_from_slice(&BSSID);
        }
        let rate = (length % 3 > 0).then_some(Rate(*length));
        let high_throughput = HighThroughput::new(*length, length % 5 == 0, length % 7 == 0, false);
        let aggregate = (length % 4 > 1).then_some(u32::from(length / 16));
        let heard =
            Heard { frame: &frame, frequency: CHANNEL, signal_dbm: None, rate, high_throughput, aggregate };
        station.handle_frame(now, &heard);
        now += Duration::from_millis(3);
        let followed = station.qualities().iter(now);
        let followed = followed.inspect(|(_, _, estimate)| {
            assert!(
                (0.0..=1.0).contains(&estimate.delivery_ratio)
                    && (0.0..=1.0).contains(&estimate.confidence())
            );
        });
        assert!(followed.count() <= MOST_FOLLOWED);
        if station.poll_timeout(now).is_some_and(|due| due <= now) {
            station.handle_timeout(now);
        }
        while let Some(frequency) = station.poll_tune() {
            station.handle_tuned(now, frequency);
        }
        while let Some(sent) = station.poll_transmit(now) {
            assert!(sent.frame.len() >= 16 && sent.attempts >= 1);
        }
        while station.poll_packet().is_some() {}
        while station.poll_event().is_some() {}
    }
    assert!(station.seen().count() <= MOST_SEEN);
}
