//! Connections begin anew over a network: their subflows by it end, others begin in their place, of which the sender at the far end knows nothing. It
//! then neither goes on with a small window nor waits for a time-out that has doubled several times.
//!
//! An endpoint's subflows are those of all connections, so it is done only while none would be left without any: another network must carry an
//! established subflow of each. That also says that its server can be joined anew, which one behind a balancer of load may not.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::{fmt, fs};

use super::path_manager::PathManager;
use super::paths::{Paths, PathsError};
use super::ways::{Way, ways};
use crate::journal::Change;
use crate::netlink::unless_missing;

/// Why connections do not begin anew over a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hindrance {
    /// There are none.
    NoConnections,
    /// One that has subflows over it has no established one over another network.
    NoOther,
    /// Its endpoints are those of another program, such as NetworkManager, and stay as they are.
    NotOurs,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoConnections => "there are none",
            Self::NoOther => "some have no other network",
            Self::NotOurs => "another program has made its endpoints (`ip mptcp endpoint`)",
        })
    }
}

impl Paths {
    /// What stands against having connections begin anew over the network with this number now.
    ///
    /// # Errors
    /// As [`Paths::sync`].
    pub fn hindrance(&self, number: u8) -> Result<Option<Hindrance>, PathsError> {
        let own = self.endpoints_of(number)?;
        let present = PathManager::open()?.ok_or(PathsError::None)?.endpoints()?;
        if own.iter().all(|one| !present.contains(one)) {
            return Ok(Some(Hindrance::NotOurs));
        }
        let ways = ways()?;
        if ways.is_empty() {
            return Ok(Some(Hindrance::NoConnections));
        }
        let addresses: Vec<IpAddr> = own.iter().map(|one| one.address).collect();
        Ok((!all_have_another(&ways, &addresses)).then_some(Hindrance::NoOther))
    }

    /// Has connections begin anew over the network with this number, and join it that have not.
    ///
    /// # Errors
    /// As [`Paths::sync`]; an endpoint may be missing then until that is called.
    pub fn renew(&self, number: u8) -> Result<(), PathsError> {
        let mut manager = PathManager::open()?.ok_or(PathsError::None)?;
        let present = manager.endpoints()?;
        let mut outcome = Ok(());
        for endpoint in self.endpoints_of(number)?.iter().filter(|one| present.contains(one)) {
            unless_missing(manager.remove(endpoint.id))?;
            match manager.add(endpoint) {
                // Somebody was faster, or the interface has gone meanwhile.
                Err(error) if !error.is_exists() && !error.is_missing_device() => outcome = Err(error.into()),
                _ => {}
            }
        }
        outcome
    }
}

/// What lets subflows that begin late carry as much as others; `None` if nothing has to be changed. The kernel has the receive window of a connection's
/// subflows grow together, and only beyond what the connection had before: one that begins later stays at what a socket begins with, which is 64 KiB by
/// default, 10 Mbit/s at 50 ms (seen with Linux 6.1).
pub fn wider_windows() -> Option<Change> {
    let value = with_room(&fs::read_to_string(BUFFERS).ok()?)?;
    Some(Change::Setting { path: BUFFERS.into(), value })
}

/// The three numbers of the setting, with room in the second one, which is the size that a socket begins with.
fn with_room(before: &str) -> Option<String> {
    let numbers: Vec<u64> = before.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [least, first, most] = numbers[..] else { return None };
    let wanted = ROOM.min(most);
    // As the kernel writes it, so that it is known again.
    (first < wanted).then(|| format!("{least}\t{wanted}\t{most}"))
}

/// Whether every connection with a subflow from one of these addresses has an established one from another.
fn all_have_another(ways: &[Way], addresses: &[IpAddr]) -> bool {
    let is_here = |way: &&Way| addresses.contains(&way.local.ip());
    let elsewhere: BTreeSet<u32> = ways
        .iter()
        .filter(|way| !is_here(way) && way.is_established)
        .map(|way| way.subflow.connection)
        .collect();
    ways.iter().filter(is_here).all(|way| elsewhere.contains(&way.subflow.connection))
}

