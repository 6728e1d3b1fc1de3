//! JUGGLER table 2, fail-over: the primary's access point dies, and how long no new connection comes about, or a flow in a bond stands still.

use super::CHANNELS;
use crate::experiment::Goal;
use crate::experiment::direct_laboratory::Laboratory;
use crate::simbed::quantile;
use crate::traffic::{ConnectReport, Report as TrafficReport};
use crate::vm::air::Air;
use crate::vm::direct::{Answers, DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use anyhow::Context;
use sim::NetworkSpec;
use std::fmt::Write as _;

const TRIALS: u32 = 10;
const RATE_MBPS: f64 = 4.0;
/// Short, since a connection takes two of them beside the fail-over.
const ROUND_TRIP_MS: u64 = 10;
/// One primary with nine tenths, decided by signs of life on the air alone.
const RADIO: &str = "--soft-handoff --probe off --channels 1,11";
/// Most seconds without a new connection, and of a bonded flow's stand-still.
const GOAL: f64 = 0.2;
const PAPER: f64 = 1.008;

pub(super) fn describe(spec: &mut toml::Table) {
    spec.insert("failover".into(), format!("two networks of {RATE_MBPS} Mbit/s and {ROUND_TRIP_MS} ms, `anabranch radio up {RADIO}`; {TRIALS} times the access point of the network that carries the traffic dies, each time at another moment of the cycle").into());
    spec.insert(
        "failover.connection".into(),
        "new TCP connections about every 3 ms: the longest time in which none came about".into(),
    );
    spec.insert(
        "failover.bond".into(),
        "a TCP download of 6 s in a bond: the longest time in which nothing arrived; broken: those that did not go on".into(),
    );
}

pub(super) fn goals() -> Vec<Goal> {
    vec![
        Goal::at_most("failover.connection.mean_s", GOAL),
        Goal::at_most("failover.bond.broken", 0.0),
        Goal::at_most("failover.bond.mean_s", GOAL),
    ]
}

pub(super) fn measure(laboratory: &mut Laboratory) -> anyhow::Result<()> {
    let connections = laboratory.run("failover", job(Way::Plain, "knock"))?;
    let times: Vec<f64> =
        (0..TRIALS).map(|trial| without_connection(&connections, trial)).collect::<anyhow::Result<_>>()?;
    put(laboratory, "failover.connection", &times)?;
    let downloads = laboratory.run("failover.bonded", job(Way::Bonded, "download"))?;
    let flows: Vec<TrafficReport> = (0..TRIALS)
        .map(|trial| downloads.read(&format!("download-{trial}")))
        .collect::<anyhow::Result<_>>()?;
    let goes_on = |report: &TrafficReport| {
        let at_the_end =
            |flow: &crate::traffic::FlowReport| flow.tenths.iter().rev().take(10).any(|bytes| *bytes > 0);
        report.intact && report.flows.iter().all(at_the_end)
    };
    laboratory.put("failover.bond.broken", flows.iter().filter(|report| !goes_on(report)).count() as f64);
    let gaps: Vec<f64> = flows
        .iter()
        .flat_map(|report| &report.flows)
        .map(|flow| flow.longest_gap.milliseconds / 1e3)
        .collect();
    put(laboratory, "failover.bond", &gaps)?;
    laboratory.put("paper.failover_s", PAPER);
    Ok(())
}

fn put(laboratory: &mut Laboratory, name: &str, times: &[f64]) -> anyhow::Result<()> {
    laboratory.put(&format!("{name}.mean_s"), times.iter().sum::<f64>() / times.len() as f64);
    for (rank, fraction) in [("median", 0.5), ("worst", 1.0)] {
        laboratory.put(&format!("{name}.{rank}_s"), quantile(times, fraction).context("no trial")?);
    }
    Ok(())
}

fn job(way: Way, traffic: &str) -> DirectJob {
    let networks = ["a", "b"].map(|name| NetworkSpec::symmetric(name, RATE_MBPS, ROUND_TRIP_MS)).to_vec();
    let mut script = FUNCTIONS.replace("SERVER", SERVER_ADDRESS);
    for trial in 0..TRIALS {
        // Writing to a string cannot fail.
        let _ = writeln!(script, "trial {trial} {traffic} {:.3}", 2.0 + f64::from(trial) * 0.0237);
    }
    DirectJob { air: Some(Air::shared(&CHANNELS, RADIO)), ..DirectJob::new(networks, way, script) }
}

/// The longest time between two connections that came about.
fn without_connection(answers: &Answers, trial: u32) -> anyhow::Result<f64> {
    let report: ConnectReport = answers.read(&format!("knock-{trial}"))?;
    anyhow::ensure!(report.failed > 0, "trial {trial}: no connection failed, so nothing died");
    let mut made: Vec<f64> = report.attempts.iter().filter_map(|attempt| attempt.made).collect();
    made.sort_by(f64::total_cmp);
    anyhow::ensure!(
        made.last().is_some_and(|last| *last > report.seconds - 0.5),
        "trial {trial}: no connection at the end"
    );
    Ok(made.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max))
}

/// `trial NUMBER TRAFFIC PAUSE`: once both networks are up, the primary's access point dies while TRAFFIC goes on; then it is there again.
const FUNCTIONS: &str = r#"state() { in_namespace device anabranch --state /tmp/device radio list --json | tr -d ' \n'; }
both_up() { for _ in $(seq 300); do state | grep -q '"state":"up".*"state":"up"' && return; sleep 0.1; done; cat /results/radio.log; fail "$1: not both up"; }
primary() { in_namespace device ip route | sed 's/$/ /' | sed -n '/^default.* metric 600 /s/.*dev \([ab]\) .*/\1/p'; }
knock() { traffic connect SERVER:9200 --seconds 4 --threads 40 --pause-ms 80 --patience-ms 50 --json /results/knock-$1 || fail "knock $1"; }
download() { fetch download-$1 --seconds 6; }
trial() {
    both_up $1; sleep 2; primary=$(primary); [ -n "$primary" ] || fail "$1: no primary"
    $2 $1 & client=$!
    sleep $3; point_off $primary 0
    wait $client || fail "$1: the traffic"
    point_on $primary 0
}
"#;
