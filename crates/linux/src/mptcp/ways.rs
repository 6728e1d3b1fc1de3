//! The subflows of this machine's MPTCP connections, as the kernel lists them.

use std::net::SocketAddr;

use super::paths::PathsError;
use crate::netlink::sock_diag::{Protocol, Selection, SocketDiagnostics, SocketState, Subflow};

/// A subflow of some connection of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) subflow: Subflow,
    /// The far end has answered, and TCP may carry data both ways.
    pub(super) is_established: bool,
}

/// All of them, but for those that this end has ended, which the kernel leaves alone. Takes `CAP_NET_ADMIN`.
pub(super) fn ways() -> Result<Vec<Way>, PathsError> {
    let mut ways = Vec::new();
    SocketDiagnostics::open().map_err(PathsError::Sockets)?.for_each(
        Selection::connected(Protocol::Tcp),
        |socket| {
            use SocketState::{CloseWait, Established, SynReceived, SynSent};
            let lives = matches!(socket.state, SynSent | SynReceived | Established | CloseWait);
            ways.extend(socket.subflow.filter(|_| lives).map(|subflow| Way {
                local: socket.local,
                remote: socket.remote,
                subflow,
                is_established: socket.state == Established && subflow.answered,
            }));
        },
    )?;
    Ok(ways)
}
