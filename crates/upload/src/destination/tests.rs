//! What a destination stands, in virtual time.

use super::*;
use crate::settings::Settings;
use wire::upload::{Reception, Run, Runs};

const TRANSFER: Transfer = Transfer(1);
const CHUNKS: u32 = 4_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn key(number: u8) -> PeerKey {
    PeerKey([number; 32])
}

fn run(first: u32, last: u32) -> Run {
    Run::new(Chunk(first), Chunk(last)).unwrap()
}

fn destination() -> Destination {
    Destination::new(at(0), Settings::default(), TRANSFER, CHUNKS, RangeSet::default())
}

fn report(window: u32, heard: Vec<Run>) -> Report {
    let receptions: Vec<Reception> = Vec::new();
    let heard = Runs::rising(heard).unwrap();
    Report { transfer: TRANSFER, through: AirNumber(9), window, buffered: 0, receptions, heard, away: 0 }
}

/// What a neighbour was told until now.
#[derive(Default, Debug)]
struct Told {
    carry: Vec<Chunk>,
    forget: RangeSet,
    repeat: RangeSet,
}

fn told(destination: &mut Destination, now: Timestamp, whom: Member) -> Told {
    let mut told = Told::default();
    while let Some((member, grant)) = destination.poll_grant(now) {
        if member == whom {
            told.carry.extend(grant.carry.iter().flat_map(|run| run.chunks()));
            grant.forget.iter().for_each(|run| told.forget.insert_run(*run));
            grant.repeat.iter().for_each(|run| told.repeat.insert_run(*run));
        }
    }
    told
}

/// All that the source is told now.
fn news(destination: &mut Destination, now: Timestamp) -> (RangeSet, RangeSet, RangeSet, Vec<Feedback>) {
    let mut all = Vec::new();
    while let Some(feedback) = destination.poll_feedback(now) {
        all.push(feedback);
    }
    let set = |runs: fn(&Feedback) -> &Runs| {
        RangeSet::from_runs(all.iter().flat_map(|feedback| runs(feedback).iter().copied()))
    };
    (set(|one| &one.stored), set(|one| &one.held), set(|one| &one.lost), all)
}

fn wait(destination: &mut Destination, from: u64, to: u64) {
    for millis in (from..=to).step_by(50) {
        destination.handle_timeout(at(millis));
    }
}

#[test]
fn one_chunk_again_and_again_keeps_no_grants_alive() {
    let mut destination = destination();
    let (liar, honest) = (destination.join(at(0), key(1)).unwrap(), destination.join(at(0), key(2)).unwrap());
    destination.handle_report(at(0), liar, &report(4, vec![run(0, 5)]));
    assert_eq!(told(&mut destination, at(0), liar).carry, [0, 1, 2, 3, 4, 5].map(Chunk));
    destination.handle_report(at(0), honest, &report(4, vec![run(0, 5)]));
    for millis in (100..3_000).step_by(100) {
        destination.handle_stored(at(millis), Arrival::By(liar), Chunk(0));
        destination.handle_timeout(at(millis));
    }
    assert_eq!(told(&mut destination, at(3_000), honest).carry, [1, 2, 3, 4, 5].map(Chunk));
    let done = destination.member_report(liar);
    assert!(done.brought == 1 && done.stalls > 0 && done.late > 20, "{done:?}");
}

#[test]
fn the_slowest_is_not_waited_for_longer_than_two_seconds() {
    let mut destination = destination();
    let slow = destination.join(at(0), key(1)).unwrap();
    destination.handle_report(at(0), slow, &report(4, vec![run(0, 5)]));
    for (millis, chunk) in [(1_000, 0), (2_000, 1)] {
        destination.handle_stored(at(millis), Arrival::By(slow), Chunk(chunk));
    }
    wait(&mut destination, 2_000, 3_900);
    assert_eq!(destination.member_report(slow).stalls, 0);
    wait(&mut destination, 3_900, 4_200);
    assert_eq!(
        destination.member_report(slow).stalls,
        1,
        "a second between two chunks is no reason to wait for eight"
    );
}

