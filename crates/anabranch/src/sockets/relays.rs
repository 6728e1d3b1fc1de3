//! Ways over relays: where no adapter leads to a peer, its packets go from peer to peer ([`mesh`]). A carrier beside the adapters: to the bond
//! a node of the mesh is a remote address like others.
//!
//! ```text
//! bond --datagram for a node--> header in front --> socket of the adapter of the first hop
//!  ^                                                        relays: header changed, payload as it is (they cannot open it)
//!  +-- datagram of a node <-- header off <------------ socket that it came in by
//!
//! requests and hellos go to everybody who listens to the group on each adapter's link, replies and errors to one neighbour
//! ```

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use identity::{GroupKeys, GroupUse, KeyPair, PublicKey};
use linux::group::Group;
use mesh::{Counters, Event, Forwarding, Hop, Recipient, Relaying, Router, Settings, Signer, Transmit};
use units::{MacAddress, NetworkId, Timestamp};
use wire::group;
use wire::mesh::{
    DATA_HEADER_LEN, DataHeader, LinkAddress, Message, Node, NodeId, PURPOSE, Sequence, Signature,
};
use wire::neighbour::SALT_LEN;
use wire::peer::PeerAddress;

use super::remote;
use crate::machine;

/// Where requests and hellos go. The groups are of the ranges for local use (RFC 2365, RFC 4291 section 2.7), the port is not registered.
pub(super) const GROUP: Group = Group {
    v4: Ipv4Addr::new(239, 255, 97, 98),
    v6: Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x616e, 0x6162),
    port: 4_614,
};
/// Datagrams that wait between a socket and the router.
const MOST_ARRIVED: usize = 2_048;

/// How an endpoint takes part in meshes of peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Relays {
    /// Not at all.
    Off,
    /// It is reached over relays, and looks for peers over relays if no adapter leads to them. It passes on nothing.
    #[default]
    Used,
    /// It also passes on what others send, within these limits.
    Offered(Relaying),
}

/// A datagram of the mesh that has come.
#[derive(Debug)]
pub(super) struct Arrived {
    /// The adapter's place, and who sent it.
    pub(super) hop: Hop,
    pub(super) ecn: wire::inner::Ecn,
    pub(super) bytes: Vec<u8>,
}

/// What is to be done with it, beside what the router keeps to itself.
pub(super) enum Outcome {
    /// Nothing more.
    None,
    /// The bond's datagram, from this node.
    Deliver(NodeId, Vec<u8>),
    /// These bytes to that neighbour.
    PassOn(Hop, Vec<u8>),
}

/// See the module.
pub(super) struct Mesh {
    router: Router,
    /// `None` for the mesh that is open to all.
    sealing: Option<Sealing>,
}

/// What makes a mesh a group's own: everything that its nodes say, and the headers of what they pass on, is sealed with the group's key.
struct Sealing {
    keys: GroupKeys,
    /// Random, of this process and group; a count goes behind it.
    salt: [u8; SALT_LEN / 2],
    count: u64,
}

impl Sealing {
    fn seal(&mut self, message: &[u8], into: &mut Vec<u8>) {
        self.count += 1;
        let mut salt = [0; SALT_LEN];
        let (random, count) = salt.split_at_mut(SALT_LEN / 2);
        random.copy_from_slice(&self.salt);
        count.copy_from_slice(&self.count.to_be_bytes());
        // Without the cryptography there is no endpoint either.
        if let Some(sealed) = self.keys.seal(GroupUse::Relays, &salt, message) {
            group::put_sealed(into, &salt, &sealed);
        }
    }
}

