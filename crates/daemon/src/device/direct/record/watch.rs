//! The flows that go on, followed from their first packet to their last by the kernel's list of connections.
//!
//! The list is read each second. A TCP connection stays in it for a while after its end, and UDP for its time-out, so that
//! short flows are seen too, and with all that they carried.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use linux::direct::network_of;
use linux::netlink::conntrack::{Entry, TcpState, Tuple};
use policy::replay::{CountedFlow, TraceEvent, TraceFlow, TraceRecord};
use units::Bytes;

/// A flow in the kernel's list; a later one with the same addresses and ports has another number there.
type Key = (Tuple, Option<u32>);

/// Who has a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The executable.
    pub program: Option<String>,
    /// Its control group.
    pub cgroup: Option<String>,
    /// The user.
    pub user: Option<u32>,
}

/// What the flows are seen against.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scene {
    /// any0's addresses.
    pub any0: Vec<IpAddr>,
    /// Addresses of this machine, any0's included.
    pub own: BTreeSet<IpAddr>,
    /// What names were resolved to.
    pub names: BTreeMap<String, Vec<IpAddr>>,
}

/// The flows that are followed.
pub struct Watch {
    flows: HashMap<Key, Followed>,
    next: u64,
    looked: Option<Duration>,
    round: u64,
    left_out: u64,
}

struct Followed {
    /// The last look that found it.
    round: u64,
    /// `None` for what is over, and for what is older than the record.
    flow: Option<Living>,
}

struct Living {
    id: u64,
    began: Duration,
    written: Duration,
    owner: Owner,
    looks_for_owner: u8,
    domains: Vec<String>,
    packets: u64,
    bytes: u64,
    counted: CountedFlow,
}

impl Watch {
    /// Numbers flows from `first` on.
    pub fn new(first: u64) -> Self {
        Self { flows: HashMap::new(), next: first, looked: None, round: 0, left_out: 0 }
    }

    /// Takes the kernel's list at the time `at` of the record; the records of flows that have ended, or that were not written
    /// for long. `owners` names the owners of new flows, in their order.
    pub fn look(
        &mut self,
        at: Duration,
        scene: &Scene,
        entries: &[Entry],
        owners: impl FnOnce(&[Entry]) -> Vec<Owner>,
    ) -> Vec<TraceRecord> {
        self.round += 1;
        let passed = self.looked.map(|before| at.saturating_sub(before));
        self.looked = Some(at);
        let listed = entries.iter().filter(|entry| is_flow(scene, entry));
        let mut unowned = Vec::new();
        let mut ended = Vec::new();
        for entry in listed {
            let room = self.flows.len() < MOST_FLOWS;
            let followed = match self.flows.entry(key(entry)) {
                Place::Occupied(place) => place.into_mut(),
                Place::Vacant(place) if room => {
                    // Older than the record: nobody knows when it began.
                    let living = passed.map(|_| Living::new(at, self.next, scene, entry));
                    self.next += u64::from(living.is_some());
                    place.insert(Followed { round: 0, flow: living })
                }
                Place::Vacant(_) => {
                    self.left_out += 1;
                    continue;
                }
            };
            followed.round = self.round;
            let Some(living) = &mut followed.flow else { continue };
            living.count(entry, passed.unwrap_or_default());
            if living.owner.program.is_none() && living.looks_for_owner > 0 {
                living.looks_for_owner -= 1;
                unowned.push(*entry);
            }
            if matches!(entry.tcp_state, Some(TcpState::TimeWait | TcpState::Close)) {
                ended.push(key(entry));
            }
        }
        if !unowned.is_empty() {
            for (entry, owner) in unowned.iter().zip(owners(&unowned)) {
                if let Some(living) = self.flows.get_mut(&key(entry)).and_then(|flow| flow.flow.as_mut()) {
                    living.learn(owner);
                }
            }
        }
        let mut records = Vec::new();
        for key in ended {
            let over = self.flows.get_mut(&key).and_then(|followed| followed.flow.take());
            records.extend(over.map(|living| living.record(&key.0)));
        }
        let round = self.round;
        self.flows.retain(|key, followed| {
            let is_gone = followed.round != round;
            if let Some(living) = &mut followed.flow
                && (is_gone || at.saturating_sub(living.written) >= REWRITE)
            {
                living.written = at;
                records.push(living.record(&key.0));
            }
            !is_gone
        });
        records.sort_by_key(number);
        records
    }

