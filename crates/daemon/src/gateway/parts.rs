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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bond::PublicKey;
use rustc_hash::FxHashMap;

use super::messages::Command;
use crate::dataplane::MovedConnection;
use crate::mailbox::Mailbox;

/// How many parts a gateway has: as its configuration says, or one for each processor.
pub fn count(configured: Option<NonZeroU8>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from).min(MOST_BY_ITSELF);
    configured.map_or_else(processors, |configured| configured.get().into())
}

/// The loops of all parts, by their numbers.
#[derive(Clone)]
pub struct Parts(Arc<[Loop]>);

struct Loop {
    commands: Mailbox<Command>,
    /// Sizes of what it was given and has not taken out, added up.
    waiting: AtomicUsize,
}

impl Parts {
    /// In the order of their numbers.
    pub fn new(commands: Vec<Mailbox<Command>>) -> Self {
        Self(commands.into_iter().map(|commands| Loop { commands, waiting: AtomicUsize::new(0) }).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Says something to one of them. False if it is too busy, or gone.
    pub fn post(&self, part: usize, command: Command) -> bool {
        self.0.get(part).is_some_and(|of| of.commands.post(command))
    }

    /// Gives what has come from the network to the part that it is for. What that has no room for is lost, as on a full link: there
    /// is always room for what is said with [`Parts::post`].
    pub fn give(&self, part: usize, given: Given) {
        let Some(Loop { commands, waiting, .. }) = self.0.get(part) else { return };
        let size = given.size();
        if waiting.load(Ordering::Relaxed) + size > MOST_WAITING {
            return;
        }
        waiting.fetch_add(size, Ordering::Relaxed);
        if !commands.post(Command::Given(given)) {
            waiting.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// A part has taken out what it was given.
    pub fn took(&self, part: usize, given: &Given) {
        if let Some(of) = self.0.get(part) {
            of.waiting.fetch_sub(given.size(), Ordering::Relaxed);
        }
    }

    /// Says the same to all. False if one of them does not hear it.
    pub fn tell(&self, command: impl Fn() -> Command) -> bool {
        // All hear of it, also if the first does not.
        self.0.iter().filter(|of| !of.commands.post(command())).count() == 0
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

/// What has come to one part from the network and is for another.
pub enum Given {
    /// Packets for its clients, from a queue of the interface.
    Packets(Vec<Vec<u8>>),
    /// A connection whose other end speaks with it.
    Connection(Box<MovedConnection>),
}

impl Given {
    /// In bytes, with what each message costs beside them.
    fn size(&self) -> usize {
        LEAST_SIZE
            + match self {
                Self::Packets(packets) => packets.iter().map(Vec::len).sum(),
                Self::Connection(connection) => connection.size(),
            }
    }
}

/// When the gateway let a client in, by order of all that it has let in. 0 is before all.
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

/// What becomes of a client that has used the keys of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// It is at this part from now on; another part where it was is to let it go.
    Here {
        /// The number of that part.
        before: Option<usize>,
    },
    /// It has come to another part since it was let in here: what came was late, or somebody has kept it.
    Late,
}

impl Places {
    /// A client is let in somewhere: nobody knows yet whether it comes.
    pub fn next(&self) -> Arrival {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.last.0 += 1;
        known.last
    }

    /// A client that was let in at `part` has come.
    pub fn arrive(&self, part: usize, arrival: Arrival, key: PublicKey, addresses: &[IpAddr]) -> Arrived {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = Place { part, arrival };
        let before = known.by_key.get(&key).filter(|before| before.part != part).copied();
        if before.is_some_and(|before| before.arrival > arrival) {
            return Arrived::Late;
        }
        known.by_key.insert(key, place);
        known.by_address.extend(addresses.iter().map(|address| (*address, place)));
        Arrived::Here { before: before.map(|before| before.part) }
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
/// Sizes of what waits for a part, added up: what a read of a full queue brings, and as much again.
const MOST_WAITING: usize = 4 << 20;
/// So that no more than 256 wait, a quarter of the box: the rest is for what must not be lost.
const LEAST_SIZE: usize = MOST_WAITING / 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_where_it_has_come_to_last() {
        let places = Places::default();
        let (van, hut) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let address = |text: &str| -> IpAddr { text.parse().unwrap() };
        let addresses = [address("10.86.0.2"), address("fd86::2")];
        let here = |before| Arrived::Here { before };
        let [first, late, second, third] = std::array::from_fn(|_| places.next());
        assert!(second > first && first > Arrival::default());
        assert_eq!(places.arrive(0, first, van, &addresses), here(None));
        assert_eq!(places.arrive(1, places.next(), hut, &[address("10.86.0.3")]), here(None));
        assert_eq!(places.arrive(1, second, van, &addresses), here(Some(0)));
        // What was kept back from before comes to where it was let in.
        assert_eq!(places.arrive(2, late, van, &addresses), Arrived::Late);
        places.leave(first, van, &addresses);
        assert_eq!(places.of(addresses[1]), Some(1), "it has come back since");
        assert_eq!(places.arrive(1, third, van, &addresses), here(None), "there is nobody else to tell");
        places.leave(second, van, &addresses);
        assert_eq!(places.of(addresses[0]), Some(1));
        assert_eq!(places.of(address("10.86.0.9")), None);
    }

    #[test]
    fn no_more_packets_wait_than_there_is_room_for() {
        let (mailbox, commands, _waker) = Mailbox::new(1_024).unwrap();
        let parts = Parts::new(vec![mailbox]);
        let waiting = || -> Vec<Given> {
            let given = |command| match command {
                Command::Given(given) => given,
                _ => panic!("another command"),
            };
            commands.try_iter().map(given).collect()
        };
        let packets = |length: usize| Given::Packets(vec![vec![7; length / 2]; 2]);
        for _ in 0..10 {
            parts.give(0, packets(1 << 20));
        }
        parts.give(1, packets(1 << 20));
        let first = waiting();
        assert_eq!(first.len(), 3, "three of a mebibyte and a little");
        parts.took(0, &first[0]);
        parts.give(0, packets(1 << 20));
        parts.give(0, packets(1 << 20));
        let second = waiting();
        assert_eq!(second.len(), 1);
        first[1..].iter().chain(&second).for_each(|given| parts.took(0, given));
        assert_eq!(parts.0[0].waiting.load(Ordering::Relaxed), 0);
        for _ in 0..1_000 {
            parts.give(0, packets(2));
        }
        let small = waiting();
        assert_eq!(small.len(), 255, "there is room for words");
        small.iter().for_each(|given| parts.took(0, given));
        drop(commands);
        parts.give(0, packets(2));
        assert_eq!(parts.0[0].waiting.load(Ordering::Relaxed), 0, "nobody reads it any more");
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
