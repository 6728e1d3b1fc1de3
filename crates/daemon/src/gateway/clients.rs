//! Which address belongs to which session, both ways.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch::control::UnixMillis;
use bond::{PublicKey, SessionId};
use linux::clock;
use policy::limit::{Allowance, Policer};
use rustc_hash::FxHashMap;
use units::{Bytes, PathId};
use wire::inner::Headers;

use super::admission::{Admitted, Standing};
use super::parts::{Arrival, Arrived, Places};
use crate::dataplane::{Meter, Owner, Verdict};

/// A client's session.
#[derive(Clone, Debug)]
pub struct ClientSession {
    /// Name of the client.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// The addresses that it may send from.
    pub addresses: Vec<IpAddr>,
    /// Whether it is here for the first time.
    pub first_time: bool,
    /// Since when it is here.
    pub since: UnixMillis,
    /// Whether the client has used the session's keys: only then packets are sent to it.
    pub confirmed: bool,
    /// Its traffic's rates.
    pub meter: Meter,
    /// Those of each of its paths.
    pub path_meters: BTreeMap<PathId, Meter>,
    /// Bytes in both directions that were not handed on yet to be counted.
    pub uncounted: Bytes,
    /// What it may carry.
    pub allowance: Allowance,
    /// Keeps it to that: to it, and from it.
    policers: Option<[Policer; 2]>,
    /// When it was let in.
    arrival: Arrival,
    /// What became of it when it had used the keys.
    arrived: Option<Arrived>,
}

impl ClientSession {
    /// When it was let in.
    pub fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Whether a packet to it, or from it, is within its limit; then it counts.
    fn admits(&mut self, direction: Direction, length: usize) -> bool {
        let length = Bytes(length as u64);
        let policer = self.policers.as_mut().map(|policers| &mut policers[direction as usize]);
        let admitted = policer.is_none_or(|policer| policer.admits(clock::now(), length));
        if admitted {
            self.uncounted.0 += length.0;
        }
        admitted
    }

    fn allow(&mut self, allowance: Allowance) {
        self.allowance = allowance;
        // A policer that stays is not told anew: it would begin with another burst.
        if self.policers.map(|[to, _]| to.rate()) != allowance.rate {
            self.policers = allowance.rate.map(|rate| [Policer::new(rate); 2]);
        }
    }
}

/// A packet's way, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    To,
    From,
}

/// The sessions of a part's clients.
#[derive(Debug, Default)]
pub struct Clients {
    /// Number of the part.
    part: usize,
    /// Where the clients of all parts are.
    places: Places,
    /// Packets for clients of other parts, by their numbers.
    strays: FxHashMap<usize, Vec<Vec<u8>>>,
    sessions: FxHashMap<SessionId, ClientSession>,
    by_address: FxHashMap<IpAddr, SessionId>,
    by_key: FxHashMap<PublicKey, Vec<SessionId>>,
    /// Those that are confirmed: asked for at every turn of the loop.
    connected: usize,
    /// What sessions that are over have carried, until it was handed on to be counted.
    owed: FxHashMap<PublicKey, Bytes>,
}

impl Clients {
    /// Nobody yet.
    pub fn new(part: usize, places: Places) -> Self {
        Self { part, places, ..Self::default() }
    }

    /// A session was accepted; packets are routed to it once it is confirmed.
    pub fn accept(&mut self, session: SessionId, key: PublicKey, admitted: Admitted) {
        let mut client = ClientSession {
            name: admitted.name,
            key,
            addresses: admitted.addresses,
            first_time: admitted.first_time,
            since: UnixMillis::now(),
            confirmed: false,
            meter: Meter::default(),
            path_meters: BTreeMap::new(),
            uncounted: Bytes(0),
            allowance: Allowance::default(),
            policers: None,
            arrival: self.places.next(),
            arrived: None,
        };
        client.allow(admitted.allowance);
        let Self { sessions, by_key, .. } = self;
        let of_key = by_key.entry(key).or_default();
        // An earlier session that was accepted for the key and never confirmed is forgotten by the endpoint too.
        of_key.retain(|other| {
            let stays = sessions.get(other).is_some_and(|client| client.confirmed);
            if !stays {
                sessions.remove(other);
            }
            stays
        });
        of_key.push(session);
        sessions.insert(session, client);
    }

