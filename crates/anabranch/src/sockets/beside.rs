//! Peers who may be beside this machine where nobody can speak to all: over Bluetooth only who is called hears anything. They are called when somebody
//! looks for a way over relays, and what is said to everybody waits for the connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mesh::node_id;
use units::Timestamp;
use wire::mesh::{Node, NodeId};

use super::options::Peer;
use super::remote::{self, Family};

/// Addresses that are remembered; further ones are not.
const MOST_KNOWN: usize = 64;
/// Called at a time: as many as a controller has in its piconet (Bluetooth Core, volume 2 part B, 1).
const MOST_CALLED: usize = 7;
/// What is said within this time after a search began goes to those who are called: such a call takes up to 5 s.
const CALL: Duration = Duration::from_secs(6);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// In the order in which they became known, each with who is thought to be there.
    known: Vec<(SocketAddr, NodeId)>,
    /// Until when.
    called: BTreeMap<SocketAddr, Timestamp>,
}

impl Beside {
    /// A peer may be there; addresses of IP networks are none of those.
    pub(super) fn note(&mut self, peer: &Peer) {
        for address in peer.addresses.iter().copied().map(remote::of) {
            let is_new = self.known.iter().all(|(known, _)| *known != address);
            if Family::of(address) == Family::Bluetooth && is_new && self.known.len() < MOST_KNOWN {
                self.known.push((address, node_id(&Node { key: peer.key.0, port: address.port() })));
            }
        }
    }

    /// This end looks for a way: whoever is beside it may pass the question on.
    pub(super) fn call_all(&mut self, now: Timestamp) {
        let all: Vec<SocketAddr> = self.known.iter().map(|(address, _)| *address).collect();
        all.into_iter().for_each(|address| self.call(now, address));
    }

    /// Somebody else looks for a way to this node, and this end passes the question on.
    pub(super) fn call_one(&mut self, now: Timestamp, node: NodeId) {
        let found = self.known.iter().find(|(_, known)| *known == node).map(|(address, _)| *address);
        found.into_iter().for_each(|address| self.call(now, address));
    }

    fn call(&mut self, now: Timestamp, address: SocketAddr) {
        if self.called.contains_key(&address) || self.called.len() < MOST_CALLED {
            self.called.insert(address, now + CALL);
        }
    }

    /// Those who are called now.
    pub(super) fn called(&mut self, now: Timestamp) -> Vec<SocketAddr> {
        self.called.retain(|_, until| *until > now);
        self.called.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::PublicKey;

    fn peer(key: u8, addresses: &[&str]) -> Peer {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Peer { key: PublicKey([key; 32]), addresses }
    }

    #[test]
    fn a_search_calls_all_and_passing_on_only_whom_it_is_for() {
        let mut beside = Beside::default();
        beside.note(&peer(1, &["bt:00:11:22:33:44:01:4612", "192.0.2.1:4612"]));
        beside.note(&peer(2, &["bt:00:11:22:33:44:02:4610"]));
        let now = Timestamp::from_millis(1_000);
        assert!(beside.called(now).is_empty());
        beside.call_one(now, node_id(&Node { key: [2; 32], port: 4_610 }));
        beside.call_one(now, node_id(&Node { key: [2; 32], port: 4_612 }));
        assert_eq!(
            beside.called(now).into_iter().map(remote::told).collect::<Vec<_>>(),
            ["bt:00:11:22:33:44:02:4610".parse().unwrap()]
        );
        beside.call_all(now);
        assert_eq!(beside.called(now).len(), 2);
        assert!(beside.called(now + CALL).is_empty());
    }

    #[test]
    fn of_many_a_few_are_called_and_a_bounded_number_is_remembered() {
        let mut beside = Beside::default();
        for number in 0..200 {
            let address = format!("bt:00:11:22:33:44:{number:02x}:4612");
            beside.note(&peer(number, &[&address, &address]));
        }
        assert_eq!(beside.known.len(), MOST_KNOWN);
        let now = Timestamp::from_millis(1_000);
        beside.call_all(now);
        assert_eq!(beside.called(now).len(), MOST_CALLED);
    }
}
