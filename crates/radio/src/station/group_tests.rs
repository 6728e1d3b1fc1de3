//! Stations in ad hoc groups, against each other: all hear each other where their cards are on one channel.

use rand::SeedableRng;
use units::Ssid;

use super::*;
use crate::frame::data::Packet;
use crate::frame::{Header, Kind};
use crate::waking::Waking;
use crate::{GroupSettings, Heard, Outcome, Rate};

const SIDE: NetworkId = NetworkId(1);
const OTHER: NetworkId = NetworkId(2);
const CHANNEL_1: Frequency = Frequency(2412);
const CHANNEL_11: Frequency = Frequency(2462);

struct Host {
    station: Station,
    card: Option<Frequency>,
    /// Of the side channel.
    received: Vec<Vec<u8>>,
}

struct Air {
    now: Timestamp,
    hosts: Vec<Host>,
}

fn group(name: &[u8], frequency: Frequency, weight: u16) -> NetworkSettings {
    NetworkSettings {
        ssid: Ssid::new(name).unwrap(),
        passphrase: None,
        bssid: None,
        avoided: Vec::new(),
        hidden: false,
        weight,
        waking: Waking::Announce,
        group: Some(GroupSettings { frequency }),
    }
}

fn address(host: usize) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, host as u8 + 1])
}

impl Air {
    /// Hosts that are in the group "side"; those that are `shared` give nine tenths of their time to a group of their own.
    fn new(shared: &[bool]) -> Self {
        let hosts = shared.iter().enumerate().map(|(number, _)| {
            let channels =
                [CHANNEL_1, CHANNEL_11].map(|frequency| PermittedChannel { frequency, active: true });
            let slots = SlotSettings { alpha: 0.0, ..Default::default() };
            let settings = StationSettings {
                address: address(number),
                further: Vec::new(),
                channels: channels.to_vec(),
                slots,
                scan_weight: 0,
            };
            let station = Station::new(settings, StdRng::seed_from_u64(number as u64));
            Host { station, card: None, received: Vec::new() }
        });
        let mut air = Self { now: Timestamp::from_millis(1), hosts: hosts.collect() };
        for (number, shared) in shared.iter().enumerate() {
            // Not all at once.
            air.run(Duration::from_millis(137 * number as u64));
            let (now, host) = (air.now, &mut air.hosts[number]);
            host.station.add_network(now, SIDE, group(b"side", CHANNEL_1, 1));
            if *shared {
                let name = [b"own".as_slice(), &[b'0' + number as u8]].concat();
                host.station.add_network(now, OTHER, group(&name, CHANNEL_11, 9));
            }
        }
        air.run(Duration::from_secs(6));
        air
    }

