//! Many clients of one gateway in this process, each an endpoint with a socket and a session of its own: what they cost, they
//! cost the gateway.

use crate::netbed::{GATEWAY_ADDRESS, NetBed};
use anabranch::control::{BlockingClient, InviteRequest, Seconds};
use anyhow::{Context, bail, ensure};
use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, PublicKey,
    SessionConfig, SessionId,
};
use linux::BindTo;
use linux::poll::{Interest, Poller, Ready, Token};
use linux::udp::{ReceiveBuffer, SendError, UdpPath};
use policy::PathStatus;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;
use units::{NetworkId, Timestamp};
use wire::hello::{DefaultTreatment, Features, Hello, Name, Reply};
use wire::inner::Ecn;
use wire::join_link::JoinLink;

/// More at once would fill the gateway's socket buffer with handshakes.
const AT_ONCE: usize = 50;
/// The gateway's port, as `gateway init` chooses it.
const PORT: u16 = 4_600;
/// The whole payload of a cable's packet of 1500 bytes.
const CABLE_MTU: u16 = 1_472;
const PATIENCE: Duration = Duration::from_secs(300);
const INVITATION_LIFETIME: Seconds = Seconds(600);
/// Datagrams in one send, as many as the gateway's.
const SEGMENTS: usize = 44;
/// The longest wait: who waits looks at its own deadline then.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
const BESIDE: Token = Token(u64::MAX);

/// The clients that joined so far, and the one loop that serves them.
pub(in crate::bench) struct Crowd {
    clients: Vec<Client>,
    poller: Poller,
    ready: Vec<Ready>,
    timers: BinaryHeap<Reverse<(Timestamp, usize)>>,
    buffer: ReceiveBuffer,
    transmit: Vec<u8>,
}

struct Client {
    endpoint: Endpoint,
    session: SessionId,
    socket: UdpPath,
    /// Its address in the tunnel, once it was let in.
    address: Option<Ipv4Addr>,
    timer: Option<Timestamp>,
    /// Sessions after the first: it heard nothing from the gateway for too long.
    began_anew: u64,
}

impl Crowd {
    /// Nobody yet.
    ///
    /// # Errors
    /// If the system has no more descriptors.
    pub(in crate::bench) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            clients: Vec::new(),
            poller: Poller::new().context("wait for many sockets")?,
            ready: Vec::new(),
            timers: BinaryHeap::new(),
            buffer: ReceiveBuffer::new(),
            transmit: Vec::new(),
        })
    }

    /// Lets `count` new clients join, each by an invitation of its own, and waits until all are let in.
    ///
    /// # Errors
    /// If the gateway refuses one or does not answer.
    pub(in crate::bench) fn join(
        &mut self,
        bed: &NetBed,
        gateway: &BlockingClient,
        count: usize,
    ) -> anyhow::Result<()> {
        let deadline = linux::clock::now() + PATIENCE;
        let all = self.clients.len() + count;
        while self.clients.len() < all {
            let first = self.clients.len();
            for number in first..(first + AT_ONCE).min(all) {
                let client = Client::new(bed, gateway, number)?;
                self.poller
                    .add(&client.socket, Token(number as u64), Interest::Readable)
                    .context("watch a client's socket")?;
                self.clients.push(client);
                self.settle(number)?;
            }
            while self.clients.iter().any(|client| client.address.is_none()) {
                let now = linux::clock::now();
                ensure!(now < deadline, "the gateway did not let all clients in");
                self.round(now + LONGEST_WAIT, &mut |_, _| ())?;
            }
        }
        Ok(())
    }

    /// Keeps the clients alive for `length`, or does what is due.
    ///
    /// # Errors
    /// If a socket fails.
    pub(in crate::bench) fn idle(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = linux::clock::now() + length;
        loop {
            self.round(end, &mut |_, _| ())?;
            if linux::clock::now() >= end {
                return Ok(());
            }
        }
    }

    /// How many have joined.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// The address of a client in the tunnel.
    pub(super) fn address(&self, client: usize) -> Option<Ipv4Addr> {
        self.clients.get(client)?.address
    }

    /// Sessions of all clients after their first.
    pub(super) fn began_anew(&self) -> u64 {
        self.clients.iter().map(|client| client.began_anew).sum()
    }

    /// Watches a socket beside those of the clients; only one.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn watch(&self, socket: &impl AsFd) -> anyhow::Result<()> {
        self.poller.add(socket, BESIDE, Interest::Readable).context("watch a socket")
    }

    /// A client has an inner packet to send; [`Crowd::settle`] sends it. False if its queue was full.
    pub(super) fn offer(&mut self, now: Timestamp, client: usize, packet: &[u8]) -> bool {
        self.clients
            .get_mut(client)
            .is_some_and(|client| client.endpoint.handle_packet(now, client.session, packet))
    }

    /// Sends what a client has to send now, and remembers when it wants to be asked again.
    ///
    /// # Errors
    /// If its socket fails, or the gateway does not welcome it.
    pub(super) fn settle(&mut self, number: usize) -> anyhow::Result<()> {
        let Some(client) = self.clients.get_mut(number) else { return Ok(()) };
        client.send(&mut self.transmit)?;
        let next = client.endpoint.poll_timeout();
        if next != client.timer {
            client.timer = next;
            self.timers.extend(next.map(|at| Reverse((at, number))));
        }
        Ok(())
    }

    /// Waits until there is work, at most until `deadline`, and does it; `arrived` is given each inner packet and its client.
    /// Returns whether the socket beside the clients' can be read.
    ///
    /// # Errors
    /// If a socket fails.
    pub(super) fn round(
        &mut self,
        deadline: Timestamp,
        arrived: &mut impl FnMut(usize, &[u8]),
    ) -> anyhow::Result<bool> {
        let next = self.timers.peek().map_or(deadline, |Reverse((at, _))| deadline.min(*at));
        let mut patience = next.since(linux::clock::now());
        let mut ready = std::mem::take(&mut self.ready);
        let mut beside = false;
        let mut served = 0;
        // The poller names few at a time. All get their turn before anything else is done, or those named last would starve.
        while served <= self.clients.len() {
            self.poller.wait(Some(patience), &mut ready).context("wait for the clients")?;
            if ready.is_empty() {
                break;
            }
            patience = Duration::ZERO;
            served += ready.len();
            beside |= self.serve(&ready, arrived)?;
        }
        self.ready = ready;
        self.pass_time()?;
        Ok(beside)
    }

    fn serve(&mut self, ready: &[Ready], arrived: &mut impl FnMut(usize, &[u8])) -> anyhow::Result<bool> {
        let mut beside = false;
        for entry in ready {
            if entry.token == BESIDE {
                beside = true;
                continue;
            }
            let number = entry.token.0 as usize;
            let Some(client) = self.clients.get_mut(number) else { continue };
            client.receive(&mut self.buffer, &mut |packet| arrived(number, packet))?;
            self.settle(number)?;
        }
        Ok(beside)
    }

    fn pass_time(&mut self) -> anyhow::Result<()> {
        let now = linux::clock::now();
        while let Some(&Reverse((at, number))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            let Some(client) = self.clients.get_mut(number).filter(|client| client.timer == Some(at)) else {
                continue;
            };
            client.timer = None;
            client.endpoint.handle_timeout(now);
            self.settle(number)?;
        }
        Ok(())
    }
}

