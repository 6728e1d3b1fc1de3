//! The station against access points of a few lines each, which keep frames for those who sleep. Unmodified ones are met in the vm tests.

use std::collections::VecDeque;

use proptest::prelude::*;
use rand::SeedableRng;
use units::Ssid;

use super::*;
use crate::frame::data::Packet;
use crate::frame::{FrameControl, Header, Kind, management, write_element};
use crate::scan::MOST_SEEN;
use crate::slots::Cycle;
use crate::waking::Waking;
use crate::{Heard, Outcome, Rate};

pub(super) const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
pub(super) const INTERVAL: Duration = Duration::from_micros(102_400);
const KEPT: usize = 64;

pub(super) struct AccessPoint {
    pub(super) bssid: MacAddress,
    name: &'static [u8],
    pub(super) frequency: Frequency,
    associated: bool,
    asleep: bool,
    kept: VecDeque<Vec<u8>>,
    pub(super) lost: u32,
    pub(super) next_beacon: Timestamp,
    beacons: u32,
    next_packet: Timestamp,
    /// Time between packets to the station.
    pub(super) spacing: Option<Duration>,
    pub(super) sent: u32,
    pub(super) from_station: u32,
    pub(super) silent: bool,
    /// All its beacons are lost to others that are sent at the same times.
    unheard: bool,
    /// The highest rate at which it hears us.
    hears: Rate,
    /// It falls silent after so many answers.
    dies_after: Option<u32>,
}

impl AccessPoint {
    pub(super) fn new(last: u8, name: &'static [u8], frequency: u32) -> Self {
        Self {
            bssid: MacAddress([2, 0, 0, 0, 1, last]),
            name,
            frequency: Frequency(frequency),
            associated: false,
            asleep: false,
            kept: VecDeque::new(),
            lost: 0,
            next_beacon: Timestamp::from_millis(7 * u64::from(last)),
            beacons: 0,
            next_packet: Timestamp::ZERO,
            spacing: None,
            sent: 0,
            from_station: 0,
            silent: false,
            unheard: false,
            hears: Rate(108),
            dies_after: None,
        }
    }

    fn header(&self, kind: Kind, receiver: MacAddress) -> Header {
        Header::new(kind, receiver, self.bssid, self.bssid)
    }

    pub(super) fn beacon(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        self.header(Kind::Beacon, MacAddress::BROADCAST).write(&mut frame);
        frame.extend_from_slice(&[0; 8]);
        frame.extend_from_slice(&[100, 0, 1, 0]);
        write_element(&mut frame, 0, self.name);
        write_element(&mut frame, 1, &Rate::OFDM.map(|rate| rate.0 | 0x80));
        let count = (self.beacons % 2) as u8;
        let waiting = if self.kept.is_empty() { 0 } else { 2 };
        write_element(&mut frame, 5, &[count, 2, 0, waiting]);
        self.beacons += 1;
        frame
    }

    fn data(&mut self, more: bool) -> Vec<u8> {
        let mut header = self.header(Kind::Data, OWN);
        header.control.from_access_point = true;
        header.control.more_data = more;
        header.sequence.number = (self.sent % 4_096) as u16;
        let mut frame = Vec::new();
        header.write(&mut frame);
        let payload = [self.sent.to_be_bytes().as_slice(), &[0; 1_400]].concat();
        let packet =
            Packet { destination: OWN, source: self.bssid, ethernet_type: 0x0800, payload: &payload };
        packet.write_body(&mut frame);
        self.sent += 1;
        frame
    }

    /// The same, until it dies.
    pub(super) fn answer(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let answers = self.take(frame);
        if let Some(left) = &mut self.dies_after {
            *left = left.saturating_sub(1);
            self.silent = *left == 0;
        }
        answers
    }

