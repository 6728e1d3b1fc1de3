//! Which networks MPTCP connections use: an endpoint for each address of a network, and a rule by which packets from that
//! address leave by that network's own table.
//!
//! Endpoints have numbers of their own, so that those of other programs (NetworkManager makes some) are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::marking::OF;
use super::path_manager::{Endpoint, Limits, PathManager};
use super::watching::{self, WayCounts};
use crate::journal::Change;
use crate::netlink::{Netlink, NetlinkError, Rule, unless_missing};
use crate::nft::{self, NftError};

/// The networks of MPTCP connections, as they should be in the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Paths {
    /// Table number of a network is this plus its own number, as in [`crate::direct::Direct`].
    pub table: u32,
    /// The networks.
    pub networks: Vec<PathNetwork>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathNetwork {
    /// 1 to [`crate::direct::MAXIMUM_EXITS`].
    pub number: u8,
    /// Number of its interface.
    pub interface: u32,
    /// Its own addresses; the first of each family is used, and of networks with the same address the first network.
    pub addresses: Vec<IpAddr>,
    /// To carry data only while no other can.
    pub backup: bool,
    /// Of a million packets of MPTCP connections that come in by it, so many are marked as having met a queue, if they can be marked.
    pub marks: u32,
    /// All its packets say that they have met a queue: that is taken off them, as it tells nothing and holds every sender to next to nothing.
    pub mangled: bool,
    /// How often connections were to begin anew over it ([`Paths::renew`]); `None` while nobody says.
    pub renewals: Option<u32>,
}

#[cfg(test)]
impl PathNetwork {
    /// One with this address, of which nothing else is asked.
    pub(super) fn plain(number: u8, interface: u32, address: &str) -> Self {
        let addresses = vec![address.parse().unwrap()];
        Self { number, interface, addresses, backup: false, marks: 0, mangled: false, renewals: None }
    }
}

