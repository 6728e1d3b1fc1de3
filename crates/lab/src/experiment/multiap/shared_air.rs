//! A bond between a device and its gateway, downwards over access points that share one channel's air, under a virtual clock.
//!
//! ```text
//! gateway --rate of the uplink, queue--> access point --queue of 200, air in turns by weight--> device --steering--> marks, preferences
//!    ^                                                                                            |
//!    +---------------------------------- half a round trip, no air -------------------------------+
//! ```
//! As in `[MULTIAP] section 6.2.1`: a packet takes each access point's own time of air, the next one to send is chosen by weighted fair queueing among
//! those that have something, and what goes up takes no air. Other clients of the access points, with plain TCP, may take part (`plain.rs`), and
//! the air may be that of 802.11 with its contention (`contention.rs`).

mod contention;
mod fading;
mod plain;
mod single;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bond::{
    Address, Algorithm, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey,
    SessionConfig, SessionId,
};
use policy::PathStatus;
use policy::steering::{MarkShare, MarkingForm, PointView, Sharer, Steering, SteeringSettings, safe_marks};
use units::{Frequency, NetworkId, Timestamp};
use wire::inner::Ecn;

pub(super) use contention::{Air, Contended, Losses, Transmitter};
use contention::{Contention, point_address};
pub(super) use fading::loss;
use plain::Plain;
pub(super) use plain::{PlainClient, Shares};
pub(super) use single::Single;
use single::Turn;

/// One access point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Air time of a full packet.
    pub packet_time: Duration,
    /// How often it wins the air, relative to the others.
    pub weight: f64,
    /// What its uplink leaves to us, packets a second.
    pub uplink: f64,
}

/// An uplink that holds nothing back, packets a second.
pub(super) const NO_LIMIT: f64 = 1e6;

/// An access point has another packet time from a moment on, or is out of reach.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    /// Since what arrives counts.
    pub at: Duration,
    /// Which access point.
    pub point: usize,
    /// Air time of a full packet. `None`: whatever it sends is lost, after all attempts.
    pub packet_time: Option<Duration>,
    /// How well its beacons are heard; `None`: that says nothing here, or it is out of reach.
    pub signal_dbm: Option<f32>,
}

/// What the device does with what it knows of the access points.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Way {
    /// Nothing.
    Plain,
    /// The paper's: marks, and nothing else; by the round trip as it is with an empty queue, which asks for the most.
    Marks(MarkingForm),
    /// Marks as the product makes them for those who cannot be told: paths stand by, and marks hold the others to what they may have.
    Fitted,
    /// Word to the gateway of which to use and how much, and nothing else.
    Preference,
    /// One at a time.
    Single(Single),
}

/// What is run.
#[derive(Clone, Debug)]
pub(super) struct SharedAir {
    pub points: Vec<Point>,
    pub round_trip: Duration,
    pub algorithm: Algorithm,
    pub way: Way,
    /// Until what arrives counts, a little later with each seed, and until the end.
    pub settling: Duration,
    pub measured: Duration,
    /// By time.
    pub changes: Vec<Change>,
    pub seed: u64,
}

/// With each seed the beginning is another.
const SEED_STEP: Duration = Duration::from_millis(173);
/// Packets that an access point holds, and an uplink before it.
const QUEUE: usize = 200;
const UPLINK_QUEUE: usize = 100;
/// A packet of the tunnel takes a full packet's air; acknowledgements less.
const FULL: f64 = 1_500.0;
const INNER: usize = 1_400;
/// A packet of the download takes this part of a full packet's air.
pub(super) const PACKET_PART: f64 = 0.975;
/// All attempts for a packet that nobody acknowledges: seven at 6 Mbit/s.
const IN_VAIN: Duration = Duration::from_millis(14);
const STEP: Duration = Duration::from_millis(1);
/// How long the ends may take to find each other: of an access point at the edge of its reach little arrives.
const MEETING: Duration = Duration::from_secs(30);
/// What an experiment's settings say of steering on this model.
pub(super) const TOLD: &str = "told the true packet times";
const STEERING: Duration = Duration::from_millis(100);
/// So much counts of what others had in one step, as a radio that listens counts for a second.
const SHARE_NEWS: f64 = 0.1;
/// What an estimate covers.
const WINDOW: Duration = Duration::from_millis(500);
const CHANNEL: Frequency = Frequency(2_437);
/// An access point counts as gone after seven beacons, as `radio` has it.
const GONE_AFTER: Duration = Duration::from_millis(717);
/// One that is new is joined and has lent an address after so long, by JUGGLER/table2-handoff.
const JOINED_AFTER: Duration = Duration::from_millis(270);

