//! Routes.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::address::family;
use super::message::{self, Message, Request};
use super::{ACK, CREATE_OR_REPLACE, DUMP, Netlink, NetlinkError};
use crate::prefix::IpPrefix;

/// What happens to packets that match a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// They are sent on.
    Unicast,
    /// They are refused with an ICMP error.
    Unreachable,
    /// Any other kind that the kernel has; only ever read.
    Other,
}

/// One route of one table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// Where the packets go; `0.0.0.0/0` and `::/0` are default routes.
    pub destination: IpPrefix,
    /// What happens to them.
    pub kind: RouteKind,
    /// The next hop; `None` when the destination is on the link itself. That of an IPv4 route may be an IPv6 address.
    pub gateway: Option<IpAddr>,
    /// Number of the interface they leave by.
    pub interface: Option<u32>,
    /// The table it is in; 254 is the main one.
    pub table: u32,
    /// The lower, the better, among equally long prefixes.
    pub metric: Option<u32>,
    /// The source address that local sockets get.
    pub source: Option<IpAddr>,
    /// The next hop is on the link although no subnet there has it. Not read back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_link: bool,
    /// Longest packet that may take it, in bytes, if that is less than the interface carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// TCP connections that take it ask for ECN.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ecn: bool,
}

impl Route {
    /// Number of the main table.
    pub const MAIN_TABLE: u32 = libc::RT_TABLE_MAIN as u32;

    /// A route to `destination` over interface `interface`, in the main table.
    pub fn over(destination: IpPrefix, interface: u32) -> Self {
        Self {
            destination,
            kind: RouteKind::Unicast,
            gateway: None,
            interface: Some(interface),
            table: Self::MAIN_TABLE,
            metric: None,
            source: None,
            on_link: false,
            mtu: None,
            ecn: false,
        }
    }

    /// Whether it takes all addresses of its family.
    pub fn is_default(&self) -> bool {
        self.destination.length() == 0
    }
}

impl fmt::Display for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == RouteKind::Unreachable {
            write!(formatter, "unreachable ")?;
        }
        write!(formatter, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(formatter, " via {gateway}")?;
        }
        if let Some(interface) = self.interface {
            write!(formatter, " dev #{interface}")?;
        }
        write!(formatter, " table {}", self.table)?;
        if let Some(metric) = self.metric {
            write!(formatter, " metric {metric}")?;
        }
        Ok(())
    }
}

impl Netlink {
    /// All routes of the tables of this namespace, both families.
    ///
    /// Routes over several next hops are given as one route per hop.
    pub fn routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut body = [0; 12];
            body[0] = family as u8;
            let found = self.dump("list routes", || Request::new(libc::RTM_GETROUTE, DUMP, &body), parse)?;
            routes.extend(found.into_iter().flatten());
        }
        Ok(routes)
    }

    /// Adds a route, or replaces the one with the same destination, table and metric.
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.change(&format!("add route {route}"), request(libc::RTM_NEWROUTE, CREATE_OR_REPLACE, route))
    }

    /// Removes a route.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        self.change(&format!("remove route {route}"), request(libc::RTM_DELROUTE, ACK, route))
    }
}

fn request(kind: u16, flags: u16, route: &Route) -> Request {
    let destination = route.destination.network();
    let scope = match (route.kind, route.gateway, destination.is_ipv4()) {
        (RouteKind::Unicast, None, true) => libc::RT_SCOPE_LINK,
        _ => libc::RT_SCOPE_UNIVERSE,
    };
    let mut body = [0; 12];
    body[0] = family(destination.address());
    body[1] = destination.length();
    body[4] = u8::try_from(route.table).unwrap_or(libc::RT_TABLE_UNSPEC);
    body[5] = libc::RTPROT_STATIC;
    body[6] = scope;
    body[7] = match route.kind {
        RouteKind::Unreachable => libc::RTN_UNREACHABLE,
        RouteKind::Unicast | RouteKind::Other => libc::RTN_UNICAST,
    };
    if route.on_link {
        body[8..12].copy_from_slice(&ON_LINK.to_ne_bytes());
    }
    let mut request = Request::new(kind, flags, &body);
    request.number(libc::RTA_TABLE, route.table);
    if destination.length() > 0 {
        request.address(libc::RTA_DST, destination.address());
    }
    match route.gateway {
        Some(gateway) if gateway.is_ipv4() == destination.is_ipv4() => {
            request.address(libc::RTA_GATEWAY, gateway);
        }
        // A next hop of the other family (`struct rtvia`, Linux 5.2).
        Some(gateway) => {
            let mut via = u16::from(family(gateway)).to_ne_bytes().to_vec();
            match gateway {
                IpAddr::V4(address) => via.extend(address.octets()),
                IpAddr::V6(address) => via.extend(address.octets()),
            }
            request.attribute(RTA_VIA, &via);
        }
        None => {}
    }
    if let Some(interface) = route.interface {
        request.number(libc::RTA_OIF, interface);
    }
    if let Some(metric) = route.metric {
        request.number(libc::RTA_PRIORITY, metric);
    }
    if let Some(source) = route.source {
        request.address(libc::RTA_PREFSRC, source);
    }
    let metrics =
        [route.mtu.map(|mtu| (RTAX_MTU, mtu)), route.ecn.then_some((RTAX_FEATURES, RTAX_FEATURE_ECN))];
    // Attributes within an attribute: each a `struct rtattr` and a number.
    let mut nested = Vec::new();
    for (kind, value) in metrics.into_iter().flatten() {
        nested.extend(8u16.to_ne_bytes());
        nested.extend(kind.to_ne_bytes());
        nested.extend(value.to_ne_bytes());
    }
    if !nested.is_empty() {
        request.attribute(libc::RTA_METRICS, &nested);
    }
    request
}

