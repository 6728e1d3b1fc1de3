//! The pairs of networks that experiments run over. Rates are scaled so that a pair stays within what
//! the virtual machine of the lab carries (about 100 Mbit/s in all, 50 a network).

use crate::cellular::{CellularSpec, cellular_trace};
use crate::random::derived_seed;
use crate::{Capacity, Change, Jitter, LinkSpec, LinkState, Loss, QueueLimit, TimedChange};
use std::sync::Arc;
use std::time::Duration;
use units::{BitRate, Bytes};

/// One network: both directions of a link.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// Short name, unique within its scenario.
    pub name: &'static str,
    /// From the device to the Internet.
    pub up: LinkSpec,
    /// From the Internet to the device.
    pub down: LinkSpec,
}

/// A named set of networks.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name in experiments: lower case, hyphens.
    pub name: &'static str,
    /// One line that says what the networks are like.
    pub title: &'static str,
    /// The networks of the device.
    pub networks: Vec<NetworkSpec>,
}

impl NetworkSpec {
    /// A network with the same steady rate and half of `round_trip_ms` each way, and a queue of one
    /// bandwidth-delay product but at least 60 ms.
    pub fn symmetric(name: &'static str, mbps: f64, round_trip_ms: u64) -> Self {
        let link = LinkSpec::steady(BitRate::from_mbps(mbps), Duration::from_micros(round_trip_ms * 500))
            .with_queue(queue_of(mbps, round_trip_ms.max(60)));
        Self { name, up: link.clone(), down: link }
    }

    /// A cellular network: generated downlink trace of `mbps` on average, an uplink of a third of it, a
    /// queue of 250 ms.
    pub fn cellular(name: &'static str, mbps: f64, round_trip_ms: u64, seed: u64) -> Self {
        let trace = cellular_trace(&CellularSpec::lte(BitRate::from_mbps(mbps)), seed);
        let delay = Duration::from_micros(round_trip_ms * 500);
        let up =
            LinkSpec::steady(BitRate::from_mbps(mbps / 3.0), delay).with_queue(queue_of(mbps / 3.0, 250));
        let down = LinkSpec { capacity: Capacity::Trace(Arc::new(trace)), ..up.clone() };
        Self { name, up, down: down.with_queue(queue_of(mbps, 250)) }
    }

    /// The same network with all rates and queues divided by `divisor`, delays as they are: for beds that cannot
    /// carry the whole rate. A queue keeps room for ten full packets. Zero counts as one.
    pub fn slowed(self, divisor: u32) -> Self {
        Self { up: slowed(self.up, divisor), down: slowed(self.down, divisor), ..self }
    }

    /// The same network with jitter both ways.
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        Self { up: self.up.with_jitter(jitter), down: self.down.with_jitter(jitter), ..self }
    }

    /// The same network with loss both ways.
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { up: self.up.with_loss(loss), down: self.down.with_loss(loss), ..self }
    }

    /// The same network with a repeated schedule of changes both ways.
    pub fn with_schedule(self, schedule: &[TimedChange], period: Duration) -> Self {
        Self {
            up: self.up.with_schedule(schedule.to_vec(), Some(period)),
            down: self.down.with_schedule(schedule.to_vec(), Some(period)),
            ..self
        }
    }
}

/// All named pairs. `seed` decides the generated traces.
pub fn scenarios(seed: u64) -> Vec<Scenario> {
    let mut all = steady_pairs();
    all.extend(impaired_pairs());
    all.extend(mixed_pairs(seed));
    all.extend(changing_pairs());
    all
}

fn steady_pairs() -> Vec<Scenario> {
    let pair = |name, title, a: (f64, u64), b: (f64, u64)| Scenario {
        name,
        title,
        networks: vec![NetworkSpec::symmetric("a", a.0, a.1), NetworkSpec::symmetric("b", b.0, b.1)],
    };
    vec![
        pair("equal", "two networks of 40 Mbit/s, 20 ms", (40.0, 20), (40.0, 20)),
        pair("delay-20-40", "40 Mbit/s each, round trips of 20 and 40 ms", (40.0, 20), (40.0, 40)),
        pair("delay-20-120", "40 Mbit/s each, round trips of 20 and 120 ms", (40.0, 20), (40.0, 120)),
        pair("delay-20-320", "40 Mbit/s each, round trips of 20 and 320 ms", (40.0, 20), (40.0, 320)),
        pair("rate-4-1", "40 and 10 Mbit/s, 30 ms", (40.0, 30), (10.0, 30)),
        pair("rate-10-1", "50 and 5 Mbit/s, 30 ms", (50.0, 30), (5.0, 30)),
    ]
}

