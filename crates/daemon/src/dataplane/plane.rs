//! One thread's packet mover: TUN, carriers and endpoint, and the order in which they are served.

use std::io;
use std::time::Duration;

use bond::{Address, Endpoint, EndpointEvent, SessionId};
use linux::clock;
use linux::poll::{Interest, Poller, Ready, Token, Waker};
use linux::tun::Tun;
use policy::Treatment;
use tracing::debug;
use units::Timestamp;
use wire::inner::{Ecn, FlowKey, Headers};
use wire::request::Request;

use super::gathering::Gathering;
use super::{Carriers, MovedConnection, SendFailure, on_the_wire, unreachable};

/// What one round of the loop may do before it looks at everything else again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Reads from any0; each is up to 64 KiB.
    pub tun_reads: usize,
    /// Reads from each socket; each is up to eight times 64 KiB.
    pub socket_reads: usize,
    /// Sends after each read.
    pub sends: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { tun_reads: 32, socket_reads: 4, sends: 1_024 }
    }
}

/// What went through, and what was dropped here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlaneCounters {
    /// Bytes of packets taken from any0.
    pub from_interface: u64,
    /// Bytes of packets given to any0.
    pub to_interface: u64,
    /// Packets from any0 that no session took.
    pub not_taken: u64,
    /// Packets for any0 that the owner did not let through.
    pub not_allowed: u64,
    /// Datagrams that did not leave.
    pub unsent: u64,
}

/// The parts that move packets.
pub struct Plane {
    /// Where everything is waited for.
    pub poller: Poller,
    /// any0.
    pub tun: Tun,
    /// The sockets.
    pub carriers: Carriers,
    /// The sessions.
    pub endpoint: Endpoint,
    /// Sums since the start.
    pub counters: PlaneCounters,
    budget: Budget,
    ready: Vec<Ready>,
    transmit: Vec<u8>,
    delivered: Vec<Vec<u8>>,
    /// How long those wait; `None` if they do not.
    gathering: Option<Gathering>,
    waits_until: Option<Timestamp>,
    answers: Vec<Vec<u8>>,
    has_more: bool,
}

/// What becomes of a packet from any0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes to the other end of this session.
    Send(SessionId),
    /// The same, and its flow is carried so from now on, in both directions.
    Treat(SessionId, Treatment),
    /// It is dropped without a word.
    Drop,
    /// It is dropped, and its sender is told that there is no way.
    Unreachable,
}

/// Carries a flow so, and asks the other end to do the same.
fn treat(endpoint: &mut Endpoint, session: SessionId, flow: FlowKey, treatment: Treatment) {
    endpoint.treat(session, flow, treatment);
    let request = Request::TreatFlow { flow, treatment: on_the_wire(treatment) };
    if let Err(error) = endpoint.send_message(session, request.encode()) {
        debug!("the other end carries a flow as all others: {error}");
    }
}

/// Does with a packet from any0 what its owner says; whether it is on its way.
fn carry(
    endpoint: &mut Endpoint,
    owner: &mut impl Owner,
    answers: &mut Vec<Vec<u8>>,
    now: Timestamp,
    headers: &Headers,
    packet: &[u8],
) -> bool {
    match owner.judge(headers, packet) {
        Verdict::Send(session) => endpoint.handle_parsed_packet(now, session, headers, packet),
        Verdict::Treat(session, treatment) => {
            treat(endpoint, session, headers.key, treatment);
            endpoint.handle_parsed_packet(now, session, headers, packet)
        }
        Verdict::Unreachable => {
            if answers.len() < MAXIMUM_ANSWERS {
                answers.extend(unreachable::answer(packet));
            }
            false
        }
        Verdict::Drop => false,
    }
}

/// What the owner decides about packets.
pub trait Owner {
    /// What becomes of a packet from any0.
    fn judge(&mut self, headers: &Headers, packet: &[u8]) -> Verdict;

    /// Whether a packet from any0 has gone another way; then it is not judged.
    fn takes(&mut self, _headers: &Headers, _packet: &[u8]) -> bool {
        false
    }

    /// Whether a packet that came by `session` may go to any0.
    fn allows(&mut self, session: SessionId, packet: &[u8]) -> bool;
}

