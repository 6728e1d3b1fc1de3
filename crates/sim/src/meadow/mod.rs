//! People with radios in a meadow, who pass on each other's packets: [`mesh::Router`]s on one Wi-Fi channel, standing or walking.
//!
//! Pure: positions, walks, losses and back-offs come from one seed. Signatures are the caller's ([`mesh::Signer`]).

mod air;
mod conversation;

pub use conversation::Told;

use std::net::Ipv4Addr;
use std::time::Duration;

use mesh::{Counters, Event, Forwarding, Hop, Recipient, Router, Settings, Signer};
use units::{NetworkId, Timestamp};
use wire::mesh::{DATA_HEADER_LEN, DataHeader, LinkAddress, Message, Node, NodeId, Sequence, is_mesh};

use crate::{EventQueue, SeededRandom};
use air::{Air, Due, Ended};
use conversation::{Conversation, INTERVAL};

/// Positions are looked at this often.
const STEP: Duration = Duration::from_millis(250);
/// Bytes of a conversation's packets behind the header.
const PAYLOAD: usize = 100;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// Positions, for a range of 100 m, with two ways of four hops: the upper 0 1 2 3 4 and the lower 0 5 6 7 4.
pub const TWO_WAYS: [(f64, f64); 8] = [
    (0.0, 0.0),
    (70.0, 60.0),
    (160.0, 60.0),
    (250.0, 60.0),
    (320.0, 0.0),
    (70.0, -60.0),
    (160.0, -60.0),
    (250.0, -60.0),
];

/// Where and how the nodes are.
#[derive(Clone, Debug)]
pub struct MeadowSpec {
    /// Where each node stands at first, metres.
    pub positions: Vec<(f64, f64)>,
    /// How far each is heard, metres.
    pub range: f64,
    /// Share of frames that fade away by themselves.
    pub loss: f64,
    /// How fast they walk, metres a second, each to places of its own within the area of all; 0 if they stand.
    pub speed: f64,
    /// Decides chance.
    pub seed: u64,
}

/// How a node behaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Conduct {
    /// As it should.
    #[default]
    Honest,
    /// It is off.
    Dead,
    /// It takes part in the routing, makes itself look as near as can be, and drops all data.
    BlackHole,
    /// It passes data on with bytes changed, twice, and every other packet late.
    Garbler,
}

/// A search for a way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Search {
    /// Who looks.
    pub from: usize,
    /// For whom.
    pub to: usize,
    /// When it began.
    pub began: Timestamp,
    /// How long it took and how many hops the way has, if one was found.
    pub found: Option<(Duration, u8)>,
}

/// Control messages of all nodes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ControlTraffic {
    /// Messages that were sent, requests among them, and bytes.
    pub sent: u64,
    /// See `sent`.
    pub requests_sent: u64,
    /// See `sent`.
    pub bytes_sent: u64,
    /// Messages that were heard, by each who heard.
    pub heard: u64,
}

struct Member {
    router: Router,
    conduct: Conduct,
    position: (f64, f64),
    goal: (f64, f64),
    timer: Timestamp,
}

#[derive(Clone, Debug)]
enum Happening {
    Air(Due),
    Timer(usize),
    Walk,
    Talk(usize),
    Late(usize, usize, Vec<u8>),
}

/// See the module.
pub struct Meadow {
    now: Timestamp,
    spec: MeadowSpec,
    members: Vec<Member>,
    air: Air,
    happenings: EventQueue<Happening>,
    random: SeededRandom,
    conversations: Vec<Conversation>,
    searches: Vec<Search>,
    control: ControlTraffic,
    /// Data that arrived and is not what was sent.
    wrong: u64,
}

