//! Marks on what comes in, by nftables: only on packets of connections that have another subflow to use.
//!
//! MPTCP's option says that a connection may have several subflows, not that it has them, and a mark on the only one makes it slower for nothing. What
//! nftables can see is servers. So a network's packets from a server (address and port) are marked while
//!
//! - the server has answered a further subflow of this machine as such (a SYN-ACK with `MP_JOIN`), ten minutes ago at most or with something coming from it
//!   since, and
//! - something with MPTCP's option came from it by another network within the last half second: a backup that lies idle is no other way, nor is one
//!   that has fallen silent.
//!
//! Deviation: of two connections with one server, one may have several subflows and the other one, whose packets are marked too then; the sets would
//! have to know the connections' tokens.

use std::fmt::Write;

use super::paths::PathNetwork;
use crate::nft;

/// Marks are counted of so many packets.
pub(super) const OF: u32 = 1_000_000;

/// Everything for `nft -f`: what was learned of servers stays where the table is there already.
pub(super) fn rules(table: &str, networks: &[PathNetwork]) -> String {
    if networks.is_empty() {
        return nft::removal(table);
    }
    // Writing to a string cannot fail.
    let mut script = format!("table inet {table} {{\n");
    for Family { name, ip } in FAMILIES {
        let server = format!("typeof {ip} saddr . tcp sport; flags dynamic,timeout; size {MOST_SERVERS}");
        let _ = writeln!(script, "set servers_{name} {{ {server}; timeout {KNOWN}; }}");
        for PathNetwork { number, .. } in networks {
            let _ = writeln!(script, "set by_{number}_{name} {{ {server}; timeout {ALIVE}; }}");
        }
    }
    script.push_str("chain learn { type filter hook prerouting priority mangle - 1; policy accept; }\n");
    script.push_str("chain marks { type filter hook prerouting priority mangle; policy accept; }\n");
    for PathNetwork { number, .. } in networks {
        let _ = writeln!(script, "chain draw_{number} {{ }}");
    }
    let _ = writeln!(script, "}}\nflush table inet {table}\ntable inet {table} {{");
    for family in FAMILIES {
        networks.iter().for_each(|network| learn(&mut script, family, network));
    }
    for family in FAMILIES {
        networks
            .iter()
            .filter(|network| network.mangled)
            .for_each(|network| unmark(&mut script, family, network));
        for network in networks.iter().filter(|network| network.marks > 0) {
            mark(&mut script, family, network, networks);
        }
    }
    for PathNetwork { number, marks, .. } in networks.iter().filter(|network| network.marks > 0) {
        for Family { ip, .. } in FAMILIES {
            let _ = writeln!(
                script,
                "chain draw_{number} {{ {ip} ecn {{ ect0, ect1 }} numgen random mod {OF} < {marks} {ip} ecn set ce; }}"
            );
        }
    }
    script.push_str("}\n");
    script
}

/// What comes from a server by a network.
fn learn(script: &mut String, Family { name, ip }: Family, network: &PathNetwork) {
    let (Some(coming), number) = (coming(ip, network), network.number) else { return };
    let server = format!("{{ {ip} saddr . tcp sport }}");
    let _ = writeln!(
        script,
        "chain learn {{ {coming} tcp flags & (syn | ack) == (syn | ack) tcp option mptcp subtype {JOIN} update @servers_{name} {server}; }}"
    );
    let _ = writeln!(
        script,
        "chain learn {{ {coming} tcp option mptcp exists {ip} saddr . tcp sport @servers_{name} \
         update @servers_{name} {server} update @by_{number}_{name} {server}; }}"
    );
}

/// What the way there has marked without a reason, plain TCP's too: routes ask for ECN whatever a connection is.
fn unmark(script: &mut String, Family { ip, .. }: Family, network: &PathNetwork) {
    let Some(coming) = coming(ip, network) else { return };
    let _ = writeln!(script, "chain marks {{ {coming} meta l4proto tcp {ip} ecn ce {ip} ecn set ect0; }}");
}

