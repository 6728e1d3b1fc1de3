//! The BOND family: downloads over each named pair of networks, plain, through the tunnel over one
//! network, and bonded.

use super::bond_trials::{NamedTrial, Ride, run_all};
use super::record::RATE_SCALE;
use super::{Axes, BarGroup, Bed, Experiment, ExperimentId, Goal, Metrics, Report};
use crate::simbed::{Algorithm, Outcome, Traffic, Trial, Way, quantile};
use anyhow::Context;
use sim::{Capacity, Loss, NetworkSpec, Scenario};
use std::collections::BTreeMap;
use std::time::Duration;
use units::Bytes;

/// Length of the long downloads.
const DURATION: Duration = Duration::from_secs(30);
/// Their length where a run costs what it takes: in real time, and in the virtual machine.
const REAL_TIME_DURATION: Duration = Duration::from_secs(10);
const VM_DURATION: Duration = Duration::from_secs(8);
/// What the virtual machine's processor, on which everything runs, carries through the tunnel with half of its time
/// left, Mbit/s of all networks together. Faster ones are slowed down there.
const VM_RATE: f64 = 25.0;
/// A processor with less time left than this part of all may be what bounds a flow.
const LEAST_IDLE: f64 = 0.1;
/// Size of the short one; slowed like its networks.
const SHORT_DOWNLOAD: Bytes = Bytes(20 << 20);
/// Payload of a full packet on a plain network, over its size.
const PAYLOAD_PART: f64 = 1_448.0 / 1_500.0;
/// Seed of the traces that the specification names; each run has those of its own seed.
const TRACE_SEED: u64 = 1;
/// One-way delays within which the goal for the sum is high, and within which there is one.
const NEAR_DELAYS: Duration = Duration::from_millis(30);
const FAR_DELAYS: Duration = Duration::from_millis(100);
/// Delay of a paced flow's ping beside bulk over idle that is allowed, milliseconds.
const PING_ALLOWANCE_MS: f64 = 20.0;

/// The experiments of the family.
pub(super) fn experiments() -> Vec<Experiment> {
    sim::scenario::scenarios(TRACE_SEED).into_iter().map(experiment).collect()
}

fn experiment(scenario: Scenario) -> Experiment {
    Experiment {
        id: ExperimentId { key: "BOND".to_owned(), name: scenario.name.to_owned() },
        title: scenario.title.to_owned(),
        spec: spec(&scenario),
        paper: None,
        goals: goals(&scenario),
        beds: vec![Bed::Sim, Bed::Netns, Bed::Vm],
        bars: bars(&scenario),
        unit: "Mbit/s",
        axes: Axes::default(),
        runner: Box::new(move |bed, seed| run(&scenario, bed, seed)),
    }
}

/// Downloads by name.
fn kinds_of_traffic() -> [(&'static str, Traffic); 4] {
    [
        ("tcp-cubic", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 }),
        ("tcp-bbr", Traffic::Tcp { algorithm: Algorithm::Bbr, flows: 1 }),
        ("tcp-cubic-8", Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 8 }),
        ("quic-cubic", Traffic::Quic { algorithm: Algorithm::Cubic }),
    ]
}

fn spec(scenario: &Scenario) -> toml::Table {
    let network = |network: &NetworkSpec| {
        let mut table = toml::Table::new();
        table.insert("name".into(), network.name.into());
        table.insert("down".into(), format!("{:?}", Summary(&network.down)).into());
        table.insert("up".into(), format!("{:?}", Summary(&network.up)).into());
        toml::Value::Table(table)
    };
    let mut table = toml::Table::new();
    table.insert("title".into(), scenario.title.into());
    table.insert("duration_s".into(), (DURATION.as_secs() as i64).into());
    table.insert("duration_netns_s".into(), (REAL_TIME_DURATION.as_secs() as i64).into());
    table.insert("duration_vm_s".into(), (VM_DURATION.as_secs() as i64).into());
    table.insert("rate_scale_vm".into(), (1.0 / f64::from(divisor(scenario, Bed::Vm))).into());
    table.insert("short_download_bytes".into(), (SHORT_DOWNLOAD.0 as i64).into());
    let kinds = kinds_of_traffic().map(|(name, _)| toml::Value::from(name));
    table.insert("traffic".into(), kinds.to_vec().into());
    table.insert("trace_seed".into(), "that of the run".into());
    table.insert("networks".into(), scenario.networks.iter().map(network).collect::<Vec<_>>().into());
    table
}

