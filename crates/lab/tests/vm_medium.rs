//! The air of the simulated radios against unmodified hostapd and kernel stations, in the virtual machine: throughput at 54 Mbit/s, two
//! stations that share it, lost attempts. Skipped with a reason where a part of the bed cannot
//! be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::PathBuf;
use std::time::Duration;

use lab::medium::{Config, LinkConfig, Quality, Report};
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use lab::vm::{Job, Machine, Outcome, program};
use sim::NetworkSpec;

/// What busybox's DHCP client calls with what it was told.
const LEASE: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
ip addr add \"$ip/24\" dev \"$interface\" && ip route replace default via \"$router\"
";

#[test]
fn the_air_is_shared_and_loses_as_it_should() {
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let outcome = machine.run(&job()).unwrap();
    println!("{}\nguest {:?}, wall {:?}", outcome.output, outcome.guest_time, outcome.wall_time);
    assert_eq!(outcome.exit, 0, "{}", outcome.output);

    let report: Report = json(&outcome, "air.json");
    println!("{report:?}");
    assert_eq!(report.void, None);
    // The kernel tells of no monitor that is taken down.
    assert!(report.radios["3"].gone > 0, "the monitor had sent all");
    let alone = goodput(&outcome, "alone");
    // Both send, so that their cards share the air; what the access point sends shares its queue.
    let shared = [goodput(&outcome, "shared-device"), goodput(&outcome, "shared-other")];
    let lossy = goodput(&outcome, "lossy");
    println!("alone {alone:.1}, shared {shared:.1?}, with a fifth of attempts lost {lossy:.1} Mbit/s");
    assert!((22.0..25.5).contains(&alone), "{alone} Mbit/s");
    let total = shared[0] + shared[1];
    assert!((total / alone - 1.0).abs() < 0.15, "{shared:?} of {alone}");
    assert!(shared.iter().all(|share| (share / total - 0.5).abs() < 0.1), "{shared:?}");
    assert!(lossy < alone * 0.9 && lossy > alone * 0.5, "{lossy} of {alone}");
}

/// Radio 0 is the access point, 1 and 2 are stations, 3 a monitor.
fn job() -> Job {
    let link = NetworkSpec::symmetric("cafe", 100.0, 5);
    let mut wifi = Wifi::new(vec![WifiNetwork { link, points: vec![AccessPoint::open("cafe", 6)] }]);
    wifi.stations.extend([("other", 1), ("monitor", 1)]);
    let mut config = Config { report: Some("/results/air.json".into()), ..Config::default() };
    let mut job = Job::new(format!(
        r#"fail() {{ echo "failed: $1"; cat /results/medium.log; exit 1; }}
. /job/networks; . /job/wifi
cp /job/good.toml /tmp/air.toml
chrt -f 10 anabranch-lab medium /tmp/air.toml >/results/medium.log 2>&1 &
medium=$!
for _ in $(seq 100); do grep -q ready /results/medium.log && break; sleep 0.1; done
grep -q ready /results/medium.log || fail 'no medium'
build_networks; build_air
for name in device other; do
    ip -n $name link set dev wlan0 up
    in_namespace $name iw dev wlan0 connect cafe
done
sleep 2
for name in device other; do
    in_namespace $name udhcpc -q -n -t 10 -i wlan0 -s /job/lease || fail "no lease for $name"
done
in_namespace monitor iw dev wlan0 set type monitor
ip -n monitor link set dev wlan0 up
in_namespace monitor iw dev wlan0 set channel 6
in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 &
sleep 1
fetch() {{
    name=$1; seconds=$2; file=$3; shift 3
    in_namespace "$name" anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --seconds "$seconds" --json "/results/$file" "$@"
}}
fetch device 1 warm || fail 'the first download'
fetch other 1 warm || fail 'the first download'
head -1 /proc/stat >/results/before
fetch device 4 alone || fail 'the download alone'
head -1 /proc/stat >/results/after
fetch other 4 shared-other --upload &
fetch device 4 shared-device --upload || fail 'the upload'
wait $!
sleep 1
cp /job/lossy.toml /tmp/air.toml; kill -HUP $medium
sleep 1
fetch device 3 lossy || fail 'the lossy download'
fetch device 3 busy --upload & busy=$!
sleep 1
for _ in 1 2 3 4 5 6; do
    in_namespace monitor anabranch-lab mishap deauthenticate wlan0 --frequency 2437 --point 02:00:00:00:40:00 \
        --receiver 02:00:00:00:41:00 --count 3000 --pause-ms 1 &
done
sleep 1
ip -n monitor link set dev wlan0 down
wait $busy
for name in ap-cafe device other; do in_namespace $name ethtool -S wlan0; done >/results/counters
kill -TERM $medium; wait $medium || fail 'the medium did not end well'
cat /results/before /results/after /results/medium.log; grep -h 'dropped\|failed' /results/counters
"#
    ));
    wifi.add_to(&mut job).unwrap();
    job.files.insert("/job/lease".into(), LEASE.into());
    job.files.insert("/job/good.toml".into(), toml::to_string(&config).unwrap().into_bytes());
    config.link.push(LinkConfig {
        from: Some(0),
        to: Some(1),
        quality: Quality { loss: 0.2, ..Quality::default() },
        ..LinkConfig::default()
    });
    job.files.insert("/job/lossy.toml".into(), toml::to_string(&config).unwrap().into_bytes());
    job.programs.push(PathBuf::from(env!("CARGO_BIN_EXE_anabranch-lab")));
    job.programs.push(program("ethtool", "ethtool").unwrap());
    job.timeout = Duration::from_secs(300);
    job
}

fn json<T: serde::de::DeserializeOwned>(outcome: &Outcome, name: &str) -> T {
    serde_json::from_slice(&outcome.files[name]).unwrap()
}

fn goodput(outcome: &Outcome, name: &str) -> f64 {
    json::<lab::traffic::Report>(outcome, name).goodput_mbps
}
