//! Passive metrics: what the kernel measures on the flows of each network anyhow.
//!
//! The network of a flow stands in its socket's mark or its connection mark, its round-trip time and rate in its socket. While
//! the networks' byte counters stand still nothing else is looked at: a list of all sockets or connections costs
//! the kernel milliseconds however short it is, as it walks its tables.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use linux::direct::network_of;
use linux::netlink::conntrack::{Conntrack, Entry, TcpState, Tuple};
use linux::netlink::sock_diag::{Protocol, Selection, SocketDiagnostics, SocketInfo};
use linux::netlink::{Netlink, NetlinkError};
use rustc_hash::FxHashMap;
use thiserror::Error;
use units::{BitRate, Bytes, NetworkId, Timestamp};

use super::metrics::{NetworkMeter, Progress};
use super::plan::Numbers;
use super::silence::{Heard, Silences};
use super::translation;
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
    /// This machine's addresses, if hosts behind it have flows: their sockets are not here.
    pub forwarding: Option<&'a [IpAddr]>,
}

/// Asks the kernel, once a second at most.
#[derive(Default)]
pub struct PassiveSampler {
    lists: Option<Lists>,
    sockets: FxHashMap<u64, Seen>,
    forwarded: FxHashMap<Tuple, Forwarded>,
    /// When those were looked at, and when they are to be again: the list of all connections is long on a router.
    forwarded_at: Option<Timestamp>,
    forwarded_due: Timestamp,
    counters: BTreeMap<u32, Counted>,
    meters: BTreeMap<NetworkId, NetworkMeter>,
    alive: BTreeMap<NetworkId, Timestamp>,
    /// When much came in last, by the links' counters.
    busy: BTreeMap<NetworkId, Timestamp>,
    silences: Silences,
    moves: bool,
    counted_at: Option<Timestamp>,
    looked_at: Option<Timestamp>,
    look_due: Timestamp,
    pause: Duration,
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
    network: Option<NetworkId>,
    sent: u64,
    received: u64,
    delivered: u32,
    repeated: u32,
    bulk: bool,
}

/// A TCP connection of a host behind this machine as of the last sample: what its packets carried from the host and to it.
#[derive(Clone, Copy, Default)]
struct Forwarded {
    sent: u64,
    received: u64,
    bulk: bool,
}

/// A link's counters as of the last sample.
#[derive(Clone, Copy)]
struct Counted {
    sent: u64,
    received: u64,
}

/// What each network's sockets did, and the sockets as they are.
type Look = (BTreeMap<NetworkId, Vec<Progress>>, FxHashMap<u64, Seen>);

impl PassiveSampler {
    /// When to call [`Self::sample`] next.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// The network's meter, made if there is none.
    pub fn meter(&mut self, network: NetworkId) -> &mut NetworkMeter {
        self.meters.entry(network).or_default()
    }

    /// Whether more than a trickle went over any network between the last two samples.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Whether bytes of a connection moved over the network in the last `time`.
    pub fn has_moved(&self, network: NetworkId, now: Timestamp, time: Duration) -> bool {
        self.alive.get(&network).is_some_and(|at| now.since(*at) < time)
    }

    /// Whether something was sent over the network, or came from it, and for about two seconds nothing has come back.
    pub fn is_silent(&self, network: NetworkId, now: Timestamp) -> bool {
        self.silences.is_silent(network, now)
    }

    /// The network has answered.
    pub fn on_answer(&mut self, network: NetworkId) {
        self.silences.end(network);
        self.busy.remove(&network);
    }

    /// Forgets a network that is another one now.
    pub fn forget(&mut self, network: NetworkId) {
        self.silences.end(network);
        self.meters.remove(&network);
        self.alive.remove(&network);
        self.busy.remove(&network);
    }

    /// Takes a sample if one is due.
    ///
    /// # Errors
    /// Any [`SampleError`]; the next try is in a minute.
    pub fn sample(&mut self, now: Timestamp, scene: &Scene<'_>) -> Result<(), SampleError> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + AFTER_FAILURE;
        match self.take(now, scene) {
            Ok(busy) => {
                self.due = now + if busy { WITH_FLOWS } else { WITHOUT_FLOWS };
                Ok(())
            }
            Err(error) => {
                (self.lists, self.counted_at, self.looked_at) = (None, None, None);
                Err(error)
            }
        }
    }

