//! A gateway with a thousand clients that are all busy, beside a gateway with one that has as much to carry.
//!
//! ```text
//!  this process                       the gateway's                  this process
//!  client 1 .. 1000  ==== bond ====>  session 1 .. 1000 -> any0 ->   server
//! ```
//! Every client is an endpoint of its own that has joined by an invitation of its own, with a socket and an address of its own. One
//! loop drives all of them and the server. Both gateways run all the time; one is busy, the other idles. The one client has as many
//! flows as there are clients in the crowd, so that both gateways forward the same packets. What one client carried and what the
//! crowd did are compared round by round.

mod load;
mod members;
mod packet;

pub(super) use members::Crowd;

use super::accounting::{Usage, hold_to, process_tree, resident_kb, threads_called};
use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{Bonded, NetBed};
use anabranch::control::BlockingClient;
use anyhow::{Context, ensure};
use load::{Carried, Direction, Load, Offer};
use std::time::Duration;
use units::BitRate;

/// The cases: name, direction, packets of one flow in a row. The gateway can do most for packets that come together: in the
/// worst case no two of a flow do, in the other there are as many as a page or a piece of a film begins with.
const CASES: [(&str, Direction, usize); 4] = [
    ("up-single", Direction::Up, 1),
    ("up-bursts", Direction::Up, 16),
    ("down-single", Direction::Down, 1),
    ("down-bursts", Direction::Down, 16),
];
/// Paths are validated and measured in this time.
const SETTLING: Duration = Duration::from_secs(3);
/// What a gateway carries is found by doubling the load until not all of it arrives, then by halving the difference until what it
/// carries and what it does not are this near to each other.
const NEAR: f64 = 1.1;
/// All of a load arrives if it is this part: the throughput of RFC 2544 allows no loss, which a busy machine never shows.
const ALL: f64 = 0.95;
/// How long each step of the search is counted, and how often a load is tried that does not arrive: the machine may have been busy.
const SEARCH: Duration = Duration::from_millis(700);
const TRIES: usize = 2;
/// Processor time for each byte, and what each client gets, are compared where both carry everything, and as much: at this part of the
/// lesser of both, since what one carries for a second it need not carry for long.
const SAFE: f64 = 0.8;
/// What each of the gateways' threads that move packets gets of a processor: all clients and the server are one thread, which needs more of one
/// than the gateway does, and is not to be the limit.
const SHARE: Duration = Duration::from_millis(1);
const SHARE_OF: Duration = Duration::from_millis(4);
/// Where the search begins, and where it gives up.
const LEAST_MBPS: f64 = 20.0;
const MOST_MBPS: f64 = 20_000.0;

/// How thorough a run is.
struct Plan {
    clients: usize,
    rounds: usize,
    length: Duration,
    /// All clients together; `None`: the most that both gateways carry, held to their share of a processor.
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
    fn start() -> anyhow::Result<(NetBed, Bonded)> {
        let bed = NetBed::unshaped(1)?;
        let bonded = Bonded::start(&bed)?;
        Ok((bed, bonded))
    }

    fn join(bed: NetBed, mut bonded: Bonded, clients: usize, flows: usize) -> anyhow::Result<Self> {
        let gateway = process_tree(bonded.gateway_process())?;
        let control = BlockingClient::of_state(bonded.gateway_state()).context("reach the gateway")?;
        let empty_kb = resident_kb(&gateway)?;
        let mut crowd = Crowd::new()?;
        crowd.join(&bed, &control, clients).map_err(|error| bonded.explain(error))?;
        crowd.idle(SETTLING)?;
        let connected = control.status().context("ask the gateway for its clients")?.connected_clients;
        // The device of the bed is a client, too.
        ensure!(connected == Some(clients + 1), "{connected:?} clients are connected, not {}", clients + 1);
        let load = Load::start(&bed, crowd, flows, gateway)?;
        Ok(Self { load, bonded, empty_kb, _bed: bed })
    }

    fn hold(&self) -> anyhow::Result<()> {
        let threads = threads_called("packets", &process_tree(self.bonded.gateway_process())?)?;
        threads.into_iter().try_for_each(|thread| hold_to(thread, SHARE, SHARE_OF))
    }

