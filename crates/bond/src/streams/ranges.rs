//! Sets of offsets, kept as ranges that neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// Offsets of a stream; ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// How many ranges there are.
    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// How many offsets are in the set.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The lowest range.
    pub(super) fn first(&self) -> Option<Range<u64>> {
        self.ranges.first_key_value().map(|(start, end)| *start..*end)
    }

    /// What follows, up to the end of its range, after the lowest `depth` offsets.
    pub(super) fn after(&self, depth: u64) -> Option<Range<u64>> {
        let mut left = depth;
        for (start, end) in &self.ranges {
            if end - start > left {
                return Some(start + left..*end);
            }
            left -= end - start;
        }
        None
    }

    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &until)) = self.ranges.range(..start).next_back()
            && until >= start
        {
            start = before;
            end = end.max(until);
        }
        while let Some((&next, &until)) = self.ranges.range(start..).next()
            && next <= end
        {
            end = end.max(until);
            self.ranges.remove(&next);
            self.total -= until - next;
        }
        if let Some(until) = self.ranges.insert(start, end) {
            self.total -= until - start;
        }
        self.total += end - start;
    }

    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.range(..range.start).next_back().filter(|(_, until)| **until > range.start);
        let from = from.map_or(range.start, |(start, _)| *start);
        while let Some((&start, &end)) = self.ranges.range(from..range.end).next() {
            self.ranges.remove(&start);
            self.total -= end - start;
            if start < range.start {
                self.ranges.insert(start, range.start);
                self.total += range.start - start;
            }
            if end > range.end {
                self.ranges.insert(range.end, end);
                self.total += end - range.end;
                return;
            }
            if start < range.start {
                // What was put back begins before the range: go on behind it.
                return self.remove(end..range.end);
            }
        }
    }

    /// Takes out all that `others` has.
    pub(super) fn remove_all(&mut self, others: &Self) {
        for (start, end) in &others.ranges {
            self.remove(*start..*end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::collections::BTreeSet;

    /// Against a set of single offsets.
    #[test]
    fn behaves_as_a_set() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..300 {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for _ in 0..40 {
                let start = random.random_range(0..60u64);
                let range = start..start + random.random_range(0..12u64);
                if random.random_bool(0.6) {
                    ranges.insert(range.clone());
                    model.extend(range);
                } else {
                    ranges.remove(range.clone());
                    model.retain(|offset| !range.contains(offset));
                }
                let listed: Vec<u64> = ranges.ranges.iter().flat_map(|(start, end)| *start..*end).collect();
                assert_eq!(listed, model.iter().copied().collect::<Vec<_>>());
                assert_eq!(ranges.total(), model.len() as u64);
                let ends: Vec<(u64, u64)> = ranges.ranges.iter().map(|(start, end)| (*start, *end)).collect();
                assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ends:?}");
                let depth = random.random_range(0..20usize);
                let at = ranges.after(depth as u64).map(|range| range.start);
                assert_eq!(at, model.iter().nth(depth).copied());
            }
        }
    }
}
