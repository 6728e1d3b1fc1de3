use super::*;
use crate::DeliveryTrace;
use std::sync::Arc;
use units::BitRate;

/// A packet with a number, 1500 bytes on the link, ECN-capable.
#[derive(Clone, PartialEq, Debug)]
struct Numbered {
    number: usize,
    marked: bool,
}

impl LinkPacket for Numbered {
    fn link_bytes(&self) -> Bytes {
        Bytes(1_500)
    }

    fn mark_congestion(&mut self) -> bool {
        self.marked = true;
        true
    }
}

/// Offers packets at the given milliseconds and returns (number, arrival in microseconds), driving the
/// link only at the times it asks for.
fn run(link: &mut Link<Numbered>, offered_ms: &[u64]) -> Vec<(usize, u64)> {
    let mut arrivals = Vec::new();
    let mut offers = offered_ms.iter().enumerate().peekable();
    loop {
        let offer = offers.peek().map(|(_, millis)| Timestamp::from_millis(**millis));
        let now = match (offer, link.next_event()) {
            (Some(offer), Some(event)) => offer.min(event),
            (Some(time), None) | (None, Some(time)) => time,
            (None, None) => return arrivals,
        };
        while let Some(packet) = link.poll(now) {
            arrivals.push((packet.number, now.as_micros()));
        }
        if offer == Some(now)
            && let Some((number, _)) = offers.next()
        {
            link.enqueue(now, Numbered { number, marked: false });
        }
    }
}

fn steady() -> LinkSpec {
    // One packet takes exactly 1 ms.
    LinkSpec::steady(BitRate::from_mbps(12.0), Duration::from_millis(20))
}

fn at(millis: u64, change: Change) -> TimedChange {
    TimedChange { at: Duration::from_millis(millis), change }
}

fn rate(mbps: f64) -> Change {
    Change::Capacity(Capacity::Rate(BitRate::from_mbps(mbps)))
}

#[test]
fn rate_and_delay_add_up() {
    let mut link = Link::new(steady(), 1);
    assert_eq!(run(&mut link, &[0, 0, 10]), [(0, 21_000), (1, 22_000), (2, 31_000)]);
    assert_eq!(link.statistics().delivered_bytes, 4_500);
}

#[test]
fn a_full_queue_drops_the_tail() {
    let mut link = Link::new(steady().with_queue(QueueLimit::Packets(3)), 1);
    let numbers: Vec<usize> =
        run(&mut link, &[0, 0, 0, 0, 0]).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(link.statistics().dropped_full, 2);

    let mut link = Link::new(steady().with_queue(QueueLimit::Bytes(Bytes(3_100))), 1);
    assert_eq!(run(&mut link, &[0, 0, 0]).len(), 2);
    assert_eq!(link.statistics().most_queued_bytes, 3_000);
}

#[test]
fn marks_above_the_threshold() {
    let mut link = Link::new(LinkSpec { mark_above: Some(Bytes(3_000)), ..steady() }, 1);
    run(&mut link, &[0, 0, 0, 0]);
    assert_eq!(link.statistics().marked, 2);
}

#[test]
fn a_change_of_rate_keeps_what_was_sent() {
    // Half the packet is gone after 0.5 ms at 12 Mbit/s; the rest takes 5 ms at 1.2.
    let schedule = vec![
        TimedChange { at: Duration::from_micros(500), change: rate(1.2) },
        TimedChange { at: Duration::from_millis(50), change: rate(12.0) },
    ];
    let mut link = Link::new(steady().with_schedule(schedule, None), 1);
    assert_eq!(run(&mut link, &[0, 60]), [(0, 25_500), (1, 81_000)]);
}

#[test]
fn a_rate_of_zero_holds_packets_until_it_changes() {
    let schedule = vec![at(5, rate(0.0)), at(100, rate(12.0))];
    let mut link = Link::new(steady().with_schedule(schedule, None), 1);
    assert_eq!(run(&mut link, &[10, 20]), [(0, 121_000), (1, 122_000)]);
}

