//! A radio at two access points of one channel, one of which loses two of five attempts, in the virtual machine: what it reckons of each, against
//! what the air was told to do, and what it makes of it. Skipped with a reason where a part of the bed cannot be had, except in CI.

use lab::medium::{Config, LinkConfig, Report};
use lab::vm::air::{ASSOCIATE, LEASE};
use lab::vm::measurement::tunnel_commands;
use lab::vm::scene::{RadioScene, near_and_far};
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use lab::vm::{Outcome, program};
use sim::NetworkSpec;

/// Of the attempts of the second access point.
const LOSS: f64 = 0.4;

/// Answers of 1,200 bytes, 50 a second by each: the air is busy, but not full.
fn script() -> String {
    format!(
        r#"radio_up --channels 6; address_on wl-near; address_on wl-far
at_home ping -q -i 0.02 -s 1200 -c 300 -W 2 -I wl-near {SERVER_ADDRESS} >/results/near.ping & one=$!
at_home ping -q -i 0.02 -s 1200 -c 300 -W 2 -I wl-far {SERVER_ADDRESS} >/results/far.ping & two=$!
for sample in 1 2 3 4 5 6; do sleep 0.7; own aps --json >/results/aps-$sample; done
own aps; wait $one $two; own events; radio_down; air_down; cat /results/*.ping /results/radio.log"#
    )
}

#[test]
fn what_a_radio_reckons_of_two_access_points_is_so() {
    let scene = near_and_far(LOSS, script());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let air: Report = serde_json::from_str(&outcome.text("air.json")).unwrap();
    assert_eq!(air.void, None);
    assert!(!outcome.output.contains("network-down"), "{}", outcome.output);

    let (mut ratio, mut counted) = (0.0, 0.0);
    for sample in 1..=6 {
        let points: serde_json::Value =
            serde_json::from_str(&outcome.text(&format!("aps-{sample}"))).unwrap();
        let of = |interface: &str| {
            points.as_array().unwrap().iter().find(|point| point["interface"] == interface).unwrap().clone()
        };
        let (near, far) = (of("wl-near"), of("wl-far"));
        println!("{near}\n{far}");
        // One that has just found a worse rate may have sent nothing for half a second.
        if near["quality"].is_null() || far["quality"].is_null() {
            continue;
        }
        let number = |point: &serde_json::Value, name: &str| point["quality"][name].as_f64().unwrap();
        // Nothing is lost but what collides.
        assert!(number(&near, "delivery_ratio") > 0.75 && number(&near, "frames") >= 10.0, "{near}");
        // A window of so few frames may have luck, as far as its own margin says.
        let least = number(&far, "delivery_ratio") - number(&far, "margin");
        assert!(least < 0.85 && number(&far, "frames") >= 8.0, "{far}");
        for point in [&near, &far] {
            let confidence = number(point, "confidence");
            assert!(confidence > 0.2 && confidence <= 1.0, "{point}");
        }
        ratio += number(&far, "delivery_ratio");
        counted += 1.0;
        // Which one takes less time is a matter of the rates that the access points have found by then, too.
        let held = |point: &serde_json::Value| point["held_packet_time_us"].as_f64().unwrap();
        let (best, other) = if held(&near) <= held(&far) { (near, far) } else { (far, near) };
        assert_eq!(best["reason"], "takes the least time for a packet", "{best} {other}");
        assert_eq!((&best["used"], &best["marks"]), (&true.into(), &0.0.into()), "{best}");
        if held(&other) > 1.5 * held(&best) {
            // Fewer than the most while air is free, for one that may use it.
            let (marks, used) = (other["marks"].as_f64().unwrap(), other["used"] == true);
            assert!(if used { 0.0 < marks && marks <= 0.05 } else { marks == 0.05 }, "{best} {other}");
            let reason = other["reason"].as_str().unwrap();
            assert_eq!(reason.contains("which better ones leave free"), used, "{best} {other}");
            let lacks = ["no air free", "no more arrived in all while it was used", "may have a part soon"];
            assert!(used || lacks.iter().any(|lack| reason.contains(lack)), "{best} {other}");
        }
    }
    assert!(counted >= 4.0, "hardly anything was heard");
    // The mean over the windows is nearer than a single one can be.
    assert!((ratio / counted - (1.0 - LOSS)).abs() < 0.15, "{}", ratio / counted);
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// The router behind the better access point stops, then goes on; the air is as good as before all the time.
fn dead_behind() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
radio_up --channels 6; address_on wl-near; address_on wl-far
{}
at_home anabranch --state /tmp/device down; mv /tmp/device/* /tmp/state/
at_home anabranch --state /tmp/state up --foreground >/results/device.log 2>&1 &
for _ in $(seq 200); do ip -n device link show any0 >/dev/null 2>&1 && break; sleep 0.1; done
sleep 3
at_home ping -q -i 0.02 -s 1200 -c 1000 -W 2 {SERVER_ADDRESS} >/results/pings & pinging=$!
sleep 4; own aps --json >/results/aps-before
in_namespace near-near sysctl -q -w net.ipv4.ip_forward=0
sleep 6; own aps --json >/results/aps-dead; own events >/results/told
in_namespace near-near sysctl -q -w net.ipv4.ip_forward=1
sleep 8; own aps --json >/results/aps-after; wait $pinging
at_home anabranch --state /tmp/state down; radio_down; air_down; cat /results/radio.log"#,
        tunnel_commands()
    )
}

#[test]
fn an_access_point_with_nothing_behind_it_is_left_and_taken_again() {
    let scene = near_and_far(LOSS, dead_behind());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let near = |when: &str| {
        let points: Vec<serde_json::Value> =
            serde_json::from_str(&outcome.text(&format!("aps-{when}"))).unwrap();
        points.into_iter().find(|point| point["interface"] == "wl-near").unwrap()
    };
    let nowhere = "heard, but nothing comes from beyond it";
    let told = outcome.text("told");
    println!("{told}");
    for (when, used) in [("before", true), ("dead", false), ("after", true)] {
        let near = near(when);
        println!("{when}: {near}");
        assert_eq!((&near["used"], near["reason"] == nowhere), (&used.into(), !used), "{when}: {near}");
    }
    assert!(told.lines().any(|line| line.contains("near") && line.contains(nowhere)), "{told}");
    let pings = outcome.text("pings");
    let (_, rest) = pings.split_once(" packets transmitted, ").unwrap();
    let received: u32 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!(received >= 980, "{pings}");
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// Each access point has a card of its own, which is nobody's radio but the kernel's; data goes by both.
fn kept_by_others() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
{ASSOCIATE}associate device wlan0 near || fail near; associate device wlan1 far || fail far
{}
at_home ping -q -i 0.02 -s 1200 -c 600 -W 2 -I wlan0 {SERVER_ADDRESS} >/results/near.ping & one=$!
at_home ping -q -i 0.02 -s 1200 -c 600 -W 2 -I wlan1 {SERVER_ADDRESS} >/results/far.ping & two=$!
sleep 10; at_home anabranch --state /tmp/device radio aps --json >/results/aps; at_home anabranch --state /tmp/device radio aps
at_home anabranch --state /tmp/device events >/results/told
wait $one $two
in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 >/results/server.log 2>&1 & serving=$!
sleep 0.5; at_home anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --seconds 4 --json /results/bulk & fetching=$!
sleep 3; at_home anabranch --state /tmp/device status --json >/results/status; wait $fetching; kill $serving
at_home anabranch --state /tmp/device down; air_down"#,
        tunnel_commands()
    )
}

#[test]
fn cards_that_others_keep_are_judged_by_what_the_kernel_counts() {
    let mut scene = near_and_far(0.0, kept_by_others());
    scene.wifi.stations = vec![("device", 2)];
    scene.wifi.files.push(("/job/lease", LEASE.into()));
    // The kernel counts what is sent: radio 3 is the second card, 1 its access point.
    let air = scene.air.as_mut().unwrap();
    let mut quality = air.link[0].quality.clone();
    quality.loss = LOSS;
    air.link = vec![LinkConfig { from: Some(3), to: Some(1), quality, ..LinkConfig::default() }];
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let points: Vec<serde_json::Value> = serde_json::from_str(&outcome.text("aps")).unwrap();
    let of = |interface: &str| points.iter().find(|point| point["interface"] == interface).unwrap();
    let (near, far) = (of("wlan0"), of("wlan1"));
    println!("{near}\n{far}");
    let ratio = |point: &serde_json::Value| point["quality"]["delivery_ratio"].as_f64().unwrap();
    assert!(ratio(near) > 0.85, "{near}");
    assert!((ratio(far) - (1.0 - LOSS)).abs() < 0.15, "{far}");
    assert_eq!((&near["ssid"], &far["ssid"]), (&"near".into(), &"far".into()));
    assert_eq!((&near["share"], &far["share"]), (&1.0.into(), &1.0.into()), "each is a radio of its own");
    assert_eq!(near["reason"], "takes the least time for a packet", "{near} {far}");
    assert_eq!((&near["used"], &near["marks"]), (&true.into(), &0.0.into()), "{near}");
    assert!(far["marks"].as_f64().unwrap() > 0.0, "{far}");
    // A download fills the air.
    let status: serde_json::Value = serde_json::from_str(&outcome.text("status")).unwrap();
    let network = |interface: &str| {
        let networks = status["networks"].as_array().unwrap();
        networks.iter().find(|network| network["name"] == interface).unwrap()
    };
    let path = |interface: &str| network(interface)["paths"][0].clone();
    let (near, far) = (path("wlan0"), path("wlan1"));
    assert_eq!((&near["status"], &far["status"]), (&"active".into(), &"backup".into()), "{status}");
    assert!(near["share"].as_f64().unwrap() > 0.9, "{status}");
    assert!(status.to_string().contains("its access point is slow: better ones need the air"), "{status}");
}

/// What comes by the worse access point has no ECN, and all that comes by the better one says that it has met a queue. It is looked every ten seconds.
fn ecn_is_no_use() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
radio_up --kernel --channels 6; address_on wl-near; address_on wl-far
in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 --transport mptcp &
ip -n server mptcp limits set subflow 8 add_addr_accepted 8
printf '[device]\ngateway = "none"\nprobe = "off"\n' >/tmp/state/config.toml
grouped() {{ in_namespace device sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@"' sh "$@"; }}
grouped anabranch --state /tmp/state up --foreground >>/results/direct.log 2>&1 & device=$!
for _ in $(seq 200); do at_home nft list table inet anabranch_direct_any0 >/dev/null 2>&1 && break; sleep 0.1; done
sleep 3
download() {{
    grouped anabranch --state /tmp/state run --treat mptcp -- anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 \
        --congestion cubic --seconds $2 --json /results/$1 || fail $1
}}
box() {{ in_namespace $1 nft -f - <<END
table ip box {{ chain field {{ type filter hook forward priority mangle; policy accept; ip saddr {SERVER_ADDRESS} ip ecn $2 ip ecn set $3; }}; }}
END
}}
heard() {{ in_namespace server awk '/^TcpExt:/ {{ if (!names) {{ names = split($0, name) }} else for (at = 1; at <= names; at++) if (name[at] == "TCPDeliveredCE") print $at }}' /proc/net/netstat; }}
box near-far '!= not-ect' not-ect; box near-near '{{ ect0, ect1 }}' ce
download marked 12
heard >/results/heard-before; download mended 4; heard >/results/heard-after
at_home anabranch --state /tmp/state events >/results/told
at_home anabranch --state /tmp/state down; wait $device; radio_down; air_down; cat /results/radio.log"#
    )
}

#[test]
fn a_network_that_clears_or_sets_ecn_is_told_and_its_marks_are_not_heeded() {
    let mut scene = near_and_far(LOSS, ecn_is_no_use());
    // Neither fills the air, so both are used, and what comes by the worse one is marked.
    scene
        .wifi
        .networks
        .iter_mut()
        .for_each(|network| network.link = NetworkSpec::symmetric(network.link.name, 2.0, 20));
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let told = outcome.text("told");
    println!("{told}\n{} {}", outcome.text("heard-before"), outcome.text("heard-after"));
    let named =
        |network: &str, text: &str| told.lines().any(|line| line.contains(network) && line.contains(text));
    assert!(named("wl-far", "senders cannot be told by marks"), "{told}");
    assert!(named("wl-near", "says of every packet that it has met a queue"), "{told}");
    let heard = |when: &str| outcome.text(when).trim().parse::<u32>().unwrap();
    assert!(heard("heard-before") > 200, "every packet was heard of until it was known");
    assert_eq!(heard("heard-after"), heard("heard-before"));
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// The device counts packets of the worse access point as marked for its gateway, while it has both and when it has one.
fn marks_of_its_own() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
radio_up --kernel --channels 6; address_on wl-near; address_on wl-far
printf '[device]\nsteering = "marks"\n' >/tmp/state/config.toml
{}
fetch() {{ at_home anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --congestion cubic --seconds $2 --json /results/$1 || fail $1; }}
status() {{ at_home anabranch --state /tmp/state status --json >/results/$1; }}
fetch both 12; status by-both
at_home anabranch --state /tmp/state network wl-near --off; sleep 1; status alone
fetch one 6; status by-one
at_home anabranch --state /tmp/state down; radio_down; air_down; cat /results/radio.log"#,
        tunnel()
    )
}

#[test]
fn a_device_marks_what_comes_by_the_worse_one_of_several_only() {
    let mut scene = near_and_far(LOSS, marks_of_its_own());
    // What the better one does not take is less than the worse one could use.
    scene.wifi.networks[0].link = NetworkSpec::symmetric("near", 2.0, 20);
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let marked = |when: &str| {
        let status: serde_json::Value = serde_json::from_str(&outcome.text(when)).unwrap();
        let networks = status["networks"].as_array().unwrap().clone();
        ["wl-near", "wl-far"].map(|name| {
            let network = networks.iter().find(|network| network["name"] == name).unwrap();
            let paths = network["paths"].as_array().unwrap();
            paths.iter().map(|path| path["packets"]["marked"].as_u64().unwrap()).sum::<u64>()
        })
    };
    let [by_both, alone, by_one] = ["by-both", "alone", "by-one"].map(marked);
    println!("{by_both:?} {alone:?} {by_one:?}");
    assert!(by_both[1] > 10 && by_both[0] * 10 < by_both[1], "{by_both:?}");
    assert_eq!(by_one[1], alone[1], "what has no other way is not marked");
    assert!(fetched(&outcome, "one").unwrap() > 1.0);
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// Of each uplink: two of them are less than the air of one access point carries, and more than the air does where neither hears the other.
const HIDDEN_MBPS: f64 = 12.0;

/// Neither access point hears the other, and both are given all that they carry; the device is looked at every second.
fn hidden_from_each_other() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
radio_up --channels 6; address_on wl-near; address_on wl-far
{}
fetch() {{ at_home anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --transport tcp --congestion cubic --seconds $2 --json /results/$1 || fail $1; }}
fetch both 10 & fetching=$!
for second in $(seq 10); do sleep 1; own aps --json >/results/aps-$second; done
wait $fetching; own aps
at_home anabranch --state /tmp/state down; radio_down; air_down; cat /results/radio.log"#,
        tunnel()
    )
}

#[test]
fn of_two_access_points_that_do_not_hear_each_other_one_is_used() {
    let mut scene = near_and_far(0.0, hidden_from_each_other());
    scene.air.as_mut().unwrap().hidden = vec![[0, 1]];
    for network in &mut scene.wifi.networks {
        network.link = NetworkSpec::symmetric(network.link.name, HIDDEN_MBPS, 20);
    }
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let air: Report = serde_json::from_str(&outcome.text("air.json")).unwrap();
    assert_eq!(air.void, None);
    assert!(air.collisions > 50, "{} collisions", air.collisions);
    let (mut apart, mut alone) = (0, 0);
    for second in 1..=10 {
        let points: Vec<serde_json::Value> =
            serde_json::from_str(&outcome.text(&format!("aps-{second}"))).unwrap();
        let used = points.iter().filter(|point| point["used"] == true).count();
        let reason = |point: &serde_json::Value| point["reason"].as_str().unwrap_or_default().to_owned();
        println!(
            "{second}: {:?}",
            points.iter().map(|point| (&point["used"], reason(point))).collect::<Vec<_>>()
        );
        apart += u32::from(points.iter().any(|point| reason(point).contains("not to hear each other")));
        alone += u32::from(used == 1);
    }
    assert!(apart > 0, "it was not found out");
    assert!(alone >= 4, "one was used alone in {alone} of 10 seconds");
    let both = fetched(&outcome, "both").unwrap();
    assert!(both > 0.5 * HIDDEN_MBPS, "{both} Mbit/s, where one uplink has {HIDDEN_MBPS}");
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

/// Two access points on each of two channels; each has an uplink that is less than the air of a turn carries by one.
fn two_on_each_of_two_channels() -> String {
    let names = ["a", "b", "c", "d"];
    let addresses: String = names.map(|name| format!("address_on wl-{name}; ")).concat();
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
radio_up --channels 1,11; {addresses}
{}
fetch() {{ at_home anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --transport tcp --congestion cubic --seconds $2 --json /results/$1 || fail $1; }}
fetch warm 4; fetch all 8 & fetching=$!
sleep 4; own aps --json >/results/aps; own aps; wait $fetching
at_home anabranch --state /tmp/state down; radio_down; air_down; cat /results/radio.log"#,
        tunnel()
    )
}

#[test]
fn access_points_of_one_channel_have_one_turn_beside_those_of_another() {
    let network = |name: &'static str, channel| WifiNetwork {
        link: NetworkSpec::symmetric(name, UPLINK_MBPS, 20),
        points: vec![AccessPoint::open(name, channel)],
    };
    let networks = vec![network("a", 1), network("b", 1), network("c", 11), network("d", 11)];
    let known = ["a", "b", "c", "d"].map(|name| format!("[[network]]\nssid = \"{name}\"\n\n")).concat();
    let script = two_on_each_of_two_channels();
    let scene =
        RadioScene { air: Some(Config::default()), ..RadioScene::new(Wifi::new(networks), known, script) };
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let air: Report = serde_json::from_str(&outcome.text("air.json")).unwrap();
    assert_eq!(air.void, None);
    let points: Vec<serde_json::Value> = serde_json::from_str(&outcome.text("aps")).unwrap();
    points.iter().for_each(|point| println!("{point}"));
    assert_eq!(points.len(), 4, "{points:?}");
    // Those of one channel have the same turn, and the turns of both are the whole time. Uplinks limit both channels, and alike.
    let share = |interface: &str| {
        let point = points.iter().find(|point| point["interface"] == interface).unwrap();
        point["share"].as_f64().unwrap()
    };
    let (first, second) = (share("wl-a"), share("wl-c"));
    assert_eq!((first, second), (share("wl-b"), share("wl-d")));
    assert!((first + second - 1.0).abs() < 0.01 && (0.25..0.75).contains(&first), "{first} and {second}");
    let all = fetched(&outcome, "all").unwrap();
    println!("{all} Mbit/s");
    // A radio that stays on one channel has two of them at most.
    assert!(all > 2.2 * UPLINK_MBPS, "{all} Mbit/s by four uplinks of {UPLINK_MBPS} Mbit/s");
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}

const UPLINK_MBPS: f64 = 2.0;

/// The device joins a gateway and is up in the radio's state directory, whose advice it has then, and the server serves.
fn tunnel() -> String {
    format!(
        r#"{}
at_home anabranch --state /tmp/device down; mv /tmp/device/* /tmp/state/
at_home anabranch --state /tmp/state up --foreground >/results/device.log 2>&1 &
for _ in $(seq 200); do ip -n device link show any0 >/dev/null 2>&1 && break; sleep 0.1; done
in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 --transport tcp &
sleep 3"#,
        tunnel_commands()
    )
}

/// Mbit/s of a download.
fn fetched(outcome: &Outcome, name: &str) -> serde_json::Result<f64> {
    let report: lab::traffic::Report = serde_json::from_str(&outcome.text(name))?;
    assert!(report.intact, "{name}: a wrong byte arrived");
    Ok(report.goodput_mbps)
}
