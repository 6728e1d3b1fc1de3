//! A gateway with a thousand clients that are all busy, beside a gateway with one that has as much to carry.
//!
//! ```text
//!  this process                       the gateway's                  this process
//!  client 1 .. 1000  ==== bond ====>  session 1 .. 1000 -> any0 ->   server
//! ```
//! Every client is an endpoint of its own that has joined by an invitation of its own, with a socket and an address of its own. One
//! loop drives all of them and the server. Both gateways run all the time; one is busy, the other idles. What one client carried and
//! what the crowd did are compared round by round.

mod load;
mod members;
mod packet;

pub(super) use members::Crowd;

use super::accounting::{Usage, process_tree, resident_kb};
use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{Bonded, NetBed};
use anabranch::control::BlockingClient;
use anyhow::{Context, ensure};
use load::{Carried, Direction, Load, Offer};
use std::time::Duration;
use units::BitRate;

/// The cases: name, direction, packets of one client in a row. The gateway can do most for packets that come together: in the
/// worst case no two of a client do, in the other there are as many as a page or a piece of a film begins with.
const CASES: [(&str, Direction, usize); 4] = [
    ("up-single", Direction::Up, 1),
    ("up-bursts", Direction::Up, 16),
    ("down-single", Direction::Down, 1),
    ("down-bursts", Direction::Down, 16),
];
/// Paths are validated and measured in this time.
const SETTLING: Duration = Duration::from_secs(3);
/// The load is found by adding this part until one client does not get all of it through.
const STEP: f64 = 1.25;
/// A client gets all of its load through if it is this part.
const ALL: f64 = 0.95;
/// Where the search begins, and where it gives up.
const LEAST_MBPS: f64 = 100.0;
const MOST_MBPS: f64 = 20_000.0;

/// How thorough a run is.
struct Plan {
    clients: usize,
    rounds: usize,
    length: Duration,
    /// All clients together; `None`: as much as one client cannot get through.
    load: Option<BitRate>,
}

pub(super) fn goals() -> Vec<Goal> {
    CASES
        .iter()
        .flat_map(|(case, _, _)| {
            [
                Goal::at_least(format!("{case}.rate_over_one"), 0.8),
                Goal::at_most(format!("{case}.processor_time_over_one"), 1.25),
                Goal::at_most(format!("{case}.unserved"), 0.0),
                Goal::at_least(format!("{case}.least_over_most"), 0.5),
            ]
        })
        .collect()
}

/// A gateway and its clients.
struct Lane {
    load: Load,
    bonded: Bonded,
    /// kB of the gateway's processes before the clients came.
    empty_kb: u64,
    // Last: the others live in it.
    _bed: NetBed,
}

impl Lane {
    fn start(clients: usize) -> anyhow::Result<Self> {
        let bed = NetBed::unshaped(1)?;
        let mut bonded = Bonded::start(&bed)?;
        let gateway = process_tree(bonded.gateway_process())?;
        let control = BlockingClient::of_state(bonded.gateway_state()).context("reach the gateway")?;
        let empty_kb = resident_kb(&gateway)?;
        let mut crowd = Crowd::new()?;
        crowd.join(&bed, &control, clients)?;
        crowd.idle(SETTLING)?;
        let connected = control.status().context("ask the gateway for its clients")?.connected_clients;
        // The device of the bed is a client, too.
        ensure!(connected == Some(clients + 1), "{connected:?} clients are connected, not {}", clients + 1);
        let load = Load::start(&bed, crowd, gateway).map_err(|error| bonded.explain(error))?;
        Ok(Self { load, bonded, empty_kb, _bed: bed })
    }

    fn carry(&mut self, offer: Offer) -> anyhow::Result<Carried> {
        self.load.carry(offer).map_err(|error| self.bonded.explain(error))
    }

