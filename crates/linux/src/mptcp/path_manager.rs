//! The in-kernel path manager, by generic netlink (`linux/mptcp_pm.h`).

use std::net::IpAddr;

use crate::netlink::NetlinkError;
use crate::netlink::generic::{FamilyNumber, GenericNetlink, Question};
use crate::netlink::message::{self, Request};

/// An address of the path manager's; from those that we add, connections open a subflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// Its number in the kernel, 1 to 255.
    pub id: u8,
    /// The address.
    pub address: IpAddr,
    /// Number of the interface by which its subflows leave; 0 for any.
    pub interface: u32,
    /// Its subflows carry data only while no other can.
    pub backup: bool,
}

/// Most subflows of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Beside the first, 0 to 8.
    pub subflows: u32,
    /// Addresses of the far end that are taken up, 0 to 8.
    pub accepted: u32,
}

/// A connection to the path manager of the current network namespace.
pub struct PathManager {
    netlink: GenericNetlink,
    family: FamilyNumber,
}

impl PathManager {
    /// Opens it; `None` if the kernel has no MPTCP.
    pub fn open() -> Result<Option<Self>, NetlinkError> {
        let mut netlink = GenericNetlink::open()?;
        Ok(netlink.family("mptcp_pm")?.map(|family| Self { netlink, family }))
    }

    /// All endpoints, whoever has made them, those too that only tell the far end of an address. Takes `CAP_NET_ADMIN`, as all else here.
    pub fn endpoints(&mut self) -> Result<Vec<Endpoint>, NetlinkError> {
        let mut endpoints = Vec::new();
        let question = Question { command: GET_ADDRESS, dump: true };
        self.netlink.ask(
            "list MPTCP endpoints",
            self.family,
            question,
            |_| {},
            |attributes| {
                endpoints.extend(
                    message::attributes(attributes)
                        .find_map(|(kind, value)| (kind == ADDRESS).then(|| parse(value))?),
                );
            },
        )?;
        Ok(endpoints)
    }

    /// Adds an endpoint. Fails with [`NetlinkError::is_exists`] if there is one with that address.
    pub fn add(&mut self, endpoint: &Endpoint) -> Result<(), NetlinkError> {
        let Endpoint { id, address, interface, backup } = *endpoint;
        self.change(&format!("add MPTCP endpoint {address}"), ADD_ADDRESS, |request| {
            request.attribute(
                FAMILY,
                &if address.is_ipv4() { libc::AF_INET as u16 } else { libc::AF_INET6 as u16 }.to_ne_bytes(),
            );
            request.attribute(ID, &[id]);
            request.address(if address.is_ipv4() { ADDRESS_V4 } else { ADDRESS_V6 }, address);
            request.number(FLAGS, flags(backup));
            if interface != 0 {
                request.number(INTERFACE, interface);
            }
        })
    }

    /// Changes whether an endpoint is a backup, for living subflows too.
    pub fn set_backup(&mut self, id: u8, backup: bool) -> Result<(), NetlinkError> {
        self.change(&format!("change MPTCP endpoint {id}"), SET_FLAGS, |request| {
            request.attribute(ID, &[id]);
            request.number(FLAGS, flags(backup));
        })
    }

    /// Removes an endpoint; its subflows end.
    pub fn remove(&mut self, id: u8) -> Result<(), NetlinkError> {
        self.change(&format!("remove MPTCP endpoint {id}"), REMOVE_ADDRESS, |request| {
            request.attribute(ID, &[id]);
        })
    }

    /// The limits as they are.
    pub fn limits(&mut self) -> Result<Limits, NetlinkError> {
        let mut limits = Limits { subflows: 0, accepted: 0 };
        let question = Question { command: GET_LIMITS, dump: false };
        self.netlink.ask(
            "read MPTCP limits",
            self.family,
            question,
            |_| {},
            |attributes| {
                for (kind, value) in message::attributes(attributes) {
                    let number = message::number(value, 0).unwrap_or(0);
                    match kind {
                        SUBFLOWS => limits.subflows = number,
                        ACCEPTED => limits.accepted = number,
                        _ => {}
                    }
                }
            },
        )?;
        Ok(limits)
    }

