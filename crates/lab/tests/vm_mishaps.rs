//! What may happen to a radio in two networks, in the virtual machine: forged deauthentications, a channel switch, the card switched off, the
//! card pulled out. Skipped with a reason where a part of the bed cannot be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::PathBuf;

use lab::vm::wifi::{AccessPoint, Protection, Security, Wifi, WifiNetwork};
use lab::vm::{Job, Machine};
use sim::NetworkSpec;

const KNOWN: &str = r#"
[[network]]
ssid = "cafe"

[[network]]
ssid = "home"
passphrase = "correct horse"
"#;

/// Sends deauthentications in an access point's name on a monitor interface, so many, 10 ms apart.
const FORGE: &str = r#"
import socket, sys, time
own, point = bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])
air = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
air.bind((sys.argv[1], 0))
for number in range(int(sys.argv[4])):
    header = bytes([0, 0, 12, 0, 4, 128, 0, 0, 2, 0, 24, 0])
    frame = bytes([0xc0, 0, 0, 0]) + own + point + point + (number << 4 & 0xfff0).to_bytes(2, "little") + bytes([7, 0])
    air.send(header + frame)
    time.sleep(0.01)
"#;

/// Removes the simulated radio with a number, as if it was pulled out (HWSIM_CMD_DEL_RADIO).
const PULL: &str = r#"
import socket, struct, sys
def attribute(kind, value):
    data = struct.pack("HH", len(value) + 4, kind) + value
    return data + bytes(-len(data) % 4)
def ask(link, family, command, body):
    data = struct.pack("BBH", command, 1, 0) + body
    link.send(struct.pack("IHHII", len(data) + 16, family, 5, 1, 0) + data)
    return link.recv(8192)
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
answer = ask(link, 16, 3, attribute(2, b"MAC80211_HWSIM\0"))[20:]
while answer:
    length, kind = struct.unpack_from("HH", answer)
    if kind == 1:
        family = struct.unpack_from("H", answer, 4)[0]
    answer = answer[(length + 3) & ~3:] if length else b""
said = ask(link, family, 5, attribute(10, struct.pack("I", int(sys.argv[1]))))
print("pulled", struct.unpack_from("i", said, 16)[0])
"#;

fn script() -> String {
    r#". /job/networks; . /job/wifi; build_networks; build_air
        at_home() { in_namespace device "$@"; }
        own() { at_home anabranch --state /tmp/state radio "$@"; }
        state() { own list --json | tr -d ' \n'; }
        both_up() { for _ in $(seq 100); do state | grep -q '"state":"up".*"state":"up"' && return; sleep 0.2; done; echo "not both up: $1"; own list; }
        mkdir -p /tmp/state/radio; cp /job/radio.toml /tmp/state/radio/; chmod 700 /tmp/state /tmp/state/radio; chmod 600 /tmp/state/radio/radio.toml
        ip netns exec device anabranch --state /tmp/state radio up >/results/radio.log 2>&1 &
        radio=$!; both_up start
        # A stranger's radio says that home, whose management frames are protected, and then cafe, whose are not, send us away.
        in_namespace stranger iw phy phy3 interface add mon0 type monitor; ip -n stranger link set dev mon0 up
        in_namespace stranger iw dev mon0 set channel 11
        in_namespace stranger python3 /job/forge.py mon0 020000000200 020000000100 100; own events >/results/events-home
        in_namespace stranger iw dev mon0 set channel 1
        in_namespace stranger python3 /job/forge.py mon0 020000000200 020000000000 100; own events >/results/events-cafe
        both_up storm; own list --json >/results/after-storm
        # Home moves to another channel.
        point home 0 chan_switch 5 2437; sleep 3; both_up switch; own list --json >/results/after-switch
        # Switched off, and on again.
        switch=$(grep -l phy2 /sys/class/rfkill/*/name | head -1); switch=${switch%/name}; echo "switch $switch"
        echo 1 >$switch/soft; sleep 3; own list; own list --json >/results/while-off
        echo 0 >$switch/soft; sleep 1; both_up rfkill; own list --json >/results/after-off
        # Pulled out.
        at_home python3 /job/pull.py 2; sleep 3; own list; own events | tee /results/events; kill -0 $radio && echo "the radio lives"
        own down; wait $radio; echo "radio ended with $?"
        at_home ip -brief link; at_home ip route; ls /tmp/state/radio; echo "--- log"
        cat /results/radio.log"#
        .to_owned()
}

#[test]
#[ignore = "its script needs python3, which the guest has not"]
fn mishaps_are_told_and_survived() {
    let lab = PathBuf::from(env!("CARGO_BIN_EXE_anabranch-lab"));
    let anabranch = lab.with_file_name("anabranch");
    if !anabranch.exists() {
        println!("skipped: {} is not built; cargo build -p anabranch-cli", anabranch.display());
        return;
    }
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let home = AccessPoint {
        security: Security::Wpa2 { passphrase: "correct horse".into(), protection: Protection::Required },
        ..AccessPoint::open("home", 11)
    };
    let network = |name: &'static str, point| WifiNetwork {
        link: NetworkSpec::symmetric(name, 10.0, 10),
        points: vec![point],
    };
    let mut wifi = Wifi::new(vec![network("cafe", AccessPoint::open("cafe", 1)), network("home", home)]);
    wifi.stations.push(("stranger", 1));
    let mut job = Job::new(script());
    wifi.add_to(&mut job).unwrap();
    job.files.insert("/job/radio.toml".into(), KNOWN.into());
    job.files.insert("/job/forge.py".into(), FORGE.into());
    job.files.insert("/job/pull.py".into(), PULL.into());
    job.programs.push(anabranch);
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    assert_eq!(outcome.exit, 0, "{}", outcome.output);
    assert!(!outcome.output.contains("not both up"), "{}", outcome.output);
    let result = |name: &str| String::from_utf8_lossy(&outcome.files[name]).into_owned();
    let list = |name: &str| -> serde_json::Value { serde_json::from_str(&result(name)).unwrap() };
    let ups = |list: &serde_json::Value, at: usize| list[at]["now"]["counters"]["ups"].as_u64().unwrap();

    assert!(!result("events-home").contains("home: down"), "{}", result("events-home"));
    assert!(
        result("events-cafe").contains("cafe: down"),
        "the forgeries had no effect: {}",
        result("events-cafe")
    );
    let storm = list("after-storm");
    assert_eq!(ups(&storm, 1), 1, "home did not stay: {storm}");
    let switched = list("after-switch");
    assert_eq!(
        (&switched[1]["now"]["channel"], ups(&switched, 0)),
        (&6.into(), ups(&storm, 0)),
        "{switched}"
    );
    let off = list("while-off");
    assert!((0..2).all(|at| off[at]["now"]["state"] == "searching"), "{off}");
    assert!((0..2).all(|at| ups(&list("after-off"), at) > ups(&switched, at)), "{}", result("after-off"));
    let events = result("events");
    for part in ["switched off", "there again", "gone"] {
        assert!(events.contains(part), "{part} is not in {events}");
    }
    for part in ["the radio lives", "radio ended with 0"] {
        assert!(outcome.output.contains(part), "{part}: {}", outcome.output);
    }
    let after = outcome.output.split("radio ended with 0").nth(1).unwrap();
    let after = after.split("--- log").next().unwrap_or_default();
    assert!(!after.contains("wl-") && !after.contains("anyradio0"), "something stayed: {after}");
}
