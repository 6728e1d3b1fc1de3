//! The links on which neighbours may be: interfaces with an address of their own there, and a socket for each family.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use linux::BindTo;
use linux::monitor::Interface;
use linux::netlink::InterfaceAddress;
use linux::poll::{Interest, Poller, Token};
use linux::udp::{ReceiveBuffer, SendError, UdpPath};
use policy::{NetworkPreference, Priority};
use tracing::{info, warn};
use units::{NetworkId, Timestamp};

use crate::config::NetworkConfig;
use crate::device::networks;

/// UDP port of everything that neighbours say.
pub const PORT: u16 = 4_601;
/// Everybody who may be a neighbour, on one link.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0xab51, 0x4601);

/// One way to the neighbours of a link.
struct Port {
    address: IpAddr,
    socket: UdpPath,
}

/// A link.
pub struct Link {
    /// Its number; stays with the name while the daemon lives.
    pub network: NetworkId,
    /// Its interface.
    pub name: String,
    /// The interface's number.
    pub index: u32,
    ports: Vec<Port>,
    /// When the next beacon is due.
    pub next_beacon: Timestamp,
    /// Beacons since it came up.
    pub beacons: u32,
}

impl Link {
    /// Our address in the family of `other` here.
    pub fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        self.ports.iter().map(|port| port.address).find(|own| own.is_ipv4() == other.is_ipv4())
    }

    /// Sends to one host of the link.
    ///
    /// # Errors
    /// If there is no address of that family here, or the kernel refuses.
    pub fn send(&self, to: IpAddr, bytes: &[u8]) -> Result<(), SendError> {
        self.send_by(|port| port.address.is_ipv4() == to.is_ipv4(), to, bytes)
    }

    /// Sends to everybody on the link, in each family.
    pub fn send_to_all(&self, bytes: &[u8]) {
        for (is_ipv4, everybody) in [(false, GROUP.into()), (true, Ipv4Addr::BROADCAST.into())] {
            // A link that has just gone says so by itself.
            drop(self.send_by(|port| port.address.is_ipv4() == is_ipv4, everybody, bytes));
        }
    }

    fn send_by(&self, which: impl Fn(&Port) -> bool, to: IpAddr, bytes: &[u8]) -> Result<(), SendError> {
        let missing = || SendError::Unreachable(io::ErrorKind::AddrNotAvailable.into());
        let port = self.ports.iter().find(|port| which(port)).ok_or_else(missing)?;
        let to = match to {
            IpAddr::V4(to) => SocketAddr::from((to, PORT)),
            IpAddr::V6(to) => SocketAddrV6::new(to, PORT, 0, self.index).into(),
        };
        port.socket.send(to, Some(port.address), 0, bytes, None)
    }
}

/// All links.
pub struct Links {
    own_interface: String,
    mark: u32,
    config: BTreeMap<String, NetworkConfig>,
    preferences: BTreeMap<String, NetworkPreference>,
    numbers: BTreeMap<String, NetworkId>,
    links: BTreeMap<NetworkId, Link>,
    /// Interfaces whose IPv6 address the kernel checks yet, by number, and since when.
    awaited: BTreeMap<u32, Timestamp>,
    buffer: ReceiveBuffer,
}

impl Links {
    /// None yet. `own_interface` is any0, `mark` that of the daemon's own packets.
    pub fn new(own_interface: String, mark: u32, config: BTreeMap<String, NetworkConfig>) -> Self {
        Self {
            own_interface,
            mark,
            config,
            preferences: BTreeMap::new(),
            numbers: BTreeMap::new(),
            links: BTreeMap::new(),
            awaited: BTreeMap::new(),
            buffer: ReceiveBuffer::new(),
        }
    }