fn gateway_address() -> Address {
    let remote = SocketAddr::from((GATEWAY_ADDRESS, PORT));
    Address { network: NetworkId(0), carrier: Carrier::Udp, remote }
}

impl Client {
    fn new(bed: &NetBed, gateway: &BlockingClient, number: usize) -> anyhow::Result<Self> {
        let request =
            InviteRequest { name: format!("client {number}"), lifetime_seconds: INVITATION_LIFETIME };
        let invited = gateway.invite(&request).context("invite a client")?;
        let link = JoinLink::parse(&invited.link.0).context("read a join link")?;
        // Any key will do, if only it is a client's own.
        let mut key = [7; 32];
        key[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let config = EndpointConfig {
            key: PrivateKey::new(key),
            session: SessionConfig::default(),
            accept: false,
            retry_above: u32::MAX,
            aes: true,
        };
        let mut endpoint = Endpoint::new(config, key).context("make an endpoint")?;
        let hello = Hello {
            name: Name::new("crowd").context("name a client")?,
            secret: Some(link.secret),
            features: Features::default(),
            treatment: DefaultTreatment::default(),
        };
        let now = linux::clock::now();
        let session = endpoint
            .connect(now, PublicKey(link.public_key), hello.encode(), now.as_nanos())
            .context("begin a session")?;
        let path = PathConfig {
            address: gateway_address(),
            mtu_limit: CABLE_MTU,
            status: PathStatus::Active,
            priority: 0,
        };
        endpoint.add_path(now, session, path);
        // Past any0, as the device's own paths are.
        let to = BindTo {
            interface: Some(NetBed::interface(0)),
            local: SocketAddr::from(([0, 0, 0, 0], 0)),
            mark: None,
        };
        let socket = bed.device.run(|| UdpPath::bind(&to))?.context("open a client's socket")?;
        Ok(Self { endpoint, session, socket, address: None, timer: None, began_anew: 0 })
    }

    fn receive(&mut self, buffer: &mut ReceiveBuffer, arrived: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        let now = linux::clock::now();
        let endpoint = &mut self.endpoint;
        let received = self.socket.receive(buffer, &mut |datagram| {
            endpoint.handle_datagram(now, gateway_address(), Ecn::from_bits(datagram.ecn), datagram.bytes);
        });
        match received {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error).context("receive as a client"),
        }
        while let Some((_, packet)) = self.endpoint.poll_packet() {
            arrived(&packet);
        }
        Ok(())
    }

    fn send(&mut self, buffer: &mut Vec<u8>) -> anyhow::Result<()> {
        let now = linux::clock::now();
        while let Some(transmit) = self.endpoint.poll_transmit(now, buffer, SEGMENTS) {
            let bytes = buffer.get(..transmit.size).unwrap_or_default();
            let remote = transmit.address.remote;
            match self.socket.send(remote, None, transmit.ecn.bits(), bytes, Some(transmit.segment_size)) {
                // A full buffer loses them, as a full link does.
                Ok(()) | Err(SendError::WouldBlock) => {}
                Err(error) => return Err(error).context("send as a client"),
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            let EndpointEvent::Connected { session, payload, .. } = event else { continue };
            match Reply::parse(&payload) {
                Ok(Reply::Welcome(welcome)) => {
                    self.session = session;
                    self.began_anew += u64::from(self.address.is_some());
                    let address = welcome.v4.context("the gateway gives a client no IPv4 address")?;
                    self.address = Some(address.address);
                }
                other => bail!("the gateway does not welcome a client: {other:?}"),
            }
        }
        Ok(())
    }
}
