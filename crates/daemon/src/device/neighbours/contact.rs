//! What is believed of one neighbour: which of its runs is alive, where it is on each link. Pure.
//!
//! ```text
//!            hello without a good echo: only answered
//!   unknown ------------------------------------------+
//!      |  ^-------------------------------------------+
//!      | hello that echoes a number which was sent over this link at most 3 s ago
//!      v
//!   proven run: every hello with a higher number and a good echo is a sign of life
//! ```
//!
//! A repeated hello has an old number, one of an earlier run echoes nothing of ours, one that was held back echoes an old number.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use units::{NetworkId, Timestamp};
use wire::neighbour::{Echo, Hello, Number};

/// What is remembered of one neighbour.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    /// The run that has answered us.
    epoch: Option<u64>,
    links: BTreeMap<NetworkId, ContactLink>,
    broadcasts: Window,
}

/// The same for one link.
#[derive(Clone, Debug, Default)]
struct ContactLink {
    /// Where the proven run is.
    address: Option<IpAddr>,
    /// Our numbers that may be echoed yet.
    sent: VecDeque<(u64, Timestamp)>,
    /// The last number of the proven run.
    last: Option<(Number, Timestamp)>,
    answered: Option<Timestamp>,
    /// Its first beacon over IPv4, while it is not met.
    heard_v4: Option<Timestamp>,
}

/// What a hello means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was here before, or is one too many.
    Ignore,
    /// It may come from the neighbour: to be answered with this echo and a question.
    Challenge(Echo),
    /// It comes from the neighbour, which does not hear us here.
    Deaf,
    /// The neighbour is alive here.
    Alive(Duration),
}

impl Contact {
    /// Our hello with this number leaves over `network`; gives the echo that it is to carry.
    pub fn on_sent(&mut self, now: Timestamp, network: NetworkId, number: u64) -> Option<Echo> {
        let link = self.links.entry(network).or_default();
        link.sent.push_back((number, now));
        while link.sent.len() > MOST_SENT {
            link.sent.pop_front();
        }
        let (of, at) = link.last?;
        let held_micros = u32::try_from(now.since(at).as_micros()).unwrap_or(u32::MAX);
        Some(Echo { of, held_micros })
    }

    /// A hello was opened with the neighbour's key; it came over `network` from `from`, and our own run is `epoch`.
    pub fn on_hello(
        &mut self,
        now: Timestamp,
        network: NetworkId,
        from: IpAddr,
        epoch: u64,
        hello: &Hello,
    ) -> Outcome {
        let link = self.links.entry(network).or_default();
        let echoed = hello.echo.filter(|echo| echo.of.epoch == epoch).and_then(|echo| {
            let (_, at) = link.sent.iter().find(|(number, _)| *number == echo.of.number)?;
            let took = now.since(*at);
            (took <= ECHO_LIFETIME)
                .then(|| took.saturating_sub(Duration::from_micros(echo.held_micros.into())))
        });
        if self.epoch == Some(hello.number.epoch) {
            if link.last.is_some_and(|(last, _)| hello.number.number <= last.number) {
                return Outcome::Ignore;
            }
        } else if echoed.is_none() {
            if link.answered.is_some_and(|at| now.since(at) < CHALLENGE_PAUSE) {
                return Outcome::Ignore;
            }
            link.answered = Some(now);
            return Outcome::Challenge(Echo { of: hello.number, held_micros: 0 });
        } else {
            self.epoch = Some(hello.number.epoch);
            self.broadcasts = Window::default();
            for link in self.links.values_mut() {
                link.last = None;
            }
        }
        let link = self.links.entry(network).or_default();
        link.last = Some((hello.number, now));
        let Some(rtt) = echoed else { return Outcome::Deaf };
        link.address = Some(from);
        Outcome::Alive(rtt)
    }

    /// What the neighbour knows this link by: the last number that came from it there.
    pub fn last(&self, network: NetworkId) -> Option<Number> {
        self.links.get(&network)?.last.map(|(number, _)| number)
    }

