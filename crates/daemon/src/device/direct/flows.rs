//! The flows that go on, from the kernel's lists of connections and sockets.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch::control::{FlowReport, Flows};
use linux::cgroup::{CgroupPath, Hierarchy};
use linux::clock;
use linux::direct::{Stay, TIED, network_of};
use linux::netlink::conntrack::{Conntrack, Entry, TcpState, Tuple};
use linux::netlink::sock_diag::{Protocol as SocketProtocol, Selection, SocketDiagnostics, SocketInfo};
use policy::Treatment;
use policy::rules::{Dscp, FlowFacts, Protocol, UserId};
use policy::services::Service;
use units::{BitRate, Bytes, NetworkId, Timestamp};

use super::{Picture, explain, translation};
use crate::control::{BackendError, Requester};
use crate::supervision::{Answer, MAXIMUM_INODES, Request, Root, SocketProgram};

/// What flows had carried when they were last looked at, for their rates.
#[derive(Default)]
pub struct Sampler {
    counts: HashMap<Tuple, (u64, u64)>,
    taken: Option<Timestamp>,
}

/// A flow as the kernel knows it.
struct Seen {
    entry: Entry,
    socket: Option<SocketInfo>,
    /// The network to whose interface its program has bound it.
    bound: Option<NetworkId>,
    counts: Option<(u64, u64)>,
    rates: Option<(BitRate, BitRate)>,
}

impl Sampler {
    /// The flows that go on now. Takes a second sample after [`BETWEEN_SAMPLES`] if the last one is too old for rates.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] where the kernel has no connection tracking.
    pub fn flows(&mut self, picture: &Picture, root: &Root, by: Requester) -> Result<Flows, BackendError> {
        let age = self.taken.map(|taken| clock::now().since(taken));
        if age.is_none_or(|age| age > OLDEST_SAMPLE) {
            self.sample(picture)?;
        }
        let age = self.taken.map(|taken| clock::now().since(taken)).unwrap_or_default();
        if age < BETWEEN_SAMPLES {
            std::thread::sleep(BETWEEN_SAMPLES - age);
        }
        let mut seen = self.sample(picture)?;
        let mut remarks = Vec::new();
        if seen.iter().all(|flow| flow.entry.original_count.is_none()) && !seen.is_empty() {
            remarks.push(
                "the kernel does not count what flows carry (net.netfilter.nf_conntrack_acct)".to_owned(),
            );
        }
        if !by.controls {
            seen.retain(|flow| flow.socket.is_some_and(|socket| socket.user == by.user));
        }
        let rate =
            |flow: &Seen| flow.rates.map_or(0, |(sending, receiving)| sending.0.saturating_add(receiving.0));
        seen.sort_by_key(|flow| (std::cmp::Reverse(rate(flow)), flow.entry.original.destination_socket()));
        let left_out = seen.len().saturating_sub(Flows::MOST);
        seen.truncate(Flows::MOST);
        let programs = programs(seen.iter().filter_map(|flow| flow.socket.as_ref()), root, &mut remarks);
        let groups = groups(&programs);
        let flows = seen.iter().map(|flow| {
            let inode = flow.socket.map(|socket| socket.inode).unwrap_or_default();
            let program = programs.get(&inode);
            let group = program.and_then(|program| groups.get(&program.process));
            report(picture, flow, program, group)
        });
        Ok(Flows { flows: flows.collect(), left_out, remarks })
    }

    /// Looks at all flows, and keeps their counts for the next time.
    fn sample(&mut self, picture: &Picture) -> Result<Vec<Seen>, BackendError> {
        let lost = |error: String| {
            BackendError::Unavailable(format!("the kernel's list of flows cannot be read: {error}"))
        };
        let mut conntrack = Conntrack::open().map_err(|error| lost(error.to_string()))?;
        let mut seen: Vec<Seen> = Vec::new();
        conntrack
            .for_each(None, |entry| {
                if seen.len() < MOST_SEEN && is_listed(picture, entry) {
                    seen.push(Seen { entry: *entry, socket: None, bound: None, counts: None, rates: None });
                }
            })
            .map_err(|error| lost(error.to_string()))?;
        let sockets = Sockets::read();
        let now = clock::now();
        let passed = self.taken.map(|taken| now.since(taken)).filter(|passed| !passed.is_zero());
        let before = std::mem::take(&mut self.counts);
        for flow in &mut seen {
            flow.socket = sockets.of(&flow.entry);
            flow.bound = flow.socket.and_then(|socket| bound(picture, &flow.entry, &socket));
            flow.counts = counts(&flow.entry, flow.socket.as_ref());
            let Some(counts) = flow.counts else { continue };
            self.counts.insert(flow.entry.original, counts);
            if let (Some(passed), Some(before)) = (passed, before.get(&flow.entry.original)) {
                let rate = |now: u64, before: u64| {
                    BitRate::from_bytes_over(Bytes(now.saturating_sub(before)), passed)
                };
                flow.rates = Some((rate(counts.0, before.0), rate(counts.1, before.1)));
            }
        }
        self.taken = Some(now);
        // What has the address of a network may be anybody's; the bond's own packets carry what is listed already.
        seen.retain(|flow| {
            !is_own(picture, &sockets, flow) && (is_ours(picture, &flow.entry) || flow.bound.is_some())
        });
        Ok(seen)
    }
}