struct World {
    now: Timestamp,
    run: SharedAir,
    device: Endpoint,
    gateway: Endpoint,
    device_session: SessionId,
    gateway_session: Option<SessionId>,
    /// On the way: by arrival; to the device's side (access point) or to the gateway.
    wire: BTreeMap<(Timestamp, u64), Carried>,
    order: u64,
    /// When each uplink has sent what it has.
    uplinks: Vec<Timestamp>,
    queues: Vec<VecDeque<Waiting>>,
    /// Virtual time of weighted fair queueing, of each.
    turns: Vec<f64>,
    /// Whose packet is on the air, and until when.
    air: Option<(usize, Timestamp)>,
    /// Air that others have been given.
    others: Duration,
    others_before: Duration,
    /// The packet times as they are; `None`: out of reach.
    packet_times: Vec<Option<Duration>>,
    signals: Vec<Option<f32>>,
    /// Since when each is in reach, or out of it.
    since: Vec<Timestamp>,
    /// Those that the device is in, as far as it knows.
    joined: Vec<bool>,
    steering: Steering,
    steer_at: Timestamp,
    turn: Turn,
    arrived: Vec<u64>,
    before: Vec<u64>,
    heard: Vec<Timestamp>,
    received: u64,
    sent: u32,
    plain: Vec<Plain>,
    /// Full packets that each of them had since the last steering, and lately in a second.
    shares: Vec<f64>,
    sharing: Vec<f64>,
    /// In place of turns.
    contention: Option<Contention>,
}

/// In an access point's queue.
#[derive(Clone)]
struct Waiting {
    /// The plain client that it is for; `None`: the device.
    plain: Option<usize>,
    bytes: Vec<u8>,
}

enum Carried {
    /// At the access point's queue.
    Down(usize, Waiting),
    Up(usize, Vec<u8>),
    /// From a plain client.
    PlainUp(usize, Vec<u8>),
}

impl SharedAir {
    /// Packets of the download that arrive in a second.
    ///
    /// # Errors
    /// If the two ends do not come together.
    pub fn run(&self) -> anyhow::Result<f64> {
        let arrived: u64 = self.arrivals(self.measured)?.iter().sum();
        Ok(arrived as f64 / self.measured.as_secs_f64())
    }

    /// Packets of the download that arrive in each `interval`.
    ///
    /// # Errors
    /// If the two ends do not come together.
    pub fn arrivals(&self, interval: Duration) -> anyhow::Result<Vec<u64>> {
        let mut world = World::new(self.clone())?;
        world.connect()?;
        let changes: Vec<_> = self.changes.iter().map(|change| (change.at, *change)).collect();
        world.count(interval, &changes, World::change)
    }
}

fn endpoint(key: u8, accept: bool, seed: u64, session: SessionConfig) -> anyhow::Result<Endpoint> {
    let key = PrivateKey::new([key; 32]);
    let config = EndpointConfig { key, session, accept, retry_above: u32::MAX, aes: true };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8] = u8::from(accept);
    Endpoint::new(config, bytes).context("make an endpoint of the bond")
}

