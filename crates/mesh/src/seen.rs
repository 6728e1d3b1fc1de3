//! Requests that were seen: each is handled once, whatever copies come (RFC 3561 section 6.5), and its reply goes back where the first copy came from.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use arrayvec::ArrayVec;
use units::Timestamp;
use wire::mesh::{NodeId, Reply, RequestId, Signature};

use crate::Hop;
use crate::settings::ANSWERS;

/// Most that are remembered; the oldest gives way.
const MOST: usize = 2_048;
/// `PATH_DISCOVERY_TIME`, RFC 3561 section 10, and more: copies come no later.
const REMEMBERED: Duration = Duration::from_secs(20);

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) destination: NodeId,
    /// The originator's: a copy that bears another is no copy.
    pub(crate) signature: Signature,
    /// Where the first copy came from.
    pub(crate) from: Hop,
    pub(crate) copies: u8,
    /// This node has passed it on, or is about to: replies to it go by here.
    pub(crate) is_relayed: bool,
    /// A reply has gone back; its signature, which has been checked.
    pub(crate) replied: Option<Signature>,
    /// This node's own answer, and to whom it was given.
    pub(crate) answer: Option<Reply>,
    pub(crate) answered: ArrayVec<Hop, ANSWERS>,
    at: Timestamp,
}

impl Seen {
    pub(crate) fn new(now: Timestamp, destination: NodeId, signature: Signature, from: Hop) -> Self {
        Self {
            destination,
            signature,
            from,
            copies: 1,
            is_relayed: false,
            replied: None,
            answer: None,
            answered: ArrayVec::new(),
            at: now,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    seen: BTreeMap<(NodeId, RequestId), Seen>,
    order: VecDeque<(NodeId, RequestId)>,
}

impl Requests {
    pub(crate) fn get_mut(&mut self, key: (NodeId, RequestId)) -> Option<&mut Seen> {
        self.seen.get_mut(&key)
    }

    /// Remembers a request that was not seen before.
    pub(crate) fn add(&mut self, key: (NodeId, RequestId), seen: Seen) {
        let now = seen.at;
        while let Some(oldest) = self.order.front().copied() {
            let is_over = self.seen.get(&oldest).is_none_or(|seen| seen.at + REMEMBERED <= now);
            if !is_over && self.order.len() < MOST {
                break;
            }
            self.order.pop_front();
            self.seen.remove(&oldest);
        }
        if self.seen.insert(key, seen).is_none() {
            self.order.push_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use units::NetworkId;
    use wire::mesh::LinkAddress;

    #[test]
    fn the_oldest_are_forgotten() {
        let from = Hop { network: NetworkId(1), address: LinkAddress::V4(Ipv4Addr::LOCALHOST, 1) };
        let key = |number| (NodeId([1; 16]), RequestId(number));
        let seen =
            |millis| Seen::new(Timestamp::from_millis(millis), NodeId([2; 16]), Signature([0; 64]), from);
        let mut requests = Requests::default();
        for number in 0..3_000 {
            requests.add(key(number), seen(1));
        }
        assert_eq!((requests.seen.len(), requests.order.len()), (MOST, MOST));
        assert!(requests.get_mut(key(0)).is_none() && requests.get_mut(key(2_999)).is_some());
        requests.add(key(9_999), seen(1 + REMEMBERED.as_millis() as u64));
        assert_eq!(requests.seen.len(), 1);
    }
}
