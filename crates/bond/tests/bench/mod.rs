//! Two endpoints, simple links, virtual time.

use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, Remains,
    SessionConfig, SessionId,
};
use policy::PathStatus;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use units::{NetworkId, Timestamp};
use wire::inner::Ecn;

/// What becomes of a packet's ECN field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnTheWay {
    Kept,
    /// Every tenth packet gets CE.
    SomeMarked,
    /// Every packet gets CE, also those that cannot be marked.
    AllMarked,
    Cleared,
}

#[derive(Clone, Copy)]
pub struct LinkSpec {
    mbps: f64,
    delay: Duration,
    loss: f64,
    mtu: usize,
    ecn: OnTheWay,
    queue: Duration,
}

impl LinkSpec {
    pub fn new(mbps: f64, delay_ms: u64) -> Self {
        let delay = Duration::from_millis(delay_ms);
        Self { mbps, delay, loss: 0.0, mtu: 1_472, ecn: OnTheWay::Kept, queue: QUEUE }
    }

    /// What has to wait longer than this is lost.
    pub fn queue(self, queue: Duration) -> Self {
        Self { queue, ..self }
    }

    /// Largest UDP payload that gets through.
    pub fn mtu(self, mtu: usize) -> Self {
        Self { mtu, ..self }
    }

    pub fn ecn(self, ecn: OnTheWay) -> Self {
        Self { ecn, ..self }
    }

    pub fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }
}

struct Link {
    spec: LinkSpec,
    alive: bool,
    delay_down: Duration,
    /// When the last bit of what is queued leaves: up, down.
    busy_until: [Timestamp; 2],
    port: u16,
}

const QUEUE: Duration = Duration::from_millis(100);

pub struct Bench {
    pub now: Timestamp,
    pub device: Endpoint,
    pub gateway: Endpoint,
    pub device_session: SessionId,
    pub gateway_session: Option<SessionId>,
    links: Vec<Link>,
    wire: BTreeMap<(Timestamp, u64), (usize, usize, Vec<u8>)>,
    next: u64,
    random: ChaCha8Rng,
    pub received_up: Vec<u16>,
    pub received_down: Vec<u16>,
    last_down: Timestamp,
    pub longest_gap_down: Duration,
    sent_down: u32,
    dropped_down: u32,
    pub connected_events: u32,
    pub gateway_events: Vec<EndpointEvent>,
    pub digest: u64,
    /// How often something arrived or a timer of one end ran out.
    pub steps: u64,
    config: SessionConfig,
    /// Sessions carry streams, and a new one goes on with those of the last.
    pub streams: bool,
    pub device_events: Vec<EndpointEvent>,
    /// Of the session that the device has closed.
    pub gateway_remains: Option<Remains>,
}

fn endpoint(key: u8, accept: bool, seed: u8, session: SessionConfig) -> Endpoint {
    let config =
        EndpointConfig { key: PrivateKey::new([key; 32]), session, accept, retry_above: 100, aes: false };
    Endpoint::new(config, [seed; 32]).unwrap()
}

fn packet(index: u16, len: usize, port: u16) -> Vec<u8> {
    let mut packet = vec![0u8; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
    packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&443u16.to_be_bytes());
    packet[32] = 0x50;
    packet[33] = 0x10;
    packet[40..42].copy_from_slice(&index.to_be_bytes());
    packet
}

impl Bench {
    pub fn new(specs: &[LinkSpec]) -> Self {
        Self::with(specs, SessionConfig::default())
    }

    pub fn with(specs: &[LinkSpec], config: SessionConfig) -> Self {
        let mut device = endpoint(1, false, 1, config);
        let gateway = endpoint(2, true, 2, config);
        let now = Timestamp::from_millis(1_000);
        let device_session = device.connect(now, gateway.public_key(), b"hello".to_vec(), 1).unwrap();
        let links = specs.iter().enumerate().map(|(index, &spec)| Link {
            spec,
            alive: true,
            delay_down: Duration::ZERO,
            busy_until: [now; 2],
            port: 4_000 + index as u16,
        });
        Self {
            now,
            device,
            gateway,
            device_session,
            gateway_session: None,
            links: links.collect(),
            wire: BTreeMap::new(),
            next: 0,
            random: ChaCha8Rng::seed_from_u64(5),
            received_up: Vec::new(),
            received_down: Vec::new(),
            last_down: now,
            longest_gap_down: Duration::ZERO,
            sent_down: 0,
            dropped_down: 0,
            connected_events: 0,
            gateway_events: Vec::new(),
            digest: 0,
            steps: 0,
            config,
            streams: false,
            device_events: Vec::new(),
            gateway_remains: None,
        }
    }

