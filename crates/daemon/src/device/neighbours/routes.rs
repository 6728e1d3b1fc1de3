//! The routes to neighbours that are in the kernel now.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::neighbour_routes::NeighbourRoute;
use linux::netlink::Netlink;
use tracing::{debug, warn};

/// What is set, by the neighbour's address.
pub struct Routes {
    netlink: Netlink,
    table: u32,
    set: BTreeMap<IpAddr, NeighbourRoute>,
}

impl Routes {
    /// None is set yet in `table`.
    pub fn new(netlink: Netlink, table: u32) -> Self {
        Self { netlink, table, set: BTreeMap::new() }
    }

    /// Has packets to `destination` take `way`, or none; whether that is another one than before.
    pub fn set(&mut self, destination: IpAddr, way: Option<NeighbourRoute>) -> bool {
        if self.set.get(&destination) == way.as_ref() {
            return false;
        }
        let outcome = match way {
            Some(way) => way.set(&mut self.netlink, self.table),
            None => match self.set.get(&destination) {
                Some(old) => old.remove(&mut self.netlink, self.table),
                None => Ok(()),
            },
        };
        match outcome {
            Ok(()) => {
                let old = match way {
                    Some(way) => self.set.insert(destination, way),
                    None => self.set.remove(&destination),
                };
                // What was sent between the end of the old link and now must not wait for it.
                let hop = |way: NeighbourRoute| Some((way.interface, way.next_hop?));
                let left = old.and_then(hop);
                if let Some((interface, next_hop)) = left
                    && left != way.and_then(hop)
                    && let Err(error) = self.netlink.drop_waiting(interface, next_hop)
                {
                    debug!("{error}");
                }
                true
            }
            Err(error) if error.is_missing_device() => {
                // The kernel has removed it with its interface; the monitor will tell.
                debug!("{error}");
                self.set.remove(&destination);
                false
            }
            Err(error) => {
                warn!("no way to the neighbour {destination}: {error}");
                self.set.remove(&destination);
                false
            }
        }
    }

    /// The way that packets to `destination` take.
    pub fn get(&self, destination: IpAddr) -> Option<&NeighbourRoute> {
        self.set.get(&destination)
    }

    /// Sets all once more: the kernel forgets those of an interface that was down for a moment.
    pub fn repeat(&mut self) {
        for way in self.set.values() {
            if let Err(error) = way.set(&mut self.netlink, self.table) {
                debug!("{error}");
            }
        }
    }

    /// Gives up all routes to `destination`s that do not `stay`.
    pub fn retain(&mut self, stay: impl Fn(&IpAddr) -> bool) {
        let gone: Vec<IpAddr> = self.set.keys().filter(|destination| !stay(destination)).copied().collect();
        for destination in gone {
            self.set(destination, None);
        }
    }

    /// The kernel's routing, for what is seldom asked.
    pub fn netlink(&mut self) -> &mut Netlink {
        &mut self.netlink
    }
}

/// The routes to any0 for peers whom no link may lead to. They stand in the table that is looked at after that of [`Routes`].
pub struct FarRoutes {
    table: u32,
    interface: u32,
    /// Destination and own address.
    set: BTreeMap<IpAddr, IpAddr>,
}

impl FarRoutes {
    /// None is set yet in `table`; `interface` is any0's number.
    pub fn new(table: u32, interface: u32) -> Self {
        Self { table, interface, set: BTreeMap::new() }
    }

    /// Has packets to these destinations, and no others, go to any0, with the own address that stands beside each.
    pub fn set(&mut self, netlink: &mut Netlink, wanted: BTreeMap<IpAddr, IpAddr>) {
        for (destination, source) in &self.set {
            if wanted.get(destination) != Some(source)
                && let Err(error) = self.route(*destination, *source).remove(netlink, self.table)
            {
                debug!("{error}");
            }
        }
        for (destination, source) in &wanted {
            if let Err(error) = self.route(*destination, *source).set(netlink, self.table) {
                warn!("no way to the peer {destination}: {error}");
            }
        }
        self.set = wanted;
    }

    fn route(&self, destination: IpAddr, source: IpAddr) -> NeighbourRoute {
        NeighbourRoute { destination, next_hop: None, interface: self.interface, source }
    }
}