#[test]
fn one_stall_of_a_large_window_is_forgiven() {
    let mut destination = destination();
    let wide = destination.join(at(0), key(1)).unwrap();
    destination.handle_report(at(0), wide, &report(200, vec![run(0, 199)]));
    wait(&mut destination, 0, 2_500);
    assert_eq!(destination.member_report(wide).stalls, 1);
    let asked = told(&mut destination, at(2_500), wide);
    assert_eq!(
        (asked.carry.len(), asked.forget.count()),
        (200, 200),
        "what it did not bring it need not keep"
    );
    news(&mut destination, at(2_500));
    destination.handle_report(at(2_600), wide, &report(200, vec![run(300, 399)]));
    assert_eq!(told(&mut destination, at(2_600), wide).carry, [Chunk(300)], "one at a time");
    destination.handle_stored(at(2_700), Arrival::By(wide), Chunk(300));
    assert_eq!(told(&mut destination, at(2_700), wide).carry.len(), 99, "all again");
}

#[test]
fn who_stalls_twice_holds_little_until_it_brings_something() {
    let mut destination = destination();
    let idler = destination.join(at(0), key(1)).unwrap();
    for millis in (0..20_000).step_by(50) {
        let first = millis as u32 / 50;
        destination.handle_report(at(millis), idler, &report(4, vec![run(first, first)]));
        destination.handle_timeout(at(millis));
    }
    news(&mut destination, at(20_000));
    destination.handle_report(at(20_000), idler, &report(4, vec![run(500, 900)]));
    let (_, held, ..) = news(&mut destination, at(20_100));
    assert!(held.count() <= PROBES, "{held:?}");
    assert!(
        told(&mut destination, at(20_100), idler).forget.count() > 390,
        "what does not count is not kept"
    );
}

#[test]
fn a_liar_is_known_again_and_forgiven_in_time() {
    let mut destination = destination();
    let liar = destination.join(at(0), key(1)).unwrap();
    for chunk in 0..4 {
        destination.handle_refused(at(10), Arrival::By(liar), Chunk(chunk));
    }
    destination.leave(at(20), liar);
    let again = destination.join(at(30), key(1)).unwrap();
    assert_eq!(again, liar, "the number is free");
    destination.handle_report(at(40), again, &report(4, vec![run(7, 9)]));
    assert!(told(&mut destination, at(40), again).carry.is_empty(), "what it claims does not count");
    let other = destination.join(at(50), key(2)).unwrap();
    destination.handle_report(at(50), other, &report(4, vec![run(7, 9)]));
    assert_eq!(told(&mut destination, at(50), other).carry.len(), 3);
    destination.leave(at(60), other);
    let later = 8 * 30_000 + 100;
    destination.handle_report(at(later), again, &report(4, vec![run(7, 9)]));
    assert!(!told(&mut destination, at(later), again).carry.is_empty());
}

#[test]
fn the_same_key_is_here_once() {
    let mut destination = destination();
    let older = destination.join(at(0), key(1)).unwrap();
    destination.handle_report(at(0), older, &report(4, vec![run(0, 3)]));
    let newer = destination.join(at(10), key(1)).unwrap();
    assert_ne!(older, newer, "what comes late from the older connection is not taken for the newer one's");
    destination.handle_report(at(10), older, &report(4, vec![run(10, 13)]));
    assert!(told(&mut destination, at(10), older).carry.is_empty());
    assert_eq!(destination.present(), [newer]);
}

#[test]
fn a_refused_chunk_is_forgotten_and_sent_again() {
    let mut destination = destination();
    let one = destination.join(at(0), key(1)).unwrap();
    destination.handle_report(at(0), one, &report(4, vec![run(0, 0)]));
    told(&mut destination, at(0), one);
    news(&mut destination, at(0));
    destination.handle_refused(at(100), Arrival::By(one), Chunk(0));
    assert!(told(&mut destination, at(200), one).forget.contains(Chunk(0)));
    assert!(news(&mut destination, at(200)).2.contains(Chunk(0)), "the source sends it again");
    destination.handle_report(at(1_000), one, &report(4, vec![run(0, 0)]));
    assert_eq!(told(&mut destination, at(1_000), one).carry, [Chunk(0)], "heard anew");
}

#[test]
fn what_several_bring_as_garbage_was_forged_on_the_air() {
    let mut destination = destination();
    let (one, other) = (destination.join(at(0), key(1)).unwrap(), destination.join(at(0), key(2)).unwrap());
    for chunk in 0..8 {
        let now = at(100 * u64::from(chunk));
        destination.handle_refused(now, Arrival::By(one), Chunk(chunk));
        destination.handle_refused(now, Arrival::By(other), Chunk(chunk));
    }
    for (member, first) in [(one, 100), (other, 200)] {
        destination.handle_report(at(900), member, &report(4, vec![run(first, first + 9)]));
        assert_eq!(told(&mut destination, at(900), member).carry.len(), 6);
    }
}

