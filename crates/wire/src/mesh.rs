//! What the nodes of a mesh say to each other: AODV (RFC 3561) with identities in place of addresses, and with signatures.
//!
//! ```text
//! data       40 | hops left (1) | destination (16) | source (16) | payload
//! request    41 | hop count (1) | reach (1) | id (4) | sequence (4) | originator: node (34) | destination (16) | signature (64)
//! reply      42 | hop count (1) | id (4) | originator (16) | sequence (4) | lifetime, ms (4) | destination: node (34) | signature (64)
//! error      43 | sequence (4) | node (34) | count (1) | count times destination (16) | signature (64)
//! hello      44 | flags (1) | sequence (4) | node (34) | count (1) | count times link address | signature (64)
//!
//! node             key (32) | port (2)
//! link address     4 | IPv4 address (4) | port (2)    6 | IPv6 address (16) | port (2)    b | Bluetooth address (6) | PSM (2)
//! ```
//!
//! A group's nodes seal all of these ([`crate::group`]). A signature covers the type byte and what follows it, without the hop count, which every relay changes. The first byte differs
//! from those of bond datagrams, so both share a socket. Integers are big-endian.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::cursor::{Malformed, Reader};
use crate::group::SEALED;

/// What signatures of mesh messages are for, as `identity` labels them.
pub const PURPOSE: &str = "anabranch mesh 1";
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;
/// Bytes in front of the payload of a data message.
pub const DATA_HEADER_LEN: usize = 2 + 2 * NODE_ID_LEN;
/// Most destinations of one error.
pub const MAX_LOST: usize = 32;
/// Most link addresses of one hello.
pub const MAX_LINK_ADDRESSES: usize = 16;
/// Longest message that is no data.
pub const MAX_CONTROL_LEN: usize = 1_200;

const NODE_ID_LEN: usize = 16;
const DATA: u8 = 0x40;
const REQUEST: u8 = 0x41;
const REPLY: u8 = 0x42;
const ERROR: u8 = 0x43;
const HELLO: u8 = 0x44;
const ASKS: u8 = 1;
const RELAYS: u8 = 2;
const V4: u8 = 4;
const V6: u8 = 6;
const BLUETOOTH: u8 = 0x0b;

/// Whether a datagram is of a mesh, open or a group's, as its first byte has it.
pub fn is_mesh(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(DATA..=SEALED))
}

/// A node's short name: a hash of its [`Node`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; NODE_ID_LEN]);

impl fmt::Debug for NodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.first_chunk::<4>().unwrap_or(&[0; 4]) {
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Who a node is: a public key (X25519), and which of the programs that have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node {
    /// The key.
    pub key: [u8; 32],
    /// The UDP port of the program.
    pub port: u16,
}

/// A signature by a node's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature(pub [u8; SIGNATURE_LEN]);

/// A sequence number, RFC 3561 section 6.1: its owner counts it up, and the newer one counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sequence(pub u32);

impl Sequence {
    /// Whether it is newer than another, by the sign of their difference, so that a counter may wrap round.
    pub const fn is_newer_than(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// The one that follows.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Number of a request among those of its originator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u32);

/// Where an adapter of a node is reached by those beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkAddress {
    /// UDP over IPv4.
    V4(Ipv4Addr, u16),
    /// UDP over IPv6.
    V6(Ipv6Addr, u16),
    /// L2CAP: the controller's address and the protocol/service multiplexer.
    Bluetooth([u8; 6], u16),
}

/// Looks for a way to a node: RREQ, RFC 3561 section 5.1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// How many nodes have passed it on. Not signed: nobody but who passes it on could.
    pub hop_count: u8,
    /// How many hops it may go. Signed: a relay may shorten its way and not lengthen it beyond.
    pub reach: u8,
    /// Tells it from others of its originator.
    pub id: RequestId,
    /// The originator's sequence number.
    pub sequence: Sequence,
    /// Who looks.
    pub originator: Node,
    /// For whom.
    pub destination: NodeId,
    /// The originator's.
    pub signature: Signature,
}

/// A way is found: RREP, RFC 3561 section 5.2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// How many nodes have passed it on. Not signed.
    pub hop_count: u8,
    /// The request that it answers.
    pub id: RequestId,
    /// Who asked.
    pub originator: NodeId,
    /// The destination's sequence number.
    pub sequence: Sequence,
    /// How long the way may be believed without being used, milliseconds.
    pub lifetime_ms: u32,
    /// Who was looked for.
    pub destination: Node,
    /// The destination's.
    pub signature: Signature,
}

/// Ways that are no more: RERR, RFC 3561 section 5.3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteError {
    /// Counts up with each error and hello of its node.
    pub sequence: Sequence,
    /// Who says it: the next hop of those whom it concerns.
    pub node: Node,
    /// Destinations that are not reached by this node any more. Their sequence numbers, which the RFC has here, decide nothing where
    /// only the destination itself answers requests.
    pub lost: Vec<NodeId>,
    /// The node's.
    pub signature: Signature,
}