    /// What it sends upon a frame to it.
    fn take(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let control = FrameControl::parse([frame[0], frame[1]]).unwrap();
        if control.kind == Kind::PowerSavePoll {
            return match self.kept.pop_front() {
                Some(mut kept) => {
                    set_more_data(&mut kept, !self.kept.is_empty());
                    vec![kept]
                }
                None => {
                    let mut header = self.header(Kind::Null, OWN);
                    header.control.from_access_point = true;
                    let mut null = Vec::new();
                    header.write(&mut null);
                    vec![null]
                }
            };
        }
        let (header, _) = Header::parse(frame).unwrap();
        let mut answer = Vec::new();
        match header.control.kind {
            Kind::Authentication => {
                self.header(Kind::Authentication, OWN).write(&mut answer);
                answer.extend_from_slice(&[0, 0, 2, 0, 0, 0]);
                return vec![answer];
            }
            Kind::AssociationRequest => {
                self.header(Kind::AssociationResponse, OWN).write(&mut answer);
                answer.extend_from_slice(&[1, 0, 0, 0, 1, 0xc0]);
                self.associated = true;
                self.asleep = false;
                return vec![answer];
            }
            Kind::Null | Kind::Data if self.associated => {
                self.from_station += u32::from(header.control.kind == Kind::Data);
                self.asleep = header.control.power_save;
                let kept = if self.asleep { VecDeque::new() } else { std::mem::take(&mut self.kept) };
                let last = kept.len().saturating_sub(1);
                let mut all: Vec<_> = kept.into_iter().collect();
                all.iter_mut().enumerate().for_each(|(at, frame)| set_more_data(frame, at < last));
                return all;
            }
            Kind::Deauthentication => self.associated = false,
            _ if !self.associated => {
                self.header(Kind::Deauthentication, OWN).write(&mut answer);
                answer.extend_from_slice(&[7, 0]);
                return vec![answer];
            }
            _ => {}
        }
        Vec::new()
    }
}

fn set_more_data(frame: &mut [u8], more: bool) {
    frame[1] = frame[1] & !0x20 | u8::from(more) << 5;
}

pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) station: Station,
    pub(super) card: Option<Frequency>,
    pub(super) points: Vec<AccessPoint>,
    pub(super) received: Vec<u32>,
    pub(super) events: Vec<Event>,
    pub(super) tunes: u32,
    pub(super) present: std::collections::BTreeMap<u32, Duration>,
    /// Rates of what told that we sleep.
    partings: Vec<Rate>,
}

impl World {
    pub(super) fn new(points: Vec<AccessPoint>, slots: SlotSettings) -> Self {
        let channels = [2412, 2437, 2462]
            .map(|frequency| PermittedChannel { frequency: Frequency(frequency), active: true });
        let settings = StationSettings {
            address: OWN,
            further: Vec::new(),
            channels: channels.to_vec(),
            slots,
            scan_weight: 0,
        };
        let station = Station::new(settings, StdRng::seed_from_u64(3));
        let received = vec![0; points.len()];
        let (events, present) = (Vec::new(), Default::default());
        let (now, partings) = (Timestamp::ZERO, Vec::new());
        Self { now, station, card: None, points, received, events, tunes: 0, present, partings }
    }

    pub(super) fn join(&mut self, id: u32, name: &[u8], weight: u16, waking: Waking) {
        let settings = NetworkSettings {
            ssid: Ssid::new(name).unwrap(),
            passphrase: None,
            bssid: None,
            avoided: Vec::new(),
            hidden: false,
            weight,
            waking,
            group: None,
        };
        self.station.add_network(self.now, NetworkId(id), settings);
    }

    pub(super) fn hear(&mut self, frame: &[u8]) {
        let heard = Heard {
            frame,
            frequency: self.card.unwrap(),
            signal_dbm: Some(-50),
            rate: Some(Rate(108)),
            high_throughput: None,
            aggregate: None,
        };
        self.station.handle_frame(self.now, &heard);
    }

