//! The load on a crowd: UDP packets between every client and a server behind the gateway, in one direction at a time, of as many
//! flows whether the crowd is one client or a thousand.

use super::members::Crowd;
use super::packet::{Damaged, PACKET, PAYLOAD, Pattern, Stamp};
use crate::bench::accounting::Usage;
use crate::netbed::{NetBed, SERVER_ADDRESS};
use crate::simbed::segment::{FlowAddresses, udp_payload};
use anyhow::{Context, ensure};
use linux::BindTo;
use linux::udp::{ReceiveBuffer, SendError, UdpPath};
use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;
use units::{BitRate, Bytes, Timestamp};

/// The server's port.
const PORT: u16 = 9_100;
/// The first flow's at its client; each has its own, so that the gateway's address translation need not choose others.
const FIRST_PORT: u16 = 10_000;
/// What is behind by more than this is not made up for: the source is as fast as it can be.
const ARREARS: Duration = Duration::from_millis(20);
/// The source looks at the clock this often.
const GRAIN: Duration = Duration::from_micros(250);
/// Before what is counted, so that windows have opened; and after it, for what is still on its way.
const LEAD: Duration = Duration::from_millis(700);
const DRAIN: Duration = Duration::from_millis(400);
/// Those who are not busy are looked after this often.
const LOOK_BESIDE: Duration = Duration::from_millis(5);
/// Between two greetings, which may be lost, and for all of them.
const GREETING_INTERVAL: Duration = Duration::from_millis(500);
const GREETING_PATIENCE: Duration = Duration::from_secs(60);
/// Packets after which whatever has arrived is looked at.
const MADE_AT_ONCE: usize = 128;
/// Datagrams of one send to one flow, and reads of the server's socket in a row.
const SEGMENTS: usize = 44;
const READS: usize = 8;

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the clients to the server.
    Up,
    /// From the server to the clients.
    Down,
}

/// How packets are offered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Which way.
    pub(super) direction: Direction,
    /// Of all clients together, inner packets with their headers.
    pub(super) rate: BitRate,
    /// Packets of a flow in a row, before it is the next one's turn.
    pub(super) burst: usize,
    /// How long is counted.
    pub(super) length: Duration,
}

/// What one run came to.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    /// How long was counted.
    pub(super) length: Duration,
    /// Bytes of inner packets that arrived meanwhile, for each flow.
    pub(super) delivered: Vec<u64>,
    /// Packets of the whole run that were offered, and those of them that arrived.
    pub(super) offered_packets: u64,
    /// See `offered_packets`.
    pub(super) arrived_packets: u64,
    /// Packets that came after a later one, or twice.
    pub(super) overtaken: u64,
    /// Sessions that clients began anew, since they heard nothing from the gateway.
    pub(super) began_anew: u64,
    /// What the gateway's processes used while it was counted.
    pub(super) gateway: Usage,
    /// What this process used.
    pub(super) generator: Usage,
}

/// A crowd with its server and what goes between them.
pub(super) struct Load {
    crowd: Crowd,
    far_end: FarEnd,
    pattern: Pattern,
    gateway: Vec<u32>,
    run: u32,
    looked_beside: Timestamp,
}

/// The server behind the gateway.
struct FarEnd {
    socket: UdpPath,
    /// Each flow as the server sees it, behind the gateway's address translation.
    peers: Vec<Option<SocketAddr>>,
    buffer: ReceiveBuffer,
    /// Datagrams of one flow that are about to be sent.
    outgoing: Vec<u8>,
}

/// What arrives, checked and counted.
struct Ledger {
    run: u32,
    counting: bool,
    next: Vec<u64>,
    delivered: Vec<u64>,
    arrived: u64,
    overtaken: u64,
    damaged: u64,
}

/// Which packets are to be made now.
struct Source {
    offer: Offer,
    started: Timestamp,
    /// Packets that were made or, being too late, left out.
    passed: u64,
    made: u64,
    turn: usize,
    numbers: Vec<u64>,
}

impl Carried {
    /// All flows together.
    pub(super) fn bytes(&self) -> u64 {
        self.delivered.iter().sum()
    }