/// A node is there: HELLO, RFC 3561 section 6.9.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// It wants to hear a hello in return.
    pub asks: bool,
    /// It passes on what others send.
    pub relays: bool,
    /// Counts up with each error and hello of its node.
    pub sequence: Sequence,
    /// Who is there.
    pub node: Node,
    /// Where it is reached, adapter by adapter.
    pub addresses: Vec<LinkAddress>,
    /// The node's.
    pub signature: Signature,
}

/// The header of a data message; the payload is what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// How many more hops it may go.
    pub hops_left: u8,
    /// Where to.
    pub destination: NodeId,
    /// Where from; nothing proves it but what is inside the payload.
    pub source: NodeId,
}

/// Any message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Sealed bytes of somebody's bond.
    Data(DataHeader, &'a [u8]),
    /// RREQ.
    Request(Request),
    /// RREP.
    Reply(Reply),
    /// RERR.
    Error(RouteError),
    /// HELLO.
    Hello(Hello),
}

impl DataHeader {
    /// Appends the header.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        buffer.extend([DATA, self.hops_left]);
        buffer.extend(self.destination.0);
        buffer.extend(self.source.0);
    }
}

impl Request {
    /// What the originator signs.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![REQUEST, self.reach];
        bytes.extend(self.id.0.to_be_bytes());
        bytes.extend(self.sequence.0.to_be_bytes());
        put_node(&mut bytes, &self.originator);
        bytes.extend(self.destination.0);
        bytes
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        with_hop_count(self.signed_bytes(), self.hop_count, &self.signature)
    }
}

impl Reply {
    /// What the destination signs.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![REPLY];
        bytes.extend(self.id.0.to_be_bytes());
        bytes.extend(self.originator.0);
        bytes.extend(self.sequence.0.to_be_bytes());
        bytes.extend(self.lifetime_ms.to_be_bytes());
        put_node(&mut bytes, &self.destination);
        bytes
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        with_hop_count(self.signed_bytes(), self.hop_count, &self.signature)
    }
}

impl RouteError {
    /// What the node signs; destinations beyond [`MAX_LOST`] are left out.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![ERROR];
        bytes.extend(self.sequence.0.to_be_bytes());
        put_node(&mut bytes, &self.node);
        let lost = self.lost.get(..self.lost.len().min(MAX_LOST)).unwrap_or_default();
        bytes.push(lost.len() as u8);
        for destination in lost {
            bytes.extend(destination.0);
        }
        bytes
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        [self.signed_bytes(), self.signature.0.to_vec()].concat()
    }
}

impl Hello {
    /// What the node signs; addresses beyond [`MAX_LINK_ADDRESSES`] are left out.
    pub fn signed_bytes(&self) -> Vec<u8> {
        let flags = if self.asks { ASKS } else { 0 } | if self.relays { RELAYS } else { 0 };
        let mut bytes = vec![HELLO, flags];
        bytes.extend(self.sequence.0.to_be_bytes());
        put_node(&mut bytes, &self.node);
        let addresses =
            self.addresses.get(..self.addresses.len().min(MAX_LINK_ADDRESSES)).unwrap_or_default();
        bytes.push(addresses.len() as u8);
        for address in addresses {
            let port = match address {
                LinkAddress::V4(address, port) => {
                    bytes.push(V4);
                    bytes.extend(address.octets());
                    port
                }
                LinkAddress::V6(address, port) => {
                    bytes.push(V6);
                    bytes.extend(address.octets());
                    port
                }
                LinkAddress::Bluetooth(address, multiplexer) => {
                    bytes.push(BLUETOOTH);
                    bytes.extend(address);
                    multiplexer
                }
            };
            bytes.extend(port.to_be_bytes());
        }
        bytes
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        [self.signed_bytes(), self.signature.0.to_vec()].concat()
    }
}

impl<'a> Message<'a> {
    /// Reads a message. Signatures are not checked here.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if kind == DATA {
            let hops_left = reader.u8()?;
            let (destination, source) = (NodeId(reader.array()?), NodeId(reader.array()?));
            return Ok(Self::Data(DataHeader { hops_left, destination, source }, reader.rest()));
        }
        let message = match kind {
            REQUEST => Self::Request(request(&mut reader)?),
            REPLY => Self::Reply(reply(&mut reader)?),
            ERROR => Self::Error(route_error(&mut reader)?),
            HELLO => Self::Hello(hello(&mut reader)?),
            _ => return Err(Malformed::UnknownType(kind)),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed::Field("length")) }
    }
}

fn request(reader: &mut Reader<'_>) -> Result<Request, Malformed> {
    Ok(Request {
        hop_count: reader.u8()?,
        reach: reader.u8()?,
        id: RequestId(reader.u32()?),
        sequence: Sequence(reader.u32()?),
        originator: node(reader)?,
        destination: NodeId(reader.array()?),
        signature: Signature(reader.array()?),
    })
}

fn reply(reader: &mut Reader<'_>) -> Result<Reply, Malformed> {
    Ok(Reply {
        hop_count: reader.u8()?,
        id: RequestId(reader.u32()?),
        originator: NodeId(reader.array()?),
        sequence: Sequence(reader.u32()?),
        lifetime_ms: reader.u32()?,
        destination: node(reader)?,
        signature: Signature(reader.array()?),
    })
}

