//! Adapters of this machine, `[VCONN] table 2`, and their sockets. A kind of adapter that is no IP network gets a file of its own below
//! this module, with an [`AdapterSocket`].

mod ip;

pub(super) use ip::IpSocket;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use linux::monitor::Interface;
use linux::udp::ReceiveBuffer;
use policy::energy::{Card, PowerModel};
use policy::network::NetworkKind;
use units::{BitRate, IpPrefix};
use wire::inner::Ecn;

use crate::link;

/// One adapter as it is now.
#[derive(Clone, PartialEq, Debug)]
pub struct Adapter {
    /// The kernel's number of it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `INT_TYPE`: what it is.
    pub kind: NetworkKind,
    /// `INT_OPSTATUS`: whether it can carry packets.
    pub state: AdapterState,
    /// Its addresses with their subnets.
    pub addresses: Vec<IpPrefix>,
    /// `INT_SPEED`: what its link claims to carry, if it claims anything.
    pub speed: Option<BitRate>,
    /// `INT_PWR`: what it draws while it is used, in the model of a card of its kind.
    pub power: Option<PowerModel>,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Whether it has a default route, by family: IPv4, IPv6.
    pub routed: [bool; 2],
    /// Whether it leads to this machine only.
    pub loopback: bool,
}

/// Operational states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AdapterState {
    /// It can carry packets.
    Connected,
    /// No cable, no access point, no address.
    Disconnected,
    /// Switched off.
    Off,
}

impl Adapter {
    /// The adapter of an interface; `None` for what is none, as tunnels over others.
    pub(super) fn of(interface: &Interface) -> Option<Self> {
        if interface.enslaved || link::rides_on_others(interface) {
            return None;
        }
        let (kind, speed) = link::classify(Path::new(link::SYSTEM), &interface.name, interface.index);
        let mut addresses = interface.addresses.clone();
        if interface.loopback {
            addresses = LOOPBACK.iter().filter_map(|text| text.parse().ok()).collect();
        }
        let state = match (interface.up, interface.carrier) {
            (false, _) => AdapterState::Off,
            (true, true) if !addresses.is_empty() => AdapterState::Connected,
            _ => AdapterState::Disconnected,
        };
        Some(Self {
            index: interface.index,
            name: interface.name.clone(),
            kind,
            state,
            addresses,
            speed,
            power: power_of(kind),
            mtu: interface.mtu,
            routed: [interface.default_route_v4.is_some(), interface.default_route_v6.is_some()],
            loopback: interface.loopback,
        })
    }

    /// The address that its sockets of a family have.
    pub(super) fn address(&self, ipv6: bool) -> Option<IpAddr> {
        if self.state != AdapterState::Connected {
            return None;
        }
        self.addresses.iter().map(|prefix| prefix.address()).find(|address| address.is_ipv6() == ipv6)
    }

    /// Whether packets for an address may leave by it: on its own link, or by its router.
    pub(super) fn leads_to(&self, address: IpAddr) -> bool {
        if address.is_loopback() || self.loopback {
            return address.is_loopback() && self.loopback;
        }
        let near = self.addresses.iter().any(|prefix| prefix.contains(address));
        near || self.routed[usize::from(address.is_ipv6())]
    }
}

/// The code of a kind in `wire::peer::AdapterAddress`.
pub(super) fn kind_code(kind: NetworkKind) -> u8 {
    match kind {
        NetworkKind::Other => 0,
        NetworkKind::Ethernet => 1,
        NetworkKind::Wifi => 2,
        NetworkKind::Cellular => 3,
        NetworkKind::Bluetooth => 4,
        NetworkKind::AdHoc => 5,
    }
}

/// A published card of the kind; there is no figure for the others that could be cited.
fn power_of(kind: NetworkKind) -> Option<PowerModel> {
    let name = match kind {
        NetworkKind::Wifi | NetworkKind::AdHoc => "wifi-2012",
        NetworkKind::Cellular => "lte-2012",
        NetworkKind::Ethernet | NetworkKind::Bluetooth | NetworkKind::Other => return None,
    };
    Card::by_name(name).map(|card| card.model)
}

/// What became of datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// The adapter has them.
    Yes,
    /// They are lost, as on a full link.
    Dropped,
    /// They are larger than the adapter takes.
    TooLarge,
}

/// Takes a datagram: who sent it, its outer ECN bits, and its bytes, which are decrypted in place.
pub(super) type Sink<'a> = dyn FnMut(SocketAddr, Ecn, &mut [u8]) + 'a;

/// The socket of one adapter: sends and receives datagrams, never blocks.
pub(super) trait AdapterSocket: Send {
    /// Sends datagrams of `segment` bytes each, of which the last may be shorter.
    fn send(&self, remote: SocketAddr, ecn: Ecn, bytes: &[u8], segment: usize) -> Sent;

    /// Receives once; the number of datagrams.
    fn receive(&self, buffer: &mut ReceiveBuffer, sink: &mut Sink<'_>) -> io::Result<usize>;

    /// Where peers reach it.
    fn local(&self) -> SocketAddr;

    /// To wait on.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

impl AsFd for dyn AdapterSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }
}

const LOOPBACK: [&str; 2] = ["127.0.0.1/8", "::1/128"];