impl Plane {
    /// Puts the parts together; `waker` interrupts [`Plane::wait`].
    ///
    /// # Errors
    /// If the interface cannot be watched.
    pub fn new(
        poller: Poller,
        tun: Tun,
        carriers: Carriers,
        endpoint: Endpoint,
        waker: &Waker,
    ) -> io::Result<Self> {
        poller.add(&tun, TUN, Interest::Readable)?;
        poller.add(waker, WAKER, Interest::Readable)?;
        Ok(Self {
            poller,
            tun,
            carriers,
            endpoint,
            counters: PlaneCounters::default(),
            budget: Budget::default(),
            ready: Vec::new(),
            transmit: Vec::with_capacity(65_536),
            delivered: Vec::new(),
            gathering: None,
            waits_until: None,
            answers: Vec::new(),
            has_more: false,
        })
    }

    /// With bulk given to programs of this machine in larger pieces, which they acknowledge once.
    #[must_use]
    pub fn gathering(self) -> Self {
        Self { gathering: Some(Gathering::default()), ..self }
    }

    /// Waits for work, at most until `deadline`, then moves packets for one round.
    ///
    /// True if the waker was used: commands wait.
    ///
    /// # Errors
    /// If waiting or the interface fails for good.
    pub fn round(&mut self, owner: &mut impl Owner, deadline: Timestamp, waker: &Waker) -> io::Result<bool> {
        let mut ready = std::mem::take(&mut self.ready);
        let timeout = self.timeout(deadline);
        self.poller.wait(timeout, &mut ready)?;
        let mut woken = false;
        for entry in &ready {
            match entry.token {
                WAKER => {
                    waker.reset();
                    woken = true;
                }
                TUN => self.read_tun(owner)?,
                _ => self.read_socket(owner, entry)?,
            }
        }
        self.ready = ready;
        // Only now: what has arrived while this thread had to wait for a processor is no peer's silence.
        self.endpoint.handle_timeout(clock::now());
        self.drain(owner)?;
        Ok(woken)
    }

    fn timeout(&mut self, deadline: Timestamp) -> Option<Duration> {
        // The owner may have begun or ended sessions since the last round.
        if self.has_more || self.endpoint.has_work() {
            return Some(Duration::ZERO);
        }
        let next =
            self.endpoint.poll_timeout().into_iter().chain(self.waits_until).fold(deadline, Timestamp::min);
        clock::wait_until(clock::now(), next)
    }

    fn read_tun(&mut self, owner: &mut impl Owner) -> io::Result<()> {
        let mut unsent = 0;
        for _ in 0..self.budget.tun_reads {
            let now = clock::now();
            let Self { tun, endpoint, counters, answers, .. } = self;
            let result = tun.read_packets(&mut |packet| {
                counters.from_interface += packet.len() as u64;
                let headers = wire::inner::parse(packet).ok();
                let taken = headers.is_some_and(|headers| {
                    owner.takes(&headers, packet) || carry(endpoint, owner, answers, now, &headers, packet)
                });
                counters.not_taken += u64::from(!taken);
            });
            self.answer()?;
            match result {
                Ok(packets) => unsent += packets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Small reads, as of many flows with a packet each, leave together.
            if unsent >= SENT_AT_ONCE {
                self.send(now);
                unsent = 0;
            }
        }
        if unsent > 0 {
            self.send(clock::now());
        }
        Ok(())
    }

    fn answer(&mut self) -> io::Result<()> {
        if !self.answers.is_empty() {
            self.tun.write_packets(&self.answers)?;
            self.answers.clear();
        }
        Ok(())
    }

    /// Takes packets that another part has read from its queue of any0. What this one does not know either is as from there.
    ///
    /// # Errors
    /// If the interface fails for good.
    pub fn take_in(&mut self, owner: &mut impl Owner, packets: &[Vec<u8>]) -> io::Result<()> {
        let now = clock::now();
        let Self { endpoint, answers, counters, .. } = self;
        for packet in packets {
            let Ok(headers) = wire::inner::parse(packet) else { continue };
            let taken = carry(endpoint, owner, answers, now, &headers, packet);
            counters.not_taken += u64::from(!taken);
        }
        self.answer()
    }

    /// Goes on with a connection that another part has accepted.
    pub fn take_connection(&mut self, moved: MovedConnection) {
        let now = clock::now();
        let Self { poller, carriers, endpoint, .. } = self;
        carriers.go_on(poller, moved, now, &mut |from, ecn, datagram: &mut [u8]| {
            endpoint.handle_datagram(now, from, ecn, datagram);
        });
    }

    fn read_socket(&mut self, owner: &mut impl Owner, entry: &Ready) -> io::Result<()> {
        for _ in 0..self.budget.socket_reads {
            let now = clock::now();
            let Self { poller, carriers, endpoint, .. } = self;
            let mut sink = |from: Address, ecn: Ecn, datagram: &mut [u8]| {
                endpoint.handle_datagram(now, from, ecn, datagram);
            };
            let count = carriers.receive(poller, entry.token, entry.readable, entry.writable, now, &mut sink);
            if count == 0 {
                return Ok(());
            }
            self.deliver(owner)?;
            self.send(now);
        }
        Ok(())
    }

    /// Takes everything out of the endpoint but its events.
    ///
    /// # Errors
    /// If the interface fails for good.
    pub fn drain(&mut self, owner: &mut impl Owner) -> io::Result<()> {
        self.send(clock::now());
        self.deliver(owner)
    }

    /// Gives a packet from elsewhere to any0.
    ///
    /// # Errors
    /// If the interface fails for good.
    pub fn give(&mut self, packet: &[u8]) -> io::Result<()> {
        self.counters.to_interface += packet.len() as u64;
        self.tun.write_packets(&[packet]).map(drop)
    }

    /// The next thing that the endpoint wants its owner to know.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.endpoint.poll_event()
    }

