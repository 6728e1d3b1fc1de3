//! Shell commands of the guest by which a device uses the access points that its kernel's stations are in: kernel MPTCP as a user would set it up, alone and
//! managed by scripts, and the product.

use anyhow::Context;

use crate::traffic;
use crate::vm::direct::Answers;
use crate::vm::measurement::tunnel_commands;
use crate::vm::topology::SERVER_ADDRESS;

/// A hand-over by beacons leaves for an access point of which so many more were heard in so many seconds (`[MULTIAP] section 6.3`).
pub(super) const MORE_BEACONS: u32 = 10;
pub(super) const BEACON_SECONDS: u32 = 2;

/// What [`marks_heard`] is, for who reads a row's settings.
pub(super) const MARKS_HEARD: &str = "packets of mptcp_marks of which the server heard that they came marked";

/// Defines functions for the networks `names`, whose interfaces are called `wl-NAME`. They are numbered from 1, as their MPTCP endpoints are.
///
/// - `fail TEXT`; `say TEXT` (on the console, with the guest's time); `fetch NAME ARGUMENTS...`, a download with CUBIC whose report is `/results/NAME`; `serve`, the server of both protocols.
/// - `plain_endpoints`: MPTCP over all of them that have an address; `follow_endpoints`: the same once more, for those that have come and gone since;
///   `no_endpoints`. With `only NUMBER` no other one has an endpoint, and the old one is left first; with `turn NUMBER`, after `follow_endpoints`, all others
///   are backups.
/// - `mark_one_in_20 NAME`: of what comes by it so many packets are marked (ECN), and the device asks for ECN; `mark_nothing`.
/// - `count_beacons`: one line with the time and how many were heard of each, since it was joined.
/// - `direct_up`, `steered NAME ARGUMENTS...` (a download whose sockets the product makes MPTCP ones), `direct_down`; `heard_marks` prints of how many
///   marked packets the server has heard.
/// - `tunnel_up`, `tunnel_down`: the product with its gateway and the radio's advice; `tunnel_marks_up`, after these: with marks on the bond's paths in place
///   of word to the gateway, and OLIA at its end.
pub(super) fn commands(names: &[&str]) -> String {
    format!(
        "fail() {{ echo \"failed: $1\"; cat /results/*.log; exit 1; }}
networks='{names}'
server={SERVER_ADDRESS}:9000
{COMMANDS}tunnel_up() {{
{tunnel}
at_home anabranch --state /tmp/device down; mv /tmp/device/* /tmp/state/
joined_up
}}
",
        names = names.join(" "),
        tunnel = tunnel_commands(),
    )
}

/// Packets of which the server has heard that they came marked, between the script's `heard_marks >/results/heard-before` and `... heard-after`.
///
/// # Errors
/// If the guest left no numbers.
pub(super) fn marks_heard(answers: &Answers) -> anyhow::Result<f64> {
    let heard = |name: &str| -> anyhow::Result<f64> {
        answers.text(name)?.trim().parse().with_context(|| format!("reading {name} of the guest"))
    };
    Ok(heard("heard-after")? - heard("heard-before")?)
}

/// Mbit/s of a download in each of so many pieces of so many seconds, the first from `from` on, in seconds after its begin.
///
/// # Errors
/// If a wrong byte arrived.
pub(super) fn mbps_in_pieces(
    report: &traffic::Report,
    from: f64,
    piece: f64,
    pieces: u32,
) -> anyhow::Result<Vec<f64>> {
    anyhow::ensure!(report.intact, "a wrong byte arrived");
    // Bytes up to a moment; within a tenth they arrive evenly.
    let until = |seconds: f64| -> f64 {
        let tenths = (seconds * 10.0).max(0.0);
        let whole = report.tenths.iter().take(tenths as usize).sum::<u64>() as f64;
        let next = report.tenths.get(tenths as usize).copied().unwrap_or_default();
        whole + tenths.fract() * next as f64
    };
    let begin = |number: u32| from + piece * f64::from(number);
    Ok((0..pieces).map(|number| (until(begin(number + 1)) - until(begin(number))) * 8e-6 / piece).collect())
}

const COMMANDS: &str = r#"say() { echo "$(cut -d' ' -f1 /proc/uptime): $*" >/dev/console; }
fetch() { name=$1; shift; say $name; at_home anabranch-lab traffic fetch $server --congestion cubic --json /results/$name "$@" || fail $name; }
serve() {
    in_namespace server anabranch-lab traffic serve $server --transport mptcp &
    ip -n server mptcp limits set subflow 8 add_addr_accepted 8
    sleep 2
}
up_with_address() { ip -n device -4 -br addr show up | sed -n 's/^wl-\([^ ]*\) *UP *\([0-9.]*\)\/.*/\1 \2/p'; }
set_endpoint() {
    number=0; for one in $networks; do number=$((number + 1)); [ $one = $1 ] && break; done
    ip -n device rule show | grep -q "from $2 lookup 20$number" || ip -n device rule add from $2 lookup 20$number
    ip -n device route replace default via ${2%.*}.1 dev wl-$1 table 20$number
    ip -n device mptcp endpoint add $2 dev wl-$1 id $number subflow
}
plain_endpoints() {
    ip -n device mptcp limits set subflow 8 add_addr_accepted 8; follow_endpoints
    [ -s /tmp/up ] || fail 'no network has an address'
}
follow_endpoints() {
    up_with_address >/tmp/up; ip -n device mptcp endpoint >/tmp/endpoints
    while read -r name address; do
        grep -q "dev wl-$name" /tmp/endpoints || set_endpoint $name $address || say "no endpoint for $name yet"
    done </tmp/up
    number=0
    for name in $networks; do
        number=$((number + 1))
        grep -q "dev wl-$name" /tmp/endpoints && ! grep -q "^$name " /tmp/up && ip -n device mptcp endpoint delete id $number
    done
    true
}
no_endpoints() {
    ip -n device mptcp endpoint flush; ip -n device mptcp limits set subflow 2 add_addr_accepted 0
    number=0
    for name in $networks; do
        number=$((number + 1))
        ip -n device rule del lookup 20$number; ip -n device route flush table 20$number
    done 2>/dev/null
}
mark_one_in_20() {
    at_home sysctl -qw net.ipv4.tcp_ecn=1
    at_home nft "add table ip lab; add chain ip lab marks { type filter hook prerouting priority mangle; }"
    at_home nft "add rule ip lab marks iifname wl-$1 ip ecn != not-ect numgen random mod 20 0 ip ecn set ce" || fail 'marking'
}
mark_nothing() { at_home sysctl -qw net.ipv4.tcp_ecn=2; at_home nft delete table ip lab 2>/dev/null; }
only() {
    number=0
    for name in $networks; do
        number=$((number + 1)); [ $number = $1 ] && chosen=$name && continue
        address=$(ip -n device mptcp endpoint | sed -n "s/^\([0-9.]*\) .*wl-$name.*/\1/p")
        [ -n "$address" ] && ip -n device mptcp endpoint delete id $number && ip -n device mptcp endpoint delete id 0 $address
    done
    for _ in $(seq 50); do
        address=$(up_with_address | sed -n "s/^$chosen //p")
        [ -n "$address" ] && set_endpoint $chosen $address && break
        sleep 0.1
    done
}
turn() {
    at=0
    for name in $networks; do
        at=$((at + 1)); backup=backup; [ $at = $1 ] && backup=nobackup
        grep -q "^$name " /tmp/up && echo "mptcp endpoint change id $at $backup"
    done | ip -n device -force -batch - 2>/dev/null
}
joined_up() {
    at_home anabranch --state /tmp/state up --foreground >>/results/ours.log 2>&1 &
    for _ in $(seq 200); do ip -n device link show any0 >/dev/null 2>&1 && break; sleep 0.1; done
    ip -n device link show any0 >/dev/null || fail 'up'
    sleep 3; fetch warm --seconds 3; sleep 1
}
tunnel_down() { at_home anabranch --state /tmp/state down; }
tunnel_marks_up() {
    kill $(ip netns pids gateway)
    for _ in $(seq 100); do [ -z "$(ip netns pids gateway)" ] && break; sleep 0.1; done
    [ -z "$(ip netns pids gateway)" ] || fail 'ending the gateway'
    rm -f /tmp/gateway/control.sock
    sed -i '/^\[gateway\]/,$ s/^#congestion = .*/congestion = "olia"/' /tmp/gateway/config.toml
    grep -q '^congestion = "olia"' /tmp/gateway/config.toml || fail 'setting the congestion control of the gateway'
    in_namespace gateway anabranch gateway run --state /tmp/gateway >>/results/gateway.log 2>&1 &
    for _ in $(seq 100); do [ -S /tmp/gateway/control.sock ] && break; sleep 0.1; done
    printf '[device]\nsteering = "marks"\n' >/tmp/state/config.toml
    joined_up
}
count_beacons() {
    line=$(cut -d' ' -f1 /proc/uptime)
    for name in $networks; do
        heard=$(at_home iw dev wl-$name station dump | sed -n 's/.*beacon rx:[[:space:]]*//p'); line="$line ${heard:-0}"
    done
    echo $line
}
grouped() { in_namespace device sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@"' sh "$@"; }
direct_up() {
    printf '[device]\ngateway = "none"\nprobe = "off"\n' >/tmp/state/config.toml
    grouped anabranch --state /tmp/state up --foreground >>/results/direct.log 2>&1 &
    for _ in $(seq 200); do at_home nft list table inet anabranch_direct_any0 >/dev/null 2>&1 && break; sleep 0.1; done
    at_home nft list table inet anabranch_direct_any0 >/dev/null || fail 'direct mode'
    sleep 3
}
steered() {
    name=$1; shift; say $name
    grouped anabranch --state /tmp/state run --treat mptcp -- anabranch-lab traffic fetch $server --congestion cubic --json /results/$name "$@" || fail $name
}
direct_down() { at_home anabranch --state /tmp/state down; rm /tmp/state/config.toml; sleep 1; }
heard_marks() {
    in_namespace server awk '/^TcpExt:/ { if (!names) { names = split($0, name) } else for (at = 1; at <= names; at++) if (name[at] == "TCPDeliveredCE") print $at }' /proc/net/netstat
}
"#;
