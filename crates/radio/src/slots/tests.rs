use super::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const ONE: NetworkId = NetworkId(1);
const TWO: NetworkId = NetworkId(2);
const CHANNEL_A: Frequency = Frequency(2_412);
const CHANNEL_B: Frequency = Frequency(2_462);
const A: Member = Member::Channel(CHANNEL_A);
const B: Member = Member::Channel(CHANNEL_B);

/// Members with a weight: each channel with one network, of which the first is [`ONE`].
fn slots(settings: SlotSettings, weights: &[(Member, u16)]) -> Slots {
    let mut slots = Slots::new(settings);
    for (number, (member, weight)) in (1..).zip(weights) {
        match member {
            Member::Channel(channel) => add(&mut slots, NetworkId(number), *weight, *channel),
            Member::Scan => slots.set_listening(Some(*weight)),
        }
    }
    slots
}

fn add(slots: &mut Slots, network: NetworkId, weight: u16, channel: Frequency) {
    slots.set_weight(network, weight);
    slots.set_channel(network, Some(channel));
}

/// Turns as they come, while each member delivers a fixed rate in bytes a second.
fn run(slots: &mut Slots, turns: usize, delivers: impl Fn(Member) -> f64) -> Vec<(Member, u64)> {
    let mut randomness = ChaCha8Rng::seed_from_u64(5);
    (0..turns)
        .map(|_| {
            let slot = slots.advance(&mut randomness).unwrap();
            let bytes = delivers(slot.member) * slot.length.as_secs_f64();
            if let Member::Channel(channel) = slot.member {
                slots.delivered(channel, bytes as u64, slot.length, Fill::Air);
            }
            (slot.member, slot.length.as_millis() as u64)
        })
        .collect()
}

#[test]
fn weights_are_multiples_as_in_juggler() {
    let settings = SlotSettings {
        cycle: Cycle::Multiples(Duration::from_millis(100)),
        alpha: 0.0,
        ..SlotSettings::punctual()
    };
    let mut slots = slots(settings, &[(A, 9), (B, 1)]);
    assert_eq!(run(&mut slots, 4, |_| 0.0), [(B, 100), (A, 900), (B, 100), (A, 900)]);
}

#[test]
fn a_bounded_cycle_is_shared_and_leaves_nobody_out() {
    let mut slots = slots(SlotSettings::punctual(), &[(A, 90), (B, 1), (Member::Scan, 9)]);
    let turns = run(&mut slots, 3, |_| 1.0);
    assert_eq!(turns.iter().map(|(_, length)| length).sum::<u64>(), 199, "{turns:?}");
    assert_eq!(turns[0], (B, 10));
    assert_eq!(turns[1], (Member::Scan, 17));
}

#[test]
fn equation_6_gives_the_better_network_more() {
    let mut equal = slots(SlotSettings { alpha: 0.0, ..SlotSettings::punctual() }, &[(A, 1), (B, 1)]);
    let mut adapting = slots(SlotSettings::punctual(), &[(A, 1), (B, 1)]);
    let delivers = |member| if member == A { 2e6 } else { 1e6 };
    assert_eq!(run(&mut equal, 200, delivers)[198..], [(B, 100), (A, 100)]);
    // By hand: 200 ms * 2^2 / (2^2 + 1^2) = 160 ms, which is neared from below.
    let turns = run(&mut adapting, 200, delivers);
    assert_eq!(turns[198..], [(B, 40), (A, 159)]);
    // And after a period 2^(2 / 3) for 1: 122.7 ms.
    assert_eq!(turns[10..12], [(B, 77), (A, 122)]);
}

/// Lengths of the first channel's turns, in ms, where both have uplinks of so many bytes a second and the air carries 3 MB/s.
fn with_uplinks(slots: &mut Slots, periods: u32, uplinks: [f64; 2]) -> Vec<u64> {
    let mut lengths = Vec::new();
    for _ in 0..periods {
        let turns = [A, B].map(|member| slots.length(member).unwrap());
        let cycle: Duration = turns.iter().sum();
        let uplink = |member| uplinks[usize::from(member == B)];
        // What came meanwhile is kept for the turn, and no more than the air carries comes in it.
        let delivers = |member: Member| {
            let length = turns[usize::from(member == B)];
            (uplink(member) * cycle.div_duration_f64(length)).min(3e6)
        };
        lengths.push(turns[0].as_millis() as u64);
        run(slots, 10, delivers);
    }
    lengths
}

