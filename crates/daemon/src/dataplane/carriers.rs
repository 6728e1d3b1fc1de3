//! All sockets of a loop, by what they carry.
//!
//! An [`Address`] names network, carrier and remote address; here it is known which socket that is. On a device a
//! network is an interface, with one UDP socket of each family. On a gateway a network is one of the host's own
//! addresses, learned from what arrives, so that answers leave from the address that was spoken to.

mod moving;

use std::io;
use std::net::{IpAddr, SocketAddr};

use bond::{Address, Carrier, Transmit};
use linux::poll::{Interest, Poller, Token};
use linux::tcp_carrier::{Queued, TcpCarrier, TcpCarrierListener};
use linux::udp::{ReceiveBuffer, SendBatch, SendError, UdpPath};
use linux::{BindError, BindTo};
use rustc_hash::FxHashMap;
use thiserror::Error;
use tracing::debug;
use units::{NetworkId, Timestamp};
use wire::datagram::Part;
use wire::inner::Ecn;

use moving::MOST_STRAYS;
pub use moving::MovedConnection;

/// Why a socket could not be opened.
#[derive(Debug, Error)]
pub enum CarrierError {
    /// The socket was refused.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// It could not be watched.
    #[error("cannot watch a socket: {0}")]
    Watch(#[from] io::Error),
}

/// Why datagrams did not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendFailure {
    /// They are lost, as on a full link or one without a way.
    Dropped,
    /// They are larger than the interface takes.
    TooLarge,
    /// The TCP connection of this address has ended.
    Ended,
}

enum Socket {
    /// Of one network of a device.
    Own {
        path: UdpPath,
        network: NetworkId,
    },
    /// For anyone, on a gateway.
    Listening(UdpPath),
    Listener(TcpCarrierListener),
    Connection {
        carrier: TcpCarrier,
        network: NetworkId,
        watches_writing: bool,
        heard_at: Timestamp,
    },
}

#[derive(Clone, Copy)]
struct Route {
    token: Token,
    source: Option<IpAddr>,
}

/// Datagrams that leave together: many sessions with little to send each would cost a system call for every datagram.
#[derive(Default)]
struct Waiting {
    /// The socket that all of them leave by.
    token: Option<Token>,
    batch: SendBatch,
    transmits: Vec<Transmit>,
}

/// The sockets, and one buffer that all of them read into.
pub struct Carriers {
    sockets: FxHashMap<Token, Socket>,
    next_token: u64,
    udp: FxHashMap<(NetworkId, bool), Route>,
    tcp: FxHashMap<(NetworkId, SocketAddr), Token>,
    locals: Vec<(Token, IpAddr)>,
    ended: Vec<(NetworkId, SocketAddr)>,
    part: Part,
    moving: Vec<MovedConnection>,
    waiting: Waiting,
    failed: Vec<(Transmit, SendFailure)>,
    buffer: ReceiveBuffer,
    stream_buffer: Box<[u8]>,
    mark: Option<u32>,
}

impl Carriers {
    /// No socket yet. Tokens from `first_token` on are theirs; `mark` is set on every packet.
    pub fn new(first_token: Token, mark: Option<u32>) -> Self {
        Self {
            sockets: FxHashMap::default(),
            next_token: first_token.0,
            udp: FxHashMap::default(),
            tcp: FxHashMap::default(),
            locals: Vec::new(),
            ended: Vec::new(),
            part: Part::WHOLE,
            moving: Vec::new(),
            waiting: Waiting::default(),
            failed: Vec::new(),
            buffer: ReceiveBuffer::new(),
            stream_buffer: vec![0; STREAM_BUFFER].into_boxed_slice(),
            mark,
        }
    }

    // ---- a device's networks ----

    /// Opens the UDP socket of a network for one family, in place of the one that may be open.
    ///
    /// # Errors
    /// Any [`CarrierError`]; the old socket is closed all the same.
    pub fn open_udp(
        &mut self,
        poller: &Poller,
        network: NetworkId,
        interface: &str,
        local: IpAddr,
    ) -> Result<(), CarrierError> {
        if let Some(old) = self.udp.remove(&(network, local.is_ipv6())) {
            self.sockets.remove(&old.token);
        }
        let path = UdpPath::bind(&self.bind_to(interface, local))?;
        let token = self.watch(poller, &path, Interest::Readable)?;
        self.sockets.insert(token, Socket::Own { path, network });
        self.udp.insert((network, local.is_ipv6()), Route { token, source: None });
        Ok(())
    }

