//! The JSON that programs in other languages rely on.

use std::time::Duration;

use policy::{PathStatus, Priority};
use serde_json::json;
use units::{BitRate, Bytes, NetworkId, PathId};

use super::*;

#[test]
fn a_network_reads_as_documented() {
    let path = PathReport {
        id: PathId(1),
        remote: "[2001:db8::1]:4600".parse().unwrap(),
        carrier: CarrierKind::Udp,
        status: PathStatus::Backup,
        health: PathHealth::Suspect,
        why: "silent for 300 ms".to_owned(),
        rate: Some(BitRate(40_000_000)),
        rtt: Some(Duration::from_micros(20_400).into()),
        min_rtt: None,
        extra_delay: None,
        loss: Fraction(0.005),
        in_flight: Bytes(1_452),
        share: None,
        mtu: Bytes(1_452),
        traffic: Traffic { sent: Bytes(5), ..Traffic::default() },
        window: None,
        packets: None,
    };
    let network = NetworkReport {
        id: NetworkId(3),
        name: "wwan0".to_owned(),
        connected: true,
        addresses: vec!["192.0.2.7".parse().unwrap()],
        status: PathStatus::Active,
        why: String::new(),
        priority: Priority(1),
        backup: false,
        metered: true,
        off: false,
        paths: vec![path],
        direct: None,
    };
    let expected = json!({
        "id": 3, "name": "wwan0", "connected": true, "addresses": ["192.0.2.7"], "status": "active", "why": "",
        "priority": 1, "backup": false, "metered": true, "off": false,
        "paths": [{
            "id": 1, "remote": "[2001:db8::1]:4600", "carrier": "udp", "status": "backup", "health": "suspect",
            "why": "silent for 300 ms", "rate": 40_000_000, "rtt_us": 20_400, "min_rtt_us": null,
            "extra_delay_us": null, "loss": 0.005, "in_flight": 1_452, "mtu": 1_452, "share": null,
            "traffic": { "sent": 5, "received": 0, "sending": 0, "receiving": 0 },
        }],
    });
    assert_eq!(serde_json::to_value(&network).unwrap(), expected);
    assert_eq!(serde_json::from_value::<NetworkReport>(expected).unwrap(), network);
}

#[test]
fn answers_of_a_newer_daemon_are_read_and_wrong_requests_are_not() {
    let answer = json!({ "undone": ["route"], "failed": [], "new": 1 });
    assert_eq!(serde_json::from_value::<DownReport>(answer).unwrap().undone, ["route"]);
    for request in [json!({ "colour": 1 }), json!({ "priority": 256 }), json!({ "backup": "yes" })] {
        assert!(serde_json::from_value::<NetworkChange>(request).is_err());
    }
    let forward = json!({ "port": 80 });
    let read: ForwardRequest = serde_json::from_value(forward).unwrap();
    assert_eq!((read.protocol, read.client.as_deref()), (TransportProtocol::Tcp, None));
    assert!(serde_json::from_value::<ForwardRequest>(json!({ "port": 0 })).is_err());
}

#[test]
fn a_link_is_sent_but_not_shown() {
    let invited = Invited {
        name: "van".to_owned(),
        link: LinkText("anabranch://join/secret".to_owned()),
        expires: UnixMillis(1),
        replaced: false,
    };
    assert_eq!(serde_json::to_value(&invited).unwrap()["link"], "anabranch://join/secret");
    assert!(!format!("{invited:?}").contains("secret"));
}
