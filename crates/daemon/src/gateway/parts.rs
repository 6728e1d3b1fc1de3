//! A gateway in several parts, each with a thread, sockets, a queue of the interface and the sessions of some clients.
//!
//! ```text
//!   UDP port --index of the datagram--> part 0 | part 1 | ...   each: sockets, sessions, clients
//!   any0     --flow of the packet-----> queue 0 | queue 1 | ...
//! ```
//! A client belongs to the part that its last handshake came to, which is chance. The kernel leads datagrams to the part of their
//! session, and answers to the queue that the question was written to; any other packet from any0 may be in the queue of a part that
//! does not have its client. [`Places`] knows which part has it then.

use std::net::IpAddr;
use std::num::NonZeroU8;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bond::PublicKey;
use rustc_hash::FxHashMap;

use super::messages::Command;
use crate::mailbox::Mailbox;

/// How many parts a gateway has: as its configuration says, or one for each processor.
pub fn count(configured: Option<NonZeroU8>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from).min(MOST_BY_ITSELF);
    configured.map_or_else(processors, |configured| configured.get().into())
}

/// The loops of all parts, by their numbers.
#[derive(Clone)]
pub struct Parts(Arc<[Mailbox<Command>]>);

impl Parts {
    /// In the order of their numbers.
    pub fn new(commands: Vec<Mailbox<Command>>) -> Self {
        Self(commands.into())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Says something to one of them. False if it is too busy, or gone.
    pub fn post(&self, part: usize, command: Command) -> bool {
        self.0.get(part).is_some_and(|commands| commands.post(command))
    }

    /// Says the same to all. False if one of them does not hear it.
    pub fn tell(&self, command: impl Fn() -> Command) -> bool {
        // All hear of it, also if the first does not.
        self.0.iter().filter(|commands| !commands.post(command())).count() == 0
    }

    /// Asks all, and waits for their answers, which come in any order. `None` if one of them does not answer within `patience`.
    pub fn ask<A>(&self, patience: Duration, question: impl Fn(SyncSender<A>) -> Command) -> Option<Vec<A>> {
        let (sender, receiver) = sync_channel(self.0.len());
        let deadline = Instant::now() + patience;
        if !self.tell(|| question(sender.clone())) {
            return None;
        }
        let answer = |_| receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        self.0.iter().map(answer).collect()
    }
}

/// When a client came to where it is, by order of all that have come. 0 is before all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Arrival(u64);

/// Which part has which client; known to all parts.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_key: FxHashMap<PublicKey, Place>,
    by_address: FxHashMap<IpAddr, Place>,
    last: Arrival,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    part: usize,
    arrival: Arrival,
}

impl Places {
    /// A client is at `part` from now on. Where it was before, if that was another part, which is to let it go.
    pub fn arrive(&self, part: usize, key: PublicKey, addresses: &[IpAddr]) -> (Arrival, Option<usize>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.last.0 += 1;
        let place = Place { part, arrival: known.last };
        let before = known.by_key.insert(key, place);
        known.by_address.extend(addresses.iter().map(|address| (*address, place)));
        (place.arrival, before.map(|before| before.part).filter(|before| *before != part))
    }

    /// A client is not where it has arrived so any more.
    pub fn leave(&self, arrival: Arrival, key: PublicKey, addresses: &[IpAddr]) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.by_key.get(&key).is_some_and(|place| place.arrival == arrival) {
            known.by_key.remove(&key);
        }
        for address in addresses {
            if known.by_address.get(address).is_some_and(|place| place.arrival == arrival) {
                known.by_address.remove(address);
            }
        }
    }

    /// The part that has the client with this address.
    pub fn of(&self, address: IpAddr) -> Option<usize> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.by_address.get(&address).map(|place| place.part)
    }
}

/// More threads than these must be asked for: each has buffers, and few lines carry what they could.
const MOST_BY_ITSELF: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_where_it_has_come_to_last() {
        let places = Places::default();
        let (van, hut) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let addresses = [address("10.86.0.2"), address("fd86::2")];
        let (first, before) = places.arrive(0, van, &addresses);
        assert_eq!(before, None);
        assert_eq!(places.arrive(1, hut, &[address("10.86.0.3")]).1, None);
        let (second, before) = places.arrive(1, van, &addresses);
        assert_eq!(before, Some(0));
        assert!(second > first && first > Arrival::default());
        places.leave(first, van, &addresses);
        assert_eq!(places.of(addresses[1]), Some(1), "it has come back since");
        assert_eq!(places.arrive(1, van, &addresses).1, None, "there is nobody else to tell");
        places.leave(second, van, &addresses);
        assert_eq!(places.of(addresses[0]), Some(1));
        assert_eq!(places.of(address("10.86.0.9")), None);
    }

    #[test]
    fn all_parts_answer_or_none() {
        let boxes: Vec<_> = (0..3).map(|_| Mailbox::new(1).unwrap()).collect();
        let parts = Parts::new(boxes.iter().map(|(mailbox, ..)| mailbox.clone()).collect());
        let busy = parts.ask(Duration::from_millis(1), Command::Connected);
        assert_eq!(busy, None, "nobody answers");
        assert_eq!(parts.ask(Duration::from_secs(5), Command::Connected), None, "nobody has room");
        let replies: Vec<_> = boxes.iter().map(|(_, commands, _)| commands.try_recv()).collect();
        assert!(replies.iter().all(Result::is_ok));
        assert!(parts.post(2, Command::Count) && !parts.tell(|| Command::Count));
        assert!(boxes.iter().all(|(_, commands, _)| matches!(commands.try_recv(), Ok(Command::Count))));
        let asked = std::thread::spawn(move || parts.ask(Duration::from_secs(5), Command::Connected));
        for (_, commands, _) in &boxes {
            let Ok(Command::Connected(reply)) = commands.recv() else { panic!("another question") };
            reply.send(Vec::new()).unwrap();
        }
        assert_eq!(asked.join().unwrap().map(|answers| answers.len()), Some(3));
    }
}
