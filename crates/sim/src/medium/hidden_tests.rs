//! Stations that do not sense each other, and receivers that hear both.

use std::time::Duration;

use proptest::prelude::*;
use radio::Rate;
use units::{MacAddress, Timestamp};

use super::tests::{
    A, FULL, Step, address, attempts, fast, frame, lossy, medium, outcomes, play, receptions, run, step,
};
use super::*;

const RECEIVER: StationId = StationId(2);

/// Two senders with these signals at a receiver; out of each other's range, and hidden from each other or not.
fn two_senders(signals_dbm: [i8; 2], hidden: bool) -> Links {
    let mut links = Links::default();
    for (sender, signal) in signals_dbm.into_iter().enumerate() {
        let link = || Link { signal_dbm: Some(signal), ..Link::default() };
        links.set(StationId(sender), RECEIVER, link());
        links.set(RECEIVER, StationId(sender), link());
    }
    let nothing = || Link { signal_dbm: None, ..Link::default() };
    links.set(StationId(0), StationId(1), nothing());
    links.set(StationId(1), StationId(0), nothing());
    if hidden {
        links.hide(StationId(0), StationId(1));
    }
    links
}

/// How many frames of each the receiver acknowledges in a second while both always have some.
fn saturated(links: Links, rates: &Rates) -> [u64; 2] {
    let mut medium = medium(links, 3, A, 4);
    for step in 0..1_000 {
        let now = Timestamp::from_millis(step);
        for sender in [0, 1].map(StationId) {
            while medium.pending(sender) < 20 {
                medium.transmit(now, sender, frame(0, address(RECEIVER), FULL, A, rates.clone())).unwrap();
            }
        }
        run(&mut medium, now + Duration::from_millis(1));
    }
    [0, 1].map(|sender| medium.station_statistics(StationId(sender)).acknowledged)
}

fn slow() -> Rates {
    Rates::Series(Series::steady(Rate(12), 7))
}

/// `[MULTIAP] fig 2`: at 6 Mbit/s two equally strong ones have a small part of what they have if they take turns.
#[test]
fn hidden_senders_of_equal_signal_spoil_each_others_frames() {
    let turns = saturated(two_senders([-60, -60], false), &slow());
    let hidden = saturated(two_senders([-60, -60], true), &slow());
    let [turns, hidden] = [turns, hidden].map(|both| both.iter().sum::<u64>());
    assert!(turns > 400, "{turns}");
    assert!(hidden * 3 < turns, "{hidden} of {turns}");
}

#[test]
fn a_much_stronger_sender_is_read_as_if_it_were_alone() {
    let [near, far] = saturated(two_senders([-50, -70], true), &slow());
    let alone = {
        let [near, far] = saturated(two_senders([-50, -70], false), &slow());
        near + far
    };
    assert!(near as f64 > 0.95 * alone as f64, "{near} of {alone}");
    assert!((far as f64) < 0.1 * alone as f64, "{far} of {alone}");
}

/// 54 Mbit/s needs a signal 26 dB above noise, and as much above what disturbs.
#[test]
fn fast_rates_bear_less() {
    let of_turns = |rates: &Rates| {
        let [near, _] = saturated(two_senders([-50, -68], true), rates);
        let turns: u64 = saturated(two_senders([-50, -68], false), rates).iter().sum();
        near as f64 / turns as f64
    };
    assert!(of_turns(&slow()) > 0.9, "{}", of_turns(&slow()));
    assert!(of_turns(&fast()) < 0.5, "{}", of_turns(&fast()));
}

/// Who hears nothing of a frame may hear its acknowledgement, and does not begin in it.
#[test]
fn an_acknowledgement_holds_those_back_who_hear_only_that() {
    let mut medium = medium(two_senders([-60, -60], true), 3, A, 1);
    let start = Timestamp::from_millis(1);
    medium.transmit(start, StationId(0), frame(1, address(RECEIVER), FULL, A, fast())).unwrap();
    // 248 us of the frame, then 44 us until the acknowledgement is over, which begins after 16.
    let within = start + Duration::from_micros(270);
    let mut events = run(&mut medium, within);
    medium.transmit(within, StationId(1), frame(2, address(RECEIVER), FULL, A, fast())).unwrap();
    events.extend(run(&mut medium, Timestamp::from_millis(9)));
    let ended: Vec<_> = outcomes(&events).map(|outcome| (outcome.id.0, outcome.acknowledged)).collect();
    assert_eq!(ended, [(1, true), (2, true)]);
    let second = attempts(&events).find(|attempt| attempt.id.0 == 2).unwrap();
    let began = second.at - Duration::from_micros(248);
    assert!(began >= start + Duration::from_micros(292 + 34), "{began:?}");
}