    fn send(&mut self, now: Timestamp) {
        self.has_more = true;
        for _ in 0..self.budget.sends {
            let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.transmit, SEGMENTS) else {
                self.has_more = false;
                break;
            };
            let bytes = self.transmit.get(..transmit.size).unwrap_or_default();
            self.carriers.send(&self.poller, &transmit, bytes);
        }
        self.carriers.flush();
        while let Some((transmit, failure)) = self.carriers.take_failed() {
            self.counters.unsent += 1;
            if failure == SendFailure::TooLarge {
                let size = u16::try_from(transmit.segment_size).unwrap_or(u16::MAX);
                self.endpoint.datagram_too_large(transmit.address, size);
            }
        }
    }

    fn deliver(&mut self, owner: &mut impl Owner) -> io::Result<()> {
        let now = clock::now();
        loop {
            let mut is_all = false;
            while self.delivered.len() < DELIVERED_AT_ONCE {
                let Some((session, packet)) = self.endpoint.poll_packet() else {
                    is_all = true;
                    break;
                };
                if owner.allows(session, &packet) {
                    self.counters.to_interface += packet.len() as u64;
                    if let Some(gathering) = &mut self.gathering {
                        gathering.take(now, &packet);
                    }
                    self.delivered.push(packet);
                } else {
                    self.counters.not_allowed += 1;
                }
            }
            self.waits_until = self.may_wait(now).filter(|_| is_all);
            if self.delivered.is_empty() || self.waits_until.is_some() {
                return Ok(());
            }
            let written = self.tun.write_packets(&self.delivered);
            self.delivered.clear();
            if let Some(gathering) = &mut self.gathering {
                gathering.end();
            }
            written?;
        }
    }

    /// Until when what is to be given to any0 waits for more; `None` if it goes now.
    fn may_wait(&self, now: Timestamp) -> Option<Timestamp> {
        let gathering = self.gathering.as_ref().filter(|_| !self.delivered.is_empty())?;
        let delay = self.endpoint.acknowledgement_delay(now)?;
        gathering.until(delay).filter(|until| now < *until)
    }
}

/// Tokens below this are the plane's own.
pub const FIRST_SOCKET_TOKEN: Token = Token(16);
const WAKER: Token = Token(0);
const TUN: Token = Token(1);
/// Datagrams in one send: the kernel's limit before Linux 6.9, and 64 KiB at 1,024 bytes each.
const SEGMENTS: usize = 44;
const DELIVERED_AT_ONCE: usize = 256;
/// Packets from any0 after which what they made is sent, if no more wait.
const SENT_AT_ONCE: usize = 16;
/// Errors sent to applications after one read: more would only tell the same socket the same thing.
const MAXIMUM_ANSWERS: usize = 4;