impl Mesh {
    /// This end as a node; `port` is that of its sockets.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(super) fn new(
        now: Timestamp,
        key: &KeyPair,
        port: u16,
        relays: Relays,
        group: Option<&GroupKeys>,
    ) -> Result<Option<Self>, rand::rand_core::OsError> {
        let relaying = match relays {
            Relays::Off => return Ok(None),
            Relays::Used => None,
            Relays::Offered(relaying) => Some(relaying),
        };
        let random = machine::seed()?;
        let seed = u64::from_be_bytes(*random.first_chunk().unwrap_or(&[0; 8]));
        let sealing = group.map(|keys| Sealing {
            keys: keys.clone(),
            salt: *random.last_chunk().unwrap_or(&[0; SALT_LEN / 2]),
            count: 0,
        });
        // Sixteenths of a second: this end never says so much in a second for long, so a later life begins above.
        let first = Sequence((machine::stamp() / 62_500_000) as u32);
        let node = Node { key: key.public().0, port };
        let settings = Settings { relaying, ..Settings::default() };
        let router = Router::new(now, settings, node, Box::new(Key(key.clone())), first, seed);
        Ok(Some(Self { router, sealing }))
    }

    pub(super) fn router(&mut self) -> &mut Router {
        &mut self.router
    }

    pub(super) fn counters(&self) -> Counters {
        self.router.counters()
    }

    /// What a datagram says to this mesh; `None` if it is of another one.
    pub(super) fn open<'a>(&self, datagram: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match (&self.sealing, group::sealed(datagram)) {
            (None, Err(_)) => Some(Cow::Borrowed(datagram)),
            (Some(sealing), Ok((salt, sealed))) => {
                sealing.keys.open(GroupUse::Relays, &salt, sealed).map(Cow::Owned)
            }
            _ => None,
        }
    }

    /// A message of this mesh has come, opened.
    pub(super) fn handle(&mut self, now: Timestamp, hop: Hop, bytes: &[u8]) -> Outcome {
        let Ok(Message::Data(header, payload)) = Message::parse(bytes) else {
            self.router.handle_message(now, hop, bytes);
            return Outcome::None;
        };
        match self.router.handle_data(now, hop, header, bytes.len()) {
            Forwarding::Deliver => Outcome::Deliver(header.source, payload.to_vec()),
            Forwarding::PassOn(next, header) => {
                Outcome::PassOn(next, self.packets(header, payload, payload.len()))
            }
            Forwarding::Drop => Outcome::None,
        }
    }

    /// Datagrams of `segment` bytes each for a node: to whom they go, and as what, with segments longer by the header.
    pub(super) fn wrap(
        &mut self,
        now: Timestamp,
        destination: NodeId,
        bytes: &[u8],
        segment: usize,
    ) -> Option<(Hop, Vec<u8>)> {
        let (hop, header) = self.router.next_hop(now, destination)?;
        Some((hop, self.packets(header, bytes, segment)))
    }

    /// The next message to be sent.
    pub(super) fn poll_transmit(&mut self) -> Option<(Recipient, Vec<u8>)> {
        let Transmit { to, bytes } = self.router.poll_transmit()?;
        let Some(sealing) = &mut self.sealing else { return Some((to, bytes)) };
        let mut sealed = Vec::with_capacity(bytes.len() + group::OVERHEAD);
        sealing.seal(&bytes, &mut sealed);
        Some((to, sealed))
    }

    /// Bytes that a datagram of the bond grows by.
    pub(super) fn overhead(&self) -> usize {
        DATA_HEADER_LEN + if self.sealing.is_some() { group::OVERHEAD } else { 0 }
    }

    /// Each datagram with the header in front, sealed if the mesh is a group's.
    fn packets(&mut self, header: DataHeader, bytes: &[u8], segment: usize) -> Vec<u8> {
        let count = bytes.len().div_ceil(segment.max(1));
        let mut all = Vec::with_capacity(bytes.len() + count * self.overhead());
        let mut open = Vec::new();
        for datagram in bytes.chunks(segment.max(1)) {
            let Some(sealing) = &mut self.sealing else {
                header.put(&mut all);
                all.extend_from_slice(datagram);
                continue;
            };
            open.clear();
            header.put(&mut open);
            open.extend_from_slice(datagram);
            sealing.seal(&open, &mut all);
        }
        all
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.router.poll_event()
    }
}

/// What waits between the sockets and the router.
#[derive(Debug, Default)]
pub(super) struct Inbox(Vec<Arrived>);

impl Inbox {
    /// Keeps a datagram; one too many is lost, as on a full link.
    pub(super) fn push(&mut self, arrived: Arrived) {
        if self.0.len() < MOST_ARRIVED {
            self.0.push(arrived);
        }
    }

    pub(super) fn take(&mut self) -> Vec<Arrived> {
        std::mem::take(&mut self.0)
    }
}

