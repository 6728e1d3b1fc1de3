//! Files on their way through neighbours that die, come back, lie and send garbage: what arrives is what was sent.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use sim::SeededRandom;
use sim::neighbourhood::{
    Absence, Conduct, Fault, NeighbourhoodSpec, Outcome, Transfer, carried_bytes, parse,
};
use units::Timestamp;
use upload::{Assignment, Settings, Strategy as Way};
use wire::upload::Chunk;

fn identical(transfer: &Transfer, outcome: &Outcome) -> bool {
    outcome.contents.len() == transfer.chunks as usize
        && outcome.contents.iter().zip(0..).all(|(content, chunk)| *content == transfer.content(Chunk(chunk)))
}

fn homes(text: &str) -> NeighbourhoodSpec {
    parse(text).unwrap().remove(0)
}

fn three() -> NeighbourhoodSpec {
    homes("400/50 | 800/25 0.9 0.9 0.8 0.6 | 1200/50 0.7 0.6 0.5 0.2 | 400/75 1 0.95 0.9 0.8")
}

fn seconds(outcome: &Outcome) -> f64 {
    outcome.took.unwrap().as_secs_f64()
}

fn random_transfer(seed: u64, way: Way) -> Transfer {
    let mut random = SeededRandom::derive(seed, "world");
    let uplink = |random: &mut SeededRandom| {
        format!("{}/{}", random.between(200.0, 2_000.0) as u32, random.between(1.0, 150.0) as u32)
    };
    let mut line = uplink(&mut random);
    let count = (random.next_u64() % 6) as usize;
    for _ in 0..count {
        let best = random.unit();
        line += &format!(
            " | {} {:.2} {:.2} {:.2} {:.2}",
            uplink(&mut random),
            best,
            best * 0.9,
            best * 0.8,
            best * 0.5
        );
    }
    let mut spec = homes(&line);
    spec.common_loss = if random.chance(0.5) { 0.0 } else { random.between(0.0, 0.6) };
    let conducts = [Conduct::Honest, Conduct::Honest, Conduct::Boaster, Conduct::Garbler, Conduct::Idler];
    let conduct = (0..count).map(|_| conducts[(random.next_u64() % 5) as usize]).collect();
    let mut faults = Vec::new();
    for home in 0..count {
        let mut at = Timestamp::ZERO;
        for _ in 0..random.next_u64() % 4 {
            at += Duration::from_secs_f64(random.between(0.0, 3.0));
            faults.push((at, home, if random.chance(0.5) { Fault::Killed } else { Fault::Silenced }));
            at += Duration::from_secs_f64(random.between(0.0, 2.0));
            faults.push((at, home, Fault::Started));
        }
    }
    let default = Settings::default();
    let settings = match random.next_u64() % 4 {
        0 => Settings::PAPER,
        1 => Settings { ahead: 40, ..default },
        2 => Settings { assignment: Assignment::FirstCome, second_copies: false, ..default },
        _ => default,
    };
    let settings = Settings { strategy: way, ..settings };
    let mut breaks = Vec::new();
    let mut at = Timestamp::ZERO;
    for _ in 0..random.next_u64() % 3 {
        at += Duration::from_secs_f64(random.between(0.1, 3.0));
        let length = Duration::from_secs_f64(random.between(0.01, 2.0));
        breaks.push((at, length));
        at += length;
    }
    Transfer { conduct, faults, breaks, ..Transfer::new(spec, settings, 400, seed) }
}

