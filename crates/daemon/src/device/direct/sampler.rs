//! Passive metrics: what the kernel measures on the flows of each network anyhow.
//!
//! The network of a flow stands in its connection mark, its round-trip time and rate in its socket. While no flow has a
//! network, only the list of connections is looked at, every other second.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use linux::direct::network_of;
use linux::netlink::conntrack::{Conntrack, TcpState};
use linux::netlink::sock_diag::{Protocol, Selection, SocketDiagnostics, SocketInfo};
use linux::netlink::{Netlink, NetlinkError};
use rustc_hash::FxHashMap;
use thiserror::Error;
use units::{Bytes, NetworkId, Timestamp};

use super::metrics::{NetworkMeter, Progress};
use super::plan::Numbers;
use crate::device::networks::Network;

/// Why nothing is measured in passing.
#[derive(Debug, Error)]
pub enum SampleError {
    /// The kernel lacks a list.
    #[error("the kernel's lists of flows, sockets and links cannot be opened: {0}")]
    Open(#[from] io::Error),
    /// It does not answer.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// What networks are known by.
pub struct Scene<'a> {
    /// The networks.
    pub networks: &'a [Network],
    /// Their numbers in marks.
    pub numbers: &'a Numbers,
    /// Mark of the daemon's own packets, which are no flows.
    pub own_mark: u32,
}

/// Asks the kernel, once a second at most.
#[derive(Default)]
pub struct PassiveSampler {
    lists: Option<Lists>,
    sockets: FxHashMap<u64, Seen>,
    counters: BTreeMap<u32, Counted>,
    meters: BTreeMap<NetworkId, NetworkMeter>,
    alive: BTreeMap<NetworkId, Timestamp>,
    sampled_at: Option<Timestamp>,
    due: Timestamp,
}

struct Lists {
    conntrack: Conntrack,
    sockets: SocketDiagnostics,
    links: Netlink,
}

/// A socket as of the last sample.
#[derive(Clone, Copy)]
struct Seen {
    sent: u64,
    received: u64,
    delivered: u32,
    repeated: u32,
    bulk: bool,
}

/// A link's counters as of the last sample.
#[derive(Clone, Copy)]
struct Counted {
    sent: u64,
    received: u64,
}

/// Flows by their two ends, with the network's number.
type Flows = FxHashMap<(SocketAddr, SocketAddr), u8>;

impl PassiveSampler {
    /// When to call [`Self::sample`] next.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// The network's meter, made if there is none.
    pub fn meter(&mut self, network: NetworkId) -> &mut NetworkMeter {
        self.meters.entry(network).or_default()
    }

    /// Whether bytes of a connection moved over the network in the last `time`.
    pub fn has_moved(&self, network: NetworkId, now: Timestamp, time: Duration) -> bool {
        self.alive.get(&network).is_some_and(|at| now.since(*at) < time)
    }

    /// Forgets a network that is another one now.
    pub fn forget(&mut self, network: NetworkId) {
        self.meters.remove(&network);
        self.alive.remove(&network);
    }

    /// Takes a sample if one is due; says whether there are flows.
    ///
    /// # Errors
    /// Any [`SampleError`]; the next try is in a minute.
    pub fn sample(&mut self, now: Timestamp, scene: &Scene<'_>) -> Result<bool, SampleError> {
        if now < self.due {
            return Ok(self.sampled_at.is_some());
        }
        self.due = now + AFTER_FAILURE;
        let outcome = self.take(now, scene);
        match outcome {
            Ok(true) => self.due = now + WITH_FLOWS,
            Ok(false) => self.due = now + WITHOUT_FLOWS,
            Err(_) => self.lists = None,
        }
        if !matches!(outcome, Ok(true)) {
            self.rest();
        }
        outcome
    }

    fn rest(&mut self) {
        self.sampled_at = None;
        self.sockets = FxHashMap::default();
        self.counters.clear();
        self.meters.values_mut().for_each(NetworkMeter::on_silence);
    }

    fn take(&mut self, now: Timestamp, scene: &Scene<'_>) -> Result<bool, SampleError> {
        self.meters.retain(|id, _| scene.networks.iter().any(|network| network.id == *id));
        self.alive.retain(|id, _| scene.networks.iter().any(|network| network.id == *id));
        let lists = match &mut self.lists {
            Some(lists) => lists,
            None => self.lists.insert(Lists::open()?),
        };
        let (flows, any) = lists.flows()?;
        if !any {
            return Ok(false);
        }
        let time = self.sampled_at.replace(now).map(|before| now.since(before));
        let time = time.filter(|time| !time.is_zero());
        let (progress, sockets) = lists.progress(scene, &flows, &self.sockets, time)?;
        let counters: BTreeMap<u32, Counted> = lists
            .links
            .link_counters()?
            .into_iter()
            .map(|link| (link.index, Counted { sent: link.sent.0, received: link.received.0 }))
            .collect();
        let before = std::mem::replace(&mut self.counters, counters);
        self.sockets = sockets;
        let Some(time) = time else { return Ok(true) };
        for network in scene.networks {
            let flows = progress.get(&network.id).map_or(&[][..], Vec::as_slice);
            if flows.iter().any(Progress::is_alive) {
                self.alive.insert(network.id, now);
            }
            let index = network.interface.index;
            let (Some(was), Some(is)) = (before.get(&index), self.counters.get(&index)) else { continue };
            let sent = Bytes(is.sent.saturating_sub(was.sent));
            let received = Bytes(is.received.saturating_sub(was.received));
            self.meters.entry(network.id).or_default().on_sample(now, time, flows, sent, received);
        }
        Ok(true)
    }
}

impl Lists {
    fn open() -> Result<Self, SampleError> {
        Ok(Self {
            conntrack: Conntrack::open()?,
            sockets: SocketDiagnostics::open()?,
            links: Netlink::open()?,
        })
    }

