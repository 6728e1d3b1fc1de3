//! One node: what it knows, and how what comes in goes on.

mod data;
mod discoveries;
mod errors;
mod liveness;
mod replies;
mod requests;

pub use data::{Forwarding, Way};

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use units::{NetworkId, Timestamp};
use wire::mesh::{LinkAddress, Message, Node, NodeId, RequestId, Sequence, Signature};

use crate::Hop;
use crate::allowance::Allowance;
use crate::neighbours::Neighbours;
use crate::routes::Routes;
use crate::seen::Requests;
use crate::settings::{ANSWERS_PER_SECOND, CHECKS_PER_SECOND, ERRORS_PER_SECOND, FIRST_HOP_TIME, Settings};
use crate::signer::{Signer, node_id};
use crate::suspicion::Suspicions;
use discoveries::Discovery;
use replies::Held;
use requests::{Originator, Waiting};

/// Most messages that wait to be taken away by the owner, and most events; further ones are dropped.
const MOST_WAITING: usize = 256;

/// See the module.
pub struct Router {
    settings: Settings,
    node: Node,
    id: NodeId,
    signer: Box<dyn Signer>,
    random: StdRng,
    started: Timestamp,
    /// Of requests and replies, RFC 3561 section 6.1.
    sequence: Sequence,
    /// Of hellos and errors.
    statement: Sequence,
    next_request: RequestId,
    addresses: Vec<LinkAddress>,
    routes: Routes,
    neighbours: Neighbours,
    requests: Requests,
    suspicions: Suspicions,
    discoveries: BTreeMap<NodeId, Discovery>,
    waiting: Vec<Waiting>,
    held: Vec<Held>,
    originators: BTreeMap<NodeId, Originator>,
    checks: Allowance,
    errors: Allowance,
    /// Hellos that others asked for.
    answers: Allowance,
    passing: Allowance,
    relayed: Allowance,
    hop_time: Duration,
    next_hello: Timestamp,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    counters: Counters,
}

/// A message to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// To whom.
    pub to: Recipient,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Who is to get a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// All who hear it, on every network of this node.
    Everybody,
    /// One neighbour.
    One(Hop),
}

/// What the owner should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// There is a way to a node that was looked for.
    Found {
        /// The node.
        destination: NodeId,
        /// How far it is.
        hops: u8,
    },
    /// The way to a node that is wanted has ended; another is looked for.
    Lost(NodeId),
    /// A search has found nobody; it is tried again after a pause, until [`Router::release`].
    Nobody(NodeId),
}

/// What a node has done, in messages unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Requests of its own.
    pub requests: u64,
    /// Requests of others that it has passed on.
    pub requests_passed_on: u64,
    /// Requests that it has kept back, as others had passed them on.
    pub requests_suppressed: u64,
    /// Replies, its own and others'.
    pub replies: u64,
    /// Errors.
    pub errors: u64,
    /// Hellos.
    pub hellos: u64,
    /// Bytes of all those.
    pub control_bytes: u64,
    /// Packets of others that it has passed on.
    pub data_passed_on: u64,
    /// Packets of others that it has dropped: no way, too many, or too far.
    pub data_dropped: u64,
    /// Messages that were not heeded: forged, stale, malformed, or too many.
    pub refused: u64,
}

impl Counters {
    /// Of two nodes together.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            requests_passed_on: self.requests_passed_on + other.requests_passed_on,
            requests_suppressed: self.requests_suppressed + other.requests_suppressed,
            replies: self.replies + other.replies,
            errors: self.errors + other.errors,
            hellos: self.hellos + other.hellos,
            control_bytes: self.control_bytes + other.control_bytes,
            data_passed_on: self.data_passed_on + other.data_passed_on,
            data_dropped: self.data_dropped + other.data_dropped,
            refused: self.refused + other.refused,
        }
    }
}