    fn carry(&mut self, offer: Offer, beside: &mut Self) -> anyhow::Result<Carried> {
        self.load.carry(offer, &mut beside.load).map_err(|error| self.bonded.explain(error))
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
        Effort::Full => Plan { clients: 1_000, rounds: 3, length: Duration::from_secs(5), load: None },
    };
    // Whoever has joined must be served from then on.
    let [(one, its_gateway), (crowd, their_gateway)] = [Lane::start()?, Lane::start()?];
    let mut crowd = Lane::join(crowd, their_gateway, plan.clients, plan.clients)?;
    let mut one = Lane::join(one, its_gateway, 1, plan.clients)?;
    crowd.load.idle(SETTLING)?;
    if plan.load.is_none() {
        one.hold()?;
        crowd.hold()?;
    }
    let mut metrics = Metrics::from([("clients".to_owned(), plan.clients as f64)]);
    for (case, direction, burst) in CASES {
        let mut rounds = Vec::new();
        for round in 1..=plan.rounds {
            let offer = |rate, length| Offer { direction, rate, burst, length };
            let most = match plan.load {
                Some(rate) => [rate; 2],
                None => {
                    let first = offer(BitRate::from_mbps(LEAST_MBPS), SEARCH);
                    [most_carried(&mut one, first, &mut crowd)?, most_carried(&mut crowd, first, &mut one)?]
                }
            };
            let both = most[0].min(most[1]).as_mbps();
            let load = plan.load.unwrap_or_else(|| BitRate::from_mbps(SAFE * both));
            let load = offer(load, plan.length);
            let carried = one.carry(load, &mut crowd)?;
            let (one, crowd) = (carried, crowd.carry(load, &mut one)?);
            let [few, many] = most.map(BitRate::as_mbps);
            eprintln!("  {case} round {round}: {many:.0} Mbit/s, one client {few:.0}");
            rounds.push(Round { most, one, crowd });
        }
        record(&mut metrics, case, &rounds)?;
    }
    metrics.insert("gateway.kb_per_client".to_owned(), crowd.kb_per_client(plan.clients)?);
    one.bonded.stop();
    crowd.bonded.stop();
    Ok(metrics)
}

/// One comparison.
struct Round {
    /// The most that one client and the crowd got through.
    most: [BitRate; 2],
    /// The same load on one client and on the crowd.
    one: Carried,
    crowd: Carried,
}

/// The most that arrives of loads like `first`, which is the least; what arrived of that if not all of it did.
fn most_carried(lane: &mut Lane, first: Offer, beside: &mut Lane) -> anyhow::Result<BitRate> {
    let mut carried = |mbps: f64| -> anyhow::Result<Result<f64, f64>> {
        let offer = Offer { rate: BitRate::from_mbps(mbps), ..first };
        let mut most: f64 = 0.0;
        for _ in 0..TRIES {
            let arrived = lane.carry(offer, beside)?.rate().as_mbps();
            if arrived >= ALL * mbps {
                return Ok(Ok(arrived));
            }
            most = most.max(arrived);
        }
        Ok(Err(most))
    };
    let (mut arrives, mut fails) = (first.rate.as_mbps(), MOST_MBPS);
    let mut most = match carried(arrives)? {
        Ok(most) => most,
        Err(part) => return Ok(BitRate::from_mbps(part)),
    };
    while fails > arrives * NEAR {
        let next = (2.0 * arrives).min((arrives * fails).sqrt());
        match carried(next)? {
            Ok(arrived) => (arrives, most) = (next, arrived),
            Err(_) => fails = next,
        }
    }
    Ok(BitRate::from_mbps(most))
}

/// What is told of a run.
type Figure = fn(&Carried) -> f64;

fn record(metrics: &mut Metrics, case: &str, rounds: &[Round]) -> anyhow::Result<()> {
    let mut put = |name: String, values: Vec<f64>| -> anyhow::Result<()> {
        metrics.insert(format!("{case}.{name}"), median(&values).context("no round was run")?);
        Ok(())
    };
    let of_rounds = |figure: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(figure).collect() };
    put("one_most_mbps".to_owned(), of_rounds(|round| round.most[0].as_mbps()))?;
    put("crowd_most_mbps".to_owned(), of_rounds(|round| round.most[1].as_mbps()))?;
    put("rate_over_one".to_owned(), of_rounds(|round| round.most[1].as_mbps() / round.most[0].as_mbps()))?;
    put(
        "processor_time_over_one".to_owned(),
        of_rounds(|Round { one, crowd, .. }| cost(crowd.gateway, crowd) / cost(one.gateway, one)),
    )?;
    let ones: Vec<&Carried> = rounds.iter().map(|round| &round.one).collect();
    let crowds: Vec<&Carried> = rounds.iter().map(|round| &round.crowd).collect();
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
