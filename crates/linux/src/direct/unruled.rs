//! What needs no look at rules, and so is left to the BPF fast path.

use std::collections::BTreeSet;

use super::{Best, Direct, Outcome, mark_of};
use crate::bpf::{FastPath, RealTimeMarks};
use crate::prefix::IpPrefix;

/// New TCP connections that no rule can concern, for [`FastPath`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Unruled {
    /// The marks among which they are spread, for IPv4; none where rules must be looked at for every connection, or
    /// where flows stay on any0.
    pub v4: Vec<u32>,
    /// For IPv6.
    pub v6: Vec<u32>,
    /// Those that take one mark and not turns.
    pub real_time: RealTimeMarks,
    /// Destinations that have routes or rules of their own, [`FastPath::MOST_EXCLUDED`] at most.
    pub excluded: Vec<IpPrefix>,
}

impl Direct {
    /// What may be spread without looking at rules. A rule for some destinations concerns connections to these only, one for another protocol
    /// than TCP none.
    pub fn unruled(&self) -> Unruled {
        let Outcome::Leave(choice) = self.otherwise else { return Unruled::default() };
        let Some(choice) = self.choices.get(choice) else { return Unruled::default() };
        let tcp = |protocol: u8| i32::from(protocol) == libc::IPPROTO_TCP;
        let mut excluded: BTreeSet<IpPrefix> = self.near.iter().map(|prefix| prefix.network()).collect();
        for rule in &self.rules {
            let matching = &rule.matching;
            if matching.protocol.is_some_and(|protocol| !tcp(protocol)) {
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
        let services = self.real_time.services.iter().filter(|(_, protocol, _)| tcp(*protocol));
        excluded.extend(services.map(|(address, ..)| IpPrefix::host(*address)));
        if excluded.len() > FastPath::MOST_EXCLUDED {
            return Unruled::default();
        }
        let marks = |slots: &[u8]| slots.iter().map(|number| mark_of(*number)).collect();
        let (v4, v6) = (marks(&choice.v4), marks(&choice.v6));
        let Best { v4: best_v4, v6: best_v6 } = choice.best;
        let mark = |best: Option<u8>| best.map_or(0, mark_of);
        let code_points = self.real_time.code_points.clone();
        let real_time = RealTimeMarks { code_points, v4: mark(best_v4), v6: mark(best_v6) };
        Unruled { v4, v6, real_time, excluded: excluded.into_iter().collect() }
    }
}