    /// The open TCP connections that have a network, and whether any flow has one.
    fn flows(&mut self) -> Result<(Flows, bool), NetlinkError> {
        let (mut flows, mut any) = (Flows::default(), false);
        self.conntrack.for_each(None, |entry| {
            let Some(number) = network_of(entry.mark) else { return };
            any = true;
            let open = matches!(entry.tcp_state, Some(state) if !matches!(state, TcpState::TimeWait | TcpState::Close));
            if open && flows.len() < MOST_FLOWS {
                let ends = (entry.original.source_socket(), entry.original.destination_socket());
                flows.insert(ends, number);
            }
        })?;
        Ok((flows, any))
    }

    /// What the sockets of each network did since `before`, and what they are now. Without a `time` nothing is compared.
    fn progress(
        &mut self,
        scene: &Scene<'_>,
        flows: &Flows,
        before: &FxHashMap<u64, Seen>,
        time: Option<Duration>,
    ) -> Result<(BTreeMap<NetworkId, Vec<Progress>>, FxHashMap<u64, Seen>), NetlinkError> {
        let mut progress: BTreeMap<NetworkId, Vec<Progress>> = BTreeMap::new();
        let mut seen = FxHashMap::default();
        self.sockets.for_each(Selection::connected(Protocol::Tcp), |socket| {
            let Some(network) = network_of_socket(scene, flows, socket) else { return };
            if seen.len() >= MOST_FLOWS {
                return;
            }
            let was = before.get(&socket.cookie);
            let Some((mut is, mut moved)) = compare(was, socket) else { return };
            if let Some(time) = time {
                moved.was_bulk = was.is_some_and(|was| was.bulk);
                is.bulk = moved.is_bulk(time);
                progress.entry(network).or_default().push(moved);
            }
            seen.insert(socket.cookie, is);
        })?;
        Ok((progress, seen))
    }
}

/// By its connection mark; sockets that are held to a network by their own mark or interface have theirs there.
fn network_of_socket(scene: &Scene<'_>, flows: &Flows, socket: &SocketInfo) -> Option<NetworkId> {
    if socket.mark == Some(scene.own_mark) {
        return None;
    }
    let number = flows.get(&(socket.local, socket.remote)).copied();
    let number = number.or_else(|| network_of(socket.mark?));
    let mut networks = scene.networks.iter();
    let found = match (number, socket.interface) {
        (Some(number), _) => networks.find(|network| scene.numbers.of(network.id) == Some(number)),
        (None, Some(index)) => networks.find(|network| network.interface.index == index),
        (None, None) => None,
    };
    found.map(|network| network.id)
}

/// The socket as it is, and what it did. A new socket has done all that it ever did.
fn compare(was: Option<&Seen>, socket: &SocketInfo) -> Option<(Seen, Progress)> {
    let tcp = socket.tcp?;
    let is = Seen {
        sent: tcp.bytes_acknowledged?.0,
        received: tcp.bytes_received?.0,
        delivered: tcp.delivered.unwrap_or_default(),
        repeated: tcp.total_retransmits,
        bulk: false,
    };
    let was = was.copied().unwrap_or(Seen { sent: 0, received: 0, delivered: 0, repeated: 0, bulk: false });
    let progress = Progress {
        rtt: tcp.rtt,
        sent: Bytes(is.sent.saturating_sub(was.sent)),
        received: Bytes(is.received.saturating_sub(was.received)),
        delivery_rate: tcp.delivery_rate.filter(|_| !tcp.delivery_rate_is_lower_bound),
        delivered: is.delivered.wrapping_sub(was.delivered),
        repeated: is.repeated.saturating_sub(was.repeated),
        was_bulk: false,
    };
    Some((is, progress))
}

const WITH_FLOWS: Duration = Duration::from_secs(1);
const WITHOUT_FLOWS: Duration = Duration::from_secs(2);
const AFTER_FAILURE: Duration = Duration::from_secs(60);
/// Bounds memory, not what is served.
const MOST_FLOWS: usize = 65_536;
