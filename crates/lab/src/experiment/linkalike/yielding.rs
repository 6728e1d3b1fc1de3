//! LINKALIKE/yield: what the owner of an uplink loses to what is lent of it, and what is lent while the owner is silent.

use std::time::Duration;

use anyhow::Context;
use bond::Algorithm;
use sim::{LinkSpec, NetworkSpec, QueueLimit};
use units::{BitRate, Bytes, Timestamp};

use super::{id, rounded};
use crate::experiment::failover::seed_step;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::{LentUplink, LentUplinkOutcome, quantile};

/// Uplinks of table 1 of the paper, kbit/s.
const RATES: [u64; 3] = [400, 800, 1_200];
/// For how long the modem's queue holds packets back when it is full, ms.
const QUEUES: [u64; 3] = [100, 300, 1_000];
/// Each way, ms: the middle one of table 1.
const DELAY: u64 = 50;
/// The way down is no bottleneck, Mbit/s.
const DOWN: f64 = 16.0;
/// How what is lent is controlled, by name: as all virtual sockets, or giving way.
const CONTROLS: [(&str, Algorithm); 2] = [("equal", Algorithm::Model), ("yields", Algorithm::Background)];
/// What is lent begins at once; until then it settles.
const SETTLED: Duration = Duration::from_secs(10);
/// The owner's upload begins; what is lent until then is lent of an idle uplink.
const UPLOAD_START: Timestamp = Timestamp::from_millis(60_000);
/// With each seed at a moment of its own.
const SEED_STEP: Duration = Duration::from_millis(173);
/// The owner's upload would take so long at the uplink's whole rate.
const UPLOAD: Duration = Duration::from_secs(60);
/// By then the slowest upload is over and the uplink lent again.
const END: Timestamp = Timestamp::from_millis(270_000);
/// The owner's small datagrams.
const PINGS: Duration = Duration::from_millis(200);
const PINGS_END: Timestamp = Timestamp::from_millis(120_000);
/// What is lent is back when it has so much of what it had, over a second.
const REGAINED: f64 = 0.9;
/// For so long it is looked for; what is not back by then counts as this.
const WATCHED_TENTHS: u32 = 1_000;
/// Of what the owner's upload has alone.
const OWNER_KEEPS: f64 = 0.95;
/// Of what is lent of an idle uplink without yielding.
const LENT_WHEN_IDLE: f64 = 0.95;
/// The target of LEDBAT++, ms.
const MOST_DELAY: f64 = 60.0;
const MOST_REGAIN_S: f64 = 5.0;
/// The case of the plot's lines.
const DRAWN: (u64, u64) = (800, 300);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let list =
        |values: &[u64]| toml::Value::from(values.iter().map(|value| *value as i64).collect::<Vec<_>>());
    spec.insert("uplinks_kbps".into(), list(&RATES));
    spec.insert("queues_ms".into(), list(&QUEUES));
    spec.insert("delay_each_way_ms".into(), (DELAY as i64).into());
    spec.insert("down_mbps".into(), DOWN.into());
    spec.insert(
        "lent".into(),
        CONTROLS.map(|(name, control)| toml::Value::from(format!("{name}: {control}"))).to_vec().into(),
    );
    spec.insert(
        "owner".into(),
        "an upload by TCP (CUBIC); by itself a datagram of 64 bytes every 200 ms".into(),
    );
    spec.insert("upload_s".into(), (UPLOAD.as_secs() as i64).into());
    let bar = |metric: &str| BarGroup {
        label: metric.replace('_', " "),
        bars: CONTROLS.iter().map(|(name, _)| ((*name).to_owned(), format!("{name}.{metric}"))).collect(),
    };
    Experiment {
        id: id("yield"),
        title:
            "what is lent of an uplink beside its owner's own traffic: with an equal share, and giving way"
                .to_owned(),
        spec,
        paper: None,
        goals: vec![
            Goal::at_least("yields.owner_keeps", OWNER_KEEPS),
            Goal::at_most("yields.delay_added_p95_ms", MOST_DELAY),
            Goal::at_least("yields.lent_when_idle", LENT_WHEN_IDLE),
            Goal::at_most("yields.regained_s", MOST_REGAIN_S),
        ],
        beds: vec![Bed::Sim],
        bars: vec![bar("owner_keeps")],
        unit: "of the owner's upload alone",
        axes: Axes { over: None, unit: Some("kbit/s") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

/// An uplink and what its owner has of it alone.
struct Home {
    rate: u64,
    queue: u64,
    seed: u64,
    upload_took: Duration,
    upload_mbps: f64,
    ping_p95_ms: f64,
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let (mut metrics, mut series) = (Metrics::new(), Vec::new());
    for rate in RATES {
        for queue in QUEUES {
            let alone = upload(rate, queue, seed, None)?;
            let upload_took = alone
                .upload_took
                .filter(|_| alone.upload_part == 1.0)
                .context("the owner's upload alone is not over")?;
            let begun = start(seed);
            let home = Home {
                rate,
                queue,
                seed,
                upload_took,
                upload_mbps: mean(&alone.owner, begun.as_secs_f64(), (begun + upload_took).as_secs_f64()),
                ping_p95_ms: pings(rate, queue, seed, None)?,
            };
            for (name, control) in CONTROLS {
                let outcome = upload(rate, queue, seed, Some(control))?;
                let added = pings(rate, queue, seed, Some(control))? - home.ping_p95_ms;
                metrics.extend(home.figures(name, &outcome, added));
                if (rate, queue) == DRAWN {
                    series.push((format!("owner beside {name}"), per_second(&outcome.owner)));
                    series.push((format!("lent {name}"), per_second(&outcome.lent)));
                }
            }
            let [equal, yields] = CONTROLS
                .map(|(name, _)| metrics.get(&home.metric(name, "lent_part")).copied().unwrap_or_default());
            metrics.insert(home.metric("yields", "lent_when_idle"), rounded(yields / equal.max(1e-9)));
        }
    }
    for (name, metric, worst) in [
        ("equal", "owner_keeps", f64::min as fn(f64, f64) -> f64),
        ("yields", "owner_keeps", f64::min),
        ("equal", "delay_added_p95_ms", f64::max),
        ("yields", "delay_added_p95_ms", f64::max),
        ("yields", "lent_when_idle", f64::min),
        ("yields", "regained_s", f64::max),
    ] {
        let suffix = format!(".{name}.{metric}");
        let values = metrics.iter().filter(|(of, _)| of.ends_with(&suffix)).map(|(_, value)| *value);
        if let Some(value) = values.reduce(worst) {
            metrics.insert(format!("{name}.{metric}"), value);
        }
    }
    Ok(Report { metrics, series, ..Report::default() })
}

impl Home {
    fn metric(&self, control: &str, name: &str) -> String {
        format!("up{}.queue{}.{control}.{name}", self.rate, self.queue)
    }

    fn figures(&self, control: &str, outcome: &LentUplinkOutcome, added_ms: f64) -> Vec<(String, f64)> {
        let start = start(self.seed).as_secs_f64();
        let alone = start + self.upload_took.as_secs_f64();
        let idle = mean(&outcome.lent, SETTLED.as_secs_f64(), start);
        let part = |rate: f64| rounded(rate * 1e3 / self.rate as f64);
        let stopped = outcome.upload_took.map_or(END.as_secs_f64(), |took| start + took.as_secs_f64());
        let mut tenths = (0..WATCHED_TENTHS).map(|tenth| f64::from(tenth) / 10.0);
        let regained = tenths
            .find(|after| mean(&outcome.lent, stopped + after, stopped + after + 1.0) >= REGAINED * idle)
            .unwrap_or(f64::from(WATCHED_TENTHS) / 10.0);
        let afterwards = mean(&outcome.lent, stopped + SETTLED.as_secs_f64(), END.as_secs_f64());
        let figures = [
            ("owner_keeps", rounded(mean(&outcome.owner, start, alone) / self.upload_mbps)),
            ("delay_added_p95_ms", rounded(added_ms)),
            ("lent_part", part(idle)),
            ("lent_part_beside_owner", part(mean(&outcome.lent, start, alone))),
            ("lent_part_afterwards", part(afterwards)),
            ("regained_s", regained),
            ("owner_sent", rounded(outcome.upload_part)),
        ];
        figures.into_iter().map(|(name, value)| (self.metric(control, name), value)).collect()
    }
}

/// Of the tenths of a second from one time to another; what is not there is nothing.
fn mean(series: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let within = series.iter().filter(|(at, _)| (from..to).contains(at));
    // A sum of nothing would be -0.
    within.fold(0.0, |sum, (_, rate)| sum + rate) / ((to - from).max(0.1) * 10.0)
}

fn upload(rate: u64, queue: u64, seed: u64, lent: Option<Algorithm>) -> anyhow::Result<LentUplinkOutcome> {
    let bytes = BitRate(rate * 1_000).bytes_in(UPLOAD).0;
    let upload = Some((start(seed), bytes));
    LentUplink { network: network(rate, queue), lent, upload, pings: None, end: END, seed }.run()
}

/// 95 of 100 of the owner's small datagrams come back within this time, ms.
fn pings(rate: u64, queue: u64, seed: u64, lent: Option<Algorithm>) -> anyhow::Result<f64> {
    let network = network(rate, queue);
    let outcome =
        LentUplink { network, lent, upload: None, pings: Some(PINGS), end: PINGS_END, seed }.run()?;
    let settled = (SETTLED.as_millis() / PINGS.as_millis()) as usize;
    quantile(outcome.ping_ms.get(settled..).unwrap_or_default(), 0.95).context("no datagram came back")
}

fn network(rate: u64, queue: u64) -> NetworkSpec {
    let delay = Duration::from_millis(DELAY);
    let rate = BitRate(rate * 1_000);
    let queue: Bytes = rate.bytes_in(Duration::from_millis(queue));
    let up = LinkSpec::steady(rate, delay).with_queue(QueueLimit::Bytes(queue));
    NetworkSpec { name: "home", up, down: LinkSpec::steady(BitRate::from_mbps(DOWN), delay) }
}

fn start(seed: u64) -> Timestamp {
    UPLOAD_START + seed_step(seed, SEED_STEP)
}

/// (seconds, kbit/s) of tenths of a second in Mbit/s.
fn per_second(tenths: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let seconds = tenths.chunks(10);
    seconds
        .filter_map(|second| {
            let (at, _) = second.first()?;
            Some((*at, second.iter().map(|(_, rate)| rate * 1e3).sum::<f64>() / second.len() as f64))
        })
        .collect()
}
