//! One tracked connection, as ctnetlink describes it (`linux/netfilter/nfnetlink_conntrack.h`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::super::message::{self, Message, Request, network_long, network_number, network_short};
use super::{GENERIC_HEADER, ID, MARK, NEW, ZONE, kind};

/// Version of the Internet Protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What tells flows of one protocol between the same two hosts apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// TCP, UDP, SCTP, DCCP, UDP-Lite, and the two halves of a GRE key.
    Ports {
        /// Of the sender.
        source: u16,
        /// Of the receiver.
        destination: u16,
    },
    /// ICMP and ICMPv6 questions and answers.
    Echo {
        /// The sender's number of the exchange.
        identifier: u16,
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
    /// Nothing but the protocol.
    Nothing,
}

/// Addresses of the packets of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuple {
    /// Who sends.
    pub source: IpAddr,
    /// Who receives; of the same family.
    pub destination: IpAddr,
    /// IP protocol number: 6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6.
    pub protocol: u8,
    /// Ports or the like.
    pub transport: Transport,
    /// Conntrack zone of this direction only; 0 is the default. See also [`Entry::zone`].
    pub zone: u16,
}

/// Packets and bytes of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// How many packets.
    pub packets: u64,
    /// Their size with IP headers, in bytes.
    pub bytes: u64,
}

/// State of a TCP connection as the tracker sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// No packet was seen.
    None,
    /// The first SYN was seen.
    SynSent,
    /// It was answered.
    SynReceived,
    /// Data may flow.
    Established,
    /// One side has ended.
    FinWait,
    /// The other side knows.
    CloseWait,
    /// Both have ended, one acknowledgement is missing.
    LastAck,
    /// All over, late packets may come.
    TimeWait,
    /// Reset.
    Close,
    /// Both sent a SYN at once.
    SynSentBoth,
    /// A state that this program does not know.
    Other(u8),
}

/// What has become of a flow (`IPS_*` bits of `linux/netfilter/nf_conntrack_common.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status(pub u32);

impl Status {
    /// Packets went both ways.
    pub fn is_answered(self) -> bool {
        self.0 & 0x2 != 0
    }

    /// The flow is not the first to be dropped when the table is full.
    pub fn is_assured(self) -> bool {
        self.0 & 0x4 != 0
    }

    /// The source address is translated.
    pub fn has_translated_source(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// The destination address is translated.
    pub fn has_translated_destination(self) -> bool {
        self.0 & 0x20 != 0
    }
}

/// One tracked connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Version of the Internet Protocol.
    pub family: Family,
    /// IP protocol number: 6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6.
    pub protocol: u8,
    /// The direction of its first packet.
    pub original: Tuple,
    /// The direction of answers, after address translation: its destination is what the world sees.
    pub reply: Tuple,
    /// Connection mark; 0 if never set.
    pub mark: u32,
    /// Zone of both directions; 0 is the default.
    pub zone: u16,
    /// What was carried in the original direction, where the kernel counts.
    pub original_count: Option<Count>,
    /// What was carried in the reply direction, where the kernel counts.
    pub reply_count: Option<Count>,
    /// State of a TCP connection.
    pub tcp_state: Option<TcpState>,
    /// When it is forgotten if no packet comes.
    pub timeout: Option<Duration>,
    /// What has become of it.
    pub status: Status,
    /// The kernel's number of it, by which a later flow of the same addresses is told apart (mostly: the kernel
    /// may give it the same number if it gets the same memory).
    pub id: Option<u32>,
}

impl Family {
    pub(super) fn number(self) -> libc::c_int {
        match self {
            Self::V4 => libc::AF_INET,
            Self::V6 => libc::AF_INET6,
        }
    }
}

