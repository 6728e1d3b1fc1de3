//! How long flows take under each rule for splitting them: `cargo run --release -p anabranch-policy --example splits`.
//!
//! Two networks that share their capacity evenly among their flows (as long TCP flows do, roughly), flows at random times with
//! sizes from 0.1 to 30 MB, at 70 % of the sum of both. The policy is asked every 250 ms and sees the flows of that moment.
//! "by map" draws from the table's slots, as the kernel does, "asked" puts each flow where the policy says at that moment. Prints the
//! mean and the 95th percentile of the time that flows took, in seconds. Start-up costs four round trips. A network that carries
//! bulk flows has 100 ms of queue, which its round-trip time shows: that is what lets the paper's rule notice load at all.

use std::time::Duration;

use policy::network::{PowerSupply, RttSummary};
use policy::{ChoiceSettings, FlowClass, NetworkInput, NetworkPolicy, NewFlow, Split, Table, Wish, assign};
use units::{BitRate, NetworkId, Timestamp};

fn main() {
    for (what, links) in [
        ("10 Mbit/s at 20 ms, 50 Mbit/s at 60 ms", [(10.0, 20), (50.0, 60)]),
        ("50 Mbit/s at 20 ms, 10 Mbit/s at 60 ms", [(50.0, 20), (10.0, 60)]),
        ("30 Mbit/s at 30 ms, twice", [(30.0, 30), (30.0, 30)]),
        ("20 Mbit/s at 20 ms, 40 Mbit/s at 600 ms", [(20.0, 20), (40.0, 600)]),
    ] {
        println!("{what}");
        for split in [Split::InverseRtt, Split::Bandwidth, Split::Capacity] {
            for asked in [false, true] {
                let mut times = run(links, split, asked);
                times.sort_by(f64::total_cmp);
                let mean = times.iter().sum::<f64>() / times.len() as f64;
                let most = times.get(times.len() * 95 / 100).copied().unwrap_or_default();
                let how = if asked { "asked" } else { "by map" };
                println!("  {split:?}, {how}: mean {mean:.2} s, 95 % {most:.2} s");
            }
        }
    }
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

/// Times that flows took. Steps of a millisecond.
fn run(links: [(f64, u64); 2], split: Split, asked: bool) -> Vec<f64> {
    let mut draws = Draws(7);
    let sum: f64 = links.iter().map(|(mbps, _)| mbps * 1e6).sum();
    let (mut running, mut times): (Vec<Running>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut policy = NetworkPolicy::new(ChoiceSettings { split, ..ChoiceSettings::default() });
    let (mut table, mut slots) = (Table::default(), Vec::new());
    let mut next_arrival = 0.0;
    for step in 0..SECONDS * 1_000 {
        let now = step as f64 / 1e3;
        if step % 250 == 0 {
            let flows = |at| running.iter().filter(|flow| flow.network == at).count();
            let inputs = [0, 1].map(|at| input(at, links[at], flows(at)));
            table = policy.evaluate(Timestamp::from_millis(step), &inputs, PowerSupply::Mains);
            slots = table.slots(64);
        }
        while next_arrival <= now {
            let bits = 8e6 * 0.1 * (30.0f64 / 0.1).powf(draws.part());
            let network = if asked {
                let flow = NewFlow { class: FlowClass::Bulk, wish: Wish::Any };
                assign(flow, &table, draws.next()).map(|assignment| assignment.network).ok()
            } else {
                slots.get((draws.next() >> 40) as usize % slots.len().max(1)).copied()
            };
            let Some(network) = network else { return times };
            table.join(network);
            running.push(Running { network: network.0 as usize, bits, began: now });
            next_arrival += -draws.part().ln() * MEAN_BITS / (LOAD * sum);
        }
        for (at, (mbps, rtt)) in links.iter().enumerate() {
            let flows = running.iter().filter(|flow| flow.network == at).count().max(1) as f64;
            for flow in running.iter_mut().filter(|flow| flow.network == at) {
                flow.bits -= mbps * 1e3 / flows;
                if flow.bits <= 0.0 {
                    times.push(now - flow.began + 4.0 * *rtt as f64 / 1e3);
                }
            }
        }
        running.retain(|flow| flow.bits > 0.0);
    }
    times
}

fn input(at: usize, (mbps, rtt): (f64, u64), flows: usize) -> NetworkInput {
    let mut input = NetworkInput::new(NetworkId(at as u32), format!("net{at}"));
    let smoothed = Duration::from_millis(if flows > 0 { rtt + QUEUE_MS } else { rtt });
    input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
    input.metrics.delivered = Some(BitRate::from_mbps(mbps));
    input.metrics.bulk_flows = flows as u32;
    input
}

const SECONDS: u64 = 2_000;
const LOAD: f64 = 0.7;
const QUEUE_MS: u64 = 100;
/// Of sizes drawn evenly by their logarithm from 0.1 to 30 MB: (30 - 0.1) / ln(300) = 5.24 MB.
const MEAN_BITS: f64 = 8e6 * 5.24;