#[test]
fn down_drops_the_queue_and_silent_drops_what_travels() {
    let outage = |state| vec![at(10, Change::State(state)), at(30, Change::State(LinkState::Up))];
    let mut down = Link::new(steady().with_schedule(outage(LinkState::Down), None), 1);
    assert_eq!(run(&mut down, &[0, 15, 40]), [(0, 21_000), (2, 61_000)]);
    assert_eq!(down.statistics().dropped_outage, 1);
    let mut silent = Link::new(steady().with_schedule(outage(LinkState::Silent), None), 1);
    assert_eq!(run(&mut silent, &[0, 15, 40]), [(2, 61_000)]);
    assert_eq!(silent.statistics().dropped_outage, 2);
}

#[test]
fn a_schedule_repeats() {
    let schedule = vec![at(0, Change::State(LinkState::Up)), at(10, Change::State(LinkState::Down))];
    let spec = steady().with_schedule(schedule, Some(Duration::from_millis(20)));
    let mut link = Link::new(spec, 1);
    let offered: Vec<u64> = (0..8).map(|n| n * 5 + 2).collect();
    let delivered: Vec<usize> = run(&mut link, &offered).into_iter().map(|(number, _)| number).collect();
    assert_eq!(delivered, [0, 1, 4, 5]);
}

#[test]
fn order_is_kept_or_not_as_asked() {
    let offered: Vec<u64> = (0..2_000).collect();
    let amplitude = Duration::from_millis(5);
    let numbers = |jitter| -> Vec<(usize, u64)> {
        run(&mut Link::new(LinkSpec { jitter, ..LinkSpec::ideal(Duration::from_millis(20)) }, 9), &offered)
    };
    let kept = numbers(Jitter::OrderKept(amplitude));
    assert_eq!(kept.len(), 2_000);
    assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let mixed = numbers(Jitter::Reordering(amplitude));
    assert_eq!(mixed.len(), 2_000);
    assert!(mixed.windows(2).any(|pair| pair[0].0 > pair[1].0));
    for (number, micros) in mixed {
        let delay = micros - number as u64 * 1_000;
        assert!((15_000..=25_000).contains(&delay), "delay of {delay} us");
    }
}

#[test]
fn loss_is_as_frequent_as_asked_and_bursts_are_bursts() {
    let offered: Vec<u64> = (0..50_000).collect();
    let lost = |loss| -> Vec<usize> {
        let mut link = Link::new(LinkSpec::ideal(Duration::ZERO).with_loss(loss), 4);
        let mut present = vec![false; offered.len()];
        for (number, _) in run(&mut link, &offered) {
            present[number] = true;
        }
        present.iter().enumerate().filter(|(_, arrived)| !**arrived).map(|(number, _)| number).collect()
    };
    let random = lost(Loss::Random(0.02));
    assert!((900..1_100).contains(&random.len()), "{} of 50000", random.len());
    let bursts = lost(Loss::GilbertElliott {
        good_to_bad: 0.005,
        bad_to_good: 0.2,
        loss_in_good: 0.0,
        loss_in_bad: 1.0,
    });
    // The bad state has a part of 0.005 / 0.205 of the time.
    assert!((950..1_500).contains(&bursts.len()), "{} of 50000", bursts.len());
    let pairs = |numbers: &[usize]| numbers.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    assert!(pairs(&bursts) > 10 * pairs(&random), "{} against {}", pairs(&bursts), pairs(&random));
}

#[test]
fn a_trace_delivers_at_its_opportunities() {
    let trace = Arc::new(DeliveryTrace::parse("2\n2\n10").unwrap());
    let spec = LinkSpec { capacity: Capacity::Trace(trace), ..LinkSpec::ideal(Duration::from_millis(1)) };
    let mut link = Link::new(spec, 1);
    // 1500 bytes need one opportunity each; 4 bytes of each are left over and join for nothing here.
    assert_eq!(
        run(&mut link, &[0, 0, 0, 0, 11]),
        [(0, 3_000), (1, 3_000), (2, 11_000), (3, 13_000), (4, 13_000)]
    );
}

#[test]
fn the_seed_decides_everything() {
    let spec =
        steady().with_loss(Loss::Random(0.1)).with_jitter(Jitter::Reordering(Duration::from_millis(9)));
    let offered: Vec<u64> = (0..500).collect();
    let outcome = |seed| run(&mut Link::new(spec.clone(), seed), &offered);
    assert_eq!(outcome(1), outcome(1));
    assert_ne!(outcome(1), outcome(2));
}
