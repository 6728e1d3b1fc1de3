//! Requests for and descriptions of sockets (`linux/inet_diag.h`).
//!
//! ```text
//! request:  family 1, protocol 1, extensions 1, pad 1, states 4, id 48
//! answer:   family 1, state 1, timer 1, retransmits 1, id 48, expires 4, receive queue 4, send queue 4,
//!           user 4, inode 4; then attributes
//! id:       local port 2, remote port 2, local address 16, remote address 16, interface 4, cookie 8
//! ```
//! Ports and addresses are in network byte order, all else in the host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::message::{self, long, number};
use super::{FlowKey, Protocol, TcpInfo};

pub(super) const ID_LENGTH: usize = 48;

/// State of a socket (`include/net/tcp_states.h`); UDP has only `Established` (connected) and `Close`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketState {
    /// Connected.
    Established,
    /// The first SYN is on its way.
    SynSent,
    /// A SYN was answered.
    SynReceived,
    /// This side has ended.
    FinWait1,
    /// This side has ended and the other knows.
    FinWait2,
    /// All over, late packets may come.
    TimeWait,
    /// Not connected.
    Close,
    /// The other side has ended.
    CloseWait,
    /// Both have ended, the last acknowledgement is missing.
    LastAck,
    /// Waits for connections.
    Listen,
    /// Both have ended at once.
    Closing,
    /// A state that this program does not know.
    Other(u8),
}

/// One socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketInfo {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// This host's end; IPv4 even if the socket is an IPv6 one that talks IPv4.
    pub local: SocketAddr,
    /// The other end; unspecified with port 0 if there is none.
    pub remote: SocketAddr,
    /// Its state.
    pub state: SocketState,
    /// The interface to which it is bound.
    pub interface: Option<u32>,
    /// Number of the user who made it.
    pub user: u32,
    /// The number that `/proc/PID/fd` shows; 0 once the owner has closed it.
    pub inode: u32,
    /// The kernel's number of it, never used again until the machine restarts.
    pub cookie: u64,
    /// `SO_MARK`; `None` if 0 or if this process has no `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
    /// Number of the cgroup (version 2) in which it was made; Linux 5.9.
    pub cgroup: Option<u64>,
    /// Traffic class octet of its IPv4 packets.
    pub class_v4: Option<u8>,
    /// The same of its IPv6 packets; `None` if it is an IPv4 socket.
    pub class_v6: Option<u8>,
    /// Bytes received that the owner has not read.
    pub receive_queue: u32,
    /// Bytes not yet acknowledged by the other end.
    pub send_queue: u32,
    /// What TCP measured; `None` for UDP and for listeners.
    pub tcp: Option<TcpInfo>,
    /// Of which MPTCP connection it is a subflow; `None` if of none, if that has fallen back to TCP, or if this process has no `CAP_NET_ADMIN`.
    pub subflow: Option<Subflow>,
}

/// What the kernel tells of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subflow {
    /// This host's token of the connection (RFC 8684 section 3.2).
    pub connection: u32,
    /// The far end has answered that it is one.
    pub answered: bool,
}

impl SocketInfo {
    /// Whether it has a fixed other end.
    pub fn is_connected(&self) -> bool {
        self.remote.port() != 0
    }

    /// Whether it is the socket of this very flow, not one that serves any far end.
    pub fn is_connected_to(&self, flow: &FlowKey) -> bool {
        self.remote == flow.remote && self.serves(flow)
    }

    /// Whether packets of `flow` are for it.
    pub(super) fn serves(&self, flow: &FlowKey) -> bool {
        self.local.port() == flow.local.port()
            && (self.local.ip() == flow.local.ip() || self.local.ip().is_unspecified())
            && (self.remote == flow.remote || !self.is_connected())
    }