#[test]
fn turns_of_channels_that_their_uplinks_limit_settle_where_both_are_emptied() {
    let mut slots = slots(SlotSettings::punctual(), &[(A, 1), (B, 1)]);
    // Both have 1 MB/s, and at first one has nearly all the time.
    run(&mut slots, 100, |member| if member == A { 3e6 } else { 4e5 });
    let lengths = with_uplinks(&mut slots, 12, [1e6, 1e6]);
    assert!(lengths[0] > 180 && lengths[6..].iter().all(|length| (95..=105).contains(length)), "{lengths:?}");
    // By hand: with times as s to 1 - s it has (0.5 / s) / (1 / (1 - s)) of the other's, so (s / (1 - s))^3 = 0.25: s = 0.386, and a sixth would do.
    let lengths = with_uplinks(&mut slots, 20, [5e5, 1e6]);
    assert!(lengths[14..].iter().all(|length| (76..=79).contains(length)), "{lengths:?}");
}

#[test]
fn who_has_little_to_carry_is_not_taken_for_poor() {
    let mut slots = slots(SlotSettings::punctual(), &[(A, 1), (B, 1)]);
    let mut randomness = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..100 {
        let slot = slots.advance(&mut randomness).unwrap();
        let (channel, bytes) = if slot.member == A { (CHANNEL_A, 5_000) } else { (CHANNEL_B, 100) };
        slots.delivered(channel, bytes, slot.length, Fill::Slack);
    }
    assert!(!slots.is_given_up(CHANNEL_B) && !slots.is_full(CHANNEL_A));
    assert_eq!(slots.length(B), Some(Duration::from_millis(100)));
}

#[test]
fn a_poor_network_is_visited_seldom_and_comes_back() {
    let mut slots = slots(SlotSettings::punctual(), &[(A, 1), (B, 1)]);
    let poor = run(&mut slots, 100, |member| if member == A { 2e6 } else { 1e4 });
    assert!(slots.is_given_up(CHANNEL_B));
    let visits = poor[60..].iter().filter(|(member, _)| *member == B).count();
    assert!((5..=10).contains(&visits), "{visits} of 40");
    run(&mut slots, 60, |_| 2e6);
    assert!(!slots.is_given_up(CHANNEL_B));
    assert_eq!(slots.length(B), Some(Duration::from_millis(100)));
}

#[test]
fn nobody_is_away_longer_than_its_frames_can_wait() {
    let mut slots = slots(SlotSettings::punctual(), &[(A, 1), (B, 1)]);
    slots.set_absences(ONE, Some(Duration::from_millis(35)), None);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 35), (A, 100)]);
}

#[test]
fn gentleness_shortens_the_cycle_and_leaves_the_weights() {
    let mut slots = slots(SlotSettings { alpha: 0.0, ..SlotSettings::punctual() }, &[(A, 4), (B, 1)]);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 40), (A, 160)]);
    slots.set_absences(ONE, Some(Duration::from_millis(90)), Some(Duration::from_millis(30)));
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 30), (A, 160)], "there is nothing to carry for B");
    slots.set_absences(TWO, None, Some(Duration::from_millis(900)));
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 30), (A, 120)]);
    slots.set_absences(ONE, Some(Duration::from_millis(90)), Some(Duration::from_millis(3)));
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 10), (A, 40)]);
}

#[test]
fn who_needs_whole_slots_gets_its_share_all_the_same() {
    let settings = SlotSettings {
        cycle: Cycle::Multiples(Duration::from_millis(60)),
        alpha: 0.0,
        ..SlotSettings::punctual()
    };
    let mut listening = slots(settings, &[(A, 1), (B, 1), (Member::Scan, 1)]);
    listening.set_absences(ONE, Some(Duration::from_millis(100)), Some(Duration::from_millis(40)));
    assert_eq!(run(&mut listening, 3, |_| 1.0), [(B, 50), (Member::Scan, 50), (A, 60)]);
    let mut grouped = slots(settings, &[(A, 1), (B, 1)]);
    grouped.set_absences(ONE, None, Some(Duration::from_millis(20)));
    assert_eq!(run(&mut grouped, 2, |_| 1.0), [(B, 20), (A, 60)]);
    grouped.keep_whole(TWO);
    assert_eq!(run(&mut grouped, 2, |_| 1.0), [(B, 60), (A, 60)]);
}

