//! Peers that no link of this device leads to: their any0 addresses are reached over virtual sockets, by whatever address the peer was
//! introduced with, or over relays.
//!
//! ```text
//! program --> any0 --> packet thread --take--> bond of the virtual sockets ==> peer's daemon --> any0 --> program
//!                                        |
//!                              no conversation: a call, on a thread of its own; packets wait meanwhile (the packet thread starts none)
//! ```
//!
//! A route on the link, where there is one, goes before (`super::routes`): the kernel then carries packets by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch::apps::usual::{self, DAEMON_PORT as PORT};
use anabranch::blocking::Endpoint;
use anabranch::{Admission, Caller, ConnectOptions, EndpointOptions, Peer as Called, PeerAddress};
use identity::{InvitationKind, KeyPair, Peers, PublicKey, any0_address};
use linux::clock;
use tracing::{debug, info};
use units::Timestamp;
use wire::inner::Headers;
use wire::join_link::{Host, HostPort};

use super::broadcast;
use crate::device::messages::Command;
use crate::mailbox::Mailbox;

/// Packets that wait for a call to be answered, for each peer.
const MOST_WAITING: usize = 64;
/// Calls that wait to be begun.
const MOST_CALLS: usize = 64;
/// Between calls that nobody answers.
const PAUSE: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(8);
/// The same where only broadcasts would go there.
const BROADCAST_PAUSE: Duration = Duration::from_secs(30);

/// See the module. Clones are the same.
#[derive(Clone)]
pub struct Far {
    endpoint: anabranch::Endpoint,
    shared: Arc<Mutex<Shared>>,
    /// Whom to call: the packet thread may start no threads.
    calls: SyncSender<PublicKey>,
}

struct Shared {
    own: PublicKey,
    /// What this device has on any0, by family.
    addresses: Vec<IpAddr>,
    peers: BTreeMap<PublicKey, FarPeer>,
    /// Those that a link leads to.
    near: BTreeSet<PublicKey>,
}

struct FarPeer {
    name: String,
    v6: Ipv6Addr,
    v4: Ipv4Addr,
    hosts: Vec<HostPort>,
    waiting: VecDeque<Vec<u8>>,
    calling: bool,
    /// Not called again before.
    not_before: Timestamp,
}

