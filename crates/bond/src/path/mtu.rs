//! Packetization-layer path MTU discovery (RFC 8899): the largest datagram that a path carries, found by probing.

use std::time::Duration;
use units::Timestamp;

/// Every path is taken to carry this much UDP payload.
pub const BASE_MTU: u16 = 1_200;
/// Lost probes of one size before it is taken as too large (RFC 8899 MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// The search ends when the bounds are this near.
const RESOLUTION: u16 = 16;
/// After this time a larger size is tried again (RFC 8899 PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// Full-size packets lost in a row, while smaller ones arrive, before the size is doubted.
const BLACK_HOLE_LOSSES: u8 = 6;

/// The search for a path's packet size. All sizes are bytes of UDP payload.
#[derive(Clone, Debug)]
pub(crate) struct MtuSearch {
    /// What surely passes.
    current: u16,
    /// What surely does not, or the limit of the interface plus one.
    too_large: u16,
    limit: u16,
    probe: Option<u16>,
    lost: u8,
    done_at: Option<Timestamp>,
    full_size_losses: u8,
}

impl MtuSearch {
    /// A search up to `limit`, what the local interface sends in one piece. `fixed` carriers need no search.
    pub(crate) fn new(limit: u16, fixed: bool) -> Self {
        let limit = limit.max(BASE_MTU);
        let current = if fixed { limit } else { BASE_MTU };
        Self {
            current,
            too_large: limit + 1,
            limit,
            probe: None,
            lost: 0,
            done_at: None,
            full_size_losses: 0,
        }
    }

    /// The size that may be used.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The size of the probe to send now, if one is due. The interface's limit is tried first: it mostly fits.
    pub(crate) fn next_probe(&mut self, now: Timestamp) -> Option<u16> {
        if self.probe.is_some() {
            return None;
        }
        if self.done_at.is_some_and(|done| now >= done + RAISE_AFTER) {
            self.too_large = self.limit + 1;
            self.done_at = None;
        }
        if self.current + 1 >= self.too_large
            || self.too_large - self.current <= RESOLUTION.min(self.limit / 2) && self.too_large <= self.limit
        {
            self.done_at.get_or_insert(now);
            return None;
        }
        let size = if self.too_large > self.limit {
            self.limit
        } else {
            self.current + (self.too_large - self.current) / 2
        };
        self.probe = Some(size);
        Some(size)
    }

    /// A probe of this size arrived.
    pub(crate) fn on_probe_acked(&mut self, size: u16) {
        self.probe = None;
        self.lost = 0;
        self.current = self.current.max(size);
    }

    /// A probe was lost, or the kernel refused to send it.
    pub(crate) fn on_probe_lost(&mut self, size: u16, refused: bool) {
        self.probe = None;
        self.lost += 1;
        if refused || self.lost >= MAX_PROBES {
            self.too_large = self.too_large.min(size);
            self.lost = 0;
        }
    }

    /// Packets were lost, the largest of this size. Returns whether the size was reduced.
    pub(crate) fn on_loss(&mut self, largest_size: u16) -> bool {
        if largest_size <= BASE_MTU || largest_size < self.current.saturating_sub(RESOLUTION) {
            return false;
        }
        self.full_size_losses += 1;
        if self.full_size_losses < BLACK_HOLE_LOSSES {
            return false;
        }
        self.full_size_losses = 0;
        self.too_large = self.current;
        self.current = BASE_MTU;
        self.done_at = None;
        true
    }

    /// A packet of this size was acknowledged.
    pub(crate) fn on_acked(&mut self, size: u64) {
        if size >= u64::from(self.current.saturating_sub(RESOLUTION)) {
            self.full_size_losses = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(path: u16, limit: u16) -> (u16, usize) {
        let mut search = MtuSearch::new(limit, false);
        let mut probes = 0;
        while let Some(size) = search.next_probe(Timestamp::ZERO) {
            probes += 1;
            if size <= path {
                search.on_probe_acked(size)
            } else {
                search.on_probe_lost(size, false)
            }
            assert!(probes < 100);
        }
        (search.current(), probes)
    }

    #[test]
    fn finds_the_size() {
        assert_eq!(search(1_472, 1_472), (1_472, 1));
        let (found, _) = search(1_430, 1_472);
        assert!((1_414..=1_430).contains(&found), "{found}");
        assert_eq!(search(1_200, 1_472).0, 1_200);
        assert_eq!(search(9_000, 1_200), (1_200, 0));
    }

    #[test]
    fn a_black_hole_is_noticed_and_searched_again() {
        let mut search = MtuSearch::new(1_472, false);
        search.next_probe(Timestamp::ZERO);
        search.on_probe_acked(1_472);
        for _ in 0..BLACK_HOLE_LOSSES - 1 {
            assert!(!search.on_loss(1_472));
        }
        assert!(search.on_loss(1_472));
        assert_eq!(search.current(), BASE_MTU);
        assert!(search.next_probe(Timestamp::ZERO).is_some());
    }
}
