//! Virtual sockets over Bluetooth, between two emulated controllers. Skipped with a reason where a part of the bed cannot be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::time::Duration;

use lab::traffic::{PingReport, SocketsReport};
use lab::vm::measurement::Programs;
use lab::vm::{Job, MachineError, Outcome, bluetooth, program};

/// Runs a script that has the functions of [`bluetooth::add_to`] and [`bluetooth::add_service_to`]; `None` where something is missing.
fn play(script: &str) -> Option<Outcome> {
    play_with(script, &[])
}

/// The same with further programs of this machine, which are Debian packages of these names.
fn play_with(script: &str, further: &[&str]) -> Option<Outcome> {
    let (machine, programs) = Programs::find_or_skip(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()?;
    let mut job = Job::new("");
    let added = bluetooth::add_to(&mut job)
        .and_then(|functions| Ok(format!("{functions}{}", bluetooth::add_service_to(&mut job)?)))
        .and_then(|functions| {
            job.programs
                .extend(further.iter().map(|name| program(name, name)).collect::<Result<Vec<_>, _>>()?);
            Ok(functions)
        });
    let functions = match added {
        Err(error @ MachineError::Missing { .. }) => {
            println!("skipped: {error}");
            return None;
        }
        other => other.unwrap(),
    };
    job.script = format!("{functions}{script}");
    job.programs.extend([programs.anabranch().unwrap(), programs.lab]);
    job.timeout = Duration::from_secs(300);
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    for name in outcome.files.keys() {
        println!("--- {name}\n{}", outcome.text(name));
    }
    Some(outcome.succeeded().unwrap())
}

/// Enough for all of it to happen meanwhile.
const BYTES: u64 = 14_000_000;

/// The adapters that carried it, one after the other.
fn ways(report: &SocketsReport) -> Vec<&str> {
    let mut names: Vec<&str> = report.carried_by.iter().map(|(_, name)| name.as_str()).collect();
    names.dedup();
    names
}

fn report(outcome: &Outcome) -> SocketsReport {
    serde_json::from_slice(&outcome.files["report"]).unwrap()
}

/// The controllers fall silent for a while, as out of range, and the cable carries it; then that is pulled out. They are not switched off: Linux 6.1 may not survive the end of
/// a link that is in use.
#[test]
fn a_stream_goes_by_bluetooth_then_by_a_cable_then_by_bluetooth_again() {
    let script = r#"
controllers; cable
export RUST_LOG=debug
anabranch-lab traffic sockets-serve --adapter hci1 --adapter far0 >/results/far.log 2>&1 &
sleep 1
tc qdisc add dev far0 root tbf rate 6mbit burst 16k latency 100ms
(sleep 1.5; plug; sleep 0.5; kill -STOP $emulator; sleep 1.5; kill -CONT $emulator; sleep 0.5; unplug) &
anabranch-lab traffic sockets-fetch --adapter hci0 --adapter near0 --address bt:$far_device:4700 --bytes 14000000 --json /results/report >/results/near.log 2>&1 || fail fetch
"#;
    let Some(outcome) = play(script) else { return };
    let report = report(&outcome);
    assert!(report.flow.intact && report.flow.bytes == BYTES);
    let ways = ways(&report);
    println!("{ways:?}, longest gap {:?}, {:?}", report.flow.longest_gap, report.events);
    assert_eq!(ways, ["hci0", "near0", "hci0"]);
    assert!(report.flow.longest_gap.milliseconds < 500.0, "{:?}", report.flow.longest_gap);
}

/// What scripts of peers begin with: `as STATE ...` is the program with an identity.
const PEERS_COMMANDS: &str = r#"
as() { state=$1; shift; anabranch --state /tmp/$state "$@"; }
introduce() {
    as $2 receive --hidden --count 1 --to /tmp/$2-files --adapter $4 >/tmp/$2-link 2>/results/$2-introduced & receiver=$!
    for _ in $(seq 100); do grep -q anabranch: /tmp/$2-link && break; sleep 0.1; done
    as $1 send /job/script $(cat /tmp/$2-link) --name $2 --adapter $3 >/results/$1-introduced 2>&1 || fail introduce $1 $2
    wait $receiver
}
"#;

/// Two pairs of programs that know each other, and have no cable any more.
const INTRODUCED: &str = r#"
controllers; bluez; cable; plug
introduce near far near0 far0; introduce other stranger near0 far0
unplug
"#;

/// Two programs that know each other's keys, and two others that know each other: each finds its own and nobody else, with Bluetooth in common and nothing
/// else, and a file goes to a name.
#[test]
fn peers_find_each_other_by_bluetooth_and_strangers_find_nobody() {
    let script = r#"
head -c 300000 /dev/urandom >/tmp/file
receive() { anabranch --state /tmp/$1 receive --no-link --adapter hci1 --to /tmp/$1-received $2 >/results/$1.log 2>&1 & }
export ANABRANCH_LOG=debug
receive far; far=$!
receive stranger --port=4620; stranger=$!
sleep 1
as near peers --json --adapter hci0 --seconds 15 >/results/near-seen 2>/results/near-peers.log || fail peers
as other peers --json --adapter hci0 --seconds 15 >/results/other-seen 2>/results/other-peers.log || fail peers
callable
as near send /tmp/file far --adapter hci0 >/results/send.log 2>&1 || fail send
cmp /tmp/file /tmp/far-received/file && echo same >/results/same
kill -TERM $far $stranger
# BlueZ remembers whom it has heard for half a minute.
sleep 60
receive far --hidden; far=$!
sleep 1
as near peers --json --adapter hci0 --seconds 20 >/results/near-hidden 2>/results/near-hidden.log || fail peers
kill -0 $far || fail 'nobody was hidden'
"#;
    let Some(outcome) = play(&format!("{PEERS_COMMANDS}{INTRODUCED}{script}")) else { return };
    let device = outcome.text("controllers");
    let device = device.lines().find_map(|line| line.strip_prefix("hci1 ")).unwrap();
    let (near, other) = (outcome.text("near-seen"), outcome.text("other-seen"));
    assert!(near.contains(&format!("bt:{device}:4610")) && !near.contains("4620"), "{near}");
    assert!(other.contains(&format!("bt:{device}:4620")) && !other.contains("4610"), "{other}");
    assert_eq!(outcome.text("same"), "same\n");
    let hidden = outcome.text("near-hidden");
    assert!(hidden.contains("\"far\"") && !hidden.contains("bt:"), "{hidden}");
}

/// Near and far met when near joined far's group by a cable, and neither is a known peer of the other; who is in another group finds neither.
#[test]
fn members_of_a_group_find_each_other_by_bluetooth() {
    let script = r#"
cable; plug
as far group create hikers >/results/created 2>&1 || fail create
as far group invite hikers --adapter far0 >/tmp/link 2>/results/invited & inviting=$!
for _ in $(seq 100); do grep -q anabranch: /tmp/link && break; sleep 0.1; done
as near group join $(cat /tmp/link) --adapter near0 >/results/joined 2>&1 || fail join
wait $inviting
as other group create chess >>/results/created 2>&1 || fail create
unplug; controllers; bluez
head -c 300000 /dev/urandom >/tmp/file
export ANABRANCH_LOG=debug
as far receive --no-link --group hikers --adapter hci1 --to /tmp/far-received >/results/far.log 2>&1 & far=$!
sleep 1
as near peers --group hikers --json --adapter hci0 --seconds 15 >/results/near-seen 2>/results/near-peers.log || fail peers
as other peers --group chess --json --adapter hci0 --seconds 15 >/results/other-seen 2>/results/other-peers.log || fail peers
member=$(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' /results/near-seen)
callable
as near send /tmp/file "$member" --group hikers --adapter hci0 >/results/send.log 2>&1 || fail send "$member"
cmp /tmp/file /tmp/far-received/file && echo same >/results/same
kill -TERM $far
"#;
    let Some(outcome) = play(&format!("{PEERS_COMMANDS}{script}")) else { return };
    let device = outcome.text("controllers");
    let device = device.lines().find_map(|line| line.strip_prefix("hci1 ")).unwrap();
    let (near, other) = (outcome.text("near-seen"), outcome.text("other-seen"));
    assert!(near.contains(&format!("bt:{device}:4610")) && near.contains("hikers"), "{near}");
    assert!(!other.contains("bt:"), "{other}");
    assert_eq!(outcome.text("same"), "same\n");
}

/// Two daemons with Bluetooth in common and nothing else: any0 of the far one is moved to a namespace that no other link leads to, since Bluetooth is in the first only. Programs
/// that know nothing of all this reach the peer by its name, by both families, and what they say to everybody arrives there.
///
/// A daemon takes every controller that no other program has, so one is held until the near daemon, which has the names too, is up. The far one's rules would decide about
/// packets of the first namespace, where its programs are not.
#[test]
fn programs_reach_a_peer_by_name_over_bluetooth() {
    let script = r#"
up() {
    as $1 up --foreground >/results/$1.log 2>&1 &
    for _ in $(seq 100); do as $1 status >/dev/null 2>&1 && break; sleep 0.1; done
}
controllers
introduce near far hci0 hci1
printf '[device]\ngateway = "none"\nprobe = "off"\npeers = true\n' >/tmp/near/config.toml
{ cat /tmp/near/config.toml; printf 'interface = "far0"\nmark = 45000\ntable = 45000\n'; } >/tmp/far/config.toml
ip netns add far; ip -n far link set lo up
mkdir -p /tmp/www; head -c 300000 /dev/urandom >/tmp/www/file
export ANABRANCH_LOG=debug
anabranch-lab traffic sockets-serve --adapter hci1 --port 4615 >/results/holder.log 2>&1 & holder=$!
sleep 1
up near
kill $holder; wait $holder
up far
v4=$(ip address show dev far0 | sed -n 's/.*inet \(10\.254\.[^/]*\).*/\1/p')
v6=$(ip address show dev far0 | sed -n 's/.*inet6 \(fdab:51ab:51ab:6:[^/]*\).*/\1/p')
ip link set far0 netns far; ip -n far link set far0 up
ip -n far address add $v4/16 dev far0; ip -n far address add $v6/64 dev far0 nodad
for family in -4 -6; do for rule in 32480 32510; do ip $family rule del pref $rule not fwmark 45000 || fail 'no such rule'; done; done
ip netns exec far httpd -f -p 8080 -h /tmp/www &
ip netns exec far anabranch-lab traffic echo [::]:9000 &
# A call may be lost on the emulated air, which is found out after 20 s.
for family in 4 6; do
    curl -$family --silent --show-error --max-time 240 --output /tmp/got http://far.anabranch.internal:8080/file 2>>/results/curl.log && cmp /tmp/got /tmp/www/file && echo same >>/results/same
done
for whom in $v6 ff02::1; do anabranch-lab traffic ping [$whom]:9000 --interval-ms 100 --seconds 2 >>/results/pings; done
anabranch-lab traffic ping 255.255.255.255:9000 --interval-ms 100 --seconds 2 >>/results/pings
as near down >/results/down 2>&1 || fail down
"#;
    let Some(outcome) = play_with(&format!("{PEERS_COMMANDS}{script}"), &["curl"]) else { return };
    assert_eq!(outcome.text("same"), "same\nsame\n", "{}", outcome.text("curl.log"));
    let pings = outcome.text("pings");
    let pings: Vec<PingReport> = pings.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(pings.len(), 3);
    for (ping, whom) in pings.iter().zip(["its address", "all on IPv6", "all on IPv4"]) {
        assert!(ping.received > 0, "{whom}: {ping:?}");
    }
}

/// The caller has Bluetooth and nothing else, whom it calls has a cable and nothing else, and the one in the middle has both and passes on; then the same the other way round,
/// where the one in the middle has to call whom it knows.
#[test]
fn a_file_goes_by_bluetooth_to_a_relay_and_on_by_a_cable_and_back() {
    let script = r#"
controllers; cable; plug
introduce near far near0 far0; introduce far near far0 near0
introduce near relay hci0 hci1; introduce relay near hci1 hci0
head -c 300000 /dev/urandom >/tmp/file
export ANABRANCH_LOG=debug
as relay serve --relay --no-link --adapter hci1 --adapter far0 >/results/relay.log 2>&1 & relay=$!
receive() { as $1 receive --no-link --hidden --adapter $2 --to /tmp/$1-received >/results/$1.log 2>&1 & }
receive far near0; far=$!
sleep 1
as near send /tmp/file far --adapter hci0 >/results/there.log 2>&1 || fail there
cmp /tmp/file /tmp/far-received/file && echo same >>/results/same
kill -TERM $far; wait $far
receive near hci0; near=$!
sleep 1
as far send /tmp/file near --adapter near0 >/results/back.log 2>&1 || fail back
cmp /tmp/file /tmp/near-received/file && echo same >>/results/same
kill -TERM $near $relay
"#;
    let Some(outcome) = play(&format!("{PEERS_COMMANDS}{script}")) else { return };
    assert_eq!(outcome.text("same"), "same\nsame\n");
}
