//! Marks on what comes in, by nftables: only on packets of connections that have another subflow to use.
//!
//! A mark on the only one makes a connection slower for nothing. The kernel's list of sockets says which subflows a connection has; those of connections
//! that have established ones over several networks go into a map in nftables, by addresses and ports, with the connection's token. A packet of one of
//! these is marked while something of the same connection has come by another network within the last half second: a backup that lies idle is no
//! other way, nor is one that has fallen silent.
//!
//! The token is what rules can hand on within a packet: it stands in for the packet's priority, which nothing reads of what has come in for this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::paths::PathNetwork;
use super::ways::Way;

/// Marks are counted of so many packets.
pub(super) const OF: u32 = 1_000_000;

/// All but the connections, for `nft -f`.
pub(super) fn rules(table: &str, networks: &[PathNetwork]) -> String {
    // Writing to a string cannot fail.
    let mut script = format!("table inet {table} {{\n");
    for Family { name, ip } in FAMILIES {
        let _ = writeln!(
            script,
            "map ways_{name} {{ typeof {ip} saddr . tcp sport . {ip} daddr . tcp dport : meta priority; size {MOST_WAYS}; }}"
        );
    }
    for PathNetwork { number, .. } in networks {
        let _ = writeln!(
            script,
            "set by_{number} {{ typeof meta priority; flags dynamic,timeout; size {MOST_WAYS}; timeout {ALIVE}; }}"
        );
    }
    script.push_str("chain marks { type filter hook prerouting priority mangle; policy accept; }\n");
    for PathNetwork { number, .. } in networks {
        let _ = writeln!(script, "chain way_{number} {{ }}\nchain draw_{number} {{ }}");
    }
    let _ = writeln!(script, "}}\nflush table inet {table}\ntable inet {table} {{");
    for family in FAMILIES {
        let mangling = networks.iter().filter(|network| network.mangled);
        mangling.for_each(|network| unmark(&mut script, family, network));
        networks.iter().for_each(|network| find(&mut script, family, network));
    }
    for network in networks {
        mark(&mut script, network, networks);
    }
    script.push_str("}\n");
    script
}

/// The connections of which packets may be marked, for the table of [`rules`], in place of those that are there.
pub(super) fn connections(table: &str, networks: &[PathNetwork], ways: &[Way]) -> String {
    let ways: Vec<(u8, &Way)> = ways
        .iter()
        .filter(|way| way.is_established)
        .filter_map(|way| {
            let network = networks.iter().find(|network| network.addresses.contains(&way.local.ip()))?;
            Some((network.number, way))
        })
        .collect();
    let mut used: BTreeMap<u32, BTreeSet<u8>> = BTreeMap::new();
    for (number, way) in &ways {
        used.entry(way.subflow.connection).or_default().insert(*number);
    }
    let several = ways.iter().map(|(_, way)| way).filter(|way| used[&way.subflow.connection].len() > 1);
    let mut script = String::new();
    for Family { name, ip } in FAMILIES {
        let of_family = several.clone().filter(|way| way.local.is_ipv6() == (ip == "ip6"));
        let elements: Vec<String> = of_family
            .take(MOST_WAYS)
            .map(|Way { local, remote, subflow, .. }| {
                let token = subflow.connection;
                format!(
                    "{} . {} . {} . {} : {:x}:{:x}",
                    remote.ip(),
                    remote.port(),
                    local.ip(),
                    local.port(),
                    token >> 16,
                    token & 0xffff
                )
            })
            .collect();
        let _ = writeln!(script, "flush map inet {table} ways_{name}");
        if !elements.is_empty() {
            let _ = writeln!(script, "add element inet {table} ways_{name} {{ {} }}", elements.join(", "));
        }
    }
    script
}

/// What the way there has marked without a reason, plain TCP's too: routes ask for ECN whatever a connection is.
fn unmark(script: &mut String, Family { ip, .. }: Family, network: &PathNetwork) {
    let Some(coming) = coming(ip, network) else { return };
    let _ = writeln!(script, "chain marks {{ {coming} meta l4proto tcp {ip} ecn ce {ip} ecn set ect0; }}");
}

/// Whose a packet is that comes by a network.
fn find(script: &mut String, Family { name, ip }: Family, network: &PathNetwork) {
    let (Some(coming), number) = (coming(ip, network), network.number) else { return };
    let _ = writeln!(
        script,
        "chain marks {{ {coming} meta priority set {ip} saddr . tcp sport . {ip} daddr . tcp dport map @ways_{name} goto way_{number}; }}"
    );
}

