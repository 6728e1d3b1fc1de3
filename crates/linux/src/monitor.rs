//! What networks this host has, and every change of them.
//!
//! The kernel's notifications are only a bell: each time it rings, links, addresses and routes are listed
//! anew and compared with what was known. So nothing goes wrong when notifications are lost (`ENOBUFS`), come
//! in an unexpected order or are of a kind that this program has never seen.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::netlink::socket::NetlinkSocket;
use crate::netlink::{Netlink, NetlinkError, Route, RouteKind};
use crate::prefix::IpPrefix;

/// One interface with what a path needs to know of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
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
    /// Whether it is a port of a bridge or part of a kernel bond.
    pub enslaved: bool,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// What made it (`veth`, `bridge`, `tun`, `wireguard`); `None` for hardware.
    pub kind: Option<String>,
    /// What its owner has noted on it.
    pub alias: Option<String>,
    /// Usable addresses that reach beyond the link, with their subnets, in order.
    pub addresses: Vec<IpPrefix>,
    /// The IPv4 default route over it with the lowest metric.
    pub default_route_v4: Option<DefaultRoute>,
    /// The same for IPv6.
    pub default_route_v6: Option<DefaultRoute>,
}

/// A default route of the main table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultRoute {
    /// The next hop; `None` on point-to-point links.
    pub gateway: Option<IpAddr>,
    /// The lower, the better; 0 if none is given.
    pub metric: u32,
}

impl Interface {
    /// Whether packets can leave by it now.
    pub fn is_running(&self) -> bool {
        self.up && self.carrier
    }

    /// Its first usable address of the family, if any.
    pub fn address(&self, ipv6: bool) -> Option<IpAddr> {
        self.addresses.iter().map(|prefix| prefix.address()).find(|address| address.is_ipv6() == ipv6)
    }
}

/// What changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An interface that was not there before.
    Added(Interface),
    /// Something about an interface is different now.
    Changed {
        /// As it was.
        before: Interface,
        /// As it is.
        now: Interface,
    },
    /// An interface is gone.
    Removed(Interface),
    /// The destinations that are routed otherwise than by default are others.
    Routes,
    /// Whether packets of others are sent on is different now.
    Forwarding,
}

/// Watches the network namespace in which it was opened.
pub struct Monitor {
    bell: NetlinkSocket,
    netlink: Netlink,
    interfaces: BTreeMap<u32, Interface>,
    near: Vec<IpPrefix>,
    forwards: bool,
}

impl Monitor {
    /// Starts to watch; what is there already is in [`Monitor::interfaces`].
    pub fn open() -> Result<Self, NetlinkError> {
        let bell = NetlinkSocket::open(libc::NETLINK_ROUTE, GROUPS)?;
        let mut netlink = Netlink::open()?;
        let (interfaces, near) = list(&mut netlink)?;
        let forwards = forwards(&mut netlink);
        Ok(Self { bell, netlink, interfaces, near, forwards })
    }

    /// All interfaces as last seen, by number.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values()
    }

    /// Destinations of the main table that have routes of their own, in order: local networks and what lies behind them.
    pub fn near(&self) -> &[IpPrefix] {
        &self.near
    }

    /// Whether packets of others may be sent on; also where the kernel does not tell.
    pub fn forwards(&self) -> bool {
        self.forwards
    }

    /// What changed since the last call; to be called when the descriptor is readable. Never blocks.
    pub fn read_events(&mut self) -> Result<Vec<Event>, NetlinkError> {
        if !self.bell.drain()? {
            return Ok(Vec::new());
        }
        let (interfaces, near) = list(&mut self.netlink)?;
        let mut before = std::mem::replace(&mut self.interfaces, interfaces);
        let near_before = std::mem::replace(&mut self.near, near);
        let mut events = Vec::new();
        for (index, now) in &self.interfaces {
            match before.remove(index) {
                None => events.push(Event::Added(now.clone())),
                Some(before) if before != *now => events.push(Event::Changed { before, now: now.clone() }),
                Some(_) => {}
            }
        }
        // First what is gone, so that a name that moved to a new interface is free again.
        events.splice(0..0, before.into_values().map(Event::Removed));
        if near_before != self.near {
            events.insert(0, Event::Routes);
        }
        let forwards_before = std::mem::replace(&mut self.forwards, forwards(&mut self.netlink));
        if forwards_before != self.forwards {
            events.insert(0, Event::Forwarding);
        }
        Ok(events)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.bell.as_fd().as_raw_fd()
    }
}

