//! What a source does with news, in virtual time.

use super::*;
use std::time::Duration;
use wire::upload::Runs;

const TRANSFER: Transfer = Transfer(1);
const ONE: Member = Member::new(0).unwrap();

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn run(first: u32, last: u32) -> Run {
    Run::new(Chunk(first), Chunk(last)).unwrap()
}

fn runs(first: u32, last: u32) -> Runs {
    Runs::rising([run(first, last)]).unwrap()
}

fn source(settings: Settings, chunks: u32, own_window: u32) -> Source {
    let rates = BitRates::new(vec![Duration::from_millis(3)]).unwrap();
    Source::new(at(0), settings, TRANSFER, chunks, RangeSet::default(), rates, own_window)
}

fn feedback(through: u32) -> Feedback {
    Feedback {
        transfer: TRANSFER,
        through: AirNumber(through),
        shortage: 100,
        stored: Runs::new(),
        held: Runs::new(),
        lost: Runs::new(),
        spare: Runs::new(),
        members: vec![],
    }
}

/// Sends frames for so long, one at a time; which chunks, and when it would be done.
fn sends(source: &mut Source, from: u64, to: u64) -> Vec<u32> {
    (from..to).filter_map(|millis| source.poll_broadcast(at(millis))).map(|frame| frame.chunk.0).collect()
}

fn state(target: u32) -> MemberState {
    MemberState { member: ONE, target, room: target, receptions: vec![] }
}

#[test]
fn what_was_not_heard_is_sent_again_when_that_is_known_and_not_before() {
    let mut source = source(Settings::default(), 10, 0);
    assert_eq!(sends(&mut source, 0, 100), (0..10).collect::<Vec<_>>());
    // Somebody who has not heard of them cannot tell of them, whatever is claimed of later frames.
    source.handle_feedback(at(100), &Feedback { held: runs(0, 3), ..feedback(5) });
    assert_eq!(sends(&mut source, 100, 112).first(), Some(&4));
    let mut source = self::source(Settings::default(), 10, 0);
    source.handle_feedback(at(0), &feedback(u32::MAX));
    assert_eq!(sends(&mut source, 0, 900), (0..10).collect::<Vec<_>>(), "nobody was told of these");
}

#[test]
fn a_chunk_that_is_lost_twice_is_sent_once() {
    let mut source = source(Settings::default(), 10, 0);
    sends(&mut source, 0, 100);
    source.handle_feedback(at(100), &Feedback { held: runs(0, 9), ..feedback(5) });
    for millis in 100..200 {
        source.handle_feedback(at(millis), &Feedback { lost: runs(3, 3), ..feedback(5) });
    }
    assert!(source.sent.len() < 20, "{}", source.sent.len());
    assert_eq!(sends(&mut source, 200, 220).iter().filter(|chunk| **chunk == 3).count(), 1);
}

#[test]
fn the_queue_of_what_was_sent_stays_in_proportion() {
    let mut source = source(Settings::default(), 10, 0);
    sends(&mut source, 0, 100);
    for millis in 100..2_000 {
        source.handle_feedback(at(millis), &Feedback { held: runs(0, 9), ..feedback(0) });
        source.handle_feedback(at(millis), &Feedback { lost: runs(0, 9), ..feedback(0) });
    }
    assert!(source.sent.len() <= 84, "{}", source.sent.len());
}

#[test]
fn a_frame_for_one_that_failed_is_sent_again_once() {
    let unicast = Settings { strategy: Strategy::Unicast, ..Settings::default() };
    let mut source = source(unicast, 4, 0);
    source.handle_feedback(at(0), &Feedback { members: vec![state(40)], ..feedback(0) });
    let mut sent = Vec::new();
    for millis in (1..200).step_by(5) {
        let Some(frame) = source.poll_broadcast(at(millis)) else { break };
        sent.push(frame.chunk.0);
        source.handle_unicast_outcome(at(millis + 4), &frame, sent.len() > 8, 7);
    }
    assert_eq!(
        (sent.len(), source.sent.len() <= 8),
        (12, true),
        "eight in vain and four that arrive: {sent:?}"
    );
}

#[test]
fn it_waits_for_what_can_change_something() {
    for settings in [Settings::default(), Settings::PAPER] {
        for strategy in [Strategy::Scheduled, Strategy::Unicast, Strategy::Random] {
            let mut source = source(Settings { strategy, ..settings }, 20, 2);
            let mut now = at(0);
            for round in 0..2_000_u32 {
                // Frames for one neighbour have no pace; here the card has room for 8.
                let mut room = 8;
                while room > 0
                    && let Some(frame) = source.poll_broadcast(now)
                {
                    room -= 1;
                    if frame.addressee.is_some() {
                        source.handle_unicast_outcome(now, &frame, round % 3 > 0, 1);
                    }
                }
                while source.poll_uplink(now).is_some() {}
                let next = source.poll_timeout();
                assert!(
                    room == 0 || next.is_none_or(|next| next > now),
                    "{strategy:?} {round}: {next:?} at {now:?}"
                );
                now = next.unwrap_or(now).max(now + Duration::from_millis(1));
                if round % 7 == 0 {
                    let held = if round % 14 == 0 { runs(0, 19) } else { Runs::new() };
                    let members = if round % 21 == 0 { vec![] } else { vec![state(3)] };
                    source.handle_feedback(now, &Feedback { held, members, ..feedback(round) });
                }
            }
        }
    }
}

#[test]
fn after_its_connection_broke_it_waits_to_be_told_what_is_held() {
    let mut source = source(Settings::default(), 100, 4);
    assert_eq!(sends(&mut source, 0, 400).len(), 100);
    source.handle_feedback(at(400), &Feedback { held: runs(0, 89), ..feedback(95) });
    source.handle_reconnected(at(500), &[]);
    assert_eq!(sends(&mut source, 500, 700), [] as [u32; 0]);
    assert_eq!(source.poll_uplink(at(700)), None, "nor by its own uplink");
    let told = Feedback { stored: runs(0, 9), held: runs(10, 79), ..feedback(95) };
    source.handle_feedback(at(700), &told);
    let again: Vec<u32> = sends(&mut source, 700, 745);
    assert_eq!(again[..15], (80..95).collect::<Vec<_>>()[..], "not known to be held, and told of");
}

#[test]
fn what_was_on_its_own_connection_is_sent_again() {
    let mut source = source(Settings::default(), 6, 4);
    for chunk in 0..4 {
        assert_eq!(source.poll_uplink(at(0)), Some(Chunk(chunk)));
    }
    source.handle_reconnected(at(500), &[run(0, 1)]);
    source.handle_feedback(at(520), &feedback(1));
    let again: Vec<Option<Chunk>> = (0..4).map(|_| source.poll_uplink(at(520))).collect();
    assert_eq!(again, [4, 5, 2, 3].map(|chunk| Some(Chunk(chunk))));
}
