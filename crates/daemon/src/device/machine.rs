//! Root's part of a device: routes, rules, name servers, each in the journal.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::bpf::{FastPath, Slots};
use linux::cgroup::{CgroupPath, Hierarchy};
use linux::direct::{Direct, Unruled};
use linux::dns;
use linux::journal::{Change, Journal};
use linux::mptcp::{self, Endpoint, MOST_ENDPOINTS, Marker, PathNetwork, Paths, PathsError};
use linux::neighbour_routes::NeighbourRoutes;
use linux::netlink::Netlink;
use linux::routing::{self, Routing};
use tracing::{debug, info};

use super::groups::Groups;
use crate::config::DeviceConfig;
use crate::supervision::{self, Answer, Machine, Request};

/// The routes and rules of a device whose interface has the number `interface_index`.
pub fn routing(config: &DeviceConfig, interface_index: u32) -> Routing {
    Routing {
        interface: config.interface.clone(),
        interface_index,
        mark: config.mark,
        table: config.table,
        ipv4: true,
        ipv6: true,
        kill_switch: config.kill_switch,
    }
}

/// The routes to neighbours of a device with these routes.
pub fn neighbour_routes(routing: &Routing) -> NeighbourRoutes {
    NeighbourRoutes {
        interface: routing.interface.clone(),
        mark: routing.mark,
        interface_table: routing.table,
        prefixes: identity::any0_address::prefixes(),
    }
}

/// Everything that capturing changes, in order.
pub fn changes(routing: &Routing, servers: &[IpAddr]) -> Vec<Change> {
    let mut changes = routing.plan();
    changes.extend(dns::plan(&routing.interface, servers, None));
    changes
}

/// Carries out a device's requests.
pub struct DeviceMachine {
    journal: Journal,
    routing: Routing,
    /// How many tables direct mode has had.
    tables: usize,
    fast_path: Option<FastPath>,
    /// The kernel has refused it: not asked again.
    without_fast_path: bool,
    /// What MPTCP needs is in the journal.
    over_mptcp: bool,
    /// Some packets of MPTCP connections are marked.
    marking: bool,
    marker: Marker,
    /// Networks of MPTCP connections whose packets are counted.
    watched: Option<Paths>,
    renewals: Renewals,
    /// Subflows that begin late were given the room that they need.
    has_room: bool,
    groups: Groups,
}

/// How often MPTCP connections were to begin anew over networks, by their numbers.
#[derive(Debug, Default)]
struct Renewals(BTreeMap<u8, u32>);

impl Renewals {
    /// Takes what is said of networks; gives those where connections are to begin anew. Nothing is news of one that was not there or whose count begins
    /// again, nor that nobody says anything for a while.
    fn take(&mut self, networks: &[PathNetwork]) -> Vec<u8> {
        self.0.retain(|number, _| networks.iter().any(|network| network.number == *number));
        let said = networks.iter().filter_map(|network| Some((network.number, network.renewals?)));
        said.filter(|(number, count)| self.0.insert(*number, *count).is_some_and(|before| *count > before))
            .map(|(number, _)| number)
            .collect()
    }
}

impl DeviceMachine {
    /// With the journal of the state directory.
    pub fn new(journal: Journal, routing: Routing) -> Self {
        Self {
            journal,
            routing,
            tables: 0,
            fast_path: None,
            without_fast_path: false,
            over_mptcp: false,
            marking: false,
            marker: Marker::default(),
            watched: None,
            renewals: Renewals::default(),
            has_room: false,
            groups: Groups::default(),
        }
    }

    fn apply(&mut self, changes: &[Change]) -> Answer {
        match self.journal.apply(changes) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed { reason: error.to_string() },
        }
    }
}

impl DeviceMachine {
    /// Routes first, so that no flow is given a network that has none yet.
    fn direct(&mut self, direct: &Direct) -> Answer {
        self.tables = self.tables.wrapping_add(1);
        let prepared = match direct.plan(self.tables) {
            Ok(changes) => changes,
            Err(error) => return Answer::Failed { reason: error.to_string() },
        };
        let (table, rest): (Vec<_>, Vec<_>) =
            prepared.into_iter().partition(|change| matches!(change, Change::NftTable { .. }));
        if let Answer::Failed { reason } = self.apply(&rest) {
            return Answer::Failed { reason };
        }
        if let Err(error) = linux::direct::sync_routes(direct) {
            return Answer::Failed { reason: error.to_string() };
        }
        // Flows that begin under the table are counted from the first one on. Where it is the table that brings the kernel's
        // connection tracking, there is nothing to tell before.
        self.count_bytes();
        let answer = self.apply(&table);
        if answer != Answer::Done {
            return answer;
        }
        self.count_bytes();
        self.hasten(direct).map_or(answer, |what| Answer::DoneWithout { what })
    }