    fn drain(&mut self) {
        loop {
            if let Some(frequency) = self.station.poll_tune() {
                self.card = Some(frequency);
                self.tunes += 1;
                self.station.handle_tuned(self.now, frequency);
            }
            let Some(sent) = self.station.poll_transmit(self.now) else {
                if self.station.tune.is_none() {
                    break;
                }
                continue;
            };
            let receiver = MacAddress(sent.frame[4..10].try_into().unwrap());
            let card = self.card;
            let control = FrameControl::parse([sent.frame[0], sent.frame[1]]).unwrap();
            if control.kind == Kind::Null && control.power_save {
                self.partings.push(sent.rate);
            }
            let hears = |point: &&mut AccessPoint| {
                Some(point.frequency) == card && !point.silent && sent.rate <= point.hears
            };
            let point = self.points.iter_mut().filter(hears).find(|point| point.bssid == receiver);
            let acknowledged = point.is_some();
            let answers = point.map(|point| point.answer(&sent.frame)).unwrap_or_default();
            let outcome = Outcome { frame: &sent.frame, acknowledged, attempts: Some(1) };
            self.station.handle_outcome(self.now, &outcome);
            answers.iter().for_each(|answer| self.hear(answer));
        }
        self.station.check_turns();
        while let Some((id, _)) = self.station.poll_packet() {
            self.received[id.0 as usize - 1] += 1;
        }
        while let Some(event) = self.station.poll_event() {
            self.events.push(event);
        }
    }

    /// Lets time pass in steps of 0.5 ms.
    pub(super) fn run(&mut self, time: Duration) {
        let step = Duration::from_micros(500);
        let end = self.now + time;
        while self.now < end {
            self.now += step;
            if let Some(card) = self.card {
                *self.present.entry(card.0).or_default() += step;
            }
            for at in 0..self.points.len() {
                let point = &mut self.points[at];
                let mut air = Vec::new();
                if self.now >= point.next_beacon && !point.silent {
                    point.next_beacon += INTERVAL;
                    let beacon = point.beacon();
                    air.extend((!point.unheard).then_some(beacon));
                }
                while let Some(spacing) =
                    point.spacing.filter(|_| point.associated && self.now >= point.next_packet)
                {
                    point.next_packet = self.now + spacing;
                    let frame = point.data(false);
                    if point.asleep {
                        point.kept.push_back(frame);
                        if point.kept.len() > KEPT {
                            point.kept.pop_front();
                            point.lost += 1;
                        }
                    } else if Some(point.frequency) == self.card {
                        air.push(frame);
                    } else {
                        point.lost += 1;
                    }
                }
                if Some(point.frequency) == self.card {
                    air.iter().for_each(|frame| self.hear(frame));
                }
            }
            if self.station.poll_timeout(self.now).is_some_and(|due| due <= self.now) {
                self.station.handle_timeout(self.now);
            }
            self.drain();
        }
    }

    pub(super) fn up(&self) -> usize {
        self.station.networks().filter(|network| network.up).count()
    }
}

fn two(slots: SlotSettings, waking: Waking) -> World {
    let points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"two", 2462)];
    let mut world = World::new(points, slots);
    world.join(1, b"one", 1, waking);
    world.join(2, b"two", 1, waking);
    world.run(Duration::from_secs(2));
    assert_eq!(world.up(), 2, "{:?}", world.events);
    world
}

#[test]
fn one_radio_is_in_two_networks_and_loses_nothing() {
    for waking in [Waking::Announce, Waking::Poll, Waking::Measured] {
        let mut world = two(SlotSettings { alpha: 0.0, ..Default::default() }, waking);
        // 250 packets a second each: 25 wait in 100 ms away.
        world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(4)));
        world.run(Duration::from_secs(10));
        world.points.iter_mut().for_each(|point| point.spacing = None);
        world.run(Duration::from_millis(500));
        for (point, received) in world.points.iter().zip(&world.received) {
            assert_eq!(point.lost, 0, "{waking:?}");
            assert_eq!(*received, point.sent, "{waking:?}");
            assert!(point.sent >= 2_400);
        }
        let partings: u64 =
            world.station.networks().map(|network| network.counters.unconfirmed_partings).sum();
        assert_eq!(partings, 0);
        assert_eq!(world.up(), 2);
    }
}

