//! Sockets of this network namespace: whose they are, what the kernel measures on them, and how to end them.
//!
//! TCP connections measure their network for us: [`TcpInfo`] has round-trip time and delivery rate of each, so
//! active probes are only needed where nothing flows. [`SocketDiagnostics::destroy`] makes connections of a dead
//! network fail at once (`ECONNABORTED`) instead of hanging.
//!
//! Listing works for everyone; marks, the exact look-up of others' sockets and ending them take `CAP_NET_ADMIN`.

mod record;
mod tcp_info;

use std::io;
use std::net::SocketAddr;

pub use record::{SocketInfo, SocketState, Subflow};
pub use tcp_info::TcpInfo;

use super::conntrack::MarkFilter;
use super::message::{Message, Request};
use super::socket::NetlinkSocket;
use super::{ACK, DUMP, NetlinkError};

/// Protocols whose sockets the kernel lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The addresses of one flow, seen from this host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowKey {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// This host's end.
    pub local: SocketAddr,
    /// The other end, of the same family.
    pub remote: SocketAddr,
    /// Number of the interface that carries it. Without it, sockets that are bound to an interface
    /// (`SO_BINDTODEVICE`) are not found; with it, both those and unbound ones are.
    pub interface: Option<u32>,
}

/// Which sockets to list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selection {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Only connected ones: TCP from SYN to the last FIN (not `TIME_WAIT`), UDP with a fixed far end.
    pub connected: bool,
    /// Only with these firewall marks (`SO_MARK`).
    pub mark: Option<MarkFilter>,
    /// Only those bound to this interface (`SO_BINDTODEVICE`).
    pub interface: Option<u32>,
}

impl Selection {
    /// All connected sockets of a protocol.
    pub fn connected(protocol: Protocol) -> Self {
        Self { protocol, connected: true, mark: None, interface: None }
    }
}

/// A connection to the socket diagnostics of one network namespace.
pub struct SocketDiagnostics {
    socket: NetlinkSocket,
}