    /// Starts a TCP connection of a network, in place of the one that may be open to the same address.
    ///
    /// # Errors
    /// Any [`CarrierError`].
    pub fn connect_tcp(
        &mut self,
        poller: &Poller,
        network: NetworkId,
        interface: &str,
        local: IpAddr,
        remote: SocketAddr,
        now: Timestamp,
    ) -> Result<(), CarrierError> {
        if let Some(old) = self.tcp.remove(&(network, remote)) {
            self.sockets.remove(&old);
        }
        let carrier = TcpCarrier::connect(&self.bind_to(interface, local), remote)?;
        let token = self.watch(poller, &carrier, Interest::ReadableOrWritable)?;
        let connection = Socket::Connection { carrier, network, watches_writing: true, heard_at: now };
        self.sockets.insert(token, connection);
        self.tcp.insert((network, remote), token);
        Ok(())
    }

    /// Whether there is a socket for what goes to `address`.
    pub fn is_open(&self, address: Address) -> bool {
        match address.carrier {
            Carrier::Udp => self.udp.contains_key(&(address.network, address.remote.is_ipv6())),
            Carrier::Tcp => self.tcp.contains_key(&(address.network, address.remote)),
            // Virtual sockets have it, tunnels do not.
            Carrier::Bluetooth => false,
        }
    }

    /// Closes every socket of a device's networks that none of `addresses` needs.
    pub fn keep_only(&mut self, addresses: &[Address]) {
        let needs = |carrier| addresses.iter().filter(move |address| address.carrier == carrier);
        self.udp.retain(|(network, ipv6), _| {
            needs(Carrier::Udp).any(|of| of.network == *network && of.remote.is_ipv6() == *ipv6)
        });
        self.tcp.retain(|(network, remote), _| {
            needs(Carrier::Tcp).any(|of| of.network == *network && of.remote == *remote)
        });
        let Self { sockets, udp, tcp, .. } = self;
        sockets.retain(|token, socket| match socket {
            Socket::Own { .. } => udp.values().any(|route| route.token == *token),
            Socket::Connection { .. } => tcp.values().any(|of| of == token),
            Socket::Listening(_) | Socket::Listener(_) => true,
        });
    }

    /// Closes every socket of a network.
    pub fn close_network(&mut self, network: NetworkId) {
        self.udp.retain(|(of, _), _| *of != network);
        self.tcp.retain(|(of, _), _| *of != network);
        self.sockets.retain(|_, socket| match socket {
            Socket::Own { network: of, .. } | Socket::Connection { network: of, .. } => *of != network,
            Socket::Listening(_) | Socket::Listener(_) => true,
        });
    }

    fn bind_to(&self, interface: &str, local: IpAddr) -> BindTo {
        BindTo { interface: Some(interface.to_owned()), local: SocketAddr::new(local, 0), mark: self.mark }
    }

    // ---- a gateway's ----

    /// Listens for datagrams on `local`.
    ///
    /// # Errors
    /// Any [`CarrierError`].
    pub fn listen_udp(&mut self, poller: &Poller, path: UdpPath) -> Result<(), CarrierError> {
        let token = self.watch(poller, &path, Interest::Readable)?;
        self.sockets.insert(token, Socket::Listening(path));
        Ok(())
    }

    /// Listens for connections on `local`.
    ///
    /// # Errors
    /// Any [`CarrierError`].
    pub fn listen_tcp(&mut self, poller: &Poller, listener: TcpCarrierListener) -> Result<(), CarrierError> {
        let token = self.watch(poller, &listener, Interest::Readable)?;
        self.sockets.insert(token, Socket::Listener(listener));
        Ok(())
    }

    // ---- both ----

    /// Sends what the endpoint wants sent, at the latest with the next [`Carriers::flush`]; `bytes` are the first `transmit.size` of
    /// its buffer.
    pub fn send(&mut self, poller: &Poller, transmit: &Transmit, bytes: &[u8]) {
        let sent = match transmit.address.carrier {
            Carrier::Udp => self.send_udp(transmit, bytes),
            // Virtual sockets have it, tunnels do not.
            Carrier::Bluetooth => Err(SendFailure::Dropped),
            Carrier::Tcp => self.send_tcp(poller, transmit, bytes),
        };
        self.failed.extend(sent.err().map(|failure| (*transmit, failure)));
    }

    fn send_tcp(&mut self, poller: &Poller, transmit: &Transmit, bytes: &[u8]) -> Result<(), SendFailure> {
        let address = transmit.address;
        let token = self.tcp.get(&(address.network, address.remote)).copied().ok_or(SendFailure::Dropped)?;
        let Some(Socket::Connection { carrier, .. }) = self.sockets.get_mut(&token) else {
            return Err(SendFailure::Dropped);
        };
        match carrier.send(bytes, Some(transmit.segment_size)) {
            Ok(queued) => {
                self.watch_writing(poller, token);
                if queued == Queued::Sent { Ok(()) } else { Err(SendFailure::Dropped) }
            }
            Err(error) => {
                debug!(%error, remote = %address.remote, "a TCP carrier ended");
                self.close(token);
                Err(SendFailure::Ended)
            }
        }
    }