#[test]
fn what_others_are_sent_while_we_are_away_does_not_look_lost() {
    let mut world = two(SlotSettings { alpha: 0.0, ..Default::default() }, Waking::Announce);
    world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(4)));
    let mut frames = 0;
    for _ in 0..5_000 {
        // Numbers that are used up for somebody else; what is kept for us has its numbers here when it comes.
        let away = world.points.iter_mut().filter(|point| point.asleep && point.kept.is_empty());
        away.for_each(|point| point.sent += 9);
        world.run(Duration::from_millis(1));
        for (_, _, estimate) in world.station.qualities().iter(world.now) {
            assert_eq!(estimate.delivery_ratio, 1.0, "{estimate:?}");
            frames = frames.max(estimate.frames);
        }
    }
    assert_eq!(world.station.qualities().iter(world.now).count(), 2);
    assert!(frames > 100, "{frames}");
}

#[test]
fn a_parting_is_told_quickly_and_where_that_fails_safely() {
    let mut world = two(SlotSettings { alpha: 0.0, ..Default::default() }, Waking::Announce);
    world.partings.clear();
    world.run(Duration::from_secs(1));
    assert!(
        world.partings.len() > 5 && world.partings.iter().all(|rate| *rate > Rate(12)),
        "{:?}",
        world.partings
    );
    world.points.iter_mut().for_each(|point| point.hears = Rate(12));
    world.partings.clear();
    world.run(Duration::from_secs(2));
    assert!(world.partings.contains(&Rate(12)), "{:?}", world.partings);
    let counters = world.station.networks().map(|network| network.counters.unconfirmed_partings);
    assert_eq!(counters.sum::<u64>(), 0);
    assert_eq!(world.up(), 2);
}

#[test]
fn time_goes_by_weights() {
    let points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"two", 2462)];
    let slots =
        SlotSettings { alpha: 0.0, cycle: Cycle::Multiples(Duration::from_millis(50)), ..Default::default() };
    let mut world = World::new(points, slots);
    world.join(1, b"one", 9, Waking::Announce);
    world.join(2, b"two", 1, Waking::Announce);
    world.run(Duration::from_secs(2));
    world.present.clear();
    world.run(Duration::from_secs(10));
    let part = world.present[&2412].as_secs_f64() / 10.0;
    assert!((0.85..0.93).contains(&part), "{part}");
}

#[test]
fn a_short_slot_is_held_over_dtims_while_group_traffic_is_expected() {
    let points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"two", 2462)];
    let mut world = World::new(points, SlotSettings::punctual());
    world.join(1, b"one", 18, Waking::Announce);
    world.join(2, b"two", 1, Waking::Announce);
    world.run(Duration::from_secs(2));
    let mut heard = |expects: bool| {
        let dtims = |world: &World| {
            world
                .station
                .networks()
                .find(|network| network.network == NetworkId(2))
                .unwrap()
                .counters
                .heard_dtims
        };
        let before = dtims(&world);
        if expects {
            world.station.expect_group_traffic(NetworkId(2), world.now + Duration::from_secs(4));
        }
        world.run(Duration::from_secs(4));
        dtims(&world) - before
    };
    // Every 200 ms there is one, and a tenth of a cycle would hear one of twenty.
    let (without, with, after) = (heard(false), heard(true), heard(false));
    assert!(without < 5 && with >= 6 && after < 5, "{without} {with} {after}");
    assert_eq!(world.up(), 2, "{:?}", world.events);
}

#[test]
fn frames_that_an_access_point_cannot_keep_shorten_the_absence() {
    let slots = SlotSettings {
        alpha: 0.0,
        cycle: Cycle::Multiples(Duration::from_millis(100)),
        ..Default::default()
    };
    let mut world = two(slots, Waking::Announce);
    // A thousand packets a second: 64 are kept for 64 ms.
    world.points[0].spacing = Some(Duration::from_millis(1));
    world.run(Duration::from_secs(1));
    let before = world.points[0].lost;
    world.run(Duration::from_secs(5));
    assert_eq!(world.points[0].lost, before, "{before} lost at first");
}

