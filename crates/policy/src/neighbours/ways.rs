//! Which network packets to each neighbour take: the database's rule with hysteresis, so that noise does not move flows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::{NetworkId, Timestamp};

use super::{Candidate, Neighbours};
use crate::Priority;

/// The networks that are taken now.
///
/// A network that went stale, or is gone, is left at once; a better one is taken once it was better for half a second
/// (`[VCONN]`: an evaluation every 250 ms, two in a row), and one of the same priority only if it is nearer by a quarter.
/// Bounded by the database: what is not in there is not here.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    taken: BTreeMap<IpAddr, Way>,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    network: NetworkId,
    /// A better one, and since when it has been better.
    challenger: Option<(NetworkId, Timestamp)>,
}

impl Ways {
    /// The network to take to `neighbour` from now on; `None` if it is not known on any in `usable`.
    ///
    /// `maxdiff` is in place of the database's own: where signs of life are further apart, it must be more.
    pub fn choose(
        &mut self,
        now: Timestamp,
        known: &Neighbours,
        neighbour: IpAddr,
        usable: &[(NetworkId, Priority)],
        maxdiff: Duration,
    ) -> Option<NetworkId> {
        let fresh = known.fresh(now, neighbour, usable, maxdiff);
        let Some(best) = fresh.iter().min_by_key(|way| way.rank()) else {
            self.taken.remove(&neighbour);
            return None;
        };
        let best_network = best.link.network;
        let at_once = Way { network: best_network, challenger: None };
        let way = self.taken.entry(neighbour).or_insert(at_once);
        let Some(current) = fresh.iter().find(|candidate| candidate.link.network == way.network) else {
            *way = at_once;
            return Some(best_network);
        };
        if best_network == way.network || !is_clearly_better(best, current) {
            way.challenger = None;
            return Some(way.network);
        }
        match way.challenger {
            Some((network, since)) if network == best_network => {
                if now.since(since) >= STEADY {
                    *way = at_once;
                }
            }
            _ => way.challenger = Some((best_network, now)),
        }
        Some(way.network)
    }

    /// When a better network will have been better for long enough, if there is one.
    pub fn due(&self) -> Option<Timestamp> {
        self.taken.values().filter_map(|way| way.challenger).map(|(_, since)| since + STEADY).min()
    }

    /// Forgets the neighbours that `known` has forgotten.
    pub fn retain_known(&mut self, known: &Neighbours) {
        self.taken.retain(|neighbour, _| known.entries.contains_key(neighbour));
    }
}

fn is_clearly_better(candidate: &Candidate, current: &Candidate) -> bool {
    let nearer = match (candidate.link.rtt, current.link.rtt) {
        (Some(candidate), Some(current)) => candidate < current * 3 / 4 && current - candidate > NOISE,
        (Some(_), None) => true,
        (None, _) => false,
    };
    candidate.priority < current.priority || candidate.priority == current.priority && nearer
}

const STEADY: Duration = Duration::from_millis(500);
/// Differences below this are those of a busy processor.
const NOISE: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::NeighbourSettings;

    const WIFI: NetworkId = NetworkId(0);
    const CABLE: NetworkId = NetworkId(1);
    const EQUAL: [(NetworkId, Priority); 2] = [(WIFI, Priority(0)), (CABLE, Priority(0))];
    const PREFER_WIFI: [(NetworkId, Priority); 2] = [(WIFI, Priority(0)), (CABLE, Priority(1))];
    const MAXDIFF: Duration = Duration::from_millis(100);

    struct World {
        known: Neighbours,
        ways: Ways,
        neighbour: IpAddr,
    }

    impl World {
        fn new() -> Self {
            let known = Neighbours::new(NeighbourSettings::default());
            Self { known, ways: Ways::default(), neighbour: IpAddr::from([10, 254, 0, 1]) }
        }

        /// Both networks are heard, with these round trips, and the way is chosen.
        fn step(
            &mut self,
            ms: u64,
            rtts: [Option<u64>; 2],
            usable: &[(NetworkId, Priority)],
        ) -> Option<NetworkId> {
            let now = Timestamp::from_millis(ms);
            for (network, rtt) in [WIFI, CABLE].into_iter().zip(rtts) {
                if let Some(rtt) = rtt {
                    self.known.on_heard(now, self.neighbour, network);
                    self.known.on_rtt(self.neighbour, network, Duration::from_millis(rtt));
                }
            }
            self.ways.choose(now, &self.known, self.neighbour, usable, MAXDIFF)
        }
    }

    #[test]
    fn noise_moves_nothing_and_a_lasting_difference_does() {
        let mut world = World::new();
        assert_eq!(world.step(0, [Some(10), Some(11)], &EQUAL), Some(WIFI));
        assert_eq!(world.step(50, [Some(10), Some(9)], &EQUAL), Some(WIFI));
        // The smoothed value follows slowly; then the challenger must stay better.
        let moved = (2..60).find(|step| world.step(step * 50, [Some(10), Some(2)], &EQUAL) == Some(CABLE));
        assert!(moved.is_some_and(|step| (12..40).contains(&step)), "{moved:?}");
    }

    #[test]
    fn a_stale_network_is_left_at_once_and_taken_again_when_it_lasts() {
        let mut world = World::new();
        assert_eq!(world.step(0, [Some(10), Some(2)], &PREFER_WIFI), Some(WIFI), "priority comes first");
        assert_eq!(world.step(100, [None, Some(2)], &PREFER_WIFI), Some(WIFI), "not staler than maxdiff");
        assert_eq!(world.step(101, [None, Some(2)], &PREFER_WIFI), Some(CABLE));
        assert_eq!(world.step(150, [Some(10), Some(2)], &PREFER_WIFI), Some(CABLE), "heard once");
        assert_eq!(world.ways.due(), Some(Timestamp::from_millis(650)));
        assert_eq!(world.step(400, [Some(10), Some(2)], &PREFER_WIFI), Some(CABLE));
        assert_eq!(world.step(650, [Some(10), Some(2)], &PREFER_WIFI), Some(WIFI));
        assert_eq!(world.step(700, [Some(10), Some(2)], &[]), None);
        world.known.expire(Timestamp::from_millis(99_000));
        world.ways.retain_known(&world.known);
        assert!(world.ways.taken.is_empty());
    }

    #[test]
    fn a_network_that_comes_and_goes_is_not_taken() {
        let mut world = World::new();
        assert_eq!(world.step(0, [None, Some(2)], &PREFER_WIFI), Some(CABLE));
        for step in 1..200 {
            let wifi = (step % 10 < 3).then_some(1);
            assert_eq!(world.step(step * 40, [wifi, Some(2)], &PREFER_WIFI), Some(CABLE), "step {step}");
        }
    }
}
