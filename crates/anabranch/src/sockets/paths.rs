//! The sockets of all adapters, and the pairs of a local adapter and a remote address: each is one network to the bond, so that two
//! adapters at either end make up to four paths.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use bond::{Address, Carrier, Transmit};
use linux::BindError;
use linux::poll::{Interest, Poller, Token};
use linux::udp::ReceiveBuffer;
use tracing::debug;
use units::NetworkId;
use wire::inner::Ecn;

use super::adapter::{Adapter, AdapterSocket, IpSocket, Sent};

/// Tokens below this are the driver's own.
const FIRST_TOKEN: u64 = 16;
/// Adapters, by family, that are remembered.
const MAX_PLACES: usize = 128;
/// Pairs that are remembered; those that no session uses give way.
const MAX_PAIRS: usize = 2_048;
/// Headers of IP and UDP, bytes, by family: IPv4, IPv6.
const HEADERS: [u32; 2] = [28, 48];

/// One adapter's place in one family; it stays when the adapter goes and comes back.
struct Place {
    name: String,
    ipv6: bool,
    index: u32,
    address: Option<IpAddr>,
    mtu_limit: u16,
    socket: Option<Box<dyn AdapterSocket>>,
}

/// What became of an adapter's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It carries packets again, or from another address.
    Up(Vec<NetworkId>),
    /// It carries none.
    Down(Vec<NetworkId>),
}

/// A pair that could be a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) address: Address,
    pub(super) mtu_limit: u16,
}

/// See the module.
pub(super) struct Carriers {
    places: Vec<Place>,
    pairs: BTreeMap<(usize, SocketAddr), NetworkId>,
    by_network: BTreeMap<NetworkId, (usize, SocketAddr)>,
    next: u32,
    port: u16,
    /// The port that the kernel chose first, if it was to choose: peers that knew one adapter find the others by it.
    shared_port: Option<u16>,
    crowded: bool,
    buffer: ReceiveBuffer,
}

impl Carriers {
    /// No socket yet; all will have this port, or any if it is 0.
    pub(super) fn new(port: u16) -> Self {
        Self {
            places: Vec::new(),
            pairs: BTreeMap::new(),
            by_network: BTreeMap::new(),
            next: 1,
            port,
            shared_port: None,
            crowded: false,
            buffer: ReceiveBuffer::new(),
        }
    }

    /// Opens and closes sockets so that they fit the adapters; the first refusal is told too.
    pub(super) fn follow(
        &mut self,
        poller: &Poller,
        adapters: &[Adapter],
    ) -> (Vec<Change>, Option<BindError>) {
        let (mut changes, mut refused) = (Vec::new(), None);
        let adapter_of = |name: &str| adapters.iter().find(|adapter| adapter.name == name);
        for adapter in adapters {
            for ipv6 in [false, true] {
                let known = self.places.iter().any(|place| place.name == adapter.name && place.ipv6 == ipv6);
                if !known && adapter.address(ipv6).is_some() && self.places.len() < MAX_PLACES {
                    self.places.push(Place::of(adapter, ipv6));
                }
            }
        }
        for at in 0..self.places.len() {
            let pairs = self.pairs_of(at);
            let Some(place) = self.places.get_mut(at) else { continue };
            let adapter = adapter_of(&place.name);
            let wanted = adapter.and_then(|adapter| adapter.address(place.ipv6));
            let same = adapter.is_some_and(|adapter| adapter.index == place.index) && wanted == place.address;
            if same && place.socket.is_some() == wanted.is_some() {
                continue;
            }
            let was_open = place.socket.take().is_some();
            place.address = wanted;
            if let (Some(adapter), Some(address)) = (adapter, wanted) {
                place.index = adapter.index;
                place.mtu_limit = mtu_limit(adapter, place.ipv6);
                let (name, any) = (place.name.as_str(), self.shared_port.is_some());
                let wanted = self.shared_port.unwrap_or(self.port);
                let opened = open(poller, at, name, SocketAddr::new(address, wanted));
                // The kernel's choice for another adapter may be taken on this one.
                let opened = match opened {
                    Err(_) if any => open(poller, at, name, SocketAddr::new(address, 0)),
                    other => other,
                };
                match opened {
                    Ok(socket) => {
                        if self.port == 0 {
                            self.shared_port.get_or_insert(socket.local().port());
                        }
                        place.socket = Some(socket);
                        changes.push(Change::Up(pairs));
                        continue;
                    }
                    Err(error) => {
                        debug!(%error, "an adapter is not used");
                        // Looked at again with the next change.
                        place.address = None;
                        refused.get_or_insert(error);
                    }
                }
            }
            if was_open {
                changes.push(Change::Down(pairs));
            }
        }
        (changes, refused)
    }

    fn pairs_of(&self, place: usize) -> Vec<NetworkId> {
        self.by_network.iter().filter(|(_, (at, _))| *at == place).map(|(network, _)| *network).collect()
    }

    /// Where peers reach this end, by adapter.
    pub(super) fn own_addresses(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        let local = |place: &Place| place.socket.as_ref().map(|socket| socket.local());
        self.places.iter().filter_map(move |place| Some((place.name.as_str(), local(place)?)))
    }

