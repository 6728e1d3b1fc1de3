//! Events in time order, first in first out among equal times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use units::Timestamp;

/// A queue of events ordered by time; events of one time leave in the order in which they came.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    inserted: u64,
}

impl<E> EventQueue<E> {
    /// An empty queue.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), inserted: 0 }
    }

    /// Adds `event`, due at `at`.
    pub fn insert(&mut self, at: Timestamp, event: E) {
        self.heap.push(Reverse(Entry { at, order: self.inserted, event }));
        self.inserted += 1;
    }

    /// When the next event is due.
    pub fn next_time(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The next event if it is due by `now`.
    pub fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, E)> {
        if self.next_time()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// No event waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Timestamp,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_keep_their_order() {
        let mut queue = EventQueue::new();
        for (millis, name) in [(2, 'c'), (1, 'a'), (2, 'd'), (1, 'b')] {
            queue.insert(Timestamp::from_millis(millis), name);
        }
        assert_eq!(queue.pop_due(Timestamp::ZERO), None);
        let mut names = String::new();
        while let Some((_, name)) = queue.pop_due(Timestamp::from_millis(2)) {
            names.push(name);
        }
        assert_eq!(names, "abcd");
        assert!(queue.is_empty());
    }
}