    /// The client has shown that it has the keys. Its addresses lead to this session from now on, unless it has come to another part since.
    pub fn confirm(&mut self, session: SessionId) -> Option<(&ClientSession, Arrived)> {
        let client = self.sessions.get_mut(&session)?;
        if let Some(arrived) = client.arrived {
            return Some((client, arrived));
        }
        let arrived = self.places.arrive(self.part, client.arrival, client.key, &client.addresses);
        client.arrived = Some(arrived);
        if arrived == Arrived::Late {
            return Some((client, arrived));
        }
        client.confirmed = true;
        self.connected += 1;
        for address in &client.addresses {
            self.by_address.insert(*address, session);
        }
        Some((client, arrived))
    }

    /// The confirmed sessions of a key that had come before `arrival`.
    pub fn before(&self, key: PublicKey, arrival: Arrival) -> Vec<SessionId> {
        let mut sessions = self.of_key(key);
        sessions.retain(|session| {
            self.sessions.get(session).is_some_and(|client| client.confirmed && client.arrival < arrival)
        });
        sessions
    }

    /// Takes packets for clients of other parts, with the numbers of those.
    pub fn take_strays(&mut self) -> impl Iterator<Item = (usize, Vec<Vec<u8>>)> {
        self.strays.drain()
    }

    /// A session is over. What it carried is owed.
    pub fn remove(&mut self, session: SessionId) -> Option<ClientSession> {
        let client = self.sessions.remove(&session)?;
        self.connected -= usize::from(client.confirmed);
        self.places.leave(client.arrival, client.key, &client.addresses);
        for address in &client.addresses {
            if self.by_address.get(address) == Some(&session) {
                self.by_address.remove(address);
            }
        }
        if let Entry::Occupied(mut of_key) = self.by_key.entry(client.key) {
            of_key.get_mut().retain(|of| *of != session);
            if of_key.get().is_empty() {
                of_key.remove();
            }
        }
        self.owe(&[(client.key, client.uncounted)]);
        Some(client)
    }

    /// What was taken was not handed on.
    pub fn owe(&mut self, carried: &[(PublicKey, Bytes)]) {
        for (key, bytes) in carried.iter().filter(|(_, bytes)| *bytes > Bytes(0)) {
            self.owed.entry(*key).or_default().0 += bytes.0;
        }
    }

    /// Takes what is owed, to hand it on.
    pub fn take_owed(&mut self) -> Vec<(PublicKey, Bytes)> {
        self.owed.drain().collect()
    }

    /// The same with what those who are connected have carried, be it nothing.
    pub fn take_uncounted(&mut self) -> Vec<(PublicKey, Bytes)> {
        let mut carried = self.take_owed();
        carried
            .extend(self.confirmed().map(|(_, client)| (client.key, std::mem::take(&mut client.uncounted))));
        carried
    }

    /// Another allowance holds for a key from now on. Returns the client's name if it is connected and was not slowed down
    /// before, and now is.
    pub fn allow(&mut self, standing: Standing) -> Option<&str> {
        let mut slowed = None;
        for session in self.of_key(standing.key) {
            let Some(client) = self.sessions.get_mut(&session) else { continue };
            let is_new = standing.allowance.slowed && !client.allowance.slowed && client.confirmed;
            client.allow(standing.allowance);
            slowed = is_new.then_some(session).or(slowed);
        }
        slowed.and_then(|session| self.sessions.get(&session)).map(|client| client.name.as_str())
    }

    /// The sessions of a key.
    pub fn of_key(&self, key: PublicKey) -> Vec<SessionId> {
        self.by_key.get(&key).cloned().unwrap_or_default()
    }

    /// All confirmed sessions.
    pub fn confirmed(&mut self) -> impl Iterator<Item = (SessionId, &mut ClientSession)> {
        self.sessions
            .iter_mut()
            .filter(|(_, client)| client.confirmed)
            .map(|(session, client)| (*session, client))
    }

    /// How many are connected.
    pub fn connected(&self) -> usize {
        self.connected
    }
}

impl Owner for Clients {
    fn judge(&mut self, headers: &Headers, packet: &[u8]) -> Verdict {
        let Some(session) = self.by_address.get(&headers.key.destination).copied() else {
            return Verdict::Unreachable;
        };
        let client = self.sessions.get_mut(&session);
        let admitted = client.is_some_and(|client| client.admits(Direction::To, packet.len()));
        if admitted { Verdict::Send(session) } else { Verdict::Drop }
    }

    fn takes(&mut self, headers: &Headers, packet: &[u8]) -> bool {
        let destination = headers.key.destination;
        if self.by_address.contains_key(&destination) {
            return false;
        }
        let Some(part) = self.places.of(destination).filter(|part| *part != self.part) else { return false };
        self.strays.entry(part).or_default().push(packet.to_vec());
        true
    }