impl World {
    fn new(run: SharedAir) -> anyhow::Result<Self> {
        let session = SessionConfig { congestion: run.algorithm, ..SessionConfig::default() };
        let mut device = endpoint(1, false, run.seed, session)?;
        let gateway = endpoint(2, true, run.seed, session)?;
        let now = Timestamp::from_millis(1_000);
        let device_session =
            device.connect(now, gateway.public_key(), b"hello".to_vec(), 1).context("begin the bond")?;
        let count = run.points.len();
        Ok(Self {
            now,
            device,
            gateway,
            device_session,
            gateway_session: None,
            wire: BTreeMap::new(),
            order: 0,
            uplinks: vec![now; count],
            queues: vec![VecDeque::new(); count],
            turns: vec![0.0; count],
            air: None,
            packet_times: run.points.iter().map(|point| Some(point.packet_time)).collect(),
            signals: vec![None; count],
            since: vec![now; count],
            joined: vec![true; count],
            steering: Steering::new(SteeringSettings::default()),
            steer_at: now,
            turn: Turn::default(),
            arrived: vec![0; count],
            before: vec![0; count],
            heard: vec![Timestamp::ZERO; count],
            received: 0,
            sent: 0,
            plain: Vec::new(),
            shares: Vec::new(),
            sharing: Vec::new(),
            contention: None,
            others: Duration::ZERO,
            others_before: Duration::ZERO,
            run,
        })
    }

    /// Packets of the download that arrive in each `interval` once it has settled, while this and that changes, by time.
    fn count<T>(
        &mut self,
        interval: Duration,
        changes: &[(Duration, T)],
        mut change: impl FnMut(&mut Self, &T),
    ) -> anyhow::Result<Vec<u64>> {
        let begin = self.now + self.run.settling + SEED_STEP * (self.run.seed % 16) as u32;
        self.advance(begin)?;
        let mut changes = changes.iter().peekable();
        let (mut arrived, mut end) = (Vec::new(), begin);
        while end < begin + self.run.measured {
            end += interval;
            let before = self.received;
            while let Some((at, what)) = changes.next_if(|(at, _)| begin + *at < end) {
                self.advance(begin + *at)?;
                change(self, what);
            }
            self.advance(end)?;
            arrived.push(self.received - before);
        }
        Ok(arrived)
    }

    fn change(&mut self, change: &Change) {
        let before = std::mem::replace(&mut self.packet_times[change.point], change.packet_time);
        if before.is_some() != change.packet_time.is_some() {
            self.since[change.point] = self.now;
        }
        self.signals[change.point] = change.signal_dbm;
    }

    /// What the radio finds out by itself: access points are gone, or joined again.
    fn follow_reach(&mut self) {
        // Who hands over is at one only.
        if self.single() == Some(Single::Beacons) {
            return;
        }
        for index in 0..self.joined.len() {
            let (network, passed) = (NetworkId(index as u32 + 1), self.now.since(self.since[index]));
            match (self.packet_times[index], self.joined[index]) {
                (None, true) if passed >= GONE_AFTER => self.device.network_down(self.now, network),
                (Some(_), false) if passed >= JOINED_AFTER => self.device.network_up(self.now, network),
                _ => continue,
            }
            self.joined[index] = !self.joined[index];
        }
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        for index in 0..self.run.points.len() {
            let path = PathConfig {
                address: device_address(index)?,
                mtu_limit: 1_472,
                status: PathStatus::Active,
                priority: 0,
            };
            self.device.add_path(self.now, self.device_session, path);
        }
        let end = self.now + MEETING;
        while self.now < end && self.gateway_session.is_none() {
            self.run_until(self.now + STEP)?;
        }
        anyhow::ensure!(self.gateway_session.is_some(), "the two ends did not come together");
        Ok(())
    }

    /// Offers more than fits until `end`.
    fn advance(&mut self, end: Timestamp) -> anyhow::Result<()> {
        while self.now < end {
            self.follow_reach();
            match self.single() {
                Some(turns @ (Single::TurnsByBackup | Single::TurnsByPowerSave)) => self.take_turn(turns),
                single if self.now >= self.steer_at => {
                    self.steer_at = self.now + STEERING;
                    match single {
                        Some(single) => self.hand_over(single),
                        None => self.steer(),
                    }
                }
                _ => {}
            }
            if let Some(session) = self.gateway_session {
                for _ in 0..16 {
                    self.sent = self.sent.wrapping_add(1);
                    let packet = packet(self.sent);
                    if !self.gateway.handle_packet(self.now, session, &packet) {
                        break;
                    }
                }
            }
            self.run_until(self.now + STEP)?;
        }
        Ok(())
    }