    fn send_udp(&mut self, transmit: &Transmit, bytes: &[u8]) -> Result<(), SendFailure> {
        let (remote, ecn) = (transmit.address.remote, transmit.ecn.bits());
        let known = self.udp.get(&(transmit.address.network, remote.is_ipv6()));
        let Route { token, source } = *known.ok_or(SendFailure::Dropped)?;
        let segment_size = Some(transmit.segment_size);
        if self.waiting.token != Some(token) {
            self.flush();
        }
        for _ in 0..2 {
            if self.waiting.batch.push(remote, source, ecn, bytes, segment_size) {
                self.waiting.token = Some(token);
                self.waiting.transmits.push(*transmit);
                return Ok(());
            }
            // What waits goes first. Then there is room, or these are too many bytes for a batch.
            self.flush();
        }
        let path = self.udp_path(token).ok_or(SendFailure::Dropped)?;
        path.send(remote, source, ecn, bytes, segment_size).map_err(|error| failure(transmit, &error))
    }

    fn udp_path(&self, token: Token) -> Option<&UdpPath> {
        match self.sockets.get(&token) {
            Some(Socket::Own { path, .. } | Socket::Listening(path)) => Some(path),
            _ => None,
        }
    }

    /// Sends what still waits.
    pub fn flush(&mut self) {
        if self.waiting.batch.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut failed = std::mem::take(&mut self.failed);
        match waiting.token.take().and_then(|token| self.udp_path(token)) {
            Some(path) => path.send_batch(&mut waiting.batch, &mut |place, error| {
                let transmit = waiting.transmits.get(place);
                failed.extend(transmit.map(|transmit| (*transmit, failure(transmit, &error))));
            }),
            // The socket was closed meanwhile.
            None => {
                waiting.batch.clear();
                failed.extend(waiting.transmits.iter().map(|transmit| (*transmit, SendFailure::Dropped)));
            }
        }
        waiting.transmits.clear();
        (self.waiting, self.failed) = (waiting, failed);
    }

    /// Datagrams that did not leave, and why.
    pub fn take_failed(&mut self) -> Option<(Transmit, SendFailure)> {
        self.failed.pop()
    }

    /// Reads once from the socket with `token` and gives each datagram to `sink`; returns their number.
    ///
    /// `writable` and `readable` are what the poller said. 0 means that nothing more waits there.
    pub fn receive(
        &mut self,
        poller: &Poller,
        token: Token,
        readable: bool,
        writable: bool,
        now: Timestamp,
        sink: &mut impl FnMut(Address, Ecn, &mut [u8]),
    ) -> usize {
        let part = self.part;
        let mut strays = Vec::new();
        let result = match self.sockets.get_mut(&token) {
            None => return 0,
            Some(Socket::Own { path, network }) => {
                let network = *network;
                path.receive(&mut self.buffer, &mut |datagram| {
                    let address = Address { network, carrier: Carrier::Udp, remote: datagram.remote };
                    sink(address, Ecn::from_bits(datagram.ecn), datagram.bytes);
                })
            }
            Some(Socket::Listening(path)) => {
                let (locals, udp) = (&mut self.locals, &mut self.udp);
                path.receive(&mut self.buffer, &mut |datagram| {
                    let Some(local) = datagram.local else { return };
                    let Some(network) = network_of(locals, token, local) else { return };
                    udp.entry((network, local.is_ipv6())).or_insert(Route { token, source: Some(local) });
                    let address = Address { network, carrier: Carrier::Udp, remote: datagram.remote };
                    sink(address, Ecn::from_bits(datagram.ecn), datagram.bytes);
                })
            }
            Some(Socket::Listener(_)) => return self.accept(poller, token, now),
            Some(Socket::Connection { carrier, network, heard_at, .. }) => {
                let is_accepted = *network == ACCEPTED;
                let address =
                    Address { network: *network, carrier: Carrier::Tcp, remote: carrier.remote_address() };
                let flushed = if writable { carrier.flush() } else { Ok(()) };
                flushed.and_then(|()| match readable && carrier.is_connected() {
                    false => Ok(0),
                    true => carrier.receive(&mut self.stream_buffer, &mut |datagram| {
                        *heard_at = now;
                        match part.of_datagram(datagram) {
                            of if is_accepted && of != part.number() => {
                                if strays.len() < MOST_STRAYS {
                                    strays.push((of, datagram.to_vec()));
                                }
                            }
                            _ => sink(address, Ecn::NotEct, datagram),
                        }
                    }),
                })
            }
        };
        self.watch_writing(poller, token);
        match result {
            Ok(count) => {
                self.move_connection(poller, token, strays);
                count
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                debug!(%error, "a socket failed");
                if matches!(self.sockets.get(&token), Some(Socket::Connection { .. })) {
                    self.close(token);
                }
                0
            }
        }
    }

