//! Ending the flows of a network that is gone, so that their programs need not wait for time-outs.

use std::fmt;
use std::io;

use linux::direct::{NETWORK_MASK, mark_of};
use linux::netlink::NetlinkError;
use linux::netlink::conntrack::{Conntrack, Entry, MarkFilter, TcpState};
use linux::netlink::sock_diag::{FlowKey, Protocol, Selection, SocketDiagnostics};
use thiserror::Error;

use super::challenge::Ends;

/// Why flows were left to their time-outs.
#[derive(Debug, Error)]
pub enum CloseError {
    /// The kernel has no connection tracking or no socket diagnostics that can be used.
    #[error("the kernel's lists of flows and sockets cannot be opened: {0}")]
    Open(io::Error),
    /// It does not answer.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// What was ended, and what is to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Closed {
    /// How many connections of this machine's programs were ended.
    pub own: usize,
    /// Connections of hosts behind it, which end when these show themselves.
    pub behind: Vec<Ends>,
}

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} connections over it were ended", self.own)?;
        if !self.behind.is_empty() {
            write!(formatter, ", and {} of hosts behind this one", self.behind.len())?;
        }
        Ok(())
    }
}

/// Ends all flows of the network with this number.
///
/// The map of networks must be without it already. Connections that are open fail at once; hosts behind this one get a reset
/// for the next packet of theirs. Those that are only being opened without a mark of their own, UDP and all else lose their place in the connection
/// tracking: their next packet takes another network.
///
/// # Errors
/// Any [`CloseError`].
pub fn close_flows(number: u8) -> Result<Closed, CloseError> {
    let mut conntrack = Conntrack::open().map_err(CloseError::Open)?;
    let mut sockets = SocketDiagnostics::open().map_err(CloseError::Open)?;
    let filter = MarkFilter { mark: mark_of(number), mask: NETWORK_MASK };
    let mut connections = Vec::new();
    conntrack.for_each(Some(filter), |entry| {
        if is_open_connection(entry) && connections.len() < SocketDiagnostics::MAX_DESTROYED {
            connections.push(*entry);
        }
    })?;
    let mut closed = Closed::default();
    for entry in &connections {
        let (begun, answered) = flows(entry);
        if sockets.destroy(&begun)? || sockets.destroy(&answered)? {
            closed.own += 1;
        } else {
            closed.behind.extend(inner_ends(entry));
        }
    }
    // Those whose socket has the mark cannot move: their next SYN would take the dead network again.
    let marked = Selection { mark: Some(filter), ..Selection::connected(Protocol::Tcp) };
    closed.own += sockets.destroy_all(marked)?;
    conntrack.delete_marked(filter)?;
    Ok(closed)
}

fn is_open_connection(entry: &Entry) -> bool {
    !matches!(entry.tcp_state, None | Some(TcpState::SynSent | TcpState::TimeWait | TcpState::Close))
}

/// As this machine sees it if it has begun it, and if another one has.
fn flows(entry: &Entry) -> (FlowKey, FlowKey) {
    let (source, destination) = (entry.original.source_socket(), entry.original.destination_socket());
    let key = |local, remote| FlowKey { protocol: Protocol::Tcp, local, remote, interface: None };
    (key(source, destination), key(destination, source))
}

/// The host behind this one and its peer, as that host sees them: the one that has begun, or the one that a connection from outside
/// was handed to. `None` without address translation, when nobody knows which of both is behind.
fn inner_ends(entry: &Entry) -> Option<Ends> {
    if entry.status.has_translated_source() {
        return Some((entry.original.source_socket(), entry.original.destination_socket()));
    }
    let is_handed_on = entry.status.has_translated_destination();
    is_handed_on.then(|| (entry.reply.source_socket(), entry.reply.destination_socket()))
}