fn list(netlink: &mut Netlink) -> Result<(BTreeMap<u32, Interface>, Vec<IpPrefix>), NetlinkError> {
    let mut interfaces: BTreeMap<u32, Interface> = netlink
        .links()?
        .into_iter()
        .map(|link| {
            let interface = Interface {
                index: link.index,
                name: link.name,
                up: link.up,
                carrier: link.carrier,
                loopback: link.loopback,
                enslaved: link.enslaved,
                mtu: link.mtu,
                kind: link.kind,
                alias: link.alias,
                addresses: Vec::new(),
                default_route_v4: None,
                default_route_v6: None,
            };
            (link.index, interface)
        })
        .collect();
    for address in netlink.addresses()? {
        if let Some(interface) = interfaces.get_mut(&address.index)
            && address.usable
            && !address.link_local
        {
            interface.addresses.push(address.address);
        }
    }
    let mut near = Vec::new();
    for route in netlink.routes()? {
        note_default_route(&mut interfaces, &route);
        if route.table == Route::MAIN_TABLE && !route.is_default() && route.kind == RouteKind::Unicast {
            near.push(route.destination.network());
        }
    }
    near.sort();
    near.dedup();
    for interface in interfaces.values_mut() {
        interface.addresses.sort();
    }
    Ok((interfaces, near))
}

fn forwards(netlink: &mut Netlink) -> bool {
    netlink.forwards().unwrap_or(true)
}

fn note_default_route(interfaces: &mut BTreeMap<u32, Interface>, route: &Route) {
    if !route.is_default() || route.table != Route::MAIN_TABLE || route.kind != RouteKind::Unicast {
        return;
    }
    let Some(interface) = route.interface.and_then(|index| interfaces.get_mut(&index)) else { return };
    let known = if route.destination.is_ipv4() {
        &mut interface.default_route_v4
    } else {
        &mut interface.default_route_v6
    };
    let found = DefaultRoute { gateway: route.gateway, metric: route.metric.unwrap_or(0) };
    if known.is_none_or(|known| found.metric < known.metric) {
        *known = Some(found);
    }
}

/// Links, addresses and routes of both families (`RTMGRP_*`), and what interfaces forward.
const GROUPS: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV6_ROUTE) as u32
    | 1 << (libc::RTNLGRP_IPV4_NETCONF - 1)
    | 1 << (libc::RTNLGRP_IPV6_NETCONF - 1);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    /// Reads events until `wanted` finds what it looks for among the interfaces.
    fn wait_for(monitor: &mut Monitor, wanted: impl Fn(&Monitor) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !wanted(monitor) {
            assert!(Instant::now() < deadline, "not seen: {events:#?}");
            std::thread::sleep(Duration::from_millis(2));
            events.extend(monitor.read_events().unwrap());
        }
        events
    }

    fn cable(monitor: &Monitor) -> Option<&Interface> {
        monitor.interfaces().find(|interface| interface.name == "cable")
    }

    #[test]
    fn a_network_comes_changes_and_goes() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        let mut monitor = left.run(Monitor::open).unwrap().unwrap();
        let known = cable(&monitor).unwrap();
        assert_eq!(known.kind.as_deref(), Some("veth"));
        assert!(known.address(false).is_some() && known.address(true).is_some());
        assert_eq!(known.default_route_v4, None);

        left.add_route("cable", IpPrefix::ALL_V4, Some("10.77.0.2".parse().unwrap()), Some(50)).unwrap();
        left.add_route("cable", IpPrefix::ALL_V6, Some("fd77::2".parse().unwrap()), None).unwrap();
        wait_for(&mut monitor, |monitor| {
            let interface = cable(monitor).unwrap();
            interface.default_route_v6.is_some()
                && interface.default_route_v4
                    == Some(DefaultRoute { gateway: Some("10.77.0.2".parse().unwrap()), metric: 50 })
        });

        right.set_up("cable", false).unwrap();
        let events = wait_for(&mut monitor, |monitor| !cable(monitor).unwrap().carrier);
        assert!(events.iter().any(|event| matches!(event, Event::Changed { before, now }
            if before.is_running() && !now.is_running())));

        left.delete_link("cable").unwrap();
        let events = wait_for(&mut monitor, |monitor| cable(monitor).is_none());
        assert!(matches!(&events[..], [.., Event::Removed(gone)] if gone.name == "cable"), "{events:?}");

        left.join(&right, "cable2", "cable2").unwrap();
        wait_for(&mut monitor, |monitor| {
            monitor.interfaces().any(|interface| interface.name == "cable2" && interface.is_running())
        });
    }

    #[test]
    fn an_overflow_of_notifications_loses_nothing() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        let mut monitor = left.run(Monitor::open).unwrap().unwrap();
        let index = cable(&monitor).unwrap().index;
        left.run(|| {
            let mut netlink = Netlink::open().unwrap();
            for number in 0..4_000u32 {
                let text = format!("10.77.{}.{}/32", 1 + number / 250, number % 250);
                netlink.add_address(index, text.parse().unwrap()).unwrap();
            }
        })
        .unwrap();
        let events = monitor.read_events().unwrap();
        let changed = events.iter().filter(|event| matches!(event, Event::Changed { .. }));
        assert_eq!(changed.count(), 1);
        assert_eq!(cable(&monitor).unwrap().addresses.len(), 4_002);
    }
}