    /// All flows together.
    pub(super) fn rate(&self) -> BitRate {
        BitRate::from_bytes_over(Bytes(self.bytes()), self.length)
    }

    /// Bytes of the flow that got least, and of the one that got most.
    pub(super) fn extremes(&self) -> [u64; 2] {
        let least = self.delivered.iter().copied().min().unwrap_or(0);
        [least, self.delivered.iter().copied().max().unwrap_or(0)]
    }

    /// Flows of which nothing arrived.
    pub(super) fn unserved(&self) -> usize {
        self.delivered.iter().filter(|bytes| **bytes == 0).count()
    }

    /// Part of the packets that were offered and never arrived.
    pub(super) fn loss(&self) -> f64 {
        1.0 - self.arrived_packets as f64 / self.offered_packets.max(1) as f64
    }
}

impl Load {
    /// Opens the server of a crowd, whose clients share `flows` evenly; `gateway` are the processes whose time is counted.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn start(bed: &NetBed, crowd: Crowd, flows: usize, gateway: Vec<u32>) -> anyhow::Result<Self> {
        let to = BindTo { interface: None, local: SocketAddr::from(([0, 0, 0, 0], PORT)), mark: None };
        let socket = bed.server.run(|| UdpPath::bind(&to))?.context("open the server's socket")?;
        crowd.watch(&socket)?;
        let far_end =
            FarEnd { socket, peers: vec![None; flows], buffer: ReceiveBuffer::new(), outgoing: Vec::new() };
        let pattern = Pattern::new();
        Ok(Self { crowd, far_end, pattern, gateway, run: 0, looked_beside: Timestamp::ZERO })
    }

    /// The server is greeted in every flow, so that the gateway's address translation knows the way back: it forgets what was silent for
    /// half a minute.
    fn greet(&mut self, beside: &mut Self) -> anyhow::Result<()> {
        self.far_end.peers.fill(None);
        let end = linux::clock::now() + GREETING_PATIENCE;
        let flows = self.far_end.peers.len();
        let mut ledger = Ledger::new(self.run, flows);
        for number in 0.. {
            let now = linux::clock::now();
            let strangers: Vec<usize> = (0..flows).filter(|flow| !self.far_end.knows(*flow)).collect();
            if strangers.is_empty() {
                return Ok(());
            }
            ensure!(now < end, "{} flows do not reach the server through the gateway", strangers.len());
            for flow in strangers {
                self.send_up(now, flow, number)?;
                self.crowd.settle(self.client(flow))?;
            }
            let again = now + GREETING_INTERVAL;
            while linux::clock::now() < again && !self.far_end.knows_all() {
                self.round(again, &mut ledger, beside)?;
            }
        }
        Ok(())
    }

    /// Keeps the clients connected for `length`.
    ///
    /// # Errors
    /// If a socket fails.
    pub(super) fn idle(&mut self, length: Duration) -> anyhow::Result<()> {
        self.crowd.idle(length)
    }

    /// Offers packets and counts what arrives; the clients of `beside` stay connected meanwhile.
    ///
    /// # Errors
    /// If a client does not reach the server, or a packet arrives damaged.
    pub(super) fn carry(&mut self, offer: Offer, beside: &mut Self) -> anyhow::Result<Carried> {
        self.greet(beside)?;
        self.run += 1;
        let start = linux::clock::now();
        let began_anew = self.crowd.began_anew();
        let flows = self.far_end.peers.len();
        let mut ledger = Ledger::new(self.run, flows);
        let mut source = Source::new(offer, start, flows);
        self.work(&mut source, &mut ledger, start + LEAD, beside)?;
        let (from, before) = (linux::clock::now(), self.usage()?);
        ledger.counting = true;
        self.work(&mut source, &mut ledger, from + offer.length, beside)?;
        ledger.counting = false;
        let (to, after) = (linux::clock::now(), self.usage()?);
        while linux::clock::now() < to + DRAIN {
            self.round(to + DRAIN, &mut ledger, beside)?;
        }
        ensure!(ledger.damaged == 0, "{} packets: {Damaged}", ledger.damaged);
        Ok(Carried {
            length: to.since(from),
            delivered: ledger.delivered,
            offered_packets: source.made,
            arrived_packets: ledger.arrived,
            overtaken: ledger.overtaken,
            began_anew: self.crowd.began_anew() - began_anew,
            gateway: after.0.since(before.0),
            generator: after.1.since(before.1),
        })
    }

    fn usage(&self) -> anyhow::Result<(Usage, Usage)> {
        Ok((Usage::of(&self.gateway)?, Usage::of(&[std::process::id()])?))
    }

    fn work(
        &mut self,
        source: &mut Source,
        ledger: &mut Ledger,
        end: Timestamp,
        beside: &mut Self,
    ) -> anyhow::Result<()> {
        loop {
            let now = linux::clock::now();
            if now >= end {
                return Ok(());
            }
            self.make(now, source)?;
            self.round(source.next_due(now).min(end), ledger, beside)?;
        }
    }

    /// Makes what is due, but not so much that clients and server wait for long. What follows each other for the same client, or of the
    /// same flow at the server, leaves together.
    fn make(&mut self, now: Timestamp, source: &mut Source) -> anyhow::Result<()> {
        let direction = source.offer.direction;
        let mut last = None;
        for _ in (0..MADE_AT_ONCE).step_by(source.offer.burst) {
            let Some(flow) = source.next_turn(now) else { break };
            if let Some(before) = last.filter(|before| !self.leave_together(direction, *before, flow)) {
                self.flush(direction, before)?;
            }
            last = Some(flow);
            for _ in 0..source.offer.burst {
                let number = source.next_number(flow);
                match direction {
                    Direction::Up => self.send_up(now, flow, number)?,
                    Direction::Down => self.send_down(flow, number)?,
                }
            }
        }
        last.map_or(Ok(()), |flow| self.flush(direction, flow))
    }

    fn leave_together(&self, direction: Direction, one: usize, other: usize) -> bool {
        match direction {
            Direction::Up => self.client(one) == self.client(other),
            Direction::Down => one == other,
        }
    }

    fn flush(&mut self, direction: Direction, flow: usize) -> anyhow::Result<()> {
        match direction {
            Direction::Up => self.crowd.settle(self.client(flow)),
            Direction::Down => self.far_end.flush(flow),
        }
    }

    /// Whose flow it is.
    fn client(&self, flow: usize) -> usize {
        flow % self.crowd.len().max(1)
    }

    fn stamp(&self, flow: usize, number: u64) -> Stamp {
        Stamp { run: self.run, flow: flow as u32, number }
    }

    fn send_up(&mut self, now: Timestamp, flow: usize, number: u64) -> anyhow::Result<()> {
        let client = self.client(flow);
        let own = self.crowd.address(client).context("a client has no address")?;
        let addresses = FlowAddresses {
            local: SocketAddrV4::new(own, FIRST_PORT + flow as u16),
            remote: SocketAddrV4::new(SERVER_ADDRESS, PORT),
        };
        let packet = self.pattern.packet(self.stamp(flow, number), addresses);
        // What its full queue refuses was offered, and does not arrive.
        self.crowd.offer(now, client, &packet);
        Ok(())
    }

    fn send_down(&mut self, flow: usize, number: u64) -> anyhow::Result<()> {
        self.pattern.put(self.stamp(flow, number), &mut self.far_end.outgoing);
        if self.far_end.outgoing.len() >= SEGMENTS * PAYLOAD {
            self.far_end.flush(flow)?;
        }
        Ok(())
    }

    fn round(&mut self, deadline: Timestamp, ledger: &mut Ledger, beside: &mut Self) -> anyhow::Result<()> {
        let now = linux::clock::now();
        if now >= self.looked_beside + LOOK_BESIDE {
            self.looked_beside = now;
            beside.idle(Duration::ZERO)?;
        }
        let Self { crowd, far_end, pattern, .. } = self;
        let clients = crowd.len().max(1);
        let can_read = crowd.round(deadline, &mut |client, packet| {
            ledger.enter_down(pattern, |flow| flow % clients == client, packet);
        })?;
        if can_read { far_end.receive(pattern, ledger) } else { Ok(()) }
    }
}

