//! How many calls may be under way at once, in all and of one caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All calls under way, by caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

/// One call's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    of: Places,
    caller: String,
}

impl Places {
    /// A place for a call; `None` if there are too many.
    pub(super) fn take(&self, caller: &str) -> Option<Place> {
        let mut taken = self.lock();
        if taken.values().sum::<usize>() >= MOST {
            return None;
        }
        let own = taken.entry(caller.to_owned()).or_default();
        if *own >= MOST_OF_ONE {
            return None;
        }
        *own += 1;
        Some(Place { of: self.clone(), caller: caller.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        // Nothing is left half done under the lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        if let Some(own) = taken.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.caller);
            }
        }
    }
}

/// Calls under way.
const MOST: usize = 64;
/// Of one connection.
const MOST_OF_ONE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_cannot_take_all_places_and_gives_its_own_back() {
        let places = Places::default();
        let own: Vec<_> = std::iter::from_fn(|| places.take(":1.1")).collect();
        assert_eq!(own.len(), MOST_OF_ONE);
        let others: Vec<_> = (2..100).filter_map(|number| places.take(&format!(":1.{number}"))).collect();
        assert_eq!(others.len(), MOST - MOST_OF_ONE);
        drop(own);
        assert!(places.take(":1.1").is_some());
        drop(others);
        assert!(places.lock().is_empty());
    }
}
