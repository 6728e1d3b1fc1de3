//! A DHCP client for one network of the radio (RFC 2131, by smoltcp), fed past the kernel: it works before the interface has an address.

mod arp;
mod memory;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use arrayvec::ArrayVec;
use linux::prefix::IpPrefix;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::dhcpv4;
use smoltcp::time::Instant;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame, HardwareAddress, IpCidr, Ipv4Cidr,
    Ipv4Packet, UdpPacket,
};
use units::{MacAddress, Timestamp};

use arp::{Answer, Question};
pub(super) use memory::LeaseMemory;

/// Frames that wait for the client.
const MOST_FRAMES: usize = 16;
/// Longest Ethernet frame.
const LONGEST: usize = 1_514;
/// Name servers that are taken.
const MOST_SERVERS: usize = 3;
/// A first answer comes within this, or the question is repeated: the way there is one radio link.
const ANSWER_TIME: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(500);
/// A lease whose server does not say for how long it is holds for so long (as the client takes it).
const USUAL_TIME: Duration = Duration::from_secs(120);
/// Between questions to routers, of which one may be lost on the air with its answer. The first one often is: the access point has just let us in.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1_000),
];
/// An address that we had is given up after so long if neither router nor server speaks for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Earlier leases whose routers are asked.
const MOST_CANDIDATES: usize = 4;
const ETHERNET_IPV4: [u8; 2] = [0x08, 0x00];
const UDP: u8 = 17;
const CLIENT_PORT: [u8; 2] = [0, 68];

/// What a network lent us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    /// Our address and its subnet.
    pub address: IpPrefix,
    /// The way out.
    pub gateway: Option<Ipv4Addr>,
    /// Its name servers.
    pub servers: ArrayVec<Ipv4Addr, MOST_SERVERS>,
}

/// A change of what is lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LeaseChange {
    /// This from now on.
    Lent(Lease),
    /// That of last time: its router is there.
    Again(Lease),
    /// Nothing any more.
    Ended,
}

impl LeaseChange {
    /// What people are told, where it is more than that there is an address.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Again(lease) => {
                Some(format!("has its address of last time, {}: its router is there", lease.address))
            }
            Self::Lent(_) | Self::Ended => None,
        }
    }
}

/// What may hold again in a network that we come back to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// As it was lent.
    pub lease: Lease,
    /// The hardware address of its gateway.
    pub router: MacAddress,
    /// When its time is over.
    pub ends: Timestamp,
}

/// What is worth remembering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Learnt {
    /// As it was lent just now.
    pub lease: Lease,
    /// The access point where we are, if known.
    pub point: Option<MacAddress>,
    /// The hardware address of its gateway.
    pub router: MacAddress,
    /// For how long.
    pub time: Duration,
}

/// The client of one network.
///
/// Coming back, the routers of earlier leases are asked whether they are there (RFC 4436 section 2.1): if one answers from the address that it had, its
/// lease holds at once, while the server is asked anew, which has the last word.
pub(super) struct LeaseClient {
    own: MacAddress,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    wire: Wire,
    /// The access point where we are.
    point: Option<MacAddress>,
    held: Option<Held>,
    candidates: Vec<Candidate>,
    /// When routers are asked next, and how often they were.
    questions: Option<(Timestamp, usize)>,
    /// The time that the server gave last, and whether that was just now.
    time: Duration,
    is_renewed: bool,
    /// What has come of a question, to be told.
    again: Option<Lease>,
    learnt: Option<Learnt>,
}

/// What our address rests on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    lease: Lease,
    /// The hardware address of its gateway, once known.
    router: Option<MacAddress>,
    ends: Timestamp,
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// The server lent it since we are here, and the client renews it.
    Server,
    /// Its router has answered.
    Router,
    /// Nobody yet: we had it before we came back, and give it up at this time.
    Nobody(Timestamp),
}