    fn allows(&mut self, session: SessionId, packet: &[u8]) -> bool {
        // The answer to its first packet may be there before the loop hears that the session is confirmed.
        if matches!(self.confirm(session), None | Some((_, Arrived::Late))) {
            return false;
        }
        let Some(client) = self.sessions.get_mut(&session) else { return false };
        let is_own = source(packet).is_some_and(|source| client.addresses.contains(&source));
        is_own && client.admits(Direction::From, packet.len())
    }
}

/// The source address of an IP packet.
fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        6 => {
            let octets: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrayvec::ArrayVec;
    use units::BitRate;
    use wire::hello::{Features, Name, Welcome};

    use super::*;

    fn admitted(address: &str) -> Admitted {
        Admitted {
            name: "van".to_owned(),
            addresses: vec![address.parse().unwrap()],
            first_time: false,
            allowance: Allowance::default(),
            treatment: policy::Treatment::Bonded,
            welcome: Welcome {
                name: Name::new("gateway").unwrap(),
                features: Features::default(),
                v4: None,
                v6: None,
                dns: ArrayVec::new(),
                mtu: 1_400,
            },
        }
    }

    fn packet(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 28];
        (packet[0], packet[3], packet[9]) = (0x45, 28, 17);
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&destination);
        packet
    }

    fn destined(clients: &mut Clients, packet: &[u8]) -> Verdict {
        clients.judge(&wire::inner::parse(packet).unwrap(), packet)
    }

    #[test]
    fn packets_are_routed_and_sources_checked() {
        let mut clients = Clients::default();
        let (one, other) = (SessionId(1), SessionId(2));
        clients.accept(one, PublicKey([1; 32]), admitted("10.86.0.2"));
        clients.accept(other, PublicKey([2; 32]), admitted("10.86.0.3"));
        let towards = packet([8, 8, 8, 8], [10, 86, 0, 2]);
        assert_eq!(
            destined(&mut clients, &towards),
            Verdict::Unreachable,
            "not before the client has used its keys"
        );
        clients.confirm(one);
        clients.confirm(other);
        assert_eq!(destined(&mut clients, &towards), Verdict::Send(one));
        assert!(clients.allows(one, &packet([10, 86, 0, 2], [8, 8, 8, 8])));
        assert!(!clients.allows(other, &packet([10, 86, 0, 2], [8, 8, 8, 8])), "another client's address");
        assert!(!clients.allows(one, &[]) && !clients.allows(one, &[0x60; 10]));
    }

    #[test]
    fn packets_for_another_parts_client_are_laid_aside() {
        let places = Places::default();
        let [mut here, mut there] = [0, 1].map(|part| Clients::new(part, places.clone()));
        let (session, key) = (SessionId(1), PublicKey([1; 32]));
        let towards = packet([8, 8, 8, 8], [10, 86, 0, 2]);
        let takes = |clients: &mut Clients| clients.takes(&wire::inner::parse(&towards).unwrap(), &towards);
        there.accept(session, key, admitted("10.86.0.2"));
        assert!(!takes(&mut here) && !takes(&mut there), "nobody is there yet");
        let here_from = |before| Arrived::Here { before };
        assert_eq!(there.confirm(session).unwrap().1, here_from(None));
        assert!(takes(&mut here) && !takes(&mut there));
        assert_eq!(here.take_strays().collect::<Vec<_>>(), [(1, vec![towards.clone()])]);
        assert_eq!(destined(&mut there, &towards), Verdict::Send(session));
        // It comes again, to the other part this time.
        here.accept(session, key, admitted("10.86.0.2"));
        // Its first packet is enough: the answer may be quicker than the news of it.
        assert!(here.allows(session, &packet([10, 86, 0, 2], [8, 8, 8, 8])));
        assert_eq!(destined(&mut here, &towards), Verdict::Send(session));
        let late = SessionId(2);
        there.accept(late, PublicKey([2; 32]), admitted("10.86.0.3"));
        let (client, arrived) = here.confirm(session).unwrap();
        assert_eq!(arrived, here_from(Some(1)));
        let arrival = client.arrival();
        assert_eq!(here.before(key, arrival), []);
        assert_eq!(there.before(key, arrival), [session]);
        there.remove(session);
        assert!(takes(&mut there) && !takes(&mut here));
        here.remove(session);
        assert!(!takes(&mut there) && !takes(&mut here));
        // Somebody has kept back what came from it when it was let in first.
        here.accept(session, PublicKey([2; 32]), admitted("10.86.0.3"));
        assert_eq!(here.confirm(session).unwrap().1, here_from(None));
        assert!(!there.allows(late, &packet([10, 86, 0, 3], [8, 8, 8, 8])));
        assert_eq!(there.confirm(late).unwrap().1, Arrived::Late);
        there.remove(late);
        assert_eq!([there.connected(), here.connected()], [0, 1]);
        assert_eq!(places.of("10.86.0.3".parse().unwrap()), Some(0));
    }

    #[test]
    fn a_client_is_kept_to_its_rate_in_each_direction_and_let_go_again() {
        let mut clients = Clients::default();
        let (session, key) = (SessionId(1), PublicKey([1; 32]));
        clients.accept(session, key, admitted("10.86.0.2"));
        clients.confirm(session);
        let (to, from) = (packet([8, 8, 8, 8], [10, 86, 0, 2]), packet([10, 86, 0, 2], [8, 8, 8, 8]));
        let standing = |rate, slowed| Standing { key, allowance: Allowance { rate, quota: None, slowed } };
        // A packet takes longer than the test.
        assert_eq!(clients.allow(standing(Some(BitRate(1)), false)), None);
        assert_eq!(destined(&mut clients, &to), Verdict::Send(session));
        assert!(clients.allows(session, &from), "the other direction has its own");
        let uncounted = |clients: &mut Clients| clients.confirmed().next().unwrap().1.uncounted;
        assert_eq!(uncounted(&mut clients), Bytes(56));
        assert_eq!(destined(&mut clients, &to), Verdict::Drop);
        assert!(!clients.allows(session, &from));
        assert_eq!(uncounted(&mut clients), Bytes(56), "what was dropped does not count");
        assert_eq!(clients.allow(standing(Some(BitRate(1)), true)), Some("van"));
        assert_eq!(destined(&mut clients, &to), Verdict::Drop, "the same rate gives no new burst");
        assert_eq!(clients.allow(standing(Some(BitRate(1)), true)), None, "it is told once");
        clients.allow(standing(None, false));
        assert_eq!(destined(&mut clients, &to), Verdict::Send(session));
        assert!(clients.allows(session, &from));
    }

    #[test]
    fn what_was_carried_is_owed_until_it_is_handed_on() {
        let mut clients = Clients::default();
        let (session, key) = (SessionId(1), PublicKey([1; 32]));
        clients.accept(session, key, admitted("10.86.0.2"));
        clients.confirm(session);
        let from = packet([10, 86, 0, 2], [8, 8, 8, 8]);
        assert!(clients.allows(session, &from));
        assert!(clients.take_owed().is_empty(), "it is connected");
        let carried = clients.take_uncounted();
        assert_eq!(carried, [(key, Bytes(28))]);
        // There was no room for it.
        clients.owe(&carried);
        assert!(clients.allows(session, &from));
        assert!(clients.allows(session, &from));
        clients.remove(session);
        let carried = clients.take_owed();
        assert_eq!(carried, [(key, Bytes(84))]);
        assert!(clients.take_owed().is_empty() && clients.take_uncounted().is_empty());
    }

    #[test]
    fn a_newer_session_of_a_client_takes_its_addresses() {
        let mut clients = Clients::default();
        let key = PublicKey([1; 32]);
        let (older, newer) = (SessionId(1), SessionId(2));
        let towards = packet([8, 8, 8, 8], [10, 86, 0, 2]);
        clients.accept(older, key, admitted("10.86.0.2"));
        clients.confirm(older);
        clients.accept(newer, key, admitted("10.86.0.2"));
        assert_eq!(destined(&mut clients, &towards), Verdict::Send(older));
        clients.confirm(newer);
        clients.remove(older);
        assert_eq!(destined(&mut clients, &towards), Verdict::Send(newer));
        assert_eq!((clients.connected(), clients.of_key(key)), (1, vec![newer]));
        // One that was never used makes room for the next, which may be no better.
        let (unused, next) = (SessionId(3), SessionId(4));
        clients.accept(unused, key, admitted("10.86.0.2"));
        clients.accept(next, key, admitted("10.86.0.2"));
        assert_eq!(clients.of_key(key), [newer, next]);
        assert!(clients.remove(unused).is_none() && clients.remove(next).is_some());
        assert_eq!(destined(&mut clients, &towards), Verdict::Send(newer));
        clients.remove(newer);
        assert_eq!(destined(&mut clients, &towards), Verdict::Unreachable);
        assert_eq!((clients.connected(), clients.of_key(key).len()), (0, 0));
    }
}
