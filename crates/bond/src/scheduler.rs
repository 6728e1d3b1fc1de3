//! Which path takes which packet. Pure functions of what is known of the paths; packets are committed as late as possible.

use std::time::Duration;
use units::{BitRate, Bytes};

/// What a scheduler may know of one path. Only paths that may carry data now are listed.
#[derive(Clone, Copy, Debug)]
pub struct PathView {
    /// Window and pace allow a packet now.
    pub sendable: bool,
    /// Time until a packet can leave, zero if it can now.
    pub wait: Duration,
    /// Smoothed one-way delay, microseconds; an offset common to all paths cancels.
    pub one_way_delay: f64,
    /// How much longer a packet that leaves now takes than those that the delay was measured with, microseconds: what has been sent since
    /// is still in the path's queue, or has left it.
    pub queue_change: f64,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Expected rate.
    pub rate: BitRate,
    /// The rate can be relied on.
    pub settled: bool,
    /// Bytes sent so far (for shares).
    pub sent_bytes: u64,
}

/// What is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// A packet that should arrive as early as possible: sparse traffic, repeats.
    Urgent {
        /// Size of the packet.
        size: Bytes,
    },
    /// The head of a queue of this depth.
    Bulk {
        /// Size of the packet at the head.
        size: Bytes,
        /// Bytes queued.
        queued: Bytes,
    },
}

/// A path and the place in the queue from which it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Index into the views.
    pub path: usize,
    /// Bytes in front of the packet to take; 0 is the head.
    pub depth: Bytes,
}

/// How packets are spread over paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Each packet where it is predicted to arrive first; a slow path only takes packets that it delivers in order.
    #[default]
    EarliestArrival,
    /// The path with the least round-trip time that has room.
    MinimumRtt,
    /// Shares by 1/RTT (VIF eq. 2).
    InverseRtt,
    /// Every packet on the two earliest paths.
    Duplicated,
}

/// Share of the fast path's round-trip time by which a near-tie is decided for the slower path.
const SLACK: f64 = 0.25;

impl Scheduler {
    /// The next packet to send and the path for it; `None` if it is better to wait.
    pub fn choose(self, paths: &[PathView], demand: Demand) -> Option<Choice> {
        match self {
            Self::EarliestArrival => earliest_arrival(paths, demand),
            Self::Duplicated => earliest_arrival(paths, urgent(demand)),
            Self::MinimumRtt => minimum_rtt(paths),
            Self::InverseRtt => inverse_rtt(paths),
        }
    }

    /// Whether what is more than `path` carries goes to another path, now or once a round trip's worth of it waits.
    pub fn overflows(self, paths: &[PathView], path: usize, size: Bytes) -> bool {
        let Some(own) = paths.get(path) else { return false };
        let round_trip = own.rate.bytes_in(own.smoothed_rtt);
        paths.iter().enumerate().any(|(index, other)| {
            let depth = || needed_depth(paths, index, size).is_some_and(|depth| depth < round_trip);
            index != path && other.sendable && (self != Self::EarliestArrival || depth())
        })
    }

    /// Whether every packet gets a second copy.
    pub fn duplicates(self) -> bool {
        self == Self::Duplicated
    }
}

fn urgent(demand: Demand) -> Demand {
    let (Demand::Urgent { size } | Demand::Bulk { size, .. }) = demand;
    Demand::Urgent { size }
}

fn earliest_arrival(paths: &[PathView], demand: Demand) -> Option<Choice> {
    match demand {
        Demand::Urgent { size } => {
            let (path, view) = paths
                .iter()
                .enumerate()
                .min_by(|(_, left), (_, right)| arrival(left, size).total_cmp(&arrival(right, size)))?;
            view.sendable.then_some(Choice { path, depth: Bytes(0) })
        }
        Demand::Bulk { size, queued } => {
            let by_delay = |view: &PathView| unloaded_arrival(view, size);
            let (fastest, _) = paths
                .iter()
                .enumerate()
                .min_by(|(_, left), (_, right)| by_delay(left).total_cmp(&by_delay(right)))?;
            if paths.get(fastest).is_some_and(|view| view.sendable) {
                return Some(Choice { path: fastest, depth: Bytes(0) });
            }
            let mut slower: Vec<usize> = (0..paths.len())
                .filter(|&index| paths.get(index).is_some_and(|view| view.sendable))
                .collect();
            slower.sort_by(|&left, &right| {
                let key = |index: usize| paths.get(index).map_or(f64::MAX, by_delay);
                key(left).total_cmp(&key(right))
            });
            slower.into_iter().find_map(|path| {
                let depth = needed_depth(paths, path, size)?;
                (queued.0 > depth.0).then_some(Choice { path, depth })
            })
        }
    }
}