impl FarEnd {
    fn knows(&self, flow: usize) -> bool {
        self.peers.get(flow).is_some_and(Option::is_some)
    }

    fn knows_all(&self) -> bool {
        self.peers.iter().all(Option::is_some)
    }

    fn flush(&mut self, flow: usize) -> anyhow::Result<()> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let peer = self.peers.get(flow).copied().flatten().context("the server does not know a flow")?;
        let sent = self.socket.send(peer, None, 0, &self.outgoing, Some(PAYLOAD));
        self.outgoing.clear();
        match sent {
            Ok(()) | Err(SendError::WouldBlock) => Ok(()),
            Err(error) => Err(error).context("send as the server"),
        }
    }

    fn receive(&mut self, pattern: &Pattern, ledger: &mut Ledger) -> anyhow::Result<()> {
        for _ in 0..READS {
            let peers = &mut self.peers;
            let received = self.socket.receive(&mut self.buffer, &mut |datagram| {
                if let Some(flow) = ledger.enter(pattern, datagram.bytes)
                    && let Some(peer) = peers.get_mut(flow)
                {
                    *peer = Some(datagram.remote);
                }
            });
            match received {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(error) => return Err(error).context("receive as the server"),
            }
        }
        Ok(())
    }
}

impl Ledger {
    fn new(run: u32, flows: usize) -> Self {
        Self {
            run,
            counting: false,
            next: vec![0; flows],
            delivered: vec![0; flows],
            arrived: 0,
            overtaken: 0,
            damaged: 0,
        }
    }