    /// Reads an answer, without its netlink header.
    pub(super) fn parse(bytes: &[u8], protocol: Protocol) -> Option<Self> {
        let family = i32::from(*bytes.first()?);
        let id = bytes.get(4..4 + ID_LENGTH)?;
        let mut found = Self {
            protocol,
            local: SocketAddr::new(address(family, &id[4..20])?, message::network_short(&id[0..2])?),
            remote: SocketAddr::new(address(family, &id[20..36])?, message::network_short(&id[2..4])?),
            state: SocketState::from_number(*bytes.get(1)?),
            interface: number(id, 36).filter(|index| *index != 0),
            user: number(bytes, 64)?,
            inode: number(bytes, 68)?,
            cookie: long(id, 40)?,
            mark: None,
            cgroup: None,
            class_v4: None,
            class_v6: None,
            receive_queue: number(bytes, 56)?,
            send_queue: number(bytes, 60)?,
            tcp: None,
            subflow: None,
        };
        for (kind, value) in message::attributes(bytes.get(ANSWER_LENGTH..)?) {
            match kind {
                INFO if protocol == Protocol::Tcp && found.is_connected() => {
                    found.tcp = TcpInfo::parse(value);
                }
                MARK => found.mark = number(value, 0).filter(|mark| *mark != 0),
                CLASS_V4 => found.class_v4 = value.first().copied(),
                CLASS_V6 => found.class_v6 = value.first().copied(),
                CGROUP => found.cgroup = long(value, 0),
                UPPER_LAYER => found.subflow = Subflow::parse(value),
                _ => {}
            }
        }
        Some(found)
    }
}

impl Subflow {
    /// Reads what the layer above TCP says of itself.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (_, mptcp) = message::attributes(bytes).find(|(kind, _)| *kind == UPPER_MPTCP)?;
        let of = |wanted| {
            let mut all = message::attributes(mptcp);
            all.find(|(kind, _)| *kind == wanted).and_then(|(_, value)| number(value, 0))
        };
        let (connection, flags) = (of(LOCAL_TOKEN)?, of(SUBFLOW_FLAGS)?);
        // That a subflow is "fully established" is not told of all: of a first one whose first packets the kernel took together it never is.
        let answered = flags & (CAPABLE | JOINED) != 0;
        // Nobody has answered a first one whose connection has fallen back.
        (answered || flags & JOINS != 0).then_some(Self { connection, answered })
    }
}

impl SocketState {
    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            // 12 is a connection whose SYN was answered and that is no socket of its own yet.
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Close,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            other => Self::Other(other),
        }
    }
}

/// `struct inet_diag_req_v2`.
pub(super) fn request(
    family: libc::c_int,
    protocol: Protocol,
    states: u32,
    id: &[u8; ID_LENGTH],
) -> [u8; REQUEST_LENGTH] {
    let mut body = [0; REQUEST_LENGTH];
    body[0] = family as u8;
    body[1] = protocol.number();
    let of_all = 1 << (CLASS_V4 - 1) | 1 << (CLASS_V6 - 1);
    body[2] = if protocol == Protocol::Tcp { of_all | 1 << (INFO - 1) } else { of_all };
    body[4..8].copy_from_slice(&states.to_ne_bytes());
    body[8..].copy_from_slice(id);
    body
}

/// `struct inet_diag_sockid` of any socket with these addresses, whatever its cookie.
pub(super) fn id(local: SocketAddr, remote: SocketAddr, interface: Option<u32>) -> [u8; ID_LENGTH] {
    let mut id = [0; ID_LENGTH];
    id[0..2].copy_from_slice(&local.port().to_be_bytes());
    id[2..4].copy_from_slice(&remote.port().to_be_bytes());
    put_address(&mut id[4..20], local.ip());
    put_address(&mut id[20..36], remote.ip());
    id[36..40].copy_from_slice(&interface.unwrap_or(0).to_ne_bytes());
    set_cookie(&mut id, ANY_COOKIE);
    id
}

pub(super) fn set_cookie(id: &mut [u8; ID_LENGTH], cookie: u64) {
    id[40..48].copy_from_slice(&cookie.to_ne_bytes());
}

fn put_address(bytes: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.copy_from_slice(&address.octets()),
    }
}

fn address(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?)).to_canonical()),
        _ => None,
    }
}

const REQUEST_LENGTH: usize = 56;
pub(super) const ANSWER_LENGTH: usize = 72;
const ANY_COOKIE: u64 = u64::MAX;

const INFO: u16 = 2;
const CLASS_V4: u16 = 5;
const CLASS_V6: u16 = 6;
const MARK: u16 = 15;
const CGROUP: u16 = 21;
/// `INET_DIAG_ULP_INFO`, and in it `INET_ULP_INFO_MPTCP` with the attributes and flags of `linux/mptcp.h`.
const UPPER_LAYER: u16 = 19;
const UPPER_MPTCP: u16 = 3;
const LOCAL_TOKEN: u16 = 2;
const SUBFLOW_FLAGS: u16 = 8;
const CAPABLE: u32 = 1 << 0;
const JOINED: u32 = 1 << 2;
const JOINS: u32 = 1 << 3;