/// Why they cannot be had.
#[derive(Debug, Error)]
pub enum PathsError {
    /// The kernel.
    #[error("this kernel has no MPTCP; it takes one built with CONFIG_MPTCP")]
    None,
    /// A value that cannot be.
    #[error("MPTCP over networks: {0}")]
    Invalid(&'static str),
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel's list of sockets.
    #[error("the kernel's list of sockets cannot be opened: {0}")]
    Sockets(#[source] std::io::Error),
    /// nftables, which marks packets.
    #[error("packets of slow access points are not marked: {0}")]
    Marks(#[from] NftError),
}

impl Paths {
    /// What must be undone later.
    pub const fn change(&self) -> Change {
        Change::Mptcp { table: self.table }
    }

    /// Brings endpoints and rules to what this says. Subflows of networks that are gone end, with the endpoint; those of new ones begin at once.
    /// Gives those for which the kernel has no room: endpoints of other programs keep theirs, then come the first addresses of all networks, and
    /// backups after the others each time: one address is enough to go on by.
    ///
    /// # Errors
    /// Any [`PathsError`]; what came before stays.
    pub fn sync(&self) -> Result<Vec<Endpoint>, PathsError> {
        let mut wanted = self.endpoints()?;
        let mut manager = PathManager::open()?.ok_or(PathsError::None)?;
        let mut present = manager.endpoints()?;
        let others = present.iter().filter(|one| !OWN.contains(&one.id)).map(|one| one.address);
        let mut left_out = without_room(&wanted, &others.collect::<Vec<_>>());
        let rules: Vec<Rule> = wanted.iter().map(|(_, rule)| rule.clone()).collect();
        wanted.retain(|(endpoint, _)| !left_out.contains(endpoint));
        for old in present.clone().iter().filter(|old| OWN.contains(&old.id)) {
            let kept = wanted.iter().find(|(new, _)| Endpoint { backup: old.backup, ..*new } == *old);
            match kept {
                Some((new, _)) if new.backup != old.backup => manager.set_backup(old.id, new.backup)?,
                Some(_) => {}
                None => {
                    unless_missing(manager.remove(old.id))?;
                    present.retain(|one| one.id != old.id);
                }
            }
        }
        sync_rules(self.table, &rules)?;
        for (new, _) in &wanted {
            if present.iter().all(|one| one.address != new.address) {
                match manager.add(new) {
                    // Another program was faster with the last place.
                    Err(error) if error.errno() == libc::ERANGE => left_out.push(*new),
                    // Somebody was faster, or the interface has gone meanwhile; the monitor will tell.
                    Err(error) if !error.is_exists() && !error.is_missing_device() => Err(error)?,
                    _ => {}
                }
            }
        }
        Ok(left_out)
    }

    /// Has nftables count what becomes of MPTCP's option and of ECN on the way, from nothing, in a table of its own that marks do not change.
    ///
    /// # Errors
    /// If nft cannot be run or refuses; nothing is changed then.
    pub fn watch(&self) -> Result<(), NftError> {
        let name = watching_table(self.table);
        let rules = watching::rules(&self.networks);
        nft::load(&format!("{}table inet {name} {{\n{rules}}}\n", nft::removal(&name)))
    }

    /// Whether [`Self::watch`] of both is the same.
    pub fn is_watched_as(&self, other: &Self) -> bool {
        self.table == other.table && watching::rules(&self.networks) == watching::rules(&other.networks)
    }

    /// What was counted since [`Self::watch`], by the networks' numbers.
    ///
    /// # Errors
    /// If nft cannot be run or nothing is counted.
    pub fn counts(&self) -> Result<BTreeMap<u8, WayCounts>, NftError> {
        watching::read(&watching_table(self.table))
    }

    /// Whether some packets are to be marked, or marks taken off.
    pub fn has_marks(&self) -> bool {
        self.networks.iter().any(|network| network.marks > 0 || network.mangled)
    }

    /// Those of the network with this number.
    pub(super) fn endpoints_of(&self, number: u8) -> Result<Vec<Endpoint>, PathsError> {
        let table = self.table + u32::from(number);
        let all = self.endpoints()?.into_iter();
        Ok(all.filter(|(_, rule)| rule.table == table).map(|(endpoint, _)| endpoint).collect())
    }

    fn endpoints(&self) -> Result<Vec<(Endpoint, Rule)>, PathsError> {
        let mut wanted: Vec<(Endpoint, Rule)> = Vec::new();
        let mut numbers = BTreeSet::new();
        for PathNetwork { number, interface, addresses, backup, marks, .. } in &self.networks {
            if !(1..=crate::direct::MAXIMUM_EXITS).contains(number) || !numbers.insert(number) {
                return Err(PathsError::Invalid("a network without a number of its own"));
            }
            if *marks > OF {
                return Err(PathsError::Invalid("more marks than packets"));
            }
            for ipv6 in [false, true] {
                let Some(address) = addresses.iter().copied().find(|address| address.is_ipv6() == ipv6)
                else {
                    continue;
                };
                if wanted.iter().any(|(known, _)| known.address == address) {
                    continue;
                }
                let id = number + if ipv6 { FIRST_V6 } else { FIRST_V4 };
                let endpoint = Endpoint { id, address, interface: *interface, backup: *backup };
                let table = self.table + u32::from(*number);
                wanted.push((endpoint, rule(address, table)));
            }
        }
        Ok(wanted)
    }
}

/// Which of the wanted endpoints, in the order of their networks, have no place beside those of `others`.
fn without_room(wanted: &[(Endpoint, Rule)], others: &[IpAddr]) -> Vec<Endpoint> {
    let mut seen = BTreeSet::new();
    let mut ranked: Vec<(bool, Endpoint)> = wanted
        .iter()
        .map(|(endpoint, rule)| (!seen.insert(rule.table), *endpoint))
        .filter(|(_, endpoint)| !others.contains(&endpoint.address))
        .collect();
    ranked.sort_by_key(|(is_second, endpoint)| (*is_second, endpoint.backup));
    let room = MOST_ENDPOINTS.saturating_sub(others.len());
    ranked.into_iter().skip(room).map(|(_, endpoint)| endpoint).collect()
}

/// After routes of the main table that are not default ones, before the rule that leads to any0.
fn rule(address: IpAddr, table: u32) -> Rule {
    Rule {
        ipv6: address.is_ipv6(),
        priority: PRIORITY,
        mark: None,
        mask: None,
        source: Some(address),
        invert: false,
        table,
        suppress_prefix_length: None,
    }
}

fn sync_rules(table: u32, wanted: &[Rule]) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open()?;
    let tables = table + 1..=table + u32::from(crate::direct::MAXIMUM_EXITS);
    let mut present = netlink.rules()?;
    present.retain(|rule| rule.priority == PRIORITY && tables.contains(&rule.table));
    for new in wanted.iter().filter(|new| !present.contains(new)) {
        match netlink.add_rule(new) {
            Err(error) if !error.is_exists() => return Err(error),
            _ => {}
        }
    }
    present
        .iter()
        .filter(|old| !wanted.contains(old))
        .try_for_each(|old| unless_missing(netlink.delete_rule(old)))
}

/// The limits before ours; `None` if they are wide enough.
pub(crate) fn widen() -> Result<Option<Limits>, PathsError> {
    let before = PathManager::open()?.ok_or(PathsError::None)?.limits()?;
    Ok((before.subflows < SUBFLOWS).then_some(before))
}

/// Lets each connection have as many subflows as the kernel allows.
pub(crate) fn set_limits(subflows: Option<u32>) -> Result<(), PathsError> {
    let mut manager = PathManager::open()?.ok_or(PathsError::None)?;
    let limits = manager.limits()?;
    Ok(manager.set_limits(Limits { subflows: subflows.unwrap_or(SUBFLOWS), ..limits })?)
}

/// Removes our endpoints and rules, and sets the limit back unless somebody else has changed it since.
pub(crate) fn end(table: u32, subflows: Option<u32>) -> Result<(), PathsError> {
    sync_rules(table, &[])?;
    nft::load(&(nft::removal(&marking_table(table)) + &nft::removal(&watching_table(table))))?;
    let Some(mut manager) = PathManager::open()? else { return Ok(()) };
    for old in manager.endpoints()?.iter().filter(|old| OWN.contains(&old.id)) {
        unless_missing(manager.remove(old.id))?;
    }
    match subflows {
        Some(before) if manager.limits()?.subflows == SUBFLOWS => set_limits(Some(before)),
        _ => Ok(()),
    }
}

fn watching_table(table: u32) -> String {
    format!("anabranch_mptcp_ways_{table}")
}

pub(super) fn marking_table(table: u32) -> String {
    format!("anabranch_mptcp_{table}")
}

const PRIORITY: u32 = 32_507;
/// The kernel's `MPTCP_SUBFLOWS_MAX`.
const SUBFLOWS: u32 = 8;
/// Endpoints of a network namespace, whoever has made them: `MPTCP_PM_ADDR_MAX` in Linux net/mptcp/pm_kernel.c, earlier pm_netlink.c.
pub const MOST_ENDPOINTS: usize = 8;
const FIRST_V4: u8 = 64;
const FIRST_V6: u8 = 128;
const OWN: std::ops::RangeInclusive<u8> = FIRST_V4 + 1..=FIRST_V6 + crate::direct::MAXIMUM_EXITS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::test_namespace::{joined_pair, may_test};

    /// `work` in a namespace with an interface, unless the kernel has no MPTCP.
    fn on_a_cable(work: impl FnOnce(&mut PathManager, u32) + Send) {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        left.run(|| match PathManager::open().unwrap() {
            Some(mut manager) => {
                let interface = Netlink::open().unwrap().link("cable").unwrap().unwrap().index;
                work(&mut manager, interface);
            }
            None => eprintln!("skipped: this kernel has no MPTCP"),
        })
        .unwrap();
    }

    #[test]
    fn networks_come_and_go_and_an_end_leaves_what_was_there() {
        on_a_cable(|manager, interface| {
            let before = manager.limits().unwrap();
            let others = Endpoint { id: 3, address: "10.77.0.1".parse().unwrap(), interface, backup: false };
            manager.add(&others).unwrap();
            let network = |number, addresses: &[&str], backup| PathNetwork {
                number,
                interface,
                addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
                backup,
                marks: 0,
                mangled: false,
                renewals: None,
            };
            let paths = |networks| Paths { table: 43_857, networks };
            let first = network(1, &["10.77.0.1", "fd77::1"], false);
            let twice = network(2, &["10.77.0.1"], false);
            let state = std::env::temp_dir().join(format!("ab-{}-mptcp", std::process::id()));
            std::fs::create_dir_all(&state).unwrap();
            let mut journal = Journal::open(&state).unwrap();
            let both = paths(vec![first.clone(), twice]);
            journal.apply(&[both.change()]).unwrap();
            assert_eq!(manager.limits().unwrap().subflows, 8);
            both.sync().unwrap();
            let ids = |manager: &mut PathManager| -> Vec<(u8, bool)> {
                manager.endpoints().unwrap().iter().map(|one| (one.id, one.backup)).collect()
            };
            assert_eq!(ids(manager), [(3, false), (129, false)], "the first is there already");
            let tables = || -> Vec<u32> {
                let rules = Netlink::open().unwrap().rules().unwrap();
                rules.iter().filter(|rule| rule.source.is_some()).map(|rule| rule.table).collect()
            };
            assert_eq!(tables(), [43_858, 43_858], "two networks with one address");
            manager.remove(others.id).unwrap();
            both.sync().unwrap();
            assert_eq!(ids(manager), [(65, false), (129, false)], "one endpoint for both");
            manager.remove(65).unwrap();
            manager.add(&others).unwrap();
            paths(vec![network(1, &["fd77::1"], true)]).sync().unwrap();
            assert_eq!((ids(manager), tables()), (vec![(3, false), (129, true)], vec![43_858]));
            assert!(paths(vec![network(0, &[], false)]).sync().is_err());
            journal.restore().unwrap();
            assert_eq!((ids(manager), tables()), (vec![(3, false)], vec![]));
            assert_eq!(manager.limits().unwrap(), before);
            std::fs::remove_dir_all(&state).unwrap();
        });
    }

    fn dual_stack(number: u8, interface: u32, backup: bool) -> PathNetwork {
        let addresses = dual_addresses(number).to_vec();
        PathNetwork { number, interface, addresses, backup, marks: 0, mangled: false, renewals: None }
    }

    fn dual_addresses(number: u8) -> [IpAddr; 2] {
        [format!("10.77.{number}.1").parse().unwrap(), format!("fd77:{number}::1").parse().unwrap()]
    }

    fn addresses_of(endpoints: &[Endpoint]) -> Vec<IpAddr> {
        endpoints.iter().map(|endpoint| endpoint.address).collect()
    }

    #[test]
    fn second_addresses_are_left_out_first_and_of_each_kind_those_of_backups() {
        let left_out = |networks: &[PathNetwork], others: &[IpAddr]| {
            let paths = Paths { table: 100, networks: networks.to_vec() };
            addresses_of(&without_room(&paths.endpoints().unwrap(), others))
        };
        let other = |n: u8| IpAddr::from([10, 9, 9, n]);
        let four: Vec<PathNetwork> = (1..=4).map(|number| dual_stack(number, 1, false)).collect();
        assert_eq!(left_out(&four, &[]), [] as [IpAddr; 0], "eight fit");
        assert_eq!(left_out(&four, &[other(1)]), [dual_addresses(4)[1]]);
        let seconds: Vec<IpAddr> = (1..=4).map(|number| dual_addresses(number)[1]).collect();
        assert_eq!(left_out(&four, &[1, 2, 3, 4].map(other)), seconds);
        assert_eq!(left_out(&four, &[dual_addresses(1)[0]]), [] as [IpAddr; 0], "it is there already");
        let backup_first = [dual_stack(1, 1, true), dual_stack(2, 1, false)];
        let few = [1, 2, 3, 4, 5].map(other);
        assert_eq!(left_out(&backup_first, &few), [dual_addresses(1)[1]]);
        let fewer = [1, 2, 3, 4, 5, 6].map(other);
        assert_eq!(left_out(&backup_first, &fewer), [dual_addresses(2)[1], dual_addresses(1)[1]]);
        let one_place = [1, 2, 3, 4, 5, 6, 7].map(other);
        assert_eq!(left_out(&backup_first, &one_place)[0], dual_addresses(1)[0], "the backup has none");
        let more_than_fit = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(other);
        assert_eq!(left_out(&backup_first, &more_than_fit).len(), 4);
    }

    #[test]
    fn where_the_kernel_has_no_room_for_all_each_network_has_one_and_backups_come_last() {
        on_a_cable(|manager, interface| {
            let others = Endpoint { id: 3, address: "10.77.9.1".parse().unwrap(), interface, backup: false };
            manager.add(&others).unwrap();
            let network = |number| dual_stack(number, interface, number == 1);
            let paths = Paths { table: 43_970, networks: (1..=5).map(network).collect() };
            let left_out = paths.sync().unwrap();
            // Seven places: the first addresses of all five, and the second ones of two that are no backups.
            let [_, second] = dual_addresses(1);
            assert_eq!(addresses_of(&left_out), [dual_addresses(4)[1], dual_addresses(5)[1], second]);
            assert_eq!(manager.endpoints().unwrap().len(), 8);
            assert_eq!(paths.sync().unwrap(), left_out, "it stays so");
            let fewer = Paths { networks: paths.networks[..4].to_vec(), ..paths };
            assert_eq!(addresses_of(&fewer.sync().unwrap()), [second]);
            end(43_970, None).unwrap();
            assert_eq!(manager.endpoints().unwrap(), [others]);
        });
    }

    /// A second way begins with a second address; whether the far end hears of MPTCP over it is up to what is on the way.
    #[test]
    fn it_is_counted_what_takes_the_option_out() {
        use std::io::{Read, Write};

        use socket2::{Domain, Protocol, Socket, Type};

        if !may_test() || crate::mptcp::why_not().is_some() {
            return;
        }
        let (left, right) = joined_pair();
        let paths = left
            .run(|| {
                let interface = Netlink::open().unwrap().link("cable").unwrap().unwrap().index;
                Netlink::open().unwrap().add_address(interface, "10.77.0.3/24".parse().unwrap()).unwrap();
                let network = |number, address| PathNetwork {
                    marks: 50_000,
                    ..PathNetwork::plain(number, interface, address)
                };
                let networks = vec![network(1, "10.77.0.1"), network(2, "10.77.0.3")];
                set_limits(None).unwrap();
                let paths = Paths { table: 43_950, networks };
                paths.sync().unwrap();
                paths.watch().unwrap();
                paths
            })
            .unwrap();
        right.run(|| set_limits(None).unwrap()).unwrap();
        let download = |port| {
            let address = std::net::SocketAddr::from(([10, 77, 0, 2], port));
            let socket = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
            let sending = right
                .run(|| {
                    let socket = socket();
                    socket.bind(&address.into()).unwrap();
                    socket.listen(4).unwrap();
                    std::thread::spawn(move || {
                        let (mut to, _) = socket.accept().unwrap();
                        to.write_all(&[7; 300_000]).unwrap();
                        // The second way is begun once data has come over the first.
                        to.read_exact(&mut [0]).unwrap();
                    })
                })
                .unwrap();
            let counted = left
                .run(|| {
                    let mut socket = socket();
                    socket.bind(&std::net::SocketAddr::from(([10, 77, 0, 1], 0)).into()).unwrap();
                    socket.connect(&address.into()).unwrap();
                    socket.read_exact(&mut [0; 300_000]).unwrap();
                    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
                    let answered = |counts: &WayCounts| counts.joined + counts.join_stripped > 0;
                    let counted = loop {
                        let counts = paths.counts().unwrap();
                        if answered(&counts[&2]) || std::time::Instant::now() > end {
                            break counts;
                        }
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    };
                    socket.write_all(&[1]).unwrap();
                    counted
                })
                .unwrap();
            sending.join().unwrap();
            counted
        };
        let whole = download(4_100);
        assert_eq!((whole[&2].joined, whole[&2].join_stripped), (1, 0), "{whole:?}");
        assert_eq!((whole[&1].joined, whole[&1].begun), (0, 1), "{whole:?}");
        assert!(whole[&1].unmarkable > 10 && whole[&1].markable == 0, "nobody asked for ECN: {whole:?}");
        let strip = "table ip box { chain strip { type filter hook prerouting priority raw; policy accept; \
                     ip saddr 10.77.0.3 tcp flags & (syn | ack) == syn reset tcp option mptcp;\n}\n}\n";
        right.run(|| nft::load(strip).unwrap()).unwrap();
        left.run(|| paths.watch().unwrap()).unwrap();
        let stripped = download(4_101);
        assert_eq!((stripped[&2].joined, stripped[&2].join_stripped), (0, 1), "{stripped:?}");

        // First ones: a server of which nothing is known may just not speak it.
        let address = std::net::SocketAddr::from(([10, 77, 0, 2], 4_102));
        let listener = right
            .run(|| {
                let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
                listener.bind(&address.into()).unwrap();
                listener.listen(4).unwrap();
                listener
            })
            .unwrap();
        let connected_from = |own: [u8; 4]| {
            left.run(|| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
                socket.bind(&std::net::SocketAddr::from((own, 0)).into()).unwrap();
                socket.connect(&address.into()).unwrap();
                paths.counts().unwrap()
            })
            .unwrap()
        };
        left.run(|| paths.watch().unwrap()).unwrap();
        let counts = connected_from([10, 77, 0, 3]);
        assert_eq!((counts[&2].begun, counts[&2].begin_stripped), (0, 0), "{counts:?}");
        let counts = connected_from([10, 77, 0, 1]);
        assert_eq!((counts[&1].begun, counts[&2].begin_stripped), (1, 0), "{counts:?}");
        let counts = connected_from([10, 77, 0, 3]);
        assert_eq!((counts[&2].begun, counts[&2].begin_stripped), (0, 1), "it is one that does: {counts:?}");
        let counts = connected_from([10, 77, 0, 3]);
        assert_eq!(counts[&2].begin_stripped, 1, "it has not answered another one since: {counts:?}");
        drop(listener);
        left.run(|| end(43_950, None).unwrap()).unwrap();
    }
}