#[test]
fn turns_are_short_where_the_air_has_room_and_long_where_it_has_none() {
    let turns = |spacing| {
        let mut world = two(SlotSettings { alpha: 0.0, ..Default::default() }, Waking::Announce);
        world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(spacing)));
        world.run(Duration::from_secs(2));
        let lost = |world: &World| world.points.iter().map(|point| point.lost).sum::<u32>();
        let before = (world.tunes, lost(&world));
        world.run(Duration::from_secs(4));
        assert_eq!(lost(&world), before.1);
        world.tunes - before.0
    };
    // A link behind the access point of 4 Mbit/s: packets are never 5 ms apart, and the air is free most of the time. Four come in 12 ms.
    assert!((280..=380).contains(&turns(3)), "{}", turns(3));
    // One after the other: 40 of the access point's 64 places are used.
    assert!((80..=120).contains(&turns(1)), "{}", turns(1));
}

#[test]
fn packets_wait_for_their_turn_and_one_queue_does_not_block_another() {
    let mut world = two(SlotSettings { alpha: 0.0, ..Default::default() }, Waking::Announce);
    let packet =
        Packet { destination: world.points[0].bssid, source: OWN, ethernet_type: 0x0800, payload: &[0; 100] };
    let ethernet = packet.to_ethernet();
    world.points[1].silent = true;
    let taken =
        (0..1_000).filter(|_| world.station.handle_packet(world.now, NetworkId(2), &ethernet)).count();
    assert_eq!(taken, crate::network::MOST_WAITING);
    for _ in 0..100 {
        assert!(world.station.handle_packet(world.now, NetworkId(1), &ethernet));
        world.run(Duration::from_millis(5));
    }
    world.run(Duration::from_millis(300));
    assert_eq!(world.points[0].from_station, 100);
}

#[test]
fn networks_on_one_channel_need_no_switching() {
    let points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"two", 2412)];
    let mut world = World::new(points, SlotSettings::default());
    world.join(1, b"one", 1, Waking::Announce);
    world.join(2, b"two", 1, Waking::Announce);
    world.run(Duration::from_secs(2));
    let before = world.tunes;
    world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(2)));
    world.run(Duration::from_secs(2));
    assert_eq!((world.up(), world.tunes), (2, before));
    assert!(world.received.iter().all(|received| *received > 950), "{:?}", world.received);
}

#[test]
fn an_access_point_whose_beacons_are_all_lost_is_asked_whether_it_is_there() {
    for waking in [Waking::Announce, Waking::Poll] {
        let mut world = World::new(vec![AccessPoint::new(1, b"one", 2412)], SlotSettings::default());
        world.join(1, b"one", 1, waking);
        world.run(Duration::from_secs(2));
        world.points[0].unheard = true;
        world.run(Duration::from_secs(10));
        let down = |event: &Event| matches!(event, Event::Down { .. });
        assert!(world.up() == 1 && !world.events.iter().any(down), "{:?}", world.events);
        world.points[0].silent = true;
        world.run(Duration::from_secs(2));
        assert!(world.events.iter().any(down), "{:?}", world.events);
    }
}

#[test]
fn an_access_point_that_vanishes_is_noticed_and_the_other_goes_on() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    world.points[1].silent = true;
    world.run(Duration::from_secs(3));
    let gone = |event: &Event| {
        matches!(event, Event::Down { network: NetworkId(2), reason: Lost::Gone | Lost::Silent })
    };
    assert_eq!(world.events.iter().filter(|event| gone(event)).count(), 1, "{:?}", world.events);
    assert_eq!(world.up(), 1);
    world.points[1].silent = false;
    world.points[1].associated = false;
    world.run(Duration::from_secs(5));
    assert_eq!(world.up(), 2, "{:?}", world.events);
}

