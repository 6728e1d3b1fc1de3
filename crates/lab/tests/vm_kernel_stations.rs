//! One card that can be on several channels by itself, in several networks of unmodified hostapd at once, each kept by an unmodified
//! wpa_supplicant: on three channels, and on one, where what they hear is listened to and joined. Skipped with a reason where a part of the bed cannot be had, except in CI.

use lab::vm::air::{ASSOCIATE, LEASE};
use lab::vm::program;
use lab::vm::scene::{RadioScene, near_and_far};
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Security, Wifi, WifiNetwork};
use sim::NetworkSpec;

const KNOWN: &str = r#"
[[network]]
ssid = "cafe"
passphrase = "correct horse"

[[network]]
ssid = "office"
passphrase = "battery staple"
hidden = true

[[network]]
ssid = "lobby"

[[network]]
ssid = "kiosk"
passphrase = "not this one"
"#;

/// Pings through all networks at the same time; then one is left while another goes on; then all is ended the hard way.
fn script() -> String {
    format!(
        r#"at_home anabranch --state /tmp/state radio probe >/results/probe
        radio_up; address_on wl-cafe; address_on wl-office; address_on wl-lobby
        at_home iw dev wl-cafe survey dump >/results/survey; sleep 1; own aps --json >/results/aps; cat /results/survey /results/aps
        mkdir -p /tmp/direct; printf '[device]\ngateway = "none"\ndns = "off"\nprobe = "off"\n' >/tmp/direct/config.toml
        at_home anabranch --state /tmp/direct up >/results/direct.log 2>&1
        for _ in $(seq 100); do at_home anabranch --state /tmp/direct networks --json >/results/networks && grep -q '"bssid"' /results/networks && break; sleep 0.1; done
        at_home anabranch --state /tmp/direct down >>/results/direct.log 2>&1; cat /results/direct.log /results/networks
        own list >/results/list; own scan >/results/scan; cat /results/list /results/scan
        at_home iw dev >/results/interfaces; cat /results/interfaces
        for network in cafe office lobby; do
            at_home ping -q -i 0.02 -c 200 -W 2 -I wl-$network {SERVER_ADDRESS} >/results/$network.ping &
            eval "$network=$!"
        done
        wait $cafe $office $lobby
        for process in $(pidof wpa_supplicant); do
            grep -E '^(Name|Uid|CapEff)' /proc/$process/status; tr '\0' ' ' </proc/$process/cmdline; echo
        done >/results/processes
        at_home ping -q -i 0.02 -c 200 -W 2 -I wl-office {SERVER_ADDRESS} >/results/meanwhile.ping & office=$!
        own weights office 3 && own remove cafe; sleep 3
        at_home ip -brief addr >/results/without-cafe; wait $office
        echo 'correct horse' | own add cafe --interface wl-again; address_on wl-again
        at_home ip -brief addr >/results/with-cafe
        own remove kiosk; sleep 2
        kill -KILL $radio; wait $radio; sleep 1
        pidof wpa_supplicant >/results/left; at_home iw dev | grep Interface >>/results/left
        radio_up; address_on wl-office; address_on wl-again
        at_home ping -q -i 0.02 -c 50 -W 2 -I wl-again {SERVER_ADDRESS} >/results/again.ping
        kill -TERM $radio; wait $radio; echo "radio ended with $?"
        pidof wpa_supplicant >/results/gone; at_home iw dev | grep -E 'Interface|type' >>/results/gone
        ls /tmp/state/radio >>/results/gone; grep -rls 'battery staple' /run /tmp >/results/secrets
        cat /results/radio.log /results/*.ping /results/left /results/gone /results/secrets"#
    )
}

#[test]
fn the_kernel_keeps_several_networks() {
    let network =
        |name, point| WifiNetwork { link: NetworkSpec::symmetric(name, 10.0, 20), points: vec![point] };
    let office = AccessPoint {
        security: Security::Wpa3 { passphrase: "battery staple".into() },
        hidden: true,
        ..AccessPoint::open("office", 11)
    };
    let lobby = AccessPoint { security: Security::Opportunistic, ..AccessPoint::open("lobby", 6) };
    let mut wifi = Wifi::new(vec![
        network("cafe", AccessPoint::wpa2("cafe", 1, "correct horse")),
        network("office", office),
        network("lobby", lobby),
        network("kiosk", AccessPoint::wpa2("kiosk", 1, "another one")),
    ]);
    wifi.radio_channels = 3;
    let mut scene = RadioScene::new(wifi, KNOWN, script());
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let result = |name: &str| outcome.text(name);

    let probe = result("probe");
    assert!(probe.contains("the kernel, up to") && probe.contains("3 channels"), "{probe}");
    for (name, count) in [("cafe", 200), ("office", 200), ("lobby", 200), ("meanwhile", 200), ("again", 50)] {
        let said = result(&format!("{name}.ping"));
        assert!(said.contains(&format!("{count} packets transmitted, {count} ")), "{name}: {said}");
    }
    let interfaces = result("interfaces");
    for channel in ["channel 1 ", "channel 6 ", "channel 11 "] {
        assert!(interfaces.contains(channel), "{interfaces}");
    }
    let list = result("list");
    for (network, channel, address) in
        [("cafe", " 1 ", "10.64.1."), ("office", " 11 ", "10.64.2."), ("lobby", " 6 ", "10.64.3.")]
    {
        let line = list.lines().find(|line| line.starts_with(network)).unwrap_or_default();
        let parts = [" up ", channel, address, " 33 %", " dBm"];
        assert!(parts.iter().all(|part| line.contains(part)), "{list}");
    }
    // Direct mode beside it knows the same by itself, from the kernel.
    let networks: serde_json::Value = serde_json::from_str(&result("networks")).unwrap();
    for (interface, ssid, channel) in [("wl-cafe", Some("cafe"), 1), ("wl-lobby", Some("lobby"), 6)] {
        let mut known = networks.as_array().unwrap().iter();
        let found = known.find(|network| network["name"] == interface).unwrap();
        assert_eq!(found["direct"]["kind"], "wifi", "{found}");
        let wifi = &found["direct"]["wifi"];
        assert_eq!((wifi["ssid"].as_str(), wifi["channel"].as_u64()), (ssid, Some(channel)), "{found}");
        assert_eq!(wifi["bssid"].as_str().map(str::len), Some(17), "{found}");
        assert!(wifi["signal_dbm"].as_i64().is_some_and(|signal| (-90..-10).contains(&signal)), "{found}");
        assert!(wifi["rate"].as_u64().is_some_and(|rate| rate >= 1_000_000), "{found}");
    }
    let scan = result("scan");
    for part in ["cafe", "lobby", "kiosk", "WPA2", "known"] {
        assert!(scan.contains(part), "{part} is not in {scan}");
    }
    // What the simulated card tells of its time is made up, and of no channel in use.
    assert!(!result("survey").contains("[in use]"), "{}", result("survey"));
    let points: serde_json::Value = serde_json::from_str(&result("aps")).unwrap();
    let points = points.as_array().unwrap();
    assert_eq!(points.len(), 3, "{points:?}");
    assert!(points.iter().all(|point| point.get("others").is_none()), "{points:?}");
    let processes = result("processes");
    assert_eq!(processes.matches("wpa_supplicant -D nl80211").count(), 4, "{processes}");
    assert_eq!(processes.matches("CapEff:\t0000000000003000").count(), 4, "{processes}");
    assert!(!processes.contains("Uid:\t0"), "{processes}");
    let log = result("radio.log");
    assert!(log.contains("kiosk: the access point does not accept the passphrase"), "{log}");
    let without = result("without-cafe");
    assert!(!without.contains("wl-cafe") && without.contains("wl-office"), "{without}");
    let with = result("with-cafe");
    assert!(with.lines().any(|line| line.starts_with("wl-again") && line.contains("10.64.1.")), "{with}");
    let left = result("left");
    assert!(
        left.lines().next().is_some_and(|line| !line.starts_with(|one: char| one.is_ascii_digit())),
        "{left}"
    );
    assert!(left.contains("wl-again"), "interfaces were to be left by kill -9: {left}");
    assert!(
        log.contains("the last run was ended the hard way")
            && log.contains("undone: remove interface wl-again")
    );
    let gone = result("gone");
    assert!(
        !gone.contains("wl-") && gone.contains("Interface wlan0") && !gone.contains("undo.json"),
        "{gone}"
    );
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
    assert_eq!(result("secrets").trim(), "/tmp/state/radio/radio.toml");
    for secret in ["correct horse", "battery staple", "not this one"] {
        assert!(!log.contains(secret) && !processes.contains(secret), "a passphrase is told");
    }
}

/// Of the attempts of the second access point.
const LOSS: f64 = 0.4;

/// Answers of 1,200 bytes, 50 a second by each, and half as many to somebody else at a third access point; then the radio ends the hard way, and comes again with one network only.
fn one_channel() -> String {
    format!(
        r#"{ASSOCIATE}associate neighbour wlan0 quiet
        radio_up --kernel; address_on wl-near; address_on wl-far; sleep 1
        in_namespace neighbour ping -q -i 0.04 -s 1200 -c 250 -W 2 {SERVER_ADDRESS} >/results/neighbour.ping & three=$!
        at_home ping -q -i 0.02 -s 1200 -c 400 -W 2 -I wl-near {SERVER_ADDRESS} >/results/near.ping & one=$!
        at_home ping -q -i 0.02 -s 1200 -c 400 -W 2 -I wl-far {SERVER_ADDRESS} >/results/far.ping & two=$!
        sleep 2; at_home iw dev >/results/listening
        for second in 1 2 3 4; do sleep 1; own aps --json >/results/aps-$second; done
        own aps; wait $one $two $three; own events
        kill -KILL $radio; wait $radio; sleep 1; at_home iw dev >/results/killed
        # The interfaces of the last run have their addresses until the next one takes them back.
        radio_up --kernel; for _ in $(seq 300); do at_home iw dev | grep -q 'type monitor' && break; sleep 0.1; done
        at_home iw dev >/results/again
        own remove far; sleep 2; at_home iw dev >/results/alone
        radio_down; air_down
        cat /results/listening /results/killed /results/again /results/alone /results/*.ping /results/radio.log"#
    )
}

/// A third network on their channel.
fn quiet() -> WifiNetwork {
    WifiNetwork {
        link: NetworkSpec::symmetric("quiet", 10.0, 20),
        points: vec![AccessPoint { beacon_interval: 89, ..AccessPoint::open("quiet", 6) }],
    }
}

#[test]
fn what_kernel_stations_of_one_channel_hear_is_heard_beside_them() {
    let mut scene = near_and_far(LOSS, one_channel());
    scene.wifi.networks.push(quiet());
    scene.wifi.stations.push(("neighbour", 1));
    scene.wifi.files.push(("/job/lease", LEASE.into()));
    // The third access point is radio 2 now, and the device 3.
    if let Some(air) = &mut scene.air {
        air.link.iter_mut().for_each(|link| link.to = Some(3));
    }
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };

    let (mut ratio, mut counted, mut overheard, mut taken) = (0.0, 0.0, 0, 0.0_f64);
    for second in 1..=4 {
        let points: serde_json::Value =
            serde_json::from_str(&outcome.text(&format!("aps-{second}"))).unwrap();
        let of = |name: &str| {
            let points = points.as_array().unwrap().iter();
            points
                .clone()
                .find(|point| point["ssid"] == name)
                .unwrap_or_else(|| panic!("no {name} in {points:?}"))
        };
        let (near, far, quiet) = (of("near"), of("far"), of("quiet"));
        println!("{near}\n{far}\n{quiet}");
        let others = near["others"].as_f64().unwrap();
        assert!(others < 0.15, "{near}");
        let reason = quiet["reason"].as_str().unwrap();
        assert!(reason.starts_with("not a network of this radio"), "{quiet}");
        if !quiet["quality"].is_null() {
            assert!(reason.ends_with("; overheard"), "{quiet}");
            assert_eq!(quiet["quality"]["source"], "overheard", "{quiet}");
            let number = |name: &str| quiet["quality"][name].as_f64().unwrap();
            // All of its attempts arrive where it is listened to but for those that collide.
            overheard += u32::from(number("frames") >= 8.0 && number("delivery_ratio") > 0.75);
            taken = others.max(taken);
        }
        assert!(quiet["interface"].is_null() && near["interface"] == "wl-near", "{quiet} {near}");
        let number = |point: &serde_json::Value, name: &str| point["quality"][name].as_f64().unwrap();
        // One that has just found a worse rate may have sent nothing for half a second.
        if far["quality"]["source"] != "to-us" || near["quality"]["source"] != "to-us" {
            continue;
        }
        assert!(number(near, "delivery_ratio") > 0.75 && number(near, "frames") >= 10.0, "{near}");
        assert!(number(far, "delivery_ratio") < 0.85 && number(far, "frames") >= 8.0, "{far}");
        ratio += number(far, "delivery_ratio");
        counted += 1.0;
    }
    assert!(counted >= 2.0, "hardly anything was heard");
    assert!(overheard >= 2, "what is sent to others was hardly heard");
    assert!(taken > 0.002, "of the air the others have {taken}");
    assert!((ratio / counted - (1.0 - LOSS)).abs() < 0.15, "{}", ratio / counted);
    let listens = |name: &str| outcome.text(name).contains("type monitor");
    assert!(listens("listening") && listens("again"));
    assert!(!listens("killed"), "the kernel removes what listened, with the process");
    assert!(!listens("alone"), "with one network there is nothing to decide");
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// The second access point sends us away after 11 seconds, and then a second after each time that it let us in again; the last time the first network is
/// left at the same moment.
const SENT_AWAY: &str = r#"now() { cut -d' ' -f1 /proc/uptime; }
address=''
sent_away() {
    point far 0 deauthenticate $address; $2; sleep 0.3; begin=$(now)
    for _ in $(seq 300); do own list >/results/list; grep '^far ' /results/list | grep -q ' up ' && break; sleep 0.1; done
    echo "$begin $(now)" >/results/$1; sleep 1
}
radio_up --kernel --channels 6; address_on wl-near; address_on wl-far
address=$(ip -n device -brief link show wl-far | awk '{ print $3 }'); sleep 11
sent_away first :; sent_away second 'own list'; sent_away third 'own remove near'
own events >/results/told; radio_down; cat /results/told /results/first /results/second /results/third /results/radio.log"#;

#[test]
fn an_access_point_that_is_lost_again_and_again_is_left_alone_while_another_network_is_up() {
    let mut scene = near_and_far(0.0, SENT_AWAY.to_owned());
    scene.air = None;
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let took = |name: &str| {
        let text = outcome.text(name);
        let times: Vec<f64> = text.split_whitespace().map(|time| time.parse().unwrap()).collect();
        times[1] - times[0]
    };
    assert!(took("first") < 4.0, "it had been there for long: {}", took("first"));
    assert!((4.0..9.0).contains(&took("second")), "five seconds are waited: {}", took("second"));
    assert!(took("third") < 4.0, "no other network is up: {}", took("third"));
    let told = outcome.text("told");
    for pause in ["looked for again in 5 s", "looked for again in 10 s"] {
        assert_eq!(told.matches(pause).count(), 1, "{pause}: {told}");
    }
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// The second of three access points on a channel is switched off, and on again after times that are no multiple of wpa_supplicant's five seconds.
const SWITCHED: &str = r#"now() { cut -d' ' -f1 /proc/uptime; }
radio_up --kernel --channels 6; for network in near far quiet; do address_on wl-$network; done; sleep 11
for seconds in 13 16.5 20 23.5; do
    point far 0 disable; sleep $seconds; point far 0 enable; begin=$(now)
    for _ in $(seq 300); do own list >/results/list; grep '^far ' /results/list | grep -q ' up ' && break; sleep 0.1; done
    echo "$begin $(now)" >/results/after-$seconds; sleep 11
done
radio_down; cat /results/after-* /results/radio.log"#;

#[test]
fn an_access_point_that_is_heard_beside_others_is_joined_at_once() {
    let mut scene = near_and_far(0.0, SWITCHED.to_owned());
    scene.air = None;
    scene.wifi.networks.push(quiet());
    scene.known.push_str("\n[[network]]\nssid = \"quiet\"\n");
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    for seconds in ["13", "16.5", "20", "23.5"] {
        let text = outcome.text(&format!("after-{seconds}"));
        let times: Vec<f64> = text.split_whitespace().map(|time| time.parse().unwrap()).collect();
        assert!(times[1] - times[0] < 2.0, "{} s after {seconds} s", times[1] - times[0]);
    }
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}
