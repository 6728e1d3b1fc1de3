//! One radio at two access points of one extended service set, on two channels and one bridge, in the virtual machine: unmodified hostapd
//! and an address for each. Skipped with a reason where a part of the bed cannot be had, except in CI.

use lab::vm::program;
use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use sim::NetworkSpec;

/// Three networks of one name, where two access points and two addresses are.
const KNOWN: &str = r#"
[[network]]
ssid = "home"
interface = "wl-a"
bssid = "02:00:00:00:00:00"

[[network]]
ssid = "home"
interface = "wl-b"
bssid = "02:00:00:00:01:00"

[[network]]
ssid = "home"
interface = "wl-c"
"#;

fn script() -> String {
    format!(
        r#"radio_up
        address_on wl-a; address_on wl-b
        sleep 1; own list; own list --json >/results/list; at_home ip -brief link
        at_home ping -q -i 0.02 -c 200 -W 2 -I wl-a {SERVER_ADDRESS} >/results/a.ping & one=$!
        at_home ping -q -i 0.02 -c 200 -W 2 -I wl-b {SERVER_ADDRESS} >/results/b.ping & two=$!
        wait $one $two
        in_namespace ap-home bridge fdb show br br0 | grep -v permanent >/results/bridge; cat /results/bridge
        radio_down; at_home iw dev
        cat /results/*.ping /results/radio.log"#
    )
}

#[test]
fn one_radio_is_at_two_access_points_of_one_set() {
    let wifi = Wifi::new(vec![WifiNetwork {
        link: NetworkSpec::symmetric("home", 10.0, 20),
        points: vec![AccessPoint::open("home", 1), AccessPoint::open("home", 11)],
    }]);
    let mut scene = RadioScene::new(wifi, KNOWN, script());
    scene.programs.push(program("bridge", "iproute2").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let result = |name: &str| outcome.text(name);

    let list: serde_json::Value = serde_json::from_str(&result("list")).unwrap();
    let address = |number: usize| list[number]["now"]["addresses"][0].as_str().unwrap().to_owned();
    assert_ne!(address(0), address(1), "one lease for both: {list}");
    assert_eq!(list[2]["now"]["state"], "searching", "{list}");
    for name in ["a", "b"] {
        let said = result(&format!("{name}.ping"));
        assert!(said.contains(" 200 packets received") && said.contains(" 0% packet loss"), "{name}: {said}");
    }
    // The bridge has learnt each address at the port of its own access point.
    let bridge = result("bridge");
    for (own, port) in [("02:00:00:00:02:00", "wlan0"), ("42:00:00:00:02:00", "wlan1")] {
        assert!(bridge.lines().any(|line| line.starts_with(own) && line.contains(port)), "{own}: {bridge}");
    }
    let after = outcome.output.split("radio ended with 0").nth(1).unwrap();
    let after = after.split("PING").next().unwrap_or_default();
    assert!(!after.contains("anyradio0"), "the card was not given back: {after}");
}