fn impaired_pairs() -> Vec<Scenario> {
    let jittery = |name, title, millis| {
        let amplitude = Duration::from_millis(millis);
        let kept = NetworkSpec::symmetric("order-kept", 40.0, 50).with_jitter(Jitter::OrderKept(amplitude));
        let mixed = NetworkSpec::symmetric("reordering", 40.0, 50).with_jitter(Jitter::Reordering(amplitude));
        Scenario { name, title, networks: vec![kept, mixed] }
    };
    let lossy = |name, title, probability| {
        let network = |label| NetworkSpec::symmetric(label, 40.0, 30).with_loss(Loss::Random(probability));
        Scenario { name, title, networks: vec![network("a"), network("b")] }
    };
    vec![
        jittery("jitter-5", "40 Mbit/s each, 50 ms, jitter of 5 ms: one keeps order, one reorders", 5),
        jittery("jitter-20", "40 Mbit/s each, 50 ms, jitter of 20 ms: one keeps order, one reorders", 20),
        lossy("loss-0.5", "40 Mbit/s each, 30 ms, 0.5 % random loss", 0.005),
        lossy("loss-2", "40 Mbit/s each, 30 ms, 2 % random loss", 0.02),
    ]
}

fn mixed_pairs(seed: u64) -> Vec<Scenario> {
    let lte = |name, mbps, round_trip_ms, label| {
        NetworkSpec::cellular(name, mbps, round_trip_ms, derived_seed(seed, label))
    };
    let satellite_bursts =
        Loss::GilbertElliott { good_to_bad: 0.0005, bad_to_good: 0.1, loss_in_good: 0.0, loss_in_bad: 0.5 };
    let bad_bursts =
        Loss::GilbertElliott { good_to_bad: 0.005, bad_to_good: 0.2, loss_in_good: 0.005, loss_in_bad: 0.5 };
    let satellite = NetworkSpec::symmetric("satellite", 40.0, 50)
        .with_jitter(Jitter::OrderKept(Duration::from_millis(8)))
        .with_loss(satellite_bursts);
    let geostationary = NetworkSpec::symmetric("geostationary", 15.0, 600).with_loss(Loss::Random(0.0005));
    vec![
        Scenario {
            name: "two-lte",
            title: "two generated LTE-like traces, 25 and 15 Mbit/s on average, 50 and 70 ms",
            networks: vec![lte("lte-a", 25.0, 50, "two-lte a"), lte("lte-b", 15.0, 70, "two-lte b")],
        },
        Scenario {
            name: "fibre-lte",
            title: "fibre of 50 Mbit/s, 8 ms, and an LTE-like trace of 20 Mbit/s, 50 ms",
            networks: vec![NetworkSpec::symmetric("fibre", 50.0, 8), lte("lte", 20.0, 50, "fibre-lte")],
        },
        Scenario {
            name: "lte-satellite",
            title: "an LTE-like trace of 20 Mbit/s, 50 ms, and a low satellite of 40 Mbit/s, 50 ms, jitter and bursts of loss",
            networks: vec![lte("lte", 20.0, 50, "lte-satellite"), satellite],
        },
        Scenario {
            name: "lte-geostationary",
            title: "an LTE-like trace of 20 Mbit/s, 50 ms, and a geostationary satellite of 15 Mbit/s, 600 ms",
            networks: vec![lte("lte", 20.0, 50, "lte-geostationary"), geostationary],
        },
        Scenario {
            name: "both-bad",
            title: "6 Mbit/s, 80 ms, and 3 Mbit/s, 150 ms, both with reordering jitter and bursts of loss",
            networks: vec![
                NetworkSpec::symmetric("bad", 6.0, 80)
                    .with_jitter(Jitter::Reordering(Duration::from_millis(15)))
                    .with_loss(bad_bursts),
                NetworkSpec::symmetric("worse", 3.0, 150)
                    .with_jitter(Jitter::Reordering(Duration::from_millis(30)))
                    .with_loss(bad_bursts),
            ],
        },
    ]
}

