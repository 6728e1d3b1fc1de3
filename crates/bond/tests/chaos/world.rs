//! A device and a gateway on those networks, and what must hold whatever happens.

use crate::network::{Flight, Networks, Towards, Weather};
use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, Scheduler,
    SessionConfig, SessionId,
};
use policy::{PathStatus, Treatment};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;
use units::{NetworkId, Timestamp};
use wire::inner::Ecn;

pub const NETWORKS: usize = 3;
/// More datagrams than this for one input means an endless loop.
const MOST_DATAGRAMS_AT_ONCE: usize = 20_000;
/// More timeouts than this at one time means that time stands still.
const MOST_TIMEOUTS_AT_ONCE: u32 = 2_000;
/// Bytes of IPv4 and TCP header in a test packet.
const HEADERS: usize = 40;

pub struct World {
    pub now: Timestamp,
    pub random: ChaCha8Rng,
    pub networks: Networks,
    pub device: Endpoint,
    pub gateway: Endpoint,
    pub device_session: SessionId,
    pub gateway_session: Option<SessionId>,
    pub digest: DefaultHasher,
    scheduler: Scheduler,
    treatment: Treatment,
    generation: u8,
    next_packet: u64,
    /// Hash of every packet under way, by its number.
    sent_up: HashMap<u64, u64>,
    sent_down: HashMap<u64, u64>,
    pub received: HashSet<u64>,
    /// Bytes from and to addresses that nobody is at.
    strangers: HashMap<SocketAddr, (u64, u64)>,
    refuse: bool,
    was_refused: bool,
}

