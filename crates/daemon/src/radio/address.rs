//! The address that a network lends its interface, and the routes by it.

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

/// What the interface of one network has of it.
pub(super) struct NetworkAddress {
    metric: u32,
    lent: Option<Lease>,
}

impl NetworkAddress {
    /// Nothing yet.
    pub fn new(id: NetworkId) -> Self {
        Self { metric: FIRST_METRIC + id.0, lent: None }
    }

    /// Gives the interface with number `index` the address that network `name` lends, and the routes by it.
    ///
    /// # Errors
    /// [`NetlinkError`] if the kernel refuses them.
    pub fn apply(&mut self, name: &str, index: u32, change: LeaseChange) -> Result<(), NetlinkError> {
        let lent = if let LeaseChange::Lent(lease) = change { Some(lease) } else { None };
        if lent == self.lent {
            return Ok(());
        }
        let addresses: Vec<IpPrefix> = lent.iter().map(|lease| lease.address).collect();
        tun::configure(index, MTU, &addresses)?;
        if let Some((lease, gateway)) = lent.as_ref().and_then(|lease| Some((lease, lease.gateway?))) {
            let all = IpPrefix::new(IpAddr::from([0, 0, 0, 0]), 0);
            let Ok(all) = all else { return Ok(()) };
            let route = Route {
                gateway: Some(gateway.into()),
                metric: Some(self.metric),
                source: Some(lease.address.address()),
                on_link: true,
                ..Route::over(all, index)
            };
            Netlink::open()?.add_route(&route)?;
        }
        match &lent {
            Some(lease) => info!("{name}: address {}", lease.address),
            None => info!("{name}: the address is not ours any more"),
        }
        self.lent = lent;
        Ok(())
    }
}
