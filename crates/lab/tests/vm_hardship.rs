//! What only a kernel of one's own can show: a machine that is suspended, kernels without a feature. Skipped with a reason where a
//! part of the bed cannot be had.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lab::vm::measurement::Programs;
use lab::vm::topology::{GATEWAY_ADDRESS, SERVER_ADDRESS, Topology};
use lab::vm::{Job, Outcome};
use sim::NetworkSpec;

/// A gateway, a device that has joined it, and a server: `fetch` downloads 300 kB through any0, `of_device` runs a command of
/// `anabranch` on the device.
const TUNNEL: &str = r#"
fail() { echo "failed: $1"; cat /tmp/*.log; exit 1; }
. /job/networks
build_networks
in_namespace server anabranch-lab traffic serve SERVER:9000 &
of_gateway() { in_namespace gateway anabranch --state /tmp/gateway "$@"; }
of_device() { in_namespace device anabranch --state /tmp/device "$@"; }
fetch() { in_namespace device anabranch-lab traffic fetch SERVER:9000 --bytes 300000 --seconds 60 --json /tmp/fetched; }
of_gateway gateway init --address GATEWAY >/tmp/init.log 2>&1 || fail 'gateway init'
of_gateway gateway run >/tmp/gateway.log 2>&1 &
for _ in $(seq 600); do of_gateway status >/dev/null 2>&1 && break; sleep 0.1; done
of_gateway gateway invite laptop --qr never --json >/tmp/invitation || fail 'gateway invite'
sed -n 's/.*"link": *"\([^"]*\)".*/\1/p' /tmp/invitation | of_device join - >/tmp/join.log 2>&1 || fail 'join'
of_device up --foreground >/tmp/device.log 2>&1 &
up() { of_device status --json 2>/dev/null | grep -q '"state": *"up"'; }
for _ in $(seq 600); do up && break; sleep 0.1; done
up || fail 'up'
fetch || fail 'the first download'
"#;

/// One machine at a time: one that has this machine's time gets too little of it beside another.
static MACHINE: Mutex<()> = Mutex::new(());

fn run(script: &str, change: impl FnOnce(&mut Job)) -> Option<Outcome> {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (machine, programs) = Programs::find_or_skip(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()?;
    let networks = [NetworkSpec::symmetric("wide", 4.0, 20), NetworkSpec::symmetric("narrow", 2.0, 50)];
    let topology = Topology::new(&networks).unwrap();
    let tunnel = TUNNEL.replace("SERVER", SERVER_ADDRESS).replace("GATEWAY", GATEWAY_ADDRESS);
    let mut job = Job::new(script.replace("TUNNEL", &tunnel));
    job.files = topology.files;
    job.files.insert("/job/networks".into(), topology.functions.into_bytes());
    job.programs = vec![programs.lab.clone(), programs.anabranch().unwrap()];
    change(&mut job);
    let outcome = machine.run(&job).unwrap();
    println!("{}", outcome.output);
    println!("guest time {:?}, wall time {:?}", outcome.guest_time, outcome.wall_time);
    assert_eq!(outcome.exit, 0);
    Some(outcome)
}

/// The kernel suspends to memory and the clock of the machine wakes it: twice, the second time in the middle of a download, with the
/// wall clock five hours on.
#[test]
fn a_machine_that_was_suspended_goes_on() {
    let script = r#"
TUNNEL
now() { cut -d' ' -f1 /proc/uptime; }
suspend() {
    echo 0 >/sys/class/rtc/rtc0/wakealarm; echo +12 >/sys/class/rtc/rtc0/wakealarm
    now; echo mem >/sys/power/state || fail 'suspend'
    now; until in_namespace device ping -q -c 1 -W 1 SERVER >/dev/null 2>&1; do :; done
    now
}
in_namespace device ping -q -c 1 -W 1 SERVER >/dev/null || fail 'ping'
suspend >/results/idle
fetch || fail 'a download after the sleep'
in_namespace device anabranch-lab traffic fetch SERVER:9000 --bytes 2000000 --seconds 120 --json /results/flows &
sleep 1
suspend >/results/busy
date -s "@$(($(date +%s) + 18000))" >/dev/null
wait $! || fail 'the download that was slept over'
up || fail 'up afterwards'
of_device events >/results/events
of_device down || fail 'down'
cat /results/idle /results/busy
"#;
    let script = script.replace("SERVER", SERVER_ADDRESS);
    let Some(outcome) = run(&script, |job| {
        job.instruction_nanos = 0;
        job.timeout = Duration::from_secs(400);
        job.wall_timeout = Duration::from_secs(450);
    }) else {
        return;
    };
    for name in ["idle", "busy"] {
        let text = String::from_utf8_lossy(&outcome.files[name]);
        let times: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let [asleep, woken, answered] = times[..] else { panic!("{text}") };
        // The emulated hardware may end a second sleep at once: then it is a nap, which connections must survive as well.
        assert!(woken - asleep > 5.0 || name == "busy", "it has not slept: {text}");
        // A second where nothing else runs; an emulated processor on a busy machine may take several.
        assert!(answered - woken < 10.0, "{name}: an answer came after {:.2} s", answered - woken);
        println!("{name}: an answer came after {:.2} s", answered - woken);
    }
    let events = String::from_utf8_lossy(&outcome.files["events"]);
    assert!((1..=2).contains(&events.matches("the machine has slept for").count()), "{events}");
    let report: lab::traffic::Report = serde_json::from_slice(&outcome.files["flows"]).unwrap();
    assert!(report.intact);
    assert_eq!(report.flows[0].bytes, 2_000_000);
}

/// What must be there is named with the command that loads it.
#[test]
fn what_the_kernel_lacks_is_named() {
    let script = r#"
fail() { echo "failed: $1"; cat /tmp/said; exit 1; }
says() {
    anabranch --state /tmp/gateway gateway run >/tmp/said 2>&1 && fail 'it has started'
    cat /tmp/said
    grep -q "$1" /tmp/said || fail "$1 is not said"
}
anabranch --state /tmp/gateway gateway init --address 192.0.2.1 >/tmp/said 2>&1 || fail 'gateway init'
rmmod nft_masq || fail 'rmmod nft_masq'
says 'modprobe -a nf_tables nft_chain_nat nft_masq'
insmod /lib/modules/nft_masq.ko
rmmod tun || fail 'rmmod tun'
says 'modprobe tun'
insmod /lib/modules/tun.ko
anabranch --state /tmp/gateway gateway run >/tmp/said 2>&1 &
for _ in $(seq 100); do anabranch --state /tmp/gateway status >/dev/null 2>&1 && break; sleep 0.1; done
anabranch --state /tmp/gateway down || fail 'with both it does not start'
"#;
    run(script, |_| {});
}

/// Servers are often started so.
#[test]
fn a_kernel_without_ipv6_is_enough() {
    let script = r#"
test ! -e /proc/sys/net/ipv6 || { echo 'there is IPv6'; exit 1; }
TUNNEL
of_device down || fail 'down'
of_gateway down || fail 'down of the gateway'
test -z "$(in_namespace gateway nft list ruleset)" || fail 'rules are left'
"#;
    run(script, |job| job.kernel_arguments = "ipv6.disable=1".to_owned());
}
