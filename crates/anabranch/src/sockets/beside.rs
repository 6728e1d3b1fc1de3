//! Machines that may be beside this one where nobody can speak to all: over Bluetooth only who is called hears anything. They are called when somebody
//! looks for a way over relays, and what is said to everybody waits for the connection.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use identity::PublicKey;
use mesh::node_id;
use units::{MacAddress, Timestamp};
use wire::mesh::{Node, NodeId};
use wire::peer::PeerAddress;

use super::remote;

/// Machines that are remembered; whoever was told first gives way.
const MOST_KNOWN: usize = 64;
/// Ports of one machine that are remembered.
const MOST_PORTS: usize = 8;
/// Called at a time: as many as a controller has in its piconet (Bluetooth Core, volume 2 part B, 1).
const MOST_CALLED: usize = 7;
/// What is said within this time after a call began goes to whoever is called, as a call takes up to 5 s; then others have their turn.
const CALL: Duration = Duration::from_secs(6);

/// A machine that may be beside this one by Bluetooth: [`crate::Endpoint::beside`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineBeside {
    /// Whose it is thought to be.
    pub key: PublicKey,
    /// The address of its controller.
    pub device: MacAddress,
    /// The port at which it would pass on for others.
    pub relay_port: u16,
    /// Where its programs would listen; at most eight count.
    pub ports: Vec<u16>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// In the order in which they were told.
    known: Vec<Known>,
    /// Until when.
    called: BTreeMap<SocketAddr, Timestamp>,
}

#[derive(Debug)]
struct Known {
    key: PublicKey,
    device: MacAddress,
    relay_port: u16,
    /// The machine as nodes of a mesh, each with its port.
    nodes: Vec<(NodeId, u16)>,
    /// When a search of this end's called it last.
    asked: Timestamp,
}

impl Known {
    fn at(&self, port: u16) -> SocketAddr {
        remote::of(PeerAddress::Bluetooth { device: self.device, port })
    }
}

impl Beside {
    /// A machine may be there.
    pub(super) fn note(&mut self, machine: &MachineBeside) {
        let MachineBeside { key, device, relay_port, ports } = machine;
        let same = self.known.iter().position(|known| known.key == *key && known.device == *device);
        let before = same.map(|at| self.known.remove(at));
        if self.known.len() >= MOST_KNOWN {
            self.known.remove(0);
        }
        let node = |port: &u16| (node_id(&Node { key: key.0, port: *port }), *port);
        self.known.push(Known {
            key: *key,
            device: *device,
            relay_port: *relay_port,
            nodes: ports.iter().take(MOST_PORTS).map(node).collect(),
            asked: before.map_or(Timestamp::ZERO, |before| before.asked),
        });
    }

    /// Whoever has this key is not called any more.
    pub(super) fn forget(&mut self, key: PublicKey) {
        self.known.retain(|known| known.key != key);
    }

    /// This end looks for a way: whoever is beside it may pass the question on. Those whose turn is longest ago are called, as far as there is room.
    pub(super) fn call_all(&mut self, now: Timestamp) {
        self.expire(now);
        let mut line: Vec<usize> = (0..self.known.len()).collect();
        line.sort_by_key(|at| self.known.get(*at).map(|known| known.asked));
        for at in line {
            if self.called.len() >= MOST_CALLED {
                return;
            }
            let Some(known) = self.known.get_mut(at) else { continue };
            let address = known.at(known.relay_port);
            if let Entry::Vacant(free) = self.called.entry(address) {
                known.asked = now;
                free.insert(now + CALL);
            }
        }
    }

    /// Somebody else looks for a way to this node, and this end passes the question on.
    pub(super) fn call_one(&mut self, now: Timestamp, node: NodeId) {
        self.expire(now);
        let port_of =
            |known: &Known| known.nodes.iter().find(|(known, _)| *known == node).map(|(_, port)| *port);
        let found = self.known.iter().find_map(|known| port_of(known).map(|port| known.at(port)));
        let Some(address) = found.filter(|_| self.called.len() < MOST_CALLED) else { return };
        self.called.entry(address).or_insert(now + CALL);
    }