    /// Takes in what is there now; gives the links that are gone, or are others now, and the names of those that are new.
    pub fn update(
        &mut self,
        now: Timestamp,
        interfaces: &[Interface],
        addresses: &[InterfaceAddress],
        poller: &Poller,
    ) -> (Vec<NetworkId>, Vec<String>) {
        let mut gone = Vec::new();
        let mut fresh = Vec::new();
        let possible: Vec<&Interface> =
            interfaces.iter().filter(|interface| self.may_be_link(interface)).take(MOST_LINKS).collect();
        self.wait_for_v6(now, &possible, addresses);
        let wanted: Vec<(&Interface, Vec<IpAddr>)> = possible
            .into_iter()
            .filter(|interface| !self.is_awaited(now, interface.index))
            .map(|interface| (interface, own_addresses(interface, addresses)))
            .filter(|(_, own)| !own.is_empty())
            .collect();
        self.links.retain(|network, link| {
            let same = wanted.iter().any(|(interface, own)| {
                interface.name == link.name
                    && interface.index == link.index
                    && link.ports.iter().all(|port| own.contains(&port.address))
            });
            if !same {
                gone.push(*network);
            }
            same
        });
        for (interface, own) in wanted {
            let known = self.numbers.len();
            let number = NetworkId(u32::try_from(known).unwrap_or(u32::MAX));
            if known >= MOST_NAMES && !self.numbers.contains_key(&interface.name) {
                // Names of tethered phones: those that are not there any more make room.
                let Self { numbers, links, .. } = self;
                numbers.retain(|_, number| links.contains_key(number));
                continue;
            }
            let network = *self.numbers.entry(interface.name.clone()).or_insert(number);
            let is_new = |own: &&IpAddr| {
                self.links
                    .get(&network)
                    .is_none_or(|link| link.ports.iter().all(|port| port.address != **own))
            };
            let ports = own.iter().filter(is_new);
            let ports: Vec<Port> =
                ports.filter_map(|own| self.open(interface, network, *own, poller)).collect();
            if let Some(link) = self.links.get_mut(&network) {
                // Whoever was met by the other family stays met.
                if !ports.is_empty() {
                    link.ports.extend(ports);
                    (link.next_beacon, link.beacons) = (now, 0);
                }
                continue;
            }
            let link = Link {
                network,
                name: interface.name.clone(),
                index: interface.index,
                ports,
                next_beacon: now,
                beacons: 0,
            };
            info!("neighbours are looked for on {}", link.name);
            fresh.push(link.name.clone());
            self.links.insert(network, link);
        }
        (gone, fresh)
    }

    /// Notes which interfaces have an IPv6 address that is not ready yet, and since when.
    fn wait_for_v6(&mut self, now: Timestamp, possible: &[&Interface], addresses: &[InterfaceAddress]) {
        let is_checking = |index: u32| {
            let mut own =
                addresses.iter().filter(|own| own.index == index && is_link_local(own.address.address()));
            let any = own.next().map(|first| first.usable);
            any == Some(false) && own.all(|own| !own.usable)
        };
        self.awaited.retain(|index, _| is_checking(*index));
        for interface in possible {
            let has_link = self.links.values().any(|link| link.index == interface.index);
            if !has_link && is_checking(interface.index) {
                self.awaited.entry(interface.index).or_insert(now);
            }
        }
    }

    fn is_awaited(&self, now: Timestamp, index: u32) -> bool {
        self.awaited.get(&index).is_some_and(|since| now.since(*since) < V6_PATIENCE)
    }

    /// Whether a link will be looked at again soon since its IPv6 address is not ready yet.
    pub fn is_waiting(&self, now: Timestamp) -> bool {
        self.awaited.keys().any(|index| self.is_awaited(now, *index))
    }