    pub fn connect(&mut self) {
        for index in 0..self.links.len() {
            self.connect_again(index);
        }
    }

    /// Gives a path up, if there is one, and opens another by the same link.
    pub fn connect_again(&mut self, index: usize) {
        let address = self.device_address(index);
        let config = PathConfig { address, mtu_limit: 1_472, status: PathStatus::Active, priority: 0 };
        self.device.add_path(self.now, self.device_session, config);
    }

    fn device_address(&self, index: usize) -> Address {
        let remote: SocketAddr = "192.0.2.1:4600".parse().unwrap();
        Address { network: NetworkId(index as u32 + 1), carrier: Carrier::Udp, remote }
    }

    pub fn set_alive(&mut self, index: usize, alive: bool) {
        self.links[index].alive = alive;
    }

    /// From now on packets down take so much longer on the link, as behind somebody else's queue.
    pub fn delay_down(&mut self, index: usize, delay: Duration) {
        self.links[index].delay_down = delay;
    }

    /// From now on the link carries so much.
    pub fn set_rate(&mut self, index: usize, mbps: f64) {
        self.links[index].spec.mbps = mbps;
    }

    /// The link ends, with all that travels on it.
    pub fn unplug(&mut self, index: usize) {
        self.set_alive(index, false);
        self.wire.retain(|_, (_, link, _)| *link != index);
    }

    pub fn rebind(&mut self, index: usize, port: u16) {
        self.links[index].port = port;
    }

    pub fn restart_gateway(&mut self) {
        self.gateway = endpoint(2, true, 9, self.config);
        self.gateway_session = None;
    }

    pub fn send_up(&mut self, index: u16, len: usize) {
        self.device.handle_packet(self.now, self.device_session, &packet(index, len, 1));
        self.pump();
    }

    pub fn send_down(&mut self, index: u16, len: usize) -> bool {
        let Some(session) = self.gateway_session else { return false };
        let queued = self.gateway.handle_packet(self.now, session, &packet(index, len, 2));
        self.pump();
        queued
    }

    /// Whether the gateway finds that next to nothing gets through a link.
    pub fn trickles(&self, link: usize) -> bool {
        self.gateway.path_reports(self.gateway_session.unwrap())[link].trickles
    }

    /// Both ends' figures, for messages of failed tests.
    pub fn report(&self) -> String {
        let gateway = self.gateway_session.unwrap();
        let mut text = format!(
            "{:?}\n{:?}\n",
            self.gateway.session_counters(gateway),
            self.device.session_counters(self.device_session)
        );
        for path in self.gateway.path_reports(gateway) {
            text += &format!(
                "{} {:?} rtt {:?} base {:?} rate {:?} window {} in flight {} loss {:.4} extra {:?} {:?}\n",
                path.path,
                path.state,
                path.smoothed_rtt,
                path.base_rtt,
                path.rate,
                path.window.0,
                path.in_flight.0,
                path.loss_rate,
                path.extra_delay,
                path.counters
            );
        }
        text
    }

    /// Packets that were queued and neither arrived nor wait.
    pub fn missing_down(&mut self) -> u32 {
        self.run(Duration::from_secs(1));
        (self.sent_down - self.dropped_down).saturating_sub(self.received_down.len() as u32)
    }