#[test]
fn agreeing_liars_are_found_out_too() {
    let mut destination = destination();
    let (one, other) = (destination.join(at(0), key(1)).unwrap(), destination.join(at(0), key(2)).unwrap());
    for chunk in 0..30 {
        destination.handle_refused(at(100), Arrival::By(one), Chunk(chunk));
        destination.handle_refused(at(100), Arrival::By(other), Chunk(chunk));
    }
    destination.handle_report(at(900), one, &report(4, vec![run(100, 110)]));
    assert!(told(&mut destination, at(900), one).carry.is_empty());
}

#[test]
fn the_next_with_a_number_inherits_no_share() {
    let mut destination = destination();
    let first = destination.join(at(0), key(1)).unwrap();
    for chunk in 0..200 {
        destination.handle_stored(at(1), Arrival::By(first), Chunk(chunk));
    }
    destination.leave(at(2), first);
    let next = destination.join(at(3), key(2)).unwrap();
    assert_eq!(next, first);
    for chunk in 200..300 {
        destination.handle_stored(at(4), Arrival::By(next), Chunk(chunk));
    }
    assert_eq!(destination.record(next).unwrap().share, 100);
    destination.handle_report(at(5), next, &report(4, vec![]));
    let (.., all) = news(&mut destination, at(5));
    assert!(all[0].shortage > 0 && all[0].members[0].room > 0, "half of the last chunks are its own");
}

#[test]
fn a_source_that_comes_back_is_told_everything_before_it_is_told_through() {
    let mut destination = destination();
    let one = destination.join(at(0), key(1)).unwrap();
    for first in [1_000, 1_700] {
        let heard = (first..first + 700).step_by(2).map(|chunk| run(chunk, chunk)).collect();
        destination.handle_report(at(0), one, &report(4, heard));
    }
    for chunk in (0..900).step_by(3) {
        destination.handle_stored(at(1), Arrival::Own, Chunk(chunk));
    }
    news(&mut destination, at(50));
    destination.handle_source_reconnected(at(100));
    let (stored, held, lost, all) = news(&mut destination, at(100));
    assert_eq!((stored.count(), held.count(), lost.count()), (300, 700, 0));
    assert_eq!(all.len(), 2, "700 runs are more than a message takes");
    assert_eq!((all[0].through, all[1].through), (AirNumber(0), AirNumber(9)));
}

#[test]
fn a_flood_of_claims_is_not_looked_at() {
    let mut destination =
        Destination::new(at(0), Settings::default(), TRANSFER, u32::MAX, RangeSet::default());
    let one = destination.join(at(0), key(1)).unwrap();
    for number in 0..1_000 {
        let first = number * 60;
        destination.handle_report(at(1), one, &report(4, vec![run(first, first + 59)]));
    }
    let (_, held, ..) = news(&mut destination, at(1));
    assert!(held.count() <= 16_384, "{}", held.count());
}

#[test]
fn candidates_do_not_pile_up() {
    let mut destination = destination();
    let one = destination.join(at(0), key(0)).unwrap();
    destination.handle_report(at(0), one, &report(1, vec![run(0, 999)]));
    // Others come, are granted what the first one has too, and go.
    for number in 1..100_u8 {
        let now = at(u64::from(number) * 100);
        let other = destination.join(now, key(number)).unwrap();
        destination.handle_report(now, other, &report(1_000, vec![run(0, 999)]));
        assert!(told(&mut destination, now, other).carry.len() > 990);
        destination.leave(now, other);
        destination.handle_stored(now, Arrival::By(one), Chunk(1_000 + u32::from(number)));
        destination.handle_timeout(now);
    }
    let candidates = destination.record(one).unwrap().candidates.len();
    assert!(candidates <= 3 * 1_024, "{candidates}");
}

/// A neighbour that the source reaches and that has `heard` chunks, and one that it does not reach.
fn near_and_far(heard: u32) -> (Destination, Member, Member) {
    let mut destination = destination();
    let (near, far) = (destination.join(at(0), key(1)).unwrap(), destination.join(at(0), key(2)).unwrap());
    destination.set_repeats(near, true);
    destination.handle_report(at(0), far, &Report { through: AirNumber(0), ..report(4, vec![]) });
    for (millis, through) in [(0, 9), (900, 500)] {
        let all = if millis == 0 { vec![run(0, heard - 1)] } else { vec![] };
        destination.handle_report(
            at(millis),
            near,
            &Report { through: AirNumber(through), ..report(4, all) },
        );
        // It carries what it is told to, so that it is not given up.
        for chunk in told(&mut destination, at(millis), near).carry {
            destination.handle_stored(at(millis + 1), Arrival::By(near), chunk);
        }
    }
    (destination, near, far)
}

