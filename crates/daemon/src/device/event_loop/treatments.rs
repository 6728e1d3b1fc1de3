//! What the kernel's rules decided about flows that stay on any0: read once for each flow, from its conntrack mark.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linux::direct::Stay;
use linux::netlink::conntrack::{Conntrack, Tuple};
use policy::Treatment;
use tracing::warn;
use wire::inner::{FlowKey, Headers, TCP, UDP};

/// Whether some rule gives flows that stay a treatment of their own. Set by the thread that knows the rules.
pub type Wanted = Arc<AtomicBool>;

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

    /// The treatment of a flow whose first packet this is, if a rule gave it one.
    pub fn of(&mut self, headers: &Headers) -> Option<Treatment> {
        if !self.wanted.load(Ordering::Relaxed) || !matches!(headers.key.protocol, TCP | UDP) {
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
                    self.wanted.store(false, Ordering::Relaxed);
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