    /// Offers a little more than fits for some time; returns what arrived in Mbit/s of outer payload.
    pub fn saturate_down(&mut self, time: Duration) -> f64 {
        let end = self.now + time;
        let start = self.received_down.len();
        self.last_down = self.now;
        self.longest_gap_down = Duration::ZERO;
        while self.now < end {
            for _ in 0..8 {
                let index = self.sent_down as u16;
                self.sent_down += 1;
                if !self.send_down(index, 1_440) {
                    // A full queue: the number is offered again later.
                    self.sent_down -= 1;
                    break;
                }
            }
            self.run(Duration::from_millis(1));
        }
        let arrived = self.received_down.len() - start;
        arrived as f64 * 1_500.0 * 8.0 / time.as_secs_f64() / 1e6
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.pump();
        let mut steps = 0u32;
        loop {
            steps += 1;
            assert!(steps < 100_000, "time stands still at {:?}: {:?}", self.now, self.device.poll_timeout());
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let timers = [self.device.poll_timeout(), self.gateway.poll_timeout(), arrival];
            let Some(next) = timers.into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        self.steps += 1;
        while let Some((&(at, id), _)) = self.wire.iter().next() {
            if at > self.now {
                break;
            }
            let Some((direction, index, mut bytes)) = self.wire.remove(&(at, id)) else { break };
            self.arrive(direction, index, &mut bytes);
        }
        self.device.handle_timeout(self.now);
        self.gateway.handle_timeout(self.now);
        self.pump();
    }

    fn arrive(&mut self, direction: usize, index: usize, bytes: &mut [u8]) {
        for byte in bytes.iter() {
            self.digest = self.digest.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte);
        }
        let ecn = match self.links[index].spec.ecn {
            OnTheWay::AllMarked => Ecn::Ce,
            OnTheWay::SomeMarked if self.next.is_multiple_of(10) => Ecn::Ce,
            OnTheWay::Kept | OnTheWay::SomeMarked => Ecn::Ect0,
            OnTheWay::Cleared => Ecn::NotEct,
        };
        if direction == 0 {
            let remote = SocketAddr::from(([198, 51, 100, index as u8], self.links[index].port));
            let from = Address { network: NetworkId(0), carrier: Carrier::Udp, remote };
            self.gateway.handle_datagram(self.now, from, ecn, bytes);
        } else {
            let from = self.device_address(index);
            self.device.handle_datagram(self.now, from, ecn, bytes);
        }
    }

    fn pump(&mut self) {
        let mut buffer = Vec::new();
        while let Some(event) = self.gateway.poll_event() {
            match event {
                EndpointEvent::Incoming { id, .. } if self.streams => {
                    let continues = self.gateway_session;
                    self.gateway.accept_beside(self.now, id, b"welcome", continues);
                }
                EndpointEvent::Incoming { id, .. } => {
                    self.gateway.accept(self.now, id, b"welcome");
                }
                EndpointEvent::Connected { session, .. } => self.gateway_session = Some(session),
                EndpointEvent::Closed { session, .. } if self.gateway_session == Some(session) => {
                    self.gateway_remains = self.gateway.take_remains(session);
                }
                _ => {}
            }
            self.gateway_events.push(event);
        }
        while let Some(event) = self.device.poll_event() {
            if let EndpointEvent::Connected { session, payload, .. } = &event {
                assert_eq!(payload, b"welcome");
                self.connected_events += 1;
                self.device.continue_streams(self.now, *session, true);
            }
            self.device_events.push(event);
        }
        while let Some(transmit) = self.device.poll_transmit(self.now, &mut buffer, 16) {
            let index = transmit.address.network.0 as usize - 1;
            for datagram in buffer[..transmit.size].chunks(transmit.segment_size) {
                self.carry(0, index, datagram);
            }
        }
        while let Some(transmit) = self.gateway.poll_transmit(self.now, &mut buffer, 16) {
            let SocketAddr::V4(remote) = transmit.address.remote else { continue };
            let index = usize::from(remote.ip().octets()[3]);
            if self.links[index].port != remote.port() {
                continue;
            }
            for datagram in buffer[..transmit.size].chunks(transmit.segment_size) {
                self.carry(1, index, datagram);
            }
        }
        while let Some((_, packet)) = self.gateway.poll_packet() {
            self.received_up.push(u16::from_be_bytes([packet[40], packet[41]]));
        }
        while let Some((_, packet)) = self.device.poll_packet() {
            let number = u16::from_be_bytes([packet[40], packet[41]]);
            self.received_down.push(number);
            self.longest_gap_down = self.longest_gap_down.max(self.now.since(self.last_down));
            self.last_down = self.now;
        }
    }

    fn carry(&mut self, direction: usize, index: usize, datagram: &[u8]) {
        let link = &mut self.links[index];
        let spec = link.spec;
        let wire_bytes = (datagram.len() + 28) as f64;
        let serial = Duration::from_secs_f64(wire_bytes * 8.0 / (spec.mbps * 1e6));
        let start = link.busy_until[direction].max(self.now);
        let too_large = datagram.len() > spec.mtu;
        if !link.alive
            || too_large
            || start.since(self.now) > spec.queue
            || self.random.random_bool(spec.loss)
        {
            return;
        }
        link.busy_until[direction] = start + serial;
        let delay_down = if direction == 1 { link.delay_down } else { Duration::ZERO };
        let at = link.busy_until[direction] + spec.delay + delay_down;
        self.next += 1;
        self.wire.insert((at, self.next), (direction, index, datagram.to_vec()));
    }
}
