//! The routing table of each network.

use std::collections::BTreeSet;

use super::{Direct, DirectError, Exit, NextHop};
use crate::netlink::{Netlink, Route, RouteKind, unless_missing};
use crate::prefix::IpPrefix;

/// Brings the networks' tables to what `direct` says: missing routes are added, all others in them removed.
///
/// # Errors
/// [`DirectError::Netlink`] if the kernel refuses one; what came before stays.
pub fn sync_routes(direct: &Direct) -> Result<(), DirectError> {
    direct.check()?;
    let mut netlink = Netlink::open().map_err(DirectError::Open)?;
    let tables: BTreeSet<u32> = direct.exits.iter().map(|exit| direct.table_of(exit)).collect();
    let mut present = routes_in(&mut netlink, &tables)?;
    let wanted: Vec<Route> = direct.exits.iter().flat_map(|exit| direct.routes_of(exit)).collect();
    let new: Vec<&Route> =
        wanted.iter().filter(|route| !present.iter().any(|old| is_same(old, route))).collect();
    for route in &new {
        match netlink.add_route(route) {
            // The interface has gone or gone down meanwhile; the monitor will tell.
            Err(error) if error.is_missing_device() => {}
            other => other?,
        }
    }
    if !new.is_empty() {
        // One that says more (ECN, an MTU) has taken the old one's place, and would be removed in its stead.
        present = routes_in(&mut netlink, &tables)?;
    }
    for route in &present {
        if !wanted.iter().any(|new| is_same(route, new)) {
            unless_missing(netlink.delete_route(route))?;
        }
    }
    Ok(())
}

fn routes_in(netlink: &mut Netlink, tables: &BTreeSet<u32>) -> Result<Vec<Route>, DirectError> {
    let mut routes = netlink.routes()?;
    routes.retain(|route| tables.contains(&route.table));
    Ok(routes)
}

impl Direct {
    /// What leads out, and last a refusal, so that nothing that was given to this network leaves by another.
    fn routes_of(&self, exit: &Exit) -> Vec<Route> {
        let table = self.table_of(exit);
        let source = |destination: IpPrefix| {
            self.addresses.iter().copied().find(|address| address.is_ipv4() == destination.is_ipv4())
        };
        let mut routes = Vec::new();
        if let Some(index) = exit.index {
            for subnet in &exit.subnets {
                let subnet = subnet.network();
                routes.push(Route { table, source: source(subnet), ..Route::over(subnet, index) });
            }
            for (all, hop) in [(IpPrefix::ALL_V4, exit.v4), (IpPrefix::ALL_V6, exit.v6)] {
                let Some(NextHop { gateway }) = hop else { continue };
                let near = |gateway| exit.subnets.iter().any(|subnet| subnet.contains(gateway));
                let on_link = gateway.is_some_and(|gateway| gateway.is_ipv4() && !near(gateway));
                let over = Route::over(all, index);
                routes.push(Route {
                    table,
                    gateway,
                    on_link,
                    source: source(all),
                    metric: Some(FIRST),
                    ecn: self.ecn,
                    ..over
                });
            }
            if let (Some(translation), None) = (&exit.translation, exit.v4) {
                routes.push(Route {
                    table,
                    source: source(IpPrefix::ALL_V4),
                    metric: Some(FIRST),
                    mtu: Some(translation.mtu),
                    ..Route::over(IpPrefix::ALL_V4, translation.index)
                });
            }
        }
        for all in [IpPrefix::ALL_V4, IpPrefix::ALL_V6] {
            routes.push(Route {
                kind: RouteKind::Unreachable,
                interface: None,
                table,
                metric: Some(LAST),
                ..Route::over(all, 0)
            });
        }
        routes
    }
}

/// Whether it is the route that refuses what no network's route takes.
pub(crate) fn is_refusal(route: &Route) -> bool {
    route.kind == RouteKind::Unreachable && route.is_default() && route.metric == Some(LAST)
}

/// The kernel says more than was asked: a metric for IPv6, and the loopback interface for refusals.
fn is_same(present: &Route, wanted: &Route) -> bool {
    let metric = |route: &Route| route.metric.unwrap_or(0);
    let kernels = !wanted.destination.is_ipv4() && wanted.metric.is_none();
    present.destination.network() == wanted.destination.network()
        && present.table == wanted.table
        && present.kind == wanted.kind
        && (present.interface == wanted.interface || wanted.kind == RouteKind::Unreachable)
        && present.gateway == wanted.gateway
        && present.source == wanted.source
        && (present.mtu == wanted.mtu || wanted.mtu.is_none())
        && present.ecn == wanted.ecn
        && (kernels || metric(present) == metric(wanted))
}

const FIRST: u32 = 100;
const LAST: u32 = 4_000_000_000;