fn route_error(reader: &mut Reader<'_>) -> Result<RouteError, Malformed> {
    let (sequence, node) = (Sequence(reader.u32()?), node(reader)?);
    let count = usize::from(reader.u8()?);
    if count == 0 || count > MAX_LOST {
        return Err(Malformed::Field("count"));
    }
    let mut lost = Vec::with_capacity(count);
    for _ in 0..count {
        lost.push(NodeId(reader.array()?));
    }
    Ok(RouteError { sequence, node, lost, signature: Signature(reader.array()?) })
}

fn hello(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
    let flags = reader.u8()?;
    if flags & !(ASKS | RELAYS) != 0 {
        return Err(Malformed::Field("flags"));
    }
    let (sequence, node) = (Sequence(reader.u32()?), node(reader)?);
    let count = usize::from(reader.u8()?);
    if count > MAX_LINK_ADDRESSES {
        return Err(Malformed::Field("count"));
    }
    let mut addresses = Vec::with_capacity(count);
    for _ in 0..count {
        addresses.push(match reader.u8()? {
            V4 => LinkAddress::V4(Ipv4Addr::from(reader.array::<4>()?), reader.u16()?),
            V6 => LinkAddress::V6(Ipv6Addr::from(reader.array::<16>()?), reader.u16()?),
            BLUETOOTH => LinkAddress::Bluetooth(reader.array()?, reader.u16()?),
            _ => return Err(Malformed::Field("address type")),
        });
    }
    let (asks, relays) = (flags & ASKS != 0, flags & RELAYS != 0);
    Ok(Hello { asks, relays, sequence, node, addresses, signature: Signature(reader.array()?) })
}

fn node(reader: &mut Reader<'_>) -> Result<Node, Malformed> {
    Ok(Node { key: reader.array()?, port: reader.u16()? })
}

fn put_node(bytes: &mut Vec<u8>, node: &Node) {
    bytes.extend(node.key);
    bytes.extend(node.port.to_be_bytes());
}

fn with_hop_count(signed: Vec<u8>, hop_count: u8, signature: &Signature) -> Vec<u8> {
    let mut bytes = signed;
    bytes.insert(1, hop_count);
    bytes.extend(signature.0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Node = Node { key: [7; 32], port: 4_612 };

    fn hello() -> Hello {
        Hello {
            asks: true,
            relays: false,
            sequence: Sequence(9),
            node: NODE,
            addresses: vec![
                LinkAddress::V4(Ipv4Addr::new(10, 0, 0, 1), 4_612),
                LinkAddress::V6(Ipv6Addr::LOCALHOST, 4_612),
                LinkAddress::Bluetooth([1, 2, 3, 4, 5, 6], 0x1003),
            ],
            signature: Signature([3; SIGNATURE_LEN]),
        }
    }

    #[test]
    fn no_cut_is_accepted_and_nothing_may_follow() {
        let bytes = hello().encode();
        assert_eq!(Message::parse(&bytes), Ok(Message::Hello(hello())));
        assert!((0..bytes.len()).all(|cut| Message::parse(&bytes[..cut]).is_err()));
        assert!(Message::parse(&[&bytes[..], &[0]].concat()).is_err());
        assert!(bytes.len() <= MAX_CONTROL_LEN);
    }

    #[test]
    fn the_longest_messages_are_within_bounds() {
        let lost = vec![NodeId([1; 16]); MAX_LOST + 5];
        let error = RouteError { sequence: Sequence(1), node: NODE, lost, signature: hello().signature };
        assert!(error.encode().len() <= MAX_CONTROL_LEN);
        let Ok(Message::Error(read)) = Message::parse(&error.encode()) else { panic!("not read") };
        assert_eq!(read.lost.len(), MAX_LOST);
    }

    #[test]
    fn a_relay_changes_the_hop_count_and_not_what_is_signed() {
        let request = Request {
            hop_count: 1,
            reach: 5,
            id: RequestId(2),
            sequence: Sequence(3),
            originator: NODE,
            destination: NodeId([4; 16]),
            signature: hello().signature,
        };
        let passed_on = Request { hop_count: 2, ..request.clone() };
        assert_eq!(request.signed_bytes(), passed_on.signed_bytes());
        assert_eq!(Message::parse(&passed_on.encode()), Ok(Message::Request(passed_on)));
    }

    #[test]
    fn sequence_numbers_wrap_round() {
        assert!(Sequence(1).is_newer_than(Sequence(0)));
        assert!(Sequence(0).is_newer_than(Sequence(u32::MAX)));
        assert!(!Sequence(u32::MAX).is_newer_than(Sequence(0)));
        assert!(!Sequence(5).is_newer_than(Sequence(5)));
        assert!(Sequence(0x7fff_ffff).is_newer_than(Sequence(0)));
        assert_eq!(Sequence(u32::MAX).next(), Sequence(0));
    }
}
