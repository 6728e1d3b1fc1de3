//! One radio at two access points of one extended service set, on two channels and one bridge, in the virtual machine: unmodified hostapd
//! and an address for each. Skipped with a reason where a part of the bed cannot be had, except in CI.

use std::path::PathBuf;

use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use lab::vm::{Job, Machine};
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
        r#". /job/networks; . /job/wifi; build_networks; build_air
        at_home() {{ in_namespace device "$@"; }}
        own() {{ at_home anabranch --state /tmp/state radio "$@"; }}
        mkdir -p /tmp/state/radio; cp /job/radio.toml /tmp/state/radio/; chmod 700 /tmp/state /tmp/state/radio; chmod 600 /tmp/state/radio/radio.toml
        ip netns exec device anabranch --state /tmp/state radio up >/results/radio.log 2>&1 &
        radio=$!
        for interface in a b; do
            for _ in $(seq 150); do at_home ip addr show "wl-$interface" 2>/dev/null | grep -q 'inet ' && break; sleep 0.1; done
        done
        sleep 1; own list; own list --json >/results/list; at_home ip -brief link
        at_home ping -q -i 0.02 -c 200 -W 2 -I wl-a {SERVER_ADDRESS} >/results/a.ping & one=$!
        at_home ping -q -i 0.02 -c 200 -W 2 -I wl-b {SERVER_ADDRESS} >/results/b.ping & two=$!
        wait $one $two
        in_namespace ap-home bridge fdb show br br0 | grep -v permanent >/results/bridge; cat /results/bridge
        own down; wait $radio; echo "radio ended with $?"; at_home iw dev
        cat /results/*.ping /results/radio.log"#
    )
}

#[test]

fn one_radio_is_at_two_access_points_of_one_set() {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_anabranch-lab"));
    let anabranch = own.with_file_name("anabranch");
    if !anabranch.exists() {
        println!("skipped: {} is not built; cargo build -p anabranch-cli", anabranch.display());
        return;
    }
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let wifi = Wifi::new(vec![WifiNetwork {
        link: NetworkSpec::symmetric("home", 10.0, 20),
        points: vec![AccessPoint::open("home", 1), AccessPoint::open("home", 11)],
    }]);
    let mut job = Job::new(script());
    wifi.add_to(&mut job).unwrap();
    job.files.insert("/job/radio.toml".into(), KNOWN.into());
    job.programs.extend([anabranch, lab::vm::program("bridge", "iproute2").unwrap()]);
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    assert_eq!(outcome.exit, 0, "{}", outcome.output);
    let result = |name: &str| String::from_utf8_lossy(&outcome.files[name]).into_owned();

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
