//! The neighbour database: who is reachable over which network, when last heard, how far away.
//!
//! `[VIF] 3.2.2` keeps an entry for each neighbour and interface, refreshed by every packet from there, expiring. Keys here are
//! any0 addresses, not MAC addresses, since the networks need not share a link layer.
//!
//! `maxdiff` is in the paper's table 2, but not defined. Our reading: how much staler the preferred network's entry may be than
//! another's before the other one is used. It fits what the table shows: the larger it is, the more priority rules and the longer
//! a hand-over takes. The paper's values (10, 100, 1000) are most likely in jiffies, the unit of its time stamps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use units::{NetworkId, Timestamp};

use crate::{Priority, RttEstimator};

mod ways;

pub use ways::Ways;

/// Neighbours on all networks.
///
/// Bounded: a new neighbour takes the place of the one that was silent for longest.
#[derive(Clone, Debug)]
pub struct Neighbours {
    settings: NeighbourSettings,
    entries: BTreeMap<IpAddr, Neighbour>,
    /// The same by the time of the last sign of life.
    by_age: BTreeSet<(Timestamp, IpAddr)>,
}

/// How [`Neighbours`] behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NeighbourSettings {
    /// How much staler the preferred network's entry may be than another's.
    pub maxdiff: Duration,
    /// How long an entry lives without a sign of life.
    pub lifetime: Duration,
    /// Neighbours that are remembered.
    pub most: u32,
}

impl Default for NeighbourSettings {
    fn default() -> Self {
        Self { maxdiff: Duration::from_millis(100), lifetime: Duration::from_secs(60), most: 4_096 }
    }
}

/// A neighbour over one network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NeighbourLink {
    /// The network.
    pub network: NetworkId,
    /// When something last came from there over it.
    pub last_seen: Timestamp,
    /// Round-trip time to there over it; `None` before the first sample.
    pub rtt: Option<Duration>,
}

/// A network that may be taken to a neighbour.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    priority: Priority,
    link: NeighbourLink,
}

impl Candidate {
    /// The least is the best.
    fn rank(&self) -> impl Ord + use<> {
        let rtt = self.link.rtt.unwrap_or(Duration::MAX);
        (self.priority, rtt, std::cmp::Reverse(self.link.last_seen), self.link.network)
    }
}

#[derive(Clone, Debug, Default)]
struct Neighbour {
    links: BTreeMap<NetworkId, Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    last_seen: Timestamp,
    rtt: RttEstimator,
}

impl Neighbours {
    /// Knows nobody yet.
    pub fn new(settings: NeighbourSettings) -> Self {
        Self { settings, entries: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    /// Something came from `neighbour` over `network`.
    pub fn on_heard(&mut self, now: Timestamp, neighbour: IpAddr, network: NetworkId) {
        let known = self.entries.get(&neighbour);
        let before = known.map(Neighbour::last_seen);
        if known.is_none() {
            self.make_room();
        }
        let entry = self.entries.entry(neighbour).or_default();
        let link =
            entry.links.entry(network).or_insert(Link { last_seen: now, rtt: RttEstimator::default() });
        link.last_seen = link.last_seen.max(now);
        let after = entry.last_seen();
        if let Some(before) = before {
            self.by_age.remove(&(before, neighbour));
        }
        self.by_age.insert((after, neighbour));
    }

    /// A round trip to `neighbour` over `network` took `sample`. Nothing happens if the neighbour is not known there.
    pub fn on_rtt(&mut self, neighbour: IpAddr, network: NetworkId, sample: Duration) {
        if let Some(link) = self.entries.get_mut(&neighbour).and_then(|entry| entry.links.get_mut(&network)) {
            link.rtt.on_sample(sample);
        }
    }

    /// The network to take to `neighbour`: of those in `usable`, with their priorities, and heard of lately, the one with the least
    /// priority number, then with the least round-trip time (most of `1/RTT`), then heard last.
    ///
    /// `None` if the neighbour is not known on any of them. [`Ways`] adds hysteresis.
    pub fn route_to(
        &self,
        now: Timestamp,
        neighbour: IpAddr,
        usable: &[(NetworkId, Priority)],
    ) -> Option<NetworkId> {
        let fresh = self.fresh(now, neighbour, usable, self.settings.maxdiff);
        fresh.iter().min_by_key(|way| way.rank()).map(|way| way.link.network)
    }

    /// The networks in `usable` over which `neighbour` was heard at most `maxdiff` before it was heard last over any of them.
    fn fresh(
        &self,
        now: Timestamp,
        neighbour: IpAddr,
        usable: &[(NetworkId, Priority)],
        maxdiff: Duration,
    ) -> Vec<Candidate> {
        let alive = self.links(now, neighbour).filter_map(|link| {
            let (_, priority) = usable.iter().find(|(network, _)| *network == link.network)?;
            Some(Candidate { priority: *priority, link })
        });
        let mut candidates: Vec<Candidate> = alive.collect();
        let freshest = candidates.iter().map(|way| way.link.last_seen).max().unwrap_or_default();
        candidates.retain(|way| freshest.since(way.link.last_seen) <= maxdiff);
        candidates
    }

    /// What is known of `neighbour` on each network, expired entries left out.
    pub fn links(&self, now: Timestamp, neighbour: IpAddr) -> impl Iterator<Item = NeighbourLink> + '_ {
        let lifetime = self.settings.lifetime;
        let links = self.entries.get(&neighbour).into_iter().flat_map(|entry| &entry.links);
        links.filter(move |(_, link)| now.since(link.last_seen) < lifetime).map(|(network, link)| {
            NeighbourLink {
                network: *network,
                last_seen: link.last_seen,
                rtt: link.rtt.is_measured().then(|| link.rtt.smoothed()),
            }
        })
    }

    /// All neighbours that are known, by address.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.entries.keys().copied()
    }

