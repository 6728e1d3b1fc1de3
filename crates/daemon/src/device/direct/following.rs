//! Pins of names follow their names: looked up again while the pin lives, in a thread that ends with its answer.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use tracing::warn;
use units::Timestamp;

/// The addresses of each name that was found.
type Found = BTreeMap<String, Vec<IpAddr>>;

/// The names of pins.
#[derive(Default)]
pub struct Following {
    seen: BTreeMap<String, BTreeMap<IpAddr, Timestamp>>,
    asked: Option<Receiver<Found>>,
    due: Timestamp,
}

impl Following {
    /// When to call [`Self::advance`] next, while there are names.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Follows exactly these names, each with the addresses that are known of it; the addresses of those that have others now.
    ///
    /// What a name no longer has is kept for [`KEPT`]: programs keep addresses too, and servers give out theirs by turns.
    pub fn advance(&mut self, now: Timestamp, names: &BTreeMap<String, Vec<IpAddr>>) -> Found {
        self.seen.retain(|name, _| names.contains_key(name));
        for (name, addresses) in names {
            let seen = self.seen.entry(name.clone()).or_insert_with(|| {
                self.due = now + INTERVAL;
                BTreeMap::new()
            });
            for address in addresses {
                seen.entry(*address).or_insert(now);
            }
        }
        if now < self.due {
            return Found::new();
        }
        match self.asked.as_ref().map(Receiver::try_recv) {
            None => {
                if !names.is_empty() {
                    self.asked = ask(names.keys().cloned().collect());
                }
                self.due = now + if self.asked.is_some() { WAIT } else { INTERVAL };
            }
            Some(Err(TryRecvError::Empty)) => self.due = now + WAIT,
            Some(Err(TryRecvError::Disconnected)) => (self.asked, self.due) = (None, now + INTERVAL),
            Some(Ok(found)) => {
                (self.asked, self.due) = (None, now + INTERVAL);
                self.take_in(now, found);
            }
        }
        let current = self.seen.iter().map(|(name, seen)| (name.clone(), seen.keys().copied().collect()));
        current
            .filter(|(name, addresses): &(String, Vec<IpAddr>)| names.get(name) != Some(addresses))
            .collect()
    }

    fn take_in(&mut self, now: Timestamp, found: Found) {
        for (name, addresses) in found {
            let Some(seen) = self.seen.get_mut(&name) else { continue };
            seen.extend(addresses.into_iter().map(|address| (address, now)));
            seen.retain(|_, at| now.since(*at) < KEPT);
            while seen.len() > MOST_ADDRESSES {
                let oldest = seen.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address);
                oldest.and_then(|oldest| seen.remove(&oldest));
            }
        }
    }
}

/// Has the system's resolver asked. A name that it does not know keeps what it has.
fn ask(names: Vec<String>) -> Option<Receiver<Found>> {
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        let look_up = |name: String| {
            let found = (name.as_str(), 0).to_socket_addrs().ok()?;
            let addresses = found.map(|address| address.ip()).take(MOST_ADDRESSES).collect();
            Some((name, addresses))
        };
        // Whoever asked may have gone.
        let _ = sender.try_send(names.into_iter().filter_map(look_up).collect());
    };
    let started = std::thread::Builder::new().name("pins".to_owned()).spawn(work);
    started.inspect_err(|error| warn!("pins do not follow their names: {error}")).ok().map(|_| receiver)
}

/// Between two lookups.
const INTERVAL: Duration = Duration::from_secs(30);
/// Between two looks for an answer.
const WAIT: Duration = Duration::from_secs(1);
/// How long an address counts after the name had it last.
const KEPT: Duration = Duration::from_secs(600);
/// Most addresses of one name.
const MOST_ADDRESSES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn addresses_come_at_once_and_go_later() {
        let mut following = Following::default();
        let name = "example.org".to_owned();
        let mut names: Found = [(name.clone(), vec![address(1)])].into();
        let start = Timestamp::ZERO + INTERVAL;
        assert_eq!(following.advance(start, &names), Found::new());
        assert_eq!(following.due(), start + INTERVAL);
        let found = |following: &mut Following, now, names: &Found, addresses: Vec<IpAddr>| {
            let (sender, receiver) = sync_channel(1);
            following.asked = Some(receiver);
            sender.send([(name.clone(), addresses)].into()).unwrap();
            following.due = now;
            following.advance(now, names)
        };
        let later = start + INTERVAL;
        let both = vec![address(1), address(2)];
        assert_eq!(
            found(&mut following, later, &names, vec![address(2)]),
            [(name.clone(), both.clone())].into()
        );
        names.insert(name.clone(), both);
        assert_eq!(found(&mut following, later + INTERVAL, &names, vec![address(2)]), Found::new());
        let much_later = start + KEPT + INTERVAL;
        assert_eq!(
            found(&mut following, much_later, &names, vec![address(2)]),
            [(name.clone(), vec![address(2)])].into()
        );
        assert!(following.advance(much_later, &Found::new()).is_empty() && following.seen.is_empty());
    }

    #[test]
    fn the_systems_resolver_is_asked() {
        let found =
            ask(vec!["localhost".to_owned(), "no-such-name.invalid".to_owned()]).unwrap().recv().unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["localhost"]);
        assert!(found["localhost"].iter().all(IpAddr::is_loopback));
    }
}