    /// The records of all flows that go on.
    pub fn living(&self) -> Vec<TraceRecord> {
        let living = self.flows.iter().filter_map(|(key, followed)| Some((key, followed.flow.as_ref()?)));
        let mut records: Vec<TraceRecord> = living.map(|(key, living)| living.record(&key.0)).collect();
        records.sort_by_key(number);
        records
    }

    /// How often a flow was seen for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Most flows at once.
    pub const MOST: u64 = MOST_FLOWS as u64;
}

impl Living {
    fn new(at: Duration, id: u64, scene: &Scene, entry: &Entry) -> Self {
        let destination = entry.original.destination;
        let names = scene.names.iter().filter(|(_, addresses)| addresses.contains(&destination));
        Self {
            id,
            began: at,
            written: at,
            owner: Owner::default(),
            looks_for_owner: LOOKS_FOR_OWNER,
            domains: names.map(|(name, _)| name.clone()).take(MOST_NAMES).collect(),
            packets: 0,
            bytes: 0,
            counted: CountedFlow::new(entry.protocol),
        }
    }

    /// What was known stays known: the socket may be gone at a later look.
    fn learn(&mut self, owner: Owner) {
        let Owner { program, cgroup, user } = std::mem::take(&mut self.owner);
        self.owner = Owner {
            program: program.or(owner.program),
            cgroup: cgroup.or(owner.cgroup),
            user: user.or(owner.user),
        };
    }

    fn count(&mut self, entry: &Entry, passed: Duration) {
        let counts = [entry.original_count, entry.reply_count].into_iter().flatten();
        let (packets, bytes) = counts.fold((0, 0), |(packets, bytes): (u64, u64), count| {
            (packets.saturating_add(count.packets), bytes.saturating_add(count.bytes))
        });
        let new = (packets.saturating_sub(self.packets), bytes.saturating_sub(self.bytes));
        self.counted.on_sample(passed, new.0, new.1);
        (self.packets, self.bytes) = (packets, bytes);
    }

    fn record(&self, tuple: &Tuple) -> TraceRecord {
        let destination = tuple.destination_socket();
        let flow = TraceFlow {
            id: self.id,
            program: self.owner.program.clone(),
            cgroup: self.owner.cgroup.clone(),
            user: self.owner.user,
            destination: destination.ip(),
            domains: self.domains.clone(),
            protocol: tuple.protocol,
            port: destination.port(),
            dscp: 0,
            class: self.counted.class(),
            bytes: Bytes(self.bytes),
        };
        TraceRecord { at: self.began, event: TraceEvent::Flow(flow) }
    }
}

/// Whether the flow goes out by a network or over any0: not what comes in, nor what stays in this machine.
fn is_flow(scene: &Scene, entry: &Entry) -> bool {
    let (source, destination) = (entry.original.source, entry.original.destination);
    let ours = network_of(entry.mark).is_some() || scene.any0.contains(&source);
    ours && !destination.is_loopback() && !scene.own.contains(&destination)
}

fn key(entry: &Entry) -> Key {
    (entry.original, entry.id)
}

fn number(record: &TraceRecord) -> u64 {
    match &record.event {
        TraceEvent::Flow(flow) => flow.id,
        TraceEvent::Networks { .. } => 0,
    }
}

/// Bounds memory, not what is served.
const MOST_FLOWS: usize = 65_536;
const MOST_NAMES: usize = 8;
/// Programs are looked for once a second at most, so one may be found a look later.
const LOOKS_FOR_OWNER: u8 = 3;
/// How much of a long flow a crash may take away.
const REWRITE: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