/// Predicted arrival of a packet sent next on this path, microseconds.
fn arrival(view: &PathView, size: Bytes) -> f64 {
    view.wait.as_secs_f64() * 1e6 + unloaded_arrival(view, size) + view.queue_change
}

/// Predicted arrival of a packet that leaves now.
fn unloaded_arrival(view: &PathView, size: Bytes) -> f64 {
    view.one_way_delay + view.rate.time_for(size).as_secs_f64() * 1e6
}

/// How deep the queue must be for `path` to deliver in order: what all faster paths carry until a packet sent on it now
/// would arrive. The packet to take is the one at that depth.
///
/// `need = sum over faster j of rate_j * max(0, owd_i + L/rate_i - owd_j - wait_j - slack)`
fn needed_depth(paths: &[PathView], path: usize, size: Bytes) -> Option<Bytes> {
    let own = paths.get(path)?;
    let own_arrival = unloaded_arrival(own, size);
    let need: f64 = paths
        .iter()
        .enumerate()
        .filter(|&(index, other)| index != path && unloaded_arrival(other, size) < own_arrival)
        .map(|(_, other)| {
            let slack = if own.settled { SLACK * other.smoothed_rtt.as_secs_f64() * 1e6 } else { 0.0 };
            let wait = other.wait.as_secs_f64() * 1e6;
            let lead = (own_arrival - other.one_way_delay - wait - slack).max(0.0);
            other.rate.bytes_per_second() * lead / 1e6
        })
        .sum();
    Some(Bytes(need as u64))
}

fn minimum_rtt(paths: &[PathView]) -> Option<Choice> {
    let sendable = paths.iter().enumerate().filter(|(_, view)| view.sendable);
    let (path, _) = sendable.min_by_key(|(_, view)| view.smoothed_rtt)?;
    Some(Choice { path, depth: Bytes(0) })
}

