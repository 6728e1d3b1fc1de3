//! How well a neighbour keeps its word, over all its connections.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;

/// By what the owner knows a neighbour again: its public key, or whatever else cannot be had anew at will.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerKey(pub [u8; 32]);

/// Broken promises up to which a neighbour is believed.
const FORGIVEN: u32 = 24;
/// So many kept promises make up for a broken one.
const KEPT_FOR_BROKEN: u32 = 16;
/// A broken promise is forgotten after so long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// Absent neighbours that are remembered; who has broken least gives way.
const REMEMBERED: usize = 256;

/// Promises kept and broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    broken: u32,
    /// Since the last time that so many made up for a broken one.
    kept: u32,
    /// From when on time has not been reckoned with.
    since: Timestamp,
}

impl Standing {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { broken: 0, kept: 0, since: now }
    }

    /// It has brought what it was to bring.
    pub(super) fn keep_word(&mut self, now: Timestamp) {
        self.kept += 1;
        if self.kept >= KEPT_FOR_BROKEN {
            self.kept = 0;
            self.make_up(now, 1);
        }
    }

    /// It did not bring what it had claimed, so many times.
    pub(super) fn break_word(&mut self, now: Timestamp, times: u32) {
        self.reckon(now);
        self.broken = self.broken.saturating_add(times);
    }

    /// So many broken promises were none.
    pub(super) fn make_up(&mut self, now: Timestamp, times: u32) {
        self.reckon(now);
        self.broken = self.broken.saturating_sub(times);
    }

    /// Promises that count as broken.
    pub(super) fn broken(&self, now: Timestamp) -> u32 {
        self.broken.saturating_sub(self.forgotten(now))
    }

    /// Whether what it claims counts.
    pub(super) fn is_believed(&self, now: Timestamp) -> bool {
        self.broken(now) <= FORGIVEN
    }

    fn forgotten(&self, now: Timestamp) -> u32 {
        u32::try_from(now.since(self.since).as_secs() / FORGOTTEN_AFTER.as_secs()).unwrap_or(u32::MAX)
    }

    fn reckon(&mut self, now: Timestamp) {
        let forgotten = self.forgotten(now);
        if self.broken <= forgotten {
            (self.broken, self.since) = (0, now);
        } else {
            self.broken -= forgotten;
            self.since += FORGOTTEN_AFTER * forgotten;
        }
    }
}

/// The standing of neighbours that are not here.
#[derive(Clone, Default, Debug)]
pub(super) struct Absent(BTreeMap<PeerKey, Standing>);

impl Absent {
    /// Who has broken nothing needs no place.
    pub(super) fn remember(&mut self, now: Timestamp, key: PeerKey, standing: Standing) {
        if standing.broken(now) == 0 {
            return;
        }
        self.0.insert(key, standing);
        if self.0.len() > REMEMBERED
            && let Some(least) =
                self.0.iter().min_by_key(|(_, standing)| standing.broken(now)).map(|(key, _)| *key)
        {
            self.0.remove(&least);
        }
    }

    /// Of one that comes.
    pub(super) fn recall(&mut self, now: Timestamp, key: PeerKey) -> Standing {
        self.0.remove(&key).unwrap_or_else(|| Standing::new(now))
    }

    pub(super) fn memory(&self) -> usize {
        self.0.len() * 2 * size_of::<(PeerKey, Standing)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn kept_promises_and_time_make_up_for_broken_ones() {
        let mut standing = Standing::new(at(0));
        standing.break_word(at(0), 26);
        assert!(!standing.is_believed(at(59)));
        assert!(standing.is_believed(at(60)), "24 are left");
        standing.break_word(at(60), 1);
        assert!(!standing.is_believed(at(60)));
        (0..16).for_each(|_| standing.keep_word(at(61)));
        assert!(standing.is_believed(at(61)));
        assert_eq!(standing.broken(at(1_000_000)), 0);
    }

    #[test]
    fn promises_cannot_be_kept_in_advance() {
        let mut standing = Standing::new(at(0));
        (0..10_000).for_each(|_| standing.keep_word(at(1)));
        standing.break_word(at(1), 25);
        assert!(!standing.is_believed(at(1)));
    }

    #[test]
    fn those_who_broke_least_are_forgotten_first() {
        let mut absent = Absent::default();
        for number in 0..300_u32 {
            let mut standing = Standing::new(at(0));
            standing.break_word(at(0), number);
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            absent.remember(at(0), PeerKey(key), standing);
        }
        assert_eq!(absent.0.len(), REMEMBERED);
        let mut worst = [0; 32];
        worst[..4].copy_from_slice(&299_u32.to_be_bytes());
        assert_eq!(absent.recall(at(0), PeerKey(worst)).broken(at(0)), 299);
        assert_eq!(absent.recall(at(0), PeerKey([0; 32])).broken(at(0)), 0);
    }
}