#[test]
fn who_settles_visits_the_others_shortly_and_moves_to_what_is_better() {
    let settings = SlotSettings { settle: true, ..SlotSettings::punctual() };
    let mut settled = slots(settings, &[(A, 1), (B, 1)]);
    let turns = run(&mut settled, 200, |member| if member == A { 2e6 } else { 1e6 });
    // By hand: four cycles of A, and a visit.
    assert_eq!(turns[195..].iter().filter(|turn| **turn == (A, 200)).count(), 4, "{:?}", &turns[190..]);
    assert!(turns[195..].contains(&(B, 10)));
    run(&mut settled, 200, |member| if member == B { 2e6 } else { 1e6 });
    assert_eq!((settled.length(B), settled.is_given_up(CHANNEL_A)), (Some(Duration::from_millis(200)), true));
    settled.remove(TWO);
    assert!(!settled.is_given_up(CHANNEL_A));
    let mut weighted = slots(settings, &[(A, 2), (B, 1)]);
    run(&mut weighted, 200, |_| 2e6);
    assert!(
        !weighted.is_given_up(CHANNEL_A) && !weighted.is_given_up(CHANNEL_B),
        "weights are a wish for turns"
    );
}

#[test]
fn who_settled_and_finds_nothing_twice_takes_turns_at_once() {
    let mut slots = slots(SlotSettings { settle: true, ..SlotSettings::punctual() }, &[(A, 1), (B, 1)]);
    run(&mut slots, 100, |member| if member == A { 2e6 } else { 1e6 });
    assert!(slots.is_given_up(CHANNEL_B));
    slots.delivered(CHANNEL_B, 0, Duration::from_millis(10), Fill::Slack);
    slots.delivered(CHANNEL_A, 1_000, Duration::from_millis(200), Fill::Slack);
    slots.delivered(CHANNEL_A, 0, Duration::from_millis(10), Fill::Slack);
    slots.delivered(CHANNEL_A, 1_000, Duration::from_millis(200), Fill::Slack);
    slots.delivered(CHANNEL_A, 0, Duration::from_millis(10), Fill::Slack);
    assert!(slots.is_given_up(CHANNEL_B), "a pause");
    slots.delivered(CHANNEL_A, 0, Duration::from_millis(10), Fill::Slack);
    assert!(!slots.is_given_up(CHANNEL_B));
    let turns = run(&mut slots, 20, |_| 1e6);
    assert!(turns.chunks(2).all(|pair| pair[0].0 != pair[1].0), "{turns:?}");
}

#[test]
fn who_finds_room_in_the_air_while_it_stays_takes_turns() {
    let mut slots = slots(SlotSettings { settle: true, ..SlotSettings::punctual() }, &[(A, 1), (B, 1)]);
    // One that brings so little would not be given up by itself, nor taken back.
    let rates = |member| if member == A { 2e6 } else { 4e5 };
    run(&mut slots, 100, rates);
    assert!(slots.is_given_up(CHANNEL_B));
    let mut randomness = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..20 {
        let slot = slots.advance(&mut randomness).unwrap();
        if let Member::Channel(channel) = slot.member {
            let bytes = rates(slot.member) * slot.length.as_secs_f64();
            slots.delivered(channel, bytes as u64, slot.length, Fill::Steady);
        }
    }
    assert!(!slots.is_given_up(CHANNEL_B));
}

