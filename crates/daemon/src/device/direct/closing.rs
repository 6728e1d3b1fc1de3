//! Ending the flows of a network that is gone, so that their programs need not wait for time-outs.

use std::io;

use linux::direct::{NETWORK_MASK, mark_of};
use linux::netlink::NetlinkError;
use linux::netlink::conntrack::{Conntrack, Entry, MarkFilter, TcpState};
use linux::netlink::sock_diag::{FlowKey, Protocol, Selection, SocketDiagnostics};
use thiserror::Error;

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

/// Ends all flows of the network with this number; says how many connections of this machine's programs were ended.
///
/// The map of networks must be without it already. Connections that are open fail at once, and forwarded ones get a reset
/// for their next packet. Those that are only being opened without a mark of their own, UDP and all else lose their place in the connection
/// tracking: their next packet takes another network.
///
/// # Errors
/// Any [`CloseError`].
pub fn close_flows(number: u8) -> Result<usize, CloseError> {
    let mut conntrack = Conntrack::open().map_err(CloseError::Open)?;
    let mut sockets = SocketDiagnostics::open().map_err(CloseError::Open)?;
    let filter = MarkFilter { mark: mark_of(number), mask: NETWORK_MASK };
    let mut connections = Vec::new();
    conntrack.for_each(Some(filter), |entry| {
        if is_open_connection(entry) && connections.len() < SocketDiagnostics::MAX_DESTROYED {
            connections.push(flow(entry));
        }
    })?;
    let mut ended = 0;
    for flow in connections {
        ended += usize::from(sockets.destroy(&flow)?);
    }
    // Those whose socket has the mark cannot move: their next SYN would take the dead network again.
    let marked = Selection { mark: Some(filter), ..Selection::connected(Protocol::Tcp) };
    ended += sockets.destroy_all(marked)?;
    conntrack.delete_marked(filter)?;
    Ok(ended)
}

fn is_open_connection(entry: &Entry) -> bool {
    !matches!(entry.tcp_state, None | Some(TcpState::SynSent | TcpState::TimeWait | TcpState::Close))
}

fn flow(entry: &Entry) -> FlowKey {
    let (local, remote) = (entry.original.source_socket(), entry.original.destination_socket());
    FlowKey { protocol: Protocol::Tcp, local, remote, interface: None }
}
