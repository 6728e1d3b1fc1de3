//! One radio in two networks of unmodified hostapd at once, in the virtual machine: the whole way from the command to the packets.
//! Skipped with a reason where a part of the bed cannot be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::process::Command;

use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Protection, Security, Wifi, WifiNetwork};
use sim::NetworkSpec;

const KNOWN: &str = r#"
[[network]]
ssid = "cafe"

[[network]]
ssid = "home"
passphrase = "correct horse"
hidden = true
"#;

/// Pings through each network at the same time, 300 times: the radio is away from each of them half of the time.
fn script() -> String {
    format!(
        r#"ip -n device link set dev wlan0 up; own scan --json >/results/card-scan || exit 1
        echo 'nameserver 192.0.2.53' >/etc/resolv.conf
        radio_up --pcap /tmp/state/radio/air.pcap
        address_on wl-cafe; address_on wl-home
        at_home ip -brief addr
        at_home ping -q -i 0.02 -c 300 -W 2 -I wl-cafe {SERVER_ADDRESS} >/results/cafe.ping & one=$!
        at_home ping -q -i 0.02 -c 300 -W 2 -I wl-home {SERVER_ADDRESS} >/results/home.ping & two=$!
        sleep 3; own aps --json >/results/aps; own aps
        wait $one $two; at_home ping -q -i 0.002 -c 1500 -W 2 -I wl-cafe {SERVER_ADDRESS} >/results/dense.ping
        at_home ping -q -c 5 -s 1472 -W 2 -I wl-home {SERVER_ADDRESS} >/results/large.ping; cp /tmp/state/radio/air.pcap /results/
        at_home cat /etc/resolv.conf >/results/names
        own list; own list --json >/results/list; own scan --json >/results/radio-scan
        for process in $(pidof anabranch); do [ $process = $radio ] || cat /proc/$process/task/*/status; done >/results/worker
        anabranch --state /tmp/state radio weights cafe 4 && anabranch --state /tmp/state radio remove home
        sleep 3; at_home ip -brief addr >/results/without-home
        echo 'correct horse' | anabranch --state /tmp/state radio add home --hidden --interface wl-again
        address_on wl-again
        at_home ip -brief addr >/results/with-home
        own events | tee /results/events; radio_down; at_home cat /etc/resolv.conf >/results/names-after
        at_home ip -brief link; at_home iw dev
        cat /results/radio.log /results/*.ping"#
    )
}

#[test]
fn one_radio_is_in_two_networks() {
    let home = AccessPoint {
        security: Security::Wpa2 { passphrase: "correct horse".into(), protection: Protection::Offered },
        hidden: true,
        ..AccessPoint::open("home", 11)
    };
    let wifi = Wifi::new(vec![
        WifiNetwork {
            link: NetworkSpec::symmetric("cafe", 10.0, 20),
            points: vec![AccessPoint::open("cafe", 1)],
        },
        WifiNetwork { link: NetworkSpec::symmetric("home", 5.0, 10), points: vec![home] },
    ]);
    let scene = RadioScene::new(wifi, KNOWN, script());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    for (pings, sent) in [("cafe", 300), ("home", 300), ("dense", 1_500)] {
        let said = String::from_utf8_lossy(&outcome.files[&format!("{pings}.ping")]).into_owned();
        assert!(
            said.contains(&format!("{sent} packets transmitted, {sent}")) && said.contains(" 0% packet loss"),
            "{pings}: {said}"
        );
    }
    let result = |name: &str| outcome.text(name);
    let without = result("without-home");
    assert!(!without.contains("wl-home") && without.contains("wl-cafe"), "{without}");
    let with = result("with-home");
    assert!(with.lines().any(|line| line.starts_with("wl-again") && line.contains("10.64.2.")), "{with}");
    what_it_tells_is_so(&result);
    assert!(result("large.ping").contains(" 5 packets received"), "full packets: {}", result("large.ping"));
    let (names, after) = (result("names"), result("names-after"));
    assert!(names.contains("nameserver 10.64.1.1") && names.contains("nameserver 10.64.2.1"), "{names}");
    assert_eq!(after, "nameserver 192.0.2.53\n", "resolv.conf was not given back");
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
    assert!(outcome.output.contains("Interface wlan0"), "the card was not given back: {}", outcome.output);
    assert!(!outcome.output.contains("correct horse"), "the passphrase is in the log: {}", outcome.output);
    is_readable_capture(&outcome.files["air.pcap"]);
}

/// The list, both scans, the events, and what the kernel says of the worker's rights.
fn what_it_tells_is_so(result: &dyn Fn(&str) -> String) {
    let list: serde_json::Value = serde_json::from_str(&result("list")).unwrap();
    for (number, channel, subnet) in [(0, 1, "10.64.1."), (1, 11, "10.64.2.")] {
        let now = &list[number]["now"];
        assert_eq!((&now["state"], &now["channel"]), (&"up".into(), &channel.into()), "{list}");
        assert!(now["addresses"][0].as_str().unwrap().starts_with(subnet), "{list}");
        assert!(now["share"].as_f64().unwrap() > 0.2 && now["signal_dbm"].as_f64().unwrap() < 0.0, "{list}");
        assert!(now["counters"]["received_packets"].as_u64().unwrap() >= 300, "{list}");
    }
    // Both ways of taking what hostapd kept were tried. A poll for each frame takes longer.
    let kept = |way: &str| list[0]["now"]["kept_frame"][way].as_u64().unwrap_or(0);
    let (announced, polled) = (kept("announced_us"), kept("polled_us"));
    println!("a kept frame takes {announced} us when all come at once, {polled} us when polled for");
    assert!(announced > 0 && announced < polled && polled < 5_000, "{list}");
    for scan in ["card-scan", "radio-scan"] {
        let heard: serde_json::Value = serde_json::from_str(&result(scan)).unwrap();
        let of = |channel: u32| heard.as_array().unwrap().iter().find(|one| one["channel"] == channel);
        let cafe = of(1).unwrap();
        assert_eq!(
            (&cafe["ssid"], &cafe["known"], &cafe["security"]),
            (&"cafe".into(), &true.into(), &"open".into())
        );
        // Home answers only those who know its name, and a card that listens for a moment may miss its beacon.
        let home = of(11).map(|home| home["security"].clone());
        assert!(home == Some("WPA2".into()) || scan == "card-scan" && home.is_none(), "{scan}: {heard}");
    }
    let points: serde_json::Value = serde_json::from_str(&result("aps")).unwrap();
    for (interface, ssid, channel) in [("wl-cafe", "cafe", 1), ("wl-home", "home", 11)] {
        let point = points.as_array().unwrap().iter().find(|point| point["interface"] == interface).unwrap();
        assert_eq!((&point["ssid"], &point["channel"]), (&ssid.into(), &channel.into()), "{point}");
        assert_eq!((&point["used"], &point["marks"]), (&true.into(), &0.0.into()), "{point}");
        assert_eq!(point["reason"], "the only one on its channel", "{point}");
        assert!(point["share"].as_f64().unwrap() > 0.2, "{point}");
        let quality = &point["quality"];
        // Nothing is lost in this air, and 50 pings a second are answered.
        assert!(quality["delivery_ratio"].as_f64().unwrap() > 0.9, "{point}");
        assert!(quality["frames"].as_u64().unwrap() >= 10 && quality["source"] == "to-us", "{point}");
        let time = quality["packet_time_us"].as_f64().unwrap();
        assert!((300.0..15_000.0).contains(&time), "between 54 and 1 Mbit/s: {point}");
    }
    let events = result("events");
    for part in ["cafe: up, by", "home: up, by", "started"] {
        assert!(events.contains(part), "{part} is not in {events}");
    }
    let worker = result("worker");
    let threads = worker.matches("Name:").count();
    assert!(threads >= 2, "{worker}");
    for line in ["CapEff:\t0000000000003000", "CapBnd:\t0000000000003000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert_eq!(worker.matches(line).count(), threads, "{line}: {worker}");
    }
    assert!(!worker.contains("Uid:\t0"), "it runs as root: {worker}");
}

/// Where tshark is installed: that it finds data frames in what was written.
fn is_readable_capture(capture: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("air.pcap");
    std::fs::write(&file, capture).unwrap();
    let tshark =
        Command::new("tshark").arg("-r").arg(&file).args(["-Y", "wlan.fc.type_subtype == 0x0020"]).output();
    let Ok(tshark) = tshark else {
        println!("tshark is not installed: the capture was not looked at");
        return;
    };
    assert!(
        tshark.stdout.iter().filter(|byte| **byte == b'\n').count() > 100,
        "{}",
        String::from_utf8_lossy(&tshark.stderr)
    );
}