#[test]
fn chance_spreads_slots() {
    let settings = SlotSettings { spread: 0.2, ..SlotSettings::punctual() };
    let turns = run(&mut slots(settings, &[(A, 3), (B, 1)]), 400, |_| 1.0);
    let lengths =
        |of: Member| turns.iter().filter(move |(member, _)| *member == of).map(|(_, length)| *length);
    assert!(lengths(A).all(|length| (120..=180).contains(&length)));
    assert!(lengths(A).any(|length| length > 170) && lengths(A).any(|length| length < 130));
    let sum = |of| lengths(of).sum::<u64>() as f64;
    assert!((2.9..3.1).contains(&(sum(A) / sum(B))), "the weights hold");
}

#[test]
fn chance_takes_no_slot_out_of_its_bounds() {
    let settings = SlotSettings { spread: 0.5, ..SlotSettings::punctual() };
    let mut slots = slots(settings, &[(A, 90), (B, 1)]);
    slots.set_absences(NetworkId(2), Some(Duration::from_millis(60)), None);
    let turns = run(&mut slots, 100, |_| 1.0);
    assert!(
        turns.iter().all(|(member, length)| if *member == A { *length <= 60 } else { *length >= 10 }),
        "{turns:?}"
    );
}

#[test]
fn chance_leaves_listening_alone_and_groups_that_need_their_slots_whole() {
    let settings = SlotSettings { spread: 0.5, ..Default::default() };
    let mut listening = slots(settings, &[(A, 1), (B, 1), (Member::Scan, 1)]);
    let turns = run(&mut listening, 60, |_| 1.0);
    let lengths =
        |of: Member| turns.iter().filter(move |(member, _)| *member == of).map(|(_, length)| *length);
    assert!(lengths(Member::Scan).all(|length| length == 66));
    assert!(lengths(A).any(|length| length > 80) && lengths(A).any(|length| length < 50));
    let mut grouped = slots(settings, &[(A, 1), (B, 1)]);
    grouped.keep_whole(TWO);
    assert!(run(&mut grouped, 60, |_| 1.0).iter().all(|(_, length)| *length == 100));
}

#[test]
fn one_can_be_next_out_of_turn() {
    let mut slots = slots(SlotSettings::punctual(), &[(A, 1), (B, 1), (Member::Scan, 1)]);
    let mut randomness = ChaCha8Rng::seed_from_u64(5);
    for member in [B, A, Member::Scan, A] {
        assert!(slots.set_next(member));
        assert_eq!(slots.next_member(), Some(member));
        assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(member));
    }
    assert!(!slots.set_next(Member::Channel(Frequency(5_180))));
}

#[test]
fn members_come_and_go() {
    let mut randomness = ChaCha8Rng::seed_from_u64(1);
    let mut slots = slots(SlotSettings::punctual(), &[(A, 1)]);
    assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(A));
    add(&mut slots, TWO, 1, CHANNEL_B);
    slots.remove(ONE);
    assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(B));
    slots.remove(TWO);
    assert_eq!(slots.advance(&mut randomness), None);
    slots.set_listening(Some(1));
    assert_eq!(slots.advance(&mut randomness).map(|slot| slot.member), Some(Member::Scan));
}

/// Two networks on one channel, and a third on another.
fn two_and_one(settings: SlotSettings, weights: [u16; 3]) -> Slots {
    let mut slots = Slots::new(settings);
    let channels = [CHANNEL_A, CHANNEL_B, CHANNEL_A];
    for ((number, weight), channel) in (1..).zip(weights).zip(channels) {
        add(&mut slots, NetworkId(number), weight, channel);
    }
    slots
}

#[test]
fn a_cycle_visits_each_channel_once_with_the_weight_of_its_networks() {
    let even = SlotSettings { alpha: 0.0, ..SlotSettings::punctual() };
    // By hand: 200 ms * 3 / 4.
    assert_eq!(run(&mut two_and_one(even, [1, 1, 2]), 4, |_| 1.0), [(B, 50), (A, 150), (B, 50), (A, 150)]);
    let multiples = SlotSettings { cycle: Cycle::Multiples(Duration::from_millis(100)), ..even };
    assert_eq!(run(&mut two_and_one(multiples, [1, 1, 2]), 2, |_| 1.0), [(B, 100), (A, 300)]);
}