/// A link in one line.
struct Summary<'a>(&'a sim::LinkSpec);

impl std::fmt::Debug for Summary<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let link = self.0;
        match &link.capacity {
            Capacity::Unlimited => write!(formatter, "unlimited")?,
            Capacity::Rate(rate) => write!(formatter, "{rate}")?,
            Capacity::Trace(trace) => write!(
                formatter,
                "trace of {:.2} Mbit/s over {} s",
                trace.mean_bits_per_second() as f64 / 1e6,
                trace.period_ms() / 1_000
            )?,
        }
        write!(
            formatter,
            ", delay {:?}, jitter {:?}, loss {:?}, queue {:?}",
            link.delay, link.jitter, link.loss, link.queue
        )?;
        if !link.schedule.is_empty() {
            write!(formatter, ", schedule {:?} every {:?}", link.schedule, link.schedule_period)?;
        }
        Ok(())
    }
}

fn goals(scenario: &Scenario) -> Vec<Goal> {
    let networks = &scenario.networks;
    let delays = || networks.iter().map(|network| network.down.delay);
    let delay_difference = delays().max().unwrap_or_default() - delays().min().unwrap_or_default();
    let round_trips_differ_twice =
        delays().max().unwrap_or_default() > 2 * delays().min().unwrap_or_default();
    let rates = || networks.iter().map(mean_mbps);
    let rates_are_near = rates().fold(0.0, f64::max) <= 4.0 * rates().fold(f64::INFINITY, f64::min);
    let is_lossy = networks.iter().all(|network| matches!(network.down.loss, Loss::Random(p) if p >= 0.005));
    let mut goals = vec![Goal::at_least("tcp-cubic.short_download_over_best_plain", 0.95)];
    for (traffic, kind) in kinds_of_traffic() {
        goals.push(Goal::at_least(format!("{traffic}.over_best_plain"), 0.95));
        goals.push(Goal::at_least(format!("{traffic}.over_best_tunnelled"), 0.98));
        let is_bbr = matches!(kind, Traffic::Tcp { algorithm: Algorithm::Bbr, .. });
        let sum = format!("{traffic}.of_tunnelled_sum");
        if is_lossy {
            goals.push(Goal::at_least(format!("{traffic}.of_capacity"), 0.75));
        } else if !rates_are_near || (is_bbr && round_trips_differ_twice) {
            continue;
        } else if delay_difference <= NEAR_DELAYS {
            goals.push(Goal::at_least(sum, 0.90));
        } else if delay_difference <= FAR_DELAYS {
            goals.push(Goal::at_least(sum, 0.80));
        }
    }
    if is_lossy {
        goals.push(Goal::at_least("tcp-cubic.over_best_plain", 10.0));
    }
    let is_steady = |network: &NetworkSpec| {
        matches!(network.down.capacity, Capacity::Rate(_)) && network.down.schedule.is_empty()
    };
    if networks.iter().all(is_steady) {
        goals.push(Goal::at_most("tcp-cubic.ping_p99_over_idle_ms", PING_ALLOWANCE_MS));
    }
    goals
}

fn bars(scenario: &Scenario) -> Vec<BarGroup> {
    let group = |(traffic, kind): (&str, Traffic)| {
        let mut bars: Vec<(String, String)> = Vec::new();
        for way in ["plain", "tunnelled"] {
            for network in &scenario.networks {
                bars.push((
                    format!("{} {way}", network.name),
                    format!("{traffic}.{way}_{}_mbps", network.name),
                ));
            }
        }
        bars.push(("bonded".to_owned(), format!("{traffic}.bonded_mbps")));
        if matches!(kind, Traffic::Tcp { .. }) {
            bars.push(("kernel MPTCP".to_owned(), format!("{traffic}.mptcp_mbps")));
        }
        BarGroup { label: traffic.to_owned(), bars }
    };
    kinds_of_traffic().into_iter().map(group).collect()
}

