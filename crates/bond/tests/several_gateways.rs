//! A device that goes from one gateway to another: what waited goes along.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::net::SocketAddr;
use std::time::Duration;

use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, SessionConfig,
    SessionEvent, SessionId,
};
use policy::PathStatus;
use units::{NetworkId, Timestamp};
use wire::inner::Ecn;

/// A device and two gateways that are reached without delay, as long as they are there.
struct World {
    now: Timestamp,
    device: Endpoint,
    gateways: [Endpoint; 2],
    alive: [bool; 2],
    events: Vec<(SessionId, SessionEvent)>,
    /// What each gateway has received: the last byte of each packet.
    received: [Vec<u8>; 2],
}

fn endpoint(key: u8, accept: bool) -> Endpoint {
    let config = EndpointConfig {
        key: PrivateKey::new([key; 32]),
        session: SessionConfig::default(),
        accept,
        retry_above: 100,
        aes: false,
    };
    Endpoint::new(config, [key; 32]).unwrap()
}

fn remote(gateway: usize) -> SocketAddr {
    SocketAddr::new([203, 0, 113, gateway as u8].into(), 4_600)
}

fn packet(number: u8) -> Vec<u8> {
    let mut packet = vec![0; 60];
    (packet[0], packet[3], packet[8], packet[9]) = (0x45, 60, 64, 17);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[59] = number;
    packet
}

impl World {
    fn new() -> Self {
        Self {
            now: Timestamp::from_millis(1_000),
            device: endpoint(1, false),
            gateways: [endpoint(2, true), endpoint(3, true)],
            alive: [true; 2],
            events: Vec::new(),
            received: [Vec::new(), Vec::new()],
        }
    }

    fn connect(&mut self, gateway: usize) -> SessionId {
        let key = self.gateways[gateway].public_key();
        let session = self.device.connect(self.now, key, Vec::new(), gateway as u64 + 1).unwrap();
        let address = Address { network: NetworkId(0), carrier: Carrier::Udp, remote: remote(gateway) };
        let path = PathConfig { address, mtu_limit: 1_472, status: PathStatus::Active, priority: 0 };
        self.device.add_path(self.now, session, path);
        self.run(Duration::from_millis(20));
        session
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(1);
            self.device.handle_timeout(self.now);
            self.gateways.iter_mut().for_each(|gateway| gateway.handle_timeout(self.now));
            for _ in 0..4 {
                self.exchange();
            }
        }
    }

    fn exchange(&mut self) {
        let now = self.now;
        let mut buffer = Vec::new();
        let from = Address {
            network: NetworkId(0),
            carrier: Carrier::Udp,
            remote: SocketAddr::new([192, 0, 2, 1].into(), 4_000),
        };
        while let Some(transmit) = self.device.poll_transmit(now, &mut buffer, 1) {
            let Some(at) = (0..2).find(|at| remote(*at) == transmit.address.remote) else { continue };
            if self.alive[at] {
                self.gateways[at].handle_datagram(now, from, Ecn::NotEct, &mut buffer[..transmit.size]);
            }
        }
        for (at, gateway) in self.gateways.iter_mut().enumerate() {
            while let Some(event) = gateway.poll_event() {
                if let EndpointEvent::Incoming { id, .. } = event {
                    gateway.accept(now, id, b"welcome");
                }
            }
            while let Some((_, packet)) = gateway.poll_packet() {
                self.received[at].extend(packet.last());
            }
            while let Some(transmit) = gateway.poll_transmit(now, &mut buffer, 1) {
                let from = Address { network: NetworkId(0), carrier: Carrier::Udp, remote: remote(at) };
                if self.alive[at] {
                    self.device.handle_datagram(now, from, Ecn::NotEct, &mut buffer[..transmit.size]);
                }
            }
        }
        while let Some(event) = self.device.poll_event() {
            if let EndpointEvent::Session { session, event } = event {
                self.events.push((session, event));
            }
        }
    }

    fn has(&self, session: SessionId, wanted: &SessionEvent) -> bool {
        self.events.iter().any(|(of, event)| *of == session && event == wanted)
    }
}

#[test]
fn what_waits_for_a_dead_gateway_goes_by_another() {
    let mut world = World::new();
    let first = world.connect(0);
    assert!(world.device.handle_packet(world.now, first, &packet(1)));
    world.run(Duration::from_millis(50));
    assert_eq!(world.received[0], [1]);

    world.alive[0] = false;
    // Lost on its way.
    assert!(world.device.handle_packet(world.now, first, &packet(2)));
    world.run(Duration::from_millis(300));
    assert!(world.has(first, &SessionEvent::Stalled));
    // Not sent at all.
    assert!(world.device.handle_packet(world.now, first, &packet(3)));
    world.run(Duration::from_millis(20));
    let second = world.connect(1);
    world.device.hand_on(world.now, first, second);
    world.device.abandon(first);
    world.run(Duration::from_millis(50));
    let mut received = world.received[1].clone();
    received.sort_unstable();
    assert_eq!(received, [2, 3]);
}

#[test]
fn a_session_whose_connection_ends_is_stalled_at_once() {
    let mut world = World::new();
    let session = world.connect(0);
    world.device.path_lost(world.now, session, NetworkId(0));
    world.exchange();
    assert!(world.has(session, &SessionEvent::Stalled), "{:?}", world.events);
    world.device.network_up(world.now, NetworkId(0));
    world.run(Duration::from_millis(5));
    assert!(world.has(session, &SessionEvent::Resumed), "{:?}", world.events);
}

#[test]
fn a_gateway_that_lives_answers_at_once_when_it_is_asked_again() {
    let mut world = World::new();
    let session = world.connect(0);
    world.alive[0] = false;
    assert!(world.device.handle_packet(world.now, session, &packet(1)));
    // Long enough for probes to be rare.
    world.run(Duration::from_secs(3));
    assert!(world.has(session, &SessionEvent::Stalled));
    world.alive[0] = true;
    world.events.clear();
    world.device.ask_again(world.now, session);
    world.run(Duration::from_millis(3));
    let is_back = world.has(session, &SessionEvent::Resumed)
        || world.events.iter().any(|(_, event)| matches!(event, SessionEvent::PathUp(_)));
    assert!(is_back, "{:?}", world.events);
}