    /// The neighbour says with its message `number` that it has left the link over which our number `of` had come to it. Gives that
    /// link, unless what it says is old.
    pub fn on_left(&mut self, now: Timestamp, own: u64, number: Number, of: Number) -> Option<NetworkId> {
        if self.epoch != Some(number.epoch) || of.epoch != own {
            return None;
        }
        let mut links = self.links.iter_mut();
        let (network, link) = links.find(|(_, link)| link.sent.iter().any(|(sent, _)| *sent == of.number))?;
        if link.last.is_some_and(|(last, _)| number.number <= last.number) {
            return None;
        }
        // What it had said there before and comes late says nothing any more.
        (link.address, link.last) = (None, Some((number, now)));
        Some(*network)
    }

    /// A beacon came over IPv4 where IPv6 works on our side: whether it is to be answered, since IPv6, which carries both families,
    /// has had its time.
    pub fn takes_v4(&mut self, now: Timestamp, network: NetworkId) -> bool {
        let first = *self.links.entry(network).or_default().heard_v4.get_or_insert(now);
        now.since(first) >= V6_LEAD
    }

    /// Whether a broadcast of the proven run is to be taken: not one that was taken before, or that is too old to tell.
    pub fn takes_broadcast(&mut self, number: Number) -> bool {
        self.epoch == Some(number.epoch) && self.broadcasts.take(number.number)
    }

    /// Where it is on that link.
    pub fn address(&self, network: NetworkId) -> Option<IpAddr> {
        self.links.get(&network)?.address
    }

    /// The links on which it is, or was.
    pub fn addresses(&self) -> impl Iterator<Item = (NetworkId, IpAddr)> + '_ {
        self.links.iter().filter_map(|(network, link)| Some((*network, link.address?)))
    }

    /// It was silent there for too long, or the link is gone.
    pub fn forget(&mut self, network: NetworkId) {
        self.links.remove(&network);
    }
}

/// Numbers that were taken: the highest, and which of the 128 before it.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    highest: Option<u64>,
    taken: u128,
}

impl Window {
    fn take(&mut self, number: u64) -> bool {
        let highest = *self.highest.get_or_insert(number);
        if number > highest {
            let ahead = u32::try_from(number - highest).unwrap_or(u32::MAX);
            self.taken = self.taken.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = Some(number);
            return true;
        }
        let Some(bit) = u32::try_from(highest - number).ok().and_then(|behind| 1_u128.checked_shl(behind))
        else {
            return false;
        };
        let is_new = self.taken & bit == 0;
        self.taken |= bit;
        is_new
    }
}