/// One draw for a packet, whatever the number of other networks.
fn mark(script: &mut String, &PathNetwork { number, marks, .. }: &PathNetwork, networks: &[PathNetwork]) {
    let _ = writeln!(script, "chain way_{number} {{ update @by_{number} {{ meta priority }}; }}");
    if marks == 0 {
        return;
    }
    for other in networks.iter().map(|other| other.number).filter(|other| *other != number) {
        let _ = writeln!(script, "chain way_{number} {{ meta priority @by_{other} goto draw_{number}; }}");
    }
    for Family { ip, .. } in FAMILIES {
        let _ = writeln!(
            script,
            "chain draw_{number} {{ {ip} ecn {{ ect0, ect1 }} numgen random mod {OF} < {marks} {ip} ecn set ce; }}"
        );
    }
}

/// Matches what comes in for a network's own addresses; `None` if it has none of this family.
fn coming(ip: &str, PathNetwork { interface, addresses, .. }: &PathNetwork) -> Option<String> {
    let own = addresses.iter().filter(|address| address.is_ipv6() == (ip == "ip6"));
    let own = own.map(ToString::to_string).collect::<Vec<_>>().join(", ");
    (!own.is_empty()).then(|| format!("iif {interface} {ip} daddr {{ {own} }}"))
}

#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    ip: &'static str,
}

