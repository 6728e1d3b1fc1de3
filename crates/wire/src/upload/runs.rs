//! Neighbouring chunks, and lists of them that rise.

use std::ops::Deref;

use super::{Chunk, MAX_RUNS};
use crate::cursor::{Malformed, Reader, put_varint};

/// Neighbouring chunks. Never empty, never beyond the last number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    first: u32,
    last: u32,
}

impl Run {
    /// From `first` to `last`, both included; `None` if there are none.
    pub const fn new(first: Chunk, last: Chunk) -> Option<Self> {
        if first.0 <= last.0 { Some(Self { first: first.0, last: last.0 }) } else { None }
    }

    /// The first one.
    pub const fn first(self) -> Chunk {
        Chunk(self.first)
    }

    /// The last one.
    pub const fn last(self) -> Chunk {
        Chunk(self.last)
    }

    /// All of them.
    pub fn chunks(self) -> impl Iterator<Item = Chunk> {
        (self.first..=self.last).map(Chunk)
    }
}

/// Runs as a message has them: they rise, do not touch, and are [`MAX_RUNS`] at most.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Runs(Vec<Run>);

impl Runs {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// All of `runs`; `None` if one does not begin behind the one before, or if they are too many. What touches becomes one.
    pub fn rising(runs: impl IntoIterator<Item = Run>) -> Option<Self> {
        let mut rising = Self::new();
        runs.into_iter().all(|run| rising.push(run)).then_some(rising)
    }

    /// Adds a run behind the others; `false`, and nothing is changed, if it does not begin there or there is no room for it.
    pub fn push(&mut self, run: Run) -> bool {
        let full = self.0.len() == MAX_RUNS;
        match self.0.last_mut() {
            Some(before) if run.first <= before.last => false,
            Some(before) if run.first == before.last + 1 => {
                before.last = run.last;
                true
            }
            _ if full => false,
            _ => {
                self.0.push(run);
                true
            }
        }
    }

    /// Takes chunks from the front of `chunks` while they rise and there is room; how many, is the second part.
    pub fn of_chunks(chunks: &[Chunk]) -> (Self, usize) {
        let mut runs = Self::new();
        let taken =
            chunks.iter().take_while(|chunk| runs.push(Run { first: chunk.0, last: chunk.0 })).count();
        (runs, taken)
    }
}

impl Deref for Runs {
    type Target = [Run];

    fn deref(&self) -> &[Run] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Runs {
    type Item = &'a Run;
    type IntoIter = std::slice::Iter<'a, Run>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

pub(super) fn put_runs(buffer: &mut Vec<u8>, runs: &Runs) {
    put_varint(buffer, runs.len() as u64);
    // Where the next run can begin at the earliest: one chunk behind the last, so that none touch.
    let mut from = 0;
    for run in runs {
        put_varint(buffer, u64::from(run.first) - from);
        put_varint(buffer, u64::from(run.last - run.first));
        from = u64::from(run.last) + 2;
    }
}

pub(super) fn runs(reader: &mut Reader<'_>) -> Result<Runs, Malformed> {
    let count = reader.varint()?;
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_RUNS);
    let count = count.ok_or(Malformed::Field("runs"))?;
    let mut runs = Vec::with_capacity(count);
    let mut from = 0_u64;
    for _ in 0..count {
        let first = from.checked_add(reader.varint()?).ok_or(Malformed::Field("run"))?;
        let last = first.checked_add(reader.varint()?).ok_or(Malformed::Field("run"))?;
        let ends = u32::try_from(first).ok().zip(u32::try_from(last).ok());
        let (first, last) = ends.ok_or(Malformed::Field("run"))?;
        runs.push(Run { first, last });
        from = u64::from(last) + 2;
    }
    Ok(Runs(runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, last: u32) -> Run {
        Run::new(Chunk(first), Chunk(last)).unwrap()
    }

    #[test]
    fn runs_take_up_neighbouring_chunks_and_stop_at_their_bound() {
        let chunks = [1, 2, 3, 5, 9, 10].map(Chunk);
        let (runs, taken) = Runs::of_chunks(&chunks);
        assert_eq!((&runs[..], taken), (&[run(1, 3), run(5, 5), run(9, 10)][..], 6));
        let even: Vec<Chunk> = (0..2_000).map(|number| Chunk(number * 2)).collect();
        let (runs, taken) = Runs::of_chunks(&even);
        assert_eq!((runs.len(), taken), (MAX_RUNS, MAX_RUNS));
    }

    #[test]
    fn runs_cannot_be_made_that_do_not_rise() {
        assert_eq!(Runs::of_chunks(&[4, 5, 3, 6].map(Chunk)).1, 2);
        assert_eq!(Runs::of_chunks(&[4, 4].map(Chunk)).1, 1);
        assert_eq!(Runs::rising([run(4, 9), run(9, 12)]), None);
        assert_eq!(Runs::rising([run(4, 9), run(0, 1)]), None);
        assert_eq!(Runs::rising([run(4, 9), run(10, 12)]), Runs::rising([run(4, 12)]));
        assert_eq!(Runs::rising([run(0, u32::MAX), run(0, 0)]), None);
        let even = |count| (0..count).map(|number| run(number * 2, number * 2));
        assert!(Runs::rising(even(MAX_RUNS as u32)).is_some());
        assert_eq!(Runs::rising(even(MAX_RUNS as u32 + 1)), None);
    }
}