/// The gateway can do AES; the device can or cannot, by turns.
fn endpoint(key: u8, accept: bool, seed: u8, scheduler: Scheduler, treatment: Treatment) -> Endpoint {
    let session = SessionConfig { scheduler, treatment, ..SessionConfig::default() };
    let aes = accept || seed.is_multiple_of(2);
    let config = EndpointConfig { key: PrivateKey::new([key; 32]), session, accept, retry_above: 20, aes };
    Endpoint::new(config, [seed; 32]).expect("a key")
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let schedulers =
            [Scheduler::default(), Scheduler::MinimumRtt, Scheduler::InverseRtt, Scheduler::Duplicated];
        let scheduler = schedulers[random.random_range(0..schedulers.len())];
        let treatments = [Treatment::Bonded, Treatment::Bonded, Treatment::Protected, Treatment::Duplicated];
        let treatment = treatments[random.random_range(0..treatments.len())];
        let now = Timestamp::from_millis(1_000);
        let gateway = endpoint(2, true, 2, scheduler, treatment);
        let mut device = endpoint(1, false, 1, scheduler, treatment);
        let device_session =
            device.connect(now, gateway.public_key(), b"hello".to_vec(), now.as_nanos()).expect("a key");
        let mut world = Self {
            now,
            random,
            networks: Networks::new(NETWORKS),
            device,
            gateway,
            device_session,
            gateway_session: None,
            digest: DefaultHasher::new(),
            scheduler,
            treatment,
            generation: 3,
            next_packet: 0,
            sent_up: HashMap::new(),
            sent_down: HashMap::new(),
            received: HashSet::new(),
            strangers: HashMap::new(),
            refuse: false,
            was_refused: false,
        };
        for network in 0..NETWORKS {
            world.add_path(network);
        }
        world
    }

    pub fn device_address(network: usize) -> Address {
        let remote = SocketAddr::from(([192, 0, 2, 1], 4_600));
        Address { network: NetworkId(network as u32 + 1), carrier: Carrier::Udp, remote }
    }

    pub fn gateway_address(remote: SocketAddr) -> Address {
        Address { network: NetworkId(0), carrier: Carrier::Udp, remote }
    }

    pub fn add_path(&mut self, network: usize) {
        let status = PathStatus::Active;
        let config =
            PathConfig { address: Self::device_address(network), mtu_limit: 1_472, status, priority: 0 };
        self.device.add_path(self.now, self.device_session, config);
        self.pump();
    }

    pub fn refuse(&mut self, refuse: bool) {
        self.refuse = refuse;
    }

    pub fn restart_gateway(&mut self) {
        self.generation += 1;
        self.gateway = endpoint(2, true, self.generation, self.scheduler, self.treatment);
        self.gateway_session = None;
    }

    pub fn restart_device(&mut self) {
        self.generation += 1;
        self.device = endpoint(1, false, self.generation, self.scheduler, self.treatment);
        self.connect();
    }

    pub fn connect(&mut self) {
        let key = self.gateway.public_key();
        let stamp = self.now.as_nanos();
        self.device_session = self.device.connect(self.now, key, b"hello".to_vec(), stamp).expect("a key");
        for network in 0..NETWORKS {
            self.add_path(network);
        }
    }

    /// Sends one packet of `len` bytes on one of a few flows; returns its number if it was taken.
    pub fn send(&mut self, towards: Towards, flow: u16, len: usize) -> Option<u64> {
        let number = self.next_packet;
        self.next_packet += 1;
        let packet = test_packet(number, flow, len.max(HEADERS + 8));
        let hash = hash_of(&packet);
        let taken = match towards {
            Towards::Gateway => {
                self.sent_up.insert(number, hash);
                self.device.handle_packet(self.now, self.device_session, &packet)
            }
            Towards::Device => {
                let session = self.gateway_session?;
                self.sent_down.insert(number, hash);
                self.gateway.handle_packet(self.now, session, &packet)
            }
        };
        self.pump();
        taken.then_some(number)
    }

    /// Gives a datagram to one end, as an attacker would.
    pub fn inject(&mut self, flight: &Flight) {
        let mut bytes = flight.bytes.clone();
        match flight.towards {
            Towards::Gateway => {
                if self.networks.network_of(flight.source).is_none() {
                    self.strangers.entry(flight.source).or_default().0 += bytes.len() as u64;
                }
                let from = Self::gateway_address(flight.source);
                self.gateway.handle_datagram(self.now, from, Ecn::Ect0, &mut bytes);
            }
            Towards::Device => {
                let from = Self::device_address(flight.network);
                self.device.handle_datagram(self.now, from, Ecn::Ect0, &mut bytes);
            }
        }
        self.pump();
    }

    /// Lets time pass with all that happens in it.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.pump();
        let mut timeouts = 0;
        loop {
            let timers =
                [self.device.poll_timeout(), self.gateway.poll_timeout(), self.networks.next_arrival()];
            let Some(next) = timers.into_iter().flatten().min().filter(|&next| next <= end) else {
                self.now = end;
                return;
            };
            timeouts = if next > self.now { 0 } else { timeouts + 1 };
            assert!(timeouts < MOST_TIMEOUTS_AT_ONCE, "time stands still: {timers:?} at {:?}", self.now);
            self.now = self.now.max(next);
            while let Some(flight) = self.networks.take_arrival(self.now) {
                self.inject(&flight);
            }
            self.device.handle_timeout(self.now);
            self.gateway.handle_timeout(self.now);
            self.pump();
        }
    }

    /// Time passes while both ends sleep: a suspended machine.
    pub fn sleep(&mut self, time: Duration) {
        self.now += time;
        while self.networks.take_arrival(self.now).is_some() {}
        self.device.handle_timeout(self.now);
        self.gateway.handle_timeout(self.now);
        self.pump();
    }

    /// Drains both ends, as their owners must after every call.
    pub fn pump(&mut self) {
        self.pump_events();
        self.pump_datagrams();
        self.pump_packets();
        self.pump_events();
    }

    fn pump_events(&mut self) {
        while let Some(event) = self.gateway.poll_event() {
            match event {
                EndpointEvent::Incoming { id, ref payload, .. } => {
                    assert_eq!(payload, b"hello");
                    if self.refuse {
                        self.gateway.refuse(id, b"no");
                    } else {
                        self.gateway.accept(self.now, id, b"welcome");
                    }
                }
                EndpointEvent::Connected { session, .. } => self.gateway_session = Some(session),
                EndpointEvent::Closed { session, .. } if self.gateway_session == Some(session) => {
                    self.gateway_session = None;
                }
                _ => {}
            }
        }
        let mut closed = false;
        while let Some(event) = self.device.poll_event() {
            match event {
                EndpointEvent::Connected { payload, .. } if payload == b"no" => {
                    self.device.close(self.device_session, 0);
                    self.was_refused = true;
                }
                EndpointEvent::Connected { payload, .. } => assert_eq!(payload, b"welcome"),
                EndpointEvent::Closed { session, .. } => closed |= session == self.device_session,
                _ => {}
            }
        }
        if closed {
            self.connect();
        }
    }

    fn pump_datagrams(&mut self) {
        let mut buffer = Vec::new();
        let mut count = 0;
        while let Some(transmit) = self.device.poll_transmit(self.now, &mut buffer, 16) {
            let network = transmit.address.network.0 as usize - 1;
            assert_eq!(transmit.address, Self::device_address(network), "sent to a place never asked for");
            let source = self.networks.public(network);
            for datagram in segments(&buffer, transmit.size, transmit.segment_size) {
                count += 1;
                self.digest.write(datagram);
                let flight = Flight { towards: Towards::Gateway, network, source, bytes: datagram.to_vec() };
                self.networks.carry(self.now, &mut self.random, flight);
            }
            assert!(count < MOST_DATAGRAMS_AT_ONCE, "the device sends without end");
        }
        while let Some(transmit) = self.gateway.poll_transmit(self.now, &mut buffer, 16) {
            let remote = transmit.address.remote;
            for datagram in segments(&buffer, transmit.size, transmit.segment_size) {
                count += 1;
                self.digest.write(datagram);
                let Some(network) = self.networks.network_of(remote) else {
                    self.note_sent_to_stranger(remote, datagram.len());
                    continue;
                };
                let flight =
                    Flight { towards: Towards::Device, network, source: remote, bytes: datagram.to_vec() };
                self.networks.carry(self.now, &mut self.random, flight);
            }
            assert!(count < MOST_DATAGRAMS_AT_ONCE, "the gateway sends without end");
        }
    }

    /// An address that only an attacker has used must not be sent more than three times what came from it.
    fn note_sent_to_stranger(&mut self, address: SocketAddr, bytes: usize) {
        if !is_victim(address) {
            // A NAT's old binding, which was validated.
            return;
        }
        let (from, to) = self.strangers.entry(address).or_default();
        *to += bytes as u64;
        assert!(*to <= 3 * *from, "{to} bytes sent to {address}, which sent {from}");
    }

    fn pump_packets(&mut self) {
        while let Some((_, packet)) = self.gateway.poll_packet() {
            self.check(Towards::Gateway, &packet);
        }
        while let Some((_, packet)) = self.device.poll_packet() {
            self.check(Towards::Device, &packet);
        }
    }

    /// What comes out went in at the other end, unchanged, and comes out once.
    fn check(&mut self, towards: Towards, packet: &[u8]) {
        let number = packet.get(HEADERS..HEADERS + 8).and_then(|bytes| bytes.try_into().ok());
        let number = u64::from_be_bytes(number.expect("a packet that was never sent"));
        let sent = if towards == Towards::Gateway { &self.sent_up } else { &self.sent_down };
        assert_eq!(
            sent.get(&number),
            Some(&hash_of(packet)),
            "packet {number} towards {towards:?} was changed"
        );
        assert!(self.received.insert(number), "packet {number} towards {towards:?} came out twice");
        number.hash(&mut self.digest);
    }

    /// An owner that was refused tries again some time.
    pub fn connect_if_refused(&mut self) {
        if std::mem::take(&mut self.was_refused) {
            self.connect();
        }
    }

    /// Everything works again: from now on packets must arrive.
    pub fn heal(&mut self) {
        self.refuse = false;
        self.connect_if_refused();
        for network in 0..NETWORKS {
            self.networks.weather[network] = Weather::FAIR;
            self.device.network_up(self.now, NetworkId(network as u32 + 1));
            self.add_path(network);
        }
        self.pump();
    }
}

/// The address of somebody who has nothing to do with it all.
pub fn victim(number: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, number], 9))
}

fn is_victim(address: SocketAddr) -> bool {
    address.port() == 9
}

fn segments(buffer: &[u8], size: usize, segment_size: usize) -> impl Iterator<Item = &[u8]> {
    assert!(size > 0 && size <= buffer.len() && segment_size > 0 && segment_size <= size);
    assert!(segment_size <= 1_472, "a datagram of {segment_size} bytes");
    buffer[..size].chunks(segment_size)
}

fn test_packet(number: u64, flow: u16, len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..len).map(|at| (at as u64 ^ number) as u8).collect();
    packet[..HEADERS].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = if flow.is_multiple_of(2) { 6 } else { 17 };
    packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
    packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
    packet[20..22].copy_from_slice(&(1_000 + flow).to_be_bytes());
    packet[22..24].copy_from_slice(&443u16.to_be_bytes());
    packet[32] = 0x50;
    packet[33] = 0x10;
    packet[HEADERS..HEADERS + 8].copy_from_slice(&number.to_be_bytes());
    packet
}

fn hash_of(packet: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    packet.hash(&mut hasher);
    hasher.finish()
}
