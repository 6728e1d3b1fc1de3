//! Several networks on each of several channels: turns are those of channels.

use std::collections::BTreeSet;

use super::tests::{AccessPoint, World};
use super::*;
use crate::frame::write_element;
use crate::waking::Waking;

const NAMES: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
const CHANNEL_1: u32 = 2_412;
const CHANNEL_6: u32 = 2_437;
const CHANNEL_11: u32 = 2_462;

impl Station {
    /// Each channel where a network is has one turn, and no other has.
    pub(super) fn check_turns(&self) {
        let channels: BTreeSet<Frequency> = self.networks.values().filter_map(Network::frequency).collect();
        let turns = self.slots.members().filter_map(|member| match member {
            Member::Channel(channel) => Some(channel),
            Member::Scan => None,
        });
        let mut turns: Vec<Frequency> = turns.collect();
        turns.sort_unstable();
        assert_eq!(turns, channels.into_iter().collect::<Vec<_>>());
    }
}

/// Networks 1, 2, ... of weight 1 on these channels, all of them up.
fn world(channels: &[u32], slots: SlotSettings) -> World {
    let points = (1..).zip(channels).zip(NAMES);
    let points = points.map(|((number, channel), name)| AccessPoint::new(number, name, *channel)).collect();
    let mut world = World::new(points, slots);
    for (id, name) in (1..).zip(NAMES).take(channels.len()) {
        world.join(id, name, 1, Waking::Announce);
    }
    world.run(Duration::from_secs(3));
    assert_eq!(world.up(), channels.len());
    world
}

fn even() -> SlotSettings {
    SlotSettings { alpha: 0.0, ..SlotSettings::default() }
}

/// Changes of channel in a second, and the part of it on each channel.
fn second(world: &mut World) -> (f64, BTreeMap<u32, f64>) {
    const SECONDS: u32 = 8;
    let tunes = world.tunes;
    world.present.clear();
    world.run(Duration::from_secs(SECONDS.into()));
    let part = |(channel, time): (&u32, &Duration)| (*channel, time.as_secs_f64() / f64::from(SECONDS));
    (f64::from(world.tunes - tunes) / f64::from(SECONDS), world.present.iter().map(part).collect())
}

fn status(world: &World, id: u32) -> NetworkStatus {
    world.station.networks().find(|status| status.network == NetworkId(id)).unwrap()
}

fn sent_and_lost(world: &World) -> Vec<(u32, u32)> {
    world.points.iter().map(|point| (point.sent, point.lost)).collect()
}

#[test]
fn three_networks_on_two_channels_take_two_turns() {
    let mut world = world(&[CHANNEL_1, CHANNEL_11, CHANNEL_1], even());
    world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(40)));
    let before = [1, 2, 3].map(|id| status(&world, id).visits);
    let (changes, present) = second(&mut world);
    // Two in each cycle of 200 ms, and two thirds of it for the two.
    assert!((9.5..=10.1).contains(&changes), "{changes}");
    assert!((present[&CHANNEL_1] - 2.0 / 3.0).abs() < 0.02, "{present:?}");
    world.points.iter_mut().for_each(|point| point.spacing = None);
    world.run(Duration::from_millis(500));
    for (received, (sent, lost)) in world.received.iter().zip(sent_and_lost(&world)) {
        assert!(sent >= 200 && lost == 0 && *received == sent, "{received} of {sent}, {lost} lost");
    }
    for (id, channel) in [(1, CHANNEL_1), (2, CHANNEL_11), (3, CHANNEL_1)] {
        let (visits, before) = (status(&world, id).visits, before[id as usize - 1]);
        let part = (visits.time - before.time).as_secs_f64() / 8.5;
        assert!((part - present[&channel]).abs() < 0.03, "{id}: {part} {present:?}");
        assert_eq!(visits.received_packets, u64::from(world.received[id as usize - 1]));
    }
    for (id, presence, slot) in [(1, 2.0 / 3.0, 133), (2, 1.0 / 3.0, 66), (3, 2.0 / 3.0, 133)] {
        let status = status(&world, id);
        assert!((status.presence - presence).abs() < 1e-6, "{status:?}");
        assert_eq!(status.slot.map(|slot| slot.as_millis()), Some(slot), "{status:?}");
    }
}

