//! Host routes to neighbours: a table of our own that is looked at before all others, so that packets to a neighbour's any0
//! address leave by the link that was chosen for it, whatever their marks.
//!
//! The rules and the table are in the journal before the first route; routes change with one netlink message each, at the pace of links,
//! and need only CAP_NET_ADMIN.

use std::net::{IpAddr, Ipv4Addr};

use crate::journal::Change;
use crate::netlink::{Netlink, NetlinkError, Route, RouteKind, Rule, unless_missing};
use crate::prefix::IpPrefix;

/// What is set up once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourRoutes {
    /// Name of the TUN interface.
    pub interface: String,
    /// Mark of the daemon's own packets, which do not go to neighbours.
    pub mark: u32,
    /// The table that leads to the TUN interface.
    pub interface_table: u32,
    /// Where neighbours' addresses come from. Of these, only neighbours that are known are reached.
    pub prefixes: Vec<IpPrefix>,
}

impl NeighbourRoutes {
    /// The table's number: behind those of direct mode's networks.
    pub const fn table(interface_table: u32) -> u32 {
        interface_table + 1 + crate::direct::MAXIMUM_EXITS as u32
    }

    /// Every change, in the order in which it is made.
    pub fn plan(&self) -> Vec<Change> {
        let number = Self::table(self.interface_table);
        let mut changes = vec![Change::RoutingTable { number, interface: self.interface.clone() }];
        for ipv6 in [false, true] {
            changes.push(Change::Rule(Rule {
                ipv6,
                priority: PRIORITY,
                mark: Some(self.mark),
                mask: None,
                source: None,
                invert: true,
                table: number,
                suppress_prefix_length: None,
            }));
        }
        // Nobody else has them, so a neighbour that is not there must not be looked for in the Internet.
        for prefix in &self.prefixes {
            let route = Route {
                kind: RouteKind::Unreachable,
                interface: None,
                table: self.interface_table,
                metric: Some(METRIC),
                ..Route::over(*prefix, 0)
            };
            changes.push(Change::Route { route, interface: "lo".to_owned() });
        }
        changes
    }
}

/// The way to one address of a neighbour or of another peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighbourRoute {
    /// The neighbour's address on any0.
    pub destination: IpAddr,
    /// Its address on the link; an IPv6 one serves both families. `None`: the interface as a whole leads there, as any0 does.
    pub next_hop: Option<IpAddr>,
    /// Number of the interface.
    pub interface: u32,
    /// Our own address on any0, which it answers to.
    pub source: IpAddr,
}

impl NeighbourRoute {
    fn as_route(&self, table: u32) -> Route {
        Route {
            gateway: self.next_hop,
            on_link: self.next_hop.is_some_and(|next_hop| next_hop.is_ipv4()),
            table,
            source: Some(self.source),
            metric: Some(METRIC),
            ..Route::over(IpPrefix::host(self.destination), self.interface)
        }
    }

    /// Takes this way from now on, in place of any other to the same address. Open connections follow.
    ///
    /// # Errors
    /// If the kernel refuses, as for a link that has just gone.
    pub fn set(&self, netlink: &mut Netlink, table: u32) -> Result<(), NetlinkError> {
        netlink.add_route(&self.as_route(table))
    }

    /// Takes the way back. That it is gone already is no failure.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&self, netlink: &mut Netlink, table: u32) -> Result<(), NetlinkError> {
        unless_missing(netlink.delete_route(&self.as_route(table)))
    }
}

/// Gives any0, interface number `index`, its addresses for neighbours, and has broadcasts from programs leave by it with
/// the IPv4 one as source. All vanish with the interface, or with the table.
///
/// # Errors
/// If the kernel refuses.
pub fn settle(
    netlink: &mut Netlink,
    index: u32,
    addresses: &[IpAddr],
    broadcast: Option<Ipv4Addr>,
    table: u32,
) -> Result<(), NetlinkError> {
    for address in addresses {
        let broadcast = broadcast.filter(|_| address.is_ipv4());
        netlink.add_auxiliary_address(index, IpPrefix::host(*address), broadcast)?;
    }
    if let Some(own) = addresses.iter().find(|address| address.is_ipv4()) {
        let everybody = IpPrefix::host(Ipv4Addr::BROADCAST.into());
        netlink.add_route(&Route { table, source: Some(*own), ..Route::over(everybody, index) })?;
    }
    Ok(())
}