    fn take(&mut self, now: Timestamp, scene: &Scene<'_>) -> Result<bool, SampleError> {
        self.meters.retain(|id, _| scene.networks.iter().any(|network| network.id == *id));
        self.alive.retain(|id, _| scene.networks.iter().any(|network| network.id == *id));
        self.busy.retain(|_, at| now.since(*at) < WATCHED);
        self.silences.keep(now, |id| scene.networks.iter().any(|network| network.id == id));
        let lists = match &mut self.lists {
            Some(lists) => lists,
            None => self.lists.insert(Lists::open()?),
        };
        let counters: BTreeMap<u32, Counted> = lists
            .links
            .link_counters()?
            .into_iter()
            .map(|link| (link.index, Counted { sent: link.sent.0, received: link.received.0 }))
            .collect();
        let before = std::mem::replace(&mut self.counters, counters);
        let Some(time) = self.counted_at.replace(now).map(|before| now.since(before)) else {
            return Ok(false);
        };
        let mut carried = Vec::new();
        for network in scene.networks {
            let index = network.interface.index;
            let (Some(was), Some(is)) = (before.get(&index), self.counters.get(&index)) else { continue };
            let sent = Bytes(is.sent.saturating_sub(was.sent));
            let received = Bytes(is.received.saturating_sub(was.received));
            let mut heard = Heard::counted(time, sent, received);
            if heard.much {
                self.busy.insert(network.id, now);
            }
            heard.stopped = scene.forwarding.is_some() && heard.little && self.busy.contains_key(&network.id);
            carried.push((network.id, sent, received, heard));
        }
        let is_quiet = carried.iter().all(|(_, sent, received, _)| sent.0 + received.0 < QUIET);
        self.moves = !is_quiet;
        // Where something flowed a moment ago, that it does not any more may have to do with the network.
        let is_watched = !self.silences.is_empty() || self.alive.values().any(|at| now.since(*at) < WATCHED);
        if time.is_zero() || is_quiet && !is_watched {
            for (network, _, _, heard) in carried {
                self.silences.hear(now, network, heard);
            }
            self.meters.values_mut().for_each(|meter| meter.on_silence(now));
            return Ok(false);
        }
        let progress = if now >= self.look_due { self.look(now, scene)? } else { BTreeMap::new() };
        for (network, sent, received, counted) in carried {
            let flows = progress.get(&network).map_or(&[][..], Vec::as_slice);
            if flows.iter().any(Progress::is_alive) {
                self.alive.insert(network, now);
            }
            let heard = Heard {
                open: !flows.is_empty(),
                alive: flows.iter().any(Progress::is_alive),
                stopped: counted.stopped
                    || flows.iter().any(|flow| flow.waits || flow.was_bulk && !flow.is_alive()),
                ..counted
            };
            self.silences.hear(now, network, heard);
            self.meters.entry(network).or_default().on_sample(now, time, flows, sent, received);
        }
        Ok(true)
    }

