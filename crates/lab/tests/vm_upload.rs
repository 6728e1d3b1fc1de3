//! Upload through the neighbours by frames of 802.11 in the virtual machine: cards in monitor mode, a lossy air, slow uplinks; and a neighbour with one card
//! for the neighbourhood and its own access point, or with a second one. Skipped with a reason where a part of the bed cannot be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::time::Duration;

use lab::medium::{Config, LinkConfig, Quality};
use lab::vm::measurement::Programs;
use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use lab::vm::{Job, Outcome};
use sim::NetworkSpec;

/// Three homes with an uplink of 2 Mbit/s each. They hear each other by their cards only.
const SCRIPT: &str = r#"
fail() { echo "failed: $*"; cat /results/*.log; exit 1; }
chrt -f 10 anabranch-lab medium /job/air.toml >/results/medium.log 2>&1 & medium=$!
for _ in $(seq 100); do grep -q ready /results/medium.log && break; sleep 0.1; done
grep -q ready /results/medium.log || fail 'no medium'
ip netns add far; number=0
for home in source ann bob; do
    ip netns add $home; ip -n $home link set lo up
    ip link add uplink netns $home type veth peer name $home netns far
    ip -n $home addr add 10.9.$number.1/24 dev uplink; ip -n far addr add 10.9.$number.2/24 dev $home
    ip -n $home link set uplink up; ip -n far link set $home up
    ip netns exec $home tc qdisc add dev uplink root tbf rate 2mbit burst 16k latency 100ms
    ip -n $home route add default via 10.9.$number.2
    iw phy phy$number set netns name $home
    # The medium knows a radio once one of its interfaces was on that is no monitor.
    ip -n $home link set wlan$number up; ip -n $home link set wlan$number down; ip netns exec $home iw dev wlan$number set type monitor
    ip -n $home link set wlan$number name air; ip -n $home link set air up
    ip netns exec $home iw dev air set channel 6 || fail "no channel 6 for $home"
    number=$((number + 1))
done
mkdir /tmp/into; ip -n far link set lo up
ip netns exec far anabranch --state /tmp/far accept --dir /tmp/into --links 3 >/results/far.log 2>&1 &
for _ in $(seq 200); do [ "$(grep -c 'anabranch://' /results/far.log)" -ge 3 ] && break; sleep 0.1; done
links=$(grep -o 'anabranch://[^ ]*' /results/far.log)
link() { echo "$links" | sed -n "$1p"; }
for home in ann bob; do
    number=$((number + 1)); one=$(link $((number - 2)))
    ip netns exec $home anabranch --state /tmp/$home share "$one" --trust-all --air air >/results/$home.log 2>&1 &
done
for _ in $(seq 200); do [ "$(grep -c 'shares its uplink' /results/far.log)" -ge 2 ] && break; sleep 0.1; done
dd if=/dev/urandom of=/tmp/together bs=1k count=3000 2>/dev/null; dd if=/dev/urandom of=/tmp/alone bs=1k count=3000 2>/dev/null
now() { cut -d' ' -f1 /proc/uptime; }
own() { ip netns exec source anabranch --state /tmp/source upload "$@"; }
begun=$(now); own --air air --name far /tmp/together "$(link 1)" >/results/together.log 2>&1 || fail 'not uploaded'; middle=$(now)
own --no-air /tmp/alone far >/results/alone.log 2>&1 || fail 'not uploaded alone'; ended=$(now)
cmp /tmp/together /tmp/into/together && cmp /tmp/alone /tmp/into/alone || fail 'not what was sent'
echo "$begun $middle $ended" >/results/times
for home in ann bob; do ip netns exec $home anabranch --state /tmp/$home share --ledger --json >/results/$home.ledger || fail 'no ledger'; done
# A card that is no monitor is no air, and who may not use it is told so.
own --air nothing --no-own-uplink /tmp/alone far >/results/same.log 2>&1 || fail 'the same file again'
grep -q 'nothing was sent' /results/same.log || fail 'sent again'
kill -TERM $medium; wait $medium
cat /results/together.log /results/alone.log; echo done
"#;

/// What neighbours miss of what the source sends.
const LOSSES: [(usize, f64); 2] = [(1, 0.3), (2, 0.4)];

#[test]
fn neighbours_hear_a_card_in_monitor_mode_and_carry() {
    let Some((machine, programs)) = Programs::find_or_skip(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()
    else {
        return;
    };
    let mut job = Job::new(SCRIPT);
    let link = |(to, loss)| LinkConfig {
        from: Some(0),
        to: Some(to),
        quality: Quality { loss, ..Quality::default() },
        ..LinkConfig::default()
    };
    let air = Config { link: LOSSES.map(link).into(), ..Config::default() };
    job.files.insert("/job/air.toml".into(), toml::to_string(&air).unwrap().into_bytes());
    job.programs.extend([
        programs.lab.clone(),
        programs.anabranch().unwrap(),
        lab::vm::program("iw", "iw").unwrap(),
    ]);
    job.modules.push("mac80211_hwsim radios=3".to_owned());
    job.timeout = Duration::from_secs(400);
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    for (name, bytes) in &outcome.files {
        println!("--- {name}\n{}", String::from_utf8_lossy(bytes));
    }
    let outcome = outcome.succeeded().unwrap();
    assert!(outcome.output.ends_with("done\n"), "{}", outcome.output);
    let times: Vec<f64> =
        outcome.text("times").split_whitespace().map(|time| time.parse().unwrap()).collect();
    let [together, alone] = [times[1] - times[0], times[2] - times[1]];
    println!("together {together:.1} s, alone {alone:.1} s");
    // Three uplinks instead of one.
    assert!(together < 0.6 * alone, "together {together:.1} s, alone {alone:.1} s");
    for home in ["ann", "bob"] {
        let ledger: serde_json::Value =
            serde_json::from_str(&outcome.text(&format!("{home}.ledger"))).unwrap();
        let carried: u64 =
            ledger.as_array().unwrap().iter().map(|line| line["bytes"].as_u64().unwrap()).sum();
        assert!(carried > 500_000, "{home}: {ledger}");
    }
}

/// The neighbour's card: its own access point and the neighbourhood, by turns.
const KNOWN: &str = r#"
[[network]]
ssid = "cafe"

[[network]]
ssid = "hood"
ad_hoc_channel = 6
address = "10.9.0.1/24"
"#;

/// The neighbour's first card; the second is in the neighbourhood by the kernel's ad hoc mode.
const KNOWN_TO_FIRST: &str = r#"
[[network]]
ssid = "cafe"
"#;
const SECOND_JOINS: &str = "at_home iw dev wlan1 set type ibss; at_home ip link set dev wlan1 up; at_home ip addr add 10.9.0.1/24 dev wlan1
cell='fixed-freq 02:ca:fe:00:00:01'; at_home iw dev wlan1 ibss join hood 2437 $cell";

/// A source with a cable of 200 kbit/s and a kernel's ad hoc card, and a neighbour that is not root, by its card `air`, after the shell commands `joins`.
fn beside_cafe(joins: &str, air: &str) -> String {
    format!(
        r#"fail() {{ echo "failed: $*"; cat /results/*.log; exit 1; }}
peer() {{ in_namespace peer "$@"; }}
radio_up --card wlan0; address_on wl-cafe
{joins}
peer iw dev wlan0 set type ibss; ip -n peer link set dev wlan0 up; ip -n peer addr add 10.9.0.2/24 dev wlan0
peer iw dev wlan0 ibss join hood 2437 $cell
for _ in $(seq 60); do at_home ping -q -c 1 -W 1 -I {air} 10.9.0.2 >/dev/null && break; done
own list --json >/results/list
ip link add cable netns peer type veth peer name cable netns server
ip -n peer addr add 10.8.0.1/24 dev cable; ip -n server addr add 10.8.0.2/24 dev cable
ip -n peer link set cable up; ip -n server link set cable up
peer tc qdisc add dev cable root tbf rate 200kbit burst 4k latency 200ms
mkdir /tmp/into
in_namespace server anabranch --state /tmp/far accept --dir /tmp/into --links 2 >/results/far.log 2>&1 &
for _ in $(seq 200); do [ "$(grep -c 'anabranch://' /results/far.log)" -ge 2 ] && break; sleep 0.1; done
links=$(grep -o 'anabranch://[^ ]*' /results/far.log)
link() {{ echo "$links" | sed -n "$1p"; }}
user() {{ at_home setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }}
mkdir -m 700 /tmp/user; chown 1000:1000 /tmp/user
user anabranch radio aps --json >/results/aps || fail 'no access points'
user env ANABRANCH_LOG=debug anabranch --state /tmp/user share "$(link 2)" --trust-all --air {air} >/results/share.log 2>&1 &
for _ in $(seq 200); do grep -q 'shares its uplink' /results/far.log && break; sleep 0.1; done
dd if=/dev/urandom of=/tmp/together bs=1k count=2000 2>/dev/null; dd if=/dev/urandom of=/tmp/alone bs=1k count=500 2>/dev/null
now() {{ cut -d' ' -f1 /proc/uptime; }}
upload() {{ peer anabranch --state /tmp/source upload "$@"; }}
begun=$(now); upload --air wlan0 --name far /tmp/together "$(link 1)" >/results/together.log 2>&1 || fail 'not uploaded'; middle=$(now)
upload --no-air /tmp/alone far >/results/alone.log 2>&1 || fail 'not uploaded alone'; ended=$(now)
cmp /tmp/together /tmp/into/together && cmp /tmp/alone /tmp/into/alone || fail 'not what was sent'
echo "$begun $middle $ended" >/results/times
user anabranch --state /tmp/user share --ledger --json >/results/ledger || fail 'no ledger'
at_home ping -q -c 3 -W 2 -I wl-cafe {SERVER_ADDRESS} >/results/cafe.ping || fail 'the access point was lost'
radio_down
cat /results/*.log"#
    )
}

/// What became of it.
struct Beside {
    outcome: Outcome,
    /// kB a second with the neighbour, and without.
    together: f64,
    alone: f64,
    /// Bytes that the neighbour carried.
    carried: u64,
}

impl Beside {
    fn read(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.outcome.text(name)).unwrap()
    }
}

fn play(cards: u32, known: &'static str, script: String) -> Option<Beside> {
    let mut wifi = Wifi::new(vec![WifiNetwork {
        link: NetworkSpec::symmetric("cafe", 10.0, 20),
        points: vec![AccessPoint::open("cafe", 1)],
    }]);
    wifi.stations = vec![("device", cards), ("peer", 1)];
    let mut scene = RadioScene::new(wifi, known, script);
    scene.programs.push(lab::vm::program("setpriv", "util-linux").unwrap());
    let outcome = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()?;
    let times: Vec<f64> =
        outcome.text("times").split_whitespace().map(|time| time.parse().unwrap()).collect();
    // Files of 2,000 and 500 kB.
    let [together, alone] = [2_048.0 / (times[1] - times[0]), 512.0 / (times[2] - times[1])];
    let ledger: serde_json::Value = serde_json::from_str(&outcome.text("ledger")).unwrap();
    let carried = ledger.as_array().unwrap().iter().map(|line| line["bytes"].as_u64().unwrap()).sum();
    println!("together {together:.1} kB/s, alone {alone:.1} kB/s, the neighbour carried {carried} bytes");
    Some(Beside { outcome, together, alone, carried })
}

#[test]
fn a_neighbour_gives_the_neighbourhood_a_slot_of_its_one_card() {
    let Some(beside) = play(1, KNOWN, beside_cafe("", "wl-hood")) else { return };
    let share = beside.read("list")[1]["now"]["share"].as_f64().unwrap();
    assert!((0.4..0.6).contains(&share), "the neighbourhood has {share} of the card");
    assert_eq!(beside.read("aps")[0]["ssid"], "cafe");
    let told = beside.outcome.text("share.log");
    assert!(told.contains("the card is in other networks for up to this long"), "{told}");
    let Beside { together, alone, carried, .. } = beside;
    assert!(together > 1.6 * alone, "together {together:.1} kB/s, alone {alone:.1} kB/s");
    assert!(carried > 700_000, "{carried}");
}

/// The first card is in its own network all the time, and the neighbourhood is heard all the time.
#[test]
fn a_neighbour_with_a_second_card_hears_by_that() {
    let Some(beside) = play(2, KNOWN_TO_FIRST, beside_cafe(SECOND_JOINS, "wlan1")) else { return };
    assert_eq!(beside.read("list").as_array().unwrap().len(), 1);
    let told = beside.outcome.text("share.log");
    assert!(!told.contains("the card is in other networks"), "{told}");
    let Beside { together, alone, carried, .. } = beside;
    assert!(together > 1.6 * alone, "together {together:.1} kB/s, alone {alone:.1} kB/s");
    assert!(carried > 700_000, "{carried}");
}