fn run(scenario: &Scenario, bed: Bed, seed: u64) -> anyhow::Result<Report> {
    let own = sim::scenario::scenarios(seed).into_iter().find(|own| own.name == scenario.name);
    let scenario = &own.context("there are no such networks")?;
    let divisor = divisor(scenario, bed);
    let networks = scenario.networks.iter().map(|network| network.clone().slowed(divisor)).collect();
    let scenario = &Scenario { networks, ..scenario.clone() };
    let outcomes = run_all(bed, &trials(scenario, bed, Bytes(SHORT_DOWNLOAD.0 / u64::from(divisor)), seed))?;
    let mut report = Report { void: void(&outcomes), ..Report::default() };
    if bed == Bed::Vm {
        report.metrics.insert(RATE_SCALE.to_owned(), 1.0 / f64::from(divisor));
    }
    for (traffic, _) in kinds_of_traffic() {
        add_goodputs(&mut report.metrics, scenario, traffic, &outcomes);
    }
    add_short_download(&mut report.metrics, scenario, &outcomes);
    add_pings(&mut report.metrics, &outcomes);
    for network in &scenario.networks {
        let name = format!("tcp-cubic plain {}", network.name);
        report.series.extend(outcomes.get(&name).map(|outcome| (name, outcome.series.clone())));
    }
    let bonded = "tcp-cubic bonded".to_owned();
    report.series.extend(outcomes.get(&bonded).map(|outcome| (bonded, outcome.series.clone())));
    Ok(report)
}

/// By what all rates are divided on `bed`: 1, 2, 4, ...
fn divisor(scenario: &Scenario, bed: Bed) -> u32 {
    let sum: f64 = scenario.networks.iter().map(mean_mbps).sum();
    let mut divisor = 1;
    while bed == Bed::Vm && sum.is_finite() && sum / f64::from(divisor) > VM_RATE {
        divisor *= 2;
    }
    divisor
}

/// Why the run says nothing about the networks: a processor had no time left.
fn void(outcomes: &BTreeMap<String, Outcome>) -> Option<String> {
    let idle = outcomes.iter().filter_map(|(name, outcome)| Some((name, outcome.processor_idle?)));
    let (name, least) = idle.min_by(|one, other| one.1.total_cmp(&other.1))?;
    (least < LEAST_IDLE).then(|| {
        format!(
            "the processor was idle for {least:.2} of \"{name}\" only: it, not the networks, was measured"
        )
    })
}

fn trials(scenario: &Scenario, bed: Bed, short_download: Bytes, seed: u64) -> Vec<NamedTrial> {
    let length = match bed {
        Bed::Sim => DURATION,
        Bed::Netns => REAL_TIME_DURATION,
        Bed::Vm => VM_DURATION,
    };
    let trial = |traffic, way, bytes: Option<Bytes>| Trial {
        networks: scenario.networks.clone(),
        traffic,
        way,
        // A download ends by itself; its time is only the most that it may take.
        duration: if bytes.is_some() { length * 10 } else { length },
        bytes: bytes.map(|bytes| bytes.0),
        seed,
    };
    let all: Vec<usize> = (0..scenario.networks.len()).collect();
    let mut trials = Vec::new();
    let mut add = |name: String, ride, trial| trials.push(NamedTrial { name, ride, trial });
    for (name, traffic) in kinds_of_traffic() {
        let bonded = trial(traffic, Way::Bonded(all.clone()), None);
        if bed == Bed::Vm && matches!(traffic, Traffic::Tcp { .. }) {
            add(format!("{name} mptcp"), Ride::MultipathTcp, bonded.clone());
        }
        add(format!("{name} bonded"), Ride::OfTrial, bonded);
        for (index, network) in scenario.networks.iter().enumerate() {
            let plain = trial(traffic, Way::Plain(index), None);
            add(format!("{name} plain {}", network.name), Ride::OfTrial, plain);
            let alone = trial(traffic, Way::Bonded(vec![index]), None);
            add(format!("{name} tunnelled {}", network.name), Ride::OfTrial, alone);
        }
    }
    let short = |way| {
        let cubic = Traffic::Tcp { algorithm: Algorithm::Cubic, flows: 1 };
        trial(cubic, way, Some(short_download))
    };
    for (index, network) in scenario.networks.iter().enumerate() {
        add(format!("short plain {}", network.name), Ride::OfTrial, short(Way::Plain(index)));
    }
    add("short bonded".to_owned(), Ride::OfTrial, short(Way::Bonded(all.clone())));
    add("idle bonded".to_owned(), Ride::OfTrial, trial(Traffic::Idle, Way::Bonded(all), None));
    trials
}