    pub(super) fn is_open(&self) -> bool {
        self.places.iter().any(|place| place.socket.is_some())
    }

    /// Ways to a remote address: one for each adapter that leads there, those on its own link first.
    pub(super) fn candidates(&mut self, adapters: &[Adapter], remote: SocketAddr) -> Vec<Candidate> {
        let mut ways: Vec<(bool, usize, u16)> = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            let adapter = adapters.iter().find(|adapter| adapter.name == place.name);
            if let Some(adapter) = adapter.filter(|adapter| adapter.leads_to(remote.ip()))
                && place.ipv6 == remote.is_ipv6()
                && let Some(socket) = &place.socket
                && socket.local() != remote
            {
                let far = !adapter.addresses.iter().any(|prefix| prefix.contains(remote.ip()));
                ways.push((far, at, place.mtu_limit));
            }
        }
        ways.sort_by_key(|(far, at, _)| (*far, *at));
        // An address on a link of this machine is not looked for beyond others.
        let near = ways.iter().any(|(far, ..)| !far);
        ways.retain(|(far, ..)| !near || !far);
        ways.into_iter()
            .filter_map(|(_, at, mtu_limit)| {
                let network = pair(&mut self.pairs, &mut self.by_network, &mut self.next, at, remote)?;
                Some(Candidate { address: Address { network, carrier: Carrier::Udp, remote }, mtu_limit })
            })
            .collect()
    }

    /// The name of the adapter of a pair.
    pub(super) fn adapter_of(&self, network: NetworkId) -> Option<&str> {
        let (at, _) = self.by_network.get(&network)?;
        self.places.get(*at).map(|place| place.name.as_str())
    }

    /// Sends what the bond wants sent.
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) -> Sent {
        let place = self.by_network.get(&transmit.address.network).map(|(at, _)| *at);
        match place.and_then(|at| self.places.get(at)?.socket.as_ref()) {
            Some(socket) => socket.send(transmit.address.remote, transmit.ecn, bytes, transmit.segment_size),
            None => Sent::Dropped,
        }
    }

    /// Reads once from the socket with this token; the number of datagrams.
    pub(super) fn receive(&mut self, token: Token, sink: &mut dyn FnMut(Address, Ecn, &mut [u8])) -> usize {
        let Some(at) = token.0.checked_sub(FIRST_TOKEN).map(|at| at as usize) else { return 0 };
        let Some(socket) = self.places.get(at).and_then(|place| place.socket.as_ref()) else { return 0 };
        let (pairs, by_network, next) = (&mut self.pairs, &mut self.by_network, &mut self.next);
        let mut crowded = false;
        let received = socket.receive(&mut self.buffer, &mut |remote, ecn, bytes| match pair(
            pairs, by_network, next, at, remote,
        ) {
            Some(network) => sink(Address { network, carrier: Carrier::Udp, remote }, ecn, bytes),
            None => crowded = true,
        });
        self.crowded |= crowded;
        received.unwrap_or(0)
    }

    /// Whether pairs that nobody uses should be forgotten.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Forgets all pairs but those in use.
    pub(super) fn forget_others(&mut self, used: &BTreeSet<NetworkId>) {
        self.by_network.retain(|network, _| used.contains(network));
        self.pairs.retain(|_, network| used.contains(network));
        self.crowded = false;
    }
}

impl Place {
    fn of(adapter: &Adapter, ipv6: bool) -> Self {
        Self {
            name: adapter.name.clone(),
            ipv6,
            index: adapter.index,
            address: None,
            mtu_limit: mtu_limit(adapter, ipv6),
            socket: None,
        }
    }
}

fn mtu_limit(adapter: &Adapter, ipv6: bool) -> u16 {
    let [v4, v6] = HEADERS;
    u16::try_from(adapter.mtu.saturating_sub(if ipv6 { v6 } else { v4 })).unwrap_or(MAX_DATAGRAM)
}

/// Longer datagrams gain nothing, and a batch of them would not fit a segmented send.
const MAX_DATAGRAM: u16 = 16_000;

fn open(
    poller: &Poller,
    at: usize,
    name: &str,
    local: SocketAddr,
) -> Result<Box<dyn AdapterSocket>, BindError> {
    let socket: Box<dyn AdapterSocket> = Box::new(IpSocket::open(name, local)?);
    if let Err(error) = poller.add(&socket.descriptor(), Token(FIRST_TOKEN + at as u64), Interest::Readable) {
        // A socket that nobody watches would be deaf: not opened at all it is at least no candidate.
        debug!(%error, name, "a socket cannot be watched");
    }
    Ok(socket)
}

/// The number of a pair; `None` if there are too many.
fn pair(
    pairs: &mut BTreeMap<(usize, SocketAddr), NetworkId>,
    by_network: &mut BTreeMap<NetworkId, (usize, SocketAddr)>,
    next: &mut u32,
    at: usize,
    remote: SocketAddr,
) -> Option<NetworkId> {
    if let Some(known) = pairs.get(&(at, remote)) {
        return Some(*known);
    }
    if pairs.len() >= MAX_PAIRS {
        return None;
    }
    let network = NetworkId(*next);
    *next = next.wrapping_add(1);
    pairs.insert((at, remote), network);
    by_network.insert(network, (at, remote));
    Some(network)
}
