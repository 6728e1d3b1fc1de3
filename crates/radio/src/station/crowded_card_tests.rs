//! A station that is with an access point and in an ad hoc group to which more is said than the air takes. The card has one queue, whose frames go out one after
//! the other on whatever channel it is on by then.

use std::collections::VecDeque;

use rand::SeedableRng;
use units::{Bytes, Ssid};

use super::tests::{AccessPoint, OWN};
use super::*;
use crate::airtime::Flavour;
use crate::frame::FrameControl;
use crate::frame::data::Packet;
use crate::waking::Waking;
use crate::{GroupSettings, Heard, Outcome, Rate, Transmission};

const POINT: NetworkId = NetworkId(1);
const HOOD: NetworkId = NetworkId(2);
const POINTS_CHANNEL: Frequency = Frequency(2412);
const HOODS_CHANNEL: Frequency = Frequency(2462);
const STEP: Duration = Duration::from_micros(250);
/// What a socket's usual send buffer holds of full frames.
const QUEUE: usize = 90;

struct World {
    now: Timestamp,
    station: Station,
    card: Option<Frequency>,
    queue: VecDeque<Transmission>,
    /// When the first of the queue is out, and whether it is acknowledged.
    out: Option<(Timestamp, bool)>,
    pending: Option<Transmission>,
    /// The card says what became of frames to all.
    tells: bool,
    point: AccessPoint,
    events: Vec<Event>,
    /// Time on the air of frames for the group, on its channel and elsewhere.
    grouped: [Duration; 2],
    /// Packets that the access point was given.
    given: u32,
}

fn network(name: &[u8], weight: u16, group: Option<GroupSettings>) -> NetworkSettings {
    NetworkSettings {
        ssid: Ssid::new(name).unwrap(),
        passphrase: None,
        bssid: None,
        avoided: Vec::new(),
        hidden: false,
        weight,
        waking: Waking::Announce,
        group,
    }
}

fn packet(to: MacAddress, length: usize) -> Vec<u8> {
    Packet { destination: to, source: OWN, ethernet_type: 0x0800, payload: &vec![0; length] }.to_ethernet()
}

impl World {
    fn new(tells: bool) -> Self {
        let channels = [POINTS_CHANNEL, HOODS_CHANNEL];
        let settings = StationSettings {
            address: OWN,
            further: Vec::new(),
            channels: channels.map(|frequency| PermittedChannel { frequency, active: true }).to_vec(),
            slots: SlotSettings { alpha: 0.0, ..Default::default() },
            scan_weight: 0,
        };
        let mut world = Self {
            now: Timestamp::from_millis(1),
            station: Station::new(settings, StdRng::seed_from_u64(5)),
            card: None,
            queue: VecDeque::new(),
            out: None,
            pending: None,
            tells,
            point: AccessPoint::new(1, b"point", POINTS_CHANNEL.0),
            events: Vec::new(),
            grouped: [Duration::ZERO; 2],
            given: 0,
        };
        let group = Some(GroupSettings { frequency: HOODS_CHANNEL });
        world.station.add_network(world.now, POINT, network(b"point", 1, None));
        world.station.add_network(world.now, HOOD, network(b"hood", 1, group));
        world.run(Duration::from_secs(4), false);
        assert_eq!(world.station.networks().filter(|network| network.up).count(), 2, "{:?}", world.events);
        world.events.clear();
        world
    }

    fn hear(&mut self, frame: &[u8]) {
        let heard = Heard {
            frame,
            frequency: self.card.unwrap(),
            signal_dbm: Some(-50),
            rate: Some(Rate(12)),
            high_throughput: None,
            aggregate: None,
        };
        self.station.handle_frame(self.now, &heard);
    }

