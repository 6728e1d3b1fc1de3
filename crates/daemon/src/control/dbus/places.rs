//! How many calls may be under way at once: in all, of one connection, and of one user, however many connections that has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whose calls are counted together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Whose {
    /// Of a connection, by its name on the bus: all that is known of a call when it comes.
    Connection(String),
    /// Of a user, by number, whom the bus has told.
    User(u32),
}

/// All calls under way, by who makes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    taken: Arc<Mutex<HashMap<Whose, usize>>>,
}

/// One call's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    of: Places,
    whose: Whose,
}

impl Places {
    /// A place for a call; `None` if there are too many.
    pub(super) fn take(&self, whose: Whose) -> Option<Place> {
        let mut taken = self.lock();
        let (most, most_of_one) = whose.bounds();
        let alike = taken.iter().filter(|(other, _)| other.bounds() == whose.bounds());
        if alike.map(|(_, own)| own).sum::<usize>() >= most {
            return None;
        }
        let own = taken.entry(whose.clone()).or_default();
        if *own >= most_of_one {
            return None;
        }
        *own += 1;
        Some(Place { of: self.clone(), whose })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Whose, usize>> {
        // Nothing is left half done under the lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Whose {
    /// Calls under way of all who are counted like this, and of one of them.
    fn bounds(&self) -> (usize, usize) {
        match self {
            Self::Connection(_) => (MOST_COMING, MOST_OF_CONNECTION),
            Self::User(_) => (MOST, MOST_OF_USER),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        if let Some(own) = taken.get_mut(&self.whose) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.whose);
            }
        }
    }
}

/// Calls being seen to.
const MOST: usize = 64;
const MOST_OF_USER: usize = 16;
/// The same and those whose users are being asked for. The bus answers that at once, and who has too many is sent away then.
const MOST_COMING: usize = 128;
const MOST_OF_CONNECTION: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(places: &Places, whose: impl Fn() -> Whose) -> Vec<Place> {
        std::iter::from_fn(|| places.take(whose())).collect()
    }

    #[test]
    fn nobody_can_take_all_places_and_each_gives_its_own_back() {
        let places = Places::default();
        let connection = |number: usize| Whose::Connection(format!(":1.{number}"));
        let own = take_all(&places, || connection(1));
        assert_eq!(own.len(), MOST_OF_CONNECTION);
        let visitor = take_all(&places, || Whose::User(1000));
        assert_eq!(visitor.len(), MOST_OF_USER, "connections and users are counted apart");
        let others: Vec<_> = (0..9).flat_map(|user| take_all(&places, || Whose::User(user))).collect();
        assert_eq!(others.len(), MOST - MOST_OF_USER);
        let coming: Vec<_> = (2..99).flat_map(|number| take_all(&places, || connection(number))).collect();
        assert_eq!(coming.len(), MOST_COMING - MOST_OF_CONNECTION);
        drop((own, visitor));
        assert!(places.take(connection(1)).is_some() && places.take(Whose::User(1000)).is_some());
        drop((others, coming));
        assert!(places.lock().is_empty());
    }
}