    fn mptcp(&mut self, paths: &Paths) -> Answer {
        if !std::mem::replace(&mut self.over_mptcp, true)
            && let Answer::Failed { reason } = self.apply(&[paths.change()])
        {
            self.over_mptcp = false;
            return Answer::Failed { reason };
        }
        let marking = self.marking || paths.has_marks();
        let synced = paths.sync();
        // Networks without an endpoint of their own carry connections all the same.
        let marked = if marking { self.marker.mark(paths) } else { Ok(()) };
        self.watch(paths);
        let renewed = self.renew(paths);
        if marked.is_ok() {
            self.marking = paths.has_marks();
        }
        let failed = synced.is_err() || marked.is_err() || renewed.is_err();
        let endpoints = match synced.and_then(|left_out| renewed.map(|()| left_out)) {
            Ok(left_out) => (!left_out.is_empty()).then(|| without_endpoint(&left_out)),
            Err(error) => Some(error.to_string()),
        };
        let marks = marked.err().map(|error| error.to_string());
        let what = endpoints.into_iter().chain(marks).collect::<Vec<_>>().join("; ");
        match what {
            reason if failed => Answer::Failed { reason },
            what if what.is_empty() => Answer::Done,
            what => Answer::DoneWithout { what },
        }
    }

    /// Has connections begin anew over networks where they are to, as far as each has another one. Gives the last error after which an endpoint is missing.
    fn renew(&mut self, paths: &Paths) -> Result<(), PathsError> {
        let mut outcome = Ok(());
        for number in self.renewals.take(&paths.networks) {
            let is_possible = self.may_renew(paths, number) && {
                // That takes its time, in which the other network may have gone.
                !self.make_room() || self.may_renew(paths, number)
            };
            if !is_possible {
                continue;
            }
            match paths.renew(number) {
                Ok(()) => debug!("MPTCP connections begin anew over network {number}"),
                Err(error) => {
                    debug!("MPTCP connections do not begin anew over network {number}: {error}");
                    outcome = paths.sync().map(drop);
                }
            }
        }
        outcome
    }

    fn may_renew(&self, paths: &Paths, number: u8) -> bool {
        match paths.hindrance(number) {
            Ok(None) => return true,
            Ok(Some(why)) => debug!("MPTCP connections do not begin anew over network {number}: {why}"),
            Err(error) => debug!("MPTCP connections do not begin anew over network {number}: {error}"),
        }
        false
    }

    /// Gives subflows that begin late as much room as others, once; says whether anything was changed.
    fn make_room(&mut self) -> bool {
        let change = if std::mem::replace(&mut self.has_room, true) { None } else { mptcp::wider_windows() };
        let Some(change) = change else { return false };
        if let Answer::Failed { reason } = self.apply(&[change]) {
            info!("subflows that begin late may carry less: {reason}");
        }
        true
    }

    /// Has what networks do to MPTCP counted; without nftables it is not known.
    fn watch(&mut self, paths: &Paths) {
        if self.watched.as_ref().is_some_and(|watched| watched.is_watched_as(paths)) {
            return;
        }
        self.watched = match paths.watch() {
            Ok(()) => Some(paths.clone()),
            Err(error) => {
                info!("nobody counts what networks do to MPTCP: {error}");
                None
            }
        };
    }

    fn mptcp_counts(&self) -> Answer {
        match self.watched.as_ref().map(Paths::counts) {
            None => Answer::MptcpCounts { counts: Vec::new() },
            Some(Ok(counts)) => Answer::MptcpCounts { counts: counts.into_iter().collect() },
            Some(Err(error)) => Answer::Failed { reason: error.to_string() },
        }
    }

    /// Has the kernel count what flows carry, for `anabranch flows`; only those that begin from then on.
    fn count_bytes(&mut self) {
        let setting = Change::Setting { path: ACCOUNTING.into(), value: "1".to_owned() };
        if std::path::Path::new(ACCOUNTING).exists()
            && let Err(error) = self.journal.apply(&[setting])
        {
            info!("the bytes of flows are not counted: {error}");
        }
    }

    /// New TCP connections get their network from the kernel at `connect`, where it can do that and no rule can concern them. All
    /// else goes through nftables, which is slower and does the same. Tells once why it cannot.
    fn hasten(&mut self, direct: &Direct) -> Option<String> {
        let Unruled { v4, v6, real_time, excluded } = direct.unruled();
        if self.fast_path.is_none() {
            if v4.is_empty() && v6.is_empty() || self.without_fast_path {
                return None;
            }
            match load_fast_path() {
                Ok(fast_path) => self.fast_path = Some(fast_path),
                Err(error) => {
                    self.without_fast_path = true;
                    return Some(without_fast_path(&error));
                }
            }
        }
        let fast_path = self.fast_path.as_mut()?;
        // First without slots: a prefix must not be missing while there are some.
        let fed = fast_path
            .set_slots(&Slots::default())
            .and_then(|()| fast_path.set_excluded(&excluded))
            .and_then(|()| fast_path.set_slots(&Slots { v4: &v4, v6: &v6, real_time }));
        let error = fed.err()?;
        self.fast_path = None;
        Some(without_fast_path(&error.to_string()))
    }
}