impl Meadow {
    /// Nodes with these settings; `identity` makes who each is.
    pub fn new(
        spec: MeadowSpec,
        settings: &Settings,
        identity: impl Fn(usize) -> (Node, Box<dyn Signer>),
    ) -> Self {
        let mut random = SeededRandom::derive(spec.seed, "meadow");
        let now = Timestamp::from_millis(1);
        let members: Vec<Member> = spec
            .positions
            .iter()
            .enumerate()
            .map(|(index, position)| {
                let (node, signer) = identity(index);
                let router = Router::new(
                    now,
                    settings.clone(),
                    node,
                    signer,
                    Sequence(u32::MAX - 5),
                    random.next_u64(),
                );
                Member {
                    router,
                    conduct: Conduct::Honest,
                    position: *position,
                    goal: *position,
                    timer: Timestamp::FAR_FUTURE,
                }
            })
            .collect();
        let air = Air::new(members.len(), spec.loss, spec.seed);
        let mut happenings = EventQueue::new();
        happenings.insert(now, Happening::Walk);
        let mut meadow = Self {
            now,
            spec,
            members,
            air,
            happenings,
            random,
            conversations: Vec::new(),
            searches: Vec::new(),
            control: ControlTraffic::default(),
            wrong: 0,
        };
        meadow.look_around();
        (0..meadow.members.len()).for_each(|node| meadow.drain(node));
        meadow
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// A node's short name.
    pub fn id(&self, node: usize) -> NodeId {
        self.members.get(node).map_or(NodeId([0; 16]), |member| member.router.id())
    }

    /// What a node has done.
    pub fn counters(&self, node: usize) -> Counters {
        self.members.get(node).map_or_else(Counters::default, |member| member.router.counters())
    }

    /// All that was said to find ways.
    pub fn control_traffic(&self) -> ControlTraffic {
        self.control
    }

    /// Packets that arrived changed and were taken for right by the mesh; the ends' seals, which are not modelled, refuse them.
    pub fn changed_packets(&self) -> u64 {
        self.wrong
    }

    /// How many others a node hears, on average over all.
    pub fn mean_neighbours(&self) -> f64 {
        let sum: usize = (0..self.members.len()).map(|node| self.air.near(node).len()).sum();
        sum as f64 / self.members.len().max(1) as f64
    }

    /// Fewest hops between two nodes, if there is a way.
    pub fn distance(&self, from: usize, to: usize) -> Option<u32> {
        let mut distances = vec![None; self.members.len()];
        *distances.get_mut(from)? = Some(0u32);
        let mut reached = vec![from];
        while let Some(next) = (!reached.is_empty()).then(|| reached.remove(0)) {
            let further = distances.get(next).copied().flatten()? + 1;
            for &near in self.air.near(next) {
                if let Some(distance @ None) = distances.get_mut(near) {
                    *distance = Some(further);
                    reached.push(near);
                }
            }
        }
        distances.get(to).copied().flatten()
    }

    /// Nodes on the way between two, as the first hops are now, without the first and the last.
    pub fn relays_between(&self, from: usize, to: usize) -> Vec<usize> {
        let (mut relays, mut at) = (Vec::new(), from);
        while relays.len() < self.members.len() {
            let way = self.members.get(at).and_then(|member| member.router.way(self.now, self.id(to)));
            let Some(next) = way.and_then(|way| index_of(way.next)) else { break };
            if next == to {
                break;
            }
            relays.push(next);
            at = next;
        }
        relays
    }

    /// Makes a node behave so from now on.
    pub fn set_conduct(&mut self, node: usize, conduct: Conduct) {
        if let Some(member) = self.members.get_mut(node) {
            member.conduct = conduct;
        }
    }

    /// One node looks for a way to another; the result is among [`Meadow::searches`].
    pub fn find(&mut self, from: usize, to: usize) {
        self.searches.push(Search { from, to, began: self.now, found: None });
        let destination = self.id(to);
        if let Some(member) = self.members.get_mut(from) {
            member.router.find(self.now, destination);
        }
        self.drain(from);
    }

    /// A way is not wanted any more.
    pub fn release(&mut self, from: usize, to: usize) {
        let destination = self.id(to);
        if let Some(member) = self.members.get_mut(from) {
            member.router.release(destination);
        }
    }

    /// All searches so far.
    pub fn searches(&self) -> &[Search] {
        &self.searches
    }

    /// Two nodes talk from now on; its number.
    pub fn talk(&mut self, asking: usize, asked: usize) -> usize {
        self.find(asking, asked);
        self.conversations.push(Conversation::new(asking, asked));
        let number = self.conversations.len() - 1;
        self.happenings.insert(self.now, Happening::Talk(number));
        number
    }

    /// What a conversation came to so far.
    pub fn told(&mut self, conversation: usize) -> Told {
        let now = self.now;
        self.conversations.get_mut(conversation).map_or_else(Told::default, |known| {
            known.note_gap(now);
            known.told.clone()
        })
    }

    /// A node sends something as it is to another, or to all near it: for tests of what should be refused.
    pub fn inject(&mut self, from: usize, to: Option<usize>, bytes: Vec<u8>) {
        self.put_on_air(from, to, bytes);
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, happening)) = self.happenings.pop_due(end) {
            self.now = at;
            match happening {
                Happening::Air(due) => self.on_air(due),
                Happening::Timer(node) => self.on_timer(node),
                Happening::Walk => self.walk(),
                Happening::Talk(number) => self.on_talk(number),
                Happening::Late(from, to, bytes) => self.put_on_air(from, Some(to), bytes),
            }
        }
        self.now = end;
    }

    fn on_air(&mut self, due: Due) {
        let next = match due {
            Due::Try(node) => self.air.attempt(self.now, node),
            Due::End(number) => {
                let Some(Ended { frame, understood, next }) = self.air.end(self.now, number) else { return };
                for hearer in understood {
                    self.hear(hearer, frame.from, &frame.bytes);
                }
                next
            }
        };
        if let Some((at, due)) = next {
            self.happenings.insert(at, Happening::Air(due));
        }
    }

    fn put_on_air(&mut self, from: usize, to: Option<usize>, bytes: Vec<u8>) {
        if self.members.get(from).is_none_or(|member| member.conduct == Conduct::Dead) {
            return;
        }
        if let Some((at, due)) = self.air.send(self.now, from, to, bytes) {
            self.happenings.insert(at, Happening::Air(due));
        }
    }

    fn hear(&mut self, node: usize, from: usize, bytes: &[u8]) {
        let now = self.now;
        let Some(member) = self.members.get_mut(node).filter(|member| member.conduct != Conduct::Dead) else {
            return;
        };
        debug_assert!(is_mesh(bytes));
        if let Ok(Message::Data(header, payload)) = Message::parse(bytes) {
            match member.router.handle_data(now, hop_of(from), header, bytes.len()) {
                Forwarding::Deliver => self.deliver(node, header, payload.to_vec()),
                Forwarding::PassOn(hop, header) => self.pass_on(node, hop, header, payload),
                Forwarding::Drop => {}
            }
        } else {
            self.control.heard += 1;
            member.router.handle_message(now, hop_of(from), bytes);
        }
        self.drain(node);
    }

    fn pass_on(&mut self, node: usize, hop: Hop, header: DataHeader, payload: &[u8]) {
        let (Some(to), Some(member)) = (index_of(hop), self.members.get(node)) else { return };
        let mut bytes = packet(header, payload);
        match member.conduct {
            Conduct::BlackHole | Conduct::Dead => {}
            Conduct::Honest => self.put_on_air(node, Some(to), bytes),
            Conduct::Garbler => {
                self.put_on_air(node, Some(to), bytes.clone());
                let at = DATA_HEADER_LEN + (self.random.unit() * PAYLOAD as f64) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 0x55;
                }
                let late = self.now + Duration::from_millis(30);
                self.happenings.insert(late, Happening::Late(node, to, bytes));
            }
        }
    }

    fn deliver(&mut self, node: usize, header: DataHeader, payload: Vec<u8>) {
        let (Some(kind), Some(number)) = (payload.first().copied(), payload.get(1..5)) else { return };
        if payload.get(5..).is_some_and(|rest| rest.iter().any(|byte| *byte != 7)) {
            self.wrong += 1;
            return;
        }
        let number = u32::from_be_bytes(number.try_into().unwrap_or_default());
        let ends = |one: usize, other: usize| self.id(one) == header.source && other == node;
        match kind {
            QUESTION => {
                let asking = self.conversations.iter().find(|known| ends(known.asking, known.asked));
                let Some(asking) = asking.map(|known| known.asking) else { return };
                let asking = self.id(asking);
                self.send_data(node, asking, ANSWER, number);
            }
            ANSWER => {
                let at = self.conversations.iter().position(|known| ends(known.asked, known.asking));
                let Some(known) = at.and_then(|at| self.conversations.get_mut(at)) else { return };
                known.answer(self.now, number);
                let source = header.source;
                if let Some(member) = self.members.get_mut(node) {
                    member.router.confirm(source);
                }
            }
            _ => {}
        }
    }

    /// Whether there was a way.
    fn send_data(&mut self, node: usize, destination: NodeId, kind: u8, number: u32) -> bool {
        let Some(member) = self.members.get_mut(node) else { return false };
        let Some((hop, header)) = member.router.next_hop(self.now, destination) else { return false };
        let mut payload = vec![kind];
        payload.extend(number.to_be_bytes());
        payload.resize(PAYLOAD, 7);
        self.put_on_air(node, index_of(hop), packet(header, &payload));
        true
    }

    fn on_talk(&mut self, number: usize) {
        let now = self.now;
        let Some(known) = self.conversations.get_mut(number) else { return };
        let (asking, asked, next) = (known.asking, known.asked, known.next());
        let is_silent = known.is_silent(now);
        let destination = self.id(asked);
        if is_silent && let Some(member) = self.members.get_mut(asking) {
            member.router.give_up(now, destination);
        }
        let sent = self.send_data(asking, destination, QUESTION, next);
        if sent && let Some(known) = self.conversations.get_mut(number) {
            known.sent(now);
        }
        self.drain(asking);
        self.happenings.insert(now + INTERVAL, Happening::Talk(number));
    }

    fn on_timer(&mut self, node: usize) {
        let Some(member) = self.members.get_mut(node) else { return };
        member.timer = Timestamp::FAR_FUTURE;
        if member.router.poll_timeout().is_some_and(|due| due <= self.now) {
            member.router.handle_timeout(self.now);
        }
        self.drain(node);
    }

    /// Takes what a node's router has to say.
    fn drain(&mut self, node: usize) {
        while let Some(member) = self.members.get_mut(node) {
            let Some(transmit) = member.router.poll_transmit() else { break };
            let mut bytes = transmit.bytes;
            if member.conduct == Conduct::BlackHole
                && matches!(bytes.first(), Some(0x41 | 0x42))
                && let Some(hop_count) = bytes.get_mut(1)
            {
                *hop_count = 0;
            }
            if member.conduct != Conduct::Dead {
                self.control.sent += 1;
                self.control.bytes_sent += bytes.len() as u64;
                self.control.requests_sent += u64::from(bytes.first() == Some(&0x41));
            }
            let to = match transmit.to {
                Recipient::Everybody => None,
                Recipient::One(hop) => index_of(hop),
            };
            self.put_on_air(node, to, bytes);
        }
        while let Some(event) = self.members.get_mut(node).and_then(|member| member.router.poll_event()) {
            self.on_event(node, event);
        }
        let Some(member) = self.members.get_mut(node).filter(|member| member.conduct != Conduct::Dead) else {
            return;
        };
        if let Some(due) = member.router.poll_timeout()
            && due < member.timer
        {
            member.timer = due;
            self.happenings.insert(due.max(self.now), Happening::Timer(node));
        }
    }

    fn on_event(&mut self, node: usize, event: Event) {
        let Event::Found { destination, hops } = event else { return };
        let ids: Vec<NodeId> = self.searches.iter().map(|search| self.id(search.to)).collect();
        for (search, id) in self.searches.iter_mut().zip(ids) {
            if search.from == node && id == destination && search.found.is_none() {
                search.found = Some((self.now.since(search.began), hops));
            }
        }
    }

    fn walk(&mut self) {
        if self.spec.speed > 0.0 {
            let step = self.spec.speed * STEP.as_secs_f64();
            let (width, height) = self
                .spec
                .positions
                .iter()
                .fold((0.0_f64, 0.0_f64), |(width, height), (x, y)| (width.max(*x), height.max(*y)));
            for member in &mut self.members {
                let (dx, dy) = (member.goal.0 - member.position.0, member.goal.1 - member.position.1);
                let far = dx.hypot(dy);
                if far <= step {
                    member.goal = (self.random.between(0.0, width), self.random.between(0.0, height));
                } else {
                    member.position.0 += dx / far * step;
                    member.position.1 += dy / far * step;
                }
            }
            self.look_around();
            self.happenings.insert(self.now + STEP, Happening::Walk);
        }
    }

    fn look_around(&mut self) {
        let positions: Vec<(f64, f64)> = self.members.iter().map(|member| member.position).collect();
        let range = self.spec.range;
        let hears = |one: (f64, f64), other: (f64, f64)| (one.0 - other.0).hypot(one.1 - other.1) <= range;
        let near = |at: usize, here: (f64, f64)| {
            let others =
                positions.iter().enumerate().filter(|(other, there)| *other != at && hears(here, **there));
            others.map(|(other, _)| other).collect()
        };
        self.air.set_near(positions.iter().enumerate().map(|(at, here)| near(at, *here)).collect());
    }
}

fn packet(header: DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(DATA_HEADER_LEN + payload.len());
    header.put(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn hop_of(node: usize) -> Hop {
    Hop { network: NetworkId(0), address: LinkAddress::V4(Ipv4Addr::from(node as u32), 1) }
}

fn index_of(hop: Hop) -> Option<usize> {
    match hop.address {
        LinkAddress::V4(address, _) => Some(u32::from(address) as usize),
        LinkAddress::V6(..) | LinkAddress::Bluetooth(..) => None,
    }
}