    fn open(&self, interface: &Interface, network: NetworkId, own: IpAddr, poller: &Poller) -> Option<Port> {
        let local: SocketAddr = match own {
            IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, PORT).into(),
            IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, PORT).into(),
        };
        let to = BindTo { interface: Some(interface.name.clone()), local, mark: Some(self.mark) };
        let fail = |error: String| warn!("no neighbours on {}: {error}", interface.name);
        let socket = UdpPath::bind(&to).map_err(|error| fail(error.to_string())).ok()?;
        let prepared = match own {
            IpAddr::V4(_) => socket.allow_broadcast(),
            IpAddr::V6(_) => socket.join_group(GROUP, interface.index),
        };
        let token = Token(FIRST_TOKEN.0 + u64::from(network.0) * 2 + u64::from(own.is_ipv4()));
        prepared
            .and_then(|()| poller.add(&socket, token, Interest::Readable))
            .map_err(|error| fail(error.to_string()))
            .ok()?;
        Some(Port { address: own, socket })
    }

    fn may_be_link(&self, interface: &Interface) -> bool {
        let config = self.config.get(&interface.name);
        let off = self
            .preferences
            .get(&interface.name)
            .map_or(config.is_some_and(|config| config.off), |now| now.off);
        interface.is_running()
            && networks::leads_out(interface, &self.own_interface, config.is_some())
            && config.is_none_or(|config| config.neighbours)
            && !off
    }

    /// What a socket has received, at most a few dozen datagrams; `sink` gets the link, who sent it, and the bytes.
    pub fn receive(&mut self, token: Token, sink: &mut impl FnMut(&Link, IpAddr, &[u8])) {
        let at = token.0.saturating_sub(FIRST_TOKEN.0);
        let network = NetworkId(u32::try_from(at / 2).unwrap_or(u32::MAX));
        let Some(link) = self.links.get(&network) else { return };
        let Some(port) = link.ports.iter().find(|port| u64::from(port.address.is_ipv4()) == at % 2) else {
            return;
        };
        for _ in 0..READS {
            let read = port.socket.receive(&mut self.buffer, &mut |datagram| {
                sink(link, datagram.remote.ip(), datagram.bytes);
            });
            if !read.is_ok_and(|count| count > 0) {
                return;
            }
        }
    }

    /// How networks are preferred now, by name.
    pub fn prefer(&mut self, preferences: BTreeMap<String, NetworkPreference>) {
        self.preferences = preferences;
    }

    /// The link with that number.
    pub fn get(&self, network: NetworkId) -> Option<&Link> {
        self.links.get(&network)
    }

    /// All links.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// All links, to set their clocks.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.values_mut()
    }

    /// All links with their order of preference: the backups come after all others.
    pub fn ranked(&self) -> Vec<(NetworkId, Priority)> {
        let order = |link: &Link| {
            let config = self.config.get(&link.name).copied().unwrap_or_default();
            let preference =
                self.preferences.get(&link.name).copied().unwrap_or(networks::preference(config));
            (preference.backup.unwrap_or(preference.metered), preference.priority)
        };
        let mut orders: Vec<_> = self.links.values().map(order).collect();
        orders.sort();
        orders.dedup();
        let rank = |link: &Link| orders.iter().position(|known| *known == order(link)).unwrap_or_default();
        self.links
            .values()
            .map(|link| (link.network, Priority(u8::try_from(rank(link)).unwrap_or(u8::MAX))))
            .collect()
    }
}

/// The address of each family by which the link's hosts reach us: of IPv6 the link-local one, which needs no set-up.
fn own_addresses(interface: &Interface, addresses: &[InterfaceAddress]) -> Vec<IpAddr> {
    let here = || addresses.iter().filter(|own| own.index == interface.index && own.usable);
    let of = |is_ours: fn(IpAddr) -> bool| {
        here().map(|own| own.address.address()).filter(|own| is_ours(*own)).min()
    };
    let v6 = of(is_link_local);
    let v4 = of(|own| own.is_ipv4());
    v6.into_iter().chain(v4).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Tokens below this are the thread's own.
pub const FIRST_TOKEN: Token = Token(16);
/// IPv4 alone would do for half of the addresses only; duplicate address detection takes one to two seconds (RFC 4862 section 5.4).
const V6_PATIENCE: Duration = Duration::from_secs(3);
const MOST_LINKS: usize = 32;
const MOST_NAMES: usize = 256;
/// Reads from one socket before others get their turn.
const READS: usize = 8;