/// A node of one of this end's meshes.
pub(super) type Place = (usize, NodeId);

/// A node as the bond has it: an address that no adapter leads to. Its short name is as long as an IPv6 address, and the mesh has the
/// place of the port.
pub(super) fn address_of((web, node): Place) -> SocketAddr {
    let port = u16::try_from(web).unwrap_or(u16::MAX).saturating_add(1);
    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(node.0), port, 0, 0))
}

/// The node of such an address.
pub(super) fn node_of(address: SocketAddr) -> Option<Place> {
    match address {
        SocketAddr::V6(address) => {
            Some((usize::from(address.port()).checked_sub(1)?, NodeId(address.ip().octets())))
        }
        SocketAddr::V4(_) => None,
    }
}

/// A neighbour behind the socket of a place.
pub(super) fn hop(place: usize, remote: SocketAddr) -> Hop {
    let address = match remote::told(remote) {
        PeerAddress::Ip(SocketAddr::V4(remote)) => LinkAddress::V4(*remote.ip(), remote.port()),
        PeerAddress::Ip(SocketAddr::V6(remote)) => LinkAddress::V6(*remote.ip(), remote.port()),
        PeerAddress::Bluetooth { device, port } => LinkAddress::Bluetooth(device.0, port),
    };
    Hop { network: NetworkId(place as u32), address }
}

/// Where a neighbour is, by the place of its adapter.
pub(super) fn remote_of(hop: Hop) -> (usize, SocketAddr) {
    let address = match hop.address {
        LinkAddress::V4(address, port) => SocketAddr::from((address, port)),
        LinkAddress::V6(address, port) => SocketAddr::from((address, port)),
        LinkAddress::Bluetooth(device, port) => remote::of_device(MacAddress(device), port),
    };
    (hop.network.0 as usize, address)
}

/// Link addresses as others are told of them.
pub(super) fn link_address(address: SocketAddr) -> LinkAddress {
    hop(0, address).address
}

/// Signs with this end's identity.
struct Key(KeyPair);

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(PURPOSE, message))
    }

    fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
        PublicKey(*key).has_signed(PURPOSE, message, &signature.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::GroupSecret;

    const HEADER: DataHeader =
        DataHeader { hops_left: 9, destination: NodeId([1; 16]), source: NodeId([2; 16]) };

    fn node(group: Option<u8>) -> Mesh {
        let keys = group.map(|seed| GroupKeys::new(&GroupSecret([seed; 32])));
        let key = KeyPair::from_private([1; 32]).unwrap();
        Mesh::new(Timestamp::ZERO, &key, 4_612, Relays::Used, keys.as_ref()).unwrap().unwrap()
    }

    #[test]
    fn each_datagram_of_a_batch_gets_a_header_and_a_groups_are_sealed() {
        for group in [None, Some(7)] {
            let mut mesh = node(group);
            let (wrapped, overhead) = (mesh.packets(HEADER, &[7; 250], 100), mesh.overhead());
            assert_eq!(wrapped.len(), 250 + 3 * overhead);
            let sizes: Vec<usize> = wrapped
                .chunks(100 + overhead)
                .map(|datagram| match Message::parse(&mesh.open(datagram).unwrap()) {
                    Ok(Message::Data(found, payload)) if found == HEADER => payload.len(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(sizes, [100, 100, 50]);
        }
    }

    #[test]
    fn what_one_mesh_says_no_other_understands() {
        let [mut open, mut one, other] = [None, Some(7), Some(8)].map(node);
        let said = one.packets(HEADER, b"sealed", 100);
        assert!(one.open(&said).is_some());
        assert!(other.open(&said).is_none() && open.open(&said).is_none());
        let said = open.packets(HEADER, b"open", 100);
        assert!(open.open(&said).is_some());
        assert!(one.open(&said).is_none());
        assert_ne!(one.packets(HEADER, b"sealed", 100), one.packets(HEADER, b"sealed", 100));
    }

    #[test]
    fn nodes_are_addresses_to_the_bond() {
        for web in [0, 7] {
            let place = (web, NodeId([0xfe; 16]));
            assert_eq!(node_of(address_of(place)), Some(place));
        }
    }
}
