//! The address that a network lends its interface, and the default route by it: there while packets pass, preferred by its metric.

use std::net::IpAddr;

use linux::netlink::{Netlink, NetlinkError, Route};
use linux::prefix::IpPrefix;
use linux::tun;
use tracing::info;
use units::NetworkId;

use super::lease::{Lease, LeaseChange};

/// Largest IP packet of a network's interface, in bytes.
pub(super) const MTU: u32 = 1_500;
/// The first network's routes have this metric, the next ones more: behind cables, as other programs have it for Wi-Fi.
const FIRST_METRIC: u32 = 600;
/// With soft hand-off all but the primary are behind it by so much.
const SECONDARY: u32 = 100;

/// The metric of a network, numbered from 1. `primary`: whether it carries the traffic, where one is to carry it all.
fn metric(id: NetworkId, primary: Option<bool>) -> u32 {
    match primary {
        Some(true) => FIRST_METRIC,
        Some(false) => FIRST_METRIC + SECONDARY + id.0,
        None => FIRST_METRIC + id.0,
    }
}

/// What the interface of one network has of it.
pub(super) struct NetworkAddress {
    id: NetworkId,
    lent: Option<Lease>,
    /// Packets pass.
    passes: bool,
    primary: Option<bool>,
    route: Option<Route>,
}

impl NetworkAddress {
    /// Nothing yet; packets pass until it is said otherwise.
    pub fn new(id: NetworkId) -> Self {
        Self { id, lent: None, passes: true, primary: None, route: None }
    }

    /// What was lent.
    pub fn lent(&self) -> Option<&Lease> {
        self.lent.as_ref()
    }

    /// Whether packets pass.
    pub fn passes(&self) -> bool {
        self.passes
    }

    /// Gives the interface with number `index` the address that network `name` lends, and the routes by it.
    ///
    /// # Errors
    /// [`NetlinkError`] if the kernel refuses them.
    pub fn apply(&mut self, name: &str, index: u32, change: LeaseChange) -> Result<(), NetlinkError> {
        let lent = match change {
            LeaseChange::Lent(lease) | LeaseChange::Again(lease) => Some(lease),
            LeaseChange::Ended => None,
        };
        if lent == self.lent {
            return Ok(());
        }
        let addresses: Vec<IpPrefix> = lent.iter().map(|lease| lease.address).collect();
        tun::configure(index, MTU, &addresses)?;
        match &lent {
            Some(lease) => info!("{name}: address {}", lease.address),
            None => info!("{name}: the address is not ours any more"),
        }
        self.lent = lent;
        self.set_route(index)
    }

    /// Says whether packets pass: the route goes while they do not, since the kernel would go on using it.
    ///
    /// # Errors
    /// [`NetlinkError`] if the kernel refuses.
    pub fn set_passes(&mut self, index: u32, passes: bool) -> Result<(), NetlinkError> {
        self.passes = passes;
        self.set_route(index)
    }

    /// Says whether the network carries the traffic, where one is to carry it all.
    ///
    /// # Errors
    /// [`NetlinkError`] if the kernel refuses.
    pub fn set_primary(&mut self, index: u32, primary: bool) -> Result<(), NetlinkError> {
        self.primary = Some(primary);
        self.set_route(index)
    }

    /// The new route is there before the old one goes. One with the metric of another interface's takes its place at once.
    fn set_route(&mut self, index: u32) -> Result<(), NetlinkError> {
        let lease = self.lent.as_ref().filter(|_| self.passes);
        let wanted = lease.and_then(|lease| route(index, lease, metric(self.id, self.primary)));
        if wanted == self.route {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        if let Some(wanted) = &wanted {
            netlink.add_route(wanted)?;
        }
        let before = std::mem::replace(&mut self.route, wanted);
        match before.map(|before| netlink.delete_route(&before)) {
            // It went with its address, or another interface's took its place.
            Some(Err(error)) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}

fn route(index: u32, lease: &Lease, metric: u32) -> Option<Route> {
    let all = IpPrefix::new(IpAddr::from([0, 0, 0, 0]), 0).ok()?;
    Some(Route {
        gateway: Some(lease.gateway?.into()),
        metric: Some(metric),
        source: Some(lease.address.address()),
        on_link: true,
        ..Route::over(all, index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_is_before_all_others() {
        let ids = || (1..=8).map(NetworkId);
        assert!(ids().all(|id| metric(id, Some(false)) > metric(NetworkId(8), Some(true))));
        assert!(metric(NetworkId(1), None) < metric(NetworkId(2), None));
    }
}
