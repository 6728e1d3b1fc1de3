//! What the kernel's rules decided about flows that stay on any0: read once for each flow, from its conntrack mark.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use linux::direct::Stay;
use linux::netlink::conntrack::{Conntrack, Tuple};
use policy::Treatment;
use tracing::warn;
use wire::inner::{FlowKey, Headers, TCP, UDP};

/// What the thread that knows the rules tells the one that has the packets.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether some rule gives flows that stay a treatment of their own.
    any: AtomicBool,
    /// Whether there are changes.
    changed: AtomicBool,
    /// Flows that run and are to be treated otherwise from their next packet on.
    changes: Mutex<HashMap<FlowKey, Treatment>>,
}

impl Wanted {
    /// Some rule gives flows a treatment of their own, or none does.
    pub fn set(&self, any: bool) {
        self.0.any.store(any, Ordering::Relaxed);
    }

    /// A flow that runs is to be treated so. The oldest wishes are lost if flows do not come for them.
    pub fn change(&self, flow: &Tuple, treatment: Treatment) {
        let (source, destination) = (flow.source_socket(), flow.destination_socket());
        let key = FlowKey {
            source: source.ip(),
            destination: destination.ip(),
            protocol: flow.protocol,
            source_port: source.port(),
            destination_port: destination.port(),
        };
        let mut changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() >= MAXIMUM_CHANGES {
            changes.clear();
        }
        changes.insert(key, treatment);
        self.0.changed.store(true, Ordering::Release);
    }

    fn get(&self) -> bool {
        self.0.any.load(Ordering::Relaxed)
    }

    fn take_change(&self, flow: &FlowKey) -> Option<Treatment> {
        if !self.0.changed.load(Ordering::Acquire) {
            return None;
        }
        // The packets do not wait for the other thread.
        let mut changes = self.0.changes.try_lock().ok()?;
        let found = changes.remove(flow);
        self.0.changed.store(!changes.is_empty(), Ordering::Release);
        found
    }
}

/// The flows that were looked at.
pub struct Treatments {
    wanted: Wanted,
    conntrack: Option<Conntrack>,
    seen: HashSet<FlowKey>,
}

impl Treatments {
    /// Looks at no flow until `wanted` says so.
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, conntrack: None, seen: HashSet::new() }
    }

    /// All flows are looked at again: another gateway knows nothing of them.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// The treatment of a flow whose first packet this is, if a rule gave it one; or of one that is to be treated otherwise now.
    pub fn of(&mut self, headers: &Headers) -> Option<Treatment> {
        if let Some(treatment) = self.wanted.take_change(&headers.key) {
            return Some(treatment);
        }
        if !self.wanted.get() || !matches!(headers.key.protocol, TCP | UDP) {
            return None;
        }
        let begins = headers.key.protocol == TCP && headers.tcp_flags & Headers::SYN != 0;
        if self.seen.len() >= MAXIMUM_FLOWS {
            // Those that live are looked at once more.
            self.seen.clear();
        }
        if !self.seen.insert(headers.key) && !begins {
            return None;
        }
        self.look_up(&headers.key)
    }

    fn look_up(&mut self, key: &FlowKey) -> Option<Treatment> {
        if self.conntrack.is_none() {
            match Conntrack::open() {
                Ok(conntrack) => self.conntrack = Some(conntrack),
                Err(error) => {
                    warn!("rules that treat bonded flows do not work: {error}");
                    self.wanted.set(false);
                }
            }
        }
        let source = SocketAddr::new(key.source, key.source_port);
        let destination = SocketAddr::new(key.destination, key.destination_port);
        let tuple = Tuple::with_ports(key.protocol, source, destination);
        let entry = self.conntrack.as_mut()?.find(&tuple).ok().flatten()?;
        match Stay::of_mark(entry.mark) {
            Stay::Default => None,
            Stay::Bonded => Some(Treatment::Bonded),
            Stay::Duplicated => Some(Treatment::Duplicated),
            Stay::Protected => Some(Treatment::Protected),
        }
    }
}

const MAXIMUM_FLOWS: usize = 8_192;
/// Flows that wait for their next packet to be treated otherwise.
const MAXIMUM_CHANGES: usize = 1_024;
