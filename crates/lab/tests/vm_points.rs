//! A radio at two access points of one channel, one of which loses two of five attempts, in the virtual machine: what it reckons of each, against
//! what the air was told to do, and what it makes of it. Skipped with a reason where a part of the bed cannot be had, except in CI.

use std::path::PathBuf;
use std::time::Duration;

use lab::medium::{Config, LinkConfig, Quality, Report};
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use lab::vm::{Job, Machine};
use sim::NetworkSpec;

const KNOWN: &str = "[[network]]\nssid = \"near\"\n\n[[network]]\nssid = \"far\"\n";
/// Of the attempts of the second access point.
const LOSS: f64 = 0.4;

/// Answers of 1,200 bytes, 200 a second by each.
fn script() -> String {
    format!(
        r#"fail() {{ echo "failed: $1"; cat /results/*.log; exit 1; }}
. /job/networks; . /job/wifi
chrt -f 10 anabranch-lab medium /job/air.toml >/results/medium.log 2>&1 &
medium=$!
for _ in $(seq 100); do grep -q ready /results/medium.log && break; sleep 0.1; done
grep -q ready /results/medium.log || fail 'no medium'
build_networks; build_air
at_home() {{ in_namespace device "$@"; }}
own() {{ at_home anabranch --state /tmp/state radio "$@"; }}
mkdir -p /tmp/state/radio; cp /job/radio.toml /tmp/state/radio/; chmod 700 /tmp/state /tmp/state/radio; chmod 600 /tmp/state/radio/radio.toml
ip netns exec device anabranch --state /tmp/state radio up --channels 6 >/results/radio.log 2>&1 &
radio=$!
for network in near far; do
    for _ in $(seq 200); do at_home ip addr show "wl-$network" 2>/dev/null | grep -q 'inet ' && break; sleep 0.1; done
done
at_home ping -q -i 0.005 -s 1200 -c 1200 -W 2 -I wl-near {SERVER_ADDRESS} >/results/near.ping & one=$!
at_home ping -q -i 0.005 -s 1200 -c 1200 -W 2 -I wl-far {SERVER_ADDRESS} >/results/far.ping & two=$!
for second in 1 2 3 4; do sleep 1; own aps --json >/results/aps-$second || fail 'no answer'; done
own aps
wait $one $two
own events; own down; wait $radio; echo "radio ended with $?"
kill -TERM $medium; wait $medium || fail 'the medium did not end well'
cat /results/*.ping"#
    )
}

#[test]
fn what_a_radio_reckons_of_two_access_points_is_so() {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_anabranch-lab"));
    let anabranch = own.with_file_name("anabranch");
    if !anabranch.exists() {
        println!("skipped: {} is not built; cargo build -p anabranch-cli", anabranch.display());
        return;
    }
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let network = |name: &'static str| WifiNetwork {
        link: NetworkSpec::symmetric(name, 50.0, 20),
        points: vec![AccessPoint::open(name, 6)],
    };
    // Radio 0 is the near access point, 1 the far one, 2 the device.
    let wifi = Wifi::new(vec![network("near"), network("far")]);
    let mut config = Config { report: Some("/results/air.json".into()), ..Config::default() };
    let quality = Quality { loss: LOSS, signal_dbm: -70, ..Quality::default() };
    config.link.push(LinkConfig { from: Some(1), to: Some(2), quality, ..LinkConfig::default() });
    let mut job = Job::new(script());
    wifi.add_to(&mut job).unwrap();
    job.files.insert("/job/air.toml".into(), toml::to_string(&config).unwrap().into_bytes());
    job.files.insert("/job/radio.toml".into(), KNOWN.into());
    job.programs.extend([anabranch, own]);
    job.timeout = Duration::from_secs(300);
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    assert_eq!(outcome.exit, 0, "{}", outcome.output);
    let air: Report = serde_json::from_slice(&outcome.files["air.json"]).unwrap();
    assert_eq!(air.void, None);

    let (mut ratio, mut counted) = (0.0, 0.0);
    for second in 1..=4 {
        let points: serde_json::Value =
            serde_json::from_slice(&outcome.files[&format!("aps-{second}")]).unwrap();
        let of = |interface: &str| {
            points.as_array().unwrap().iter().find(|point| point["interface"] == interface).unwrap().clone()
        };
        let (near, far) = (of("wl-near"), of("wl-far"));
        println!("{near}\n{far}");
        let number = |point: &serde_json::Value, name: &str| point["quality"][name].as_f64().unwrap();
        assert!(number(&near, "delivery_ratio") > 0.97 && number(&near, "frames") > 40.0, "{near}");
        assert!((number(&far, "delivery_ratio") - (1.0 - LOSS)).abs() < 0.2, "{far}");
        assert!(number(&far, "packet_time_us") > 1.3 * number(&near, "packet_time_us"), "{near} {far}");
        ratio += number(&far, "delivery_ratio");
        counted += 1.0;
        assert_eq!(near["reason"], "takes the least time for a packet", "{near}");
        // So little traffic leaves the air free: used all the same, and marked.
        assert_eq!((&far["used"], &far["marks"]), (&true.into(), &0.05.into()), "{far}");
        assert!(far["reason"].as_str().unwrap().contains("longer for a packet than the best"), "{far}");
    }
    // The mean over the windows is nearer than a single one can be.
    assert!((ratio / counted - (1.0 - LOSS)).abs() < 0.08, "{}", ratio / counted);
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}