const FAMILIES: [Family; 2] = [Family { name: "v4", ip: "ip" }, Family { name: "v6", ip: "ip6" }];
/// Nothing of further ones is marked.
const MOST_WAYS: usize = 4_096;
/// Several round trips. Longer would be worse: marks on the only way that is left make its sender's window small for seconds.
const ALIVE: &str = "500ms";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use socket2::{Domain, Protocol, Socket, Type};

    use super::super::marker::Marker;
    use super::super::paths::{PathNetwork, Paths, end, marking_table, set_limits};
    use super::super::ways::Way;
    use super::{connections, rules};
    use crate::netlink::sock_diag::Subflow;
    use crate::netlink::{Netlink, Route};
    use crate::netns::Namespace;
    use crate::prefix::IpPrefix;
    use crate::test_namespace::{in_namespace, joined_pair, may_test};

    /// Of packets that are as large as the kernel makes them: there may be 50 in all.
    const HALF: u32 = 500_000;
    const FIRST: usize = 300_000;
    const REST: usize = 3_000_000;

    /// What the far end's TCP has heard of marks.
    fn marks_heard() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let at = rows[0].iter().position(|name| *name == "TCPDeliveredCE").unwrap();
        rows[1][at].parse().unwrap()
    }

    /// A download that waits after its first part, so that a second way can begin; `ready` says for how long.
    fn download(
        (left, right): (&Namespace, &Namespace),
        protocol: Protocol,
        port: u16,
        ready: impl FnOnce() + Send,
    ) -> u64 {
        let address = SocketAddr::from(([10, 77, 0, 2], port));
        let socket = move || Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).unwrap();
        let sending = right
            .run(|| {
                let listening = socket();
                listening.bind(&address.into()).unwrap();
                listening.listen(4).unwrap();
                // Something that heeds marks, whatever is usual here.
                let _ = listening.set_tcp_congestion(b"reno");
                std::thread::spawn(move || {
                    let (mut to, _) = listening.accept().unwrap();
                    to.write_all(&vec![7; FIRST]).unwrap();
                    to.read_exact(&mut [0]).unwrap();
                    to.write_all(&vec![7; REST]).unwrap();
                })
            })
            .unwrap();
        left.run(|| {
            let mut socket = socket();
            socket.bind(&SocketAddr::from(([10, 77, 0, 1], 0)).into()).unwrap();
            socket.connect(&address.into()).unwrap();
            socket.read_exact(&mut vec![0; FIRST]).unwrap();
            ready();
            socket.write_all(&[1]).unwrap();
            assert_eq!(socket.read_to_end(&mut Vec::new()).unwrap(), REST);
        })
        .unwrap();
        sending.join().unwrap();
        right.run(marks_heard).unwrap()
    }

    #[test]
    fn only_subflows_of_connections_over_several_networks_are_told_to_nftables() {
        let network = |number, addresses: &[&str]| PathNetwork {
            number,
            interface: number.into(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            backup: false,
            marks: 0,
            mangled: false,
            renewals: None,
        };
        let networks = [network(1, &["10.77.0.1", "fd77::1"]), network(2, &["10.78.0.1", "10.78.0.2"])];
        let way = |connection, local: &str, remote: &str, is_established| Way {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            subflow: Subflow { connection, answered: true },
            is_established,
        };
        let server = "192.0.2.1:443";
        let ways = [
            way(0xffff_0001, "10.77.0.1:1", server, true),
            way(0xffff_0001, "10.78.0.1:2", server, true),
            // One of its subflows has not been answered yet.
            way(2, "10.77.0.1:3", server, true),
            way(2, "10.78.0.1:4", server, false),
            // Both are by the same network.
            way(3, "10.78.0.1:5", server, true),
            way(3, "10.78.0.2:6", server, true),
            // It has one.
            way(4, "10.77.0.1:7", server, true),
            // The other one is by what is no network of ours.
            way(5, "10.77.0.1:8", server, true),
            way(5, "10.79.0.1:9", server, true),
            // One of each family.
            way(6, "[fd77::1]:10", "[2001:db8::1]:443", true),
            way(6, "10.78.0.1:11", server, true),
        ];
        assert_eq!(
            connections("t", &networks, &ways),
            "flush map inet t ways_v4\n\
             add element inet t ways_v4 { 192.0.2.1 . 443 . 10.77.0.1 . 1 : ffff:1, 192.0.2.1 . 443 . 10.78.0.1 . 2 : ffff:1, \
             192.0.2.1 . 443 . 10.78.0.1 . 11 : 0:6 }\n\
             flush map inet t ways_v6\n\
             add element inet t ways_v6 { 2001:db8::1 . 443 . fd77::1 . 10 : 0:6 }\n"
        );
        assert_eq!(connections("t", &networks, &[]), "flush map inet t ways_v4\nflush map inet t ways_v6\n");
        in_namespace(|| {
            let [mut one, other] = networks.clone();
            (one.marks, one.interface) = (HALF, 1);
            let networks = [one, PathNetwork { mangled: true, interface: 1, ..other }];
            let all = rules("t", &networks) + &connections("t", &networks, &ways);
            crate::nft::load(&all).unwrap();
            // As often as anything changes.
            crate::nft::load(&all).unwrap();
            let there = crate::nft::ask(&["list", "table", "inet", "t"]).unwrap();
            assert_eq!(there.matches(" . 443 . ").count(), 4, "{there}");
        });
    }

    #[test]
    fn packets_of_connections_with_several_ways_are_marked_and_of_others_never() {
        if !may_test() || crate::mptcp::why_not().is_some() {
            return;
        }
        let (left, right) = joined_pair();
        let both = (&left, &right);
        right.run(|| set_limits(None).unwrap()).unwrap();
        let mut marker = Marker::default();
        let paths = left
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let interface = netlink.link("cable").unwrap().unwrap().index;
                let subnet: IpPrefix = "10.77.0.0/24".parse().unwrap();
                netlink.add_address(interface, "10.77.0.3/24".parse().unwrap()).unwrap();
                netlink.add_route(&Route { ecn: true, ..Route::over(subnet, interface) }).unwrap();
                assert!(netlink.routes().unwrap().iter().any(|route| route.ecn));
                let network = |number, address, marks| PathNetwork {
                    marks,
                    ..PathNetwork::plain(number, interface, address)
                };
                let networks = vec![network(1, "10.77.0.1", HALF), network(2, "10.77.0.3", 0)];
                let paths = Paths { table: 43_900, networks };
                marker.mark(&paths).unwrap();
                let too_many = Paths { networks: vec![network(1, "10.77.0.1", 1_000_001)], ..paths.clone() };
                assert!(too_many.sync().is_err());
                paths
            })
            .unwrap();
        assert_eq!(download(both, Protocol::TCP, 7_001, || {}), 0, "a plain connection has no other way");
        assert_eq!(download(both, Protocol::MPTCP, 7_002, || {}), 0, "nobody has begun a second subflow");

        left.run(|| {
            set_limits(None).unwrap();
            paths.sync().unwrap();
            paths.watch().unwrap();
        })
        .unwrap();
        let wait = |what: &str, is_so: &dyn Fn() -> bool| {
            let limit = Instant::now() + Duration::from_secs(10);
            while !is_so() {
                assert!(Instant::now() < limit, "{what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let table = || crate::nft::ask(&["list", "table", "inet", &marking_table(43_900)]).unwrap();
        let known = || table().matches("10.77.0.2 . ").count();
        // Nobody marks anew meanwhile: the kernel tells of the second one.
        let joined = || wait("both subflows are known", &|| known() == 2);
        let marked = download(both, Protocol::MPTCP, 7_003, joined);
        assert!(marked > 0);
        let alive = || {
            let rules = table();
            let set = rules.split("set by_2 {").nth(1).unwrap();
            set.split("\n\t}").next().unwrap().contains("elements")
        };
        left.run(|| {
            wait("something is known of what has ended", &|| known() == 0);
            wait("what has fallen silent is still taken for another way", &|| !alive());
        })
        .unwrap();
        let single = Paths { networks: paths.networks[..1].to_vec(), ..paths.clone() };
        left.run(|| {
            single.sync().unwrap();
            marker.mark(&single).unwrap();
        })
        .unwrap();
        assert_eq!(download(both, Protocol::MPTCP, 7_004, || {}), marked, "only one network is left");
        left.run(|| {
            end(43_900, None).unwrap();
            assert_eq!(crate::nft::ask(&["list", "tables"]).unwrap().trim(), "");
        })
        .unwrap();
    }

    #[test]
    fn a_network_that_becomes_a_backup_hands_living_connections_over() {
        if !may_test() || crate::mptcp::why_not().is_some() {
            return;
        }
        let (left, right) = joined_pair();
        right.run(|| set_limits(None).unwrap()).unwrap();
        let mut paths = left
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let interface = netlink.link("cable").unwrap().unwrap().index;
                netlink.add_address(interface, "10.77.0.3/24".parse().unwrap()).unwrap();
                let network = |number, address| PathNetwork::plain(number, interface, address);
                let counter = "table ip counted { chain in { type filter hook input priority filter; policy accept; \
                               ip daddr 10.77.0.3 tcp sport 7021 counter\n}\n}\n";
                crate::nft::load(counter).unwrap();
                set_limits(None).unwrap();
                let networks = vec![network(1, "10.77.0.1"), network(2, "10.77.0.3")];
                let paths = Paths { table: 43_920, networks };
                paths.sync().unwrap();
                paths
            })
            .unwrap();
        let by_the_other = || {
            let table = crate::nft::ask(&["list", "table", "ip", "counted"]).unwrap();
            let bytes = table.split(" bytes ").nth(1).and_then(|rest| rest.split_whitespace().next());
            bytes.unwrap().parse::<usize>().unwrap()
        };
        let mut before = 0;
        download((&left, &right), Protocol::MPTCP, 7_021, || {
            let limit = Instant::now() + Duration::from_secs(10);
            while by_the_other() == 0 {
                assert!(Instant::now() < limit, "nothing has joined");
                std::thread::sleep(Duration::from_millis(20));
            }
            // The one by which the connection began, and by which its first part came.
            paths.networks[0].backup = true;
            paths.sync().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            before = by_the_other();
        });
        let after = left.run(by_the_other).unwrap();
        assert!(before < FIRST && after - before > REST * 9 / 10, "{before} {after}");
        left.run(|| end(43_920, None).unwrap()).unwrap();
    }

    #[test]
    fn marks_of_a_way_that_marks_everything_are_counted_and_taken_off() {
        if !may_test() || crate::mptcp::why_not().is_some() {
            return;
        }
        let (left, right) = joined_pair();
        let both = (&left, &right);
        right
            .run(|| {
                set_limits(None).unwrap();
                let box_on_the_way = "table ip box { chain mangle { type filter hook postrouting priority mangle; policy accept; \
                                      ip ecn { ect0, ect1 } ip ecn set ce;\n}\n}\n";
                crate::nft::load(box_on_the_way).unwrap();
            })
            .unwrap();
        let mut paths = left
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let interface = netlink.link("cable").unwrap().unwrap().index;
                let subnet: IpPrefix = "10.77.0.0/24".parse().unwrap();
                netlink.add_route(&Route { ecn: true, ..Route::over(subnet, interface) }).unwrap();
                let networks = vec![PathNetwork::plain(1, interface, "10.77.0.1")];
                let paths = Paths { table: 43_910, networks };
                paths.watch().unwrap();
                paths
            })
            .unwrap();
        let heeded = download(both, Protocol::MPTCP, 7_011, || {});
        let counts = left.run(|| paths.counts().unwrap()[&1]).unwrap();
        assert!(heeded > 0 && counts.congested > 10, "{heeded} {counts:?}");
        assert_eq!(counts.congested, counts.markable);
        paths.networks[0].mangled = true;
        left.run(|| Marker::default().mark(&paths).unwrap()).unwrap();
        for (protocol, port) in [(Protocol::MPTCP, 7_012), (Protocol::TCP, 7_013)] {
            assert_eq!(download(both, protocol, port, || {}), heeded, "{protocol:?}");
        }
        let after = left.run(|| paths.counts().unwrap()[&1].since(&counts)).unwrap();
        assert!(after.congested > 10, "it is still seen: {after:?}");
        left.run(|| end(43_910, None).unwrap()).unwrap();
    }
}