impl Far {
    /// Takes calls of known peers' daemons from now on; what comes for programs here goes to the packet thread.
    ///
    /// # Errors
    /// If the system refuses a socket or a thread.
    pub fn start(
        key: &KeyPair,
        addresses: Vec<IpAddr>,
        peers: &Peers,
        commands: Mailbox<Command>,
    ) -> io::Result<Self> {
        let own = key.public();
        let shared = Shared { own, addresses, peers: BTreeMap::new(), near: BTreeSet::new() };
        let shared = Arc::new(Mutex::new(shared));
        let admission = {
            let shared = Arc::clone(&shared);
            Admission::Ask(Arc::new(move |caller: &Caller<'_>| lock(&shared).peers.contains_key(&caller.key)))
        };
        let options = EndpointOptions::listening(key.clone(), PORT, admission);
        let endpoint = anabranch::Endpoint::bind(options).map_err(io::Error::other)?;
        let (calls, to_call) = sync_channel(MOST_CALLS);
        let far = Self { endpoint, shared, calls };
        far.know(peers);
        let caller = far.clone();
        std::thread::Builder::new()
            .name("far-calls".to_owned())
            .spawn(move || caller.start_calls(&to_call))?;
        let (packets, listener) = (Endpoint::from(far.endpoint.clone()).packets(), far.endpoint.listen());
        let known = far.clone();
        std::thread::Builder::new().name("far-peers".to_owned()).spawn(move || {
            // Whoever listens lets callers in.
            let _listener = listener;
            while let Ok((peer, packet)) = packets.receive() {
                if known.is_welcome(peer, &packet) {
                    commands.post(Command::Deliver(packet));
                }
            }
        })?;
        Ok(far)
    }

    /// These are known now, and no others any more.
    pub fn know(&self, peers: &Peers) {
        let mut shared = self.lock();
        let mut before = std::mem::take(&mut shared.peers);
        for peer in peers.of_kind(InvitationKind::Peer) {
            let fresh = || FarPeer {
                name: String::new(),
                v6: any0_address::v6_of(peer.public_key),
                v4: any0_address::v4_of(peer.public_key),
                hosts: Vec::new(),
                waiting: VecDeque::new(),
                calling: false,
                not_before: Timestamp::ZERO,
            };
            let known = before.remove(&peer.public_key).unwrap_or_else(fresh);
            let known = FarPeer { name: peer.name.clone(), hosts: peer.addresses.clone(), ..known };
            shared.peers.insert(peer.public_key, known);
        }
        drop(shared);
        before.keys().for_each(|key| self.endpoint.not_beside(*key));
        // Relays, if they are in reach.
        usual::beside(peers).iter().for_each(|machine| self.endpoint.beside(machine));
    }

    /// Links lead to these peers now.
    pub fn set_near(&self, near: BTreeSet<PublicKey>) {
        self.lock().near = near;
    }

    /// Names of known peers with their addresses on any0: those of the IPv6 family first, one that two have is the first one's.
    pub fn addresses_of(&self, name: &str) -> Option<Vec<IpAddr>> {
        let shared = self.lock();
        let found = shared.peers.iter().find(|(_, peer)| peer.name.eq_ignore_ascii_case(name));
        let (key, peer) = found?;
        let v4 = (shared.by_v4(peer.v4) == Some(*key)).then_some(IpAddr::V4(peer.v4));
        Some(std::iter::once(IpAddr::V6(peer.v6)).chain(v4).collect())
    }

    /// Takes a packet that a program has sent to any0, if it is for a peer whom no link leads to.
    pub fn take(&self, headers: &Headers, packet: &[u8]) -> bool {
        let destination = headers.key.destination;
        // Most packets are for the Internet.
        let is_peers = match destination {
            IpAddr::V4(address) => any0_address::may_be_v4(address),
            IpAddr::V6(address) => address.segments()[..4] == any0_address::PREFIX_V6.segments()[..4],
        };
        let Some(key) = is_peers.then(|| self.lock().by_address(destination)).flatten() else { return false };
        self.send(key, packet, PAUSE);
        true
    }

    /// Sends what a program has said to everybody also to those whom no link leads to.
    pub fn spread(&self, packet: &[u8]) {
        let far: Vec<PublicKey> = {
            let shared = self.lock();
            shared.peers.keys().filter(|key| !shared.near.contains(key)).copied().collect()
        };
        let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
        let own = self.lock().addresses.iter().copied().find(|address| address.is_ipv4() == is_v4);
        let Some(packet) = own.and_then(|own| broadcast::from_source(packet, own)) else { return };
        for key in far {
            self.send(key, &packet, BROADCAST_PAUSE);
        }
    }

    fn send(&self, key: PublicKey, packet: &[u8], pause: Duration) {
        if self.endpoint.send_packet(key, packet) {
            return;
        }
        let now = clock::now();
        let mut shared = self.lock();
        let Some(peer) = shared.peers.get_mut(&key) else { return };
        if !peer.calling && now < peer.not_before {
            return;
        }
        if peer.waiting.len() < MOST_WAITING {
            peer.waiting.push_back(packet.to_vec());
        }
        if peer.calling {
            return;
        }
        (peer.calling, peer.not_before) = (true, now + pause);
        if self.calls.try_send(key).is_err() {
            peer.calling = false;
        }
    }

    /// Starts a thread for each call, until the process ends.
    fn start_calls(&self, calls: &Receiver<PublicKey>) {
        while let Ok(key) = calls.recv() {
            let Some(hosts) = self.lock().peers.get(&key).map(|peer| peer.hosts.clone()) else { continue };
            let far = self.clone();
            let call = move || far.call(key, &hosts);
            if let Err(error) = std::thread::Builder::new().name("far-call".to_owned()).spawn(call) {
                debug!(%error, "a peer cannot be called");
                self.end_of_call(key);
            }
        }
    }

    fn call(&self, key: PublicKey, hosts: &[HostPort]) {
        let mut addresses: Vec<PeerAddress> = hosts.iter().flat_map(at_daemon).collect();
        // Relays find it by its port.
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into());
        let options = ConnectOptions { deadline: DEADLINE, ..ConnectOptions::default() };
        let called = Endpoint::from(self.endpoint.clone()).datagrams(&Called { key, addresses }, &options);
        let waiting = self.end_of_call(key);
        match called {
            // The conversation lasts as long as packets go by it, and some time more.
            Ok(_held) => {
                info!(%key, "a peer is reached over virtual sockets");
                for packet in waiting {
                    self.endpoint.send_packet(key, &packet);
                }
            }
            Err(error) => debug!(%error, "a peer is not reached"),
        }
    }

    fn end_of_call(&self, key: PublicKey) -> VecDeque<Vec<u8>> {
        let mut shared = self.lock();
        let Some(peer) = shared.peers.get_mut(&key) else { return VecDeque::new() };
        peer.calling = false;
        std::mem::take(&mut peer.waiting)
    }

    /// Whether a packet of a peer's is from its own addresses, and for this device or for all.
    fn is_welcome(&self, peer: PublicKey, packet: &[u8]) -> bool {
        let shared = self.lock();
        let Some(FarPeer { v6, v4, .. }) = shared.peers.get(&peer) else { return false };
        let (v6, v4) = (*v6, Some(*v4).filter(|v4| shared.by_v4(*v4) == Some(peer)));
        if broadcast::may_come_from(packet, v6, v4) {
            // By a link it comes too.
            return !shared.near.contains(&peer);
        }
        let Ok(headers) = wire::inner::parse(packet) else { return false };
        let is_own = match headers.key.source {
            IpAddr::V4(source) => v4 == Some(source),
            IpAddr::V6(source) => source == v6,
        };
        is_own && shared.addresses.contains(&headers.key.destination)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

impl Shared {
    /// Who has the IPv4 address: of two peers the one with the smaller key, as between neighbours.
    fn by_v4(&self, address: Ipv4Addr) -> Option<PublicKey> {
        let own = self.addresses.contains(&IpAddr::V4(address));
        let mut with =
            self.peers.iter().filter(|(key, peer)| !own && **key != self.own && peer.v4 == address);
        with.next().map(|(key, _)| *key)
    }

    fn by_address(&self, address: IpAddr) -> Option<PublicKey> {
        match address {
            IpAddr::V4(address) => self.by_v4(address),
            IpAddr::V6(address) => {
                self.peers.iter().find(|(_, peer)| peer.v6 == address).map(|(key, _)| *key)
            }
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the daemon of who was introduced there listens.
fn at_daemon(host: &HostPort) -> Vec<PeerAddress> {
    match &host.host {
        Host::Address(address) => vec![SocketAddr::new(*address, PORT).into()],
        Host::Bluetooth(device) => vec![PeerAddress::Bluetooth { device: *device, port: PORT }],
        Host::Name(name) => {
            let found = (name.as_str(), PORT).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            found.unwrap_or_default().into_iter().map(PeerAddress::from).collect()
        }
    }
}
