//! A model of how long flows take under each rule for splitting them. Pure.
//!
//! Two networks that share their capacity evenly among their flows (as long TCP flows do, roughly), flows at random times, one at
//! a time or six at once, with sizes from 0.1 to 30 MB, at 60 % of what is there without other people's flows. These go on all the
//! time. The policy is asked every 250 ms and sees the flows of that moment, what they got, and no more: capacity and
//! others are estimated as the daemon does. Start-up costs four round trips. A network that carries
//! bulk flows has 100 ms of queue, which its round-trip time shows: that is what lets the paper's rule notice load at all.

use std::time::Duration;

use policy::network::{OtherFlows, PowerSupply, RttSummary};
use policy::{
    CapacityEstimator, ChoiceSettings, FlowClass, NetworkInput, NetworkPolicy, NewFlow, Split, Table, Wish,
    assign,
};
use units::{BitRate, NetworkId, Timestamp};

/// A network: its capacity, its least round-trip time in milliseconds, and how many flows of other people are always there.
#[derive(Clone, Copy)]
pub struct Link {
    mbps: f64,
    rtt: u64,
    others: u32,
}

/// Pairs that differ in what makes one network better than the other.
pub const PAIRS: [(&str, [Link; 2]); 7] = [
    ("10 Mbit/s at 20 ms, 50 Mbit/s at 60 ms", [link(10.0, 20, 0), link(50.0, 60, 0)]),
    ("50 Mbit/s at 20 ms, 10 Mbit/s at 60 ms", [link(50.0, 20, 0), link(10.0, 60, 0)]),
    ("30 Mbit/s at 30 ms, twice", [link(30.0, 30, 0), link(30.0, 30, 0)]),
    ("20 Mbit/s at 20 ms, 40 Mbit/s at 600 ms", [link(20.0, 20, 0), link(40.0, 600, 0)]),
    ("30 Mbit/s twice, one flow of others on the first", [link(30.0, 30, 1), link(30.0, 30, 0)]),
    ("30 Mbit/s twice, four flows of others on the first", [link(30.0, 30, 4), link(30.0, 30, 0)]),
    ("50 Mbit/s with four flows of others, 10 Mbit/s", [link(50.0, 30, 4), link(10.0, 30, 0)]),
];

/// How many flows begin together.
pub const AT_ONCE: [usize; 2] = [1, 6];

const fn link(mbps: f64, rtt: u64, others: u32) -> Link {
    Link { mbps, rtt, others }
}

/// How flows get their network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By turns by the table's slots, as the kernel deals them out.
    Map,
    /// Each where the policy says at that moment.
    Asked,
    /// By turns as if there were no others.
    Unaware,
}

/// Numbers from a seed (a linear congruential generator with the constants of Knuth's MMIX).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }

    /// Evenly from 0 to 1, neither included.
    fn part(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

struct Running {
    network: usize,
    bits: f64,
    began: f64,
}

/// What the device knows of a network.
#[derive(Default)]
struct Seen {
    estimator: CapacityEstimator,
    /// Bits carried and flows at the last sample; flows that have begun or ended since spoil the next one.
    bits: f64,
    flows: usize,
    is_spoiled: bool,
}

/// Times that flows took, in seconds. Steps of a millisecond.
pub fn run(links: &[Link; 2], split: Split, how: How, at_once: usize) -> Vec<f64> {
    let mut draws = Draws(7);
    let free: f64 = links.iter().map(|link| link.mbps * 1e6 / f64::from(1 + link.others)).sum();
    let (mut running, mut times): (Vec<Running>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut policy = NetworkPolicy::new(ChoiceSettings { split, ..ChoiceSettings::default() });
    let (mut table, mut slots, mut turn) = (Table::default(), Vec::new(), 0);
    let mut seen = [Seen::default(), Seen::default()];
    let mut next_arrival = 0.0;
    for step in 0..SECONDS * 1_000 {
        let now = step as f64 / 1e3;
        let time = Timestamp::from_millis(step);
        let flows = [0, 1].map(|at| running.iter().filter(|flow| flow.network == at).count());
        if step % 1_000 == 0 {
            seen.iter_mut().zip(flows).for_each(|(seen, flows)| sample(seen, time, flows));
        }
        if step % 250 == 0 {
            let inputs = [0, 1].map(|at| input(at, &links[at], flows[at], &seen[at].estimator, how));
            table = policy.evaluate(time, &inputs, PowerSupply::Mains);
            slots = table.slots(64);
        }
        while next_arrival <= now {
            for _ in 0..at_once {
                let bits = 8e6 * 0.1 * (30.0f64 / 0.1).powf(draws.part());
                let network = if how == How::Asked {
                    let flow = NewFlow { class: FlowClass::Bulk, wish: Wish::Any };
                    assign(flow, &table, draws.next()).map(|assignment| assignment.network).ok()
                } else {
                    turn += 1;
                    slots.get(turn % slots.len().max(1)).copied()
                };
                let Some(network) = network else { return times };
                table.join(network);
                seen[network.0 as usize].is_spoiled = true;
                running.push(Running { network: network.0 as usize, bits, began: now });
            }
            next_arrival += -draws.part().ln() * MEAN_BITS * at_once as f64 / (LOAD * free);
        }
        for (at, link) in links.iter().enumerate() {
            let flows = running.iter().filter(|flow| flow.network == at).count() as f64;
            for flow in running.iter_mut().filter(|flow| flow.network == at) {
                let bits = link.mbps * 1e3 / (flows + f64::from(link.others));
                flow.bits -= bits;
                seen[at].bits += bits;
                if flow.bits <= 0.0 {
                    seen[at].is_spoiled = true;
                    times.push(now - flow.began + 4.0 * link.rtt as f64 / 1e3);
                }
            }
        }
        running.retain(|flow| flow.bits > 0.0);
    }
    times
}

fn sample(seen: &mut Seen, now: Timestamp, flows: usize) {
    if flows == 0 {
        seen.estimator.on_silence(now);
    } else if !seen.is_spoiled && flows == seen.flows {
        seen.estimator.on_sample(now, flows as u32, BitRate(seen.bits as u64));
    }
    (seen.bits, seen.flows, seen.is_spoiled) = (0.0, flows, false);
}

fn input(at: usize, link: &Link, flows: usize, estimator: &CapacityEstimator, how: How) -> NetworkInput {
    let mut input = NetworkInput::new(NetworkId(at as u32), format!("net{at}"));
    let is_filled = flows > 0 || link.others > 0;
    let smoothed = Duration::from_millis(if is_filled { link.rtt + QUEUE_MS } else { link.rtt });
    let others = if how == How::Unaware { OtherFlows::default() } else { estimator.others() };
    input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
    // Unaware: what ours get is all there is.
    let seen_as_all = flows.max(1) as f64 / (flows.max(1) as f64 + estimator.others().number());
    input.metrics.delivered = estimator.capacity().map(|capacity| {
        if how == How::Unaware { BitRate((capacity.0 as f64 * seen_as_all) as u64) } else { capacity }
    });
    input.metrics.others = others;
    input.metrics.bulk_flows = flows as u32;
    input
}

const SECONDS: u64 = 2_000;
const LOAD: f64 = 0.6;
const QUEUE_MS: u64 = 100;
/// Of sizes drawn evenly by their logarithm from 0.1 to 30 MB: (30 - 0.1) / ln(300) = 5.24 MB.
const MEAN_BITS: f64 = 8e6 * 5.24;