    /// Drops what has expired.
    pub fn expire(&mut self, now: Timestamp) {
        let lifetime = self.settings.lifetime;
        self.retain(|_, link| now.since(link.last_seen) < lifetime);
    }

    /// A network is gone: nobody is reachable over it any more.
    pub fn forget_network(&mut self, gone: NetworkId) {
        self.retain(|network, _| network != gone);
    }

    /// A neighbour is not reachable any more over a network.
    pub fn forget_link(&mut self, neighbour: IpAddr, gone: NetworkId) {
        let Some(entry) = self.entries.get_mut(&neighbour) else { return };
        let before = entry.last_seen();
        entry.links.remove(&gone);
        self.by_age.remove(&(before, neighbour));
        if entry.links.is_empty() {
            self.entries.remove(&neighbour);
        } else {
            let after = entry.last_seen();
            self.by_age.insert((after, neighbour));
        }
    }

    fn retain(&mut self, keep: impl Fn(NetworkId, &Link) -> bool) {
        for entry in self.entries.values_mut() {
            entry.links.retain(|network, link| keep(*network, link));
        }
        self.entries.retain(|_, entry| !entry.links.is_empty());
        self.by_age = self.entries.iter().map(|(address, entry)| (entry.last_seen(), *address)).collect();
    }

    fn make_room(&mut self) {
        while self.entries.len() >= self.settings.most.max(1) as usize {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}

impl Neighbour {
    fn last_seen(&self) -> Timestamp {
        self.links.values().map(|link| link.last_seen).max().unwrap_or_default()
    }
}

/// Which broadcasts were taken already: one goes out on every network, and each neighbour takes the first copy only.
///
/// Bounded: the oldest is forgotten first, so a flood of new ones shortens the memory but never grows it.
#[derive(Clone, Debug)]
pub struct SeenBroadcasts {
    known: BTreeSet<Broadcast>,
    order: std::collections::VecDeque<(Timestamp, Broadcast)>,
    lifetime: Duration,
    most: u32,
}

/// A broadcast: who sent it first, and the sender's number for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Broadcast {
    /// The any0 address of the sender.
    pub origin: IpAddr,
    /// The sender's number; numbers may be used again after the lifetime.
    pub sequence: u32,
}

impl SeenBroadcasts {
    /// Remembers `most` broadcasts for `lifetime`.
    pub fn new(lifetime: Duration, most: u32) -> Self {
        Self { known: BTreeSet::new(), order: std::collections::VecDeque::new(), lifetime, most: most.max(1) }
    }

    /// Takes a copy; whether it is the first one.
    pub fn is_first(&mut self, now: Timestamp, broadcast: Broadcast) -> bool {
        while let Some((seen, oldest)) = self.order.front().copied() {
            if now.since(seen) < self.lifetime && self.order.len() <= self.most as usize {
                break;
            }
            self.order.pop_front();
            self.known.remove(&oldest);
        }
        let first = self.known.insert(broadcast);
        if first {
            self.order.push_back((now, broadcast));
        }
        first
    }
}

#[cfg(test)]
mod tests;