/// Neighbours may help or not: the source's own uplink brings the file in this time, whatever they do.
fn longest(transfer: &Transfer) -> f64 {
    let rate = transfer.neighbourhood.own.rate.0 as f64 / 8.0 / carried_bytes().0 as f64;
    let broken: Duration = transfer.breaks.iter().map(|(_, length)| *length).sum();
    f64::from(transfer.chunks) / rate * 1.5 + broken.as_secs_f64() + 20.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_the_neighbours_do_the_file_is_the_same(seed in any::<u64>()) {
        for way in [Way::Scheduled, Way::Unicast, Way::Random] {
            let transfer = random_transfer(seed, way);
            let outcome = transfer.run();
            prop_assert!(identical(&transfer, &outcome), "{way:?}");
            prop_assert_eq!(outcome.own_chunks + outcome.credited, transfer.chunks, "one is credited with each");
            // The baselines do not know what a liar keeps from them until they lose patience.
            let bounded = way != Way::Scheduled || seconds(&outcome) < longest(&transfer);
            prop_assert!(bounded, "{:?}, not {}", outcome.took, longest(&transfer));
            prop_assert_eq!(outcome.hasty, 0, "a loop without a pause");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let transfer = random_transfer(7, Way::Scheduled);
    assert_eq!(transfer.run(), transfer.run());
}

#[test]
fn nothing_is_there_where_nobody_carries() {
    let spec = homes("400/50 | 800/25 0.9 0.9 0.8 0.6");
    let transfer = Transfer {
        own_uplink: false,
        conduct: vec![Conduct::Garbler],
        ..Transfer::new(spec, Settings::default(), 100, 1)
    };
    let outcome = transfer.run();
    assert_eq!((outcome.took, outcome.contents.len()), (None, 0));
}

#[test]
fn liars_cost_time_and_little_of_it() {
    let honest = Transfer::new(three(), Settings::default(), 6_000, 1);
    let without = {
        let mut spec = three();
        spec.neighbours.pop();
        Transfer::new(spec, Settings::default(), 6_000, 1)
    };
    let worst = seconds(&without.run());
    assert!(seconds(&honest.run()) < worst);
    for conduct in [Conduct::Boaster, Conduct::Garbler, Conduct::Idler] {
        let conduct = vec![Conduct::Honest, Conduct::Honest, conduct];
        let transfer = Transfer { conduct, ..honest.clone() };
        let outcome = transfer.run();
        assert!(identical(&transfer, &outcome));
        let took = seconds(&outcome);
        assert!(took < worst * 1.1, "{:?} took {took} s, without it {worst} s", transfer.conduct[2]);
    }
}

#[test]
fn the_end_has_no_slow_tail() {
    // One neighbour is twenty times as slow as the other: at the end the fast one takes over what the slow one was given.
    let spec = homes("400/25 | 2000/25 1 1 1 1 | 100/150 1 1 1 1");
    let with = Transfer::new(spec.clone(), Settings::default(), 2_000, 3).run();
    let plain = Settings { second_copies: false, ..Settings::default() };
    let without = Transfer::new(spec, plain, 2_000, 3).run();
    assert!(seconds(&with) < seconds(&without), "{} {}", seconds(&with), seconds(&without));
    let copies: u32 = with.neighbours.iter().map(|report| report.late).sum();
    assert!(copies < 40, "{copies} second copies");
}

#[test]
fn a_file_of_a_gibibyte_with_32_neighbours_stays_small() {
    // 1 GiB takes 767,000 chunks; memory does not go with them, so 1 in 16 of them over uplinks as fast as the air serves as well.
    let each = " | 1200/75 0.9 0.8 0.5 0.3".repeat(32);
    let spec = homes(&format!("1200/75{each}"));
    let outcome = Transfer::new(spec, Settings::default(), 48_000, 1).run();
    let most = outcome.memory.iter().max().copied().unwrap();
    assert!(outcome.took.is_some());
    assert!(most < 8 << 20, "{:?}", outcome.memory);
    // 1,416 bytes are kept of each chunk.
    assert!(outcome.most_buffered * 1_416 < 32 << 20, "{}", outcome.most_buffered);
}

#[test]
fn after_the_source_was_cut_off_little_is_sent_again() {
    let whole = Transfer::new(three(), Settings::default(), 4_000, 5);
    let cut = Transfer {
        breaks: vec![(Timestamp::from_millis(5_000), Duration::from_millis(300))],
        ..whole.clone()
    };
    let (whole, broken) = (whole.run(), cut.run());
    assert!(identical(&cut, &broken));
    assert!(seconds(&broken) < seconds(&whole) + 0.6, "{} {}", seconds(&whole), seconds(&broken));
    // A tenth of a second of the air, beside what is sent while nothing is known.
    let more = broken.frames.saturating_sub(whole.frames);
    assert!(more < 150, "{more} frames more, {} in all", broken.frames);
}

/// One neighbour in reach of the source, one that hears only the first.
const TWO_HOPS: &str = "400/25 | 800/25 0.95 0.9 0.85 0.7 | 1200/50 0 0 0 0\n+ 0 1 0.9 0.85 0.8 0.6";

#[test]
fn a_neighbour_out_of_reach_carries_what_another_repeats() {
    let without = Transfer::new(homes(TWO_HOPS), Settings::default(), 6_000, 1);
    let with = Transfer { repeats: true, ..without.clone() };
    let (without, outcome) = (without.run(), with.run());
    assert!(identical(&with, &outcome));
    assert_eq!((without.repeats, without.neighbours[1].brought), (0, 0));
    // The far uplink is worth as much as the two others together.
    let gain = seconds(&without) / seconds(&outcome);
    assert!(gain > 1.8, "{gain}, {:?}, {} repeats", outcome.neighbours, outcome.repeats);
    assert!(outcome.repeats < 2 * u64::from(outcome.neighbours[1].brought), "{} repeats", outcome.repeats);
}

#[test]
fn nothing_is_repeated_where_all_hear_the_source_or_nobody_hears_the_repeater() {
    let all = Transfer { repeats: true, ..Transfer::new(three(), Settings::default(), 6_000, 1) };
    assert_eq!(all.run().repeats, 0);
    let deaf = TWO_HOPS.lines().next().unwrap();
    let deaf = Transfer { repeats: true, ..Transfer::new(homes(deaf), Settings::default(), 12_000, 1) };
    let outcome = deaf.run();
    assert!(outcome.repeats < 64, "{} repeats, {:?}", outcome.repeats, outcome.took);
}

#[test]
fn the_air_of_the_source_comes_first() {
    // The near neighbour hears so little that its own uplink is never full: nothing is repeated to the far one.
    let spec = homes("400/25 | 2000/25 0 0 0.1 0 | 1200/50 0 0 0 0\n+ 0 1 1 1 1 1");
    let fixed =
        Settings { rate: upload::RateChoice::Fixed(wire::upload::RateIndex(2)), ..Settings::default() };
    let outcome = Transfer { repeats: true, ..Transfer::new(spec, fixed, 3_000, 1) }.run();
    assert!(outcome.repeats < 32, "{} repeats of {} frames", outcome.repeats, outcome.frames);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn with_repeats_whatever_the_neighbours_do_the_file_is_the_same(seed in any::<u64>()) {
        let mut transfer = Transfer { repeats: true, ..random_transfer(seed, Way::Scheduled) };
        let mut random = SeededRandom::derive(seed, "ears");
        let count = transfer.neighbourhood.neighbours.len();
        for one in 0..count {
            if random.chance(0.4) {
                transfer.neighbourhood.neighbours[one].reception = [0.0; 4];
            }
            for other in 0..one {
                let chance = random.unit();
                transfer.neighbourhood.between.push((other, one, [chance; 4]));
            }
        }
        let outcome = transfer.run();
        prop_assert!(identical(&transfer, &outcome));
        prop_assert_eq!(outcome.own_chunks + outcome.credited, transfer.chunks, "one is credited with each");
        prop_assert!(seconds(&outcome) < longest(&transfer), "{:?}, not {}", outcome.took, longest(&transfer));
        prop_assert_eq!(outcome.hasty, 0, "a loop without a pause");
    }
}

/// Seconds that a transfer takes whose first neighbour is away for a part of each cycle, over five seeds.
fn with_absences(line: &str, cycle: u64, away: f64, tells: bool) -> f64 {
    let cycle = Duration::from_millis(cycle);
    let absence = Absence { home: 0, cycle, away: cycle.mul_f64(away), tells };
    let of_seed = |seed| {
        let transfer = Transfer {
            absences: vec![absence],
            ..Transfer::new(homes(line), Settings::default(), 2_000, seed)
        };
        let outcome = transfer.run();
        assert!(identical(&transfer, &outcome));
        seconds(&outcome)
    };
    (0..5).map(of_seed).sum::<f64>() / 5.0
}

#[test]
fn who_tells_that_it_is_away_at_times_is_reckoned_with_meanwhile() {
    let (fast, with_others) = (
        "400/50 | 5000/25 1 0.98 0.95 0.9",
        "400/50 | 800/25 0.9 0.9 0.8 0.6 | 1200/50 0.7 0.6 0.5 0.2 | 400/75 1 0.95 0.9 0.8",
    );
    for (line, cycle, away, gain) in [
        (fast, 200, 0.5, 0.95),
        (fast, 400, 0.5, 1.2),
        (fast, 1_000, 0.5, 1.5),
        (fast, 1_000, 0.9, 2.0),
        (with_others, 1_000, 0.9, 1.03),
    ] {
        let [untold, told] = [false, true].map(|tells| with_absences(line, cycle, away, tells));
        println!("{cycle} ms, away {away}: {untold:.2} s untold, {told:.2} s told");
        assert!(untold / told >= gain, "{cycle} ms, away {away}: {untold:.2} s untold, {told:.2} s told");
    }
}