/// Flows that have a network, and those of any0 that have none.
fn is_ours(picture: &Picture, entry: &Entry) -> bool {
    network_of(entry.mark).is_some() || picture.addresses.contains(&entry.original.source)
}

/// Whether it is the bond's own: by the mark of its socket. The kernel takes it for one that came in if it saw a packet of the gateway first.
fn is_own(picture: &Picture, sockets: &Sockets, flow: &Seen) -> bool {
    let is_marked = |socket: &SocketInfo| socket.mark == Some(picture.own_mark);
    let far = flow.entry.original.destination_socket();
    let mut own = picture.networks.iter().flat_map(|network| &network.interface.addresses);
    flow.socket.as_ref().is_some_and(is_marked)
        || flow.entry.protocol == UDP
            && own.any(|subnet| subnet.address() == far.ip())
            && sockets.by_port.get(&far.port()).is_some_and(is_marked)
}

/// The network to whose interface a program has bound its socket, past any0.
fn bound(picture: &Picture, entry: &Entry, socket: &SocketInfo) -> Option<NetworkId> {
    if is_ours(picture, entry) {
        return None;
    }
    let of = |network: &&super::Network| Some(network.interface.index) == socket.interface;
    picture.networks.iter().find(of).map(|network| network.id)
}

/// What is looked at closer: flows of ours, and those with the address of a network, which may be bound to it.
fn is_listed(picture: &Picture, entry: &Entry) -> bool {
    let over = matches!(entry.tcp_state, Some(TcpState::TimeWait | TcpState::Close));
    let mut own = picture.networks.iter().flat_map(|network| &network.interface.addresses);
    let ours = is_ours(picture, entry) || own.any(|subnet| subnet.address() == entry.original.source);
    // The other half of a translated flow, whose first half is listed.
    let again = translation::is_own(entry.original.source);
    ours && !over && !again && !entry.original.destination.is_loopback()
}

/// Bytes out and in, as seen from here.
fn counts(entry: &Entry, socket: Option<&SocketInfo>) -> Option<(u64, u64)> {
    if let (Some(out), Some(back)) = (entry.original_count, entry.reply_count) {
        return Some((out.bytes, back.bytes));
    }
    let tcp = socket?.tcp?;
    Some((tcp.bytes_acknowledged?.0, tcp.bytes_received?.0))
}

/// This machine's sockets, by the flows that they can have.
#[derive(Default)]
pub(super) struct Sockets {
    connected: HashMap<(u8, SocketAddr, SocketAddr), SocketInfo>,
    by_port: HashMap<u16, SocketInfo>,
}

impl Sockets {
    /// None if the kernel does not list them.
    pub(super) fn read() -> Self {
        let mut all = Self::default();
        let Ok(mut diagnostics) = SocketDiagnostics::open() else { return all };
        for (protocol, number) in [(SocketProtocol::Tcp, TCP), (SocketProtocol::Udp, UDP)] {
            let connected = protocol == SocketProtocol::Tcp;
            let selection = Selection { connected, ..Selection::connected(protocol) };
            let read = diagnostics.for_each(selection, |socket| {
                if all.connected.len() + all.by_port.len() >= MOST_SEEN {
                    return;
                }
                if socket.is_connected() {
                    all.connected.insert((number, socket.local, socket.remote), *socket);
                } else {
                    all.by_port.insert(socket.local.port(), *socket);
                }
            });
            if let Err(error) = read {
                tracing::debug!("sockets are not listed: {error}");
            }
        }
        all
    }

    /// That of a flow; `None` for forwarded ones.
    pub(super) fn of(&self, entry: &Entry) -> Option<SocketInfo> {
        let (near, far) = (entry.original.source_socket(), entry.original.destination_socket());
        let own = self.connected.get(&(entry.protocol, near, far));
        let called = || self.connected.get(&(entry.protocol, far, near));
        let unconnected = || self.by_port.get(&near.port()).filter(|_| entry.protocol == UDP);
        own.or_else(called).or_else(unconnected).copied()
    }
}

/// The programs of sockets, by inode.
pub(super) fn programs<'a>(
    sockets: impl Iterator<Item = &'a SocketInfo>,
    root: &Root,
    remarks: &mut Vec<String>,
) -> BTreeMap<u32, SocketProgram> {
    let inodes = sockets.map(|socket| socket.inode);
    let mut inodes: Vec<u32> = inodes.filter(|inode| *inode != 0).collect();
    inodes.sort_unstable();
    inodes.dedup();
    let mut programs = BTreeMap::new();
    for inodes in inodes.chunks(MAXIMUM_INODES) {
        match root.ask_for(&Request::Programs { inodes: inodes.to_vec() }) {
            Ok(Answer::Programs { programs: found }) => {
                programs.extend(found.into_iter().map(|program| (program.inode, program)));
            }
            Ok(_) => {}
            Err(error) => remarks.push(format!("programs are not known: {error}")),
        }
    }
    programs
}