    fn accept(&mut self, poller: &Poller, token: Token, now: Timestamp) -> usize {
        let Some(Socket::Listener(listener)) = self.sockets.get(&token) else { return 0 };
        let carrier = match listener.accept() {
            Ok(carrier) => carrier,
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    debug!(%error, "a connection was not accepted");
                }
                return 0;
            }
        };
        self.keep_connection(poller, carrier, now);
        0
    }

    fn keep_connection(&mut self, poller: &Poller, carrier: TcpCarrier, now: Timestamp) {
        if self.tcp.len() >= MAXIMUM_CONNECTIONS / self.part.count() {
            self.close_stalest();
        }
        let remote = carrier.remote_address();
        let watches_writing = carrier.wants_to_write();
        match self.watch(poller, &carrier, interest_of(&carrier)) {
            Ok(token) => {
                let connection =
                    Socket::Connection { carrier, network: ACCEPTED, watches_writing, heard_at: now };
                self.sockets.insert(token, connection);
                self.tcp.insert((ACCEPTED, remote), token);
            }
            Err(error) => debug!(%error, "a connection cannot be watched"),
        }
    }

    /// Makes room for a new connection: the one that was silent the longest goes.
    fn close_stalest(&mut self) {
        let connections = self.sockets.iter().filter_map(|(token, socket)| match socket {
            Socket::Connection { heard_at, .. } => Some((*heard_at, *token)),
            _ => None,
        });
        if let Some((_, stalest)) = connections.min() {
            self.close(stalest);
        }
    }

    /// Waits for room to write only while something wants to be written.
    fn watch_writing(&mut self, poller: &Poller, token: Token) {
        if let Some(Socket::Connection { carrier, watches_writing, .. }) = self.sockets.get_mut(&token)
            && carrier.wants_to_write() != *watches_writing
        {
            let wanted = carrier.wants_to_write();
            if poller.change(carrier, token, interest_of(carrier)).is_ok() {
                *watches_writing = wanted;
            }
        }
    }

    fn watch(
        &mut self,
        poller: &Poller,
        socket: &impl std::os::fd::AsFd,
        interest: Interest,
    ) -> io::Result<Token> {
        let token = Token(self.next_token);
        self.next_token += 1;
        poller.add(socket, token, interest)?;
        Ok(token)
    }

    fn close(&mut self, token: Token) {
        if let Some(Socket::Connection { carrier, network, .. }) = self.sockets.remove(&token)
            && network != ACCEPTED
        {
            self.ended.push((network, carrier.remote_address()));
        }
        self.tcp.retain(|_, of| *of != token);
    }

    /// The network and the far end of a TCP connection that has ended by itself since the last call.
    pub fn take_ended(&mut self) -> Option<(NetworkId, SocketAddr)> {
        self.ended.pop()
    }
}

fn interest_of(carrier: &TcpCarrier) -> Interest {
    if carrier.wants_to_write() { Interest::ReadableOrWritable } else { Interest::Readable }
}

fn failure(transmit: &Transmit, error: &SendError) -> SendFailure {
    if matches!(error, SendError::TooLarge) {
        return SendFailure::TooLarge;
    }
    let address = transmit.address;
    debug!(%error, network = address.network.0, remote = %address.remote, "datagrams were dropped");
    SendFailure::Dropped
}

/// The number of the host's address `local` behind the listening socket `token`; `None` if there are too many.
fn network_of(locals: &mut Vec<(Token, IpAddr)>, token: Token, local: IpAddr) -> Option<NetworkId> {
    if let Some(known) = locals.iter().position(|known| *known == (token, local)) {
        return Some(NetworkId(known as u32));
    }
    if locals.len() >= MAXIMUM_LOCALS {
        return None;
    }
    locals.push((token, local));
    Some(NetworkId(locals.len() as u32 - 1))
}

/// The network of accepted connections: the remote address alone tells them apart.
const ACCEPTED: NetworkId = NetworkId(u32::MAX);
/// Own addresses that a gateway answers from.
const MAXIMUM_LOCALS: usize = 256;
/// Of all parts.
const MAXIMUM_CONNECTIONS: usize = 4_096;
const STREAM_BUFFER: usize = 64 * 1024;