    fn drain(&mut self, at: usize) {
        loop {
            let host = &mut self.hosts[at];
            if let Some(frequency) = host.station.poll_tune() {
                host.card = Some(frequency);
                host.station.handle_tuned(self.now, frequency);
            }
            let Some(sent) = host.station.poll_transmit(self.now) else {
                if host.station.wishes_tune() {
                    continue;
                }
                break;
            };
            let Some(frequency) = host.card else { continue };
            let receiver = MacAddress(sent.frame[4..10].try_into().unwrap());
            let hears = |(number, other): (usize, &Host)| number != at && other.card == Some(frequency);
            let acknowledged =
                self.hosts.iter().enumerate().any(|one| address(one.0) == receiver && hears(one));
            let outcome = Outcome { frame: &sent.frame, acknowledged, attempts: Some(1) };
            self.hosts[at].station.handle_outcome(self.now, &outcome);
            for (_, other) in self
                .hosts
                .iter_mut()
                .enumerate()
                .filter(|(number, other)| *number != at && other.card == Some(frequency))
            {
                let heard = Heard {
                    frame: &sent.frame,
                    frequency,
                    signal_dbm: Some(-40),
                    rate: Some(Rate(12)),
                    high_throughput: None,
                    aggregate: None,
                };
                other.station.handle_frame(self.now, &heard);
            }
        }
        let host = &mut self.hosts[at];
        while let Some((id, packet)) = host.station.poll_packet() {
            if id == SIDE {
                host.received.push(packet);
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_micros(500);
            for at in 0..self.hosts.len() {
                if self.hosts[at].station.poll_timeout(self.now).is_some_and(|due| due <= self.now) {
                    self.hosts[at].station.handle_timeout(self.now);
                }
                self.drain(at);
            }
        }
    }

    fn send(&mut self, from: usize, to: MacAddress, number: u32) {
        let packet = Packet {
            destination: to,
            source: address(from),
            ethernet_type: 0x0800,
            payload: &[number.to_be_bytes().as_slice(), &[0; 96]].concat(),
        };
        let taken = self.hosts[from].station.handle_packet(self.now, SIDE, &packet.to_ethernet());
        assert!(taken, "refused: {:?}", self.hosts[from].station.networks().collect::<Vec<_>>());
    }

    fn bssid(&self, host: usize) -> Option<MacAddress> {
        self.hosts[host].station.networks().find(|network| network.network == SIDE)?.bssid
    }
}

#[test]
fn one_founds_the_group_and_the_others_join_it() {
    let mut air = Air::new(&[false, false, false]);
    assert!(air.bssid(0).is_some_and(|bssid| bssid.0[0] & 3 == 2), "{:?}", air.bssid(0));
    assert_eq!((air.bssid(0), air.bssid(1)), (air.bssid(1), air.bssid(2)));
    for number in 0..50 {
        air.send(0, address(1), number);
        air.send(1, MacAddress::BROADCAST, 1_000 + number);
        air.run(Duration::from_millis(3));
    }
    assert_eq!([0, 1, 2].map(|host: usize| air.hosts[host].received.len()), [50, 50, 50]);
}

#[test]
fn groups_of_one_name_become_one_by_the_older_clock() {
    let mut air = Air::new(&[false, false]);
    let older = air.bssid(0);
    // The second one founds its own, out of reach of the first, and comes back.
    let far = Frequency(2437);
    air.hosts[1].station.remove_network(air.now, SIDE);
    air.hosts[1].station.settings.channels = vec![PermittedChannel { frequency: far, active: true }];
    air.hosts[1].station.seen = SeenNetworks::default();
    air.hosts[1].station.add_network(air.now, SIDE, group(b"side", far, 1));
    air.run(Duration::from_secs(4));
    assert!(air.bssid(1).is_some() && air.bssid(1) != older);
    // The first one moves into reach.
    let group = air.hosts[0].station.group_mut(SIDE).unwrap();
    group.frequency = far;
    air.hosts[0].station.settings.channels = vec![PermittedChannel { frequency: far, active: true }];
    air.run(Duration::from_secs(3));
    assert_eq!((air.bssid(0), air.bssid(1)), (older, older));
}

#[test]
fn a_member_that_is_away_is_sent_to_when_it_is_there() {
    // The first shares its radio, one tenth for the side channel; the second is always there.
    let mut air = Air::new(&[true, false]);
    let member = air.hosts[1].station.group(SIDE).map(|group| group.members.len());
    assert_eq!(member, Some(1));
    for number in 0..200 {
        air.send(1, address(0), number);
        air.send(0, address(1), number);
        air.run(Duration::from_millis(20));
    }
    air.run(Duration::from_secs(1));
    let failed: u64 = air.hosts[1].station.networks().map(|network| network.counters.failed_frames).sum();
    assert_eq!((air.hosts[0].received.len(), air.hosts[1].received.len(), failed), (200, 200, 0));
}

#[test]
fn two_that_are_away_meet_at_beacons() {
    let mut air = Air::new(&[true, true]);
    assert_eq!(air.bssid(0), air.bssid(1));
    for number in 0..100 {
        air.send(0, address(1), number);
        air.send(1, address(0), number);
        air.run(Duration::from_millis(50));
    }
    air.run(Duration::from_secs(3));
    let failed: u64 =
        air.hosts.iter().flat_map(|host| host.station.networks()).map(|one| one.counters.failed_frames).sum();
    assert_eq!((air.hosts[0].received.len(), air.hosts[1].received.len(), failed), (100, 100, 0));
}

#[test]
fn a_groups_share_is_time_that_can_be_used() {
    let mut air = Air::new(&[true, false]);
    let (mut there, mut visits, steps) = (0, 0, 40_000);
    for _ in 0..steps {
        let was_there = air.hosts[0].card == Some(CHANNEL_1);
        air.run(Duration::from_micros(500));
        let is_there = air.hosts[0].card == Some(CHANNEL_1);
        there += u32::from(is_there);
        visits += u32::from(is_there && !was_there);
    }
    // It is there 2 ms before each beacon, and nobody sends to it in the last 2 ms.
    let usable = f64::from(there) * 0.5 - f64::from(visits) * 4.0;
    let share = usable / (f64::from(steps) * 0.5);
    assert!((0.098..0.105).contains(&share), "{share} in {visits} visits");
}

#[test]
fn frames_of_another_group_or_protected_ones_are_not_taken() {
    let mut air = Air::new(&[false, false]);
    let bssid = air.bssid(0).unwrap();
    let mut forged = |third: MacAddress, protected: bool| {
        let mut header = Header::new(Kind::Data, address(1), address(0), third);
        header.control.protected = protected;
        let mut frame = Vec::new();
        header.write(&mut frame);
        let packet =
            Packet { destination: address(1), source: address(0), ethernet_type: 0x0800, payload: &[1; 40] };
        packet.write_body(&mut frame);
        let heard = Heard {
            frame: &frame,
            frequency: CHANNEL_1,
            signal_dbm: None,
            rate: None,
            high_throughput: None,
            aggregate: None,
        };
        air.hosts[1].station.handle_frame(air.now, &heard);
        air.drain(1);
        air.hosts[1].received.len()
    };
    assert_eq!(forged(MacAddress([2, 9, 9, 9, 9, 9]), false), 0);
    assert_eq!(forged(bssid, true), 0);
    assert_eq!(forged(bssid, false), 1);
}