fn add_goodputs(
    metrics: &mut Metrics,
    scenario: &Scenario,
    traffic: &str,
    outcomes: &BTreeMap<String, Outcome>,
) {
    let goodput = |name: String| outcomes.get(&name).map(|outcome| outcome.goodput_mbps);
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            metrics.insert(format!("{traffic}.{name}"), rounded(value));
        }
    };
    let bonded = goodput(format!("{traffic} bonded"));
    put("bonded_mbps", bonded);
    let mut ways = BTreeMap::new();
    for way in ["plain", "tunnelled"] {
        let mut values = Vec::new();
        for network in &scenario.networks {
            let value = goodput(format!("{traffic} {way} {}", network.name));
            put(&format!("{way}_{}_mbps", network.name), value);
            values.extend(value);
        }
        ways.insert(way, values);
    }
    let best = |way| ways.get(way).and_then(|values: &Vec<f64>| values.iter().copied().reduce(f64::max));
    let sum = |way| ways.get(way).map(|values| values.iter().sum::<f64>());
    let capacity: f64 = scenario.networks.iter().map(mean_mbps).sum::<f64>() * PAYLOAD_PART;
    let over = |base: Option<f64>| {
        bonded.zip(base).filter(|(_, base)| *base > 0.0).map(|(bonded, base)| bonded / base)
    };
    put("over_best_plain", over(best("plain")));
    put("over_best_tunnelled", over(best("tunnelled")));
    put("of_tunnelled_sum", over(sum("tunnelled")));
    put("of_plain_sum", over(sum("plain")));
    put("of_capacity", over(Some(capacity)));
    let multipath = goodput(format!("{traffic} mptcp"));
    put("mptcp_mbps", multipath);
    put("over_mptcp", over(multipath));
    put(
        "bonded_processor_idle",
        outcomes.get(&format!("{traffic} bonded")).and_then(|outcome| outcome.processor_idle),
    );
    let gap =
        outcomes.get(&format!("{traffic} bonded")).map(|outcome| outcome.longest_gap.as_secs_f64() * 1e3);
    put("longest_gap_ms", gap);
}

fn add_short_download(metrics: &mut Metrics, scenario: &Scenario, outcomes: &BTreeMap<String, Outcome>) {
    let seconds = |name: &str| outcomes.get(name)?.completed_after.map(|time| time.as_secs_f64());
    let plain =
        scenario.networks.iter().filter_map(|network| seconds(&format!("short plain {}", network.name)));
    let (best, bonded) = (plain.reduce(f64::min), seconds("short bonded"));
    if let Some(bonded) = bonded {
        metrics.insert("tcp-cubic.short_download_s".to_owned(), rounded(bonded));
    }
    if let Some((best, bonded)) = best.zip(bonded) {
        metrics.insert("tcp-cubic.short_download_over_best_plain".to_owned(), rounded(best / bonded));
    }
}

fn add_pings(metrics: &mut Metrics, outcomes: &BTreeMap<String, Outcome>) {
    let p99 = |name: &str| outcomes.get(name).and_then(Outcome::ping_p99_ms);
    let median = outcomes.get("tcp-cubic bonded").and_then(|outcome| quantile(&outcome.ping_ms, 0.5));
    let (idle, beside) = (p99("idle bonded"), p99("tcp-cubic bonded"));
    let difference = idle.zip(beside).map(|(idle, beside)| beside - idle);
    for (name, value) in [
        ("idle.ping_p99_ms", idle),
        ("tcp-cubic.ping_p50_ms", median),
        ("tcp-cubic.ping_p99_ms", beside),
        ("tcp-cubic.ping_p99_over_idle_ms", difference),
    ] {
        if let Some(value) = value {
            metrics.insert(name.to_owned(), rounded(value));
        }
    }
}

fn mean_mbps(network: &NetworkSpec) -> f64 {
    network.down.mean_rate().map_or(f64::INFINITY, |rate| rate.as_mbps())
}

/// Four significant digits after the point are more than the simulation is good for.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
