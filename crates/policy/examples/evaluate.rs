//! How long the policy takes with 64 networks and 10,000 flows: `cargo run --release -p anabranch-policy --example evaluate`.
//!
//! Measured: one evaluation as it happens every 250 ms (flows counted by network, shares, slots of the kernel's map),
//! and the choice of a network for a new flow. Prints the median, the 99th percentile and the worst of 1,000; the worst
//! shows who else runs on the machine.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use policy::network::{PowerSupply, RttSummary};
use policy::{ChoiceSettings, FlowClass, NetworkInput, NetworkPolicy, NewFlow, Split, Wish, assign};
use units::{BitRate, NetworkId, Timestamp};

fn main() {
    let flows: Vec<(NetworkId, FlowClass)> = (0..FLOWS)
        .map(|flow| {
            let class = if flow % 4 == 0 { FlowClass::Bulk } else { FlowClass::Interactive };
            (NetworkId((flow.wrapping_mul(2_654_435_761) >> 7) % NETWORKS), class)
        })
        .collect();
    for split in [Split::Capacity, Split::InverseRtt, Split::Bandwidth] {
        let mut policy = NetworkPolicy::new(ChoiceSettings { split, ..ChoiceSettings::default() });
        let mut inputs = inputs();
        let evaluate = |round: u32| {
            for input in &mut inputs {
                input.metrics.bulk_flows = 0;
            }
            for (network, class) in &flows {
                if let (FlowClass::Bulk, Some(input)) = (class, inputs.get_mut(network.0 as usize)) {
                    input.metrics.bulk_flows += 1;
                }
            }
            let now = Timestamp::ZERO + Duration::from_millis(250) * round;
            let table = policy.evaluate(now, &inputs, PowerSupply::Mains);
            black_box(table.slots(SLOTS));
            table
        };
        let (table, times) = timed(evaluate);
        report(&format!("{split:?}: evaluation with {SLOTS} slots"), times);
        let Some(table) = table else { continue };
        for class in [FlowClass::Bulk, FlowClass::Interactive] {
            let flow = NewFlow { class, wish: Wish::Any };
            let draw = |round: u32| black_box(assign(flow, &table, u64::from(round) << 45));
            report(&format!("{split:?}: new {class} flow"), timed(draw).1);
        }
    }
}

fn inputs() -> Vec<NetworkInput> {
    (0..NETWORKS)
        .map(|id| {
            let mut input = NetworkInput::new(NetworkId(id), format!("net{id}"));
            let smoothed = Duration::from_millis(u64::from(5 + id * 37 % 200));
            input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
            input.metrics.delivered = Some(BitRate(u64::from(1 + id * 53 % 90) * 1_000_000));
            input
        })
        .collect()
}

fn timed<T>(mut run: impl FnMut(u32) -> T) -> (Option<T>, Vec<Duration>) {
    let mut last = None;
    let times = (0..ROUNDS)
        .map(|round| {
            let began = Instant::now();
            last = Some(run(round));
            began.elapsed()
        })
        .collect();
    (last, times)
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times.get(part).copied().unwrap_or_default();
    println!(
        "{what}: median {:?}, 99 % {:?}, worst {:?}",
        at(times.len() / 2),
        at(times.len() * 99 / 100),
        at(times.len() - 1)
    );
}

const NETWORKS: u32 = 64;
const FLOWS: u32 = 10_000;
const SLOTS: u16 = 256;
const ROUNDS: u32 = 1_000;