#[derive(Default)]
struct Wire {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

impl LeaseClient {
    /// Begins to ask as soon as it is polled. `seed`: random.
    pub fn new(now: Timestamp, address: MacAddress, seed: u64) -> Self {
        let mut wire = Wire::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(address.0)));
        config.random_seed = seed;
        let interface = Interface::new(config, &mut wire, instant(now));
        let mut socket = dhcpv4::Socket::new();
        let mut retries = dhcpv4::RetryConfig::default();
        retries.discover_timeout = ANSWER_TIME;
        retries.initial_request_timeout = ANSWER_TIME;
        socket.set_retry_config(retries);
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            own: address,
            interface,
            sockets,
            handle,
            wire,
            point: None,
            held: None,
            candidates: Vec::new(),
            questions: None,
            time: USUAL_TIME,
            is_renewed: false,
            again: None,
            learnt: None,
        }
    }

    /// We are at an access point, maybe not of the network that it was before: asks anew. `candidates`: what was lent before, the likeliest first.
    pub fn came_up(&mut self, now: Timestamp, point: Option<MacAddress>, candidates: Vec<Candidate>) {
        self.socket().reset();
        self.point = point;
        if let Some(held) = &mut self.held {
            let doubtful = candidates.iter().any(|one| one.lease == held.lease);
            // Where nobody can be asked, the server alone tells.
            let patience = if doubtful { PATIENCE } else { held.ends.since(now) };
            held.by = By::Nobody(now + patience);
        }
        self.candidates = candidates;
        self.candidates.truncate(MOST_CANDIDATES);
        self.questions = Some((now, 0));
        (self.again, self.learnt) = (None, None);
    }

    /// Whether a received Ethernet frame is for this client; the kernel may have it, too.
    pub fn wants(frame: &[u8]) -> bool {
        Self::is_from_server(frame) || arp::may_be_answer(frame)
    }

    /// Whether it is for this client rather than for the kernel.
    pub fn is_from_server(frame: &[u8]) -> bool {
        let Some([b'\x45'..=b'\x4f', ..]) = frame.get(14..34) else { return false };
        let start = 14 + usize::from(frame[14] & 15) * 4;
        frame.get(12..14) == Some(&ETHERNET_IPV4)
            && frame[23] == UDP
            && frame.get(start + 2..start + 4) == Some(&CLIENT_PORT)
    }

    /// Takes such a frame; more than a few that wait are dropped.
    pub fn receive(&mut self, frame: Vec<u8>) {
        if let Some(answer) = arp::answer(self.own, &frame) {
            self.handle_answer(&answer);
        } else if let Some(time) = lease_time(&frame) {
            (self.time, self.is_renewed) = (time, true);
        }
        if self.wire.received.len() < MOST_FRAMES {
            self.wire.received.push_back(frame);
        }
    }

    fn handle_answer(&mut self, answer: &Answer) {
        let is_answered = |lease: &Lease, router| {
            question(lease, router).is_some_and(|question| question.is_answered_by(answer))
        };
        match &mut self.held {
            // Settled: all that is asked for is who the gateway is.
            Some(held) if held.by == By::Server => {
                if held.router.is_none() && is_answered(&held.lease, None) {
                    held.router = Some(answer.whose);
                    self.learn();
                }
            }
            Some(Held { by: By::Router, .. }) => {}
            _ => {
                let found =
                    self.candidates.iter().find(|one| is_answered(&one.lease, Some(one.router))).cloned();
                let Some(found) = found else { return };
                self.again = Some(found.lease.clone());
                self.held = Some(Held {
                    lease: found.lease,
                    router: Some(found.router),
                    ends: found.ends,
                    by: By::Router,
                });
            }
        }
    }

    /// Notes what the server lent for its whole time from now.
    fn learn(&mut self) {
        let held = self.held.as_ref().filter(|held| held.by == By::Server);
        if let Some(Held { lease, router: Some(router), .. }) = held {
            let (lease, point) = (lease.clone(), self.point);
            self.learnt = Some(Learnt { lease, point, router: *router, time: self.time });
        }
    }

    /// Works; gives what changed, if anything did.
    pub fn poll(&mut self, now: Timestamp) -> Option<LeaseChange> {
        self.ask_routers(now);
        self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
        let event = self.sockets.get_mut::<dhcpv4::Socket<'_>>(self.handle).poll();
        let lent = event.map(|event| match event {
            dhcpv4::Event::Configured(config) => Some((
                config.address,
                config.router,
                config.dns_servers.iter().copied().take(MOST_SERVERS).collect(),
            )),
            dhcpv4::Event::Deconfigured => None,
        });
        match lent {
            Some(Some((own, gateway, servers))) => {
                let address = IpPrefix::new(IpAddr::V4(own.address()), own.prefix_len()).ok()?;
                return Some(self.settle(now, own, Lease { address, gateway, servers }));
            }
            Some(None) if self.is_settled() => {
                self.held = None;
                return Some(LeaseChange::Ended);
            }
            Some(None) | None => {}
        }
        // The client does not tell of a renewal that changes nothing.
        if std::mem::take(&mut self.is_renewed) && self.is_settled() {
            if let Some(held) = &mut self.held {
                held.ends = now + self.time;
            }
            self.learn();
        }
        let over = match self.held.as_ref()? {
            Held { by: By::Server, .. } => false,
            Held { by: By::Router, ends, .. } => now >= *ends,
            Held { by: By::Nobody(until), ends, .. } => now >= *until.min(ends),
        };
        if over {
            (self.held, self.again) = (None, None);
            return Some(LeaseChange::Ended);
        }
        self.again.take().map(LeaseChange::Again)
    }

    /// The server has lent this.
    fn settle(&mut self, now: Timestamp, own: Ipv4Cidr, lease: Lease) -> LeaseChange {
        // By it the client renews; the kernel's own is another matter.
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            let _there_is_room_for_one = addresses.push(IpCidr::Ipv4(own));
        });
        let before = self.held.take().filter(|held| held.by == By::Router && held.lease == lease);
        let router = before.and_then(|held| held.router);
        self.again = None;
        self.held = Some(Held { lease: lease.clone(), router, ends: now + self.time, by: By::Server });
        self.candidates.clear();
        self.is_renewed = false;
        self.questions = router.is_none().then_some((now, 0));
        self.learn();
        LeaseChange::Lent(lease)
    }

    /// Asks the routers of all candidates, or who the gateway is, if it is time.
    fn ask_routers(&mut self, now: Timestamp) {
        let Some((due, asked)) = self.questions.filter(|(due, _)| *due <= now) else { return };
        let questions: Vec<Question> = match &self.held {
            Some(Held { by: By::Server, router: None, lease, .. }) => {
                question(lease, None).into_iter().collect()
            }
            Some(Held { by: By::Server | By::Router, .. }) => Vec::new(),
            _ => self.candidates.iter().filter_map(|one| question(&one.lease, Some(one.router))).collect(),
        };
        self.questions =
            PAUSES.get(asked).filter(|_| !questions.is_empty()).map(|pause| (due + *pause, asked + 1));
        for question in questions {
            if self.wire.sent.len() < MOST_FRAMES {
                self.wire.sent.push_back(question.frame(self.own));
            }
        }
    }

    /// Whether the server has lent what holds since we are here.
    pub fn is_settled(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.by == By::Server)
    }

    /// What is worth remembering, once.
    pub fn learnt(&mut self) -> Option<Learnt> {
        self.learnt.take()
    }

    /// A frame to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.wire.sent.pop_front()
    }

    /// When to poll again.
    pub fn timeout(&mut self, now: Timestamp) -> Option<Timestamp> {
        let delay = self.interface.poll_delay(instant(now), &self.sockets);
        let client = delay.map(|delay| now + Duration::from_micros(delay.total_micros()));
        let questions = self.questions.map(|(due, _)| due);
        let end = self.held.as_ref().and_then(|held| match held.by {
            By::Server => None,
            By::Router => Some(held.ends),
            By::Nobody(until) => Some(until.min(held.ends)),
        });
        client.into_iter().chain(questions).chain(end).min()
    }

    fn socket(&mut self) -> &mut dhcpv4::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }
}

/// What is asked about a lease's gateway; `router`: its hardware address, if known.
fn question(lease: &Lease, router: Option<MacAddress>) -> Option<Question> {
    let IpAddr::V4(from) = lease.address.address() else { return None };
    Some(Question { from, about: lease.gateway?, whom: router })
}

/// For how long a server lends, if this is its word (RFC 2131 section 4.3.1).
fn lease_time(frame: &[u8]) -> Option<Duration> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    let udp = UdpPacket::new_checked(ip.payload()).ok()?;
    let message = DhcpPacket::new_checked(udp.payload()).ok()?;
    let message = DhcpRepr::parse(&message).ok()?;
    let seconds = message.lease_duration.filter(|_| message.message_type == DhcpMessageType::Ack)?;
    Some(Duration::from_secs(seconds.into()))
}

fn instant(now: Timestamp) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Departing<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Departing<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Arrived(frame), Departing(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Departing<'_>> {
        (self.sent.len() < MOST_FRAMES).then_some(Departing(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = LONGEST;
        capabilities
    }
}

struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

struct Departing<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Departing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        self.0.push_back(frame);
        result
    }
}

#[cfg(test)]
mod tests;