/// One draw for a packet, whatever the number of other networks.
fn mark(script: &mut String, Family { name, ip }: Family, network: &PathNetwork, networks: &[PathNetwork]) {
    let (Some(coming), number) = (coming(ip, network), network.number) else { return };
    for other in networks.iter().map(|other| other.number).filter(|other| *other != number) {
        let _ = writeln!(
            script,
            "chain marks {{ {coming} {ip} ecn {{ ect0, ect1 }} tcp option mptcp exists {ip} saddr . tcp sport @servers_{name} \
             {ip} saddr . tcp sport @by_{other}_{name} goto draw_{number}; }}"
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
/// `MP_JOIN` (RFC 8684 section 3.2).
const JOIN: u8 = 1;
/// Further servers are not known, so nothing of them is marked.
const MOST_SERVERS: u32 = 4_096;
const KNOWN: &str = "10m";
/// Several round trips. Longer would be worse: marks on the only way that is left make its sender's window small for seconds.
const ALIVE: &str = "500ms";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use socket2::{Domain, Protocol, Socket, Type};

    use super::super::paths::{PathNetwork, Paths, end, set_limits};
    use crate::netlink::{Netlink, Route};
    use crate::netns::Namespace;
    use crate::prefix::IpPrefix;
    use crate::test_namespace::{joined_pair, may_test};

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
    fn packets_of_connections_with_several_ways_are_marked_and_of_others_never() {
        if !may_test() || crate::mptcp::why_not().is_some() {
            return;
        }
        let (left, right) = joined_pair();
        let both = (&left, &right);
        right.run(|| set_limits(None).unwrap()).unwrap();
        let paths = left
            .run(|| {
                let mut netlink = Netlink::open().unwrap();
                let interface = netlink.link("cable").unwrap().unwrap().index;
                let subnet: IpPrefix = "10.77.0.0/24".parse().unwrap();
                netlink.add_address(interface, "10.77.0.3/24".parse().unwrap()).unwrap();
                netlink.add_route(&Route { ecn: true, ..Route::over(subnet, interface) }).unwrap();
                assert!(netlink.routes().unwrap().iter().any(|route| route.ecn));
                let network = |number, address: &str, marks| PathNetwork {
                    number,
                    interface,
                    addresses: vec![address.parse().unwrap()],
                    backup: false,
                    marks,
                    mangled: false,
                    renewals: None,
                };
                let networks = vec![network(1, "10.77.0.1", HALF), network(2, "10.77.0.3", 0)];
                let paths = Paths { table: 43_900, networks };
                paths.mark().unwrap();
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
        let joined = || {
            let limit = Instant::now() + Duration::from_secs(10);
            while paths.counts().unwrap()[&2].joined == 0 && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(20));
            }
            // Other shares do not make it forget what it has learned.
            paths.mark().unwrap();
        };
        let marked = download(both, Protocol::MPTCP, 7_003, joined);
        assert!(marked > 0);
        let alive = || {
            let rules = crate::nft::ask(&["list", "ruleset"]).unwrap();
            let set = rules.split("set by_2_v4 {").nth(1).unwrap();
            set.split("\n\t}").next().unwrap().contains("elements")
        };
        left.run(|| {
            let limit = Instant::now() + Duration::from_secs(3);
            while alive() {
                assert!(Instant::now() < limit, "what has fallen silent is still taken for another way");
                std::thread::sleep(Duration::from_millis(50));
            }
        })
        .unwrap();
        let single = Paths { networks: paths.networks[..1].to_vec(), ..paths.clone() };
        left.run(|| {
            single.sync().unwrap();
            single.mark().unwrap();
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
                let network = PathNetwork {
                    number: 1,
                    interface,
                    addresses: vec!["10.77.0.1".parse().unwrap()],
                    backup: false,
                    marks: 0,
                    mangled: false,
                    renewals: None,
                };
                let paths = Paths { table: 43_910, networks: vec![network] };
                paths.watch().unwrap();
                paths.mark().unwrap();
                paths
            })
            .unwrap();
        let heeded = download(both, Protocol::MPTCP, 7_011, || {});
        let counts = left.run(|| paths.counts().unwrap()[&1]).unwrap();
        assert!(heeded > 0 && counts.congested > 10, "{heeded} {counts:?}");
        assert_eq!(counts.congested, counts.markable);
        paths.networks[0].mangled = true;
        left.run(|| paths.mark().unwrap()).unwrap();
        for (protocol, port) in [(Protocol::MPTCP, 7_012), (Protocol::TCP, 7_013)] {
            assert_eq!(download(both, protocol, port, || {}), heeded, "{protocol:?}");
        }
        let after = left.run(|| paths.counts().unwrap()[&1].since(&counts)).unwrap();
        assert!(after.congested > 10, "it is still seen: {after:?}");
        left.run(|| end(43_910, None).unwrap()).unwrap();
    }
}
