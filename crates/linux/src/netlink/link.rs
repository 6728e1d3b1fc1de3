//! Links: the kernel's interfaces.

use std::os::fd::{AsRawFd, BorrowedFd};

use units::MacAddress;

use super::message::{self, Message, Request};
use super::{ACK, CREATE, DUMP, Netlink, NetlinkError};

/// One interface as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number of it.
    pub index: u32,
    /// Its name, such as `wlan0`.
    pub name: String,
    /// Whether an administrator has switched it on.
    pub up: bool,
    /// Whether it can carry packets now (cable in, associated).
    pub carrier: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Whether it belongs to a bridge, team or the like.
    pub enslaved: bool,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// What made it (`veth`, `bridge`, `tun`, `wireguard`); `None` for hardware.
    pub kind: Option<String>,
    /// What its owner has noted on it, for people and programs.
    pub alias: Option<String>,
    /// The ARP hardware type: 1 Ethernet, 65534 none (TUN), 519 raw IP (modems), 803 802.11 with radiotap.
    pub hardware_type: u16,
    /// Its hardware address, if it has one of 6 bytes.
    pub address: Option<MacAddress>,
}

impl Netlink {
    /// All links of this namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        self.dump("list links", || Request::new(libc::RTM_GETLINK, DUMP, &body(0, 0, 0)), parse)
    }

    /// The link called `name`, if there is one.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        Ok(self.links()?.into_iter().find(|link| link.name == name))
    }

    /// Switches the link with number `index` on or off.
    pub fn set_link_up(&mut self, index: u32, up: bool) -> Result<(), NetlinkError> {
        let flags = if up { libc::IFF_UP as u32 } else { 0 };
        let request = Request::new(libc::RTM_NEWLINK, ACK, &body(index, flags, libc::IFF_UP as u32));
        self.change(&format!("switch link {index} {}", if up { "on" } else { "off" }), request)
    }

    /// Sets the largest packet of the link, in bytes.
    pub fn set_link_mtu(&mut self, index: u32, mtu: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, ACK, &body(index, 0, 0));
        request.number(libc::IFLA_MTU, mtu);
        self.change(&format!("set the MTU of link {index} to {mtu}"), request)
    }

    /// Sets the link's hardware address; most links must be off.
    pub fn set_link_address(&mut self, index: u32, address: MacAddress) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, ACK, &body(index, 0, 0));
        request.attribute(libc::IFLA_ADDRESS, &address.0);
        self.change(&format!("set the hardware address of link {index} to {address}"), request)
    }

    /// Notes something on the link that `ip link` shows and other programs can read.
    pub fn set_link_alias(&mut self, index: u32, alias: &str) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, ACK, &body(index, 0, 0));
        request.attribute(libc::IFLA_IFALIAS, alias.as_bytes());
        self.change(&format!("note \"{alias}\" on link {index}"), request)
    }

    /// Sets how many packets wait in the link's transmit queue.
    pub fn set_link_queue_length(&mut self, index: u32, packets: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, ACK, &body(index, 0, 0));
        request.number(libc::IFLA_TXQLEN, packets);
        self.change(&format!("set the queue of link {index} to {packets} packets"), request)
    }

    /// Moves the link into another network namespace, under `new_name` if given.
    pub fn move_link(
        &mut self,
        index: u32,
        namespace: BorrowedFd<'_>,
        new_name: Option<&str>,
    ) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, ACK, &body(index, 0, 0));
        request.number(libc::IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
        if let Some(name) = new_name {
            request.text(libc::IFLA_IFNAME, name);
        }
        self.change(&format!("move link {index} to another namespace"), request)
    }

    /// Makes a pair of virtual cables' ends: `name` here, `peer` here or in `peer_namespace`.
    pub fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_namespace: Option<BorrowedFd<'_>>,
    ) -> Result<(), NetlinkError> {
        let mut request = Request::new(libc::RTM_NEWLINK, CREATE, &body(0, 0, 0));
        request.text(libc::IFLA_IFNAME, name).nested(libc::IFLA_LINKINFO, |info| {
            info.attribute(libc::IFLA_INFO_KIND, b"veth").nested(libc::IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |end| {
                    end.raw(&body(0, 0, 0)).text(libc::IFLA_IFNAME, peer);
                    if let Some(namespace) = peer_namespace {
                        end.number(libc::IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
                    }
                });
            });
        });
        self.change(&format!("make the veth pair {name} and {peer}"), request)
    }

    /// Removes the link with number `index`.
    pub fn delete_link(&mut self, index: u32) -> Result<(), NetlinkError> {
        let request = Request::new(libc::RTM_DELLINK, ACK, &body(index, 0, 0));
        self.change(&format!("remove link {index}"), request)
    }
}

/// `struct ifinfomsg`.
fn body(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&change.to_ne_bytes());
    body
}

fn parse(message: Message<'_>) -> Option<Link> {
    if message.kind != libc::RTM_NEWLINK {
        return None;
    }
    let flags = message::number(message.body, 8)? as libc::c_int;
    let mut link = Link {
        index: message::number(message.body, 4)?,
        name: String::new(),
        up: flags & libc::IFF_UP != 0,
        carrier: flags & libc::IFF_LOWER_UP != 0 && flags & libc::IFF_RUNNING != 0,
        loopback: flags & libc::IFF_LOOPBACK != 0,
        enslaved: false,
        mtu: 0,
        kind: None,
        alias: None,
        hardware_type: message::short(message.body, 2)?,
        address: None,
    };
    for (kind, value) in message::attributes(message.body.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = message::text(value),
            libc::IFLA_ADDRESS => link.address = value.try_into().ok().map(MacAddress),
            libc::IFLA_MTU => link.mtu = message::number(value, 0)?,
            libc::IFLA_IFALIAS => link.alias = Some(message::text(value)),
            libc::IFLA_MASTER => link.enslaved = true,
            libc::IFLA_LINKINFO => {
                link.kind = message::attributes(value)
                    .find(|(kind, _)| *kind == libc::IFLA_INFO_KIND)
                    .map(|(_, value)| message::text(value));
            }
            _ => {}
        }
    }
    Some(link)
}

const VETH_INFO_PEER: u16 = 1;