/// As on the air, where each frame in vain takes ten milliseconds, most of which the other network could use.
#[test]
fn an_access_point_that_does_not_answer_is_not_waited_for() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    world.points[1].silent = true;
    world.run(Duration::from_millis(250));
    let before = world.present.clone();
    world.run(Duration::from_millis(500));
    assert_eq!(world.up(), 2, "it is given time to come back: {:?}", world.events);
    let there = |channel: u32| (world.present[&channel] - before[&channel]).as_secs_f64();
    assert!(there(2462) < 0.1 * there(2412), "{} s of {} s", there(2462), there(2412));
}

#[test]
fn a_storm_of_deauthentications_ends_with_the_storm() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    let mut frame = Vec::new();
    world.points[0].header(Kind::Deauthentication, OWN).write(&mut frame);
    frame.extend_from_slice(&[7, 0]);
    for _ in 0..200 {
        if world.card == Some(Frequency(2412)) {
            world.hear(&frame);
        }
        world.run(Duration::from_millis(20));
        assert!(world.station.networks().any(|network| network.network == NetworkId(2) && network.up));
    }
    world.run(Duration::from_secs(3));
    assert_eq!(world.up(), 2);
}

/// Both networks are up and the first one's access point says once that it moves to channel 6 after so many beacons of 100 ms.
fn with_announcement(beacons: u8) -> World {
    let mut world = two(SlotSettings::punctual(), Waking::Announce);
    let mut beacon = world.points[0].beacon();
    write_element(&mut beacon, 37, &[1, 6, beacons]);
    while world.card != Some(Frequency(2412)) {
        world.run(Duration::from_millis(1));
    }
    world.hear(&beacon);
    world
}

#[test]
fn an_access_point_that_changes_channel_is_followed() {
    let mut world = with_announcement(1);
    world.points[0].frequency = Frequency(2437);
    world.points[0].spacing = Some(Duration::from_millis(10));
    let before = world.received[0];
    world.run(Duration::from_secs(2));
    assert_eq!(world.up(), 2);
    assert!(world.received[0] > before + 150);
    assert!(!world.events.iter().any(|event| matches!(event, Event::Down { .. })));
}

#[test]
fn an_access_point_is_followed_by_its_first_announcement_and_in_its_time() {
    let mut world = with_announcement(5);
    // It says nothing more of it, and is silent until it has moved.
    world.points[0].silent = true;
    world.run(Duration::from_millis(350));
    let channel = |world: &World| world.station.networks().next().and_then(|network| network.frequency);
    assert_eq!(channel(&world), Some(Frequency(2412)), "before its time");
    world.points[0].frequency = Frequency(2437);
    world.points[0].silent = false;
    world.run(Duration::from_secs(1));
    assert_eq!(channel(&world), Some(Frequency(2437)));
    assert!(!world.events.iter().any(|event| matches!(event, Event::Down { .. })));
}

#[test]
fn a_move_that_the_access_point_knows_nothing_of_is_not_made() {
    let mut world = with_announcement(5);
    world.run(Duration::from_secs(2));
    assert_eq!(world.station.networks().next().and_then(|network| network.frequency), Some(Frequency(2412)));
    assert!(!world.events.iter().any(|event| matches!(event, Event::Down { .. })));
}

/// Channel 6 is one on which nobody may begin to send.
fn listen_only(world: &mut World) {
    world.station.settings.channels[1].active = false;
}

#[test]
fn an_access_point_that_moves_where_we_may_only_listen_is_left_and_found_again() {
    let mut world = with_announcement(2);
    listen_only(&mut world);
    world.points[0].frequency = Frequency(2437);
    world.run(Duration::from_secs(2));
    world.points[0].associated = false;
    let (network, two) = (NetworkId(1), NetworkId(2));
    assert!(world.events.contains(&Event::Down { network, reason: Lost::Forbidden }), "{:?}", world.events);
    let reason = Lost::Unjoinable(crate::Unjoinable::ListenOnly);
    assert!(world.events.contains(&Event::Trouble { network, reason }), "{:?}", world.events);
    let down = |event: &Event| matches!(event, Event::Down { network, .. } if *network == two);
    assert!(!world.events.iter().any(down), "{:?}", world.events);
    world.points[0].frequency = Frequency(2412);
    world.run(Duration::from_secs(4));
    assert_eq!(world.up(), 2, "{:?}", world.events);
}

