//! Ending the flows of a network that is gone, so that their programs need not wait for time-outs.

use std::fmt;
use std::io;
use std::net::IpAddr;

use linux::direct::{Exit, NETWORK_MASK, mark_of};
use linux::netlink::NetlinkError;
use linux::netlink::conntrack::{Conntrack, Entry, MarkFilter, TcpState};
use linux::netlink::sock_diag::{FlowKey, Protocol, Selection, SocketDiagnostics};
use thiserror::Error;

use super::challenge::Ends;
use super::translation;

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

/// Ends all flows of a network. `own` are this machine's addresses, those of any0 included.
///
/// The map of networks must be without it already. Connections that are open fail at once; hosts behind this one get a reset
/// for the next packet of theirs. Those that are only being opened without a mark of their own, UDP and all else lose their place in the connection
/// tracking: their next packet takes another network.
///
/// # Errors
/// Any [`CloseError`].
pub fn close_flows(exit: &Exit, own: &[IpAddr]) -> Result<Closed, CloseError> {
    let mut conntrack = Conntrack::open().map_err(CloseError::Open)?;
    let mut sockets = SocketDiagnostics::open().map_err(CloseError::Open)?;
    let filter = MarkFilter { mark: mark_of(exit.number), mask: NETWORK_MASK };
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
            closed.behind.extend(inner_ends(entry, exit, own));
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
/// was handed to. `None` if it is this machine itself, whose program has ended, or if nobody knows which of both is behind.
fn inner_ends(entry: &Entry, exit: &Exit, own: &[IpAddr]) -> Option<Ends> {
    let (original, reply) = (&entry.original, &entry.reply);
    if own.contains(&original.source) || translation::is_own(original.source) {
        return None;
    }
    if own.contains(&original.destination) {
        let is_handed_on = entry.status.has_translated_destination();
        return is_handed_on.then(|| (reply.source_socket(), reply.destination_socket()));
    }
    // What goes through a NAT64 leaves as IPv6, which is translated in its place.
    let through_nat64 = original.source.is_ipv4() && exit.v4.is_none() && exit.translation.is_some();
    let is_ours = entry.status.has_translated_source() || through_nat64;
    is_ours.then(|| (original.source_socket(), original.destination_socket()))
}

#[cfg(test)]
mod tests {
    use linux::netlink::conntrack::{Family, Status, Tuple};

    use super::*;

    const TRANSLATED_SOURCE: u32 = 0x10;
    const TRANSLATED_DESTINATION: u32 = 0x20;

    fn ends(original: [&str; 2], reply: [&str; 2], status: u32) -> Option<(String, String)> {
        let tuple = |[from, to]: [&str; 2]| Tuple::with_ports(6, from.parse().unwrap(), to.parse().unwrap());
        let entry = Entry {
            family: Family::V4,
            protocol: 6,
            original: tuple(original),
            reply: tuple(reply),
            mark: 0,
            zone: 0,
            original_count: None,
            reply_count: None,
            tcp_state: Some(TcpState::Established),
            timeout: None,
            status: Status(status),
            id: None,
        };
        let exit = Exit {
            number: 1,
            interface: "wan0".to_owned(),
            index: Some(1),
            subnets: Vec::new(),
            v4: None,
            v6: None,
            mtu: 1_500,
            translation: None,
        };
        let own = ["10.255.86.1", "10.1.0.2"].map(|own| own.parse().unwrap());
        inner_ends(&entry, &exit, &own).map(|(host, peer)| (host.to_string(), peer.to_string()))
    }

    #[test]
    fn hosts_behind_are_told_from_this_machine_and_from_those_outside() {
        let some = |host: &str, peer: &str| Some((host.to_owned(), peer.to_owned()));
        let server = "203.0.113.9:443";
        let lan = ["10.20.0.7:5000", server];
        assert_eq!(ends(lan, [server, "10.1.0.2:5000"], TRANSLATED_SOURCE), some(lan[0], server));
        // A program of this machine that has ended.
        let gone = ["10.255.86.1:5000", server];
        assert_eq!(ends(gone, [server, "10.1.0.2:5000"], TRANSLATED_SOURCE), None);
        // Handed on to a host, which sees the caller, or this machine in its place.
        let caller = ["203.0.113.5:999", "10.1.0.2:80"];
        assert_eq!(
            ends(caller, ["10.20.0.7:80", "203.0.113.5:999"], TRANSLATED_DESTINATION),
            some("10.20.0.7:80", "203.0.113.5:999")
        );
        let both = TRANSLATED_SOURCE | TRANSLATED_DESTINATION;
        assert_eq!(
            ends(caller, ["10.20.0.7:80", "10.20.0.1:999"], both),
            some("10.20.0.7:80", "10.20.0.1:999")
        );
        // A host's question that this machine hands to another server.
        assert_eq!(ends(lan, ["192.0.2.8:443", "10.1.0.2:5000"], both), some(lan[0], server));
        // A service of this machine, and nobody's address is translated.
        assert_eq!(ends(caller, ["10.1.0.2:80", "203.0.113.5:999"], 0), None);
        assert_eq!(ends(lan, [server, lan[0]], 0), None);
    }
}
