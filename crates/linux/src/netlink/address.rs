//! Addresses of interfaces.

use std::net::{IpAddr, Ipv4Addr};

use super::message::{self, Message, Request};
use super::{ACK, CREATE_OR_REPLACE, DUMP, Netlink, NetlinkError};
use crate::prefix::IpPrefix;

/// One address of one interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterfaceAddress {
    /// The interface's number.
    pub index: u32,
    /// The address and its subnet's length.
    pub address: IpPrefix,
    /// False while duplicate address detection runs or after it failed.
    pub usable: bool,
    /// Valid only on this link (`fe80::/10`, `169.254.0.0/16`) or only on this host.
    pub link_local: bool,
    /// Not to be chosen as a source unless asked for.
    pub deprecated: bool,
}

impl Netlink {
    /// All addresses of this namespace, both families.
    pub fn addresses(&mut self) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        self.dump("list addresses", || Request::new(libc::RTM_GETADDR, DUMP, &body(0, 0, 0, 0)), parse)
    }

    /// The address of a family that sockets may have on the interface; `None` if it is not there or has none.
    pub fn address_on(&mut self, interface: &str, ipv6: bool) -> Result<Option<IpAddr>, NetlinkError> {
        let Some(link) = self.link(interface)? else { return Ok(None) };
        let fits = |own: &InterfaceAddress| {
            own.index == link.index
                && own.usable
                && !own.link_local
                && !own.deprecated
                && own.address.address().is_ipv6() == ipv6
        };
        Ok(self.addresses()?.into_iter().find(fits).map(|own| own.address.address()))
    }

    /// Gives the interface an address; no duplicate address detection is done for it.
    pub fn add_address(&mut self, index: u32, address: IpPrefix) -> Result<(), NetlinkError> {
        let mut request = Request::new(
            libc::RTM_NEWADDR,
            CREATE_OR_REPLACE,
            &body(family(address.address()), address.length(), index, libc::IFA_F_NODAD as u8),
        );
        request.address(libc::IFA_LOCAL, address.address()).address(libc::IFA_ADDRESS, address.address());
        self.change(&format!("add address {address} to link {index}"), request)
    }

    /// Gives the interface an address that no socket gets unless a route or the program says so: an IPv6 address is deprecated
    /// from the start, an IPv4 one has the scope of the link, and may have the broadcast address `broadcast`.
    pub fn add_auxiliary_address(
        &mut self,
        index: u32,
        address: IpPrefix,
        broadcast: Option<Ipv4Addr>,
    ) -> Result<(), NetlinkError> {
        let own = address.address();
        let mut body = body(family(own), address.length(), index, libc::IFA_F_NODAD as u8);
        if own.is_ipv4() {
            body[3] = libc::RT_SCOPE_LINK;
        }
        let mut request = Request::new(libc::RTM_NEWADDR, CREATE_OR_REPLACE, &body);
        request.address(libc::IFA_LOCAL, own).address(libc::IFA_ADDRESS, own);
        if let Some(broadcast) = broadcast {
            request.address(libc::IFA_BROADCAST, broadcast.into());
        }
        if own.is_ipv6() {
            // `struct ifa_cacheinfo`: preferred for no time, valid for ever.
            let mut lifetimes = [0; 16];
            lifetimes[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
            request.attribute(libc::IFA_CACHEINFO, &lifetimes);
        }
        self.change(&format!("add address {address} to link {index}"), request)
    }

    /// Takes an address from the interface.
    pub fn delete_address(&mut self, index: u32, address: IpPrefix) -> Result<(), NetlinkError> {
        let mut request = Request::new(
            libc::RTM_DELADDR,
            ACK,
            &body(family(address.address()), address.length(), index, 0),
        );
        request.address(libc::IFA_LOCAL, address.address());
        self.change(&format!("remove address {address} from link {index}"), request)
    }
}

/// The kernel's number of an address family.
pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

/// `struct ifaddrmsg`.
fn body(family: u8, length: u8, index: u32, flags: u8) -> [u8; 8] {
    let mut body = [family, length, flags, 0, 0, 0, 0, 0];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

fn parse(message: Message<'_>) -> Option<InterfaceAddress> {
    if message.kind != libc::RTM_NEWADDR {
        return None;
    }
    let length = *message.body.get(1)?;
    let mut flags = u32::from(*message.body.get(2)?);
    let scope = *message.body.get(3)?;
    let index = message::number(message.body, 4)?;
    let (mut local, mut peer) = (None, None);
    for (kind, value) in message::attributes(message.body.get(8..)?) {
        match kind {
            libc::IFA_LOCAL => local = message::address(value),
            libc::IFA_ADDRESS => peer = message::address(value),
            libc::IFA_FLAGS => flags = message::number(value, 0)?,
            _ => {}
        }
    }
    let address = IpPrefix::new(local.or(peer)?, length).ok()?;
    Some(InterfaceAddress {
        index,
        address,
        usable: flags & (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) == 0,
        deprecated: flags & libc::IFA_F_DEPRECATED != 0,
        link_local: scope != libc::RT_SCOPE_UNIVERSE || is_link_local(address.address()),
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