#[test]
fn leaving_is_told() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    while world.card != Some(Frequency(2412)) {
        world.run(Duration::from_millis(1));
    }
    world.run(Duration::from_millis(2));
    world.station.remove_network(world.now, NetworkId(1));
    world.run(Duration::from_secs(1));
    assert!(!world.points[0].associated);
    assert_eq!(world.up(), 1);
}

#[test]
fn same_seed_and_inputs_give_the_same_run() {
    let run = || {
        let mut world = two(SlotSettings::default(), Waking::Measured);
        world.points.iter_mut().for_each(|point| point.spacing = Some(Duration::from_millis(3)));
        world.run(Duration::from_secs(3));
        (world.received.clone(), world.tunes, world.present.clone())
    };
    assert_eq!(run(), run());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_frames_harm_nothing(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..200), heads in proptest::collection::vec(any::<[u8; 2]>(), 200)) {
        let mut world = two(SlotSettings::default(), Waking::Measured);
        for (frame, head) in frames.iter().zip(heads) {
            world.hear(frame);
            // As if from one of our access points to us, with any kind and bits.
            let mut forged = Vec::new();
            world.points[0].header(Kind::Data, OWN).write(&mut forged);
            forged.extend_from_slice(frame);
            forged[..2].copy_from_slice(&head);
            world.hear(&forged);
            world.run(Duration::from_millis(1));
        }
        prop_assert!(world.station.seen().count() <= MOST_SEEN);
        prop_assert!(world.station.urgent.len() < 1_000);
        world.run(Duration::from_secs(6));
        prop_assert_eq!(world.up(), 2);
    }
}

#[test]
fn a_scan_on_request_hears_other_channels_and_ends() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    let mut other = AccessPoint::new(3, b"other", 2437);
    other.bssid = MacAddress([2, 0, 0, 0, 3, 3]);
    let bssid = other.bssid;
    world.points.push(other);
    world.received.push(0);
    // Both are found, so nothing is sought.
    world.run(Duration::from_secs(2));
    assert!(!world.present.contains_key(&2437) || !world.station.is_scanning());
    world.present.clear();
    world.station.request_scan(world.now);
    world.run(Duration::from_secs(2));
    assert!(!world.station.is_scanning());
    assert!(world.present[&2437] >= Duration::from_millis(10), "{:?}", world.present);
    world.present.clear();
    world.run(Duration::from_secs(1));
    assert!(!world.present.contains_key(&2437), "it goes on: {:?}", world.present);
    assert!(
        world.up() == 2 && (world.station.seen().any(|seen| seen.bssid == bssid) || !world.points[2].silent)
    );
}

/// Two access points of one name: the station is in both where the card acknowledges two addresses, else in one of them.
#[test]
fn one_set_of_access_points_is_one_network_to_one_address() {
    let second = MacAddress([0x42, 0, 0, 0, 0, 9]);
    for further in [vec![], vec![second]] {
        let points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"one", 2462)];
        let mut world = World::new(points, SlotSettings::punctual());
        world.station.settings.further = further.clone();
        world.join(1, b"one", 1, Waking::Announce);
        world.join(2, b"one", 1, Waking::Announce);
        world.run(Duration::from_secs(3));
        let places: Vec<_> = world.station.networks().map(|network| network.bssid).collect();
        assert_eq!(world.station.address_in(NetworkId(2)), further.first().copied().unwrap_or(OWN));
        if further.is_empty() {
            assert_eq!(places.iter().flatten().count(), 1, "{places:?}");
            let told = Event::Trouble {
                network: NetworkId(2),
                reason: Lost::Unjoinable(crate::Unjoinable::SameSet),
            };
            assert!(world.events.contains(&told), "{:?}", world.events);
        } else {
            assert!(places.iter().all(Option::is_some) && places[0] != places[1], "{places:?}");
        }
    }
}