    /// Sets them, for connections that begin from now on.
    pub fn set_limits(&mut self, limits: Limits) -> Result<(), NetlinkError> {
        let question = Question { command: SET_LIMITS, dump: false };
        let fill = |request: &mut Request| {
            request.number(ACCEPTED, limits.accepted).number(SUBFLOWS, limits.subflows);
        };
        self.netlink.ask("set MPTCP limits", self.family, question, fill, |_| {})
    }

    fn change(
        &mut self,
        operation: &str,
        command: u8,
        fill: impl FnOnce(&mut Request),
    ) -> Result<(), NetlinkError> {
        let question = Question { command, dump: false };
        let nested = |request: &mut Request| {
            request.nested(ADDRESS, fill);
        };
        self.netlink.ask(operation, self.family, question, nested, |_| {})
    }
}

const fn flags(backup: bool) -> u32 {
    if backup { SUBFLOW | BACKUP } else { SUBFLOW }
}

fn parse(attributes: &[u8]) -> Option<Endpoint> {
    let (mut id, mut address, mut interface, mut flags) = (None, None, 0, 0);
    for (kind, value) in message::attributes(attributes) {
        match kind {
            ID => id = value.first().copied(),
            ADDRESS_V4 | ADDRESS_V6 => address = message::address(value),
            INTERFACE => interface = message::number(value, 0)?,
            FLAGS => flags = message::number(value, 0)?,
            _ => {}
        }
    }
    Some(Endpoint { id: id?, address: address?, interface, backup: flags & BACKUP != 0 })
}

const ADD_ADDRESS: u8 = 1;
const REMOVE_ADDRESS: u8 = 2;
const GET_ADDRESS: u8 = 3;
const SET_LIMITS: u8 = 5;
const GET_LIMITS: u8 = 6;
const SET_FLAGS: u8 = 7;
const ADDRESS: u16 = 1;
const ACCEPTED: u16 = 2;
const SUBFLOWS: u16 = 3;
const FAMILY: u16 = 1;
const ID: u16 = 2;
const ADDRESS_V4: u16 = 3;
const ADDRESS_V6: u16 = 4;
const FLAGS: u16 = 6;
const INTERFACE: u16 = 7;
const SUBFLOW: u32 = 1 << 1;
const BACKUP: u32 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;
    use crate::test_namespace::{joined_pair, may_test};

    const SIGNAL: u32 = 1 << 0;

    #[test]
    fn endpoints_and_limits_are_set_listed_and_removed() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        left.run(|| {
            let Some(mut manager) = PathManager::open().unwrap() else {
                eprintln!("skipped: this kernel has no MPTCP");
                return;
            };
            let interface = Netlink::open().unwrap().link("cable").unwrap().unwrap().index;
            let endpoint = |id, address: &str, backup| Endpoint {
                id,
                address: address.parse().unwrap(),
                interface,
                backup,
            };
            let first = endpoint(65, "10.77.0.1", false);
            let second = endpoint(129, "fd77::1", true);
            manager.add(&first).unwrap();
            manager.add(&second).unwrap();
            assert_eq!(manager.endpoints().unwrap(), [first, second]);
            assert!(manager.add(&Endpoint { id: 7, ..first }).unwrap_err().is_exists());
            manager.set_backup(65, true).unwrap();
            assert!(manager.endpoints().unwrap()[0].backup);
            manager.remove(65).unwrap();
            assert_eq!(manager.endpoints().unwrap(), [second]);
            let told = endpoint(3, "10.77.0.9", false);
            let only_tell = |request: &mut Request| {
                request.attribute(FAMILY, &(libc::AF_INET as u16).to_ne_bytes());
                request.attribute(ID, &[told.id]);
                request.address(ADDRESS_V4, told.address).number(FLAGS, SIGNAL).number(INTERFACE, interface);
            };
            manager.change("add an endpoint that opens nothing", ADD_ADDRESS, only_tell).unwrap();
            assert!(manager.endpoints().unwrap().contains(&told), "it takes a place, too");
            manager.remove(told.id).unwrap();
            let limits = Limits { subflows: 8, accepted: 3 };
            manager.set_limits(limits).unwrap();
            assert_eq!(manager.limits().unwrap(), limits);
        })
        .unwrap();
    }

    #[test]
    fn what_is_no_endpoint_is_left_out() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[8, 0, 3, 0, 10, 0, 0, 1]), None);
    }
}