    /// Those who are called now.
    pub(super) fn called(&mut self, now: Timestamp) -> Vec<SocketAddr> {
        self.expire(now);
        self.called.keys().copied().collect()
    }

    fn expire(&mut self, now: Timestamp) {
        self.called.retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn machine(number: u8) -> MachineBeside {
        MachineBeside {
            key: PublicKey([number; 32]),
            device: MacAddress([0, 0x11, 0x22, 0x33, 0x44, number]),
            relay_port: 4_612,
            ports: vec![4_610, 4_611, 4_612, 4_613, 4_615],
        }
    }

    fn told(number: u8, port: u16) -> PeerAddress {
        PeerAddress::Bluetooth { device: machine(number).device, port }
    }

    fn called(beside: &mut Beside, now: Timestamp) -> BTreeSet<PeerAddress> {
        beside.called(now).into_iter().map(remote::told).collect()
    }

    #[test]
    fn a_search_calls_relays_and_passing_on_only_whom_it_is_for() {
        let mut beside = Beside::default();
        beside.note(&machine(1));
        beside.note(&machine(2));
        let now = Timestamp::from_millis(1_000);
        assert!(beside.called(now).is_empty());
        beside.call_one(now, node_id(&Node { key: [2; 32], port: 4_615 }));
        beside.call_one(now, node_id(&Node { key: [2; 32], port: 80 }));
        beside.call_one(now, node_id(&Node { key: [3; 32], port: 4_615 }));
        assert_eq!(called(&mut beside, now), BTreeSet::from([told(2, 4_615)]));
        beside.call_all(now);
        let all = BTreeSet::from([told(1, 4_612), told(2, 4_612), told(2, 4_615)]);
        assert_eq!(called(&mut beside, now), all);
        assert!(beside.called(now + CALL).is_empty());
    }

    #[test]
    fn a_search_that_lasts_calls_all_by_turns_and_a_few_at_a_time() {
        let mut beside = Beside::default();
        (0..20).for_each(|number| beside.note(&machine(number)));
        let (start, mut all) = (Timestamp::from_millis(1_000), BTreeSet::new());
        // Three turns of six seconds; asked ten times a second.
        for tenth in 0..180 {
            let now = start + Duration::from_millis(100 * tenth);
            beside.call_all(now);
            let turn = called(&mut beside, now);
            assert_eq!(turn.len(), MOST_CALLED);
            all.extend(turn);
        }
        assert_eq!(all.len(), 20);
        // A call that lasts is not lengthened by asking again.
        let few = &mut Beside::default();
        few.note(&machine(1));
        for tenth in 0..60 {
            few.call_all(start + Duration::from_millis(100 * tenth));
        }
        assert!(few.called(start + CALL).is_empty());
    }

    #[test]
    fn whoever_was_told_first_gives_way_and_each_machine_counts_once() {
        let mut beside = Beside::default();
        for number in 0..u8::try_from(MOST_KNOWN).unwrap() {
            beside.note(&machine(number));
        }
        // Told again, so not the first any more.
        beside.note(&machine(0));
        beside.note(&machine(200));
        assert_eq!(beside.known.len(), MOST_KNOWN);
        let knows = |beside: &Beside, number| beside.known.iter().any(|known| known.key.0 == [number; 32]);
        assert_eq!([0, 1, 2, 200].map(|number| knows(&beside, number)), [true, false, true, true]);
        // All ports of all of them are known.
        let now = Timestamp::from_millis(1_000);
        beside.call_one(now, node_id(&Node { key: [63; 32], port: 4_615 }));
        assert_eq!(called(&mut beside, now), BTreeSet::from([told(63, 4_615)]));
        beside.forget(PublicKey([63; 32]));
        assert!(!knows(&beside, 63));
    }
}
