use proptest::prelude::*;

use super::*;
use crate::netlink::message::{HEADER, Request};
use crate::test_namespace::in_namespace;

const POINT: [u8; 6] = [2, 0, 0, 0, 1, 0];

/// The attributes that `fill` adds, as the kernel would send them.
fn built(fill: impl FnOnce(&mut Request)) -> Vec<u8> {
    let mut request = Request::new(0, 0, &[]);
    fill(&mut request);
    request.finish(0).split_off(HEADER)
}

fn scan_result(status: Option<u32>) -> Vec<u8> {
    built(|answer| {
        answer.number(ATTRIBUTE_INDEX, 3).nested(ATTRIBUTE_BSS, |network| {
            network.attribute(BSS_ADDRESS, &POINT).number(BSS_FREQUENCY, 5240);
            // Supported rates first, then the name.
            network.attribute(BSS_ELEMENTS, b"\x01\x02\x0c\x18\x00\x04cafe\x03\x01\x30");
            network.number(BSS_SIGNAL, -6150i32 as u32);
            if let Some(status) = status {
                network.number(BSS_STATUS, status);
            }
        });
    })
}

fn station(address: [u8; 6]) -> Vec<u8> {
    built(|answer| {
        answer.attribute(ATTRIBUTE_ADDRESS, &address).nested(ATTRIBUTE_STATION, |station| {
            station.attribute(STATION_SIGNAL, &[-58i8 as u8]).attribute(STATION_MEAN_SIGNAL, &[-60i8 as u8]);
            station.nested(STATION_TRANSMIT_RATE, |rate| {
                rate.attribute(RATE_SHORT, &8667u16.to_ne_bytes()).number(RATE_LONG, 8667);
            });
            station.nested(STATION_RECEIVE_RATE, |rate| {
                rate.attribute(RATE_SHORT, &60u16.to_ne_bytes());
            });
            station.attribute(STATION_BEACON_SIGNAL, &[(-63_i8) as u8]).number(STATION_RECEIVED, 4321);
            station.attribute(STATION_RECEIVE_TIME, &1_500_000_u64.to_ne_bytes());
            station.number(STATION_TRANSMITTED, 1000).number(STATION_RETRIES, 70).number(STATION_FAILED, 2);
        });
    })
}

#[test]
fn the_associated_access_point_is_read_with_its_signal_and_rates() {
    let mut found = parse_access_point(&scan_result(Some(ASSOCIATED))).unwrap();
    assert_eq!(found.ssid, Ssid::new(b"cafe"));
    assert_eq!((found.bssid, found.frequency.channel()), (MacAddress(POINT), Some(48)));
    assert_eq!(found.signal_dbm, Some(-62));
    add_station(&mut found, &station([9; 6]));
    assert_eq!(found.transmit_rate, None, "that was another station");
    add_station(&mut found, &station(POINT));
    assert_eq!((found.signal_dbm, found.beacon_dbm), (Some(-60), Some(-63)));
    assert_eq!(found.transmit_rate, Some(BitRate(866_700_000)));
    assert_eq!(found.receive_rate, Some(BitRate(6_000_000)));
    assert_eq!(found.received, Some(4321));
    assert_eq!(found.receive_time, Some(Duration::from_millis(1_500)));
    assert_eq!((found.transmitted, found.retries, found.failed), (Some(1000), Some(70), Some(2)));
}

/// The kernel counts 17 classes, the last of them what has none.
#[test]
fn only_packets_of_data_are_counted_where_they_are_told_apart() {
    let station = |told: &[u16]| {
        built(|answer| {
            answer.attribute(ATTRIBUTE_ADDRESS, &POINT).nested(ATTRIBUTE_STATION, |station| {
                station.number(STATION_RECEIVED, 4321).nested(STATION_BY_CLASS, |classes| {
                    for class in 1..=17_u16 {
                        classes.nested(class, |counts| {
                            let count = if class == 17 { u64::from(u32::MAX) } else { u64::from(class) };
                            told.iter().for_each(|kind| {
                                counts.attribute(*kind, &count.to_ne_bytes());
                            });
                        });
                    }
                });
            });
        })
    };
    let received = |told: &[u16]| {
        let mut found = parse_access_point(&scan_result(Some(ASSOCIATED))).unwrap();
        add_station(&mut found, &station(told));
        found.received
    };
    assert_eq!(received(&[CLASS_RECEIVED, 2]), Some((1..=16).sum::<u32>().wrapping_sub(1)));
    assert_eq!(received(&[2]), Some(4321), "only what was sent is told apart");
    assert_eq!(received(&[]), Some(4321));
}

#[test]
fn other_access_points_in_range_are_not_taken() {
    assert_eq!(parse_access_point(&scan_result(None)), None);
    assert_eq!(parse_access_point(&scan_result(Some(0))), None, "authenticated only");
}

#[test]
fn interfaces_are_read_and_devices_without_are_not() {
    let bytes = built(|answer| {
        answer.number(ATTRIBUTE_INDEX, 3).text(ATTRIBUTE_NAME, "wlan0");
        answer.number(ATTRIBUTE_RADIO, 0).number(ATTRIBUTE_MODE, 2).number(ATTRIBUTE_FREQUENCY, 2_437);
    });
    let expected = WirelessInterface {
        index: 3,
        name: "wlan0".into(),
        radio: Some(0),
        mode: WirelessMode::Station,
        frequency: Some(Frequency(2_437)),
    };
    assert_eq!(parse_interface(&bytes), Some(expected));
    assert_eq!(
        parse_interface(&built(|answer| {
            answer.number(ATTRIBUTE_MODE, 10);
        })),
        None
    );
}

#[test]
fn channels_of_all_bands() {
    let table =
        [(2412, 1), (2472, 13), (2484, 14), (5180, 36), (5825, 165), (5935, 2), (5955, 1), (7115, 233)];
    for (frequency, channel) in table {
        assert_eq!(Frequency(frequency).channel(), Some(channel), "{frequency} MHz");
    }
    for frequency in [0, 900, 2400, 5000, 5949, 58_320, u32::MAX] {
        assert_eq!(Frequency(frequency).channel(), None, "{frequency} MHz");
    }
}

#[test]
fn names_are_shown_without_control_characters_and_hidden_ones_are_none() {
    assert_eq!(Ssid::new(b"caf\xc3\xa9\x1b[2J").unwrap().to_string(), "caf\u{e9}\u{fffd}[2J");
    assert_eq!(Ssid::new(&[0; 8]), None);
    assert_eq!(Ssid::new(b""), None);
    assert_eq!(Ssid::new(&[b'a'; 33]), None);
    assert_eq!(ssid_of(b"\x00\x20short"), None);
}

#[test]
fn this_machine_is_asked_for_real() {
    in_namespace(|| match Wireless::open() {
        Err(WirelessError::None) => eprintln!("no wireless card here"),
        Err(error) => panic!("{error}"),
        // A fresh namespace has no card in it.
        Ok(mut wireless) => assert_eq!(wireless.interfaces().unwrap(), []),
    });
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(parse_interface(&bytes));
        drop(parse_access_point(&bytes));
        drop(ssid_of(&bytes));
        let mut association = parse_access_point(&scan_result(Some(ASSOCIATED))).unwrap();
        add_station(&mut association, &bytes);
        let inside = built(|answer| { answer.attribute(ATTRIBUTE_BSS, &bytes); });
        drop(parse_access_point(&inside));
        let inside = built(|answer| {
            answer.attribute(ATTRIBUTE_ADDRESS, &POINT).attribute(ATTRIBUTE_STATION, &bytes);
        });
        add_station(&mut association, &inside);
    }
}