/// Longer than any round trip on a link.
const ECHO_LIFETIME: Duration = Duration::from_secs(3);
/// Numbers that may be echoed at the fastest pace.
const MOST_SENT: usize = 1_024;
/// Several of the first beacons, and the search for a next hop.
const V6_LEAD: Duration = Duration::from_secs(1);
const CHALLENGE_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: NetworkId = NetworkId(0);
    const OTHER: NetworkId = NetworkId(1);
    const OWN: u64 = 77;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn here() -> IpAddr {
        "fe80::2".parse().unwrap()
    }

    fn hello(epoch: u64, number: u64, echo: Option<u64>) -> Hello {
        let echo = echo.map(|number| Echo { of: Number { epoch: OWN, number }, held_micros: 1_000 });
        let number = Number { epoch, number };
        Hello { number, link_address: here(), any0_v4: None, asks: true, echo }
    }

    fn hear(contact: &mut Contact, ms: u64, network: NetworkId, hello: &Hello) -> Outcome {
        contact.on_hello(at(ms), network, here(), OWN, hello)
    }

    #[test]
    fn only_an_echo_proves_that_somebody_is_there_now() {
        let mut contact = Contact::default();
        let first = hello(5, 1, None);
        let challenge = Outcome::Challenge(Echo { of: first.number, held_micros: 0 });
        assert_eq!(hear(&mut contact, 0, LAN, &first), challenge);
        assert_eq!(hear(&mut contact, 50, LAN, &first), Outcome::Ignore, "answers are bounded");
        assert_eq!(contact.address(LAN), None);
        contact.on_sent(at(200), LAN, 40);
        let proof = hello(5, 2, Some(40));
        assert_eq!(hear(&mut contact, 204, LAN, &proof), Outcome::Alive(Duration::from_millis(3)));
        assert_eq!(contact.address(LAN), Some(here()));
        assert_eq!(hear(&mut contact, 205, LAN, &proof), Outcome::Ignore, "a repetition");
        assert_eq!(hear(&mut contact, 206, LAN, &hello(5, 3, None)), Outcome::Deaf);
        let echo = contact.on_sent(at(208), LAN, 41).unwrap();
        assert_eq!((echo.of.number, echo.held_micros), (3, 2_000));
    }

    #[test]
    fn what_is_repeated_moved_or_held_back_changes_nothing() {
        let mut contact = Contact::default();
        contact.on_sent(at(0), LAN, 1);
        assert!(matches!(hear(&mut contact, 1, LAN, &hello(5, 1, Some(1))), Outcome::Alive(_)));
        contact.on_sent(at(10), LAN, 2);
        let held_back = hello(5, 9, Some(2));
        // On another link it echoes nothing that was sent there.
        assert_eq!(hear(&mut contact, 11, OTHER, &held_back), Outcome::Deaf);
        assert_eq!(contact.address(OTHER), None);
        assert_eq!(
            hear(&mut contact, 4_000, LAN, &held_back),
            Outcome::Deaf,
            "too late to be a sign of life"
        );
        // An earlier run, recorded when it was alive.
        assert!(matches!(hear(&mut contact, 4_001, LAN, &hello(4, 100, Some(1))), Outcome::Challenge(_)));
        contact.on_sent(at(4_010), LAN, 3);
        assert!(
            matches!(hear(&mut contact, 4_011, LAN, &hello(6, 1, Some(3))), Outcome::Alive(_)),
            "a new run"
        );
        assert!(matches!(hear(&mut contact, 4_200, LAN, &hello(5, 10, None)), Outcome::Challenge(_)));
        for number in 0..3_000 {
            contact.on_sent(at(5_000), LAN, number);
        }
        assert!(contact.links[&LAN].sent.len() <= MOST_SENT);
    }

    #[test]
    fn a_link_that_was_left_is_named_by_what_had_come_over_it() {
        let mut contact = Contact::default();
        for (network, sent) in [(LAN, 1), (OTHER, 2)] {
            contact.on_sent(at(0), network, sent);
            assert!(matches!(hear(&mut contact, 1, network, &hello(5, sent, Some(sent))), Outcome::Alive(_)));
        }
        let number = |epoch, number| Number { epoch, number };
        let of = |sent| number(OWN, sent);
        assert_eq!(contact.last(LAN), Some(number(5, 1)));
        assert_eq!(contact.on_left(at(2), OWN, number(4, 9), of(1)), None, "of an earlier run");
        assert_eq!(contact.on_left(at(2), OWN, number(5, 9), number(3, 1)), None, "to an earlier run");
        assert_eq!(contact.on_left(at(2), OWN, number(5, 9), of(7)), None, "never sent");
        assert_eq!(contact.on_left(at(2), OWN, number(5, 3), of(1)), Some(LAN));
        assert_eq!((contact.address(LAN), contact.address(OTHER)), (None, Some(here())));
        assert_eq!(hear(&mut contact, 3, LAN, &hello(5, 2, Some(1))), Outcome::Ignore, "said before it left");
        assert!(matches!(hear(&mut contact, 4, LAN, &hello(5, 4, Some(1))), Outcome::Alive(_)), "back");
        assert_eq!(contact.on_left(at(5), OWN, number(5, 3), of(1)), None, "a repetition");
        assert_eq!(contact.address(LAN), Some(here()));
    }

    #[test]
    fn each_broadcast_is_taken_once() {
        let mut contact = Contact::default();
        let broadcast = |epoch, number| Number { epoch, number };
        assert!(!contact.takes_broadcast(broadcast(5, 1)), "nobody is proven yet");
        contact.on_sent(at(0), LAN, 1);
        hear(&mut contact, 1, LAN, &hello(5, 1, Some(1)));
        let taken = |contact: &mut Contact, numbers: &[u64]| -> Vec<u64> {
            numbers.iter().copied().filter(|number| contact.takes_broadcast(broadcast(5, *number))).collect()
        };
        assert_eq!(taken(&mut contact, &[10, 10, 12, 11, 12, 11, 10, 9]), [10, 12, 11, 9]);
        assert_eq!(
            taken(&mut contact, &[1_000, 12, 1_000, 873, 872, 999]),
            [1_000, 873, 999],
            "too old to tell"
        );
        assert!(!contact.takes_broadcast(broadcast(4, 2_000)), "of another run");
    }
}
