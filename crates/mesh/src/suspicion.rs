//! Next hops by which data for a destination got lost: black holes, and relays that died. They are avoided for a time where there is another way.
//!
//! Nobody's word is taken for it. The end of a way learns from its own bond that nothing is acknowledged, and asks anew; each relay
//! of the old way sees the new request, and knows by itself whether anything had come back for what it had passed on.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;
use wire::mesh::NodeId;

use crate::Hop;
use crate::settings::SUSPICION;

/// Most that are kept; the oldest gives way.
const MOST: usize = 256;

/// A suspicion is fresh for so long.
const FRESH: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Suspicions {
    until: BTreeMap<(NodeId, Hop), Timestamp>,
}

impl Suspicions {
    /// Data for `destination` by `hop` was lost.
    pub(crate) fn add(&mut self, now: Timestamp, destination: NodeId, hop: Hop) {
        self.until.retain(|_, until| *until > now);
        if self.until.len() >= MOST
            && let Some(oldest) = self.until.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            self.until.remove(&oldest);
        }
        self.until.insert((destination, hop), now + SUSPICION);
    }

    /// Data for `destination` by `hop` arrives.
    pub(crate) fn clear(&mut self, destination: NodeId, hop: Hop) {
        self.until.remove(&(destination, hop));
    }

    /// Whether it was found only now: who was lost some time ago may be well again.
    pub(crate) fn is_fresh(&self, now: Timestamp, destination: NodeId, hop: Hop) -> bool {
        self.has(now + (SUSPICION - FRESH), destination, hop)
    }

    pub(crate) fn has(&self, now: Timestamp, destination: NodeId, hop: Hop) -> bool {
        self.until.get(&(destination, hop)).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use units::NetworkId;
    use wire::mesh::LinkAddress;

    #[test]
    fn they_end_and_are_bounded() {
        let hop = |port| Hop { network: NetworkId(1), address: LinkAddress::V4(Ipv4Addr::LOCALHOST, port) };
        let (far, now) = (NodeId([1; 16]), Timestamp::from_millis(1));
        let mut suspicions = Suspicions::default();
        suspicions.add(now, far, hop(1));
        assert!(suspicions.has(now, far, hop(1)) && !suspicions.has(now, far, hop(2)));
        assert!(!suspicions.has(now + SUSPICION, far, hop(1)));
        assert!(suspicions.is_fresh(now, far, hop(1)) && !suspicions.is_fresh(now + FRESH, far, hop(1)));
        for port in 0..1_000 {
            suspicions.add(Timestamp::from_millis(2 + u64::from(port)), far, hop(port));
        }
        assert_eq!(suspicions.until.len(), MOST);
        assert!(suspicions.has(Timestamp::from_millis(1_002), far, hop(999)));
        suspicions.clear(far, hop(999));
        assert!(!suspicions.has(Timestamp::from_millis(1_002), far, hop(999)));
    }
}