fn without_fast_path(error: &str) -> String {
    format!("direct flows go by nftables alone, which is slower for each new connection: {error}")
}

fn load_fast_path() -> Result<FastPath, String> {
    let hierarchy = Hierarchy::find().map_err(|error| error.to_string())?;
    let root = hierarchy.directory(&CgroupPath::root());
    FastPath::load(&root).map_err(|error| error.to_string())
}

impl Machine for DeviceMachine {
    fn carry_out(&mut self, request: Request) -> Answer {
        match request {
            Request::Capture { dns } => {
                let changes = changes(&self.routing, &dns);
                self.apply(&changes)
            }
            Request::Names { .. } | Request::Card => {
                Answer::Failed { reason: "a device has no networks of its own".to_owned() }
            }
            // The name becomes part of a path.
            Request::LetIn { interface } if interface.contains('/') || interface.starts_with('.') => {
                Answer::Failed { reason: format!("\"{interface}\" is not an interface") }
            }
            Request::LetIn { interface } => match routing::loosen_reverse_path(&interface) {
                Ok(Some(change)) => self.apply(&[change]),
                Ok(None) => Answer::Done,
                Err(error) => Answer::Failed { reason: error.to_string() },
            },
            Request::Neighbours => {
                let changes = neighbour_routes(&self.routing).plan();
                self.apply(&changes)
            }
            Request::Mptcp(paths) => self.mptcp(&paths),
            Request::MptcpCounts => self.mptcp_counts(),
            Request::Direct(direct) => self.direct(&direct),
            Request::Run { process, user } => self.groups.run(&mut self.journal, process, user),
            Request::EndRun { cgroup } => self.groups.end(&mut self.journal, &cgroup),
            Request::Programs { inodes } => self.groups.programs(&inodes),
            Request::Renew => Answer::Failed { reason: "only a gateway is renewed".to_owned() },
            Request::AddStation { .. } | Request::RemoveStation { .. } => {
                Answer::Failed { reason: "a device has no radio of its own".to_owned() }
            }
            Request::Restore => {
                self.fast_path = None;
                (self.over_mptcp, self.marking, self.watched, self.has_room) = (false, false, None, false);
                self.marker = Marker::default();
                supervision::restore(&mut self.journal)
            }
        }
    }
}

const ACCOUNTING: &str = "/proc/sys/net/netfilter/nf_conntrack_acct";

fn without_endpoint(left_out: &[Endpoint]) -> String {
    let links = Netlink::open().ok().and_then(|mut netlink| netlink.links().ok()).unwrap_or_default();
    let named = |endpoint: &Endpoint| match links.iter().find(|link| link.index == endpoint.interface) {
        Some(link) => format!("{} ({})", link.name, endpoint.address),
        None => endpoint.address.to_string(),
    };
    let list: Vec<String> = left_out.iter().map(named).collect();
    format!(
        "MPTCP begins nothing from {}: the kernel has room for {MOST_ENDPOINTS} addresses, those of other programs (`ip mptcp endpoint`) included",
        list.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_an_endpoint_are_named_with_their_interface() {
        let endpoint = |interface, address: &str| Endpoint {
            id: 1,
            address: address.parse().unwrap(),
            interface,
            backup: false,
        };
        // Every network namespace has this as its first interface; the second one has gone meanwhile.
        let said = without_endpoint(&[endpoint(1, "10.0.0.7"), endpoint(999_999, "fd00::7")]);
        assert!(
            said.starts_with("MPTCP begins nothing from lo (10.0.0.7), fd00::7: the kernel has room for 8"),
            "{said}"
        );
    }

    #[test]
    fn connections_begin_anew_when_a_count_goes_up() {
        let mut renewals = Renewals::default();
        let mut take = |counts: &[(u8, Option<u32>)]| {
            let network = |(number, renewals): &(u8, Option<u32>)| PathNetwork {
                number: *number,
                interface: 1,
                addresses: Vec::new(),
                backup: false,
                marks: 0,
                mangled: false,
                renewals: *renewals,
            };
            renewals.take(&counts.iter().map(network).collect::<Vec<_>>())
        };
        assert!(take(&[(1, Some(3)), (2, None)]).is_empty(), "one is new");
        assert_eq!(take(&[(1, Some(4)), (2, Some(7))]), [1]);
        assert!(take(&[(1, None), (2, None)]).is_empty(), "nobody says anything");
        assert_eq!(take(&[(1, Some(4)), (2, Some(8))]), [2]);
        assert!(take(&[(1, Some(0)), (2, Some(8))]).is_empty(), "it is counted from nothing again");
        assert_eq!(take(&[(1, Some(1)), (2, Some(8))]), [1]);
        assert!(take(&[(1, Some(1))]).is_empty());
        assert!(take(&[(1, Some(1)), (2, Some(9))]).is_empty(), "it has come back");
    }
}