/// Before the rules of `direct` and `routing`.
const PRIORITY: u32 = 32_480;
/// What the kernel would give an IPv6 route; said, so that a replacement is one.
const METRIC: u32 = 1_024;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::journal::Journal;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;
    use crate::tun::Tun;

    const TABLE: u32 = 900;

    struct End {
        space: Namespace,
        own: [IpAddr; 2],
        _tun: Tun,
    }

    fn end(number: u8) -> End {
        let space = Namespace::anonymous().unwrap();
        let own =
            [IpAddr::from([10, 254, 0, number]), format!("fdab:51ab:51ab:6::{number}").parse().unwrap()];
        let tun = space.run(|| Tun::create("any0", 1_500, &[])).unwrap().unwrap();
        End { space, own, _tun: tun }
    }

    fn link_local(space: &Namespace, interface: &str) -> (u32, IpAddr) {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let found = space.run(|| {
                let mut netlink = Netlink::open().unwrap();
                let index = netlink.link(interface).unwrap().unwrap().index;
                let all = netlink.addresses().unwrap();
                let own = all
                    .iter()
                    .find(|own| own.index == index && own.usable && own.address.address().is_ipv6());
                own.map(|own| (index, own.address.address()))
            });
            if let Some(found) = found.unwrap() {
                return found;
            }
            assert!(Instant::now() < deadline, "no link-local address");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Two machines on two cables without any IPv4 address: connections of both families outlive the cable that they began on.
    #[test]
    fn connections_follow_the_route_and_nothing_stays() {
        if !may_test() {
            return;
        }
        let (left, right) = (end(1), end(2));
        let routes = NeighbourRoutes {
            interface: "any0".to_owned(),
            mark: 7,
            interface_table: TABLE,
            prefixes: vec!["10.254.0.0/16".parse().unwrap(), "fdab:51ab:51ab:6::/64".parse().unwrap()],
        };
        let table = NeighbourRoutes::table(TABLE);
        let directory = std::env::temp_dir().join(format!("ab-{}-neighbours", std::process::id()));
        for (end, name) in [(&left, "left"), (&right, "right")] {
            for cable in ["one", "other"] {
                if name == "left" {
                    left.space.join(&right.space, cable, cable).unwrap();
                }
            }
            let state = directory.join(name);
            std::fs::create_dir_all(&state).unwrap();
            end.space
                .run(|| {
                    Journal::open(&state).unwrap().apply(&routes.plan()).unwrap();
                    let mut netlink = Netlink::open().unwrap();
                    let index = netlink.link("any0").unwrap().unwrap().index;
                    settle(&mut netlink, index, &end.own, Some([10, 254, 255, 255].into()), table).unwrap();
                })
                .unwrap();
        }
        let hop = |at: &End, to: &End, cable: &str| {
            let ((interface, _), (_, next_hop)) =
                (link_local(&at.space, cable), link_local(&to.space, cable));
            for (destination, source) in to.own.into_iter().zip(at.own) {
                let way = NeighbourRoute { destination, next_hop: Some(next_hop), interface, source };
                at.space.run(|| way.set(&mut Netlink::open().unwrap(), table)).unwrap().unwrap();
            }
        };
        hop(&left, &right, "one");
        hop(&right, &left, "one");
        let mut calls: Vec<(TcpStream, TcpStream)> = Vec::new();
        for (far, near) in right.own.into_iter().zip(left.own) {
            let address = SocketAddr::new(far, 8_080);
            let listener = right.space.run(|| TcpListener::bind(address)).unwrap().unwrap();
            let limit = Duration::from_secs(5);
            let call = left.space.run(|| TcpStream::connect_timeout(&address, limit)).unwrap().unwrap();
            let (answer, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), near, "known by its own any0 address");
            calls.push((call, answer));
        }
        hop(&left, &right, "other");
        hop(&right, &left, "other");
        left.space.set_up("one", false).unwrap();
        for (call, answer) in &mut calls {
            answer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            call.write_all(b"still here").unwrap();
            answer.read_exact(&mut [0; 10]).unwrap();
        }
        let unknown: SocketAddr = "[fdab:51ab:51ab:6::9]:80".parse().unwrap();
        assert!(left.space.run(|| TcpStream::connect(unknown)).unwrap().is_err());
        left.space
            .run(|| {
                Journal::open(&directory.join("left")).unwrap().restore().unwrap();
                let mut netlink = Netlink::open().unwrap();
                assert!(
                    netlink
                        .routes()
                        .unwrap()
                        .iter()
                        .all(|route| route.table != table && route.table != TABLE)
                );
                assert!(netlink.rules().unwrap().iter().all(|rule| rule.priority != PRIORITY));
            })
            .unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