    fn drain(&mut self) {
        loop {
            if let Some(frequency) = self.station.poll_tune() {
                if let Some(pending) = self.pending.take() {
                    self.station.handle_unsent(self.now, pending);
                }
                self.card = Some(frequency);
                self.station.handle_tuned(self.now, frequency);
            }
            while self.queue.len() < QUEUE {
                let next = self.pending.take().or_else(|| self.station.poll_transmit(self.now));
                let Some(sent) = next else { break };
                self.queue.push_back(sent);
            }
            if self.queue.len() >= QUEUE && self.pending.is_none() {
                self.pending = self.station.poll_transmit(self.now);
            }
            if !self.station.wishes_tune() {
                break;
            }
        }
        while self.station.poll_packet().is_some() {}
        while let Some(event) = self.station.poll_event() {
            self.events.push(event);
        }
    }

    /// The frames of the queue whose time on the air is over.
    fn send(&mut self) {
        while let Some(first) = self.queue.front() {
            let receiver = MacAddress(first.frame[4..10].try_into().unwrap());
            let length = Bytes(first.frame.len() as u64 + 4);
            let air = Flavour::G.exchange_time(first.rate, length) + Flavour::G.mean_back_off(0);
            let (over, acknowledged) = *self.out.get_or_insert_with(|| {
                let acknowledged = receiver == self.point.bssid && self.card == Some(POINTS_CHANNEL);
                let attempts = if acknowledged { 1 } else { u32::from(first.attempts) };
                (self.now + air * attempts, acknowledged)
            });
            if over > self.now {
                break;
            }
            self.out = None;
            let Some(first) = self.queue.pop_front() else { break };
            let is_data = FrameControl::parse([first.frame[0], first.frame[1]]).unwrap().kind.is_data();
            if receiver.is_group() && is_data {
                self.grouped[usize::from(self.card != Some(HOODS_CHANNEL))] += air;
            }
            if self.tells || !receiver.is_group() {
                let outcome = Outcome { frame: &first.frame, acknowledged, attempts: Some(1) };
                self.station.handle_outcome(self.now, &outcome);
            }
            if acknowledged {
                let answers = self.point.answer(&first.frame);
                answers.iter().for_each(|answer| self.hear(answer));
            }
        }
    }

    fn run(&mut self, time: Duration, crowded: bool) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            if self.now >= self.point.next_beacon {
                self.point.next_beacon += super::tests::INTERVAL;
                let beacon = self.point.beacon();
                if self.card == Some(POINTS_CHANNEL) {
                    self.hear(&beacon);
                }
            }
            if crowded {
                let all = packet(MacAddress::BROADCAST, 1_400);
                while self.station.handle_packet(self.now, HOOD, &all) {}
                if self.now.as_nanos().is_multiple_of(20_000_000) {
                    let bssid = self.point.bssid;
                    self.given += u32::from(self.station.handle_packet(self.now, POINT, &packet(bssid, 200)));
                }
            }
            if self.station.poll_timeout(self.now).is_some_and(|due| due <= self.now) {
                self.station.handle_timeout(self.now);
            }
            self.drain();
            self.send();
            self.drain();
        }
    }
}

#[test]
fn much_for_a_group_does_not_lose_the_access_point() {
    for tells in [true, false] {
        let mut world = World::new(tells);
        world.run(Duration::from_secs(20), true);
        let status = world.station.networks().find(|network| network.network == POINT).unwrap();
        let [there, elsewhere] = world.grouped;
        let brought = world.point.from_station;
        assert!(status.up && world.events.is_empty(), "{:?}", world.events);
        assert_eq!(status.counters.unconfirmed_partings, 0);
        // A card that does not tell is left alone for the time that its frames take by themselves.
        let most = if tells { Duration::ZERO } else { Duration::from_millis(100) };
        assert!(elsewhere <= most, "frames go out where the group is, or not at all: {elsewhere:?}");
        assert!(brought + 30 > world.given && world.given > 950, "{brought} of {}", world.given);
        // Half of the time is the group's.
        assert!(there > Duration::from_millis(8_500), "{there:?}");
    }
}
