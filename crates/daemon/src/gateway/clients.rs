//! Which address belongs to which session, both ways.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch::control::UnixMillis;
use bond::{PublicKey, SessionId};
use rustc_hash::FxHashMap;
use wire::inner::Headers;

use super::admission::Admitted;
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
}

/// The sessions of all clients.
#[derive(Debug, Default)]
pub struct Clients {
    sessions: FxHashMap<SessionId, ClientSession>,
    by_address: FxHashMap<IpAddr, SessionId>,
}

impl Clients {
    /// A session was accepted; packets are routed to it once it is confirmed.
    pub fn accept(&mut self, session: SessionId, key: PublicKey, admitted: Admitted) {
        let client = ClientSession {
            name: admitted.name,
            key,
            addresses: admitted.addresses,
            first_time: admitted.first_time,
            since: UnixMillis::now(),
            confirmed: false,
            meter: Meter::default(),
        };
        // An earlier session that was accepted for the key and never confirmed is forgotten by the endpoint too.
        self.sessions.retain(|_, other| other.key != key || other.confirmed);
        self.sessions.insert(session, client);
    }

    /// The client has shown that it has the keys. Its addresses lead to this session from now on.
    pub fn confirm(&mut self, session: SessionId) -> Option<&ClientSession> {
        let client = self.sessions.get_mut(&session)?;
        client.confirmed = true;
        for address in &client.addresses {
            self.by_address.insert(*address, session);
        }
        Some(client)
    }

    /// A session is over.
    pub fn remove(&mut self, session: SessionId) -> Option<ClientSession> {
        let client = self.sessions.remove(&session)?;
        self.by_address.retain(|_, of| *of != session);
        Some(client)
    }

    /// The sessions of a key.
    pub fn of_key(&self, key: PublicKey) -> Vec<SessionId> {
        self.sessions.iter().filter(|(_, client)| client.key == key).map(|(session, _)| *session).collect()
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
        self.sessions.values().filter(|client| client.confirmed).count()
    }
}

impl Owner for Clients {
    fn judge(&mut self, headers: &Headers) -> Verdict {
        let session = self.by_address.get(&headers.key.destination);
        session.map_or(Verdict::Unreachable, |session| Verdict::Send(*session))
    }

    fn allows(&mut self, session: SessionId, packet: &[u8]) -> bool {
        let Some(client) = self.sessions.get(&session) else { return false };
        source(packet).is_some_and(|source| client.addresses.contains(&source))
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
    use wire::hello::{Features, Name, Welcome};

    use super::*;

    fn admitted(address: &str) -> Admitted {
        Admitted {
            name: "van".to_owned(),
            addresses: vec![address.parse().unwrap()],
            first_time: false,
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
        clients.judge(&wire::inner::parse(packet).unwrap())
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
        assert_eq!(clients.connected(), 1);
    }
}
