//! Adapters of this machine, `[VCONN] table 2`, and their sockets. A kind of adapter that is no IP network gets a file of its own below
//! this module, with an [`AdapterSocket`].

mod bluetooth;
mod ip;

pub(super) use bluetooth::BluetoothSocket;
pub(super) use ip::IpSocket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use bond::Carrier;
use linux::bluetooth::Controller;
use linux::monitor::Interface;
use linux::udp::ReceiveBuffer;
use policy::energy::{Card, PowerModel};
use policy::network::{NetworkInput, NetworkKind, Price};
use units::{BitRate, IpPrefix, MacAddress};
use wire::inner::Ecn;

use super::remote::{self, Family};
use crate::link;

/// One adapter as it is now.
#[derive(Clone, PartialEq, Debug)]
pub struct Adapter {
    /// The kernel's number of it, among its interfaces or among its Bluetooth controllers.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `INT_TYPE`: what it is.
    pub kind: NetworkKind,
    /// `INT_OPSTATUS`: whether it can carry packets.
    pub state: AdapterState,
    /// Whether a cable is in, or an access point or a group is joined: frames pass, also where it has no address but those of its link.
    pub linked: bool,
    /// Its addresses with their subnets.
    pub addresses: Vec<IpPrefix>,
    /// Its device address, if it is a Bluetooth controller.
    pub bluetooth: Option<MacAddress>,
    /// `INT_SPEED`: what its link claims to carry, if it claims anything.
    pub speed: Option<BitRate>,
    /// `INT_PWR`: what it draws while it is used, in the model of the card that a daemon was told of, or of one of its kind.
    pub power: Option<PowerModel>,
    /// What its traffic costs, if a daemon was told.
    pub price: Option<Price>,
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
            linked: interface.up && interface.carrier,
            addresses,
            bluetooth: None,
            speed,
            power: power_of(kind),
            price: None,
            mtu: interface.mtu,
            routed: [interface.default_route_v4.is_some(), interface.default_route_v6.is_some()],
            loopback: interface.loopback,
        })
    }

    /// The adapter of a Bluetooth controller.
    pub(super) fn of_controller(controller: &Controller) -> Self {
        let kind = NetworkKind::Bluetooth;
        Self {
            index: controller.index.into(),
            name: controller.name(),
            kind,
            state: if controller.current.powered() { AdapterState::Connected } else { AdapterState::Off },
            linked: controller.current.powered(),
            addresses: Vec::new(),
            bluetooth: Some(controller.address),
            speed: Some(BLUETOOTH_SPEED),
            power: power_of(kind),
            price: None,
            mtu: linux::bluetooth::MAX_DATAGRAM.into(),
            routed: [false; 2],
            loopback: false,
        }
    }

    /// With what a daemon says of its network. One that the user has switched off there is off here.
    pub(super) fn judged_by(self, network: &NetworkInput) -> Self {
        Self {
            kind: if network.kind == NetworkKind::Other { self.kind } else { network.kind },
            state: if network.preference.off { AdapterState::Off } else { self.state },
            power: network.power.or(self.power),
            price: network.price.or(self.price),
            ..self
        }
    }

    /// The address that its sockets of a family have; port 0.
    pub(super) fn address(&self, family: Family) -> Option<SocketAddr> {
        if self.state != AdapterState::Connected {
            return None;
        }
        if family == Family::Bluetooth {
            return Some(remote::of_device(self.bluetooth?, 0));
        }
        let mut addresses = self.addresses.iter().map(|prefix| SocketAddr::new(prefix.address(), 0));
        addresses.find(|address| Family::of(*address) == family)
    }

    /// Whether datagrams for an address may leave by it: on its own link, or by its router.
    pub(super) fn leads_to(&self, remote: SocketAddr) -> bool {
        let address = remote.ip();
        if Family::of(remote) == Family::Bluetooth {
            return self.bluetooth.is_some();
        }
        if address.is_loopback() || self.loopback {
            return address.is_loopback() && self.loopback;
        }
        self.is_beside(remote) || self.routed[usize::from(address.is_ipv6())]
    }

    /// Whether an address is on its own link.
    pub(super) fn is_beside(&self, remote: SocketAddr) -> bool {
        match Family::of(remote) {
            Family::Bluetooth => self.bluetooth.is_some(),
            Family::V4 | Family::V6 => self.addresses.iter().any(|prefix| prefix.contains(remote.ip())),
        }
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
        NetworkKind::Bluetooth => "bluetooth-2013",
        NetworkKind::Ethernet | NetworkKind::Other => return None,
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

/// What a socket of an adapter with connections has seen of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkChange {
    /// A connection is there, which was not.
    Up(SocketAddr),
    /// The last one has ended.
    Down(SocketAddr),
}

/// The socket of one adapter: sends and receives datagrams, never blocks.
pub(super) trait AdapterSocket: Send {
    /// Sends datagrams of `segment` bytes each, of which the last may be shorter.
    fn send(&mut self, remote: SocketAddr, ecn: Ecn, bytes: &[u8], segment: usize) -> Sent;

    /// Receives once; the number of datagrams.
    fn receive(&mut self, buffer: &mut ReceiveBuffer, sink: &mut Sink<'_>) -> io::Result<usize>;

    /// What it rides on.
    fn carrier(&self) -> Carrier {
        Carrier::Udp
    }

    /// What has become of connections since this was asked last, where there are such.
    fn take_changes(&mut self) -> Vec<LinkChange> {
        Vec::new()
    }

    /// Whom it is connected with, where there are connections.
    fn connected(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

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

/// What 3-DH5 packets carry, one way (Bluetooth Core, volume 2 part B, table 6.9).
const BLUETOOTH_SPEED: BitRate = BitRate(2_178_100);
const LOOPBACK: [&str; 2] = ["127.0.0.1/8", "::1/128"];