/// Least, first and greatest receive buffer of TCP's sockets, bytes.
const BUFFERS: &str = "/proc/sys/net/ipv4/tcp_rmem";
/// A window of half of it: 84 Mbit/s at 50 ms.
const ROOM: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::time::{Duration, Instant};

    use socket2::{Domain, Socket, Type};

    use super::super::path_manager::Endpoint;
    use super::super::paths::{PathNetwork, set_limits};
    use super::*;
    use crate::netlink::Netlink;
    use crate::netlink::sock_diag::{Protocol, Selection, SocketDiagnostics, Subflow};
    use crate::test_namespace::{joined_pair, may_test};

    fn way(connection: u32, local: [u8; 4], is_established: bool) -> Way {
        Way {
            local: SocketAddr::from((local, 40_000)),
            remote: SocketAddr::from(([10, 77, 0, 2], 80)),
            subflow: Subflow { connection, answered: true },
            is_established,
        }
    }

    #[test]
    fn no_connection_may_lose_its_last_subflow() {
        let (a, b) = ([10, 77, 0, 1], [10, 77, 0, 3]);
        let here = [IpAddr::from(b)];
        assert!(all_have_another(&[], &here));
        assert!(all_have_another(&[way(1, a, true), way(1, b, true), way(2, a, true)], &here));
        assert!(!all_have_another(&[way(1, a, true), way(2, b, true)], &here), "the other one is another's");
        assert!(!all_have_another(&[way(1, a, false), way(1, b, true)], &here), "nobody has answered yet");
        assert!(!all_have_another(&[way(1, a, true), way(1, b, true)], &[a.into(), b.into()]));
    }

    #[test]
    fn a_socket_begins_with_room_for_a_window() {
        assert_eq!(with_room("4096\t131072\t6291456\n").unwrap(), "4096\t1048576\t6291456");
        assert_eq!(with_room("4096 131072 500000").unwrap(), "4096\t500000\t500000");
        assert_eq!(with_room("4096\t2097152\t6291456"), None);
        assert_eq!(with_room("4096\t6291456"), None);
        assert_eq!(with_room("4096\tmany\t6291456"), None);
    }

    /// Echoes what comes, until it ends.
    fn echo(mut to: impl Read + Write) {
        let mut byte = [0];
        while to.read_exact(&mut byte).is_ok() && to.write_all(&byte).is_ok() {}
    }

    /// The local ports of MPTCP's subflows from an address, by connection.
    fn ports(address: IpAddr) -> Vec<(u32, u16)> {
        let mut found = Vec::new();
        let mut diagnostics = SocketDiagnostics::open().unwrap();
        let connected = Selection::connected(Protocol::Tcp);
        diagnostics
            .for_each(connected, |socket| {
                let answered = socket.subflow.filter(|subflow| subflow.answered);
                if let Some(subflow) = answered.filter(|_| socket.local.ip() == address) {
                    found.push((subflow.connection, socket.local.port()));
                }
            })
            .unwrap();
        found
    }

    #[test]
    fn subflows_by_a_network_begin_anew_and_connections_live() {
        if !may_test() || crate::mptcp::why_not().is_some() {
            return;
        }
        let (left, right) = joined_pair();
        let at = |port| SocketAddr::from(([10, 77, 0, 2], port));
        right
            .run(|| {
                set_limits(None).unwrap();
                let plain = TcpListener::bind(at(80)).unwrap();
                std::thread::spawn(move || plain.incoming().for_each(|to| echo(to.unwrap())));
                let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::MPTCP)).unwrap();
                socket.bind(&at(81).into()).unwrap();
                socket.listen(4).unwrap();
                std::thread::spawn(move || {
                    while let Ok((to, _)) = socket.accept() {
                        std::thread::spawn(move || echo(to));
                    }
                });
            })
            .unwrap();
        let (first, second): (IpAddr, IpAddr) = ([10, 77, 0, 1].into(), [10, 77, 0, 3].into());
        left.run(|| {
            let mut netlink = Netlink::open().unwrap();
            let interface = netlink.link("cable").unwrap().unwrap().index;
            netlink.add_address(interface, "10.77.0.3/24".parse().unwrap()).unwrap();
            let network = |number, address| PathNetwork {
                number,
                interface,
                addresses: vec![address],
                backup: false,
                marks: 0,
                mangled: false,
                renewals: None,
            };
            let paths = Paths { table: 43_930, networks: vec![network(1, first), network(2, second)] };
            set_limits(None).unwrap();
            paths.sync().unwrap();
            let connect = |port| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(socket2::Protocol::MPTCP)).unwrap();
                socket.bind(&SocketAddr::new(first, 0).into()).unwrap();
                socket.connect(&at(port).into()).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                socket
            };
            let answers = |socket: &mut Socket| {
                socket.write_all(&[7]).unwrap();
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                byte == [7]
            };
            let wait = |what: &str, is_so: &dyn Fn() -> bool| {
                let end = Instant::now() + Duration::from_secs(10);
                while !is_so() {
                    assert!(Instant::now() < end, "{what}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            };
            let mut plain = connect(80);
            let mut joined = connect(81);
            assert!(answers(&mut plain) && answers(&mut joined));
            wait("a second subflow", &|| ports(second).len() == 1);
            assert_eq!(ports(first).len(), 1, "what has fallen back to TCP is none");
            for address in [second, first, second] {
                let before = ports(address);
                let number = if address == first { 1 } else { 2 };
                assert_eq!(paths.hindrance(number).unwrap(), None);
                paths.renew(number).unwrap();
                wait("another subflow", &|| ports(address).len() == 1 && ports(address) != before);
                assert_eq!(ports(address)[0].0, before[0].0, "of the same connection");
                assert!(answers(&mut plain) && answers(&mut joined), "{number}");
            }
            paths.renew(9).unwrap();
            assert_eq!(paths.hindrance(9).unwrap(), Some(Hindrance::NotOurs));
            // Another program's, in the place of ours.
            let mut manager = PathManager::open().unwrap().unwrap();
            let own = paths.endpoints_of(2).unwrap()[0];
            manager.remove(own.id).unwrap();
            manager.add(&Endpoint { id: 7, ..own }).unwrap();
            paths.sync().unwrap();
            assert_eq!(paths.hindrance(2).unwrap(), Some(Hindrance::NotOurs));
            manager.remove(7).unwrap();
            paths.sync().unwrap();
            wait("ours again", &|| ports(second).len() == 1);
            // One that has no other network any more would lose everything.
            let alone = Paths { networks: vec![network(1, first)], ..paths };
            alone.sync().unwrap();
            wait("one is left", &|| ports(second).is_empty());
            assert_eq!(alone.hindrance(1).unwrap(), Some(Hindrance::NoOther));
            assert!(answers(&mut plain) && answers(&mut joined));
            drop(joined);
            wait("none is left", &|| alone.hindrance(1).unwrap() == Some(Hindrance::NoConnections));
        })
        .unwrap();
    }
}