#[test]
fn eq_6_sees_what_the_networks_of_a_channel_deliver_together() {
    // A channel of weight 2 that carries 2 MB/s by both of its networks together, and one of weight 1 that carries 3.
    let mut slots = two_and_one(SlotSettings::punctual(), [1, 1, 1]);
    let turns = run(&mut slots, 200, |member| if member == A { 2e6 } else { 3e6 });
    // By hand: 2 * (2 / 3)^2 = 0.889, so 200 ms * 0.889 / 1.889 = 94.1 ms.
    assert_eq!(turns[198..], [(B, 105), (A, 94)]);
    assert!((slots.presence(CHANNEL_A) - 0.4706).abs() < 1e-3, "{}", slots.presence(CHANNEL_A));
}

#[test]
fn a_poor_network_is_not_given_up_where_a_good_one_is_visited_anyway() {
    // One brings 10 kB/s, the other one of its channel 2 MB/s; so does the other channel.
    let mut slots = two_and_one(SlotSettings::punctual(), [1, 1, 1]);
    run(&mut slots, 100, |member| if member == A { 2.01e6 } else { 2e6 });
    assert!(!slots.is_given_up(CHANNEL_A));
    // Both are poor.
    run(&mut slots, 100, |member| if member == A { 2e4 } else { 2e6 });
    assert!(slots.is_given_up(CHANNEL_A));
    // It is visited in one of four cycles, of 200 ms otherwise.
    let presence = slots.presence(CHANNEL_A);
    assert!(presence < 0.04, "{presence}");
    // With one more its worth is not known.
    add(&mut slots, NetworkId(4), 1, CHANNEL_A);
    assert!(!slots.is_given_up(CHANNEL_A));
}

#[test]
fn who_stands_by_asks_for_no_time() {
    let even = SlotSettings { alpha: 0.0, ..SlotSettings::punctual() };
    let mut slots = two_and_one(even, [1, 1, 3]);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 40), (A, 160)]);
    slots.set_standby(NetworkId(3), true);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 100), (A, 100)]);
    // Nobody there carries data: the radio looks after them all the same.
    slots.set_standby(ONE, true);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 40), (A, 160)]);
}

#[test]
fn the_strictest_absence_of_a_channel_counts() {
    let even = SlotSettings { alpha: 0.0, ..SlotSettings::punctual() };
    let mut slots = two_and_one(even, [1, 2, 1]);
    slots.set_absences(ONE, Some(Duration::from_millis(60)), None);
    slots.set_absences(NetworkId(3), Some(Duration::from_millis(35)), None);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 35), (A, 100)]);
    slots.remove(NetworkId(3));
    // By hand: a third of 200 ms is left to the first.
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 60), (A, 66)]);
}

#[test]
fn turns_follow_networks_from_channel_to_channel() {
    let even = SlotSettings { alpha: 0.0, ..SlotSettings::punctual() };
    let mut slots = two_and_one(even, [1, 1, 1]);
    assert_eq!(slots.members().collect::<Vec<_>>(), [A, B]);
    slots.set_channel(NetworkId(3), Some(CHANNEL_B));
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(B, 133), (A, 66)]);
    // Sought, it has no turn, and the cycle is shorter by its part: listening comes round sooner.
    slots.set_channel(ONE, None);
    slots.set_listening(Some(1));
    assert_eq!(slots.members().collect::<Vec<_>>(), [B, Member::Scan]);
    assert_eq!(run(&mut slots, 2, |_| 1.0), [(Member::Scan, 50), (B, 100)]);
    assert_eq!(slots.presence(CHANNEL_B), 1.0);
    slots.set_listening(None);
    slots.set_channel(ONE, Some(Frequency(5_180)));
    assert_eq!(slots.members().collect::<Vec<_>>(), [B, Member::Channel(Frequency(5_180))]);
}

#[test]
fn who_weighs_all_the_same_may_settle_whatever_shares_a_channel() {
    let mut slots = two_and_one(SlotSettings { settle: true, ..SlotSettings::punctual() }, [1, 1, 1]);
    run(&mut slots, 200, |member| if member == A { 2e6 } else { 1e6 });
    assert!(slots.is_given_up(CHANNEL_B) && !slots.is_given_up(CHANNEL_A));
    assert_eq!(slots.length(A), Some(Duration::from_millis(200)));
}