impl Tuple {
    /// A TCP or UDP (or the like) tuple in the default zone. Both addresses must be of one family.
    pub fn with_ports(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            source: source.ip(),
            destination: destination.ip(),
            protocol,
            transport: Transport::Ports { source: source.port(), destination: destination.port() },
            zone: 0,
        }
    }

    /// Version of the Internet Protocol.
    pub fn family(&self) -> Family {
        if self.source.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Address and port of the sender; port 0 for protocols without.
    pub fn source_socket(&self) -> SocketAddr {
        SocketAddr::new(self.source, self.port(|source, _| source))
    }

    /// Address and port of the receiver; port 0 for protocols without.
    pub fn destination_socket(&self) -> SocketAddr {
        SocketAddr::new(self.destination, self.port(|_, destination| destination))
    }

    fn port(&self, choose: impl Fn(u16, u16) -> u16) -> u16 {
        match self.transport {
            Transport::Ports { source, destination } => choose(source, destination),
            _ => 0,
        }
    }

    /// Adds this tuple to `request` as the original direction.
    pub(super) fn add_to(&self, request: &mut Request) {
        self.add_as(TUPLE_ORIGINAL, request);
    }

    pub(super) fn add_as(&self, attribute: u16, request: &mut Request) {
        let (source, destination) = match self.family() {
            Family::V4 => (V4_SOURCE, V4_DESTINATION),
            Family::V6 => (V6_SOURCE, V6_DESTINATION),
        };
        request.nested(attribute, |tuple| {
            tuple.nested(TUPLE_ADDRESSES, |addresses| {
                addresses.address(source, self.source).address(destination, self.destination);
            });
            tuple.nested(TUPLE_PROTOCOL, |inner| {
                inner.attribute(PROTOCOL_NUMBER, &[self.protocol]);
                match self.transport {
                    Transport::Ports { source, destination } => {
                        inner.attribute(SOURCE_PORT, &source.to_be_bytes());
                        inner.attribute(DESTINATION_PORT, &destination.to_be_bytes());
                    }
                    Transport::Echo { identifier, kind, code } => {
                        let base = if self.source.is_ipv4() { ICMP_IDENTIFIER } else { ICMP6_IDENTIFIER };
                        inner.attribute(base, &identifier.to_be_bytes());
                        inner.attribute(base + 1, &[kind]);
                        inner.attribute(base + 2, &[code]);
                    }
                    Transport::Nothing => {}
                }
            });
            if self.zone != 0 {
                tuple.attribute(TUPLE_ZONE, &self.zone.to_be_bytes());
            }
        });
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (mut addresses, mut protocol, mut zone) = (None, None, 0);
        for (kind, value) in message::attributes(bytes) {
            match kind {
                TUPLE_ADDRESSES => addresses = parse_addresses(value),
                TUPLE_PROTOCOL => protocol = parse_protocol(value),
                TUPLE_ZONE => zone = network_short(value)?,
                _ => {}
            }
        }
        let (source, destination) = addresses?;
        let (protocol, transport) = protocol?;
        Some(Self { source, destination, protocol, transport, zone })
    }
}

fn parse_addresses(bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let (mut source, mut destination) = (unknown, unknown);
    for (kind, value) in message::attributes(bytes) {
        match kind {
            V4_SOURCE | V6_SOURCE => source = message::address(value)?,
            V4_DESTINATION | V6_DESTINATION => destination = message::address(value)?,
            _ => {}
        }
    }
    (source.is_ipv4() == destination.is_ipv4()).then_some((source, destination))
}

fn parse_protocol(bytes: &[u8]) -> Option<(u8, Transport)> {
    let (mut source, mut destination) = (None, None);
    let (mut identifier, mut icmp_kind, mut code) = (None, 0, 0);
    let mut protocol = None;
    for (kind, value) in message::attributes(bytes) {
        match kind {
            PROTOCOL_NUMBER => protocol = value.first().copied(),
            SOURCE_PORT => source = network_short(value),
            DESTINATION_PORT => destination = network_short(value),
            ICMP_IDENTIFIER | ICMP6_IDENTIFIER => identifier = network_short(value),
            ICMP_KIND | ICMP6_KIND => icmp_kind = *value.first()?,
            ICMP_CODE | ICMP6_CODE => code = *value.first()?,
            _ => {}
        }
    }
    let transport = match (source, destination, identifier) {
        (Some(source), Some(destination), _) => Transport::Ports { source, destination },
        (_, _, Some(identifier)) => Transport::Echo { identifier, kind: icmp_kind, code },
        _ => Transport::Nothing,
    };
    Some((protocol?, transport))
}