    fn kb_per_client(&self, clients: usize) -> anyhow::Result<f64> {
        let now = resident_kb(&process_tree(self.bonded.gateway_process())?)?;
        Ok(now.saturating_sub(self.empty_kb) as f64 / clients as f64)
    }
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let plan = match effort {
        Effort::Quick => Plan {
            clients: 50,
            rounds: 1,
            length: Duration::from_secs(2),
            load: Some(BitRate::from_mbps(10.0)),
        },
        Effort::Full => Plan { clients: 1_000, rounds: 5, length: Duration::from_secs(3), load: None },
    };
    let mut one = Lane::start(1)?;
    let mut crowd = Lane::start(plan.clients)?;
    let mut metrics = Metrics::from([("clients".to_owned(), plan.clients as f64)]);
    for (case, direction, burst) in CASES {
        let offer = |rate| Offer { direction, rate, burst, length: plan.length };
        let rate = match plan.load {
            Some(rate) => rate,
            None => saturating(&mut one, offer(BitRate::from_mbps(LEAST_MBPS)))?,
        };
        let mut rounds = Vec::new();
        for round in 1..=plan.rounds {
            let base = one.carry(offer(rate))?;
            let all = crowd.carry(offer(rate))?;
            let [few, many] = [&base, &all].map(|carried| carried.rate().as_mbps());
            let of = rate.as_mbps();
            eprintln!("  {case} round {round}: {many:.0} of {of:.0} Mbit/s, one client {few:.0}");
            rounds.push((base, all));
        }
        record(&mut metrics, case, rate, &rounds)?;
    }
    metrics.insert("gateway.kb_per_client".to_owned(), crowd.kb_per_client(plan.clients)?);
    one.bonded.stop();
    crowd.bonded.stop();
    Ok(metrics)
}

/// The least load, by [`STEP`], that one client does not get through.
fn saturating(one: &mut Lane, offer: Offer) -> anyhow::Result<BitRate> {
    let mut offer = Offer { length: Duration::from_millis(700), ..offer };
    while offer.rate.as_mbps() < MOST_MBPS {
        let carried = one.carry(offer)?;
        if carried.rate().as_mbps() < ALL * offer.rate.as_mbps() {
            return Ok(offer.rate);
        }
        offer.rate = BitRate::from_mbps(offer.rate.as_mbps() * STEP);
    }
    Ok(offer.rate)
}

/// What is told of a run.
type Figure = fn(&Carried) -> f64;

fn record(
    metrics: &mut Metrics,
    case: &str,
    offered: BitRate,
    rounds: &[(Carried, Carried)],
) -> anyhow::Result<()> {
    let mut put = |name: String, values: Vec<f64>| -> anyhow::Result<()> {
        metrics.insert(format!("{case}.{name}"), median(&values).context("no round was run")?);
        Ok(())
    };
    put("offered_mbps".to_owned(), vec![offered.as_mbps()])?;
    let ones: Vec<&Carried> = rounds.iter().map(|(one, _)| one).collect();
    let crowds: Vec<&Carried> = rounds.iter().map(|(_, crowd)| crowd).collect();
    for (of, carried) in [("one", &ones), ("crowd", &crowds)] {
        let figures: [(&str, Figure); 6] = [
            ("mbps", |carried| carried.rate().as_mbps()),
            ("lost_percent", |carried| carried.loss() * 100.0),
            ("gateway_s_per_gb", |carried| cost(carried.gateway, carried)),
            ("generator_s_per_gb", |carried| cost(carried.generator, carried)),
            ("gateway_wanted", |carried| wanted(carried.gateway, carried)),
            ("generator_wanted", |carried| wanted(carried.generator, carried)),
        ];
        for (name, figure) in figures {
            put(format!("{of}_{name}"), carried.iter().copied().map(figure).collect())?;
        }
    }
    let ratios = |figure: Figure| -> Vec<f64> {
        rounds.iter().map(|(one, crowd)| figure(crowd) / figure(one)).collect()
    };
    put("rate_over_one".to_owned(), ratios(|carried| carried.rate().as_mbps()))?;
    put("processor_time_over_one".to_owned(), ratios(|carried| cost(carried.gateway, carried)))?;
    let of_crowd = |figure: Figure| crowds.iter().copied().map(figure).collect();
    put("overtaken".to_owned(), of_crowd(|carried| carried.overtaken as f64))?;
    put("began_anew".to_owned(), of_crowd(|carried| carried.began_anew as f64))?;
    // The worst round.
    let unserved = crowds.iter().map(|carried| carried.unserved()).max().unwrap_or(0);
    put("unserved".to_owned(), vec![unserved as f64])?;
    put("least_kb".to_owned(), of_crowd(|carried| carried.extremes()[0] as f64 / 1e3))?;
    put("most_kb".to_owned(), of_crowd(|carried| carried.extremes()[1] as f64 / 1e3))?;
    put(
        "least_over_most".to_owned(),
        of_crowd(|carried| {
            let [least, most] = carried.extremes();
            least as f64 / most.max(1) as f64
        }),
    )
}

/// Processor seconds for each thousand million bytes that arrived.
fn cost(usage: Usage, carried: &Carried) -> f64 {
    usage.running.as_secs_f64() * 1e9 / carried.bytes().max(1) as f64
}

/// Part of the time in which the threads ran or waited for a processor: near 1 they were the limit.
fn wanted(usage: Usage, carried: &Carried) -> f64 {
    (usage.running + usage.waiting).as_secs_f64() / carried.length.as_secs_f64()
}
