//! The link estimator of the radio: time for each frame heard, and memory for each access point.

use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use anyhow::Context;
use radio::frame::{Header, Kind};
use radio::quality::Qualities;
use radio::{Heard, Rate};
use sim::SeededRandom;
use std::hint::black_box;
use std::time::Duration;
use units::{Frequency, MacAddress, Timestamp};

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const CHANNEL: Frequency = Frequency(2_437);
/// Access points on the channel, classes of traffic of each, and receivers beside us.
const POINTS: u8 = 20;
const CLASSES: u8 = 4;
const STRANGERS: u8 = 5;
/// A full channel of 802.11n.
const APART: Duration = Duration::from_micros(50);
const ROUNDS: usize = 15;
/// A full frame, bytes.
const FULL: usize = 1_538;

pub(super) fn goals() -> Vec<Goal> {
    vec![Goal::at_most("busy_channel.ns_per_frame", 200.0), Goal::at_most("most_memory.bytes", 20_000.0)]
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let frames = if effort == Effort::Quick { 20_000 } else { 1_000_000 };
    let headers = headers(frames);
    let mut metrics = Metrics::new();
    for (name, few) in [("busy_channel", false), ("one_access_point", true)] {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(nanoseconds(&headers, few)?);
        }
        let middle = median(&times).context("there is no round")?;
        metrics.insert(format!("{name}.ns_per_frame"), (middle * 10.0).round() / 10.0);
    }
    metrics.insert("most_memory.bytes".into(), Qualities::most_memory().0 as f64);
    Ok(metrics)
}

/// Time for each frame, all heard one after the other. The header is read anyway, for all else that a radio does with it.
fn nanoseconds(headers: &[Header], few: bool) -> anyhow::Result<f64> {
    let mut qualities = Qualities::default();
    let mut now = Timestamp::from_millis(1_000);
    let first = headers.first().context("there is no frame")?.transmitter;
    let begin = processor_time()?;
    let mut taken = 0_u32;
    // Only its length counts: what is full is counted as another device's share, too.
    let frame = [0; FULL];
    for header in headers.iter().filter(|header| !few || header.transmitter == first) {
        now += APART;
        let heard = Heard {
            frame: &frame,
            frequency: CHANNEL,
            signal_dbm: None,
            rate: Some(Rate(108)),
            high_throughput: None,
            aggregate: None,
        };
        qualities.take(now, header, &heard, |address| address == OWN, |_| true);
        taken += 1;
    }
    let spent = processor_time()?.saturating_sub(begin);
    anyhow::ensure!(black_box(qualities.iter(now).count()) > 0, "nothing was heard");
    Ok(spent.as_nanos() as f64 / f64::from(taken))
}

/// What this thread has had of a processor: other programs' time does not count.
pub(super) fn processor_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").context("read this thread's time")?;
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.map(Duration::from_nanos).context("this kernel keeps no scheduler statistics (CONFIG_SCHED_INFO)")
}

/// Frames of all access points in turn by chance, a third of them repeated, each space with its own numbers.
fn headers(count: usize) -> Vec<Header> {
    let mut random = SeededRandom::derive(1, "frames");
    let mut numbers = std::collections::BTreeMap::new();
    (0..count)
        .map(|_| {
            let mut below = |most: u8| (random.next_u64() % u64::from(most)) as u8;
            let point = below(POINTS);
            let stranger = below(STRANGERS + 1);
            let class = below(CLASSES);
            let receiver = if stranger == 0 { OWN } else { MacAddress([2, 0, 0, 0, 9, stranger]) };
            let transmitter = MacAddress([2, 0, 0, 0, 1, point]);
            let mut header = Header::new(Kind::QosData, receiver, transmitter, transmitter);
            header.control.from_access_point = true;
            header.control.retry = random.chance(0.3);
            header.qos = Some(class.into());
            let number: &mut u16 = numbers.entry((point, stranger, class)).or_default();
            *number = (*number + 1) % 4_096;
            header.sequence.number = *number;
            header
        })
        .collect()
}