/// The path that is furthest behind its share of what was sent.
fn inverse_rtt(paths: &[PathView]) -> Option<Choice> {
    let weight = |view: &PathView| 1.0 / view.smoothed_rtt.as_secs_f64().max(1e-4);
    let sendable = paths.iter().enumerate().filter(|(_, view)| view.sendable);
    let (path, _) = sendable.min_by(|(_, left), (_, right)| {
        (left.sent_bytes as f64 / weight(left)).total_cmp(&(right.sent_bytes as f64 / weight(right)))
    })?;
    Some(Choice { path, depth: Bytes(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sendable: bool, delay_ms: f64, mbps: f64) -> PathView {
        PathView {
            sendable,
            wait: Duration::ZERO,
            one_way_delay: delay_ms * 1e3 - 7e6,
            queue_change: 0.0,
            smoothed_rtt: Duration::from_secs_f64(delay_ms * 2e-3),
            rate: BitRate::from_mbps(mbps),
            settled: true,
            sent_bytes: 0,
        }
    }

    const SIZE: Bytes = Bytes(1_500);

    fn bulk(queued: u64) -> Demand {
        Demand::Bulk { size: SIZE, queued: Bytes(queued) }
    }

    #[test]
    fn the_fast_path_takes_the_head() {
        let paths = [view(true, 50.0, 40.0), view(true, 10.0, 40.0)];
        let choice = Scheduler::EarliestArrival.choose(&paths, bulk(1_500));
        assert_eq!(choice, Some(Choice { path: 1, depth: Bytes(0) }));
    }

    #[test]
    fn a_slow_path_waits_until_its_packet_arrives_in_order() {
        let mut paths = [view(true, 50.0, 12.0), view(false, 10.0, 40.0)];
        // Worked by hand: arrival of the slow one 50 ms + 1 ms; lead over the fast one 41 ms less slack 5 ms; 36 ms of 40
        // Mbit/s are 180000 bytes.
        assert_eq!(Scheduler::EarliestArrival.choose(&paths, bulk(180_000)), None);
        let choice = Scheduler::EarliestArrival.choose(&paths, bulk(180_001));
        assert_eq!(choice, Some(Choice { path: 0, depth: Bytes(180_000) }));
        // A path whose rate is not known yet gets no slack: 41 ms are 205000 bytes.
        paths[0].settled = false;
        assert_eq!(Scheduler::EarliestArrival.choose(&paths, bulk(205_000)), None);
        assert!(Scheduler::EarliestArrival.choose(&paths, bulk(205_001)).is_some());
    }

    #[test]
    fn urgent_packets_wait_for_the_path_that_arrives_first() {
        let mut paths = [view(true, 50.0, 12.0), view(false, 10.0, 40.0)];
        paths[1].wait = Duration::from_millis(5);
        assert_eq!(Scheduler::EarliestArrival.choose(&paths, Demand::Urgent { size: SIZE }), None);
        paths[1].wait = Duration::from_millis(60);
        let choice = Scheduler::EarliestArrival.choose(&paths, Demand::Urgent { size: SIZE });
        assert_eq!(choice.map(|choice| choice.path), Some(0));
    }

    #[test]
    fn urgent_packets_avoid_a_queue_that_no_acknowledgement_tells_of_yet() {
        let mut paths = [view(true, 10.0, 40.0), view(true, 12.0, 40.0)];
        let path = |paths: &[PathView]| {
            Scheduler::EarliestArrival.choose(paths, Demand::Urgent { size: SIZE }).map(|choice| choice.path)
        };
        assert_eq!(path(&paths), Some(0));
        paths[0].queue_change = 5_000.0;
        assert_eq!(path(&paths), Some(1));
        paths[1].queue_change = 5_000.0;
        assert_eq!(path(&paths), Some(0));
    }

    #[test]
    fn what_a_path_cannot_take_overflows_to_a_near_and_idle_one_only() {
        let overflows =
            |slow: PathView| Scheduler::EarliestArrival.overflows(&[slow, view(false, 10.0, 40.0)], 1, SIZE);
        // Worked by hand: a lead of 20 ms + 1 ms - 10 ms less slack 5 ms is 30000 bytes, a round trip of 20 ms 100000.
        assert!(overflows(view(true, 20.0, 12.0)));
        assert!(!overflows(view(false, 20.0, 12.0)), "it has enough to carry already");
        // 50 ms + 1 ms - 10 ms less 5 ms: 180000 bytes would have to wait.
        assert!(!overflows(view(true, 50.0, 12.0)));
        assert!(!Scheduler::EarliestArrival.overflows(&[view(false, 10.0, 40.0)], 0, SIZE));
    }

    #[test]
    fn inverse_rtt_shares_are_those_of_vif() {
        // [VIF] eq. 2 with 10 ms and 30 ms: 3/4 and 1/4.
        let mut paths = [view(true, 5.0, 10.0), view(true, 15.0, 10.0)];
        for _ in 0..4_000 {
            let choice = Scheduler::InverseRtt.choose(&paths, bulk(1_500)).unwrap();
            paths[choice.path].sent_bytes += 1_500;
        }
        let first = paths[0].sent_bytes as f64 / 6e6;
        assert!((first - 0.75).abs() < 0.01, "{first}");
    }

    #[test]
    fn minimum_rtt_fills_the_nearest_first() {
        let mut paths = [view(true, 50.0, 12.0), view(true, 10.0, 40.0)];
        assert_eq!(Scheduler::MinimumRtt.choose(&paths, bulk(1_500)).map(|choice| choice.path), Some(1));
        paths[1].sendable = false;
        assert_eq!(Scheduler::MinimumRtt.choose(&paths, bulk(1_500)).map(|choice| choice.path), Some(0));
    }
}