#[test]
fn channels_are_not_visited_again_for_each_network() {
    // In the order in which they were added they would be four changes of channel in each cycle.
    let mut world = world(&[CHANNEL_1, CHANNEL_11, CHANNEL_1, CHANNEL_11], even());
    let (changes, present) = second(&mut world);
    assert!((9.5..=10.1).contains(&changes), "{changes}");
    assert!((present[&CHANNEL_1] - 0.5).abs() < 0.02, "{present:?}");
}

#[test]
fn a_poor_access_point_beside_a_good_one_is_not_given_up() {
    let mut world = world(&[CHANNEL_1, CHANNEL_11, CHANNEL_1], SlotSettings::default());
    world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(1)));
    // A twentieth of what the others bring: alone on its channel it would be given up.
    world.points[2].spacing = Some(Duration::from_millis(20));
    world.run(Duration::from_secs(8));
    assert!(world.station.networks().all(|status| !status.given_up));
}

#[test]
fn who_stands_by_asks_for_no_time() {
    let mut world = world(&[CHANNEL_1, CHANNEL_11, CHANNEL_1], even());
    world.station.set_standby(NetworkId(3), true);
    world.run(Duration::from_millis(400));
    let (_, present) = second(&mut world);
    assert!((present[&CHANNEL_1] - 0.5).abs() < 0.02, "{present:?}");
    assert_eq!(world.up(), 3);
}

/// What a network's access point says before it moves.
fn announce_move(world: &mut World, id: usize, channel: u8) {
    while world.card != Some(world.points[id - 1].frequency) {
        world.run(Duration::from_millis(1));
    }
    let mut beacon = world.points[id - 1].beacon();
    write_element(&mut beacon, 37, &[1, channel, 1]);
    world.hear(&beacon);
    world.points[id - 1].frequency = Frequency(2_407 + 5 * u32::from(channel));
}

#[test]
fn turns_follow_an_access_point_from_a_channel_to_a_free_one_and_to_another_networks() {
    let mut world = world(&[CHANNEL_1, CHANNEL_11, CHANNEL_1], even());
    announce_move(&mut world, 3, 6);
    world.run(Duration::from_secs(1));
    let (changes, present) = second(&mut world);
    // Three channels in a cycle.
    assert!((14.2..=15.2).contains(&changes), "{changes}");
    assert!(present.len() == 3 && (present[&CHANNEL_6] - 1.0 / 3.0).abs() < 0.02, "{present:?}");
    announce_move(&mut world, 3, 11);
    world.run(Duration::from_secs(1));
    let (changes, present) = second(&mut world);
    assert!((9.5..=10.1).contains(&changes), "{changes}");
    assert!(present.len() == 2 && (present[&CHANNEL_11] - 2.0 / 3.0).abs() < 0.02, "{present:?}");
    assert_eq!((world.up(), status(&world, 3).counters.ups), (3, 1));
}

/// One address on two channels is two access points: each is joined, and seen by itself.
#[test]
fn access_points_with_one_address_on_two_channels_are_two() {
    let mut points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"two", 2462)];
    points[1].bssid = points[0].bssid;
    let bssid = points[0].bssid;
    let mut world = World::new(points, SlotSettings::default());
    world.join(1, b"one", 1, Waking::Announce);
    world.join(2, b"two", 1, Waking::Announce);
    world.run(Duration::from_secs(4));
    assert_eq!(world.up(), 2, "{:?}", world.events);
    let mut seen: Vec<_> = world.station.seen().map(|seen| (seen.bssid, seen.frequency.0)).collect();
    seen.sort();
    assert_eq!(seen, [(bssid, 2412), (bssid, 2462)]);
    // One of them is gone: that is no word about the other one.
    world.points[0].silent = true;
    world.run(Duration::from_secs(6));
    let up: Vec<u32> = world.station.networks().filter(|one| one.up).map(|one| one.network.0).collect();
    assert_eq!(up, [2]);
}