#[test]
fn a_frame_that_the_card_had_no_room_for_is_the_next_one_there() {
    let mut world = two(SlotSettings { alpha: 0.0, ..Default::default() }, Waking::Announce);
    while world.card != Some(Frequency(2412)) {
        world.run(Duration::from_millis(1));
    }
    world.run(Duration::from_millis(2));
    let bssid = world.points[0].bssid;
    for number in 0..2u8 {
        let packet =
            Packet { destination: bssid, source: OWN, ethernet_type: 0x0800, payload: &[number; 100] };
        assert!(world.station.handle_packet(world.now, NetworkId(1), &packet.to_ethernet()));
    }
    let first = world.station.poll_transmit(world.now).unwrap();
    world.station.handle_unsent(world.now, first.clone());
    assert_eq!(world.station.poll_transmit(world.now), Some(first));
    world.run(Duration::from_millis(500));
    let counters = world.station.networks().next().unwrap().counters;
    assert_eq!((counters.sent_packets, world.points[0].from_station), (2, 1), "one was in our own hands");
}

#[test]
fn a_card_that_is_gone_and_comes_back_is_used_again() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    world.station.handle_card_lost(world.now);
    world.card = None;
    world.drain();
    let lost = |event: &Event| matches!(event, Event::Down { reason: Lost::NoRadio, .. });
    assert_eq!(world.events.iter().filter(|event| lost(event)).count(), 2, "{:?}", world.events);
    let before = world.tunes;
    world.run(Duration::from_secs(3));
    assert_eq!((world.up(), world.tunes, world.card), (0, before, None));
    // The access points have forgotten us.
    world.points.iter_mut().for_each(|point| point.associated = false);
    world.station.handle_card_back(world.now);
    world.drain();
    world.run(Duration::from_secs(3));
    assert_eq!(world.up(), 2, "{:?}", world.events);
}

#[test]
fn an_access_point_that_dies_while_it_is_joined_is_given_up_and_the_other_is_joined() {
    for answers in 1..=3 {
        let points = vec![AccessPoint::new(1, b"one", 2412), AccessPoint::new(2, b"two", 2462)];
        let mut world = World::new(points, SlotSettings::default());
        world.points[0].dies_after = Some(answers);
        world.join(1, b"one", 1, Waking::Announce);
        world.join(2, b"two", 1, Waking::Announce);
        world.run(Duration::from_secs(4));
        let up: Vec<_> =
            world.station.networks().filter(|network| network.up).map(|network| network.network).collect();
        assert_eq!(up, [NetworkId(2)], "{answers}: {:?}", world.events);
        let told = |event: &Event| match event {
            Event::Down { network, .. } | Event::Trouble { network, .. } => *network == NetworkId(1),
            Event::Up { .. } => false,
        };
        assert!(world.events.iter().any(told), "{answers}: {:?}", world.events);
        (world.points[0].dies_after, world.points[0].silent) = (None, false);
        world.points[0].associated = false;
        world.run(Duration::from_secs(8));
        assert_eq!(world.up(), 2, "{answers}: {:?}", world.events);
    }
}

#[test]
fn what_was_seen_is_bounded() {
    let mut world = two(SlotSettings::default(), Waking::Announce);
    for number in 0..2_000u16 {
        let mut point = AccessPoint::new(1, b"many", world.card.unwrap().0);
        point.bssid = MacAddress([6, 0, 0, 0, (number >> 8) as u8, number as u8]);
        let beacon = point.beacon();
        world.hear(&beacon);
    }
    assert_eq!(world.station.seen().count(), MOST_SEEN);
    assert!(management::probe_asks_for(&[0, 0], b"one"));
}