impl SocketDiagnostics {
    /// Opens a connection to the current network namespace. Fails where the kernel has no `inet_diag`.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: NetlinkSocket::open(libc::NETLINK_SOCK_DIAG, 0)? })
    }

    /// Gives each selected socket of both families to `on_socket`, one at a time.
    pub fn for_each(
        &mut self,
        selection: Selection,
        mut on_socket: impl FnMut(&SocketInfo),
    ) -> Result<(), NetlinkError> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let states = if selection.connected { CONNECTED_STATES } else { u32::MAX };
            let body = record::request(family, selection.protocol, states, &[0; record::ID_LENGTH]);
            let mut request = Request::new(BY_FAMILY, DUMP, &body);
            let program = filter_program(&selection);
            if !program.is_empty() {
                request.attribute(BYTECODE, &program);
            }
            let each = |message: Message<'_>| {
                if let Some(found) = parse(&message, selection.protocol)
                    && (!selection.connected || found.is_connected())
                {
                    on_socket(&found);
                }
            };
            match self.socket.exchange("list sockets", request, each) {
                Err(error) if error.errno() == libc::EINTR => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// The socket that receives the packets of a flow: the connected one, else the listener or the
    /// unconnected UDP socket at its local port (see [`SocketInfo::is_connected_to`]).
    pub fn find(&mut self, flow: &FlowKey) -> Result<Option<SocketInfo>, NetlinkError> {
        let straight = record::id(flow.local, flow.remote, flow.interface);
        // Looking up UDP sockets, but not ending them, takes the two ends the other way round, "for historical
        // reasons" as the kernel says.
        let swapped = record::id(flow.remote, flow.local, flow.interface);
        let tries = match flow.protocol {
            Protocol::Tcp => &[straight][..],
            Protocol::Udp => &[swapped, straight][..],
        };
        for id in tries {
            let found = self.look_up(flow, id)?.filter(|found| found.serves(flow));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Ends the connected socket of a flow: its owner gets `ECONNABORTED`, a TCP peer a reset.
    ///
    /// False if there is none. Listeners and unconnected UDP sockets are left alone: they serve other flows too.
    /// `EOPNOTSUPP` where the kernel was built without `CONFIG_INET_DIAG_DESTROY`.
    pub fn destroy(&mut self, flow: &FlowKey) -> Result<bool, NetlinkError> {
        match self.find(flow)? {
            Some(found) if found.is_connected_to(flow) => self.destroy_found(&found),
            _ => Ok(false),
        }
    }

    /// Ends all selected sockets that are connected, at most [`Self::MAX_DESTROYED`]; returns how many.
    pub fn destroy_all(&mut self, selection: Selection) -> Result<usize, NetlinkError> {
        let mut doomed = Vec::new();
        self.for_each(Selection { connected: true, ..selection }, |found| {
            if doomed.len() < Self::MAX_DESTROYED {
                doomed.push(*found);
            }
        })?;
        let mut destroyed = 0;
        for found in doomed {
            destroyed += usize::from(self.destroy_found(&found)?);
        }
        Ok(destroyed)
    }

    /// How many sockets one call of [`Self::destroy_all`] ends at most.
    pub const MAX_DESTROYED: usize = 100_000;

    fn look_up(
        &mut self,
        flow: &FlowKey,
        id: &[u8; record::ID_LENGTH],
    ) -> Result<Option<SocketInfo>, NetlinkError> {
        let body = record::request(family(flow.local), flow.protocol, u32::MAX, id);
        let mut found = None;
        let on_message = |message: Message<'_>| found = parse(&message, flow.protocol);
        match self.socket.exchange("look a socket up", Request::new(BY_FAMILY, ACK, &body), on_message) {
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    fn destroy_found(&mut self, found: &SocketInfo) -> Result<bool, NetlinkError> {
        let mut id = record::id(found.local, found.remote, found.interface);
        // The cookie makes sure that it is still the same socket.
        record::set_cookie(&mut id, found.cookie);
        let body = record::request(family(found.local), found.protocol, u32::MAX, &id);
        match self.socket.request("end a socket", Request::new(DESTROY, ACK, &body)) {
            // ESTALE: another socket has the addresses now.
            Err(error) if error.is_missing() || error.errno() == libc::ESTALE => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }
}

fn parse(message: &Message<'_>, protocol: Protocol) -> Option<SocketInfo> {
    if message.kind == BY_FAMILY { SocketInfo::parse(message.body, protocol) } else { None }
}

fn family(address: SocketAddr) -> libc::c_int {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// The filter that the kernel runs on each socket: operations with relative jumps, `yes` to the next one, `no`
/// to 4 bytes behind the end, which means "not this socket".
fn filter_program(selection: &Selection) -> Vec<u8> {
    let mut operations: Vec<(u8, Vec<u8>)> = Vec::new();
    if let Some(filter) = selection.mark {
        let wanted = filter.mark & filter.mask;
        operations.push((CONDITION_MARK, [wanted.to_ne_bytes(), filter.mask.to_ne_bytes()].concat()));
    }
    if let Some(interface) = selection.interface {
        operations.push((CONDITION_INTERFACE, interface.to_ne_bytes().to_vec()));
    }
    let mut program = Vec::new();
    let mut left: usize = operations.iter().map(|(_, value)| 4 + value.len()).sum();
    for (code, value) in operations {
        let length = 4 + value.len();
        program.extend([code, length as u8]);
        program.extend((left as u16 + 4).to_ne_bytes());
        program.extend(value);
        left -= length;
    }
    program
}

const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
const BYTECODE: u16 = 1;
const CONDITION_INTERFACE: u8 = 9;
const CONDITION_MARK: u8 = 10;

/// All but TIME_WAIT (6), CLOSE (7), LISTEN (10) and bound-only (13), as bits.
const CONNECTED_STATES: u32 = 0xfff & !(1 | 1 << 6 | 1 << 7 | 1 << 10) | 1 << 12;

#[cfg(test)]
mod tests;