    /// A packet came out of the tunnel of a client, whose flows are known by `is_own`.
    fn enter_down(&mut self, pattern: &Pattern, is_own: impl Fn(usize) -> bool, packet: &[u8]) {
        let of = udp_payload(packet).and_then(|payload| self.enter(pattern, payload));
        // Another client's packet, or none of the server's, is as bad as a damaged one.
        self.damaged += u64::from(!of.is_some_and(is_own));
    }

    /// A payload arrived; returns of which flow, unless it is damaged, which is counted.
    fn enter(&mut self, pattern: &Pattern, payload: &[u8]) -> Option<usize> {
        let stamp = match pattern.read(payload) {
            Ok(stamp) => stamp,
            Err(Damaged) => {
                self.damaged += 1;
                return None;
            }
        };
        let flow = stamp.flow as usize;
        if stamp.run == self.run {
            let next = self.next.get_mut(flow)?;
            if stamp.number < *next {
                self.overtaken += 1;
            }
            *next = (*next).max(stamp.number + 1);
            self.arrived += 1;
            if self.counting {
                *self.delivered.get_mut(flow)? += PACKET as u64;
            }
        }
        Some(flow)
    }
}

impl Source {
    fn new(offer: Offer, started: Timestamp, flows: usize) -> Self {
        Self { offer, started, passed: 0, made: 0, turn: 0, numbers: vec![0; flows] }
    }

    /// Whose turn it is, if a burst is due.
    fn next_turn(&mut self, now: Timestamp) -> Option<usize> {
        let packets = |time: Duration| self.offer.rate.bytes_in(time).0 / PACKET as u64;
        let due = packets(now.since(self.started));
        self.passed = self.passed.max(due.saturating_sub(packets(ARREARS)));
        if due < self.passed + self.offer.burst as u64 {
            return None;
        }
        self.passed += self.offer.burst as u64;
        self.made += self.offer.burst as u64;
        let turn = self.turn;
        self.turn = (turn + 1) % self.numbers.len().max(1);
        Some(turn)
    }

    /// When to look again: at once if more is due already.
    fn next_due(&self, now: Timestamp) -> Timestamp {
        let due = self.offer.rate.bytes_in(now.since(self.started)).0 / PACKET as u64;
        if due < self.passed + self.offer.burst as u64 { now + GRAIN } else { now }
    }

    fn next_number(&mut self, flow: usize) -> u64 {
        let Some(number) = self.numbers.get_mut(flow) else { return 0 };
        *number += 1;
        *number - 1
    }
}