/// Who is not sensed but not heard at the receiver either does no harm: both send at once.
#[test]
fn far_apart_a_channel_is_used_twice() {
    let mut links = Links::default();
    for (one, other) in [(0, 1), (0, 3), (2, 1), (2, 3)] {
        let nothing = || Link { signal_dbm: None, ..Link::default() };
        let [one, other] = [one, other].map(StationId);
        links.set(one, other, nothing());
        links.set(other, one, nothing());
        links.hide(one, other);
    }
    // 0 sends to 2, 1 sends to 3.
    let mut medium = medium(links, 4, A, 1);
    for id in 0..50 {
        let sender = id % 2;
        let to = address(StationId(sender as usize + 2));
        medium.transmit(Timestamp::ZERO, StationId(sender as usize), frame(id, to, FULL, A, fast())).unwrap();
    }
    let events = run(&mut medium, Timestamp::from_millis(100));
    assert!(outcomes(&events).all(|outcome| outcome.attempts == [(Rate(108), 1)] && outcome.acknowledged));
    assert!(attempts(&events).any(|attempt| attempt.collided && attempt.heard));
    // 25 frames of 393 us one after the other, not 50.
    assert!(outcomes(&events).last().unwrap().at < Timestamp::from_millis(13));
}

#[test]
fn who_sends_hears_nothing_meanwhile() {
    let mut links = Links::default();
    links.hide(StationId(0), StationId(1));
    let mut medium = medium(links, 2, A, 1);
    for (sender, receiver) in [(0, 1), (1, 0)] {
        let to = address(StationId(receiver));
        let once = Rates::Series(Series::steady(Rate(12), 1));
        medium.transmit(Timestamp::ZERO, StationId(sender), frame(0, to, FULL, A, once)).unwrap();
    }
    let events = run(&mut medium, Timestamp::from_millis(50));
    assert_eq!(receptions(&events).count(), 0);
    assert!(attempts(&events).all(|attempt| attempt.collided && !attempt.heard));
}

proptest! {
    /// Whoever is hidden from whom, each frame taken ends once, nobody sends two at a time, and the same seed gives the same events.
    #[test]
    fn frames_are_conserved(
        steps in proptest::collection::vec(step(), 1..150),
        hidden in proptest::collection::vec((0..4usize, 0..4usize), 0..6),
        loss in 0.0..0.9f64,
        seed: u64,
    ) {
        let links = || {
            let mut links = lossy(loss);
            hidden.iter().for_each(|(one, other)| links.hide(StationId(*one), StationId(*other)));
            links
        };
        let steps: &[Step] = &steps;
        let (events, taken, medium) = play(steps, links(), seed);
        let mut ended: Vec<FrameId> = outcomes(&events).map(|outcome| outcome.id).collect();
        ended.sort_unstable();
        prop_assert_eq!(ended, taken.into_iter().collect::<Vec<_>>());
        for station in (0..4).map(StationId) {
            let mut last = Timestamp::ZERO;
            for attempt in attempts(&events).filter(|attempt| attempt.sender == station) {
                let length = units::Bytes(attempt.bytes.len() as u64 + 4);
                let flavour = radio::airtime::Flavour::of(attempt.frequency);
                let began = attempt.at - flavour.frame_time(attempt.rate, length);
                prop_assert!(began >= last);
                last = attempt.at;
            }
            prop_assert_eq!(medium.pending(station), 0);
        }
        let heard_of = |heard: &Reception| {
            attempts(&events).any(|attempt| (attempt.id, attempt.at) == (heard.id, heard.at))
        };
        prop_assert!(receptions(&events).all(heard_of));
        prop_assert_eq!(play(steps, links(), seed).0, events);
    }
}

/// A frame to everybody is not repeated, so who hears both senders has neither.
#[test]
fn frames_to_a_group_are_lost_where_both_are_heard() {
    let mut medium = medium(two_senders([-60, -60], true), 3, A, 1);
    for sender in [0, 1].map(StationId) {
        let frame = frame(sender.0 as u64, MacAddress::BROADCAST, FULL, A, slow());
        medium.transmit(Timestamp::ZERO, sender, frame).unwrap();
    }
    let events = run(&mut medium, Timestamp::from_millis(50));
    assert_eq!(receptions(&events).filter(|heard| heard.station == RECEIVER).count(), 0);
    assert_eq!(outcomes(&events).count(), 2);
}