    /// What sockets did since the last look; nothing if that is too long ago to compare.
    fn look(
        &mut self,
        now: Timestamp,
        scene: &Scene<'_>,
    ) -> Result<BTreeMap<NetworkId, Vec<Progress>>, SampleError> {
        let Some(lists) = &mut self.lists else { return Ok(BTreeMap::new()) };
        let time = self.looked_at.replace(now).map(|before| now.since(before));
        let time = time.filter(|time| !time.is_zero() && *time <= COMPARABLE);
        let (mut progress, sockets) = lists.look(scene, &self.sockets, time)?;
        if now >= self.forwarded_due {
            let time = self.forwarded_at.replace(now).map(|before| now.since(before));
            let time = time.filter(|time| !time.is_zero() && *time <= COMPARABLE_BEHIND);
            let began = Instant::now();
            self.forwarded = lists.look_behind(scene, &self.forwarded, time, &mut progress)?;
            self.forwarded_due = now + began.elapsed() * REST_BEHIND;
        }
        let any = !self.forwarded.is_empty() || sockets.values().any(|socket| socket.network.is_some());
        self.sockets = sockets;
        // Busy with other things than direct flows: look more and more seldom.
        self.pause = if any { Duration::ZERO } else { (self.pause * 2).clamp(WITH_FLOWS, LONGEST_PAUSE) };
        self.look_due = now + self.pause;
        Ok(progress)
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

    /// What the sockets of each network did since `before`, and what they are now. Without a `time` nothing is compared.
    fn look(
        &mut self,
        scene: &Scene<'_>,
        before: &FxHashMap<u64, Seen>,
        time: Option<Duration>,
    ) -> Result<Look, NetlinkError> {
        let mut found = Vec::new();
        self.sockets.for_each(Selection::connected(Protocol::Tcp), |socket| {
            let is_flow = socket.mark != Some(scene.own_mark) && !socket.remote.ip().is_loopback();
            if is_flow && found.len() < MOST_FLOWS {
                found.push(*socket);
            }
        })?;
        let mut progress: BTreeMap<NetworkId, Vec<Progress>> = BTreeMap::new();
        let mut seen = FxHashMap::default();
        let mut questions = MOST_QUESTIONS;
        for socket in &found {
            let was = before.get(&socket.cookie);
            let Some((mut is, mut moved)) = compare(was, socket) else { continue };
            is.network = match was {
                Some(was) => was.network,
                None if questions == 0 => continue,
                None => {
                    questions -= 1;
                    self.network_of(scene, socket)?
                }
            };
            if let (Some(network), Some(time)) = (is.network, time) {
                moved.was_bulk = was.is_some_and(|was| was.bulk);
                is.bulk = moved.is_bulk(time);
                progress.entry(network).or_default().push(moved);
            }
            seen.insert(socket.cookie, is);
        }
        Ok((progress, seen))
    }

    /// What the connections of hosts behind this machine did since `before`, which is added to `progress`, and what they are now.
    ///
    /// Only the kernel's counters show it: no round-trip times, and nobody tells whether a host was limited by the way or has no more to
    /// send. Bulk is taken for what fills the way.
    fn look_behind(
        &mut self,
        scene: &Scene<'_>,
        before: &FxHashMap<Tuple, Forwarded>,
        time: Option<Duration>,
        progress: &mut BTreeMap<NetworkId, Vec<Progress>>,
    ) -> Result<FxHashMap<Tuple, Forwarded>, NetlinkError> {
        let mut seen = FxHashMap::default();
        let Some(own) = scene.forwarding else { return Ok(seen) };
        let mut on_entry = |entry: &Entry| {
            let is_behind = entry.protocol == TCP
                && entry.tcp_state == Some(TcpState::Established)
                && entry.status.has_translated_source()
                && !own.contains(&entry.original.source)
                && !translation::is_own(entry.original.source);
            let number = network_of(entry.mark).filter(|_| is_behind && seen.len() < MOST_FLOWS);
            let counts = entry.original_count.zip(entry.reply_count);
            let (Some(number), Some((sent, received))) = (number, counts) else { return };
            let mut networks = scene.networks.iter();
            let network = networks.find(|network| scene.numbers.of(network.id) == Some(number));
            let Some(network) = network else { return };
            let was = before.get(&entry.original);
            let mut is = Forwarded { sent: sent.bytes, received: received.bytes, bulk: false };
            // What has long been there is not new because it is seen for the first time.
            if let (Some(was), Some(time)) = (was, time) {
                let moved = moved_behind(*was, is, time);
                is.bulk = moved.is_bulk(time);
                progress.entry(network.id).or_default().push(moved);
            }
            seen.insert(entry.original, is);
        };
        self.conntrack.for_each(None, &mut on_entry)?;
        Ok(seen)
    }

    /// By its own mark or interface, where it has one; else by its connection mark.
    fn network_of(
        &mut self,
        scene: &Scene<'_>,
        socket: &SocketInfo,
    ) -> Result<Option<NetworkId>, NetlinkError> {
        let mut number = socket.mark.and_then(network_of);
        if number.is_none() && socket.interface.is_none() {
            let tuple = Tuple::with_ports(TCP, socket.local, socket.remote);
            number = self.conntrack.find(&tuple)?.and_then(|entry| network_of(entry.mark));
        }
        let mut networks = scene.networks.iter();
        let found = match (number, socket.interface) {
            (Some(number), _) => networks.find(|network| scene.numbers.of(network.id) == Some(number)),
            (None, Some(index)) => networks.find(|network| network.interface.index == index),
            (None, None) => None,
        };
        Ok(found.map(|network| network.id))
    }
}

/// What a connection of a host behind this machine did. Its packets are counted, not what was acknowledged: while nothing comes back
/// they may be the same again and again.
fn moved_behind(was: Forwarded, is: Forwarded, time: Duration) -> Progress {
    let (out, received) = (is.sent.saturating_sub(was.sent), is.received.saturating_sub(was.received));
    let sent = if received > 0 { out } else { 0 };
    let rate = BitRate::from_bytes_over(Bytes(sent), time);
    let moved = Progress {
        rtt: None,
        sent: Bytes(sent),
        received: Bytes(received),
        delivery_rate: None,
        delivered: 0,
        repeated: 0,
        was_bulk: was.bulk,
        waits: out > 0 && received == 0,
    };
    // Acknowledgements of a download are nothing that is delivered.
    let is_upload = sent > received && moved.is_bulk(time);
    Progress { delivery_rate: is_upload.then_some(rate), ..moved }
}

/// The socket as it is, and what it did. A new socket has done all that it ever did.
fn compare(was: Option<&Seen>, socket: &SocketInfo) -> Option<(Seen, Progress)> {
    let tcp = socket.tcp?;
    let is = Seen {
        network: None,
        sent: tcp.bytes_acknowledged?.0,
        received: tcp.bytes_received?.0,
        delivered: tcp.delivered.unwrap_or_default(),
        repeated: tcp.total_retransmits,
        bulk: false,
    };
    let new = Seen { network: None, sent: 0, received: 0, delivered: 0, repeated: 0, bulk: false };
    let was = was.copied().unwrap_or(new);
    let progress = Progress {
        rtt: Some(tcp.rtt),
        sent: Bytes(is.sent.saturating_sub(was.sent)),
        received: Bytes(is.received.saturating_sub(was.received)),
        delivery_rate: tcp.delivery_rate.filter(|_| !tcp.delivery_rate_is_lower_bound),
        delivered: is.delivered.wrapping_sub(was.delivered),
        repeated: is.repeated.saturating_sub(was.repeated),
        was_bulk: false,
        waits: tcp.unacknowledged > 0 && tcp.retransmits > 0,
    };
    Some((is, progress))
}

const WITH_FLOWS: Duration = Duration::from_secs(1);
const WITHOUT_FLOWS: Duration = Duration::from_secs(2);
const AFTER_FAILURE: Duration = Duration::from_secs(60);
/// Between looks at sockets while none of them has a network.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// Samples that are further apart are no samples of what happens now.
const COMPARABLE: Duration = Duration::from_secs(3);
/// The same for connections of hosts behind this machine, which are looked at more seldom where there are many.
const COMPARABLE_BEHIND: Duration = Duration::from_secs(8);
/// Their list takes a twentieth of the time at most.
const REST_BEHIND: u32 = 20;
/// A network that carries fewer bytes between two samples is idle.
const QUIET: u64 = 4_096;
/// Sockets are looked at for so long after something has flowed, however little it is.
const WATCHED: Duration = Duration::from_secs(6);
/// Bounds memory, not what is served.
const MOST_FLOWS: usize = 65_536;
/// New connections that are looked up in one sample; the others have their turn in the next.
const MOST_QUESTIONS: usize = 256;
const TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_behind_us_do_shows_by_counters() {
        let second = Duration::from_secs(1);
        let at = |sent, received| Forwarded { sent, received, bulk: false };
        let download =
            moved_behind(at(1_000, 5_000), Forwarded { bulk: true, ..at(31_000, 1_005_000) }, second);
        assert_eq!((download.sent, download.received), (Bytes(30_000), Bytes(1_000_000)));
        assert_eq!((download.delivery_rate, download.was_bulk), (None, false));
        assert!(download.is_bulk(second) && download.is_alive() && download.rtt.is_none());
        let upload = moved_behind(Forwarded { bulk: true, ..at(0, 0) }, at(500_000, 9_000), second);
        assert_eq!((upload.delivery_rate, upload.was_bulk), (Some(BitRate(4_000_000)), true));
        let typing = moved_behind(at(0, 0), at(900, 300), second);
        assert_eq!(typing.delivery_rate, None);
        assert!(!moved_behind(at(9, 9), at(9, 9), second).is_alive());
        let repeating = moved_behind(at(9, 9), at(90_000, 9), second);
        assert!(!repeating.is_alive() && repeating.waits && !download.waits, "no sign of life");
    }
}