impl Router {
    /// A node. `first` is where its sequence numbers begin: above those of an earlier life of the same node, as a count of time is; `seed` decides its
    /// jitter and where its request numbers begin.
    pub fn new(
        now: Timestamp,
        settings: Settings,
        node: Node,
        signer: Box<dyn Signer>,
        first: Sequence,
        seed: u64,
    ) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let relaying = settings.relaying;
        let control = u64::from(relaying.map_or(0, |relaying| relaying.control_per_second));
        let bytes = relaying.map_or(0, |relaying| relaying.rate.0 / 8);
        let per_second = |count: u32| Allowance::new(now, u64::from(count), u64::from(count));
        let next_request = RequestId(random.random());
        let next_hello = match relaying {
            Some(_) => now + Duration::from_millis(random.random_range(0..1_000)),
            None => Timestamp::FAR_FUTURE,
        };
        Self {
            id: node_id(&node),
            node,
            settings,
            signer,
            random,
            started: now,
            sequence: first,
            statement: first,
            next_request,
            addresses: Vec::new(),
            routes: Routes::default(),
            neighbours: Neighbours::default(),
            requests: Requests::default(),
            suspicions: Suspicions::default(),
            discoveries: BTreeMap::new(),
            waiting: Vec::new(),
            held: Vec::new(),
            originators: BTreeMap::new(),
            checks: per_second(CHECKS_PER_SECOND),
            errors: per_second(ERRORS_PER_SECOND),
            answers: per_second(ANSWERS_PER_SECOND),
            passing: Allowance::new(now, control, control),
            // A fifth of a second's worth at once, and a few packets at least.
            relayed: Allowance::new(now, bytes, (bytes / 5).max(65_536)),
            hop_time: FIRST_HOP_TIME,
            next_hello,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// This node's short name.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether it passes on what others send.
    pub fn relays(&self) -> bool {
        self.settings.relaying.is_some()
    }

    /// How many nodes beside this one were heard lately.
    pub fn neighbours(&self, now: Timestamp) -> usize {
        self.neighbours.heard_within(now, liveness::PRESENT)
    }

    /// Where this node is reached, for those beside it.
    pub fn set_addresses(&mut self, addresses: Vec<LinkAddress>) {
        self.addresses = addresses;
    }

    /// A message that is no data has come from a neighbour.
    pub fn handle_message(&mut self, now: Timestamp, from: Hop, bytes: &[u8]) {
        let may_speak = self.neighbours.hear(now, from).may_speak(now);
        let message = Message::parse(bytes).ok().filter(|_| may_speak);
        let heeded = match message {
            Some(Message::Request(request)) => self.on_request(now, from, request),
            Some(Message::Reply(reply)) => self.on_reply(now, from, reply),
            Some(Message::Error(error)) => self.on_error(now, from, &error),
            Some(Message::Hello(hello)) => self.on_hello(now, from, &hello),
            Some(Message::Data(..)) | None => false,
        };
        if !heeded {
            self.counters.refused += 1;
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.pass_on_what_waited(now);
        self.take_what_was_held(now);
        self.go_on_searching(now);
        self.ask_the_silent(now);
        self.say_hello(now);
    }

    /// When [`Router::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let waiting = self.waiting.iter().map(|waiting| waiting.due);
        let held = self.held.iter().map(|held| held.due);
        let searches = self.discoveries.values().filter_map(Discovery::due);
        let asked = self.neighbours.iter().map(|(_, neighbour)| neighbour.ask_at);
        let all = waiting.chain(held).chain(searches).chain(asked).chain([self.next_hello]);
        all.min().filter(|due| *due < Timestamp::FAR_FUTURE)
    }

    /// The next message to be sent.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A network of this node has gone: nobody is reached by it.
    pub fn network_gone(&mut self, now: Timestamp, network: NetworkId) {
        let hops: Vec<Hop> =
            self.neighbours.iter().map(|(hop, _)| hop).filter(|hop| hop.network == network).collect();
        for hop in hops {
            self.hop_lost(now, hop);
        }
    }

    fn send(&mut self, to: Recipient, bytes: Vec<u8>) {
        if self.transmits.len() >= MOST_WAITING {
            return;
        }
        self.counters.control_bytes += bytes.len() as u64;
        self.transmits.push_back(Transmit { to, bytes });
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() < MOST_WAITING {
            self.events.push_back(event);
        }
    }

    fn next_statement(&mut self) -> Sequence {
        self.statement = self.statement.next();
        self.statement
    }

    /// Whether a signature is right; false also if there were too many to check.
    fn is_signed(&mut self, now: Timestamp, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
        self.checks.take(now, 1) && self.signer.has_signed(key, message, signature)
    }
}
