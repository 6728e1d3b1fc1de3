//! Sets of numbers kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers, kept as disjoint ranges that do not touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    /// Start to end (exclusive).
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds `range`; returns the parts of it that were not in the set.
    pub fn insert(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut new = Vec::new();
        if range.is_empty() {
            return new;
        }
        let (mut start, mut end) = (range.start, range.end);
        let mut at = range.start;
        let touching: Vec<(u64, u64)> = self
            .ranges
            .range(..=range.end)
            .rev()
            .take_while(|(_, touching_end)| **touching_end >= range.start)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (old_start, old_end) in touching.into_iter().rev() {
            if old_start > at {
                new.push(at..old_start.min(range.end));
            }
            at = at.max(old_end);
            start = start.min(old_start);
            end = end.max(old_end);
            self.ranges.remove(&old_start);
        }
        if at < range.end {
            new.push(at..range.end);
        }
        self.ranges.insert(start, end);
        new
    }

    /// Removes everything below `limit`.
    pub fn remove_below(&mut self, limit: u64) {
        while let Some((&start, &end)) = self.ranges.first_key_value() {
            if start >= limit {
                return;
            }
            self.ranges.remove(&start);
            if end > limit {
                self.ranges.insert(limit, end);
                return;
            }
        }
    }

    /// The range that holds `number`.
    pub fn containing(&self, number: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=number).next_back()?;
        (number < end).then_some(start..end)
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.first_key_value().map(|(start, end)| *start..*end)
    }

    /// The ranges from the lowest on.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }

    /// Nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `ranges` are exactly these (start, end).
    fn are(ranges: impl IntoIterator<Item = Range<u64>>, expected: &[(u64, u64)]) -> bool {
        ranges.into_iter().map(|range| (range.start, range.end)).eq(expected.iter().copied())
    }

    #[test]
    fn insertion_tells_what_is_new() {
        let mut set = RangeSet::default();
        assert!(are(set.insert(10..20), &[(10, 20)]));
        assert!(are(set.insert(30..40), &[(30, 40)]));
        assert!(are(set.insert(5..35), &[(5, 10), (20, 30)]));
        assert!(are(set.iter(), &[(5, 40)]));
        assert!(set.insert(6..39).is_empty());
        assert!(are(set.insert(40..41), &[(40, 41)]));
        set.remove_below(8);
        assert_eq!(set.first(), Some(8..41));
        assert_eq!(set.containing(8), Some(8..41));
        assert_eq!(set.containing(41), None);
    }
}