/// As [`near_and_far`], and what the near one is asked to repeat meanwhile.
fn asked(heard: u32) -> (Destination, Member, Member, RangeSet) {
    let (mut destination, near, far) = near_and_far(heard);
    let through = AirNumber(2_000);
    destination.handle_report(at(2_100), near, &Report { through, ..report(4, vec![]) });
    let repeat = told(&mut destination, at(2_100), near).repeat;
    (destination, near, far, repeat)
}

#[test]
fn what_one_neighbour_has_to_spare_is_repeated_for_one_out_of_reach() {
    let (mut destination, _, far, repeat) = asked(90);
    // The last ones first; half of what is repeated is hoped to be heard.
    assert!(repeat.count() > 0 && repeat.count() <= 36, "{repeat:?}");
    assert!(repeat.contains(Chunk(89)) && !repeat.contains(Chunk(30)), "{repeat:?}");
    let heard = report(4, vec![run(88, 89)]);
    destination.handle_report(at(2_150), far, &Report { through: AirNumber(0), ..heard });
    assert_eq!(told(&mut destination, at(2_150), far).carry, [88, 89].map(Chunk));
}

#[test]
fn nothing_is_repeated_while_the_sources_own_frames_are_lacking() {
    assert!(asked(8).3.is_empty(), "the near one has no more than its own uplink needs");
    let (mut destination, near, _) = near_and_far(90);
    let dry = destination.join(at(2_000), key(3)).unwrap();
    for (whom, through) in [(dry, 1_900), (near, 2_000)] {
        let through = AirNumber(through);
        told(&mut destination, at(2_000), near);
        destination.handle_report(at(2_100), whom, &Report { through, ..report(4, vec![]) });
    }
    assert!(told(&mut destination, at(2_100), near).repeat.is_empty());
}

#[test]
fn repeats_that_serve_nobody_end() {
    let (mut destination, near, _) = near_and_far(90);
    let mut asked = 0;
    for step in 0..50_u32 {
        let (now, through) = (at(2_100 + u64::from(step) * 100), AirNumber(2_000 + step));
        destination.handle_report(now, near, &Report { through, ..report(4, vec![]) });
        destination.handle_timeout(now);
        let told = told(&mut destination, now, near);
        asked += told.repeat.count();
        for chunk in told.carry {
            destination.handle_stored(now, Arrival::By(near), chunk);
        }
    }
    assert!((1..=40).contains(&asked), "{asked}");
}

#[test]
fn who_hears_only_repeats_does_not_hold_the_source_up() {
    let (mut destination, near, far, _) = asked(90);
    destination.handle_report(
        at(2_200),
        far,
        &Report { through: AirNumber(0), ..report(4, vec![run(88, 89)]) },
    );
    destination.handle_report(at(2_200), near, &Report { through: AirNumber(2_100), ..report(4, vec![]) });
    let told = news(&mut destination, at(2_300)).3.pop().unwrap();
    assert_eq!(told.through, AirNumber(2_100));
    assert!(told.members.iter().all(|state| state.member == near || state.room == 0));
}

#[test]
fn who_is_away_as_it_said_has_room_meanwhile_and_is_not_waited_for() {
    let mut destination = destination();
    let (one, other) = (destination.join(at(0), key(1)).unwrap(), destination.join(at(0), key(2)).unwrap());
    let heard = Report { through: AirNumber(50), away: 500, ..report(4, vec![run(0, 3)]) };
    destination.handle_report(at(0), one, &heard);
    destination.handle_report(at(0), other, &Report { through: AirNumber(50), ..report(4, vec![]) });
    let room = |destination: &mut Destination, millis: u64| {
        let feedback = destination.poll_feedback(at(millis)).unwrap();
        [one, other].map(|whom| feedback.members.iter().find(|state| state.member == whom).unwrap().room > 0)
    };
    assert_eq!(room(&mut destination, 300), [true, true]);
    assert_eq!(room(&mut destination, 800), [true, false], "silent for longer than it reports");
    assert_eq!(room(&mut destination, 1_200), [false, false], "away for longer than it said");
    // A lie is bounded: half a minute is not believed.
    destination.handle_report(at(1_300), one, &Report { through: AirNumber(60), away: u16::MAX, ..heard });
    assert_eq!(room(&mut destination, 4_000), [false, false]);
}
