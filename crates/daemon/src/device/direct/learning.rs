//! Learns from the kernel's counters what flows are, for those that come after them to the same place: for rules by class, and for
//! real-time flows, which take the best network.
//!
//! Looks at all flows about once a second, and only while somebody asks. For real-time flows alone, which nobody has asked for by name, it
//! takes hardly any time: less often where a look takes long, and not at all while hardly anything flows.

use std::collections::HashMap;
use std::time::Duration;

use linux::clock;
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
    looked_at: Option<Timestamp>,
    failed: bool,
}

struct Known {
    meter: CountMeter,
    /// Packets that it had carried when it was first seen.
    at_first: u64,
    class: Option<FlowClass>,
}

/// What classes are wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A rule asks for one.
    Rules,
    /// Real-time flows are to take the best network.
    RealTime,
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
    /// When to call [`Self::advance`] next, if that is of use for `purpose`. A rule does not wait until a rest is over.
    pub fn due_for(&self, purpose: Purpose) -> Timestamp {
        let at_once = self.looked_at.map_or(Timestamp::ZERO, |at| at + INTERVAL);
        if purpose == Purpose::Rules { self.due.min(at_once) } else { self.due }
    }

    /// What was learned.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Takes a sample if it is time; the flows whose class is new or another.
    pub fn advance(&mut self, now: Timestamp, own: &[std::net::IpAddr], purpose: Purpose) -> Vec<Found> {
        if now < self.due_for(purpose) {
            return Vec::new();
        }
        self.looked_at = Some(now);
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
        if purpose == Purpose::RealTime {
            self.due = now + rest_after(clock::now().since(now));
        }
        let mut before = std::mem::take(&mut self.meters);
        let mut found = Vec::new();
        for entry in entries {
            let Some(sample) = sample(now, &entry) else { continue };
            let known = before.remove(&entry.original);
            let new = || Known {
                meter: CountMeter::new(Protocol(entry.protocol)),
                at_first: sample.packets,
                class: None,
            };
            let mut known = known.unwrap_or_else(new);
            let class = known.meter.on_sample(sample);
            if let Some(class) = class {
                let service = service_of(&entry);
                let learned = self.services.class_of(&service);
                // One that has done nothing since does not gainsay one that has.
                let has_moved = sample.packets != known.at_first || learned.is_none();
                // What goes on is not forgotten; but a flow speaks for its service once, so that of two kinds the latest counts.
                if learned == Some(class) || known.class != Some(class) && has_moved {
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

/// The time from the beginning of a look that took so long to the next one, where no rule asks.
fn rest_after(taken: Duration) -> Duration {
    (taken * LEAST_REST).clamp(INTERVAL, LONGEST_REST)
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

const INTERVAL: Duration = Duration::from_secs(1);
/// Times what a look has taken: half a percent of a processor. The kernel goes through its whole table, also where there is little in it.
const LEAST_REST: u32 = 200;
/// The clock goes on while the machine is busy with others or suspended, which says nothing of what a look costs.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// Flows looked at; further ones teach nothing.
const MOST_FLOWS: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_calls_alone_are_seldom_and_never_given_up() {
        let rests = [1, 14, 700, 8 * 3_600_000].map(|millis| rest_after(Duration::from_millis(millis)));
        assert_eq!(rests, [1_000, 2_800, 30_000, 30_000].map(Duration::from_millis));
        let (now, due) = (Timestamp::from_millis(5_000), Timestamp::from_millis(30_000));
        let learning = Learning { looked_at: Some(now), due, ..Learning::default() };
        assert_eq!(learning.due_for(Purpose::RealTime), due);
        assert_eq!(learning.due_for(Purpose::Rules), now + INTERVAL, "a rule that has just come");
    }
}