fn parse(message: Message<'_>) -> Option<Vec<Route>> {
    const CLONED: u32 = 0x200;
    if message.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let body = message.body;
    if message::number(body, 8)? & CLONED != 0 {
        return None;
    }
    let any = match i32::from(*body.first()?) {
        libc::AF_INET => IpPrefix::ALL_V4,
        libc::AF_INET6 => IpPrefix::ALL_V6,
        _ => return None,
    };
    let length = *body.get(1)?;
    let mut route = Route {
        destination: any,
        kind: match *body.get(7)? {
            libc::RTN_UNICAST => RouteKind::Unicast,
            libc::RTN_UNREACHABLE => RouteKind::Unreachable,
            _ => RouteKind::Other,
        },
        gateway: None,
        interface: None,
        table: u32::from(*body.get(4)?),
        metric: None,
        source: None,
        on_link: false,
        mtu: None,
        ecn: false,
    };
    let mut hops = Vec::new();
    for (kind, value) in message::attributes(body.get(12..)?) {
        match kind {
            libc::RTA_DST => route.destination = IpPrefix::new(message::address(value)?, length).ok()?,
            libc::RTA_GATEWAY => route.gateway = message::address(value),
            RTA_VIA => route.gateway = value.get(2..).and_then(message::address),
            libc::RTA_METRICS => {
                let metric = |wanted| {
                    let (_, value) = message::attributes(value).find(|(kind, _)| *kind == wanted)?;
                    message::number(value, 0)
                };
                route.mtu = metric(RTAX_MTU);
                route.ecn = metric(RTAX_FEATURES).is_some_and(|features| features & RTAX_FEATURE_ECN != 0);
            }
            libc::RTA_OIF => route.interface = message::number(value, 0),
            libc::RTA_TABLE => route.table = message::number(value, 0)?,
            libc::RTA_PRIORITY => route.metric = message::number(value, 0),
            libc::RTA_PREFSRC => route.source = message::address(value),
            libc::RTA_MULTIPATH => hops = next_hops(value),
            _ => {}
        }
    }
    if hops.is_empty() {
        return Some(vec![route]);
    }
    let with_hop = |(interface, gateway)| Route { gateway, interface: Some(interface), ..route.clone() };
    Some(hops.into_iter().map(with_hop).collect())
}

/// `RTNH_F_ONLINK`.
const ON_LINK: u32 = 4;
/// `linux/rtnetlink.h`; libc has these not, or not with musl.
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const RTAX_FEATURES: u16 = 12;
const RTAX_FEATURE_ECN: u32 = 1;

/// The `struct rtnexthop`s of a multipath route: interface and gateway.
fn next_hops(mut bytes: &[u8]) -> Vec<(u32, Option<IpAddr>)> {
    let mut hops = Vec::new();
    while let (Some(length), Some(interface)) = (message::short(bytes, 0), message::number(bytes, 4)) {
        let Some(rest) = bytes.get(8..usize::from(length)) else { break };
        let gateway = message::attributes(rest)
            .find(|(kind, _)| *kind == libc::RTA_GATEWAY)
            .and_then(|(_, value)| message::address(value));
        hops.push((interface, gateway));
        bytes = bytes.get(usize::from(length).next_multiple_of(4)..).unwrap_or(&[]);
    }
    hops
}