    fn run_until(&mut self, end: Timestamp) -> anyhow::Result<()> {
        self.pump()?;
        loop {
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let air = self.air.map(|(_, ends)| ends);
            let plain = self.plain.iter().filter_map(Plain::poll_timeout).min();
            let contention = self.contention.as_ref().and_then(Contention::poll_timeout);
            let bond = [self.device.poll_timeout(), self.gateway.poll_timeout()];
            let timers = bond.into_iter().chain([arrival, air, plain, contention]);
            let next = timers.flatten().min().unwrap_or(end);
            if next > end {
                self.now = end;
                return Ok(());
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                match entry.remove() {
                    Carried::Down(index, waiting) if self.queues[index].len() < QUEUE => {
                        self.queues[index].push_back(waiting);
                        self.take_turns();
                    }
                    Carried::Down(..) => {}
                    Carried::Up(index, mut bytes) => {
                        let remote = SocketAddr::from(([198, 51, 100, index as u8], 4_000));
                        let from = Address { network: NetworkId(0), carrier: Carrier::Udp, remote };
                        self.gateway.handle_datagram(self.now, from, Ecn::Ect0, &mut bytes);
                    }
                    Carried::PlainUp(client, bytes) => self.plain[client].handle_up(self.now, &bytes),
                }
            }
            if let Some((index, _)) = self.air.filter(|(_, ends)| *ends <= self.now) {
                self.air = None;
                match self.queues[index].pop_front() {
                    Some(Waiting { plain: Some(client), bytes }) => {
                        self.shares[client] += bytes.len() as f64 / FULL;
                        self.plain[client].handle_down(self.now, &bytes);
                    }
                    Some(Waiting { plain: None, bytes }) if self.packet_times[index].is_some() => {
                        self.arrive(index, bytes)?;
                    }
                    _ => {}
                }
                self.take_turns();
            }
            if let Some(contention) = &mut self.contention {
                for (index, bytes) in contention.handle_timeout(self.now) {
                    self.arrive(index, bytes)?;
                }
                self.take_turns();
            }
            self.device.handle_timeout(self.now);
            self.gateway.handle_timeout(self.now);
            self.plain.iter_mut().for_each(|plain| plain.handle_timeout(self.now));
            self.pump()?;
        }
    }

    /// A packet of the tunnel is at the device.
    fn arrive(&mut self, index: usize, mut bytes: Vec<u8>) -> anyhow::Result<()> {
        self.arrived[index] += 1;
        self.heard[index] = self.now;
        self.device.handle_datagram(self.now, device_address(index)?, Ecn::Ect0, &mut bytes);
        Ok(())
    }

    /// The air is given to the access point whose turn is next (weighted fair queueing by virtual finish times).
    fn take_turns(&mut self) {
        if let Some(contention) = &mut self.contention {
            for (index, queue) in self.queues.iter_mut().enumerate() {
                while contention.has_room(index)
                    && let Some(waiting) = queue.pop_front()
                {
                    contention.send(self.now, index, &waiting.bytes);
                }
            }
            return;
        }
        if self.air.is_some() {
            return;
        }
        let waiting =
            (0..self.queues.len()).filter(|index| !self.queues[*index].is_empty() && self.is_awake(*index));
        let Some(next) = waiting.min_by(|a, b| self.turns[*a].total_cmp(&self.turns[*b])) else { return };
        let time = self.turns[next];
        // Who had nothing to send saves no turns up.
        self.turns.iter_mut().for_each(|turn| *turn = turn.max(time));
        let Some(waiting) = self.queues[next].front() else { return };
        let (packet_time, weight, size) = match waiting.plain {
            Some(client) => self.plain[client].on_air(waiting.bytes.len()),
            None => (self.packet_times[next], self.run.points[next].weight, waiting.bytes.len() + 28),
        };
        self.turns[next] = time + 1.0 / weight;
        let part = (size as f64 / FULL).clamp(0.25, 1.0);
        let is_plain = waiting.plain.is_some();
        let time = packet_time.map_or(IN_VAIN, |time| time.mul_f64(part));
        if is_plain {
            self.others += time;
        }
        self.air = Some((next, self.now + time));
    }

