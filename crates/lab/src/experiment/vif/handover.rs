//! VIF table 2: an interface is pulled out; how long until new connections and an ongoing ping are served by the other one.

use super::{FAST_MBPS, PING_INTERVAL_MS, ROUND_TRIP_MS, SCALE, behind_point, describe_air, id, ping_gaps};
use crate::experiment::direct_laboratory::{Laboratory, Links, put_times};
use crate::experiment::record::RATE_SCALE;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::{Attempt, ConnectReport, PingReport};
use crate::vm::air::Air;
use crate::vm::direct::{DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use sim::{Change, LinkState, NetworkSpec, TimedChange};
use std::time::Duration;

/// Readings, as many as the paper's; of the two interfaces by turns.
const TRIALS: u32 = 20;
/// The first one is pulled out after this, the next one a period later; each stays out for a while.
const FIRST: Duration = Duration::from_secs(4);
const PERIOD: Duration = Duration::from_millis(6_037);
const OUT: Duration = Duration::from_secs(3);
/// The bound for a hand-over.
const GOAL_MS: f64 = 200.0;
/// Connections are begun this far apart, by so many threads that those which wait hold up no others.
const CONNECTION_INTERVAL_MS: u32 = 10;
const CONNECTION_THREADS: u32 = 40;
/// What start-up and the schedule's clock may differ by, seconds.
const SLACK: f64 = 0.3;

pub(super) fn experiment(links: Links) -> Experiment {
    let mut spec = toml::Table::new();
    match links {
        Links::Wired => {
            spec.insert(
                "networks".into(),
                format!("two of {FAST_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into(),
            );
            spec.insert("rate_scale_vm".into(), SCALE.into());
        }
        Links::Air => {
            describe_air(&mut spec, &[("a", FAST_MBPS), ("b", FAST_MBPS)]);
            spec.insert("pulled_out".into(), "the card's interface is deleted, and made anew".into());
        }
    }
    spec.insert("trials".into(), i64::from(TRIALS).into());
    spec.insert("pulled_out_ms".into(), (OUT.as_millis() as i64).into());
    spec.insert("ping".into(), format!("UDP, every {PING_INTERVAL_MS} ms from one socket").into());
    spec.insert(
        "connections".into(),
        format!(
            "one begun every {CONNECTION_INTERVAL_MS} ms; affected are those that took over {GOAL_MS} ms"
        )
        .into(),
    );
    let bar = |label: &str, metric: &str| (label.to_owned(), metric.to_owned());
    let group = |label: &str, kind: &str| BarGroup {
        label: label.to_owned(),
        bars: vec![
            bar("paper, maxdiff 10", "paper.maxdiff_10_ms"),
            bar("paper, without", "paper.raw_ms"),
            bar("direct, median", &format!("direct.{kind}.median_ms")),
            bar("direct, worst", &format!("direct.{kind}.worst_ms")),
            bar("plain, median", &format!("plain.{kind}.median_ms")),
        ],
    };
    Experiment {
        id: id(&links.of("table2-handover")),
        title: "one of two interfaces is pulled out: how long nothing gets through".to_owned(),
        spec,
        paper: Some("table 2: 1.8, 2.3 and 2.5 s with maxdiff 10, 100 and 1000, 1.5 s without, by pings once a second".to_owned()),
        goals: vec![
            Goal::at_most("direct.ping.worst_ms", GOAL_MS),
            Goal::at_most("direct.connection.worst_ms", GOAL_MS),
        ],
        beds: vec![Bed::Vm],
        bars: vec![group("ongoing UDP ping", "ping"), group("new connections", "connection")],
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(move |_, seed| run(links, seed)),
    }
}

fn run(links: Links, seed: u64) -> anyhow::Result<Report> {
    let networks = match links {
        Links::Wired => vec![network("a", 0), network("b", 1)],
        Links::Air => ["a", "b"].map(behind_point).into(),
    };
    let (seconds, pause) = (start_of(TRIALS).ceil(), CONNECTION_INTERVAL_MS * CONNECTION_THREADS);
    let pulls = if links == Links::Air { pulls() } else { String::new() };
    let script = format!(
        "{pulls}traffic connect {SERVER_ADDRESS}:9200 --seconds {seconds} --threads {CONNECTION_THREADS} --pause-ms {pause} --patience-ms 5000 --json /results/connections &
connections=$!
traffic ping {SERVER_ADDRESS}:9100 --seconds {seconds} --interval-ms {PING_INTERVAL_MS} --json /results/ping || fail ping
wait $connections || fail connections
"
    );
    let mut laboratory = Laboratory::open(seed)?;
    laboratory.put(RATE_SCALE, links.scale());
    for (metric, value) in
        [("raw", 1_500.0), ("maxdiff_10", 1_800.0), ("maxdiff_100", 2_300.0), ("maxdiff_1000", 2_500.0)]
    {
        laboratory.put(&format!("paper.{metric}_ms"), value);
    }
    for (name, way) in [("plain", Way::Plain), ("direct", Way::Direct)] {
        let air = (links == Links::Air).then(|| Air::cards(&[1, 11]));
        let job = DirectJob { air, ..DirectJob::new(networks.clone(), way, script.clone()) };
        let answers = laboratory.run(name, job)?;
        let (ping, connections): (PingReport, ConnectReport) =
            (answers.read("ping")?, answers.read("connections")?);
        let metrics = &mut laboratory.report.metrics;
        put_times(
            metrics,
            &format!("{name}.ping"),
            &ping_gaps(&ping.round_trips, TRIALS, |trial| start_of(trial) - SLACK),
        );
        put_times(metrics, &format!("{name}.connection"), &connection_gaps(&connections.attempts));
        let came_about = connections.attempts.iter().filter(|attempt| attempt.made.is_some());
        let slowest = came_about.map(waited_ms).fold(0.0, f64::max);
        metrics.insert(format!("{name}.slowest_connection_ms"), (slowest * 1e3).round() / 1e3);
        metrics.insert(format!("{name}.connections_failed"), connections.failed as f64);
    }
    Ok(laboratory.report)
}

/// Begin of a trial, seconds.
fn start_of(trial: u32) -> f64 {
    (FIRST + PERIOD * trial).as_secs_f64()
}

/// Shell commands after which the cards, radios 2 and 3, are pulled out and put in again by turns.
fn pulls() -> String {
    let pull = |trial: u32| {
        let (card, radio) = if trial.is_multiple_of(2) { ("a", 2) } else { ("b", 3) };
        format!("(sleep {}; pull {card} phy{radio}) &\n", start_of(trial))
    };
    let out = OUT.as_secs_f64();
    let begin = format!(
        "pull() {{ in_namespace device iw dev $1 del; sleep {out}; in_namespace device iw phy $2 interface add $1 type managed; associate device $1 $1 || echo \"no lease of $1\"; }}\n"
    );
    begin + &(0..TRIALS).map(pull).collect::<String>()
}

/// The network that is pulled out in each second trial, from `first` on.
fn network(name: &'static str, first: u32) -> NetworkSpec {
    let changes: Vec<TimedChange> = (first..TRIALS)
        .step_by(2)
        .flat_map(|trial| {
            let at = FIRST + PERIOD * trial;
            [(at, LinkState::Down), (at + OUT, LinkState::Up)]
                .map(|(at, state)| TimedChange { at, change: Change::State(state) })
        })
        .collect();
    let network = NetworkSpec::symmetric(name, FAST_MBPS, ROUND_TRIP_MS).slowed((1.0 / SCALE) as u32);
    NetworkSpec {
        name,
        up: network.up.with_schedule(changes.clone(), None),
        down: network.down.with_schedule(changes, None),
    }
}

/// From the begin of the first connection of each trial that had to wait to the begin of the first one after the last such,
/// ms; nought if none had to.
fn connection_gaps(attempts: &[Attempt]) -> Vec<f64> {
    let gap = |trial| {
        let of_trial = || attempts.iter().filter(move |attempt| is_within(trial, attempt.began));
        let mut affected =
            of_trial().filter(|attempt| waited_ms(attempt) > GOAL_MS).map(|attempt| attempt.began);
        let Some(first) = affected.next() else { return 0.0 };
        let last = affected.next_back().unwrap_or(first);
        let next = of_trial().map(|attempt| attempt.began).find(|began| *began > last);
        (next.unwrap_or_else(|| start_of(trial + 1)) - first) * 1e3
    };
    (0..TRIALS).map(gap).collect()
}

/// How long a connection took to come about; for ever if it did not.
fn waited_ms(attempt: &Attempt) -> f64 {
    attempt.made.map_or(f64::MAX, |made| (made - attempt.began) * 1e3)
}

/// Whether a moment belongs to the time from a trial's begin to the next one's.
fn is_within(trial: u32, seconds: f64) -> bool {
    (start_of(trial) - SLACK..start_of(trial + 1) - SLACK).contains(&seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_resume_where_no_later_one_has_to_wait() {
        let attempt = |began, made| Attempt { began, made };
        let attempts = [
            attempt(3.99, Some(3.995)),
            attempt(4.0, Some(5.1)),
            attempt(4.01, Some(4.015)),
            attempt(4.02, None),
            attempt(4.03, Some(4.035)),
            attempt(9.0, Some(9.003)),
            attempt(11.0, Some(11.5)),
        ];
        let gaps = connection_gaps(&attempts);
        assert!((gaps[0] - 30.0).abs() < 1e-6, "{gaps:?}");
        assert!((gaps[1] - (start_of(2) - 11.0) * 1e3).abs() < 1e-6, "{gaps:?}");
        assert_eq!(gaps[2], 0.0);
    }
}
