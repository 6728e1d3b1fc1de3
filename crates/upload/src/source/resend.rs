//! What was on the air and may have to be sent again.

use std::collections::VecDeque;

use units::Timestamp;
use wire::upload::{AirNumber, Chunk};

use super::Place;
use crate::window::Window;

/// Says which entry of a chunk counts: the others are out of date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp(u32);

/// A chunk that was on the air.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) chunk: Chunk,
    /// In which frame; none if it is known that nobody has it.
    pub(super) air: Option<AirNumber>,
    pub(super) at: Timestamp,
    stamp: Stamp,
}

/// Oldest first, with one entry that counts for each chunk.
#[derive(Clone, Debug)]
pub(super) struct Resend {
    sent: VecDeque<Sent>,
    next: u32,
}

/// More entries out of date than this, and than there are chunks under way, are not kept.
const SPARE: usize = 64;

impl Resend {
    pub(super) const fn new() -> Self {
        Self { sent: VecDeque::new(), next: 0 }
    }

    /// A chunk is sent.
    pub(super) fn push_last(&mut self, chunk: Chunk, air: AirNumber, at: Timestamp) -> Stamp {
        let stamp = self.stamp();
        self.sent.push_back(Sent { chunk, air: Some(air), at, stamp });
        stamp
    }

    /// A chunk that nobody has is to be sent again before all others.
    pub(super) fn push_first(&mut self, chunk: Chunk, at: Timestamp) -> Stamp {
        let stamp = self.stamp();
        self.sent.push_front(Sent { chunk, air: None, at, stamp });
        stamp
    }

    /// The oldest that counts.
    pub(super) fn first(&mut self, places: &Window<Place>) -> Option<Sent> {
        while let Some(sent) = self.sent.front().copied() {
            if sent.counts(places) {
                return Some(sent);
            }
            self.sent.pop_front();
        }
        None
    }

    pub(super) fn remove_first(&mut self) {
        self.sent.pop_front();
    }

    /// Patience with all of them begins anew.
    pub(super) fn renew(&mut self, now: Timestamp) {
        for sent in &mut self.sent {
            sent.at = now;
        }
    }

    /// Keeps the queue in proportion to what is under way.
    pub(super) fn shorten(&mut self, places: &Window<Place>) {
        if self.sent.len() > 2 * places.len() + SPARE {
            self.sent.retain(|sent| sent.counts(places));
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.sent.capacity() * size_of::<Sent>()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    fn stamp(&mut self) -> Stamp {
        self.next = self.next.wrapping_add(1);
        Stamp(self.next)
    }
}

impl Sent {
    fn counts(&self, places: &Window<Place>) -> bool {
        match places.get(self.chunk) {
            Some(Place::Air(stamp) | Place::With(_, stamp)) => *stamp == self.stamp,
            _ => false,
        }
    }
}