    fn pump(&mut self) -> anyhow::Result<()> {
        let mut buffer = Vec::new();
        let half = self.run.round_trip / 2;
        while let Some(event) = self.gateway.poll_event() {
            match event {
                EndpointEvent::Incoming { id, .. } => {
                    self.gateway.accept(self.now, id, b"welcome");
                }
                EndpointEvent::Connected { session, .. } => self.gateway_session = Some(session),
                _ => {}
            }
        }
        while self.device.poll_event().is_some() {}
        while let Some(transmit) = self.device.poll_transmit(self.now, &mut buffer, 16) {
            let index = transmit.address.network.0 as usize - 1;
            for datagram in buffer[..transmit.size].chunks(transmit.segment_size) {
                self.post(self.now + half, Carried::Up(index, datagram.to_vec()));
            }
        }
        while let Some(transmit) = self.gateway.poll_transmit(self.now, &mut buffer, 16) {
            let SocketAddr::V4(remote) = transmit.address.remote else { continue };
            let index = usize::from(remote.ip().octets()[3]);
            for datagram in buffer[..transmit.size].chunks(transmit.segment_size) {
                let apart = Duration::from_secs_f64(self.run.points[index].uplink.recip());
                let begin = self.uplinks[index].max(self.now);
                if begin.since(self.now) > apart * UPLINK_QUEUE as u32 {
                    continue;
                }
                self.uplinks[index] = begin + apart;
                let waiting = Waiting { plain: None, bytes: datagram.to_vec() };
                self.post(begin + apart + half, Carried::Down(index, waiting));
            }
        }
        for (client, plain) in self.plain.iter_mut().enumerate() {
            let (index, at) = (plain.point(), self.now + half);
            while let Some(bytes) = plain.poll_down(self.now) {
                let waiting = Waiting { plain: Some(client), bytes };
                self.order += 1;
                self.wire.insert((at, self.order), Carried::Down(index, waiting));
            }
            while let Some(bytes) = plain.poll_up(self.now) {
                self.order += 1;
                self.wire.insert((at, self.order), Carried::PlainUp(client, bytes));
            }
        }
        while self.gateway.poll_packet().is_some() {}
        while self.device.poll_packet().is_some() {
            self.received += 1;
        }
        Ok(())
    }

    fn post(&mut self, at: Timestamp, carried: Carried) {
        self.order += 1;
        self.wire.insert((at, self.order), carried);
    }

    /// What the device knows goes to the rule, and what that says to the bond. The packet times are the true ones, as how near estimates come to
    /// them is another experiment's matter, unless the air says otherwise.
    fn steer(&mut self) {
        if self.run.way == Way::Plain {
            return;
        }
        let reports = self.device.path_reports(self.device_session);
        let round_trip = |network| {
            let report = reports.iter().find(|report| report.network == network)?;
            report.base_rtt.or(report.smoothed_rtt)
        };
        let others = self.others.saturating_sub(std::mem::replace(&mut self.others_before, self.others));
        let views: Vec<PointView> = (0..self.run.points.len())
            .filter(|index| self.joined[*index])
            .map(|index| {
                let network = NetworkId(index as u32 + 1);
                let carried = self.arrived[index] - self.before[index];
                let heard = self.now.since(self.heard[index]) < WINDOW;
                let reckoned = self.contention.as_ref().and_then(|air| air.estimate(self.now, index));
                let (packet_time, confidence, delivered) = match reckoned {
                    Some(Some(estimate)) => (
                        estimate.packet_time,
                        estimate.packet_time_confidence(),
                        Some(estimate.delivery_ratio),
                    ),
                    Some(None) => (None, 0.0, None),
                    None => (self.packet_times[index].filter(|_| heard), 0.95, None),
                };
                PointView {
                    network,
                    access_point: point_address(index),
                    channel: CHANNEL,
                    packet_time,
                    confidence,
                    delivered,
                    signal_dbm: match &mut self.contention {
                        Some(air) => air.hear_beacon(self.now, index),
                        None => self.signals[index],
                    },
                    stays: true,
                    other_way: true,
                    carried: carried as f64 / STEERING.as_secs_f64(),
                    others: others.as_secs_f64() / STEERING.as_secs_f64(),
                    reaches: true,
                }
            })
            .collect();
        self.before.clone_from(&self.arrived);
        for (share, counted) in self.sharing.iter_mut().zip(&mut self.shares) {
            *share += (std::mem::take(counted) / STEERING.as_secs_f64() - *share) * SHARE_NEWS;
        }
        let sharers = self.plain.iter().zip(&self.sharing).map(|(plain, share)| Sharer {
            channel: CHANNEL,
            transmitter: point_address(plain.point()),
            packets: *share,
        });
        self.steering.hear(sharers);
        for steered in self.steering.update(self.now, &views) {
            let session = self.device_session;
            if let Way::Marks(form) = self.run.way {
                // As the paper: all are used, and what is far behind the best one is marked.
                let safe = |time| round_trip(steered.network).map(|trip| safe_marks(form, time, trip));
                let marks = steered.packet_time.filter(|_| steered.marks.part() > 0.0).and_then(safe);
                self.device.set_path_marks(session, steered.network, marks.unwrap_or(MarkShare::NONE));
            } else {
                let status = if steered.used { PathStatus::Active } else { PathStatus::Backup };
                self.device.set_path_status(session, steered.network, status, 0);
                if self.run.way == Way::Fitted {
                    let marks = steered.marks_for(round_trip(steered.network));
                    self.device.set_path_marks(session, steered.network, marks);
                } else {
                    self.device.set_path_limit(session, steered.network, steered.limit);
                    self.device.set_inward_limit(session, steered.network, steered.fair_limit);
                }
            }
        }
    }
}

