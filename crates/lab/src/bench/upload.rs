//! Uploads through the neighbours: the destination's time for each chunk, and the memory of all roles for a large file.

use super::estimator::processor_time;
use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use anyhow::Context;
use sim::SeededRandom;
use sim::neighbourhood::{Transfer, parse};
use std::collections::VecDeque;
use std::time::Duration;
use units::Timestamp;
use upload::{Arrival, Destination, PeerKey, RangeSet, Settings};
use wire::upload::{AirNumber, Chunk, Member, Report, Runs};

const TRANSFER: wire::upload::Transfer = wire::upload::Transfer(1);
const NEIGHBOURS: usize = 32;
const WINDOW: u32 = 16;
/// Chunks of 1 GiB, 1,400 bytes each.
const GIBIBYTE: u32 = 766_959;
/// How well each neighbour hears.
const HEARS: f64 = 0.5;
/// Chunks that are on the air between two reports.
const BETWEEN_REPORTS: u32 = 64;
const REPORTED_EVERY: Duration = Duration::from_millis(40);
const ROUNDS: usize = 5;
/// What a neighbour keeps of a chunk: 1,400 bytes, sealed.
const SEALED: usize = 1_416;

pub(super) fn goals() -> Vec<Goal> {
    vec![
        Goal::at_most("scheduling.us_per_chunk", 5.0),
        Goal::at_most("source.mb", 64.0),
        Goal::at_most("destination.mb", 64.0),
        Goal::at_most("neighbour.mb", 64.0),
    ]
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let chunks = if effort == Effort::Quick { 50_000 } else { GIBIBYTE };
    let mut metrics = Metrics::new();
    let times: Vec<f64> =
        (0..ROUNDS).map(|round| scheduling(chunks, round as u64)).collect::<anyhow::Result<_>>()?;
    let middle = median(&times).context("there is no round")?;
    metrics.insert("scheduling.us_per_chunk".into(), (middle * 100.0).round() / 100.0);

    let homes = " | 1200/75 0.9 0.8 0.5 0.3".repeat(NEIGHBOURS);
    let spec = parse(&format!("1200/75{homes}"))?.into_iter().next().context("there is no neighbourhood")?;
    let outcome = Transfer::new(spec, Settings::default(), chunks, 1).run();
    outcome.took.context("the transfer did not end")?;
    let [source, destination, neighbour] = outcome.memory;
    let neighbour = neighbour + outcome.most_buffered * SEALED;
    for (role, bytes) in [("source", source), ("destination", destination), ("neighbour", neighbour)] {
        metrics.insert(format!("{role}.mb"), (bytes as f64 / 1e4).round() / 100.0);
    }
    Ok(metrics)
}

/// Microseconds of the destination for each chunk: reports, grants, what is stored, and news for the source. The neighbours are lists of what they
/// were told to carry, so next to nothing of the time is theirs.
fn scheduling(chunks: u32, seed: u64) -> anyhow::Result<f64> {
    let mut random = SeededRandom::derive(seed, "ears");
    let mut now = Timestamp::from_millis(1_000);
    let mut destination = Destination::new(now, Settings::default(), TRANSFER, chunks, RangeSet::default());
    let mut carried: Vec<(Member, VecDeque<Chunk>)> = Vec::new();
    for number in 0..NEIGHBOURS {
        let member = destination.join(now, PeerKey([number as u8; 32])).context("no room for a neighbour")?;
        carried.push((member, VecDeque::new()));
    }
    let (mut spent, mut next) = (Duration::ZERO, 0);
    while !destination.is_done() {
        let on_air: Vec<Chunk> = (next..chunks.min(next + BETWEEN_REPORTS)).map(Chunk).collect();
        next += BETWEEN_REPORTS;
        let reports: Vec<Report> = carried.iter().map(|_| report(now, heard(&on_air, &mut random))).collect();
        let begin = processor_time()?;
        now += REPORTED_EVERY;
        for ((member, _), report) in carried.iter().zip(&reports) {
            destination.handle_report(now, *member, report);
        }
        // What everybody missed comes by the source's own uplink.
        let base = destination.stored().first_missing(Chunk(0));
        if base.0 + BETWEEN_REPORTS * 8 < next || on_air.is_empty() {
            destination.handle_stored(now, Arrival::Own, base);
        }
        destination.handle_timeout(now);
        for (member, queue) in &mut carried {
            for _ in 0..WINDOW {
                let Some(chunk) = queue.pop_front() else { break };
                if destination.wants(chunk) {
                    destination.handle_stored(now, Arrival::By(*member), chunk);
                }
            }
        }
        while let Some((member, grant)) = destination.poll_grant(now) {
            let queue = carried.iter_mut().find(|(known, _)| *known == member).map(|(_, queue)| queue);
            queue.context("nobody has this number")?.extend(grant.carry.iter().flat_map(|run| run.chunks()));
        }
        while destination.poll_feedback(now).is_some() {}
        spent += processor_time()?.saturating_sub(begin);
    }
    Ok(spent.as_secs_f64() * 1e6 / f64::from(chunks))
}

fn heard(on_air: &[Chunk], random: &mut SeededRandom) -> Runs {
    let heard: Vec<Chunk> = on_air.iter().copied().filter(|_| random.chance(HEARS)).collect();
    Runs::of_chunks(&heard).0
}

fn report(now: Timestamp, heard: Runs) -> Report {
    let through = AirNumber((now.as_micros() / 1_000) as u32);
    Report {
        transfer: TRANSFER,
        through,
        window: WINDOW,
        buffered: 0,
        receptions: Vec::new(),
        heard,
        away: 0,
    }
}
