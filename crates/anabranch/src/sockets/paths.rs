//! The sockets of all adapters, and the pairs of a local adapter and a remote address: each is one network to the bond, so that two
//! adapters at either end make up to four paths.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use bond::{Address, Carrier, Transmit};
use linux::group::GroupSocket;
use linux::poll::{Interest, Poller, Token};
use linux::udp::ReceiveBuffer;
use tracing::debug;
use units::{IpPrefix, NetworkId};
use wire::inner::Ecn;

use super::adapter::{Adapter, AdapterSocket, BluetoothSocket, IpSocket, LinkChange, Sent};
use super::error::BindError;
use super::relays::{self, Arrived, GROUP, Inbox};
use super::remote::{self, Family};

/// Tokens below this are the driver's own.
const FIRST_TOKEN: u64 = 16;
/// Tokens from here on are of groups.
const FIRST_GROUP_TOKEN: u64 = 1 << 20;
/// The place of ways over relays, which no adapter has.
const RELAYS: usize = usize::MAX;
/// What stands for an adapter's name there.
const RELAYS_NAME: &str = "relays";
/// Messages read from a group in one turn.
const GROUP_READS: usize = 64;
/// Adapters, by family, that are remembered.
const MAX_PLACES: usize = 128;
/// Pairs that are remembered; those that no session uses give way.
const MAX_PAIRS: usize = 2_048;

/// One adapter's place in one family; it stays when the adapter goes and comes back.
struct Place {
    name: String,
    family: Family,
    index: u32,
    /// Its own, with port 0.
    address: Option<SocketAddr>,
    mtu_limit: u16,
    socket: Option<Box<dyn AdapterSocket>>,
    /// Hears what nodes of a mesh say to everybody.
    group: Option<GroupSocket>,
    /// The subnets of its link: nodes of a mesh are beside each other.
    subnets: Vec<IpPrefix>,
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
    /// Whether what nodes of a mesh say is listened to.
    listens: bool,
    inbox: Inbox,
}