fn device_address(index: usize) -> anyhow::Result<Address> {
    let remote: SocketAddr = "192.0.2.1:4600".parse().context("an address")?;
    Ok(Address { network: NetworkId(index as u32 + 1), carrier: Carrier::Udp, remote })
}

/// A packet of one TCP download.
fn packet(number: u32) -> Vec<u8> {
    let mut packet = vec![0; INNER];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(INNER as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = 6;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..24].copy_from_slice(&[0, 80, 1, 187]);
    packet[32..34].copy_from_slice(&[0x50, 0x10]);
    packet[40..44].copy_from_slice(&number.to_be_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times_us: &[u64]) -> Vec<Point> {
        let point = |us: &u64| Point { packet_time: Duration::from_micros(*us), weight: 1.0, uplink: 1e6 };
        times_us.iter().map(point).collect()
    }

    fn arrives(points: Vec<Point>, algorithm: Algorithm, way: Way) -> f64 {
        let round_trip = Duration::from_millis(25);
        let (settling, measured) = (Duration::from_secs(3), Duration::from_secs(4));
        SharedAir { points, round_trip, algorithm, way, settling, measured, changes: Vec::new(), seed: 1 }
            .run()
            .unwrap()
    }

    #[test]
    fn by_turns_each_access_point_has_its_part_of_the_time() {
        let alone = arrives(points(&[1_000]), Algorithm::Model, Way::Plain);
        // Half of the time at a third of the rate: (1 + 1 / 3) / 2.
        for turns in [Single::TurnsByBackup, Single::TurnsByPowerSave] {
            let both = arrives(points(&[1_000, 3_000]), Algorithm::Model, Way::Single(turns));
            assert!((0.4..0.75).contains(&(both / alone)), "{turns:?}: {both} of {alone}");
        }
        for best in [Single::Ideal, Single::Beacons] {
            let both = arrives(points(&[1_000, 3_000]), Algorithm::Model, Way::Single(best));
            assert!(both > 0.97 * alone, "{best:?}: {both} of {alone}");
        }
    }

    #[test]
    fn one_access_point_fills_the_air_and_a_poor_second_one_takes_it() {
        let alone = arrives(points(&[1_000]), Algorithm::Olia, Way::Plain);
        // What carries a packet of `INNER` bytes is 0.97 as long as a full one.
        assert!((800.0..1_030.0).contains(&alone), "{alone}");
        let both = arrives(points(&[1_000, 6_000]), Algorithm::Olia, Way::Plain);
        assert!(both < 0.6 * alone, "packet for packet: {both} of {alone}");
        let preferred = arrives(points(&[1_000, 6_000]), Algorithm::Model, Way::Preference);
        assert!(preferred > 0.9 * alone, "{preferred} of {alone}");
    }
}