/// The control groups of programs, by process.
fn groups(programs: &BTreeMap<u32, SocketProgram>) -> BTreeMap<u32, CgroupPath> {
    let Ok(hierarchy) = Hierarchy::find() else { return BTreeMap::new() };
    let processes = programs.values().map(|program| program.process);
    processes.filter_map(|process| Some((process, hierarchy.path_of(process).ok()?))).collect()
}

fn report(
    picture: &Picture,
    flow: &Seen,
    program: Option<&SocketProgram>,
    group: Option<&CgroupPath>,
) -> FlowReport {
    let entry = &flow.entry;
    let number = network_of(entry.mark);
    let bound = || flow.bound.and_then(|id| picture.networks.iter().find(|network| network.id == id));
    let network = number.map(|number| network_name(picture, number));
    let network = network.or_else(|| bound().map(|network| network.interface.name.clone()));
    let begun = match Stay::of_mark(entry.mark) {
        Stay::Default => picture.default,
        Stay::Bonded => Treatment::Bonded,
        Stay::Duplicated => Treatment::Duplicated,
        Stay::Protected => Treatment::Protected,
    };
    let stay = picture.treated.get(&entry.original).copied().unwrap_or(begun);
    FlowReport {
        protocol: Protocol(entry.protocol).to_string(),
        source: entry.original.source_socket(),
        destination: entry.original.destination_socket(),
        program: program.map(|program| program.name.clone()),
        process: program.map(|program| program.process),
        user: flow.socket.map(|socket| socket.user),
        treatment: if network.is_some() { Treatment::Direct } else { stay },
        why: why(picture, flow, network.as_deref(), group),
        network,
        sent: flow.counts.map(|(sent, _)| Bytes(sent)),
        received: flow.counts.map(|(_, received)| Bytes(received)),
        sending: flow.rates.map(|(sending, _)| sending),
        receiving: flow.rates.map(|(_, receiving)| receiving),
        rtt: flow.socket.and_then(|socket| socket.tcp).map(|tcp| tcp.rtt.into()),
    }
}

fn network_name(picture: &Picture, number: u8) -> String {
    let id = picture.numbers.network(number);
    let network = id.and_then(|id| picture.networks.iter().find(|network| network.id == id));
    network.map_or_else(|| format!("network {number}"), |network| network.interface.name.clone())
}

fn why(picture: &Picture, flow: &Seen, network: Option<&str>, group: Option<&CgroupPath>) -> String {
    let tuple = &flow.entry.original;
    if flow.bound.is_some() {
        return "its program has bound it to the interface".to_owned();
    }
    let own = |network: &super::Network| {
        network.interface.addresses.iter().any(|subnet| subnet.address() == tuple.destination)
    };
    if picture.networks.iter().any(own) {
        return format!("came in by {}", network.unwrap_or("it"));
    }
    let names: Vec<&str> = picture
        .names
        .iter()
        .filter(|(_, addresses)| addresses.contains(&tuple.destination))
        .map(|(name, _)| name.as_str())
        .collect();
    let far = tuple.destination_socket();
    let service =
        Service { destination: far.ip(), protocol: Protocol(flow.entry.protocol), port: far.port() };
    let facts = FlowFacts {
        program: None,
        cgroup: group.map(CgroupPath::as_str),
        user: flow.socket.map(|socket| UserId(socket.user)),
        destination: tuple.destination,
        domains: &names,
        protocol: Protocol(flow.entry.protocol),
        port: tuple.destination_socket().port(),
        dscp: flow.socket.map(|socket| dscp(&socket, tuple.destination)).unwrap_or_default(),
        class: picture.services.class_of(&service),
    };
    let explained = explain(picture, &facts);
    let rule = explained.rule.as_ref().map_or_else(|| "no rule".to_owned(), |rule| format!("rule {rule}"));
    let Some(network) = network else { return format!("{rule}: {}", explained.outcome) };
    match explained.networks.iter().find(|part| part.name == network && part.share.0 > 0.0) {
        Some(part) => format!("{rule}: {:.0} %, {}", part.share.0 * 100.0, part.why),
        None if flow.socket.and_then(|socket| socket.mark).is_some_and(|mark| mark & TIED != 0) => {
            format!("its program has tied it to {network}")
        }
        None => format!("keeps the network that it began with; now {rule}: {}", explained.outcome),
    }
}

/// The code point of what a socket sends to an address; what it sent first may have had another.
fn dscp(socket: &SocketInfo, to: IpAddr) -> Dscp {
    let class = if to.is_ipv6() { socket.class_v6 } else { socket.class_v4 };
    class.map(Dscp::of_traffic_class).unwrap_or_default()
}

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Flows and sockets looked at.
const MOST_SEEN: usize = 50_000;
/// Rates are taken over at least this much time.
pub const BETWEEN_SAMPLES: Duration = Duration::from_millis(400);
/// An older sample says nothing about the rate now.
const OLDEST_SAMPLE: Duration = Duration::from_secs(10);