impl Carriers {
    /// No socket yet; all will have this port, or any if it is 0. `listens` to the mesh or not.
    pub(super) fn new(port: u16, listens: bool) -> Self {
        Self {
            places: Vec::new(),
            pairs: BTreeMap::new(),
            by_network: BTreeMap::new(),
            next: 1,
            port,
            shared_port: None,
            crowded: false,
            buffer: ReceiveBuffer::new(),
            listens,
            inbox: Inbox::default(),
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
            for family in Family::ALL {
                let known =
                    self.places.iter().any(|place| place.name == adapter.name && place.family == family);
                if !known && adapter.address(family).is_some() && self.places.len() < MAX_PLACES {
                    self.places.push(Place::of(adapter, family));
                }
            }
        }
        for at in 0..self.places.len() {
            let pairs = self.pairs_of(at);
            let Some(place) = self.places.get_mut(at) else { continue };
            let adapter = adapter_of(&place.name);
            place.subnets = adapter.map(|adapter| adapter.addresses.clone()).unwrap_or_default();
            let wanted = adapter.and_then(|adapter| adapter.address(place.family));
            let same = adapter.is_some_and(|adapter| adapter.index == place.index) && wanted == place.address;
            if same && place.socket.is_some() == wanted.is_some() {
                continue;
            }
            let was_open = place.socket.take().is_some();
            place.group = None;
            place.address = wanted;
            if let (Some(adapter), Some(address)) = (adapter, wanted) {
                place.index = adapter.index;
                place.mtu_limit = mtu_limit(adapter, place.family);
                let (name, any) = (place.name.as_str(), self.shared_port.is_some());
                let wanted = self.shared_port.unwrap_or(self.port);
                let at_port = |port| {
                    let mut address = address;
                    address.set_port(port);
                    address
                };
                let opened = open(poller, at, name, at_port(wanted));
                // The kernel's choice for another adapter may be taken on this one.
                let opened = match opened {
                    Err(_) if any => open(poller, at, name, at_port(0)),
                    other => other,
                };
                match opened {
                    Ok(socket) => {
                        if self.port == 0 {
                            self.shared_port.get_or_insert(socket.local().port());
                        }
                        place.socket = Some(socket);
                        if self.listens && !adapter.loopback && place.family != Family::Bluetooth {
                            place.group = open_group(poller, at, place);
                        }
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

    /// Whether this end has, or had, adapters that are of no IP network.
    pub(super) fn has_further(&self) -> bool {
        self.places.iter().any(|place| place.family == Family::Bluetooth)
    }

    pub(super) fn is_open(&self) -> bool {
        self.places.iter().any(|place| place.socket.is_some())
    }

    /// Ways to a remote address: one for each adapter that leads there, those on its own link first.
    pub(super) fn candidates(&mut self, adapters: &[Adapter], remote: SocketAddr) -> Vec<Candidate> {
        let mut ways: Vec<(bool, usize, u16)> = Vec::new();
        if remote.ip().is_unspecified() {
            return Vec::new();
        }
        for (at, place) in self.places.iter().enumerate() {
            let adapter = adapters.iter().find(|adapter| adapter.name == place.name);
            if let Some(adapter) = adapter.filter(|adapter| adapter.leads_to(remote))
                && place.family == Family::of(remote)
                && let Some(socket) = &place.socket
                && socket.local() != remote
            {
                let far = !adapter.is_beside(remote);
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
                let carrier = self.places.get(at)?.carrier();
                Some(Candidate { address: Address { network, carrier, remote }, mtu_limit })
            })
            .collect()
    }

    /// The way to a node of the mesh, as a candidate; datagrams grow by `overhead` bytes on it.
    pub(super) fn relayed(&mut self, remote: SocketAddr, overhead: usize) -> Option<Candidate> {
        let open = self.places.iter().filter(|place| place.is_of_mesh());
        // Relays may have smaller links; the bond finds out.
        let least = open.map(|place| place.mtu_limit).min()?;
        let mtu_limit = least.saturating_sub(overhead as u16);
        let network = pair(&mut self.pairs, &mut self.by_network, &mut self.next, RELAYS, remote)?;
        Some(Candidate { address: Address { network, carrier: Carrier::Udp, remote }, mtu_limit })
    }

    /// Whether a network is a way over relays.
    pub(super) fn is_relayed(&self, network: NetworkId) -> bool {
        self.by_network.get(&network).is_some_and(|(at, _)| *at == RELAYS)
    }

    /// Where a network leads to.
    pub(super) fn remote_of(&self, network: NetworkId) -> Option<SocketAddr> {
        self.by_network.get(&network).map(|(_, remote)| *remote)
    }

    /// The name of the adapter of a pair.
    pub(super) fn adapter_of(&self, network: NetworkId) -> Option<&str> {
        match self.by_network.get(&network)? {
            (RELAYS, _) => Some(RELAYS_NAME),
            (at, _) => self.places.get(*at).map(|place| place.name.as_str()),
        }
    }

    /// Sends what the bond wants sent.
    pub(super) fn send(&mut self, transmit: &Transmit, bytes: &[u8]) -> Sent {
        let place = self.by_network.get(&transmit.address.network).map(|(at, _)| *at);
        match place.and_then(|at| self.places.get_mut(at)?.socket.as_mut()) {
            Some(socket) => socket.send(transmit.address.remote, transmit.ecn, bytes, transmit.segment_size),
            None => Sent::Dropped,
        }
    }

    /// Sends bytes of the mesh from a place; datagrams of `segment` bytes each.
    pub(super) fn send_from(
        &mut self,
        place: usize,
        remote: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
        segment: usize,
    ) -> Sent {
        match self.places.get_mut(place).and_then(|place| place.socket.as_mut()) {
            Some(socket) => socket.send(remote, ecn, bytes, segment),
            None => Sent::Dropped,
        }
    }

    /// Sends a message of the mesh to everybody on every link, and to these where nobody can speak to all.
    pub(super) fn send_to_all(&mut self, bytes: &[u8], called: &[SocketAddr]) {
        for place in self.places.iter_mut().filter(|place| place.is_of_mesh()) {
            let Some(socket) = &mut place.socket else { continue };
            let everybody = match place.family {
                Family::V4 | Family::V6 => vec![GROUP.address(place.family == Family::V6, place.index)],
                // There is no way to speak to all: whoever has a link is a neighbour, or is to have one.
                Family::Bluetooth => {
                    let mut all = socket.connected();
                    let further: Vec<_> = called.iter().filter(|to| !all.contains(to)).copied().collect();
                    all.extend(further);
                    all
                }
            };
            for to in everybody {
                socket.send(to, Ecn::NotEct, bytes, bytes.len());
            }
        }
    }

    /// Pairs whose connection has come or gone since this was asked last, where there are connections.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (at, place) in self.places.iter_mut().enumerate() {
            let told = place.socket.as_mut().map(|socket| socket.take_changes()).unwrap_or_default();
            let pair = |remote| self.pairs.get(&(at, remote)).copied();
            changes.extend(told.into_iter().filter_map(|change| {
                Some(match change {
                    LinkChange::Up(remote) => Change::Up(vec![pair(remote)?]),
                    LinkChange::Down(remote) => Change::Down(vec![pair(remote)?]),
                })
            }));
        }
        changes
    }

    /// What has come of the mesh since this was asked last.
    pub(super) fn take_arrived(&mut self) -> Vec<Arrived> {
        self.inbox.take()
    }

    /// Reads from the group of a place. What this end says itself comes back to it, and is left out.
    fn receive_group(&mut self, at: usize) {
        let own: Vec<SocketAddr> = self.own_addresses().map(|(_, address)| address).collect();
        let Some(place) = self.places.get(at) else { return };
        let Some(group) = &place.group else { return };
        let mut buffer = [0; 2_048];
        for _ in 0..GROUP_READS {
            let Ok(Some((length, from))) = group.receive(&mut buffer) else { return };
            let is_own = own.iter().any(|own| own.ip() == from.ip() && own.port() == from.port());
            let is_heeded = !is_own && place.is_beside(from);
            let Some(bytes) = buffer.get(..length).filter(|bytes| is_heeded && wire::mesh::is_mesh(bytes))
            else {
                continue;
            };
            self.inbox.push(Arrived { hop: relays::hop(at, from), ecn: Ecn::NotEct, bytes: bytes.to_vec() });
        }
    }

    /// Reads once from the socket with this token; the number of datagrams.
    pub(super) fn receive(&mut self, token: Token, sink: &mut dyn FnMut(Address, Ecn, &mut [u8])) -> usize {
        if let Some(at) = token.0.checked_sub(FIRST_GROUP_TOKEN) {
            self.receive_group(at as usize);
            return 0;
        }
        let Some(at) = token.0.checked_sub(FIRST_TOKEN).map(|at| at as usize) else { return 0 };
        let Some(place) = self.places.get_mut(at) else { return 0 };
        let Some(mut socket) = place.socket.take() else { return 0 };
        let (place, carrier) = (&*place, socket.carrier());
        let (pairs, by_network, next) = (&mut self.pairs, &mut self.by_network, &mut self.next);
        let (listens, inbox) = (self.listens, &mut self.inbox);
        let mut crowded = false;
        let received = socket.receive(&mut self.buffer, &mut |remote, ecn, bytes| {
            if wire::mesh::is_mesh(bytes) {
                if listens && place.is_beside(remote) {
                    inbox.push(Arrived { hop: relays::hop(at, remote), ecn, bytes: bytes.to_vec() });
                }
                return;
            }
            match pair(pairs, by_network, next, at, remote) {
                Some(network) => sink(Address { network, carrier, remote }, ecn, bytes),
                None => crowded = true,
            }
        });
        if let Some(place) = self.places.get_mut(at) {
            place.socket = Some(socket);
        }
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
    fn of(adapter: &Adapter, family: Family) -> Self {
        Self {
            name: adapter.name.clone(),
            family,
            index: adapter.index,
            address: None,
            mtu_limit: mtu_limit(adapter, family),
            socket: None,
            group: None,
            subnets: adapter.addresses.clone(),
        }
    }

    fn carrier(&self) -> Carrier {
        self.socket.as_ref().map_or(Carrier::Udp, |socket| socket.carrier())
    }

    /// Whether nodes of a mesh are heard here.
    fn is_of_mesh(&self) -> bool {
        self.socket.is_some() && (self.group.is_some() || self.family == Family::Bluetooth)
    }

    /// Whether an address is on the link. Nobody from elsewhere may have packets passed on.
    fn is_beside(&self, remote: SocketAddr) -> bool {
        self.family == Family::Bluetooth || is_beside(&self.subnets, remote.ip())
    }
}

/// Less the headers of IP and UDP.
fn mtu_limit(adapter: &Adapter, family: Family) -> u16 {
    let headers = match family {
        Family::V4 => 28,
        Family::V6 => 48,
        Family::Bluetooth => 0,
    };
    u16::try_from(adapter.mtu.saturating_sub(headers)).unwrap_or(MAX_DATAGRAM)
}

/// Longer datagrams gain nothing, and a batch of them would not fit a segmented send.
const MAX_DATAGRAM: u16 = 16_000;

fn open(
    poller: &Poller,
    at: usize,
    name: &str,
    local: SocketAddr,
) -> Result<Box<dyn AdapterSocket>, BindError> {
    let socket: Box<dyn AdapterSocket> = match remote::device_of(local) {
        Some(device) => Box::new(BluetoothSocket::open(device, local.port())?),
        None => Box::new(IpSocket::open(name, local)?),
    };
    if let Err(error) = poller.add(&socket.descriptor(), Token(FIRST_TOKEN + at as u64), Interest::Readable) {
        // A socket that nobody watches would be deaf: not opened at all it is at least no candidate.
        debug!(%error, name, "a socket cannot be watched");
    }
    Ok(socket)
}

/// Whether an address is on the link with these subnets.
fn is_beside(subnets: &[IpPrefix], address: IpAddr) -> bool {
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    link_local || subnets.iter().any(|subnet| subnet.contains(address))
}

/// `None` where the link has no multicast: nodes of a mesh are not heard there.
fn open_group(poller: &Poller, at: usize, place: &Place) -> Option<GroupSocket> {
    let opened =
        GroupSocket::open(&GROUP, &place.name, place.index, place.family == Family::V6).and_then(|group| {
            poller.add(&group, Token(FIRST_GROUP_TOKEN + at as u64), Interest::Readable)?;
            Ok(group)
        });
    opened.inspect_err(|error| debug!(%error, name = place.name, "relays are not heard on an adapter")).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_on_the_link_are_nodes_beside_this_one() {
        let subnets = ["192.0.2.7/24".parse().unwrap(), "2001:db8:1::7/64".parse().unwrap()];
        let is_beside = |text: &str| is_beside(&subnets, text.parse().unwrap());
        assert!(is_beside("192.0.2.200") && is_beside("2001:db8:1::1") && is_beside("fe80::1"));
        assert!(!is_beside("198.51.100.1") && !is_beside("2001:db8:2::1") && !is_beside("::1"));
    }
}
