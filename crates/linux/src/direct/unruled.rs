//! What needs no look at rules, and so is left to the BPF fast path.

use std::collections::BTreeSet;

use super::{Direct, Outcome, mark_of};
use crate::bpf::FastPath;
use crate::prefix::IpPrefix;

/// New TCP connections that no rule can concern, for [`FastPath`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unruled {
    /// The marks among which they are spread, for IPv4; none where rules must be looked at for every connection, or
    /// where flows stay on any0.
    pub v4: Vec<u32>,
    /// For IPv6.
    pub v6: Vec<u32>,
    /// Destinations that have routes or rules of their own, [`FastPath::MOST_EXCLUDED`] at most.
    pub excluded: Vec<IpPrefix>,
}

impl Direct {
    /// What may be spread without looking at rules. A rule for some destinations concerns connections to these only, one for another protocol
    /// than TCP none.
    pub fn unruled(&self) -> Unruled {
        let Outcome::Leave(choice) = self.otherwise else { return Unruled::default() };
        let Some(choice) = self.choices.get(choice) else { return Unruled::default() };
        let mut excluded: BTreeSet<IpPrefix> = self.near.iter().map(|prefix| prefix.network()).collect();
        for rule in &self.rules {
            let matching = &rule.matching;
            if matching.protocol.is_some_and(|protocol| i32::from(protocol) != libc::IPPROTO_TCP) {
                continue;
            }
            match (&matching.destinations, &matching.services) {
                (Some(destinations), _) => {
                    excluded.extend(destinations.iter().map(|prefix| prefix.network()))
                }
                (None, Some(services)) => {
                    excluded.extend(services.iter().map(|(address, ..)| IpPrefix::host(*address)));
                }
                (None, None) => return Unruled::default(),
            }
        }
        if excluded.len() > FastPath::MOST_EXCLUDED {
            return Unruled::default();
        }
        let marks = |slots: &[u8]| slots.iter().map(|number| mark_of(*number)).collect();
        let (v4, v6) = (marks(&choice.v4), marks(&choice.v6));
        Unruled { v4, v6, excluded: excluded.into_iter().collect() }
    }
}
