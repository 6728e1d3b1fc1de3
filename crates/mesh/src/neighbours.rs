//! Nodes beside this one, as heard.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;
use wire::mesh::{NodeId, Sequence};

use crate::Hop;
use crate::allowance::Allowance;
use crate::settings::MESSAGES_PER_SECOND;

/// Most that are kept; whoever was not heard for longest gives way.
const MOST: usize = 1_024;

/// A node beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    /// Who it is and the number of what it said last, if it has said so and signed it.
    pub(crate) node: Option<(NodeId, Sequence)>,
    pub(crate) relays: bool,
    pub(crate) heard: Timestamp,
    /// When something was sent to it that should be answered and was not.
    pub(crate) waits_since: Option<Timestamp>,
    /// When data was last sent to it.
    pub(crate) used: Timestamp,
    /// How often it was asked since it was heard, and when next.
    pub(crate) asked: u8,
    pub(crate) ask_at: Timestamp,
    messages: Allowance,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    known: BTreeMap<Hop, Neighbour>,
}

impl Neighbours {
    pub(crate) fn get(&self, hop: Hop) -> Option<&Neighbour> {
        self.known.get(&hop)
    }

    pub(crate) fn get_mut(&mut self, hop: Hop) -> Option<&mut Neighbour> {
        self.known.get_mut(&hop)
    }

    /// Something has come from it.
    pub(crate) fn hear(&mut self, now: Timestamp, hop: Hop) -> &mut Neighbour {
        if !self.known.contains_key(&hop) && self.known.len() >= MOST {
            // Those that have shown who they are stay longest.
            let first = self.known.iter().min_by_key(|(_, known)| (known.node.is_some(), known.heard));
            if let Some(first) = first.map(|(hop, _)| *hop) {
                self.known.remove(&first);
            }
        }
        let per_second = u64::from(MESSAGES_PER_SECOND);
        let neighbour = self.known.entry(hop).or_insert_with(|| Neighbour {
            node: None,
            relays: false,
            heard: now,
            waits_since: None,
            used: Timestamp::ZERO,
            asked: 0,
            ask_at: Timestamp::FAR_FUTURE,
            messages: Allowance::new(now, per_second, per_second),
        });
        neighbour.heard = now;
        neighbour.waits_since = None;
        neighbour.asked = 0;
        neighbour.ask_at = Timestamp::FAR_FUTURE;
        neighbour
    }

    pub(crate) fn forget(&mut self, hop: Hop) {
        self.known.remove(&hop);
    }

    /// How many have been heard within `span`.
    pub(crate) fn heard_within(&self, now: Timestamp, span: Duration) -> usize {
        self.known.values().filter(|known| now.since(known.heard) < span).count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Hop, &Neighbour)> {
        self.known.iter().map(|(hop, known)| (*hop, known))
    }
}

impl Neighbour {
    /// Whether one more of its messages is looked at.
    pub(crate) fn may_speak(&mut self, now: Timestamp) -> bool {
        self.messages.take(now, 1)
    }
}
