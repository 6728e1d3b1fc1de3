//! VIF table 2 as the paper took it: two machines that reach each other over two LANs, one LAN goes away, and `maxdiff` says
//! how long a silent one is borne.

use super::{PING_INTERVAL_MS, ROUND_TRIP_MS, id, ping_gaps};
use crate::experiment::direct_laboratory::{Laboratory, put_times};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::PingReport;
use crate::vm::Job;
use std::time::Duration;

/// The paper's values. It gives no unit; ours are milliseconds.
const MAXDIFFS_MS: [u32; 3] = [10, 100, 1_000];
/// The paper's hand-overs with them, milliseconds.
const PAPER_MS: [f64; 3] = [1_800.0, 2_300.0, 2_500.0];
/// Readings of each kind, as many as the paper's.
const TRIALS: u32 = 20;
/// Seconds until the first LAN goes, from one trial to the next, and that it stays away.
const FIRST: u32 = 8;
const PERIOD: u32 = 5;
const AWAY: u32 = 2;
const PORT: u16 = 9_100;
/// What start-up and the shell's clock may differ by, seconds.
const SLACK: f64 = 0.5;
/// The row's goal.
const GOAL_MS: f64 = 200.0;

/// What happens to the preferred LAN, and how it comes back: its cable is pulled out here, or at the neighbour's, or nothing
/// passes the switch any more and no machine is told.
const KINDS: [(&str, &str, &str); 3] = [
    ("here", "ip -n ann link set lan0 down", "ip -n ann link set lan0 up"),
    ("there", "ip -n bob link set lan0 down", "ip -n bob link set lan0 up"),
    ("silent", "ip -n switch0 link set bob nomaster", "ip -n switch0 link set bob master bridge"),
];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "lans".into(),
        format!("two switches, round trip {ROUND_TRIP_MS} ms, one of priority 0").into(),
    );
    spec.insert("trials".into(), i64::from(TRIALS).into());
    spec.insert("away_s".into(), i64::from(AWAY).into());
    spec.insert(
        "ping".into(),
        format!("UDP, every {PING_INTERVAL_MS} ms from one socket to the neighbour's own address").into(),
    );
    let groups = MAXDIFFS_MS.map(|maxdiff| BarGroup {
        label: format!("maxdiff {maxdiff} ms"),
        bars: [
            ("paper", format!("paper.maxdiff_{maxdiff}_ms")),
            ("pulled out here, worst", format!("maxdiff_{maxdiff}.here.worst_ms")),
            ("at the neighbour's, worst", format!("maxdiff_{maxdiff}.there.worst_ms")),
            ("silent, median", format!("maxdiff_{maxdiff}.silent.median_ms")),
            ("silent, worst", format!("maxdiff_{maxdiff}.silent.worst_ms")),
        ]
        .map(|(label, metric)| (label.to_owned(), metric))
        .to_vec(),
    });
    let mut goals: Vec<Goal> = MAXDIFFS_MS
        .iter()
        .map(|maxdiff| Goal::at_most(format!("maxdiff_{maxdiff}.here.worst_ms"), GOAL_MS))
        .collect();
    goals.extend(
        MAXDIFFS_MS.map(|maxdiff| Goal::at_most(format!("maxdiff_{maxdiff}.there.worst_ms"), GOAL_MS)),
    );
    // A silent LAN is left no earlier than `maxdiff` says.
    goals.push(Goal::at_most("maxdiff_10.silent.worst_ms", GOAL_MS));
    Experiment {
        id: id("table2-neighbour-wired"),
        title: "one of two LANs to a neighbour goes away: how long nothing gets through".to_owned(),
        spec,
        paper: Some(
            "table 2: 1.8, 2.3 and 2.5 s with maxdiff 10, 100 and 1000, by pings once a second".to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars: groups.to_vec(),
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    for (maxdiff, paper) in MAXDIFFS_MS.iter().zip(PAPER_MS) {
        laboratory.put(&format!("paper.maxdiff_{maxdiff}_ms"), paper);
        let mut job = Job::new(script(*maxdiff));
        job.timeout = Duration::from_secs(u64::from(3 * length()) + 120);
        job.wall_timeout = Duration::from_secs(1_800);
        let name = format!("maxdiff_{maxdiff}");
        let answers = laboratory.run_job(&name, job)?;
        for (kind, ..) in KINDS {
            let ping: PingReport = answers.read(&format!("ping-{kind}"))?;
            let begin = |trial| f64::from(FIRST + PERIOD * trial) - SLACK;
            let gaps = ping_gaps(&ping.round_trips, TRIALS, begin);
            put_times(&mut laboratory.report.metrics, &format!("{name}.{kind}"), &gaps);
        }
    }
    Ok(laboratory.report)
}

/// Seconds of the pings of one kind.
fn length() -> u32 {
    FIRST + PERIOD * TRIALS
}

/// Two machines on two switches; for each kind, pings while the first LAN comes and goes.
fn script(maxdiff_ms: u32) -> String {
    let half = ROUND_TRIP_MS / 2;
    let kinds: String = KINDS
        .iter()
        .map(|(kind, away, back)| {
            format!(
                "in_namespace ann anabranch-lab traffic ping $address:{PORT} --seconds {} --interval-ms {PING_INTERVAL_MS} --json /results/ping-{kind} &
ping=$!
come_and_go '{away}' '{back}'
wait $ping || fail 'the pings'
",
                length()
            )
        })
        .collect();
    format!(
        r#"fail() {{ echo "failed: $1"; exit 1; }}
in_namespace() {{ space=$1; shift; ip netns exec "$space" "$@"; }}
for space in ann bob switch0 switch1; do ip netns add $space; ip -n $space link set lo up; done
for lan in 0 1; do
    ip -n switch$lan link add bridge type bridge
    ip -n switch$lan link set bridge up
    last=0
    for name in ann bob; do
        last=$((last + 1))
        ip link add lan$lan netns $name type veth peer name $name netns switch$lan
        ip -n $name addr add 192.168.1.$last/24 dev lan$lan
        ip -n $name link set lan$lan up
        ip -n switch$lan link set $name master bridge
        ip -n switch$lan link set $name up
        in_namespace switch$lan tc qdisc add dev $name root netem delay {half}ms limit 1000
    done
done
for name in ann bob; do
    mkdir -p /tmp/$name
    printf '[device]\ngateway = "none"\nprobe = "off"\nneighbours = true\nmaxdiff = "{maxdiff_ms}ms"\n[network.lan0]\npriority = 0\n[network.lan1]\npriority = 1\n' >/tmp/$name/config.toml
    in_namespace $name anabranch up --foreground --state /tmp/$name >/results/$name.log 2>&1 &
done
known() {{ in_namespace $1 anabranch neighbours --json --state /tmp/$1 2>/dev/null; }}
key_of() {{ known $1 | tr ',{{}}' '\n\n\n' | sed -n 's/.*"public_key": *"\([^"]*\)".*/\1/p' | head -n 1; }}
for _ in $(seq 100); do known ann >/dev/null && known bob >/dev/null && break; sleep 0.1; done
bob=$(key_of bob); ann=$(key_of ann)
[ -n "$bob" ] && [ -n "$ann" ] || fail 'the keys'
address=$(known bob | grep -o '10\.254\.[0-9]*\.[0-9]*' | head -n 1)
[ -n "$address" ] || fail 'an address for neighbours'
in_namespace ann anabranch neighbours add bob "$bob" --state /tmp/ann >/dev/null || fail 'add bob'
in_namespace bob anabranch neighbours add ann "$ann" --state /tmp/bob >/dev/null || fail 'add ann'
in_namespace bob anabranch-lab traffic echo "$address:{PORT}" &
for _ in $(seq 100); do [ "$(ip -n ann route get "$address" 2>/dev/null | grep -c lan0)" = 1 ] && break; sleep 0.1; done
ip -n ann route get "$address" | grep -q lan0 || fail "bob is not reached: $(known ann)"
come_and_go() {{
    sleep {FIRST}
    for _ in $(seq {TRIALS}); do
        $1
        sleep {AWAY}
        $2
        sleep $(({PERIOD} - {AWAY}))
    done
}}
head -1 /proc/stat >/results/before
{kinds}head -1 /proc/stat >/results/after
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_reaches_both_machines() {
        let script = script(1_000);
        assert!(script.contains("maxdiff = \"1000ms\"") && script.contains("for name in ann bob"));
    }
}