fn changing_pairs() -> Vec<Scenario> {
    let at = |seconds, change| TimedChange { at: Duration::from_secs(seconds), change };
    let rate = |mbps| Change::Capacity(Capacity::Rate(BitRate::from_mbps(mbps)));
    let steps = [at(5, rate(4.0)), at(10, rate(40.0))];
    let outages = [at(5, Change::State(LinkState::Silent)), at(6, Change::State(LinkState::Up))];
    vec![
        Scenario {
            name: "rate-steps",
            title: "a steady 40 Mbit/s, 30 ms, and one that changes between 40 and 4 Mbit/s every 5 s",
            networks: vec![
                NetworkSpec::symmetric("steady", 40.0, 30),
                NetworkSpec::symmetric("changing", 40.0, 30).with_schedule(&steps, Duration::from_secs(10)),
            ],
        },
        Scenario {
            name: "outages",
            title: "a steady 40 Mbit/s, 30 ms, and the same going silent for 1 s every 10 s",
            networks: vec![
                NetworkSpec::symmetric("steady", 40.0, 30),
                NetworkSpec::symmetric("leaving", 40.0, 30).with_schedule(&outages, Duration::from_secs(10)),
            ],
        },
    ]
}

fn slowed(link: LinkSpec, divisor: u32) -> LinkSpec {
    let divisor = divisor.max(1);
    let bytes = |bytes: Bytes| Bytes((bytes.0 / u64::from(divisor)).max(LEAST_QUEUE.0.min(bytes.0)));
    let capacity = |capacity: &Capacity| match capacity {
        Capacity::Unlimited => Capacity::Unlimited,
        Capacity::Rate(rate) => Capacity::Rate(BitRate(rate.0 / u64::from(divisor))),
        Capacity::Trace(trace) => Capacity::Trace(Arc::new(trace.thinned(divisor))),
    };
    let queue = match link.queue {
        QueueLimit::Bytes(limit) => QueueLimit::Bytes(bytes(limit)),
        QueueLimit::Packets(limit) => {
            QueueLimit::Packets((limit / divisor as usize).max(LEAST_QUEUE_PACKETS.min(limit)))
        }
    };
    let schedule = link.schedule.iter().map(|timed| match &timed.change {
        Change::Capacity(changed) => {
            TimedChange { change: Change::Capacity(capacity(changed)), ..timed.clone() }
        }
        _ => timed.clone(),
    });
    LinkSpec {
        capacity: capacity(&link.capacity),
        queue,
        mark_above: link.mark_above.map(bytes),
        schedule: schedule.collect(),
        ..link
    }
}

/// A queue that holds `millis` of traffic at `mbps`, and at least ten full packets.
fn queue_of(mbps: f64, millis: u64) -> QueueLimit {
    let bytes = BitRate::from_mbps(mbps).bytes_in(Duration::from_millis(millis));
    QueueLimit::Bytes(bytes.max(LEAST_QUEUE))
}

/// Ten full packets.
const LEAST_QUEUE: Bytes = Bytes(15_000);
const LEAST_QUEUE_PACKETS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_rates_within_the_lab() {
        let all = scenarios(1);
        let names: BTreeSet<_> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len());
        for scenario in &all {
            for network in &scenario.networks {
                for link in [&network.up, &network.down] {
                    let rate = link.mean_rate().unwrap();
                    assert!(rate <= BitRate::from_mbps(50.1), "{}: {rate}", scenario.name);
                    assert!(rate >= BitRate::from_mbps(1.0), "{}: {rate}", scenario.name);
                }
            }
        }
    }

    #[test]
    fn a_slowed_network_has_a_part_of_its_rates_and_queues_and_all_its_delays() {
        let all = scenarios(1);
        for network in all.iter().flat_map(|scenario| &scenario.networks) {
            let slow = network.clone().slowed(2);
            for (link, slow) in [(&network.up, &slow.up), (&network.down, &slow.down)] {
                let ratio = slow.mean_rate().unwrap().as_mbps() / link.mean_rate().unwrap().as_mbps();
                assert!((ratio - 0.5).abs() < 0.001, "{}: {ratio}", network.name);
                assert_eq!((slow.delay, slow.jitter, slow.loss), (link.delay, link.jitter, link.loss));
                let (QueueLimit::Bytes(whole), QueueLimit::Bytes(part)) = (link.queue, slow.queue) else {
                    panic!("queues are counted in bytes here");
                };
                assert_eq!(part.0, (whole.0 / 2).max(15_000), "{}", network.name);
                assert_eq!(slow.schedule.len(), link.schedule.len());
            }
        }
    }

    #[test]
    fn schedules_count_in_the_mean_rate() {
        let all = scenarios(1);
        let mean = |name: &str| {
            let scenario = all.iter().find(|scenario| scenario.name == name).unwrap();
            scenario.networks[1].down.mean_rate().unwrap().as_mbps()
        };
        assert!((mean("rate-steps") - 22.0).abs() < 0.01);
        assert!((mean("outages") - 36.0).abs() < 0.01);
    }
}