impl Entry {
    /// The entry in a ctnetlink answer; `None` if it is something else or not whole.
    pub(super) fn from_message(message: &Message<'_>) -> Option<Self> {
        if message.kind != kind(NEW) {
            return None;
        }
        Self::parse(message.body.get(GENERIC_HEADER..)?)
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (mut original, mut reply) = (None, None);
        let (mut original_count, mut reply_count) = (None, None);
        let (mut mark, mut zone, mut status) = (0, 0, Status::default());
        let (mut tcp_state, mut timeout, mut id) = (None, None, None);
        for (kind, value) in message::attributes(bytes) {
            match kind {
                TUPLE_ORIGINAL => original = Tuple::parse(value),
                TUPLE_REPLY => reply = Tuple::parse(value),
                STATUS => status = Status(network_number(value)?),
                PROTOCOL_STATE => tcp_state = parse_tcp_state(value),
                TIMEOUT => timeout = network_number(value).map(|value| Duration::from_secs(value.into())),
                MARK => mark = network_number(value)?,
                COUNT_ORIGINAL => original_count = parse_count(value),
                COUNT_REPLY => reply_count = parse_count(value),
                ID => id = network_number(value),
                ZONE => zone = network_short(value)?,
                _ => {}
            }
        }
        let (original, reply) = (original?, reply?);
        Some(Self {
            family: original.family(),
            protocol: original.protocol,
            original,
            reply,
            mark,
            zone,
            original_count,
            reply_count,
            tcp_state,
            timeout,
            status,
            id,
        })
    }
}

fn parse_count(bytes: &[u8]) -> Option<Count> {
    let mut count = Count::default();
    for (kind, value) in message::attributes(bytes) {
        match kind {
            COUNT_PACKETS => count.packets = network_long(value)?,
            COUNT_BYTES => count.bytes = network_long(value)?,
            _ => {}
        }
    }
    Some(count)
}

fn parse_tcp_state(bytes: &[u8]) -> Option<TcpState> {
    let (_, tcp) = message::attributes(bytes).find(|(kind, _)| *kind == PROTOCOL_STATE_TCP)?;
    let (_, state) = message::attributes(tcp).find(|(kind, _)| *kind == TCP_STATE)?;
    Some(match *state.first()? {
        0 => TcpState::None,
        1 => TcpState::SynSent,
        2 => TcpState::SynReceived,
        3 => TcpState::Established,
        4 => TcpState::FinWait,
        5 => TcpState::CloseWait,
        6 => TcpState::LastAck,
        7 => TcpState::TimeWait,
        8 => TcpState::Close,
        9 => TcpState::SynSentBoth,
        other => TcpState::Other(other),
    })
}

pub(super) const TUPLE_ORIGINAL: u16 = 1;
pub(super) const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
pub(super) const TIMEOUT: u16 = 7;
const COUNT_ORIGINAL: u16 = 9;
const COUNT_REPLY: u16 = 10;

const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
const V4_SOURCE: u16 = 1;
const V4_DESTINATION: u16 = 2;
const V6_SOURCE: u16 = 3;
const V6_DESTINATION: u16 = 4;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const ICMP_IDENTIFIER: u16 = 4;
const ICMP_KIND: u16 = 5;
const ICMP_CODE: u16 = 6;
const ICMP6_IDENTIFIER: u16 = 7;
const ICMP6_KIND: u16 = 8;
const ICMP6_CODE: u16 = 9;
const COUNT_PACKETS: u16 = 1;
const COUNT_BYTES: u16 = 2;
const PROTOCOL_STATE_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
