//! Sets of chunks as ranges: what is stored of a file, kept and restored by the owner.

use std::collections::BTreeMap;

use wire::upload::{Chunk, Run, Runs};

/// A set of chunks. Its size in memory goes with the number of gaps.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RangeSet {
    /// First and last of each range; they neither overlap nor touch.
    ranges: BTreeMap<u32, u32>,
    count: u32,
}

impl RangeSet {
    /// The chunks of `runs`, which may overlap.
    pub fn from_runs(runs: impl IntoIterator<Item = Run>) -> Self {
        let mut set = Self::default();
        for run in runs {
            set.insert_run(run);
        }
        set
    }

    /// Whether a chunk is in it.
    pub fn contains(&self, chunk: Chunk) -> bool {
        self.ranges.range(..=chunk.0).next_back().is_some_and(|(_, last)| *last >= chunk.0)
    }

    /// Adds a chunk; whether it is new.
    pub fn insert(&mut self, chunk: Chunk) -> bool {
        let before = self.count;
        if let Some(run) = Run::new(chunk, chunk) {
            self.insert_run(run);
        }
        self.count > before
    }

    /// Adds neighbouring chunks.
    pub fn insert_run(&mut self, run: Run) {
        let (mut first, mut last) = (run.first().0, run.last().0);
        // Every range that overlaps or touches becomes part of the new one.
        let reach = last.saturating_add(1);
        while let Some((&start, &end)) = self.ranges.range(..=reach).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&start);
            self.count -= end - start + 1;
            (first, last) = (first.min(start), last.max(end));
        }
        self.ranges.insert(first, last);
        self.count += last - first + 1;
    }

    /// Takes a chunk out; whether it was in it.
    pub fn remove(&mut self, chunk: Chunk) -> bool {
        let found = self.ranges.range(..=chunk.0).next_back().map(|(first, last)| (*first, *last));
        let Some((first, last)) = found.filter(|(_, last)| *last >= chunk.0) else { return false };
        self.ranges.remove(&first);
        if first < chunk.0 {
            self.ranges.insert(first, chunk.0 - 1);
        }
        if chunk.0 < last {
            self.ranges.insert(chunk.0 + 1, last);
        }
        self.count -= 1;
        true
    }

    /// Takes out the first runs, as many as a message has room for.
    pub(crate) fn take_runs(&mut self) -> Runs {
        let mut taken = Runs::new();
        while let Some((first, last)) = self.ranges.pop_first() {
            let fits = Run::new(Chunk(first), Chunk(last)).is_some_and(|run| taken.push(run));
            if !fits {
                self.ranges.insert(first, last);
                break;
            }
            self.count -= last - first + 1;
        }
        taken
    }

    /// The first chunk at or behind `from` that is not in it.
    pub fn first_missing(&self, from: Chunk) -> Chunk {
        match self.ranges.range(..=from.0).next_back() {
            Some((_, last)) if *last >= from.0 => Chunk(last.saturating_add(1)),
            _ => from,
        }
    }

    /// How many chunks are in it.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes that it takes up, roughly.
    pub(crate) fn memory(&self) -> usize {
        // Nodes of a B-tree are half full at worst.
        self.ranges.len() * 2 * size_of::<(u32, u32)>()
    }

    /// Its runs in order.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        self.ranges.iter().filter_map(|(first, last)| Run::new(Chunk(*first), Chunk(*last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_the_set_of_its_chunks(
            inserted in proptest::collection::vec((0_u32..200, 0_u32..9), 0..80),
            removed in proptest::collection::vec(0_u32..220, 0..80),
        ) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (first, more) in inserted {
                set.insert_run(Run::new(Chunk(first), Chunk(first + more)).unwrap());
                model.extend(first..=first + more);
                prop_assert_eq!(set.count() as usize, model.len());
            }
            for number in removed {
                prop_assert_eq!(set.remove(Chunk(number)), model.remove(&number));
                prop_assert_eq!(set.count() as usize, model.len());
            }
            let listed: BTreeSet<u32> = set.runs().flat_map(Run::chunks).map(|chunk| chunk.0).collect();
            prop_assert_eq!(&listed, &model);
            for number in 0..220 {
                prop_assert_eq!(set.contains(Chunk(number)), model.contains(&number));
                let missing = (number..).find(|number| !model.contains(number)).unwrap();
                prop_assert_eq!(set.first_missing(Chunk(number)), Chunk(missing));
            }
            prop_assert_eq!(RangeSet::from_runs(set.runs()), set.clone());
            let mut taken = set.clone();
            prop_assert_eq!(RangeSet::from_runs(taken.take_runs().iter().copied()), set);
            prop_assert!(taken.is_empty() && taken.count() == 0);
        }
    }

    #[test]
    fn the_last_number_is_a_chunk_like_others() {
        let mut set = RangeSet::default();
        assert!(set.insert(Chunk(u32::MAX)));
        assert!(!set.insert(Chunk(u32::MAX)));
        assert!(set.insert(Chunk(u32::MAX - 1)));
        assert_eq!((set.runs().count(), set.count()), (1, 2));
    }
}
