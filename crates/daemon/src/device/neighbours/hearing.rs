//! What is said on links and what is heard there.

use std::net::{IpAddr, Ipv4Addr};

use identity::any0_address;
use linux::clock;
use linux::poll::Token;
use rand::Rng;
use tracing::{debug, trace};
use units::{NetworkId, Timestamp};
use wire::neighbour::{self, Datagram, Echo, Hello, Message, Number};

use super::contact::Outcome;
use super::{Command, IDLE_BEACONS, Neighbourhood, QUICK_BEACONS, TICK, broadcast};

impl Neighbourhood {
    /// When something is due by itself.
    pub(super) fn due(&self) -> Timestamp {
        let beacons = self.links.iter().map(|link| link.next_beacon);
        let hellos = self.known.iter().filter(|known| known.contact.addresses().next().is_some());
        let hellos = hellos.map(|known| known.pace.due());
        let own = [self.next_tick, self.next_look];
        beacons.chain(hellos).chain(self.ways.due()).chain(own).min().unwrap_or(self.next_tick)
    }

    /// What is due by itself.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.notice_traffic(now);
        for at in 0..self.known.len() {
            let links: Vec<(NetworkId, IpAddr)> = self.known[at].contact.addresses().collect();
            if links.is_empty() || !self.known[at].pace.is_due(now) {
                continue;
            }
            self.known[at].pace.on_asked(now, self.settings.maxdiff);
            for (network, to) in links {
                self.say_hello(now, at, network, to, true, None);
            }
        }
        self.say_where_we_are(now);
        if now >= self.next_look {
            self.look(now);
        }
        let challenged = self.ways.due().is_some_and(|due| now >= due);
        if now < self.next_tick && !challenged {
            return;
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.database.expire(now);
            self.forget_silent(now);
            self.routes.repeat();
        }
        self.choose_all(now);
        self.ways.retain_known(&self.database);
    }

    /// Notes from which neighbours packets come.
    fn notice_traffic(&mut self, now: Timestamp) {
        let Some(tap) = &self.tap else { return };
        let known = &mut self.known;
        tap.drain(&mut |source| {
            if let Some(known) = known.iter_mut().find(|known| known.addresses().any(|own| own == source)) {
                known.pace.on_traffic(now);
            }
        });
    }

    /// Links on which a neighbour was not heard for a whole lifetime are not asked any more.
    fn forget_silent(&mut self, now: Timestamp) {
        for known in &mut self.known {
            let alive: Vec<NetworkId> =
                self.database.links(now, known.v6.into()).map(|link| link.network).collect();
            let silent: Vec<NetworkId> = known
                .contact
                .addresses()
                .map(|(network, _)| network)
                .filter(|link| !alive.contains(link))
                .collect();
            for network in silent {
                known.contact.forget(network);
            }
        }
    }

    /// Sends a beacon over each link where one is due.
    fn say_where_we_are(&mut self, now: Timestamp) {
        for link in self.links.iter_mut().filter(|link| now >= link.next_beacon) {
            link.beacons = link.beacons.saturating_add(1);
            let pause = if link.beacons < QUICK_BEACONS.0 { QUICK_BEACONS.1 } else { IDLE_BEACONS };
            link.next_beacon = now + pause;
            if self.known.is_empty() {
                continue;
            }
            let nonce = self.random.random();
            let tags: Vec<_> = self.known.iter().map(|known| known.keys.tag(&nonce)).collect();
            link.send_to_all(&neighbour::encode_beacon(nonce, &tags));
        }
    }

    fn say_hello(
        &mut self,
        now: Timestamp,
        at: usize,
        network: NetworkId,
        to: IpAddr,
        asks: bool,
        challenge: Option<Echo>,
    ) {
        let Some(link_address) = self.links.get(network).and_then(|link| link.address_like(to)) else {
            return;
        };
        self.number += 1;
        let number = Number { epoch: self.epoch, number: self.number };
        let echo = self.known[at].contact.on_sent(now, network, number.number);
        let hello = Hello { number, link_address, any0_v4: self.own_v4, asks, echo: challenge.or(echo) };
        self.seal_and_send(at, network, to, &Message::Hello(hello));
    }

    fn seal_and_send(&mut self, at: usize, network: NetworkId, to: IpAddr, message: &Message<'_>) {
        let salt = self.random.random();
        let Some(sealed) = self.known[at].keys.seal(&salt, &message.encode()) else { return };
        let Some(link) = self.links.get(network) else { return };
        if let Err(error) = link.send(to, &neighbour::encode_sealed(salt, &sealed)) {
            trace!("{to} on {}: {error}", link.name);
        }
    }

    /// Reads a socket.
    pub(super) fn receive(&mut self, token: Token) {
        let mut datagrams: Vec<(NetworkId, IpAddr, Vec<u8>)> = Vec::new();
        self.links.receive(token, &mut |link, from, bytes| {
            datagrams.push((link.network, from, bytes.to_vec()));
        });
        let now = clock::now();
        for (network, from, bytes) in datagrams {
            match Datagram::parse(&bytes) {
                Ok(Datagram::Beacon(beacon)) => self.on_beacon(now, network, from, &beacon),
                Ok(Datagram::Sealed { salt, bytes }) => {
                    if let Some((at, message)) = self.open(now, network, from, &salt, bytes) {
                        self.on_message(now, at, network, from, &message);
                    }
                }
                Err(error) => trace!("{from} sent something else: {error}"),
            }
        }
    }

    fn on_beacon(
        &mut self,
        now: Timestamp,
        network: NetworkId,
        from: IpAddr,
        beacon: &neighbour::Beacon<'_>,
    ) {
        if !self.budgets.trials.take(now) {
            return;
        }
        let has_v6 = |link: &super::links::Link| link.address_like(self.own_v6.into()).is_some();
        let waits_for_v6 = from.is_ipv4() && self.links.get(network).is_some_and(has_v6);
        for at in 0..self.known.len() {
            let expected = self.known[at].keys.expected_tag(&beacon.nonce);
            // IPv6 carries both families; it is ready a moment after IPv4.
            let met = self.known[at].contact.address(network);
            let is_met = met.is_some_and(|met| met.is_ipv6() || from.is_ipv4());
            if !is_met
                && beacon.tags().any(|tag| *tag == expected)
                && (!waits_for_v6 || self.known[at].contact.takes_v4(now, network))
                && self.budgets.answers.take(now)
            {
                self.say_hello(now, at, network, from, true, None);
            }
        }
    }

    /// Opens a message with the key of whoever was last heard from there, else with every key.
    fn open(
        &mut self,
        now: Timestamp,
        network: NetworkId,
        from: IpAddr,
        salt: &[u8; neighbour::SALT_LEN],
        sealed: &[u8],
    ) -> Option<(usize, Vec<u8>)> {
        let usual = self.heard_from.get(&(network, from)).copied();
        let opened = usual.and_then(|at| Some((at, self.known.get(at)?.keys.open(salt, sealed)?)));
        if opened.is_some() {
            return opened;
        }
        if !self.budgets.trials.take(now) {
            return None;
        }
        let mut all = self.known.iter().enumerate();
        let opened = all.find_map(|(at, known)| Some((at, known.keys.open(salt, sealed)?)))?;
        // Only who has a key gets this far, so a stranger cannot fill it.
        if self.heard_from.len() >= MOST_HEARD {
            self.heard_from.clear();
        }
        self.heard_from.insert((network, from), opened.0);
        Some(opened)
    }

    fn on_message(&mut self, now: Timestamp, at: usize, network: NetworkId, from: IpAddr, bytes: &[u8]) {
        match Message::parse(bytes) {
            Ok(Some(Message::Hello(hello))) => self.on_hello(now, at, network, from, &hello),
            Ok(Some(Message::Broadcast { number, packet })) => self.on_broadcast(now, at, number, packet),
            Ok(Some(Message::Left { number, of })) => self.on_left(now, at, number, of),
            Ok(None) => {}
            Err(error) => debug!("{} says something else: {error}", self.known[at].name),
        }
    }

    fn on_hello(&mut self, now: Timestamp, at: usize, network: NetworkId, from: IpAddr, hello: &Hello) {
        if hello.link_address != from {
            // Somebody has taken it from where it was.
            debug!("a hello of {} came from {from}, not from {}", self.known[at].name, hello.link_address);
            return;
        }
        let known = &mut self.known[at];
        // Where both families work, the one that carries both is kept.
        if from.is_ipv4() && known.contact.address(network).is_some_and(|met| met.is_ipv6()) {
            return;
        }
        let outcome = known.contact.on_hello(now, network, from, self.epoch, hello);
        match outcome {
            Outcome::Ignore => return,
            Outcome::Challenge(echo) => {
                if self.budgets.answers.take(now) {
                    self.say_hello(now, at, network, from, true, Some(echo));
                }
                return;
            }
            Outcome::Deaf => {}
            Outcome::Alive(rtt) => {
                self.on_v4(at, hello.any0_v4);
                for own in self.known[at].addresses() {
                    self.database.on_heard(now, own, network);
                    self.database.on_rtt(own, network, rtt);
                }
                self.choose(now, at);
            }
        }
        if hello.asks && self.budgets.answers.take(now) {
            self.say_hello(now, at, network, from, false, None);
        }
    }

    /// A neighbour has lost a link: nothing that is sent there arrives, however lately it was heard.
    fn on_left(&mut self, now: Timestamp, at: usize, number: Number, of: Number) {
        let known = &mut self.known[at];
        let Some(network) = known.contact.on_left(now, self.epoch, number, of) else { return };
        for own in known.addresses() {
            self.database.forget_link(own, network);
        }
        self.choose(now, at);
    }

    /// Tells neighbours over the links that are left that this one is gone.
    pub(super) fn say_left(&mut self, gone: NetworkId) {
        for at in 0..self.known.len() {
            let contact = &self.known[at].contact;
            let (Some(_), Some(of)) = (contact.address(gone), contact.last(gone)) else { continue };
            let others: Vec<(NetworkId, IpAddr)> =
                contact.addresses().filter(|(network, _)| *network != gone).collect();
            self.number += 1;
            let number = Number { epoch: self.epoch, number: self.number };
            for (network, to) in others {
                self.seal_and_send(at, network, to, &Message::Left { number, of });
            }
        }
    }

    /// A neighbour says which IPv4 address it has on any0. Of two with the same, the one with the smaller key has it.
    fn on_v4(&mut self, at: usize, said: Option<Ipv4Addr>) {
        let said = said.filter(|said| any0_address::may_be_v4(*said));
        let (key, before) = (self.known[at].key, self.known[at].v4);
        if said.is_some() && said == self.own_v4 {
            if key < self.around.key.public() {
                let name = self.known[at].name.clone();
                self.give_up_v4(&name);
            }
            return;
        }
        if said == before {
            return;
        }
        let mut others = self.known.iter_mut().enumerate().filter(|(other, _)| *other != at);
        let holder = said.and_then(|said| others.find(|(_, known)| known.v4 == Some(said)));
        match holder {
            Some((_, holder)) if holder.key < key => return,
            Some((_, holder)) => holder.v4 = None,
            None => {}
        }
        self.known[at].v4 = said;
        let staying: Vec<IpAddr> = self.known.iter().flat_map(super::Known::addresses).collect();
        self.routes.retain(|destination| staying.contains(destination));
    }

    /// A program has sent `packet` to everybody: each neighbour gets it over every link where it is.
    pub(super) fn spread(&mut self, now: Timestamp, packet: &[u8]) {
        let own = match packet.first().map(|byte| byte >> 4) {
            Some(4) => self.own_v4.map(IpAddr::V4),
            _ => Some(IpAddr::V6(self.own_v6)),
        };
        let Some(packet) = own.and_then(|own| broadcast::from_source(packet, own)) else { return };
        if !self.budgets.broadcasts.take(now) {
            return;
        }
        if let Some(far) = &self.around.far {
            far.spread(&packet);
        }
        self.broadcasts += 1;
        let number = Number { epoch: self.epoch, number: self.broadcasts };
        for at in 0..self.known.len() {
            let links: Vec<(NetworkId, IpAddr)> = self.known[at].contact.addresses().collect();
            for (network, to) in links {
                self.seal_and_send(at, network, to, &Message::Broadcast { number, packet: &packet });
            }
        }
    }

    fn on_broadcast(&mut self, now: Timestamp, at: usize, number: Number, packet: &[u8]) {
        let known = &mut self.known[at];
        let is_first = known.contact.takes_broadcast(number);
        if is_first
            && broadcast::may_come_from(packet, known.v6, known.v4)
            && self.budgets.deliveries.take(now)
        {
            self.around.commands.post(Command::Deliver(packet.to_vec()));
        }
    }
}

/// Addresses of neighbours on links whose key is remembered.
const MOST_HEARD: usize = 4_096;
