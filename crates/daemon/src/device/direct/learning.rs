//! Rules by class: learns from the kernel's counters what flows are, for those that come after them to the same place.
//!
//! Looks at all flows about once a second, and only while there is a rule that asks for a class.

use std::collections::HashMap;

use linux::direct::network_of;
use linux::netlink::conntrack::{Conntrack, Count, Entry, TcpState, Tuple};
use policy::FlowClass;
use policy::rules::{Matcher, Protocol, Rule};
use policy::services::{CountMeter, Sample, Service, Services};
use tracing::{debug, warn};
use units::{Bytes, Timestamp};

use super::translation;

/// What is being learned, and what was.
#[derive(Default)]
pub struct Learning {
    meters: HashMap<Tuple, Known>,
    services: Services,
    due: Timestamp,
    failed: bool,
}

struct Known {
    meter: CountMeter,
    class: Option<FlowClass>,
}

/// A flow of which the class is known now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The flow, as its sender sees it.
    pub flow: Tuple,
    /// Whether it stays on any0.
    pub stays: bool,
    /// Its class.
    pub class: FlowClass,
}

/// Whether a rule asks for a class.
pub fn is_wanted<'a>(mut rules: impl Iterator<Item = &'a Rule>) -> bool {
    rules.any(|rule| rule.matchers().iter().any(|matcher| matches!(matcher, Matcher::Class(_))))
}

impl Learning {
    /// When to call [`Self::advance`] next, if there is a rule that wants it.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// What was learned.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Takes a sample if it is time; the flows whose class is new or another.
    pub fn advance(&mut self, now: Timestamp, own: &[std::net::IpAddr]) -> Vec<Found> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + INTERVAL;
        if self.failed {
            return Vec::new();
        }
        self.services.expire(now);
        let mut entries: Vec<Entry> = Vec::new();
        let listed = Conntrack::open().map_err(|error| error.to_string()).and_then(|mut conntrack| {
            let mut take = |entry: &Entry| {
                if entries.len() < MOST_FLOWS && is_flow(entry, own) {
                    entries.push(*entry);
                }
            };
            conntrack.for_each(None, &mut take).map_err(|error| error.to_string())
        });
        if let Err(error) = listed {
            warn!("classes of flows are not learned: {error}");
            self.failed = true;
        }
        let mut before = std::mem::take(&mut self.meters);
        let mut found = Vec::new();
        for entry in entries {
            let Some(sample) = sample(now, &entry) else { continue };
            let known = before.remove(&entry.original);
            let new = || Known { meter: CountMeter::new(Protocol(entry.protocol)), class: None };
            let mut known = known.unwrap_or_else(new);
            let class = known.meter.on_sample(sample);
            if let Some(class) = class {
                let service = service_of(&entry);
                // What goes on is not forgotten; but a flow speaks for its service once, so that of two kinds the latest counts.
                if known.class != Some(class) || self.services.class_of(&service) == Some(class) {
                    self.services.learn(now, service, class);
                }
                if known.class != Some(class) {
                    debug!("a flow to {} port {} is {class}", service.destination, service.port);
                    let stays = network_of(entry.mark).is_none();
                    found.push(Found { flow: entry.original, stays, class });
                }
            }
            known.class = class;
            self.meters.insert(entry.original, known);
        }
        found
    }
}

/// The service of a flow.
fn service_of(entry: &Entry) -> Service {
    let far = entry.original.destination_socket();
    Service { destination: far.ip(), protocol: Protocol(entry.protocol), port: far.port() }
}

/// TCP and UDP that rules are asked for.
fn is_flow(entry: &Entry, own: &[std::net::IpAddr]) -> bool {
    let over = matches!(entry.tcp_state, Some(TcpState::TimeWait | TcpState::Close));
    let ours = network_of(entry.mark).is_some() || own.contains(&entry.original.source);
    let kind = [Protocol::TCP, Protocol::UDP].contains(&Protocol(entry.protocol));
    let between = translation::is_own(entry.original.source);
    ours && kind && !over && !between && !entry.original.destination.is_loopback()
}

/// The counters of the busier direction.
fn sample(at: Timestamp, entry: &Entry) -> Option<Sample> {
    let (out, back) = (entry.original_count?, entry.reply_count?);
    let Count { packets, bytes } = if out.bytes > back.bytes { out } else { back };
    Some(Sample { at, packets, bytes: Bytes(bytes) })
}

const INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
/// Flows looked at; further ones teach nothing.
const MOST_FLOWS: usize = 16_384;
