//! `--switch-off`: a Wi-Fi adapter that no connection uses is switched off, on again when it is needed, and however the command ends. Skipped with a
//! reason where a part of the bed cannot be had, except in CI.

use std::time::Duration;

use lab::vm::Job;
use lab::vm::measurement::Programs;

/// A cable carries; the Wi-Fi adapter is in no network. Each line of the result says when, and what the kernel has of its switch.
const SCRIPT: &str = r#"
fail() { echo "failed: $*"; cat /results/*.log; exit 1; }
near() { ip netns exec near "$@"; }
blocked() { near sh -c "cat /sys/class/rfkill/rfkill*/soft"; }
until_blocked() { for _ in $(seq $2); do [ "$(blocked)" = $1 ] && return; sleep 0.5; done; fail "$3"; }
ip netns add near; ip netns add far
ip link add near0 netns near type veth peer name far0 netns far
for end in near far; do ip -n $end link set lo up; ip -n $end link set ${end}0 up; done
ip -n near addr add 10.9.0.1/24 dev near0; ip -n far addr add 10.9.0.2/24 dev far0
iw phy phy0 set netns name near; ip -n near link set wlan0 up || fail 'no wlan0'
ip netns exec far tc qdisc add dev far0 root tbf rate 2mbit burst 16k latency 100ms
ip netns exec near tc qdisc add dev near0 root tbf rate 2mbit burst 16k latency 100ms
mkdir /tmp/into; ip netns exec far anabranch --state /tmp/far receive --to /tmp/into >/results/far.log 2>&1 &
for _ in $(seq 100); do link=$(grep -o 'anabranch://[^ ]*' /results/far.log) && break; sleep 0.1; done
dd if=/dev/urandom of=/tmp/film bs=1M count=60 2>/dev/null
near anabranch --state /tmp/near send --switch-off near0 /tmp/film "$link" >/results/refused.log 2>&1 && fail 'a cable has no switch'
grep -q 'near0 cannot be switched off' /results/refused.log || fail 'refused without a reason'
[ "$(blocked)" = 0 ] || fail 'off at the start'
(exec ip netns exec near anabranch --state /tmp/near send --switch-off wlan0 --name far /tmp/film "$link" >/results/near.log 2>&1) & sender=$!
sleep 20; [ "$(blocked)" = 0 ] || fail 'off too soon'
until_blocked 1 40 'never switched off'
ip -n near link set near0 down; until_blocked 0 40 'not on again when the cable was pulled out'
ip -n near link set wlan0 up; ip -n near link set near0 up
sleep 50; [ "$(blocked)" = 0 ] || fail 'off again too soon'
until_blocked 1 60 'never switched off again'
cat /tmp/near/switched-off
near anabranch --state /tmp/near send --switch-off wlan0 /tmp/film far >/results/second.log 2>&1 && fail 'two have the same switches'
grep -q 'another anabranch command' /results/second.log || fail 'the second was refused without a reason'
kill -9 $sender; wait $sender
until_blocked 0 20 'not on again after a kill'
echo done
"#;

#[test]
fn an_adapter_that_nobody_uses_is_off_and_always_comes_back() {
    let Some((machine, programs)) = Programs::find_or_skip(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()
    else {
        return;
    };
    let mut job = Job::new(SCRIPT);
    job.programs.extend([programs.anabranch().unwrap(), lab::vm::program("iw", "iw").unwrap()]);
    job.modules.push("mac80211_hwsim radios=1".to_owned());
    job.timeout = Duration::from_secs(400);
    let outcome = machine.run(&job).unwrap();
    println!("{}\nwall time {:?}", outcome.output, outcome.wall_time);
    for (name, bytes) in &outcome.files {
        println!("--- {name}\n{}", String::from_utf8_lossy(bytes));
    }
    let outcome = outcome.succeeded().unwrap();
    assert!(outcome.output.contains("phy0"), "the note names the radio: {}", outcome.output);
    assert!(outcome.output.ends_with("done\n"), "{}", outcome.output);
}
