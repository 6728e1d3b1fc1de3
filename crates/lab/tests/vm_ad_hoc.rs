//! The side channel in the virtual machine: nine tenths of the radio with an access point, one tenth in an ad hoc group with a peer that
//! is the kernel's own. Skipped with a reason where a part of the bed cannot be had, except in CI.

use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use sim::NetworkSpec;

const KNOWN: &str = r#"
[[network]]
ssid = "cafe"
weight = 9

[[network]]
ssid = "side"
ad_hoc_channel = 6
address = "10.9.0.1/24"
"#;

fn script() -> String {
    format!(
        r#"peer() {{ in_namespace peer "$@"; }}
        radio_up --alpha 0
        address_on wl-cafe
        peer iw dev wlan0 set type ibss; ip -n peer link set dev wlan0 up; ip -n peer addr add 10.9.0.2/24 dev wlan0
        peer iw dev wlan0 ibss join side 2437
        for _ in $(seq 60); do at_home ping -q -c 1 -W 1 -I wl-side 10.9.0.2 >/dev/null && break; done
        own list; own list --json >/results/list; peer iw dev wlan0 info; peer iw dev wlan0 link >/results/peer-link; peer iw dev wlan0 station dump
        at_home ping -q -i 0.02 -c 300 -W 2 -I wl-cafe {SERVER_ADDRESS} >/results/cafe.ping & one=$!
        at_home ping -q -i 0.1 -c 60 -W 2 -I wl-side 10.9.0.2 >/results/side.ping & two=$!
        wait $one $two
        peer ping -q -i 0.1 -c 60 -W 2 10.9.0.1 >/results/peer.ping
        own scan; radio_down
        cat /results/*.ping /results/radio.log"#
    )
}

#[test]
fn an_access_point_and_an_ad_hoc_peer_share_one_radio() {
    let mut wifi = Wifi::new(vec![WifiNetwork {
        link: NetworkSpec::symmetric("cafe", 10.0, 20),
        points: vec![AccessPoint::open("cafe", 1)],
    }]);
    wifi.stations.push(("peer", 1));
    let scene = RadioScene::new(wifi, KNOWN, script());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let result = |name: &str| outcome.text(name);

    let list: serde_json::Value = serde_json::from_str(&result("list")).unwrap();
    let side = &list[1]["now"];
    let share = side["share"].as_f64().unwrap();
    assert!((0.08..0.13).contains(&share), "{list}");
    assert_eq!(side["addresses"][0], "10.9.0.1", "{list}");
    let bssid = side["bssid"].as_str().unwrap();
    assert!(
        result("peer-link").contains(bssid),
        "{} is not the peer's group: {}",
        bssid,
        result("peer-link")
    );

    let cafe = result("cafe.ping");
    assert!(cafe.contains(" 300 packets received") && cafe.contains(" 0% packet loss"), "{cafe}");
    // Answers come at once, while we are still there, unless the slot ends just then.
    let through = received(&result("side.ping"));
    println!("asked by us: {through} of 60; asked by the peer: {} of 60", received(&result("peer.ping")));
    assert!(through >= 48, "{}", result("side.ping"));
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// How many answers ping received.
fn received(said: &str) -> u32 {
    let before = said.split(" packets received").next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
